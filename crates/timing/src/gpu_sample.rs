//! Sampling a ladder of GPU rungs: events, batches and graph replay, cold and warm, interleaved.
//!
//! One sample is `repeat` executions between two events. How it is taken follows from how long one execution lasts
//! against the step of the event clock (see [`Instrument`]): long work runs once; short work runs as a batch, as a
//! replayed graph where it can be captured, so that the host does not pace it.
//! A one-warp clock probe before and after each sample gives the SM frequency during it, hence its cycles.

use std::time::{Duration, Instant};

use crate::cuda::{Buffer, Event, Function, Gpu, Graph, Result};
use crate::launch::{Arg, Geometry, Kernel};
use crate::record::Cache;
use crate::sample::{Plan, Samples};
use crate::stats::median;

macro_rules! calibration_kernel {
    ($stem:literal) => {
        Kernel {
            stem: $stem,
            entry: $stem,
            ptx: include_str!(concat!("../../../ptx/timing/", $stem, ".ptx")),
            target: (6, 0),
        }
    };
}
pub(crate) use calibration_kernel;

/// The median; NaN for no times, which no comparison lets pass.
pub(crate) fn middle(times: &[f64]) -> f64 {
    median(times).unwrap_or(f64::NAN)
}

/// Rounds that a ladder takes at least, whatever the budget.
const MIN_ROUNDS: u32 = 5;
/// Executions in one sample at most: a graph of more nodes takes long to build and gains nothing.
const MAX_REPEAT: u32 = 2000;
/// A sample is long enough when it lasts this many steps of the event clock.
const QUANTA: f64 = 100.0;
/// A clock this far below the fastest seen in the ladder was held down.
const THROTTLED: f64 = 0.95;

/// What the event clock can resolve on this machine, measured once.
#[derive(Clone, Copy, Debug)]
pub struct Instrument {
    /// Smallest step between two elapsed times, ns.
    pub quantum_ns: f64,
    /// Time between two events around one empty kernel, ns.
    pub launch_ns: f64,
}

/// Enqueues one execution.
pub type GpuWork<'a> = Box<dyn FnMut(&Gpu) -> Result<()> + 'a>;

/// One rung (or in-process peer) of a ladder.
pub struct GpuContestant<'a> {
    /// Stem, for progress and errors.
    pub name: String,
    /// Cache state before each sample.
    pub cache: Cache,
    /// Whether `work` only enqueues on [`Gpu::stream`], so that a graph can record it.
    pub capturable: bool,
    /// Enqueues one execution.
    pub work: GpuWork<'a>,
}

/// One note of the clock probe.
#[derive(Clone, Copy, Debug)]
struct ClockNote {
    cycles: u64,
    ns: u64,
    sm: u64,
}

impl ClockNote {
    /// SM frequency between two notes in Hz, if they were taken on one SM.
    fn hz_until(self, later: ClockNote) -> Option<f64> {
        let cycles = later.cycles.checked_sub(self.cycles)?;
        let ns = later.ns.checked_sub(self.ns)?;
        (self.sm == later.sm && ns > 0).then(|| cycles as f64 / ns as f64 * 1e9)
    }
}

/// The sampler of one GPU: its instrument, clock probe and flush buffer.
pub struct GpuSampler<'g> {
    gpu: &'g Gpu,
    clock: Function,
    notes: Buffer<u64>,
    fill: Function,
    flush: Buffer<u32>,
    start: Event,
    end: Event,
    instrument: Instrument,
}

impl<'g> GpuSampler<'g> {
    /// Loads the probes and measures the instrument (some 10 ms).
    pub fn new(gpu: &'g Gpu) -> Result<Self> {
        let flush_bytes = (2 * gpu.device().l2_bytes as usize).max(1 << 20);
        let mut sampler = Self {
            gpu,
            clock: gpu.load(&calibration_kernel!("calib_clock"))?,
            notes: gpu.alloc(6)?,
            fill: gpu.load(&calibration_kernel!("calib_fill"))?,
            flush: gpu.alloc(flush_bytes / 4)?,
            start: gpu.event()?,
            end: gpu.event()?,
            instrument: Instrument { quantum_ns: 0.0, launch_ns: 0.0 },
        };
        sampler.instrument = sampler.measure_instrument()?;
        Ok(sampler)
    }

    /// What the event clock can resolve.
    pub fn instrument(&self) -> Instrument {
        self.instrument
    }

    fn measure_instrument(&self) -> Result<Instrument> {
        let empty = self.gpu.load(&calibration_kernel!("calib_empty"))?;
        let mut times = Vec::with_capacity(1000);
        for i in 0..1100 {
            self.gpu.record(&self.start)?;
            self.gpu.launch(&empty, Geometry::linear(1, 32), &[])?;
            self.gpu.record(&self.end)?;
            let ns = self.gpu.elapsed_ns(&self.start, &self.end)?;
            if i >= 100 {
                times.push(ns);
            }
        }
        let launch_ns = middle(&times);
        Ok(Instrument { quantum_ns: smallest_step(&mut times).unwrap_or(launch_ns), launch_ns })
    }

    fn note_clock(&self, slot: usize) -> Result<()> {
        // The probe takes an address, so a slot is a fresh view of the buffer: three words from 3 * slot.
        let at = self.notes.ptr().offset_bytes(slot as u64 * 24);
        self.gpu.launch(&self.clock, Geometry::linear(1, 32), &[Arg::Ptr(at)])
    }

    fn read_hz(&self) -> Result<Option<f64>> {
        let words = self.gpu.download(&self.notes)?;
        let note = |i: usize| ClockNote { cycles: words[3 * i], ns: words[3 * i + 1], sm: words[3 * i + 2] };
        Ok(note(0).hz_until(note(1)))
    }

    /// SM frequency while `work` runs, in Hz; none when the two clock notes came from different SMs.
    pub fn hz_during(&self, work: &mut dyn FnMut(&Gpu) -> Result<()>) -> Result<Option<f64>> {
        self.note_clock(0)?;
        work(self.gpu)?;
        self.note_clock(1)?;
        self.read_hz()
    }

    /// Writes twice the L2 (at least 1 MiB), so that nothing of a working set stays cached.
    fn flush(&self, seed: u32) -> Result<()> {
        let blocks = self.gpu.device().sms * 4;
        let args = [Arg::Ptr(self.flush.ptr()), Arg::U64(self.flush.len() as u64), Arg::U32(seed)];
        self.gpu.launch(&self.fill, Geometry::linear(blocks, 512), &args)
    }

    /// Time of `work` between two events, ns.
    pub fn time_once(&self, work: &mut dyn FnMut(&Gpu) -> Result<()>) -> Result<f64> {
        self.gpu.record(&self.start)?;
        work(self.gpu)?;
        self.gpu.record(&self.end)?;
        self.gpu.elapsed_ns(&self.start, &self.end)
    }

    /// Samples all contestants in interleaved rounds: A B C, B C A, C A B, ...
    ///
    /// Each round begins one contestant later than the one before. In a fixed order whatever a place in the round
    /// is worth would count for the same contestant every time: an A/A run on an H200 in fixed order had 11 of 100
    /// intervals miss 1, all on one side. `progress` is called with rounds done and rounds planned.
    ///
    /// # Errors
    /// The first failed launch or driver call.
    pub fn sample_ladder(
        &self,
        plan: &Plan,
        contestants: &mut [GpuContestant<'_>],
        progress: &mut dyn FnMut(u32, u32),
    ) -> Result<Vec<Samples>> {
        self.warm_up(plan, contestants)?;
        let mut lanes = Vec::with_capacity(contestants.len());
        for contestant in contestants.iter_mut() {
            lanes.push(self.choose_method(plan, contestant)?);
        }
        let began = Instant::now();
        let mut hz: Vec<Vec<Option<f64>>> = vec![Vec::new(); contestants.len()];
        for round in 0..plan.rounds {
            if round >= MIN_ROUNDS && began.elapsed() > plan.budget {
                break;
            }
            for place in 0..contestants.len() {
                let i = (place + round as usize) % contestants.len();
                let (contestant, lane) = (&mut contestants[i], &mut lanes[i]);
                if contestant.cache == Cache::Cold {
                    self.flush(round)?;
                }
                self.note_clock(0)?;
                self.gpu.record(&self.start)?;
                match &lane.graph {
                    Some(graph) => self.gpu.replay(graph)?,
                    None => {
                        for _ in 0..lane.samples.batch {
                            (contestant.work)(self.gpu)?;
                        }
                    }
                }
                self.gpu.record(&self.end)?;
                self.note_clock(1)?;
                let ns = self.gpu.elapsed_ns(&self.start, &self.end)? / f64::from(lane.samples.batch);
                let sample_hz = self.read_hz()?;
                lane.samples.ns.push(ns);
                lane.samples.cycles.push(sample_hz.map(|hz| hz * ns * 1e-9));
                lane.samples.round.push(round);
                hz[i].push(sample_hz);
            }
            progress(round + 1, plan.rounds);
        }
        flag_throttled(&mut lanes, &hz);
        for lane in &mut lanes {
            flag_short(&mut lane.samples, self.instrument.quantum_ns);
        }
        Ok(lanes.into_iter().map(|lane| lane.samples).collect())
    }

    /// Runs the ladder until `plan.warmup` has passed and the SM clock holds still, at most ten times as long.
    fn warm_up(&self, plan: &Plan, contestants: &mut [GpuContestant<'_>]) -> Result<()> {
        let began = Instant::now();
        let mut last: Option<f64> = None;
        let mut steady = 0;
        while !contestants.is_empty() && began.elapsed() < plan.warmup * 10 {
            let step = Instant::now();
            let hz = self.hz_during(&mut |gpu| {
                while step.elapsed() < Duration::from_millis(20) {
                    for contestant in contestants.iter_mut() {
                        (contestant.work)(gpu)?;
                    }
                    gpu.synchronize()?;
                }
                Ok(())
            })?;
            let same = matches!((last, hz), (Some(a), Some(b)) if (a / b - 1.0).abs() < 0.01);
            steady = if same { steady + 1 } else { 0 };
            last = hz.or(last);
            // A device whose clock cannot be told is warmed by time alone.
            if began.elapsed() >= plan.warmup && (steady >= 2 || last.is_none()) {
                break;
            }
        }
        self.gpu.synchronize()
    }

    fn choose_method(&self, plan: &Plan, contestant: &mut GpuContestant<'_>) -> Result<Lane> {
        let mut once = Vec::new();
        for _ in 0..3 {
            if contestant.cache == Cache::Cold {
                self.flush(0)?;
            }
            once.push(self.time_once(&mut contestant.work)?);
        }
        let once = middle(&once);
        let floor = QUANTA * self.instrument.quantum_ns;
        let mut samples = Samples { method: "single", batch: 1, ..Samples::default() };
        if contestant.cache == Cache::Cold {
            // Only the first execution after a flush is cold, so it cannot be repeated.
            return Ok(Lane { samples, graph: None });
        }
        let wanted = floor.max(plan.min_sample.as_nanos() as f64);
        if once >= wanted {
            return Ok(Lane { samples, graph: None });
        }
        // The launch itself is part of `once` but not of each repeat, so repeats may be shorter: measure one batch.
        let repeat = |each: f64| (wanted / each.max(1.0)).ceil().clamp(2.0, f64::from(MAX_REPEAT)) as u32;
        samples.batch = repeat(once);
        let batch_ns = self.time_batch(contestant, samples.batch)?;
        samples.batch = repeat(batch_ns / f64::from(samples.batch));
        samples.method = "batch";
        let graph = if contestant.capturable { Some(self.capture(contestant, samples.batch)?) } else { None };
        if let Some(graph) = &graph {
            samples.method = "graph";
            self.gpu.replay(graph)?;
            self.gpu.synchronize()?;
        }
        Ok(Lane { samples, graph })
    }

    fn time_batch(&self, contestant: &mut GpuContestant<'_>, repeat: u32) -> Result<f64> {
        self.time_once(&mut |gpu| (0..repeat).try_for_each(|_| (contestant.work)(gpu)))
    }

    fn capture(&self, contestant: &mut GpuContestant<'_>, repeat: u32) -> Result<Graph> {
        let gpu = self.gpu;
        gpu.capture(&mut || (0..repeat).try_for_each(|_| (contestant.work)(gpu)))
    }
}

struct Lane {
    samples: Samples,
    graph: Option<Graph>,
}

/// A run is throttled when more than a tenth of its samples ran below 95% of the fastest clock in the ladder.
fn flag_throttled(lanes: &mut [Lane], hz: &[Vec<Option<f64>>]) {
    let fastest = hz.iter().flatten().flatten().fold(0.0, |a: f64, &b| a.max(b));
    for (lane, hz) in lanes.iter_mut().zip(hz) {
        let slow = hz.iter().flatten().filter(|&&hz| hz < THROTTLED * fastest).count();
        if slow * 10 > hz.len() {
            lane.samples.flags.push("throttled".to_string());
        }
        if hz.iter().all(Option::is_none) && !hz.is_empty() {
            lane.samples.flags.push("sm_clock_unknown".to_string());
        }
    }
}

/// A run is below the quantum when its samples last less than [`QUANTA`] steps of the event clock: one step is then
/// more than 1% of a sample. An unknown length counts as too short.
fn flag_short(samples: &mut Samples, quantum_ns: f64) {
    let long_enough = middle(&samples.ns) * f64::from(samples.batch) >= QUANTA * quantum_ns;
    if !long_enough {
        samples.flags.push("below_quantum".to_string());
    }
}

/// Smallest positive difference between two of the times, ns. Sorts them. Differences below half a nanosecond are
/// the rounding of the driver's 32-bit milliseconds.
fn smallest_step(times: &mut [f64]) -> Option<f64> {
    times.sort_by(f64::total_cmp);
    times.windows(2).map(|w| w[1] - w[0]).filter(|&d| d > 0.5).min_by(f64::total_cmp)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_step_of_the_event_clock_is_found_among_its_multiples() {
        let mut times: Vec<f64> = [70, 64, 70, 96, 160].iter().map(|n| f64::from(*n) * 32.0).collect();
        assert_eq!(smallest_step(&mut times), Some(6.0 * 32.0));
        assert_eq!(smallest_step(&mut [5.0, 5.0]), None);
    }

    #[test]
    fn a_frequency_needs_two_notes_of_one_sm() {
        let a = ClockNote { cycles: 1_000, ns: 5_000, sm: 3 };
        let b = ClockNote { cycles: 21_000, ns: 15_000, sm: 3 };
        assert_eq!(a.hz_until(b), Some(2.0e9));
        assert_eq!(a.hz_until(ClockNote { sm: 4, ..b }), None);
        assert_eq!(b.hz_until(a), None);
        assert_eq!(a.hz_until(a), None);
    }

    #[test]
    fn samples_of_less_than_a_hundred_steps_are_flagged() {
        let flags = |ns: f64, batch: u32, quantum_ns: f64| {
            let mut samples = Samples { ns: vec![ns; 5], batch, ..Samples::default() };
            flag_short(&mut samples, quantum_ns);
            samples.flags
        };
        assert_eq!(flags(3200.0, 1, 32.0), [""; 0]);
        assert_eq!(flags(3199.0, 1, 32.0), ["below_quantum"]);
        assert_eq!(flags(1.6, 2000, 32.0), [""; 0], "the whole batch is one sample");
        assert_eq!(flags(1.5, 2000, 32.0), ["below_quantum"]);
        assert_eq!(flags(f64::NAN, 1, 32.0), ["below_quantum"]);
        assert_eq!(flags(3200.0, 1, f64::NAN), ["below_quantum"]);
    }

    #[test]
    fn runs_with_a_tenth_of_slow_samples_are_flagged() {
        let lane = || Lane { samples: Samples::default(), graph: None };
        let mut lanes = [lane(), lane(), lane()];
        let fast = vec![Some(1.98e9); 10];
        let mut slow = fast.clone();
        slow[0] = Some(1.7e9);
        let one_slow = slow.clone();
        slow[1] = Some(1.7e9);
        flag_throttled(&mut lanes, &[fast, one_slow, slow]);
        let flags: Vec<bool> = lanes.iter().map(|l| l.samples.flags.contains(&"throttled".to_string())).collect();
        assert_eq!(flags, [false, false, true]);
    }
}
