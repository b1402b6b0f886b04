//! What this machine has and what it can do: the probe, the ceilings, and the A/A run of the instrument.

mod cli;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use timing::cpu::Avx512;
use timing::cuda::{ErrorKind, Gpu, GpuError};
use timing::gpu_sample::{GpuContestant, GpuSampler};
use timing::launch::{Arg, Geometry, Kernel};
use timing::probe::{Probe, probe, required};
use timing::record::{Cache, Device};
use timing::sample::Plan;
use timing::stats::{Ratio, paired_ratio};

/// Shows what this machine has and what its instruments can tell.
#[derive(Parser)]
#[command(name = "timing", version, arg_required_else_help = false, after_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXIT_CODES: &str = "Exit codes: 0 done, or skipped with the reason; 1 input, output or driver; 2 usage; \
    3 a calibration kernel is wrong; 4 REQUIRE_GPU=1 or REQUIRE_AVX512=1 is unmet";

#[derive(Subcommand)]
enum Command {
    /// CPU, GPU and driver; or why there is no GPU
    Probe,
    /// Times one kernel against itself: the 95% interval of the ratio should hold 1 about 95 times in 100
    Aa {
        /// Ladders to sample
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
        ladders: u32,
        /// Write the ratios as JSON
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
    },
}

/// A variable insists on hardware that is not there: exit code 4.
#[derive(Debug, thiserror::Error)]
#[error("{variable} is set, but {reason}")]
struct Unmet {
    variable: &'static str,
    reason: String,
}

fn main() -> ExitCode {
    let mut out = cli::StandardOutput;
    let done = cli::parse(std::env::args_os(), &mut out).and_then(|cli| cli.map_or(Ok(()), |cli| run(cli, &mut out)));
    match done.and_then(|()| Ok(out.flush()?)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "error: {}", cli::one_line(&format!("{error:#}")));
            ExitCode::from(code(&error))
        }
    }
}

/// Exit code of an error.
fn code(error: &anyhow::Error) -> u8 {
    match error.downcast_ref::<GpuError>().map(GpuError::kind) {
        Some(ErrorKind::CheckFailed) => 3,
        _ if error.is::<cli::Usage>() => 2,
        _ if error.is::<Unmet>() => 4,
        _ => 1,
    }
}

fn run(cli: Cli, out: &mut dyn Write) -> anyhow::Result<()> {
    match cli.command {
        Command::Probe => {
            let probe = probe();
            show(&probe, out)?;
            insist("REQUIRE_GPU", probe.gpu.as_ref().err().map(ToString::to_string))?;
            insist("REQUIRE_AVX512", Avx512::detect().is_none().then(|| "this CPU has no AVX-512F".to_string()))
        }
        Command::Aa { ladders, json } => {
            if let Some(path) = &json {
                cli::check_writable(path)?;
            }
            let skipped = match probe().gpu {
                Ok(gpu) => match aa(&gpu, ladders, json.as_deref(), out) {
                    Err(error) if is_unsupported(&error) => format!("{error:#}"),
                    done => return done,
                },
                Err(absence) => absence.to_string(),
            };
            writeln!(out, "SKIP: {skipped}")?;
            insist("REQUIRE_GPU", Some(skipped))
        }
    }
}

fn is_unsupported(error: &anyhow::Error) -> bool {
    error.downcast_ref::<GpuError>().is_some_and(|e| e.kind() == ErrorKind::Unsupported)
}

/// Fails where `variable` is set and something is missing.
fn insist(variable: &'static str, missing: Option<String>) -> anyhow::Result<()> {
    match missing {
        Some(reason) if required(variable) => Err(Unmet { variable, reason }.into()),
        _ => Ok(()),
    }
}

fn show(probe: &Probe, out: &mut dyn Write) -> std::io::Result<()> {
    let host = &probe.host;
    let threads = if host.threads == 1 { "1 thread".to_string() } else { format!("{} threads", host.threads) };
    writeln!(out, "cpu: {}, {threads}, {}", host.cpu, host.features.join(" "))?;
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
            )
        }
        Err(absence) => writeln!(out, "gpu: none: {absence}"),
    }
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

fn aa(gpu: &Gpu, ladders: u32, json: Option<&Path>, out: &mut dyn Write) -> anyhow::Result<()> {
    let sampler = GpuSampler::new(gpu)?;
    let function = gpu.load(&FMA)?;
    let geometry = Geometry::linear(gpu.device().sms * 8, 256);
    let buffer = gpu.alloc::<f32>((geometry.blocks() * geometry.threads_per_block()) as usize)?;
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
                gpu.launch(&function, geometry, &[Arg::Ptr(buffer.ptr()), Arg::U32(32), Arg::F32(0.5), Arg::F32(1.0)])
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
    // The file first: it is what 100 ladders were sampled for.
    if let Some(path) = json {
        cli::write_file(path, &serde_json::to_vec_pretty(&outcome)?)?;
    }
    writeln!(
        out,
        "{} of {} intervals hold 1, {} lie below, {} above; the widest is {:.4} wide",
        outcome.holds_one, outcome.ladders, outcome.below_one, outcome.above_one, outcome.widest_interval
    )?;
    Ok(())
}
