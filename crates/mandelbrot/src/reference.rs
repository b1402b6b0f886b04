//! The oracle: plain scalar loops, one per formulation.
//!
//! f32 iteration counts near the boundary depend on every rounding, so a *formulation* fixes them all, and a rung is
//! held to the oracle of its own formulation, pixel by pixel, exactly. Both count the iterations made while
//! `|z|^2 <= 4` held, at most `max_iter`; a NaN ends the orbit.
//!
//! Fused, all vector and GPU rungs (each line is one rounding):
//!
//! ```text
//! y2 = y * y
//! m  = fma(x, x, y2)          stop unless m <= 4
//! t  = cx - y2
//! x' = fma(x, x, t)
//! y' = fma(x + x, y, cy)
//! ```
//!
//! Plain, what C without contraction computes: `x2 = x*x; y2 = y*y; m = x2 + y2; x' = (x2 - y2) + cx; y' = (x+x)*y + cy`.

use crate::cpu::avx2::Fma;
use crate::view::Problem;

/// Which roundings an iteration makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Formulation {
    /// Multiply-adds are fused.
    Fused,
    /// Every product and sum is rounded.
    Plain,
}

impl Formulation {
    /// `fused` or `plain`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fused => "fused",
            Self::Plain => "plain",
        }
    }

    /// Floating-point operations of one iteration, comparisons not counted.
    pub fn flops(self) -> f64 {
        match self {
            // 1 multiplication, 2 additions, 3 multiply-adds of two each.
            Self::Fused => 9.0,
            // 3 multiplications, 5 additions.
            Self::Plain => 8.0,
        }
    }

    /// The oracle: counts of every pixel, row-major.
    ///
    /// Panics if `out` is not `problem.pixels()` long.
    pub fn counts(self, problem: &Problem, out: &mut [u32]) {
        match self {
            // The same bits with and without the instruction; without it each mul_add is a libm call.
            Self::Fused => match Fma::detect() {
                Some(fma) => fma.call(|| fill(problem, out, fused)),
                None => fill(problem, out, fused),
            },
            Self::Plain => fill(problem, out, plain),
        }
    }

    /// The count of one `c`.
    pub fn count(self, cx: f32, cy: f32, max_iter: u32) -> u32 {
        match self {
            Self::Fused => fused(cx, cy, max_iter),
            Self::Plain => plain(cx, cy, max_iter),
        }
    }
}

#[inline(always)]
fn fill(problem: &Problem, out: &mut [u32], count: impl Fn(f32, f32, u32) -> u32) {
    assert_eq!(out.len(), problem.pixels(), "output length");
    let mut pixels = out.iter_mut();
    for py in 0..problem.height {
        for px in 0..problem.width {
            if let Some(pixel) = pixels.next() {
                *pixel = count(problem.cx(px), problem.cy(py), problem.max_iter);
            }
        }
    }
}

#[inline(always)]
fn fused(cx: f32, cy: f32, max_iter: u32) -> u32 {
    let (mut x, mut y) = (0.0f32, 0.0f32);
    for n in 0..max_iter {
        let y2 = y * y;
        let m = x.mul_add(x, y2);
        // Not `m > 4.0`: a NaN must end the orbit.
        let inside = m <= 4.0;
        if !inside {
            return n;
        }
        let t = cx - y2;
        let xn = x.mul_add(x, t);
        y = (x + x).mul_add(y, cy);
        x = xn;
    }
    max_iter
}

#[inline(always)]
fn plain(cx: f32, cy: f32, max_iter: u32) -> u32 {
    let (mut x, mut y) = (0.0f32, 0.0f32);
    for n in 0..max_iter {
        let (x2, y2) = (x * x, y * y);
        let inside = x2 + y2 <= 4.0;
        if !inside {
            return n;
        }
        y = (x + x) * y + cy;
        x = (x2 - y2) + cx;
    }
    max_iter
}

/// Pixels whose counts differ. A result of another length differs everywhere.
pub fn mismatches(got: &[u32], want: &[u32]) -> usize {
    if got.len() != want.len() {
        return got.len().max(want.len());
    }
    got.iter().zip(want).filter(|(g, w)| g != w).count()
}

/// Iterations that a result stands for: the sum of its counts.
pub fn total_iterations(counts: &[u32]) -> u64 {
    counts.iter().map(|&n| u64::from(n)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::{BOUNDARY, INTERIOR, WHOLE};

    fn counts(formulation: Formulation, problem: &Problem) -> Vec<u32> {
        let mut out = vec![0xA5A5_A5A5; problem.pixels()];
        formulation.counts(problem, &mut out);
        out
    }

    #[test]
    fn known_orbits() {
        for f in [Formulation::Fused, Formulation::Plain] {
            // c = 0 stays; c = -2 sits on |z| = 2 for ever; c = 2 gives 0, 2, 6; c = 1 gives 0, 1, 2, 5.
            assert_eq!(
                [(0.0, 0.0), (-2.0, 0.0), (2.0, 0.0), (1.0, 0.0)].map(|(x, y)| f.count(x, y, 50)),
                [50, 50, 2, 3]
            );
            assert_eq!(f.count(f32::NAN, 0.0, 50), 1);
            assert_eq!(f.count(0.0, f32::INFINITY, 50), 1);
            assert_eq!(f.count(0.0, 0.0, 0), 0);
        }
    }

    #[test]
    fn the_views_are_what_their_names_say() {
        let share = |view| {
            let p = Problem::new(view, 64, 64, 500).unwrap();
            let c = counts(Formulation::Fused, &p);
            let inside = c.iter().filter(|&&n| n == 500).count() as f64 / c.len() as f64;
            (inside, total_iterations(&c) as f64 / c.len() as f64)
        };
        assert!((0.2..0.3).contains(&share(WHOLE).0));
        let (inside, mean) = share(BOUNDARY);
        assert!(inside < 0.15 && mean > 150.0, "{inside} {mean}");
        assert_eq!(share(INTERIOR), (1.0, 500.0));
    }

    #[test]
    fn the_formulations_differ() {
        // If they did not, a rung could be held to the wrong oracle unnoticed.
        let p = Problem::new(BOUNDARY, 64, 64, 500).unwrap();
        assert!(mismatches(&counts(Formulation::Fused, &p), &counts(Formulation::Plain, &p)) > 100);
    }

    #[test]
    fn one_wrong_pixel_is_seen() {
        let p = Problem::new(WHOLE, 33, 17, 64).unwrap();
        let want = counts(Formulation::Fused, &p);
        assert_eq!(mismatches(&want, &want), 0);
        for i in [0, 280, want.len() - 1] {
            let mut got = want.clone();
            got[i] ^= 1;
            assert_eq!(mismatches(&got, &want), 1);
        }
        assert_eq!(mismatches(&want[1..], &want), want.len());
    }

    #[test]
    fn mul_add_is_the_same_with_and_without_the_instruction() {
        let p = Problem::new(BOUNDARY, 16, 16, 300).unwrap();
        let mut soft = vec![0; p.pixels()];
        fill(&p, &mut soft, fused);
        assert_eq!(mismatches(&soft, &counts(Formulation::Fused, &p)), 0);
    }
}
