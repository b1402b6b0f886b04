//! Every CPU rung against the oracle of its formulation, exactly, on poisoned output.

use mandelbrot::ladder::{CPU, CpuRung};
use mandelbrot::reference::{Formulation, mismatches};
use mandelbrot::view::{BOUNDARY, Problem, VIEWS, View, WHOLE};
use proptest::prelude::*;

const POISON: u32 = 0xA5A5_A5A5;

/// The rungs that this machine can run. The others are skips with a reason.
fn rungs() -> impl Iterator<Item = &'static CpuRung> {
    CPU.iter().filter(|rung| match (rung.available)() {
        Ok(()) => true,
        Err(reason) => {
            assert!(!reason.is_empty() && !reason.contains('\n'));
            let insisted = rung.requires.is_some_and(|r| r.enforced());
            assert!(!insisted, "{} is set, but {}: {reason}", rung.requires.unwrap().variable(), rung.stem);
            println!("SKIP {}: {reason}", rung.stem);
            false
        }
    })
}

fn run(rung: &CpuRung, problem: &Problem) -> Vec<u32> {
    let mut out = vec![POISON; problem.pixels()];
    (rung.run)(problem, &mut out);
    out
}

fn oracle(formulation: Formulation, problem: &Problem) -> Vec<u32> {
    let mut out = vec![POISON; problem.pixels()];
    formulation.counts(problem, &mut out);
    out
}

/// Panics with the first pixel that differs.
fn check_all(problem: &Problem) {
    let want = [Formulation::Fused, Formulation::Plain].map(|f| (f, oracle(f, problem)));
    for rung in rungs() {
        let got = run(rung, problem);
        let want = &want.iter().find(|(f, _)| *f == rung.formulation).unwrap().1;
        if let Some(i) = (0..want.len()).find(|&i| got[i] != want[i]) {
            let (px, py) = (i as u32 % problem.width, i as u32 / problem.width);
            let c = (problem.cx(px), problem.cy(py));
            let wrong = mismatches(&got, want);
            panic!("{}: {wrong} wrong; ({px}, {py}) c={c:?}: {} not {}; {problem:?}", rung.stem, got[i], want[i]);
        }
    }
}

fn problem(view: View, (width, height): (u32, u32), max_iter: u32) -> Problem {
    Problem::new(view, width, height, max_iter).unwrap()
}

#[test]
fn awkward_sizes() {
    let sizes =
        [(0, 0), (0, 7), (7, 0), (1, 1), (2, 1), (15, 3), (16, 1), (17, 5), (33, 17), (1, 300), (300, 1), (97, 31)];
    for &view in VIEWS {
        for size in sizes {
            check_all(&problem(view, size, 200));
        }
    }
    check_all(&problem(WHOLE, (1, 1000), 300));
    check_all(&problem(WHOLE, (1000, 1), 300));
}

#[test]
fn awkward_limits() {
    // Around the seed (16), the seed and one, two, three blocks of 24, and blocks that are cut short.
    for &view in VIEWS {
        for max_iter in [0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 32, 39, 40, 41, 63, 64, 65, 87, 88, 89, 256, 1000] {
            check_all(&problem(view, (37, 11), max_iter));
        }
    }
}

#[test]
fn more_than_one_chunk_per_worker() {
    check_all(&problem(WHOLE, (160, 128), 256));
    check_all(&problem(BOUNDARY, (96, 96), 2000));
}

#[test]
fn the_guard_bands() {
    let tip = View { name: "tip", x0: -2.01, y0: -0.01, x1: -1.99, y1: 0.01 };
    check_all(&problem(tip, (64, 64), 400));
    // The antenna: the row y = 0 stays real, and bounded for ever up to c = -2.
    let antenna = View { name: "antenna", x0: -2.0, y0: -1e-6, x1: -1.4, y1: 1e-6 };
    check_all(&problem(antenna, (512, 2), 400));
    // |c| = 2 all around.
    let circle = View { name: "circle", x0: -2.002, y0: -2.002, x1: 2.002, y1: 2.002 };
    check_all(&problem(circle, (91, 91), 100));
    // Columns and rows at zero, subnormal and tiny: where a scaled y could round differently.
    for scale in [0.0, 1e-45, 1e-38, 1e-30, 1e-24, 1e-20, 1e-18, 1e-12] {
        for (w, h) in [(scale, 1.0), (1.0, scale), (scale, scale), (scale, 0.01), (0.3, 1e-3 * scale)] {
            let view = View { name: "tiny", x0: -w, y0: -h, x1: w, y1: h };
            check_all(&problem(view, (16, 12), 150));
            let shifted = View { name: "tiny", x0: -0.1 - w, y0: 0.2 - h, x1: -0.1 + w, y1: 0.2 + h };
            check_all(&problem(shifted, (9, 8), 150));
        }
    }
}

#[test]
fn infinities_and_nan() {
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    for [x0, y0, x1, y1] in [
        [nan, nan, nan, nan],
        [-inf, -inf, inf, inf],
        [0.0, nan, 1.0, 1.0],
        [-1e38, -1e38, 1e38, 1e38],
        [-3e38, 0.0, 3e38, 0.1],
        [1e19, -1e19, 2e19, 1e19],
    ] {
        check_all(&problem(View { name: "wild", x0, y0, x1, y1 }, (35, 5), 100));
    }
}

#[test]
fn an_off_by_one_would_be_seen() {
    // The check of this file on a rung that is wrong in one pixel of a ragged size.
    fn wrong(problem: &Problem, out: &mut [u32]) {
        Formulation::Fused.counts(problem, out);
        out[560] += 1;
    }
    let p = problem(WHOLE, (33, 17), 64);
    let broken = CpuRung { run: wrong, ..CPU[0] };
    assert_eq!(mismatches(&run(&broken, &p), &oracle(Formulation::Fused, &p)), 1);
    assert_eq!(mismatches(&run(&CPU[0], &p), &oracle(Formulation::Fused, &p)), 0);
    // And a rung that writes nothing is wrong everywhere.
    let silent = CpuRung { run: |_, _| (), ..CPU[0] };
    assert_eq!(mismatches(&run(&silent, &p), &oracle(Formulation::Fused, &p)), 33 * 17);
}

#[test]
fn stems_are_numbered_in_order_and_unique() {
    for (i, rung) in CPU.iter().enumerate() {
        assert!(rung.stem.starts_with(&format!("cpu_{i:02}_")), "{}", rung.stem);
        assert!(!rung.what.is_empty() && rung.mix.fp() >= 4.0 && (rung.lanes)() >= 1 && rung.in_flight >= 1);
    }
    assert_eq!(CPU.iter().filter(|rung| rung.multicore).count(), 2);
}

#[test]
fn a_rung_refuses_an_output_of_another_length() {
    let p = problem(WHOLE, (8, 8), 4);
    for rung in rungs() {
        let refused = std::panic::catch_unwind(|| (rung.run)(&p, &mut [0; 63])).is_err();
        assert!(refused, "{}", rung.stem);
    }
}

/// Windows of every width around a point.
fn around(x: std::ops::Range<f32>, y: std::ops::Range<f32>) -> impl Strategy<Value = View> {
    (x, y, -20..2i32).prop_map(|(x, y, e)| {
        let half = 2f32.powi(e);
        View { name: "random", x0: x - half, y0: y - half, x1: x + half, y1: y + half }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_windows(view in around(-2.1..0.6, -1.3..1.3), width in 1..70u32, height in 1..20u32, max_iter in 0..400u32) {
        check_all(&problem(view, (width, height), max_iter));
    }

    #[test]
    fn windows_near_modulus_two(angle in 0.0..6.3f32, e in -20..-4i32, width in 1..40u32, max_iter in 30..300u32) {
        let (x, y, half) = (2.0 * angle.cos(), 2.0 * angle.sin(), 2f32.powi(e));
        let view = View { name: "circle", x0: x - half, y0: y - half, x1: x + half, y1: y + half };
        check_all(&problem(view, (width, 9), max_iter));
    }

    #[test]
    fn windows_near_minus_two(view in around(-2.001..-1.999, -0.001..0.001), max_iter in 30..300u32) {
        check_all(&problem(view, (31, 7), max_iter));
    }

    #[test]
    fn any_floats(bits in any::<[u32; 4]>(), max_iter in 0..200u32) {
        let [x0, y0, x1, y1] = bits.map(f32::from_bits);
        check_all(&problem(View { name: "bits", x0, y0, x1, y1 }, (21, 3), max_iter));
    }
}
