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
use report::text::{clean, width, wrap};
use report::{Finding, FindingSpec, Report, Verdict, table, units};

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
  3  a check failed, here, in the report of --replay or in B of --compare; such a rung has no time
  4  --require-findings, REQUIRE_GPU=1 or REQUIRE_AVX512=1 is unmet
  5  --compare found something slower

REQUIRE_GPU=1 makes a missing GPU an error wherever one would be used: by default, with --on gpu and for a finding
about the GPU. With --on cpu, --on emulator or only findings about the CPU, none is used. REQUIRE_AVX512=1 does the
same for rungs that need AVX-512.";

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

    /// Where the JSON goes [default: target/reproduce/report.json; for one finding ID.json, for several findings.json]
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Where the HTML page goes [default: beside the JSON's default, with .html]
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
    if let Some(file) = &args.replay {
        return replay(file, &args, studies, out);
    }
    let chosen = choose(&args, studies)?;
    if args.list_findings {
        let specs: Vec<FindingSpec> = chosen.iter().flat_map(|(_, specs)| specs.clone()).collect();
        return Ok(out.write_all(table::specs(&specs, width()).as_bytes())?);
    }
    measure(&args, &chosen, out)
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
    let calibration = report.calibration.clone();
    let mut options = Options { target: args.on, full: args.full, calibration, ..Options::default() };
    if !args.findings.is_empty() {
        options.target = asked(args, specs);
        options.findings = specs.iter().map(|s| s.id.to_string()).collect();
        let selects: Vec<_> = specs.iter().map(FindingSpec::selects).collect();
        // One finding that may need any run needs all.
        if selects.iter().all(|s| !s.is_empty()) {
            options.selects = selects.concat();
            options.rungs = specs.iter().flat_map(FindingSpec::rungs).map(String::from).collect();
            options.rungs.sort();
            options.rungs.dedup();
        }
    }
    options
}

/// The only target: the one asked for, else the one that all chosen findings are about.
fn asked(args: &Args, specs: &[FindingSpec]) -> Option<Target> {
    let mut targets = specs.iter().map(FindingSpec::target);
    let first = targets.next().flatten().filter(|_| !args.findings.is_empty());
    args.on.or(first.filter(|_| targets.all(|t| t == first)))
}

/// Whether `--on` leaves out what the finding is about.
fn left_out(args: &Args, spec: &FindingSpec) -> Option<String> {
    let (on, target) = (args.on?, spec.target()?);
    (on != target).then(|| format!("it is about runs on {target}, which --on {on} leaves out"))
}

/// Where the files of a run go. One that measured only some findings does not replace the report of a full one.
fn files(args: &Args) -> (PathBuf, PathBuf) {
    let mut ids = args.findings.clone();
    ids.sort();
    ids.dedup();
    let stem = match &ids[..] {
        [] => "report",
        [id] => id,
        _ => "findings",
    };
    let default = |extension| Path::new("target/reproduce").join(format!("{stem}.{extension}"));
    (args.json.clone().unwrap_or(default("json")), args.html.clone().unwrap_or(default("html")))
}

fn measure(args: &Args, chosen: &[(&Study, Vec<FindingSpec>)], out: &mut dyn Write) -> Result<()> {
    let (json, html) = files(args);
    cli::distinct(&[("--json", &json), ("--html", &html)])?;
    // Minutes of measuring must not end at a path that could not be written from the start.
    cli::check_writable(&json)?;
    cli::check_writable(&html)?;
    let out = &mut *cli::text_beside(&[&json, &html], out);

    let specs: Vec<FindingSpec> = chosen.iter().flat_map(|(_, specs)| specs.clone()).collect();
    let mut session = Session::start(asked(args, &specs), out)?;
    for (study, specs) in chosen {
        if !args.findings.is_empty() && specs.iter().all(|s| left_out(args, s).is_some()) {
            continue;
        }
        session.report.questions.insert(study.name.into(), study.question.into());
        let options = options(args, specs, &session.report);
        session.measure(study.name, |progress| (study.measure)(&options, progress), out)?;
    }
    let report = &mut session.report;
    report.judge(&specs);
    for (finding, spec) in report.findings.iter_mut().zip(&specs) {
        if let Some(reason) = left_out(args, spec).filter(|_| finding.verdict == Verdict::NotApplicable) {
            finding.reason = reason;
        }
    }
    // One file that cannot be written is no reason to lose the other, or the findings.
    let written = [report.write(&json), cli::write_file(&html, report::page(report).as_bytes())];
    print_findings(report.findings.iter(), !args.findings.is_empty(), out)?;
    for result in written {
        result?;
    }
    writeln!(out, "\nreport: {} and {}", json.display(), html.display())?;

    let findings = std::mem::take(&mut report.findings);
    session.finish()?;
    require(args, findings.iter())
}

fn print_findings<'a>(
    findings: impl Iterator<Item = &'a Finding>,
    explain: bool,
    out: &mut dyn Write,
) -> std::io::Result<()> {
    let findings: Vec<Finding> = findings.cloned().collect();
    if explain {
        for finding in &findings {
            out.write_all(table::explain(finding, width()).as_bytes())?;
        }
    } else if !findings.is_empty() {
        write!(out, "\n{}", table::findings(&findings, width()))?;
    }
    Ok(())
}

fn require<'a>(args: &Args, findings: impl Iterator<Item = &'a Finding>) -> Result<()> {
    let unmet: Vec<String> = findings
        .filter(|f| args.require_findings && !f.verdict.holds_or_does_not_apply())
        .map(|f| format!("{} ({})", f.id, f.verdict.name()))
        .collect();
    if unmet.is_empty() { Ok(()) } else { Err(Exit::new(code::UNMET, format!("not met: {}", unmet.join(", "))).into()) }
}

fn replay(file: &Path, args: &Args, studies: &[Study], out: &mut dyn Write) -> Result<()> {
    // Not report.html, which is this machine's own.
    let html = args.html.clone().unwrap_or("target/reproduce/replay.html".into());
    let outputs: Vec<(&str, &Path)> =
        args.json.iter().map(|json| ("--json", json.as_path())).chain([("--html", html.as_path())]).collect();
    cli::distinct(&[&[("--replay", file)], &outputs[..]].concat())?;
    let mut report = Report::read(file)?;
    for (_, output) in &outputs {
        cli::check_writable(output)?;
    }
    let out = &mut *cli::text_beside(&outputs.iter().map(|(_, output)| *output).collect::<Vec<_>>(), out);

    let (measured, recorded) = (report.studies(), &report.findings);
    let known: Vec<(&str, FindingSpec)> =
        studies.iter().flat_map(|study| (study.findings)().into_iter().map(|spec| (study.name, spec))).collect();
    let mut ids: Vec<&str> = known.iter().map(|(_, s)| s.id).collect();
    ids.extend(recorded.iter().map(|f| f.id.as_str()).filter(|id| known.iter().all(|(_, s)| s.id != *id)));
    if let Some(id) = args.findings.iter().find(|id| !ids.contains(&id.as_str())) {
        return Err(cli::unknown("finding", id, ids).into());
    }
    let in_report =
        |(study, spec): &&(&str, FindingSpec)| measured.contains(study) || recorded.iter().any(|f| f.id == spec.id);
    let specs: Vec<FindingSpec> = known.iter().filter(in_report).map(|(_, spec)| *spec).collect();
    let absent: Vec<String> = known
        .iter()
        .filter(|s| !in_report(s) && args.findings.iter().any(|f| f == s.1.id))
        .map(|(study, spec)| format!("{}: {} has no runs of {study}", spec.id, file.display()))
        .collect();
    report.judge(&specs);

    // Everything is written; only what was asked for is printed and required.
    let wanted = |f: &&Finding| args.findings.is_empty() || args.findings.contains(&f.id);
    let page = report::page(&report);
    let written = outputs.iter().map(|(option, path)| match *option {
        "--json" => report.write(path),
        _ => cli::write_file(path, page.as_bytes()),
    });
    let written: Vec<_> = written.collect();

    write!(out, "{}", machine(&report))?;
    for study in report.studies() {
        out.write_all(table::study(&report, study, width()).as_bytes())?;
    }
    print_findings(report.findings.iter().filter(wanted), !args.findings.is_empty(), out)?;
    for line in &absent {
        write!(out, "\nnot judged: {}", wrap(line, width(), 2))?;
    }
    for result in written {
        result?;
    }
    let names: Vec<String> = outputs.iter().map(|(_, path)| path.display().to_string()).collect();
    writeln!(out, "\nreport: {}", names.join(" and "))?;
    cli::checked(&report.failures())?;
    if args.require_findings && !absent.is_empty() {
        return Err(Exit::new(code::UNMET, format!("not judged: {}", absent.join(", "))).into());
    }
    require(args, report.findings.iter().filter(wanted))
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
        let line = format!("{name}  {}: {}{device}, {commit}{dirty}", file.display(), report.host.cpu);
        writeln!(out, "{}", clean(&line))?;
    }
    out.write_all(table::comparison(&compared, width()).as_bytes())?;
    let count = |change| compared.rows.iter().filter(|r| r.change == change).count();
    let counts: Vec<String> = [Change::Same, Change::Faster, Change::Slower, Change::Unclear, Change::Failed]
        .map(|change| format!("{} {}", count(change), change.name()))
        .into();
    writeln!(out, "\n{} (beyond a margin of {}x)", counts.join(", "), MARGIN)?;
    // A wrong result is worse than a slow one.
    if !compared.failed_b.is_empty() {
        let message = format!("in B a check failed: {}", compared.failed_b.join(", "));
        return Err(Exit::new(code::CHECK, message).into());
    }
    match count(Change::Slower) {
        0 => Ok(()),
        n => {
            let slower = format!("{n} of {}", units::plural(compared.rows.len(), "run"));
            Err(Exit::new(code::SLOWER, format!("slower in B: {slower}")).into())
        }
    }
}
