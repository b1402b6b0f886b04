// Times a grid rung's kernel from a file, machine code or PTX, at 1024x1024 pixels.
//
// Build and run:  nvcc -arch=sm_90 -O3 -std=c++17 -o time_kernel time_kernel.cu
//                 ./time_kernel FILE ENTRY THREADS [SHARED_KIB]
//
// SHARED_KIB of dynamic shared memory for each block keep other blocks off the SM. The checksum of the counts is the
// same for all rungs.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

static void check(cudaError_t error, const char *what) {
    if (error == cudaSuccess) return;
    fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
    exit(1);
}

int main(int argc, char **argv) {
    if (argc < 4) return fprintf(stderr, "usage: time_kernel FILE ENTRY THREADS [SHARED_KIB]\n"), 2;
    const unsigned int threads = atoi(argv[3]), shared = argc > 4 ? atoi(argv[4]) * 1024 : 0;
    if (threads == 0 || threads % 32 != 0 || threads > 1024)
        return fprintf(stderr, "THREADS: 32 to 1024, whole warps\n"), 2;
    cudaLibrary_t library;
    cudaKernel_t kernel;
    check(cudaLibraryLoadFromFile(&library, argv[1], nullptr, nullptr, 0, nullptr, nullptr, 0), argv[1]);
    check(cudaLibraryGetKernel(&kernel, library, argv[2]), argv[2]);
    const void *function = (const void *)kernel;
    check(cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, shared), "shared memory");

    struct {
        const char *name;
        float x0, y0, x1, y1;
        unsigned int max_iter;
    } const views[] = {{"interior", -0.4f, -0.25f, 0.1f, 0.25f, 2000},
                       {"whole", -2.0f, -1.25f, 0.5f, 1.25f, 2000},
                       {"boundary", -0.7475f, 0.0985f, -0.7455f, 0.1005f, 2000},
                       {"whole", -2.0f, -1.25f, 0.5f, 1.25f, 256}};
    unsigned int *out, size = 1024;
    check(cudaMalloc(&out, size * size * 4), "memory");
    std::vector<unsigned int> counts(size * size);
    cudaStream_t stream;
    cudaEvent_t from, to;
    check(cudaStreamCreate(&stream), "stream");
    check(cudaEventCreate(&from), "event");
    check(cudaEventCreate(&to), "event");
    for (auto view : views) {
        float dx = (view.x1 - view.x0) / size, dy = (view.y1 - view.y0) / size;
        void *args[] = {&out, &size, &size, &view.max_iter, &view.x0, &view.y0, &dx, &dy};
        const dim3 grid(size / 8 * (size / 4) * 32 / threads);
        const int launches = 10;
        cudaGraph_t graph;
        cudaGraphExec_t replay;
        check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "capture");
        for (int i = 0; i < launches; ++i)
            check(cudaLaunchKernel(function, grid, dim3(threads), args, shared, stream), "launch");
        check(cudaStreamEndCapture(stream, &graph), "capture");
        check(cudaGraphInstantiate(&replay, graph, 0), "graph");
        check(cudaMemset(out, 0xA5, size * size * 4), "poison");
        std::vector<float> us;
        for (int sample = 0; sample < 15; ++sample) {
            check(cudaEventRecord(from, stream), "event");
            check(cudaGraphLaunch(replay, stream), "replay");
            check(cudaEventRecord(to, stream), "event");
            check(cudaEventSynchronize(to), "run");
            float ms;
            check(cudaEventElapsedTime(&ms, from, to), "time");
            if (sample >= 4) us.push_back(ms * 1e3f / launches);
        }
        check(cudaMemcpy(counts.data(), out, size * size * 4, cudaMemcpyDeviceToHost), "counts");
        unsigned long long sum = 0;
        for (size_t i = 0; i < counts.size(); ++i) sum = sum * 31 + counts[i];
        std::sort(us.begin(), us.end());
        printf("{\"file\": \"%s\", \"threads\": %u, \"shared_kib\": %u, \"view\": \"%s\", \"max_iter\": %u, "
               "\"us\": %.2f, \"checksum\": \"%016llx\"}\n",
               argv[1], threads, shared / 1024, view.name, view.max_iter, us[us.size() / 2], sum);
    }
}
