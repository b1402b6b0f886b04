//! AVX2 and FMA behind token types: a token exists only where the CPU has the instructions.

#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

/// Proof that the CPU fuses multiply-adds in one instruction.
#[derive(Clone, Copy, Debug)]
pub struct Fma(());

impl Fma {
    /// A token if the CPU has FMA.
    pub fn detect() -> Option<Self> {
        #[cfg(target_arch = "x86_64")]
        return is_x86_feature_detected!("fma").then_some(Self(()));
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

/// Lanes of one vector.
#[cfg(target_arch = "x86_64")]
pub(crate) const LANES: usize = 8;

/// Proof that the CPU has AVX2 and FMA.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug)]
pub struct Avx2(());

/// Work for [`Avx2::run`]; its `run` must be `#[inline(always)]`.
#[cfg(target_arch = "x86_64")]
pub trait Kernel {
    /// The work.
    fn run(self, simd: Avx2);
}

#[cfg(target_arch = "x86_64")]
impl Avx2 {
    /// A token if the CPU has AVX2 and FMA.
    pub fn detect() -> Option<Self> {
        (is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma")).then_some(Self(()))
    }

    /// Runs `kernel` compiled with AVX2 and FMA enabled.
    #[inline(always)]
    pub fn run<K: Kernel>(self, kernel: K) {
        #[target_feature(enable = "avx2,fma")]
        fn with_avx2<K: Kernel>(simd: Avx2, kernel: K) {
            kernel.run(simd);
        }
        // SAFETY: `self` exists only where `detect` found both features.
        unsafe { with_avx2(self, kernel) }
    }

    /// All lanes equal.
    #[inline(always)]
    pub(crate) fn f32(self, value: f32) -> F32x8 {
        // SAFETY: the token proves AVX2.
        F32x8(unsafe { _mm256_set1_ps(value) })
    }

    /// One value for each lane.
    #[inline(always)]
    pub(crate) fn f32s(self, v: [f32; LANES]) -> F32x8 {
        // SAFETY: the token proves AVX2.
        F32x8(unsafe { _mm256_setr_ps(v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7]) })
    }

    /// All lanes zero.
    #[inline(always)]
    pub(crate) fn zero(self) -> I32x8 {
        // SAFETY: the token proves AVX2.
        I32x8(unsafe { _mm256_setzero_si256() })
    }
}

/// Eight f32 lanes.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct F32x8(__m256);

/// Eight 32-bit integer lanes. As a mask, all bits of a lane are set or none.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct I32x8(__m256i);

/// A safe method for each intrinsic: `name(self, arguments) -> result = expression;`.
#[cfg(target_arch = "x86_64")]
macro_rules! methods {
    ($vector:ident: $($(#[$doc:meta])* $name:ident($self:ident $(, $arg:ident: $ty:ty)*) -> $result:ty = $body:expr;)*) => {
        impl $vector {
            $($(#[$doc])*
            #[inline(always)]
            pub(crate) fn $name($self $(, $arg: $ty)*) -> $result {
                // SAFETY: a vector exists only where a token did, which proves AVX2 and FMA. No pointer is involved.
                unsafe { $body }
            })*
        }
    };
}

#[cfg(target_arch = "x86_64")]
methods! { F32x8:
    /// Lane by lane.
    mul(self, b: F32x8) -> F32x8 = F32x8(_mm256_mul_ps(self.0, b.0));
    /// Lane by lane.
    add(self, b: F32x8) -> F32x8 = F32x8(_mm256_add_ps(self.0, b.0));
    /// Lane by lane.
    sub(self, b: F32x8) -> F32x8 = F32x8(_mm256_sub_ps(self.0, b.0));
    /// `self * b + c`, rounded once.
    mul_add(self, b: F32x8, c: F32x8) -> F32x8 = F32x8(_mm256_fmadd_ps(self.0, b.0, c.0));
    /// Mask of the lanes with `self <= b`; false for NaN.
    le(self, b: F32x8) -> I32x8 = I32x8(_mm256_castps_si256(_mm256_cmp_ps::<_CMP_LE_OQ>(self.0, b.0)));
}

#[cfg(target_arch = "x86_64")]
methods! { I32x8:
    /// Bit by bit.
    and(self, b: I32x8) -> I32x8 = I32x8(_mm256_and_si256(self.0, b.0));
    /// Lane by lane, wrapping. Subtracting a mask counts its lanes.
    sub(self, b: I32x8) -> I32x8 = I32x8(_mm256_sub_epi32(self.0, b.0));
    /// Whether no lane of the mask is set.
    is_empty(self) -> bool = _mm256_testz_si256(self.0, self.0) == 1;
}

#[cfg(target_arch = "x86_64")]
impl I32x8 {
    /// The lanes.
    #[inline(always)]
    pub(crate) fn to_array(self) -> [u32; LANES] {
        let mut lanes = [0; LANES];
        // SAFETY: a vector proves AVX2, and the array is as long as the vector.
        unsafe { _mm256_storeu_si256(lanes.as_mut_ptr().cast(), self.0) };
        lanes
    }
}
