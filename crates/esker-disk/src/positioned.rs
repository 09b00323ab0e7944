//! Reads that block the calling thread until the bytes are there: pread(2), repeated until it has given enough.
//!
//! `transfer` carries out a queued part (worker pool); `Bounce::read` serves any address and alignment.

use std::io;

use crate::file::OpenFile;
use crate::queue::{Part, Progress};
use crate::{Arena, ArenaError, Buffer, ReadError, aligned_span, sys};

/// Most bytes of one system call; the kernel's own limit is just below 2 GiB. A multiple of any alignment.
pub(crate) const TRANSFER_MAX: usize = 1 << 30;

/// Reads a part. Returns the bytes transferred.
///
/// # Safety
/// `part` must come from `Queue::next` and not have been finished: its range of the buffer is the caller's.
pub(crate) unsafe fn transfer(file: &OpenFile, part: &Part) -> Result<usize, ReadError> {
    let mut done = 0;
    loop {
        let len = (part.span.len - done).min(TRANSFER_MAX);
        // SAFETY: done < span.len, so the range is inside the part's, which the caller vouches for.
        let read = unsafe { pread(file, part.into.wrapping_add(done), len, part.span.offset + done as u64) };
        let got = read.map_err(|source| file.io_error(part.offset, part.len, source))?;
        match part.progress(done, got) {
            Progress::Again(resume) => done = resume,
            Progress::Short(got) => return Err(file.short(part.offset, part.len, got)),
            Progress::Complete => {
                file.check_content()?;
                file.forget_cached(part.span.offset, part.span.len);
                return Ok(done + got);
            }
        }
    }
}

/// pread that goes on after a signal.
///
/// # Safety
/// As for `sys::pread`.
unsafe fn pread(file: &OpenFile, into: *mut u8, len: usize, offset: u64) -> io::Result<usize> {
    loop {
        // SAFETY: the caller vouches for `into` and `len`.
        match unsafe { sys::pread(file.fd(), into, len, offset) } {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            result => return result,
        }
    }
}

/// Size of the aligned buffer through which unaligned direct reads go: large enough that the device is busy
/// with several requests of its own splitting, small enough not to matter in a memory plan.
pub const BOUNCE_BYTES: usize = 2 << 20;

/// Reads any range of a file to any address.
#[derive(Debug)]
pub(crate) struct Bounce {
    buffer: Buffer,
}

impl Bounce {
    pub(crate) fn new() -> Result<Bounce, ArenaError> {
        let mut arena = Arena::new(BOUNCE_BYTES)?;
        // One page instead of 512 for the kernel to look up per read. Advice, where it is taken.
        let _ = arena.advise_huge_pages();
        Ok(Bounce { buffer: arena.carve([BOUNCE_BYTES]).remove(0) })
    }

    /// Fills `into` from `offset` on. Where address and offset are aligned alike, the blocks in between go
    /// straight to `into`; the rest is copied.
    pub(crate) fn read(&mut self, file: &OpenFile, offset: u64, into: &mut [u8]) -> Result<(), ReadError> {
        if let Some(error) = file.beyond_end(offset, into.len()) {
            return Err(error);
        }
        let (align, total) = (file.align(), into.len());
        let mut done = 0;
        while done < total {
            let at = offset + done as u64;
            let rest = &mut into[done..];
            let misaligned = (at % align as u64) as usize;
            let blocks = rest.len() - rest.len() % align;
            let got = if misaligned == 0 && blocks > 0 && (rest.as_ptr() as usize).is_multiple_of(align) {
                let len = blocks.min(TRANSFER_MAX);
                // SAFETY: `rest` is borrowed mutably and at least `len` long.
                unsafe { pread(file, rest.as_mut_ptr(), len, at) }
            } else {
                // Only up to the next block if the blocks after it can go straight to their place.
                let alike = rest.as_ptr() as usize % align == misaligned;
                let wanted = if alike && misaligned > 0 { align - misaligned } else { rest.len() };
                let wanted = wanted.min(rest.len());
                self.read_blocks(file, at, &mut rest[..wanted])
            };
            match got.map_err(|source| file.io_error(offset, total, source))? {
                0 => return Err(file.short(offset, total, done)),
                got => done += got,
            }
        }
        file.check_content()?;
        file.forget_cached(offset, total);
        Ok(())
    }

    /// One read of whole blocks through the buffer; returns how many bytes of `into` it filled.
    fn read_blocks(&mut self, file: &OpenFile, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let room = BOUNCE_BYTES - file.align();
        let wanted = into.len().min(room);
        let span = aligned_span(offset, wanted, file.align());
        // SAFETY: span.len <= wanted + alignment rounded to blocks <= BOUNCE_BYTES, asserted by the slice.
        let got = unsafe { pread(file, self.buffer[..span.len].as_mut_ptr(), span.len, span.offset)? };
        let usable = got.saturating_sub(span.skip).min(wanted);
        into[..usable].copy_from_slice(&self.buffer[span.skip..][..usable]);
        Ok(usable)
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_the_system_names_file_and_range() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("f"), [0; 4096]).unwrap();
        let unreadable = std::fs::File::options().write(true).open(dir.path().join("f")).unwrap();
        let file = OpenFile::pretend(unreadable, 4096, 512);
        let error = Bounce::new().unwrap().read(&file, 1000, &mut [0; 24]).unwrap_err();
        assert_eq!(error.to_string(), "cannot read 24 bytes at offset 1000 of `pretended`");
        assert!(matches!(error, ReadError::Io { source, .. } if source.raw_os_error() == Some(libc::EBADF)));
    }

    #[test]
    fn every_mix_of_alignments_reads_the_same_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let contents: Vec<u8> = (0..50_000u32).map(|i| (i * 13 / 11) as u8).collect();
        std::fs::write(dir.path().join("f"), &contents).unwrap();
        let file = OpenFile::open(&dir.path().join("f"), true).unwrap();
        let mut bounce = Bounce::new().unwrap();
        let mut buffer = Arena::new(64 << 10).unwrap().carve([64 << 10]).remove(0);
        for offset in [0, 1, 511, 512, 4096, 5000, 49_999] {
            for shift in [0, 1, 511, 512, 904] {
                for len in [1, 511, 512, 513, 4096, 20_000] {
                    let len = len.min(contents.len() - offset);
                    bounce.read(&file, offset as u64, &mut buffer[shift..shift + len]).unwrap();
                    let got = &buffer[shift..shift + len];
                    assert!(got == &contents[offset..offset + len], "{len} at {offset}, shifted {shift}");
                }
            }
        }
    }
}
