//! What a study offers to the programs that run it.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use timing::check::CheckError;
use timing::record::{Calibration, Curve, Device, ErrorReport, Run};

use crate::cli::code;
use crate::finding::{FindingSpec, Select, check_passed};

/// A ladder of rungs for one problem, with the findings that its runs can judge.
#[derive(Clone, Copy)]
pub struct Study {
    /// Name on the command line and in the JSON.
    pub name: &'static str,
    /// What a reader learns from it, as a question: its subtitle.
    pub question: &'static str,
    /// Published claims, in order.
    pub findings: fn() -> Vec<FindingSpec>,
    /// Checks and times what the options ask for.
    pub measure: fn(&Options, OnProgress<'_>) -> Result<Measured, StudyError>,
}

/// Called now and then during long work.
pub type OnProgress<'a> = &'a mut dyn FnMut(Progress);

/// Where rungs run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// This machine's processor.
    Cpu,
    /// Its GPU.
    Gpu,
    /// The committed PTX under the emulator: checks and counts, no times.
    Emulator,
}

impl Target {
    /// All targets.
    pub const ALL: [Self; 3] = [Self::Cpu, Self::Gpu, Self::Emulator];

    /// `cpu`, `gpu` or `emulator`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Gpu => "gpu",
            Self::Emulator => "emulator",
        }
    }

    /// The targets of a command: the one asked for, else the CPU and the GPU, or the emulator where there is no GPU.
    pub fn chosen(asked: Option<Self>, gpu_present: bool) -> Vec<Self> {
        match asked {
            Some(target) => vec![target],
            None => vec![Self::Cpu, if gpu_present { Self::Gpu } else { Self::Emulator }],
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that is no target.
#[derive(Debug, thiserror::Error)]
#[error("the targets are cpu, gpu and emulator")]
pub struct UnknownTarget;

impl FromStr for Target {
    type Err = UnknownTarget;

    fn from_str(name: &str) -> Result<Self, UnknownTarget> {
        Self::ALL.into_iter().find(|t| t.name() == name).ok_or(UnknownTarget)
    }
}

/// What to measure.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The only target, or those of [`Target::chosen`].
    pub target: Option<Target>,
    /// The published sizes and many samples, instead of a first look.
    pub full: bool,
    /// Stems of the rungs wanted; empty means all.
    pub rungs: Vec<String>,
    /// Ids of the findings to be judged, which may ask for sizes of their own; empty means all.
    pub findings: Vec<String>,
    /// The runs that those findings look at; empty means all. See [`Options::wants_axes`].
    pub selects: Vec<Select>,
    /// What was measured of this machine before in this run: ceilings in here are not measured again.
    pub calibration: Calibration,
}

impl Options {
    /// Whether the rung is wanted.
    pub fn wants(&self, rung: &str) -> bool {
        self.rungs.is_empty() || self.rungs.iter().any(|r| r == rung)
    }

    /// Whether anything at this size is wanted of this target. A study leaves out a size that is not: nothing that is
    /// to be judged looks at it.
    ///
    /// `axes` are those that its runs would have. Peers are measured where they are, so they count for every target.
    pub fn wants_axes(&self, target: Target, axes: &BTreeMap<String, String>) -> bool {
        let here = |select: &Select| select.target == target.name() || select.target.starts_with("peer:");
        self.selects.is_empty() || self.selects.iter().any(|s| here(s) && s.fits(axes))
    }
}

/// A sign of life during long work.
#[derive(Clone, Debug)]
pub struct Progress {
    /// Steps done.
    pub done: u64,
    /// Steps in all.
    pub total: u64,
    /// What is going on.
    pub text: String,
}

/// What a study found.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// Runs, ladder by ladder in order, headline size first.
    pub runs: Vec<Run>,
    /// Sweeps.
    pub curves: Vec<Curve>,
    /// What was left out.
    pub skips: Vec<Skip>,
    /// Checks that failed, one line each: such a rung has no time. [`Measured::fail`] adds to them.
    pub failures: Vec<String>,
    /// Ceilings measured or taken over from [`Options::calibration`].
    pub calibration: Calibration,
    /// The GPU used.
    pub device: Option<Device>,
    /// Its driver's version.
    pub driver: String,
}

impl Measured {
    /// Files a rung whose check failed. `run` says which it is; what it may hold of times and rates is dropped, the
    /// error stays and the run is flagged `check_failed`. An `error` that would pass becomes NaN.
    pub fn fail(&mut self, run: Run, error: ErrorReport) {
        let passes = error.value <= error.tolerance;
        let value = if passes { f64::NAN } else { error.value };
        let Run { id, study, rung, target, axes, cache, resources, counters, mut flags, .. } = run;
        self.failures.push(format!("{id}: {}", if error.failed.is_empty() { &error.check } else { &error.failed }));
        flags.push(CHECK_FAILED.into());
        let error = Some(ErrorReport { value, ..error });
        let run = Run { id, study, rung, target, axes, cache, resources, counters, flags, error, ..Run::default() };
        debug_assert!(!check_passed(&run));
        self.runs.push(run);
    }
}

/// Flag of a run whose check failed.
pub const CHECK_FAILED: &str = "check_failed";

/// The error of a run that is not what its reference is, for [`Measured::fail`]. `check` is which check it was.
pub fn failed_check(check: impl Into<String>, wrong: &CheckError) -> ErrorReport {
    let (metric, value, tolerance) = match wrong {
        CheckError::Mismatch { mismatches, .. } => ("mismatches", *mismatches as f64, 0.0),
        CheckError::TooLarge { metric, value, tolerance } => (*metric, *value, *tolerance),
        CheckError::Length { .. } | CheckError::Empty => ("mismatches", f64::NAN, 0.0),
    };
    ErrorReport { metric: metric.into(), value, tolerance, check: check.into(), failed: wrong.to_string() }
}

/// Something that did not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skip {
    /// What did not run, e.g. `cpu_04_avx512`.
    pub what: String,
    /// Why.
    pub reason: String,
    /// The requirement that makes this skip a failure when its variable is set.
    pub requires: Option<Requirement>,
}

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} skipped: {}", self.what, self.reason)
    }
}

/// Hardware that a test machine can insist on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requirement {
    /// `REQUIRE_GPU=1`.
    Gpu,
    /// `REQUIRE_AVX512=1`.
    Avx512,
}

impl Requirement {
    /// The environment variable.
    pub fn variable(self) -> &'static str {
        match self {
            Self::Gpu => "REQUIRE_GPU",
            Self::Avx512 => "REQUIRE_AVX512",
        }
    }

    /// Whether the variable insists on it.
    pub fn enforced(self) -> bool {
        timing::probe::required(self.variable())
    }
}

/// Why a study stopped.
#[derive(Debug, thiserror::Error)]
pub enum StudyError {
    /// The options ask for something that does not exist or cannot be.
    #[error("{0}")]
    Usage(String),
    /// A file or a device could not be used.
    #[error("{0}")]
    Io(String),
    /// It went wrong while running: nothing of it can be trusted.
    #[error("{0}")]
    Failed(String),
}

impl StudyError {
    /// Exit code of the program.
    pub fn code(&self) -> u8 {
        match self {
            Self::Usage(_) => code::USAGE,
            Self::Io(_) => code::IO,
            Self::Failed(_) => code::CHECK,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_default_to_the_emulator_only_without_a_gpu() {
        assert_eq!(Target::chosen(None, true), [Target::Cpu, Target::Gpu]);
        assert_eq!(Target::chosen(None, false), [Target::Cpu, Target::Emulator]);
        assert_eq!(Target::chosen(Some(Target::Gpu), false), [Target::Gpu]);
        for target in Target::ALL {
            assert_eq!(target.name().parse::<Target>().unwrap(), target);
        }
        assert!("CPU".parse::<Target>().is_err());
    }

    #[test]
    fn sizes_that_no_finding_looks_at_are_not_wanted() {
        let axes = |view: &str| BTreeMap::from([("view".to_string(), view.to_string())]);
        let all = Options::default();
        assert!(all.wants_axes(Target::Gpu, &axes("whole")) && all.wants_axes(Target::Cpu, &BTreeMap::new()));

        let whole = Select::new("s", &["r"], "cpu").at(&[("view", "whole")]);
        let one = Options { selects: vec![whole], ..Options::default() };
        assert!(one.wants_axes(Target::Cpu, &axes("whole")));
        assert!(!one.wants_axes(Target::Gpu, &axes("whole")), "the finding is about the CPU");
        assert!(!one.wants_axes(Target::Cpu, &axes("boundary")) && !one.wants_axes(Target::Cpu, &BTreeMap::new()));

        let anywhere = Select::new("s", &["r"], "peer:x");
        let two = Options { selects: vec![whole, anywhere], ..Options::default() };
        assert!(two.wants_axes(Target::Gpu, &axes("boundary")));
    }

    #[test]
    fn a_failed_rung_keeps_its_error_and_no_time() {
        let timed = Run {
            id: "s/r@cpu[]".into(),
            rung: "r".into(),
            samples_ns: vec![1.0; 9],
            median_ns: Some(1.0),
            gflops: Some(1.0),
            percent_of_ceiling: Some(50.0),
            ..Run::default()
        };
        let wrong =
            CheckError::Mismatch { mismatches: 3, compared: 9, first: 1, expected: "5".into(), actual: "6".into() };
        let large = CheckError::TooLarge { metric: "rrmse", value: 0.5, tolerance: 0.1 };
        for (error, value) in [
            (failed_check("every pixel", &wrong), 3.0),
            (failed_check("rows", &large), 0.5),
            (failed_check("rows", &CheckError::Empty), f64::NAN),
            (ErrorReport::default(), f64::NAN),
        ] {
            let mut measured = Measured::default();
            measured.fail(timed.clone(), error.clone());
            let run = &measured.runs[0];
            assert_eq!((&*run.id, &*run.rung, &run.flags), ("s/r@cpu[]", "r", &vec!["check_failed".to_string()]));
            assert_eq!((run.n, run.median_ns, run.gflops, run.percent_of_ceiling), (0, None, None, None));
            assert!(run.samples_ns.is_empty() && !check_passed(run));
            let found = run.error.as_ref().unwrap();
            assert!(found.value == value || found.value.is_nan() && value.is_nan(), "{found:?}");
            assert_eq!((&found.check, &found.failed), (&error.check, &error.failed));
            assert_eq!(measured.failures, [format!("s/r@cpu[]: {}", error.failed)]);
        }
        assert!(failed_check("x", &wrong).failed.contains("3 of 9 elements are wrong"));
    }
}
