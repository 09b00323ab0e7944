//! An open weight file: how it is read (direct or buffered, and why), and whether it is still the same file.
//!
//! Not here: the order of reads. Sources: open(2) O_DIRECT, statx(2), fcntl(2) F_NOCACHE on macOS.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::arena::BUFFER_ALIGN;
use crate::{FileChange, FileId, OpenError, ReadError, sys};

/// What makes a file this file: if any of it differs, its contents may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FileIdentity {
    /// Device number.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// Size in bytes.
    pub size: u64,
    /// Modification time: seconds since 1970.
    pub modified_s: i64,
    /// Modification time: nanoseconds of the second.
    pub modified_ns: i64,
}

impl FileIdentity {
    /// The identity of what `path` names now.
    /// # Errors
    /// Of stat(2).
    pub fn of(path: &Path) -> io::Result<FileIdentity> {
        std::fs::metadata(path).map(|metadata| FileIdentity::from(&metadata))
    }

    /// How `now` differs from `self`, as far as it matters for bytes read through the same descriptor.
    fn content_change(&self, now: &FileIdentity) -> Option<FileChange> {
        if self.size != now.size {
            Some(FileChange::Size { was: self.size, now: now.size })
        } else if (self.modified_s, self.modified_ns) != (now.modified_s, now.modified_ns) {
            Some(FileChange::Written)
        } else {
            None
        }
    }
}

impl From<&Metadata> for FileIdentity {
    fn from(metadata: &Metadata) -> FileIdentity {
        FileIdentity {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified_s: metadata.mtime(),
            modified_ns: metadata.mtime_nsec(),
        }
    }
}

/// How a file's bytes get into memory.
#[derive(Debug)]
enum Access {
    /// Past the page cache, in blocks of this many bytes.
    Direct { align: usize },
    /// Through the page cache, whose pages are dropped after each read.
    Buffered { reason: String },
}

/// A file that reads may refer to. Shared with the reads in flight, so it stays open until they end.
#[derive(Debug)]
pub(crate) struct OpenFile {
    file: File,
    path: Arc<Path>,
    identity: FileIdentity,
    access: Access,
}

impl OpenFile {
    /// Opens `path` for direct reads if `direct` and the file system has them, buffered otherwise.
    pub(crate) fn open(path: &Path, direct: bool) -> Result<OpenFile, OpenError> {
        let failed = |source: io::Error| match source.raw_os_error() {
            Some(libc::EMFILE | libc::ENFILE) => OpenError::NoDescriptors { path: path.into(), source },
            _ => OpenError::Open { path: path.into(), source },
        };
        // Asked before opening because opening a pipe would wait for its writer.
        if !std::fs::metadata(path).map_err(failed)?.is_file() {
            return Err(OpenError::NotAFile { path: path.into() });
        }
        let (file, access) =
            if direct { open_direct(path) } else { open_buffered(path, "as asked") }.map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if !metadata.is_file() {
            return Err(OpenError::NotAFile { path: path.into() });
        }
        Ok(OpenFile { file, path: path.into(), identity: FileIdentity::from(&metadata), access })
    }

    /// A descriptor that is no regular file, said to have `size` bytes: one whose reads can be held up or fail.
    #[cfg(all(test, target_os = "linux"))]
    pub(crate) fn pretend(file: File, size: u64, align: usize) -> OpenFile {
        let identity = FileIdentity { size, ..FileIdentity::from(&file.metadata().expect("an open file")) };
        let access = Access::Direct { align };
        OpenFile { file, path: Path::new("pretended").into(), identity, access }
    }

    /// Bytes that offsets, lengths and addresses of reads must be multiples of.
    pub(crate) fn align(&self) -> usize {
        match self.access {
            Access::Direct { align } => align,
            Access::Buffered { .. } => 1,
        }
    }

    pub(crate) fn buffered_reason(&self) -> Option<&str> {
        match &self.access {
            Access::Direct { .. } => None,
            Access::Buffered { reason } => Some(reason),
        }
    }

    pub(crate) fn path(&self) -> &Arc<Path> {
        &self.path
    }

    pub(crate) fn identity(&self) -> FileIdentity {
        self.identity
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// Whether bytes read so far are those of the file that was opened: one fstat(2), well under a microsecond.
    ///
    /// Called after every transfer, so that a file rewritten in place is noticed by the first read that could
    /// have seen it. A change of the name alone is not: the descriptor still reads the old file.
    pub(crate) fn check_content(&self) -> Result<(), ReadError> {
        match self.file.metadata() {
            Ok(metadata) => match self.identity.content_change(&FileIdentity::from(&metadata)) {
                Some(what) => Err(ReadError::Changed { file: Arc::clone(&self.path), what }),
                None => Ok(()),
            },
            Err(source) => Err(self.stat_failed(source)),
        }
    }

    /// Also whether the name still leads to the file.
    pub(crate) fn check_name(&self) -> Result<(), ReadError> {
        self.check_content()?;
        let what = match std::fs::metadata(&self.path) {
            Ok(now) if (now.dev(), now.ino()) == (self.identity.device, self.identity.inode) => return Ok(()),
            Ok(_) => FileChange::Replaced,
            Err(error) if error.kind() == io::ErrorKind::NotFound => FileChange::Removed,
            Err(source) => return Err(self.stat_failed(source)),
        };
        Err(ReadError::Changed { file: Arc::clone(&self.path), what })
    }

    fn stat_failed(&self, source: io::Error) -> ReadError {
        ReadError::Io { file: Arc::clone(&self.path), offset: 0, len: 0, source }
    }

    /// What to report for a failed transfer: that the file changed, if it did, since that is the cause.
    pub(crate) fn explain(&self, error: ReadError) -> ReadError {
        self.check_content().err().unwrap_or(error)
    }

    pub(crate) fn io_error(&self, offset: u64, len: usize, source: io::Error) -> ReadError {
        self.explain(ReadError::Io { file: Arc::clone(&self.path), offset, len, source })
    }

    pub(crate) fn short(&self, offset: u64, len: usize, got: usize) -> ReadError {
        self.explain(ReadError::Short { file: Arc::clone(&self.path), offset, len, got })
    }

    /// The error of a range that ends beyond the file as it was opened, or `None` if it does not.
    pub(crate) fn beyond_end(&self, offset: u64, len: usize) -> Option<ReadError> {
        let got = self.identity.size.saturating_sub(offset).min(len as u64) as usize;
        (got < len).then(|| self.short(offset, len, got))
    }

    /// After a buffered transfer: lets the page cache forget the range, widened to whole pages.
    ///
    /// Pages of a neighbouring read may go too; that costs a re-read, never contents. Without this the page
    /// cache would grow to the size of the model beside the memory that was budgeted.
    pub(crate) fn forget_cached(&self, offset: u64, len: usize) {
        #[cfg(target_os = "linux")]
        if matches!(self.access, Access::Buffered { .. }) {
            let span = crate::aligned_span(offset, len, sys::page_bytes());
            // Advice: where the system does not take it, only the page cache differs.
            let _ = sys::advise_dont_need(&self.file, span.offset, span.len as u64);
        }
        #[cfg(not(target_os = "linux"))]
        let _ = (offset, len); // F_NOCACHE, set when the file was opened, does it
    }
}

#[cfg(target_os = "linux")]
fn open_direct(path: &Path) -> io::Result<(File, Access)> {
    use std::os::unix::fs::OpenOptionsExt;

    let file = match OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path) {
        Ok(file) => file,
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            return open_buffered(path, "the file system refuses O_DIRECT");
        }
        Err(error) => return Err(error),
    };
    if let Some(name) = sys::memory_file_system(&file) {
        return open_buffered(path, &format!("{name} keeps its files in memory"));
    }
    let align = match sys::direct_align(&file) {
        sys::DirectAlign::Stated(memory, offset) => memory.max(offset),
        sys::DirectAlign::Refused => return open_buffered(path, "the file system has no direct I/O for it"),
        sys::DirectAlign::Unknown => BUFFER_ALIGN,
    };
    if !align.is_power_of_two() || align > BUFFER_ALIGN {
        let reason = format!("direct I/O needs alignment {align}, buffers have {BUFFER_ALIGN}");
        return open_buffered(path, &reason);
    }
    match sys::try_direct_read(&file) {
        Ok(()) => Ok((file, Access::Direct { align })),
        Err(error) => open_buffered(path, &format!("a direct read failed: {error}")),
    }
}

#[cfg(target_os = "macos")]
fn open_direct(path: &Path) -> io::Result<(File, Access)> {
    let file = OpenOptions::new().read(true).open(path)?;
    match sys::set_no_cache(&file) {
        // F_NOCACHE needs no alignment, but only aligned reads go past the cache.
        Ok(()) => Ok((file, Access::Direct { align: BUFFER_ALIGN })),
        Err(error) => open_buffered(path, &format!("F_NOCACHE was refused: {error}")),
    }
}

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
fn open_direct(path: &Path) -> io::Result<(File, Access)> {
    open_buffered(path, "direct I/O is not implemented for this system")
}

fn open_buffered(path: &Path, reason: &str) -> io::Result<(File, Access)> {
    let file = OpenOptions::new().read(true).open(path)?;
    #[cfg(target_os = "linux")]
    sys::advise_random(&file);
    #[cfg(target_os = "macos")]
    let _ = sys::set_no_cache(&file); // so that the page cache does not keep what was read
    Ok((file, Access::Buffered { reason: reason.into() }))
}

/// The files of one disk.
#[derive(Debug, Default, Clone)]
pub(crate) struct Files {
    files: Vec<Arc<OpenFile>>,
}

impl Files {
    pub(crate) fn open(&mut self, path: &Path, direct: bool) -> Result<FileId, OpenError> {
        let file = OpenFile::open(path, direct)?;
        let id = u32::try_from(self.files.len()).expect("descriptors run out before 32 bits do");
        self.files.push(Arc::new(file));
        Ok(FileId(id))
    }

    #[cfg(all(test, target_os = "linux"))]
    pub(crate) fn push(&mut self, file: OpenFile) -> FileId {
        self.files.push(Arc::new(file));
        FileId(self.files.len() as u32 - 1)
    }

    /// # Panics
    /// If `file` is not of this disk.
    pub(crate) fn get(&self, file: FileId) -> &Arc<OpenFile> {
        self.files.get(file.index()).unwrap_or_else(|| panic!("{file:?} was not opened by this disk"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_a_regular_file_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(OpenFile::open(dir.path(), true), Err(OpenError::NotAFile { .. })));
        let absent = OpenFile::open(&dir.path().join("absent"), true);
        assert!(
            matches!(absent, Err(OpenError::Open { source, .. }) if source.kind() == io::ErrorKind::NotFound)
        );
        let null = OpenFile::open(Path::new("/dev/null"), true);
        assert!(matches!(null, Err(OpenError::NotAFile { .. })));
    }

    #[test]
    fn changes_of_content_and_of_name_are_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("weights");
        std::fs::write(&path, [1; 100]).unwrap();
        let file = OpenFile::open(&path, true).unwrap();
        file.check_name().unwrap();

        std::fs::rename(&path, dir.path().join("elsewhere")).unwrap();
        file.check_content().unwrap();
        assert_change(file.check_name(), FileChange::Removed);
        std::fs::write(&path, [2; 100]).unwrap();
        file.check_content().unwrap();
        assert_change(file.check_name(), FileChange::Replaced);

        let file = OpenFile::open(&path, true).unwrap();
        std::fs::write(&path, [2; 50]).unwrap();
        assert_change(file.check_content(), FileChange::Size { was: 100, now: 50 });
    }

    #[test]
    fn rewriting_in_place_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("weights");
        std::fs::write(&path, [1; 100]).unwrap();
        let file = OpenFile::open(&path, false).unwrap();
        assert_eq!(file.buffered_reason(), Some("as asked"));
        // Coarse clocks (kernels before 6.13) may give two writes within a tick the same time.
        std::thread::sleep(std::time::Duration::from_millis(20));
        std::fs::write(&path, [2; 100]).unwrap();
        assert_change(file.check_content(), FileChange::Written);
    }

    fn assert_change(result: Result<(), ReadError>, expect: FileChange) {
        match result {
            Err(ReadError::Changed { what, .. }) => assert_eq!(what, expect),
            other => panic!("expected {expect:?}, got {other:?}"),
        }
    }
}
