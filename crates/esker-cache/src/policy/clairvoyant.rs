//! Belady's rule: the expert whose next use is farthest away goes. No policy that reads on demand misses less,
//! so the replayer prints it beside the others as the bound.

use super::Policy;
use crate::evict_queue::{Band, Place};
use crate::ids::ExpertNo;

pub(crate) struct Clairvoyant {
    /// Of each expert; `u64::MAX`: never, or not told.
    next_use: Vec<u64>,
}

impl Clairvoyant {
    pub fn new(n_experts: usize) -> Clairvoyant {
        Clairvoyant { next_use: vec![u64::MAX; n_experts] }
    }
}

impl Policy for Clairvoyant {
    fn next_use(&mut self, expert: ExpertNo, when: u64) -> bool {
        let next_use = &mut self.next_use[expert as usize];
        std::mem::replace(next_use, when) != when
    }

    fn place(&self, expert: ExpertNo, stamp: u64) -> Place {
        let sooner = u64::MAX - self.next_use[expert as usize];
        Place { band: Band::First, key: u128::from(sooner) << 64 | u128::from(stamp) }
    }
}
