//! Every way a CUDA driver or a device can be missing or unfit, with stand-in driver libraries compiled here: the
//! `timing` binary must name each, and exit 0 for what is lacking.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A shared library called libcuda.so whose functions all return 0, but for those that `special` defines.
fn fake_driver(name: &str, special: &str, with_all_symbols: bool) -> Option<PathBuf> {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fake-driver-{name}"));
    std::fs::create_dir_all(&dir).unwrap();
    let source = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/src/cuda.rs")).unwrap();
    let list = source.split_once("const SYMBOLS: &[&str] = &[").unwrap().1.split_once("];").unwrap().0;
    let mut code = format!("{special}\n");
    for symbol in list.split('"').skip(1).step_by(2).filter(|s| with_all_symbols && !special.contains(&format!("{s}(")))
    {
        code += &format!("int {symbol}(void) {{ return 0; }}\n");
    }
    let file = dir.join("fake.c");
    std::fs::write(&file, code).unwrap();
    let cc = std::env::var("CC").unwrap_or_else(|_| "cc".to_string());
    match Command::new(cc).args(["-shared", "-fPIC", "-w", "-o"]).arg(dir.join("libcuda.so")).arg(&file).status() {
        Ok(status) if status.success() => Some(dir),
        _ => {
            println!("SKIP: no C compiler to build a stand-in driver with");
            None
        }
    }
}

fn probe(library_path: &Path, require_gpu: bool) -> Output {
    timing(&["probe"], library_path, require_gpu)
}

fn timing(args: &[&str], library_path: &Path, require_gpu: bool) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_timing"));
    command.args(args).env("LD_LIBRARY_PATH", library_path).env_remove("REQUIRE_GPU").env_remove("REQUIRE_AVX512");
    if require_gpu {
        command.env("REQUIRE_GPU", "1");
    }
    command.output().unwrap()
}

const VERSION: &str = "int cuDriverGetVersion(int *v) { *v = %; return 0; }";

fn expect(name: &str, special: &str, with_all_symbols: bool, wanted: &str) {
    if !cfg!(target_os = "linux") {
        println!("SKIP: stand-in drivers are built for Linux only");
        return;
    }
    let Some(dir) = fake_driver(name, special, with_all_symbols) else { return };
    let output = probe(&dir, false);
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{text}{errors}");
    assert!(text.lines().any(|line| line == format!("gpu: none: {wanted}")), "wanted {wanted:?} in:\n{text}{errors}");
    assert_eq!(probe(&dir, true).status.code(), Some(4), "REQUIRE_GPU=1 must fail");
}

#[test]
fn an_old_driver_is_named_with_both_versions() {
    let old = VERSION.replace('%', "12020");
    expect("old", &old, true, "PTX 8.4 needs a driver for CUDA 12.4; this one is for 12.2");
}

#[test]
fn an_old_driver_that_does_not_start_is_still_called_old() {
    let old = VERSION.replace('%', "11040") + "\nint cuInit(unsigned f) { return 999; }";
    expect("old-broken", &old, true, "PTX 8.4 needs a driver for CUDA 12.4; this one is for 11.4");
}

#[test]
fn a_driver_without_a_device_is_told_from_one_that_fails() {
    let new = VERSION.replace('%', "13000");
    expect(
        "no-device",
        &format!("{new}\nint cuInit(unsigned f) {{ return 100; }}"),
        true,
        "the CUDA driver is there, but it sees no device",
    );
    expect(
        "zero-devices",
        &format!("{new}\nint cuDeviceGetCount(int *n) {{ *n = 0; return 0; }}"),
        true,
        "the CUDA driver is there, but it sees no device",
    );
    let name = r#"int cuGetErrorName(int c, const char **s) { *s = c == 803 ? "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH" : 0; return 0; }
int cuGetErrorString(int c, const char **s) { *s = "driver and library differ"; return 0; }"#;
    expect(
        "mismatch",
        &format!("{new}\n{name}\nint cuInit(unsigned f) {{ return 803; }}"),
        true,
        "the CUDA driver does not start: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (driver and library differ)",
    );
}

#[test]
fn a_library_that_is_no_driver_is_named_by_what_it_lacks() {
    expect("empty", "int nothing;", false, "the CUDA driver library lacks cuInit: it is not a driver for CUDA 12");
}

/// A driver of one device with compute capability `major`.0 whose launches end with `launch`; every event pair is 1 ms
/// apart, and what is copied back is all zero, so that no clock can be told.
fn device(name: &str, major: u32, launch: u32) -> Option<PathBuf> {
    if !cfg!(target_os = "linux") {
        println!("SKIP: stand-in drivers are built for Linux only");
        return None;
    }
    let code = format!(
        r#"#include <string.h>
int cuDriverGetVersion(int *v) {{ *v = 12040; return 0; }}
int cuDeviceGetCount(int *n) {{ *n = 1; return 0; }}
int cuDeviceGetName(char *name, int n, int device) {{ strncpy(name, "stand-in", n); return 0; }}
int cuDeviceGetAttribute(int *v, int attribute, int device) {{
  *v = attribute == 75 ? {major} : attribute == 76 ? 0 : attribute == 16 ? 4 : 1024; return 0;
}}
int cuDeviceTotalMem_v2(size_t *n, int device) {{ *n = 1 << 30; return 0; }}
int cuMemGetInfo_v2(size_t *free, size_t *total) {{ *free = *total = 1 << 30; return 0; }}
int cuMemAlloc_v2(unsigned long long *address, size_t n) {{ *address = 4096; return 0; }}
int cuMemcpyDtoHAsync_v2(void *to, unsigned long long from, size_t n, void *stream) {{ memset(to, 0, n); return 0; }}
int cuFuncGetAttribute(int *v, int attribute, void *function) {{ *v = 0; return 0; }}
int cuEventElapsedTime(float *ms, void *start, void *end) {{ *ms = 1; return 0; }}
int cuLaunchKernel(void) {{ return {launch}; }}
int cuGetErrorName(int c, const char **s) {{ *s = c == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS" : 0; return 0; }}
int cuGetErrorString(int c, const char **s) {{ *s = 0; return 0; }}"#
    );
    fake_driver(name, &code, true)
}

#[test]
fn a_device_that_is_too_old_for_a_kernel_is_a_skip_with_both_capabilities() {
    let Some(dir) = device("too-old", 5, 0) else { return };
    let text = "calib_clock needs compute capability 6.0; this device has 5.0";
    let output = timing(&["aa", "--ladders", "1"], &dir, false);
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("SKIP: {text}\n"));
    assert_eq!(output.status.code(), Some(0));
    let output = timing(&["aa", "--ladders", "1"], &dir, true);
    assert_eq!(output.status.code(), Some(4));
    assert_eq!(String::from_utf8_lossy(&output.stderr), format!("error: REQUIRE_GPU is set, but {text}\n"));
}

#[test]
fn a_kernel_that_kills_the_device_is_an_error_of_the_driver() {
    let Some(dir) = device("dies", 9, 700) else { return };
    let output = timing(&["aa", "--ladders", "1"], &dir, false);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        (output.status.code(), &*error),
        (Some(1), "error: cuLaunchKernel failed: CUDA_ERROR_ILLEGAL_ADDRESS\n")
    );
}

#[test]
fn a_run_whose_clock_cannot_be_told_still_ends_and_writes_its_file() {
    let Some(dir) = device("no-clock", 9, 0) else { return };
    let file = dir.join("aa.json");
    std::fs::write(&file, "old").unwrap();
    let output = timing(&["aa", "--ladders", "2", "--json", file.to_str().unwrap()], &dir, true);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("2 of 2 intervals hold 1, 0 lie below, 0 above"));
    let json: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!((&json["device"]["name"], &json["ladders"]), (&"stand-in".into(), &2.into()));
    let output = timing(&["aa", "--ladders", "1", "--json", "/dev/null"], &dir, false);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(!std::fs::metadata("/dev/null").unwrap().is_file());
}
