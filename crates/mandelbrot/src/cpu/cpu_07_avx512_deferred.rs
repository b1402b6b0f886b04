//! AVX-512, the check deferred to the end of a block of 24 iterations.
//!
//! Changed: an orbit that has left the disc |z| <= 2 never comes back, so whether it has is asked once in 24 iterations
//! instead of in each; a lane that has left repeats its last block with the checks. The proof, and how the lanes are
//! kept busy, is in `deferred.rs`.
//! Why: compare, count and `m` are three of eight vector instructions.
//! Cost per vector iteration: 1 mul, 2 fma, 2 add; once in 24 iterations 1 mul, 1 fma, 1 cmp and three masked stores. A
//! pixel that survives 16 iterations is packed and unpacked, and if it escapes, packed again to replay 12 on average.

use super::avx512::{Avx512, F32x16, LANES, Mask};
use super::deferred::{BLOCK, Block, CHUNK, Flight, off_the_guard_band};
use crate::view::Problem;

/// Vectors in flight.
pub(crate) const IN_FLIGHT: usize = 6;

/// Counts of `problem`, row-major.
pub fn run(problem: &Problem, out: &mut [u32]) {
    run_with::<IN_FLIGHT>(problem, out);
}

/// The rung with `K` vectors in flight.
pub fn run_with<const K: usize>(problem: &Problem, out: &mut [u32]) {
    assert_eq!(out.len(), problem.pixels(), "output length");
    let simd = Avx512::detect().expect("AVX-512");
    let mut chunks = (0..).step_by(CHUNK).zip(out.chunks_mut(CHUNK));
    simd.run(Flight::<'_, '_, Deferred, _, K> { problem, next: || chunks.next(), block: std::marker::PhantomData });
}

struct Deferred;

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Constants {
    cx: [f32; LANES],
    cy: [f32; LANES],
}

impl Block for Deferred {
    type Constants = Constants;

    #[inline(always)]
    fn constants(_: Avx512, cx: F32x16, cy: F32x16) -> Constants {
        let mut constants = Constants { cx: [0.0; LANES], cy: [0.0; LANES] };
        cx.store(&mut constants.cx);
        cy.store(&mut constants.cy);
        constants
    }

    #[inline(always)]
    fn admits(simd: Avx512, among: Mask, cx: F32x16, cy: F32x16) -> Mask {
        off_the_guard_band(simd, among, cx, cy)
    }

    #[inline(always)]
    fn run<const K: usize>(simd: Avx512, x: &mut [F32x16; K], y: &mut [F32x16; K], constants: &[Constants; K]) {
        // Two iterations in one round: x' takes the register of t, and after two x is back in its own without a move.
        for _ in 0..BLOCK / 2 {
            for _ in 0..2 {
                for v in 0..K {
                    let Constants { cx, cy } = &constants[v];
                    let y2 = y[v].mul(y[v]);
                    let xn = x[v].mul_add(x[v], simd.load_f32(cx).sub(y2));
                    y[v] = x[v].add(x[v]).mul_add(y[v], simd.load_f32(cy));
                    x[v] = xn;
                }
            }
        }
    }
}
