// Writes word value(i) = i * 2654435761 + seed to n words: inputs for the copy and L2 ceilings, and the flush
// between cold samples.
// target: sm_60
extern "C" __global__ void calib_fill(unsigned int *out, unsigned long long n, unsigned int seed) {
    const unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
    for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)
        out[i] = (unsigned int)i * 2654435761u + seed;
}
