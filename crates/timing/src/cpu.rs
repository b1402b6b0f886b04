//! The CPU as an instrument: which cores there are, pinning, the core clock, and the ceilings measured on it.
//!
//! Cores are numbered 0.. among those this process may use (affinity mask, container limit), distinct physical
//! cores first: an index here is not the operating system's number.

// The one room with unsafe code: asm kernels, vector intrinsics and the non-temporal copy.
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(not(target_arch = "x86_64"))]
#[path = "cpu/portable.rs"]
mod avx512;
mod ceilings;

use std::collections::BTreeSet;
use std::sync::OnceLock;
use std::time::Instant;

use core_affinity::CoreId;

pub use avx512::{Avx2, Avx512};
pub use ceilings::{InstructionMix, MAX_MIX, Mix, VectorRate, calibrate, calibrate_mix, vector_rate};

/// Why something could not be run on the cores that were asked for.
#[derive(Debug, thiserror::Error)]
pub enum CpuError {
    /// The index is not below the number of allowed cores.
    #[error("core {index} does not exist: this process may use {allowed} cores, numbered from 0")]
    NoSuchCore {
        /// The index asked for.
        index: usize,
        /// Cores that this process may use.
        allowed: usize,
    },
    /// The operating system has no pinning, or refused it.
    #[error("the operating system does not let this process pin a thread to core {index}")]
    PinRefused {
        /// The index asked for.
        index: usize,
    },
    /// More threads, or fewer than one, than the pool may have.
    #[error("a pool of {threads} pinned threads is not possible: 1 to {allowed} are")]
    PoolSize {
        /// Threads asked for.
        threads: usize,
        /// Cores that this process may use.
        allowed: usize,
    },
    /// The pool could not start its threads.
    #[error("cannot start a thread pool: {0}")]
    Pool(#[from] rayon::ThreadPoolBuildError),
}

/// One logical processor that this process may run on.
#[derive(Clone, Copy, Debug)]
struct Core {
    /// The operating system's number; none where it names no cores.
    id: Option<CoreId>,
    /// Physical core it belongs to: equal numbers share their vector pipes. None when the system does not say.
    physical: Option<usize>,
}

/// The allowed cores as they were before this module pinned anything: a pinned thread, and every thread that it
/// starts, sees one core only.
fn cores() -> &'static [Core] {
    static CORES: OnceLock<Vec<Core>> = OnceLock::new();
    CORES.get_or_init(|| {
        // Counts the CPU quota of a container too, which the affinity mask does not.
        let quota = std::thread::available_parallelism().map_or(1, |n| n.get());
        let ids = core_affinity::get_core_ids().unwrap_or_default();
        let cores = if ids.is_empty() {
            vec![Core { id: None, physical: None }; quota]
        } else {
            ids.into_iter().map(|id| Core { id: Some(id), physical: physical_core(id.id) }).collect()
        };
        let mut cores = distinct_first(cores);
        cores.truncate(quota);
        cores
    })
}

/// Cores in their order, except that a second thread of a physical core comes after all first ones.
fn distinct_first(cores: Vec<Core>) -> Vec<Core> {
    let mut seen = BTreeSet::new();
    let (mut first, second): (Vec<Core>, Vec<Core>) =
        cores.into_iter().partition(|core| core.physical.is_none_or(|p| seen.insert(p)));
    first.extend(second);
    first
}

/// The lowest logical processor that shares its core with `cpu`, as Linux lists it.
fn physical_core(cpu: usize) -> Option<usize> {
    let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
    first_of_list(&std::fs::read_to_string(path).ok()?)
}

/// First number of a Linux list such as `3,67` or `0-1`.
fn first_of_list(list: &str) -> Option<usize> {
    list.trim().split([',', '-']).next()?.parse().ok()
}

/// Logical processors that this process may use: those of its affinity mask, no more than its container's quota.
pub fn allowed_cores() -> usize {
    cores().len()
}

/// Distinct physical cores among the first `threads` allowed ones; none when the system does not say.
pub fn physical_cores(threads: usize) -> Option<usize> {
    let physical: Option<BTreeSet<usize>> = cores().iter().take(threads).map(|core| core.physical).collect();
    physical.map(|p| p.len())
}

/// Pins the calling thread to the allowed core `index`.
///
/// Threads that it starts from then on inherit the pin (a rayon global pool among them, not a [`pinned_pool`]), so
/// measure on a thread of its own: see [`on_core`].
///
/// # Errors
/// No such core, or an operating system without pinning (macOS).
pub fn pin_to_core(index: usize) -> Result<(), CpuError> {
    let core = cores().get(index).ok_or(CpuError::NoSuchCore { index, allowed: allowed_cores() })?;
    match core.id {
        Some(id) if core_affinity::set_for_current(id) => Ok(()),
        _ => Err(CpuError::PinRefused { index }),
    }
}

/// Runs `work` on a new thread pinned to core `index` and returns what it returns. Where pinning is refused the
/// thread floats; `work` is told whether it is pinned. What `work` allocates is first touched on that core.
///
/// # Errors
/// No such core. A panic of `work` is passed on.
pub fn on_core<R: Send>(index: usize, work: impl FnOnce(bool) -> R + Send) -> Result<R, CpuError> {
    if index >= allowed_cores() {
        return Err(CpuError::NoSuchCore { index, allowed: allowed_cores() });
    }
    let result = std::thread::scope(|scope| scope.spawn(|| work(pin_to_core(index).is_ok())).join());
    result.or_else(|panic| std::panic::resume_unwind(panic))
}

/// A rayon pool whose worker `i` is pinned to core `i`, so that what a worker allocates and first touches stays
/// near it. Returns the pool and how many of its workers are pinned: 0 where the system has no pinning.
///
/// # Errors
/// No threads, more threads than allowed cores, or threads that cannot be started.
pub fn pinned_pool(threads: usize) -> Result<(rayon::ThreadPool, usize), CpuError> {
    let allowed = allowed_cores();
    if threads == 0 || threads > allowed {
        return Err(CpuError::PoolSize { threads, allowed });
    }
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).thread_name(|i| format!("core-{i}")).build()?;
    let pinned = pool.broadcast(|worker| usize::from(pin_to_core(worker.index()).is_ok())).into_iter().sum();
    Ok((pool, pinned))
}

/// A vector unit with f32 FMA that was detected on this machine.
#[derive(Clone, Copy, Debug)]
pub enum VectorUnit {
    /// 512-bit vectors, 32 registers, mask registers.
    Avx512(Avx512),
    /// 256-bit vectors with FMA3, 16 registers.
    Avx2(Avx2),
}

impl VectorUnit {
    /// f32 lanes of one vector.
    pub fn lanes(self) -> usize {
        match self {
            Self::Avx512(_) => 16,
            Self::Avx2(_) => 8,
        }
    }

    /// `avx512` or `avx2`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Avx512(_) => "avx512",
            Self::Avx2(_) => "avx2",
        }
    }
}

/// The widest vector unit that this module has kernels for: AVX-512, else AVX2 with FMA, else none.
pub fn widest_vector() -> Option<VectorUnit> {
    Avx512::detect().map(VectorUnit::Avx512).or_else(|| Avx2::detect().map(VectorUnit::Avx2))
}

/// AVX-512 for a test: none, with a line that says so, where this machine lacks it.
///
/// # Panics
/// It is lacking and `REQUIRE_AVX512` insists on it.
#[cfg(test)]
fn avx512_or_skip() -> Option<Avx512> {
    let found = Avx512::detect();
    if found.is_none() {
        assert!(!crate::probe::required("REQUIRE_AVX512"), "REQUIRE_AVX512 is set, but this CPU has no AVX-512F");
        println!("SKIP: this CPU has no AVX-512F");
    }
    found
}

/// Dependent adds in one try of [`core_hz`]: some 2 us.
const CLOCK_ADDS: u64 = 8192;

/// Clock of the core under the calling thread, in Hz, from a chain of dependent integer adds: one a cycle on every
/// core of the last decades. None on architectures without the kernel.
///
/// The adds are register to register: since 2021 cores fold adds of an immediate away and would show six times the
/// clock. The best of three tries of 2 us counts, so that an interrupt does not pass for a slow clock.
pub fn core_hz() -> Option<f64> {
    (0..3).filter_map(|_| chain_hz(CLOCK_ADDS)).reduce(f64::max)
}

/// The clock that the work before this call ran at: wide vectors lower it, and it is back within some microseconds,
/// so this is the better of two tries of 1 us.
fn core_hz_just_now() -> Option<f64> {
    let first = chain_hz(CLOCK_ADDS / 2)?;
    chain_hz(CLOCK_ADDS / 2).map(|second| first.max(second))
}

fn chain_hz(adds: u64) -> Option<f64> {
    let start = Instant::now();
    let sum = avx512::dependent_adds(adds)?;
    let ns = start.elapsed().as_nanos() as f64 - timer_ns();
    (std::hint::black_box(sum) == adds && ns > 0.0).then(|| adds as f64 / ns * 1e9)
}

/// What an empty pair of clock readings shows, ns: 1 to 3% of a chain.
fn timer_ns() -> f64 {
    static NS: OnceLock<f64> = OnceLock::new();
    *NS.get_or_init(|| (0..1000).map(|_| Instant::now().elapsed().as_nanos() as f64).fold(f64::INFINITY, f64::min))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_threads_of_physical_cores_come_first() {
        let core = |id: usize, physical: usize| Core { id: Some(CoreId { id }), physical: Some(physical) };
        let order = distinct_first(vec![core(0, 0), core(1, 0), core(2, 2), core(3, 2)]);
        assert_eq!(order.iter().map(|c| c.id.unwrap().id).collect::<Vec<_>>(), [0, 2, 1, 3]);
        let unknown = vec![Core { id: None, physical: None }; 3];
        assert_eq!(distinct_first(unknown).len(), 3);
    }

    #[test]
    fn lists_of_linux_are_read() {
        assert_eq!(first_of_list("3,67\n"), Some(3));
        assert_eq!(first_of_list("10-11\n"), Some(10));
        assert_eq!(first_of_list("0\n"), Some(0));
        assert_eq!(first_of_list(""), None);
    }

    #[test]
    fn pinning_elsewhere_leaves_the_caller_its_cores() {
        let before = allowed_cores();
        assert!(before >= 1);
        let seen = on_core(before - 1, |_| allowed_cores()).unwrap();
        assert_eq!((seen, allowed_cores()), (before, before));
        if cfg!(target_os = "linux") {
            let inside = on_core(0, |pinned| (pinned, core_affinity::get_core_ids().map(|c| c.len()))).unwrap();
            assert_eq!(inside, (true, Some(1)));
        }
    }

    #[test]
    fn cores_that_do_not_exist_are_refused_in_one_line() {
        let allowed = allowed_cores();
        let text = pin_to_core(allowed).unwrap_err().to_string();
        assert!(text.contains(&format!("may use {allowed} cores")) && !text.contains('\n'), "{text}");
        assert!(matches!(on_core(usize::MAX, |_| ()), Err(CpuError::NoSuchCore { .. })));
        assert!(matches!(pinned_pool(0), Err(CpuError::PoolSize { .. })));
        assert!(matches!(pinned_pool(allowed + 1), Err(CpuError::PoolSize { .. })));
    }

    #[test]
    fn each_worker_of_a_pool_has_a_core_of_its_own() {
        let threads = allowed_cores();
        let (pool, pinned) = pinned_pool(threads).unwrap();
        assert_eq!(pool.current_num_threads(), threads);
        if cfg!(target_os = "linux") {
            assert_eq!(pinned, threads);
            let ids: BTreeSet<usize> =
                pool.broadcast(|_| core_affinity::get_core_ids().unwrap()[0].id).into_iter().collect();
            assert_eq!(ids.len(), threads);
        }
    }

    #[test]
    fn the_clock_is_a_clock() {
        let hz = core_hz();
        assert_eq!(hz.is_some(), cfg!(target_arch = "x86_64"));
        assert!(hz.is_none_or(|hz| hz.is_finite() && hz > 0.0), "{hz:?}");
    }
}
