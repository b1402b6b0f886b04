//! A/A: one kernel against itself, again and again. The 95% interval of the ratio should hold 1 about 95 times in a
//! hundred; far fewer would mean that intervals printed by this crate are too narrow on this machine.
//!
//!     cargo run --release -p timing --example aa [LADDERS] [FILE.json]
//!
//! Times a 0.1 ms FMA kernel on the GPU, or says SKIP. Writes the ratios with their intervals as JSON.

use std::time::Duration;

use timing::cuda::Gpu;
use timing::gpu_sample::{GpuContestant, GpuSampler};
use timing::launch::{Arg, Geometry, Kernel};
use timing::record::Cache;
use timing::sample::Plan;
use timing::stats::{Ratio, paired_ratio};

const FMA: Kernel = Kernel {
    stem: "calib_fma",
    entry: "calib_fma",
    ptx: include_str!("../../../ptx/timing/calib_fma.ptx"),
    target: (6, 0),
};

#[derive(serde::Serialize)]
struct Outcome {
    device: timing::record::Device,
    driver: (u32, u32),
    kernel: &'static str,
    ladders: usize,
    rounds: u32,
    holds_one: usize,
    widest_interval: f64,
    ratios: Vec<Ratio>,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let ladders: usize = args.next().map_or(Ok(100), |n| n.parse())?;
    let file = args.next();
    let gpu = match Gpu::open(0) {
        Ok(gpu) => gpu,
        Err(absence) => {
            println!("SKIP: {absence}");
            return Ok(());
        }
    };
    let sampler = GpuSampler::new(&gpu)?;
    let function = gpu.load(&FMA)?;
    let geometry = Geometry::linear(gpu.device().sms * 8, 256);
    let out = gpu.alloc::<f32>((geometry.blocks() * geometry.threads_per_block()) as usize)?;
    let plan = Plan {
        warmup: Duration::from_millis(20),
        rounds: 15,
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
        ratios.push(paired_ratio(&a.ns, &a.round, &b.ns, &b.round).ok_or("too few samples for a ratio")?);
    }
    let outcome = Outcome {
        device: gpu.device().clone(),
        driver: gpu.driver(),
        kernel: FMA.stem,
        ladders,
        rounds: plan.rounds,
        holds_one: ratios.iter().filter(|r| r.ci[0] <= 1.0 && 1.0 <= r.ci[1]).count(),
        widest_interval: ratios.iter().map(|r| r.ci[1] - r.ci[0]).fold(0.0, f64::max),
        ratios,
    };
    println!(
        "{} of {} intervals hold 1; the widest is {:.4} wide",
        outcome.holds_one, outcome.ladders, outcome.widest_interval
    );
    if let Some(file) = file {
        let partial = format!("{file}.partial");
        std::fs::write(&partial, serde_json::to_string_pretty(&outcome)?)?;
        std::fs::rename(&partial, &file)?;
    }
    Ok(())
}
