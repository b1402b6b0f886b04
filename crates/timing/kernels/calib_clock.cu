// One warp notes the SM clock and the wall clock of the device at the same moment.
//
// Launched before and after a sample, two notes give the SM frequency during the sample, if both ran on the same
// SM (clock64 counts one SM's cycles). The wall clock advances in coarse steps (32 ns to 1 us), so the note is
// taken right after a step: the spin waits for globaltimer to change, at most one step.
//
// out[0] = clock64, out[1] = globaltimer in ns, out[2] = SM index.
// target: sm_60
extern "C" __global__ void calib_clock(unsigned long long *out) {
    if (threadIdx.x != 0) return;
    unsigned long long before, now, cycles;
    unsigned int sm;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(before));
    do {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (now == before);
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(cycles));
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    out[0] = cycles;
    out[1] = now;
    out[2] = sm;
}
