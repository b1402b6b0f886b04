//! Every way a CUDA driver can be missing or unfit, with stand-in driver libraries compiled here: the `timing`
//! binary must name each and exit 0.

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
    let mut command = Command::new(env!("CARGO_BIN_EXE_timing"));
    command.arg("probe").env("LD_LIBRARY_PATH", library_path).env_remove("REQUIRE_GPU").env_remove("REQUIRE_AVX512");
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
