//! The built program as a script sees it: exit codes, one line for each mistake, hostile outputs.
//! Nothing here measures.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use assert_cmd::Command;
use report::Report;

fn small() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../report/tests/fixtures/small.json")
}

/// Runs the program in an empty folder.
struct Program {
    folder: tempfile::TempDir,
}

impl Program {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self) -> Command {
        let mut command = Command::cargo_bin("reproduce").unwrap();
        command.current_dir(self.folder.path()).env_remove("REQUIRE_GPU").env_remove("REQUIRE_AVX512");
        command
    }

    fn run(&self, args: &[&str]) -> (i32, String, String) {
        ended(self.command().args(args).output().unwrap())
    }
}

fn ended(output: Output) -> (i32, String, String) {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().expect("not killed by a signal"), text(output.stdout), text(output.stderr))
}

#[track_caller]
fn one_error_line(stderr: &str, says: &str) {
    assert!(stderr.starts_with("error: ") && stderr.trim_end().lines().count() == 1, "{stderr}");
    assert!(stderr.contains(says), "{stderr}");
}

#[test]
fn replay_renders_without_measuring() {
    let program = Program::new();
    std::fs::copy(small(), program.path("small.json")).unwrap();
    let (code, stdout, stderr) = program.run(&["--replay", "small.json"]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    insta::assert_snapshot!(stdout);
    assert!(program.path("target/reproduce/report.html").exists());
    assert!(!program.path("target/reproduce/report.json").exists());
    // Nothing but the page is left, no temporary file either.
    assert_eq!(std::fs::read_dir(program.path("target/reproduce")).unwrap().count(), 1);
}

#[test]
fn bad_command_lines_end_with_2() {
    let program = Program::new();
    for (args, says) in [
        (&["--ful"][..], "--full"),
        (&["--on", "tpu"], "cpu, gpu and emulator"),
        (&["--study"], "--study"),
        (&["--study", "no-such-study"], "no study `no-such-study`"),
        (&["--finding", "no.such"], "no finding `no.such`"),
        (&["--compare", "a.json"], "2 values"),
        (&["--compare", "a.json", "b.json", "--full"], "cannot be used with"),
        (&["--replay", "a.json", "--full"], "cannot be used with"),
        (&["--json", "same", "--html", "same"], "same file"),
        (&["extra"], "extra"),
    ] {
        let (code, stdout, stderr) = program.run(args);
        assert_eq!((code, stdout.as_str()), (2, ""), "{args:?}");
        one_error_line(&stderr, says);
    }
}

#[test]
fn unreadable_and_foreign_reports_end_with_1() {
    let program = Program::new();
    std::fs::write(program.path("text"), "hello").unwrap();
    std::fs::write(program.path("other.json"), r#"{"benchmarks": []}"#).unwrap();
    std::fs::write(program.path("later.json"), r#"{"schema": 99}"#).unwrap();
    for (file, says) in [
        ("missing.json", "cannot read missing.json"),
        (".", "cannot read ."),
        ("text", "not a Rungs report of schema 1"),
        ("other.json", "not a Rungs report of schema 1"),
        ("later.json", "schema 99; this program reads schema 1"),
    ] {
        for args in [&["--replay", file][..], &["--compare", file, file]] {
            let (code, _, stderr) = program.run(args);
            assert_eq!(code, 1, "{args:?}");
            one_error_line(&stderr, says);
        }
    }
}

#[test]
fn outputs_that_cannot_be_written_end_with_1_before_anything_is_measured() {
    let program = Program::new();
    std::fs::write(program.path("file"), "kept").unwrap();
    for option in ["--json", "--html"] {
        let (code, stdout, stderr) = program.run(&[option, "file/report"]);
        assert_eq!((code, stdout.as_str()), (1, ""));
        one_error_line(&stderr, "file is a file, not a folder");
    }
    assert_eq!(std::fs::read_to_string(program.path("file")).unwrap(), "kept");
    let small = small().display().to_string();
    let (code, _, stderr) = program.run(&["--replay", &small, "--html", "file/report.html"]);
    assert_eq!(code, 1);
    one_error_line(&stderr, "file is a file, not a folder");
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_device_ends_with_1() {
    let program = Program::new();
    let small = small().display().to_string();
    for option in ["--json", "--html"] {
        let (code, _, stderr) = program.run(&["--replay", &small, option, "/dev/full"]);
        assert_eq!(code, 1);
        one_error_line(&stderr, "/dev/full");
    }
    for args in [&["--replay", &small][..], &["--help"], &["--list-findings"], &["--compare", &small, &small]] {
        let mut command = std::process::Command::new(program.command().get_program());
        let full = File::options().write(true).open("/dev/full").unwrap();
        let (code, _, stderr) =
            ended(command.args(args).current_dir(program.folder.path()).stdout(full).output().unwrap());
        assert_eq!(code, 1, "{args:?}");
        one_error_line(&stderr, "standard output");
    }
    let mut command = std::process::Command::new(program.command().get_program());
    let full = File::options().write(true).open("/dev/full").unwrap();
    assert_eq!(command.arg("--bad").stderr(full).status().unwrap().code(), Some(2));
}

#[cfg(unix)]
#[test]
fn a_closed_pipe_ends_with_0_and_silence() {
    let program = Program::new();
    let small = small().display().to_string();
    for args in [&["--replay", &small][..], &["--help"], &["--compare", &small, &small]] {
        let mut command = std::process::Command::new(program.command().get_program());
        let command = command.args(args).current_dir(program.folder.path());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let (code, _, stderr) = ended(child.wait_with_output().unwrap());
        assert_eq!((code, stderr.as_str()), (0, ""), "{args:?}");
    }
}

#[test]
fn comparing_ends_with_0_when_the_same_and_5_when_slower() {
    let program = Program::new();
    let small = small();
    let small_name = small.display().to_string();
    let (code, stdout, _) = program.run(&["--compare", &small_name, &small_name]);
    assert_eq!(code, 0, "{stdout}");
    assert!(stdout.contains(" 0 slower"), "{stdout}");

    let mut slower = Report::read(&small).unwrap();
    slower.runs[1].samples_ns.iter_mut().for_each(|ns| *ns *= 1.5);
    slower.write(&program.path("slower.json")).unwrap();
    let (code, stdout, stderr) = program.run(&["--compare", &small_name, "slower.json"]);
    assert_eq!(code, 5, "{stdout}");
    one_error_line(&stderr, "1 of ");
    let (code, stdout, _) = program.run(&["--compare", "slower.json", &small_name]);
    assert!(code == 0 && stdout.contains("1 faster"), "{stdout}");

    slower.runs.clear();
    slower.write(&program.path("empty.json")).unwrap();
    let (code, _, stderr) = program.run(&["--compare", &small_name, "empty.json"]);
    assert_eq!(code, 1);
    one_error_line(&stderr, "no timed run in common");
}

#[test]
fn a_missing_gpu_is_a_skip_unless_it_is_required() {
    if timing::probe::probe().device().is_some() {
        return; // here the GPU's rungs would run, which is not for this test
    }
    let program = Program::new();
    let (code, stdout, stderr) = program.run(&["--on", "gpu"]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert!(stdout.contains("GPU skipped: "), "{stdout}");
    let output = program.command().args(["--on", "gpu"]).env("REQUIRE_GPU", "1").output().unwrap();
    let (code, _, stderr) = ended(output);
    assert_eq!(code, 4);
    one_error_line(&stderr, "REQUIRE_GPU is set, but GPU skipped");
    assert!(program.path("target/reproduce/report.json").exists());
}
