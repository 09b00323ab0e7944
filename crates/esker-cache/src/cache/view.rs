//! Questions that change nothing.

use super::{ExpertCache, State};
use crate::config::CacheConfig;
use crate::counters::{Counters, LayerCounters};
use crate::ids::{ClassId, ExpertId, SlotId};
use crate::layout::SlotPlace;

/// Where an expert is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Residency {
    /// Not in memory and not on its way.
    OnDisk,
    /// Wanted; no slot is available yet.
    Waiting,
    /// On its way into a slot.
    Reading(SlotId),
    /// In memory, complete.
    Resident(SlotId),
}

impl ExpertCache {
    /// Which experts of `layer` routing may take for resident: to be read once per token and layer into a
    /// local mask that selection and everything after it use.
    ///
    /// An expert counts when its read has completed. With [`Stepwise`](crate::Visibility::Stepwise) the answer
    /// is the same throughout a step.
    ///
    /// # Panics
    /// If there is no such layer, or `mask` is not as long as the layer has experts.
    pub fn resident_mask(&self, layer: u16, mask: &mut [bool]) {
        let n_expert = self.layout.layer(layer).n_expert as usize;
        assert_eq!(mask.len(), n_expert, "layer {layer} has {n_expert} experts");
        self.residency.read(layer, mask);
    }

    /// Where an expert is at this moment.
    ///
    /// # Panics
    /// If there is no such layer or expert.
    pub fn residency(&self, expert: ExpertId) -> Residency {
        let x = &self.experts[self.layout.expert(expert.layer, expert.index) as usize];
        match x.state {
            State::OnDisk => Residency::OnDisk,
            State::Waiting => Residency::Waiting,
            State::Queued | State::Reading => Residency::Reading(x.slot),
            State::Resident => Residency::Resident(x.slot),
        }
    }

    /// Whether no read is in flight and none is due: nothing more will happen by itself.
    pub fn is_quiet(&self) -> bool {
        self.reads.len() == 0 && self.to_read.is_empty() && self.n_waiting == 0 && self.ahead_is_quiet()
    }

    /// Reads in flight.
    pub fn reads_in_flight(&self) -> usize {
        self.reads.len()
    }

    /// Whether predictions lead to reads at present (see [`ReadAheadConfig`](crate::ReadAheadConfig)).
    pub fn reads_ahead(&self) -> bool {
        self.ahead.is_on()
    }

    /// Where a slot lies in the arena.
    ///
    /// # Panics
    /// If there is no such slot.
    pub fn slot_place(&self, slot: SlotId) -> SlotPlace {
        self.layout.slot_place(slot)
    }

    /// Slots of a class that are in use or free.
    ///
    /// # Panics
    /// If there is no such class.
    pub fn n_slots(&self, class: ClassId) -> u32 {
        self.slots.pools[usize::from(class.0)].n_live
    }

    /// Slots that a class shall have: those that it has, but while some of them wait to be given back, or for memory.
    ///
    /// # Panics
    /// If there is no such class.
    pub fn n_slots_planned(&self, class: ClassId) -> u32 {
        self.slots.pools[usize::from(class.0)].n_target
    }

    /// What the cache was made from.
    pub fn config(&self) -> &CacheConfig {
        &self.config
    }

    /// Everything counted so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Lookups of each layer.
    pub fn layer_counters(&self) -> &[LayerCounters] {
        &self.layer_counters
    }
}
