// Reads a footprint that fits the L2, again and again, past L1 (.cg): the L2 ceiling in bytes read.
//
// Each block starts at its own place in the footprint and walks it in chunks of 4 x blockDim 16-byte words, so that
// at any moment the SMs spread over all slices. words is a multiple of 4 x blockDim.
//
// Bytes per thread = trips * 4 * 16.
// target: sm_60
extern "C" __global__ void __launch_bounds__(512)
    calib_l2(const uint4 *in, unsigned int *out, unsigned int words, unsigned int trips) {
    const unsigned int chunk = 4u * blockDim.x;
    const unsigned int chunks = words / chunk;
    unsigned int at = (blockIdx.x * 7919u) % chunks;
    unsigned int sum = 0;
    for (unsigned int i = 0; i < trips; ++i) {
        const uint4 *p = in + (unsigned long long)at * chunk + threadIdx.x;
        uint4 v[4];
#pragma unroll
        for (int u = 0; u < 4; ++u)
            asm volatile("ld.global.cg.v4.u32 {%0,%1,%2,%3}, [%4];"
                         : "=r"(v[u].x), "=r"(v[u].y), "=r"(v[u].z), "=r"(v[u].w)
                         : "l"(p + u * blockDim.x));
#pragma unroll
        for (int u = 0; u < 4; ++u) sum ^= v[u].x ^ v[u].y ^ v[u].z ^ v[u].w;
        at = at + 1 == chunks ? 0 : at + 1;
    }
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}
