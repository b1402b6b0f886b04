/* What a C compiler makes of the loop when it is written for its vectoriser: a fixed number of pixels in arrays, every
   lane does the same, no branch inside. Compiled once for each instruction set, NAME tells them apart.
   The multiply-adds are explicit, so that the counts are those of the fused formulation. */

#include <stdint.h>

#ifndef LANES
#define LANES 64
#endif
#define BLOCK 8

void NAME(float x0, float y0, float dx, float dy, uint32_t width, uint32_t height, uint32_t max_iter, uint32_t *out)
{
    for (uint32_t py = 0; py < height; py++) {
        const float cy = __builtin_fmaf((float)py, dy, y0);
        for (uint32_t first = 0; first < width; first += LANES) {
            float cx[LANES], x[LANES], y[LANES];
            int32_t n[LANES], inside[LANES];
            for (int l = 0; l < LANES; l++) {
                cx[l] = __builtin_fmaf((float)(first + (uint32_t)l), dx, x0);
                x[l] = 0;
                y[l] = 0;
                n[l] = 0;
                inside[l] = -1;
            }
            for (uint32_t done = 0; done < max_iter;) {
                const uint32_t steps = max_iter - done < BLOCK ? max_iter - done : BLOCK;
                for (uint32_t step = 0; step < steps; step++) {
                    for (int l = 0; l < LANES; l++) {
                        const float y2 = y[l] * y[l];
                        const float m = __builtin_fmaf(x[l], x[l], y2);
                        inside[l] &= -(int32_t)(m <= 4.0f);
                        n[l] -= inside[l];
                        const float xn = __builtin_fmaf(x[l], x[l], cx[l] - y2);
                        y[l] = __builtin_fmaf(x[l] + x[l], y[l], cy);
                        x[l] = xn;
                    }
                }
                done += steps;
                int32_t any = 0;
                for (int l = 0; l < LANES; l++)
                    any |= inside[l];
                if (!any)
                    break;
            }
            const uint32_t count = width - first < LANES ? width - first : LANES;
            for (uint32_t l = 0; l < count; l++)
                out[(uint64_t)py * width + first + l] = (uint32_t)n[l];
        }
    }
}
