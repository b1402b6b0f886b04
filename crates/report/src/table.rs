//! Terminal tables: plain text, no colour, at most 100 columns.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use timing::record::{Cache, Run};
use timing::stats::paired_ratio;

use crate::compare::Comparison;
use crate::document::{Report, Rows};
use crate::finding::{Finding, FindingSpec, check_passed};
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
        let same: Vec<&Run> = runs[..i]
            .iter()
            .copied()
            .filter(|r| r.target == run.target && r.cache == run.cache && check_passed(r))
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
            target: if run.cache == Cache::Cold { format!("{} cold", run.target) } else { run.target.clone() },
            time,
            before: against(same.last()),
            first: against(same.first()),
            ceiling: percent.unwrap_or("-".into()),
            predicted: run.prediction.as_ref().map_or("-".into(), |p| units::time(p.ns)),
            check: check(run),
            flags: flags(run),
        }
    };
    (0..runs.len()).map(line).collect()
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

/// The table without the padding at the ends of its lines, and with a final newline.
fn print(table: &Table) -> String {
    table.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// All tables of a study: for each size its timed ladder, then what the emulator counted.
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
    let flagged = timed.iter().any(|t| !t.flags.is_empty());
    let mut headers =
        vec!["rung", "target", "median [95% interval]", "before", "first", "limit", "model", "check", "flags"];
    headers.truncate(if flagged { 9 } else { 8 });
    let mut table = table(&headers, &[2, 3, 4, 5, 6]);
    for t in timed {
        let cells = [&t.run.rung, &t.target, &t.time, &t.before, &t.first, &t.ceiling, &t.predicted];
        let mut cells: Vec<&str> = cells.into_iter().map(String::as_str).collect();
        cells.extend([t.check, &t.flags]);
        cells.truncate(headers.len());
        table.add_row(cells);
    }
    let mut text = print(&table);
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
    print(&table)
}

/// The verdicts.
pub fn findings(findings: &[Finding]) -> String {
    let mut table = table(&["finding", "published", "measured", "verdict", "why"], &[]);
    for f in findings {
        let row = [f.id.clone(), f.published.text.clone(), measured(f), f.verdict.name().replace('_', " "), f.reason.clone()];
        table.add_row(row);
    }
    print(&table)
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
    print(&table)
}

/// Two reports side by side.
pub fn comparison(comparison: &Comparison<'_>) -> String {
    let mut table = table(&["run", "A", "B", "B / A [95% interval]", "B is"], &[1, 2, 3]);
    for row in &comparison.rows {
        let time = |r: &Run| r.median_ns.map_or("-".into(), units::time);
        let ratio = row.ratio.map_or("-".into(), |r| units::ratio_with_interval(r.value, r.ci));
        table.add_row([row.a.id.clone(), time(row.a), time(row.b), ratio, row.change.name().into()]);
    }
    let mut text = print(&table);
    for (name, only) in [("A", &comparison.only_a), ("B", &comparison.only_b)] {
        if !only.is_empty() {
            text.push_str(&format!("only in {name}: {}\n", only.join(" ")));
        }
    }
    text
}
