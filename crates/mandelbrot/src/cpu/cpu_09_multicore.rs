//! Every core, one vector each: the rows of `cpu_04_avx512` shared out over a pool of threads.
//!
//! Changed: rayon hands rows to whichever thread is free (rows inside the set take a hundred times as long as others,
//! so a fixed split would leave threads idle).
//! Why: cores are the other axis of parallelism; a pixel needs nothing from another, so the gain is the number of cores.
//! Cost: the instruction mix of one vector; one task for each row.

use rayon::prelude::*;

use super::avx512::Avx512;
use super::cpu_04_avx512::Row;
use crate::view::Problem;

/// Counts of `problem`, row-major.
pub fn run(problem: &Problem, out: &mut [u32]) {
    assert_eq!(out.len(), problem.pixels(), "output length");
    let simd = Avx512::detect().expect("AVX-512");
    let rows = out.par_chunks_mut(problem.width.max(1) as usize).with_max_len(1).enumerate();
    rows.for_each(|(py, pixels)| simd.run(Row { problem, py: py as u32, pixels }));
}
