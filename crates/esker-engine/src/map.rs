//! The expert map: what of the model is in memory and what has just been used, for people to look at.

use crate::engine::Engine;
use crate::load::Store;
use esker_models::ExpertStore;

/// Layers times experts at one moment, and counts since the model was loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExpertMap {
    /// Layers.
    pub n_layer: usize,
    /// Experts of the layer that has most; 0 in models without.
    pub n_expert: usize,
    /// Experts of each layer, at most `n_expert`; 0 in layers without.
    pub experts: Vec<u32>,
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

/// Reads that are remembered between two looks at the map.
pub(crate) const JUST_READ_MAX: usize = 4096;

impl Engine {
    /// Fills `map`, whose memory is reused.
    pub fn expert_map(&mut self, map: &mut ExpertMap) {
        let layers = &self.store.as_dyn().layout().layers;
        let n_layer = layers.len();
        let n_expert = layers.iter().flatten().map(|l| l.n_expert).max().unwrap_or(0);
        let words = n_expert.div_ceil(64);
        map.n_layer = n_layer;
        map.n_expert = n_expert;
        map.experts.clear();
        map.experts.extend(layers.iter().map(|l| l.as_ref().map_or(0, |l| l.n_expert as u32)));
        map.just_read.clear();
        map.resident.clear();
        map.resident.resize(n_layer * words, 0);
        map.hot.clear();
        map.hot.resize(n_layer * n_expert, 0);
        for counts in [&mut map.hits, &mut map.read_ahead_hits, &mut map.misses] {
            counts.clear();
            counts.resize(n_layer, 0);
        }
        let usage = self.scratch.usage();
        for il in 0..n_layer {
            for e in 0..n_expert {
                map.hot[il * n_expert + e] = usage.hot(il, e);
            }
        }
        map.all_resident = !matches!(self.store, Store::Cached(_));
        match &mut self.store {
            Store::Cached(store) => {
                store.resident(|il, e| map.resident[il * words + e / 64] |= 1 << (e % 64));
                store.take_just_read(&mut map.just_read);
                for (il, lookups) in store.lookups() {
                    map.hits[il] = lookups.hits;
                    map.read_ahead_hits[il] = lookups.read_ahead_hits;
                    map.misses[il] = lookups.misses;
                }
            }
            Store::Resident(store) => {
                for (il, layer) in store.layout().layers.iter().enumerate() {
                    let Some(layer) = layer else { continue };
                    (0..layer.n_expert).for_each(|e| map.resident[il * words + e / 64] |= 1 << (e % 64));
                    map.hits[il] = usage.lookups(il);
                }
            }
            Store::Dense(_) => {}
        }
    }
}
