//! The expert cache as a pure state machine: slots, residency, policies, read-ahead.
//!
//! It decides which routed experts of a model are kept in memory, and in what order the others are read. It
//! performs no I/O, reads no clock, has no threads and knows no bytes: the engine calls it and carries out
//! the [`Action`]s that it appends. The state after a sequence of calls is a function of the sequence, so the
//! replayer runs the same code on a recorded trace and gets the same counts.
//!
//! # Driving it
//! ```
//! use esker_cache::*;
//! let layer = LayerConfig { n_expert: 8, top_k: 2, class: ClassId(0), expert_bytes: 4096 };
//! let class = ClassConfig { slot_bytes: 4096, n_slots: 6 };
//! let mut cache = ExpertCache::new(CacheConfig::new(vec![layer; 2], vec![class], 4))?;
//! let mut actions = Vec::new();
//!
//! cache.begin_step(Phase::Decode, &mut actions);
//! cache.want(0, &[3, 5], &mut actions); // layer 0 routes to experts 3 and 5
//! cache.read_ahead(1, &[1, 7], &mut actions); // layer 1 probably will to 1 and 7
//! let mut reads = Vec::new();
//! for action in actions.drain(..) {
//!     if let Action::Read { read, .. } = action {
//!         reads.push(read); // submit to the disk
//!     }
//! }
//! assert_eq!(reads.len(), 2); // read-ahead waits until nothing is waited for
//! for read in reads {
//!     cache.read_done(read, true, &mut actions); // in whatever order they complete
//! }
//! assert!(matches!(actions[0], Action::Ready { .. })); // compute with it, then:
//! cache.release(0, 3, &mut actions);
//! cache.release(0, 5, &mut actions);
//! # Ok::<(), ConfigError>(())
//! ```
//!
//! # Terms
//! **hit**, **read-ahead hit**, **miss**: see [`Lookups`]. A slot is **pinned** from the time it is given to a
//! wanted expert until that is released; it is **held** for a predicted one until its layer has come; it is
//! **hot** while a prompt runs and decode will want it.
//!
//! Slots are one pool per size class for all layers, not a share per layer: layers differ in how concentrated
//! their routing is, and experts of different layers compete by how much they are used. How the arena is divided
//! among classes may follow what is measured, see [`RebalanceConfig`].
//!
//! # Invariants
//! - A slot has one owner; a pinned slot, or one that a read is filling, is never given away.
//! - An expert has at most one read in flight; at most `reads_max` are.
//! - Every want ends in one `Ready` or one `Fail` per expert.
//! - An expert is resident, for routing and for hits, when its read has completed; never earlier.
//! - The slots that take memory (live ones, and retired ones that are not given back) never have more bytes than the
//!   arena, nor are they restored to more than a shrink has left of it; no class has fewer than one token needs.
//! - `hits + read_ahead_hits + misses` is the number of lookups.
//! - No allocation after [`ExpertCache::new`], apart from the caller's action list.
//! - What is computed never depends on it. With [`Visibility::Stepwise`], what is resident when a step begins
//!   does not depend on the disk's timing either, as long as no read ahead fails and no other read fails
//!   twice, provided that the calls other than `read_done` and the releases of one want come in an order
//!   that does not, and `read_ahead` comes before the last release of the layer before.
//!
//! `tests/simulation/` drives it from a seed and checks these after every call.
//! Start reading at `cache/mod.rs`.
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate self as esker_cache;

mod action;
mod cache;
mod config;
mod counters;
mod evict_queue;
mod ids;
mod layout;
mod policy;
mod reads;
mod rebalance;
mod residency;
mod score;
mod slots;

#[cfg(test)]
mod canary;
#[cfg(test)]
#[path = "../tests/simulation/mod.rs"]
mod simulation;

pub use action::{Action, Event, FailCause, Priority};
pub use cache::{ExpertCache, Inconsistency, Residency, ResizeError};
pub use config::{
    CacheConfig, ClassConfig, ConfigError, EXPERTS_MAX, LayerConfig, READS_MAX, ReadAheadConfig,
    RebalanceConfig, SLOTS_MAX, Visibility,
};
pub use counters::{Counters, LayerCounters, Lookups, ReadAheadCounters};
pub use ids::{ClassId, ExpertId, Phase, ReadId, SlotId};
pub use layout::SlotPlace;
pub use policy::PolicyConfig;
