//! Reads in flight: at most `reads_max`, found by their id in O(1).

use crate::ids::{ExpertNo, ReadId, SlotId};

#[derive(Clone, Copy, Debug)]
pub(crate) struct InFlight {
    pub id: ReadId,
    pub expert: ExpertNo,
    pub slot: SlotId,
    /// Somebody waits for it.
    pub demand: bool,
    /// It is the second attempt.
    pub is_retry: bool,
}

/// An id is `serial * reads_max + index`: the index finds the entry, the serial tells it from earlier ones.
pub(crate) struct ReadTable {
    entries: Vec<Option<InFlight>>,
    free: Vec<usize>,
    serial: u64,
    n_demand: usize,
}

impl ReadTable {
    pub fn new(reads_max: usize) -> ReadTable {
        ReadTable {
            entries: vec![None; reads_max],
            free: (0..reads_max).rev().collect(),
            serial: 0,
            n_demand: 0,
        }
    }

    pub fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    pub fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    pub fn n_demand(&self) -> usize {
        self.n_demand
    }

    pub fn n_ahead(&self) -> usize {
        self.len() - self.n_demand
    }

    /// The caller has asked `has_room`.
    pub fn start(&mut self, expert: ExpertNo, slot: SlotId, demand: bool, is_retry: bool) -> ReadId {
        let index = self.free.pop().expect("reads in flight are bounded by reads_max");
        self.serial += 1;
        let id = ReadId(self.serial * self.entries.len() as u64 + index as u64);
        self.entries[index] = Some(InFlight { id, expert, slot, demand, is_retry });
        self.n_demand += usize::from(demand);
        id
    }

    /// # Panics
    /// If `id` is not in flight: reported twice, or never issued.
    pub fn finish(&mut self, id: ReadId) -> InFlight {
        let index = (id.0 % self.entries.len() as u64) as usize;
        let read = self.entries[index]
            .take_if(|read| read.id == id)
            .unwrap_or_else(|| panic!("read {} is not in flight", id.0));
        self.free.push(index);
        self.n_demand -= usize::from(read.demand);
        read
    }

    /// Marks the read of `expert` as waited for or not; returns it. Scans: at most `reads_max` entries.
    pub fn set_demand(&mut self, expert: ExpertNo, demand: bool) -> ReadId {
        let read = self
            .entries
            .iter_mut()
            .flatten()
            .find(|read| read.expert == expert)
            .expect("an expert in state Reading has a read in flight");
        self.n_demand = self.n_demand - usize::from(read.demand) + usize::from(demand);
        read.demand = demand;
        // Whoever waits from now on has not seen it fail.
        read.is_retry = false;
        read.id
    }

    pub fn iter(&self) -> impl Iterator<Item = &InFlight> {
        self.entries.iter().flatten()
    }
}
