//! AVX-512 deferred, with y kept scaled by a power of two that halves in every iteration.
//!
//! Changed: with `Y = s y`, the product `2xy` becomes `x * Y` at half the scale: `Y' = fma(x, Y, (s/2) cy)` needs no
//! `x + x`. The square is scaled back for nothing, by turning a subtraction into a multiply-add:
//! `t = fma(-1/s^2, Y * Y, cx)`. `s` goes from 1 to 1/4 in two iterations, is raised to 4 by one multiplication, and is
//! back at 1 after two more.
//! Why: four instructions instead of five, and these four are one for each of the four roundings that the fused
//! formulation asks for, so no exact f32 loop has fewer; the dependent chain is shorter, too.
//! Cost per vector iteration: 1 mul, 3 fma; once in 4 iterations a mul, once in 24 iterations 1 mul, 1 fma, 1 cmp and three
//! masked stores. `(s/2) cy` comes from a table of 4 vectors for each vector in flight, filled when a lane is refilled. A
//! longer period would save multiplications, but with a table of 8 the state no longer fits 4 KiB, and loads from it wait
//! for stores (see `Hot` in `deferred.rs`): that is slower. Seven vectors fill the 4 KiB and, with cx, the registers.
//!
//! # Why the counts stay exact
//!
//! Scaling by a power of two commutes with rounding as long as nothing overflows or becomes subnormal.
//! - Overflow: `|y| <= 2` inside, so `Y^2 <= 64`. Outside, an overflow gives an infinity a little earlier or later than
//!   without the scale, and an orbit with an infinity is outside either way.
//! - A nonzero `y` has `|y| >= 2^-50 |cy|`: `2xy` and `cy` are multiples of a power of two that is at least `2^-49 |cy|` if
//!   they are within a factor of 2 of each other, and otherwise their sum is at least `|cy| / 2`; rounding costs
//!   less than a factor of 2. With `|cy| >= 2^-60` (or `cy = 0`, where `y` stays 0) `|Y| >= 2^-112` is normal.
//! - `Y^2` may be subnormal only if `y^2 < 2^-122`. Then `t` rounds to `cx` with and without scale if `|cx| >= 2^-80`.
//!   For smaller `cx` it must not happen: with `|cy| >= 2^-9` or `cy = 0`, `Y^2 >= 2^-4 (2^-59)^2 = 2^-122` or it is 0.
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

/// The block with y scaled.
pub(crate) struct Scaled;

/// Iterations after which the scale comes round.
const PERIOD: usize = 4;
const _: () = assert!((BLOCK as usize).is_multiple_of(PERIOD), "a block ends at scale 1");

/// Factor that brings 1/4 back to 4, halfway through the period.
const RAISE: f32 = 16.0;

/// Scale of y after iteration `i` of a period: 1/2, 1/4, then 2, 1.
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

/// Constants of one vector in flight.
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

#[cfg(test)]
mod tests {
    use super::super::avx512::Kernel;
    use super::*;

    /// Runs blocks from z = 0 for 16 equal `c`, and returns whether `c` is admitted, and the bits of each state inside.
    struct Orbit {
        c: (f32, f32),
        blocks: usize,
    }

    impl Kernel for Orbit {
        type Output = (bool, Vec<[u32; 2]>);

        #[inline(always)]
        fn run(self, simd: Avx512) -> Self::Output {
            let (cx, cy) = (simd.f32(self.c.0), simd.f32(self.c.1));
            let constants = [Scaled::constants(simd, cx, cy)];
            let (mut x, mut y) = ([simd.f32(0.0)], [simd.f32(0.0)]);
            let mut states = Vec::new();
            for _ in 0..self.blocks {
                Scaled::run(simd, &mut x, &mut y, &constants);
                let mut lanes = [[0.0; LANES]; 2];
                x[0].store(&mut lanes[0]);
                y[0].store(&mut lanes[1]);
                assert!(lanes.iter().flatten().all(|v| v.is_nan() || [lanes[0][0], lanes[1][0]].contains(v)));
                states.push(lanes.map(|v| v[0].to_bits()));
            }
            (Scaled::admits(simd, Mask::MAX, cx, cy) == Mask::MAX, states)
        }
    }

    /// The same states by the fused formulation, and how many blocks end inside.
    fn fused(c: (f32, f32), blocks: usize) -> (Vec<[u32; 2]>, usize) {
        let (mut x, mut y) = (0.0f32, 0.0f32);
        let (mut states, mut inside) = (Vec::new(), 0);
        for block in 1..=blocks {
            for _ in 0..BLOCK {
                let y2 = y * y;
                let xn = x.mul_add(x, c.0 - y2);
                y = (x + x).mul_add(y, c.1);
                x = xn;
            }
            states.push([x, y].map(f32::to_bits));
            if x.mul_add(x, y * y) <= 4.0 && inside == block - 1 {
                inside = block;
            }
        }
        (states, inside)
    }

    /// Zeros differ in sign at most, which no count can tell.
    fn same([a, b]: [[u32; 2]; 2]) -> bool {
        (0..2).all(|i| a[i] == b[i] || (a[i] | b[i]) == 1 << 31)
    }

    #[test]
    fn a_block_has_the_bits_of_the_fused_formulation_wherever_it_is_admitted() {
        let Some(simd) = Avx512::detect() else { return println!("SKIP: needs AVX-512F") };
        let sizes =
            [0.0, 1.3, 0.7, 0.26, 0.1, 0.03, 2e-3, 1e-4, 1e-6, 1e-9, 1e-13, 1e-18, 1e-19, 1e-25, 1e-32, 1e-38, 1e-42];
        let (mut admitted, mut refused_and_wrong) = (0, 0);
        for (i, re) in sizes.into_iter().enumerate() {
            for im in sizes {
                for (sx, sy, stretch) in [(1.0, 1.0, 1.0), (-1.0, 1.0, 0.81), (-1.0, -1.0, 1.17), (1.0, -1.0, 0.93)] {
                    let c = (sx * re * stretch, sy * im * (1.0 + i as f32 / 97.0));
                    let (admits, got) = simd.run(Orbit { c, blocks: 6 });
                    let (want, inside) = fused(c, 6);
                    let equal = (0..inside).all(|block| same([got[block], want[block]]));
                    assert!(equal || !admits, "{c:?}: {got:x?} not {want:x?}");
                    admitted += usize::from(admits && inside > 0);
                    refused_and_wrong += usize::from(!equal);
                }
            }
        }
        // The conditions refuse something that the block would get wrong, and not much else.
        assert!(admitted > 300 && refused_and_wrong > 0, "{admitted} {refused_and_wrong}");
    }

    #[test]
    fn the_scale_halves_and_comes_round() {
        let before: Vec<f32> = UNSCALE_SQUARE.iter().map(|inverse_square| (1.0 / inverse_square).sqrt()).collect();
        assert_eq!(before, [1.0, 0.5, 4.0, 2.0]);
        assert_eq!([0, 1, 2, 3].map(scale_after), [0.5, 0.25, 2.0, 1.0]);
        assert_eq!(scale_after(PERIOD / 2 - 1) * RAISE, before[PERIOD / 2]);
    }
}
