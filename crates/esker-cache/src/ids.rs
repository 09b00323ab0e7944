//! Names of things: experts, slots, reads, classes, phases.

/// One routed expert: the gate, up and down matrices number `index` of layer `layer`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ExpertId {
    /// Index into [`CacheConfig::layers`](crate::CacheConfig::layers): layers that have routed experts,
    /// counted from 0.
    pub layer: u16,
    /// Index of the expert within its layer, below that layer's `n_expert`.
    pub index: u16,
}

/// A fixed place in the arena that holds one expert. Slots are numbered from 0 through all classes: class 0
/// first, then class 1, and so on; see [`ExpertCache::slot_place`](crate::ExpertCache::slot_place).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SlotId(pub u32);

/// One read handed to the disk. Opaque; never used twice by the same cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ReadId(pub(crate) u64);

impl ReadId {
    /// The number, for use as a tag of an I/O request.
    pub fn get(self) -> u64 {
        self.0
    }

    /// The inverse of [`ReadId::get`]. The cache panics on a number that it has not given out.
    pub fn from_tag(tag: u64) -> ReadId {
        ReadId(tag)
    }
}

/// A size class of slots: index into [`CacheConfig::classes`](crate::CacheConfig::classes).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClassId(pub u8);

/// What a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// One chunk of known tokens; a layer may want more experts than there are slots.
    Prefill,
    /// One new token (of each session that shares the step).
    Decode,
}

/// Internal number of an expert: all experts of layer 0, then of layer 1, and so on.
pub(crate) type ExpertNo = u32;

/// "No slot", "no expert".
pub(crate) const NONE: u32 = u32::MAX;
