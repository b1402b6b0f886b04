//! The ladder under criterion: `cargo bench -p mandelbrot`. Reports lie in target/criterion.
//!
//! Every rung is compared with its oracle before it is timed. GPU rungs report the time between two events on the
//! stream, not the host's; without a GPU they print SKIP.

use std::hint::black_box;
use std::time::Duration;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, Throughput};
use mandelbrot::gpu::Work;
use mandelbrot::ladder::{CPU, GPU};
use mandelbrot::reference::{Formulation, total_iterations};
use mandelbrot::view::{Problem, WHOLE};
use timing::check::{POISON_BYTE, POISON_U32, check_equal_u32};
use timing::cpu::{allowed_cores, pin_to_core, pinned_pool};
use timing::cuda::Gpu;
use timing::gpu_sample::GpuSampler;

fn problem() -> Problem {
    Problem::new(WHOLE, 256, 256, 256).expect("within the limits")
}

fn oracle(problem: &Problem, formulation: Formulation) -> Vec<u32> {
    let mut counts = vec![0; problem.pixels()];
    formulation.counts(problem, &mut counts);
    counts
}

fn group<'a>(criterion: &'a mut Criterion, target: &str, counts: &[u32]) -> BenchmarkGroup<'a, WallTime> {
    let mut group = criterion.benchmark_group(format!("mandelbrot {target}: whole 256x256, 256 iterations"));
    // Elements are iterations, so criterion's elem/s are iterations/s.
    group.throughput(Throughput::Elements(total_iterations(counts)));
    group.sample_size(20).warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1));
    group
}

fn cpu(criterion: &mut Criterion) {
    // The pool first: threads that a pinned thread starts inherit its pin.
    let (pool, _) = pinned_pool(allowed_cores()).unwrap_or_else(|e| panic!("{e}"));
    let _ = pin_to_core(0); // Where the system has no pinning, the thread floats.
    let problem = problem();
    let mut group = group(criterion, "CPU", &oracle(&problem, Formulation::Fused));
    for rung in CPU {
        if let Err(reason) = (rung.available)() {
            println!("SKIP {}: {reason}", rung.stem);
            continue;
        }
        let run = |out: &mut [u32]| match rung.multicore {
            true => pool.install(|| (rung.run)(black_box(&problem), out)),
            false => (rung.run)(black_box(&problem), out),
        };
        let mut out = vec![POISON_U32; problem.pixels()];
        run(&mut out);
        check_equal_u32(&oracle(&problem, rung.formulation), &out).unwrap_or_else(|e| panic!("{}: {e}", rung.stem));
        group.bench_function(rung.stem, |b| b.iter(|| run(black_box(&mut out))));
    }
    group.finish();
}

fn gpu(criterion: &mut Criterion) {
    let gpu = match Gpu::open(0) {
        Ok(gpu) => gpu,
        Err(absence) => {
            println!("SKIP GPU rungs: {absence}");
            return;
        }
    };
    bench_gpu(criterion, &gpu).unwrap_or_else(|e| panic!("{e}"));
}

fn bench_gpu(criterion: &mut Criterion, gpu: &Gpu) -> timing::cuda::Result<()> {
    let problem = problem();
    let want = oracle(&problem, Formulation::Fused);
    let work = Work::new(problem, want.clone().into(), gpu.device().sms, gpu.device().fp32_lanes_per_sm);
    let sampler = GpuSampler::new(gpu)?;
    let (out, counter) = (gpu.alloc::<u32>(problem.pixels())?, gpu.alloc::<u32>(1)?);
    gpu.fill(&counter, 0)?;
    let mut group = group(criterion, "GPU", &want);
    for rung in GPU {
        let function = match gpu.load(&rung.descriptor.kernel) {
            Ok(function) => function,
            Err(reason) => {
                println!("SKIP {}: {reason}", rung.stem());
                continue;
            }
        };
        let geometry = (rung.descriptor.geometry)(&work);
        let args = rung.args(&work, out.ptr(), counter.ptr());
        gpu.fill(&out, POISON_BYTE)?;
        gpu.launch(&function, geometry, &args)?;
        check_equal_u32(&want, &gpu.download(&out)?).unwrap_or_else(|e| panic!("{}: {e}", rung.stem()));
        group.bench_function(rung.stem(), |b| {
            b.iter_custom(|times| {
                let mut launches = |gpu: &Gpu| (0..times).try_for_each(|_| gpu.launch(&function, geometry, &args));
                let ns = sampler.time_once(&mut launches).unwrap_or_else(|e| panic!("{}: {e}", rung.stem()));
                Duration::from_nanos(ns as u64)
            });
        });
    }
    group.finish();
    Ok(())
}

// Not `criterion_group!`: it makes a public function without documentation.
fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    cpu(&mut criterion);
    gpu(&mut criterion);
    criterion.final_summary();
}
