//! What this machine has, without ever failing.

use std::ffi::OsStr;

use crate::cuda::{Absence, Gpu};
use crate::host::host;
use crate::record::{Device, Host};

/// What there is to run on.
pub struct Probe {
    /// The CPU side.
    pub host: Host,
    /// The first GPU, opened, or why there is none.
    pub gpu: Result<Gpu, Absence>,
}

impl Probe {
    /// What the driver says of the GPU; none without one.
    pub fn device(&self) -> Option<&Device> {
        self.gpu.as_ref().ok().map(Gpu::device)
    }

    /// The driver in words, for the report: `CUDA 13.0`, or why there is none.
    pub fn driver(&self) -> String {
        match &self.gpu {
            Ok(gpu) => format!("CUDA {}.{}", gpu.driver().0, gpu.driver().1),
            Err(absence) => absence.to_string(),
        }
    }
}

/// Looks at the CPU and opens the first device of the CUDA driver. Never panics.
pub fn probe() -> Probe {
    Probe { host: host(), gpu: Gpu::open(0) }
}

/// Whether an environment variable (`REQUIRE_GPU`, `REQUIRE_AVX512`) insists on the hardware that it names: set, and
/// neither empty nor 0. Every program and every test that skips for lack of hardware asks this.
pub fn required(variable: &str) -> bool {
    std::env::var_os(variable).is_some_and(|v| insists(&v))
}

fn insists(value: &OsStr) -> bool {
    !value.is_empty() && value != "0"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_and_zero_insist_on_nothing() {
        assert!(insists(OsStr::new("1")) && insists(OsStr::new("yes")));
        assert!(!insists(OsStr::new("")) && !insists(OsStr::new("0")));
        assert!(!required("RUNGS_A_VARIABLE_THAT_NOBODY_SETS"));
    }
}
