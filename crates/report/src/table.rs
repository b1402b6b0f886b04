//! Terminal tables: plain text, no colour, no wider than they are told to be. Strings of a report are cleaned.

use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Table, Width, presets};
use timing::record::{Cache, Run};
use timing::stats::paired_ratio;

use crate::compare::{Comparison, Row};
use crate::document::{Report, Rows, size};
use crate::finding::{Finding, FindingSpec, Verdict, check_failed, check_passed};
use crate::study::CHECK_FAILED;
use crate::text::{clean, wrap};
use crate::units;

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
    pub(crate) notes: Vec<String>,
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
            notes: notes(run).concat(),
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

/// What a reader must know of a run, in words: first what is so at this size, then what has a value, such as how a
/// compiler made the rung, which is long and the same at every size.
///
/// How a sample was taken is not among it, nor single slow samples of a run that was not throttled as a whole.
fn notes(run: &Run) -> [Vec<String>; 2] {
    let rounds = run.flags.iter().find_map(|f| f.strip_prefix("throttled_rounds:"));
    let mut here: Vec<String> = check_failed(run).into_iter().filter(|f| !f.is_empty()).collect();
    let mut everywhere = Vec::new();
    for flag in &run.flags {
        match (flag.as_str(), flag.split_once(':')) {
            (CHECK_FAILED, _) | (_, Some(("method" | "throttled_rounds", _))) => {}
            ("throttled", _) => {
                here.push(rounds.map_or(flag.clone(), |r| format!("throttled in rounds {}", r.replace(',', ", "))));
            }
            (_, Some((name, value))) => everywhere.push(format!("{name}: {value}")),
            (_, None) => here.push(flag.clone()),
        }
    }
    [here, everywhere]
}

/// Counters in one line.
pub(crate) fn counters(run: &Run) -> String {
    run.counters.iter().map(|(k, v)| format!("{k}={}", units::count(*v))).collect::<Vec<_>>().join(", ")
}

fn table(headers: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(headers.iter().copied());
    table
}

fn row<'a>(table: &mut Table, cells: impl IntoIterator<Item = &'a str>) {
    table.add_row(cells.into_iter().map(clean));
}

/// Columns that the table takes without wrapping anything.
fn natural_width(table: &Table) -> u16 {
    table.column_max_content_widths().iter().map(|w| w + 2).sum()
}

/// The lines without the padding at their ends, and with a final newline.
fn print(table: &Table) -> String {
    table.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// A table of numbers, in which nothing wraps: where it is too wide, the columns of `least` are left out, one after
/// the other. `right` are columns of numbers.
fn print_numbers(mut table: Table, right: &[usize], least: &[usize], width: u16) -> String {
    for &column in right {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let (widths, mut all) = (table.column_max_content_widths(), natural_width(&table));
    for &hidden in least {
        if all > width + 1
            && let Some(column) = table.column_mut(hidden)
        {
            column.set_constraint(ColumnConstraint::Hidden);
            all -= widths[hidden] + 2;
        }
    }
    print(&table)
}

/// A table of text. The first column holds names that are there to be copied: it never wraps. The others wrap where
/// they hold something very long, and the last wherever it must.
fn print_text(mut table: Table, width: u16) -> String {
    let widths = table.column_max_content_widths();
    let (last, least) = (widths.len() - 1, |i: usize, w: u16| if i == 0 { w } else { w.min(22) });
    let room: u16 = widths.iter().enumerate().map(|(i, &w)| if i == last { w.min(12) } else { least(i, w) } + 2).sum();
    table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width.max(room));
    for (i, (column, width)) in table.column_iter_mut().zip(widths).enumerate().take(last) {
        column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(least(i, width) + 2)));
    }
    print(&table)
}

/// All tables of a study: for each size its timed ladder, then what the emulator counted; below them, once, what holds
/// for all.
///
/// `before` and `first` are how many times as fast a rung is as the one before it and as the first of its target,
/// `limit` is the share of the ceiling that it reaches, `model` the time that its model expects.
pub fn study(report: &Report, study: &str, width: u16) -> String {
    let mut text = String::new();
    let groups = report.groups(study);
    if let Some(question) = report.questions.get(study).filter(|_| !groups.is_empty()) {
        text.push_str(&format!("\n{}", wrap(&format!("{study}: {question}"), width, 2)));
    }
    let (mut below, mut limits) = (Vec::new(), Vec::new());
    for rows in groups {
        text.push_str(&format!("\n{}", wrap(&format!("{study}  {}", rows.size()), width, 2)));
        let (timed, emulated) = (timed(&rows), emulated(&rows));
        let runs: Vec<&Run> = timed.iter().map(|t| t.run).collect();
        for (table, runs) in [(ladder(&timed, width), &runs), (counted(&emulated, width), &emulated)] {
            text.push_str(&table);
            for run in runs {
                let line = |notes: Vec<String>| format!(" {} on {}: {}", run.rung, target(run), notes.join(", "));
                let [here, everywhere] = notes(run);
                if !here.is_empty() {
                    text.push_str(&wrap(&line(here), width, 4));
                }
                if !everywhere.is_empty() {
                    below.push(line(everywhere));
                }
                limits.extend(run.ceiling.as_deref());
            }
        }
    }
    limits.sort_unstable();
    for name in limits {
        if let Some(c) = report.calibration.ceilings.get(name) {
            let weak = if c.ok { "" } else { "; weaker than this machine should be" };
            below.push(format!(" limit {name}: {} {}{weak}", units::digits(c.value), c.unit));
        }
    }
    let mut printed: Vec<&str> = Vec::new();
    for note in &below {
        if !printed.contains(&note.as_str()) {
            text.push_str(if printed.is_empty() { "\n" } else { "" });
            text.push_str(&wrap(note, width, 4));
            printed.push(note);
        }
    }
    text
}

fn ladder(timed: &[Timed<'_>], width: u16) -> String {
    if timed.is_empty() {
        return String::new();
    }
    let mut table = table(&["rung", "target", "median [95%]", "before", "first", "limit", "model", "check"]);
    for t in timed {
        let cells = [&t.run.rung, &t.target, &t.time, &t.before, &t.first, &t.ceiling, &t.predicted];
        row(&mut table, cells.into_iter().map(String::as_str).chain([t.check]));
    }
    print_numbers(table, &[2, 3, 4, 5, 6], &[6, 3, 4], width)
}

fn emulated<'a>(rows: &Rows<'a>) -> Vec<&'a Run> {
    rows.runs.iter().copied().filter(|r| r.target == "emulator").collect()
}

/// What the emulator counted: it never has a time.
fn counted(runs: &[&Run], width: u16) -> String {
    if runs.is_empty() {
        return String::new();
    }
    let mut table = table(&["rung", "target", "check", "counts (the emulator has no times)"]);
    for run in runs {
        row(&mut table, [run.rung.as_str(), &run.target, check(run), &counters(run)]);
    }
    print_text(table, width)
}

/// The verdicts, and below them why a finding does not stand.
pub fn findings(findings: &[Finding], width: u16) -> String {
    let mut table = table(&["finding", "verdict", "measured", "published"]);
    for f in findings {
        row(&mut table, [f.id.as_str(), &f.verdict.name().replace('_', " "), &measured(f), &f.published.text]);
    }
    let mut text = print_text(table, width);
    // One missing GPU is the reason of many: it is said once.
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for f in findings.iter().filter(|f| !matches!(f.verdict, Verdict::Reproduced | Verdict::DirectionOnly)) {
        match reasons.iter_mut().find(|(reason, _)| *reason == f.reason) {
            Some((_, ids)) => ids.push(&f.id),
            None => reasons.push((&f.reason, vec![&f.id])),
        }
    }
    for (reason, ids) in reasons {
        text.push_str(&wrap(&format!(" {}: {reason}", ids.join(", ")), width, 4));
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
pub fn explain(finding: &Finding, width: u16) -> String {
    let mut text = format!("\n{}: {}\n", clean(&finding.id), finding.verdict.name().replace('_', " "));
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
            text.push_str(&wrap(&format!("  {label:<10} {value}"), width, 13));
        }
    }
    text
}

/// What can be judged: two lines a finding, the published value and the claim.
pub fn specs(specs: &[FindingSpec], width: u16) -> String {
    let longest = specs.iter().map(|s| s.id.len()).max().unwrap_or(0);
    let mut text = String::new();
    for s in specs {
        let published = format!(" {:longest$}  {} on {}", s.id, s.published.text, s.machine);
        text.push_str(&wrap(&published, width, longest + 3));
        text.push_str(&wrap(&format!("    {}", s.statement), width, 4));
    }
    text
}

/// Two reports side by side, one table a size.
pub fn comparison(comparison: &Comparison<'_>, width: u16) -> String {
    let mut text = String::new();
    let same_size = |x: &Row<'_>, y: &Row<'_>| x.a.study == y.a.study && x.a.axes == y.a.axes;
    for rows in comparison.rows.chunk_by(same_size) {
        let Some(first) = rows.first() else { continue };
        text.push_str(&format!("\n{}", wrap(&format!("{}  {}", first.a.study, size(&first.a.axes)), width, 2)));
        let mut table = table(&["rung", "target", "A", "B", "B / A [95%]", "B is"]);
        for line in rows {
            let time = |r: &Run| match r.median_ns.filter(|_| check_passed(r)) {
                Some(ns) => units::time(ns),
                None if check_failed(r).is_some() => "FAIL".into(),
                None => "-".into(),
            };
            let sound = check_passed(line.a) && check_passed(line.b);
            let ratio = line.ratio.filter(|_| sound).map_or("-".into(), |r| units::ratio_with_interval(r.value, r.ci));
            let (a, b) = (time(line.a), time(line.b));
            row(&mut table, [line.a.rung.as_str(), &target(line.a), &a, &b, &ratio, line.change.name()]);
        }
        text.push_str(&print_numbers(table, &[2, 3, 4], &[2, 3], width));
    }
    for (name, only) in [("A", &comparison.only_a), ("B", &comparison.only_b)] {
        for id in only {
            let failed = if name == "B" && comparison.failed_b.contains(id) { ", where its check failed" } else { "" };
            text.push_str(&wrap(&format!(" only in {name}: {id}{failed}"), width, 4));
        }
    }
    text
}
