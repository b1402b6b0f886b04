//! Handing out pixels, 16 at a time, in row-major order across row ends.

use super::avx512::{Avx512, LANES, Mask, front};
use crate::view::Problem;

/// The next pixels of a range of row-major pixel numbers.
pub(crate) struct Cursor<'a> {
    problem: &'a Problem,
    next: usize,
    end: usize,
    px: u32,
    py: u32,
}

impl<'a> Cursor<'a> {
    /// Pixels `start..end`.
    pub(crate) fn new(problem: &'a Problem, start: usize, end: usize) -> Self {
        let width = problem.width.max(1) as usize;
        Self { problem, next: start, end, px: (start % width) as u32, py: (start / width) as u32 }
    }

    /// Writes `c` of the next 16 pixels; returns the number of the first of them and the lanes that hold a pixel
    /// (fewer than 16 at the end, then none). The other lanes repeat the last pixel.
    #[inline(always)]
    pub(crate) fn next(&mut self, simd: Avx512, cx: &mut [f32; LANES], cy: &mut [f32; LANES]) -> (usize, Mask) {
        let first = self.next;
        let count = LANES.min(self.end - first);
        if count == LANES && self.problem.width - self.px >= LANES as u32 {
            super::columns(simd, self.problem, self.px).store(cx);
            simd.f32(self.problem.cy(self.py)).store(cy);
            self.advance(LANES as u32);
        } else {
            for lane in 0..LANES {
                if lane < count {
                    (cx[lane], cy[lane]) = (self.problem.cx(self.px), self.problem.cy(self.py));
                    self.advance(1);
                } else if lane > 0 {
                    (cx[lane], cy[lane]) = (cx[lane - 1], cy[lane - 1]);
                }
            }
        }
        (first, front(count))
    }

    /// Whether all pixels were handed out.
    pub(crate) fn is_empty(&self) -> bool {
        self.next == self.end
    }

    #[inline(always)]
    fn advance(&mut self, pixels: u32) {
        self.next += pixels as usize;
        self.px += pixels;
        if self.px == self.problem.width {
            (self.px, self.py) = (0, self.py + 1);
        }
    }
}
