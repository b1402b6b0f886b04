//! AVX-512, four vectors in flight.
//!
//! Changed: 64 neighbouring pixels at a time, as four independent vectors in one loop.
//! Why: one vector waits for its own chain; four chains fill the two vector ports.
//! Cost: the instruction mix of one vector, times four; the loop ends when the slowest of 64 pixels does, so divergence
//! costs more than with 16. More than four vectors no longer fit the 32 registers (x, y, n, cx and temporaries of each).

use super::avx512::{Avx512, Kernel, LANES, Mask};
use crate::view::Problem;

/// Vectors in flight.
pub(crate) const IN_FLIGHT: usize = 4;

/// Counts of `problem`, row-major.
pub fn run(problem: &Problem, out: &mut [u32]) {
    run_with::<IN_FLIGHT>(problem, out);
}

/// The rung with `K` vectors in flight.
pub fn run_with<const K: usize>(problem: &Problem, out: &mut [u32]) {
    let simd = Avx512::detect().expect("AVX-512");
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
    type Output = ();

    #[inline(always)]
    fn run(self, simd: Avx512) {
        let Self { problem, py, pixels } = self;
        let (four, one) = (simd.f32(4.0), simd.u32(1));
        let cy = simd.f32(problem.cy(py));
        for (i, pixels) in pixels.chunks_mut(LANES * K).enumerate() {
            let mut cx = [cy; K];
            for (v, cx) in cx.iter_mut().enumerate() {
                *cx = super::columns(simd, problem, ((i * K + v) * LANES) as u32);
            }
            let (mut x, mut y) = ([simd.f32(0.0); K], [simd.f32(0.0); K]);
            let mut n = [simd.u32(0); K];
            let mut inside = [Mask::MAX; K];
            for _ in 0..problem.max_iter {
                let mut any = 0;
                for v in 0..K {
                    let y2 = y[v].mul(y[v]);
                    inside[v] = x[v].mul_add(x[v], y2).le(inside[v], four);
                    any |= inside[v];
                    n[v] = n[v].add_where(inside[v], one);
                    let xn = x[v].mul_add(x[v], cx[v].sub(y2));
                    y[v] = x[v].add(x[v]).mul_add(y[v], cy);
                    x[v] = xn;
                }
                if any == 0 {
                    break;
                }
            }
            for (n, pixels) in n.iter().zip(pixels.chunks_mut(LANES)) {
                n.store_front(pixels);
            }
        }
    }
}
