//! What a prompt may not evict, and what it tells the policies.
//!
//! A prompt chunk uses nearly every expert of every layer once, in order: left alone it would replace all of
//! what decode has collected, for nothing, since no arena that is worth streaming into holds a whole chunk's
//! experts until the next chunk. So whenever a prompt follows decode, the slots that decode used most recently
//! are marked hot, all but `prompt_slots` of each class, and the prompt works in the others as in a ring.
//! The marks go when decode resumes, and are set anew at every prompt of a conversation. A second prompt
//! without decode in between finds the marks as they are: there is no newer use that could change them.

use super::ExpertCache;
use crate::ids::{NONE, Phase};
use crate::policy::Policy;

impl ExpertCache {
    pub(super) fn mark_hot(&mut self) {
        for class in 0..self.slots.pools.len() {
            let pool = &self.slots.pools[class];
            let n_hot = pool.n_live.saturating_sub(self.ring(class)) as usize;
            self.ranking.clear();
            for slot in pool.first..pool.end {
                let owner = self.slots.slots[slot as usize].owner;
                if owner != NONE && self.experts[owner as usize].decode_stamp > 0 {
                    self.ranking.push((self.experts[owner as usize].decode_stamp, slot));
                }
            }
            if n_hot == 0 {
                continue;
            }
            if self.ranking.len() > n_hot {
                self.ranking.select_nth_unstable_by(n_hot - 1, |a, b| b.cmp(a));
                self.ranking.truncate(n_hot);
            }
            for i in 0..self.ranking.len() {
                let slot = &mut self.slots.slots[self.ranking[i].1 as usize];
                slot.is_hot = true;
                let owner = slot.owner;
                self.update_place(owner);
            }
        }
    }

    pub(super) fn unmark_hot(&mut self) {
        for i in 0..self.slots.slots.len() {
            let slot = &mut self.slots.slots[i];
            if slot.is_hot {
                slot.is_hot = false;
                let owner = slot.owner;
                self.update_place(owner);
            }
        }
    }

    /// How the router ranked the experts of a decode step's layer by its raw logits, best first, from rank 0,
    /// as deep as the engine cares to say; those wanted by this layer in this step are passed over. Comes
    /// after the layer's `want`. Only `NearPickEma` and `InverseRouterEma` listen. Ignored in a prompt.
    ///
    /// # Panics
    /// If there is no such layer or expert.
    pub fn near_picks(&mut self, layer: u16, ranked: &[u16]) {
        if self.phase != Some(Phase::Decode) {
            return;
        }
        for (rank, &index) in ranked.iter().enumerate() {
            let e = self.layout.expert(layer, index);
            let wanted = self.experts[e as usize].last_want > self.step_first_want;
            if !wanted && self.policy.near(e, rank as u32) {
                self.update_place(e);
            }
        }
    }

    /// How many of a prompt chunk's `n_tokens` tokens use which expert. Comes before the layer's `want`, so
    /// that the ring keeps what the prompt uses most. The policies that count uses credit it; the others do
    /// not listen.
    ///
    /// # Panics
    /// If there is no such layer or expert, or a count is greater than `n_tokens`.
    pub fn prompt_counts(&mut self, layer: u16, n_tokens: u32, counts: &[(u16, u32)]) {
        for &(index, count) in counts {
            assert!(count <= n_tokens, "{count} of {n_tokens} tokens use expert {index}");
            let e = self.layout.expert(layer, index);
            if count > 0 && self.policy.prompt(e, count, n_tokens) {
                self.update_place(e);
            }
        }
    }

    /// Tells the clairvoyant policy when an expert will be wanted next (any number that grows with time;
    /// `u64::MAX`: never). The others do not listen.
    ///
    /// # Panics
    /// If there is no such layer or expert.
    pub fn set_next_use(&mut self, layer: u16, expert: u16, when: u64) {
        let e = self.layout.expert(layer, expert);
        if self.policy.next_use(e, when) {
            self.update_place(e);
        }
    }
}
