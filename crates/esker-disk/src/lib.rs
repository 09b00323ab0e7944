//! Reads of weight files into caller's memory: many at a time, past the page cache, into buffers that never move.
//!
//! What is here: an [`Arena`] of page-aligned memory cut into [`Buffer`]s; the trait [`Disk`], which takes a
//! [`Read`] (a buffer and up to four ranges of files) and gives back a [`Completion`]; its implementations on
//! io_uring and on threads, chosen by [`open_best`], and [`sim`], a simulated disk with faults from a seed. Beside
//! them what a memory plan needs to know of the machine: [`memory`], [`page_cache`], and [`probe`] for the
//! queue depth that a device is best at. [`MappedFile`] serves models that fit into memory as a whole.
//!
//! What is not: file formats, what an expert is, which one is worth keeping. Offsets and lengths come from
//! callers, and the crate knows nothing of theirs.
//!
//! Start reading at [`Disk`], then `queue.rs` (what goes to the device next), then `uring.rs`.
//!
//! Unix only: positioned reads and page-aligned mappings are what everything stands on. io_uring, direct I/O
//! by `O_DIRECT` and the facts from `/proc` exist on Linux; macOS has `F_NOCACHE`.
#![deny(unsafe_code)]
#![cfg_attr(test, allow(clippy::result_large_err, reason = "tests hand `Full` on"))]

// Unsafe code is confined to the modules that talk to the kernel about memory; each block names its reason.
#[allow(unsafe_code)]
mod arena;
mod disk;
mod error;
mod file;
#[allow(unsafe_code)]
mod mapped;
pub mod memory;
#[allow(unsafe_code)]
pub mod page_cache;
#[allow(unsafe_code)]
mod pool;
#[allow(unsafe_code)]
mod positioned;
pub mod probe;
#[allow(unsafe_code)]
mod queue;
mod read;
mod rng;
pub mod sim;
mod span;
#[allow(unsafe_code)]
mod sys;
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
mod uring;

pub use arena::{Arena, ArenaError, BUFFER_ALIGN, Buffer, ReleaseError};
pub use disk::{Backend, Disk, DiskOptions, READS_MAX, STALL_LIMIT, WORKERS_MAX, open_best};
pub use error::{FileChange, OpenError, ReadError, RegisterError, StartError, WaitError};
pub use file::FileIdentity;
pub use mapped::{MapError, MappedFile};
pub use pool::PoolDisk;
pub use positioned::BOUNCE_BYTES;
pub use read::{
    Check, Completion, FileId, Full, Mismatch, Priority, Read, ReadId, ReadStats, SEGMENTS_MAX, Segment,
    SmallSegments, Verify,
};
pub use span::{Span, aligned_span};
#[cfg(target_os = "linux")]
pub use uring::UringDisk;
