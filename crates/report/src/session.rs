//! One run of a program that measures: the report as it grows, what is printed on the way, and how it ends.
//! The default binary and the studies' own commands share it.

use std::io::{self, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::cli::{self, Exit};
use crate::document::Report;
use crate::study::{Measured, OnProgress, Progress, Requirement, Skip, StudyError, Target};
use crate::text::{clean, width, wrap};
use crate::{table, units};

/// The report of this process, with what went wrong so far: the worst decides the exit code, after everything that
/// could be measured was.
pub struct Session {
    /// What was measured.
    pub report: Report,
    failures: Vec<String>,
    skips: Vec<Skip>,
    stopped: Option<Exit>,
    asked: Option<Target>,
}

impl Session {
    /// Probes the machine and prints what it is; a GPU that was asked for (or not excluded) and is not there is the
    /// first skip. `asked` is the only target that this run is about.
    ///
    /// # Errors
    /// Only `out`'s.
    pub fn start(asked: Option<Target>, out: &mut dyn Write) -> io::Result<Self> {
        let probe = timing::probe::probe();
        let report = Report::new(probe.host.clone(), probe.device().cloned(), probe.driver(), crate::build());
        drop(probe);
        write!(out, "{}", machine(&report))?;
        let mut session = Self { report, failures: Vec::new(), skips: Vec::new(), stopped: None, asked };
        if session.report.device.is_none() {
            let reason = session.report.driver.clone();
            session.skip(Skip { what: "GPU".into(), reason, requires: Some(Requirement::Gpu) }, out)?;
        }
        Ok(session)
    }

    /// Runs one study under a progress bar and prints its tables. A study that stops is noted and stops nothing else.
    ///
    /// # Errors
    /// Only `out`'s.
    pub fn measure(
        &mut self,
        study: &str,
        work: impl FnOnce(OnProgress<'_>) -> Result<Measured, StudyError>,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let bar = progress_bar(study);
        let result = work(&mut |p: Progress| {
            bar.set_length(p.total);
            bar.set_position(p.done);
            bar.set_message(p.text);
        });
        bar.finish_and_clear();
        match result {
            Ok(measured) => {
                let (skips, failures) = self.report.add(measured);
                for skip in skips {
                    self.skip(skip, out)?;
                }
                for failure in failures {
                    write!(out, "{}", wrap(&format!("CHECK FAILED {failure}"), width(), 2))?;
                    self.failures.push(failure);
                }
                out.write_all(table::study(&self.report, study, width()).as_bytes())
            }
            Err(e) => {
                write!(out, "\n{}", wrap(&format!("{study} stopped: {e}"), width(), 2))?;
                self.stopped.get_or_insert(Exit::new(e.code(), format!("{study}: {e}")));
                Ok(())
            }
        }
    }

    /// Prints a skip, once; that there is no GPU, once for all that would need one, and where nobody asked for one it
    /// is no skip.
    fn skip(&mut self, skip: Skip, out: &mut dyn Write) -> io::Result<()> {
        let gpu = skip.requires == Some(Requirement::Gpu);
        if gpu && self.asked.is_some_and(|t| t != Target::Gpu) {
            return Ok(());
        }
        let said = |s: &Skip| *s == skip || gpu && s.requires == skip.requires && s.reason == skip.reason;
        if !self.skips.iter().any(said) {
            write!(out, "{}", wrap(&skip.to_string(), width(), 2))?;
            self.skips.push(skip);
        }
        Ok(())
    }

    /// How the program ends: with the first study that stopped, else a failed check, else an unmet `REQUIRE_*`.
    ///
    /// # Errors
    /// The [`Exit`] with its code.
    pub fn finish(self) -> Result<(), Exit> {
        if let Some(stopped) = self.stopped {
            return Err(stopped);
        }
        cli::checked(&self.failures)?;
        cli::required(&self.skips)
    }
}

/// The machine of a report, a line for each of CPU and GPU.
pub fn machine(report: &Report) -> String {
    let host = &report.host;
    let cpu = if host.cpu.is_empty() { "unnamed" } else { &host.cpu };
    let mut text = format!("CPU  {}, {}\n", clean(cpu), units::plural(host.threads, "thread"));
    if let Some(device) = &report.device {
        let (major, minor) = device.compute_capability;
        text +=
            &format!("GPU  {}, compute capability {major}.{minor}, {}\n", clean(&device.name), clean(&report.driver));
    }
    text
}

/// Hidden unless standard error is a terminal.
fn progress_bar(study: &str) -> ProgressBar {
    let bar = ProgressBar::new(0).with_prefix(study.to_string());
    if let Ok(style) = ProgressStyle::with_template("{prefix} {bar:24} {pos}/{len} {elapsed} {wide_msg}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(asked: Option<Target>, skips: &[Skip]) -> (String, usize) {
        let report = Report::new(Default::default(), None, "no driver".into(), Default::default());
        let mut session = Session { report, failures: Vec::new(), skips: Vec::new(), stopped: None, asked };
        let mut out = Vec::new();
        for skip in skips {
            session.skip(skip.clone(), &mut out).unwrap();
        }
        (String::from_utf8(out).unwrap(), session.skips.len())
    }

    #[test]
    fn a_missing_gpu_is_said_once_and_only_where_one_is_asked_for() {
        let skip = |what: &str, reason: &str, requires| Skip { what: what.into(), reason: reason.into(), requires };
        let gpu = Some(Requirement::Gpu);
        let skips = [
            skip("GPU", "no driver", gpu),
            skip("study on the GPU", "no driver", gpu),
            skip("rung", "needs sm_90a", gpu),
            skip("wide", "no driver", None),
            skip("wide", "no driver", None),
        ];
        let all = ("GPU skipped: no driver\nrung skipped: needs sm_90a\nwide skipped: no driver\n".to_string(), 3);
        assert_eq!(said(None, &skips), all);
        assert_eq!(said(Some(Target::Gpu), &skips), all);
        for other in [Target::Cpu, Target::Emulator] {
            assert_eq!(said(Some(other), &skips), ("wide skipped: no driver\n".to_string(), 1));
        }
    }
}
