//! What the system's page cache holds of a file: to start a measurement cold, and to verify that it was.
//!
//! Linux only; elsewhere both functions report [`std::io::ErrorKind::Unsupported`]. Sources: posix_fadvise(2)
//! `POSIX_FADV_DONTNEED`, mincore(2).

use std::io;
use std::path::{Path, PathBuf};

/// Pages of a file in the page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CachedPages {
    /// Pages that are in memory.
    pub resident: u64,
    /// Pages that the file has.
    pub total: u64,
}

/// Makes the page cache forget a file.
///
/// Unwritten data is written out first. Pages that some process has mapped or locked stay; verify with
/// [`resident_pages`].
/// # Errors
/// If the file cannot be opened or written out, or the system is not Linux.
pub fn drop_page_cache(path: &Path) -> Result<(), PageCacheError> {
    drop_pages(path).map_err(|source| PageCacheError { what: "drop", path: path.into(), source })
}

/// Counts the pages of a file that are in memory, without reading any. About 0.1 s for 100 GiB.
///
/// Since Linux 5.2 the kernel answers "all" to a process that neither owns the file nor may write to it.
/// # Errors
/// If the file cannot be opened or mapped, or the system is not Linux.
pub fn resident_pages(path: &Path) -> Result<CachedPages, PageCacheError> {
    count_pages(path).map_err(|source| PageCacheError { what: "look into", path: path.into(), source })
}

#[cfg(target_os = "linux")]
fn drop_pages(path: &Path) -> io::Result<()> {
    let file = std::fs::File::open(path)?;
    file.sync_data()?;
    crate::sys::advise_dont_need(&file, 0, 0)
}

#[cfg(target_os = "linux")]
fn count_pages(path: &Path) -> io::Result<CachedPages> {
    const WINDOW_BYTES: usize = 1 << 30; // bounds the table below to 256 KiB
    let file = std::fs::File::open(path)?;
    let mut in_memory = vec![0u8; WINDOW_BYTES / crate::sys::page_bytes()];
    let mut count = CachedPages { resident: 0, total: 0 };
    for_each_window(&file, WINDOW_BYTES, |start, len| {
        let pages = len.div_ceil(crate::sys::page_bytes());
        // SAFETY: start..start + len is mapped, and the table has a byte for each of its pages.
        if unsafe { libc::mincore(start, len, in_memory.as_mut_ptr()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        count.resident += in_memory[..pages].iter().filter(|&&byte| byte & 1 == 1).count() as u64;
        count.total += pages as u64;
        Ok(())
    })?;
    Ok(count)
}

/// Calls `look` with a mapping of each window of a file in turn: (address, bytes). Reads nothing by itself.
#[cfg(target_os = "linux")]
fn for_each_window(
    file: &std::fs::File,
    window_bytes: usize,
    mut look: impl FnMut(*mut libc::c_void, usize) -> io::Result<()>,
) -> io::Result<()> {
    let size = file.metadata()?.len();
    let mut offset = 0;
    while offset < size {
        let len = usize::try_from(size - offset).map_or(window_bytes, |rest| rest.min(window_bytes));
        let at = libc::off_t::try_from(offset).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
        // SAFETY: a new mapping at an address of the system's choice replaces nothing.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ,
                libc::MAP_SHARED,
                std::os::fd::AsRawFd::as_raw_fd(file),
                at,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let result = look(start, len);
        // SAFETY: the range is the one mmap returned; `look` keeps nothing of it.
        unsafe { libc::munmap(start, len) };
        result?;
        offset += len as u64;
    }
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn drop_pages(_: &Path) -> io::Result<()> {
    Err(io::Error::from(io::ErrorKind::Unsupported))
}

#[cfg(not(target_os = "linux"))]
fn count_pages(_: &Path) -> io::Result<CachedPages> {
    Err(io::Error::from(io::ErrorKind::Unsupported))
}

/// Why the page cache could not be looked into or changed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what} the page cache of `{}`", path.display())]
pub struct PageCacheError {
    /// The operation.
    pub what: &'static str,
    /// The file.
    pub path: PathBuf,
    /// The system's reason.
    #[source]
    pub source: io::Error,
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_written_file_is_cached_until_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, vec![1; 1_000_001]).unwrap();
        let pages = 1_000_001u64.div_ceil(crate::sys::page_bytes() as u64);
        assert_eq!(resident_pages(&path).unwrap(), CachedPages { resident: pages, total: pages });
        if crate::sys::memory_file_system(&std::fs::File::open(&path).unwrap()).is_some() {
            return eprintln!("the temporary folder is in memory: dropping is not tested");
        }
        drop_page_cache(&path).unwrap();
        assert_eq!(resident_pages(&path).unwrap(), CachedPages { resident: 0, total: pages });
    }

    #[test]
    fn absent_and_empty_files() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        assert_eq!(resident_pages(&path).unwrap_err().source.kind(), io::ErrorKind::NotFound);
        assert!(drop_page_cache(&path).is_err());
        std::fs::write(&path, []).unwrap();
        assert_eq!(resident_pages(&path).unwrap(), CachedPages { resident: 0, total: 0 });
    }
}
