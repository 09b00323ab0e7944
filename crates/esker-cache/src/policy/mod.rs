//! What to evict: one file per policy, one line each in the enum below.
//!
//! A policy sees uses and gives each resident expert a place in the order of eviction. It never sees pins
//! or reads: the cache queues only experts that may go, so no policy can pick one that is being computed
//! with or read. Policies hold state per expert, also of experts that are not resident, and use integers
//! only.
//!
//! To add one: its file here, an entry in [`PolicyConfig`], [`PolicyConfig::NAMES`] and [`AnyPolicy`].
//! `reference_tests.rs` then asks for a naive version to compare it with.

mod clairvoyant;
mod ema;
mod inverse_router;
mod lfu;
mod lru;
mod near_pick;
mod protected_lru;
mod s3_fifo;

use crate::config::ConfigError;
use crate::evict_queue::{Band, EvictQueue, Place};
use crate::ids::{ExpertNo, Phase};
use crate::layout::Layout;
use crate::score::{DECAY_MAX, DECAY_MIN};

/// Which policy, with its parameters. None of them is hidden in the code.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PolicyConfig {
    /// The least recently used expert goes.
    Lru,
    /// The least often used expert goes; all counts halve every `half_life_steps` steps.
    Lfu {
        /// Steps (decoded tokens, prompt chunks) after which all counts halve; at least 1.
        half_life_steps: u32,
        /// A prompt chunk counts like this many decode steps.
        prompt_steps: u16,
    },
    /// The expert with the lowest exponential moving average of uses goes.
    Ema {
        /// Factor per step, 0.01 to 0.99999.
        decay: f64,
        /// A prompt chunk counts like this many decode steps.
        prompt_steps: u16,
    },
    /// As `Ema`, and experts that the router ranked just below the chosen ones are credited too.
    NearPickEma {
        /// Factor per step, 0.01 to 0.99999.
        decay: f64,
        /// A prompt chunk counts like this many decode steps.
        prompt_steps: u16,
        /// Router ranks that are credited, the chosen ones included; at least 1.
        depth: u16,
        /// What an expert that was ranked but not chosen gets, in percent of a use, at most 100.
        near_percent: u8,
    },
    /// As `Ema`, but a use is credited by the inverse of its router rank: 1, 1/2, 1/3, ... down to `depth`,
    /// whether chosen or not.
    InverseRouterEma {
        /// Factor per step, 0.01 to 0.99999.
        decay: f64,
        /// A prompt chunk counts like this many decode steps.
        prompt_steps: u16,
        /// Router ranks that are credited; at least 1.
        depth: u16,
    },
    /// LRU in two classes: an expert that decode used again while it had its slot is protected, and ages more
    /// slowly.
    ProtectedLru {
        /// How much more slowly; at least 1 (plain LRU).
        slowdown: u8,
    },
    /// S3-FIFO (Yang et al., SOSP 2023): a small queue that filters experts used once, a main queue, and a
    /// memory of those that the filter dropped.
    S3Fifo {
        /// Share of the small queue, 1 to 99 percent.
        small_percent: u8,
    },
    /// The expert whose next use is farthest away goes (Belady): a bound, for replay only. The replayer
    /// says when with [`ExpertCache::set_next_use`](crate::ExpertCache::set_next_use).
    Clairvoyant,
}

impl PolicyConfig {
    /// Names that [`PolicyConfig::by_name`] knows.
    pub const NAMES: [&'static str; 8] = [
        "lru",
        "lfu",
        "ema",
        "near-pick-ema",
        "inverse-router-ema",
        "protected-lru",
        "s3-fifo",
        "clairvoyant",
    ];

    /// The policy of that name with usual parameters.
    pub fn by_name(name: &str) -> Option<PolicyConfig> {
        let (decay, prompt_steps) = (0.99, 32);
        Some(match name {
            "lru" => PolicyConfig::Lru,
            "lfu" => PolicyConfig::Lfu { half_life_steps: 128, prompt_steps },
            "ema" => PolicyConfig::Ema { decay, prompt_steps },
            "near-pick-ema" => PolicyConfig::NearPickEma { decay, prompt_steps, depth: 24, near_percent: 25 },
            "inverse-router-ema" => PolicyConfig::InverseRouterEma { decay, prompt_steps, depth: 24 },
            "protected-lru" => PolicyConfig::ProtectedLru { slowdown: 2 },
            "s3-fifo" => PolicyConfig::S3Fifo { small_percent: 10 },
            "clairvoyant" => PolicyConfig::Clairvoyant,
            _ => return None,
        })
    }

    /// The name that [`PolicyConfig::by_name`] knows it by.
    pub fn name(&self) -> &'static str {
        match self {
            PolicyConfig::Lru => "lru",
            PolicyConfig::Lfu { .. } => "lfu",
            PolicyConfig::Ema { .. } => "ema",
            PolicyConfig::NearPickEma { .. } => "near-pick-ema",
            PolicyConfig::InverseRouterEma { .. } => "inverse-router-ema",
            PolicyConfig::ProtectedLru { .. } => "protected-lru",
            PolicyConfig::S3Fifo { .. } => "s3-fifo",
            PolicyConfig::Clairvoyant => "clairvoyant",
        }
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let field = |field, found: f64, ok: bool, expected| {
            if ok {
                Ok(())
            } else {
                Err(ConfigError::PolicyField { policy: self.name(), field, found, expected })
            }
        };
        let decay_ok = |decay: f64| {
            let ok = (DECAY_MIN..=DECAY_MAX).contains(&decay);
            field("decay", decay, ok, "0.01 to 0.99999")
        };
        let depth_ok = |depth: u16| field("depth", depth.into(), depth >= 1, "at least 1");
        match *self {
            PolicyConfig::Lru | PolicyConfig::Clairvoyant => Ok(()),
            PolicyConfig::Lfu { half_life_steps, .. } => {
                field("half_life_steps", half_life_steps.into(), half_life_steps >= 1, "at least 1")
            }
            PolicyConfig::Ema { decay, .. } => decay_ok(decay),
            PolicyConfig::NearPickEma { decay, depth, near_percent, .. } => {
                decay_ok(decay)?;
                depth_ok(depth)?;
                field("near_percent", near_percent.into(), near_percent <= 100, "at most 100 percent")
            }
            PolicyConfig::InverseRouterEma { decay, depth, .. } => {
                decay_ok(decay)?;
                depth_ok(depth)
            }
            PolicyConfig::ProtectedLru { slowdown } => {
                field("slowdown", slowdown.into(), slowdown >= 1, "at least 1")
            }
            PolicyConfig::S3Fifo { small_percent } => {
                let ok = (1..=99).contains(&small_percent);
                field("small_percent", small_percent.into(), ok, "1 to 99 percent")
            }
        }
    }
}

/// One lookup, as a policy sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Use {
    pub expert: ExpertNo,
    /// Position in the want: the router's rank, in decode.
    pub rank: u32,
    pub phase: Phase,
    /// It has a slot: it is resident, being read or about to be. Not the same as a hit, because whether a
    /// read has completed depends on the disk and must not decide what is evicted.
    pub has_slot: bool,
    /// Serial number of the lookup.
    pub stamp: u64,
}

/// What a policy is asked. The defaults suit policies that do not care.
pub(crate) trait Policy {
    fn begin_step(&mut self) {}

    /// A layer wants the expert; comes before a slot is given to it.
    fn wanted(&mut self, _use: Use) {}

    /// The expert got a slot.
    fn loaded(&mut self, _expert: ExpertNo, _class: usize) {}

    /// The expert lost its slot.
    fn evicted(&mut self, _expert: ExpertNo, _class: usize) {}

    /// The router ranked the expert in this step and did not choose it. Returns whether its place changed.
    fn near(&mut self, _expert: ExpertNo, _rank: u32) -> bool {
        false
    }

    /// `count` of a chunk's `n_tokens` tokens use the expert. Returns whether its place changed.
    fn prompt(&mut self, _expert: ExpertNo, _count: u32, _n_tokens: u32) -> bool {
        false
    }

    /// When the expert will be used next. Returns whether its place changed.
    fn next_use(&mut self, _expert: ExpertNo, _when: u64) -> bool {
        false
    }

    /// The class has another number of slots now.
    fn resized(&mut self, _class: usize, _n_slots: u32) {}

    /// Place in the order of eviction, in the first or second band. `stamp` grows with the time of the last
    /// use and is another one for each expert; being read ahead is not a use. Must stay the same until one of
    /// the calls above.
    fn place(&self, expert: ExpertNo, stamp: u64) -> Place;

    /// Whom to evict. May move experts within the queue.
    fn victim(&mut self, class: usize, queue: &mut EvictQueue) -> Option<ExpertNo> {
        queue.first(class, Band::First).or_else(|| queue.first(class, Band::Second))
    }
}

pub(crate) enum AnyPolicy {
    Lru(lru::Lru),
    Lfu(lfu::Lfu),
    Ema(ema::Ema),
    NearPickEma(near_pick::NearPickEma),
    InverseRouterEma(inverse_router::InverseRouterEma),
    ProtectedLru(protected_lru::ProtectedLru),
    S3Fifo(s3_fifo::S3Fifo),
    Clairvoyant(clairvoyant::Clairvoyant),
    /// Breaks the rules on purpose; see `canary.rs`.
    #[cfg(test)]
    Canary(crate::canary::Canary),
}

impl AnyPolicy {
    pub fn new(config: PolicyConfig, layout: &Layout, n_slots: &[u32]) -> AnyPolicy {
        let n = layout.n_experts();
        match config {
            PolicyConfig::Lru => AnyPolicy::Lru(lru::Lru),
            PolicyConfig::Lfu { half_life_steps, prompt_steps } => {
                AnyPolicy::Lfu(lfu::Lfu::new(n, half_life_steps, prompt_steps))
            }
            PolicyConfig::Ema { decay, prompt_steps } => {
                AnyPolicy::Ema(ema::Ema::new(n, decay, prompt_steps))
            }
            PolicyConfig::NearPickEma { decay, prompt_steps, depth, near_percent } => AnyPolicy::NearPickEma(
                near_pick::NearPickEma::new(n, decay, prompt_steps, depth, near_percent),
            ),
            PolicyConfig::InverseRouterEma { decay, prompt_steps, depth } => AnyPolicy::InverseRouterEma(
                inverse_router::InverseRouterEma::new(n, decay, prompt_steps, depth),
            ),
            PolicyConfig::ProtectedLru { slowdown } => {
                AnyPolicy::ProtectedLru(protected_lru::ProtectedLru::new(n, slowdown))
            }
            PolicyConfig::S3Fifo { small_percent } => {
                AnyPolicy::S3Fifo(s3_fifo::S3Fifo::new(layout, n_slots, small_percent))
            }
            PolicyConfig::Clairvoyant => AnyPolicy::Clairvoyant(clairvoyant::Clairvoyant::new(n)),
        }
    }
}

/// Calls a method of whichever policy it is: static dispatch, one branch.
macro_rules! each {
    ($policy:expr, $p:ident => $call:expr) => {
        match $policy {
            AnyPolicy::Lru($p) => $call,
            AnyPolicy::Lfu($p) => $call,
            AnyPolicy::Ema($p) => $call,
            AnyPolicy::NearPickEma($p) => $call,
            AnyPolicy::InverseRouterEma($p) => $call,
            AnyPolicy::ProtectedLru($p) => $call,
            AnyPolicy::S3Fifo($p) => $call,
            AnyPolicy::Clairvoyant($p) => $call,
            #[cfg(test)]
            AnyPolicy::Canary($p) => $call,
        }
    };
}

impl Policy for AnyPolicy {
    fn begin_step(&mut self) {
        each!(self, p => p.begin_step());
    }
    fn wanted(&mut self, u: Use) {
        each!(self, p => p.wanted(u));
    }
    fn loaded(&mut self, expert: ExpertNo, class: usize) {
        each!(self, p => p.loaded(expert, class));
    }
    fn evicted(&mut self, expert: ExpertNo, class: usize) {
        each!(self, p => p.evicted(expert, class));
    }
    fn near(&mut self, expert: ExpertNo, rank: u32) -> bool {
        each!(self, p => p.near(expert, rank))
    }
    fn prompt(&mut self, expert: ExpertNo, count: u32, n_tokens: u32) -> bool {
        each!(self, p => p.prompt(expert, count, n_tokens))
    }
    fn next_use(&mut self, expert: ExpertNo, when: u64) -> bool {
        each!(self, p => p.next_use(expert, when))
    }
    fn resized(&mut self, class: usize, n_slots: u32) {
        each!(self, p => p.resized(class, n_slots));
    }
    fn place(&self, expert: ExpertNo, stamp: u64) -> Place {
        each!(self, p => p.place(expert, stamp))
    }
    fn victim(&mut self, class: usize, queue: &mut EvictQueue) -> Option<ExpertNo> {
        each!(self, p => p.victim(class, queue))
    }
}

#[cfg(test)]
mod reference_tests;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_known_both_ways() {
        for name in PolicyConfig::NAMES {
            let policy = PolicyConfig::by_name(name).expect("listed");
            assert_eq!(policy.name(), name);
            policy.check().expect("usual parameters are allowed");
        }
        assert_eq!(PolicyConfig::by_name("random"), None);
    }
}
