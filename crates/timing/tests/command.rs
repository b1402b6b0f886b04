//! The command line: exit codes and one-line errors, whatever becomes of standard output.

use std::process::{Command, Output, Stdio};

fn timing(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_timing"));
    command.args(args).env_remove("REQUIRE_GPU").env_remove("REQUIRE_AVX512");
    command
}

/// Expects an exit code, and one line on standard error that contains `text`.
#[track_caller]
fn fails(output: &Output, code: i32, text: &str) {
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{error}");
    assert!(error.starts_with("error: ") && error.contains(text), "{error}");
    assert_eq!(error.trim_end().lines().count(), 1, "{error}");
}

#[test]
fn usage_errors_are_one_line_and_exit_2() {
    for (args, text) in [
        (&[][..], "requires a subcommand"),
        (&["prob"], "'prob'"),
        (&["--no-such"], "'--no-such'"),
        (&["aa", "--ladders", "0"], "0 is not in"),
        (&["aa", "--ladders", "many"], "'many'"),
        (&["aa", "--json"], "--json"),
        (&["probe", "extra"], "'extra'"),
    ] {
        let output = timing(args).output().unwrap();
        fails(&output, 2, text);
        assert!(output.stdout.is_empty());
    }
    for args in [&["--help"][..], &["--version"], &["aa", "--help"]] {
        let output = timing(args).output().unwrap();
        assert!(output.status.success() && !output.stdout.is_empty() && output.stderr.is_empty(), "{args:?}");
    }
}

#[test]
fn a_reader_that_has_gone_away_is_no_error() {
    for args in [&["--help"][..], &["--version"], &["probe"], &["aa", "--ladders", "1"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = timing(args).stdout(writer).stderr(Stdio::piped()).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(output.stderr.is_empty(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_device_is_one_line_and_exits_1() {
    for args in [&["--help"][..], &["--version"], &["probe"], &["aa", "--ladders", "1"]] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let output = timing(args).stdout(full).stderr(Stdio::piped()).output().unwrap();
        fails(&output, 1, "cannot write to standard output");
    }
}

#[test]
fn a_place_for_json_is_checked_before_anything_is_measured() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let output = timing(&["aa", "--json", path]).output().unwrap();
    fails(&output, 1, "it is a folder");
    assert!(output.stdout.is_empty());
}

#[test]
fn requirements_that_are_unmet_exit_4_with_the_reason() {
    let probed = timing(&["probe"]).output().unwrap();
    let text = String::from_utf8(probed.stdout).unwrap();
    for (variable, missing) in
        [("REQUIRE_GPU", text.contains("gpu: none")), ("REQUIRE_AVX512", !text.contains("avx512f"))]
    {
        let output = timing(&["probe"]).env(variable, "1").output().unwrap();
        match missing {
            true => fails(&output, 4, &format!("{variable} is set, but ")),
            false => assert!(output.status.success()),
        }
        assert!(timing(&["probe"]).env(variable, "0").output().unwrap().status.success());
    }
}
