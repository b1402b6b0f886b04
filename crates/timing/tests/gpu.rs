//! The GPU side on a real device. Without one each test says SKIP and why; under REQUIRE_GPU=1 that is a failure.

use std::time::Duration;

use timing::check::POISON_U32;
use timing::cuda::{Absence, ErrorKind, Gpu, GpuError, POISON_FLOAT};
use timing::gpu_ceilings;
use timing::gpu_sample::{GpuContestant, GpuSampler};
use timing::launch::{Arg, Geometry, Kernel};
use timing::probe::required;
use timing::record::Cache;
use timing::sample::Plan;

const FILL: Kernel = Kernel {
    stem: "calib_fill",
    entry: "calib_fill",
    ptx: include_str!("../../../ptx/timing/calib_fill.ptx"),
    target: (6, 0),
};
const FMA: Kernel = Kernel {
    stem: "calib_fma",
    entry: "calib_fma",
    ptx: include_str!("../../../ptx/timing/calib_fma.ptx"),
    target: (6, 0),
};

fn gpu() -> Option<Gpu> {
    match Gpu::open(0) {
        Ok(gpu) => Some(gpu),
        Err(absence) => {
            assert!(!required("REQUIRE_GPU"), "REQUIRE_GPU is set, but {absence}");
            println!("SKIP: {absence}");
            None
        }
    }
}

fn plan() -> Plan {
    Plan {
        warmup: Duration::from_millis(50),
        rounds: 15,
        min_sample: Duration::from_micros(200),
        budget: Duration::from_secs(5),
    }
}

#[test]
fn memory_is_poisoned_copied_and_guarded() {
    let Some(gpu) = gpu() else { return };
    let buffer = gpu.alloc::<u32>(1001).unwrap();
    assert!(gpu.download(&buffer).unwrap().iter().all(|&w| w == POISON_U32));
    let floats = gpu.alloc::<f32>(7).unwrap();
    gpu.fill(&floats, POISON_FLOAT).unwrap();
    assert!(gpu.download(&floats).unwrap().iter().all(|v| v.is_nan()));

    let data: Vec<u32> = (0..1001).collect();
    gpu.upload(&data, &buffer).unwrap();
    let second = gpu.alloc::<u32>(1001).unwrap();
    gpu.copy(&buffer, &second).unwrap();
    assert_eq!(gpu.download(&second).unwrap(), data);
    gpu.check_guard(&second).unwrap();
    assert!(matches!(gpu.upload(&data[1..], &buffer), Err(GpuError::Length { from: 1000, to: 1001 })));

    // One word too many: the last lands in the guard, which says so.
    let function = gpu.load(&FILL).unwrap();
    let args = |n| [Arg::Ptr(buffer.ptr()), Arg::U64(n), Arg::U32(9)];
    gpu.launch(&function, Geometry::linear(1, 64), &args(1001)).unwrap();
    gpu.check_guard(&buffer).unwrap();
    assert_eq!(gpu.download(&buffer).unwrap()[1], 2_654_435_761u32.wrapping_add(9));
    gpu.launch(&function, Geometry::linear(1, 64), &args(1002)).unwrap();
    let overwritten = gpu.check_guard(&buffer).unwrap_err();
    assert!(matches!(overwritten, GpuError::Guard { bytes: 4004 }), "{overwritten}");
    assert_eq!(overwritten.kind(), ErrorKind::CheckFailed);
    gpu.check_guard(&buffer).expect("the guard is set anew");

    let empty = gpu.alloc::<u32>(0).unwrap();
    assert_eq!(gpu.download(&empty).unwrap(), [0u32; 0]);
    assert!(matches!(gpu.alloc::<u64>(usize::MAX / 2), Err(GpuError::Memory { .. })));
}

#[test]
fn bad_launches_are_refused_in_one_line() {
    let Some(gpu) = gpu() else { return };
    let function = gpu.load(&FILL).unwrap();
    let buffer = gpu.alloc::<u32>(16).unwrap();
    let missing = gpu.launch(&function, Geometry::linear(1, 32), &[Arg::Ptr(buffer.ptr())]).unwrap_err();
    assert_eq!(missing.to_string(), "calib_fill takes (u64, u64, u32); the launch gives (u64)");
    let args = [Arg::Ptr(buffer.ptr()), Arg::U64(16), Arg::U32(0)];
    let huge = gpu.launch(&function, Geometry::linear(1, 2048), &args).unwrap_err();
    assert!(matches!(huge, GpuError::Geometry { .. }), "{huge}");
    gpu.launch(&function, Geometry::linear(0, 32), &args).unwrap();
    assert_eq!(gpu.download(&buffer).unwrap(), [POISON_U32; 16]);

    let text = FILL.ptx.replacen("st.global.u32", "st.global.u33", 1);
    assert_ne!(text, FILL.ptx);
    let broken = Kernel { ptx: text.leak(), ..FILL };
    let Err(jit) = gpu.load(&broken) else { panic!("the driver took st.global.u33") };
    let jit = jit.to_string();
    assert!(jit.starts_with("the driver cannot compile calib_fill.ptx: ") && jit.contains("u33"), "{jit}");
    assert!(!jit.contains('\n'));
    let Err(no_entry) = gpu.load(&Kernel { entry: "calib_fil", ..FILL }) else { panic!("calib_fil was found") };
    assert_eq!(no_entry.to_string(), "calib_fill.ptx has no entry calib_fil");
    let Err(newer) = gpu.load(&Kernel { target: (99, 0), ..FILL }) else { panic!("99.0 was accepted") };
    assert!(matches!(newer, GpuError::Capability { needs: (99, 0), .. }));
    assert_eq!(newer.kind(), ErrorKind::Unsupported);
    let other = FILL.ptx.replacen(".target sm_60", ".target sm_61a", 1);
    assert_ne!(other, FILL.ptx);
    let Err(other) = gpu.load(&Kernel { ptx: other.leak(), ..FILL }) else { panic!("sm_61a was accepted") };
    assert!(matches!(other, GpuError::Architecture { .. }), "{other}");
    let much = Geometry { shared_bytes: gpu.device().shared_per_block_optin_bytes + 4, ..Geometry::linear(1, 32) };
    let much = gpu.launch(&function, much, &args).unwrap_err();
    assert!(matches!(much, GpuError::SharedMemory { .. }), "{much}");
    let all = Geometry { shared_bytes: gpu.device().shared_per_block_optin_bytes, ..Geometry::linear(1, 32) };
    gpu.launch(&function, all, &args).unwrap();
    assert_eq!(gpu.download(&buffer).unwrap()[1], 2_654_435_761);
    assert!(matches!(Gpu::open(1000), Err(Absence::NoDevice)));
}

#[test]
fn ceilings_are_strong_and_the_instrument_is_finer_than_a_launch() {
    let Some(gpu) = gpu() else { return };
    let sampler = GpuSampler::new(&gpu).unwrap();
    let instrument = sampler.instrument();
    println!("{instrument:?}");
    assert!(instrument.quantum_ns > 0.0 && instrument.quantum_ns <= instrument.launch_ns);
    let measured = gpu_ceilings::measure(&sampler, &gpu).unwrap();
    for (name, ceiling) in &measured.ceilings {
        println!("{name}: {:.1} {} of {:?}: {}", ceiling.value, ceiling.unit, ceiling.expected, ceiling.how);
        assert!(ceiling.ok, "{name}: {ceiling:?}");
        assert!(ceiling.expected.is_none_or(|e| ceiling.value < 1.02 * e), "{name} is above what the chip can do");
    }
    let sm_hz = measured.sm_hz.expect("one of nine clock probes finds its SM again");
    println!("SM clock {:.0} MHz", sm_hz / 1e6);
    let max_hz = f64::from(gpu.device().max_clock_khz) * 1e3;
    assert!(sm_hz > 0.5 * max_hz && sm_hz < 1.02 * max_hz);
}

/// One FMA kernel of 1, 4 and 1 trips: times are in proportion however they are taken, and a cold copy of it is not
/// faster than a warm one.
#[test]
fn single_batch_and_graph_agree() {
    let Some(gpu) = gpu() else { return };
    let sampler = GpuSampler::new(&gpu).unwrap();
    let function = gpu.load(&FMA).unwrap();
    let geometry = Geometry::linear(gpu.device().sms * 8, 256);
    let out = gpu.alloc::<f32>((geometry.blocks() * geometry.threads_per_block()) as usize).unwrap();
    let contestant = |trips: u32, cache: Cache, capturable: bool| {
        let (function, out) = (&function, &out);
        GpuContestant {
            name: format!("{trips} trips"),
            cache,
            capturable,
            work: Box::new(move |gpu: &Gpu| {
                gpu.launch(function, geometry, &[Arg::Ptr(out.ptr()), Arg::U32(trips), Arg::F32(0.5), Arg::F32(1.0)])
            }),
        }
    };
    let mut ladder = [
        contestant(64, Cache::Warm, true),
        contestant(64, Cache::Warm, false),
        contestant(65536, Cache::Warm, true),
        contestant(64, Cache::Cold, true),
    ];
    let samples = sampler.sample_ladder(&plan(), &mut ladder, &mut |_, _| ()).unwrap();
    let methods: Vec<&str> = samples.iter().map(|s| s.method).collect();
    assert_eq!(methods, ["graph", "batch", "single", "single"]);
    let least = |i: usize| samples[i].ns.iter().copied().fold(f64::INFINITY, f64::min);
    for (i, samples) in samples.iter().enumerate() {
        println!("{}: least {:.0} ns, batch {}, flags {:?}", samples.method, least(i), samples.batch, samples.flags);
        assert!(samples.ns.len() >= 5 && samples.ns.len() == samples.cycles.len());
    }
    let per_trip = least(2) / 65536.0;
    assert!(least(0) > 64.0 * per_trip * 0.98, "graph: less than its work");
    assert!(least(1) >= least(0) * 0.95, "a batch is not faster than a graph");
    assert!(least(3) >= 64.0 * per_trip * 0.98, "cold: less than its work");
    let cycles: Vec<f64> = samples[2].cycles.iter().flatten().copied().collect();
    let instructions = 65536.0 * 256.0 * 8.0 * 8.0; // per SM: 8 blocks of 8 warps
    let per_cycle = instructions / timing::stats::median(&cycles).unwrap();
    println!("{per_cycle:.3} FFMA warp instructions per cycle and SM");
    let width = f64::from(gpu.device().fp32_lanes_per_sm) / 32.0;
    assert!(per_cycle > 0.9 * width && per_cycle < 1.02 * width);
}
