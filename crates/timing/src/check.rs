//! Comparing a result with its reference. Every check here can fail, and NaN never passes.
//!
//! An output is poisoned before the checked run, so that an element that a kernel did not write is a mismatch.

use thiserror::Error;

use crate::record::ErrorReport;

/// Byte that poisons integer outputs.
pub const POISON_BYTE: u8 = 0xA5;
/// What [`poison_u32`] fills with.
pub const POISON_U32: u32 = 0xA5A5_A5A5;
/// Bits of what [`poison_f32`] fills with: a quiet NaN that is told from the hardware's own by its payload.
pub const POISON_F32_BITS: u32 = 0x7FC5_A5A5;

/// A result that is not its reference.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum CheckError {
    /// Result and reference differ in length.
    #[error("the result has {actual} elements, the reference {expected}")]
    Length {
        /// Elements of the reference.
        expected: usize,
        /// Elements of the result.
        actual: usize,
    },
    /// Neither side has an element: nothing was shown to be right.
    #[error("nothing was compared: the reference is empty")]
    Empty,
    /// Elements outside the tolerance (or not equal, where equality is asked).
    #[error("{mismatches} of {compared} elements are wrong, the first at {first}: expected {expected}, got {actual}")]
    Mismatch {
        /// Wrong elements.
        mismatches: usize,
        /// Elements compared.
        compared: usize,
        /// Index of the first wrong one.
        first: usize,
        /// The reference there.
        expected: String,
        /// The result there.
        actual: String,
    },
    /// A summary error above its tolerance, or NaN.
    #[error("{metric} is {value:e}, allowed is {tolerance:e}")]
    TooLarge {
        /// Name of the error measure.
        metric: &'static str,
        /// Its value.
        value: f64,
        /// The most allowed.
        tolerance: f64,
    },
}

/// Fills with [`POISON_F32_BITS`], a NaN.
pub fn poison_f32(buffer: &mut [f32]) {
    buffer.fill(f32::from_bits(POISON_F32_BITS));
}

/// Fills with [`POISON_U32`].
pub fn poison_u32(buffer: &mut [u32]) {
    buffer.fill(POISON_U32);
}

/// How far a value may be from its reference: `|actual - expected| <= abs + rel * |expected|`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// Absolute part, in the unit of the values.
    pub abs: f64,
    /// Relative part.
    pub rel: f64,
}

/// Exact equality of every element. The report's metric is `mismatches`, tolerance 0.
///
/// # Errors
/// Different lengths, nothing to compare, or any unequal element.
pub fn check_equal_u32(expected: &[u32], actual: &[u32]) -> Result<ErrorReport, CheckError> {
    comparable(expected.len(), actual.len())?;
    each(expected, actual, |e, a| e == a)?;
    Ok(report("mismatches", 0.0, 0.0, "every element against the reference"))
}

/// Every element within `tolerance` of an f64 reference. The report's metric is `max_error_over_allowed`: the
/// largest error in units of what was allowed for that element, tolerance 1.
///
/// # Errors
/// Different lengths, nothing to compare, or an element outside the tolerance; NaN and infinity always are, in the
/// result, the reference or the tolerance.
pub fn check_close_f32(expected: &[f64], actual: &[f32], tolerance: Tolerance) -> Result<ErrorReport, CheckError> {
    comparable(expected.len(), actual.len())?;
    let allowed = |e: f64| tolerance.abs + tolerance.rel * e.abs();
    // An infinite allowance would let anything pass, so it lets nothing pass.
    each(expected, actual, |e, a| allowed(*e).is_finite() && (f64::from(*a) - e).abs() <= allowed(*e))?;
    let worst = expected.iter().zip(actual).map(|(&e, &a)| match (f64::from(a) - e).abs() {
        0.0 => 0.0,
        error => error / allowed(e),
    });
    let worst = worst.fold(0.0, f64::max);
    Ok(report("max_error_over_allowed", worst, 1.0, "every element against the f64 reference"))
}

/// Relative root-mean-square error: `sqrt(sum (actual - expected)^2 / sum expected^2)`.
///
/// NaN for different lengths, nothing to compare, or any NaN or infinity on either side; infinite for an error
/// against a reference of zeros.
pub fn rrmse(expected: &[f64], actual: &[f32]) -> f64 {
    if expected.len() != actual.len() || expected.is_empty() {
        return f64::NAN;
    }
    let error: f64 = expected.iter().zip(actual).map(|(e, &a)| (f64::from(a) - e).powi(2)).sum();
    let norm: f64 = expected.iter().map(|e| e.powi(2)).sum();
    if error == 0.0 { 0.0 } else { (error / norm).sqrt() }
}

/// [`rrmse`] at most `tolerance`; the report's metric is `rrmse`.
///
/// # Errors
/// Different lengths, nothing to compare, an error above the tolerance or NaN.
pub fn check_rrmse_f32(expected: &[f64], actual: &[f32], tolerance: f64) -> Result<ErrorReport, CheckError> {
    comparable(expected.len(), actual.len())?;
    let value = rrmse(expected, actual);
    if value <= tolerance && tolerance.is_finite() {
        Ok(report("rrmse", value, tolerance, "all elements against the f64 reference, root mean square"))
    } else {
        Err(CheckError::TooLarge { metric: "rrmse", value, tolerance })
    }
}

fn comparable(expected: usize, actual: usize) -> Result<(), CheckError> {
    match (expected, actual) {
        (expected, actual) if expected != actual => Err(CheckError::Length { expected, actual }),
        (0, _) => Err(CheckError::Empty),
        _ => Ok(()),
    }
}

fn each<E: ToString, A: ToString>(
    expected: &[E],
    actual: &[A],
    passes: impl Fn(&E, &A) -> bool,
) -> Result<(), CheckError> {
    let mut wrong = expected.iter().zip(actual).enumerate().filter(|(_, (e, a))| !passes(e, a));
    let Some((first, (e, a))) = wrong.next() else { return Ok(()) };
    Err(CheckError::Mismatch {
        mismatches: 1 + wrong.count(),
        compared: expected.len(),
        first,
        expected: e.to_string(),
        actual: a.to_string(),
    })
}

fn report(metric: &str, value: f64, tolerance: f64, check: &str) -> ErrorReport {
    ErrorReport { metric: metric.to_string(), value, tolerance, check: check.to_string(), ..ErrorReport::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIGHT: Tolerance = Tolerance { abs: 0.0, rel: 1e-6 };

    #[test]
    fn equality_counts_and_locates_mismatches() {
        let report = check_equal_u32(&[1, 2, 3], &[1, 2, 3]).unwrap();
        assert!(report.value <= report.tolerance);
        let error = check_equal_u32(&[1, 2, 3, 4], &[1, 7, 3, 8]).unwrap_err();
        assert_eq!(error.to_string(), "2 of 4 elements are wrong, the first at 1: expected 2, got 7");
    }

    #[test]
    fn nothing_compared_is_not_a_pass() {
        assert_eq!(check_equal_u32(&[], &[]), Err(CheckError::Empty));
        assert_eq!(check_equal_u32(&[1], &[]), Err(CheckError::Length { expected: 1, actual: 0 }));
        assert_eq!(check_close_f32(&[], &[], TIGHT), Err(CheckError::Empty));
        assert_eq!(check_close_f32(&[], &[1.0], TIGHT), Err(CheckError::Length { expected: 0, actual: 1 }));
        assert_eq!(check_rrmse_f32(&[], &[], 1.0), Err(CheckError::Empty));
        assert!(check_rrmse_f32(&[1.0, 2.0], &[1.0], 1.0).is_err());
        assert!(rrmse(&[], &[]).is_nan() && rrmse(&[1.0], &[]).is_nan());
    }

    #[test]
    fn poison_is_found_wherever_it_is_left() {
        let mut counts = vec![3_u32; 9];
        poison_u32(&mut counts[4..5]);
        assert!(matches!(check_equal_u32(&[3; 9], &counts), Err(CheckError::Mismatch { mismatches: 1, first: 4, .. })));
        assert_eq!(counts[4].to_ne_bytes(), [POISON_BYTE; 4]);
        let mut values = vec![3.0_f32; 9];
        poison_f32(&mut values[8..]);
        assert_eq!(values[8].to_bits(), POISON_F32_BITS);
        let lax = Tolerance { abs: 1e30, rel: 1e30 };
        let error = check_close_f32(&[3.0; 9], &values, lax).unwrap_err();
        assert!(matches!(error, CheckError::Mismatch { mismatches: 1, first: 8, .. }), "{error}");
        assert!(check_rrmse_f32(&[3.0; 9], &values, f64::MAX).is_err());
    }

    #[test]
    fn nan_and_infinity_pass_nowhere() {
        let lax = Tolerance { abs: 1e30, rel: 0.0 };
        assert!(check_close_f32(&[f64::NAN], &[1.0], lax).is_err());
        assert!(check_close_f32(&[f64::NAN], &[f32::NAN], lax).is_err());
        assert!(check_close_f32(&[f64::INFINITY], &[f32::INFINITY], lax).is_err());
        assert!(check_close_f32(&[f64::INFINITY], &[1.0], Tolerance { abs: 0.0, rel: 1.0 }).is_err());
        assert!(check_close_f32(&[1.0], &[1.0], Tolerance { abs: f64::NAN, rel: 0.0 }).is_err());
        assert!(check_close_f32(&[1.0], &[2.0], Tolerance { abs: f64::INFINITY, rel: 0.0 }).is_err());
        assert!(check_rrmse_f32(&[1.0], &[1.0], f64::NAN).is_err());
        assert!(check_rrmse_f32(&[1.0], &[2.0], f64::INFINITY).is_err());
        assert!(check_rrmse_f32(&[f64::INFINITY], &[f32::INFINITY], 1.0).is_err());
    }

    #[test]
    fn tolerances_are_inclusive_and_add_up() {
        let tolerance = Tolerance { abs: 0.5, rel: 0.25 };
        assert_eq!(check_close_f32(&[2.0], &[3.0], tolerance).unwrap().value, 1.0);
        assert!(check_close_f32(&[2.0], &[3.0 + 1e-6], tolerance).is_err());
        assert_eq!(check_close_f32(&[-2.0, 0.0], &[-2.5, 0.0], tolerance).unwrap().value, 0.5);
        assert!(check_close_f32(&[0.0], &[1e-30], TIGHT).is_err(), "a relative tolerance allows nothing at 0");
        assert!(check_close_f32(&[0.0], &[0.0], TIGHT).is_ok());
    }

    #[test]
    fn rrmse_is_relative_to_the_reference() {
        assert_eq!(rrmse(&[3.0, 4.0], &[3.0, 4.5]), 0.1);
        assert_eq!(rrmse(&[0.0, 0.0], &[0.0, 0.0]), 0.0);
        assert_eq!(rrmse(&[0.0], &[1.0]), f64::INFINITY);
        assert_eq!(check_rrmse_f32(&[3.0, 4.0], &[3.0, 4.5], 0.1).unwrap().value, 0.1);
        let error = check_rrmse_f32(&[3.0, 4.0], &[3.0, 4.5], 0.09).unwrap_err();
        assert_eq!(error.to_string(), "rrmse is 1e-1, allowed is 9e-2");
    }
}
