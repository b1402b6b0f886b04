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

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Prints a line to standard output; a reader that has gone away (`| head -1`) is no error.
macro_rules! say {
    ($($arg:tt)*) => {{
        use std::io::Write;
        let _ = writeln!(std::io::stdout(), $($arg)*);
    }};
}
pub(crate) use say;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Chores of the Rungs workspace")]
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
    let cli = Cli::parse();
    let root = cli.root.unwrap_or_else(built_from);
    let done = match cli.chore {
        Chore::Ptx(options) => ptx::run(&root, &options),
        Chore::Tidy => tidy::run(&root),
        Chore::Dist(options) => dist::run(&root, &options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Root of the checkout: the folder above this package.
fn built_from() -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR").map_or(env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    package.parent().map_or_else(|| Path::new(".").to_path_buf(), Path::to_path_buf)
}

/// Writes `bytes` to a temporary name beside `path`, then renames it: readers see the old file or the new one.
fn write_atomically(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    use anyhow::Context;
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
