//! Runs every study on this machine, judges every finding, writes one report.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Parser;
use report::cli::{self, Exit, code};
use report::compare::{Change, MARGIN, compare};
use report::session::{Session, machine};
use report::study::{Options, Study, Target};
use report::{Finding, FindingSpec, Report, table};

const EXAMPLES: &str = "\
Examples:
  reproduce                                  a first look at everything
  reproduce --full --study mandelbrot        one study at its published sizes
  reproduce --finding mandelbrot.cpu-simd    one claim: measured, judged, explained
  reproduce --replay report.json             the tables and the page of an earlier run
  reproduce --compare old.json new.json      two machines or two commits

Exit codes:
  0  done, or skipped with a reason
  1  input or output failed
  2  the command line is wrong
  3  a check failed; such a rung has no time
  4  --require-findings, REQUIRE_GPU=1 or REQUIRE_AVX512=1 is unmet
  5  --compare found something slower";

/// Measures rungs, judges published findings on this machine and writes one report.
#[derive(Parser, Debug)]
#[command(name = "reproduce", version, after_help = EXAMPLES)]
struct Args {
    /// Measure at the published sizes with many samples, instead of a first look
    #[arg(long)]
    full: bool,

    /// Only this study; may be repeated
    #[arg(long = "study", value_name = "STUDY")]
    studies: Vec<String>,

    /// Measure only what this finding needs, and explain its verdict; may be repeated
    #[arg(long = "finding", value_name = "ID", conflicts_with = "studies")]
    findings: Vec<String>,

    /// List all findings
    #[arg(long, conflicts_with_all = ["full", "findings", "json", "html", "replay", "require_findings", "on"])]
    list_findings: bool,

    /// Where the JSON goes [default: target/reproduce/report.json]
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Where the HTML page goes [default: target/reproduce/report.html]
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// Render and judge a report again without measuring; its JSON is written only where --json says
    #[arg(long, value_name = "FILE", conflicts_with_all = ["full", "studies", "on"])]
    replay: Option<PathBuf>,

    /// Compare two reports run by run: B is slower or faster when the 95% interval of its time over A's lies wholly
    /// more than 5% from 1, and the same when it lies within 5%
    #[arg(long, num_args = 2, value_names = ["A", "B"], conflicts_with_all = [
        "full", "studies", "findings", "list_findings", "json", "html", "replay", "require_findings", "on",
    ])]
    compare: Option<Vec<PathBuf>>,

    /// Exit with 4 unless every finding that applies to this machine is reproduced, at least in direction
    #[arg(long)]
    require_findings: bool,

    /// Only this target: cpu, gpu or emulator [default: cpu, and gpu, or emulator where there is no GPU]
    #[arg(long, value_name = "TARGET")]
    on: Option<Target>,
}

/// Runs the program: `args` with its name first, text to `out`. The error carries the exit code.
pub fn run(args: impl IntoIterator<Item = OsString>, studies: &[Study], out: &mut dyn Write) -> Result<()> {
    let args: Args = cli::parse(args, out)?;
    if let Some(files) = &args.compare {
        return run_compare(&files[0], &files[1], out);
    }
    let chosen = choose(&args, studies)?;
    if args.list_findings {
        let specs: Vec<FindingSpec> = chosen.iter().flat_map(|(_, specs)| specs.clone()).collect();
        return Ok(out.write_all(table::specs(&specs).as_bytes())?);
    }
    match &args.replay {
        Some(file) => replay(file, &args, studies, out),
        None => measure(&args, &chosen, out),
    }
}

/// The studies asked for, each with the findings asked for.
fn choose<'a>(args: &Args, studies: &'a [Study]) -> Result<Vec<(&'a Study, Vec<FindingSpec>)>, Exit> {
    let names: Vec<&str> = studies.iter().map(|s| s.name).collect();
    for study in &args.studies {
        if !names.contains(&study.as_str()) {
            return Err(cli::unknown("study", study, names));
        }
    }
    let mut all: Vec<(&Study, Vec<FindingSpec>)> = studies.iter().map(|s| (s, (s.findings)())).collect();
    let ids: Vec<&str> = all.iter().flat_map(|(_, specs)| specs.iter().map(|s| s.id)).collect();
    for finding in &args.findings {
        if !ids.contains(&finding.as_str()) {
            return Err(cli::unknown("finding", finding, ids));
        }
    }
    if !args.findings.is_empty() {
        all.iter_mut().for_each(|(_, specs)| specs.retain(|s| args.findings.iter().any(|f| f == s.id)));
        all.retain(|(_, specs)| !specs.is_empty());
    } else if !args.studies.is_empty() {
        all.retain(|(study, _)| args.studies.iter().any(|s| s == study.name));
    }
    Ok(all)
}

/// What a study must do: everything, or what its chosen findings need.
fn options(args: &Args, specs: &[FindingSpec], report: &Report) -> Options {
    let mut options = Options { target: args.on, full: args.full, ..Options::default() };
    options.calibration = report.calibration.clone();
    if !args.findings.is_empty() {
        options.findings = specs.iter().map(|s| s.id.to_string()).collect();
        let rungs: Vec<Vec<&str>> = specs.iter().map(FindingSpec::rungs).collect();
        // One finding that may need any rung needs all.
        if rungs.iter().all(|r| !r.is_empty()) {
            options.rungs = rungs.concat().into_iter().map(String::from).collect();
            options.rungs.sort();
            options.rungs.dedup();
        }
        let mut targets = specs.iter().map(|s| s.needs.target);
        let first = targets.next().flatten();
        if options.target.is_none() && targets.all(|t| t == first) {
            options.target = first;
        }
    }
    options
}

fn measure(args: &Args, chosen: &[(&Study, Vec<FindingSpec>)], out: &mut dyn Write) -> Result<()> {
    let json = args.json.clone().unwrap_or("target/reproduce/report.json".into());
    let html = args.html.clone().unwrap_or("target/reproduce/report.html".into());
    if json == html {
        return Err(Exit::usage("--json and --html name the same file").into());
    }
    // Minutes of measuring must not end at a path that could not be written from the start.
    cli::check_writable(&json)?;
    cli::check_writable(&html)?;

    let mut session = Session::start(args.on, out)?;
    for (study, specs) in chosen {
        let options = options(args, specs, &session.report);
        session.measure(study.name, |progress| (study.measure)(&options, progress), out)?;
    }
    let report = &mut session.report;
    let specs: Vec<FindingSpec> = chosen.iter().flat_map(|(_, specs)| specs.clone()).collect();
    report.judge(&specs);
    // One file that cannot be written is no reason to lose the other, or the findings.
    let written = [report.write(&json), cli::write_file(&html, report::page(report).as_bytes())];
    print_findings(&report.findings, !args.findings.is_empty(), out)?;
    for result in written {
        result?;
    }
    writeln!(out, "\nreport: {} and {}", json.display(), html.display())?;

    let findings = std::mem::take(&mut report.findings);
    session.finish()?;
    require(args, &findings)
}

fn print_findings(findings: &[Finding], explain: bool, out: &mut dyn Write) -> Result<()> {
    if explain {
        for finding in findings {
            out.write_all(table::explain(finding).as_bytes())?;
        }
    } else if !findings.is_empty() {
        write!(out, "\n{}", table::findings(findings))?;
    }
    Ok(())
}

fn require(args: &Args, findings: &[Finding]) -> Result<()> {
    let unmet: Vec<String> = findings
        .iter()
        .filter(|f| args.require_findings && !f.verdict.holds_or_does_not_apply())
        .map(|f| format!("{} ({})", f.id, f.verdict.name()))
        .collect();
    if unmet.is_empty() { Ok(()) } else { Err(Exit::new(code::UNMET, format!("not met: {}", unmet.join(", "))).into()) }
}

fn replay(file: &Path, args: &Args, studies: &[Study], out: &mut dyn Write) -> Result<()> {
    let mut report = Report::read(file)?;
    let html = args.html.clone().unwrap_or("target/reproduce/report.html".into());
    let (measured, recorded) = (report.studies(), &report.findings);
    let specs: Vec<FindingSpec> = studies
        .iter()
        .flat_map(|study| {
            let ran = measured.contains(&study.name);
            (study.findings)().into_iter().filter(move |s| ran || recorded.iter().any(|f| f.id == s.id))
        })
        .collect();
    report.judge(&specs);
    if !args.findings.is_empty() {
        report.findings.retain(|f| args.findings.contains(&f.id));
    }
    if let Some(json) = &args.json {
        report.write(json)?;
    }
    cli::write_file(&html, report::page(&report).as_bytes())?;

    write!(out, "{}", machine(&report))?;
    for study in report.studies() {
        out.write_all(table::study(&report, study).as_bytes())?;
    }
    print_findings(&report.findings, !args.findings.is_empty(), out)?;
    writeln!(out, "\nreport: {}", html.display())?;
    require(args, &report.findings)
}

fn run_compare(a: &Path, b: &Path, out: &mut dyn Write) -> Result<()> {
    let reports = (Report::read(a)?, Report::read(b)?);
    let compared = compare(&reports.0, &reports.1);
    if compared.rows.is_empty() {
        let message = format!("{} and {} have no timed run in common", a.display(), b.display());
        return Err(Exit::new(code::IO, message).into());
    }
    for (name, file, report) in [("A", a, &reports.0), ("B", b, &reports.1)] {
        let device = report.device.as_ref().map_or(String::new(), |d| format!(", {}", d.name));
        let commit = report.build.git.get(..12).unwrap_or("no commit");
        let dirty = if report.build.dirty { " and changes" } else { "" };
        writeln!(out, "{name}  {}: {}{device}, {commit}{dirty}", file.display(), report.host.cpu)?;
    }
    out.write_all(table::comparison(&compared).as_bytes())?;
    let count = |change| compared.rows.iter().filter(|r| r.change == change).count();
    let counts: Vec<String> = [Change::Same, Change::Faster, Change::Slower, Change::Unclear]
        .map(|change| format!("{} {}", count(change), change.name()))
        .into();
    writeln!(out, "\n{} (beyond a margin of {}x)", counts.join(", "), MARGIN)?;
    match count(Change::Slower) {
        0 => Ok(()),
        n => Err(Exit::new(code::SLOWER, format!("{n} of {} runs are slower in B", compared.rows.len())).into()),
    }
}
