//! How a missing expert gets a slot and a read, and what happens when the read is over.

use super::{ExpertCache, State};
use crate::action::{Action, FailCause, Priority};
use crate::config::Visibility;
use crate::evict_queue::{Band, Place};
use crate::ids::{ExpertNo, NONE, Phase, SlotId};
use crate::policy::Policy;
use crate::slots::Slot;

impl ExpertCache {
    /// Gives slots that have become available to those who wait: first to a shrinking arena, then to waiting
    /// experts in their order.
    pub(super) fn serve(&mut self, class: usize, actions: &mut Vec<Action>) {
        self.retire_surplus(class, actions);
        while let Some(&e) = self.waiting[class].front()
            && self.may_fetch(class)
        {
            let Some(slot) = self.take_slot_for_want(class) else { break };
            self.waiting[class].pop_front();
            self.n_waiting -= 1;
            self.assign(e, slot);
            self.slots.get(slot).is_fetched = true;
            self.slots.pools[class].n_fetched += 1;
            self.slots.pools[class].n_pinned += 1;
            self.to_read.push_back(e);
            if self.config.visibility == Visibility::Stepwise {
                self.batch.experts.push(e);
            }
        }
    }

    /// Whether a missing expert may take a slot. A prompt wants more experts than there are slots; if all were
    /// its ring, each new one would find but the one slot just released, and the policy would have no choice.
    pub(super) fn may_fetch(&self, class: usize) -> bool {
        self.phase != Some(Phase::Prefill) || self.slots.pools[class].n_fetched < self.ring(class)
    }

    /// Slots that a prompt works in: enough for one token in any case.
    pub(super) fn ring(&self, class: usize) -> u32 {
        self.config.prompt_slots.max(self.slots.pools[class].slots_min)
    }

    /// Issues reads: those that are waited for first; read-ahead only when (nearly) nobody waits for anything.
    pub(super) fn pump(&mut self, actions: &mut Vec<Action>) {
        while self.reads.has_room()
            && let Some(e) = self.to_read.pop_front()
        {
            self.issue(e, Priority::Demand, false, actions);
        }
        let demand_max = usize::from(self.config.read_ahead.demand_max);
        if self.to_read.is_empty() && self.n_waiting == 0 && self.reads.n_demand() <= demand_max {
            self.pump_ahead(actions);
        }
    }

    pub(super) fn issue(
        &mut self,
        e: ExpertNo,
        priority: Priority,
        is_retry: bool,
        actions: &mut Vec<Action>,
    ) {
        let slot = self.experts[e as usize].slot;
        let demand = priority == Priority::Demand;
        let read = self.reads.start(e, slot, demand, is_retry);
        self.experts[e as usize].state = State::Reading;
        self.slots.get(slot).is_unused = !demand;
        self.counters.reads += 1;
        self.counters.read_ahead.issued += u64::from(!demand);
        self.counters.reads_in_flight_max = self.counters.reads_in_flight_max.max(self.reads.len() as u64);
        actions.push(Action::Read { read, expert: self.layout.id(e), slot, priority });
    }

    /// A free slot, or the policy's victim's.
    pub(super) fn take_slot(&mut self, class: usize) -> Option<SlotId> {
        if let Some(slot) = self.slots.pools[class].free.pop() {
            return Some(SlotId(slot));
        }
        let victim = self.policy.victim(class, &mut self.queue)?;
        Some(self.evict(victim))
    }

    /// The same, and if nothing may go, one that is kept for later: but only when the want could otherwise not
    /// have the `top_k` experts that it may count on. More than that waits for a release.
    fn take_slot_for_want(&mut self, class: usize) -> Option<SlotId> {
        let slot = self.take_slot(class);
        let pool = &self.slots.pools[class];
        if slot.is_some() || pool.n_pinned >= pool.slots_min {
            return slot;
        }
        if let Some(victim) = self.queue.first(class, Band::Held) {
            self.counters.held_evictions += 1;
            return Some(self.evict(victim));
        }
        if let Some(victim) = self.queue.first(class, Band::Hot) {
            self.counters.hot_evictions += 1;
            return Some(self.evict(victim));
        }
        self.give_up_reservation(class)
    }

    /// Takes the slot of an expert that may go.
    pub(super) fn evict(&mut self, e: ExpertNo) -> SlotId {
        let class = self.layout.class_of(e);
        self.assert_evictable(e);
        self.unhold(e);
        if self.queue.contains(e) {
            self.queue.remove(class, e);
        }
        let slot = self.leave(e);
        if self.slots.get(slot).filled_step < self.step {
            self.experts[e as usize].lost_in_step = self.step;
        }
        let id = self.layout.id(e);
        self.residency.set(id.layer, id.index, false);
        self.policy.evicted(e, class);
        self.note_eviction(e, class);
        self.counters.evictions += 1;
        if self.slots.get(slot).is_unused {
            self.counters.read_ahead.wasted += 1;
            self.counters.wasted_bytes += self.layout.expert_bytes(e);
        }
        *self.slots.get(slot) = Slot::EMPTY;
        slot
    }

    /// The expert is on disk only; returns the slot that it had.
    pub(super) fn leave(&mut self, e: ExpertNo) -> SlotId {
        let x = &mut self.experts[e as usize];
        x.state = State::OnDisk;
        x.decode_stamp = 0;
        x.is_near = false;
        let slot = std::mem::replace(&mut x.slot, SlotId(NONE));
        if slot.0 != NONE {
            self.slots.end_fetch(slot, self.layout.class_of(e));
        }
        slot
    }

    /// Only a bug can break this, and it would corrupt what is being computed.
    fn assert_evictable(&self, e: ExpertNo) {
        #[cfg(test)]
        if matches!(self.policy, crate::policy::AnyPolicy::Canary(_)) {
            return; // The simulation has to notice by itself.
        }
        let x = &self.experts[e as usize];
        assert!(
            x.pins == 0 && x.state == State::Resident,
            "policy {} evicts expert {e}, which is {:?} with {} pins",
            self.config.policy.name(),
            x.state,
            x.pins
        );
    }

    /// Gives an empty slot to an expert.
    pub(super) fn assign(&mut self, e: ExpertNo, slot: SlotId) {
        let s = self.slots.get(slot);
        assert_eq!(s.owner, NONE, "slot {} has an owner", slot.0);
        s.owner = e;
        let x = &mut self.experts[e as usize];
        x.slot = slot;
        x.state = State::Queued;
        self.policy.loaded(e, self.layout.class_of(e));
    }

    /// Puts an unpinned resident expert in the order of eviction.
    pub(super) fn make_evictable(&mut self, e: ExpertNo) {
        let place = self.place(e);
        self.queue.insert(self.layout.class_of(e), e, place);
    }

    /// Its place, with regard to what is kept for later.
    pub(super) fn place(&self, e: ExpertNo) -> Place {
        let x = &self.experts[e as usize];
        let slot = &self.slots.slots[x.slot.0 as usize];
        let place = self.policy.place(e, x.stamp);
        if slot.is_held {
            Place { band: Band::Held, ..place }
        } else if slot.is_hot {
            Place { band: Band::Hot, ..place }
        } else {
            place
        }
    }

    /// The policy has changed its mind about an expert, or what is kept has.
    pub(super) fn update_place(&mut self, e: ExpertNo) {
        if self.queue.contains(e) {
            let place = self.place(e);
            self.queue.replace(self.layout.class_of(e), e, place);
        }
    }

    /// A read has arrived.
    pub(super) fn fill(&mut self, e: ExpertNo, actions: &mut Vec<Action>) {
        let id = self.layout.id(e);
        self.residency.set(id.layer, id.index, true);
        self.counters.bytes_read += self.layout.expert_bytes(e);
        let x = &mut self.experts[e as usize];
        x.state = State::Resident;
        let (slot, pins) = (x.slot, x.pins);
        self.slots.get(slot).filled_step = self.step;
        if pins == 0 {
            self.make_evictable(e);
        }
        for _ in 0..pins {
            actions.push(Action::Ready { expert: id, slot });
        }
    }

    /// A wanted read failed for the first time.
    pub(super) fn retry(&mut self, e: ExpertNo, actions: &mut Vec<Action>) {
        self.counters.retries += 1;
        self.issue(e, Priority::Demand, true, actions);
    }

    /// An expert with a slot does not come.
    pub(super) fn fail(&mut self, e: ExpertNo, cause: FailCause, actions: &mut Vec<Action>) {
        let class = self.layout.class_of(e);
        self.slots.pools[class].n_pinned -= 1;
        self.report_failed(e, cause, actions);
        self.empty(e);
        if self.config.visibility == Visibility::Stepwise {
            // The list passes over it as if it had been released.
            self.experts[e as usize].let_go = true;
            self.advance_batch(actions);
        }
    }

    /// Ends the wants of an expert.
    pub(super) fn report_failed(&mut self, e: ExpertNo, cause: FailCause, actions: &mut Vec<Action>) {
        let pins = std::mem::take(&mut self.experts[e as usize].pins);
        for _ in 0..pins {
            actions.push(Action::Fail { expert: self.layout.id(e), cause });
        }
        match cause {
            FailCause::ReadFailed { .. } => self.counters.wants_failed += u64::from(pins),
            FailCause::Abandoned => self.counters.wants_abandoned += u64::from(pins),
        }
        if self.config.visibility == Visibility::Stepwise {
            self.batch.n_open -= pins as usize;
        }
    }

    /// Frees the slot of an expert that has not become resident.
    pub(super) fn empty(&mut self, e: ExpertNo) {
        let class = self.layout.class_of(e);
        self.unhold(e);
        let slot = self.leave(e);
        self.policy.evicted(e, class);
        *self.slots.get(slot) = Slot::EMPTY;
        self.slots.pools[class].free.push(slot.0);
    }
}
