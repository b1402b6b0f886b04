//! AVX-512 behind a token type: the one place where the AVX-512 rungs are unsafe.
//!
//! [`Avx512`] exists only where the CPU has the instructions, and a vector can only be made with a token or from
//! another vector, so its methods are safe. They are meant for use in [`Avx512::run`], which compiles its
//! [`Kernel`] with AVX-512 enabled; elsewhere they would still be right, but each would be a function call.

#![allow(unsafe_code)]

use std::arch::x86_64::*;

/// Lanes of one vector.
pub(crate) const LANES: usize = 16;

/// One bit for each lane.
pub(crate) type Mask = __mmask16;

/// Proof that the CPU has AVX-512F and POPCNT.
#[derive(Clone, Copy, Debug)]
pub struct Avx512(());

impl Avx512 {
    /// A token if the CPU and the operating system support AVX-512.
    pub fn detect() -> Option<Self> {
        (is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("popcnt")).then_some(Self(()))
    }

    /// Runs `kernel` compiled with AVX-512 enabled.
    #[inline(always)]
    pub fn run<K: Kernel>(self, kernel: K) -> K::Output {
        #[target_feature(enable = "avx512f,popcnt")]
        fn with_avx512<K: Kernel>(simd: Avx512, kernel: K) -> K::Output {
            kernel.run(simd)
        }
        // SAFETY: `self` exists only where `detect` found both features.
        unsafe { with_avx512(self, kernel) }
    }

    /// The same, never inlined: keeps rare work out of the registers of a hot loop.
    #[inline(always)]
    pub fn run_out_of_line<K: Kernel>(self, kernel: K) -> K::Output {
        #[inline(never)]
        #[target_feature(enable = "avx512f,popcnt")]
        fn with_avx512<K: Kernel>(simd: Avx512, kernel: K) -> K::Output {
            kernel.run(simd)
        }
        // SAFETY: `self` exists only where `detect` found both features.
        unsafe { with_avx512(self, kernel) }
    }

    /// All lanes equal.
    #[inline(always)]
    pub(crate) fn f32(self, value: f32) -> F32x16 {
        // SAFETY: the token proves AVX-512F.
        F32x16(unsafe { _mm512_set1_ps(value) })
    }

    /// All lanes equal.
    #[inline(always)]
    pub(crate) fn u32(self, value: u32) -> U32x16 {
        // SAFETY: the token proves AVX-512F.
        U32x16(unsafe { _mm512_set1_epi32(value.cast_signed()) })
    }

    /// 0, 1, .. 15.
    #[inline(always)]
    pub(crate) fn iota(self) -> U32x16 {
        // SAFETY: the token proves AVX-512F.
        U32x16(unsafe { _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15) })
    }

    /// The first 16 values. Panics if there are fewer.
    #[inline(always)]
    pub(crate) fn load_f32(self, from: &[f32]) -> F32x16 {
        assert!(from.len() >= LANES);
        // SAFETY: the token proves AVX-512F, and 16 values are readable at the pointer.
        F32x16(unsafe { _mm512_loadu_ps(from.as_ptr()) })
    }

    /// The first 16 values. Panics if there are fewer.
    #[inline(always)]
    pub(crate) fn load_u32(self, from: &[u32]) -> U32x16 {
        assert!(from.len() >= LANES);
        // SAFETY: the token proves AVX-512F, and 16 values are readable at the pointer.
        U32x16(unsafe { _mm512_loadu_si512(from.as_ptr().cast()) })
    }
}

/// Work for [`Avx512::run`].
///
/// A trait and not a closure, since `run` must be `#[inline(always)]`, which a closure cannot be: in a function of its
/// own, without AVX-512, none of the vector methods would be inlined.
pub trait Kernel {
    /// What it returns.
    type Output;
    /// The work.
    fn run(self, simd: Avx512) -> Self::Output;
}

/// Sixteen f32 lanes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct F32x16(__m512);

/// Sixteen u32 lanes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct U32x16(__m512i);

/// A safe method for each intrinsic: `name(self, arguments) -> result = expression;`.
macro_rules! methods {
    ($vector:ident: $($(#[$doc:meta])* $name:ident($self:ident $(, $arg:ident: $ty:ty)*) -> $result:ty = $body:expr;)*) => {
        impl $vector {
            $($(#[$doc])*
            #[inline(always)]
            pub(crate) fn $name($self $(, $arg: $ty)*) -> $result {
                // SAFETY: a vector exists only where a token did, which proves AVX-512F. No pointer is involved.
                unsafe { $body }
            })*
        }
    };
}

methods! { F32x16:
    /// Lane by lane.
    mul(self, b: F32x16) -> F32x16 = F32x16(_mm512_mul_ps(self.0, b.0));
    /// Lane by lane.
    add(self, b: F32x16) -> F32x16 = F32x16(_mm512_add_ps(self.0, b.0));
    /// Lane by lane.
    sub(self, b: F32x16) -> F32x16 = F32x16(_mm512_sub_ps(self.0, b.0));
    /// `self * b + c`, rounded once.
    mul_add(self, b: F32x16, c: F32x16) -> F32x16 = F32x16(_mm512_fmadd_ps(self.0, b.0, c.0));
    /// `c - self * b`, rounded once.
    neg_mul_add(self, b: F32x16, c: F32x16) -> F32x16 = F32x16(_mm512_fnmadd_ps(self.0, b.0, c.0));
    /// Absolute values.
    abs(self) -> F32x16 = F32x16(_mm512_abs_ps(self.0));
    /// Lanes of `among` with `self <= b`; false for NaN.
    le(self, among: Mask, b: F32x16) -> Mask = _mm512_mask_cmp_ps_mask::<_CMP_LE_OQ>(among, self.0, b.0);
    /// Lanes of `among` with `self == b`; false for NaN.
    eq(self, among: Mask, b: F32x16) -> Mask = _mm512_mask_cmp_ps_mask::<_CMP_EQ_OQ>(among, self.0, b.0);
    /// The lanes of `mask`, moved to the front; zeros behind.
    compress(self, mask: Mask) -> F32x16 = F32x16(_mm512_maskz_compress_ps(mask, self.0));
    /// The front lanes of `from`, spread over the lanes of `mask`; the other lanes of `self` stay.
    expand(self, mask: Mask, from: F32x16) -> F32x16 = F32x16(_mm512_mask_expand_ps(self.0, mask, from.0));
}

methods! { U32x16:
    /// Lane by lane, wrapping.
    add(self, b: U32x16) -> U32x16 = U32x16(_mm512_add_epi32(self.0, b.0));
    /// Lane by lane, wrapping.
    sub(self, b: U32x16) -> U32x16 = U32x16(_mm512_sub_epi32(self.0, b.0));
    /// Lane by lane, wrapping, in the lanes of `mask`.
    add_where(self, mask: Mask, b: U32x16) -> U32x16 = U32x16(_mm512_mask_add_epi32(self.0, mask, self.0, b.0));
    /// Lane by lane, the low 32 bits.
    mul(self, b: U32x16) -> U32x16 = U32x16(_mm512_mullo_epi32(self.0, b.0));
    /// Lanes of `among` with `self < b`.
    lt(self, among: Mask, b: U32x16) -> Mask = _mm512_mask_cmplt_epu32_mask(among, self.0, b.0);
    /// The lanes of `b` in `mask`, of `self` elsewhere.
    select(self, mask: Mask, b: U32x16) -> U32x16 = U32x16(_mm512_mask_blend_epi32(mask, self.0, b.0));
    /// Nearest f32.
    to_f32(self) -> F32x16 = F32x16(_mm512_cvtepu32_ps(self.0));
    /// The lanes of `mask`, moved to the front; zeros behind.
    compress(self, mask: Mask) -> U32x16 = U32x16(_mm512_maskz_compress_epi32(mask, self.0));
    /// The front lanes of `from`, spread over the lanes of `mask`; the other lanes of `self` stay.
    expand(self, mask: Mask, from: U32x16) -> U32x16 = U32x16(_mm512_mask_expand_epi32(self.0, mask, from.0));
}

impl F32x16 {
    /// Writes the first 16 values. Panics if there are fewer.
    #[inline(always)]
    pub(crate) fn store(self, to: &mut [f32]) {
        self.store_where(Mask::MAX, to);
    }

    /// Writes those of the first 16 values that are in `mask`. Panics if there are fewer than 16.
    #[inline(always)]
    pub(crate) fn store_where(self, mask: Mask, to: &mut [f32]) {
        assert!(to.len() >= LANES);
        // SAFETY: a vector proves AVX-512F, and 16 values are writable at the pointer.
        unsafe { _mm512_mask_storeu_ps(to.as_mut_ptr(), mask, self.0) }
    }
}

impl U32x16 {
    /// Writes the first 16 values. Panics if there are fewer.
    #[inline(always)]
    pub(crate) fn store(self, to: &mut [u32]) {
        self.store_where(Mask::MAX, to);
    }

    /// Writes those of the first 16 values that are in `mask`. Panics if there are fewer than 16.
    #[inline(always)]
    pub(crate) fn store_where(self, mask: Mask, to: &mut [u32]) {
        assert!(to.len() >= LANES);
        // SAFETY: a vector proves AVX-512F, and 16 values are writable at the pointer.
        unsafe { _mm512_mask_storeu_epi32(to.as_mut_ptr().cast(), mask, self.0) }
    }

    /// Writes the front lanes to all of `to`, at most 16 values.
    #[inline(always)]
    pub(crate) fn store_front(self, to: &mut [u32]) {
        if to.len() >= LANES {
            self.store(to);
        } else {
            let mut all = [0; LANES];
            self.store(&mut all);
            to.copy_from_slice(&all[..to.len()]);
        }
    }
}

/// The lowest `n` lanes, all of them from 16 on.
#[inline(always)]
pub(crate) fn front(n: usize) -> Mask {
    if n >= LANES { Mask::MAX } else { (1 << n) - 1 }
}
