//! The command line: exit codes and one-line errors.

use assert_cmd::Command;

/// The binary, without the tools that the machine may have.
fn xtask() -> Command {
    let mut command = Command::cargo_bin("xtask").unwrap();
    command.env_remove("VIRTUAL_ENV").env_remove("RUNGS_NVRTC").env_remove("RUNGS_PTXAS");
    command
}

/// Expects an exit code, and one line on standard error that contains `text`.
#[track_caller]
fn fails(mut command: Command, code: i32, text: &str) {
    let output = command.assert().code(code).get_output().clone();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains(text), "{error}");
    assert!(code == 2 || error.lines().count() == 1, "{error}");
}

#[test]
fn usage_errors_exit_2() {
    for arguments in [&["no-such-chore"][..], &["ptx", "--no-such-flag"], &["dist"], &["tidy", "extra"]] {
        let mut command = xtask();
        command.args(arguments);
        fails(command, 2, "Usage");
    }
    xtask().arg("--help").assert().code(0);
}

#[test]
fn a_named_library_must_be_the_pinned_one() {
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("libnvrtc.so.12");
    std::fs::write(&file, "not a library").unwrap();
    for given in [file.as_path(), root.path(), &root.path().join("missing")] {
        let mut command = xtask();
        command.arg("--root").arg(root.path()).arg("ptx").env("RUNGS_NVRTC", given);
        fails(command, 1, "RUNGS_NVRTC must name libnvrtc.so.12 of NVRTC 12.4");
    }
}

#[test]
fn missing_tools_are_named_with_the_command_that_installs_them() {
    let root = tempfile::tempdir().unwrap();
    let mut command = xtask();
    command.arg("--root").arg(root.path()).arg("ptx").env("PATH", root.path());
    let output = command.output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    if output.status.success() {
        eprintln!("skip: the loader finds an NVRTC 12.4 of the system");
        return;
    }
    assert!(error.contains("python3 -m pip install nvidia-cuda-nvrtc-cu12==12.4.127"), "{error}");
    assert_eq!((output.status.code(), error.lines().count()), (Some(1), 1), "{error}");
}

#[test]
fn a_filter_that_matches_nothing_is_an_error() {
    let root = tempfile::tempdir().unwrap();
    let mut command = xtask();
    command.arg("--root").arg(root.path()).args(["ptx", "no_such_rung"]);
    fails(command, 1, "no kernel's study/stem contains 'no_such_rung'");
}

#[test]
fn dist_refuses_a_folder_of_someone_else() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("thesis.tex"), "").unwrap();
    let mut command = xtask();
    command.arg("dist").arg(folder.path());
    fails(command, 1, "name a new or empty folder");
    assert!(folder.path().join("thesis.tex").exists());
}

#[test]
fn tidy_prints_a_line_for_each_violation() {
    let root = tempfile::tempdir().unwrap();
    let mut command = xtask();
    command.arg("--root").arg(root.path()).arg("tidy").assert().code(0);
    std::fs::create_dir_all(root.path().join("crates/a/src")).unwrap();
    std::fs::write(root.path().join("crates/a/src/lib.rs"), "fn f() {\n    todo!()\n}\n").unwrap();
    let mut command = xtask();
    let output = command.arg("--root").arg(root.path()).arg("tidy").assert().code(1).get_output().clone();
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        "crates/a/src/lib.rs:2: todo!; finish it, or return an error\n"
    );
}
