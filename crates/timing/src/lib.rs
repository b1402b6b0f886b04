//! How Rungs makes a number.
//!
//! This crate holds mechanism: timers, sampling, statistics, ceilings, the device probe, launching, checks.
//! It knows no problem shapes and no rungs.

pub mod check;
pub mod cpu;
pub mod cuda;
pub mod gpu_ceilings;
pub mod gpu_sample;
pub mod host;
pub mod launch;
pub mod probe;
pub mod record;
pub mod sample;
pub mod stats;
