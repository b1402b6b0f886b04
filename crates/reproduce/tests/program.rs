//! The built program as a script sees it: exit codes, one line for each mistake, hostile outputs.
//! One test here measures, in the quick way.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use assert_cmd::Command;
use report::Report;

fn small() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../report/tests/fixtures/small.json")
}

/// The report `small` without its run whose check failed.
fn sound(program: &Program) -> String {
    let mut report = Report::read(&small()).unwrap();
    report.runs.retain(|r| r.rung != "cpu_03_wrong");
    report.write(&program.path("sound.json")).unwrap();
    "sound.json".into()
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
    // One of its checks failed, which is no reason not to show it.
    assert_eq!(code, 3);
    one_error_line(&stderr, "a check failed: example/cpu_03_wrong@cpu[size=64x64]: mismatches is 17, allowed is 0");
    insta::assert_snapshot!(stdout);
    assert!(program.path("target/reproduce/replay.html").exists());
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
        (&["--json", "same", "--html", "same"], "--json and --html name the same file, same"),
        (&["--json", "same", "--html", "./a/../same"], "same file"),
        (&["--json", "target/reproduce/report.html"], "same file"),
        (&["--compare", "a.json", "b.json", "--list-findings"], "cannot be used with"),
        (&["--compare", "a.json", "b.json", "--replay", "a.json"], "cannot be used with"),
        (&["--list-findings", "--full"], "cannot be used with"),
        (&["--list-findings", "--finding", "mandelbrot.cpu-simd"], "cannot be used with"),
        (&["--list-findings", "--json", "a"], "cannot be used with"),
        (&["--list-findings", "--html", "a"], "cannot be used with"),
        (&["--list-findings", "--replay", "a"], "cannot be used with"),
        (&["--list-findings", "--require-findings"], "cannot be used with"),
        (&["--list-findings", "--on", "cpu"], "cannot be used with"),
        (&["--replay", "a.json", "--study", "mandelbrot"], "cannot be used with"),
        (&["--replay", "a.json", "--on", "cpu"], "cannot be used with"),
        (&["--study", "mandelbrot", "--finding", "mandelbrot.cpu-simd"], "cannot be used with"),
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

#[cfg(unix)]
#[test]
fn no_option_may_name_the_file_of_another() {
    use std::os::unix::fs::symlink;
    let program = Program::new();
    std::fs::copy(program.path(&sound(&program)), program.path("in.json")).unwrap();
    let before = std::fs::read(program.path("in.json")).unwrap();
    symlink("in.json", program.path("link")).unwrap();
    symlink(".", program.path("here")).unwrap();
    std::fs::hard_link(program.path("in.json"), program.path("hard")).unwrap();
    for other in ["in.json", "./in.json", "here/in.json", "link", "hard"] {
        for option in ["--json", "--html"] {
            let (code, stdout, stderr) = program.run(&["--replay", "in.json", option, other]);
            assert_eq!((code, stdout.as_str()), (2, ""), "{option} {other}");
            one_error_line(&stderr, "name the same file");
        }
        for first in ["--replay", "--on"] {
            let value = if first == "--on" { "cpu" } else { "hard" };
            let (code, ..) = program.run(&[first, value, "--json", "new", "--html", "here/new"]);
            assert_eq!(code, 2, "{first}");
        }
    }
    assert_eq!(std::fs::read(program.path("in.json")).unwrap(), before);
    assert!(!program.path("new").exists());
    let (code, _, stderr) = program.run(&["--replay", "in.json", "--json", "/dev/null", "--html", "/dev/null"]);
    assert_eq!((code, stderr.as_str()), (0, ""));
}

#[cfg(unix)]
#[test]
fn json_to_a_pipe_is_nothing_but_json_and_a_pipe_without_reader_is_an_error() {
    let program = Program::new();
    let small = sound(&program);
    let (code, stdout, stderr) = program.run(&["--replay", &small, "--json", "/dev/stdout"]);
    assert_eq!(code, 0, "{stderr}");
    let parsed = Report::parse(stdout.as_bytes(), Path::new("stdout")).unwrap();
    assert_eq!(parsed.runs, Report::read(&program.path(&small)).unwrap().runs);
    assert!(stderr.contains("report: /dev/stdout and "), "{stderr}");

    let pipe = program.path("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let mut command = program.command();
    command.args(["--replay", &small, "--json", "pipe"]).timeout(std::time::Duration::from_secs(20));
    let (code, _, stderr) = ended(command.output().unwrap());
    assert_eq!(code, 1);
    one_error_line(&stderr, "cannot write pipe: nobody reads this pipe");
    assert!(program.path("target/reproduce/replay.html").exists());
}

#[test]
fn outputs_of_a_replay_are_tried_before_anything_is_printed() {
    let program = Program::new();
    std::fs::create_dir(program.path("folder")).unwrap();
    let small = small().display().to_string();
    for option in ["--json", "--html"] {
        let (code, stdout, stderr) = program.run(&["--replay", &small, option, "folder"]);
        assert_eq!((code, stdout.as_str()), (1, ""));
        one_error_line(&stderr, "it is a folder");
    }
    assert!(!program.path("target/reproduce/replay.html").exists());
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
    let small = sound(&program);
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
    let small_name = sound(&program);
    let small = program.path(&small_name);
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

#[test]
fn what_was_not_asked_for_is_not_required() {
    if timing::probe::probe().device().is_some() {
        return; // here nothing is missing
    }
    let program = Program::new();
    for (args, code) in [
        (&["--on", "emulator"][..], 0),
        (&["--finding", "mandelbrot.gpu-simt", "--on", "emulator"], 0),
        (&["--finding", "mandelbrot.gpu-simt", "--on", "cpu"], 0),
        (&["--finding", "mandelbrot.gpu-simt"], 4),
        (&["--finding", "mandelbrot.gpu-simt", "--on", "gpu"], 4),
    ] {
        let output = program.command().args(args).env("REQUIRE_GPU", "1").output().unwrap();
        let (ended_with, stdout, stderr) = ended(output);
        assert_eq!(ended_with, code, "{args:?} {stdout} {stderr}");
        let name = if args[0] == "--finding" { "mandelbrot.gpu-simt" } else { "report" };
        for extension in ["json", "html"] {
            let file = program.path(&format!("target/reproduce/{name}.{extension}"));
            assert!(std::fs::remove_file(file).is_ok(), "{args:?}");
        }
    }
}

#[test]
fn only_the_size_of_a_finding_is_measured() {
    let program = Program::new();
    let (code, stdout, stderr) = program.run(&["--finding", "mandelbrot.cpu-simd"]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    let report = Report::read(&program.path("target/reproduce/mandelbrot.cpu-simd.json")).unwrap();
    assert_eq!((report.groups("mandelbrot").len(), report.findings.len()), (1, 1), "{stdout}");
    assert!(report.runs.iter().any(|r| r.rung == "cpu_00_scalar") && report.runs.iter().all(|r| r.target == "cpu"));
}
