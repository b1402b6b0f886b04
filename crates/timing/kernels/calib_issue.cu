// FFMA and integer instructions in turn: the issue ceiling of the machine.
//
// Where an SM has 64 FP32 lanes, FFMA alone fills only half of the issue slots; the integer pipe takes the other
// half. Each trip issues 128 FFMA and 128 LOP3 per thread. The LOP3 is the bitwise majority of three registers:
// it has no identity and already three inputs, so the assembler can neither drop one nor fuse two.
//
// Instructions per thread = trips * 256.
// target: sm_60
extern "C" __global__ void __launch_bounds__(256)
    calib_issue(float *out, unsigned int trips, float a, float b, unsigned int key) {
    float acc[8];
    unsigned int bits[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        acc[i] = (float)(threadIdx.x + i);
        bits[i] = threadIdx.x + i;
    }
    for (unsigned int t = 0; t < trips; ++t) {
#pragma unroll
        for (int u = 0; u < 16; ++u) {
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                asm volatile("fma.rn.f32 %0, %0, %1, %2;" : "+f"(acc[i]) : "f"(a), "f"(b));
                asm volatile("lop3.b32 %0, %0, %1, %2, 0xE8;" : "+r"(bits[i]) : "r"(bits[(i + 1) & 7]), "r"(key));
            }
        }
    }
    float sum = 0.0f;
    unsigned int all = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        sum += acc[i];
        all += bits[i];
    }
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum + (float)(all & 1u);
}
