//! The residency map: per layer, one bit per expert, "the read into its slot has completed".
//!
//! Two copies where routing looks at it: the live one, and the one that routing sees, which is replaced as
//! a whole at the start of a step. A completion in the middle of a token therefore cannot change a decision
//! that is being made, and two runs of a prompt see the same bits.

use crate::config::Visibility;
use crate::layout::Layout;

pub(crate) struct ResidencyMap {
    /// First word of each layer.
    first_word: Vec<usize>,
    live: Vec<u64>,
    /// `None` when routing does not look.
    seen: Option<Vec<u64>>,
}

impl ResidencyMap {
    pub fn new(layout: &Layout, visibility: Visibility) -> ResidencyMap {
        let mut first_word = Vec::with_capacity(layout.layers.len());
        let mut n_words = 0;
        for l in &layout.layers {
            first_word.push(n_words);
            n_words += (l.n_expert as usize).div_ceil(64);
        }
        let seen = (visibility == Visibility::Stepwise).then(|| vec![0; n_words]);
        ResidencyMap { first_word, live: vec![0; n_words], seen }
    }

    pub fn set(&mut self, layer: u16, index: u16, resident: bool) {
        let word = &mut self.live[self.first_word[usize::from(layer)] + usize::from(index) / 64];
        let bit = 1 << (index % 64);
        if resident { *word |= bit } else { *word &= !bit }
    }

    pub fn is_resident(&self, layer: u16, index: u16) -> bool {
        self.live[self.first_word[usize::from(layer)] + usize::from(index) / 64] >> (index % 64) & 1 == 1
    }

    /// Lets routing see the present state.
    pub fn advance(&mut self) {
        if let Some(seen) = &mut self.seen {
            seen.copy_from_slice(&self.live);
        }
    }

    /// What routing may see of `layer`; `mask.len()` is its expert count.
    pub fn read(&self, layer: u16, mask: &mut [bool]) {
        let words = &self.seen.as_ref().unwrap_or(&self.live)[self.first_word[usize::from(layer)]..];
        for (chunk, &word) in mask.chunks_mut(64).zip(words) {
            for (bit, out) in chunk.iter_mut().enumerate() {
                *out = word >> bit & 1 == 1;
            }
        }
    }
}
