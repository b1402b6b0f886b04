//! AVX2, 8 pixels of a row in one vector, two vectors in flight: the widest rung of a CPU without AVX-512.
//!
//! Changed: the lanes are written by hand, and state stays in registers.
//! Why: 8 lanes share each instruction; two independent vectors halve the wait for the dependent chain.
//! Cost per vector iteration: 1 mul, 3 fma, 2 add, 1 cmp, 1 AND, 1 integer subtraction. The mask is a vector, as there are no
//! mask registers: five registers for each vector, so that not many more fit the 16.

use super::avx2::{Avx2, Kernel, LANES};
use crate::view::Problem;

/// Vectors in flight.
pub(crate) const IN_FLIGHT: usize = 2;

/// Counts of `problem`, row-major.
pub fn run(problem: &Problem, out: &mut [u32]) {
    run_with::<IN_FLIGHT>(problem, out);
}

/// The rung with `K` vectors in flight.
pub fn run_with<const K: usize>(problem: &Problem, out: &mut [u32]) {
    let simd = Avx2::detect().expect("AVX2 and FMA");
    for (py, pixels) in super::rows(problem, out) {
        simd.run(Row::<K> { problem, py, pixels });
    }
}

struct Row<'a, const K: usize> {
    problem: &'a Problem,
    py: u32,
    pixels: &'a mut [u32],
}

impl<const K: usize> Kernel for Row<'_, K> {
    #[inline(always)]
    fn run(self, simd: Avx2) {
        let Self { problem, py, pixels } = self;
        let (zero, four) = (simd.f32(0.0), simd.f32(4.0));
        let cy = simd.f32(problem.cy(py));
        for (i, pixels) in pixels.chunks_mut(LANES * K).enumerate() {
            let mut cx = [zero; K];
            for (v, cx) in cx.iter_mut().enumerate() {
                let mut lanes = [0.0; LANES];
                for (lane, cx) in lanes.iter_mut().enumerate() {
                    *cx = problem.cx(((i * K + v) * LANES + lane) as u32);
                }
                *cx = simd.f32s(lanes);
            }
            let (mut x, mut y) = ([zero; K], [zero; K]);
            let mut n = [simd.zero(); K];
            let mut inside = [zero.le(four); K];
            for _ in 0..problem.max_iter {
                for v in 0..K {
                    let y2 = y[v].mul(y[v]);
                    inside[v] = inside[v].and(x[v].mul_add(x[v], y2).le(four));
                    n[v] = n[v].sub(inside[v]);
                    let xn = x[v].mul_add(x[v], cx[v].sub(y2));
                    y[v] = x[v].add(x[v]).mul_add(y[v], cy);
                    x[v] = xn;
                }
                if inside.iter().all(|mask| mask.is_empty()) {
                    break;
                }
            }
            for (n, pixels) in n.iter().zip(pixels.chunks_mut(LANES)) {
                pixels.copy_from_slice(&n.to_array()[..pixels.len()]);
            }
        }
    }
}
