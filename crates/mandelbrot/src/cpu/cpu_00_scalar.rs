//! One pixel after the other: the loop as one would write it, with fused multiply-adds where the CPU has them.
//!
//! Cost per iteration: 1 mul, 3 fma, 2 add, 1 compare and branch, on one lane. The dependent chain (y2, t, x', x'+x', y')
//! takes about 10 cycles an iteration, so this rung waits for latency and uses a fraction of the machine's width.

use super::avx2::Fma;
use crate::view::Problem;

/// Counts of `problem`, row-major. Without FMA instructions every multiply-add is a call: same bits, slow.
pub fn run(problem: &Problem, out: &mut [u32]) {
    match Fma::detect() {
        Some(fma) => fma.call(|| rows(problem, out)),
        None => rows(problem, out),
    }
}

#[inline(always)]
fn rows(problem: &Problem, out: &mut [u32]) {
    for (py, row) in super::rows(problem, out) {
        let cy = problem.cy(py);
        for (px, pixel) in row.iter_mut().enumerate() {
            *pixel = count(problem.cx(px as u32), cy, problem.max_iter);
        }
    }
}

/// Iterations of one `c`.
#[inline(always)]
pub(crate) fn count(cx: f32, cy: f32, max_iter: u32) -> u32 {
    let (mut x, mut y, mut n) = (0.0f32, 0.0f32, 0);
    while n < max_iter {
        let y2 = y * y;
        let inside = x.mul_add(x, y2) <= 4.0;
        if !inside {
            break;
        }
        let xn = x.mul_add(x, cx - y2);
        y = (x + x).mul_add(y, cy);
        x = xn;
        n += 1;
    }
    n
}
