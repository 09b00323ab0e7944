//! Giving slots back when memory runs low, and taking them again.

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
}

impl ExpertCache {
    /// Gives up slots of a class until `n_slots` are left. Free ones go first, then the policy's victims;
    /// what is pinned or being read goes when it is released. Each is reported with
    /// [`Action::Retire`]. Does nothing if the class has no more than that.
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
        if n_slots < self.slots.pools[i].n_target {
            self.set_target(i, n_slots);
            self.serve(i, actions);
        }
        Ok(())
    }

    /// Takes slots of a class that were given back into use again, until it has `n_slots`. Each is reported
    /// with [`Action::Restore`]. Does nothing if the class has that many.
    ///
    /// # Errors
    /// If the class does not exist or was made with fewer slots.
    pub fn grow(
        &mut self,
        class: ClassId,
        n_slots: u32,
        actions: &mut Vec<Action>,
    ) -> Result<(), ResizeError> {
        let i = self.check_resize(class, n_slots)?;
        if n_slots > self.slots.pools[i].n_target {
            self.set_target(i, n_slots);
            let pool = &mut self.slots.pools[i];
            while pool.n_live < pool.n_target {
                let slot = pool.retired.pop().expect("slots that are not live are retired");
                pool.free.push(slot);
                pool.n_live += 1;
                actions.push(Action::Restore { slot: SlotId(slot) });
            }
            self.serve(i, actions);
            self.pump(actions);
        }
        Ok(())
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

    fn set_target(&mut self, class: usize, n_slots: u32) {
        self.slots.pools[class].n_target = n_slots;
        self.policy.resized(class, n_slots);
    }

    /// Retires what can be spared of a class that shall shrink.
    pub(super) fn retire_surplus(&mut self, class: usize, actions: &mut Vec<Action>) {
        while self.slots.pools[class].n_live > self.slots.pools[class].n_target {
            let Some(slot) = self.any_slot(class) else { break };
            let pool = &mut self.slots.pools[class];
            pool.retired.push(slot.0);
            pool.n_live -= 1;
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
