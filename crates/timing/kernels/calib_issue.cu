// Three FFMA and one integer maximum in turn: the issue ceiling of the machine.
//
// Where an SM has 64 FP32 lanes, FFMA alone fills only half of the issue slots; the integer pipe takes others. The
// mix matters: on an H200 this one issues in 0.997 of the cycles, one to one in 0.96, and FFMA with LOP3 of three
// registers one to one in only 0.67, since both want three operands from the register file.
// Each maximum is used twice (by its own successor and by its neighbour's), so that the assembler cannot fuse two.
//
// Instructions per thread = trips * 256.
// target: sm_60
extern "C" __global__ void __launch_bounds__(256) calib_issue(float *out, unsigned int trips, float a, float b) {
    float acc[8];
    int top[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        acc[i] = (float)(threadIdx.x + i);
        top[i] = threadIdx.x * 77 + i;
    }
    for (unsigned int t = 0; t < trips; ++t) {
#pragma unroll
        for (int u = 0; u < 64; ++u) {
#pragma unroll
            for (int i = 0; i < 3; ++i)
                asm volatile("fma.rn.f32 %0, %0, %1, %2;" : "+f"(acc[(3 * u + i) & 7]) : "f"(a), "f"(b));
            asm volatile("max.s32 %0, %0, %1;" : "+r"(top[u & 7]) : "r"(top[(u + 1) & 7]));
        }
    }
    float sum = 0.0f;
    unsigned int all = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        sum += acc[i];
        all += top[i];
    }
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum + (float)(all & 1u);
}
