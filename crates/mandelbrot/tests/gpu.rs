//! Every GPU rung on a real device against the oracle, exactly. Without a device: SKIP, or a failure under REQUIRE_GPU.

use mandelbrot::gpu::Work;
use mandelbrot::ladder::GPU;
use mandelbrot::reference::Formulation;
use mandelbrot::view::{BOUNDARY, INTERIOR, Problem, View, WHOLE};
use timing::check::{POISON_BYTE, check_equal_u32};
use timing::cuda::Gpu;
use timing::probe::required;

/// Near c = -2, where an orbit stays closest to |z| = 2.
const TIP: View = View { name: "tip", x0: -2.01, y0: -0.005, x1: -1.99, y1: 0.005 };
/// Beyond every limit: infinities and NaN on the way.
const FAR: View = View { name: "far", x0: -1e38, y0: -1e38, x1: 1e38, y1: 1e38 };

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

#[test]
fn every_rung_equals_the_oracle_at_awkward_sizes() {
    let Some(gpu) = gpu() else { return };
    let (sms, lanes) = (gpu.device().sms, gpu.device().fp32_lanes_per_sm);
    let sizes = [(1, 1), (1, 1000), (1000, 1), (33, 17), (7, 3), (8, 4), (9, 5), (31, 31), (32, 32), (97, 101)];
    let counter = gpu.alloc::<u32>(1).unwrap();
    let mut compared = 0;
    for rung in GPU {
        let function = gpu.load(&rung.descriptor.kernel).unwrap();
        gpu.fill(&counter, 0).unwrap();
        for view in [WHOLE, BOUNDARY, INTERIOR, TIP, FAR] {
            for (width, height) in sizes {
                for max_iter in [0, 1, 2, 15, 16, 17, 31, 33, 255, 256] {
                    let problem = Problem::new(view, width, height, max_iter).unwrap();
                    let mut want = vec![0; problem.pixels()];
                    Formulation::Fused.counts(&problem, &mut want);
                    let work = Work::new(problem, want.clone().into(), sms, lanes);
                    let out = gpu.alloc::<u32>(problem.pixels()).unwrap();
                    let geometry = (rung.descriptor.geometry)(&work);
                    // Twice without touching the counter: a launch must leave it ready for the next.
                    for launch in 0..2 {
                        gpu.fill(&out, POISON_BYTE).unwrap();
                        gpu.launch(&function, geometry, &rung.args(&work, out.ptr(), counter.ptr())).unwrap();
                        let got = gpu.download(&out).unwrap();
                        if let Err(wrong) = check_equal_u32(&want, &got) {
                            panic!("{} launch {launch} of {problem:?}: {wrong}", rung.stem());
                        }
                    }
                    gpu.check_guard(&out).unwrap();
                    compared += want.len();
                }
            }
        }
        assert_eq!(gpu.download(&counter).unwrap(), [0], "{} leaves its counter", rung.stem());
    }
    println!("{compared} pixels compared");
}

#[test]
fn an_empty_problem_launches_nothing() {
    let Some(gpu) = gpu() else { return };
    for rung in GPU {
        let problem = Problem::new(WHOLE, 0, 7, 100).unwrap();
        let work = Work::new(problem, Vec::new().into(), gpu.device().sms, gpu.device().fp32_lanes_per_sm);
        let function = gpu.load(&rung.descriptor.kernel).unwrap();
        let (out, counter) = (gpu.alloc::<u32>(0).unwrap(), gpu.alloc::<u32>(1).unwrap());
        gpu.fill(&counter, 0).unwrap();
        let args = rung.args(&work, out.ptr(), counter.ptr());
        gpu.launch(&function, (rung.descriptor.geometry)(&work), &args).unwrap();
        gpu.check_guard(&out).unwrap();
    }
}

#[test]
fn a_wide_problem_is_right_to_the_last_pixel() {
    // More tiles than a grid has rows (65535), more pixels than 2^24: no index may be rounded.
    let Some(gpu) = gpu() else { return };
    let problem = Problem::new(BOUNDARY, 5003, 4099, 64).unwrap();
    let mut want = vec![0; problem.pixels()];
    Formulation::Fused.counts(&problem, &mut want);
    let work = Work::new(problem, want.clone().into(), gpu.device().sms, gpu.device().fp32_lanes_per_sm);
    let (out, counter) = (gpu.alloc::<u32>(problem.pixels()).unwrap(), gpu.alloc::<u32>(1).unwrap());
    for rung in GPU.iter().filter(|r| r.schedulers(work.sms) > 4) {
        let function = gpu.load(&rung.descriptor.kernel).unwrap();
        gpu.fill(&out, POISON_BYTE).unwrap();
        gpu.fill(&counter, 0).unwrap();
        let args = rung.args(&work, out.ptr(), counter.ptr());
        gpu.launch(&function, (rung.descriptor.geometry)(&work), &args).unwrap();
        if let Err(wrong) = check_equal_u32(&want, &gpu.download(&out).unwrap()) {
            panic!("{}: {wrong}", rung.stem());
        }
        gpu.check_guard(&out).unwrap();
    }
}
