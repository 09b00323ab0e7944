//! The files that are read: at any place, in pieces of bounded size.

use super::RepackError;
use crate::output::{Output, hex};
use crate::progress::Meter;
use esker_gguf::Gguf;
use sha2::{Digest, Sha256};
use std::fs::{File, Metadata};
use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::time::SystemTime;

/// Bytes read at once: large enough for full speed from a disk, small enough to forget about.
const PIECE_BYTES: usize = 4 << 20;

/// The files of a model, open.
pub(super) struct Files {
    files: Vec<OpenFile>,
    piece: Vec<u8>,
}

struct OpenFile {
    path: PathBuf,
    file: File,
    stamp: Option<(u64, SystemTime)>,
}

/// Bytes of a file of the model.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    /// Index in [`Gguf::files`].
    pub(super) file: usize,
    pub(super) offset: u64,
    pub(super) len: u64,
}

impl Files {
    pub(super) fn open(gguf: &Gguf) -> Result<Files, RepackError> {
        let open = |path: &PathBuf| {
            let file = File::open(path).map_err(|source| RepackError::Read {
                path: path.clone(),
                offset: 0,
                len: 0,
                source,
            })?;
            Ok(OpenFile { path: path.clone(), stamp: stamp(file.metadata()), file })
        };
        let files = gguf.files.iter().map(open).collect::<Result<Vec<_>, RepackError>>()?;
        Ok(Files { files, piece: Vec::new() })
    }

    /// Hands the bytes of `span` to `use_piece`, in pieces.
    pub(super) fn read(
        &mut self,
        span: Span,
        use_piece: &mut dyn FnMut(&[u8]) -> Result<(), RepackError>,
    ) -> Result<(), RepackError> {
        let OpenFile { path, file, .. } = &mut self.files[span.file];
        let error = |offset, len, source| RepackError::Read { path: path.clone(), offset, len, source };
        file.seek(SeekFrom::Start(span.offset)).map_err(|source| error(span.offset, span.len, source))?;
        let mut done = 0;
        while done < span.len {
            let len = (span.len - done).min(PIECE_BYTES as u64);
            self.piece.resize(PIECE_BYTES.min(self.piece.len().max(len as usize)), 0);
            let piece = &mut self.piece[..len as usize];
            file.read_exact(piece).map_err(|source| error(span.offset + done, len, source))?;
            use_piece(piece)?;
            done += len;
        }
        Ok(())
    }

    /// Copies the bytes of `span` to the end of `output`.
    pub(super) fn copy(
        &mut self,
        span: Span,
        output: &mut Output,
        meter: &mut Meter<'_>,
    ) -> Result<(), RepackError> {
        self.read(span, &mut |piece| {
            output.write(piece)?;
            go_on(meter, piece.len() as u64)
        })
    }

    /// SHA-256 of all files, one after the other, in hexadecimal.
    pub(super) fn sha256(&mut self, gguf: &Gguf, meter: &mut Meter<'_>) -> Result<String, RepackError> {
        let mut hash = Sha256::new();
        for file in 0..self.files.len() {
            let len = gguf.file_bytes(file).unwrap_or(0);
            self.read(Span { file, offset: 0, len }, &mut |piece| {
                hash.update(piece);
                go_on(meter, piece.len() as u64)
            })?;
        }
        Ok(hex(&hash.finalize()))
    }

    /// True if all bytes of `span` are zero.
    pub(super) fn is_zero(&mut self, span: Span) -> Result<bool, RepackError> {
        let mut zero = true;
        self.read(span, &mut |piece| {
            zero &= piece.iter().all(|&b| b == 0);
            Ok(())
        })?;
        Ok(zero)
    }

    /// Refuses if a file has another length or time of change than when it was opened.
    pub(super) fn check_unchanged(&self) -> Result<(), RepackError> {
        match self.files.iter().find(|f| stamp(std::fs::metadata(&f.path)) != f.stamp) {
            Some(file) => Err(RepackError::Changed { path: file.path.clone() }),
            None => Ok(()),
        }
    }
}

/// `None` where the system has no such time: then length and time are not compared.
fn stamp(metadata: std::io::Result<Metadata>) -> Option<(u64, SystemTime)> {
    let metadata = metadata.ok()?;
    Some((metadata.len(), metadata.modified().ok()?))
}

pub(super) fn go_on(meter: &mut Meter<'_>, bytes: u64) -> Result<(), RepackError> {
    if meter.add(bytes).is_break() { Err(RepackError::Cancelled) } else { Ok(()) }
}
