//! What goes into the cache and what comes out of it.

use crate::ids::{ClassId, ExpertId, Phase, ReadId, SlotId};

/// How urgent a read is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Priority {
    /// A layer waits for it.
    Demand,
    /// Nobody waits for it yet.
    ReadAhead {
        /// Predicted rank of the expert, 0 = most likely.
        rank: u16,
    },
}

/// Why a wanted expert will not come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FailCause {
    /// The read failed, was tried once more, and failed again. `read` is the second attempt, so the engine
    /// can name the file, offset and length that it kept for it.
    ReadFailed {
        /// The last attempt.
        read: ReadId,
    },
    /// [`ExpertCache::abandon`](crate::ExpertCache::abandon) was called while the expert was still awaited.
    Abandoned,
}

/// What the engine has to do. Actions are to be carried out in the order in which they appear.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Start reading `expert` into `slot`; whatever the slot held is gone. Completion is reported with
    /// [`ExpertCache::read_done`](crate::ExpertCache::read_done), in any order.
    Read {
        /// Tag of the read.
        read: ReadId,
        /// What to read.
        expert: ExpertId,
        /// Where to.
        slot: SlotId,
        /// Whether a layer waits for it.
        priority: Priority,
    },
    /// A read that was issued as read-ahead is now waited for; a disk queue with priorities may move it
    /// forward. Nothing else changes.
    Promote {
        /// A read in flight.
        read: ReadId,
    },
    /// The wanted expert is in `slot` and stays there until it is released. Comes once per want.
    Ready {
        /// The wanted expert.
        expert: ExpertId,
        /// Where its weights are.
        slot: SlotId,
    },
    /// The wanted expert will not come; it needs no release. Comes once per want, instead of `Ready`.
    Fail {
        /// The wanted expert.
        expert: ExpertId,
        /// Why.
        cause: FailCause,
    },
    /// The slot is no longer used ([`ExpertCache::shrink`](crate::ExpertCache::shrink), or its bytes go to another
    /// class): its memory is to be given back to the system, and when that is done,
    /// [`ExpertCache::given_back`](crate::ExpertCache::given_back) to be called.
    Retire {
        /// An empty slot.
        slot: SlotId,
    },
    /// A retired slot is in use again ([`ExpertCache::grow`](crate::ExpertCache::grow), or it takes the place of slots of
    /// another class).
    Restore {
        /// An empty slot.
        slot: SlotId,
    },
}

/// A call of the cache as data, for recorders and replayers: [`ExpertCache::apply`](crate::ExpertCache::apply).
/// Each variant is the method of the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// `begin_step`
    BeginStep(Phase),
    /// `want`
    Want {
        /// Layer.
        layer: u16,
        /// Distinct experts, best rank first.
        experts: &'a [u16],
    },
    /// `read_done`
    ReadDone {
        /// The read.
        read: ReadId,
        /// Whether all of its bytes arrived and were right.
        ok: bool,
    },
    /// `release`
    Release {
        /// Layer.
        layer: u16,
        /// Expert.
        expert: u16,
    },
    /// `read_ahead`
    ReadAhead {
        /// Layer.
        layer: u16,
        /// Predicted experts, best first.
        ranked: &'a [u16],
    },
    /// `near_picks`
    NearPicks {
        /// Layer.
        layer: u16,
        /// The router's ranking, best first.
        ranked: &'a [u16],
    },
    /// `prompt_counts`
    PromptCounts {
        /// Layer.
        layer: u16,
        /// Tokens in the chunk.
        n_tokens: u32,
        /// (expert, tokens of the chunk that use it).
        counts: &'a [(u16, u32)],
    },
    /// `set_next_use`
    NextUse {
        /// Layer.
        layer: u16,
        /// Expert.
        expert: u16,
        /// Any number that grows with time; `u64::MAX` for never.
        when: u64,
    },
    /// `shrink`
    Shrink {
        /// Class.
        class: ClassId,
        /// Slots to keep.
        n_slots: u32,
    },
    /// `grow`
    Grow {
        /// Class.
        class: ClassId,
        /// Slots to have.
        n_slots: u32,
    },
    /// `given_back`
    GivenBack {
        /// A slot that was retired.
        slot: SlotId,
    },
    /// `abandon`
    Abandon,
}
