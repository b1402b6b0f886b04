/* The loop as one writes it in C, compiled with cc -O2: what a scalar rung must not be slower than. */

#include <stdint.h>

void NAME(float x0, float y0, float dx, float dy, uint32_t width, uint32_t height, uint32_t max_iter,
          uint32_t *out)
{
    for (uint32_t py = 0; py < height; py++) {
        const float cy = __builtin_fmaf((float)py, dy, y0);
        for (uint32_t px = 0; px < width; px++) {
            const float cx = __builtin_fmaf((float)px, dx, x0);
            float x = 0, y = 0;
            uint32_t n = 0;
            while (n < max_iter) {
                const float x2 = x * x, y2 = y * y;
                if (!(x2 + y2 <= 4.0f))
                    break;
                y = (x + x) * y + cy;
                x = (x2 - y2) + cx;
                n++;
            }
            out[(uint64_t)py * width + px] = n;
        }
    }
}
