//! Ceilings of the CPU, measured in the same run as the rungs: copy bandwidth and vector instruction rates, of one
//! core and of all cores at once.

use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::avx512::Avx2;
use super::{
    CpuError, VectorUnit, allowed_cores, core_hz, core_hz_just_now, physical_cores, pinned_pool, widest_vector,
};
use crate::check::POISON_BYTE;
use crate::host::host;
use crate::record::{Calibration, Ceiling};
use crate::sample::Plan;
use crate::stats::median;

/// How many of each kind of vector instruction one step of a loop issues.
///
/// Pipes differ (Zen 5: two for mul and FMA, two more for add; Intel: two for all of them), so a loop's arithmetic
/// ceiling is that of its own mix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mix {
    /// f32 multiplies.
    pub mul: usize,
    /// f32 fused multiply-adds.
    pub fma: usize,
    /// f32 adds or subtracts.
    pub add: usize,
    /// f32 compares (into a mask register on AVX-512).
    pub cmp: usize,
    /// 32-bit integer adds.
    pub int_add: usize,
}

impl Mix {
    /// No instructions: fill the rest of a mix with `..Mix::NONE`.
    pub const NONE: Self = Self { mul: 0, fma: 0, add: 0, cmp: 0, int_add: 0 };

    /// Instructions of one step.
    pub const fn total(self) -> usize {
        self.mul + self.fma + self.add + self.cmp + self.int_add
    }

    fn counts(self) -> impl Iterator<Item = (&'static str, usize)> {
        [("mul", self.mul), ("fma", self.fma), ("add", self.add), ("cmp", self.cmp), ("int_add", self.int_add)]
            .into_iter()
            .filter(|(_, n)| *n > 0)
    }

    /// `1 mul + 3 fma`.
    fn text(self) -> String {
        self.counts().map(|(kind, n)| format!("{n} {kind}")).collect::<Vec<_>>().join(" + ")
    }

    /// Name of its ceiling on `unit`, e.g. `cpu.avx512.mul1.fma3.add2.cmp1`; with `.all` for all cores.
    pub fn ceiling_name(self, unit: VectorUnit) -> String {
        let counts: String = self.counts().map(|(kind, n)| format!(".{kind}{n}")).collect();
        format!("cpu.{}{counts}", unit.name())
    }
}

/// A type that stands for one [`Mix`]: the counts are assembled into the kernel that measures them.
pub trait InstructionMix {
    /// The counts. More than [`MAX_MIX`] instructions, or none, do not compile.
    const MIX: Mix;
}

/// Most instructions of a mix: its loop must stay in the core's cache of decoded instructions.
pub const MAX_MIX: usize = 64;

/// Four of them, so that the loop's own instructions are 1 in 97.
struct FmaOnly;
impl InstructionMix for FmaOnly {
    const MIX: Mix = Mix { fma: 4, ..Mix::NONE };
}

/// A rate of vector instructions with the clock that it ran at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VectorRate {
    /// Vector instructions a second over all threads, best round.
    pub instr_per_s: f64,
    /// Core clock at that rate, Hz, mean over the threads; none where it cannot be told.
    pub hz: Option<f64>,
}

/// Length of a round of one core: short, so that some pass between two interrupts (and, on a shared machine, between
/// two visits of the hypervisor): rounds of 1 ms stayed 5% below rounds of 0.1 ms on a busy cloud machine.
const ONE_CORE_WINDOW: Duration = Duration::from_micros(200);
/// Of all cores, which start some microseconds apart.
const ALL_CORES_WINDOW: Duration = Duration::from_micros(500);

/// Rate at which `unit` issues the mix `M` on all workers of `pool` at once (one worker: one core). The best of
/// `8 * plan.rounds` rounds counts: a ceiling that a neighbour or an interrupt held down would flatter.
pub fn vector_rate<M: InstructionMix>(unit: VectorUnit, pool: &rayon::ThreadPool, plan: &Plan) -> VectorRate {
    const { assert!(M::MIX.total() >= 1 && M::MIX.total() <= MAX_MIX) };
    let window = if pool.current_num_threads() > 1 { ALL_CORES_WINDOW } else { ONE_CORE_WINDOW };
    let passes = pool.install(|| passes_for::<M>(unit, window));
    let rounds = together(pool, plan.warmup / 4, 8 * plan.rounds, |_| (), |(), _| run::<M>(unit, passes));
    let threads = pool.current_num_threads() as f64;
    let instructions = threads * passes as f64 * (accumulators::<M>(unit) * M::MIX.total()) as f64;
    let best_s = rounds.iter().map(|r| r.seconds).fold(f64::INFINITY, f64::min);
    // One look at the clock may hit an interrupt or the end of a transition; rounds of about the same rate ran at
    // about the same clock, so their middle one is taken.
    let hz: Option<Vec<f64>> = rounds.iter().filter(|r| r.seconds <= best_s * 1.03).map(|r| r.hz).collect();
    VectorRate { instr_per_s: instructions / best_s, hz: hz.as_deref().and_then(median) }
}

fn run<M: InstructionMix>(unit: VectorUnit, passes: u64) {
    black_box(match unit {
        VectorUnit::Avx512(unit) => unit.run_mix::<M>(passes, 1.0),
        VectorUnit::Avx2(unit) => unit.run_mix::<M>(passes, 1.0),
    });
}

/// Mixes in one pass.
fn accumulators<M: InstructionMix>(unit: VectorUnit) -> usize {
    match unit {
        VectorUnit::Avx512(unit) => unit.run_mix::<M>(1, 1.0).len(),
        VectorUnit::Avx2(unit) => unit.run_mix::<M>(1, 1.0).len(),
    }
}

/// Passes that last at least `time`.
fn passes_for<M: InstructionMix>(unit: VectorUnit, time: Duration) -> u64 {
    let mut passes = 1_u64;
    loop {
        let start = Instant::now();
        run::<M>(unit, passes);
        if start.elapsed() >= time || passes > u64::MAX / 4 {
            return passes;
        }
        passes *= 2;
    }
}

/// One round of work that all workers of a pool did at once.
#[derive(Clone, Copy, Debug)]
struct Round {
    /// From the first start to the last end.
    seconds: f64,
    /// Core clock right after it, mean over the workers.
    hz: Option<f64>,
}

/// Runs `work` on every worker of `pool`, `rounds` times, each round started together. `setup` runs once on each
/// worker, so what it allocates is first touched there; untimed work fills `warmup` (and runs at least once). `work`
/// is told its round, from 1, or 0 in the warm-up.
fn together<S>(
    pool: &rayon::ThreadPool,
    warmup: Duration,
    rounds: u32,
    setup: impl Fn(usize) -> S + Sync,
    work: impl Fn(&mut S, usize) + Sync,
) -> Vec<Round> {
    let arrived = AtomicUsize::new(0);
    let workers: Vec<Vec<(Instant, Instant, Option<f64>)>> = pool.broadcast(|worker| {
        let mut state = setup(worker.index());
        let began = Instant::now();
        loop {
            work(&mut state, 0);
            if began.elapsed() >= warmup {
                break;
            }
        }
        let mut times = Vec::with_capacity(rounds as usize);
        for round in 1..=rounds as usize {
            arrived.fetch_add(1, Ordering::AcqRel);
            // Spinning starts the workers within a microsecond of each other; a sleeping barrier does not.
            while arrived.load(Ordering::Acquire) < round * worker.num_threads() {
                spin_loop();
            }
            let start = Instant::now();
            work(&mut state, round);
            let end = Instant::now();
            times.push((start, end, core_hz_just_now()));
        }
        times
    });
    (0..rounds as usize)
        .filter_map(|round| {
            let start = workers.iter().map(|w| w[round].0).min()?;
            let end = workers.iter().map(|w| w[round].1).max()?;
            let hz: Option<f64> = workers.iter().map(|w| w[round].2).sum();
            Some(Round { seconds: (end - start).as_secs_f64(), hz: hz.map(|sum| sum / workers.len() as f64) })
        })
        .collect()
}

/// Measures the ceilings that every CPU rung may need and files them in `calibration`: `cpu_hz`, `cpu.copy`,
/// `cpu.copy.all` (GB/s, read + write), and where there is a [`widest_vector`] unit `cpu.fma`, `cpu.fma.all`
/// (Ginstr/s, vector instructions). Takes some seconds, most of them for the copies.
///
/// # Errors
/// Threads that cannot be started.
pub fn calibrate(plan: &Plan, calibration: &mut Calibration) -> Result<(), CpuError> {
    let (one, _) = pinned_pool(1)?;
    let (all, _) = pinned_pool(allowed_cores())?;
    calibration.cpu_hz = one.install(core_hz).unwrap_or(0.0);
    if let Some(unit) = widest_vector() {
        let fma = vector_rate::<FmaOnly>(unit, &one, plan);
        // Every core with AVX-512 issues two 256-bit FMAs a cycle: if this one does not, it is shared or disturbed.
        let control = match unit {
            VectorUnit::Avx512(_) => Avx2::detect().map(VectorUnit::Avx2),
            VectorUnit::Avx2(_) => None,
        };
        let control = control.map(|unit| per_cycle(vector_rate::<FmaOnly>(unit, &one, plan)));
        let (pipes, steady) = fma_pipes(per_cycle(fma), control);
        calibration.cpu_hz = fma.hz.unwrap_or(calibration.cpu_hz);
        calibration.ceilings.insert("cpu.fma".to_string(), fma_ceiling(unit, fma, pipes, Some(1), steady));
        let threads = all.current_num_threads();
        let fma_all = vector_rate::<FmaOnly>(unit, &all, plan);
        let ceiling = fma_ceiling(unit, fma_all, pipes, physical_cores(threads), true);
        calibration.ceilings.insert("cpu.fma.all".to_string(), ceiling);
    }
    let bytes = copy_bytes(host().l3_bytes, host().memory_bytes);
    calibration.ceilings.insert("cpu.copy".to_string(), copy_ceiling(&one, bytes, plan));
    calibration.ceilings.insert("cpu.copy.all".to_string(), copy_ceiling(&all, bytes, plan));
    Ok(())
}

/// Measures the ceilings of the mix `M` on `unit`, of one core and of all, and files them under
/// [`Mix::ceiling_name`] and the same with `.all` (Ginstr/s, vector instructions). Takes some 100 ms.
///
/// No core issues a mix more slowly than FMAs alone (except that compares into masks share one pipe on Intel), so
/// what is expected is the number of FMA pipes, measured beside it, times clock and cores.
///
/// # Errors
/// Threads that cannot be started.
pub fn calibrate_mix<M: InstructionMix>(
    unit: VectorUnit,
    plan: &Plan,
    calibration: &mut Calibration,
) -> Result<(), CpuError> {
    let (one, _) = pinned_pool(1)?;
    let (all, _) = pinned_pool(allowed_cores())?;
    let (pipes, _) = fma_pipes(per_cycle(vector_rate::<FmaOnly>(unit, &one, plan)), None);
    let slots = M::MIX.total().max(pipes as usize * M::MIX.cmp);
    let least_per_cycle = f64::from(pipes) * M::MIX.total() as f64 / slots as f64;
    for (pool, cores, suffix) in [(&one, Some(1), ""), (&all, physical_cores(allowed_cores()), ".all")] {
        let rate = vector_rate::<M>(unit, pool, plan);
        let value = rate.instr_per_s / 1e9;
        let expected = rate.hz.zip(cores).map(|(hz, cores)| least_per_cycle * hz * cores as f64 / 1e9);
        let threads = pool.current_num_threads();
        let ceiling = Ceiling {
            value,
            unit: "Ginstr/s".to_string(),
            how: format!(
                "{} {}, independent, on {}, best round; {} a cycle and thread; expected: at least {least_per_cycle} a \
                 cycle{}",
                unit.name(),
                M::MIX.text(),
                threads_text(threads),
                two_digits(per_cycle(rate) / threads as f64),
                at_text(rate.hz, cores),
            ),
            expected,
            ok: value > 0.0 && expected.is_none_or(|e| value >= 0.95 * e),
        };
        calibration.ceilings.insert(M::MIX.ceiling_name(unit) + suffix, ceiling);
    }
    Ok(())
}

fn threads_text(threads: usize) -> String {
    format!("{threads} thread{}", if threads == 1 { "" } else { "s" })
}

/// ` at 4.00 GHz on 2 cores`, as far as both are known.
fn at_text(hz: Option<f64>, cores: Option<usize>) -> String {
    let hz = hz.map_or(String::new(), |hz| format!(" at {:.2} GHz", hz / 1e9));
    match cores {
        Some(1) => hz,
        Some(n) => format!("{hz} on {n} cores"),
        None => format!("{hz}, number of cores unknown"),
    }
}

/// Instructions of all threads in one clock cycle; NaN without a clock.
fn per_cycle(rate: VectorRate) -> f64 {
    rate.hz.map_or(f64::NAN, |hz| rate.instr_per_s / hz)
}

fn two_digits(x: f64) -> String {
    if x.is_finite() { format!("{x:.2}") } else { "an unknown number".to_string() }
}

/// FMA pipes of the widest unit, from its FMAs a cycle, and whether the measurement can be trusted.
///
/// x86 cores have one or two such pipes and no public identification tells which, so the nearest above is assumed:
/// one up to 1.05 a cycle, else two. The rate is trusted within 5% of that number, and only if the 256-bit
/// `control` (where there is one) shows two a cycle within 5%: a core that its neighbour thread halves would
/// otherwise pass for one with a single pipe.
fn fma_pipes(per_cycle: f64, control: Option<f64>) -> (u32, bool) {
    let pipes = if per_cycle <= 1.05 { 1 } else { 2 };
    let near = |measured: f64, pipes: f64| (0.95..=1.05).contains(&(measured / pipes));
    (pipes, near(per_cycle, f64::from(pipes)) && control.is_none_or(|c| near(c, 2.0)))
}

/// `cores` are the physical ones: threads that share a core share its pipes.
fn fma_ceiling(unit: VectorUnit, rate: VectorRate, pipes: u32, cores: Option<usize>, trusted: bool) -> Ceiling {
    let value = rate.instr_per_s / 1e9;
    let expected = rate.hz.zip(cores).map(|(hz, cores)| hz * f64::from(pipes) * cores as f64 / 1e9);
    Ceiling {
        value,
        unit: "Ginstr/s".to_string(),
        how: format!(
            "independent {} FMAs, best round; {:.0} GFLOP/s; expected: {pipes} a cycle{}",
            unit.name(),
            value * 2.0 * unit.lanes() as f64,
            at_text(rate.hz, cores),
        ),
        expected,
        ok: trusted && value.is_finite() && expected.is_none_or(|e| value >= 0.95 * e),
    }
}

/// A cache line: the unit of copies, aligned for non-temporal stores.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C, align(64))]
pub(super) struct Line(pub(super) [u8; 64]);

/// Bytes that a copy ceiling reads, and writes elsewhere: four times the last-level cache so that it measures memory,
/// within 64 and 512 MiB (a cache of more is shared by many machines), and at most an eighth of the memory.
fn copy_bytes(l3_bytes: u64, memory_bytes: u64) -> u64 {
    let bytes = if l3_bytes == 0 { 256 << 20 } else { (4 * l3_bytes).clamp(64 << 20, 512 << 20) };
    if memory_bytes == 0 { bytes } else { bytes.min(memory_bytes / 8) }
}

/// How a copy is done.
#[derive(Clone, Copy)]
enum Copy {
    Memcpy,
    Stream(VectorUnit),
}

fn copy_lines(how: Copy, from: &[Line], to: &mut [Line]) {
    match how {
        Copy::Memcpy => to.copy_from_slice(from),
        Copy::Stream(VectorUnit::Avx512(unit)) => unit.stream_copy(from, to),
        Copy::Stream(VectorUnit::Avx2(unit)) => unit.stream_copy(from, to),
    }
}

/// Best copy bandwidth of all workers of `pool` together, `bytes` read and `bytes` written, in GB/s of both.
fn copy_ceiling(pool: &rayon::ThreadPool, bytes: u64, plan: &Plan) -> Ceiling {
    let threads = pool.current_num_threads();
    let lines = (bytes / 64) as usize / threads;
    let moved = (2 * 64 * lines * threads) as f64;
    let rounds = (plan.rounds / 4).max(3);
    let unit = widest_vector();
    let ways = [Some(Copy::Memcpy), unit.map(Copy::Stream)];
    let ways: Vec<Copy> = ways.into_iter().flatten().collect();
    let setup = |worker: usize| {
        let from: Vec<Line> = (0..lines).map(|i| Line([(worker + i % 251) as u8; 64])).collect();
        (from, vec![Line([POISON_BYTE; 64]); lines])
    };
    // Some lines are poisoned before each copy and compared after it: all of them would be a second stream.
    let probed = || (0..lines).step_by(1 << 16).chain(lines.checked_sub(1));
    let wrong = AtomicUsize::new(0);
    let times = together(pool, Duration::ZERO, rounds * ways.len() as u32, setup, |(from, to), round| {
        probed().for_each(|i| to[i] = Line([POISON_BYTE; 64]));
        copy_lines(ways[round % ways.len()], black_box(from), black_box(to));
        wrong.fetch_add(probed().filter(|&i| from[i] != to[i]).count(), Ordering::Relaxed);
    });
    let complete = lines > 0 && wrong.into_inner() == 0;
    // `together` counts its rounds from 1.
    let best = |way: usize| {
        let seconds = times.iter().enumerate().filter(|(i, _)| (i + 1) % ways.len() == way).map(|(_, r)| r.seconds);
        let least = seconds.fold(f64::INFINITY, f64::min);
        if complete { moved / least / 1e9 } else { f64::NAN }
    };
    let (memcpy, stream) = (best(0), unit.map(|_| best(1)));
    let value = stream.map_or(memcpy, |s| memcpy.max(s));
    let l3 = host().l3_bytes;
    let against =
        if l3 == 0 { String::new() } else { format!(" (together {:.1} x L3)", 2.0 * bytes as f64 / l3 as f64) };
    let stream = match (unit, stream) {
        (Some(unit), Some(gbps)) => format!(", non-temporal {} stores {gbps:.1}", unit.name()),
        _ => String::new(),
    };
    Ceiling {
        value,
        unit: "GB/s".to_string(),
        how: format!(
            "read + write, {} MiB each{against}, {}, best of {rounds}: memcpy {memcpy:.1}{stream}",
            bytes >> 20,
            threads_text(threads),
        ),
        expected: Some(memcpy),
        ok: value > 0.0 && value >= 0.95 * memcpy,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::avx512_or_skip;

    struct Mixed;
    impl InstructionMix for Mixed {
        const MIX: Mix = Mix { mul: 1, fma: 3, add: 2, cmp: 1, int_add: 0 };
    }

    fn tiny() -> Plan {
        Plan {
            warmup: Duration::ZERO,
            rounds: 2,
            min_sample: Duration::from_micros(50),
            budget: Duration::from_secs(1),
        }
    }

    fn widest_or_skip() -> Option<VectorUnit> {
        avx512_or_skip().map(VectorUnit::Avx512).or_else(widest_vector)
    }

    #[test]
    fn pipes_are_whole_and_a_halved_core_is_not_trusted() {
        assert_eq!(fma_pipes(1.99, Some(1.98)), (2, true));
        assert_eq!(fma_pipes(0.99, Some(1.98)), (1, true), "one 512-bit pipe, two 256-bit ones");
        assert_eq!(fma_pipes(0.99, Some(0.99)), (1, false), "shared with a neighbour");
        assert_eq!(fma_pipes(1.7, Some(2.0)), (2, false));
        assert_eq!(fma_pipes(1.2, None), (2, false));
        assert_eq!(fma_pipes(0.9, None), (1, false));
        assert_eq!(fma_pipes(2.3, Some(2.0)), (2, false), "a clock that was not told right");
        assert!(!fma_pipes(f64::NAN, None).1);
        assert!(!fma_pipes(2.0, Some(f64::NAN)).1);
    }

    #[test]
    fn weak_and_senseless_fma_rates_are_not_ok() {
        let Some(unit) = widest_or_skip() else { return };
        let ceiling = |instr_per_s, cores, trusted| {
            fma_ceiling(unit, VectorRate { instr_per_s, hz: Some(4e9) }, 2, cores, trusted)
        };
        assert!(ceiling(7.9e9, Some(1), true).ok);
        assert_eq!(ceiling(7.9e9, Some(1), true).expected, Some(8.0));
        assert!(!ceiling(7.5e9, Some(1), true).ok);
        assert!(!ceiling(7.9e9, Some(1), false).ok);
        assert!(!ceiling(7.9e9, Some(2), true).ok);
        assert!(!ceiling(f64::NAN, None, true).ok);
    }

    #[test]
    fn copies_outgrow_the_cache_within_bounds() {
        let (mib, gib) = (1_u64 << 20, 1_u64 << 30);
        assert_eq!(copy_bytes(32 * mib, 64 * gib), 128 * mib);
        assert_eq!(copy_bytes(480 * mib, 64 * gib), 512 * mib);
        assert_eq!(copy_bytes(mib, 64 * gib), 64 * mib);
        assert_eq!(copy_bytes(480 * mib, 2 * gib), 256 * mib);
        assert_eq!(copy_bytes(0, 0), 256 * mib);
    }

    #[test]
    fn rates_are_positive_and_mixes_are_named() {
        let (pool, _) = pinned_pool(allowed_cores()).unwrap();
        let units = [avx512_or_skip().map(VectorUnit::Avx512), Avx2::detect().map(VectorUnit::Avx2)];
        for unit in units.into_iter().flatten() {
            let rate = vector_rate::<Mixed>(unit, &pool, &tiny());
            assert!(rate.instr_per_s.is_finite() && rate.instr_per_s > 0.0, "{rate:?}");
            assert!(rate.hz.is_some_and(|hz| hz.is_finite() && hz > 0.0), "{rate:?}");
            assert_eq!(Mixed::MIX.ceiling_name(unit), format!("cpu.{}.mul1.fma3.add2.cmp1", unit.name()));
        }
    }

    #[test]
    fn mixes_are_filed_for_one_core_and_for_all() {
        let Some(unit) = widest_or_skip() else { return };
        let mut calibration = Calibration::default();
        calibrate_mix::<Mixed>(unit, &tiny(), &mut calibration).unwrap();
        let name = Mixed::MIX.ceiling_name(unit);
        assert_eq!(calibration.ceilings.keys().collect::<Vec<_>>(), [&name, &format!("{name}.all")]);
        assert!(calibration.ceilings.values().all(|c| c.value > 0.0 && c.unit == "Ginstr/s"));
    }

    #[test]
    fn a_copy_ceiling_copies() {
        let (pool, _) = pinned_pool(allowed_cores()).unwrap();
        let ceiling = copy_ceiling(&pool, 1 << 20, &tiny());
        assert!(ceiling.value.is_finite() && ceiling.value > 0.0 && ceiling.ok, "{ceiling:?}");
    }

    #[test]
    fn rounds_run_on_every_worker_as_often_as_asked() {
        let (pool, _) = pinned_pool(allowed_cores()).unwrap();
        let runs = AtomicUsize::new(0);
        let rounds = together(
            &pool,
            Duration::ZERO,
            7,
            |worker| worker,
            |_, _| {
                runs.fetch_add(1, Ordering::Relaxed);
            },
        );
        assert_eq!(rounds.len(), 7);
        assert_eq!(runs.into_inner(), 8 * pool.current_num_threads(), "seven rounds and one warm-up");
        assert!(rounds.iter().all(|r| r.seconds >= 0.0));
    }
}
