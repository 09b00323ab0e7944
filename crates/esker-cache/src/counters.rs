//! What the cache counts. Time is not among it: the engine owns the clock.

/// Lookups by outcome; every wanted expert is exactly one of the three.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lookups {
    /// The expert was resident when the layer needed it.
    pub hits: u64,
    /// It was not resident when the step began, and a read issued ahead had completed by the time the layer
    /// needed it.
    pub read_ahead_hits: u64,
    /// The layer had to wait: for a slot, for a read, or for the rest of a read that was already under way.
    pub misses: u64,
}

impl Lookups {
    /// All lookups.
    pub fn total(&self) -> u64 {
        self.hits + self.read_ahead_hits + self.misses
    }

    /// (hits + read-ahead hits) / lookups; 0 when there were none.
    pub fn combined_hit_rate(&self) -> f64 {
        let total = self.total();
        if total == 0 { 0.0 } else { (self.hits + self.read_ahead_hits) as f64 / total as f64 }
    }
}

/// Read-ahead: how good the predictions are and what became of the reads.
///
/// `issued = on_time + late + used_later + wasted + failed` + those in flight or resident and not used yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadAheadCounters {
    /// Predicted experts that were taken into account (the first `per_layer_max` ranks).
    pub predicted: u64,
    /// Those among them that the layer then wanted in the same step. Over `predicted`: precision.
    pub predicted_wanted: u64,
    /// Wanted experts of the layers that had a prediction. Under `predicted_wanted`: recall.
    pub predicted_lookups: u64,
    /// Predicted experts that were missing: what read-ahead reads, or would read while it is off.
    pub candidates: u64,
    /// Candidates that the layer then wanted in the same step. Over `candidates`: what the on/off decision sees.
    pub candidates_wanted: u64,
    /// Reads issued ahead.
    pub issued: u64,
    /// First wanted in the step in which the read completed, after it completed (= read-ahead hits).
    pub on_time: u64,
    /// Wanted while the read was in flight: a miss, but a shorter one.
    pub late: u64,
    /// First wanted in a later step (or read again after it was lost in this one): a hit.
    pub used_later: u64,
    /// Evicted without having been wanted.
    pub wasted: u64,
    /// The read failed and nobody waited for it.
    pub failed: u64,
    /// Candidates given up before a read was issued, because their layer came first.
    pub dropped: u64,
    /// Times that read-ahead turned itself off because too few of its candidates were wanted.
    pub turned_off: u64,
    /// Times that it turned itself on again.
    pub turned_on: u64,
}

/// Everything counted since the cache was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Lookups of decode steps.
    pub decode: Lookups,
    /// Lookups of prefill steps.
    pub prefill: Lookups,
    /// Decode steps begun.
    pub decode_steps: u64,
    /// Prefill steps begun.
    pub prefill_steps: u64,
    /// Reads issued, retries and read-ahead included.
    pub reads: u64,
    /// Reads issued because a first attempt failed.
    pub retries: u64,
    /// Reads reported as failed.
    pub reads_failed: u64,
    /// Bytes of completed reads.
    pub bytes_read: u64,
    /// Bytes of completed reads that were evicted without having been wanted.
    pub wasted_bytes: u64,
    /// Experts that lost their slot to another one or to a shrinking arena.
    pub evictions: u64,
    /// Evictions during a prompt of slots that were marked for decode, because nothing else was left.
    pub hot_evictions: u64,
    /// Evictions of slots held for a predicted expert, because nothing else was left.
    pub held_evictions: u64,
    /// Wanted experts that had to wait for a slot.
    pub slot_waits: u64,
    /// Wants that ended in `Fail` because of the disk.
    pub wants_failed: u64,
    /// Wants that ended in `Fail` because they were abandoned.
    pub wants_abandoned: u64,
    /// Most reads that were in flight at one time.
    pub reads_in_flight_max: u64,
    /// Times that bytes of the arena were taken from one class and given to another.
    pub moves: u64,
    /// Bytes of the slots that classes were given by that.
    pub moved_bytes: u64,
    /// Read-ahead.
    pub read_ahead: ReadAheadCounters,
}

/// Lookups of one layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LayerCounters {
    /// In decode steps.
    pub decode: Lookups,
    /// In prefill steps.
    pub prefill: Lookups,
}
