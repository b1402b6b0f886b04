//! AVX2 and FMA behind token types: a token exists only where the CPU has the instructions.

#![allow(unsafe_code)]

/// Proof that the CPU fuses multiply-adds in one instruction.
#[derive(Clone, Copy, Debug)]
pub struct Fma(());

impl Fma {
    /// A token if the CPU has FMA.
    pub fn detect() -> Option<Self> {
        #[cfg(target_arch = "x86_64")]
        return std::arch::is_x86_feature_detected!("fma").then_some(Self(()));
        // Elsewhere `mul_add` needs no detection: the target's baseline decides what it compiles to.
        #[cfg(not(target_arch = "x86_64"))]
        None
    }

    /// Runs `f` compiled with FMA enabled, where it is inlined: `mul_add` becomes an instruction instead of a call.
    pub fn call<R>(self, f: impl FnOnce() -> R) -> R {
        #[cfg(target_arch = "x86_64")]
        {
            #[target_feature(enable = "fma")]
            fn with_fma<R>(f: impl FnOnce() -> R) -> R {
                f()
            }
            // SAFETY: `self` exists only where `detect` found FMA.
            unsafe { with_fma(f) }
        }
        #[cfg(not(target_arch = "x86_64"))]
        f()
    }
}
