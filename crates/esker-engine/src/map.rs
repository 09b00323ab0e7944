//! The expert map: what of the model is in memory and what has just been used, for people to look at.

use crate::engine::Engine;

/// Layers times experts at one moment, and counts since the model was loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExpertMap {
    /// Layers.
    pub n_layer: usize,
    /// Experts of the layer that has most; 0 in models without.
    pub n_expert: usize,
    /// All experts are in memory always.
    pub all_resident: bool,
    /// Which experts are in memory: bit `e % 64` of `[n_layer, n_expert.div_ceil(64)]`.
    pub resident: Vec<u64>,
    /// How much each expert was used of late, `[n_layer, n_expert]`: 0 is never, 255 in every pass.
    pub hot: Vec<u8>,
    /// (layer, expert) read from the disk since the last call, at most 4096 of them.
    pub just_read: Vec<(u16, u16)>,
    /// By layer: lookups of experts that were there.
    pub hits: Vec<u64>,
    /// By layer: lookups of experts that a read issued ahead had brought in time.
    pub read_ahead_hits: Vec<u64>,
    /// By layer: lookups that had to wait.
    pub misses: Vec<u64>,
}

impl Engine {
    /// Fills `map`, whose memory is reused.
    pub fn expert_map(&mut self, map: &mut ExpertMap) {
        map.n_layer = self.n_layer();
        map.just_read.clear();
    }
}
