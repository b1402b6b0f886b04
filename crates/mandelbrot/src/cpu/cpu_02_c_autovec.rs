//! C in lane form, vectorised by the compiler: 64 pixels in arrays, `cc -O3`, for x86-64-v3 or -v4 as the CPU has it.
//!
//! Changed: the loop over pixels is inside the loop over iterations, and finished lanes go on without effect.
//! Why: so a vectoriser can use all lanes without being told how; what it gives is what hand-written vectors must beat.
//! Cost per vector iteration: 1 mul, 3 fma, 2 add, 1 cmp, an AND and an integer subtraction; the state of 64 lanes does not
//! fit the registers of AVX2, so most of it is loaded and stored in each iteration.

use super::c_baseline::Compiled;
use crate::view::Problem;

/// Counts of `problem`, row-major. Panics where [`Compiled::lanes`] has none.
pub fn run(problem: &Problem, out: &mut [u32]) {
    Compiled::lanes().expect("a compiled C loop").run(problem, out);
}
