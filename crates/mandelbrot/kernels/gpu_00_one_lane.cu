// One thread of one warp computes every pixel: the scalar program, on a GPU.
//
// The other 31 lanes of the warp are switched off and every other scheduler of the chip sleeps, so this is the cost
// of running a serial loop here. Nothing is in flight but one orbit, and an iteration cannot start before the one
// before it has produced x and y: the time is a chain of dependent FP32 instructions, about 4 cycles each.
// Around the longest cycle (y -> y2 -> t -> x' -> x'+x' -> y'') that is 5 instructions for 2 iterations, 10 cycles
// an iteration at best.
//
// Blocks of 16 iterations keep the loop's own instructions at 3 in 131. All rungs up to gpu_04 share this block.
//
// Instructions per iteration: 1 FMUL, 3 FFMA, 2 FADD, 1 FSETP, 1 predicated move, 3/16 sum and loop; 9 FLOPs.
// Traffic: one store of 4 bytes, one sector, per pixel. No loads.
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

// The count of one pixel. The last block may run past max_iter or past the escape: neither can change the minimum.
static __device__ __forceinline__ unsigned int count(float cx, float cy, unsigned int max_iter) {
    float x = 0.0f, y = 0.0f;
    unsigned int n = 0;
    bool alive;
    do {
        alive = block16(x, y, n, cx, cy);
    } while (alive && n < max_iter);
    return min(n, max_iter);
}

extern "C" __global__ void __launch_bounds__(1)
    gpu_00_one_lane(unsigned int *out, unsigned int width, unsigned int height, unsigned int max_iter, float x0,
                    float y0, float dx, float dy) {
    for (unsigned int py = 0; py < height; ++py) {
        const float cy = __fmaf_rn((float)py, dy, y0);
        for (unsigned int px = 0; px < width; ++px) {
            const float cx = __fmaf_rn((float)px, dx, x0);
            out[(size_t)py * width + px] = count(cx, cy, max_iter);
        }
    }
}
