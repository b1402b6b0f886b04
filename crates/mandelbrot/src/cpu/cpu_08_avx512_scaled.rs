//! AVX-512 deferred, with y kept scaled by a power of two that halves in every iteration.
//!
//! Changed: with `Y = s y`, the product `2xy` becomes `x * Y` at half the scale: `Y' = fma(x, Y, (s/2) cy)` needs no
//! `x + x`. The square is scaled back for nothing, by turning a subtraction into a multiply-add:
//! `t = fma(-1/s^2, Y * Y, cx)`. `s` runs from 2^8 to 2^-8 over the 16 iterations of a block, then one multiplication
//! restores it.
//! Why: four instructions instead of five, and these four are one for each of the four roundings that the fused
//! formulation asks for, so no exact f32 loop has fewer; the dependent chain is shorter, too.
//! Cost per vector iteration: 1 mul, 3 fma; once in 16 iterations 2 more mul, 1 fma, 1 cmp and three masked stores. `(s/2) cy`
//! comes from a table of 16 vectors for each vector in flight, 1 KiB, filled when a lane is refilled.
//!
//! # Why the counts stay exact
//!
//! Scaling by a power of two commutes with rounding as long as nothing overflows or becomes subnormal.
//! - Overflow: `|y| <= 2` inside, so `Y^2 <= 2^18`. Outside, an overflow gives an infinity a little earlier or later than
//!   without the scale, and an orbit with an infinity is outside either way.
//! - A nonzero `y` has `|y| >= 2^-50 |cy|`: `2xy` and `cy` are multiples of a power of two that is at least `2^-49 |cy|` if
//!   they are within a factor of 2 of each other, and otherwise their sum is at least `|cy| / 2`; rounding costs
//!   less than a factor of 2. With `|cy| >= 2^-60` (or `cy = 0`, where `y` stays 0) `|Y| >= 2^-118` is normal.
//! - `Y^2` may be subnormal only if `y^2 < 2^-110`. Then `t` rounds to `cx` with and without scale if `|cx| >= 2^-80`.
//!   For smaller `cx` it must not happen: with `|cy| >= 2^-5` or `cy = 0`, `Y^2 >= 2^-16 (2^-55)^2 = 2^-126` or it is 0.
//!
//! A `c` outside these conditions is counted with checks throughout, like one in the guard band.

use super::avx512::{Avx512, F32x16, LANES, Mask};
use super::deferred::{BLOCK, Block, CHUNK, Flight, off_the_guard_band};
use crate::view::Problem;

/// Vectors in flight.
pub(crate) const IN_FLIGHT: usize = 7;

/// Counts of `problem`, row-major.
pub fn run(problem: &Problem, out: &mut [u32]) {
    run_with::<IN_FLIGHT>(problem, out);
}

/// The rung with `K` vectors in flight.
pub fn run_with<const K: usize>(problem: &Problem, out: &mut [u32]) {
    assert_eq!(out.len(), problem.pixels(), "output length");
    let simd = Avx512::detect().expect("AVX-512");
    let mut chunks = (0..).step_by(CHUNK).zip(out.chunks_mut(CHUNK));
    simd.run(Flight::<'_, '_, Scaled, _, K> { problem, next: || chunks.next(), block: std::marker::PhantomData });
}

pub(crate) struct Scaled;

/// Iterations after which the scale comes round.
const PERIOD: usize = 8;

/// Factor that brings 2^-4 back to 2^4, halfway through the period.
const RAISE: f32 = 256.0;

/// Scale of y after iteration `i` of a period: 2^-1, .. 2^-4, then 2^3, .. 1.
const fn scale_after(i: usize) -> f32 {
    let exponent = if i < PERIOD / 2 { -1 - i as i32 } else { (PERIOD - 1 - i) as i32 };
    power_of_two(exponent)
}

const fn power_of_two(exponent: i32) -> f32 {
    f32::from_bits(((127 + exponent) << 23).cast_unsigned())
}

/// 1 / s^2 for the scale s before each iteration, which is twice the one after it.
const UNSCALE_SQUARE: [f32; PERIOD] = {
    let mut table = [0.0; PERIOD];
    let mut i = 0;
    while i < PERIOD {
        table[i] = 0.25 / (scale_after(i) * scale_after(i));
        i += 1;
    }
    table
};

#[derive(Clone, Copy)]
#[repr(align(64))]
pub(crate) struct Constants {
    cx: [f32; LANES],
    /// `scale_after(i) * cy` for iteration `i` of a period.
    cy: [[f32; LANES]; PERIOD],
}

impl Block for Scaled {
    type Constants = Constants;

    #[inline(always)]
    fn constants(simd: Avx512, cx: F32x16, cy: F32x16) -> Constants {
        let mut constants = Constants { cx: [0.0; LANES], cy: [[0.0; LANES]; PERIOD] };
        cx.store(&mut constants.cx);
        for (i, scaled) in constants.cy.iter_mut().enumerate() {
            cy.mul(simd.f32(scale_after(i))).store(scaled);
        }
        constants
    }

    #[inline(always)]
    fn admits(simd: Avx512, among: Mask, cx: F32x16, cy: F32x16) -> Mask {
        let at_least = |value: f32, c: F32x16| simd.f32(value).le(Mask::MAX, c);
        let (ax, ay) = (cx.abs(), cy.abs());
        let real = ay.eq(Mask::MAX, simd.f32(0.0));
        let normal = at_least(power_of_two(-60), ay) & at_least(power_of_two(-80), ax);
        off_the_guard_band(simd, among, cx, cy) & (real | normal | at_least(power_of_two(-9), ay))
    }

    #[inline(always)]
    fn run<const K: usize>(simd: Avx512, x: &mut [F32x16; K], y: &mut [F32x16; K], constants: &[Constants; K]) {
        let raise = simd.f32(RAISE);
        for _ in 0..BLOCK as usize / PERIOD {
            for (i, unscale) in UNSCALE_SQUARE.into_iter().enumerate() {
                if i == PERIOD / 2 {
                    for y in y.iter_mut() {
                        *y = y.mul(raise);
                    }
                }
                let unscale = simd.f32(unscale);
                for v in 0..K {
                    let t = y[v].mul(y[v]).neg_mul_add(unscale, simd.load_f32(&constants[v].cx));
                    y[v] = x[v].mul_add(y[v], simd.load_f32(&constants[v].cy[i]));
                    x[v] = x[v].mul_add(x[v], t);
                }
            }
        }
    }
}
