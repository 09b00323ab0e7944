//! The seam between the engine and whatever carries reads out, and the choice of the best that this machine has.

use std::path::Path;
use std::time::Duration;

#[cfg(target_os = "linux")]
use crate::UringDisk;
use crate::{
    Arena, Check, Completion, FileId, FileIdentity, Full, OpenError, PoolDisk, Read, ReadError, ReadId,
    RegisterError, StartError, WaitError,
};

/// Reads ranges of files into buffers, many at a time. Implemented by [`UringDisk`], [`PoolDisk`] and, with
/// faults from a seed, [`crate::sim::SimDisk`].
///
/// One thread at a time uses a disk. Reads make progress by themselves up to the disk's depth
/// ([`DiskOptions::workers`]); those beyond it are started by `poll` or `wait` as others complete.
///
/// Files are opened once and kept open. After every transfer the file's size and modification time are compared
/// with those at opening, so bytes of a file that was rewritten or truncated meanwhile are reported as
/// [`ReadError::Changed`] and never returned as good. A file whose *name* is given to another file goes on being
/// read as it was opened; [`Disk::check`] tells.
pub trait Disk: Send {
    /// Opens a file for reading and remembers its identity.
    /// # Errors
    /// See [`OpenError`]. That a file system has no direct I/O is not an error: see [`Disk::buffered_reason`].
    fn open(&mut self, path: &Path) -> Result<FileId, OpenError>;

    /// Bytes that the spans of this file are aligned to: what direct I/O asks for (512 to 4096), 1 when buffered.
    /// # Panics
    /// If `file` is not of this disk, here and in every other method.
    fn alignment(&self, file: FileId) -> usize;

    /// Whether reads of this file go past the page cache.
    fn is_direct(&self, file: FileId) -> bool {
        self.buffered_reason(file).is_none()
    }

    /// Why reads of this file are buffered, for the plan; `None` when they are direct.
    fn buffered_reason(&self, file: FileId) -> Option<&str>;

    /// Size, inode and modification time at opening.
    fn identity(&self, file: FileId) -> FileIdentity;

    /// Whether the file is still what was opened, and still what its name leads to. Two stat calls.
    /// # Errors
    /// [`ReadError::Changed`].
    fn check(&mut self, file: FileId) -> Result<(), ReadError>;

    /// Accepts a read; it completes through `poll` or `wait`, in any order. Never blocks or allocates.
    /// # Errors
    /// [`Full`] with the read if `reads_max` are in flight. Failures of the device arrive in the [`Completion`].
    /// # Panics
    /// If the segments are empty, misaligned, beyond the buffer or overlapping: see [`crate::Segment`].
    #[expect(clippy::result_large_err, reason = "boxing the read would allocate on the submit path")]
    fn submit(&mut self, read: Read) -> Result<(), Full> {
        self.submit_checked(read, None)
    }

    /// As `submit`, and the bytes are looked at before the read completes: if the check finds them wrong, it completes with
    /// [`ReadError::Checksum`].
    ///
    /// Where threads read ([`PoolDisk`]) they check as well, so whoever polls and waits is not held up. io_uring has
    /// no thread but the caller's: there `poll` and `wait` check what they find completed. The first read with a check may
    /// start threads; later ones allocate nothing. A check that panics makes its read end in [`ReadError::CheckPanicked`].
    /// # Errors
    /// As `submit`.
    #[expect(clippy::result_large_err, reason = "boxing the read would allocate on the submit path")]
    fn submit_checked(&mut self, read: Read, check: Option<Check>) -> Result<(), Full>;

    /// Appends what has completed since the last call. Never blocks; allocates only if `done` must grow.
    fn poll(&mut self, done: &mut Vec<Completion>);

    /// As `poll`, but blocks until at least one read has completed.
    /// # Errors
    /// [`WaitError::NothingInFlight`], or [`WaitError::Stalled`] after [`STALL_LIMIT`] without a completion.
    fn wait(&mut self, done: &mut Vec<Completion>) -> Result<(), WaitError>;

    /// Reads accepted and not handed back, at most `reads_max`.
    fn in_flight(&self) -> usize;

    /// Makes a read-ahead that was not started yet a demand read, because somebody waits for it now.
    /// False if it is at the device already, done, or unknown.
    fn promote(&mut self, id: ReadId) -> bool;

    /// Takes back a read that was not started yet. `None` if it is at the device already, done, or unknown.
    fn cancel(&mut self, id: ReadId) -> Option<Read>;

    /// Fills `into` from `offset` on, any alignment, blocking the caller.
    ///
    /// For token-embedding rows and for loading dense weights. An unaligned direct read is copied through a
    /// buffer of [`crate::BOUNCE_BYTES`]; where `into` and `offset` are aligned alike it is not.
    /// # Errors
    /// See [`ReadError`]; `into` then holds unspecified bytes.
    fn read_now(&mut self, file: FileId, offset: u64, into: &mut [u8]) -> Result<(), ReadError>;

    /// Tells the kernel of an arena that reads will go to, so that it need not look its pages up for each read.
    ///
    /// Takes all of the arena's memory at once (its pages are pinned) and keeps [`crate::Buffer::release_pages`]
    /// from giving any back until [`Disk::unregister`]. Worth it for an arena that is full all the time.
    /// # Errors
    /// See [`RegisterError`]; reads into the arena work all the same.
    fn register(&mut self, arena: &Arena) -> Result<(), RegisterError> {
        let _ = arena;
        Err(RegisterError::Unsupported)
    }

    /// Undoes [`Disk::register`]; nothing if there was none.
    fn unregister(&mut self) {}

    /// What carries the reads out and, if it is not io_uring, why: one line for the plan and the run archive.
    fn description(&self) -> &str;
}

/// How long `wait` waits for a completion before it calls the disk stalled. The kernel gives up on a device
/// that does not answer after 30 s by default (and may try again), so this is a device beyond its help.
pub const STALL_LIMIT: Duration = Duration::from_secs(60);

/// What carries reads out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// io_uring where the kernel permits it, otherwise the worker pool.
    Auto,
    /// io_uring or an error.
    Uring,
    /// Threads that do positioned reads.
    Pool,
}

/// How to read.
#[derive(Debug, Clone)]
pub struct DiskOptions {
    /// What carries reads out.
    pub backend: Backend,
    /// Whether to read past the page cache where the file system can.
    pub direct: bool,
    /// Most reads in flight, waiting ones included: 1 to [`READS_MAX`].
    pub reads_max: usize,
    /// Transfers at a time, each of one segment: 1 to [`WORKERS_MAX`]. The pool has as many threads, and some more once
    /// reads are checked; io_uring's queue is as deep. [`crate::probe`] measures what the device is best at.
    pub workers: usize,
}

/// Largest [`DiskOptions::reads_max`].
pub const READS_MAX: usize = 4096;
/// Largest [`DiskOptions::workers`].
pub const WORKERS_MAX: usize = 256;

impl Default for DiskOptions {
    fn default() -> DiskOptions {
        DiskOptions { backend: Backend::Auto, direct: true, reads_max: 256, workers: 16 }
    }
}

impl DiskOptions {
    pub(crate) fn check(&self) -> Result<(), StartError> {
        for (field, value, max) in
            [("reads_max", self.reads_max, READS_MAX), ("workers", self.workers, WORKERS_MAX)]
        {
            if !(1..=max).contains(&value) {
                return Err(StartError::OutOfRange { field, value, min: 1, max });
            }
        }
        Ok(())
    }
}

/// Starts the disk that `options` ask for.
///
/// [`Backend::Auto`] tries io_uring with a request of no effect, because a kernel that has it may still forbid it
/// (`kernel.io_uring_disabled`, seccomp filters of containers); [`Disk::description`] tells what was chosen.
/// # Errors
/// If an option is out of range, threads or memory are refused, or io_uring was asked for and is not available.
pub fn open_best(options: DiskOptions) -> Result<Box<dyn Disk>, StartError> {
    options.check()?;
    let pool = |why: &str| -> Result<Box<dyn Disk>, StartError> {
        let mut disk = PoolDisk::start(&options)?;
        disk.append_description(why);
        Ok(Box::new(disk))
    };
    match options.backend {
        Backend::Pool => pool(""),
        #[cfg(target_os = "linux")]
        Backend::Uring => Ok(Box::new(UringDisk::start(&options)?)),
        #[cfg(target_os = "linux")]
        Backend::Auto => match UringDisk::start(&options) {
            Ok(disk) => Ok(Box::new(disk)),
            Err(StartError::Uring { what, source }) => pool(&format!(" (io_uring: {what}: {source})")),
            Err(other) => Err(other),
        },
        #[cfg(not(target_os = "linux"))]
        Backend::Uring => Err(StartError::Uring {
            what: "this system is not Linux",
            source: std::io::Error::from(std::io::ErrorKind::Unsupported),
        }),
        #[cfg(not(target_os = "linux"))]
        Backend::Auto => pool(" (io_uring: this system is not Linux)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_out_of_range_are_refused() {
        let check = |options: DiskOptions, expect: &str| match open_best(options) {
            Err(error) => assert_eq!(error.to_string(), expect),
            Ok(disk) => panic!("started {}", disk.description()),
        };
        let good = DiskOptions::default();
        check(
            DiskOptions { reads_max: 0, ..good.clone() },
            "disk option `reads_max` is 0, expected 1 to 4096",
        );
        check(DiskOptions { workers: 257, ..good }, "disk option `workers` is 257, expected 1 to 256");
    }

    #[test]
    fn auto_always_finds_something() {
        let disk = open_best(DiskOptions::default()).unwrap();
        eprintln!("chosen: {}", disk.description());
        assert!(!disk.description().is_empty());
    }
}
