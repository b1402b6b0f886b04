//! The report as one HTML page that needs nothing else: inline SVG and style, the raw JSON inside.

use maud::{DOCTYPE, Markup, PreEscaped, html};
use timing::record::Curve;

use crate::chart;
use crate::document::{Report, Rows};
use crate::finding::{Finding, Verdict, check_failed};
use crate::table::{self, Timed};
use crate::units;

const STYLE: &str = include_str!("style.css");

/// Saves the embedded JSON as a file; without scripts the JSON is still in the page's source.
const SCRIPT: &str = r#"
document.getElementById("download").addEventListener("click", () => {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([document.getElementById("report").textContent], {type: "application/json"}));
  link.download = "report.json";
  link.click();
  URL.revokeObjectURL(link.href);
});
"#;

/// The whole page.
pub fn page(report: &Report) -> String {
    let studies = report.studies();
    // No `<` survives, so nothing in the JSON can end the script element or open a comment in it.
    let json = report.to_json().replace('<', "\\u003c");
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "Rungs: " (machine(report)) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                header {
                    h1 { "Rungs" }
                    p { (machine(report)) }
                    p.faint { (tally(report)) }
                    nav aria-label="Contents" {
                        ul {
                            @if !report.findings.is_empty() { li { a href="#findings" { "Findings" } } }
                            @for study in &studies { li { a href={ "#study-" (study) } { (study) } } }
                            li { a href="#machine" { "Machine and build" } }
                            li { a href="#json" { "JSON" } }
                        }
                    }
                }
                main {
                    @if !report.findings.is_empty() { (findings(&report.findings)) }
                    @for study in &studies { (study_section(report, study)) }
                    (machine_section(report))
                    section #json {
                        h2 { "JSON" }
                        p { "Everything above is drawn from this page's own copy of the report." }
                        button #download type="button" { "Save report.json" }
                        script #report type="application/json" { (PreEscaped(json)) }
                        script { (PreEscaped(SCRIPT)) }
                    }
                }
            }
        }
    }
    .into_string()
}

fn machine(report: &Report) -> String {
    let cpu = if report.host.cpu.is_empty() { "unnamed CPU" } else { &report.host.cpu };
    match &report.device {
        Some(device) => format!("{} and {cpu}", device.name),
        None => format!("{cpu}, no GPU"),
    }
}

fn tally(report: &Report) -> String {
    let held = |v: Verdict| report.findings.iter().filter(|f| f.verdict == v).count();
    let mut text = units::plural(report.runs.len(), "run");
    if !report.findings.is_empty() {
        let mut separator = ": ";
        text += &format!(", {}", units::plural(report.findings.len(), "finding"));
        for verdict in [
            Verdict::Reproduced,
            Verdict::DirectionOnly,
            Verdict::NotReproduced,
            Verdict::Inconclusive,
            Verdict::NotApplicable,
        ] {
            match held(verdict) {
                0 => {}
                n => text += &format!("{}{n} {}", std::mem::replace(&mut separator, ", "), words(verdict)),
            }
        }
    }
    text
}

fn words(verdict: Verdict) -> String {
    verdict.name().replace('_', " ")
}

fn findings(findings: &[Finding]) -> Markup {
    html! {
        section #findings {
            h2 { "Findings" }
            div.cards {
                @for f in findings {
                    article.card.(f.verdict.name()) {
                        h3 { span { (f.id) } span.verdict { (words(f.verdict)) } }
                        p { (f.statement) }
                        dl {
                            dt { "Published" }
                            dd { (f.published.text) @if !f.published.machine.is_empty() { " (" (f.published.machine) ")" } }
                            dt { "Measured" } dd { (table::measured(f)) }
                            dt { "Why" } dd { (f.reason) }
                            dt { "Source" } dd { (f.source) }
                        }
                    }
                }
            }
        }
    }
}

fn study_section(report: &Report, study: &str) -> Markup {
    html! {
        section id={ "study-" (study) } {
            h2 { (study) }
            @if let Some(question) = report.questions.get(study) { p { (question) } }
            @for rows in report.groups(study) { (group(&rows)) }
            @for curve in report.curves.iter().filter(|c| c.study == study) { (curve_table(curve)) }
        }
    }
}

fn group(rows: &Rows<'_>) -> Markup {
    let timed = table::timed(rows);
    let size = rows.size();
    let title =
        format!("{} at {size}: time of each rung, logarithmic axis; the table below has the numbers", rows.study);
    let wide = chart::ladder(&timed, 928, &title);
    let phone = chart::ladder(&timed, 360, &title);
    let counted: Vec<_> = rows.runs.iter().filter(|r| r.target == "emulator").collect();
    html! {
        h3 { (if size.is_empty() { rows.study } else { &size }) }
        @if let (Some(wide), Some(phone)) = (wide, phone) {
            figure {
                div.wide { (PreEscaped(wide)) }
                div.phone { (PreEscaped(phone)) }
                figcaption { (legend(&timed)) }
            }
        }
        @for run in &rows.runs {
            @if let Some(wrong) = check_failed(run) {
                p.fail { (run.rung) " on " (run.target) " failed its check" @if !wrong.is_empty() { ": " (wrong) } }
            }
        }
        @if !timed.is_empty() {
            details { summary { "Table of times" } div.scroll { (ladder_table(&timed)) } }
        }
        @if !counted.is_empty() {
            details open[timed.is_empty()] {
                summary { "Counts of the emulator, which has no times" }
                div.scroll {
                    table {
                        thead { tr { th scope="col" { "rung" } th scope="col" { "check" } th scope="col" { "counts" } } }
                        tbody {
                            @for run in counted {
                                tr { th scope="row" { (run.rung) } (check(table::check(run))) td { (table::counters(run)) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn legend(timed: &[Timed<'_>]) -> Markup {
    let has = |f: &dyn Fn(&str) -> bool| timed.iter().any(|t| f(&t.run.target));
    html! {
        @if has(&|t| t == "cpu") { span.key { i.cpu {} "CPU" } }
        @if has(&|t| t == "gpu") { span.key { i.gpu {} "GPU" } }
        @if has(&|t| t != "cpu" && t != "gpu") { span.key { i.peer {} "peer" } }
        @if timed.iter().any(|t| t.run.percent_of_ceiling.is_some()) {
            span.key { i.tick.floor {} "the machine's limit" }
        }
        @if timed.iter().any(|t| t.run.prediction.is_some()) { span.key { i.tick.model {} "the model" } }
        "Median with its 95% interval, and how many times as fast as the first rung; logarithmic axis."
    }
}

fn check(text: &str) -> Markup {
    html! { td.fail[text == "FAIL"] { (text) } }
}

fn ladder_table(timed: &[Timed<'_>]) -> Markup {
    let numbers = ["median [95% interval]", "x before", "x first", "of limit", "model"];
    html! {
        table {
            thead {
                tr {
                    th scope="col" { "rung" }
                    th scope="col" { "target" }
                    @for n in numbers { th.num scope="col" { (n) } }
                    @for t in ["limit", "check", "notes", "registers", "occupancy"] { th scope="col" { (t) } }
                }
            }
            tbody {
                @for t in timed {
                    tr {
                        th scope="row" { (t.run.rung) }
                        td { (t.target) }
                        @for n in [&t.time, &t.before, &t.first, &t.ceiling, &t.predicted] { td.num { (n) } }
                        td { (t.run.ceiling.as_deref().unwrap_or("-")) }
                        (check(t.check))
                        td { (t.notes.join(", ")) }
                        @if let Some(r) = &t.run.resources {
                            td { (r.registers) }
                            td { (units::digits(100.0 * r.occupancy)) "%" }
                        } @else { td { "-" } td { "-" } }
                    }
                }
            }
        }
    }
}

fn curve_table(curve: &Curve) -> Markup {
    let label = |name: &str, unit: &str| if unit.is_empty() { name.to_string() } else { format!("{name} ({unit})") };
    html! {
        h3 { (curve.name) }
        @for (at, what) in &curve.marks { p.faint { (what) ": " (units::digits(*at)) " " (curve.unit_x) } }
        details {
            summary { (units::plural(curve.points.len(), "point")) }
            div.scroll {
                table {
                    thead {
                        tr {
                            th.num scope="col" { (label(&curve.x, &curve.unit_x)) }
                            th.num scope="col" { (label(&curve.y, &curve.unit_y)) }
                        }
                    }
                    tbody { @for [x, y] in &curve.points { tr { td.num { (units::digits(*x)) } td.num { (units::digits(*y)) } } } }
                }
            }
        }
    }
}

fn machine_section(report: &Report) -> Markup {
    let (host, build, calibration) = (&report.host, &report.build, &report.calibration);
    html! {
        section #machine {
            h2 { "Machine and build" }
            dl {
                dt { "CPU" } dd { (host.cpu) ", " (units::plural(host.threads, "thread")) ", " (units::bytes(host.memory_bytes)) }
                @if !host.features.is_empty() { dt { "Features" } dd { (host.features.join(" ")) } }
                dt { "System" } dd { (host.os) " " (host.arch) }
                @if let Some(d) = &report.device {
                    @let (major, minor) = d.compute_capability;
                    dt { "GPU" }
                    dd {
                        (d.name) ", compute capability " (major) "." (minor) ", " (d.sms) " SMs, "
                        (units::bytes(d.memory_bytes)) ", L2 " (units::bytes(d.l2_bytes))
                    }
                    dt { "SM clock" }
                    dd { (units::digits(calibration.sm_hz / 1e9)) " GHz measured, " (units::digits(f64::from(d.max_clock_khz) / 1e6)) " GHz at most" }
                }
                dt { "Driver" } dd { @if report.driver.is_empty() { "none" } @else { (report.driver) } }
                dt { "Commit" }
                dd {
                    @if build.git.is_empty() { "not built from a checkout" } @else { code { (build.git) } }
                    @if build.dirty { ", with uncommitted changes" }
                }
                dt { "Compiler" } dd { (build.rustc) }
                @if !build.ptx_sha256.is_empty() { dt { "PTX" } dd { code { (build.ptx_sha256) } } }
                @if calibration.quantum_ns > 0.0 {
                    dt { "GPU timer" }
                    dd { "step " (units::time(calibration.quantum_ns)) ", empty kernel " (units::time(calibration.launch_ns)) }
                }
            }
            @if !calibration.ceilings.is_empty() {
                h3 { "Limits measured in this run" }
                div.scroll {
                    table {
                        thead {
                            tr {
                                th scope="col" { "limit" }
                                th.num scope="col" { "measured" }
                                th.num scope="col" { "by clock and width" }
                                th scope="col" { "how" }
                            }
                        }
                        tbody {
                            @for (name, c) in &calibration.ceilings {
                                tr {
                                    th scope="row" { (name) }
                                    td.num { (units::digits(c.value)) " " (c.unit) }
                                    td.num { (c.expected.map_or("-".into(), units::digits)) }
                                    td { (c.how) @if !c.ok { " " span.fail { "weaker than it should be" } } }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}
