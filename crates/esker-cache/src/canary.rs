//! Policies and divisions of the arena that break the rules, to see that the simulation notices. A test that cannot fail
//! proves nothing.

use crate::evict_queue::{Band, EvictQueue, Place};
use crate::ids::{ExpertNo, Phase};
use crate::policy::{AnyPolicy, Policy, Use};
use crate::simulation::Simulation;
use crate::{CacheConfig, ExpertCache};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    /// Evicts what the layer has just pinned.
    Pinned,
    /// Evicts what is being read.
    Reading,
    /// Finds nobody to evict.
    Stuck,
}

/// What can be wrong with dividing the arena anew.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum DivisionFault {
    /// Takes a slot into use before there is memory for it.
    Hasty,
    /// Gives a class more bytes than were taken from the other.
    Greedy,
    /// Leaves a class nothing.
    Ruthless,
    /// Gives away what was to be given back because memory ran low.
    Forgetful,
}

pub(crate) struct Canary {
    fault: Fault,
    /// Of each class: the last expert that was wanted while it had a slot; the last that got one.
    wanted: Vec<Option<ExpertNo>>,
    loaded: Vec<Option<ExpertNo>>,
    class_of: Vec<usize>,
}

impl Policy for Canary {
    fn wanted(&mut self, u: Use) {
        if u.has_slot && u.phase == Phase::Decode {
            self.wanted[self.class_of[u.expert as usize]] = Some(u.expert);
        }
    }

    fn loaded(&mut self, expert: ExpertNo, class: usize) {
        self.loaded[class] = Some(expert);
    }

    fn evicted(&mut self, expert: ExpertNo, class: usize) {
        for last in [&mut self.wanted[class], &mut self.loaded[class]] {
            last.take_if(|e| *e == expert);
        }
    }

    fn place(&self, _expert: ExpertNo, stamp: u64) -> Place {
        Place { band: Band::First, key: u128::from(stamp) }
    }

    fn victim(&mut self, class: usize, queue: &mut EvictQueue) -> Option<ExpertNo> {
        let first = queue.first(class, Band::First);
        match self.fault {
            Fault::Pinned => self.wanted[class].or(first),
            Fault::Reading => self.loaded[class].or(first),
            Fault::Stuck => None,
        }
    }
}

fn broken(config: CacheConfig, fault: Fault) -> ExpertCache {
    let mut cache = ExpertCache::new(config).expect("the simulation's configurations are valid");
    let n_classes = cache.slots.pools.len();
    let class_of = (0..cache.layout.n_experts() as u32).map(|e| cache.layout.class_of(e)).collect();
    cache.policy = AnyPolicy::Canary(Canary {
        fault,
        wanted: vec![None; n_classes],
        loaded: vec![None; n_classes],
        class_of,
    });
    cache
}

fn broken_division(config: CacheConfig, fault: DivisionFault) -> ExpertCache {
    let mut cache = ExpertCache::new(config).expect("the simulation's configurations are valid");
    cache.slots.fault = Some(fault);
    cache
}

/// Runs seeds until the simulation's own model says `what`; the cache's checks are off.
fn is_noticed(fault: impl std::fmt::Debug, what: &str, make: impl Fn(CacheConfig) -> ExpertCache) {
    let mut others = Vec::new();
    for seed in 0..400 {
        let mut simulation = Simulation::with_cache(seed, &make);
        simulation.check_cache = false;
        // A corrupted cache may also stop itself by an assertion, or show first in the counts.
        let run = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| simulation.run(2_000)));
        match run {
            Ok(Err(violation)) if violation.to_string().contains(what) => return,
            Ok(Err(violation)) => others.push(violation),
            Ok(Ok(())) | Err(_) => {}
        }
    }
    panic!("{fault:?} was not noticed as such, only: {others:?}");
}

#[test]
fn evicting_a_pinned_expert_is_noticed() {
    is_noticed(Fault::Pinned, "is pinned", |config| broken(config, Fault::Pinned));
}

#[test]
fn evicting_an_expert_that_is_being_read_is_noticed() {
    is_noticed(Fault::Reading, "is being read", |config| broken(config, Fault::Reading));
}

#[test]
fn a_want_that_never_ends_is_noticed() {
    is_noticed(Fault::Stuck, "never ended", |config| broken(config, Fault::Stuck));
}

fn is_division_noticed(fault: DivisionFault, what: &str) {
    is_noticed(fault, what, |config| broken_division(config, fault));
}

#[test]
fn memory_that_is_taken_twice_is_noticed() {
    is_division_noticed(DivisionFault::Hasty, "bytes are taken, more than the");
}

#[test]
fn bytes_that_come_from_nowhere_are_noticed() {
    is_division_noticed(DivisionFault::Greedy, "classes shall have");
}

#[test]
fn a_class_that_is_left_too_few_slots_is_noticed() {
    is_division_noticed(DivisionFault::Ruthless, "fewer than the");
}

#[test]
fn a_shrink_that_is_undone_by_a_move_is_noticed() {
    is_division_noticed(DivisionFault::Forgetful, "classes shall have");
}

#[test]
fn the_cache_notices_its_own_corruption() {
    let mut simulation = Simulation::with_cache(1, |config| broken(config, Fault::Pinned));
    let run = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| simulation.run(2_000)));
    assert!(!matches!(run, Ok(Ok(()))), "neither check() nor an assertion noticed");
}
