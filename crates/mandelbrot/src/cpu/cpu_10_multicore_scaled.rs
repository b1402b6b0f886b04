//! Every core, each running the best kernel of one core.
//!
//! Changed: the threads run `cpu_08_avx512_scaled` instead of one vector.
//! Why: the two gains are independent: vectors in flight fill a core's ports, threads fill the cores.
//! Cost: the instruction mix of `cpu_08_avx512_scaled`. Every thread takes the next 256 pixels when it has no more, so its
//! vectors stay full until the image ends; taking them is one lock.

use std::sync::Mutex;

use super::avx512::Avx512;
use super::cpu_08_avx512_scaled::{IN_FLIGHT, Scaled};
use super::deferred::{CHUNK, Flight};
use crate::view::Problem;

/// Counts of `problem`, row-major.
pub fn run(problem: &Problem, out: &mut [u32]) {
    assert_eq!(out.len(), problem.pixels(), "output length");
    let simd = Avx512::detect().expect("AVX-512");
    let chunks = Mutex::new((0..).step_by(CHUNK).zip(out.chunks_mut(CHUNK)));
    rayon::broadcast(|_| {
        let next = || chunks.lock().expect("no thread panics while it holds the lock").next();
        simd.run(Flight::<'_, '_, Scaled, _, IN_FLIGHT> { problem, next, block: std::marker::PhantomData });
    });
}
