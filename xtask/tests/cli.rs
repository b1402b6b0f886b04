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
    assert!(error.starts_with("error: ") && error.lines().count() == 1, "{error}");
}

/// A workspace with one crate of mechanism and one kernel.
fn workspace() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for (file, text) in [
        ("Cargo.toml", "[workspace]\nmembers = [\"crates/*\", \"xtask\"]\n"),
        ("xtask/Cargo.toml", "[package]\nname = \"xtask\"\n"),
        ("crates/timing/Cargo.toml", "[package]\nname = \"timing\"\n[lib]\nbench = false\n"),
        ("crates/timing/src/lib.rs", "//! Mechanism.\n"),
        (
            "crates/timing/kernels/calib_one.cu",
            "// Nothing.\n// target: sm_60\nextern \"C\" __global__ void calib_one() {}\n",
        ),
        ("ptx/timing/calib_one.ptx", ".visible .entry calib_one()\n"),
    ] {
        let path = root.path().join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    root
}

#[test]
fn usage_errors_are_one_line_and_exit_2() {
    for (arguments, text) in [
        (&[][..], "requires a subcommand"),
        (&["no-such-chore"], "'no-such-chore'"),
        (&["ptx", "--no-such-flag"], "'--no-such-flag'"),
        (&["dist"], "<DIR>"),
        (&["tidy", "extra"], "'extra'"),
        (&["--root"], "--root"),
    ] {
        let mut command = xtask();
        command.args(arguments);
        fails(command, 2, text);
    }
}

#[test]
fn a_reader_that_has_gone_away_changes_no_exit_code() {
    let root = workspace();
    let code = |arguments: &[&str]| {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_xtask"));
        command.arg("--root").arg(root.path()).args(arguments).stdout(writer).output().unwrap().status.code()
    };
    assert_eq!((code(&["--help"]), code(&["--version"]), code(&["tidy"])), (Some(0), Some(0), Some(0)));
    std::fs::write(root.path().join("crates/timing/src/lib.rs"), "fn f() { todo!() }\n").unwrap();
    assert_eq!(code(&["tidy"]), Some(1));
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_device_is_one_line_and_exits_1() {
    let root = workspace();
    for arguments in [&["--help"][..], &["--version"], &["tidy"]] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_xtask"));
        let output = command.arg("--root").arg(root.path()).args(arguments).stdout(full).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(error.starts_with("error: cannot write to standard output") && error.lines().count() == 1, "{error}");
    }
}

#[test]
fn a_root_that_is_no_workspace_passes_nothing() {
    let root = tempfile::tempdir().unwrap();
    let missing = root.path().join("missing");
    let fails_in = |root: &std::path::Path, text: &str| {
        for chore in [&["tidy"][..], &["ptx", "--check"], &["dist", "out"]] {
            let mut command = xtask();
            command.arg("--root").arg(root).args(chore).current_dir(root.ancestors().find(|a| a.exists()).unwrap());
            fails(command, 1, text);
        }
    };
    fails_in(&missing, "cannot read");
    fails_in(root.path(), "cannot read");
    std::fs::write(root.path().join("Cargo.toml"), "[package]\nname = \"a\"\n").unwrap();
    fails_in(root.path(), "has no [workspace]");
    assert!(!root.path().join("out").exists());
    std::fs::write(root.path().join("Cargo.toml"), "[workspace]\n").unwrap();
    for (chore, text) in [("tidy", "nothing to check"), ("ptx", "no kernels")] {
        let mut command = xtask();
        command.arg("--root").arg(root.path()).arg(chore);
        fails(command, 1, text);
    }
}

#[test]
fn a_named_library_must_be_the_pinned_one() {
    let root = workspace();
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
    let root = workspace();
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
    let root = workspace();
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
    let root = workspace();
    xtask().arg("--root").arg(root.path()).arg("tidy").assert().code(0);
    std::fs::write(root.path().join("crates/timing/src/lib.rs"), "fn f() {\n    todo!()\n}\n").unwrap();
    // A file that names the tree's own place would work on this machine only.
    std::fs::write(root.path().join("NOTES.md"), format!("see {}\n", root.path().canonicalize().unwrap().display()))
        .unwrap();
    let output = xtask().arg("--root").arg(root.path()).arg("tidy").assert().code(1).get_output().clone();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.lines().all(|line| line.starts_with("NOTES.md:1: the path ")
            || line == "crates/timing/src/lib.rs:2: todo!; finish it, or return an error"),
        "{text}"
    );
    assert!(text.contains("NOTES.md:1") && text.contains("lib.rs:2"), "{text}");
}
