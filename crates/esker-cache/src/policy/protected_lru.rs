//! LRU in two classes. An expert is on probation until decode uses it again while it has its slot; from then
//! on it is protected, and ages more slowly: the oldest on probation goes, unless the oldest of the protected
//! is `slowdown` times as old. A prompt that touches everything once, or a wrong read-ahead, therefore cannot
//! push out what decode keeps coming back to, and yet no protection lasts for ever.
//!
//! Two simpler forms were tried and are worse. The textbook's segmented LRU gives the protected class a fixed
//! share. It freezes when the rest holds less than one token's experts: nothing new survives until its
//! second use, so nothing is promoted, so nothing protected ever leaves; on the trace of
//! `examples/policies.rs` with 600 slots and a share of 80 % it hits 10 %, plain LRU 44 %. A head start of a
//! fixed number of steps suits one size of cache only (32 steps: 14 % with 600 slots).

use super::{Policy, Use};
use crate::evict_queue::{Band, EvictQueue, Place};
use crate::ids::{ExpertNo, Phase};

pub(crate) struct ProtectedLru {
    is_protected: Vec<bool>,
    slowdown: u64,
    now: u64,
}

impl ProtectedLru {
    pub fn new(n_experts: usize, slowdown: u8) -> ProtectedLru {
        ProtectedLru { is_protected: vec![false; n_experts], slowdown: slowdown.into(), now: 0 }
    }
}

impl Policy for ProtectedLru {
    fn wanted(&mut self, u: Use) {
        self.now = u.stamp;
        self.is_protected[u.expert as usize] |= u.has_slot && u.phase == Phase::Decode;
    }

    fn evicted(&mut self, expert: ExpertNo, _class: usize) {
        self.is_protected[expert as usize] = false;
    }

    fn place(&self, expert: ExpertNo, stamp: u64) -> Place {
        let band = if self.is_protected[expert as usize] { Band::Second } else { Band::First };
        Place { band, key: u128::from(stamp) }
    }

    fn victim(&mut self, class: usize, queue: &mut EvictQueue) -> Option<ExpertNo> {
        let probation = queue.first_with_key(class, Band::First);
        let protected = queue.first_with_key(class, Band::Second);
        let (Some(probation), Some(protected)) = (probation, protected) else {
            return probation.or(protected).map(|(expert, _)| expert);
        };
        // Saturating: before the first lookup stamps are only the experts' numbers.
        let age = |key: u128| self.now.saturating_sub(key as u64);
        let is_stale = age(protected.1) > self.slowdown.saturating_mul(age(probation.1));
        Some(if is_stale { protected.0 } else { probation.0 })
    }
}
