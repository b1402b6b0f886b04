//! Kernels of the CPU ceilings for x86-64: AVX-512 and AVX2 instruction mixes, non-temporal copies, the clock chain.
//!
//! The mixes are assembly, so that what runs is what was counted: a compiler would fuse, reorder or drop. The
//! assembler repeats the mix once per accumulator and moves on to the next accumulator after each instruction, so an
//! instruction depends on one issued a full turn ago and the pipes, not latency, set the pace.
#![allow(unsafe_code)]

use std::arch::asm;
use std::arch::x86_64::{
    __m256i, __m512i, _mm_sfence, _mm256_load_si256, _mm256_stream_si256, _mm512_load_si512, _mm512_stream_si512,
};
use std::mem::size_of;

use super::ceilings::{InstructionMix, Line};

/// Accumulators of the AVX-512 mixes.
const ACCUMULATORS_512: usize = 24;
/// Accumulators of the AVX2 mixes, which have half the registers.
const ACCUMULATORS_256: usize = 12;

/// Proof that this machine has AVX-512F.
#[derive(Clone, Copy, Debug)]
pub struct Avx512(());

/// Proof that this machine has AVX2 and FMA3.
#[derive(Clone, Copy, Debug)]
pub struct Avx2(());

/// Adds 1 to 0 `adds` times (rounded up to 64) in one dependent chain of register adds, a cycle each.
pub(super) fn dependent_adds(adds: u64) -> Option<u64> {
    let mut sum = 0_u64;
    // SAFETY: the code touches its operands only; the loop runs at least once and ends when the count reaches 0.
    unsafe {
        asm!(
            "2:",
            ".rept 64",
            "add {sum}, {one}",
            ".endr",
            "dec {turns}",
            "jnz 2b",
            sum = inout(reg) sum,
            one = in(reg) 1_u64,
            turns = inout(reg) adds.div_ceil(64).max(1) => _,
            options(nomem, nostack),
        );
    }
    Some(sum)
}

/// Writes one instruction of each kind on accumulator `i`, and `rungs_group op, n`: n of them on the next ones.
macro_rules! mix_asm {
    (
        reg: $reg:literal, count: $count:literal, list: $list:literal, bytes: $bytes:literal,
        one: $one:literal, factor: $factor:literal,
        zero: $zero:literal, add: $add:literal, cmp: $cmp:literal, int_add: $int_add:literal,
        $mix:ty, $passes:expr, $constants:expr, $out:expr, clobbers: [$($clobber:tt)*]
    ) => {
        asm!(
            ".altmacro",
            ".macro rungs_mul i",
            concat!("vmulps ", $reg, "\\i, ", $reg, "\\i, ", $factor),
            ".endm",
            ".macro rungs_fma i",
            concat!("vfmadd231ps ", $reg, "\\i, ", $one, ", ", $one),
            ".endm",
            ".macro rungs_add i",
            $add,
            ".endm",
            ".macro rungs_cmp i",
            $cmp,
            ".endm",
            ".macro rungs_int_add i",
            $int_add,
            ".endm",
            ".macro rungs_group op, n",
            ".rept \\n",
            "rungs_\\op %.Lrungs_i",
            concat!(".set .Lrungs_i, (.Lrungs_i + 1) % ", $count),
            ".endr",
            ".endm",
            concat!("vbroadcastss ", $factor, ", [{constants}]"),
            concat!("vbroadcastss ", $one, ", [{constants} + 4]"),
            concat!(".irp r,", $list),
            concat!($zero, " ", $reg, "\\r, ", $reg, "\\r, ", $reg, "\\r"),
            ".endr",
            ".set .Lrungs_i, 0",
            ".p2align 6",
            "2:",
            concat!(".rept ", $count),
            "rungs_group mul, {mul}",
            "rungs_group fma, {fma}",
            "rungs_group add, {add}",
            "rungs_group cmp, {cmp}",
            "rungs_group int_add, {int_add}",
            ".endr",
            "dec {passes}",
            "jnz 2b",
            concat!(".irp r,", $list),
            concat!("vmovups [{out} + ", $bytes, "*\\r], ", $reg, "\\r"),
            ".endr",
            ".purgem rungs_mul",
            ".purgem rungs_fma",
            ".purgem rungs_add",
            ".purgem rungs_cmp",
            ".purgem rungs_int_add",
            ".purgem rungs_group",
            ".noaltmacro",
            passes = inout(reg) $passes => _,
            constants = in(reg) $constants,
            out = in(reg) $out,
            mul = const <$mix>::MIX.mul,
            fma = const <$mix>::MIX.fma,
            add = const <$mix>::MIX.add,
            cmp = const <$mix>::MIX.cmp,
            int_add = const <$mix>::MIX.int_add,
            $($clobber)*
            options(nostack),
        )
    };
}

impl Avx512 {
    /// The token, where the machine and the operating system support AVX-512F.
    pub fn detect() -> Option<Self> {
        is_x86_feature_detected!("avx512f").then_some(Self(()))
    }

    /// Runs the mix `passes` times (at least once) on each of the accumulators, from 0, with `factor` for the
    /// multiplier; FMAs and adds add 1. Returns the accumulators, whose number is that of the mixes in one pass.
    pub(super) fn run_mix<M: InstructionMix>(self, passes: u64, factor: f32) -> Vec<f32> {
        let mut out = vec![f32::NAN; ACCUMULATORS_512 * 16];
        // SAFETY: self proves AVX-512F; `out` holds every accumulator.
        unsafe { mix_512::<M>(passes.max(1), factor, &mut out) };
        out.into_iter().step_by(16).collect()
    }

    /// Copies with non-temporal stores, which spare reading the destination first.
    pub(super) fn stream_copy(self, from: &[Line], to: &mut [Line]) {
        assert_eq!(from.len(), to.len(), "a copy needs as much room as it has data");
        // SAFETY: self proves AVX-512F.
        unsafe { stream_512(from, to) }
    }
}

impl Avx2 {
    /// The token, where the machine and the operating system support AVX2 and FMA3.
    pub fn detect() -> Option<Self> {
        (is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma")).then_some(Self(()))
    }

    /// As [`Avx512::run_mix`], except that adds write a scratch register instead of the accumulators: twelve
    /// accumulators would make a machine with two FMA and two add pipes wait for latency.
    pub(super) fn run_mix<M: InstructionMix>(self, passes: u64, factor: f32) -> Vec<f32> {
        let mut out = vec![f32::NAN; ACCUMULATORS_256 * 8];
        // SAFETY: self proves AVX2 and FMA3; `out` holds every accumulator.
        unsafe { mix_256::<M>(passes.max(1), factor, &mut out) };
        out.into_iter().step_by(8).collect()
    }

    /// Copies with non-temporal stores, which spare reading the destination first.
    pub(super) fn stream_copy(self, from: &[Line], to: &mut [Line]) {
        assert_eq!(from.len(), to.len(), "a copy needs as much room as it has data");
        // SAFETY: self proves AVX2.
        unsafe { stream_256(from, to) }
    }
}

/// Needs `passes` > 0 and room for 24 vectors in `out`.
#[target_feature(enable = "avx512f")]
unsafe fn mix_512<M: InstructionMix>(passes: u64, factor: f32, out: &mut [f32]) {
    assert!(passes > 0 && out.len() == ACCUMULATORS_512 * 16);
    let constants = [factor, 1.0_f32];
    // SAFETY: reads the two constants, writes the 24 vectors of `out`, whose length was checked; every register it
    // changes is declared; the loop ends when the count reaches 0.
    unsafe {
        mix_asm!(
            reg: "zmm", count: "24",
            list: "0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23", bytes: "64",
            one: "zmm31", factor: "zmm30", zero: "vpxord",
            add: "vaddps zmm\\i, zmm\\i, zmm31",
            cmp: "vcmpps k1, zmm\\i, zmm31, 1",
            int_add: "vpaddd zmm29, zmm31, zmm31",
            M, passes, constants.as_ptr(), out.as_mut_ptr(),
            clobbers: [
                out("zmm0") _, out("zmm1") _, out("zmm2") _, out("zmm3") _, out("zmm4") _, out("zmm5") _,
                out("zmm6") _, out("zmm7") _, out("zmm8") _, out("zmm9") _, out("zmm10") _, out("zmm11") _,
                out("zmm12") _, out("zmm13") _, out("zmm14") _, out("zmm15") _, out("zmm16") _, out("zmm17") _,
                out("zmm18") _, out("zmm19") _, out("zmm20") _, out("zmm21") _, out("zmm22") _, out("zmm23") _,
                out("zmm29") _, out("zmm30") _, out("zmm31") _, out("k1") _,
            ]
        );
    }
}

/// Needs `passes` > 0 and room for 12 vectors in `out`.
#[target_feature(enable = "avx2,fma")]
unsafe fn mix_256<M: InstructionMix>(passes: u64, factor: f32, out: &mut [f32]) {
    assert!(passes > 0 && out.len() == ACCUMULATORS_256 * 8);
    let constants = [factor, 1.0_f32];
    // SAFETY: reads the two constants, writes the 12 vectors of `out`, whose length was checked; every register it
    // changes is declared; the loop ends when the count reaches 0.
    unsafe {
        mix_asm!(
            reg: "ymm", count: "12", list: "0,1,2,3,4,5,6,7,8,9,10,11", bytes: "32",
            one: "ymm15", factor: "ymm14", zero: "vpxor",
            add: "vaddps ymm12, ymm15, ymm15",
            cmp: "vcmpps ymm13, ymm\\i, ymm15, 1",
            int_add: "vpaddd ymm12, ymm15, ymm15",
            M, passes, constants.as_ptr(), out.as_mut_ptr(),
            clobbers: [
                out("ymm0") _, out("ymm1") _, out("ymm2") _, out("ymm3") _, out("ymm4") _, out("ymm5") _,
                out("ymm6") _, out("ymm7") _, out("ymm8") _, out("ymm9") _, out("ymm10") _, out("ymm11") _,
                out("ymm12") _, out("ymm13") _, out("ymm14") _, out("ymm15") _,
            ]
        );
    }
}

/// Lines of the four pages that a stream copy walks at once: more pages open, more requests in flight.
const BLOCK: usize = 4 * PAGE;
/// Lines of a page.
const PAGE: usize = 4096 / size_of::<Line>();

/// Copies with `$copy`, line by line, four pages side by side and what is left in order.
macro_rules! stream {
    ($from:ident, $to:ident, $copy:ident) => {{
        let (from_blocks, from_rest) = $from.as_chunks::<BLOCK>();
        let (to_blocks, to_rest) = $to.as_chunks_mut::<BLOCK>();
        for (from, to) in from_blocks.iter().zip(to_blocks) {
            for line in 0..PAGE {
                for page in (0..BLOCK).step_by(PAGE) {
                    $copy(&from[page + line], &mut to[page + line]);
                }
            }
        }
        for (from, to) in from_rest.iter().zip(to_rest) {
            $copy(from, to);
        }
        // Non-temporal stores are weakly ordered: the fence makes them visible before the time is taken.
        _mm_sfence();
    }};
}

#[target_feature(enable = "avx512f")]
fn stream_512(from: &[Line], to: &mut [Line]) {
    #[target_feature(enable = "avx512f")]
    fn copy(from: &Line, to: &mut Line) {
        // SAFETY: a line is 64 bytes, aligned to 64, and exclusively borrowed where it is written.
        unsafe {
            let line = _mm512_load_si512(std::ptr::from_ref(from).cast::<__m512i>());
            _mm512_stream_si512(std::ptr::from_mut(to).cast::<__m512i>(), line);
        }
    }
    stream!(from, to, copy);
}

#[target_feature(enable = "avx2")]
fn stream_256(from: &[Line], to: &mut [Line]) {
    #[target_feature(enable = "avx2")]
    fn copy(from: &Line, to: &mut Line) {
        const { assert!(size_of::<Line>() == 2 * size_of::<__m256i>()) };
        let from = std::ptr::from_ref(from).cast::<__m256i>();
        let to = std::ptr::from_mut(to).cast::<__m256i>();
        // SAFETY: a line is two 32-byte vectors, aligned to 64, and exclusively borrowed where it is written.
        unsafe {
            let (low, high) = (_mm256_load_si256(from), _mm256_load_si256(from.add(1)));
            _mm256_stream_si256(to, low);
            _mm256_stream_si256(to.add(1), high);
        }
    }
    stream!(from, to, copy);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::{Mix, avx512_or_skip};

    struct Fma;
    impl InstructionMix for Fma {
        const MIX: Mix = Mix { fma: 1, ..Mix::NONE };
    }
    struct Mandelbrot;
    impl InstructionMix for Mandelbrot {
        const MIX: Mix = Mix { mul: 1, fma: 3, add: 2, cmp: 1, int_add: 1 };
    }
    struct Add;
    impl InstructionMix for Add {
        const MIX: Mix = Mix { add: 5, ..Mix::NONE };
    }

    /// What the accumulators must hold: the mix in scalar arithmetic, one instruction after the other.
    fn expected(mix: Mix, accumulators: usize, adds_count: bool, passes: u64, factor: f32) -> Vec<f32> {
        let mut acc = vec![0.0_f32; accumulators];
        let mut i = 0;
        for _ in 0..passes * accumulators as u64 {
            for (kind, count) in [mix.mul, mix.fma, mix.add, mix.cmp, mix.int_add].into_iter().enumerate() {
                for _ in 0..count {
                    match kind {
                        0 => acc[i] *= factor,
                        1 => acc[i] += 1.0,
                        2 if adds_count => acc[i] += 1.0,
                        _ => {}
                    }
                    i = (i + 1) % accumulators;
                }
            }
        }
        acc
    }

    fn check<M: InstructionMix>(passes: u64, factor: f32) {
        if let Some(unit) = avx512_or_skip() {
            let want = expected(M::MIX, ACCUMULATORS_512, true, passes, factor);
            assert_eq!(unit.run_mix::<M>(passes, factor), want, "{:?}", M::MIX);
        }
        if let Some(unit) = Avx2::detect() {
            let want = expected(M::MIX, ACCUMULATORS_256, false, passes, factor);
            assert_eq!(unit.run_mix::<M>(passes, factor), want, "{:?}", M::MIX);
        }
    }

    #[test]
    fn mixes_run_the_promised_instructions() {
        check::<Fma>(1, 2.0);
        check::<Fma>(1000, 1.0);
        // A factor of 2 makes the result depend on the number and the order of all three kinds.
        check::<Mandelbrot>(1, 2.0);
        check::<Mandelbrot>(2, 2.0);
        check::<Mandelbrot>(1000, 1.0);
        check::<Add>(7, 2.0);
    }

    #[test]
    fn the_chain_adds_as_often_as_asked() {
        assert_eq!(dependent_adds(64), Some(64));
        assert_eq!(dependent_adds(65), Some(128));
        assert_eq!(dependent_adds(1 << 20), Some(1 << 20));
    }

    #[test]
    fn stream_copies_copy_every_byte() {
        for lines in [0, 1, 17, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 77] {
            let from: Vec<Line> = (0..lines).map(|i| Line(std::array::from_fn(|b| (i * 31 + b) as u8))).collect();
            let mut to = vec![Line([0xA5; 64]); lines];
            if let Some(unit) = avx512_or_skip() {
                unit.stream_copy(&from, &mut to);
                assert_eq!(from, to);
            }
            to.fill(Line([0xA5; 64]));
            if let Some(unit) = Avx2::detect() {
                unit.stream_copy(&from, &mut to);
                assert_eq!(from, to);
            }
        }
    }
}
