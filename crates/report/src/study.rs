//! What a study offers to the programs that run it.

use std::fmt;
use std::str::FromStr;

use timing::record::{Calibration, Curve, Device, Run};

use crate::cli::code;
use crate::finding::FindingSpec;

/// A ladder of rungs for one problem, with the findings that its runs can judge.
#[derive(Clone, Copy)]
pub struct Study {
    /// Name on the command line and in the JSON.
    pub name: &'static str,
    /// What a reader learns from it, as a question.
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
    /// What was measured of this machine before in this run: ceilings in here are not measured again.
    pub calibration: Calibration,
}

impl Options {
    /// Whether the rung is wanted.
    pub fn wants(&self, rung: &str) -> bool {
        self.rungs.is_empty() || self.rungs.iter().any(|r| r == rung)
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
    /// Checks that failed, one line each: such a rung has no time.
    pub failures: Vec<String>,
    /// Ceilings measured or taken over from [`Options::calibration`].
    pub calibration: Calibration,
    /// The GPU used.
    pub device: Option<Device>,
    /// Its driver's version.
    pub driver: String,
}

/// Something that did not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skip {
    /// What did not run, e.g. `cpu_02_avx512`.
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

    /// Whether the variable is set to anything but nothing or 0.
    pub fn enforced(self) -> bool {
        std::env::var_os(self.variable()).is_some_and(|v| !v.is_empty() && v != "0")
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
}
