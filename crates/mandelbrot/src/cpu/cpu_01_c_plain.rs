//! The scalar loop in C, `cc -O2`: no fused multiply-add, no vectors.
//!
//! Changed: language, compiler and formulation (plain: every product and sum is rounded).
//! Why: it shows that the scalar rung, which all ratios are taken against, is no straw man.
//! Cost per iteration: 3 mul, 5 add, 1 compare and branch on one lane, a dependent chain of about 12 cycles.

use super::c_baseline::Compiled;
use crate::view::Problem;

/// Counts of `problem`, row-major. Panics where [`Compiled::plain`] has none.
pub fn run(problem: &Problem, out: &mut [u32]) {
    Compiled::plain().expect("a compiled C loop").run(problem, out);
}
