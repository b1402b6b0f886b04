//! Sampling: plans, samples, interleaved ladders.

use std::time::Duration;

/// How long and how often to sample a ladder.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Warm-up of the whole ladder before the first sample.
    pub warmup: Duration,
    /// Rounds: every contestant is sampled once in each.
    pub rounds: u32,
    /// A sample repeats the work until it lasts about this long.
    pub min_sample: Duration,
    /// Rounds stop early (but not before 5) once the ladder has taken this long.
    pub budget: Duration,
}

impl Plan {
    /// A first look: seconds for a ladder.
    pub fn quick() -> Self {
        Self {
            warmup: Duration::from_millis(100),
            rounds: 15,
            min_sample: Duration::from_millis(1),
            budget: Duration::from_secs(5),
        }
    }

    /// What committed results are made with.
    pub fn full() -> Self {
        Self {
            warmup: Duration::from_secs(1),
            rounds: 41,
            min_sample: Duration::from_millis(5),
            budget: Duration::from_secs(60),
        }
    }
}

/// The samples of one contestant.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    /// Time of one execution in each sample, ns (a batch is divided by its length).
    pub ns: Vec<f64>,
    /// SM cycles of one execution, where the clock probe could tell; empty on a CPU.
    pub cycles: Vec<Option<f64>>,
    /// Round of each sample.
    pub round: Vec<u32>,
    /// Executions in one sample.
    pub batch: u32,
    /// `single`, `batch` or `graph`: how one sample was taken.
    pub method: &'static str,
    /// `throttled`, `below_quantum`, ...
    pub flags: Vec<String>,
}
