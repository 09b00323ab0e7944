//! One error per operation of a disk.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::ArenaError;

/// Why a disk could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An option is outside its range.
    #[error("disk option `{field}` is {value}, expected {min} to {max}")]
    OutOfRange {
        /// Name of the option.
        field: &'static str,
        /// What was given.
        value: usize,
        /// Smallest value.
        min: usize,
        /// Largest value.
        max: usize,
    },
    /// io_uring was asked for and is not available. See io_uring_setup(2).
    #[error("io_uring is not available: {what}")]
    Uring {
        /// The step that failed.
        what: &'static str,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// A worker thread could not be started.
    #[error("cannot start a read worker")]
    Worker {
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// No memory for the disk's own buffer.
    #[error("no memory for the disk's own buffer")]
    Memory {
        /// The system's reason.
        #[source]
        source: ArenaError,
    },
}

/// Why a file could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The system refused.
    #[error("cannot open `{}`", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// The process or the system has no file descriptor left.
    #[error("cannot open `{}`: all file descriptors are in use (see `ulimit -n`)", path.display())]
    NoDescriptors {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// A directory, device, socket or pipe.
    #[error("`{}` is not a regular file", path.display())]
    NotAFile {
        /// What was given.
        path: PathBuf,
    },
}

/// Why a read failed. Carries everything a message needs; no field allocates when the error is made.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The system reported an error.
    #[error("cannot read {len} bytes at offset {offset} of `{}`", file.display())]
    Io {
        /// The file.
        file: Arc<Path>,
        /// First wanted byte.
        offset: u64,
        /// Wanted bytes.
        len: usize,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// The file has fewer bytes than were asked for, and has not changed since it was opened.
    #[error("`{}` has only {got} of the {len} bytes wanted at offset {offset}", file.display())]
    Short {
        /// The file.
        file: Arc<Path>,
        /// First wanted byte.
        offset: u64,
        /// Wanted bytes.
        len: usize,
        /// Wanted bytes that exist.
        got: usize,
    },
    /// The file is not what it was when it was opened; nothing read from it can be trusted.
    #[error("`{}` changed while in use: {what}", file.display())]
    Changed {
        /// The file.
        file: Arc<Path>,
        /// How.
        what: FileChange,
    },
    /// All bytes arrived and they are not what they should be: damage, of the file or on the way.
    #[error(
        "the {len} bytes at offset {offset} of `{}` have checksum {found:016x}, expected {expected:016x}",
        file.display()
    )]
    Checksum {
        /// The file of the read's first segment.
        file: Arc<Path>,
        /// First wanted byte.
        offset: u64,
        /// Wanted bytes, of all segments.
        len: usize,
        /// Checksum of what was read.
        found: u64,
        /// Checksum of what should have been.
        expected: u64,
    },
    /// All bytes arrived and the check of them panicked, so nobody knows whether they are right.
    #[error("the check of the {len} bytes at offset {offset} of `{}` panicked", file.display())]
    CheckPanicked {
        /// The file of the read's first segment.
        file: Arc<Path>,
        /// First wanted byte.
        offset: u64,
        /// Wanted bytes, of all segments.
        len: usize,
    },
}

impl ReadError {
    /// The file that the read was from.
    pub fn file(&self) -> &Path {
        match self {
            ReadError::Io { file, .. }
            | ReadError::Short { file, .. }
            | ReadError::Changed { file, .. }
            | ReadError::Checksum { file, .. }
            | ReadError::CheckPanicked { file, .. } => file,
        }
    }
}

/// How a file differs from what was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileChange {
    /// Truncated or extended.
    Size {
        /// Bytes when it was opened.
        was: u64,
        /// Bytes now.
        now: u64,
    },
    /// Written to: same size, other modification time.
    Written,
    /// Its name now belongs to another file. What was opened is intact, but is not what the name says.
    Replaced,
    /// Its name is gone. What was opened is intact.
    Removed,
}

impl fmt::Display for FileChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FileChange::Size { was, now } => write!(f, "it had {was} bytes and has {now}"),
            FileChange::Written => write!(f, "its modification time moved"),
            FileChange::Replaced => write!(f, "another file has taken its name"),
            FileChange::Removed => write!(f, "it was removed"),
        }
    }
}

/// Why waiting for a completion ended without one.
#[derive(Debug, thiserror::Error)]
pub enum WaitError {
    /// There is nothing to wait for.
    #[error("no read is in flight")]
    NothingInFlight,
    /// No read has completed for a long time. They stay in flight, and waiting again is possible.
    #[error("no read has completed in {} s, {in_flight} in flight: the disk does not answer", waited.as_secs())]
    Stalled {
        /// How long was waited.
        waited: Duration,
        /// Reads in flight.
        in_flight: usize,
    },
    /// The system refused to wait or to take reads.
    #[error("the system does not accept reads")]
    Backend {
        /// The system's reason.
        #[source]
        source: io::Error,
    },
}

/// Why an arena could not be registered with a disk. Reads into it work all the same.
#[derive(Debug, thiserror::Error)]
pub enum RegisterError {
    /// The disk has no use for registration.
    #[error("this disk does not register memory")]
    Unsupported,
    /// The arena has more addresses than there is memory, and registering takes memory for all of them.
    #[error("an arena of {bytes} bytes that are not all in use at a time cannot be registered")]
    Sparse {
        /// Size of the arena.
        bytes: usize,
    },
    /// An arena is registered already.
    #[error("an arena is registered already")]
    Taken,
    /// The system refused, usually because of `RLIMIT_MEMLOCK`.
    #[error("cannot register {bytes} bytes with the disk (limit on locked memory: {})", limit.map_or("none".into(), |l| format!("{l} bytes")))]
    Refused {
        /// Size of the arena.
        bytes: usize,
        /// `RLIMIT_MEMLOCK` in bytes, if there is one.
        limit: Option<u64>,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
}
