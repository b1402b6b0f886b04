//! The command as its users and scripts meet it: exit codes, one-line errors, files whole or not at all.

use std::path::Path;
use std::process::{Command, Output, Stdio};

fn mandelbrot(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mandelbrot"));
    command.args(args).env_remove("REQUIRE_GPU").env_remove("REQUIRE_AVX512");
    command
}

fn run(args: &[&str]) -> Output {
    mandelbrot(args).output().unwrap()
}

/// Exit code, standard output, standard error.
fn parts(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

const SMALL: [&str; 5] = ["--on", "cpu", "--size", "33x17", "--max-iter=64"];

#[test]
fn the_list_names_every_rung() {
    let (code, out, err) = parts(&run(&["--list"]));
    assert_eq!((code, err.as_str()), (Some(0), ""));
    let stems = mandelbrot::ladder::CPU.iter().map(|r| r.stem);
    for stem in stems.chain(mandelbrot::ladder::GPU.iter().map(|r| r.stem())) {
        assert!(out.lines().any(|line| line.starts_with(stem)), "{stem} in\n{out}");
    }
}

#[test]
fn the_help_names_only_rungs_that_exist() {
    let (code, out, _) = parts(&run(&["--help"]));
    assert_eq!(code, Some(0));
    let stems: Vec<&str> = mandelbrot::ladder::CPU
        .iter()
        .map(|r| r.stem)
        .chain(mandelbrot::ladder::GPU.iter().map(|r| r.stem()))
        .collect();
    let named: Vec<&str> =
        out.split_whitespace().filter(|word| word.starts_with("cpu_") || word.starts_with("gpu_")).collect();
    assert!(!named.is_empty() && named.iter().all(|name| stems.contains(name)), "{named:?}");
}

#[test]
fn a_closed_pipe_ends_nothing_and_a_cpu_rung_needs_no_gpu() {
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("runs.json");
    let args = ["cpu_00_scalar", "--size", "8x8", "--max-iter=64", "--json", json.to_str().unwrap()];
    let mut child = mandelbrot(&args).env("REQUIRE_GPU", "1").stdout(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(report::Report::read(&json).unwrap().runs.len(), 1);
}

#[test]
fn a_run_is_checked_timed_and_written() {
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("made/runs.json");
    let mut args = SMALL.to_vec();
    args.extend(["cpu_00_scalar", "--json", json.to_str().unwrap()]);
    let (code, out, err) = parts(&run(&args));
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    assert!(out.contains("cpu_00_scalar") && !out.contains("cpu_01_c_plain"), "{out}");
    let report = report::Report::read(&json).unwrap();
    let [run] = &report.runs[..] else { panic!("{} runs", report.runs.len()) };
    assert_eq!(run.id, "mandelbrot/cpu_00_scalar@cpu[height=17,max_iter=64,view=whole,width=33]");
    assert!(run.n >= 5 && run.median_ns.is_some_and(|ns| ns > 0.0), "{run:?}");
    assert_eq!(run.error.as_ref().map(|e| (e.value, e.tolerance)), Some((0.0, 0.0)));
    assert_eq!(std::fs::read_dir(dir.path().join("made")).unwrap().count(), 1, "no temporary file stays");
}

#[test]
fn bad_input_is_one_line_and_exit_code_2() {
    for (args, wanted) in [
        (vec!["cpu_00_scala"], "did you mean `cpu_00_scalar`?"),
        (vec!["--size", "10"], "--size is WIDTHxHEIGHT"),
        (vec!["--size", "0x5"], "both at least 1"),
        (vec!["--size", "5x-1"], "--size is WIDTHxHEIGHT"),
        (vec!["--size", "-1x5"], "--size is WIDTHxHEIGHT"),
        (vec!["--size", "+5x+5"], "--size is WIDTHxHEIGHT"),
        (vec!["--list", "--size", "5x5"], "cannot be used with"),
        (vec!["gpu_04_whole_gpu", "--on", "cpu"], "--on cpu leaves out the rung `gpu_04_whole_gpu`"),
        (vec!["cpu_00_scalar", "--on", "gpu"], "--on gpu leaves out the rung `cpu_00_scalar`"),
        (vec!["--size", "99999999999x1"], "--size is WIDTHxHEIGHT"),
        (vec!["--size", "65536x65536"], "at most 268435456 are allowed"),
        (vec!["--size", "16384x16384", "--max-iter", "1000000"], "at most"),
        (vec!["--view", "hole"], "did you mean `whole`?"),
        (vec!["--max-iter", "-1"], "--max-iter"),
        (vec!["--max-iter", "4294967295"], "at most"),
        (vec!["--on", "tpu"], "cpu, gpu and emulator"),
        (vec!["--no-such-flag"], "--no-such-flag"),
        (vec!["--png", "a.png", "--full"], "cannot be used with"),
    ] {
        let (code, out, err) = parts(&run(&args));
        assert_eq!((code, out.as_str()), (Some(2), ""), "{args:?}: {err}");
        assert!(err.contains(wanted) && err.trim_end().lines().count() == 1, "{args:?}: {err}");
    }
}

#[test]
fn files_that_cannot_be_written_end_with_1_before_anything_is_measured() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "kept").unwrap();
    let below = file.join("x");
    for flag in ["--json", "--png"] {
        let args = [flag, below.to_str().unwrap()];
        let (code, out, err) = parts(&run(&args));
        assert_eq!((code, out.as_str()), (Some(1), ""), "{flag}: {err}");
        assert!(err.trim_end().lines().count() == 1 && err.contains("file"), "{err}");
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "kept");
}

#[test]
fn a_picture_is_a_png_of_the_size_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("set.png");
    let (code, _, err) = parts(&run(&["--size", "31x7", "--max-iter", "50", "--png", path.to_str().unwrap()]));
    assert_eq!((code, err.as_str()), (Some(0), ""));
    let reader = png::Decoder::new(std::io::BufReader::new(std::fs::File::open(&path).unwrap())).read_info().unwrap();
    assert_eq!((reader.info().width, reader.info().height), (31, 7));
}

#[test]
fn a_missing_gpu_is_a_skip_and_under_require_gpu_a_failure() {
    if timing::cuda::Gpu::open(0).is_ok() {
        println!("SKIP: this machine has a GPU");
        return;
    }
    let (code, out, err) = parts(&run(&["--on", "gpu"]));
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    assert!(out.contains("skipped: "), "{out}");
    let (code, _, err) = parts(&mandelbrot(&["--on", "gpu"]).env("REQUIRE_GPU", "1").output().unwrap());
    assert_eq!(code, Some(4));
    assert!(err.contains("REQUIRE_GPU"), "{err}");
}

#[test]
fn a_closed_pipe_is_quiet_and_a_full_device_is_an_error() {
    let mut args = SMALL.to_vec();
    args.push("cpu_00_scalar");
    let mut child = mandelbrot(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let (code, _, err) = parts(&child.wait_with_output().unwrap());
    assert_eq!((code, err.as_str()), (Some(0), ""));
    if Path::new("/dev/full").exists() {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let (code, _, err) = parts(&mandelbrot(&args).stdout(full).output().unwrap());
        assert_eq!(code, Some(1));
        assert_eq!(err.trim_end().lines().count(), 1, "{err}");
    }
}
