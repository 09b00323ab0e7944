//! Counters of a run, under names that stay. Units are in the names.

use esker_cache::{Counters, LayerCounters};
use serde::Serialize;

/// What a store did since it was loaded. All zero where all of the model is in memory, but for the sizes.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Stats {
    /// Lookups of experts that were resident when their layer needed them.
    pub expert_hits: u64,
    /// Lookups of experts that a read issued ahead had brought in time.
    pub expert_read_ahead_hits: u64,
    /// Lookups for which the layer waited.
    pub expert_misses: u64,
    /// Of these counts, those of decode steps.
    pub decode_expert_hits: u64,
    /// See `decode_expert_hits`.
    pub decode_expert_read_ahead_hits: u64,
    /// See `decode_expert_hits`.
    pub decode_expert_misses: u64,
    /// Decode steps.
    pub decode_steps: u64,
    /// Prompt chunks.
    pub prefill_steps: u64,
    /// Reads of experts, repeated ones included.
    pub expert_reads: u64,
    /// Reads that were repeated after an error.
    pub expert_read_retries: u64,
    /// Bytes of experts read.
    pub expert_bytes_read: u64,
    /// Bytes read ahead and evicted without having been used.
    pub expert_wasted_bytes: u64,
    /// Experts that lost their slot.
    pub expert_evictions: u64,
    /// Bytes of embedding and n-gram rows read.
    pub row_bytes_read: u64,
    /// Time that compute stood still for reads.
    pub wait_s: f64,
    /// Most reads of experts in flight at one time.
    pub reads_in_flight_max: u64,
    /// Predicted experts that were wanted, of those predicted.
    pub read_ahead_precision: f64,
    /// Predicted experts that were wanted, of those wanted by layers with a prediction.
    pub read_ahead_recall: f64,
    /// Times that read-ahead turned itself off because it did not pay.
    pub read_ahead_turned_off: u64,
    /// Picks made by cache-aware routing.
    pub route_picks: u64,
    /// Of these, picks that differ from the raw top-k.
    pub route_picks_changed: u64,
    /// Routing probability moved by it, summed over tokens and layers.
    pub route_mass_moved: f64,
    /// Times that the arena was made smaller because the machine ran low on memory.
    pub arena_shrinks: u64,
    /// Times that slots of one size were given up for slots of another that would spare more reads.
    pub arena_moves: u64,
    /// Bytes of the slots that came into use by that.
    pub arena_moved_bytes: u64,
    /// The arena's slots now, by size.
    pub arena_classes: Vec<ArenaClass>,
    /// Memory now (proportional set size).
    pub memory_bytes: u64,
    /// The most that was ever resident.
    pub peak_memory_bytes: u64,
    /// Lookups by layer, decode and prompt together.
    pub layers: Vec<LayerStats>,
}

/// The slots of one size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ArenaClass {
    /// Bytes of one slot.
    pub slot_bytes: u64,
    /// Slots in use.
    pub n_slots: u64,
}

/// Lookups of one layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LayerStats {
    /// Layer.
    pub layer: usize,
    /// As [`Stats::expert_hits`].
    pub expert_hits: u64,
    /// As [`Stats::expert_read_ahead_hits`].
    pub expert_read_ahead_hits: u64,
    /// As [`Stats::expert_misses`].
    pub expert_misses: u64,
}

impl Stats {
    pub(crate) fn count_cache(&mut self, c: &Counters, layers: &[LayerCounters], model_layer: &[usize]) {
        self.decode_expert_hits = c.decode.hits;
        self.decode_expert_read_ahead_hits = c.decode.read_ahead_hits;
        self.decode_expert_misses = c.decode.misses;
        self.expert_hits = c.decode.hits + c.prefill.hits;
        self.expert_read_ahead_hits = c.decode.read_ahead_hits + c.prefill.read_ahead_hits;
        self.expert_misses = c.decode.misses + c.prefill.misses;
        self.decode_steps = c.decode_steps;
        self.prefill_steps = c.prefill_steps;
        self.expert_reads = c.reads;
        self.expert_read_retries = c.retries;
        self.expert_bytes_read = c.bytes_read;
        self.expert_wasted_bytes = c.wasted_bytes;
        self.expert_evictions = c.evictions;
        self.reads_in_flight_max = c.reads_in_flight_max;
        self.arena_moves = c.moves;
        self.arena_moved_bytes = c.moved_bytes;
        let share = |of: u64, all: u64| if all == 0 { 0.0 } else { of as f64 / all as f64 };
        self.read_ahead_precision = share(c.read_ahead.predicted_wanted, c.read_ahead.predicted);
        self.read_ahead_recall = share(c.read_ahead.predicted_wanted, c.read_ahead.predicted_lookups);
        self.read_ahead_turned_off = c.read_ahead.turned_off;
        self.layers = layers
            .iter()
            .zip(model_layer)
            .map(|(l, &layer)| LayerStats {
                layer,
                expert_hits: l.decode.hits + l.prefill.hits,
                expert_read_ahead_hits: l.decode.read_ahead_hits + l.prefill.read_ahead_hits,
                expert_misses: l.decode.misses + l.prefill.misses,
            })
            .collect();
    }
}
