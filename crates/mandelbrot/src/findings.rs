//! The published claims about this study and how each is judged.

use report::Report;
use report::finding::{Answer, FindingSpec, Needs, Predicate, PublishedValue, Select};
use report::study::Target;
use timing::record::Run;
use timing::stats::paired_ratio;

use crate::measure::NAME;

const NOTES: &str =
    "engineering notes \"CUDA C++, inline PTX, AVX-512 intrinsics, NVIDIA RTX 4000 Ada\", component 1 and findings";
const ADA: &str = "RTX 4000 Ada";
const NOTES_CPU: &str = "the notes' CPU, not named";

/// The size at which the claims about one lane and one warp are judged: every rung runs it.
const WHOLE: &[(&str, &str)] = &[("view", "whole"), ("max_iter", "256")];

const fn cpu(rungs: &'static [&'static str]) -> Select {
    Select::new(NAME, rungs, "cpu").at(WHOLE)
}

const fn gpu(rungs: &'static [&'static str]) -> Select {
    Select::new(NAME, rungs, "gpu").at(WHOLE)
}

/// CPU rungs on one core.
const ONE_CORE: &[&str] = &[
    "cpu_03_avx2",
    "cpu_04_avx512",
    "cpu_05_avx512_ilp",
    "cpu_06_avx512_refill",
    "cpu_07_avx512_deferred",
    "cpu_08_avx512_scaled",
];

/// GPU rungs with one pixel per thread that fill the device.
const WIDE: &[&str] = &[
    "gpu_04_whole_gpu",
    "gpu_06_lane_refill",
    "gpu_07_deferred_count",
    "gpu_08_deferred_check",
    "gpu_09_refill_deferred",
    "gpu_10_scaled",
    "gpu_11_refill_scaled",
];
/// GPU rungs with two pixels per thread, each with its one-pixel twin.
const ILP_PAIRS: [(&str, &str); 2] =
    [("gpu_02_one_warp_ilp2", "gpu_01_one_warp"), ("gpu_05_whole_gpu_ilp2", "gpu_04_whole_gpu")];

/// What the causes of the loss are looked for in.
const CAUSES: &[Select] =
    &[gpu(&["gpu_01_one_warp", "gpu_02_one_warp_ilp2", "gpu_04_whole_gpu", "gpu_05_whole_gpu_ilp2"])];
/// What the fastest rung is looked for in.
const BEST: &[Select] = &[gpu(WIDE), gpu(&[ILP_PAIRS[0].0, ILP_PAIRS[1].0])];

/// All claims, in order.
pub fn findings() -> Vec<FindingSpec> {
    let claim = |id, statement, text, ratio, machine, needs, predicate| FindingSpec {
        id,
        statement,
        source: NOTES,
        published: PublishedValue { text, ratio },
        machine,
        needs,
        predicate,
        runs: &[],
    };
    vec![
        claim(
            "mandelbrot.cpu-simd",
            "The best CPU rung on one core beats the scalar loop about tenfold.",
            "29.7 -> 2.99 ms",
            Some(29.7 / 2.99),
            NOTES_CPU,
            Needs::CPU,
            Predicate::Ratio { slow: cpu(&["cpu_00_scalar"]), fast: cpu(ONE_CORE) },
        ),
        claim(
            "mandelbrot.cpu-ilp",
            "Several pixel vectors in flight make the AVX-512 rung faster.",
            "1.6x",
            Some(1.6),
            NOTES_CPU,
            Needs::AVX512,
            Predicate::Ratio { slow: cpu(&["cpu_04_avx512"]), fast: cpu(&["cpu_05_avx512_ilp"]) },
        ),
        claim(
            "mandelbrot.gpu-simt",
            "A full warp of 32 lanes beats a single lane about 22 times.",
            "311 -> 14.1 ms",
            Some(311.0 / 14.1),
            ADA,
            Needs::GPU,
            Predicate::Ratio { slow: gpu(&["gpu_00_one_lane"]), fast: gpu(&["gpu_01_one_warp"]) },
        ),
        claim(
            "mandelbrot.gpu-ilp-hurts",
            "On one warp, two pixels per thread are slower than one.",
            "2.3x slower",
            Some(2.3),
            ADA,
            Needs::GPU,
            Predicate::Ratio { slow: gpu(&["gpu_02_one_warp_ilp2"]), fast: gpu(&["gpu_01_one_warp"]) },
        ),
        claim(
            "mandelbrot.gpu-ilp-hurts-threads",
            "With many threads, two pixels per thread lose even more.",
            "2.66x slower",
            Some(2.66),
            ADA,
            Needs::GPU,
            Predicate::Ratio { slow: gpu(&["gpu_05_whole_gpu_ilp2"]), fast: gpu(&["gpu_04_whole_gpu"]) },
        ),
        FindingSpec {
            runs: CAUSES,
            ..claim(
                "mandelbrot.gpu-ilp-causes",
                "Two pixels per thread cost twice: the two diverge, and their registers cost occupancy.",
                "two causes",
                None,
                ADA,
                Needs::GPU,
                Predicate::YesNo(two_causes),
            )
        },
        FindingSpec {
            runs: BEST,
            ..claim(
                "mandelbrot.gpu-best-no-ilp",
                "The fastest GPU rung has one pixel per thread.",
                "true",
                None,
                ADA,
                Needs::GPU,
                Predicate::YesNo(best_has_no_ilp),
            )
        },
    ]
}

fn run<'a>(report: &'a Report, stem: &'static str) -> Result<&'a Run, Answer> {
    let found = report.runs.iter().find(|r| {
        r.study == NAME
            && r.rung == stem
            && r.target == Target::Gpu.name()
            && WHOLE.iter().all(|(k, v)| r.axes.get(*k).is_some_and(|have| have == v))
    });
    found.ok_or_else(|| Answer::Missing(format!("{stem} on the GPU, whole view, 256 iterations")))
}

/// Both causes by count: the issue slots that a pair of pixels costs beyond those of its pixels one by one
/// (divergence), and the resident warps that its registers displace (occupancy).
fn two_causes(report: &Report) -> Answer {
    let mut why = Vec::new();
    let mut run_ids = Vec::new();
    let (mut divergence, mut occupancy) = (true, true);
    for (pair, single) in ILP_PAIRS {
        let (pair, single) = match (run(report, pair), run(report, single)) {
            (Ok(pair), Ok(single)) => (pair, single),
            (Err(missing), _) | (_, Err(missing)) => return missing,
        };
        let slots = |r: &Run| r.counters.get("model.issue_slots").copied().unwrap_or(f64::NAN);
        let extra = slots(pair) / slots(single);
        let (Some(of_pair), Some(of_single)) = (&pair.resources, &single.resources) else {
            return Answer::Missing(format!("registers of {} and {}", pair.rung, single.rung));
        };
        if extra.is_nan() {
            return Answer::Missing(format!("issue slots of {} and {}", pair.rung, single.rung));
        }
        // Below 2% the pairs cost what their pixels cost.
        divergence &= extra > 1.02;
        occupancy &= of_pair.occupancy < of_single.occupancy;
        why.push(format!(
            "{} issues {extra:.2}x the instructions of {} and has occupancy {:.2} with {} registers against {:.2} with {}",
            pair.rung, single.rung, of_pair.occupancy, of_pair.registers, of_single.occupancy, of_single.registers
        ));
        run_ids.extend([pair.id.clone(), single.id.clone()]);
    }
    let verdict = |cause: bool| if cause { "is there" } else { "is not" };
    why.insert(
        0,
        format!(
            "the divergence (instructions by the model) {}, the loss of occupancy (by the driver) {}",
            verdict(divergence),
            verdict(occupancy)
        ),
    );
    Answer::Decided { holds: divergence && occupancy, why: why.join("; "), run_ids }
}

fn best_has_no_ilp(report: &Report) -> Answer {
    let mut timed: Vec<(&Run, f64)> = Vec::new();
    // A rung without a time has failed its check: the verdict is inconclusive with it among the runs looked at.
    let mut run_ids = Vec::new();
    for stem in ILP_PAIRS.map(|(pair, _)| pair).into_iter().chain(WIDE.iter().copied()) {
        match run(report, stem) {
            Ok(run) => {
                run_ids.push(run.id.clone());
                timed.extend(run.median_ns.map(|ns| (run, ns)));
            }
            Err(missing) => return missing,
        }
    }
    let is_pair = |run: &Run| ILP_PAIRS.iter().any(|(pair, _)| *pair == run.rung);
    let fastest =
        |pairs: bool| timed.iter().filter(|(run, _)| is_pair(run) == pairs).min_by(|a, b| a.1.total_cmp(&b.1)).copied();
    let (Some((pair, pair_ns)), Some((single, single_ns))) = (fastest(true), fastest(false)) else {
        return Answer::Undecided {
            why: "no rung with one, or none with two pixels per thread has a time".into(),
            run_ids,
        };
    };
    let times = format!(
        "the fastest with one pixel per thread is {} with {:.1} us, with two {} with {:.1} us",
        single.rung,
        single_ns / 1e3,
        pair.rung,
        pair_ns / 1e3
    );
    match paired_ratio(&pair.samples_ns, &pair.round, &single.samples_ns, &single.round) {
        Some(ratio) if ratio.ci[0] > 1.0 || ratio.ci[1] < 1.0 => {
            Answer::Decided { holds: ratio.ci[0] > 1.0, why: times, run_ids }
        }
        _ => Answer::Undecided { why: format!("{times}: the interval of their ratio holds 1"), run_ids },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ladder::{CPU, GPU};

    #[test]
    fn findings_name_rungs_that_exist() {
        let stems: Vec<&str> = CPU.iter().map(|r| r.stem).chain(GPU.iter().map(|r| r.stem())).collect();
        for spec in findings() {
            assert!(spec.id.starts_with("mandelbrot."), "{}", spec.id);
            for rung in spec.rungs() {
                assert!(stems.contains(&rung), "{} names {rung}", spec.id);
            }
        }
        for rung in WIDE.iter().chain(ILP_PAIRS.iter().flat_map(|(a, b)| [a, b])) {
            assert!(stems.contains(rung), "{rung}");
        }
        // Every rung that fills the device is either a pair of pixels or among the others.
        let wide = GPU.iter().filter(|r| r.schedulers(132) > 4).map(|r| r.stem());
        assert!(wide.into_iter().all(|stem| WIDE.contains(&stem) || ILP_PAIRS.iter().any(|(pair, _)| *pair == stem)));
    }

    fn report(times: &[(&'static str, f64, f64, f64, u32)]) -> Report {
        let mut report = Report::new(Default::default(), Some(Default::default()), String::new(), Default::default());
        for &(stem, ns, slots, occupancy, registers) in times {
            let resources = timing::record::Resources { occupancy, registers, ..Default::default() };
            report.runs.push(Run {
                id: stem.to_string(),
                study: NAME.to_string(),
                rung: stem.to_string(),
                target: "gpu".to_string(),
                axes: WHOLE.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect(),
                median_ns: Some(ns),
                samples_ns: [0.98, 0.99, 1.0, 1.0, 1.01, 1.02].map(|f| f * ns).to_vec(),
                round: (0..6).collect(),
                counters: [("model.issue_slots".to_string(), slots)].into(),
                resources: Some(resources),
                ..Run::default()
            });
        }
        report
    }

    fn holds(answer: Answer) -> bool {
        match answer {
            Answer::Decided { holds, .. } => holds,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn both_causes_must_be_there_in_both_pairs() {
        let pairs = |extra: f64, occupancy: f64| {
            report(&[
                ("gpu_01_one_warp", 1.0, 100.0, 0.5, 32),
                ("gpu_02_one_warp_ilp2", 1.0, 100.0 * extra, occupancy, 40),
                ("gpu_04_whole_gpu", 1.0, 100.0, 0.5, 32),
                ("gpu_05_whole_gpu_ilp2", 1.0, 100.0 * extra, occupancy, 40),
            ])
        };
        assert!(holds(two_causes(&pairs(1.1, 0.4))));
        assert!(!holds(two_causes(&pairs(1.01, 0.4))));
        assert!(!holds(two_causes(&pairs(1.1, 0.5))));
        assert!(matches!(two_causes(&pairs(f64::NAN, 0.4)), Answer::Missing(_)));
        assert!(matches!(two_causes(&report(&[])), Answer::Missing(_)));
    }

    #[test]
    fn the_fastest_rung_decides() {
        let all: Vec<_> = WIDE.iter().copied().chain(ILP_PAIRS.map(|(pair, _)| pair)).collect();
        let with_best = |best: &str| {
            let times: Vec<_> = all.iter().map(|&s| (s, if s == best { 1.0 } else { 2.0 }, 1.0, 0.5, 32)).collect();
            best_has_no_ilp(&report(&times))
        };
        assert!(holds(with_best("gpu_10_scaled")));
        assert!(!holds(with_best("gpu_05_whole_gpu_ilp2")));
        assert!(matches!(best_has_no_ilp(&report(&[])), Answer::Missing(_)));
        // All equally fast: nothing is decided.
        assert!(matches!(with_best("none"), Answer::Undecided { .. }));
    }
}
