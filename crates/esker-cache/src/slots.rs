//! Slots: which are free, which are given back, who owns the rest.
//!
//! One pool per size class, shared by all layers of the class, not a fixed share per layer: layers differ in
//! how concentrated their routing is, and a common pool gives each what it makes use of.

use crate::config::CacheConfig;
use crate::ids::{ClassId, ExpertNo, NONE, SlotId};

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
}

impl Slot {
    pub const EMPTY: Slot = Slot {
        owner: NONE,
        filled_step: 0,
        is_unused: false,
        is_held: false,
        is_hot: false,
        is_fetched: false,
    };
}

/// The pool of one class.
pub(crate) struct Pool {
    /// First slot and one past the last.
    pub first: u32,
    pub end: u32,
    /// Fewest slots that work: the largest top-k of its layers.
    pub slots_min: u32,
    /// Slots in use or free.
    pub n_live: u32,
    /// What `n_live` shall become.
    pub n_target: u32,
    pub free: Vec<u32>,
    pub retired: Vec<u32>,
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
        (self.n_target / 4).min(self.n_target.saturating_sub(2 * self.slots_min))
    }
}

pub(crate) struct Slots {
    pub slots: Vec<Slot>,
    pub pools: Vec<Pool>,
}

impl Slots {
    pub fn new(config: &CacheConfig) -> Slots {
        let mut pools = Vec::with_capacity(config.classes.len());
        let mut first = 0;
        for (i, class) in config.classes.iter().enumerate() {
            let end = first + class.n_slots;
            pools.push(Pool {
                first,
                end,
                slots_min: config.slots_min(ClassId(i as u8)),
                n_live: class.n_slots,
                n_target: class.n_slots,
                // The lowest is taken first, so that an arena that is never filled stays untouched at its end.
                free: (first..end).rev().collect(),
                retired: Vec::with_capacity(class.n_slots as usize),
                n_pinned: 0,
                n_held: 0,
                n_fetched: 0,
            });
            first = end;
        }
        Slots { slots: vec![Slot::EMPTY; first as usize], pools }
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
