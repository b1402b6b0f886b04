// Conflict-free 16-byte shared loads: the shared-memory ceiling, 128 bytes a cycle and SM where it is met.
//
// Each lane reads its own 16 bytes, a warp 512 contiguous bytes in four wavefronts. All
// loads have one address, so they are volatile: otherwise the assembler would load once. The values are folded at
// one or two integer instructions per loaded word, 5 in the time of 16 issue slots: not the limit.
//
// Bytes per thread = trips * 16 * 16. The host checks the folded value.
// target: sm_60
extern "C" __global__ void __launch_bounds__(512) calib_shared(unsigned int *out, unsigned int trips) {
    __shared__ uint4 tile[512];
    const unsigned int t = threadIdx.x;
    tile[t] = make_uint4(t, t + 1, t + 2, t + 3);
    __syncthreads();
    unsigned int at;
    asm volatile("{ .reg .u64 p; cvta.to.shared.u64 p, %1; cvt.u32.u64 %0, p; }" : "=r"(at) : "l"(&tile[t]));
    uint4 sum = make_uint4(0, 0, 0, 0);
    for (unsigned int i = 0; i < trips; ++i) {
#pragma unroll
        for (int u = 0; u < 16; ++u) {
            uint4 v;
            asm volatile("ld.volatile.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
                         : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                         : "r"(at));
            sum.x ^= v.x + u;
            sum.y ^= v.y;
            sum.z ^= v.z;
            sum.w ^= v.w;
        }
    }
    out[blockIdx.x * blockDim.x + t] = sum.x ^ sum.y ^ sum.z ^ sum.w;
}
