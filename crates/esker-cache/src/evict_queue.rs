//! Evictable experts in order of eviction, per class and band: indexed 4-ary heaps.
//!
//! Only experts that may lose their slot are in here (resident, not pinned), so a policy cannot pick one
//! that is being read or computed with. Keys are fixed between uses (see `score.rs` for why that is possible
//! even when scores decay), so an expert costs one insertion when it is released and one removal when it
//! is wanted: O(log n), no allocation.

use crate::ids::{ExpertNo, NONE};

/// Where an expert stands in the order of eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub band: Band,
    /// Lowest first. Policies make keys unique, so that the order does not depend on history.
    pub key: u128,
}

/// Bands of a class. Policies use the first two; the cache takes from the others only when it must.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Band {
    First = 0,
    Second = 1,
    /// Predicted for a layer that is still to come in this step.
    Held = 2,
    /// Kept for decode while a prompt runs.
    Hot = 3,
}

const N_BANDS: usize = 4;
/// Children of a node: shallower than a binary heap, and a node's children share two or three cache lines.
const ARITY: usize = 4;
/// `at` holds the band in its upper bits and the index in the heap below.
const BAND_SHIFT: u32 = 28;

const _: () = assert!(crate::config::SLOTS_MAX < 1 << BAND_SHIFT, "an index must fit below the band");

#[derive(Clone, Copy)]
struct Entry {
    key: u128,
    expert: ExpertNo,
}

pub(crate) struct EvictQueue {
    /// `[class][band]`
    heaps: Vec<Vec<Entry>>,
    /// Of each expert: where it is, or `NONE`.
    at: Vec<u32>,
}

impl EvictQueue {
    /// `n_slots` of each class: no heap outgrows it.
    pub fn new(n_experts: usize, n_slots: &[u32]) -> EvictQueue {
        let heaps =
            n_slots.iter().flat_map(|&n| (0..N_BANDS).map(move |_| Vec::with_capacity(n as usize))).collect();
        EvictQueue { heaps, at: vec![NONE; n_experts] }
    }

    pub fn contains(&self, expert: ExpertNo) -> bool {
        self.at[expert as usize] != NONE
    }

    pub fn band(&self, expert: ExpertNo) -> Option<Band> {
        let at = self.at[expert as usize];
        (at != NONE).then_some(match at >> BAND_SHIFT {
            0 => Band::First,
            1 => Band::Second,
            2 => Band::Held,
            _ => Band::Hot,
        })
    }

    pub fn len(&self, class: usize, band: Band) -> usize {
        self.heaps[class * N_BANDS + band as usize].len()
    }

    /// The expert to evict first.
    pub fn first(&self, class: usize, band: Band) -> Option<ExpertNo> {
        self.heaps[class * N_BANDS + band as usize].first().map(|entry| entry.expert)
    }

    /// The same, with its key.
    pub fn first_with_key(&self, class: usize, band: Band) -> Option<(ExpertNo, u128)> {
        self.heaps[class * N_BANDS + band as usize].first().map(|entry| (entry.expert, entry.key))
    }

    pub fn insert(&mut self, class: usize, expert: ExpertNo, place: Place) {
        assert!(!self.contains(expert), "expert {expert} is queued already");
        let heap = &mut self.heaps[class * N_BANDS + place.band as usize];
        heap.push(Entry { key: place.key, expert });
        let last = heap.len() - 1;
        self.rise(class, place.band, last);
    }

    pub fn remove(&mut self, class: usize, expert: ExpertNo) {
        let band = self.band(expert).unwrap_or_else(|| panic!("expert {expert} is not queued"));
        let index = (self.at[expert as usize] & ((1 << BAND_SHIFT) - 1)) as usize;
        self.at[expert as usize] = NONE;
        let heap = &mut self.heaps[class * N_BANDS + band as usize];
        let removed = heap.swap_remove(index);
        debug_assert_eq!(removed.expert, expert);
        if index < heap.len() {
            // The entry that took its place may belong further up or further down.
            if self.rise(class, band, index) == index {
                self.sink(class, band, index);
            }
        }
    }

    pub fn replace(&mut self, class: usize, expert: ExpertNo, place: Place) {
        self.remove(class, expert);
        self.insert(class, expert, place);
    }

    fn rise(&mut self, class: usize, band: Band, mut index: usize) -> usize {
        let heap = &mut self.heaps[class * N_BANDS + band as usize];
        let tag = (band as u32) << BAND_SHIFT;
        let entry = heap[index];
        while index > 0 {
            let parent = (index - 1) / ARITY;
            if heap[parent].key <= entry.key {
                break;
            }
            heap[index] = heap[parent];
            self.at[heap[index].expert as usize] = tag | index as u32;
            index = parent;
        }
        heap[index] = entry;
        self.at[entry.expert as usize] = tag | index as u32;
        index
    }

    fn sink(&mut self, class: usize, band: Band, mut index: usize) {
        let heap = &mut self.heaps[class * N_BANDS + band as usize];
        let tag = (band as u32) << BAND_SHIFT;
        let entry = heap[index];
        loop {
            let children = index * ARITY + 1..(index * ARITY + 1 + ARITY).min(heap.len());
            let Some(least) = children.min_by_key(|&child| heap[child].key) else { break };
            if entry.key <= heap[least].key {
                break;
            }
            heap[index] = heap[least];
            self.at[heap[index].expert as usize] = tag | index as u32;
            index = least;
        }
        heap[index] = entry;
        self.at[entry.expert as usize] = tag | index as u32;
    }

    /// Number of queued experts of `class`, in all bands.
    pub fn n_queued(&self, class: usize) -> usize {
        self.heaps[class * N_BANDS..][..N_BANDS].iter().map(Vec::len).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Op {
        Insert { expert: u32, key: u64, second: bool },
        Remove { expert: u32 },
        Pop { second: bool },
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            (0..40u32, any::<u64>(), any::<bool>()).prop_map(|(expert, key, second)| Op::Insert {
                expert,
                key,
                second
            }),
            (0..40u32).prop_map(|expert| Op::Remove { expert }),
            any::<bool>().prop_map(|second| Op::Pop { second }),
        ]
    }

    proptest! {
        /// Against an unordered list that is scanned.
        #[test]
        fn behaves_as_a_sorted_list(ops in prop::collection::vec(op(), 0..400)) {
            let mut queue = EvictQueue::new(40, &[40]);
            let mut list: Vec<(Band, u128, u32)> = Vec::new();
            for op in ops {
                match op {
                    Op::Insert { expert, key, second } => {
                        let band = if second { Band::Second } else { Band::First };
                        let key = u128::from(key) << 32 | u128::from(expert);
                        if queue.contains(expert) {
                            queue.replace(0, expert, Place { band, key });
                            list.retain(|e| e.2 != expert);
                        } else {
                            queue.insert(0, expert, Place { band, key });
                        }
                        list.push((band, key, expert));
                    }
                    Op::Remove { expert } => {
                        if queue.contains(expert) {
                            queue.remove(0, expert);
                        }
                        list.retain(|e| e.2 != expert);
                    }
                    Op::Pop { second } => {
                        let band = if second { Band::Second } else { Band::First };
                        let expected = list.iter().filter(|e| e.0 == band).min_by_key(|e| e.1).map(|e| e.2);
                        prop_assert_eq!(queue.first(0, band), expected);
                        if let Some(expert) = expected {
                            queue.remove(0, expert);
                            list.retain(|e| e.2 != expert);
                        }
                    }
                }
                prop_assert_eq!(queue.n_queued(0), list.len());
                for expert in 0..40 {
                    let expected = list.iter().find(|e| e.2 == expert).map(|e| e.0);
                    prop_assert_eq!(queue.band(expert), expected);
                }
            }
        }
    }
}
