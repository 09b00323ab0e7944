//! The memory that weights are read into: one page-aligned anonymous mapping, cut into buffers.
//!
//! Not here: which expert is in which buffer. An arena only guarantees that its buffers are disjoint, aligned
//! for direct I/O, and stay mapped while anyone (the engine, or a read in flight) holds one of them.
//! Sources: mmap(2), madvise(2), mlock(2).

use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use crate::sys;

/// Alignment of every [`Buffer`] in bytes, at least: what direct I/O asks for on any common file system.
///
/// On a machine whose memory pages are larger, buffers are aligned to those.
pub const BUFFER_ALIGN: usize = 4096;

/// Page-aligned anonymous memory that never moves and reads as zero until written.
///
/// Creating one reserves addresses; memory is taken page by page as it is first written. Whether the machine
/// has that much is therefore not established by a success: compare with [`crate::memory::available`] first,
/// or call [`Arena::lock`], which takes all of it at once or fails. Where the system accounts strictly
/// (`vm.overcommit_memory = 2`) creation fails already.
#[derive(Debug)]
pub struct Arena {
    mapping: Arc<Mapping>,
    /// Bytes handed out so far, from the front. What is handed out never comes back: see [`Buffer`].
    used: usize,
}

impl Arena {
    /// Maps `bytes`, rounded up to whole pages.
    /// # Errors
    /// If `bytes` is zero or more than an address space holds, or the system refuses.
    pub fn new(bytes: usize) -> Result<Arena, ArenaError> {
        Ok(Arena { mapping: Arc::new(Mapping::anonymous(bytes, false)?), used: 0 })
    }

    /// As `new`, for more addresses than memory: the caller will not have more of its buffers written to at a time than
    /// the machine can hold, and gives the others' pages back ([`Buffer::release_pages`]).
    ///
    /// So the system is not asked whether it could back all of it (`MAP_NORESERVE`), and such an arena can neither be locked
    /// nor registered. Where the system accounts strictly it asks itself all the same, and may refuse.
    /// # Errors
    /// As `new`.
    pub fn sparse(bytes: usize) -> Result<Arena, ArenaError> {
        Ok(Arena { mapping: Arc::new(Mapping::anonymous(bytes, true)?), used: 0 })
    }

    /// Size of the arena in bytes.
    #[expect(clippy::len_without_is_empty, reason = "an arena is never empty")]
    pub fn len(&self) -> usize {
        self.mapping.len
    }

    /// Bytes not yet handed out.
    pub fn remaining(&self) -> usize {
        self.mapping.len - self.used
    }

    /// Bytes that an arena must have so that [`Arena::carve`] can hand out buffers of `sizes`.
    ///
    /// Saturates instead of wrapping, so that absurd sizes make [`Arena::new`] fail.
    pub fn bytes_for(sizes: impl IntoIterator<Item = usize>) -> usize {
        sizes.into_iter().map(stride).fold(0, usize::saturating_add)
    }

    /// Hands out one buffer per size, in order, disjoint, each aligned to [`BUFFER_ALIGN`].
    ///
    /// May be called again as long as room remains; a range is handed out once in the life of the arena.
    /// # Panics
    /// If a size is zero or the sum exceeds [`Arena::remaining`]: sizes come from a plan that summed them
    /// with [`Arena::bytes_for`].
    pub fn carve(&mut self, sizes: impl IntoIterator<Item = usize>) -> Vec<Buffer> {
        let carve_one = |len: usize| {
            assert!(len > 0, "a buffer must have at least one byte");
            let bytes = stride(len);
            let room = self.mapping.len - self.used;
            assert!(bytes <= room, "buffer of {bytes} bytes does not fit: {room} bytes left in the arena");
            // SAFETY: used + bytes <= mapping.len, asserted above, so the pointer stays inside the mapping.
            let start = unsafe { self.mapping.start.add(self.used) };
            self.used += bytes;
            Buffer { start, len, mapping: Arc::clone(&self.mapping) }
        };
        sizes.into_iter().map(carve_one).collect()
    }

    /// Takes all of the arena's memory now and keeps it out of swap.
    ///
    /// Faults every page in, so it costs about 0.1 s per GiB and fails now instead of during a run.
    /// # Errors
    /// [`ArenaError::Lock`], usually because of `RLIMIT_MEMLOCK` (8 MiB by default for ordinary users), or because the
    /// arena is a sparse one. Then nothing stays locked and the arena is usable as before.
    pub fn lock(&self) -> Result<(), ArenaError> {
        let Mapping { start, len, is_sparse, .. } = *self.mapping;
        if is_sparse {
            let source = io::Error::from(io::ErrorKind::Unsupported);
            return Err(ArenaError::Lock { bytes: len, limit: sys::memlock_limit(), source });
        }
        // SAFETY: the range is exactly our mapping; mlock changes no contents.
        if unsafe { libc::mlock(start.as_ptr().cast(), len) } == 0 {
            return Ok(());
        }
        let source = io::Error::last_os_error();
        // SAFETY: as above. A failed mlock may leave a prefix locked.
        unsafe { libc::munlock(start.as_ptr().cast(), len) };
        Err(ArenaError::Lock { bytes: len, limit: sys::memlock_limit(), source })
    }

    /// Asks for huge pages (2 MiB on most machines), which make page faults and address translation cheaper.
    ///
    /// Advice: the system may not follow it. [`Buffer::release_pages`] of a part of a huge page may give the
    /// memory back only later, when the system splits the page.
    /// # Errors
    /// [`ArenaError::Advise`] where the system has no huge pages for anonymous memory.
    pub fn advise_huge_pages(&self) -> Result<(), ArenaError> {
        // SAFETY: the range is exactly our mapping.
        unsafe { advise_huge(self.mapping.start.as_ptr(), self.mapping.len, true) }
    }

    #[cfg(target_os = "linux")]
    pub(crate) fn mapping(&self) -> &Arc<Mapping> {
        &self.mapping
    }
}

/// Room that a buffer of `len` bytes takes in an arena.
fn stride(len: usize) -> usize {
    len.checked_next_multiple_of(BUFFER_ALIGN.max(sys::page_bytes())).unwrap_or(usize::MAX)
}

/// One exclusive range of an [`Arena`]: of the engine while resident, of the disk while a read into it is in
/// flight.
///
/// Being moved is what makes a read safe: whoever holds the buffer may look at it, and a read in flight holds
/// it. A dropped buffer is not handed out again (nobody could tell whether its pages are in use); its memory
/// returns to the system when the arena and all its buffers are gone.
#[derive(Debug)]
pub struct Buffer {
    start: NonNull<u8>,
    len: usize,
    mapping: Arc<Mapping>,
}

// SAFETY: a buffer is the only owner of its range (carve hands each range out once), the mapping lives as long
// as the buffer does (Arc), and neither depends on the thread.
unsafe impl Send for Buffer {}
// SAFETY: a shared reference gives only `&[u8]`.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Gives the memory behind the buffer back to the system; the contents become zero.
    ///
    /// The addresses stay valid, and the next write takes memory again. If the arena was locked, this range is
    /// not any more.
    /// # Errors
    /// [`ReleaseError::Registered`] while the arena is registered with a disk: the kernel holds its pages then,
    /// so nothing would be given back. The contents are unchanged on error.
    pub fn release_pages(&mut self) -> Result<(), ReleaseError> {
        // Held until the pages are gone: a registration in between would pin pages that this call detaches,
        // and reads into them would be lost.
        let registered = self.mapping.registered.lock().unwrap_or_else(PoisonError::into_inner);
        if *registered {
            return Err(ReleaseError::Registered);
        }
        let (start, bytes) = (self.start.as_ptr(), stride(self.len));
        // SAFETY: start..start + stride is whole pages of this buffer alone (carve advances by the stride), and
        // `&mut self` means nobody is looking at them.
        unsafe { replace_pages(start, bytes) }.map_err(|source| ReleaseError::Refused { source })
    }

    /// Says whether huge pages may back the buffer. What is not to take memory should not have any: a huge page that lies
    /// partly in the buffer would be backed as a whole when a neighbour is written to.
    /// # Errors
    /// As [`Arena::advise_huge_pages`].
    pub fn advise_huge_pages(&self, huge: bool) -> Result<(), ArenaError> {
        // SAFETY: start..start + stride is whole pages of this buffer alone (carve advances by the stride).
        unsafe { advise_huge(self.start.as_ptr(), stride(self.len), huge) }
    }

    #[cfg(all(test, target_os = "linux"))]
    pub(crate) fn mapping(&self) -> &Arc<Mapping> {
        &self.mapping
    }

    /// Where the buffer's bytes are. Writing through it needs what `&mut Buffer` would give.
    pub(crate) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the range is inside a mapping that the Arc keeps alive, initialised (anonymous pages are
        // zero), and only this buffer gives access to it.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for Deref, and `&mut self` is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

/// An anonymous mapping, unmapped when the last arena or buffer of it goes.
#[derive(Debug)]
pub(crate) struct Mapping {
    pub(crate) start: NonNull<u8>,
    pub(crate) len: usize,
    /// There are more addresses than memory: see [`Arena::sparse`].
    pub(crate) is_sparse: bool,
    /// Whether a disk has pinned the pages. See [`Buffer::release_pages`] for what the lock protects.
    pub(crate) registered: Mutex<bool>,
}

// SAFETY: the mapping is memory of the process, not of a thread; access is through buffers, which are disjoint.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn anonymous(bytes: usize, is_sparse: bool) -> Result<Mapping, ArenaError> {
        let rounded = bytes.checked_next_multiple_of(sys::page_bytes());
        let Some(len) = rounded.filter(|&len| 0 < len && len <= isize::MAX as usize) else {
            return Err(ArenaError::Size { bytes });
        };
        let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let flags = if is_sparse { flags | libc::MAP_NORESERVE } else { flags };
        // SAFETY: a new anonymous mapping at an address of the system's choice replaces nothing.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, prot, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(ArenaError::Map { bytes: len, source: io::Error::last_os_error() });
        }
        let start = NonNull::new(start.cast()).expect("mmap without a fixed address never maps address zero");
        Ok(Mapping { start, len, is_sparse, registered: Mutex::new(false) })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is the one mmap returned, and no arena, buffer or disk refers to it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// Says whether huge pages may back a range. Changes no contents.
///
/// # Safety
/// `start` and `bytes` must cover whole pages of a mapping of ours.
unsafe fn advise_huge(start: *mut u8, bytes: usize, huge: bool) -> Result<(), ArenaError> {
    #[cfg(target_os = "linux")]
    {
        let advice = if huge { libc::MADV_HUGEPAGE } else { libc::MADV_NOHUGEPAGE };
        // SAFETY: the caller vouches for the range; neither advice changes contents.
        match unsafe { libc::madvise(start.cast(), bytes, advice) } {
            0 => Ok(()),
            _ => Err(ArenaError::Advise { source: io::Error::last_os_error() }),
        }
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (start, bytes, huge);
        Err(ArenaError::Advise { source: io::Error::from(io::ErrorKind::Unsupported) })
    }
}

/// Makes whole pages of an anonymous mapping read as zero and take no memory.
///
/// # Safety
/// `start` and `bytes` must cover whole pages of one anonymous private mapping of ours, and nobody may access
/// them during the call.
unsafe fn replace_pages(start: *mut u8, bytes: usize) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        // SAFETY: the caller vouches for the range. munlock of a range that is not locked does nothing;
        // MADV_DONTNEED refuses locked pages.
        let rc = unsafe {
            libc::munlock(start.cast(), bytes);
            libc::madvise(start.cast(), bytes, libc::MADV_DONTNEED)
        };
        if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
    #[cfg(not(target_os = "linux"))]
    {
        // MADV_DONTNEED is only a hint elsewhere (POSIX); fresh pages over the old ones do what it does on Linux.
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        // SAFETY: the caller vouches that the range is ours and not in use; it is replaced by the same kind.
        let mapped = unsafe { libc::mmap(start.cast(), bytes, prot, flags, -1, 0) };
        if mapped == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

/// Why an arena could not be made, locked or advised.
#[derive(Debug, thiserror::Error)]
pub enum ArenaError {
    /// The size is zero or cannot be an allocation.
    #[error("an arena of {bytes} bytes is not possible: expected 1 to {} bytes", isize::MAX)]
    Size {
        /// What was asked for.
        bytes: usize,
    },
    /// mmap(2) failed.
    #[error("cannot map {bytes} bytes of memory")]
    Map {
        /// What was asked for, in whole pages.
        bytes: usize,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// mlock(2) failed.
    #[error("cannot lock {bytes} bytes of memory (limit: {})", limit.map_or("none".into(), |l| format!("{l} bytes")))]
    Lock {
        /// What was to be locked.
        bytes: usize,
        /// `RLIMIT_MEMLOCK` in bytes, if there is one.
        limit: Option<u64>,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// madvise(2) failed.
    #[error("the system does not take the advice to use huge pages")]
    Advise {
        /// The system's reason.
        #[source]
        source: io::Error,
    },
}

/// Why a buffer's pages could not be given back.
#[derive(Debug, thiserror::Error)]
pub enum ReleaseError {
    /// A disk has the arena registered; unregister it first.
    #[error("the arena is registered with a disk, which holds its pages in memory")]
    Registered,
    /// The system refused.
    #[error("the system does not take the pages back")]
    Refused {
        /// The system's reason.
        #[source]
        source: io::Error,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_zero_aligned_disjoint_and_in_order() {
        let sizes = [1, 4096, 4097, 100_000];
        let mut arena = Arena::new(Arena::bytes_for(sizes)).unwrap();
        let mut buffers = arena.carve(sizes);
        assert_eq!(arena.remaining(), 0);
        for (buffer, size) in buffers.iter().zip(sizes) {
            assert_eq!(buffer.len(), size);
            assert_eq!(buffer.start() as usize % BUFFER_ALIGN, 0);
            assert!(buffer.iter().all(|&b| b == 0));
        }
        for (i, buffer) in buffers.iter_mut().enumerate() {
            buffer.fill(i as u8 + 1);
        }
        for (i, buffer) in buffers.iter().enumerate() {
            assert!(buffer.iter().all(|&b| b == i as u8 + 1), "buffer {i} was written through another");
        }
        assert!(buffers.windows(2).all(|w| w[0].start() < w[1].start()));
    }

    #[test]
    fn buffers_outlive_the_arena_and_move_between_threads() {
        let mut arena = Arena::new(8192).unwrap();
        let mut buffer = arena.carve([5000]).pop().unwrap();
        drop(arena);
        let sum = std::thread::spawn(move || {
            buffer.fill(2);
            buffer.iter().map(|&b| b as usize).sum::<usize>()
        });
        assert_eq!(sum.join().unwrap(), 10_000);
    }

    #[test]
    fn carving_goes_on_where_it_stopped_and_refuses_too_much() {
        let mut arena = Arena::new(3 * BUFFER_ALIGN.max(sys::page_bytes())).unwrap();
        let first = arena.carve([10]);
        let second = arena.carve([10]);
        assert_ne!(first[0].start(), second[0].start());
        let room = arena.remaining();
        let refused = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| arena.carve([room + 1])));
        assert!(refused.is_err());
        assert_eq!(arena.carve([room])[0].len(), room);
    }

    #[test]
    fn impossible_sizes_are_errors() {
        assert!(matches!(Arena::new(0), Err(ArenaError::Size { bytes: 0 })));
        assert!(matches!(Arena::new(usize::MAX), Err(ArenaError::Size { .. })));
        assert!(matches!(Arena::new(isize::MAX as usize / 4096 * 4096), Err(ArenaError::Map { .. })));
        assert_eq!(Arena::bytes_for([usize::MAX, 1]), usize::MAX);
    }

    #[test]
    fn released_pages_read_as_zero_and_leave_neighbours_alone() {
        let mut arena = Arena::new(1 << 20).unwrap();
        let mut buffers = arena.carve([10_000, 10_000, 10_000]);
        buffers.iter_mut().for_each(|b| b.fill(7));
        buffers[1].release_pages().unwrap();
        assert!(buffers[0].iter().all(|&b| b == 7));
        assert!(buffers[1].iter().all(|&b| b == 0));
        assert!(buffers[2].iter().all(|&b| b == 7));
        buffers[1].fill(9);
        assert!(buffers[1].iter().all(|&b| b == 9));
    }

    #[test]
    fn a_locked_arena_still_releases() {
        let mut arena = Arena::new(1 << 16).unwrap();
        let mut buffer = arena.carve([1 << 16]).pop().unwrap();
        match arena.lock() {
            Ok(()) => eprintln!("arena locked"),
            Err(error) => return eprintln!("locking is not permitted here, nothing tested: {error}"),
        }
        buffer.fill(1);
        buffer.release_pages().unwrap();
        assert!(buffer.iter().all(|&b| b == 0));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_registered_arena_keeps_its_pages() {
        let mut arena = Arena::new(8192).unwrap();
        let mut buffer = arena.carve([8192]).pop().unwrap();
        buffer.fill(3);
        *arena.mapping().registered.lock().unwrap() = true;
        assert!(matches!(buffer.release_pages(), Err(ReleaseError::Registered)));
        assert!(buffer.iter().all(|&b| b == 3));
    }
}
