//! The serde types of the JSON that runs leave behind: one machine, its build, its ceilings, its runs.
//!
//! Keys may be added and are never renamed; [`SCHEMA`] counts up when one is added in a way that old readers
//! cannot ignore. Everything here is plain data: nothing measures, nothing renders.
//! Times are nanoseconds (`_ns`), rates are GB/s with GB = 1e9 bytes and GFLOP/s with 1e9 operations.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

/// Version of the JSON layout. Readers refuse any other.
pub const SCHEMA: u32 = 1;

/// The machine that ran the host side.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Host {
    /// Marketing name from CPUID, e.g. `Intel(R) Xeon(R) Platinum 8481C`.
    pub cpu: String,
    /// Logical processors this process may run on.
    pub threads: usize,
    /// Bytes of memory the operating system reports.
    pub memory_bytes: u64,
    /// `linux`, `macos`, ...
    pub os: String,
    /// `x86_64`, `aarch64`, ...
    pub arch: String,
    /// Vector extensions found at run time, of those the rungs use: `avx2`, `fma`, `avx512f`, ...
    pub features: Vec<String>,
    /// L1 data cache of one core, in bytes (0 when unknown).
    pub l1d_bytes: u64,
    /// L2 cache of one core, in bytes (0 when unknown).
    pub l2_bytes: u64,
    /// Last-level cache, in bytes (0 when unknown).
    pub l3_bytes: u64,
}

/// One GPU as its driver describes it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Device {
    /// Ordinal among the visible devices.
    pub ordinal: usize,
    /// Name from the driver, e.g. `NVIDIA H200`.
    pub name: String,
    /// Compute capability, major and minor.
    pub compute_capability: (u32, u32),
    /// Streaming multiprocessors.
    pub sms: u32,
    /// FP32 lanes of one SM (128 on sm_86 and later, 64 on sm_60, 70, 75, 80).
    pub fp32_lanes_per_sm: u32,
    /// Device memory in bytes.
    pub memory_bytes: u64,
    /// L2 cache in bytes.
    pub l2_bytes: u64,
    /// Shared memory one block may opt in to, in bytes.
    pub shared_per_block_optin_bytes: u32,
    /// Shared memory of one SM, in bytes.
    pub shared_per_sm_bytes: u32,
    /// Registers of one SM.
    pub registers_per_sm: u32,
    /// Threads that one SM holds at most.
    pub max_threads_per_sm: u32,
    /// Highest SM clock the driver names, in kHz.
    pub max_clock_khz: u32,
}

/// What produced the numbers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Build {
    /// Commit of the source, 40 hex digits; empty when it was not built from a git checkout.
    pub git: String,
    /// Whether tracked files differed from that commit.
    pub dirty: bool,
    /// `rustc --version`.
    pub rustc: String,
    /// SHA-256 over the embedded PTX files in path order, hex.
    pub ptx_sha256: String,
}

/// A rate measured on this machine in this run; rungs are judged against it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Ceiling {
    /// The rate, in `unit`.
    #[serde(deserialize_with = "null_is_nan")]
    pub value: f64,
    /// `GB/s`, `GFLOP/s`, `Ginstr/s` (warp or vector instructions, 1e9 a second), ...
    pub unit: String,
    /// How it was measured, one line.
    pub how: String,
    /// What the machine should reach by its own clock and width, in `unit`; none where nothing says.
    pub expected: Option<f64>,
    /// False when `value` is below 95% of `expected`, or when what would say so could not be told: a weak ceiling
    /// flatters every rung under it.
    pub ok: bool,
}

/// Measured properties of the instrument and the ceilings of the machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Calibration {
    /// Smallest step of a pair of GPU events, ns (0 without a GPU).
    pub quantum_ns: f64,
    /// Time between events around one empty kernel, ns (0 without a GPU).
    pub launch_ns: f64,
    /// SM clock while the arithmetic ceiling ran, Hz (0 without a GPU or when it could not be told: see
    /// [`Calibration::known_sm_hz`]).
    pub sm_hz: f64,
    /// Core clock while the arithmetic ceiling of one CPU core ran, Hz (0 when it could not be told: see
    /// [`Calibration::known_cpu_hz`]).
    pub cpu_hz: f64,
    /// By name, e.g. `gpu.copy`, `gpu.fp32`, `gpu.shared`, `gpu.l2`, `cpu.copy`, `cpu.fma`, `cpu.fma.all`.
    pub ceilings: BTreeMap<String, Ceiling>,
}

impl Calibration {
    /// [`Calibration::sm_hz`], where it is a clock: what divides by it needs this.
    pub fn known_sm_hz(&self) -> Option<f64> {
        known_hz(self.sm_hz)
    }

    /// [`Calibration::cpu_hz`], where it is a clock: what divides by it needs this.
    pub fn known_cpu_hz(&self) -> Option<f64> {
        known_hz(self.cpu_hz)
    }
}

fn known_hz(hz: f64) -> Option<f64> {
    Some(hz).filter(|hz| hz.is_finite() && *hz > 0.0)
}

/// What a kernel occupies, as the driver reports it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Resources {
    /// Registers of one thread.
    pub registers: u32,
    /// Local memory of one thread in bytes: spills and indexed arrays.
    pub local_bytes: u32,
    /// Static plus dynamic shared memory of one block, in bytes.
    pub shared_bytes: u32,
    /// Blocks that fit on one SM together.
    pub blocks_per_sm: u32,
    /// Resident warps over the most an SM holds, 0..=1.
    pub occupancy: f64,
    /// Blocks launched.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
}

/// How a result was compared with its reference.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ErrorReport {
    /// `mismatches`, `rrmse`, `max_abs`, ...
    pub metric: String,
    /// The measured error.
    #[serde(deserialize_with = "null_is_nan")]
    pub value: f64,
    /// The check passed when `value <= tolerance`.
    #[serde(deserialize_with = "null_is_nan")]
    pub tolerance: f64,
    /// Which check it was, one line, e.g. `every pixel against the fused scalar oracle`.
    pub check: String,
    /// What was wrong, one line; empty where the check passed.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub failed: String,
}

/// The time a rung's model expects, from the calibration alone.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Prediction {
    /// Expected time, ns.
    #[serde(deserialize_with = "null_is_nan")]
    pub ns: f64,
    /// The arithmetic behind it, one line.
    pub text: String,
}

/// State of the caches before each sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cache {
    /// The working set was flushed or rotated: nothing of it is cached.
    Cold,
    /// The same buffers as in the sample before.
    #[default]
    Warm,
}

/// One rung (or peer) at one size on one target.
///
/// An emulator run has counters and an error but neither samples nor times.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Run {
    /// `study/rung@target[key=value,...]`, unique in a report: see [`Run::make_id`].
    pub id: String,
    /// Study, e.g. `mandelbrot`.
    pub study: String,
    /// Stem of the rung, e.g. `cpu_04_avx512`.
    pub rung: String,
    /// `cpu`, `gpu`, `emulator` or `peer:NAME`.
    pub target: String,
    /// The size in the study's own terms, e.g. `view: whole`, `width: 1024`.
    pub axes: BTreeMap<String, String>,
    /// Cache state of the samples.
    pub cache: Cache,
    /// One time per sample, ns.
    #[serde(deserialize_with = "nulls_are_nan")]
    pub samples_ns: Vec<f64>,
    /// SM cycles of each sample (GPU) where the clock probe could tell them; empty otherwise.
    pub samples_cycles: Vec<Option<f64>>,
    /// The round of the interleaved ladder that each sample belongs to; equal rounds make pairs.
    pub round: Vec<u32>,
    /// Samples taken.
    pub n: usize,
    /// Median of the samples, ns.
    pub median_ns: Option<f64>,
    /// 95% bootstrap interval of the median, ns.
    pub ci_ns: Option<[f64; 2]>,
    /// Least sample, ns.
    pub min_ns: Option<f64>,
    /// Floating-point operations of one execution (an FMA is two).
    pub flops: Option<f64>,
    /// Compulsory bytes of one execution.
    pub bytes: Option<f64>,
    /// `flops / median_ns`.
    pub gflops: Option<f64>,
    /// `bytes / median_ns`.
    pub gbps: Option<f64>,
    /// Share of the binding ceiling that the median reaches, in percent.
    pub percent_of_ceiling: Option<f64>,
    /// Name of the binding ceiling in [`Calibration::ceilings`].
    pub ceiling: Option<String>,
    /// Registers, shared memory, occupancy (GPU).
    pub resources: Option<Resources>,
    /// Counts by name: from the emulator, from the model, or from hardware counters.
    #[serde(deserialize_with = "null_values_are_nan")]
    pub counters: BTreeMap<String, f64>,
    /// The check of this run; where it failed the run has no times and is flagged `check_failed`.
    pub error: Option<ErrorReport>,
    /// The model's expectation.
    pub prediction: Option<Prediction>,
    /// Things a reader must know: `throttled`, `below_quantum` (a sample shorter than 100 steps of the event clock),
    /// `above_ceiling`, `method:graph`, ...
    pub flags: Vec<String>,
}

impl Run {
    /// The id of a run: `study/rung@target[key=value,...]`, with `;cold` after the target for cold caches.
    pub fn make_id(study: &str, rung: &str, target: &str, cache: Cache, axes: &BTreeMap<String, String>) -> String {
        let axes: Vec<String> = axes.iter().map(|(k, v)| format!("{k}={v}")).collect();
        let cold = if cache == Cache::Cold { ";cold" } else { "" };
        format!("{study}/{rung}@{target}{cold}[{}]", axes.join(","))
    }

    /// Whether the samples were taken while the clock was held down.
    pub fn throttled(&self) -> bool {
        self.flags.iter().any(|f| f == "throttled")
    }
}

/// A measured curve: a sweep too dense for the table of runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Curve {
    /// Study that measured it.
    pub study: String,
    /// What it shows, unique in its study.
    pub name: String,
    /// Name of the x quantity.
    pub x: String,
    /// Name of the y quantity.
    pub y: String,
    /// Unit of x.
    pub unit_x: String,
    /// Unit of y.
    pub unit_y: String,
    /// Points in order of x.
    pub points: Vec<[f64; 2]>,
    /// Labelled places on the x axis: a detected knee, a published value.
    pub marks: Vec<(f64, String)>,
}

// JSON has no NaN: serde_json writes null, and a report that holds one must still read back.

fn null_is_nan<'de, D: Deserializer<'de>>(d: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(d)?.unwrap_or(f64::NAN))
}

fn nulls_are_nan<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<f64>, D::Error> {
    Ok(Vec::<Option<f64>>::deserialize(d)?.into_iter().map(|x| x.unwrap_or(f64::NAN)).collect())
}

fn null_values_are_nan<'de, D: Deserializer<'de>>(d: D) -> Result<BTreeMap<String, f64>, D::Error> {
    let map = BTreeMap::<String, Option<f64>>::deserialize(d)?;
    Ok(map.into_iter().map(|(k, x)| (k, x.unwrap_or(f64::NAN))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_name_everything_that_tells_two_runs_apart() {
        let axes =
            BTreeMap::from([("view".to_string(), "whole".to_string()), ("max_iter".to_string(), "256".to_string())]);
        let warm = Run::make_id("mandelbrot", "cpu_00_scalar", "cpu", Cache::Warm, &axes);
        let cold = Run::make_id("mandelbrot", "cpu_00_scalar", "cpu", Cache::Cold, &axes);
        assert_eq!(warm, "mandelbrot/cpu_00_scalar@cpu[max_iter=256,view=whole]");
        assert_ne!(warm, cold);
    }

    #[test]
    fn a_clock_that_could_not_be_told_is_no_clock() {
        for hz in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let calibration = Calibration { sm_hz: hz, cpu_hz: hz, ..Calibration::default() };
            assert_eq!((calibration.known_sm_hz(), calibration.known_cpu_hz()), (None, None));
        }
        let calibration = Calibration { sm_hz: 1.98e9, cpu_hz: 4e9, ..Calibration::default() };
        assert_eq!((calibration.known_sm_hz(), calibration.known_cpu_hz()), (Some(1.98e9), Some(4e9)));
    }

    #[test]
    fn readers_accept_added_keys_and_missing_ones() {
        let run: Run = serde_json::from_str(r#"{"id":"a","a_key_of_a_later_version":1,"cache":"cold"}"#).unwrap();
        assert_eq!((run.id.as_str(), run.cache, run.median_ns), ("a", Cache::Cold, None));
    }
}
