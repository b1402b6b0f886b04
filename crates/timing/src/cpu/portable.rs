//! Stands in for the x86-64 kernels elsewhere: no vector unit is ever detected, and there is no clock chain.

use super::ceilings::{InstructionMix, Line};

/// AVX-512F, which this architecture has not.
#[derive(Clone, Copy, Debug)]
pub enum Avx512 {}

/// AVX2 and FMA3, which this architecture has not.
#[derive(Clone, Copy, Debug)]
pub enum Avx2 {}

macro_rules! never_detected {
    ($unit:ty) => {
        impl $unit {
            /// Always none.
            pub fn detect() -> Option<Self> {
                None
            }

            #[expect(clippy::extra_unused_type_parameters, reason = "the kernels of x86-64 have it")]
            pub(super) fn run_mix<M: InstructionMix>(self, _passes: u64, _factor: f32) -> Vec<f32> {
                match self {}
            }

            pub(super) fn stream_copy(self, _from: &[Line], _to: &mut [Line]) {
                match self {}
            }
        }
    };
}
never_detected!(Avx512);
never_detected!(Avx2);

pub(super) fn dependent_adds(_adds: u64) -> Option<u64> {
    None
}
