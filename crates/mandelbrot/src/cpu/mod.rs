//! The CPU rungs, one module each, and what they share.

pub mod avx2;
#[cfg(target_arch = "x86_64")]
pub mod avx512;
pub mod c_baseline;
pub mod cpu_00_scalar;
pub mod cpu_01_c_plain;
pub mod cpu_02_c_autovec;
#[cfg(target_arch = "x86_64")]
pub mod cpu_03_avx2;
#[cfg(target_arch = "x86_64")]
pub mod cpu_04_avx512;
#[cfg(target_arch = "x86_64")]
pub mod cpu_05_avx512_ilp;
#[cfg(target_arch = "x86_64")]
pub mod cpu_06_avx512_refill;
#[cfg(target_arch = "x86_64")]
pub mod cpu_07_avx512_deferred;
#[cfg(target_arch = "x86_64")]
pub mod cpu_08_avx512_scaled;
#[cfg(target_arch = "x86_64")]
pub mod cpu_09_multicore;
#[cfg(target_arch = "x86_64")]
pub mod cpu_10_multicore_scaled;
#[cfg(target_arch = "x86_64")]
mod deferred;
pub mod model;
#[cfg(target_arch = "x86_64")]
mod pixels;

use crate::view::Problem;

/// The rows of `out` with their numbers. Panics if `out` is not `problem.pixels()` long.
fn rows<'a>(problem: &Problem, out: &'a mut [u32]) -> impl Iterator<Item = (u32, &'a mut [u32])> {
    assert_eq!(out.len(), problem.pixels(), "output length");
    (0..).zip(out.chunks_mut(problem.width.max(1) as usize))
}

/// Real parts of the 16 columns from `px` on.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn columns(simd: avx512::Avx512, problem: &Problem, px: u32) -> avx512::F32x16 {
    let px = simd.u32(px).add(simd.iota()).to_f32();
    px.mul_add(simd.f32(problem.dx()), simd.f32(problem.view.x0))
}
