//! A reader that knows its place and what is left, and never makes room for bytes that it has not seen.

use crate::error::{ParseError, Place};
use crate::limits::HEADER_BYTES_MAX;
use std::io::{self, Read};

/// Memory grows by at most this much ahead of the data.
const CHUNK_BYTES: usize = 64 << 10;

pub(crate) struct Cursor<R> {
    reader: R,
    offset: u64,
    len: u64,
}

/// What went wrong at a byte; [`Fault::at`] adds what was being read there.
pub(crate) enum Fault {
    Truncated { offset: u64, needed: u64, left: u64 },
    HeaderTooBig { offset: u64, needed: u64 },
    Io { offset: u64, source: io::Error },
}

impl Fault {
    pub(crate) fn at(self, place: Place) -> ParseError {
        match self {
            Fault::Truncated { offset, needed, left } => {
                ParseError::Truncated { place, offset, needed, left }
            }
            Fault::HeaderTooBig { offset, needed } => {
                ParseError::HeaderTooBig { place, offset, needed, max: HEADER_BYTES_MAX }
            }
            Fault::Io { offset, source } => ParseError::Io { place, offset, source },
        }
    }
}

impl<R: Read> Cursor<R> {
    /// `len`: bytes that the reader has; it should be buffered.
    pub(crate) fn new(reader: R, len: u64) -> Cursor<R> {
        Cursor { reader, offset: 0, len }
    }

    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Refuses unless `n` more bytes are there and within the limit, without reading them.
    pub(crate) fn ensure(&self, n: u64) -> Result<(), Fault> {
        let left = self.len.saturating_sub(self.offset);
        if n > left {
            return Err(Fault::Truncated { offset: self.offset, needed: n, left });
        }
        if n > HEADER_BYTES_MAX - self.offset {
            return Err(Fault::HeaderTooBig { offset: self.offset, needed: n });
        }
        Ok(())
    }

    fn fill(&mut self, out: &mut [u8]) -> Result<(), Fault> {
        self.reader.read_exact(out).map_err(|source| match source.kind() {
            // The file is shorter than it was when its length was taken.
            io::ErrorKind::UnexpectedEof => {
                Fault::Truncated { offset: self.offset, needed: out.len() as u64, left: 0 }
            }
            _ => Fault::Io { offset: self.offset, source },
        })?;
        self.offset += out.len() as u64;
        Ok(())
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        self.ensure(N as u64)?;
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Fault> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Fault> {
        self.array().map(u64::from_le_bytes)
    }

    /// Appends `n` bytes to `out`.
    pub(crate) fn append(&mut self, n: u64, out: &mut Vec<u8>) -> Result<(), Fault> {
        self.ensure(n)?;
        let mut left = n as usize; // At most HEADER_BYTES_MAX.
        while left > 0 {
            let step = left.min(CHUNK_BYTES);
            let start = out.len();
            out.resize(start + step, 0);
            self.fill(&mut out[start..])?;
            left -= step;
        }
        Ok(())
    }

    /// `count` numbers of `N` bytes each.
    pub(crate) fn numbers<T, const N: usize>(
        &mut self,
        count: u64,
        from_le_bytes: fn([u8; N]) -> T,
    ) -> Result<Vec<T>, Fault> {
        self.ensure(count.saturating_mul(N as u64))?;
        let mut left = count as usize; // At most HEADER_BYTES_MAX / N.
        let mut values = Vec::new();
        let mut chunk = [0; 4096];
        while left > 0 {
            let step = left.min(chunk.len() / N);
            let bytes = &mut chunk[..step * N];
            self.fill(bytes)?;
            let (elements, _) = bytes.as_chunks::<N>();
            values.extend(elements.iter().map(|&e| from_le_bytes(e)));
            left -= step;
        }
        values.shrink_to_fit();
        Ok(values)
    }
}
