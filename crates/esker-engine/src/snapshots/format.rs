//! What is in the file of a snapshot's node. All numbers are little-endian.
//!
//! Header: magic, identity, key, parent, start, number of tokens, bytes of the positions and of the end, whether there is
//! an end, checksums of both, the tokens, and a checksum of all that. Then the positions, then the end, and nothing more.
//! Checksums are XXH3-64: they are there to notice damage, not a forger.

use super::Identity;
use super::tree::Key;
use std::fs::File;
use std::hash::Hasher;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use twox_hash::{XxHash3_64, xxhash3_64};

const MAGIC: [u8; 8] = *b"eskersn1";

/// Bytes before the tokens.
const FIXED: usize = 8 + 3 * 16 + 4 * 8 + 8 + 2 * 8;

/// Tokens that a node can have: far more than is ever written.
const TOKENS_MAX: u64 = 1 << 20;

/// A file is not what it should be.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FormatError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("the {0} is damaged")]
    Damaged(&'static str),
}

/// What a file says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(super) identity: Identity,
    pub(super) key: Key,
    pub(super) parent: Key,
    pub(super) start: usize,
    pub(super) tokens: Vec<u32>,
    pub(super) positions_bytes: u64,
    pub(super) end_bytes: u64,
    pub(super) has_end: bool,
    pub(super) positions_sum: u64,
    pub(super) end_sum: u64,
    /// Of the whole file.
    pub(super) file_bytes: u64,
}

/// Bytes of a file.
pub(super) fn file_bytes(n_tokens: usize, positions: usize, end: usize) -> u64 {
    header_bytes(n_tokens) + positions as u64 + end as u64
}

fn header_bytes(n_tokens: usize) -> u64 {
    (FIXED + 4 * n_tokens + 8) as u64
}

impl Header {
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(header_bytes(self.tokens.len()) as usize);
        out.extend_from_slice(&MAGIC);
        for hash in [self.identity.0, self.key.0, self.parent.0] {
            out.extend_from_slice(&hash.to_le_bytes());
        }
        let counts = [self.start as u64, self.tokens.len() as u64, self.positions_bytes, self.end_bytes];
        for n in counts.into_iter().chain([u64::from(self.has_end), self.positions_sum, self.end_sum]) {
            out.extend_from_slice(&n.to_le_bytes());
        }
        for token in &self.tokens {
            out.extend_from_slice(&token.to_le_bytes());
        }
        let sum = xxhash3_64::Hasher::oneshot(&out);
        out.extend_from_slice(&sum.to_le_bytes());
        out
    }

    /// Reads the header and checks the size of the file; what follows the header is not read.
    pub(super) fn read(file: &mut File) -> Result<Header, FormatError> {
        let file_bytes = file.metadata()?.len();
        let damaged = || FormatError::Damaged("header");
        let mut fixed = [0; FIXED];
        file.read_exact(&mut fixed)?;
        let mut rest = &fixed[..];
        let mut take = |n: usize| {
            let (first, after) = rest.split_at(n);
            rest = after;
            first
        };
        if take(8) != MAGIC {
            return Err(damaged());
        }
        let mut hash = || u128::from_le_bytes(take(16).try_into().expect("16 bytes"));
        let (identity, key, parent) = (Identity(hash()), Key(hash()), Key(hash()));
        let mut number = || u64::from_le_bytes(take(8).try_into().expect("8 bytes"));
        let (start, n_tokens, positions_bytes, end_bytes) = (number(), number(), number(), number());
        let (has_end, positions_sum, end_sum) = (number(), number(), number());
        let size = (n_tokens <= TOKENS_MAX)
            .then(|| header_bytes(n_tokens as usize).checked_add(positions_bytes)?.checked_add(end_bytes))
            .flatten();
        if size != Some(file_bytes) || n_tokens == 0 || has_end > 1 || start > 1 << 40 {
            return Err(damaged());
        }
        let mut tokens = vec![0; 4 * n_tokens as usize];
        file.read_exact(&mut tokens)?;
        let mut sum = [0; 8];
        file.read_exact(&mut sum)?;
        let mut hasher = XxHash3_64::new();
        hasher.write(&fixed);
        hasher.write(&tokens);
        if hasher.finish() != u64::from_le_bytes(sum) {
            return Err(damaged());
        }
        let token = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().expect("4 bytes"));
        Ok(Header {
            identity,
            key,
            parent,
            start: start as usize,
            tokens: tokens.chunks_exact(4).map(token).collect(),
            positions_bytes,
            end_bytes,
            has_end: has_end == 1,
            positions_sum,
            end_sum,
            file_bytes,
        })
    }
}

/// What a file is made from.
pub(super) struct Contents<'a> {
    pub(super) identity: Identity,
    pub(super) key: Key,
    pub(super) parent: Key,
    pub(super) start: usize,
    pub(super) tokens: &'a [u32],
    pub(super) positions: &'a [u8],
    pub(super) end: Option<&'a [u8]>,
}

/// Writes a file to `temporary` and, once it is on the disk, gives it its name.
///
/// A process killed before leaves the temporary file or none; one killed later leaves the whole file.
pub(super) fn write(contents: &Contents<'_>, temporary: &Path, path: &Path) -> io::Result<()> {
    let end = contents.end.unwrap_or(&[]);
    let header = Header {
        identity: contents.identity,
        key: contents.key,
        parent: contents.parent,
        start: contents.start,
        tokens: contents.tokens.to_vec(),
        positions_bytes: contents.positions.len() as u64,
        end_bytes: end.len() as u64,
        has_end: contents.end.is_some(),
        positions_sum: xxhash3_64::Hasher::oneshot(contents.positions),
        end_sum: xxhash3_64::Hasher::oneshot(end),
        file_bytes: 0,
    };
    let mut options = File::options();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    {
        // Conversations are nobody else's business.
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600);
    }
    let mut file = options.open(temporary)?;
    let written = (|| {
        file.write_all(&header.encode())?;
        file.write_all(contents.positions)?;
        file.write_all(end)?;
        file.sync_all()?;
        std::fs::rename(temporary, path)?;
        if let (true, Some(folder)) = (cfg!(unix), path.parent()) {
            File::open(folder)?.sync_all()?;
        }
        Ok(())
    })();
    if written.is_err() {
        // The first error is the one to tell.
        let _ = std::fs::remove_file(temporary);
    }
    written
}

/// Reads one part of a file, piece by piece.
pub(crate) struct PartReader {
    file: File,
    left: u64,
    hasher: XxHash3_64,
    sum: u64,
    error: Option<FormatError>,
}

impl PartReader {
    /// The positions of the node `key`, or its end.
    pub(super) fn open(
        path: &Path,
        identity: Identity,
        key: Key,
        is_end: bool,
    ) -> Result<PartReader, FormatError> {
        let mut file = File::open(path)?;
        let header = Header::read(&mut file)?;
        if (header.identity, header.key) != (identity, key) || (is_end && !header.has_end) {
            return Err(FormatError::Damaged("header"));
        }
        let (left, sum) = match is_end {
            false => (header.positions_bytes, header.positions_sum),
            true => (header.end_bytes, header.end_sum),
        };
        if is_end {
            file.seek(SeekFrom::Start(header.file_bytes - header.end_bytes))?;
        }
        Ok(PartReader { file, left, hasher: XxHash3_64::new(), sum, error: None })
    }

    /// Fills `piece`. After an error it is left as it is; [`finish`](Self::finish) tells.
    pub(super) fn read(&mut self, piece: &mut [u8]) {
        if self.error.is_some() {
            return;
        }
        match self.left.checked_sub(piece.len() as u64) {
            Some(left) => {
                self.left = left;
                match self.file.read_exact(piece) {
                    Ok(()) => self.hasher.write(piece),
                    Err(error) => self.error = Some(error.into()),
                }
            }
            None => self.error = Some(FormatError::Damaged("size")),
        }
    }

    /// Whether what was read is what was written.
    pub(super) fn finish(self) -> Result<(), FormatError> {
        match self.error {
            Some(error) => Err(error),
            None if self.left > 0 => Err(FormatError::Damaged("size")),
            None if self.hasher.finish() != self.sum => Err(FormatError::Damaged("contents")),
            None => Ok(()),
        }
    }
}
