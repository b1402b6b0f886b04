//! Terminal tables: plain text, no colour, at most 100 columns.

use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Table, Width, presets};
use timing::record::{Cache, Run};
use timing::stats::paired_ratio;

use crate::compare::{Comparison, Row};
use crate::document::{Report, Rows, size};
use crate::finding::{Finding, FindingSpec, Verdict, check_passed};
use crate::units;

/// Columns of a table at most.
pub const WIDTH: u16 = 100;

/// One line a row: what a ladder table shows of a timed run, ready to print. The HTML page shows the same.
pub(crate) struct Timed<'a> {
    pub(crate) run: &'a Run,
    pub(crate) target: String,
    pub(crate) time: String,
    pub(crate) before: String,
    pub(crate) first: String,
    pub(crate) ceiling: String,
    pub(crate) predicted: String,
    pub(crate) check: &'static str,
    pub(crate) flags: String,
}

/// The timed runs of a group, with ratios along the ladder of each target.
pub(crate) fn timed<'a>(rows: &Rows<'a>) -> Vec<Timed<'a>> {
    // A rung whose check failed has no time, whatever its run holds.
    let has_time = |r: &Run| r.target != "emulator" && (r.median_ns.is_some() || !check_passed(r));
    let runs: Vec<&Run> = rows.runs.iter().copied().filter(|r| has_time(r)).collect();
    let line = |i: usize| {
        let run: &'a Run = runs[i];
        // A peer stands beside the ladder that it follows, and is compared with that ladder's first rung only.
        let peer = |r: &Run| r.target.starts_with("peer:");
        let ladder = runs[..=i].iter().rev().find(|r| !peer(r)).map_or("", |r| &r.target);
        let same: Vec<&Run> = runs[..i]
            .iter()
            .copied()
            .filter(|r| r.target == ladder && r.cache == run.cache && check_passed(r))
            .collect();
        let ok = check_passed(run);
        let against = |other: Option<&&Run>| match other {
            Some(other) if ok => speedup(other, run).map_or("-".into(), units::ratio),
            _ => "-".into(),
        };
        let time = match run.median_ns {
            Some(ns) if ok => units::time_with_interval(ns, run.ci_ns),
            _ => "-".into(),
        };
        let percent = run.percent_of_ceiling.filter(|_| ok).map(|p| format!("{}%", units::digits(p)));
        Timed {
            run,
            target: target(run),
            time,
            before: against(same.last().filter(|_| !peer(run))),
            first: against(same.first()),
            ceiling: percent.unwrap_or("-".into()),
            predicted: run.prediction.as_ref().map_or("-".into(), |p| units::time(p.ns)),
            check: check(run),
            flags: flags(run),
        }
    };
    (0..runs.len()).map(line).collect()
}

/// The target, and that the cache is cold where it is.
fn target(run: &Run) -> String {
    if run.cache == Cache::Cold { format!("{} cold", run.target) } else { run.target.clone() }
}

/// How many times as fast `run` is as `other`: paired where rounds match, else by the medians.
fn speedup(other: &Run, run: &Run) -> Option<f64> {
    paired_ratio(&other.samples_ns, &other.round, &run.samples_ns, &run.round)
        .map(|r| r.value)
        .or_else(|| Some(other.median_ns? / run.median_ns?))
}

/// `ok`, `FAIL`, or `-` for a run that nobody checked.
pub(crate) fn check(run: &Run) -> &'static str {
    match &run.error {
        None => "-",
        Some(_) if check_passed(run) => "ok",
        Some(_) => "FAIL",
    }
}

/// What a reader must know; how a sample was taken is not among it.
fn flags(run: &Run) -> String {
    run.flags.iter().filter(|f| !f.starts_with("method:")).cloned().collect::<Vec<_>>().join(" ")
}

/// Counters in one line.
pub(crate) fn counters(run: &Run) -> String {
    run.counters.iter().map(|(k, v)| format!("{k}={}", units::count(*v))).collect::<Vec<_>>().join(", ")
}

/// `right` are columns of numbers.
fn table(headers: &[&str], right: &[usize]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic).set_width(WIDTH);
    table.set_header(headers.iter().copied());
    for &column in right {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// The table without the padding at the ends of its lines, and with a final newline. A column wraps only where it
/// holds something very long, or is the last.
fn print(mut table: Table) -> String {
    let widths = table.column_max_content_widths();
    for (i, (column, width)) in table.column_iter_mut().zip(widths).enumerate().rev().skip(1) {
        let most = if i == 0 { 26 } else { 22 };
        column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(width.min(most) + 2)));
    }
    table.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// All tables of a study: for each size its timed ladder, then what the emulator counted.
///
/// `before` and `first` are how many times as fast a rung is as the one before it and as the first of its target,
/// `limit` is the share of the ceiling that it reaches, `model` the time that its model expects.
pub fn study(report: &Report, study: &str) -> String {
    let mut text = String::new();
    for rows in report.groups(study) {
        text.push_str(&format!("\n{study}  {}\n", rows.size()));
        let timed = timed(&rows);
        if !timed.is_empty() {
            text.push_str(&ladder(&timed, report));
        }
        text.push_str(&counted(&rows));
    }
    text
}

fn ladder(timed: &[Timed<'_>], report: &Report) -> String {
    let headers = ["rung", "target", "median [95%]", "before", "first", "limit", "model", "check"];
    let mut table = table(&headers, &[2, 3, 4, 5, 6]);
    for t in timed {
        let cells = [&t.run.rung, &t.target, &t.time, &t.before, &t.first, &t.ceiling, &t.predicted];
        table.add_row(cells.into_iter().map(String::as_str).chain([t.check]));
    }
    let mut text = print(table);
    for t in timed.iter().filter(|t| !t.flags.is_empty()) {
        text.push_str(&format!(" {} on {}: {}\n", t.run.rung, t.target, t.flags));
    }
    let mut names: Vec<&str> = timed.iter().filter_map(|t| t.run.ceiling.as_deref()).collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        if let Some(c) = report.calibration.ceilings.get(name) {
            let weak = if c.ok { "" } else { "; weaker than this machine should be" };
            text.push_str(&format!(" limit {name}: {} {}{weak}\n", units::digits(c.value), c.unit));
        }
    }
    text
}

/// What the emulator counted: it never has a time.
fn counted(rows: &Rows<'_>) -> String {
    let runs: Vec<&Run> = rows.runs.iter().copied().filter(|r| r.target == "emulator").collect();
    if runs.is_empty() {
        return String::new();
    }
    let mut table = table(&["rung", "target", "check", "counts (the emulator has no times)"], &[]);
    for run in runs {
        table.add_row([run.rung.clone(), run.target.clone(), check(run).into(), counters(run)]);
    }
    print(table)
}

/// The verdicts, and below them why a finding does not stand.
pub fn findings(findings: &[Finding]) -> String {
    let mut table = table(&["finding", "verdict", "measured", "published"], &[]);
    for f in findings {
        table.add_row([f.id.clone(), f.verdict.name().replace('_', " "), measured(f), f.published.text.clone()]);
    }
    let mut text = print(table);
    for f in findings.iter().filter(|f| !matches!(f.verdict, Verdict::Reproduced | Verdict::DirectionOnly)) {
        text.push_str(&format!(" {}: {}\n", f.id, f.reason));
    }
    text
}

/// Our value, with its interval where it is a ratio.
pub(crate) fn measured(finding: &Finding) -> String {
    match (finding.measured, finding.ci) {
        (Some(value), Some(ci)) => units::ratio_with_interval(value, ci),
        (Some(value), None) => units::count(value),
        (None, _) => "-".into(),
    }
}

/// One finding in full.
pub fn explain(finding: &Finding) -> String {
    let mut text = format!("\n{}: {}\n", finding.id, finding.verdict.name().replace('_', " "));
    let published = format!("{} on {}", finding.published.text, finding.published.machine);
    let runs = finding.run_ids.join(", ");
    for (label, value) in [
        ("claim", finding.statement.as_str()),
        ("source", &finding.source),
        ("published", &published),
        ("measured", &measured(finding)),
        ("why", &finding.reason),
        ("runs", &runs),
    ] {
        if !value.is_empty() {
            text.push_str(&format!("  {label:<10} {value}\n"));
        }
    }
    text
}

/// What can be judged.
pub fn specs(specs: &[FindingSpec]) -> String {
    let mut table = table(&["finding", "claim", "published", "machine"], &[]);
    for s in specs {
        table.add_row([s.id, s.statement, s.published.text, s.machine]);
    }
    print(table)
}

/// Two reports side by side, one table a size.
pub fn comparison(comparison: &Comparison<'_>) -> String {
    let mut text = String::new();
    let same_size = |x: &Row<'_>, y: &Row<'_>| x.a.study == y.a.study && x.a.axes == y.a.axes;
    for rows in comparison.rows.chunk_by(same_size) {
        let Some(first) = rows.first() else { continue };
        text.push_str(&format!("\n{}  {}\n", first.a.study, size(&first.a.axes)));
        let mut table = table(&["rung", "target", "A", "B", "B / A [95%]", "B is"], &[2, 3, 4]);
        for row in rows {
            let time = |r: &Run| r.median_ns.map_or("-".into(), units::time);
            let ratio = row.ratio.map_or("-".into(), |r| units::ratio_with_interval(r.value, r.ci));
            let (a, b) = (time(row.a), time(row.b));
            table.add_row([row.a.rung.clone(), target(row.a), a, b, ratio, row.change.name().into()]);
        }
        text.push_str(&print(table));
    }
    for (name, only) in [("A", &comparison.only_a), ("B", &comparison.only_b)] {
        for id in only {
            text.push_str(&format!(" only in {name}: {id}\n"));
        }
    }
    text
}
