//! The invariants in executable form: everything is counted again from the parts and compared.

use super::{ExpertCache, State};
use crate::counters::Lookups;
use crate::evict_queue::Band;
use crate::ids::NONE;
use crate::slots::{Backing, Pool};

/// What [`ExpertCache::check`] found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expert cache: {0}")]
pub struct Inconsistency(String);

macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err(Inconsistency(format!($($message)+)));
        }
    };
}

impl ExpertCache {
    /// Checks that all parts of the state agree. For tests and for runs that look for a bug: it reads
    /// everything.
    ///
    /// # Errors
    /// The first disagreement, which is a bug of this crate.
    pub fn check(&self) -> Result<(), Inconsistency> {
        self.check_experts()?;
        self.check_slots()?;
        self.check_memory()?;
        self.check_reads()?;
        self.check_waiting()?;
        self.check_counters()
    }

    fn check_experts(&self) -> Result<(), Inconsistency> {
        for (e, x) in self.experts.iter().enumerate() {
            let id = self.layout.id(e as u32);
            let has_slot = matches!(x.state, State::Queued | State::Reading | State::Resident);
            ensure!(has_slot == (x.slot.0 != NONE), "{id:?} is {:?} with slot {}", x.state, x.slot.0);
            ensure!(x.state != State::OnDisk || x.pins == 0, "{id:?} is on disk with {} pins", x.pins);
            ensure!(x.state != State::Waiting || x.pins > 0, "{id:?} waits for nobody");
            let bit = self.residency.is_resident(id.layer, id.index);
            ensure!(bit == (x.state == State::Resident), "{id:?} is {:?}, its bit is {bit}", x.state);
            let band = self.queue.band(e as u32);
            let is_evictable = x.state == State::Resident && x.pins == 0;
            ensure!(
                band.is_some() == is_evictable,
                "{id:?} is {:?} with {} pins, queued in {band:?}",
                x.state,
                x.pins
            );
            if has_slot {
                let slot = &self.slots.slots[x.slot.0 as usize];
                ensure!(slot.owner == e as u32, "{id:?} has slot {}, which {} owns", x.slot.0, slot.owner);
                ensure!(!(slot.is_held && x.pins > 0), "{id:?} is held and pinned");
                let expected = match (slot.is_held, slot.is_hot) {
                    (true, _) => Some(Band::Held),
                    (false, true) => Some(Band::Hot),
                    (false, false) => None,
                };
                let kept = band.filter(|&b| b == Band::Held || b == Band::Hot);
                ensure!(
                    band.is_none() || kept == expected,
                    "{id:?} is queued in {band:?}, expected {expected:?}"
                );
            }
        }
        Ok(())
    }

    fn check_slots(&self) -> Result<(), Inconsistency> {
        for (class, pool) in self.slots.pools.iter().enumerate() {
            let (mut n_owned, mut n_pinned, mut n_held, mut n_fetched) = (0, 0, 0, 0);
            for slot in pool.first..pool.end {
                let s = &self.slots.slots[slot as usize];
                if s.owner == NONE {
                    continue;
                }
                let x = &self.experts[s.owner as usize];
                ensure!(x.slot.0 == slot, "slot {slot} thinks that it belongs to {}", s.owner);
                ensure!(
                    self.layout.class_of(s.owner) == class,
                    "slot {slot} holds an expert of another class"
                );
                n_owned += 1;
                n_pinned += u32::from(x.pins > 0);
                n_held += u32::from(s.is_held);
                n_fetched += u32::from(s.is_fetched);
                ensure!(!s.is_fetched || x.pins > 0, "slot {slot} is fetched for nobody");
            }
            let n_slots = pool.end - pool.first;
            self.check_backing(class)?;
            let (n_free, n_retired) = (pool.free.len() as u32, pool.retired.len() as u32);
            ensure!(
                n_owned + n_free == pool.n_live,
                "class {class}: {n_owned} owned + {n_free} free, {} live",
                pool.n_live
            );
            ensure!(
                pool.n_live + n_retired == n_slots,
                "class {class}: {} live + {n_retired} retired of {n_slots}",
                pool.n_live
            );
            for &slot in pool.free.iter().chain(&pool.retired) {
                ensure!(self.slots.slots[slot as usize].owner == NONE, "slot {slot} is free and owned");
            }
            ensure!(n_pinned == pool.n_pinned, "class {class}: {n_pinned} pinned, counted {}", pool.n_pinned);
            ensure!(n_held == pool.n_held, "class {class}: {n_held} held, counted {}", pool.n_held);
            ensure!(
                n_fetched == pool.n_fetched,
                "class {class}: {n_fetched} fetched, counted {}",
                pool.n_fetched
            );
            if pool.n_live > pool.n_target {
                let spare = n_free as usize + self.queue.n_queued(class);
                ensure!(
                    spare == 0,
                    "class {class} shall shrink and keeps {spare} slots that it does not need"
                );
            }
        }
        Ok(())
    }

    /// Who takes memory, and that nobody waits for memory that there is.
    fn check_backing(&self, class: usize) -> Result<(), Inconsistency> {
        let pool = &self.slots.pools[class];
        let of = |slots: &[u32], backing| {
            slots.iter().filter(|&&slot| self.slots.slots[slot as usize].backing == backing).count()
        };
        let range = &self.slots.slots[pool.first as usize..pool.end as usize];
        let n_live = range.iter().filter(|s| s.backing == Backing::Live).count();
        ensure!(n_live == pool.n_live as usize, "class {class}: {n_live} live, counted {}", pool.n_live);
        let n_kept = of(&pool.retired, Backing::Retired);
        let n_gone = of(&pool.retired, Backing::GivenBack);
        ensure!(n_kept + n_gone == pool.retired.len(), "class {class}: a retired slot is live");
        ensure!(
            n_kept == pool.n_not_given_back as usize,
            "class {class}: {n_kept} not given back, counted {}",
            pool.n_not_given_back
        );
        ensure!(pool.n_target >= pool.slots_min, "class {class} shall have {} slots", pool.n_target);
        ensure!(
            self.slots.next_to_restore(class).is_none(),
            "class {class} has {} slots of {}, and there is memory",
            pool.n_live,
            pool.n_target
        );
        Ok(())
    }

    fn check_memory(&self) -> Result<(), Inconsistency> {
        let s = &self.slots;
        let bytes = |pool: &Pool| u64::from(pool.n_live + pool.n_not_given_back) * pool.slot_bytes;
        let taken: u64 = s.pools.iter().map(bytes).sum();
        ensure!(taken == s.taken_bytes, "{taken} bytes are taken, counted {}", s.taken_bytes);
        ensure!(taken <= s.arena_bytes, "{taken} bytes are taken of an arena of {}", s.arena_bytes);
        let (target, budget) = (s.target_bytes(), s.budget_bytes);
        ensure!(target <= budget, "{target} bytes are to be used of {budget}");
        ensure!(budget <= s.arena_bytes, "{budget} bytes may be used of an arena of {}", s.arena_bytes);
        Ok(())
    }

    fn check_reads(&self) -> Result<(), Inconsistency> {
        ensure!(
            self.reads.len() <= usize::from(self.config.reads_max),
            "{} reads in flight",
            self.reads.len()
        );
        let n_reading = self.experts.iter().filter(|x| x.state == State::Reading).count();
        ensure!(n_reading == self.reads.len(), "{n_reading} experts are read by {} reads", self.reads.len());
        for read in self.reads.iter() {
            let x = &self.experts[read.expert as usize];
            ensure!(x.state == State::Reading && x.slot == read.slot, "read {read:?} is for {x:?}");
            ensure!(read.demand == (x.pins > 0), "read {read:?} has {} pins", x.pins);
        }
        let n_queued = self.experts.iter().filter(|x| x.state == State::Queued && x.pins > 0).count();
        ensure!(n_queued == self.to_read.len(), "{n_queued} experts to read, {} listed", self.to_read.len());
        for &e in &self.to_read {
            ensure!(self.experts[e as usize].state == State::Queued, "expert {e} is listed to be read");
        }
        Ok(())
    }

    fn check_waiting(&self) -> Result<(), Inconsistency> {
        let n_waiting = self.experts.iter().filter(|x| x.state == State::Waiting).count();
        ensure!(n_waiting == self.n_waiting, "{n_waiting} experts wait, counted {}", self.n_waiting);
        let mut n_listed = 0;
        for (class, waiting) in self.waiting.iter().enumerate() {
            n_listed += waiting.len();
            for &e in waiting {
                ensure!(self.experts[e as usize].state == State::Waiting, "expert {e} is listed as waiting");
            }
            let n_available = self.slots.pools[class].free.len()
                + self.queue.len(class, Band::First)
                + self.queue.len(class, Band::Second);
            ensure!(
                waiting.is_empty() || n_available == 0 || !self.may_fetch(class),
                "class {class}: experts wait beside {n_available} slots"
            );
        }
        ensure!(n_listed == n_waiting, "{n_waiting} experts wait, listed {n_listed}");
        Ok(())
    }

    fn check_counters(&self) -> Result<(), Inconsistency> {
        let (mut decode, mut prefill) = (Lookups::default(), Lookups::default());
        for layer in &self.layer_counters {
            for (sum, l) in [(&mut decode, &layer.decode), (&mut prefill, &layer.prefill)] {
                sum.hits += l.hits;
                sum.read_ahead_hits += l.read_ahead_hits;
                sum.misses += l.misses;
            }
        }
        let c = &self.counters;
        ensure!(decode == c.decode && prefill == c.prefill, "the layers' lookups do not add up to {c:?}");
        let open = self.slots.slots.iter().filter(|s| s.is_unused).count() as u64;
        let a = &c.read_ahead;
        let closed = a.on_time + a.late + a.used_later + a.wasted + a.failed;
        ensure!(a.issued == closed + open, "read-ahead: {a:?} with {open} open");
        let hits = c.decode.read_ahead_hits + c.prefill.read_ahead_hits;
        ensure!(a.on_time == hits, "read-ahead: {hits} hits, {} on time", a.on_time);
        Ok(())
    }
}
