//! The problem: which window, how many pixels, how many iterations at most.
//!
//! The pixel mapping is part of the problem, so that every rung on every target iterates the same `c`:
//! `cx = fma(px as f32, dx, x0)` and `cy = fma(py as f32, dy, y0)` in f32, where `dx = (x1 - x0) / width as f32`
//! and `dy = (y1 - y0) / height as f32` are computed once, on the host.

use thiserror::Error;

/// A window of the complex plane: real axis `x0..x1`, imaginary axis `y0..y1`. Row 0 is at `y0`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct View {
    /// Name in the CLI and in the JSON axes.
    pub name: &'static str,
    /// Real part at the left edge.
    pub x0: f32,
    /// Imaginary part at row 0.
    pub y0: f32,
    /// Real part at the right edge (exclusive).
    pub x1: f32,
    /// Imaginary part past the last row (exclusive).
    pub y1: f32,
}

/// The whole set. About a quarter of the pixels never escape and hold nearly all iterations.
pub const WHOLE: View = View { name: "whole", x0: -2.0, y0: -1.25, x1: 0.5, y1: 1.25 };

/// Seahorse valley: nearly every pixel escapes (99.9%, after 237 iterations on average), neighbours at very different
/// times: with 32 lanes in lockstep two thirds of the lane time is idle.
pub const BOUNDARY: View = View { name: "boundary", x0: -0.7475, y0: 0.0985, x1: -0.7455, y1: 0.1005 };

/// Inside the main cardioid: no pixel escapes, every lane works until the last iteration.
pub const INTERIOR: View = View { name: "interior", x0: -0.4, y0: -0.25, x1: 0.1, y1: 0.25 };

/// The views every rung is measured on.
pub const VIEWS: &[View] = &[WHOLE, BOUNDARY, INTERIOR];

/// Most pixels of one problem (16384 x 16384): 1 GiB of counts.
pub const MAX_PIXELS: u64 = 1 << 28;

/// Most iterations of one pixel: leaves room for a rung to count a few past the end in 32 bits.
pub const MAX_ITER: u32 = 1 << 30;

/// A problem that no rung accepts.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum ProblemError {
    /// Too many pixels.
    #[error("{width}x{height} is {} pixels; at most {MAX_PIXELS} are allowed", u64::from(*width) * u64::from(*height))]
    TooManyPixels {
        /// Width asked for.
        width: u32,
        /// Height asked for.
        height: u32,
    },
    /// Too many iterations.
    #[error("max_iter {max_iter} is too large; at most {MAX_ITER} is allowed")]
    TooManyIterations {
        /// Iterations asked for.
        max_iter: u32,
    },
}

/// Escape-time counts of `width x height` pixels of `view`, at most `max_iter` each.
///
/// The result is `u32` counts, row-major, `width * height` of them. Zero pixels are a valid (empty) problem.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Problem {
    /// The window.
    pub view: View,
    /// Pixels in a row.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// Iterations after which a pixel counts as inside.
    pub max_iter: u32,
    // Not public: a problem is made by `new`, which checks the limits.
    dx: f32,
    dy: f32,
}

impl Problem {
    /// Refuses more than [`MAX_PIXELS`] pixels or more than [`MAX_ITER`] iterations.
    pub fn new(view: View, width: u32, height: u32, max_iter: u32) -> Result<Self, ProblemError> {
        if u64::from(width) * u64::from(height) > MAX_PIXELS {
            return Err(ProblemError::TooManyPixels { width, height });
        }
        if max_iter > MAX_ITER {
            return Err(ProblemError::TooManyIterations { max_iter });
        }
        let dx = (view.x1 - view.x0) / width as f32;
        let dy = (view.y1 - view.y0) / height as f32;
        Ok(Self { view, width, height, max_iter, dx, dy })
    }

    /// Number of pixels, and length of the output.
    pub fn pixels(&self) -> usize {
        self.width as usize * self.height as usize
    }

    /// Real distance of two neighbouring pixels.
    pub fn dx(&self) -> f32 {
        self.dx
    }

    /// Imaginary distance of two neighbouring rows.
    pub fn dy(&self) -> f32 {
        self.dy
    }

    /// Real part of column `px`.
    #[inline(always)]
    pub fn cx(&self, px: u32) -> f32 {
        (px as f32).mul_add(self.dx, self.view.x0)
    }

    /// Imaginary part of row `py`.
    #[inline(always)]
    pub fn cy(&self, py: u32) -> f32 {
        (py as f32).mul_add(self.dy, self.view.y0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absurd_sizes_are_refused_in_one_line() {
        let e = Problem::new(WHOLE, 65536, 65536, 1).unwrap_err().to_string();
        assert_eq!(e, "65536x65536 is 4294967296 pixels; at most 268435456 are allowed");
        let e = Problem::new(WHOLE, 1, 1, u32::MAX).unwrap_err().to_string();
        assert!(e.contains("max_iter 4294967295") && !e.contains('\n'), "{e}");
        assert!(Problem::new(WHOLE, u32::MAX, 0, 1).is_ok());
        assert!(Problem::new(WHOLE, 16384, 16384, MAX_ITER).is_ok());
    }

    #[test]
    fn f32_tells_neighbouring_pixels_apart() {
        for view in VIEWS {
            let p = Problem::new(*view, 1024, 1024, 1).unwrap();
            for i in 1..1024 {
                assert!(p.cx(i) > p.cx(i - 1) && p.cy(i) > p.cy(i - 1), "{} at {i}", view.name);
            }
        }
    }
}
