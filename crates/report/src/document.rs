//! The report: one machine, one build, its runs, the findings judged on them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use timing::record::{Build, Calibration, Curve, Device, Host, Run, SCHEMA};

use crate::cli::{FileError, write_file};
use crate::finding::{Finding, FindingSpec, Verdict, check_failed, judge};
use crate::study::{Measured, Skip};

/// The JSON document of one run of some studies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Version of the layout: [`SCHEMA`].
    pub schema: u32,
    /// The machine.
    pub host: Host,
    /// Its GPU, where one answered.
    #[serde(default)]
    pub device: Option<Device>,
    /// GPU driver version, or why there is none.
    #[serde(default)]
    pub driver: String,
    /// What produced the numbers.
    pub build: Build,
    /// The instrument and the ceilings.
    pub calibration: Calibration,
    /// All runs, ladder by ladder in order.
    pub runs: Vec<Run>,
    /// Sweeps.
    #[serde(default)]
    pub curves: Vec<Curve>,
    /// Verdicts.
    #[serde(default)]
    pub findings: Vec<Finding>,
    /// What a reader learns from each study, as a question.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub questions: BTreeMap<String, String>,
}

/// Why a file is not a report that can be used.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file could not be read.
    #[error("cannot read {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the operating system says.
        source: std::io::Error,
    },
    /// It is not JSON, or not of this layout.
    #[error("{} is not a Rungs report of schema {SCHEMA}: {detail}", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What does not fit.
        detail: String,
    },
    /// It is a report of another version of the layout.
    #[error("{} is a report of schema {found}; this program reads schema {SCHEMA} only", path.display())]
    Schema {
        /// The file.
        path: PathBuf,
        /// Its schema.
        found: u64,
    },
}

/// The runs of one ladder at one size: one table, one chart.
#[derive(Debug)]
pub struct Rows<'a> {
    /// Study.
    pub study: &'a str,
    /// The size.
    pub axes: &'a BTreeMap<String, String>,
    /// In the order of the ladder.
    pub runs: Vec<&'a Run>,
}

impl Rows<'_> {
    /// The size in one line: `max_iter=256, view=whole`.
    pub fn size(&self) -> String {
        size(self.axes)
    }
}

/// Axes in one line.
pub(crate) fn size(axes: &BTreeMap<String, String>) -> String {
    axes.iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>().join(", ")
}

impl Report {
    /// A report without runs.
    pub fn new(host: Host, device: Option<Device>, driver: String, build: Build) -> Self {
        let (calibration, runs, curves, findings, questions) = Default::default();
        Self { schema: SCHEMA, host, device, driver, build, calibration, runs, curves, findings, questions }
    }

    /// Reads a report and refuses whatever is not one of this schema.
    pub fn read(path: &Path) -> Result<Self, ReadError> {
        let bytes = std::fs::read(path).map_err(|source| ReadError::Io { path: path.into(), source })?;
        Self::parse(&bytes, path)
    }

    /// [`Report::read`] of bytes at hand; `path` is for messages.
    pub fn parse(bytes: &[u8], path: &Path) -> Result<Self, ReadError> {
        let foreign = |detail: String| ReadError::Foreign { path: path.into(), detail };
        let value: serde_json::Value = serde_json::from_slice(bytes).map_err(|e| foreign(format!("not JSON: {e}")))?;
        // The schema decides first: other keys of another schema may well look wrong to us.
        let schema = value.get("schema").ok_or_else(|| foreign("it has no key `schema`".into()))?;
        match schema.as_u64() {
            Some(found) if found == u64::from(SCHEMA) => {}
            Some(found) => return Err(ReadError::Schema { path: path.into(), found }),
            None => return Err(foreign("its key `schema` is not a whole number".into())),
        }
        serde_json::from_value(value).map_err(|e| foreign(e.to_string()))
    }

    /// The report as indented JSON with a final newline.
    pub fn to_json(&self) -> String {
        // Maps have string keys and no type here refuses to serialise, so this cannot fail.
        let mut json = serde_json::to_string_pretty(self).expect("a report is plain data");
        json.push('\n');
        json
    }

    /// Writes the JSON to `path`, whole or not at all.
    pub fn write(&self, path: &Path) -> Result<(), FileError> {
        write_file(path, self.to_json().as_bytes())
    }

    /// Takes in what a study measured; gives back what it left out and which checks failed.
    ///
    /// Of a calibration, what is here already stays: the runs here were judged against it.
    pub fn add(&mut self, measured: Measured) -> (Vec<Skip>, Vec<String>) {
        self.runs.extend(measured.runs);
        self.curves.extend(measured.curves);
        if self.device.is_none() && measured.device.is_some() {
            (self.device, self.driver) = (measured.device, measured.driver);
        }
        let (ours, theirs) = (&mut self.calibration, measured.calibration);
        for (ours, theirs) in [
            (&mut ours.quantum_ns, theirs.quantum_ns),
            (&mut ours.launch_ns, theirs.launch_ns),
            (&mut ours.sm_hz, theirs.sm_hz),
            (&mut ours.cpu_hz, theirs.cpu_hz),
        ] {
            if *ours == 0.0 {
                *ours = theirs;
            }
        }
        for (name, ceiling) in theirs.ceilings {
            ours.ceilings.entry(name).or_insert(ceiling);
        }
        (measured.skips, measured.failures)
    }

    /// Judges `specs`, in their order, and stores the verdicts.
    ///
    /// Findings of this report that no spec names (a study that this program does not know) stay as they were. One
    /// that was and is not applicable keeps its reason: whoever measured knew why something is not there.
    pub fn judge(&mut self, specs: &[FindingSpec]) {
        let mut judged: Vec<Finding> = specs.iter().map(|spec| judge(spec, self)).collect();
        let absent = |f: &Finding| f.verdict == Verdict::NotApplicable;
        for new in judged.iter_mut().filter(|new| absent(new)) {
            if let Some(old) = self.findings.iter().find(|old| old.id == new.id && absent(old)) {
                new.reason.clone_from(&old.reason);
            }
        }
        self.findings.retain(|f| judged.iter().all(|j| j.id != f.id));
        self.findings.splice(0..0, judged);
    }

    /// Runs whose check failed, one line each.
    pub fn failures(&self) -> Vec<String> {
        self.runs.iter().filter_map(|run| Some(format!("{}: {}", run.id, check_failed(run)?))).collect()
    }

    /// Studies in order of their first run or curve.
    pub fn studies(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for name in self.runs.iter().map(|r| r.study.as_str()).chain(self.curves.iter().map(|c| c.study.as_str())) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }

    /// The runs of `study`, one group a size, in order of appearance.
    pub fn groups<'a>(&'a self, study: &str) -> Vec<Rows<'a>> {
        let mut groups: Vec<Rows<'a>> = Vec::new();
        for run in self.runs.iter().filter(|r| r.study == study) {
            match groups.iter_mut().find(|g| *g.axes == run.axes) {
                Some(group) => group.runs.push(run),
                None => groups.push(Rows { study: &run.study, axes: &run.axes, runs: vec![run] }),
            }
        }
        groups
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use timing::record::{Ceiling, ErrorReport, Prediction};

    fn parse(text: &str) -> Result<Report, String> {
        Report::parse(text.as_bytes(), Path::new("some/file.json")).map_err(|e| e.to_string())
    }

    #[test]
    fn foreign_json_and_other_schemas_are_refused_in_one_line() {
        for (text, says) in [
            ("", "not JSON"),
            ("[1, 2]", "no key `schema`"),
            (r#"{"benchmarks": []}"#, "no key `schema`"),
            (r#"{"schema": "1"}"#, "not a whole number"),
            (r#"{"schema": -1}"#, "not a whole number"),
            (r#"{"schema": 2, "runs": 7}"#, "schema 2; this program reads schema 1 only"),
            (r#"{"schema": 1}"#, "missing field `host`"),
            (r#"{"schema": 1, "host": {}, "build": {}, "calibration": {}, "runs": 7}"#, "invalid type"),
        ] {
            let message = parse(text).unwrap_err();
            assert!(message.contains(says) && message.contains("some/file.json"), "{text}: {message}");
            assert!(message.contains("schema 1") && !message.contains('\n'), "{text}: {message}");
        }
    }

    #[test]
    fn a_missing_file_is_named_once_with_its_reason() {
        let error = anyhow::Error::from(Report::read(Path::new("no/such.json")).unwrap_err());
        let (code, message) = crate::cli::status(&error);
        let message = message.unwrap();
        assert!(code == 1 && message.starts_with("cannot read no/such.json: "), "{message}");
        assert_eq!(message.matches("os error").count(), 1, "{message}");
    }

    #[test]
    fn what_is_written_reads_back_even_where_a_value_is_not_a_number() {
        let mut report = Report::new(Host::default(), None, "none".into(), Build::default());
        report.runs.push(Run {
            id: "a".into(),
            samples_ns: vec![1.5, f64::NAN],
            counters: [("x".to_string(), f64::NAN)].into(),
            error: Some(ErrorReport { value: f64::NAN, ..ErrorReport::default() }),
            prediction: Some(Prediction { ns: f64::NAN, ..Prediction::default() }),
            median_ns: Some(f64::NAN),
            ..Run::default()
        });
        let back = parse(&report.to_json()).unwrap();
        let run = &back.runs[0];
        assert!(run.samples_ns[0] == 1.5 && run.samples_ns[1].is_nan() && run.counters["x"].is_nan());
        assert!(run.error.as_ref().unwrap().value.is_nan() && run.prediction.as_ref().unwrap().ns.is_nan());
        assert_eq!(run.median_ns, None);
    }

    #[test]
    fn what_was_calibrated_first_stays() {
        let mut report = Report::new(Host::default(), None, "none".into(), Build::default());
        let measured = |value: f64, name: &str| {
            let ceiling = Ceiling { value, ..Ceiling::default() };
            let ceilings = [("both".to_string(), ceiling.clone()), (name.to_string(), ceiling)].into();
            let calibration = Calibration { ceilings, cpu_hz: value, ..Calibration::default() };
            Measured { calibration, driver: "not taken without a device".into(), ..Measured::default() }
        };
        report.add(measured(1.0, "a"));
        report.add(measured(2.0, "b"));
        let values = ["both", "a", "b"].map(|name| report.calibration.ceilings[name].value);
        assert_eq!((values, report.calibration.cpu_hz, report.driver.as_str()), ([1.0, 1.0, 2.0], 1.0, "none"));
    }

    #[test]
    fn keys_of_later_programs_are_ignored() {
        let mut value =
            serde_json::to_value(Report::new(Host::default(), None, String::new(), Build::default())).unwrap();
        value["added_later"] = 1.into();
        assert!(parse(&value.to_string()).is_ok());
    }
}
