//! See `mandelbrot --help`.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use mandelbrot::ladder::{CPU, GPU};
use mandelbrot::measure::{Case, Gpus, NAME, cases, measure, study};
use mandelbrot::palette::write_png;
use mandelbrot::reference::Formulation;
use mandelbrot::view::{Problem, VIEWS, View};
use report::cli::{self, Exit};
use report::session::Session;
use report::study::{Options, Target};

const EXAMPLES: &str = "\
Examples:
  mandelbrot                                       every rung, small sizes
  mandelbrot cpu_00_scalar cpu_04_avx512 --size 1024x1024 --max-iter 2000
  mandelbrot --on gpu --full --json gpu.json       every GPU rung at the published sizes
  mandelbrot --view boundary --png boundary.png    a picture, without measuring

Exit codes:
  0  done, or skipped with a reason
  1  input or output failed
  2  the command line is wrong
  3  a check failed; such a rung has no time
  4  REQUIRE_GPU=1 or REQUIRE_AVX512=1 is unmet";

/// Escape-time counts of the Mandelbrot set, from one scalar loop to every lane of the machine.
///
/// Each rung is compared with its oracle, pixel by pixel, before and after it is timed.
#[derive(Parser, Debug)]
#[command(name = "mandelbrot", version, after_help = EXAMPLES)]
struct Args {
    /// Rungs to run [default: all]
    #[arg(value_name = "RUNG")]
    rungs: Vec<String>,

    /// List the rungs
    #[arg(long, conflicts_with_all = ["rungs", "on", "size", "view", "max_iter", "full", "json", "png"])]
    list: bool,

    /// Only this target: cpu, gpu or emulator [default: cpu, and gpu, or emulator where there is no GPU]
    #[arg(long, value_name = "TARGET")]
    on: Option<Target>,

    /// Pixels, e.g. 1024x768 [default: several sizes]
    #[arg(long, value_name = "WIDTHxHEIGHT", allow_hyphen_values = true)]
    size: Option<String>,

    /// Window: whole, boundary or interior [default: several]
    #[arg(long)]
    view: Option<String>,

    /// Iterations after which a pixel counts as inside [default: several]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    max_iter: Option<u32>,

    /// Measure at the published sizes with many samples
    #[arg(long)]
    full: bool,

    /// Write the runs as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Write a picture instead of measuring
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "full", "on", "rungs"])]
    png: Option<PathBuf>,
}

/// Most iterations of one problem: half a minute of the scalar oracle. The limits of [`Problem`] alone would let a
/// command run for years.
const MAX_ITERATIONS: u64 = 10_000_000_000;

fn main() -> ExitCode {
    cli::main(|out| run(std::env::args_os(), out))
}

fn run(args: impl IntoIterator<Item = OsString>, out: &mut dyn Write) -> anyhow::Result<()> {
    let args: Args = cli::parse(args, out)?;
    let stems: Vec<&str> = CPU.iter().map(|r| r.stem).chain(GPU.iter().map(|r| r.stem())).collect();
    for rung in &args.rungs {
        if !stems.contains(&rung.as_str()) {
            return Err(cli::unknown("rung", rung, stems).into());
        }
        if let Some(on) = args.on.filter(|&on| (on == Target::Cpu) != CPU.iter().any(|r| r.stem == rung)) {
            return Err(
                Exit::usage(format!("--on {on} leaves out the rung `{rung}`; name rungs of that target")).into()
            );
        }
    }
    if args.list {
        return Ok(list(out)?);
    }
    let problem = chosen_problem(&args)?;
    if let Some(path) = &args.png {
        let problem = problem.map_or_else(|| chosen(&args, (1024, 1024), 2000), Ok)?;
        cli::check_writable(path)?;
        let mut counts = vec![0; problem.pixels()];
        Formulation::Fused.counts(&problem, &mut counts);
        write_png(path, &problem, &counts)?;
        writeln!(out, "{}: {} {}x{}", path.display(), problem.view.name, problem.width, problem.height)?;
        return Ok(());
    }
    if let Some(path) = &args.json {
        cli::check_writable(path)?;
    }
    let cases = match problem {
        Some(problem) => vec![Case { problem, cpu: true, gpu: Gpus::All }],
        None => cases(args.full),
    };
    let on = args.on.or_else(|| only_target(&args.rungs));
    let options = Options { target: on, full: args.full, rungs: args.rungs, ..Options::default() };
    let files: Vec<&Path> = args.json.iter().map(PathBuf::as_path).collect();
    let out = &mut *cli::text_beside(&files, out);
    let mut session = Session::start(on, out)?;
    session.report.questions.insert(NAME.to_string(), study().question.to_string());
    session.measure(NAME, |progress| measure(&cases, &options, progress), out)?;
    session.report.judge(&mandelbrot::findings::findings());
    if let Some(path) = &args.json {
        session.report.write(path)?;
    }
    Ok(session.finish()?)
}

/// The target of all rungs named; none when none is, or both are meant.
fn only_target(rungs: &[String]) -> Option<Target> {
    let on_cpu = |rung: &String| CPU.iter().any(|r| r.stem == rung);
    match rungs.iter().filter(|rung| on_cpu(rung)).count() {
        _ if rungs.is_empty() => None,
        0 => Some(Target::Gpu),
        n => (n == rungs.len()).then_some(Target::Cpu),
    }
}

/// The one problem asked for; none when neither size nor view nor iterations are given.
fn chosen_problem(args: &Args) -> Result<Option<Problem>, Exit> {
    if args.size.is_none() && args.view.is_none() && args.max_iter.is_none() {
        return Ok(None);
    }
    let (side, max_iter) = if args.full { (1024, 2000) } else { (256, 256) };
    chosen(args, (side, side), max_iter).map(Some)
}

fn chosen(args: &Args, default_size: (u32, u32), default_max_iter: u32) -> Result<Problem, Exit> {
    let (width, height) = args.size.as_deref().map_or(Ok(default_size), parse_size)?;
    let view = args.view.as_deref().map_or(Ok(VIEWS[0]), parse_view)?;
    let max_iter = args.max_iter.unwrap_or(default_max_iter);
    let problem = Problem::new(view, width, height, max_iter).map_err(|e| Exit::usage(e.to_string()))?;
    let iterations = problem.pixels() as u64 * u64::from(max_iter);
    if iterations > MAX_ITERATIONS {
        let what = format!("{width}x{height} pixels of {max_iter} iterations are up to {iterations:.1e} iterations");
        return Err(Exit::usage(format!("{what}; at most {MAX_ITERATIONS:.0e} are allowed")));
    }
    Ok(problem)
}

fn parse_size(text: &str) -> Result<(u32, u32), Exit> {
    let parsed = text.split_once('x').and_then(|(w, h)| Some((w.parse().ok()?, h.parse().ok()?)));
    match parsed {
        Some((width, height)) if width > 0 && height > 0 && !text.contains('+') => Ok((width, height)),
        _ => Err(Exit::usage(format!("--size is WIDTHxHEIGHT with both at least 1, e.g. 1024x768; not `{text}`"))),
    }
}

fn parse_view(name: &str) -> Result<View, Exit> {
    let names = VIEWS.iter().map(|v| v.name);
    VIEWS.iter().find(|v| v.name == name).copied().ok_or_else(|| cli::unknown("view", name, names))
}

fn list(out: &mut dyn Write) -> std::io::Result<()> {
    let width = CPU.iter().map(|r| r.stem.len()).chain(GPU.iter().map(|r| r.stem().len())).max().unwrap_or(0);
    for rung in CPU {
        let unavailable = (rung.available)().err().map_or(String::new(), |reason| format!(" (here: {reason})"));
        writeln!(out, "{:width$}  {}{unavailable}", rung.stem, rung.what)?;
    }
    for rung in GPU {
        writeln!(out, "{:width$}  {}", rung.stem(), rung.what)?;
    }
    Ok(())
}
