//! Every core, each running the best kernel of one core.
//!
//! Changed: the threads run `cpu_08_avx512_scaled` instead of one vector.
//! Why: the two gains are independent: vectors in flight fill a core's ports, threads fill the cores.
//! Cost: the instruction mix of `cpu_08_avx512_scaled`. Every thread takes the next 256 pixels when it has no more, so its
//! vectors stay full until the image ends. Taking them is one atomic addition and a lock that nobody else wants: a single
//! lock for all chunks would be asked for every 100 ns on 16 threads.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::avx512::Avx512;
use super::cpu_08_avx512_scaled::{IN_FLIGHT, Scaled};
use super::deferred::{CHUNK, Flight};
use crate::view::Problem;

/// Counts of `problem`, row-major.
pub fn run(problem: &Problem, out: &mut [u32]) {
    assert_eq!(out.len(), problem.pixels(), "output length");
    let simd = Avx512::detect().expect("AVX-512");
    // The number says whose turn it is; the locks only hand the slices out by value.
    let chunks: Vec<_> = out.chunks_mut(CHUNK).map(|chunk| Mutex::new(Some(chunk))).collect();
    let taken = AtomicUsize::new(0);
    rayon::broadcast(|_| {
        let next = || {
            let number = taken.fetch_add(1, Ordering::Relaxed);
            let chunk = chunks.get(number)?.lock().expect("no thread panics while it holds a lock").take();
            chunk.map(|chunk| (number * CHUNK, chunk))
        };
        simd.run(Flight::<'_, '_, Scaled, _, IN_FLIGHT> { problem, next, block: std::marker::PhantomData });
    });
}
