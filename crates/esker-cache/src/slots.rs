//! Slots: which are free, which are given back, who owns the rest, and how much memory they may take together.
//!
//! One pool per size class, shared by all layers of the class, not a fixed share per layer: layers differ in
//! how concentrated their routing is, and a common pool gives each what it makes use of.

use crate::config::CacheConfig;
use crate::ids::{ClassId, ExpertNo, NONE, SlotId};

/// Whether a slot takes memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backing {
    /// In use or free.
    Live,
    /// Retired, and nobody has said yet that its memory is given back.
    Retired,
    /// Retired, and it takes no memory.
    GivenBack,
}

/// One slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    /// `NONE`: free or retired.
    pub owner: ExpertNo,
    /// Step in which its read completed.
    pub filled_step: u64,
    /// Read ahead, and nobody has wanted it yet.
    pub is_unused: bool,
    /// Kept for a predicted expert until its layer has come.
    pub is_held: bool,
    /// Kept for decode while a prompt runs.
    pub is_hot: bool,
    /// Given to an expert that a want had to wait for, and not released since.
    pub is_fetched: bool,
    pub backing: Backing,
}

impl Slot {
    pub const EMPTY: Slot = Slot {
        owner: NONE,
        filled_step: 0,
        is_unused: false,
        is_held: false,
        is_hot: false,
        is_fetched: false,
        backing: Backing::Live,
    };
}

/// The pool of one class.
pub(crate) struct Pool {
    /// First slot and one past the last.
    pub first: u32,
    pub end: u32,
    pub slot_bytes: u64,
    /// Fewest slots that work: the largest top-k of its layers.
    pub slots_min: u32,
    /// Slots in use or free.
    pub n_live: u32,
    /// What `n_live` shall become.
    pub n_target: u32,
    pub free: Vec<u32>,
    /// The last one is taken into use first.
    pub retired: Vec<u32>,
    /// Of these, those whose memory is not given back yet.
    pub n_not_given_back: u32,
    /// Experts that are pinned and have a slot.
    pub n_pinned: u32,
    /// Slots that are held.
    pub n_held: u32,
    /// Slots that are fetched.
    pub n_fetched: u32,
}

impl Pool {
    /// Slots that predictions may hold: a quarter, and never so many that fewer than two tokens' experts of a
    /// layer fit beside them (one being computed, one being read).
    pub fn held_max(&self) -> u32 {
        let n = self.n_target.min(self.n_live);
        (n / 4).min(n.saturating_sub(2 * self.slots_min))
    }
}

pub(crate) struct Slots {
    pub slots: Vec<Slot>,
    pub pools: Vec<Pool>,
    /// Bytes that slots may take at most, ever.
    pub arena_bytes: u64,
    /// Bytes that they may take now: less after a shrink.
    pub budget_bytes: u64,
    /// Bytes of the slots that take memory.
    pub taken_bytes: u64,
    #[cfg(test)]
    pub fault: Option<crate::canary::DivisionFault>,
}

impl Slots {
    pub fn new(config: &CacheConfig) -> Slots {
        let mut pools = Vec::with_capacity(config.classes.len());
        let mut first = 0;
        for (i, class) in config.classes.iter().enumerate() {
            let n_max = config.slots_max(ClassId(i as u8));
            let (end, end_live) = (first + n_max, first + class.n_slots);
            pools.push(Pool {
                first,
                end,
                slot_bytes: class.slot_bytes,
                slots_min: config.slots_min(ClassId(i as u8)),
                n_live: class.n_slots,
                n_target: class.n_slots,
                // The lowest is taken first, so that an arena that is never filled stays untouched at its end.
                free: {
                    let mut free = Vec::with_capacity(n_max as usize);
                    free.extend((first..end_live).rev());
                    free
                },
                retired: {
                    let mut retired = Vec::with_capacity(n_max as usize);
                    retired.extend((end_live..end).rev());
                    retired
                },
                n_not_given_back: 0,
                n_pinned: 0,
                n_held: 0,
                n_fetched: 0,
            });
            first = end;
        }
        let mut slots = vec![Slot::EMPTY; first as usize];
        for &slot in pools.iter().flat_map(|pool| &pool.retired) {
            slots[slot as usize].backing = Backing::GivenBack;
        }
        let arena_bytes = config.arena_bytes();
        Slots {
            slots,
            pools,
            arena_bytes,
            budget_bytes: arena_bytes,
            taken_bytes: arena_bytes,
            #[cfg(test)]
            fault: None,
        }
    }

    /// Bytes of the slots that all classes shall have.
    pub fn target_bytes(&self) -> u64 {
        self.pools.iter().map(|pool| pool.slot_bytes * u64::from(pool.n_target)).sum()
    }

    /// Takes an empty slot out of use. Its memory counts until it is given back.
    pub fn retire(&mut self, class: usize, slot: SlotId) {
        let pool = &mut self.pools[class];
        pool.retired.push(slot.0);
        pool.n_live -= 1;
        pool.n_not_given_back += 1;
        self.slots[slot.0 as usize].backing = Backing::Retired;
    }

    /// The memory of a retired slot is given back. Returns false if the slot is in use again, or was given back before.
    pub fn give_back(&mut self, class: usize, slot: SlotId) -> bool {
        let backing = &mut self.slots[slot.0 as usize].backing;
        if *backing != Backing::Retired {
            return false;
        }
        *backing = Backing::GivenBack;
        let pool = &mut self.pools[class];
        pool.n_not_given_back -= 1;
        self.taken_bytes -= pool.slot_bytes;
        true
    }

    /// Takes a retired slot of a class that shall have more into use again, if there is memory for it.
    pub fn restore(&mut self, class: usize) -> Option<SlotId> {
        let at = self.next_to_restore(class)?;
        let pool = &mut self.pools[class];
        let slot = pool.retired.remove(at);
        pool.free.push(slot);
        pool.n_live += 1;
        match std::mem::replace(&mut self.slots[slot as usize].backing, Backing::Live) {
            Backing::GivenBack => self.taken_bytes += pool.slot_bytes,
            _ => pool.n_not_given_back -= 1,
        }
        Some(SlotId(slot))
    }

    /// Position in the list of retired slots.
    pub fn next_to_restore(&self, class: usize) -> Option<usize> {
        let pool = &self.pools[class];
        if pool.n_live >= pool.n_target {
            return None;
        }
        if self.has_room_for(pool.slot_bytes) {
            return pool.retired.len().checked_sub(1);
        }
        // One that takes memory all the same.
        let takes_memory = |&slot: &u32| self.slots[slot as usize].backing == Backing::Retired;
        if pool.n_not_given_back == 0 { None } else { pool.retired.iter().rposition(takes_memory) }
    }

    fn has_room_for(&self, bytes: u64) -> bool {
        #[cfg(test)]
        if self.fault == Some(crate::canary::DivisionFault::Hasty) {
            return true;
        }
        self.taken_bytes + bytes <= self.budget_bytes
    }

    /// Ends the time in which a slot counts as fetched, if it does.
    pub fn end_fetch(&mut self, slot: SlotId, class: usize) {
        if std::mem::take(&mut self.slots[slot.0 as usize].is_fetched) {
            self.pools[class].n_fetched -= 1;
        }
    }

    pub fn get(&mut self, slot: SlotId) -> &mut Slot {
        &mut self.slots[slot.0 as usize]
    }
}
