//! What a CPU rung should take, from the calibration alone.
//!
//! One iteration of `in_flight` vectors takes the longer of two times: the dependent chain, and the issue of all their
//! vector instructions at the measured rate. The chain goes from y to x' (`y2, t, x'`) in one iteration and from x to y'
//! (`x + x, y'`) in the next: five instructions in two iterations, whatever else a rung adds or saves.
//! Rungs without refill advance `lanes * in_flight` neighbouring pixels of a row until the last of them is done.

use timing::cpu::{InstructionMix, Mix, calibrate_mix, widest_vector};
use timing::record::{Calibration, Prediction};
use timing::sample::Plan;

use crate::ladder::CpuRung;
use crate::view::Problem;

/// Cycles of the chain for an iteration, with instructions of 4 cycles, as on most cores since 2015. (Some add in 2 or
/// 3; there the chain is shorter than this.)
const CHAIN_CYCLES: f64 = 10.0;

/// The iteration as written: `y2`, `m`, `t`, `x'`, `x + x`, `y'` and the comparison.
struct Checked;
impl InstructionMix for Checked {
    const MIX: Mix = Mix { mul: 1, fma: 3, add: 2, cmp: 1, ..Mix::NONE };
}

/// Without `m` and the comparison.
struct Deferred;
impl InstructionMix for Deferred {
    const MIX: Mix = Mix { mul: 1, fma: 2, add: 2, ..Mix::NONE };
}

/// Without `x + x`, and the subtraction as a multiply-add.
struct Scaled;
impl InstructionMix for Scaled {
    const MIX: Mix = Mix { mul: 1, fma: 3, ..Mix::NONE };
}

/// The calibrated mix nearest to the rung's own: the same kinds of instruction, whole numbers of them.
fn calibrated(rung: &CpuRung) -> Mix {
    match rung.mix {
        mix if mix.cmp >= 1.0 => Checked::MIX,
        mix if mix.add >= 1.0 => Deferred::MIX,
        _ => Scaled::MIX,
    }
}

/// Measures the ceilings of all mixes of the ladder that `calibration` has not.
///
/// # Errors
/// Threads that cannot be started.
pub fn calibrate(plan: &Plan, calibration: &mut Calibration) -> Result<(), timing::cpu::CpuError> {
    if !calibration.ceilings.contains_key("cpu.copy") {
        timing::cpu::calibrate(plan, calibration)?;
    }
    let Some(unit) = widest_vector() else { return Ok(()) };
    if !calibration.ceilings.contains_key(&Checked::MIX.ceiling_name(unit)) {
        calibrate_mix::<Checked>(unit, plan, calibration)?;
        calibrate_mix::<Deferred>(unit, plan, calibration)?;
        calibrate_mix::<Scaled>(unit, plan, calibration)?;
    }
    Ok(())
}

/// Name of the rung's ceiling, and the time there of the floating-point instructions that its loop issues for the
/// iterations that are needed, ns. Counting, loads, replays and lanes that run on for nothing are overhead. None without a
/// vector unit.
pub fn ceiling(rung: &CpuRung, iterations: u64, calibration: &Calibration) -> Option<(String, f64)> {
    let unit = widest_vector()?;
    let name = calibrated(rung).ceiling_name(unit) + if rung.multicore { ".all" } else { "" };
    let rate = calibration.ceilings.get(&name)?.value;
    Some((name, rung.mix.fp() * iterations as f64 / unit.lanes() as f64 / rate))
}

/// The expected time of the rung. None without a vector unit or a known clock.
pub fn predict(rung: &CpuRung, problem: &Problem, counts: &[u32], calibration: &Calibration) -> Option<Prediction> {
    let unit = widest_vector()?;
    let rate = calibration.ceilings.get("cpu.fma")?.value;
    let ghz = Some(calibration.cpu_hz / 1e9).filter(|&ghz| ghz > 0.0)?;
    let threads = match rung.multicore {
        true => calibration.ceilings.get("cpu.fma.all")?.value / rate,
        false => 1.0,
    };
    let (lanes, vectors) = (f64::from((rung.lanes)()), f64::from(rung.in_flight));
    let issue_ns = vectors * (rung.mix.fp() + rung.mix.int) / rate;
    let chain_ns = CHAIN_CYCLES / ghz;
    // Turns of the loop: each advances all vectors by an iteration.
    let pixels_in_step = (rung.lanes)() * rung.in_flight;
    let (turns, how) = match rung.refill {
        true => (counts.iter().map(|&n| f64::from(n)).sum::<f64>() / (lanes * vectors), "lanes always full"),
        false => (lockstep_turns(problem, counts, pixels_in_step), "until the last pixel of each step"),
    };
    let each = issue_ns.max(chain_ns);
    let text = format!(
        "{:.2} M turns of {vectors:.0} x {lanes:.0} pixels, {how}; {:.2} ns each ({} {}) on {threads:.1} cores",
        turns / 1e6,
        each,
        if issue_ns > chain_ns { "issue, on" } else { "dependent chain, on" },
        unit.name(),
    );
    Some(Prediction { ns: turns * each / threads, text })
}

/// Turns when steps of neighbouring pixels of a row run until their last pixel is done.
fn lockstep_turns(problem: &Problem, counts: &[u32], pixels_in_step: u32) -> f64 {
    let rows = counts.chunks(problem.width.max(1) as usize);
    let steps = rows.flat_map(|row| row.chunks(pixels_in_step.max(1) as usize));
    steps.map(|step| f64::from(step.iter().copied().max().unwrap_or(0))).sum()
}

#[cfg(test)]
mod tests {
    use timing::record::Ceiling;

    use super::*;
    use crate::ladder::CPU;
    use crate::view::WHOLE;

    #[test]
    fn a_step_lasts_as_long_as_its_last_pixel() {
        let problem = Problem::new(WHOLE, 5, 2, 9).unwrap();
        let counts = [1, 9, 2, 3, 4, 5, 0, 0, 0, 7];
        assert_eq!(lockstep_turns(&problem, &counts, 1), 31.0);
        // Rows are not joined: 5 pixels are steps of 2, 2 and 1.
        assert_eq!(lockstep_turns(&problem, &counts, 2), f64::from(9 + 3 + 4 + 5 + 7));
        assert_eq!(lockstep_turns(&problem, &counts, 64), f64::from(9 + 7));
    }

    #[test]
    fn predictions_follow_from_the_calibration() {
        let Some(unit) = widest_vector() else { return };
        let mut calibration = Calibration { cpu_hz: 4e9, ..Calibration::default() };
        let of = |value| Ceiling { value, ..Ceiling::default() };
        calibration.ceilings.insert("cpu.fma".to_string(), of(8.0));
        calibration.ceilings.insert("cpu.fma.all".to_string(), of(16.0));
        calibration.ceilings.insert(Checked::MIX.ceiling_name(unit), of(8.0));
        let problem = Problem::new(WHOLE, 64, 1, 100).unwrap();
        let counts = [100; 64];
        let get = |stem: &str| CPU.iter().find(|r| r.stem == stem).unwrap();
        // One lane, 64 pixels of 100 iterations of 10 cycles at 4 GHz.
        let scalar = predict(get("cpu_00_scalar"), &problem, &counts, &calibration).unwrap();
        assert!((scalar.ns - 64.0 * 100.0 * 2.5).abs() < 1e-6, "{scalar:?}");
        // Four vectors of 8 instructions at 8 a nanosecond: 4 ns, more than the chain's 2.5.
        let ilp = predict(get("cpu_05_avx512_ilp"), &problem, &counts, &calibration).unwrap();
        assert!((ilp.ns - 100.0 * 4.0).abs() < 1e-6, "{ilp:?}");
        // The multi-core rung of single vectors: 4 steps of one vector; 2.5 ns chains on two cores.
        let all = predict(get("cpu_09_multicore"), &problem, &counts, &calibration).unwrap();
        assert!((all.ns - 4.0 * 100.0 * 2.5 / 2.0).abs() < 1e-6, "{all:?}");
        let (_, least_ns) = ceiling(get("cpu_00_scalar"), 1600, &calibration).unwrap();
        assert!((least_ns - 7.0 * 1600.0 / unit.lanes() as f64 / 8.0).abs() < 1e-9);
    }
}
