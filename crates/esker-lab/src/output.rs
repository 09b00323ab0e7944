//! A file that appears at its path only when it is complete, written from front to back.

use sha2::{Digest, Sha256};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;
use thiserror::Error;

/// What to do with a file that is where the result goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfExists {
    /// Refuse, before anything is read.
    Refuse,
    /// Put the result in its place, when the result is complete.
    Replace,
}

/// Why a result cannot be written. The cause is in `source()`.
#[derive(Debug, Error)]
#[allow(missing_docs)] // The fields are what the messages say.
pub enum OutputError {
    /// Something is there.
    #[error("`{}` exists", .path.display())]
    Exists { path: PathBuf },
    /// The result would replace what it is made from.
    #[error("`{}` is the file that is read", .path.display())]
    SameFile { path: PathBuf },
    /// The file system is too full.
    #[error(
        "`{}` needs {needed} bytes, and its file system has {available} left", .path.display()
    )]
    NoSpace { path: PathBuf, needed: u64, available: u64 },
    /// The system failed to write.
    #[error("cannot write `{}`", .path.display())]
    Io { path: PathBuf, source: io::Error },
}

/// A temporary file beside the target. Dropped before [`Output::commit`], it leaves nothing; a process killed before may
/// leave a file ending in `.tmp`.
pub(crate) struct Output {
    path: PathBuf,
    if_exists: IfExists,
    writer: BufWriter<NamedTempFile>,
    at: u64,
    hash: Option<Sha256>,
}

impl Output {
    /// For a result of `bytes` bytes made from `sources`; with `hash`, all that is written is hashed.
    pub(crate) fn create(
        path: &Path,
        bytes: u64,
        sources: &[PathBuf],
        if_exists: IfExists,
        hash: bool,
    ) -> Result<Output, OutputError> {
        check_target(path, sources, if_exists)?;
        let io = |source| OutputError::Io { path: path.to_owned(), source };
        let available = fs4::available_space(directory(path)).map_err(io)?;
        if bytes > available {
            return Err(OutputError::NoSpace { path: path.to_owned(), needed: bytes, available });
        }
        let temporary = create_beside(path).map_err(io)?;
        let writer = BufWriter::with_capacity(1 << 20, temporary);
        Ok(Output { path: path.to_owned(), if_exists, writer, at: 0, hash: hash.then(Sha256::new) })
    }

    pub(crate) fn write(&mut self, data: &[u8]) -> Result<(), OutputError> {
        let result = self.writer.write_all(data);
        self.io(result)?;
        if let Some(hash) = &mut self.hash {
            hash.update(data);
        }
        self.at += data.len() as u64;
        Ok(())
    }

    /// Writes zeros up to byte `offset`.
    /// # Panics
    /// If that is behind what is written.
    pub(crate) fn pad_to(&mut self, offset: u64) -> Result<(), OutputError> {
        const ZEROS: &[u8] = &[0; 4096];
        let mut left = offset.checked_sub(self.at).expect("the layout is in ascending order");
        while left > 0 {
            let step = left.min(ZEROS.len() as u64);
            self.write(&ZEROS[..step as usize])?;
            left -= step;
        }
        Ok(())
    }

    /// Bytes written so far.
    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    /// Replaces the first bytes of the file, which have been written; not for a hashed file.
    pub(crate) fn rewrite_start(&mut self, data: &[u8]) -> Result<(), OutputError> {
        assert!(self.hash.is_none() && data.len() as u64 <= self.at);
        let mut rewrite = || {
            self.writer.seek(SeekFrom::Start(0))?;
            self.writer.write_all(data)?;
            self.writer.seek(SeekFrom::Start(self.at)).map(drop)
        };
        let result = rewrite();
        self.io(result)
    }

    /// SHA-256 of all that was written, in hexadecimal; `None` if it was not asked for.
    pub(crate) fn sha256(&self) -> Option<String> {
        self.hash.clone().map(|hash| hex(&hash.finalize()))
    }

    /// Puts the file on disk, then in its place.
    pub(crate) fn commit(self) -> Result<(), OutputError> {
        let Output { path, if_exists, writer, .. } = self;
        let io = |source| OutputError::Io { path: path.clone(), source };
        let temporary = writer.into_inner().map_err(io::IntoInnerError::into_error).map_err(io)?;
        temporary.as_file().sync_all().map_err(io)?;
        match if_exists {
            IfExists::Replace => temporary.persist(&path).map_err(|error| io(error.error))?,
            IfExists::Refuse => {
                temporary.persist_noclobber(&path).map_err(|error| match error.error.kind() {
                    io::ErrorKind::AlreadyExists => OutputError::Exists { path: path.clone() },
                    _ => io(error.error),
                })?
            }
        };
        if cfg!(unix) {
            // Makes the rename itself durable.
            File::open(directory(&path)).and_then(|dir| dir.sync_all()).map_err(io)?;
        }
        Ok(())
    }

    fn io<T>(&self, result: io::Result<T>) -> Result<T, OutputError> {
        result.map_err(|source| OutputError::Io { path: self.path.clone(), source })
    }
}

/// Refuses a target that is a source (also by another name), that exists, or that no file can take the place of. To be
/// called before hours of reading.
pub(crate) fn check_target(path: &Path, sources: &[PathBuf], if_exists: IfExists) -> Result<(), OutputError> {
    let io = |source| OutputError::Io { path: path.to_owned(), source };
    if path.is_dir() {
        return Err(io(io::ErrorKind::IsADirectory.into()));
    }
    if std::fs::symlink_metadata(path).is_err() {
        return Ok(());
    }
    let real = std::fs::canonicalize(path).ok();
    if sources.iter().any(|source| real.is_some() && std::fs::canonicalize(source).ok() == real) {
        return Err(OutputError::SameFile { path: path.to_owned() });
    }
    match if_exists {
        IfExists::Refuse => Err(OutputError::Exists { path: path.to_owned() }),
        IfExists::Replace => Ok(()),
    }
}

fn create_beside(path: &Path) -> io::Result<NamedTempFile> {
    let mut prefix = OsString::from(".");
    prefix.push(path.file_name().ok_or(io::ErrorKind::InvalidInput)?);
    prefix.push(".");
    let mut builder = tempfile::Builder::new();
    builder.prefix(&prefix).suffix(".tmp");
    // Temporary files are private by default, but this one becomes a file like any other; the umask applies.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    builder.tempfile_in(directory(path))
}

fn directory(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(dir).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn nothing_is_there_before_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m");
        let create = || Output::create(&path, 10, &[], IfExists::Refuse, true).unwrap();
        let mut output = create();
        output.write(b"abc").unwrap();
        output.pad_to(5000).unwrap();
        assert!(!path.exists());
        drop(output);
        assert!(names(dir.path()).is_empty());

        let mut output = create();
        output.write(b"abc").unwrap();
        let sha256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(output.sha256().unwrap(), sha256, "SHA-256 of `abc` by FIPS 180-2");
        output.commit().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"abc");
    }

    #[test]
    fn the_start_can_be_written_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m");
        let mut output = Output::create(&path, 0, &[], IfExists::Refuse, false).unwrap();
        output.write(b"0000rest").unwrap();
        output.rewrite_start(b"1234").unwrap();
        output.write(b"end").unwrap();
        assert_eq!((output.at(), output.sha256()), (11, None));
        output.commit().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"1234restend");
    }

    #[test]
    fn targets_that_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m");
        std::fs::write(&path, "before").unwrap();
        let other = dir.path().join(".").join("m");
        let create = |path: &Path, bytes, sources: &[PathBuf], if_exists| {
            Output::create(path, bytes, sources, if_exists, false).err().map(|e| e.to_string())
        };
        let shown = path.display();
        let sources = [other];
        assert_eq!(create(&path, 1, &[], IfExists::Refuse), Some(format!("`{shown}` exists")));
        assert_eq!(
            create(&path, 1, &sources, IfExists::Replace),
            Some(format!("`{shown}` is the file that is read"))
        );
        assert!(
            create(&path, u64::MAX, &[], IfExists::Replace)
                .unwrap()
                .contains("needs 18446744073709551615 bytes")
        );
        assert!(create(dir.path(), 1, &[], IfExists::Replace).unwrap().contains("cannot write"));
        assert_eq!(create(&path, 1, &[], IfExists::Replace), None);

        // Something else may have come while the result was being written.
        let late = dir.path().join("late");
        let output = Output::create(&late, 1, &[], IfExists::Refuse, false).unwrap();
        std::fs::write(&late, "theirs").unwrap();
        assert!(matches!(output.commit(), Err(OutputError::Exists { .. })));
        assert_eq!(std::fs::read(&late).unwrap(), b"theirs");
        assert_eq!(names(dir.path()).len(), 2, "temporary files are gone");
    }
}
