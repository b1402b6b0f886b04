// Changed against gpu_07: iterations are not even compared. One comparison per block of 16 tells whether the orbit
// escaped anywhere in the block, because an orbit that has left the circle |z| = 2 never comes back.
//
// Why that is exact, in floating point. Let r = |z| at the first point whose computed x*x + y*y is not <= 4. A
// computed z' differs from z^2 + c by a few roundings: |z'| >= r^2 (1 - 2^-20) - |c| (1 + 2^-20).
//   |c|^2 <= 4 - 1e-3: then |c| <= 2 - 2.4e-4. The rounded test failed, so r >= 2 - 1e-6, and with r = 2 + e
//   r^2 - |c| >= 2 + 2.4e-4 + 4e: the next point lies outside by at least 2.3e-4, and from there e more than triples
//   at each step.
//   |c|^2 >= 4 + 1e-3: then |c| >= 2 + 2.4e-4. z1 is c itself, so the orbit fails the test at z1, and r = |c|.
//   r^2 - |c| >= r^2 - r = r (r - 1) >= r (1 + 2.4e-4), far above the roundings, and stays above |c| and grows.
// Growth ends in overflow: y2 = inf makes x' = -inf or NaN, an infinite x makes y' infinite or NaN, and a NaN stays.
// Each of these fails the test. So a point that passes at the end of a block had only passing points before it.
// In the ring between (| |c|^2 - 4 | < 1e-3) the margin could be lost to rounding; such a pixel takes gpu_04's loop
// from its first iteration. On the real axis c = -2 is such a pixel.
//
// A failed block is replayed from its start with gpu_04's block for the exact count, by all lanes of the warp at once,
// as in gpu_07.
//
// Instructions per warp iteration: 5 (1 FMUL, 2 FFMA, 2 FADD) + 9/16, and 132 for the replay. FLOPs are counted as
// for every rung, 9 an iteration, of which this one skips 2. Traffic: as gpu_01.
// target: sm_60

// One iteration in seven issue slots and one that counts. p stays true while every |z|^2 so far was <= 4: the
// comparison ands itself with the p before it (a NaN compares false), so the block needs no branch. k is the number
// of the last iteration that p let through: a move each time, in this order of lines, measured 2% faster than
// adding 1 to n.
#define STEP(number)                                                                                                   \
    "mul.rn.f32 y2, %1, %1;\n\t"                                                                                       \
    "sub.rn.f32 t, %4, y2;\n\t"                                                                                        \
    "add.rn.f32 w, %0, %0;\n\t"                                                                                        \
    "fma.rn.f32 %1, w, %1, %5;\n\t"                                                                                    \
    "fma.rn.f32 m, %0, %0, y2;\n\t"                                                                                    \
    "fma.rn.f32 %0, %0, %0, t;\n\t"                                                                                    \
    "setp.le.and.f32 p, m, 0f40800000, p;\n\t"                                                                         \
    "@p mov.u32 k, " #number ";\n\t"
#define STEPS_8 STEP(1) STEP(2) STEP(3) STEP(4) STEP(5) STEP(6) STEP(7) STEP(8)
#define STEPS_16 STEPS_8 STEP(9) STEP(10) STEP(11) STEP(12) STEP(13) STEP(14) STEP(15) STEP(16)

// Sixteen iterations of z -> z^2 + c. n counts those that started with |z| <= 2; returns whether all of them did.
static __device__ __forceinline__ bool block16(float &x, float &y, unsigned int &n, float cx, float cy) {
    unsigned int alive;
    asm("{\n\t"
        ".reg .pred p;\n\t"
        ".reg .u32 k;\n\t"
        ".reg .f32 y2, m, t, w;\n\t"
        "mov.u32 k, 0;\n\t"
        "setp.eq.u32 p, 0, 0;\n\t" STEPS_16 "add.u32 %2, %2, k;\n\t"
        "selp.u32 %3, 1, 0, p;\n\t"
        "}"
        : "+f"(x), "+f"(y), "+r"(n), "=r"(alive)
        : "f"(cx), "f"(cy));
    return alive;
}

// z -> z^2 + c: five instructions.
static __device__ __forceinline__ void iterate(float &x, float &y, float cx, float cy) {
    const float t = __fsub_rn(cx, __fmul_rn(y, y));
    y = __fmaf_rn(__fadd_rn(x, x), y, cy);
    x = __fmaf_rn(x, x, t);
}

static __device__ __forceinline__ float norm2(float x, float y) { return __fmaf_rn(x, x, __fmul_rn(y, y)); }

extern "C" __global__ void __launch_bounds__(128)
    gpu_08_deferred_check(unsigned int *out, unsigned int width, unsigned int height, unsigned int max_iter, float x0,
                          float y0, float dx, float dy) {
    const unsigned int lane = threadIdx.x % 32;
    const unsigned int tile = blockIdx.x * 4 + threadIdx.x / 32;
    const unsigned int tiles_x = (width + 7) / 8;
    const unsigned int px = tile % tiles_x * 8 + lane % 8;
    const unsigned int py = tile / tiles_x * 4 + lane / 8;
    if (px >= width || py >= height) return;
    const float cx = __fmaf_rn((float)px, dx, x0);
    const float cy = __fmaf_rn((float)py, dy, y0);
    float x = 0.0f, y = 0.0f;
    unsigned int n = 0;
    const bool in_ring = fabsf(norm2(cx, cy) - 4.0f) < 1e-3f;
    if (!in_ring) {
        while (n < max_iter) {
            float xb = x, yb = y;
#pragma unroll
            for (int i = 0; i < 16; ++i) iterate(xb, yb, cx, cy);
            const bool inside = norm2(xb, yb) <= 4.0f;
            if (!inside) break;
            x = xb;
            y = yb;
            n += 16;
        }
    }
    // Outside the ring one block suffices: the escape is at one of its 16 points or at the one after, so that all 16
    // count.
    if (n < max_iter) {
        bool alive;
        do {
            alive = block16(x, y, n, cx, cy);
        } while (in_ring && alive && n < max_iter);
    }
    out[(size_t)py * width + px] = min(n, max_iter);
}
