//! Medians, bootstrap intervals and ratios.
//!
//! Times have a hard floor and a long tail, so the median stands for a sample and no distribution is assumed:
//! intervals are 95% percentile bootstrap intervals. For the median of n samples that interval runs between two
//! order statistics near those of the exact sign-test interval (n = 15: the 4th and the 12th, which cover 96.5%),
//! so it needs no correction from n = 6 on; at n = 5 it is the whole range and covers 93.75%. Below
//! [`MIN_SAMPLES`] not even the whole range comes near 95%, and there is no interval.
//!
//! Everything is deterministic: the resampling has a fixed seed, so a replayed report judges as the first one did.
//! A sample that is not finite makes every statistic `None`: NaN never passes as a number.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};

/// Fewest samples (or pairs) that have an interval.
pub const MIN_SAMPLES: usize = 5;

/// Resamples behind an interval: its ends move by less than one order statistic from seed to seed.
const RESAMPLES: usize = 2000;

/// Seed of every resampling.
const SEED: u64 = 0x52_75_6e_67_73;

/// A ratio of two times with its 95% interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// Slow time over fast time: above 1, the second contestant is the faster one.
    pub value: f64,
    /// 95% bootstrap interval, low and high end.
    pub ci: [f64; 2],
    /// Pairs behind it; for an unpaired ratio the smaller number of samples.
    pub pairs: usize,
}

/// The middle sample (mean of the middle two). `None` for no samples or any that is not finite.
pub fn median(samples: &[f64]) -> Option<f64> {
    sorted(samples).map(|s| median_of_sorted(&s))
}

/// The `q` quantile (0..=1), linear between order statistics. `None` for no samples, any that is not finite, or
/// `q` outside 0..=1.
pub fn quantile(samples: &[f64], q: f64) -> Option<f64> {
    if !(0.0..=1.0).contains(&q) {
        return None;
    }
    sorted(samples).map(|s| quantile_of_sorted(&s, q))
}

/// 95% percentile bootstrap interval of the median, in the unit of the samples. `None` under [`MIN_SAMPLES`]
/// samples or when any is not finite.
pub fn bootstrap_median_ci(samples: &[f64]) -> Option<[f64; 2]> {
    let sorted = sorted(samples)?;
    if sorted.len() < MIN_SAMPLES {
        return None;
    }
    let mut resample = Resample::new(&sorted, SEED);
    Some(interval((0..RESAMPLES).map(|_| resample.median()).collect()))
}

/// Ratio of two contestants of one interleaved ladder.
///
/// Samples of equal rounds make a pair; the ratio is taken within each pair, so whatever slowed a whole round
/// (clock, neighbours) cancels. The value is the median of the pair ratios and the interval resamples pairs.
/// Rounds that only one side has are left out.
///
/// `None` when there are fewer than [`MIN_SAMPLES`] pairs, when a side's samples and rounds differ in number, when
/// a round occurs twice on a side, or when any sample of either side is not finite and positive.
pub fn paired_ratio(slow_ns: &[f64], slow_round: &[u32], fast_ns: &[f64], fast_round: &[u32]) -> Option<Ratio> {
    let slow = by_round(slow_ns, slow_round)?;
    let fast = by_round(fast_ns, fast_round)?;
    let ratios: Vec<f64> = slow
        .iter()
        .filter_map(|&(round, s)| {
            let at = fast.binary_search_by_key(&round, |&(r, _)| r).ok()?;
            Some(s / fast[at].1)
        })
        .collect();
    let ci = bootstrap_median_ci(&ratios)?;
    Some(Ratio { value: median(&ratios)?, ci, pairs: ratios.len() })
}

/// Ratio of two medians that were not sampled together (two machines, two commits).
///
/// Each side is resampled on its own. Drift between the two does not cancel and is not in the interval, so a
/// paired ratio is to be preferred wherever there is one. `None` under [`MIN_SAMPLES`] samples on a side, or when
/// any sample is not finite and positive.
pub fn unpaired_ratio(slow_ns: &[f64], fast_ns: &[f64]) -> Option<Ratio> {
    let (slow, fast) = (sorted(slow_ns)?, sorted(fast_ns)?);
    let pairs = slow.len().min(fast.len());
    if pairs < MIN_SAMPLES || slow[0] <= 0.0 || fast[0] <= 0.0 {
        return None;
    }
    // Two seeds: with one, equal-sized sides would draw the same ranks and the interval would collapse.
    let mut slow_resample = Resample::new(&slow, SEED);
    let mut fast_resample = Resample::new(&fast, !SEED);
    let ratios: Vec<f64> = (0..RESAMPLES).map(|_| slow_resample.median() / fast_resample.median()).collect();
    let ratio = Ratio { value: median_of_sorted(&slow) / median_of_sorted(&fast), ci: interval(ratios), pairs };
    (ratio.value.is_finite() && ratio.ci.iter().all(|c| c.is_finite())).then_some(ratio)
}

fn sorted(samples: &[f64]) -> Option<Vec<f64>> {
    if samples.is_empty() || !samples.iter().all(|s| s.is_finite()) {
        return None;
    }
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    Some(sorted)
}

fn median_of_sorted(s: &[f64]) -> f64 {
    let mid = s.len() / 2;
    if s.len() % 2 == 1 { s[mid] } else { s[mid - 1] + (s[mid] - s[mid - 1]) / 2.0 }
}

fn quantile_of_sorted(s: &[f64], q: f64) -> f64 {
    let at = q * (s.len() - 1) as f64;
    let low = at.floor() as usize;
    let high = (low + 1).min(s.len() - 1);
    s[low] + (s[high] - s[low]) * (at - low as f64)
}

fn interval(mut statistics: Vec<f64>) -> [f64; 2] {
    statistics.sort_by(f64::total_cmp);
    [quantile_of_sorted(&statistics, 0.025), quantile_of_sorted(&statistics, 0.975)]
}

/// Finite positive samples in order of their rounds.
fn by_round(ns: &[f64], round: &[u32]) -> Option<Vec<(u32, f64)>> {
    if ns.len() != round.len() || !ns.iter().all(|t| t.is_finite() && *t > 0.0) {
        return None;
    }
    let mut pairs: Vec<(u32, f64)> = round.iter().copied().zip(ns.iter().copied()).collect();
    pairs.sort_by_key(|&(round, _)| round);
    pairs.windows(2).all(|w| w[0].0 != w[1].0).then_some(pairs)
}

/// Draws medians of resamples of sorted data: counts how often each rank was drawn, then walks to the middle,
/// which spares sorting every resample.
struct Resample<'a> {
    sorted: &'a [f64],
    drawn: Vec<u32>,
    rng: Xoshiro256PlusPlus,
}

impl<'a> Resample<'a> {
    fn new(sorted: &'a [f64], seed: u64) -> Self {
        Self { sorted, drawn: vec![0; sorted.len()], rng: Xoshiro256PlusPlus::seed_from_u64(seed) }
    }

    fn median(&mut self) -> f64 {
        let n = self.sorted.len();
        self.drawn.fill(0);
        for _ in 0..n {
            // High half of a 64x64-bit product: uniform in 0..n up to n / 2^64.
            let rank = (u128::from(self.rng.next_u64()) * n as u128) >> 64;
            self.drawn[rank as usize] += 1;
        }
        let (low_rank, high_rank) = ((n - 1) / 2, n / 2);
        let mut seen = 0;
        let mut low = None;
        for (&value, &count) in self.sorted.iter().zip(&self.drawn) {
            seen += count as usize;
            if low.is_none() && seen > low_rank {
                low = Some(value);
            }
            if let (Some(low), true) = (low, seen > high_rank) {
                return low + (value - low) / 2.0;
            }
        }
        unreachable!("n draws reach every rank below n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_distr::{Distribution, Exp1, LogNormal, StandardNormal, StudentT};

    /// Share of `repetitions` seeded samples of size `n` whose interval covers the true median.
    fn coverage<D: Distribution<f64>>(d: &D, true_median: f64, n: usize, repetitions: usize) -> f64 {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(n as u64);
        let covered = (0..repetitions).filter(|_| {
            let samples: Vec<f64> = (0..n).map(|_| d.sample(&mut rng)).collect();
            let [lo, hi] = bootstrap_median_ci(&samples).unwrap();
            lo <= true_median && true_median <= hi
        });
        covered.count() as f64 / repetitions as f64
    }

    #[test]
    fn medians_and_quantiles_of_small_samples() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(quantile(&[10.0, 0.0], 0.25), Some(2.5));
        assert_eq!(quantile(&[7.0], 1.0), Some(7.0));
        assert_eq!(quantile(&[7.0], 1.1), None);
        assert_eq!(quantile(&[7.0], f64::NAN), None);
    }

    #[test]
    fn samples_that_are_not_finite_have_no_statistics() {
        for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let samples = [1.0, 2.0, 3.0, 4.0, 5.0, bad];
            let rounds = [0, 1, 2, 3, 4, 5];
            let good = [1.0; 6];
            assert_eq!(median(&samples), None);
            assert_eq!(bootstrap_median_ci(&samples), None);
            assert_eq!(paired_ratio(&samples, &rounds, &good, &rounds), None);
            assert_eq!(paired_ratio(&good, &rounds, &samples, &rounds), None);
            assert_eq!(unpaired_ratio(&samples, &good), None);
        }
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn times_that_are_not_positive_have_no_ratio() {
        let rounds = [0, 1, 2, 3, 4, 5];
        for bad in [0.0, -1.0] {
            let samples = [1.0, 2.0, 3.0, 4.0, 5.0, bad];
            assert_eq!(paired_ratio(&[1.0; 6], &rounds, &samples, &rounds), None);
            assert_eq!(unpaired_ratio(&samples, &[1.0; 6]), None);
        }
    }

    #[test]
    fn few_samples_have_no_interval() {
        assert_eq!(bootstrap_median_ci(&[1.0, 2.0, 3.0, 4.0]), None);
        assert_eq!(bootstrap_median_ci(&[1.0, 2.0, 3.0, 4.0, 5.0]), Some([1.0, 5.0]));
        assert_eq!(unpaired_ratio(&[1.0; 4], &[1.0; 9]), None);
        // Five samples on each side, but only four rounds in common.
        assert_eq!(paired_ratio(&[1.0; 5], &[0, 1, 2, 3, 4], &[1.0; 5], &[1, 2, 3, 4, 5]), None);
    }

    #[test]
    fn intervals_are_the_same_every_time() {
        let samples: Vec<f64> = (0..31).map(|i| f64::from(i * i % 17)).collect();
        assert_eq!(bootstrap_median_ci(&samples), bootstrap_median_ci(&samples));
        let reversed: Vec<f64> = samples.iter().rev().copied().collect();
        assert_eq!(bootstrap_median_ci(&samples), bootstrap_median_ci(&reversed));
    }

    #[test]
    fn pairs_are_made_by_round_and_not_by_position() {
        // Round r takes (r + 1) * 2 against (r + 1): every pair says 2, in whatever order the samples are kept.
        let slow: Vec<f64> = (0..7).map(|r| f64::from(r + 1) * 2.0).collect();
        let fast: Vec<f64> = (0..7).rev().map(|r| f64::from(r + 1)).collect();
        let ratio = paired_ratio(&slow, &[0, 1, 2, 3, 4, 5, 6], &fast, &[6, 5, 4, 3, 2, 1, 0]).unwrap();
        assert_eq!(ratio, Ratio { value: 2.0, ci: [2.0, 2.0], pairs: 7 });
        assert_eq!(paired_ratio(&slow, &[0, 1, 2, 3, 4, 5, 5], &fast, &[6, 5, 4, 3, 2, 1, 0]), None, "round twice");
        assert_eq!(paired_ratio(&slow, &[0, 1], &fast, &[6, 5, 4, 3, 2, 1, 0]), None, "rounds missing");
    }

    #[test]
    fn intervals_cover_the_median_of_known_distributions() {
        for n in [5, 6, 15, 16, 41, 100] {
            let lognormal = LogNormal::new(0.0, 0.5).unwrap();
            let cases = [
                ("normal", coverage(&StandardNormal, 0.0, n, 400)),
                ("lognormal", coverage(&lognormal, 1.0, n, 400)),
                ("exponential", coverage(&Exp1, std::f64::consts::LN_2, n, 400)),
            ];
            for (name, share) in cases {
                assert!((0.90..=0.99).contains(&share), "{name}, n = {n}: {share}");
            }
        }
    }

    /// Two contestants of one ladder: `ratio` apart, under a drift and bursts that slow a whole round and a
    /// heavy-tailed noise of each sample's own. Returns slow samples, fast samples, rounds; times in ns.
    fn ladder(rng: &mut Xoshiro256PlusPlus, rounds: u32, ratio: f64) -> (Vec<f64>, Vec<f64>, Vec<u32>) {
        let own: StudentT<f64> = StudentT::new(2.0).unwrap();
        let (mut slow, mut fast) = (Vec::new(), Vec::new());
        for r in 0..rounds {
            let drift = 1.0 + 0.3 * f64::from(r) / f64::from(rounds);
            let burst = if rng.next_u64().is_multiple_of(5) { 1.5 } else { 1.0 };
            let mut noise = || 1.0 + 0.005 * own.sample(rng).abs();
            slow.push(1e6 * ratio * drift * burst * noise());
            fast.push(1e6 * drift * burst * noise());
        }
        (slow, fast, (0..rounds).collect())
    }

    #[test]
    fn a_ladder_of_equals_has_ratio_1_in_95_of_100_cases() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let covered = (0..200).filter(|i| {
            let (a, b, rounds) = ladder(&mut rng, 15 + i % 27, 1.0);
            let [lo, hi] = paired_ratio(&a, &rounds, &b, &rounds).unwrap().ci;
            lo <= 1.0 && 1.0 <= hi
        });
        let covered = covered.count();
        assert!((180..=198).contains(&covered), "{covered} of 200");
    }

    #[test]
    fn pairing_finds_a_ratio_that_drift_hides_from_unpaired_medians() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(2);
        let (mut paired_found, mut unpaired_found) = (0, 0);
        for _ in 0..50 {
            let (slow, fast, rounds) = ladder(&mut rng, 21, 1.05);
            let paired = paired_ratio(&slow, &rounds, &fast, &rounds).unwrap();
            assert!((paired.value - 1.05).abs() < 0.01, "{paired:?}");
            paired_found += u32::from(paired.ci[0] > 1.0);
            unpaired_found += u32::from(unpaired_ratio(&slow, &fast).unwrap().ci[0] > 1.0);
        }
        assert_eq!(paired_found, 50);
        assert!(unpaired_found < 5, "{unpaired_found} of 50");
    }

    #[test]
    fn unpaired_ratios_cover_a_true_ratio_of_steady_machines() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(3);
        let d = LogNormal::new(0.0, 0.05).unwrap();
        let covered = (0..300).filter(|i| {
            let slow: Vec<f64> = (0..15 + i % 20).map(|_| 3.0 * d.sample(&mut rng)).collect();
            let fast: Vec<f64> = (0..25).map(|_| 2.0 * d.sample(&mut rng)).collect();
            let [lo, hi] = unpaired_ratio(&slow, &fast).unwrap().ci;
            lo <= 1.5 && 1.5 <= hi
        });
        let share = covered.count() as f64 / 300.0;
        assert!((0.90..=0.99).contains(&share), "{share}");
    }
}
