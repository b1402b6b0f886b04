//! Records what is being built: commit, compiler, PTX. Never fails: what cannot be told is left empty.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use sha2::{Digest, Sha256};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let root = Path::new(&env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("../..");

    let (git, dirty) = commit(&root);
    println!("cargo::rustc-env=RUNGS_GIT={git}");
    println!("cargo::rustc-env=RUNGS_DIRTY={dirty}");

    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    println!("cargo::rustc-env=RUNGS_RUSTC={}", output(&rustc, &["--version"], &root).unwrap_or_default());

    let ptx = root.join("ptx");
    println!("cargo::rerun-if-changed={}", ptx.display());
    println!("cargo::rustc-env=RUNGS_PTX_SHA256={}", ptx_sha256(&ptx));
}

/// The commit, and whether tracked files differ from it; empty outside a checkout of this workspace.
fn commit(root: &Path) -> (String, bool) {
    // A copy inside somebody else's repository must not report their commit.
    let top = output("git", &["rev-parse", "--show-toplevel"], root);
    let same = |top: String| Some(fs::canonicalize(top).ok()? == fs::canonicalize(root).ok()?);
    if top.and_then(same) != Some(true) {
        return (String::new(), false);
    }
    // HEAD changes with the branch, the branch's ref (loose or packed) with each commit.
    let branch = output("git", &["symbolic-ref", "-q", "HEAD"], root).unwrap_or_default();
    for name in ["HEAD", "packed-refs", &branch] {
        if let Some(path) = output("git", &["rev-parse", "--git-path", name], root).filter(|_| !name.is_empty()) {
            let path = root.join(path);
            // A path that does not exist would make Cargo run this script every time.
            if path.exists() {
                println!("cargo::rerun-if-changed={}", path.display());
            }
        }
    }
    let Some(git) = output("git", &["rev-parse", "HEAD"], root) else { return (String::new(), false) };
    let status = output("git", &["--no-optional-locks", "status", "--porcelain", "--untracked-files=no"], root);
    (git, status.is_none_or(|s| !s.is_empty()))
}

/// Trimmed standard output of a command that succeeds.
fn output(program: impl AsRef<OsStr>, args: &[&str], folder: &Path) -> Option<String> {
    let output = Command::new(program).args(args).current_dir(folder).output().ok().filter(|o| o.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_string())
}

/// SHA-256 over `study/stem.ptx`, its length and its bytes, for all files in path order; empty without any.
fn ptx_sha256(folder: &Path) -> String {
    let mut files: Vec<(String, PathBuf)> = Vec::new();
    let list = |p: &Path| -> Vec<PathBuf> {
        fs::read_dir(p).map(|d| d.flatten().map(|e| e.path()).collect()).unwrap_or_default()
    };
    for study in list(folder).into_iter().filter(|p| p.is_dir()) {
        for path in list(&study).into_iter().filter(|p| p.extension().is_some_and(|e| e == "ptx")) {
            let name = |p: &Path| p.file_name().unwrap_or_default().to_string_lossy().into_owned();
            files.push((format!("{}/{}", name(&study), name(&path)), path));
        }
    }
    files.sort();
    if files.is_empty() {
        return String::new();
    }
    let mut hash = Sha256::new();
    for (name, path) in files {
        let bytes = fs::read(path).unwrap_or_default();
        hash.update(format!("{name} {}\n", bytes.len()));
        hash.update(bytes);
    }
    hash.finalize().iter().map(|b| format!("{b:02x}")).collect()
}
