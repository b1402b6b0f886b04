//! The C comparators, compiled by `build.rs` where a C compiler is found.

#![allow(unsafe_code)]

use crate::view::Problem;

/// The loop of all C functions here: window, size, limit, output of `width * height` counts.
#[cfg(any(c_plain, c_v3, c_v4))]
type Entry = unsafe extern "C" fn(f32, f32, f32, f32, u32, u32, u32, *mut u32);

#[cfg(any(c_plain, c_v3, c_v4))]
unsafe extern "C" {
    #[cfg(c_plain)]
    fn rungs_c_plain(x0: f32, y0: f32, dx: f32, dy: f32, width: u32, height: u32, max_iter: u32, out: *mut u32);
    #[cfg(c_v3)]
    fn rungs_c_v3(x0: f32, y0: f32, dx: f32, dy: f32, width: u32, height: u32, max_iter: u32, out: *mut u32);
    #[cfg(c_v4)]
    fn rungs_c_v4(x0: f32, y0: f32, dx: f32, dy: f32, width: u32, height: u32, max_iter: u32, out: *mut u32);
}

/// A C function that this CPU can run.
#[derive(Clone, Copy, Debug)]
pub struct Compiled {
    #[cfg(any(c_plain, c_v3, c_v4))]
    entry: Entry,
    /// Compiler, flags, and whether it vectorised the loop, in one line.
    pub how: &'static str,
    /// Pixels of one vector of the instruction set it was compiled for.
    pub vector_lanes: u32,
}

impl Compiled {
    /// The plain loop, `cc -O2`, plain formulation. The error says why there is none.
    pub fn plain() -> Result<Self, String> {
        #[cfg(c_plain)]
        return Ok(Self { entry: rungs_c_plain, how: env!("MANDELBROT_C_PLAIN"), vector_lanes: 1 });
        #[cfg(not(c_plain))]
        Err("needs a C compiler when the crate is built: none was found".into())
    }

    /// The array form at the highest level of x86-64 that compiler and CPU have, fused formulation. The error says why
    /// there is none.
    pub fn lanes() -> Result<Self, String> {
        #[cfg(c_v4)]
        if v4() {
            return Ok(Self { entry: rungs_c_v4, how: env!("MANDELBROT_C_V4"), vector_lanes: 16 });
        }
        #[cfg(c_v3)]
        if v3() {
            return Ok(Self { entry: rungs_c_v3, how: env!("MANDELBROT_C_V3"), vector_lanes: 8 });
        }
        #[cfg(any(c_v3, c_v4))]
        return Err("needs AVX2, FMA and BMI2 (x86-64-v3): this CPU has not".into());
        #[cfg(not(any(c_v3, c_v4)))]
        Err("needs a C compiler for x86-64-v3 when the crate is built: none was found".into())
    }

    /// Counts of `problem`, row-major. Panics if `out` is not `problem.pixels()` long.
    #[cfg(any(c_plain, c_v3, c_v4))]
    pub fn run(self, problem: &Problem, out: &mut [u32]) {
        assert_eq!(out.len(), problem.pixels(), "output length");
        let Problem { view, width, height, max_iter, .. } = *problem;
        // SAFETY: the function writes `width * height` counts, the length just checked, and reads nothing. A value exists only
        // where the CPU has the instructions that it was compiled for.
        unsafe { (self.entry)(view.x0, view.y0, problem.dx(), problem.dy(), width, height, max_iter, out.as_mut_ptr()) }
    }

    /// There is nothing to run: no value of this type exists.
    #[cfg(not(any(c_plain, c_v3, c_v4)))]
    pub fn run(self, _: &Problem, _: &mut [u32]) {
        unreachable!("built without a C compiler")
    }
}

/// What a compiler may use for x86-64-v3.
#[cfg(any(c_v3, c_v4))]
fn v3() -> bool {
    is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("f16c")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("lzcnt")
        && is_x86_feature_detected!("movbe")
}

/// What a compiler may use for x86-64-v4.
#[cfg(c_v4)]
fn v4() -> bool {
    v3() && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512cd")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
}
