//! Two reports side by side: two machines, or two commits on one.

use std::collections::HashMap;

use timing::record::Run;
use timing::stats::{Ratio, unpaired_ratio};

use crate::document::Report;
use crate::finding::{check_failed, check_passed};

/// Two runs whose ratio stays within this factor of 1, either way, are the same: what drifts from one start of a
/// program to the next (placement, clock) is not in an interval that one start can give.
pub const MARGIN: f64 = 1.05;

/// How B stands against A.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The interval lies within [`MARGIN`] of 1.
    Same,
    /// It lies wholly below 1 / [`MARGIN`].
    Faster,
    /// It lies wholly above [`MARGIN`].
    Slower,
    /// Anything else, and whatever was throttled or not checked, or failed its check in A.
    Unclear,
    /// Its check failed in B, which is worse than any time.
    Failed,
}

impl Change {
    /// In one word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Faster => "faster",
            Self::Slower => "slower",
            Self::Unclear => "unclear",
            Self::Failed => "wrong",
        }
    }
}

/// One run that both reports have.
#[derive(Clone, Debug)]
pub struct Row<'a> {
    /// In A.
    pub a: &'a Run,
    /// In B.
    pub b: &'a Run,
    /// Time in B over time in A, unpaired.
    pub ratio: Option<Ratio>,
    /// The judgement.
    pub change: Change,
}

/// Everything that two reports have in common, and how much they have not.
///
/// What counts is every run that has times or failed its check.
#[derive(Clone, Debug)]
pub struct Comparison<'a> {
    /// In the order of A.
    pub rows: Vec<Row<'a>>,
    /// Ids of runs that only A has.
    pub only_a: Vec<&'a str>,
    /// Ids of runs that only B has.
    pub only_b: Vec<&'a str>,
    /// Ids of runs whose check failed in B, whatever A has of them.
    pub failed_b: Vec<&'a str>,
}

/// Compares two reports by the ids of their runs.
pub fn compare<'a>(a: &'a Report, b: &'a Report) -> Comparison<'a> {
    let failed = |r: &Run| check_failed(r).is_some();
    let counts = |r: &Run| !r.samples_ns.is_empty() || failed(r);
    let mut rest: HashMap<&str, &Run> = b.runs.iter().map(|r| (r.id.as_str(), r)).collect();
    let (mut rows, mut only_a) = (Vec::new(), Vec::new());
    for a in &a.runs {
        match rest.get(a.id.as_str()).copied() {
            // A count of the emulator that was right in A may be wrong in B.
            Some(b) if counts(b) && (counts(a) || failed(b)) => {
                rest.remove(a.id.as_str());
                rows.push(row(a, b));
            }
            _ if counts(a) => only_a.push(a.id.as_str()),
            _ => {}
        }
    }
    let ids = |which: &dyn Fn(&Run) -> bool| -> Vec<&'a str> {
        b.runs.iter().filter(|r| which(r)).map(|r| r.id.as_str()).collect()
    };
    let (only_b, failed_b) = (ids(&|r| counts(r) && rest.contains_key(r.id.as_str())), ids(&failed));
    Comparison { rows, only_a, only_b, failed_b }
}

fn row<'a>(a: &'a Run, b: &'a Run) -> Row<'a> {
    let ratio = unpaired_ratio(&b.samples_ns, &a.samples_ns);
    let sound = [a, b].iter().all(|r| check_passed(r) && !r.throttled());
    let change = match ratio {
        _ if check_failed(b).is_some() => Change::Failed,
        Some(ratio) if sound => change(ratio.ci),
        _ => Change::Unclear,
    };
    Row { a, b, ratio, change }
}

fn change([lo, hi]: [f64; 2]) -> Change {
    match () {
        () if lo > MARGIN && hi >= lo => Change::Slower,
        () if hi < 1.0 / MARGIN && hi >= lo => Change::Faster,
        () if lo >= 1.0 / MARGIN && hi <= MARGIN => Change::Same,
        () => Change::Unclear,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use timing::record::{Build, ErrorReport, Host};

    fn report(runs: &[(&str, f64)]) -> Report {
        let run = |&(id, ns): &(&str, f64)| Run {
            id: id.into(),
            samples_ns: (0..9).map(|i| ns * (1.0 + 0.001 * f64::from(i))).collect(),
            error: Some(ErrorReport::default()),
            ..Run::default()
        };
        let runs = runs.iter().map(run).collect();
        Report { runs, ..Report::new(Host::default(), None, String::new(), Build::default()) }
    }

    #[test]
    fn edges_of_the_margin() {
        for (ci, expected) in [
            ([0.99, 1.01], Change::Same),
            ([1.04, 1.06], Change::Unclear),
            ([1.06, 1.07], Change::Slower),
            ([0.90, 0.94], Change::Faster),
            ([0.90, 0.96], Change::Unclear),
            ([0.5, 2.0], Change::Unclear),
            ([f64::NAN, 2.0], Change::Unclear),
            ([2.0, f64::NAN], Change::Unclear),
        ] {
            assert_eq!(change(ci), expected, "{ci:?}");
        }
    }

    #[test]
    fn runs_are_matched_by_id_and_the_rest_is_named() {
        let a = report(&[("same", 10.0), ("slower", 10.0), ("gone", 10.0), ("faster", 10.0)]);
        let b = report(&[("slower", 20.0), ("same", 10.0), ("faster", 5.0), ("new", 1.0)]);
        let compared = compare(&a, &b);
        let changes: Vec<_> = compared.rows.iter().map(|r| (r.a.id.as_str(), r.change)).collect();
        assert_eq!(changes, [("same", Change::Same), ("slower", Change::Slower), ("faster", Change::Faster)]);
        assert_eq!((compared.only_a, compared.only_b), (vec!["gone"], vec!["new"]));
        let slower = compared.rows[1].ratio.unwrap();
        assert!((slower.value - 2.0).abs() < 1e-9 && slower.ci[0] > 1.9 && slower.ci[1] < 2.1);
    }

    #[test]
    fn what_was_throttled_or_is_wrong_is_unclear() {
        let (a, b) = (report(&[("x", 10.0)]), report(&[("x", 20.0)]));
        let mut throttled = b.clone();
        throttled.runs[0].flags.push("throttled".into());
        let mut wrong = b.clone();
        wrong.runs[0].error.as_mut().unwrap().value = f64::NAN;
        let mut nan = b.clone();
        nan.runs[0].samples_ns[0] = f64::NAN;
        assert_eq!(compare(&a, &b).rows[0].change, Change::Slower);
        for b in [throttled, nan] {
            assert_eq!(compare(&a, &b).rows[0].change, Change::Unclear);
        }
        assert_eq!(compare(&a, &wrong).rows[0].change, Change::Failed);
        assert_eq!(compare(&wrong, &a).rows[0].change, Change::Unclear, "right again, but there is no time before");
    }

    #[test]
    fn a_check_that_fails_in_b_counts_with_and_without_a_time_before() {
        let mut failed = report(&[]);
        let error = || ErrorReport { value: 1.0, ..ErrorReport::default() };
        let mut measured = crate::study::Measured::default();
        for id in ["timed", "counted", "new"] {
            measured.fail(Run { id: id.into(), ..Run::default() }, error());
        }
        failed.add(measured);
        let mut a = report(&[("timed", 10.0), ("counted", 10.0)]);
        a.runs[1].samples_ns.clear();
        let compared = compare(&a, &failed);
        let changes: Vec<_> = compared.rows.iter().map(|r| (r.a.id.as_str(), r.change)).collect();
        assert_eq!(changes, [("timed", Change::Failed), ("counted", Change::Failed)]);
        assert_eq!((compared.only_b, compared.failed_b), (vec!["new"], vec!["timed", "counted", "new"]));
        assert!(compare(&failed, &a).failed_b.is_empty());
    }
}
