//! Checks and times the ladder on this machine: the study as the command lines see it.
//!
//! A *case* is one problem with the rungs that make sense for it. Within a case all rungs of a target form one
//! interleaved ladder. Every rung is compared with its oracle on poisoned output before and after it is timed.
//!
//! There is no cold column: a rung reads nothing and writes 4 bytes for hundreds of iterations.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;

use report::study::{Measured, Options, Progress, Requirement, Skip, Study, StudyError, Target, failed_check};
use timing::check::{POISON_BYTE, POISON_U32, check_equal_u32, poison_u32};
use timing::cpu::{self, on_core, pinned_pool};
use timing::cuda::{Buffer, ErrorKind, Function, Gpu, GpuError};
use timing::gpu_ceilings;
use timing::gpu_sample::{GpuContestant, GpuSampler};
use timing::launch::Geometry;
use timing::record::{Cache, Calibration, ErrorReport, Run};
use timing::sample::{Contestant, Plan, fill_run, sample_ladder};

use crate::cpu::model;
use crate::findings::findings;
use crate::gpu::{GpuRung, SCHEDULERS_PER_SM, Work};
use crate::ladder::{CPU, CpuRung, GPU};
use crate::reference::{Formulation, total_iterations};
use crate::view::{BOUNDARY, INTERIOR, Problem, WHOLE};

/// Name of the study.
pub const NAME: &str = "mandelbrot";

/// The study, for the programs that run all of them.
pub fn study() -> Study {
    Study {
        name: NAME,
        question: "How much do SIMD, several pixels in flight and many threads each bring, and what does divergence cost?",
        findings,
        measure: |options, progress| measure(&cases(options.full), options, progress),
    }
}

/// A GPU rung that takes longer than this for one execution runs only where it is named.
const PATIENCE_NS: f64 = 1e9;

/// One problem and the rungs that it is for.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// The problem.
    pub problem: Problem,
    /// Whether the CPU rungs run it.
    pub cpu: bool,
    /// Which GPU rungs run it.
    pub gpu: Gpus,
}

/// GPU rungs by how much of the GPU they use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gpus {
    /// None.
    None,
    /// Those that use every SM.
    Wide,
    /// Those of one lane, one warp and one SM as well.
    All,
}

/// The problems of a first look, or of a full run. The first one is where the findings are judged.
pub fn cases(full: bool) -> Vec<Case> {
    let case = |view, side, max_iter, cpu, gpu| Case {
        problem: Problem::new(view, side, side, max_iter).expect("the built-in problems are within the limits"),
        cpu,
        gpu,
    };
    if full {
        return vec![
            case(WHOLE, 1024, 256, true, Gpus::All),
            case(WHOLE, 1024, 2000, true, Gpus::Wide),
            case(BOUNDARY, 1024, 2000, true, Gpus::Wide),
            case(INTERIOR, 1024, 2000, true, Gpus::Wide),
        ];
    }
    // A GPU needs a whole picture to fill its SMs; a scalar loop would take seconds for it.
    vec![
        case(WHOLE, 256, 256, true, Gpus::All),
        case(BOUNDARY, 256, 2000, true, Gpus::None),
        case(INTERIOR, 128, 2000, true, Gpus::None),
        case(WHOLE, 1024, 2000, false, Gpus::Wide),
        case(BOUNDARY, 1024, 2000, false, Gpus::Wide),
        case(INTERIOR, 1024, 2000, false, Gpus::Wide),
    ]
}

/// Axes of a run.
pub fn axes(problem: &Problem) -> BTreeMap<String, String> {
    BTreeMap::from([
        ("view".to_string(), problem.view.name.to_string()),
        ("width".to_string(), problem.width.to_string()),
        ("height".to_string(), problem.height.to_string()),
        ("max_iter".to_string(), problem.max_iter.to_string()),
    ])
}

/// Checks and times what the options ask for, on the given cases.
///
/// # Errors
/// A GPU that fails while in use; threads that cannot be started. Failed checks are not errors: they are listed in
/// [`Measured::failures`], and such a rung has no time.
pub fn measure(cases: &[Case], options: &Options, progress: &mut dyn FnMut(Progress)) -> Result<Measured, StudyError> {
    let gpu = Gpu::open(0);
    let mut measured = Measured { calibration: options.calibration.clone(), ..Measured::default() };
    measured.driver = match &gpu {
        Ok(gpu) => format!("CUDA {}.{}", gpu.driver().0, gpu.driver().1),
        Err(absence) => absence.to_string(),
    };
    measured.device = gpu.as_ref().ok().map(|gpu| gpu.device().clone());
    let plan = if options.full { Plan::full() } else { Plan::quick() };
    for target in Target::chosen(options.target, gpu.is_ok()) {
        match (target, &gpu) {
            (Target::Cpu, _) => cpu_cases(cases, options, &plan, &mut measured, progress)?,
            (Target::Gpu, Ok(gpu)) => {
                if let Err(error) = gpu_cases(gpu, cases, options, &plan, &mut measured, progress) {
                    gpu_stopped(error, &mut measured)?;
                }
            }
            (Target::Gpu, Err(absence)) => measured.skips.push(gpu_skip(absence.to_string())),
            (Target::Emulator, _) => {
                if let Err(absence) = &gpu {
                    measured.skips.push(gpu_skip(absence.to_string()));
                }
                measured.skips.push(Skip {
                    what: format!("{NAME} on the emulator"),
                    reason: "this version has no PTX interpreter yet".to_string(),
                    requires: None,
                });
            }
        }
    }
    Ok(measured)
}

fn gpu_skip(reason: String) -> Skip {
    Skip { what: format!("{NAME} on the GPU"), reason, requires: Some(Requirement::Gpu) }
}

/// An error outside all rungs: the calibration's, or one that leaves the device unusable.
fn gpu_stopped(error: GpuError, measured: &mut Measured) -> Result<(), StudyError> {
    let text = format!("{NAME} on the GPU: {error}");
    match error.kind() {
        ErrorKind::Unsupported => measured.skips.push(gpu_skip(error.to_string())),
        ErrorKind::CheckFailed => return Err(StudyError::Failed(text)),
        ErrorKind::Driver => return Err(StudyError::Io(text)),
    }
    Ok(())
}

fn oracle(problem: &Problem, formulation: Formulation) -> Vec<u32> {
    let mut counts = vec![0; problem.pixels()];
    formulation.counts(problem, &mut counts);
    counts
}

fn new_run(problem: &Problem, rung: &str, target: &str) -> Run {
    let axes = axes(problem);
    Run {
        id: Run::make_id(NAME, rung, target, Cache::Warm, &axes),
        study: NAME.to_string(),
        rung: rung.to_string(),
        target: target.to_string(),
        axes,
        ..Run::default()
    }
}

/// Share of the ceiling in percent; above it, count or ceiling is wrong, and the run says so.
fn set_ceiling(run: &mut Run, name: &str, ceiling_ns: f64) {
    let Some(median_ns) = run.median_ns else { return };
    let percent = 100.0 * ceiling_ns / median_ns;
    run.ceiling = Some(name.to_string());
    run.percent_of_ceiling = Some(percent);
    // The ceiling itself is a measurement; 1% is its noise.
    if percent > 101.0 {
        run.flags.push("above_ceiling".to_string());
    }
}

/// Every pixel against the oracle. The error is the report of the failed check.
fn checked(want: &[u32], got: &[u32], formulation: Formulation) -> Result<ErrorReport, ErrorReport> {
    let check = format!("every pixel against the {} scalar oracle, before and after timing", formulation.name());
    match check_equal_u32(want, got) {
        Ok(report) => Ok(ErrorReport { check, ..report }),
        Err(wrong) => Err(failed_check(check, &wrong)),
    }
}

/// `whole 1024x1024, 256 iterations`.
fn size(problem: &Problem) -> String {
    format!("{} {}x{}, {} iterations", problem.view.name, problem.width, problem.height, problem.max_iter)
}

/// Why a GPU rung has no time.
enum Trouble {
    Gpu(GpuError),
    Wrong(ErrorReport),
}

impl From<GpuError> for Trouble {
    fn from(error: GpuError) -> Self {
        Self::Gpu(error)
    }
}

/// Files the trouble of the rung that `run` names. An error after which the device cannot be used is passed on.
fn settle(trouble: Trouble, run: Run, problem: &Problem, measured: &mut Measured) -> timing::cuda::Result<()> {
    match trouble {
        Trouble::Wrong(error) => measured.fail(run, error),
        Trouble::Gpu(error) => match error.kind() {
            ErrorKind::Unsupported => measured.skips.push(Skip {
                what: format!("{} at {}", run.rung, size(problem)),
                reason: error.to_string(),
                requires: Some(Requirement::Gpu),
            }),
            ErrorKind::CheckFailed => {
                let check = "launch and guards of the buffers".to_string();
                measured.fail(run, ErrorReport { check, failed: error.to_string(), ..ErrorReport::default() });
            }
            ErrorKind::Driver => return Err(error),
        },
    }
    Ok(())
}

/// A GPU rung of one case, loaded.
struct Loaded<'a> {
    rung: &'a GpuRung,
    function: Function,
    geometry: Geometry,
}

fn gpu_cases(
    gpu: &Gpu,
    cases: &[Case],
    options: &Options,
    plan: &Plan,
    measured: &mut Measured,
    progress: &mut dyn FnMut(Progress),
) -> timing::cuda::Result<()> {
    let sampler = GpuSampler::new(gpu)?;
    calibrate_gpu(gpu, &sampler, &mut measured.calibration)?;
    let wanted = |case: &&Case| case.gpu != Gpus::None && options.wants_axes(Target::Gpu, &axes(&case.problem));
    for case in cases.iter().filter(wanted) {
        gpu_case(gpu, &sampler, case, options, plan, measured, progress)?;
    }
    Ok(())
}

fn calibrate_gpu(gpu: &Gpu, sampler: &GpuSampler<'_>, calibration: &mut Calibration) -> timing::cuda::Result<()> {
    calibration.quantum_ns = sampler.instrument().quantum_ns;
    calibration.launch_ns = sampler.instrument().launch_ns;
    if !calibration.ceilings.contains_key("gpu.fp32") {
        let measured = gpu_ceilings::measure(sampler, gpu)?;
        calibration.sm_hz = measured.sm_hz.unwrap_or(0.0);
        calibration.ceilings.extend(measured.ceilings);
    }
    Ok(())
}

fn gpu_case(
    gpu: &Gpu,
    sampler: &GpuSampler<'_>,
    case: &Case,
    options: &Options,
    plan: &Plan,
    measured: &mut Measured,
    progress: &mut dyn FnMut(Progress),
) -> timing::cuda::Result<()> {
    let problem = case.problem;
    let device = gpu.device();
    progress(Progress { done: 0, total: 1, text: format!("GPU: oracle of {}", size(&problem)) });
    let want: Arc<[u32]> = oracle(&problem, Formulation::Fused).into();
    let work = Work::new(problem, want.clone(), device.sms, device.fp32_lanes_per_sm);
    let out: Buffer<u32> = gpu.alloc(problem.pixels())?;
    let counter: Buffer<u32> = gpu.alloc(1)?;
    gpu.fill(&counter, 0)?;

    let mut loaded = Vec::new();
    for rung in GPU.iter().filter(|r| options.wants(r.stem())) {
        if case.gpu == Gpus::Wide && rung.schedulers(device.sms) < SCHEDULERS_PER_SM * device.sms {
            continue;
        }
        let expected_ns = measured.calibration.known_sm_hz().map(|hz| rung.predict(&work, hz).ns);
        if let Some(expected_ns) = expected_ns.filter(|&ns| options.rungs.is_empty() && ns > PATIENCE_NS) {
            measured.skips.push(Skip {
                what: format!("{} at {}", rung.stem(), size(&problem)),
                reason: format!("its model expects {:.1} s; name the rung to run it", expected_ns / 1e9),
                requires: None,
            });
            continue;
        }
        let candidate = || {
            let function = gpu.load(&rung.descriptor.kernel)?;
            let candidate = Loaded { rung, function, geometry: (rung.descriptor.geometry)(&work) };
            check_gpu(gpu, &candidate, &work, &want, &out, &counter).map(|_| candidate)
        };
        match candidate() {
            Ok(candidate) => loaded.push(candidate),
            Err(trouble) => settle(trouble, new_run(&problem, rung.stem(), "gpu"), &problem, measured)?,
        }
    }

    let mut ladder: Vec<GpuContestant<'_>> = Vec::new();
    for Loaded { rung, function, geometry } in &loaded {
        let args = rung.args(&work, out.ptr(), counter.ptr());
        ladder.push(GpuContestant {
            name: rung.stem().to_string(),
            cache: Cache::Warm,
            capturable: true,
            work: Box::new(move |gpu: &Gpu| gpu.launch(function, *geometry, &args)),
        });
    }
    let text = format!("GPU: {}", size(&problem));
    let samples = sampler.sample_ladder(plan, &mut ladder, &mut |done, total| {
        progress(Progress { done: u64::from(done), total: u64::from(total), text: text.clone() });
    })?;
    drop(ladder);

    for (candidate, samples) in loaded.iter().zip(&samples) {
        let rung = candidate.rung;
        let mut run = new_run(&problem, rung.stem(), "gpu");
        let checked = match check_gpu(gpu, candidate, &work, &want, &out, &counter) {
            Ok(checked) => checked,
            Err(trouble) => {
                settle(trouble, run, &problem, measured)?;
                continue;
            }
        };
        run.flops = Some((rung.descriptor.flops)(&work));
        run.bytes = Some((rung.descriptor.bytes)(&work));
        run.resources = Some(gpu.resources(&candidate.function, candidate.geometry)?);
        run.error = Some(checked);
        run.prediction = measured.calibration.known_sm_hz().map(|hz| rung.predict(&work, hz));
        let traffic = (rung.descriptor.traffic)(&work);
        run.counters.insert("iterations".to_string(), work.iterations() as f64);
        run.counters.insert("model.issue_slots".to_string(), rung.predict_issue_slots(&work));
        run.counters.insert("model.store_sectors".to_string(), traffic.store_sectors);
        fill_run(&mut run, samples);
        // FFMA warp instructions a nanosecond: two operations in each of 32 lanes.
        if let Some(fp32) = measured.calibration.ceilings.get("gpu.fp32") {
            let instructions = rung.arithmetic_per_iteration() * work.iterations() as f64 / 32.0;
            set_ceiling(&mut run, "gpu.fp32", instructions / (fp32.value / 64.0));
        }
        measured.runs.push(run);
    }
    Ok(())
}

/// One launch on poisoned output, compared with the oracle and with the guard behind the output.
fn check_gpu(
    gpu: &Gpu,
    candidate: &Loaded<'_>,
    work: &Work,
    want: &[u32],
    out: &Buffer<u32>,
    counter: &Buffer<u32>,
) -> Result<ErrorReport, Trouble> {
    gpu.fill(out, POISON_BYTE)?;
    let args = candidate.rung.args(work, out.ptr(), counter.ptr());
    gpu.launch(&candidate.function, candidate.geometry, &args)?;
    let got = gpu.download(out)?;
    gpu.check_guard(out)?;
    checked(want, &got, Formulation::Fused).map_err(Trouble::Wrong)
}

fn cpu_cases(
    cases: &[Case],
    options: &Options,
    plan: &Plan,
    measured: &mut Measured,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), StudyError> {
    let mut rungs = Vec::new();
    for rung in CPU.iter().filter(|r| options.wants(r.stem)) {
        match (rung.available)() {
            Ok(()) => rungs.push(rung),
            Err(reason) => {
                measured.skips.push(Skip { what: rung.stem.to_string(), reason, requires: rung.requires });
            }
        }
    }
    if rungs.is_empty() {
        return Ok(());
    }
    progress(Progress { done: 0, total: 1, text: "CPU: ceilings".to_string() });
    let failed = |e: cpu::CpuError| StudyError::Failed(format!("{NAME} on the CPU: {e}"));
    model::calibrate(plan, &mut measured.calibration).map_err(failed)?;
    let (pool, _) = pinned_pool(cpu::allowed_cores()).map_err(failed)?;
    let wanted = |case: &&Case| case.cpu && options.wants_axes(Target::Cpu, &axes(&case.problem));
    for case in cases.iter().filter(wanted) {
        cpu_case(case, &rungs, &pool, plan, measured, progress).map_err(failed)?;
    }
    Ok(())
}

fn cpu_case(
    case: &Case,
    rungs: &[&CpuRung],
    pool: &rayon::ThreadPool,
    plan: &Plan,
    measured: &mut Measured,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), cpu::CpuError> {
    let problem = case.problem;
    progress(Progress { done: 0, total: 1, text: format!("CPU: oracles of {}", size(&problem)) });
    let oracles: Vec<(Formulation, Vec<u32>)> = [Formulation::Fused, Formulation::Plain]
        .into_iter()
        .filter(|f| rungs.iter().any(|rung| rung.formulation == *f))
        .map(|f| (f, oracle(&problem, f)))
        .collect();
    let want = |rung: &CpuRung| &oracles.iter().find(|(f, _)| *f == rung.formulation).expect("it is a rung's").1;
    let (sender, receiver) = std::sync::mpsc::channel();
    let text = format!("CPU: {}", size(&problem));

    // One output for all rungs, first touched by the measuring thread. A rung of all cores runs on the pinned pool.
    let ladder = || {
        let mut out = vec![POISON_U32; problem.pixels()];
        let mut checks: Vec<Result<ErrorReport, ErrorReport>> =
            rungs.iter().map(|rung| check_cpu(rung, &problem, want(rung), &mut out, pool)).collect();
        let good: Vec<usize> = (0..rungs.len()).filter(|&i| checks[i].is_ok()).collect();
        let shared = RefCell::new(&mut out);
        let mut contestants: Vec<Contestant<'_>> = Vec::new();
        for &i in &good {
            let (rung, shared) = (rungs[i], &shared);
            contestants.push(Contestant::new(rung.stem, move || {
                run_cpu(rung, &problem, black_box(&mut **shared.borrow_mut()), pool);
            }));
        }
        let samples = sample_ladder(plan, &mut contestants, &mut |done, total| {
            // Nobody listening is no reason to stop.
            let _ = sender.send((done, total));
        });
        drop(contestants);
        for &i in &good {
            checks[i] = check_cpu(rungs[i], &problem, want(rungs[i]), &mut out, pool);
        }
        drop(sender);
        (checks, good, samples)
    };
    let (checks, good, samples) = std::thread::scope(|scope| {
        let measuring = scope.spawn(|| on_core(0, |_| ladder()));
        for (done, total) in receiver {
            progress(Progress { done: u64::from(done), total: u64::from(total), text: text.clone() });
        }
        measuring.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })?;

    for (i, (rung, check)) in rungs.iter().zip(checks).enumerate() {
        let mut run = new_run(&problem, rung.stem, "cpu");
        let error = match check {
            Ok(error) => error,
            Err(wrong) => {
                measured.fail(run, wrong);
                continue;
            }
        };
        let Some(samples) = good.iter().position(|&g| g == i).map(|at| &samples[at]) else { continue };
        let counts = want(rung);
        let iterations = total_iterations(counts);
        run.flops = Some(rung.formulation.flops() * iterations as f64);
        run.bytes = Some(4.0 * problem.pixels() as f64);
        run.error = Some(error);
        run.counters.insert("iterations".to_string(), iterations as f64);
        run.prediction = model::predict(rung, &problem, counts, &measured.calibration);
        fill_run(&mut run, samples);
        if let Some((name, ns)) = model::ceiling(rung, iterations, &measured.calibration) {
            set_ceiling(&mut run, &name, ns);
        }
        run.flags.extend((rung.how)().map(|how| format!("compiled:{how}")));
        measured.runs.push(run);
    }
    Ok(())
}

fn run_cpu(rung: &CpuRung, problem: &Problem, out: &mut [u32], pool: &rayon::ThreadPool) {
    if rung.multicore {
        pool.install(|| (rung.run)(problem, out));
    } else {
        (rung.run)(problem, out);
    }
}

/// One execution on poisoned output, compared with the oracle.
fn check_cpu(
    rung: &CpuRung,
    problem: &Problem,
    want: &[u32],
    out: &mut [u32],
    pool: &rayon::ThreadPool,
) -> Result<ErrorReport, ErrorReport> {
    poison_u32(out);
    run_cpu(rung, problem, out, pool);
    checked(want, out, rung.formulation)
}
