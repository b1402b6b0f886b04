//! Chores of the workspace, run as `cargo xtask`: compile and check the committed PTX, check the rules of the
//! source tree, pack binaries for machines without cargo.
//!
//! Exit codes: 0 done, 1 a check or the chore failed, 2 usage.

mod dist;
mod nvrtc;
mod ptx;
mod ptxas;
mod scan;
mod tidy;
mod wheels;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::error::ErrorKind;
use clap::{Parser, Subcommand};

/// Prints a line to standard output. A reader that has gone away (`| head -1`) is no error: the exit code stays that
/// of the chore.
macro_rules! say {
    ($($arg:tt)*) => { crate::print(format_args!("{}\n", format_args!($($arg)*))) };
}
pub(crate) use say;

fn print(text: std::fmt::Arguments<'_>) -> Result<()> {
    let mut out = io::stdout();
    match out.write_fmt(text).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).context("cannot write to standard output")
        }
        _ => Ok(()),
    }
}

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Chores of the Rungs workspace", version, arg_required_else_help = false)]
struct Cli {
    /// Work on the source tree in DIR instead of the one that this binary was built from
    #[arg(long, global = true, value_name = "DIR")]
    root: Option<PathBuf>,
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Compile crates/*/kernels/*.cu to ptx/ with NVRTC 12.4, or check what is committed
    Ptx(ptx::Options),
    /// Check the rules of the source tree: one line for each violation
    Tidy,
    /// Build a folder of stripped binaries and tests for a machine with a GPU and no cargo
    Dist(dist::Options),
}

fn main() -> ExitCode {
    let (code, done) = match Cli::try_parse() {
        Ok(cli) => (1, run(cli)),
        Err(error) if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            (1, print(format_args!("{}", error.render())))
        }
        Err(error) => (2, Err(usage(&error.render().to_string()))),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "error: {}", one_line(&format!("{error:#}")));
            ExitCode::from(code)
        }
    }
}

fn run(cli: Cli) -> Result<()> {
    let root = cli.root.unwrap_or_else(built_from);
    check_root(&root)?;
    match cli.chore {
        Chore::Ptx(options) => ptx::run(&root, &options),
        Chore::Tidy => tidy::run(&root),
        Chore::Dist(options) => dist::run(&root, &options),
    }
}

/// A tree that is not there, or is another one, would pass every check.
fn check_root(root: &Path) -> Result<()> {
    let manifest = root.join("Cargo.toml");
    let text = std::fs::read_to_string(&manifest).with_context(|| format!("cannot read {}", manifest.display()))?;
    let table: toml::Table = toml::from_str(&text).with_context(|| format!("{} is no TOML", manifest.display()))?;
    ensure!(table.contains_key("workspace"), "{} has no [workspace]", manifest.display());
    Ok(())
}

/// What clap says of a command line, without its advice on several lines.
fn usage(text: &str) -> anyhow::Error {
    let said = text.split("\nUsage:").next().and_then(|t| t.split("\nFor more information").next()).unwrap_or(text);
    let said = one_line(said.strip_prefix("error: ").unwrap_or(said));
    anyhow::anyhow!("{said} (--help lists what there is)")
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Root of the checkout: the folder above this package.
fn built_from() -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR").map_or(env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    package.parent().map_or_else(|| Path::new(".").to_path_buf(), Path::to_path_buf)
}

/// Writes `bytes` to a temporary name beside `path`, then renames it: readers see the old file or the new one.
fn write_atomically(path: &Path, bytes: &[u8]) -> Result<()> {
    let folder = path.parent().context("a file needs a folder")?;
    let name = path.file_name().context("a file needs a name")?.to_string_lossy();
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make the folder {}", folder.display()))?;
    let temporary = folder.join(format!(".{name}.{}", std::process::id()));
    std::fs::write(&temporary, bytes)
        .and_then(|()| std::fs::rename(&temporary, path))
        .inspect_err(|_| {
            let _ = std::fs::remove_file(&temporary);
        })
        .with_context(|| format!("cannot write {}", path.display()))
}
