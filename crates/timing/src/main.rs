//! What this machine has and what it can do: the probe, the ceilings, and the A/A run of the instrument.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use timing::cuda::Gpu;
use timing::gpu_sample::{GpuContestant, GpuSampler};
use timing::launch::{Arg, Geometry, Kernel};
use timing::probe::{Probe, probe, required};
use timing::record::{Cache, Device};
use timing::sample::Plan;
use timing::stats::{Ratio, paired_ratio};

/// Shows what this machine has and what its instruments can tell.
#[derive(Parser)]
#[command(name = "timing")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// CPU, GPU and driver; or why there is no GPU
    Probe,
    /// Times one kernel against itself: the 95% interval of the ratio should hold 1 about 95 times in 100
    Aa {
        /// Ladders to sample
        #[arg(long, default_value_t = 100)]
        ladders: u32,
        /// Write the ratios as JSON
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
    },
}

/// Exit code of an unmet REQUIRE_GPU.
const REQUIREMENT_UNMET: u8 = 4;

fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(code) => code,
        Err(error) => {
            let broken_pipe =
                error.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe);
            if broken_pipe {
                return ExitCode::SUCCESS;
            }
            let _ = writeln!(std::io::stderr(), "error: {error:#}");
            ExitCode::from(1)
        }
    }
}

fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    let probe = probe();
    match cli.command {
        Command::Probe => show(&probe)?,
        Command::Aa { ladders, json } => match &probe.gpu {
            Ok(gpu) => aa(gpu, ladders, json)?,
            Err(absence) => writeln!(std::io::stdout(), "SKIP: {absence}")?,
        },
    }
    Ok(if required("REQUIRE_GPU") && probe.gpu.is_err() {
        ExitCode::from(REQUIREMENT_UNMET)
    } else {
        ExitCode::SUCCESS
    })
}

fn show(probe: &Probe) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    let host = &probe.host;
    writeln!(out, "cpu: {}, {} threads, {}", host.cpu, host.threads, host.features.join(" "))?;
    match &probe.gpu {
        Ok(gpu) => {
            let d = gpu.device();
            let (major, minor) = d.compute_capability;
            writeln!(
                out,
                "gpu: {}, compute capability {major}.{minor}, {} SMs, {} MiB, driver for {}",
                d.name,
                d.sms,
                d.memory_bytes >> 20,
                probe.driver()
            )?;
        }
        Err(absence) => writeln!(out, "gpu: none: {absence}")?,
    }
    out.flush()
}

const FMA: Kernel = Kernel {
    stem: "calib_fma",
    entry: "calib_fma",
    ptx: include_str!("../../../ptx/timing/calib_fma.ptx"),
    target: (6, 0),
};

/// The outcome of an A/A run.
#[derive(serde::Serialize)]
struct Outcome {
    device: Device,
    driver: (u32, u32),
    kernel: &'static str,
    ladders: u32,
    rounds: u32,
    /// Intervals that hold 1.
    holds_one: usize,
    /// Intervals wholly below 1: the first of the pair was the faster one.
    below_one: usize,
    /// Intervals wholly above 1.
    above_one: usize,
    widest_interval: f64,
    ratios: Vec<Ratio>,
}

fn aa(gpu: &Gpu, ladders: u32, json: Option<PathBuf>) -> anyhow::Result<()> {
    let sampler = GpuSampler::new(gpu)?;
    let function = gpu.load(&FMA)?;
    let geometry = Geometry::linear(gpu.device().sms * 8, 256);
    let out = gpu.alloc::<f32>((geometry.blocks() * geometry.threads_per_block()) as usize)?;
    let plan = Plan {
        warmup: Duration::from_millis(20),
        rounds: 16,
        min_sample: Duration::from_micros(500),
        budget: Duration::from_secs(10),
    };
    let mut ratios = Vec::new();
    for _ in 0..ladders {
        let contestant = |name: &str| GpuContestant {
            name: name.to_string(),
            cache: Cache::Warm,
            capturable: true,
            work: Box::new(|gpu: &Gpu| {
                gpu.launch(&function, geometry, &[Arg::Ptr(out.ptr()), Arg::U32(32), Arg::F32(0.5), Arg::F32(1.0)])
            }),
        };
        let mut pair = [contestant("a"), contestant("a again")];
        let samples = sampler.sample_ladder(&plan, &mut pair, &mut |_, _| ())?;
        let (a, b) = (&samples[0], &samples[1]);
        let ratio = paired_ratio(&a.ns, &a.round, &b.ns, &b.round);
        ratios.push(ratio.ok_or_else(|| anyhow::anyhow!("a sample of the A/A run is not a positive time"))?);
    }
    let count = |test: &dyn Fn(&Ratio) -> bool| ratios.iter().filter(|r| test(r)).count();
    let outcome = Outcome {
        device: gpu.device().clone(),
        driver: gpu.driver(),
        kernel: FMA.stem,
        ladders,
        rounds: plan.rounds,
        holds_one: count(&|r| r.ci[0] <= 1.0 && 1.0 <= r.ci[1]),
        below_one: count(&|r| r.ci[1] < 1.0),
        above_one: count(&|r| r.ci[0] > 1.0),
        widest_interval: ratios.iter().map(|r| r.ci[1] - r.ci[0]).fold(0.0, f64::max),
        ratios,
    };
    writeln!(
        std::io::stdout(),
        "{} of {} intervals hold 1, {} lie below, {} above; the widest is {:.4} wide",
        outcome.holds_one,
        outcome.ladders,
        outcome.below_one,
        outcome.above_one,
        outcome.widest_interval
    )?;
    if let Some(path) = json {
        let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(std::path::Path::new("."));
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        serde_json::to_writer_pretty(&mut file, &outcome)?;
        file.persist(path)?;
    }
    Ok(())
}
