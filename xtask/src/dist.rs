//! `cargo xtask dist`: a folder of binaries for a machine that has a GPU and no cargo.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::{say, write_atomically};

/// Marks a folder that this chore made and may fill again.
const MARKER: &str = ".rungs-dist";
/// What this chore puts into the folder beside the marker; anything else there is left alone.
const MADE: [&str; 4] = ["bin", "tests", "run-all.sh", "README.txt"];
const RUN_ALL: &str = include_str!("run-all.sh");

#[derive(clap::Args)]
pub(crate) struct Options {
    /// A new or empty folder, or one that an earlier `cargo xtask dist` made
    dir: PathBuf,
}

/// A cargo target that goes into the folder.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Wanted {
    package: String,
    manifest: String,
    /// `bin`, `test` or `example`.
    kind: String,
    name: String,
}

/// Builds and copies everything.
///
/// # Errors
/// A folder of someone else, or a failed build.
pub(crate) fn run(root: &Path, options: &Options) -> Result<()> {
    let dir = &options.dir;
    prepare(dir)?;
    let metadata = cargo(root, &["metadata", "--no-deps", "--format-version=1"])?;
    let wanted = wanted(&serde_json::from_str(&metadata).context("`cargo metadata` gave no JSON")?);
    ensure!(!wanted.is_empty(), "the workspace has no binary to pack");
    let executables = build(root, &wanted)?;
    let mut glibc = None;
    for (target, executable) in &executables {
        let bytes = fs::read(executable).with_context(|| format!("cannot read {}", executable.display()))?;
        glibc = glibc.max(needed_glibc(&bytes));
        write_executable(&dir.join(target.path()), &bytes)?;
        say!("{}", target.path())?;
    }
    write_executable(&dir.join("run-all.sh"), RUN_ALL.as_bytes())?;
    let commit = first_line(root, "git", &["describe", "--always", "--dirty", "--abbrev=40"]);
    write_atomically(&dir.join("README.txt"), readme(commit.as_deref(), glibc).as_bytes())?;
    say!("run it there: {}", dir.join("run-all.sh").display())
}

/// Makes the folder, or empties one of our own of what we made before.
fn prepare(dir: &Path) -> Result<()> {
    fs::create_dir_all(dir).with_context(|| format!("cannot make the folder {}", dir.display()))?;
    let empty = fs::read_dir(dir).with_context(|| format!("cannot list {}", dir.display()))?.next().is_none();
    ensure!(
        empty || dir.join(MARKER).is_file(),
        "{} is not empty, and not made by `cargo xtask dist`; name a new or empty folder",
        dir.display()
    );
    write_atomically(&dir.join(MARKER), b"Made by `cargo xtask dist`, which may replace its files.\n")?;
    for name in MADE {
        let path = dir.join(name);
        let gone = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        match gone {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("cannot remove {}", path.display()));
            }
            _ => {}
        }
    }
    Ok(())
}

/// The binaries of all packages but this one, the integration tests called `gpu...`, and what packages list under
/// `[package.metadata.dist]` as `tests` and `examples`.
fn wanted(metadata: &Value) -> Vec<Wanted> {
    let mut wanted = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
        let name = text(&package["name"]);
        if name == "xtask" {
            continue;
        }
        let listed = |kind: &str, target: &str| {
            let list = package["metadata"]["dist"][format!("{kind}s")].as_array();
            list.is_some_and(|list| list.iter().any(|listed| listed == target))
        };
        for target in package["targets"].as_array().into_iter().flatten() {
            let (kind, target) = (text(&target["kind"][0]), text(&target["name"]));
            if kind == "bin" || listed(&kind, &target) || (kind == "test" && target.starts_with("gpu")) {
                let manifest = text(&package["manifest_path"]);
                wanted.push(Wanted { package: name.clone(), manifest, kind, name: target });
            }
        }
    }
    wanted.sort();
    wanted
}

/// Builds all targets in one call of cargo, so that features are unified once.
fn build(root: &Path, wanted: &[Wanted]) -> Result<Vec<(Wanted, PathBuf)>> {
    let mut arguments = vec!["build", "--profile=dist", "--message-format=json-render-diagnostics", "--bins"];
    for package in wanted.iter().map(|target| target.package.as_str()).collect::<BTreeSet<_>>() {
        arguments.extend(["--package", package]);
    }
    for (kind, option) in [("test", "--test"), ("example", "--example")] {
        let names: BTreeSet<&str> = wanted.iter().filter(|t| t.kind == kind).map(|t| t.name.as_str()).collect();
        arguments.extend(names.into_iter().flat_map(|name| [option, name]));
    }
    let messages = cargo(root, &arguments)?;
    let messages: Vec<Value> = messages.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let executable = |target: &Wanted| {
        let of = |message: &&Value| {
            message["reason"] == "compiler-artifact"
                && message["manifest_path"] == target.manifest.as_str()
                && message["target"]["kind"][0] == target.kind.as_str()
                && message["target"]["name"] == target.name.as_str()
        };
        messages.iter().find(of).and_then(|message| message["executable"].as_str()).map(PathBuf::from)
    };
    let found = wanted.iter().map(|target| {
        let path = executable(target).with_context(|| format!("cargo built no executable for {}", target.path()))?;
        Ok((target.clone(), path))
    });
    found.collect()
}

impl Wanted {
    /// Path in the folder. Tests of several packages may have one name.
    fn path(&self) -> String {
        match self.kind.as_str() {
            "test" => format!("tests/{}-{}", self.package, self.name),
            "example" => format!("bin/{}-{}", self.package, self.name),
            _ => format!("bin/{}", self.name),
        }
    }
}

/// Runs cargo with its progress on our standard error; gives its standard output.
fn cargo(root: &Path, arguments: &[&str]) -> Result<String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let child = Command::new(cargo).args(arguments).current_dir(root).stderr(Stdio::inherit()).output();
    let output = child.context("cannot run cargo")?;
    ensure!(output.status.success(), "`cargo {}` failed", arguments[0]);
    Ok(String::from_utf8(output.stdout)?)
}

/// First line of what a program prints, where it can be had.
fn first_line(root: &Path, program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).current_dir(root).stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    text.lines().next().filter(|_| output.status.success()).map(str::to_string)
}

fn write_executable(path: &Path, bytes: &[u8]) -> Result<()> {
    write_atomically(path, bytes)?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(path, fs::Permissions::from_mode(0o755))
            .with_context(|| format!("cannot make {} executable", path.display()))?;
    }
    Ok(())
}

/// Highest version of the GNU C library that an executable's symbols name.
fn needed_glibc(bytes: &[u8]) -> Option<(u32, u32)> {
    const PREFIX: &[u8] = b"GLIBC_";
    let starts = bytes.windows(PREFIX.len()).enumerate().filter(|(_, window)| *window == PREFIX);
    let version = |(at, _): (usize, &[u8])| {
        let rest = &bytes[at + PREFIX.len()..];
        let end = rest.iter().position(|b| !(b.is_ascii_digit() || *b == b'.')).unwrap_or(rest.len());
        let mut numbers = std::str::from_utf8(&rest[..end]).ok()?.split('.');
        Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
    };
    starts.filter_map(version).max()
}

fn readme(commit: Option<&str>, glibc: Option<(u32, u32)>) -> String {
    let needs = match glibc {
        Some((major, minor)) => format!("glibc {major}.{minor} or newer (`ldd --version` tells)"),
        None => "no particular C library".to_string(),
    };
    format!(
        "Rungs, built for {} {} from commit {}.

Needs: {needs}; for the GPU part an NVIDIA driver for CUDA 12.4 or newer.
No CUDA toolkit, no cargo and no source tree.

    ./run-all.sh [OUT [OPTIONS]]    all tests, A/A, then bin/reproduce; logs, JSON and report.html in OUT (./out)
    REQUIRE_GPU=1 ./run-all.sh      a test that finds no GPU fails instead of skipping
    bin/reproduce --help            one study or one finding at a time
",
        std::env::consts::OS,
        std::env::consts::ARCH,
        commit.unwrap_or("unknown"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binaries_gpu_tests_and_listed_targets_are_wanted() {
        let metadata = serde_json::json!({"packages": [
            {"name": "xtask", "manifest_path": "x", "metadata": null, "targets": [{"name": "xtask", "kind": ["bin"]}]},
            {"name": "add", "manifest_path": "a", "metadata": {"dist": {"tests": ["ladder"], "examples": ["aa"]}}, "targets": [
                {"name": "add", "kind": ["lib"]},
                {"name": "add", "kind": ["bin"]},
                {"name": "ladder", "kind": ["test"]},
                {"name": "cli", "kind": ["test"]},
                {"name": "gpu_rungs", "kind": ["test"]},
                {"name": "aa", "kind": ["example"]},
                {"name": "ladder", "kind": ["bench"]},
            ]},
        ]});
        let paths: Vec<String> = wanted(&metadata).iter().map(Wanted::path).collect();
        assert_eq!(paths, ["bin/add", "bin/add-aa", "tests/add-gpu_rungs", "tests/add-ladder"]);
    }

    #[test]
    fn folders_of_others_are_refused_and_own_ones_refilled() {
        let dir = tempfile::tempdir().unwrap();
        let new = dir.path().join("a/b");
        prepare(&new).unwrap();
        fs::create_dir(new.join("bin")).unwrap();
        fs::write(new.join("bin/old"), "").unwrap();
        fs::write(new.join("notes"), "").unwrap();
        prepare(&new).unwrap();
        assert!(!new.join("bin").exists() && new.join("notes").exists());

        fs::write(dir.path().join("notes"), "").unwrap();
        let error = prepare(dir.path()).unwrap_err().to_string();
        assert!(error.contains("name a new or empty folder"), "{error}");
        let error = prepare(&dir.path().join("notes")).unwrap_err();
        assert!(format!("{error:#}").contains("cannot make the folder"), "{error:#}");
    }

    #[test]
    fn the_newest_glibc_symbol_counts() {
        assert_eq!(needed_glibc(b"\0GLIBC_2.9\0GLIBC_2.34\0GLIBC_PRIVATE\0GLIBC_2.4.1\0GLIBC_"), Some((2, 34)));
        assert_eq!(needed_glibc(b"static"), None);
        assert!(readme(None, Some((2, 34))).contains("glibc 2.34 or newer"));
    }

    /// Runs run-all.sh on shell scripts in place of tests, of timing and of reproduce; gives its exit code and output.
    #[cfg(unix)]
    fn run_all(
        tests: &[(&str, &str)],
        reproduce: &str,
        arguments: &[&str],
    ) -> (Option<i32>, String, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let bin = dir.path().join("with space");
        let scripts = tests.iter().map(|(name, text)| (format!("tests/{name}"), *text));
        for (path, text) in
            scripts.chain([("bin/reproduce".to_string(), reproduce), ("bin/timing".to_string(), "echo $@")])
        {
            write_executable(&bin.join(path), format!("#!/bin/sh\n{text}\n").as_bytes()).unwrap();
        }
        write_executable(&bin.join("run-all.sh"), RUN_ALL.as_bytes()).unwrap();
        let mut command = Command::new("sh");
        let output = command.arg("with space/run-all.sh").args(arguments).current_dir(dir.path()).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned(), dir)
    }

    #[cfg(unix)]
    #[test]
    fn the_script_gathers_logs_and_json_from_any_folder() {
        let (code, text, dir) = run_all(&[("a-gpu", "echo one")], "echo $@; echo '{}' >\"$2\"", &["my out", "--full"]);
        assert_eq!(code, Some(0), "{text}");
        let read = |name: &str| fs::read_to_string(dir.path().join("my out").join(name)).unwrap();
        assert_eq!(read("a-gpu.log"), "one\n");
        assert_eq!(read("report.json"), "{}\n");
        assert!(read("aa.log").starts_with("aa --json ") && read("aa.log").ends_with("my out/aa.json\n"));
        assert!(read("reproduce.log").ends_with("report.html --full\n"));
    }

    #[cfg(unix)]
    #[test]
    fn the_script_goes_on_after_a_failure_and_tells_of_it() {
        let tests = [("a-gpu", "echo broken; exit 101"), ("b-gpu", "echo two")];
        let (code, text, dir) = run_all(&tests, "exit 0", &[]);
        assert_eq!(code, Some(1));
        assert!(text.contains("a-gpu ... FAILED with exit code 101") && text.contains("b-gpu ... ok"), "{text}");
        assert!(text.contains("reproduce ... ok"), "{text}");
        assert_eq!(fs::read_to_string(dir.path().join("out/a-gpu.log")).unwrap(), "broken\n");
        let (code, _, _) = run_all(&tests[1..], "exit 3", &[]);
        assert_eq!(code, Some(1));
        let (code, text, _) = run_all(&[], "exit 0", &[]);
        assert_eq!(code, Some(1), "no test at all is no pass: {text}");
    }
}
