//! What is asked of a disk and what comes back: plain data, the same for every implementation.

use std::fmt::Debug;
use std::ops::Deref;
use std::sync::Arc;

use crate::{Buffer, ReadError};

/// Names a read; chosen by the caller, returned unchanged in its [`Completion`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ReadId(pub u64);

/// An open file of one disk. Not valid for another disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId(pub(crate) u32);

impl FileId {
    /// Position in the order of opening, from 0.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Which of the reads that wait for the device goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Priority {
    /// Somebody waits for it.
    Demand,
    /// Issued before it is asked for; goes when no demand read waits. See [`crate::Disk::promote`].
    ReadAhead,
}

/// A wanted range of a file and where it goes.
///
/// What is transferred is the aligned superset `aligned_span(offset, len, disk.alignment(file))`; it starts at
/// `into` in the buffer, so that the wanted bytes are at `buffer[into + span.skip..][..len]`. Bytes of the span
/// before and after them are those of the file, except that what lies beyond the end of the file is left as
/// it was in the buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// The file.
    pub file: FileId,
    /// First wanted byte in the file; any alignment.
    pub offset: u64,
    /// Wanted bytes; at least 1.
    pub len: usize,
    /// Where the span starts in the buffer; a multiple of the file's alignment.
    pub into: usize,
}

/// Most segments that one read can have.
pub const SEGMENTS_MAX: usize = 4;

/// Up to [`SEGMENTS_MAX`] segments without an allocation.
#[derive(Debug, Clone, Copy)]
pub struct SmallSegments {
    items: [Segment; SEGMENTS_MAX],
    count: usize,
}

impl SmallSegments {
    /// No segments yet.
    pub fn new() -> SmallSegments {
        let unused = Segment { file: FileId(0), offset: 0, len: 0, into: 0 };
        SmallSegments { items: [unused; SEGMENTS_MAX], count: 0 }
    }

    /// Appends a segment.
    /// # Panics
    /// If there are [`SEGMENTS_MAX`] already.
    pub fn push(&mut self, segment: Segment) {
        assert!(self.count < SEGMENTS_MAX, "a read has at most {SEGMENTS_MAX} segments");
        self.items[self.count] = segment;
        self.count += 1;
    }
}

impl Default for SmallSegments {
    fn default() -> SmallSegments {
        SmallSegments::new()
    }
}

impl From<Segment> for SmallSegments {
    fn from(segment: Segment) -> SmallSegments {
        SmallSegments::from_iter([segment])
    }
}

/// # Panics
/// If there are more than [`SEGMENTS_MAX`].
impl FromIterator<Segment> for SmallSegments {
    fn from_iter<I: IntoIterator<Item = Segment>>(segments: I) -> SmallSegments {
        let mut all = SmallSegments::new();
        segments.into_iter().for_each(|segment| all.push(segment));
        all
    }
}

impl Deref for SmallSegments {
    type Target = [Segment];

    fn deref(&self) -> &[Segment] {
        &self.items[..self.count]
    }
}

/// One read: some ranges of files into one buffer, completed as a whole.
#[derive(Debug)]
pub struct Read {
    /// The caller's name for it.
    pub id: ReadId,
    /// Whether somebody waits for it.
    pub priority: Priority,
    /// Where the bytes go; comes back in the [`Completion`].
    pub buffer: Buffer,
    /// What to read: one to [`SEGMENTS_MAX`] ranges whose spans do not overlap in the buffer.
    pub segments: SmallSegments,
}

/// Knows what the bytes of a read should be.
///
/// Whatever thread of the disk finishes a read calls it, several at a time, and never one that has handed work over and
/// goes on: what takes time belongs in here. It should not allocate; if it panics, its read fails.
pub trait Verify: Debug + Send + Sync {
    /// Looks at the buffer of a read whose bytes have all arrived. `key` is that of the [`Check`].
    /// # Errors
    /// If they are not what they should be.
    fn verify(&self, key: u64, buffer: &[u8]) -> Result<(), Mismatch>;
}

/// Bytes that are not what they should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mismatch {
    /// Checksum of what was read.
    pub found: u64,
    /// Checksum of what should have been.
    pub expected: u64,
}

/// What is to be done with the bytes of a read before it counts as good: see [`crate::Disk::submit_checked`].
#[derive(Debug, Clone)]
pub struct Check {
    /// Looks at the bytes. Shared, so that submitting a read allocates nothing.
    pub verifier: Arc<dyn Verify>,
    /// Tells it which read it is.
    pub key: u64,
}

/// The outcome of one read.
#[derive(Debug)]
pub struct Completion {
    /// The caller's name for it.
    pub id: ReadId,
    /// The buffer that the read was given. After an error its contents are unspecified bytes.
    pub buffer: Buffer,
    /// What was read, or why it was not. An error covers all segments.
    pub result: Result<ReadStats, ReadError>,
}

/// What one successful read moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReadStats {
    /// Bytes transferred, alignment included.
    pub bytes: u64,
    /// Bytes that were asked for.
    pub wanted_bytes: u64,
}

/// The disk has `reads_max` reads in flight; here is the read back. Try again after a completion.
#[derive(Debug)]
pub struct Full(pub Read);
