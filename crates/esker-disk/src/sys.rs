//! The operating-system calls that reading needs, each behind the smallest function that states its contract.
//!
//! Not here: mapping memory (`arena`, `mapped`) and the io_uring instance (`uring`).
//! Sources: pread(2), posix_fadvise(2), statx(2), fstatfs(2), fcntl(2) F_NOCACHE on macOS.

#[cfg(any(target_os = "linux", target_os = "macos"))]
use std::fs::File;
use std::io;
#[cfg(any(target_os = "linux", target_os = "macos"))]
use std::os::fd::AsRawFd;
use std::os::fd::RawFd;
use std::sync::OnceLock;

/// Size of a memory page in bytes: 4096 on most machines, 16384 on Apple silicon.
pub(crate) fn page_bytes() -> usize {
    static PAGE_BYTES: OnceLock<usize> = OnceLock::new();
    *PAGE_BYTES.get_or_init(|| {
        // SAFETY: sysconf reads a constant of the system and touches no memory of ours.
        let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        usize::try_from(bytes).ok().filter(|b| b.is_power_of_two()).unwrap_or(4096)
    })
}

/// Fixes the sizes from which malloc maps blocks and trims its heap, which otherwise adapt upwards.
pub(crate) fn fix_malloc_thresholds() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        const BYTES: libc::c_int = 128 << 10;
        // SAFETY: mallopt only sets parameters of the allocator and may be called at any time.
        unsafe {
            libc::mallopt(libc::M_MMAP_THRESHOLD, BYTES);
            libc::mallopt(libc::M_TRIM_THRESHOLD, BYTES);
        }
    }
}

/// Lets threads that start from now on allocate from the heap that there is.
pub(crate) fn share_heap() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: mallopt only sets parameters of the allocator and may be called at any time.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

/// The most bytes that this process may lock, or `None` when there is no limit or it cannot be read.
pub(crate) fn memlock_limit() -> Option<libc::rlim_t> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid, writable rlimit for the duration of the call.
    let rc = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut limit) };
    (rc == 0 && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

/// One pread(2): up to `len` bytes at `offset` into `into`; returns how many arrived, 0 at the end of the file.
///
/// # Safety
/// `into` must be valid for writes of `len` bytes, and nothing else may access them until this returns.
pub(crate) unsafe fn pread(fd: RawFd, into: *mut u8, len: usize, offset: u64) -> io::Result<usize> {
    let offset = libc::off_t::try_from(offset).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    // SAFETY: the caller vouches for `into` and `len`; a bad descriptor is an error, not undefined.
    let got = unsafe { libc::pread(fd, into.cast(), len, offset) };
    usize::try_from(got).map_err(|_| io::Error::last_os_error())
}

/// Alignment that direct reads of a file need.
#[cfg(target_os = "linux")]
pub(crate) enum DirectAlign {
    /// The kernel stated it, in bytes: (memory address, file offset and length).
    Stated(usize, usize),
    /// The kernel stated that this file has no direct I/O.
    Refused,
    /// The kernel (before 6.1) or the file system does not say.
    Unknown,
}

/// Asks the kernel for the alignment of direct reads (`STATX_DIOALIGN`, Linux 6.1).
#[cfg(target_os = "linux")]
pub(crate) fn direct_align(file: &File) -> DirectAlign {
    // SAFETY: statx is plain old data; all zero bytes are a valid value.
    let mut stat: libc::statx = unsafe { std::mem::zeroed() };
    // SAFETY: an empty C string with AT_EMPTY_PATH names the descriptor itself; `stat` is writable.
    let rc = unsafe {
        libc::statx(file.as_raw_fd(), c"".as_ptr(), libc::AT_EMPTY_PATH, libc::STATX_DIOALIGN, &mut stat)
    };
    if rc != 0 || stat.stx_mask & libc::STATX_DIOALIGN == 0 {
        DirectAlign::Unknown
    } else if stat.stx_dio_offset_align == 0 {
        DirectAlign::Refused
    } else {
        DirectAlign::Stated(stat.stx_dio_mem_align as usize, stat.stx_dio_offset_align as usize)
    }
}

/// Reads the first block. Some file systems accept O_DIRECT and refuse the read: only trying tells.
#[cfg(target_os = "linux")]
pub(crate) fn try_direct_read(file: &File) -> io::Result<()> {
    #[repr(align(4096))]
    struct Block([u8; 4096]);
    let mut block = Box::new(Block([0; 4096]));
    // SAFETY: the block is ours, of that size, and borrowed mutably for the call.
    unsafe { pread(file.as_raw_fd(), block.0.as_mut_ptr(), block.0.len(), 0) }.map(|_| ())
}

/// Name of the file system when its files live in memory, where direct I/O has no meaning.
///
/// tmpfs accepts O_DIRECT since Linux 6.6 and then reads from the page cache all the same.
#[cfg(target_os = "linux")]
pub(crate) fn memory_file_system(file: &File) -> Option<&'static str> {
    const RAMFS_MAGIC: i64 = 0x8584_58f6; // linux/magic.h; libc has no name for it
    // SAFETY: statfs is plain old data; all zero bytes are a valid value.
    let mut stat: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: `stat` is writable and the descriptor is open for the duration of the call.
    if unsafe { libc::fstatfs(file.as_raw_fd(), &mut stat) } != 0 {
        return None;
    }
    // The field's type differs between C libraries; the magic numbers fit in 32 bits in all of them.
    match stat.f_type as u32 as i64 {
        magic if magic == libc::TMPFS_MAGIC as u32 as i64 => Some("tmpfs"),
        RAMFS_MAGIC => Some("ramfs"),
        _ => None,
    }
}

/// Turns the kernel's own read-ahead off, which would bring pages that nobody asked for into the page cache.
#[cfg(target_os = "linux")]
pub(crate) fn advise_random(file: &File) {
    // Advice only: a failure changes speed and cache size, not contents.
    // SAFETY: takes a descriptor and integers; no memory of ours is involved.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_RANDOM) };
}

/// Drops the clean page-cache pages of a range of a file, whole pages only; `len == 0` means to the end.
#[cfg(target_os = "linux")]
pub(crate) fn advise_dont_need(file: &File, offset: u64, len: u64) -> io::Result<()> {
    let range = (libc::off_t::try_from(offset), libc::off_t::try_from(len));
    let (Ok(offset), Ok(len)) = range else { return Err(io::Error::from_raw_os_error(libc::EINVAL)) };
    // SAFETY: takes a descriptor and integers; no memory of ours is involved.
    match unsafe { libc::posix_fadvise(file.as_raw_fd(), offset, len, libc::POSIX_FADV_DONTNEED) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Asks macOS not to keep what is read through this descriptor in its cache.
#[cfg(target_os = "macos")]
pub(crate) fn set_no_cache(file: &File) -> io::Result<()> {
    // SAFETY: fcntl with an integer argument; no memory of ours is involved.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_NOCACHE, 1) } == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Page faults of this process so far: (without, with) reading from a device. See getrusage(2).
pub(crate) fn page_faults() -> Option<(u64, u64)> {
    // SAFETY: rusage is plain old data; all zero bytes are a valid value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is writable for the duration of the call.
    let rc = unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) };
    let counts = (u64::try_from(usage.ru_minflt).ok()?, u64::try_from(usage.ru_majflt).ok()?);
    (rc == 0).then_some(counts)
}
