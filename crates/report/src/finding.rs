//! Findings: published claims, judged on the runs of a report.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use timing::record::{Cache, Run};
use timing::stats::paired_ratio;

use crate::document::Report;
use crate::study::Target;
use crate::units;

/// A ratio within this factor of the published one, below and above, counts as the same.
pub const BAND: [f64; 2] = [0.8, 1.25];

/// What the machine at hand says to a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The 95% interval lies inside the published ratio x [`BAND`]; or the statement, or the exact count, holds.
    Reproduced,
    /// The interval lies on the claimed side of 1, but not inside the band.
    DirectionOnly,
    /// The interval lies wholly on the other side of 1; or the statement, or the exact count, does not hold.
    NotReproduced,
    /// Anything else, and whatever was throttled.
    Inconclusive,
    /// This machine, or this run, lacks what the claim is about.
    NotApplicable,
}

impl Verdict {
    /// The name in the JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Reproduced => "reproduced",
            Self::DirectionOnly => "direction_only",
            Self::NotReproduced => "not_reproduced",
            Self::Inconclusive => "inconclusive",
            Self::NotApplicable => "not_applicable",
        }
    }

    /// Whether the claim stands on this machine, at least in direction, or is not about it.
    pub fn holds_or_does_not_apply(self) -> bool {
        matches!(self, Self::Reproduced | Self::DirectionOnly | Self::NotApplicable)
    }
}

/// A judged finding, as the JSON keeps it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// `study.name`.
    pub id: String,
    /// The claim.
    pub statement: String,
    /// Where it was published.
    pub source: String,
    /// What was published.
    pub published: Published,
    /// Our ratio or count; none for statements and where nothing could be measured.
    pub measured: Option<f64>,
    /// 95% interval of a ratio.
    pub ci: Option<[f64; 2]>,
    /// The judgement.
    pub verdict: Verdict,
    /// Why, in one line.
    pub reason: String,
    /// The runs it rests on.
    pub run_ids: Vec<String>,
}

/// A published value in the JSON.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Published {
    /// As published, with units.
    pub text: String,
    /// As a ratio slow time / fast time, where it is one.
    pub ratio: Option<f64>,
    /// Where it was measured.
    pub machine: String,
}

/// A published value in a definition.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PublishedValue {
    /// As published, with units.
    pub text: &'static str,
    /// As a ratio slow time / fast time; [`Predicate::Ratio`] needs it.
    pub ratio: Option<f64>,
}

/// One claim and how it is judged.
#[derive(Clone, Copy, Debug)]
pub struct FindingSpec {
    /// `study.name`.
    pub id: &'static str,
    /// The claim in our own words.
    pub statement: &'static str,
    /// Where it was published.
    pub source: &'static str,
    /// What was published.
    pub published: PublishedValue,
    /// The machine it was published for.
    pub machine: &'static str,
    /// What a machine must have.
    pub needs: Needs,
    /// How it is judged.
    pub predicate: Predicate,
    /// Runs that must be there for it; empty means those that the predicate names, or all where it names none.
    pub runs: &'static [Select],
}

impl FindingSpec {
    /// The runs that must be there to judge this; empty means all.
    pub fn selects(&self) -> Vec<Select> {
        match &self.predicate {
            _ if !self.runs.is_empty() => self.runs.to_vec(),
            Predicate::Ratio { slow, fast } => vec![*slow, *fast],
            Predicate::Count { run, .. } => vec![*run],
            Predicate::YesNo(_) => Vec::new(),
        }
    }

    /// Stems of the rungs that must run to judge this; empty means all.
    pub fn rungs(&self) -> Vec<&'static str> {
        self.selects().iter().flat_map(|s| s.rungs).copied().collect()
    }

    /// The one target that this is about, if it is about one.
    pub fn target(&self) -> Option<Target> {
        self.needs.target.or_else(|| {
            let mut targets = self.selects().into_iter().map(|s| s.target.parse::<Target>().ok());
            let first = targets.next()??;
            targets.all(|t| t == Some(first)).then_some(first)
        })
    }
}

/// What a machine must have for a claim to be about it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Needs {
    /// Target of the runs; `gpu` needs a GPU.
    pub target: Option<Target>,
    /// CPU features as [`timing::record::Host::features`] names them.
    pub features: &'static [&'static str],
    /// Lowest compute capability of the GPU.
    pub compute_capability: (u32, u32),
}

impl Needs {
    /// Nothing.
    pub const NONE: Self = Self { target: None, features: &[], compute_capability: (0, 0) };
    /// Any CPU.
    pub const CPU: Self = Self { target: Some(Target::Cpu), ..Self::NONE };
    /// A CPU with the foundation of AVX-512.
    pub const AVX512: Self = Self { features: &["avx512f"], ..Self::CPU };
    /// Any GPU.
    pub const GPU: Self = Self { target: Some(Target::Gpu), ..Self::NONE };

    /// What the machine of the report lacks.
    pub fn missing(&self, report: &Report) -> Option<String> {
        if let Some(feature) = self.features.iter().find(|f| report.host.features.iter().all(|h| h != *f)) {
            return Some(format!("needs a CPU with {feature}"));
        }
        if self.target != Some(Target::Gpu) {
            return None;
        }
        let (major, minor) = self.compute_capability;
        match &report.device {
            None if report.driver.is_empty() => Some("needs a GPU".into()),
            None => Some(format!("needs a GPU ({})", report.driver)),
            Some(device) if device.compute_capability < self.compute_capability => {
                let (has_major, has_minor) = device.compute_capability;
                Some(format!("needs compute capability {major}.{minor}; {} has {has_major}.{has_minor}", device.name))
            }
            Some(_) => None,
        }
    }
}

/// How a claim is judged.
#[derive(Clone, Copy, Debug)]
pub enum Predicate {
    /// The paired ratio slow time / fast time against the published one.
    Ratio {
        /// The run that is claimed to take `ratio` times as long ...
        slow: Select,
        /// ... as this one.
        fast: Select,
    },
    /// A statement that holds or does not.
    YesNo(fn(&Report) -> Answer),
    /// A counter that has one value exactly.
    Count {
        /// The run.
        run: Select,
        /// Name of its counter.
        counter: &'static str,
        /// The value.
        expected: f64,
    },
}

/// Answer to a yes/no claim.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// It was decided.
    Decided {
        /// Whether the statement holds.
        holds: bool,
        /// What was seen, in one line.
        why: String,
        /// The runs looked at: if one was throttled or unchecked the verdict is inconclusive.
        run_ids: Vec<String>,
    },
    /// The measurements do not decide it.
    Undecided {
        /// Why not, in one line.
        why: String,
        /// The runs looked at.
        run_ids: Vec<String>,
    },
    /// Something that it needs was not measured: what.
    Missing(String),
}

/// Names runs of a report.
#[derive(Clone, Copy, Debug)]
pub struct Select {
    /// Study.
    pub study: &'static str,
    /// One stem, or several of which the fastest counts.
    pub rungs: &'static [&'static str],
    /// `cpu`, `gpu`, `emulator` or `peer:NAME`.
    pub target: &'static str,
    /// Values that axes must have; other axes may have any.
    pub axes: &'static [(&'static str, &'static str)],
    /// Cache state.
    pub cache: Cache,
}

impl Select {
    /// Runs of these rungs with a warm cache, at any size. Of several rungs the fastest counts.
    pub const fn new(study: &'static str, rungs: &'static [&'static str], target: &'static str) -> Self {
        Self { study, rungs, target, axes: &[], cache: Cache::Warm }
    }

    /// Only at this size.
    pub const fn at(self, axes: &'static [(&'static str, &'static str)]) -> Self {
        Self { axes, ..self }
    }

    /// Only with a cold cache.
    pub const fn cold(self) -> Self {
        Self { cache: Cache::Cold, ..self }
    }

    /// Whether the run is one of these.
    pub fn matches(&self, run: &Run) -> bool {
        run.study == self.study
            && self.rungs.contains(&run.rung.as_str())
            && run.target == self.target
            && run.cache == self.cache
            && self.fits(&run.axes)
    }

    /// Whether a run of this size can be one of these.
    pub fn fits(&self, axes: &BTreeMap<String, String>) -> bool {
        self.axes.iter().all(|(k, v)| axes.get(*k).is_some_and(|have| have == v))
    }

    /// All such runs, in the order of the report.
    pub fn all<'a>(&self, report: &'a Report) -> Vec<&'a Run> {
        report.runs.iter().filter(|r| self.matches(r)).collect()
    }

    fn describe(&self) -> String {
        let axes: Vec<String> = self.axes.iter().map(|(k, v)| format!(" {k}={v}")).collect();
        format!("{} on {}{}", self.rungs.join(" or "), self.target, axes.concat())
    }
}

/// Whether the run's result was compared with its reference and agreed. A NaN error does not.
pub fn check_passed(run: &Run) -> bool {
    run.error.as_ref().is_some_and(|e| e.value <= e.tolerance)
}

/// What was wrong with a run whose check failed, in one line; `None` where it passed or nobody checked.
pub fn check_failed(run: &Run) -> Option<String> {
    let error = run.error.as_ref().filter(|_| !check_passed(run))?;
    let number = |x: f64| if x.is_nan() { "not a number".into() } else { units::count(x) };
    Some(match () {
        () if !error.failed.is_empty() => error.failed.clone(),
        () if error.metric.is_empty() => error.check.clone(),
        () => format!("{} is {}, allowed is {}", error.metric, number(error.value), number(error.tolerance)),
    })
}

/// What forbids a conclusion from this run.
fn doubt(run: &Run) -> Option<String> {
    if let Some(wrong) = check_failed(run) {
        return Some(format!("{} failed its check: {wrong}", run.id).trim_end_matches(": ").to_string());
    }
    if !check_passed(run) {
        return Some(format!("{} was not checked", run.id));
    }
    if run.throttled() {
        return Some(format!("{} was throttled", run.id));
    }
    if run.flags.iter().any(|f| f == "below_quantum") {
        return Some(format!("{} is shorter than the timer can tell", run.id));
    }
    None
}

/// Verdict on a ratio from its 95% interval.
pub fn ratio_verdict(published: f64, [lo, hi]: [f64; 2]) -> Verdict {
    let inside = published * BAND[0] <= lo && lo <= hi && hi <= published * BAND[1];
    let (above, below) = (lo > 1.0 && hi >= lo, hi < 1.0 && hi >= lo);
    let (claimed, other) = if published > 1.0 { (above, below) } else { (below, above) };
    // The other side comes first: for a published 1.05x the band reaches below 1, and a loss is no reproduction.
    match () {
        () if other => Verdict::NotReproduced,
        () if inside => Verdict::Reproduced,
        () if claimed => Verdict::DirectionOnly,
        () => Verdict::Inconclusive,
    }
}

/// Judges one claim on the runs of a report.
pub fn judge(spec: &FindingSpec, report: &Report) -> Finding {
    let outcome = match spec.needs.missing(report) {
        Some(missing) => Outcome::new(Verdict::NotApplicable, missing),
        None => match &spec.predicate {
            Predicate::Ratio { slow, fast } => judge_ratio(spec.published.ratio, slow, fast, report),
            Predicate::YesNo(ask) => judge_answer(ask(report), report),
            Predicate::Count { run, counter, expected } => judge_count(run, counter, *expected, report),
        },
    };
    Finding {
        id: spec.id.into(),
        statement: spec.statement.into(),
        source: spec.source.into(),
        published: Published {
            text: spec.published.text.into(),
            ratio: spec.published.ratio,
            machine: spec.machine.into(),
        },
        measured: outcome.measured.filter(|m| m.is_finite()),
        ci: outcome.ci.filter(|ci| ci.iter().all(|c| c.is_finite())),
        verdict: outcome.verdict,
        reason: outcome.reason,
        run_ids: outcome.run_ids,
    }
}

struct Outcome {
    verdict: Verdict,
    reason: String,
    measured: Option<f64>,
    ci: Option<[f64; 2]>,
    run_ids: Vec<String>,
}

impl Outcome {
    fn new(verdict: Verdict, reason: impl Into<String>) -> Self {
        Self { verdict, reason: reason.into(), measured: None, ci: None, run_ids: Vec::new() }
    }

    fn of(self, runs: &[&Run]) -> Self {
        Self { run_ids: runs.iter().map(|r| r.id.clone()).collect(), ..self }
    }
}

fn judge_ratio(published: Option<f64>, slow: &Select, fast: &Select, report: &Report) -> Outcome {
    let (slow, fast) = match pair(slow, fast, report) {
        Ok(pair) => pair,
        Err(missing) => return Outcome::new(Verdict::NotApplicable, missing),
    };
    let runs = [slow, fast];
    let measured = paired_ratio(&slow.samples_ns, &slow.round, &fast.samples_ns, &fast.round);
    let outcome = |verdict, reason: String| Outcome {
        measured: measured.map(|r| r.value),
        ci: measured.map(|r| r.ci),
        ..Outcome::new(verdict, reason).of(&runs)
    };
    if let Some(doubt) = runs.iter().find_map(|r| doubt(r)) {
        return outcome(Verdict::Inconclusive, doubt);
    }
    if let Some(run) = runs.iter().find(|r| r.samples_ns.is_empty()) {
        return outcome(Verdict::NotApplicable, format!("{} has no times", run.id));
    }
    let Some(ratio) = measured else {
        return outcome(Verdict::Inconclusive, "the samples make too few pairs, or are not all positive times".into());
    };
    let Some(published) = published.filter(|p| p.is_finite() && *p > 0.0 && *p != 1.0) else {
        return outcome(Verdict::Inconclusive, "no published ratio takes a side".into());
    };
    let verdict = ratio_verdict(published, ratio.ci);
    let band = BAND.map(|b| units::digits(published * b)).join(" to ");
    let side = if published > 1.0 { "above" } else { "below" };
    let reason = match verdict {
        Verdict::Reproduced => format!("the interval lies within {band}"),
        Verdict::DirectionOnly => format!("the interval lies {side} 1, but not within {band}"),
        Verdict::NotReproduced => format!("the interval lies wholly on the other side of 1, not {side} it"),
        _ => format!("the interval reaches across 1, and beyond {band}"),
    };
    outcome(verdict, reason)
}

/// The runs of a ratio: the first size that both sides have, and there the fastest of each side that can be used.
fn pair<'a>(slow: &Select, fast: &Select, report: &'a Report) -> Result<(&'a Run, &'a Run), String> {
    let (slows, fasts) = (slow.all(report), fast.all(report));
    for (select, runs) in [(slow, &slows), (fast, &fasts)] {
        if runs.is_empty() {
            return Err(format!("there is no run of {}", select.describe()));
        }
    }
    // Axes that a side fixes may differ between the sides; all others must be the same on both.
    let fixed: Vec<&str> = slow.axes.iter().chain(fast.axes).map(|(k, _)| *k).collect();
    let size = |run: &'a Run| -> Vec<_> { run.axes.iter().filter(|(k, _)| !fixed.contains(&k.as_str())).collect() };
    let at = |runs: &[&'a Run], size_wanted: &[(&String, &String)]| -> Option<&'a Run> {
        let same: Vec<&Run> = runs.iter().copied().filter(|r| size(r) == size_wanted).collect();
        let timed = same.iter().copied().filter(|r| check_passed(r) && r.median_ns.is_some_and(f64::is_finite));
        timed.min_by(|a, b| a.median_ns.partial_cmp(&b.median_ns).expect("finite")).or(same.first().copied())
    };
    slows
        .iter()
        .find_map(|s| {
            let size = size(s);
            Some((at(&slows, &size)?, at(&fasts, &size)?))
        })
        .ok_or_else(|| format!("{} and {} have no size in common", slow.describe(), fast.describe()))
}

fn judge_answer(answer: Answer, report: &Report) -> Outcome {
    let (verdict, why, run_ids) = match answer {
        Answer::Missing(what) => return Outcome::new(Verdict::NotApplicable, what),
        Answer::Undecided { why, run_ids } => (Verdict::Inconclusive, why, run_ids),
        Answer::Decided { holds: true, why, run_ids } => (Verdict::Reproduced, why, run_ids),
        Answer::Decided { holds: false, why, run_ids } => (Verdict::NotReproduced, why, run_ids),
    };
    let doubts = report.runs.iter().filter(|r| run_ids.contains(&r.id)).find_map(doubt);
    let (verdict, reason) = match doubts {
        Some(doubt) => (Verdict::Inconclusive, format!("{why}; but {doubt}")),
        None => (verdict, why),
    };
    Outcome { run_ids, ..Outcome::new(verdict, reason) }
}

fn judge_count(select: &Select, counter: &str, expected: f64, report: &Report) -> Outcome {
    let runs = select.all(report);
    let Some((run, value)) = runs.iter().find_map(|r| Some((*r, *r.counters.get(counter)?))) else {
        return Outcome::new(Verdict::NotApplicable, format!("there is no {counter} of {}", select.describe()));
    };
    let (verdict, reason) = match () {
        // A clock held down does not change a count, so only the check matters here.
        () if !check_passed(run) => (Verdict::Inconclusive, doubt(run).unwrap_or_default()),
        () if value == expected => (Verdict::Reproduced, format!("{counter} is {} exactly", units::count(value))),
        () => {
            let (value, expected) = (units::count(value), units::count(expected));
            (Verdict::NotReproduced, format!("{counter} is {value}, not {expected}"))
        }
    };
    Outcome { measured: Some(value), ..Outcome::new(verdict, reason).of(&[run]) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use timing::record::{Build, Device, ErrorReport, Host};

    const SLOW: Select = Select::new("s", &["slow"], "cpu");
    const FAST: Select = Select::new("s", &["fast"], "cpu");

    fn run(rung: &str, samples_ns: &[f64]) -> Run {
        let axes = [("size".to_string(), "1".to_string())].into();
        Run {
            id: Run::make_id("s", rung, "cpu", Cache::Warm, &axes),
            study: "s".into(),
            rung: rung.into(),
            target: "cpu".into(),
            axes,
            samples_ns: samples_ns.to_vec(),
            round: (0..samples_ns.len() as u32).collect(),
            n: samples_ns.len(),
            median_ns: timing::stats::median(samples_ns),
            error: Some(ErrorReport { metric: "mismatches".into(), ..ErrorReport::default() }),
            ..Run::default()
        }
    }

    fn report(runs: Vec<Run>) -> Report {
        Report { runs, ..Report::new(Host::default(), None, "no driver".into(), Build::default()) }
    }

    fn spec(published: f64, predicate: Predicate) -> FindingSpec {
        FindingSpec {
            id: "s.claim",
            statement: "slow is slower",
            source: "a test",
            published: PublishedValue { text: "2x", ratio: Some(published) },
            machine: "none",
            needs: Needs::NONE,
            predicate,
            runs: &[],
        }
    }

    fn ratio(published: f64, runs: Vec<Run>) -> Finding {
        judge(&spec(published, Predicate::Ratio { slow: SLOW, fast: FAST }), &report(runs))
    }

    /// `slow` and `fast` with `n` pairs whose ratios run evenly from `lo` to `hi`.
    fn with_ratios(lo: f64, hi: f64) -> Vec<Run> {
        let slow: Vec<f64> = (0..15).map(|i| 100.0 * (lo + (hi - lo) * f64::from(i) / 14.0)).collect();
        vec![run("slow", &slow), run("fast", &[100.0; 15])]
    }

    #[track_caller]
    fn expect(finding: &Finding, verdict: Verdict, says: &str) {
        assert_eq!(finding.verdict, verdict, "{finding:?}");
        assert!(finding.reason.contains(says) && !finding.reason.contains('\n'), "{}", finding.reason);
    }

    #[test]
    fn the_rules_hold_at_their_edges() {
        use Verdict::*;
        for (published, ci, verdict) in [
            (2.0, [1.6, 2.5], Reproduced),
            (2.0, [1.59, 2.5], DirectionOnly),
            (2.0, [1.6, 2.51], DirectionOnly),
            (2.0, [3.0, 3.1], DirectionOnly),
            (2.0, [1.001, 9.0], DirectionOnly),
            (2.0, [0.5, 0.999], NotReproduced),
            (2.0, [0.99, 1.01], Inconclusive),
            (2.0, [1.0, 1.5], Inconclusive),
            (2.0, [0.9, 30.0], Inconclusive),
            (0.5, [0.4, 0.625], Reproduced),
            (0.5, [0.1, 0.2], DirectionOnly),
            (0.5, [0.7, 0.99], DirectionOnly),
            (0.5, [1.01, 1.2], NotReproduced),
            (0.5, [0.9, 1.2], Inconclusive),
            (1.06, [0.9, 0.95], NotReproduced),
            (1.06, [0.95, 1.2], Reproduced),
            (2.0, [f64::NAN, 2.0], Inconclusive),
            (2.0, [2.0, f64::NAN], Inconclusive),
        ] {
            assert_eq!(ratio_verdict(published, ci), verdict, "{published} {ci:?}");
        }
    }

    #[test]
    fn inside_the_band_is_reproduced() {
        let finding = ratio(2.0, with_ratios(1.9, 2.1));
        expect(&finding, Verdict::Reproduced, "within 1.60 to 2.50");
        assert!((finding.measured.unwrap() - 2.0).abs() < 1e-9);
        let [lo, hi] = finding.ci.unwrap();
        assert!((1.9..2.0).contains(&lo) && (2.0..=2.1).contains(&hi));
        assert_eq!(finding.run_ids, ["s/slow@cpu[size=1]", "s/fast@cpu[size=1]"]);
    }

    #[test]
    fn beyond_the_band_is_direction_only_and_the_other_side_is_not_reproduced() {
        expect(&ratio(2.0, with_ratios(3.9, 4.1)), Verdict::DirectionOnly, "above 1, but not within");
        expect(&ratio(2.0, with_ratios(1.1, 1.2)), Verdict::DirectionOnly, "above 1, but not within");
        expect(&ratio(2.0, with_ratios(0.6, 0.7)), Verdict::NotReproduced, "not above it");
    }

    #[test]
    fn straddling_one_or_too_wide_is_inconclusive() {
        expect(&ratio(2.0, with_ratios(0.9, 1.1)), Verdict::Inconclusive, "reaches across 1");
        expect(&ratio(2.0, with_ratios(0.1, 3.0)), Verdict::Inconclusive, "reaches across 1");
    }

    #[test]
    fn a_published_ratio_below_one_claims_the_other_side() {
        expect(&ratio(0.5, with_ratios(0.49, 0.51)), Verdict::Reproduced, "within 0.400 to 0.625");
        expect(&ratio(0.5, with_ratios(0.1, 0.2)), Verdict::DirectionOnly, "below 1");
        expect(&ratio(0.5, with_ratios(1.9, 2.1)), Verdict::NotReproduced, "not below it");
    }

    #[test]
    fn throttled_runs_decide_nothing() {
        for side in 0..2 {
            let mut runs = with_ratios(1.9, 2.1);
            runs[side].flags.push("throttled".into());
            expect(&ratio(2.0, runs), Verdict::Inconclusive, "was throttled");
        }
    }

    #[test]
    fn a_time_that_the_timer_cannot_tell_decides_nothing() {
        let mut runs = with_ratios(1.9, 2.1);
        runs[1].flags.push("below_quantum".into());
        expect(&ratio(2.0, runs), Verdict::Inconclusive, "shorter than the timer");
    }

    #[test]
    fn samples_that_are_not_numbers_never_reproduce() {
        for bad in [f64::NAN, f64::INFINITY, 0.0, -1.0] {
            let mut runs = with_ratios(1.9, 2.1);
            runs[1].samples_ns[3] = bad;
            expect(&ratio(2.0, runs), Verdict::Inconclusive, "not all positive times");
        }
        let mut runs = with_ratios(1.9, 2.1);
        runs.iter_mut().for_each(|r| r.samples_ns.fill(f64::NAN));
        runs.iter_mut().for_each(|r| r.median_ns = Some(f64::NAN));
        let finding = ratio(2.0, runs);
        expect(&finding, Verdict::Inconclusive, "not all positive times");
        assert_eq!((finding.measured, finding.ci), (None, None));
    }

    #[test]
    fn an_unchecked_or_failed_result_decides_nothing() {
        let mut runs = with_ratios(1.9, 2.1);
        runs[0].error = None;
        expect(&ratio(2.0, runs), Verdict::Inconclusive, "was not checked");
        let mut runs = with_ratios(1.9, 2.1);
        runs[1].error.as_mut().unwrap().value = f64::NAN;
        expect(&ratio(2.0, runs), Verdict::Inconclusive, "failed its check: mismatches is not a number, allowed is 0");
        // As a study files it: without samples.
        let mut measured = crate::study::Measured { runs: with_ratios(1.9, 2.1), ..Default::default() };
        let run = measured.runs.pop().unwrap();
        measured.fail(run, ErrorReport { value: 3.0, failed: "3 of 9 are wrong".into(), ..ErrorReport::default() });
        let finding = ratio(2.0, measured.runs);
        expect(&finding, Verdict::Inconclusive, "s/fast@cpu[size=1] failed its check: 3 of 9 are wrong");
        assert_eq!((finding.measured, finding.run_ids.len()), (None, 2));
    }

    #[test]
    fn what_was_not_measured_is_not_applicable_and_named() {
        let mut runs = with_ratios(1.9, 2.1);
        runs.pop();
        expect(&ratio(2.0, runs), Verdict::NotApplicable, "no run of fast on cpu");

        let mut runs = with_ratios(1.9, 2.1);
        runs[1].axes.insert("size".into(), "2".into());
        expect(&ratio(2.0, runs), Verdict::NotApplicable, "no size in common");

        let mut runs = with_ratios(1.9, 2.1);
        runs[1] = Run { samples_ns: vec![], round: vec![], n: 0, median_ns: None, ..runs[1].clone() };
        expect(&ratio(2.0, runs), Verdict::NotApplicable, "has no times");
    }

    #[test]
    fn too_few_pairs_are_inconclusive() {
        let mut runs = with_ratios(1.9, 2.1);
        runs[1].round.iter_mut().for_each(|r| *r += 12);
        expect(&ratio(2.0, runs), Verdict::Inconclusive, "too few pairs");
    }

    #[test]
    fn missing_hardware_is_not_applicable() {
        let predicate = Predicate::Ratio { slow: SLOW, fast: FAST };
        let mut report = report(with_ratios(1.9, 2.1));
        let needing = |needs| FindingSpec { needs, ..spec(2.0, predicate) };
        expect(&judge(&needing(Needs::GPU), &report), Verdict::NotApplicable, "needs a GPU (no driver)");
        expect(&judge(&needing(Needs::AVX512), &report), Verdict::NotApplicable, "avx512f");

        report.host.features.push("avx512f".into());
        report.device = Some(Device { name: "P100".into(), compute_capability: (6, 0), ..Device::default() });
        expect(&judge(&needing(Needs::AVX512), &report), Verdict::Reproduced, "");
        expect(&judge(&needing(Needs::GPU), &report), Verdict::Reproduced, "");
        let ampere = Needs { compute_capability: (8, 0), ..Needs::GPU };
        expect(&judge(&needing(ampere), &report), Verdict::NotApplicable, "capability 8.0; P100 has 6.0");
    }

    #[test]
    fn of_several_rungs_the_fastest_correct_one_counts() {
        let fast = Select::new("s", &["fast", "faster", "wrong"], "cpu");
        let mut runs = with_ratios(4.0, 4.0);
        runs.push(run("faster", &[50.0; 15]));
        runs.push(run("wrong", &[1.0; 15]));
        runs[3].error.as_mut().unwrap().value = 1.0;
        let finding = judge(&spec(8.0, Predicate::Ratio { slow: SLOW, fast }), &report(runs));
        expect(&finding, Verdict::Reproduced, "within 6.40 to 10.0");
        assert_eq!(finding.run_ids[1], "s/faster@cpu[size=1]");
    }

    #[test]
    fn axes_that_a_side_fixes_may_differ() {
        let mut runs = with_ratios(1.9, 2.1);
        for (run, threads) in runs.iter_mut().zip(["1", "2"]) {
            run.axes.insert("threads".into(), threads.into());
        }
        let one = SLOW.at(&[("threads", "1")]);
        let two = FAST.at(&[("threads", "2")]);
        let judged = |slow, fast| judge(&spec(2.0, Predicate::Ratio { slow, fast }), &report(runs.clone()));
        expect(&judged(one, two), Verdict::Reproduced, "");
        expect(&judged(SLOW, FAST), Verdict::NotApplicable, "no size in common");
        expect(&judged(one, FAST.at(&[("threads", "3")])), Verdict::NotApplicable, "threads=3");
        expect(&judged(SLOW.cold(), FAST), Verdict::NotApplicable, "no run of slow");
    }

    #[test]
    fn statements_hold_or_do_not() {
        let ask = |answer: fn(&Report) -> Answer, runs| judge(&spec(2.0, Predicate::YesNo(answer)), &report(runs));
        fn decided(holds: bool) -> Answer {
            Answer::Decided { holds, why: "seen".into(), run_ids: vec!["s/fast@cpu[size=1]".into()] }
        }
        expect(&ask(|_| decided(true), with_ratios(2.0, 2.0)), Verdict::Reproduced, "seen");
        expect(&ask(|_| decided(false), with_ratios(2.0, 2.0)), Verdict::NotReproduced, "seen");
        let undecided = |_: &Report| Answer::Undecided { why: "close".into(), run_ids: vec![] };
        expect(&ask(undecided, vec![]), Verdict::Inconclusive, "close");
        expect(&ask(|_| Answer::Missing("no SASS".into()), vec![]), Verdict::NotApplicable, "no SASS");
        let mut runs = with_ratios(2.0, 2.0);
        runs[1].flags.push("throttled".into());
        expect(&ask(|_| decided(true), runs), Verdict::Inconclusive, "throttled");
    }

    #[test]
    fn counts_are_exact() {
        let count = |expected| Predicate::Count { run: FAST, counter: "sectors", expected };
        let mut runs = with_ratios(2.0, 2.0);
        let judged = |runs: &[Run], expected| judge(&spec(2.0, count(expected)), &report(runs.to_vec()));
        expect(&judged(&runs, 32.0), Verdict::NotApplicable, "no sectors of fast on cpu");
        runs[1].counters.insert("sectors".into(), 32.0);
        expect(&judged(&runs, 32.0), Verdict::Reproduced, "32 exactly");
        expect(&judged(&runs, 33.0), Verdict::NotReproduced, "is 32, not 33");
        assert_eq!(judged(&runs, 33.0).measured, Some(32.0));
        runs[1].counters.insert("sectors".into(), f64::NAN);
        expect(&judged(&runs, 32.0), Verdict::NotReproduced, "not 32");
        runs[1].error = None;
        expect(&judged(&runs, 32.0), Verdict::Inconclusive, "was not checked");
    }

    #[test]
    fn a_spec_knows_which_rungs_it_needs() {
        const OTHER: &[Select] = &[Select::new("s", &["other"], "gpu")];
        let ratio = spec(2.0, Predicate::Ratio { slow: SLOW, fast: FAST });
        assert_eq!((ratio.rungs(), ratio.target()), (vec!["slow", "fast"], Some(Target::Cpu)));
        let listed = FindingSpec { runs: OTHER, ..ratio };
        assert_eq!((listed.rungs(), listed.target()), (vec!["other"], Some(Target::Gpu)));
        let needing = FindingSpec { needs: Needs::GPU, ..ratio };
        assert_eq!(needing.target(), Some(Target::Gpu));
        let gpu = Select { target: "gpu", ..FAST };
        assert_eq!(spec(2.0, Predicate::Ratio { slow: SLOW, fast: gpu }).target(), None);
        let anything = spec(2.0, Predicate::YesNo(|_| Answer::Missing(String::new())));
        assert_eq!((anything.rungs(), anything.target()), (vec![], None));
    }

    #[test]
    fn verdicts_have_the_names_of_the_json() {
        use Verdict::*;
        for verdict in [Reproduced, DirectionOnly, NotReproduced, Inconclusive, NotApplicable] {
            assert_eq!(serde_json::to_value(verdict).unwrap(), verdict.name());
        }
    }
}
