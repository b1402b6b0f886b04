// Independent FFMA chains: the FP32 ceiling of the machine.
//
// Each thread runs 16 accumulators, 16 x 16 FFMA per trip, so the loop's own instructions are 1% of the issue
// slots and no FFMA waits for the one before it. a and b come from the host, so nothing folds; each accumulator
// converges to b / (1 - a), which the host checks.
//
// FFMA per thread = trips * 256.
// target: sm_60
extern "C" __global__ void __launch_bounds__(256) calib_fma(float *out, unsigned int trips, float a, float b) {
    float acc[16];
#pragma unroll
    for (int i = 0; i < 16; ++i) acc[i] = (float)(threadIdx.x + i);
    for (unsigned int t = 0; t < trips; ++t) {
#pragma unroll
        for (int u = 0; u < 16; ++u) {
#pragma unroll
            for (int i = 0; i < 16; ++i) asm volatile("fma.rn.f32 %0, %0, %1, %2;" : "+f"(acc[i]) : "f"(a), "f"(b));
        }
    }
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < 16; ++i) sum += acc[i];
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}
