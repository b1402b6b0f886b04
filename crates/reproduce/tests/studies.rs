//! The program in process, on studies made up for the test: what it asks of them and how it ends.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

use report::cli;
use report::finding::{Answer, FindingSpec, Needs, Predicate, PublishedValue, Select};
use report::study::{Measured, OnProgress, Options, Progress, Requirement, Skip, Study, StudyError, Target};
use report::{Report, Verdict};
use timing::record::{Cache, Ceiling, ErrorReport, Run};

fn run(study: &str, rung: &str, ns: f64) -> Run {
    let axes = BTreeMap::new();
    let samples_ns: Vec<f64> = (0..9).map(|i| ns * (1.0 + 0.001 * f64::from(i))).collect();
    Run {
        id: Run::make_id(study, rung, "cpu", Cache::Warm, &axes),
        study: study.into(),
        rung: rung.into(),
        target: "cpu".into(),
        round: (0..9).collect(),
        n: 9,
        median_ns: timing::stats::median(&samples_ns),
        samples_ns,
        error: Some(ErrorReport { check: "made up".into(), ..ErrorReport::default() }),
        ..Run::default()
    }
}

fn spec(id: &'static str, ratio: f64, slow: &'static [&'static str], fast: &'static [&'static str]) -> FindingSpec {
    FindingSpec {
        id,
        statement: "slow takes longer",
        source: "a test",
        published: PublishedValue { text: "as the test says", ratio: Some(ratio) },
        machine: "none",
        needs: Needs::CPU,
        predicate: Predicate::Ratio { slow: Select::new("good", slow, "cpu"), fast: Select::new("good", fast, "cpu") },
        runs: &[],
    }
}

fn good_findings() -> Vec<FindingSpec> {
    let gpu = spec("good.gpu", 2.0, &["slow"], &["fast"]);
    vec![
        spec("good.holds", 2.0, &["slow"], &["fast"]),
        spec("good.direction", 20.0, &["slow"], &["fast"]),
        FindingSpec { needs: Needs { compute_capability: (99, 0), ..Needs::GPU }, ..gpu },
    ]
}

fn measure_good(options: &Options, progress: OnProgress) -> Result<Measured, StudyError> {
    progress(Progress { done: 1, total: 2, text: "half way".into() });
    let rungs = [("slow", 2e6), ("fast", 1e6), ("other", 3e6)];
    let runs = rungs.iter().filter(|(r, _)| options.wants(r)).map(|(r, ns)| run("good", r, *ns)).collect();
    let skip = Skip { what: "wide".into(), reason: "no such unit".into(), requires: None };
    let mut measured =
        Measured { runs, skips: vec![skip], calibration: options.calibration.clone(), ..Measured::default() };
    measured.calibration.ceilings.insert("cpu.copy".into(), Ceiling { value: 10.0, ok: true, ..Ceiling::default() });
    Ok(measured)
}

const GOOD: Study = Study { name: "good", question: "is it good?", findings: good_findings, measure: measure_good };

fn failing_findings() -> Vec<FindingSpec> {
    let ask = Predicate::YesNo(|report| match report.runs.iter().find(|r| r.study == "failing") {
        Some(run) => Answer::Decided { holds: false, why: "it does not".into(), run_ids: vec![run.id.clone()] },
        None => Answer::Missing("nothing ran".into()),
    });
    vec![FindingSpec { predicate: ask, ..spec("failing.claim", 2.0, &[], &[]) }]
}

fn measure_failing(options: &Options, _: OnProgress) -> Result<Measured, StudyError> {
    // What the study before measured is handed on.
    assert!(options.calibration.ceilings.is_empty() || options.calibration.ceilings.contains_key("cpu.copy"));
    let mut measured = Measured { runs: vec![run("failing", "right", 1e3)], ..Measured::default() };
    let error = ErrorReport { value: 3.0, failed: "3 pixels differ".into(), ..ErrorReport::default() };
    measured.fail(run("failing", "wrong", 1.0), error);
    Ok(measured)
}

const FAILING: Study =
    Study { name: "failing", question: "does it fail?", findings: failing_findings, measure: measure_failing };

const STOPPING: Study = Study {
    name: "stopping",
    question: "does it stop?",
    findings: Vec::new,
    measure: |_, _| Err(StudyError::Failed("the device was lost".into())),
};

struct Ended {
    code: u8,
    message: Option<String>,
    text: String,
    report: Option<Report>,
}

/// Runs with both files in a folder of its own.
fn reproduce(studies: &[Study], args: &[&str]) -> Ended {
    let folder = tempfile::tempdir().unwrap();
    let (json, html) = (folder.path().join("r.json"), folder.path().join("r.html"));
    let mut all = vec!["reproduce".into(), "--json".into(), json.clone().into(), "--html".into(), html.clone().into()];
    all.extend(args.iter().map(Into::into));
    let mut out = Vec::new();
    let result = reproduce::run(all, studies, &mut out);
    let (code, message) = result.as_ref().err().map_or((0, None), cli::status);
    let report = json.exists().then(|| Report::read(&json).unwrap());
    assert_eq!(report.is_some(), html.exists());
    Ended { code, message, text: String::from_utf8(out).unwrap(), report }
}

fn verdicts(report: &Report) -> Vec<(&str, Verdict)> {
    report.findings.iter().map(|f| (f.id.as_str(), f.verdict)).collect()
}

#[test]
fn a_good_study_ends_with_0_and_its_findings_are_judged() {
    let ended = reproduce(&[GOOD], &["--on", "cpu", "--require-findings"]);
    assert_eq!((ended.code, ended.message), (0, None));
    let report = ended.report.unwrap();
    assert_eq!(
        verdicts(&report),
        [
            ("good.holds", Verdict::Reproduced),
            ("good.direction", Verdict::DirectionOnly),
            ("good.gpu", Verdict::NotApplicable),
        ]
    );
    assert_eq!(report.calibration.ceilings["cpu.copy"].value, 10.0);
    for says in ["wide skipped: no such unit", "slow ", "2.00x", "direction only", "report: "] {
        assert!(ended.text.contains(says), "{says} in {}", ended.text);
    }
}

#[test]
fn a_failed_check_ends_with_3_after_the_report_is_written() {
    let ended = reproduce(&[GOOD, FAILING], &["--on", "cpu"]);
    assert_eq!(ended.code, 3);
    assert!(ended.message.unwrap().contains("3 pixels differ"));
    assert!(ended.text.contains("CHECK FAILED failing/wrong"));
    let line = ended.text.lines().find(|l| l.starts_with(" wrong")).unwrap();
    assert!(line.contains("FAIL") && !line.contains("ns"), "{line}");
    let report = ended.report.unwrap();
    assert_eq!(report.runs.len(), 5);
    let wrong = report.runs.iter().find(|r| r.rung == "wrong").unwrap();
    assert_eq!((wrong.n, wrong.median_ns, wrong.flags.join(" ").as_str()), (0, None, "check_failed"));
    assert_eq!(wrong.error.as_ref().unwrap().failed, "3 pixels differ");
    assert_eq!(report.questions["failing"], "does it fail?");
}

fn call(studies: &[Study], args: &[&str]) -> (u8, String, String) {
    let mut out = Vec::new();
    let args = ["reproduce"].iter().chain(args).map(Into::into).collect::<Vec<_>>();
    let result = reproduce::run(args, studies, &mut out);
    let (code, message) = result.as_ref().err().map_or((0, None), cli::status);
    (code, message.unwrap_or_default(), String::from_utf8(out).unwrap())
}

#[test]
fn a_failed_check_ends_with_3_when_replayed_or_compared_too() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let (good, failed, page) = (at("good.json"), at("failed.json"), at("page.html"));
    const RIGHT: Study = Study {
        measure: |_, _| {
            let runs = vec![run("failing", "right", 1e3), run("failing", "wrong", 1.0)];
            Ok(Measured { runs, ..Measured::default() })
        },
        ..FAILING
    };
    assert_eq!(call(&[RIGHT], &["--on", "cpu", "--json", &good, "--html", &page]).0, 0);
    assert_eq!(call(&[FAILING], &["--on", "cpu", "--json", &failed, "--html", &page]).0, 3);
    let (code, message, text) = call(&[FAILING], &["--replay", &failed, "--html", &page]);
    assert!(code == 3 && message == "a check failed: failing/wrong@cpu[]: 3 pixels differ", "{message}");
    assert!(text.contains(" wrong on cpu: 3 pixels differ\n"), "{text}");
    let (code, message, text) = call(&[], &["--compare", &good, &failed]);
    assert!(code == 3 && message == "in B a check failed: failing/wrong@cpu[]", "{message}");
    assert!(text.contains(" 1 wrong (beyond"), "{text}");
    let (code, _, text) = call(&[], &["--compare", &failed, &good]);
    assert!(code == 0 && text.contains(" 1 unclear"), "{text}");
}

#[test]
fn a_finding_on_a_failed_rung_is_inconclusive_and_says_why() {
    const WRONG: Study = Study {
        measure: |_, _| {
            let mut measured = Measured { runs: vec![run("good", "slow", 2e6)], ..Measured::default() };
            let error = ErrorReport { value: 3.0, failed: "3 pixels differ".into(), ..ErrorReport::default() };
            measured.fail(run("good", "fast", 1e6), error);
            Ok(measured)
        },
        ..GOOD
    };
    let ended = reproduce(&[WRONG], &["--finding", "good.holds"]);
    let report = ended.report.unwrap();
    assert_eq!((ended.code, verdicts(&report)), (3, vec![("good.holds", Verdict::Inconclusive)]));
    assert_eq!(report.findings[0].reason, "good/fast@cpu[] failed its check: 3 pixels differ");
}

#[test]
fn a_finding_that_on_leaves_out_is_not_applicable_and_says_why() {
    let never = Study { measure: |_, _| panic!("nothing of this can be judged"), ..GOOD };
    let ended = reproduce(&[never], &["--finding", "good.holds", "--on", "emulator"]);
    let report = ended.report.unwrap();
    assert_eq!((ended.code, verdicts(&report)), (0, vec![("good.holds", Verdict::NotApplicable)]));
    let reason = "it is about runs on cpu, which --on emulator leaves out";
    assert!(report.findings[0].reason == reason && ended.text.contains(reason), "{}", ended.text);
    let report = reproduce(&[GOOD], &["--on", "cpu"]).report.unwrap();
    assert_eq!(report.findings[2].reason, "it is about runs on gpu, which --on cpu leaves out");
}

#[test]
fn an_unmet_finding_ends_with_4_only_where_it_is_required() {
    const UNMET: Study = Study {
        measure: |_, _| Ok(Measured { runs: vec![run("failing", "right", 1.0)], ..Measured::default() }),
        ..FAILING
    };
    assert_eq!(reproduce(&[UNMET], &["--on", "cpu"]).code, 0);
    let ended = reproduce(&[UNMET], &["--on", "cpu", "--require-findings"]);
    assert_eq!(ended.code, 4);
    assert!(ended.message.unwrap().contains("failing.claim (not_reproduced)"));
}

#[test]
fn a_study_that_stops_does_not_stop_the_others() {
    let ended = reproduce(&[STOPPING, GOOD], &["--on", "cpu"]);
    assert_eq!(ended.code, 3);
    assert!(ended.message.unwrap().contains("the device was lost"));
    assert_eq!(ended.report.unwrap().runs.len(), 3);
}

#[test]
fn studies_and_findings_are_chosen_by_name() {
    let ended = reproduce(&[GOOD, FAILING], &["--on", "cpu", "--study", "good"]);
    assert_eq!((ended.code, ended.report.unwrap().studies()), (0, vec!["good"]));

    let ended = reproduce(&[GOOD, FAILING], &["--finding", "good.holds"]);
    let report = ended.report.unwrap();
    let rungs: Vec<_> = report.runs.iter().map(|r| r.rung.as_str()).collect();
    assert_eq!((rungs, verdicts(&report)), (vec!["slow", "fast"], vec![("good.holds", Verdict::Reproduced)]));
    for says in ["good.holds: reproduced", "claim      slow takes longer", "source     a test", "measured   2.00x"] {
        assert!(ended.text.contains(says), "{says} in {}", ended.text);
    }
}

#[test]
fn unknown_names_end_with_2_and_the_nearest() {
    for (args, says) in [
        (["--study", "goood"], "did you mean `good`?"),
        (["--study", "x"], "no study `x`; there is good, failing"),
        (["--finding", "good.hold"], "did you mean `good.holds`?"),
        (["--on", "tpu"], "cpu, gpu and emulator"),
    ] {
        let ended = reproduce(&[GOOD, FAILING], &args);
        let message = ended.message.unwrap();
        assert!(ended.code == 2 && message.contains(says) && !message.contains('\n'), "{message}");
        assert!(ended.report.is_none());
    }
}

#[test]
fn findings_are_listed_without_measuring() {
    let list = |args: &[&str]| {
        let mut out = Vec::new();
        let args = ["reproduce", "--list-findings"].iter().chain(args).map(Into::into).collect::<Vec<_>>();
        reproduce::run(args, &[GOOD, FAILING], &mut out).unwrap();
        String::from_utf8(out).unwrap()
    };
    let all = list(&[]);
    assert!(["good.holds", "good.direction", "good.gpu", "failing.claim"].iter().all(|id| all.contains(id)), "{all}");
    assert!(!list(&["--study", "good"]).contains("failing.claim"));
}

#[test]
fn a_replay_judges_the_same_and_keeps_what_it_does_not_know() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let run = |studies: &[Study], args: &[&str]| {
        let mut out = Vec::new();
        let args = ["reproduce"].iter().chain(args).map(Into::into).collect::<Vec<_>>();
        reproduce::run(args, studies, &mut out).map(|()| String::from_utf8(out).unwrap())
    };
    let (first, page, again) = (at("first.json"), at("page.html"), at("again.json"));
    run(&[GOOD], &["--on", "cpu", "--json", &first, "--html", &page]).unwrap();
    let text = run(&[GOOD, FAILING], &["--replay", &first, "--json", &again, "--html", &page]).unwrap();
    assert!(text.contains("good.holds") && !text.contains("failing.claim"), "{text}");
    assert_eq!(Report::read(Path::new(&first)).unwrap(), Report::read(Path::new(&again)).unwrap());

    run(&[], &["--replay", &first, "--json", &again, "--html", &page]).unwrap();
    assert_eq!(Report::read(Path::new(&again)).unwrap().findings.len(), 3);
}

#[test]
fn a_replay_of_one_finding_keeps_the_others_and_says_what_is_not_there() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let (first, page, again) = (at("first.json"), at("page.html"), at("again.json"));
    assert_eq!(call(&[GOOD], &["--on", "cpu", "--json", &first, "--html", &page]).0, 0);
    let replay = |studies: &[Study], args: &[&str]| {
        call(studies, &[&["--replay", &first, "--html", &page, "--json", &again], args].concat())
    };
    let (code, _, text) = replay(&[GOOD], &["--finding", "good.direction"]);
    assert!(code == 0 && text.contains("good.direction: direction only") && !text.contains("good.holds:"), "{text}");
    assert!(text.contains(&format!("report: {again} and {page}\n")), "{text}");
    assert_eq!(Report::read(Path::new(&again)).unwrap().findings.len(), 3);
    assert!(std::fs::read_to_string(&page).unwrap().contains("good.holds"));

    let both = [GOOD, FAILING];
    let (code, _, text) = replay(&both, &["--finding", "failing.claim"]);
    assert!(code == 0 && text.contains("not judged: failing.claim: "), "{text}");
    assert!(text.replace("\n  ", " ").contains("has no runs of failing"), "{text}");
    let (code, message, _) = replay(&both, &["--finding", "failing.claim", "--require-findings"]);
    assert!(code == 4 && message.contains("not judged: failing.claim"), "{message}");
    let (code, message, _) = replay(&both, &["--finding", "failing.clam", "--require-findings"]);
    assert!(code == 2 && message.contains("did you mean `failing.claim`?"), "{message}");
    // A finding of a study that this program does not know is known by the report.
    let (code, _, text) = replay(&[], &["--finding", "good.holds", "--require-findings"]);
    assert!(code == 0 && text.contains("good.holds: reproduced"), "{text}");
}

#[test]
fn findings_are_listed_with_everything_that_they_say() {
    let (code, _, text) = call(&[GOOD], &["--list-findings"]);
    let lines: Vec<_> = text.lines().collect();
    assert_eq!((code, lines.len()), (0, 6), "{text}");
    assert_eq!(lines[4..], [" good.gpu        as the test says on none", "    slow takes longer"]);
}

#[test]
fn a_skip_counts_as_a_failure_only_under_its_variable() {
    let skip = |requires| [Skip { what: "w".into(), reason: "r".into(), requires }];
    assert!(cli::required(&skip(None)).is_ok());
    for requirement in [Requirement::Gpu, Requirement::Avx512] {
        assert_eq!(cli::required(&skip(Some(requirement))).is_err(), requirement.enforced());
    }
}

#[test]
fn options_carry_the_target_of_a_finding() {
    const ASKS: Study = Study {
        measure: |options, _| {
            assert_eq!(options.target, Some(Target::Cpu));
            assert_eq!((options.rungs.len(), options.findings.len(), options.selects.len()), (2, 1, 2));
            assert!(options.selects.iter().all(|s| s.study == "good" && s.target == "cpu"));
            Ok(Measured::default())
        },
        ..GOOD
    };
    let ended = reproduce(&[ASKS], &["--finding", "good.direction"]);
    assert_eq!(verdicts(&ended.report.unwrap()), [("good.direction", Verdict::NotApplicable)]);
}

/// A pipe that closes after some bytes.
struct Closing(usize);

impl Write for Closing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::BrokenPipe)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_pipe_may_close_anywhere() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).into_os_string();
    let files = ["--json".into(), at("r.json"), "--html".into(), at("r.html"), "--on".into(), "cpu".into()];
    let args = || std::iter::once("reproduce".into()).chain(files.clone());
    let mut closed = 0;
    for bytes in (0..2000).step_by(100) {
        if let Err(e) = reproduce::run(args(), &[GOOD], &mut Closing(bytes)) {
            assert_eq!(cli::status(&e), (0, None), "after {bytes} bytes");
            closed += 1;
        }
    }
    assert!(closed > 5);
}
