//! The rungs, in order. Everything else iterates these lists.

use report::study::Requirement;
use timing::launch::Kernel;

use crate::cpu;
use crate::gpu::{self, GpuRung};
use crate::reference::Formulation;
use crate::view::Problem;

/// Arithmetic vector instructions of one iteration of one vector, by kind.
///
/// An instruction that is executed once in `k` iterations counts `1/k`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mix {
    /// Multiplications.
    pub mul: f64,
    /// Fused multiply-adds.
    pub fma: f64,
    /// Additions and subtractions.
    pub add: f64,
    /// Floating-point compares.
    pub cmp: f64,
    /// Integer and mask arithmetic in vector registers: counts, ANDs.
    pub int: f64,
}

impl Mix {
    /// Floating-point instructions, compares among them.
    pub fn fp(&self) -> f64 {
        self.mul + self.fma + self.add + self.cmp
    }
}

/// A rung that runs on the CPU.
#[derive(Clone, Copy, Debug)]
pub struct CpuRung {
    /// Name of the file, of the rung in the CLI and in the JSON.
    pub stem: &'static str,
    /// What it is, one line.
    pub what: &'static str,
    /// The oracle it must equal.
    pub formulation: Formulation,
    /// Pixels of one vector. For the C rung: on this CPU.
    pub lanes: fn() -> u32,
    /// Independent vectors (or pixels, where a vector has one lane) in the loop.
    pub in_flight: u32,
    /// What one iteration of one vector costs.
    pub mix: Mix,
    /// Whether finished pixels are replaced at once; otherwise `lanes * in_flight` neighbours of a row run until the
    /// last of them is done.
    pub refill: bool,
    /// Whether it uses all threads of the pool.
    pub multicore: bool,
    /// What makes it a failure that the rung is not available, when its variable is set.
    pub requires: Option<Requirement>,
    /// Whether it can run here; the error is the reason of the skip.
    pub available: fn() -> Result<(), String>,
    /// How a compiler made it, where that is not ours to say: compiler, flags, what its vectoriser did.
    pub how: fn() -> Option<&'static str>,
    /// Counts of the problem, row-major; `out` is `problem.pixels()` long. Panics where it is not available.
    pub run: fn(&Problem, &mut [u32]),
}

const SCALAR_PLAIN: Mix = Mix { mul: 3.0, fma: 0.0, add: 5.0, cmp: 1.0, int: 0.0 };
const SCALAR: Mix = Mix { mul: 1.0, fma: 3.0, add: 2.0, cmp: 1.0, int: 0.0 };
const MASK_REGISTER: Mix = Mix { int: 1.0, ..SCALAR };
const MASK_VECTOR: Mix = Mix { int: 2.0, ..SCALAR };
// At the end of each block of 24 iterations: y2, m, the compare; the compare of the deadline.
const DEFERRED: Mix = Mix { mul: 1.0 + 1.0 / 24.0, fma: 2.0 + 1.0 / 24.0, add: 2.0, cmp: 1.0 / 24.0, int: 1.0 / 24.0 };
// And once in 4 iterations y is scaled back.
const SCALED: Mix = Mix { mul: DEFERRED.mul + 1.0 / 4.0, fma: 3.0 + 1.0 / 24.0, add: 0.0, ..DEFERRED };

/// The CPU rungs.
pub const CPU: &[CpuRung] = &[
    CpuRung {
        stem: "cpu_00_scalar",
        what: "one pixel after the other, fused multiply-adds",
        formulation: Formulation::Fused,
        lanes: || 1,
        in_flight: 1,
        mix: SCALAR,
        refill: false,
        multicore: false,
        requires: None,
        available: || Ok(()),
        how: || None,
        run: cpu::cpu_00_scalar::run,
    },
    CpuRung {
        stem: "cpu_01_c_plain",
        what: "the same loop in C, cc -O2, not fused",
        formulation: Formulation::Plain,
        lanes: || 1,
        in_flight: 1,
        mix: SCALAR_PLAIN,
        refill: false,
        multicore: false,
        requires: None,
        available: || cpu::c_baseline::Compiled::plain().map(|_| ()),
        how: || cpu::c_baseline::Compiled::plain().ok().map(|c| c.how),
        run: cpu::cpu_01_c_plain::run,
    },
    CpuRung {
        stem: "cpu_02_c_autovec",
        what: "C in arrays of 64 lanes, vectorised by the compiler",
        formulation: Formulation::Fused,
        lanes: || cpu::c_baseline::Compiled::lanes().map_or(16, |compiled| compiled.vector_lanes),
        in_flight: 4,
        mix: MASK_VECTOR,
        refill: false,
        multicore: false,
        requires: None,
        available: || cpu::c_baseline::Compiled::lanes().map(|_| ()),
        how: || cpu::c_baseline::Compiled::lanes().ok().map(|c| c.how),
        run: cpu::cpu_02_c_autovec::run,
    },
    CpuRung {
        stem: "cpu_03_avx2",
        what: "AVX2: 8 lanes, 2 vectors in flight",
        formulation: Formulation::Fused,
        lanes: || 8,
        in_flight: 2,
        mix: MASK_VECTOR,
        refill: false,
        multicore: false,
        requires: None,
        available: avx2,
        how: || None,
        run: x86::cpu_03_avx2,
    },
    CpuRung {
        stem: "cpu_04_avx512",
        what: "AVX-512: 16 lanes, finished lanes in a mask register",
        formulation: Formulation::Fused,
        lanes: || 16,
        in_flight: 1,
        mix: MASK_REGISTER,
        refill: false,
        multicore: false,
        requires: Some(Requirement::Avx512),
        available: avx512,
        how: || None,
        run: x86::cpu_04_avx512,
    },
    CpuRung {
        stem: "cpu_05_avx512_ilp",
        what: "AVX-512, 4 vectors in flight",
        formulation: Formulation::Fused,
        lanes: || 16,
        in_flight: 4,
        mix: MASK_REGISTER,
        refill: false,
        multicore: false,
        requires: Some(Requirement::Avx512),
        available: avx512,
        how: || None,
        run: x86::cpu_05_avx512_ilp,
    },
    CpuRung {
        stem: "cpu_06_avx512_refill",
        what: "AVX-512, 5 vectors in flight, each refilled when its pixels are done",
        formulation: Formulation::Fused,
        lanes: || 16,
        in_flight: 5,
        mix: MASK_REGISTER,
        refill: true,
        multicore: false,
        requires: Some(Requirement::Avx512),
        available: avx512,
        how: || None,
        run: x86::cpu_06_avx512_refill,
    },
    CpuRung {
        stem: "cpu_07_avx512_deferred",
        what: "AVX-512, the check deferred to every 24th iteration, lanes refilled one by one",
        formulation: Formulation::Fused,
        lanes: || 16,
        in_flight: 6,
        mix: DEFERRED,
        refill: true,
        multicore: false,
        requires: Some(Requirement::Avx512),
        available: avx512,
        how: || None,
        run: x86::cpu_07_avx512_deferred,
    },
    CpuRung {
        stem: "cpu_08_avx512_scaled",
        what: "AVX-512 deferred, y scaled by powers of two: 4 instructions an iteration",
        formulation: Formulation::Fused,
        lanes: || 16,
        in_flight: 7,
        mix: SCALED,
        refill: true,
        multicore: false,
        requires: Some(Requirement::Avx512),
        available: avx512,
        how: || None,
        run: x86::cpu_08_avx512_scaled,
    },
    CpuRung {
        stem: "cpu_09_multicore",
        what: "all cores, one AVX-512 vector each",
        formulation: Formulation::Fused,
        lanes: || 16,
        in_flight: 1,
        mix: MASK_REGISTER,
        refill: false,
        multicore: true,
        requires: Some(Requirement::Avx512),
        available: avx512,
        how: || None,
        run: x86::cpu_09_multicore,
    },
    CpuRung {
        stem: "cpu_10_multicore_scaled",
        what: "all cores, the best kernel of one core on each",
        formulation: Formulation::Fused,
        lanes: || 16,
        in_flight: 7,
        mix: SCALED,
        refill: true,
        multicore: true,
        requires: Some(Requirement::Avx512),
        available: avx512,
        how: || None,
        run: x86::cpu_10_multicore_scaled,
    },
];

/// The kernel of a stem: its PTX, whose only entry has the same name.
macro_rules! kernel {
    ($stem:literal) => {
        Kernel {
            stem: $stem,
            entry: $stem,
            ptx: include_str!(concat!("../../../ptx/mandelbrot/", $stem, ".ptx")),
            target: (6, 0),
        }
    };
}

/// The GPU rungs.
pub const GPU: &[GpuRung] = &[
    gpu::one_lane(kernel!("gpu_00_one_lane"), "one lane computes every pixel"),
    gpu::one_warp_tiles(kernel!("gpu_01_one_warp"), "32 lanes, one pixel each"),
    gpu::one_warp_ilp2(kernel!("gpu_02_one_warp_ilp2"), "32 lanes, two pixels each"),
    gpu::one_sm(kernel!("gpu_03_one_sm"), "32 warps fill one SM"),
    gpu::whole_gpu(kernel!("gpu_04_whole_gpu"), "a warp for each tile, on every SM"),
    gpu::whole_gpu_ilp2(kernel!("gpu_05_whole_gpu_ilp2"), "two pixels per thread on every SM"),
    gpu::lane_refill(kernel!("gpu_06_lane_refill"), "finished lanes take new pixels from a queue"),
    gpu::deferred_count(kernel!("gpu_07_deferred_count"), "count by blocks, replay the last one"),
    gpu::deferred_check(kernel!("gpu_08_deferred_check"), "compare once a block, replay the last one"),
    gpu::refill_deferred(kernel!("gpu_09_refill_deferred"), "lane refill and deferred check together"),
    gpu::scaled(kernel!("gpu_10_scaled"), "four instructions an iteration, with y on a moving scale"),
    gpu::refill_scaled(kernel!("gpu_11_refill_scaled"), "lane refill and scaled y together"),
];

#[cfg(target_arch = "x86_64")]
fn avx2() -> Result<(), String> {
    cpu::avx2::Avx2::detect().map(|_| ()).ok_or_else(|| "needs AVX2 and FMA: this CPU has not".into())
}

#[cfg(target_arch = "x86_64")]
fn avx512() -> Result<(), String> {
    cpu::avx512::Avx512::detect().map(|_| ()).ok_or_else(|| "needs AVX-512F: this CPU has none".into())
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    pub(super) use crate::cpu::cpu_03_avx2::run as cpu_03_avx2;
    pub(super) use crate::cpu::cpu_04_avx512::run as cpu_04_avx512;
    pub(super) use crate::cpu::cpu_05_avx512_ilp::run as cpu_05_avx512_ilp;
    pub(super) use crate::cpu::cpu_06_avx512_refill::run as cpu_06_avx512_refill;
    pub(super) use crate::cpu::cpu_07_avx512_deferred::run as cpu_07_avx512_deferred;
    pub(super) use crate::cpu::cpu_08_avx512_scaled::run as cpu_08_avx512_scaled;
    pub(super) use crate::cpu::cpu_09_multicore::run as cpu_09_multicore;
    pub(super) use crate::cpu::cpu_10_multicore_scaled::run as cpu_10_multicore_scaled;
}

/// Never called: [`CpuRung::available`] says no.
#[cfg(not(target_arch = "x86_64"))]
mod x86 {
    use crate::view::Problem;

    pub(super) fn not_here(_: &Problem, _: &mut [u32]) {
        panic!("an x86-64 rung on another CPU")
    }

    pub(super) use {
        not_here as cpu_03_avx2, not_here as cpu_04_avx512, not_here as cpu_05_avx512_ilp,
        not_here as cpu_06_avx512_refill, not_here as cpu_07_avx512_deferred, not_here as cpu_08_avx512_scaled,
        not_here as cpu_09_multicore, not_here as cpu_10_multicore_scaled,
    };
}

#[cfg(not(target_arch = "x86_64"))]
fn avx2() -> Result<(), String> {
    Err("needs AVX2 and FMA: this CPU is no x86-64".into())
}

#[cfg(not(target_arch = "x86_64"))]
fn avx512() -> Result<(), String> {
    Err("needs AVX-512F: this CPU is no x86-64".into())
}
