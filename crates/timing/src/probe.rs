//! What this machine has, without ever failing.

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

/// Whether an environment variable such as `REQUIRE_GPU` insists on what it names: set, and neither empty nor 0.
pub fn required(variable: &str) -> bool {
    std::env::var_os(variable).is_some_and(|v| !v.is_empty() && v != "0")
}
