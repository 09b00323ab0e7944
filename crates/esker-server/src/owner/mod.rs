//! The thread that owns the engine, and what others may know of it.
//!
//! An engine is driven by one thread; requests reach it through the [`Queue`] as [`Job`]s, each a sequence to compute,
//! and hear of it by events. The thread computes several sequences at once: see `scheduler`.

mod draw;
mod queue;
mod scheduler;
mod slot;
mod status;
mod thread;

pub use draw::{Draw, DrawFactory};
pub use thread::LoadError;

pub(crate) use draw::sampler;
pub(crate) use queue::{Job, Refusal};
pub(crate) use status::{Health, MapSnapshot};
pub(crate) use thread::{Owner, Shared};
