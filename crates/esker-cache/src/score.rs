//! Popularity scores that decay, exactly.
//!
//! **Definition (eager).** Every expert has a score, a rational number. At every step all scores are
//! multiplied by `decay`; a use adds one unit to the score of its expert. The expert with the lowest score
//! goes first, among equals the one that was used least recently.
//!
//! **What is computed (lazy).** Decaying 24,576 scores for every token is wasteful, and the factor is common
//! to all, so it is turned round: scores stay as they are and the unit grows, by `1 / decay` a step. Stored
//! that way a score changes only when its expert is used, and so does its place in the order of eviction.
//! The unit would overflow, so it is kept as `weight * 2^scale` with a fixed-point weight in `[1, 2)`, and a
//! score as `sum * 2^scale`, where `scale` is the unit's at the time of the expert's last use. Comparing two
//! scores compares exponents first and then mantissas: nothing is ever rescaled, whatever the decay, and
//! nothing is rounded by waiting.
//!
//! All of it is integer arithmetic, the same on every machine. Two roundings exist and are part of the
//! definition: the unit is a fixed-point number (relative error below 2^-20), and when a use adds to a
//! score, what the score has below the resolution of `2^scale` is dropped. `tests.rs` compares with the
//! eager definition in big integers, bit by bit.

use crate::ids::Phase;

/// Fraction bits of a unit: a unit lies in `[2^20, 2^21)`.
const UNIT_BITS: u32 = 20;
/// Fraction bits of the exact weight behind the unit.
const WEIGHT_BITS: u32 = 62;
/// Fraction bits of the growth per step; `1 / DECAY_MIN` must fit above them.
const GROWTH_BITS: u32 = 56;
/// A sum stays below `2^SUM_BITS`, so that a place (exponent, mantissa, stamp) is 128 bits.
const SUM_BITS: u32 = 48;

pub(crate) const DECAY_MIN: f64 = 0.01;
/// At this decay a permanently used expert settles at 10^5 units: 2^17 * 2^21 < 2^SUM_BITS.
pub(crate) const DECAY_MAX: f64 = 0.999_99;

/// What one use is worth now: `unit * 2^scale`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unit {
    pub unit: u64,
    pub scale: u32,
}

impl Unit {
    /// `numerator / denominator` of a unit, rounded down.
    pub fn share(self, numerator: u64, denominator: u64) -> u64 {
        (u128::from(self.unit) * u128::from(numerator) / u128::from(denominator))
            .min(u128::from(u64::MAX >> 1)) as u64
    }
}

/// The unit under a decay per step.
#[derive(Clone, Debug)]
pub(crate) struct DecayClock {
    weight: u64,
    growth: u64,
    scale: u32,
}

impl DecayClock {
    /// `decay` in `DECAY_MIN..=DECAY_MAX`.
    pub fn new(decay: f64) -> DecayClock {
        let growth = ((1u64 << GROWTH_BITS) as f64 / decay).round() as u64;
        DecayClock { weight: 1 << WEIGHT_BITS, growth, scale: 0 }
    }

    /// One step passes: in the definition all scores decay, here the unit grows.
    pub fn step(&mut self) {
        let mut weight = (u128::from(self.weight) * u128::from(self.growth)) >> GROWTH_BITS;
        while weight >> (WEIGHT_BITS + 1) != 0 {
            weight >>= 1;
            self.scale = self.scale.saturating_add(1);
        }
        self.weight = weight as u64;
    }

    pub fn unit(&self) -> Unit {
        Unit { unit: self.weight >> (WEIGHT_BITS - UNIT_BITS), scale: self.scale }
    }
}

/// The unit under halving all scores once in a while.
#[derive(Clone, Debug)]
pub(crate) struct HalvingClock {
    period: u32,
    passed: u32,
    scale: u32,
}

impl HalvingClock {
    pub fn new(period: u32) -> HalvingClock {
        HalvingClock { period, passed: 0, scale: 0 }
    }

    pub fn step(&mut self) {
        self.passed += 1;
        if self.passed == self.period {
            self.passed = 0;
            self.scale = self.scale.saturating_add(1);
        }
    }

    pub fn unit(&self) -> Unit {
        Unit { unit: 1 << UNIT_BITS, scale: self.scale }
    }
}

/// `sum * 2^scale`
#[derive(Clone, Copy, Debug, Default)]
struct Score {
    sum: u64,
    scale: u32,
}

/// The scores of all experts.
#[derive(Clone, Debug)]
pub(crate) struct Popularity {
    scores: Vec<Score>,
}

impl Popularity {
    pub fn new(n_experts: usize) -> Popularity {
        Popularity { scores: vec![Score::default(); n_experts] }
    }

    /// Adds `amount * 2^scale`.
    pub fn add(&mut self, expert: u32, amount: u64, scale: u32) {
        let score = &mut self.scores[expert as usize];
        let decayed = score.sum.checked_shr(scale - score.scale).unwrap_or(0);
        *score = Score { sum: (decayed + amount).min((1 << SUM_BITS) - 1), scale };
    }

    /// A key that sorts by score and then by `stamp`: 32 bits exponent, 48 bits mantissa, 48 bits stamp.
    pub fn key(&self, expert: u32, stamp: u64) -> u128 {
        let score = self.scores[expert as usize];
        let stamp = u128::from(stamp.min((1 << 48) - 1));
        if score.sum == 0 {
            return stamp;
        }
        let top = score.sum.ilog2();
        let exponent = score.scale.saturating_add(top);
        let mantissa = score.sum << (SUM_BITS - 1 - top);
        u128::from(exponent) << 96 | u128::from(mantissa) << 48 | stamp
    }
}

/// A popularity average over decode steps, which the three averaging policies are made of.
#[derive(Clone, Debug)]
pub(crate) struct Average {
    clock: DecayClock,
    popularity: Popularity,
    prompt_steps: u16,
}

impl Average {
    pub fn new(n_experts: usize, decay: f64, prompt_steps: u16) -> Average {
        Average { clock: DecayClock::new(decay), popularity: Popularity::new(n_experts), prompt_steps }
    }

    pub fn step(&mut self) {
        self.clock.step();
    }

    /// Credits `numerator / denominator` of a use.
    pub fn credit(&mut self, expert: u32, numerator: u64, denominator: u64) {
        let unit = self.clock.unit();
        self.popularity.add(expert, unit.share(numerator, denominator), unit.scale);
    }

    /// Credits a prompt's use by `count` of `n_tokens` tokens: as if the chunk were `prompt_steps` decode
    /// steps with the same frequencies.
    pub fn credit_prompt(&mut self, expert: u32, count: u32, n_tokens: u32) {
        self.credit(expert, u64::from(self.prompt_steps) * u64::from(count), u64::from(n_tokens));
    }

    pub fn key(&self, expert: u32, stamp: u64) -> u128 {
        self.popularity.key(expert, stamp)
    }
}

/// Only decode credits uses one by one: a prompt uses nearly all experts once a chunk, which says little.
/// What it does say comes through `credit_prompt`.
pub(crate) fn counts(phase: Phase) -> bool {
    phase == Phase::Decode
}

#[cfg(test)]
#[path = "score_tests.rs"]
pub(crate) mod tests;
