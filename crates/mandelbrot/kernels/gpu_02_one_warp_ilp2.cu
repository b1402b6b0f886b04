// Changed against gpu_01: two pixels per thread, the textbook instruction-level parallelism.
//
// The two orbits are independent, so the waits of one chain are filled with instructions of the other: a pair of
// iterations needs 16 issue slots, and the chain of 10 to 12 cycles hides inside them. A pair should take a lone warp
// 18 cycles instead of 24. The price is divergence: the thread loops while either of its pixels is alive and computes
// both all the time, so that the warp now waits for the longest of 64 pixels and not of 32.
//
// A thread's second pixel is 8 columns to the right of its first (the warp takes two neighbouring tiles, 16x4
// pixels), so that stores stay whole sectors. Past the right edge it is computed and not stored.
//
// Instructions per warp and pair of iterations: 2 x 8 + 9/16. Traffic: as gpu_01.
// target: sm_60

// One iteration of pixel A and one of pixel B. Neither needs the other's results: a second chain to fill the waits of
// the first.
#define STEP(number)                                                                                                   \
    "mul.rn.f32 ay2, %1, %1;\n\t"                                                                                      \
    "mul.rn.f32 by2, %4, %4;\n\t"                                                                                      \
    "sub.rn.f32 at, %8, ay2;\n\t"                                                                                      \
    "sub.rn.f32 bt, %9, by2;\n\t"                                                                                      \
    "add.rn.f32 aw, %0, %0;\n\t"                                                                                       \
    "add.rn.f32 bw, %3, %3;\n\t"                                                                                       \
    "fma.rn.f32 %1, aw, %1, %10;\n\t"                                                                                  \
    "fma.rn.f32 %4, bw, %4, %10;\n\t"                                                                                  \
    "fma.rn.f32 am, %0, %0, ay2;\n\t"                                                                                  \
    "fma.rn.f32 bm, %3, %3, by2;\n\t"                                                                                  \
    "fma.rn.f32 %0, %0, %0, at;\n\t"                                                                                   \
    "fma.rn.f32 %3, %3, %3, bt;\n\t"                                                                                   \
    "setp.le.and.f32 ap, am, 0f40800000, ap;\n\t"                                                                      \
    "setp.le.and.f32 bp, bm, 0f40800000, bp;\n\t"                                                                      \
    "@ap mov.u32 ak, " #number ";\n\t"                                                                                 \
    "@bp mov.u32 bk, " #number ";\n\t"
#define STEPS_8 STEP(1) STEP(2) STEP(3) STEP(4) STEP(5) STEP(6) STEP(7) STEP(8)
#define STEPS_16 STEPS_8 STEP(9) STEP(10) STEP(11) STEP(12) STEP(13) STEP(14) STEP(15) STEP(16)

// One pixel's orbit.
struct Orbit {
    float cx, x, y;
    unsigned int n;
    // Whether |z| <= 2 has held so far. A block starts from it, so that a finished pixel's count stands still.
    unsigned int alive;
};

static __device__ __forceinline__ Orbit orbit(float cx) { return Orbit{cx, 0.0f, 0.0f, 0, 1}; }

// Sixteen iterations of both pixels, which share the row and with it cy.
static __device__ __forceinline__ void block16(Orbit &a, Orbit &b, float cy) {
    asm("{\n\t"
        ".reg .pred ap, bp;\n\t"
        ".reg .u32 ak, bk;\n\t"
        ".reg .f32 ay2, am, at, aw, by2, bm, bt, bw;\n\t"
        "mov.u32 ak, 0;\n\t"
        "mov.u32 bk, 0;\n\t"
        "setp.ne.u32 ap, %6, 0;\n\t"
        "setp.ne.u32 bp, %7, 0;\n\t" STEPS_16 "add.u32 %2, %2, ak;\n\t"
        "add.u32 %5, %5, bk;\n\t"
        "selp.u32 %6, 1, 0, ap;\n\t"
        "selp.u32 %7, 1, 0, bp;\n\t"
        "}"
        : "+f"(a.x), "+f"(a.y), "+r"(a.n), "+f"(b.x), "+f"(b.y), "+r"(b.n), "+r"(a.alive), "+r"(b.alive)
        : "f"(a.cx), "f"(b.cx), "f"(cy));
}

// Counts two pixels, both computed for as long as either needs it.
static __device__ __forceinline__ void count2(Orbit &a, Orbit &b, float cy, unsigned int max_iter) {
    do {
        block16(a, b, cy);
    } while ((a.alive && a.n < max_iter) || (b.alive && b.n < max_iter));
}

extern "C" __global__ void __launch_bounds__(32)
    gpu_02_one_warp_ilp2(unsigned int *out, unsigned int width, unsigned int height, unsigned int max_iter, float x0,
                         float y0, float dx, float dy) {
    const unsigned int lane = threadIdx.x % 32;
    const unsigned int tiles_x = (width + 15) / 16;
    const unsigned int tiles = tiles_x * ((height + 3) / 4);
    for (unsigned int tile = 0; tile < tiles; ++tile) {
        const unsigned int px = tile % tiles_x * 16 + lane % 8;
        const unsigned int py = tile / tiles_x * 4 + lane / 8;
        if (px < width && py < height) {
            const float cy = __fmaf_rn((float)py, dy, y0);
            Orbit a = orbit(__fmaf_rn((float)px, dx, x0));
            Orbit b = orbit(__fmaf_rn((float)(px + 8), dx, x0));
            count2(a, b, cy, max_iter);
            out[(size_t)py * width + px] = min(a.n, max_iter);
            if (px + 8 < width) out[(size_t)py * width + px + 8] = min(b.n, max_iter);
        }
    }
}
