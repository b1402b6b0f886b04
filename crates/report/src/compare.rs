//! Two reports side by side: two machines, or two commits on one.

use std::collections::HashMap;

use timing::record::Run;
use timing::stats::{Ratio, unpaired_ratio};

use crate::document::Report;
use crate::finding::check_passed;

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
    /// Anything else, and whatever was throttled or not checked.
    Unclear,
}

impl Change {
    /// In one word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Faster => "faster",
            Self::Slower => "slower",
            Self::Unclear => "unclear",
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
#[derive(Clone, Debug)]
pub struct Comparison<'a> {
    /// In the order of A.
    pub rows: Vec<Row<'a>>,
    /// Ids of timed runs that only A has.
    pub only_a: Vec<&'a str>,
    /// Ids of timed runs that only B has.
    pub only_b: Vec<&'a str>,
}

/// Compares the timed runs of two reports by id.
pub fn compare<'a>(a: &'a Report, b: &'a Report) -> Comparison<'a> {
    let timed = |report: &'a Report| report.runs.iter().filter(|r| !r.samples_ns.is_empty());
    let mut rest: HashMap<&str, &Run> = timed(b).map(|r| (r.id.as_str(), r)).collect();
    let (mut rows, mut only_a) = (Vec::new(), Vec::new());
    for a in timed(a) {
        match rest.remove(a.id.as_str()) {
            Some(b) => rows.push(row(a, b)),
            None => only_a.push(a.id.as_str()),
        }
    }
    let only_b = timed(b).map(|r| r.id.as_str()).filter(|id| rest.contains_key(id)).collect();
    Comparison { rows, only_a, only_b }
}

fn row<'a>(a: &'a Run, b: &'a Run) -> Row<'a> {
    let ratio = unpaired_ratio(&b.samples_ns, &a.samples_ns);
    let sound = [a, b].iter().all(|r| check_passed(r) && !r.throttled());
    let change = match ratio {
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
        for b in [throttled, wrong, nan] {
            assert_eq!(compare(&a, &b).rows[0].change, Change::Unclear);
        }
    }
}
