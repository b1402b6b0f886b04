// Changed against gpu_04: a lane whose pixel is done takes another one, while its neighbours go on with theirs.
//
// In gpu_04 a warp lasts as long as its longest pixel, and near the boundary of the set that wastes more than half of
// the lanes. Here the warps are persistent (the host launches as many as shall stay resident) and draw pixels from a
// queue. After each block of 16 iterations the warp counts its idle lanes; from 8 on it stops to deliver and refill.
// Fewer would stop it too often (a refill costs nearly as much as a block), more would leave lanes idle for longer.
//
// The queue is one counter in device memory. A warp claims chunks of 32 pixels of a row from it, one atomic for 32
// pixels, and hands them to its lanes as they fall idle: the ballot of the idle lanes gives each its place among them.
// Every chunk is claimed once, and every warp makes exactly one claim beyond the last chunk, which sends it home.
// That is chunks + warps claims in every launch, so atom.inc, which wraps to 0 behind a given last value, leaves the
// counter at 0 after each launch with no reset by anyone: the kernel can be replayed from a graph. The host zeroes
// the counter once; a launch that dies midway takes its context and the counter with it.
//
// Fewer warps than gpu_04 has: when the queue runs dry, each pixel still has up to max_iter iterations before it and
// advances by one each time that its scheduler has served all of its warps. Four warps fill a scheduler (a block has
// 137 instructions and a chain of about 220 cycles), and more would only make the end longer.
//
// Instructions per warp iteration: 8 + 9/16, and about 110 per refill; divergence costs at most 7 idle lanes and the
// rest of a block. Traffic: a lane stores its 4 bytes alone, up to one sector a pixel. One atomic for 32 pixels of
// a row and one for each warp. No loads.
// target: sm_60

// One iteration in seven issue slots and a count. p stays true while every |z|^2 so far was <= 4: the comparison
// ands itself with the p before it (a NaN compares false), so the block needs no branch. (gpu_04 counts by moves; in
// this loop, that was 5% slower.)
#define STEP                                                                                                           \
    "mul.rn.f32 y2, %1, %1;\n\t"                                                                                       \
    "fma.rn.f32 m, %0, %0, y2;\n\t"                                                                                    \
    "setp.le.and.f32 p, m, 0f40800000, p;\n\t"                                                                         \
    "@p add.u32 %2, %2, 1;\n\t"                                                                                        \
    "sub.rn.f32 t, %4, y2;\n\t"                                                                                        \
    "add.rn.f32 w, %0, %0;\n\t"                                                                                        \
    "fma.rn.f32 %1, w, %1, %5;\n\t"                                                                                    \
    "fma.rn.f32 %0, %0, %0, t;\n\t"
#define STEP4 STEP STEP STEP STEP


// Sixteen iterations of z -> z^2 + c. n counts those that started with |z| <= 2, from the first on and only while
// running; running says afterwards whether that still holds. All lanes execute it: an idle one computes for nothing.
static __device__ __forceinline__ void block16(float &x, float &y, unsigned int &n, bool &running, float cx, float cy) {
    unsigned int r = running;
    asm("{\n\t"
        ".reg .pred p;\n\t"
        ".reg .f32 y2, m, t, w;\n\t"
        "setp.ne.u32 p, %3, 0;\n\t" STEP4 STEP4 STEP4 STEP4 "selp.u32 %3, 1, 0, p;\n\t"
        "}"
        : "+f"(x), "+f"(y), "+r"(n), "+r"(r)
        : "f"(cx), "f"(cy));
    running = r;
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
    gpu_06_lane_refill(unsigned int *out, unsigned int width, unsigned int height, unsigned int max_iter, float x0,
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
    unsigned int n = 0, at = 0;

    for (;;) {
        // Lanes that finished deliver, then take pixels until all have one or the queue is dry.
        if (has_pixel && !running) {
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
                running = has_pixel = true;
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
            block16(x, y, n, running, cx, cy);
            running = running && n < max_iter;
            idle = __popc(__ballot_sync(0xffffffffu, !running));
        } while (idle < stop_from);
    }
}
