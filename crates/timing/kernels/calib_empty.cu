// Does nothing. Timed between two events it gives the cost of a launch and the step of the event clock.
// target: sm_60
extern "C" __global__ void calib_empty() {}
