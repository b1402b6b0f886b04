//! Sampling: plans, samples, interleaved ladders of CPU work, and what becomes of samples in a [`Run`].
//!
//! The GPU's ladders are in [`crate::gpu_sample`]; plans and samples are the same.

use std::time::{Duration, Instant};

use crate::cpu::core_hz;
use crate::record::Run;
use crate::stats::{bootstrap_median_ci, median, quantile};

/// Rounds that a ladder takes at least, whatever the budget.
const MIN_ROUNDS: u32 = 5;
/// Executions in one sample at most.
const MAX_BATCH: u32 = 1 << 24;
/// A sample whose clock is below this share of its contestant's best tenth was held down. Cores of servers lower their
/// clock by up to 12% while wide vectors run, and the probe cannot tell whether that was still or again so; what heat
/// or a power limit takes is more.
const THROTTLED: f64 = 0.85;
/// A run whose interval is wider than this share of its median is noisy.
const NOISY: f64 = 0.10;

/// How long and how often to sample a ladder.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Warm-up of the whole ladder before the first sample.
    pub warmup: Duration,
    /// Rounds: every contestant is sampled once in each.
    pub rounds: u32,
    /// A sample repeats the work until it lasts about this long.
    pub min_sample: Duration,
    /// Rounds stop early (but not before 5) once the ladder has taken this long.
    pub budget: Duration,
}

impl Plan {
    /// A first look: seconds for a ladder.
    pub fn quick() -> Self {
        Self {
            warmup: Duration::from_millis(100),
            rounds: 15,
            min_sample: Duration::from_millis(1),
            budget: Duration::from_secs(5),
        }
    }

    /// What committed results are made with.
    pub fn full() -> Self {
        Self {
            warmup: Duration::from_secs(1),
            rounds: 41,
            min_sample: Duration::from_millis(5),
            budget: Duration::from_secs(60),
        }
    }
}

/// The samples of one contestant.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    /// Time of one execution in each sample, ns (a batch is divided by its length).
    pub ns: Vec<f64>,
    /// SM cycles of one execution, where the clock probe could tell; empty on a CPU.
    pub cycles: Vec<Option<f64>>,
    /// Round of each sample.
    pub round: Vec<u32>,
    /// Executions in one sample.
    pub batch: u32,
    /// `single`, `batch` or `graph`: how one sample was taken.
    pub method: &'static str,
    /// `throttled`, `below_quantum`, ...
    pub flags: Vec<String>,
}

/// One rung (or in-process peer) of a CPU ladder.
pub struct Contestant<'a> {
    /// Stem, for progress.
    pub name: String,
    /// One execution. It must leave a result that the compiler cannot see through (`std::hint::black_box`), or it
    /// may be optimised away; called through a pointer, which costs some ns.
    pub work: Box<dyn FnMut() + 'a>,
}

impl<'a> Contestant<'a> {
    /// A contestant of this name and work.
    pub fn new(name: impl Into<String>, work: impl FnMut() + 'a) -> Self {
        Self { name: name.into(), work: Box::new(work) }
    }
}

/// Samples all contestants in interleaved rounds on the calling thread, which should be pinned
/// ([`crate::cpu::on_core`]). Times are wall-clock, so work on a pool counts until it is done.
///
/// Each round starts one contestant later than the last (A B C, B C A, C A B): over the rounds every contestant has
/// every position, so a drift within the round does not favour the first, while each keeps the same forerunner. A
/// sample is a batch of executions that lasts at least `plan.min_sample`; a batch of more than one is preceded by an
/// untimed execution that brings its data back into the caches.
///
/// The core clock is measured before and after each sample. Where the lower of the two is under 85% of the
/// contestant's own best tenth, the sample was throttled: its round is named in a flag `throttled_rounds:3,7`, and a
/// contestant with more than a tenth of such samples is flagged `throttled`. (Its own, because wide vectors may run
/// at a lower clock by design.) The samples stay. `core_clock_unknown` says that this could not be told.
///
/// `progress` is called with rounds done and rounds planned. Rounds end early, but not before five, once they have
/// taken `plan.budget`.
pub fn sample_ladder(
    plan: &Plan,
    contestants: &mut [Contestant<'_>],
    progress: &mut dyn FnMut(u32, u32),
) -> Vec<Samples> {
    if contestants.is_empty() {
        return Vec::new();
    }
    let mut samples: Vec<Samples> = warm_up(plan, contestants)
        .into_iter()
        .map(|batch| Samples { batch, method: if batch > 1 { "batch" } else { "single" }, ..Samples::default() })
        .collect();
    let mut hz: Vec<Vec<Option<f64>>> = vec![Vec::new(); contestants.len()];
    let began = Instant::now();
    for round in 0..plan.rounds {
        if round >= MIN_ROUNDS && began.elapsed() >= plan.budget {
            break;
        }
        for position in 0..contestants.len() {
            let i = (round as usize + position) % contestants.len();
            let (work, samples) = (&mut contestants[i].work, &mut samples[i]);
            let before = core_hz();
            if samples.batch > 1 {
                work();
            }
            samples.ns.push(time_ns(work, samples.batch) / f64::from(samples.batch));
            samples.round.push(round);
            hz[i].push(before.zip(core_hz()).map(|(a, b)| a.min(b)));
        }
        progress(round + 1, plan.rounds);
    }
    for (samples, hz) in samples.iter_mut().zip(&hz) {
        samples.flags = clock_flags(hz, &samples.round);
    }
    samples
}

/// Time of `batch` executions, ns.
fn time_ns(work: &mut dyn FnMut(), batch: u32) -> f64 {
    let start = Instant::now();
    for _ in 0..batch {
        work();
    }
    start.elapsed().as_nanos() as f64
}

/// Runs every contestant at least once, then all in turn until `plan.warmup` has passed. Returns the batch of each, by
/// its fastest execution.
fn warm_up(plan: &Plan, contestants: &mut [Contestant<'_>]) -> Vec<u32> {
    let target_ns = plan.min_sample.as_nanos() as f64;
    let began = Instant::now();
    let mut batches = vec![1_u32; contestants.len()];
    let mut least_ns = vec![f64::INFINITY; contestants.len()];
    // Each grows on its own: a short one takes a dozen doublings, which a long one should not repeat.
    for (i, contestant) in contestants.iter_mut().enumerate() {
        loop {
            let ns = time_ns(&mut contestant.work, batches[i]);
            least_ns[i] = least_ns[i].min(ns / f64::from(batches[i]));
            if ns >= target_ns || batches[i] >= MAX_BATCH {
                break;
            }
            batches[i] *= 2;
        }
    }
    for i in (0..contestants.len()).cycle() {
        if began.elapsed() >= plan.warmup {
            break;
        }
        let ns = time_ns(&mut contestants[i].work, batches[i]);
        least_ns[i] = least_ns[i].min(ns / f64::from(batches[i]));
    }
    // The least can be 0 for work that is less than the clock's step; the cast saturates.
    least_ns.into_iter().map(|ns| ((target_ns / ns).ceil() as u32).clamp(1, MAX_BATCH)).collect()
}

/// Flags from the clock around each sample; see [`sample_ladder`].
fn clock_flags(hz: &[Option<f64>], round: &[u32]) -> Vec<String> {
    let known: Option<Vec<f64>> = hz.iter().copied().collect();
    let Some(best) = known.as_deref().and_then(|known| quantile(known, 0.9)) else {
        return vec!["core_clock_unknown".to_string()];
    };
    // Not `hz < limit`: a clock that is NaN is no clock.
    let held_down = |hz: &Option<f64>| !hz.is_some_and(|hz| hz >= THROTTLED * best);
    let slow: Vec<String> =
        hz.iter().zip(round).filter(|(hz, _)| held_down(hz)).map(|(_, round)| round.to_string()).collect();
    let mut flags = Vec::new();
    if slow.len() * 10 > hz.len() {
        flags.push("throttled".to_string());
    }
    if !slow.is_empty() {
        flags.push(format!("throttled_rounds:{}", slow.join(",")));
    }
    flags
}

/// Files samples in `run` with what follows from them: n, median, interval, least time, and from `run.flops` and
/// `run.bytes`, where they are set, the rates at the median. Adds the samples' flags, `method:batch` or `method:graph`,
/// and `noisy` where the interval is wider than a tenth of the median (or there is none).
pub fn fill_run(run: &mut Run, samples: &Samples) {
    run.samples_ns = samples.ns.clone();
    run.samples_cycles = samples.cycles.clone();
    run.round = samples.round.clone();
    run.n = samples.ns.len();
    run.median_ns = median(&samples.ns);
    run.ci_ns = bootstrap_median_ci(&samples.ns);
    run.min_ns = quantile(&samples.ns, 0.0);
    // Operations (bytes) a nanosecond are G a second.
    let rate = |amount: Option<f64>| Some(amount? / run.median_ns.filter(|ns| *ns > 0.0)?);
    (run.gflops, run.gbps) = (rate(run.flops), rate(run.bytes));
    let mut flags = samples.flags.clone();
    if !matches!(samples.method, "" | "single") {
        flags.push(format!("method:{}", samples.method));
    }
    let steady = matches!((run.median_ns, run.ci_ns), (Some(median), Some([lo, hi])) if hi - lo <= NOISY * median);
    if !steady {
        flags.push("noisy".to_string());
    }
    for flag in flags {
        if !run.flags.contains(&flag) {
            run.flags.push(flag);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    fn plan(rounds: u32, min_sample: Duration, budget: Duration) -> Plan {
        Plan { warmup: Duration::ZERO, rounds, min_sample, budget }
    }

    fn spin(time: Duration) {
        let start = Instant::now();
        while start.elapsed() < time {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn rounds_are_interleaved_and_each_starts_one_later() {
        let log = RefCell::new(String::new());
        let mut contestants: Vec<Contestant> =
            ["a", "b", "c"].map(|name| Contestant::new(name, || log.borrow_mut().push_str(name))).into();
        let plan = plan(7, Duration::ZERO, Duration::MAX);
        let mut seen = Vec::new();
        let samples = sample_ladder(&plan, &mut contestants, &mut |done, total| seen.push((done, total)));
        drop(contestants);
        assert_eq!(log.into_inner(), format!("abc{}", "abcbcacab".repeat(2) + "abc"), "one warm-up, then seven rounds");
        assert_eq!(seen, (1..=7).map(|done| (done, 7)).collect::<Vec<_>>());
        for samples in samples {
            assert_eq!((samples.ns.len(), samples.batch, samples.method), (7, 1, "single"));
            assert_eq!(samples.round, [0, 1, 2, 3, 4, 5, 6]);
            assert!(samples.cycles.is_empty());
        }
    }

    #[test]
    fn short_work_is_batched_and_divided() {
        let (once, sample) = (Duration::from_micros(20), Duration::from_micros(400));
        let calls = RefCell::new(0_u32);
        let mut contestants = vec![
            Contestant::new("short", || {
                *calls.borrow_mut() += 1;
                spin(once);
            }),
            Contestant::new("long", || spin(2 * sample)),
        ];
        let samples = sample_ladder(&plan(6, sample, Duration::MAX), &mut contestants, &mut |_, _| ());
        drop(contestants);
        let short = &samples[0];
        assert!(short.batch > 1 && short.batch <= 20 && short.method == "batch", "{short:?}");
        assert!(*calls.borrow() > 6 * (short.batch + 1), "an untimed execution before each sample");
        assert!(short.ns.iter().all(|ns| *ns >= 20_000.0), "{short:?}");
        assert_eq!((samples[1].batch, samples[1].method), (1, "single"));
        assert!(samples[1].ns.iter().all(|ns| *ns >= 800_000.0), "{:?}", samples[1]);
    }

    #[test]
    fn an_empty_budget_still_gives_five_rounds() {
        let mut contestants = vec![Contestant::new("a", || ())];
        let samples = sample_ladder(&plan(40, Duration::ZERO, Duration::ZERO), &mut contestants, &mut |_, _| ());
        assert_eq!(samples[0].round, [0, 1, 2, 3, 4]);
        assert!(sample_ladder(&Plan::quick(), &mut [], &mut |_, _| ()).is_empty());
    }

    #[test]
    fn warm_up_lasts_as_long_as_planned() {
        let plan = Plan { warmup: Duration::from_millis(5), ..plan(5, Duration::ZERO, Duration::ZERO) };
        let began = Instant::now();
        assert_eq!(warm_up(&plan, &mut [Contestant::new("a", || ())]), [1]);
        assert!(began.elapsed() >= plan.warmup);
    }

    #[test]
    fn samples_under_a_held_down_clock_are_named() {
        let rounds: Vec<u32> = (0..20).collect();
        let clock = |slow: &[usize], at: f64| -> Vec<Option<f64>> {
            (0..20).map(|i| Some(if slow.contains(&i) { at } else { 4e9 })).collect()
        };
        assert!(clock_flags(&clock(&[], 0.0), &rounds).is_empty());
        assert!(clock_flags(&clock(&[3, 4, 5, 6], 3.45e9), &rounds).is_empty(), "86% is what wide vectors cost");
        assert_eq!(clock_flags(&clock(&[3, 7], 3.3e9), &rounds), ["throttled_rounds:3,7"]);
        assert_eq!(clock_flags(&clock(&[3, 7, 8], 3.3e9), &rounds), ["throttled", "throttled_rounds:3,7,8"]);
        let most: Vec<usize> = (4..20).collect();
        assert_eq!(clock_flags(&clock(&most, 2e9), &rounds)[0], "throttled", "also when most samples are");
        assert_eq!(clock_flags(&[Some(4e9), None], &[0, 1]), ["core_clock_unknown"]);
        assert_eq!(clock_flags(&[Some(4e9), Some(f64::NAN)], &[0, 1]), ["core_clock_unknown"]);
    }

    #[test]
    fn runs_are_filled_from_samples() {
        let samples = Samples {
            ns: vec![100.0, 102.0, 101.0, 99.0, 100.0],
            round: vec![0, 1, 2, 3, 4],
            batch: 8,
            method: "batch",
            flags: vec!["throttled".to_string()],
            ..Samples::default()
        };
        let mut run = Run { flops: Some(400.0), flags: vec!["throttled".to_string()], ..Run::default() };
        fill_run(&mut run, &samples);
        assert_eq!((run.n, run.median_ns, run.min_ns), (5, Some(100.0), Some(99.0)));
        assert_eq!((run.ci_ns, run.gflops, run.gbps), (Some([99.0, 102.0]), Some(4.0), None));
        assert_eq!((run.samples_ns, run.round), (samples.ns.clone(), samples.round.clone()));
        assert_eq!(run.flags, ["throttled", "method:batch"]);
    }

    #[test]
    fn wide_intervals_and_missing_ones_are_noisy() {
        let of = |ns: &[f64]| {
            let mut run = Run::default();
            fill_run(&mut run, &Samples { ns: ns.to_vec(), method: "single", ..Samples::default() });
            run
        };
        assert_eq!(of(&[100.0, 100.0, 100.0, 100.0, 111.0]).flags, ["noisy"]);
        assert!(of(&[100.0, 100.0, 100.0, 100.0, 109.0]).flags.is_empty());
        assert_eq!(of(&[100.0]).flags, ["noisy"]);
        let poisoned = of(&[100.0, 100.0, 100.0, 100.0, 100.0, f64::NAN]);
        assert_eq!((poisoned.median_ns, poisoned.ci_ns, poisoned.min_ns), (None, None, None));
        assert_eq!(poisoned.flags, ["noisy"]);
        assert_eq!(of(&[]).n, 0);
    }
}
