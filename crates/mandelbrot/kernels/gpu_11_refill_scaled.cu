// Changed against gpu_09: the four-instruction iteration of gpu_10. Everything that pays, in one kernel.
//
// A block is 32 iterations, two runs through gpu_10's scales with one multiplication between them. y comes by on scale 1
// in the middle of each run, so the points after 8 and 24 iterations are there for nothing, and the one after 16 for a
// multiplication at the stop. Taking a pixel costs 16 multiplications more, for the scaled cy.
//
// The queue is one counter in device memory. A warp claims chunks of 32 pixels of a row from it, one atomic for 32
// pixels, and hands them to its lanes as they fall idle: the ballot of the idle lanes gives each its place among them.
// Every chunk is claimed once, and every warp makes exactly one claim beyond the last chunk, which sends it home.
// That is chunks + warps claims in every launch, so atom.inc, which wraps to 0 behind a given last value, leaves the
// counter at 0 after each launch with no reset by anyone: the kernel can be replayed from a graph. The host zeroes
// the counter once; a launch that dies midway takes its context and the counter with it.
//
// Instructions per warp iteration: 4 + 18/32; about 220 per refill, of which the replay is 70. Traffic: as gpu_06.
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

// Eight iterations of z -> z^2 + c. n counts those that started with |z| <= 2; returns whether all of them did.
static __device__ __forceinline__ bool block8(float &x, float &y, unsigned int &n, float cx, float cy) {
    unsigned int alive;
    asm("{\n\t"
        ".reg .pred p;\n\t"
        ".reg .u32 k;\n\t"
        ".reg .f32 y2, m, t, w;\n\t"
        "mov.u32 k, 0;\n\t"
        "setp.eq.u32 p, 0, 0;\n\t" STEPS_8 "add.u32 %2, %2, k;\n\t"
        "selp.u32 %3, 1, 0, p;\n\t"
        "}"
        : "+f"(x), "+f"(y), "+r"(n), "=r"(alive)
        : "f"(cx), "f"(cy));
    return alive;
}

static __device__ __forceinline__ float norm2(float x, float y) { return __fmaf_rn(x, x, __fmul_rn(y, y)); }

// Two to the power e; a constant of the instruction once the loop around it is unrolled.
static __device__ __forceinline__ float pow2(int e) { return __int_as_float((127 + e) << 23); }

// cy[i] is c's imaginary part on the scale of iteration i's result.
static __device__ __forceinline__ void scale_cy(float (&cy_scaled)[16], float cy) {
#pragma unroll
    for (int i = 0; i < 16; ++i) cy_scaled[i] = __fmul_rn(cy, pow2(7 - i));
}

// Iteration i of 16: four instructions. s is y times 2^(8-i) before and y times 2^(7-i) after.
static __device__ __forceinline__ void iterate(float &x, float &s, float cx, const float (&cy_scaled)[16], int i) {
    const float t = __fmaf_rn(__fmul_rn(s, s), -pow2(2 * i - 16), cx);
    const float next = __fmaf_rn(x, x, t);
    s = __fmaf_rn(x, s, cy_scaled[i]);
    x = next;
}

// Whether neither the missing tests nor the scale can change a count.
static __device__ __forceinline__ bool is_exact(float cx, float cy) {
    const bool off_ring = !(fabsf(norm2(cx, cy) - 4.0f) < 1e-3f);
    const bool normal = fabsf(cy) >= pow2(-5) || (fabsf(cy) >= pow2(-60) && fabsf(cx) >= pow2(-80));
    return off_ring && (normal || cy == 0.0f);
}

// The next unclaimed chunk, the same in all lanes. The counter goes from 0 to last and wraps to 0.
static __device__ __forceinline__ unsigned int claim(unsigned int *counter, unsigned int last, unsigned int lane) {
    unsigned int chunk = 0;
    if (lane == 0) chunk = atomicInc(counter, last);
    return __shfl_sync(0xffffffffu, chunk, 0);
}

// Idle lanes that make a warp stop to refill.
#define REFILL_FROM 8

extern "C" __global__ void __launch_bounds__(128)
    gpu_11_refill_scaled(unsigned int *out, unsigned int width, unsigned int height, unsigned int max_iter, float x0,
                         float y0, float dx, float dy, unsigned int *counter) {
    const unsigned int lane = threadIdx.x % 32;
    const unsigned int lanes_below = (1u << lane) - 1;
    const unsigned int chunks_x = (width + 31) / 32;
    const unsigned int chunks = chunks_x * height;
    const unsigned int last = chunks + gridDim.x * (blockDim.x / 32) - 1;

    // Of the warp: the rest of its chunk, and whether the queue may hold more.
    unsigned int row = 0, column = 0, left = 0;
    bool more = true;
    // Of the lane: its pixel.
    bool has_pixel = false, running = false;
    float cx = 0.0f, cy = 0.0f, x = 0.0f, y = 0.0f;
    float cy_scaled[16];
    scale_cy(cy_scaled, cy);
    float x8 = 0.0f, y8 = 0.0f, x16 = 0.0f, s16 = 0.0f, x24 = 0.0f, y24 = 0.0f;
    unsigned int n = 0, at = 0;
    bool exact = true;

    for (;;) {
        // Lanes that finished deliver, then take pixels until all have one or the queue is dry.
        if (has_pixel && !running) {
            if (n < max_iter) {
                // The last of the points on the way that lies inside: all before it do.
                if (exact) {
                    const float y16 = __fmul_rn(s16, pow2(8));
                    if (norm2(x8, y8) <= 4.0f) x = x8, y = y8, n += 8;
                    if (norm2(x16, y16) <= 4.0f) x = x16, y = y16, n += 8;
                    if (norm2(x24, y24) <= 4.0f) x = x24, y = y24, n += 8;
                }
                bool alive;
                do {
                    alive = block8(x, y, n, cx, cy);
                } while (!exact && alive && n < max_iter);
            }
            out[at] = min(n, max_iter);
            has_pixel = false;
        }
        while (more) {
            const unsigned int idle = __ballot_sync(0xffffffffu, !has_pixel);
            if (idle == 0) break;
            if (left == 0) {
                const unsigned int chunk = claim(counter, last, lane);
                more = chunk < chunks;
                if (!more) break;
                row = chunk / chunks_x;
                column = chunk % chunks_x * 32;
                left = min(32u, width - column);
            }
            const unsigned int rank = __popc(idle & lanes_below);
            if (!has_pixel && rank < left) {
                at = row * width + column + rank;
                cx = __fmaf_rn((float)(column + rank), dx, x0);
                cy = __fmaf_rn((float)row, dy, y0);
                x = y = 0.0f;
                n = 0;
                scale_cy(cy_scaled, cy);
                exact = is_exact(cx, cy);
                has_pixel = true;
                running = exact;
            }
            const unsigned int taken = min((unsigned int)__popc(idle), left);
            column += taken;
            left -= taken;
        }
        if (!more && !__any_sync(0xffffffffu, has_pixel)) return;

        // With nothing left to take, stop only when the last lane is done.
        const int stop_from = more ? REFILL_FROM : 32;
        int idle;
        do {
            float xb = x, s = __fmul_rn(y, pow2(8));
#pragma unroll
            for (int i = 0; i < 16; ++i) {
                if (i == 8) x8 = xb, y8 = s;
                iterate(xb, s, cx, cy_scaled, i);
            }
            x16 = xb, s16 = s;
            s = __fmul_rn(s, pow2(16));
#pragma unroll
            for (int i = 0; i < 16; ++i) {
                if (i == 8) x24 = xb, y24 = s;
                iterate(xb, s, cx, cy_scaled, i);
            }
            const float yb = __fmul_rn(s, pow2(8));
            running = running && norm2(xb, yb) <= 4.0f;
            if (running) {
                x = xb, y = yb, n += 32;
            }
            running = running && n < max_iter;
            idle = __popc(__ballot_sync(0xffffffffu, !running));
        } while (idle < stop_from);
    }
}
