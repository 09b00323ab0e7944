//! Giving slots back when memory runs low, and taking them again, never more than there is memory for.

use super::ExpertCache;
use crate::action::Action;
use crate::evict_queue::Band;
use crate::ids::{ClassId, SlotId};
use crate::policy::Policy;

/// Why a class cannot have that many slots.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the message of each variant says what its fields are")]
pub enum ResizeError {
    #[error("there are {classes} classes, asked for class {class}")]
    UnknownClass { class: u8, classes: usize },
    #[error("class {class} cannot work with {asked} slots: one token needs {slots_min} of them at once")]
    TooFewSlots { class: u8, asked: u32, slots_min: u32 },
    #[error("class {class} was made with {made} slots and cannot have {asked}")]
    TooManySlots { class: u8, asked: u32, made: u32 },
    #[error(
        "class {class} cannot have {asked} slots: {bytes} bytes for all classes would be more than the arena's {arena}"
    )]
    TooManyBytes { class: u8, asked: u32, bytes: u64, arena: u64 },
}

impl ExpertCache {
    /// Gives up slots of a class until `n_slots` are left. Free ones go first, then the policy's victims;
    /// what is pinned or being read goes when it is released. Each is reported with
    /// [`Action::Retire`]. Does nothing if the class has no more than that. The bytes are gone for all classes, until
    /// `grow` takes them again.
    ///
    /// # Errors
    /// If the class does not exist, or could not hold one token's experts any more.
    pub fn shrink(
        &mut self,
        class: ClassId,
        n_slots: u32,
        actions: &mut Vec<Action>,
    ) -> Result<(), ResizeError> {
        let i = self.check_resize(class, n_slots)?;
        let pool = &self.slots.pools[i];
        if n_slots < pool.n_target {
            self.lower_budget(u64::from(pool.n_target - n_slots) * pool.slot_bytes);
            self.set_target(i, n_slots);
            self.serve(i, actions);
        }
        Ok(())
    }

    /// Takes slots of a class that were given back into use again, until it has `n_slots`. Each is reported
    /// with [`Action::Restore`], as soon as the memory of others that shall go is given back. Does nothing if the class has
    /// that many.
    ///
    /// # Errors
    /// If the class does not exist or was made with fewer slots, or all classes together would have more bytes than the
    /// arena.
    pub fn grow(
        &mut self,
        class: ClassId,
        n_slots: u32,
        actions: &mut Vec<Action>,
    ) -> Result<(), ResizeError> {
        let i = self.check_resize(class, n_slots)?;
        let pool = &self.slots.pools[i];
        if n_slots > pool.n_target {
            let more = u64::from(n_slots - pool.n_target) * pool.slot_bytes;
            let (bytes, arena) = (self.slots.target_bytes() + more, self.slots.arena_bytes);
            if bytes > arena {
                return Err(ResizeError::TooManyBytes { class: class.0, asked: n_slots, bytes, arena });
            }
            self.slots.budget_bytes = (self.slots.budget_bytes + more).min(arena);
            self.set_target(i, n_slots);
            self.restore_due(actions);
            self.pump(actions);
        }
        Ok(())
    }

    /// The memory of a slot that was retired is given back to the system, so that slots of other classes may take as much
    /// ([`Action::Restore`]). Nothing if the slot has been restored meanwhile: then it takes memory again.
    ///
    /// A slot of which this is never said (the system refused) counts as taking its memory for good.
    ///
    /// # Panics
    /// If there is no such slot.
    pub fn given_back(&mut self, slot: SlotId, actions: &mut Vec<Action>) {
        let class = usize::from(self.layout.slot_place(slot).class.0);
        if self.slots.give_back(class, slot) {
            self.restore_due(actions);
            self.pump(actions);
        }
    }

    /// Takes slots into use of the classes that shall have more, as far as there is memory.
    pub(super) fn restore_due(&mut self, actions: &mut Vec<Action>) {
        for class in 0..self.slots.pools.len() {
            let n_live = self.slots.pools[class].n_live;
            while let Some(slot) = self.slots.restore(class) {
                actions.push(Action::Restore { slot });
            }
            if self.slots.pools[class].n_live > n_live {
                self.serve(class, actions);
            }
        }
    }

    fn lower_budget(&mut self, bytes: u64) {
        #[cfg(test)]
        if self.slots.fault == Some(crate::canary::DivisionFault::Forgetful) {
            return;
        }
        self.slots.budget_bytes -= bytes;
    }

    fn check_resize(&self, class: ClassId, asked: u32) -> Result<usize, ResizeError> {
        let (class, i) = (class.0, usize::from(class.0));
        let Some(pool) = self.slots.pools.get(i) else {
            return Err(ResizeError::UnknownClass { class, classes: self.slots.pools.len() });
        };
        if asked < pool.slots_min {
            return Err(ResizeError::TooFewSlots { class, asked, slots_min: pool.slots_min });
        }
        let made = pool.end - pool.first;
        if asked > made {
            return Err(ResizeError::TooManySlots { class, asked, made });
        }
        Ok(i)
    }

    pub(super) fn set_target(&mut self, class: usize, n_slots: u32) {
        self.slots.pools[class].n_target = n_slots;
        self.policy.resized(class, n_slots);
    }

    /// Retires what can be spared of a class that shall shrink.
    pub(super) fn retire_surplus(&mut self, class: usize, actions: &mut Vec<Action>) {
        while self.slots.pools[class].n_live > self.slots.pools[class].n_target {
            let Some(slot) = self.any_slot(class) else { break };
            self.slots.retire(class, slot);
            actions.push(Action::Retire { slot });
        }
    }

    /// A slot that nobody computes with or reads into: free, the policy's victim's, or one that is kept for
    /// later, since memory is short now.
    fn any_slot(&mut self, class: usize) -> Option<SlotId> {
        if let Some(slot) = self.take_slot(class) {
            return Some(slot);
        }
        let kept = self.queue.first(class, Band::Hot).or_else(|| self.queue.first(class, Band::Held));
        match kept {
            Some(e) => Some(self.evict(e)),
            None => self.give_up_reservation(class),
        }
    }
}
