//! A whole file in the address space, for models that stay resident.
//!
//! Not for streaming: what a mapping holds in memory is the page cache's decision, not ours. Source: mmap(2).

use std::io;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

use crate::file::OpenFile;
use crate::{FileIdentity, OpenError, ReadError, sys};

/// A file mapped for reading.
///
/// # If the file changes while mapped
/// The bytes are the file's, so a file written to meanwhile shows new bytes, and touching a page beyond the end of
/// a file that was truncated kills the process with SIGBUS; no check can prevent that, since it may happen
/// between the check and the touch. Model files are not written to once complete (tools write a new file and
/// rename it, which leaves a mapping as it was), and [`MappedFile::check`] notices after the fact. Where that is
/// not enough, read with [`crate::Disk::read_now`], which reports an error instead.
#[derive(Debug)]
pub struct MappedFile {
    /// Dangling if the file is empty, which mmap refuses to map.
    start: NonNull<u8>,
    len: usize,
    file: OpenFile,
}

// SAFETY: the mapping is read-only memory of the process, tied to no thread.
unsafe impl Send for MappedFile {}
// SAFETY: as above; nothing is written through it.
unsafe impl Sync for MappedFile {}

impl MappedFile {
    /// Maps the file at `path` as it is now. Reads nothing yet.
    /// # Errors
    /// If it cannot be opened, is no regular file, or the system refuses to map it.
    pub fn open(path: &Path) -> Result<MappedFile, MapError> {
        let file = OpenFile::open(path, false)?;
        let refused = |source| MapError::Map { path: path.into(), source };
        let len = usize::try_from(file.identity().size)
            .map_err(|_| refused(io::Error::from(io::ErrorKind::FileTooLarge)))?;
        if len == 0 {
            return Ok(MappedFile { start: NonNull::dangling(), len, file });
        }
        let (prot, flags) = (libc::PROT_READ, libc::MAP_SHARED);
        // SAFETY: a new mapping at an address of the system's choice replaces nothing.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, prot, flags, file.fd(), 0) };
        if start == libc::MAP_FAILED {
            return Err(refused(io::Error::last_os_error()));
        }
        let start = NonNull::new(start.cast()).expect("mmap without a fixed address never maps address zero");
        Ok(MappedFile { start, len, file })
    }

    /// Size, inode and modification time at opening.
    pub fn identity(&self) -> FileIdentity {
        self.file.identity()
    }

    /// Whether the file is still what was mapped, and still what its name leads to.
    /// # Errors
    /// [`ReadError::Changed`].
    pub fn check(&self) -> Result<(), ReadError> {
        self.file.check_name()
    }

    /// Asks the system to start reading the whole file into memory. Returns at once; advice only.
    pub fn will_need(&self) {
        // SAFETY: the range is exactly our mapping; MADV_WILLNEED changes no contents.
        let _ = unsafe { libc::madvise(self.start.as_ptr().cast(), self.len, libc::MADV_WILLNEED) };
    }

    /// Reads the whole file into memory and keeps it there.
    /// # Errors
    /// [`MapError::Lock`], usually because of `RLIMIT_MEMLOCK`. The mapping is usable as before.
    pub fn lock(&self) -> Result<(), MapError> {
        // SAFETY: the range is exactly our mapping (nothing, if empty); mlock changes no contents.
        if self.len == 0 || unsafe { libc::mlock(self.start.as_ptr().cast(), self.len) } == 0 {
            return Ok(());
        }
        let source = io::Error::last_os_error();
        // SAFETY: as above. A failed mlock may leave a prefix locked.
        unsafe { libc::munlock(self.start.as_ptr().cast(), self.len) };
        let path = self.file.path().to_path_buf();
        Err(MapError::Lock { path, bytes: self.len, limit: sys::memlock_limit(), source })
    }
}

impl Deref for MappedFile {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the mapping covers `len` bytes until drop (or `len` is 0 and the pointer is dangling but
        // aligned). Others could write to the file meanwhile: see the type's documentation.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        if self.len > 0 {
            // SAFETY: the range is the one mmap returned, and no slice of it outlives `self`.
            unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
        }
    }
}

/// Why a file could not be mapped or locked.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    /// It could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// mmap(2) failed.
    #[error("cannot map `{}` into memory", path.display())]
    Map {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// mlock(2) failed.
    #[error("cannot lock {bytes} bytes of `{}` in memory (limit: {})", path.display(), limit.map_or("none".into(), |l| format!("{l} bytes")))]
    Lock {
        /// The file.
        path: PathBuf,
        /// What was to be locked.
        bytes: usize,
        /// `RLIMIT_MEMLOCK` in bytes, if there is one.
        limit: Option<u64>,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_the_file_and_survives_its_removal() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let bytes: Vec<u8> = (0..10_000u32).map(|i| (i * 7) as u8).collect();
        std::fs::write(&path, &bytes).unwrap();
        let mapped = MappedFile::open(&path).unwrap();
        mapped.will_need();
        assert_eq!(*mapped, *bytes);
        mapped.check().unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(*mapped, *bytes);
        assert!(matches!(mapped.check(), Err(ReadError::Changed { .. })));
    }

    #[test]
    fn empty_and_absent_files() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        assert!(matches!(MappedFile::open(&path), Err(MapError::Open(OpenError::Open { .. }))));
        std::fs::write(&path, []).unwrap();
        let mapped = MappedFile::open(&path).unwrap();
        mapped.will_need();
        mapped.lock().unwrap();
        assert!(mapped.is_empty());
    }
}
