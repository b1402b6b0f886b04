// Where the warps of a grid land and for how long: gpu_04's work, with the places and times of each warp written down.
//
// Build and run:  nvcc -arch=sm_90 -O3 -std=c++17 -o warp_places warp_places.cu && ./warp_places
//
// For blocks of 1, 4 and 8 warps on the whole set, 1024x1024 pixels, 2000 iterations: when the n-th warp started, and
// at some moments of the launch the fewest, mean and most warps on a scheduler (a warp's scheduler is %warpid % 4).
#include <algorithm>
#include <cstdio>
#include <vector>

struct Place {
    unsigned long long from, to;
    unsigned int sm, warp;
};

constexpr unsigned int SIZE = 1024, MAX_ITER = 2000;

static __device__ unsigned long long now() {
    unsigned long long ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
}

__global__ void places(Place *place, unsigned int *out) {
    const unsigned long long from = now();
    const unsigned int lane = threadIdx.x % 32, tile = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    const unsigned int px = tile % (SIZE / 8) * 8 + lane % 8, py = tile / (SIZE / 8) * 4 + lane / 8;
    const float cx = __fmaf_rn(px, 2.5f / SIZE, -2.0f), cy = __fmaf_rn(py, 2.5f / SIZE, -1.25f);
    float x = 0.0f, y = 0.0f;
    unsigned int n = 0;
    bool inside = true;
    do {
#pragma unroll
        for (int i = 0; i < 16; ++i) {
            const float y2 = __fmul_rn(y, y);
            inside = inside && __fmaf_rn(x, x, y2) <= 4.0f;
            n += inside;
            const float t = __fsub_rn(cx, y2);
            y = __fmaf_rn(__fadd_rn(x, x), y, cy);
            x = __fmaf_rn(x, x, t);
        }
    } while (inside && n < MAX_ITER);
    out[py * SIZE + px] = min(n, MAX_ITER);
    __syncwarp();
    if (lane == 0) {
        unsigned int sm, warp;
        asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
        asm volatile("mov.u32 %0, %%warpid;" : "=r"(warp));
        place[tile] = {from, now(), sm, warp};
    }
}

int main() {
    const unsigned int warps = SIZE * SIZE / 32;
    cudaDeviceProp device;
    if (cudaGetDeviceProperties(&device, 0) != cudaSuccess) return fprintf(stderr, "no CUDA device\n"), 1;
    const int schedulers = device.multiProcessorCount * 4;
    Place *place;
    unsigned int *out;
    cudaMalloc(&place, warps * sizeof(Place));
    cudaMalloc(&out, SIZE * SIZE * 4);
    std::vector<Place> p(warps);
    for (unsigned int per_block : {1u, 4u, 8u}) {
        for (int i = 0; i < 200; ++i) places<<<warps / per_block, 32 * per_block>>>(place, out);
        if (cudaMemcpy(p.data(), place, warps * sizeof(Place), cudaMemcpyDeviceToHost) != cudaSuccess)
            return fprintf(stderr, "a kernel failed\n"), 1;
        unsigned long long first = ~0ull, last = 0;
        std::vector<unsigned long long> starts, ends(schedulers);
        for (const Place &w : p) {
            first = std::min(first, w.from), last = std::max(last, w.to);
            starts.push_back(w.from);
            unsigned long long &end = ends[w.sm * 4 + w.warp % 4];
            end = std::max(end, w.to);
        }
        std::sort(starts.begin(), starts.end());
        std::sort(ends.begin(), ends.end());
        printf("{\"warps_per_block\": %u, \"us\": %.1f, \"start_us\": {", per_block, (last - first) / 1e3);
        for (unsigned int n : {1056u, 2112u, 4224u, 8448u, warps})
            printf("\"%u\": %.2f%s", n, (starts[n - 1] - first) / 1e3, n == warps ? "" : ", ");
        printf("}, \"scheduler_end_us\": {\"first\": %.1f, \"median\": %.1f, \"last\": %.1f}, "
               "\"warps_on_a_scheduler\": [",
               (ends[0] - first) / 1e3, (ends[schedulers / 2] - first) / 1e3, (ends[schedulers - 1] - first) / 1e3);
        for (int percent : {30, 50, 70}) {
            const unsigned long long at = first + (last - first) * percent / 100;
            std::vector<int> on(schedulers);
            for (const Place &w : p)
                if (w.from <= at && at < w.to) ++on[w.sm * 4 + w.warp % 4];
            int sum = 0;
            for (int n : on) sum += n;
            printf("{\"percent\": %d, \"least\": %d, \"mean\": %.1f, \"most\": %d}%s", percent,
                   *std::min_element(on.begin(), on.end()), double(sum) / schedulers,
                   *std::max_element(on.begin(), on.end()), percent == 70 ? "" : ", ");
        }
        printf("]}\n");
    }
}
