//! See `reproduce --help`.

use std::process::ExitCode;

/// All studies, in the order they run.
const STUDIES: &[fn() -> report::study::Study] = &[mandelbrot::study];

fn main() -> ExitCode {
    let studies: Vec<_> = STUDIES.iter().map(|study| study()).collect();
    report::cli::main(|out| reproduce::run(std::env::args_os(), &studies, out))
}
