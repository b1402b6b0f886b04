// Copies n 16-byte words: the device memory ceiling, bytes read plus bytes written.
//
// Four independent 16-byte loads are in flight per thread before the first store, and neighbouring threads touch
// neighbouring words, so every request is four full sectors per eight lanes. A block owns a contiguous chunk of
// 4 x blockDim words. Streaming hints (.cs) keep the two streams from evicting each other's useful lines.
// target: sm_60
extern "C" __global__ void calib_copy(const uint4 *in, uint4 *out, unsigned long long n) {
    const unsigned long long base = (unsigned long long)blockIdx.x * (4u * blockDim.x) + threadIdx.x;
    uint4 v[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const unsigned long long at = base + (unsigned long long)i * blockDim.x;
        if (at < n)
            asm volatile("ld.global.cs.v4.u32 {%0,%1,%2,%3}, [%4];"
                         : "=r"(v[i].x), "=r"(v[i].y), "=r"(v[i].z), "=r"(v[i].w)
                         : "l"(in + at));
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const unsigned long long at = base + (unsigned long long)i * blockDim.x;
        if (at < n)
            asm volatile("st.global.cs.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(out + at), "r"(v[i].x), "r"(v[i].y),
                         "r"(v[i].z), "r"(v[i].w)
                         : "memory");
    }
}
