//! Giving a class the bytes of another, where they spare more reads.
//!
//! A class is worth more bytes if decode keeps asking for experts back that it has only just evicted. That is what is counted
//! here; `rebalance.rs` judges the counts. A move takes slots of one class out of use as `shrink` does, and takes slots of the
//! other into use as their memory is given back, as `grow` does, so a pinned slot goes when it is released, and memory is
//! never taken twice.

use super::{ExpertCache, State};
use crate::action::Action;
use crate::config::CacheConfig;
use crate::ids::{ExpertNo, NONE, Phase};
use crate::rebalance::{ClassDemand, Move, decide};

/// Intervals after which counts are halved, so that what was long ago counts less.
const MEMORY_INTERVALS: u32 = 8;
/// Most intervals that pass after a move before the next is thought of.
const PATIENCE_MAX: u32 = 16;

/// What is counted between two decisions.
pub(super) struct Division {
    /// Bytes of the share that is moved at a time.
    share_bytes: u64,
    /// By class; `n_slots` is filled in when a decision is due.
    demand: Vec<ClassDemand>,
    /// By class: evictions while decoding.
    n_evicted: Vec<u64>,
    /// Decode steps since the last decision.
    steps: u32,
    /// Decisions that were thought of since the counts began.
    intervals: u32,
    /// Intervals that pass before counting begins again, so that a class that was given slots has filled them.
    pause: u32,
    /// Intervals that pass after the next move: more whenever a move undoes the one before.
    patience: u32,
    /// Class that gave, class that got.
    last: Option<(usize, usize)>,
}

impl Division {
    pub fn new(config: &CacheConfig) -> Division {
        let share = u128::from(config.arena_bytes()) * u128::from(config.rebalance.share_percent) / 100;
        let share_bytes = share as u64;
        let demand = config.classes.iter().map(|c| ClassDemand {
            slot_bytes: c.slot_bytes,
            n_slots: c.n_slots,
            slots_min: 0,
            slots_max: 0,
            reach: u32::try_from(share_bytes / c.slot_bytes).unwrap_or(u32::MAX).max(1),
            near_misses: 0,
        });
        Division {
            share_bytes,
            demand: demand.collect(),
            n_evicted: vec![0; config.classes.len()],
            steps: 0,
            intervals: 0,
            pause: 0,
            patience: 1,
            last: None,
        }
    }

    fn forget(&mut self) {
        self.demand.iter_mut().for_each(|d| d.near_misses = 0);
        self.intervals = 0;
    }

    /// Counts get old.
    fn age(&mut self) {
        self.intervals += 1;
        if self.intervals.is_multiple_of(MEMORY_INTERVALS) {
            self.demand.iter_mut().for_each(|d| d.near_misses /= 2);
        }
    }

    /// How long to wait after a move. Undoing the last one means that there was no reason for it, or that it went too far.
    fn pause_after(&mut self, from: usize, to: usize) {
        self.patience = match self.last {
            Some(last) if last == (to, from) => (2 * self.patience).min(PATIENCE_MAX),
            _ => (self.patience / 2).max(1),
        };
        self.last = Some((from, to));
        self.pause = self.patience;
    }
}

impl ExpertCache {
    /// An expert of decode's has lost its slot.
    pub(super) fn note_eviction(&mut self, e: ExpertNo, class: usize) {
        // What a prompt evicts it would evict from a larger class too: it works in a ring of fixed size.
        self.experts[e as usize].evicted_as = if self.phase == Some(Phase::Decode) {
            self.division.n_evicted[class] += 1;
            self.division.n_evicted[class]
        } else {
            0
        };
    }

    /// Whether an expert on disk would be in memory if its class had one share of the arena more.
    pub(super) fn was_near(&self, e: ExpertNo) -> bool {
        let class = self.layout.class_of(e);
        let (evicted_as, pool) = (self.experts[e as usize].evicted_as, &self.slots.pools[class]);
        // A class that is not full does not lack bytes.
        evicted_as > 0
            && self.division.n_evicted[class] - evicted_as < u64::from(self.division.demand[class].reach)
            && pool.free.is_empty()
            && pool.n_live == pool.n_target
    }

    /// Decode wants an expert: counts it if a few more bytes would have spared its read.
    pub(super) fn note_demand(&mut self, e: ExpertNo, phase: Phase) {
        let x = &mut self.experts[e as usize];
        // Whoever asks first: a later hit is no miss.
        let was_read_ahead = std::mem::take(&mut x.is_near);
        if phase != Phase::Decode {
            return;
        }
        if was_read_ahead || (x.state == State::OnDisk && x.slot.0 == NONE && self.was_near(e)) {
            let class = self.layout.class_of(e);
            self.division.demand[class].near_misses += 1;
        }
    }

    /// A decode step begins: now and then, decides whether a class gets bytes of another.
    pub(super) fn rebalance(&mut self, actions: &mut Vec<Action>) {
        let config = self.config.rebalance;
        if config.is_off() {
            return;
        }
        self.division.steps += 1;
        if self.division.steps < config.steps {
            return;
        }
        self.division.steps = 0;
        // A move or a shrink is not over, or the system keeps memory that it was to take back.
        if self.slots.pools.iter().any(|pool| pool.n_live != pool.n_target) {
            return self.division.forget();
        }
        if self.division.pause > 0 {
            self.division.pause -= 1;
            return self.division.forget();
        }
        for (class, pool) in self.slots.pools.iter().enumerate() {
            let d = &mut self.division.demand[class];
            (d.n_slots, d.slots_min, d.slots_max) = (pool.n_target, pool.slots_min, pool.end - pool.first);
        }
        let unused = self.slots.budget_bytes - self.slots.target_bytes();
        let decision = decide(&config, self.division.share_bytes, unused, &self.division.demand);
        match decision {
            Some(decision) => self.carry_out(decision, actions),
            None => self.division.age(),
        }
    }

    fn carry_out(&mut self, decision: Move, actions: &mut Vec<Action>) {
        let Move { from, to, n_from, n_to } = decision;
        #[cfg(test)]
        let (n_from, n_to) = match self.slots.fault {
            Some(crate::canary::DivisionFault::Greedy) => (n_from, n_to + 1),
            Some(crate::canary::DivisionFault::Ruthless) => (self.slots.pools[from].n_target, n_to),
            _ => (n_from, n_to),
        };
        self.counters.moves += 1;
        self.counters.moved_bytes += u64::from(n_to) * self.slots.pools[to].slot_bytes;
        self.set_target(from, self.slots.pools[from].n_target - n_from);
        self.set_target(to, self.slots.pools[to].n_target + n_to);
        self.retire_surplus(from, actions);
        self.restore_due(actions);
        self.division.pause_after(from, to);
        self.division.forget();
    }
}
