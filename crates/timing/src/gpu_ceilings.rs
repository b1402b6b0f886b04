//! The ceilings of a GPU, measured in the same process as the rungs that are judged by them.
//!
//! | name | what | expected |
//! |---|---|---|
//! | `gpu.copy` | device memory, bytes read plus written, GB/s | the driver's own device-to-device copy |
//! | `gpu.fp32` | FFMA, GFLOP/s | SMs x FP32 lanes x 2 x measured clock |
//! | `gpu.issue` | warp instructions of any kind, Ginstr/s | SMs x 4 schedulers x measured clock |
//! | `gpu.shared` | shared-memory loads, GB/s | SMs x 128 B x measured clock |
//! | `gpu.l2` | loads that hit the L2 and pass L1 (.cg), GB/s | nothing says |
//!
//! A ceiling below 95% of what is expected is marked not ok: it would flatter every rung under it.

use std::collections::BTreeMap;

use crate::cuda::{Buffer, DevicePtr, Gpu, GpuError, Result};
use crate::gpu_sample::{GpuSampler, calibration_kernel, middle};
use crate::launch::{Arg, Geometry, Kernel};
use crate::record::Ceiling;

/// Share of the expected rate that a calibration must reach.
const WEAK: f64 = 0.95;
/// Timed executions of each ceiling; the best third counts, a ceiling being what the machine can do.
const REPEATS: usize = 9;
/// Warp schedulers of an SM on every architecture from sm_70 on; sm_60 has two that issue two.
const SCHEDULERS: f64 = 4.0;

/// The measured ceilings by name, and the SM clock while FFMA ran.
pub struct GpuCeilings {
    /// See the module's table.
    pub ceilings: BTreeMap<String, Ceiling>,
    /// SM clock under full FFMA load, Hz; none where the clock probe could not tell. Never 0.
    pub sm_hz: Option<f64>,
}

/// Measures all of them: about a second, and 2 GiB of device memory (less where less is free).
///
/// # Errors
/// A failed driver call, or a calibration kernel whose result is wrong.
pub fn measure(sampler: &GpuSampler<'_>, gpu: &Gpu) -> Result<GpuCeilings> {
    let mut ceilings = BTreeMap::new();
    let (fp32, sm_hz) = fp32(sampler, gpu)?;
    ceilings.insert("gpu.fp32".to_string(), fp32);
    ceilings.insert("gpu.issue".to_string(), issue(sampler, gpu)?);
    ceilings.insert("gpu.shared".to_string(), shared(sampler, gpu)?);
    ceilings.insert("gpu.l2".to_string(), l2(sampler, gpu)?);
    ceilings.insert("gpu.copy".to_string(), copy(sampler, gpu)?);
    Ok(GpuCeilings { ceilings, sm_hz })
}

fn ceiling(value: f64, unit: &str, how: String, expected: Option<f64>) -> Ceiling {
    // A NaN is not ok.
    let ok = value > 0.0 && expected.is_none_or(|e| value >= WEAK * e);
    Ceiling { value, unit: unit.to_string(), how, expected, ok }
}

/// Best times of `work` in ns (median of the fastest third) and the clock during it in Hz.
fn best_time(sampler: &GpuSampler<'_>, work: &mut dyn FnMut(&Gpu) -> Result<()>) -> Result<(f64, Option<f64>)> {
    // Warm up: the first launches pay for module upload and a sleeping clock.
    for _ in 0..3 {
        sampler.time_once(work)?;
    }
    let mut times = Vec::with_capacity(REPEATS);
    let mut clocks = Vec::new();
    for _ in 0..REPEATS {
        let mut ns = 0.0;
        let hz = sampler.hz_during(&mut |_| {
            ns = sampler.time_once(work)?;
            Ok(())
        })?;
        times.push(ns);
        clocks.extend(hz);
    }
    times.sort_by(f64::total_cmp);
    let hz = (!clocks.is_empty()).then(|| middle(&clocks));
    Ok((middle(&times[..REPEATS / 3]), hz))
}

/// An on-chip ceiling, expected to be the rate of all SMs at the clock that it ran at, `per_cycle` a cycle and SM.
/// Without a clock nothing shows that it is strong, so it is not ok.
fn on_chip(value: f64, unit: &str, how: String, sms: u32, per_cycle: f64, hz: Option<f64>) -> Ceiling {
    match hz {
        Some(hz) => ceiling(value, unit, how, Some(f64::from(sms) * per_cycle * hz * 1e-9)),
        None => Ceiling { ok: false, ..ceiling(value, unit, how + "; the SM clock could not be told", None) },
    }
}

fn fp32(sampler: &GpuSampler<'_>, gpu: &Gpu) -> Result<(Ceiling, Option<f64>)> {
    const TRIPS: u32 = 2048;
    let function = gpu.load(&calibration_kernel!("calib_fma"))?;
    let geometry = Geometry::linear(gpu.device().sms * 8, 256);
    let threads = geometry.blocks() * geometry.threads_per_block();
    let out: Buffer<f32> = gpu.alloc(threads as usize)?;
    // x -> x/2 + 1 settles at 2, whatever it starts from.
    let args = [Arg::Ptr(out.ptr()), Arg::U32(TRIPS), Arg::F32(0.5), Arg::F32(1.0)];
    let (ns, hz) = best_time(sampler, &mut |gpu| gpu.launch(&function, geometry, &args))?;
    if !gpu.download(&out)?.iter().all(|&v| (v - 32.0).abs() < 1e-3) {
        return Err(GpuError::WrongValue { stem: "calib_fma" });
    }
    let flops = threads as f64 * f64::from(TRIPS) * 256.0 * 2.0;
    let lanes = f64::from(gpu.device().fp32_lanes_per_sm);
    let how = format!("independent FFMA chains, {} blocks of 256 threads", geometry.grid[0]);
    Ok((on_chip(flops / ns, "GFLOP/s", how, gpu.device().sms, 2.0 * lanes, hz), hz))
}

fn issue(sampler: &GpuSampler<'_>, gpu: &Gpu) -> Result<Ceiling> {
    const TRIPS: u32 = 4096;
    let function = gpu.load(&calibration_kernel!("calib_issue"))?;
    let geometry = Geometry::linear(gpu.device().sms * 8, 256);
    let threads = geometry.blocks() * geometry.threads_per_block();
    let out: Buffer<f32> = gpu.alloc(threads as usize)?;
    let args = [Arg::Ptr(out.ptr()), Arg::U32(TRIPS), Arg::F32(0.5), Arg::F32(1.0)];
    let (ns, hz) = best_time(sampler, &mut |gpu| gpu.launch(&function, geometry, &args))?;
    // Eight accumulators at 2, plus one bit.
    if !gpu.download(&out)?.iter().all(|&v| (v - 16.0).abs() < 1e-3 || (v - 17.0).abs() < 1e-3) {
        return Err(GpuError::WrongValue { stem: "calib_issue" });
    }
    let instructions = threads as f64 / 32.0 * f64::from(TRIPS) * 256.0;
    let how = format!("three FFMA and one IMNMX in turn, {} blocks of 256 threads", geometry.grid[0]);
    Ok(on_chip(instructions / ns, "Ginstr/s", how, gpu.device().sms, SCHEDULERS, hz))
}

fn shared(sampler: &GpuSampler<'_>, gpu: &Gpu) -> Result<Ceiling> {
    // Odd, so that the XOR of one trip is left.
    const TRIPS: u32 = 1023;
    let function = gpu.load(&calibration_kernel!("calib_shared"))?;
    let geometry = Geometry::linear(gpu.device().sms * 4, 512);
    let threads = geometry.blocks() * geometry.threads_per_block();
    let out: Buffer<u32> = gpu.alloc(threads as usize)?;
    let args = [Arg::Ptr(out.ptr()), Arg::U32(TRIPS)];
    let (ns, hz) = best_time(sampler, &mut |gpu| gpu.launch(&function, geometry, &args))?;
    // Of one trip, the 16 equal words y, z, w cancel in pairs; x is t plus the number of the load.
    let expected = |t: u32| (0..16).fold(0, |fold, u| fold ^ (t + u));
    if gpu.download(&out)?.iter().enumerate().any(|(i, &v)| v != expected(i as u32 % 512)) {
        return Err(GpuError::WrongValue { stem: "calib_shared" });
    }
    let bytes = threads as f64 * f64::from(TRIPS) * 16.0 * 16.0;
    let how = "conflict-free 16-byte loads, 4 blocks of 512 threads per SM".to_string();
    Ok(on_chip(bytes / ns, "GB/s", how, gpu.device().sms, 128.0, hz))
}

fn l2(sampler: &GpuSampler<'_>, gpu: &Gpu) -> Result<Ceiling> {
    const TRIPS: u32 = 512;
    const THREADS: u32 = 512;
    let function = gpu.load(&calibration_kernel!("calib_l2"))?;
    let geometry = Geometry::linear(gpu.device().sms * 4, THREADS);
    let threads = geometry.blocks() * geometry.threads_per_block();
    // A quarter of the L2: where the cache has two halves, data of the far half fits in the near one too.
    let chunk = 4 * THREADS as usize * 4;
    let words = ((gpu.device().l2_bytes as usize / 4 / 4).max(chunk) / chunk) * chunk;
    let input: Buffer<u32> = gpu.alloc(words)?;
    fill(gpu, &input, 1)?;
    let out: Buffer<u32> = gpu.alloc(threads as usize)?;
    let args = [Arg::Ptr(input.ptr()), Arg::Ptr(out.ptr()), Arg::U32((words / 4) as u32), Arg::U32(TRIPS)];
    let (ns, _) = best_time(sampler, &mut |gpu| gpu.launch(&function, geometry, &args))?;
    let folded = l2_reference(words / 4 / (4 * THREADS as usize), 3, 5, TRIPS);
    let seen = gpu.download(&out)?[3 * THREADS as usize + 5];
    if seen != folded {
        return Err(GpuError::WrongValue { stem: "calib_l2" });
    }
    let bytes = threads as f64 * f64::from(TRIPS) * 64.0;
    let how = format!("16-byte .cg loads over {:.0} MiB, read only", words as f64 * 4.0 / f64::from(1 << 20));
    Ok(ceiling(bytes / ns, "GB/s", how, None))
}

/// Word `i` of what `calib_fill` writes.
fn filled(i: u64, seed: u32) -> u32 {
    (i as u32).wrapping_mul(2_654_435_761).wrapping_add(seed)
}

/// What thread `thread` of block `block` of `calib_l2` folds, over `chunks` chunks of 4 x 512 16-byte words.
fn l2_reference(chunks: usize, block: u64, thread: u64, trips: u32) -> u32 {
    let chunks = chunks as u64;
    let mut at = block * 7919 % chunks;
    let mut sum = 0;
    for _ in 0..trips {
        for u in 0..4 {
            let word = (at * 2048 + thread + u * 512) * 4;
            sum = (0..4).fold(sum, |s, w| s ^ filled(word + w, 1));
        }
        at = (at + 1) % chunks;
    }
    sum
}

fn fill(gpu: &Gpu, buffer: &Buffer<u32>, seed: u32) -> Result<()> {
    let function = gpu.load(&calibration_kernel!("calib_fill"))?;
    let args = [Arg::Ptr(buffer.ptr()), Arg::U64(buffer.len() as u64), Arg::U32(seed)];
    gpu.launch(&function, Geometry::linear(gpu.device().sms * 4, 512), &args)?;
    gpu.synchronize()
}

fn copy(sampler: &GpuSampler<'_>, gpu: &Gpu) -> Result<Ceiling> {
    const THREADS: u32 = 256;
    let (free, _) = gpu.memory()?;
    let chunk = 4 * THREADS as usize * 16;
    // Far beyond the L2, and no more than a third of what is free for each side.
    let wanted = (1 << 30).max(8 * gpu.device().l2_bytes as usize).min(free / 3);
    let blocks = wanted / chunk;
    if blocks == 0 {
        return Err(GpuError::Memory { needed: 2 * chunk, free });
    }
    let words = blocks * chunk / 4;
    let from: Buffer<u32> = gpu.alloc(words)?;
    let to: Buffer<u32> = gpu.alloc(words)?;
    fill(gpu, &from, 7)?;
    let function = gpu.load(&calibration_kernel!("calib_copy"))?;
    let geometry = Geometry::linear(blocks as u32, THREADS);
    let args: [Arg<DevicePtr>; 3] = [Arg::Ptr(from.ptr()), Arg::Ptr(to.ptr()), Arg::U64((words / 4) as u64)];
    let (ours_ns, _) = best_time(sampler, &mut |gpu| gpu.launch(&function, geometry, &args))?;
    let copied = gpu.download(&to)?;
    if copied.iter().enumerate().any(|(i, &w)| w != filled(i as u64, 7)) {
        return Err(GpuError::WrongValue { stem: "calib_copy" });
    }
    let (driver_ns, _) = best_time(sampler, &mut |gpu| gpu.copy(&from, &to))?;
    let rate = |ns: f64| 2.0 * from.bytes() as f64 / ns;
    let (ours, driver) = (rate(ours_ns), rate(driver_ns));
    let how = format!(
        "{} MiB to {} MiB, read plus written; the faster of our kernel ({ours:.0}) and the driver's copy ({driver:.0})",
        from.bytes() >> 20,
        to.bytes() >> 20
    );
    // The ceiling is the better of the two; our kernel must not be the weak one.
    let mut result = ceiling(ours, "GB/s", how, Some(driver));
    result.value = ours.max(driver);
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weak_and_broken_ceilings_are_not_ok() {
        let of = |value, expected| ceiling(value, "GB/s", String::new(), expected).ok;
        assert!(of(96.0, Some(100.0)) && of(5.0, None));
        assert!(!of(94.0, Some(100.0)) && !of(f64::NAN, None) && !of(0.0, None) && !of(f64::NAN, Some(1.0)));
        let of = |value, hz| on_chip(value, "GB/s", "loads".to_string(), 100, 128.0, hz);
        assert_eq!(of(25_000.0, Some(2e9)).expected, Some(25_600.0));
        assert!(of(25_000.0, Some(2e9)).ok && !of(24_000.0, Some(2e9)).ok);
        let unknown = of(25_000.0, None);
        assert!(!unknown.ok && unknown.expected.is_none() && unknown.how.ends_with("could not be told"), "{unknown:?}");
    }

    #[test]
    fn the_l2_reference_folds_what_the_kernel_reads() {
        // One chunk, one trip: thread 5 reads the 16-byte words 5, 517, 1029, 1541.
        let words = [5u64, 517, 1029, 1541];
        let by_hand = words.iter().flat_map(|w| (0..4).map(move |i| filled(w * 4 + i, 1))).fold(0, |a, b| a ^ b);
        assert_eq!(l2_reference(1, 3, 5, 1), by_hand);
        assert_eq!(l2_reference(1, 3, 5, 2), 0);
    }
}
