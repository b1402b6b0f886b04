//! Compiles the C comparators. Without a C compiler, or without support for a target, they are left out: the rung then
//! says so when it is asked for.

use std::env;
use std::process::Command;

/// What makes the C functions round as their formulation says, and fmaf an instruction.
const EXACT: &[&str] = &["-ffp-contract=off", "-fno-math-errno"];

fn main() {
    for name in ["mandel_plain", "mandel_lanes"] {
        println!("cargo:rerun-if-changed=src/c/{name}.c");
    }
    println!("cargo:rustc-check-cfg=cfg(c_plain, c_v3, c_v4)");
    add("c_plain", "mandel_plain", 2, &[]);
    if env::var("CARGO_CFG_TARGET_ARCH").as_deref() == Ok("x86_64") {
        add("c_v3", "mandel_lanes", 3, &["-march=x86-64-v3"]);
        add("c_v4", "mandel_lanes", 3, &["-march=x86-64-v4", "-mprefer-vector-width=512"]);
    }
}

/// Compiles `src/c/<source>.c` with its function named `rungs_<cfg>`. If that works, sets the cfg, and the environment
/// variable `MANDELBROT_<CFG>` to one line on the compiler, its flags and what its vectoriser did.
fn add(cfg: &str, source: &str, level: u32, flags: &[&str]) -> Option<()> {
    let file = format!("src/c/{source}.c");
    let mut build = cc::Build::new();
    build
        .file(&file)
        .opt_level(level)
        .debug(false)
        .cargo_warnings(false)
        .define("NAME", format!("rungs_{cfg}").as_str());
    for flag in flags.iter().chain(EXACT) {
        build.flag(flag);
    }
    let compiler = build.try_get_compiler().ok()?;
    build.try_compile(&format!("rungs_{cfg}")).ok()?;

    let version = Command::new(compiler.path()).arg("--version").output().ok()?;
    let version = String::from_utf8_lossy(&version.stdout).lines().next().unwrap_or("cc").to_owned();
    let report = if compiler.is_like_clang() { "-Rpass=loop-vectorize" } else { "-fopt-info-vec-optimized" };
    let object = format!("{}/{cfg}.report.o", env::var("OUT_DIR").ok()?);
    let said = compiler.to_command().args([report, "-c", &file, "-o", &object]).output().ok()?;
    let said = vectorised(&String::from_utf8_lossy(&said.stderr), &std::fs::read_to_string(&file).ok()?);
    println!("cargo:rustc-cfg={cfg}");
    let flags = [&[format!("-O{level}").as_str()], flags, EXACT].concat().join(" ");
    println!("cargo:rustc-env=MANDELBROT_{}={version} {flags}: {said}", cfg.to_uppercase());
    Some(())
}

/// What the compiler says of the loop of the iteration, told by the lines around its first statement.
fn vectorised(said: &str, source: &str) -> String {
    let Some(line) = source.lines().position(|line| line.contains("float y2 = y[l] * y[l]")) else {
        return "a scalar loop".into();
    };
    let near = |said: &&str| {
        let at = said.split(':').nth(1).and_then(|at| at.parse::<usize>().ok());
        at.is_some_and(|at| at.abs_diff(line) <= 2) && said.contains("vectorized")
    };
    // gcc: `file:9:5: optimized: loop vectorized using 64 byte vectors`; clang: `file:9:5: remark: vectorized loop
    // (vectorization width: 16, interleaved count: 4) [-Rpass=loop-vectorize]`.
    let text = |said: &str| {
        let (_, text) = ["optimized: ", "remark: "].iter().find_map(|mark| said.split_once(mark))?;
        Some(text.split(" [-R").next().unwrap_or(text).to_owned())
    };
    match said.lines().find(near).and_then(text) {
        Some(said) => format!("iteration: {said}"),
        None => "iteration loop not vectorized".into(),
    }
}
