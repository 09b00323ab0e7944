//! The file on disk: a temporary beside the target until it is complete.

use super::{Layout, WriteError};
use crate::metadata::Metadata;
use crate::split::Part;
use crate::tensor::{TensorInfo, TensorSpec};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// Writes one GGUF file. What was at the path stays there until [`GgufWriter::finish`] has everything on disk;
/// a writer dropped before leaves nothing behind. A process killed before may leave a file ending in `.tmp`.
pub struct GgufWriter {
    path: PathBuf,
    output: BufWriter<NamedTempFile>,
    layout: Layout,
    /// The tensor that is being written.
    next: usize,
    /// Bytes of it that are written.
    written: u64,
    failed: bool,
}

impl GgufWriter {
    /// Creates the temporary file and writes the header. The layout is that of [`Layout::new`].
    /// # Errors
    /// As [`Layout::new`]; if `path` is a directory, or its directory cannot be written; if the metadata is that
    /// of a part of a split set and `path` is not named so.
    pub fn new(
        path: &Path,
        metadata: &Metadata,
        tensors: Vec<TensorSpec>,
        alignment: u64,
    ) -> Result<GgufWriter, WriteError> {
        check_part_name(path, metadata)?;
        let layout = Layout::new(metadata, tensors, alignment)?;
        let temporary = create(path).map_err(|source| WriteError::Io { path: path.to_owned(), source })?;
        let output = BufWriter::with_capacity(1 << 20, temporary);
        let mut writer =
            GgufWriter { path: path.to_owned(), output, layout, next: 0, written: 0, failed: false };
        let result = writer.output.write_all(writer.layout.header());
        writer.check(result)?;
        Ok(writer)
    }

    /// Where everything goes.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The tensor whose data comes next, or is not complete; `None` when all are.
    pub fn next_tensor(&self) -> Option<&TensorInfo> {
        self.layout.tensors().get(self.next)
    }

    /// Writes all data of the next tensor.
    /// # Errors
    /// If another tensor comes next, the size is wrong, or the disk fails.
    pub fn write_tensor(&mut self, name: &str, data: &[u8]) -> Result<(), WriteError> {
        let tensor = self.expect(name)?;
        let (given, expected) = (data.len() as u64 + self.written, tensor.size);
        if given != expected {
            return Err(WriteError::Size { tensor: name.to_owned(), given, expected });
        }
        self.write_part(name, data)
    }

    /// Writes the next bytes of the next tensor, which may come in any number of parts.
    /// # Errors
    /// If another tensor comes next, it has less bytes left, or the disk fails.
    pub fn write_part(&mut self, name: &str, data: &[u8]) -> Result<(), WriteError> {
        let tensor = self.expect(name)?;
        let (offset, size) = (tensor.offset, tensor.size);
        let given = self.written + data.len() as u64;
        if given > size {
            return Err(WriteError::Size { tensor: name.to_owned(), given, expected: size });
        }
        let result = self.output.write_all(data);
        self.check(result)?;
        self.written = given;
        if given == size {
            self.next += 1;
            self.written = 0;
            let end = self.next_tensor().map_or(self.layout.file_bytes(), |next| next.offset);
            let result = pad(&mut self.output, end - (offset + size));
            self.check(result)?;
        }
        Ok(())
    }

    /// Puts the file on disk, then in the place of `path` (of a symbolic link: the link itself).
    /// # Errors
    /// If data is missing, or the disk fails: then nothing has changed at `path`, unless it is only the directory
    /// that could not be synced.
    pub fn finish(mut self) -> Result<(), WriteError> {
        if self.failed {
            return Err(WriteError::Failed { path: self.path });
        }
        if let Some(tensor) = self.next_tensor() {
            let n_missing = self.layout.tensors().len() - self.next;
            return Err(WriteError::Incomplete { tensor: tensor.name.clone(), n_missing });
        }
        let result = self.output.flush();
        self.check(result)?;
        let GgufWriter { path, output, .. } = self;
        let put = || {
            let temporary = output.into_inner().map_err(io::IntoInnerError::into_error)?;
            temporary.as_file().sync_all()?;
            temporary.persist(&path).map_err(|error| error.error)?;
            sync_directory(&path)
        };
        put().map_err(|source| WriteError::Io { path: path.clone(), source })
    }

    fn expect(&self, name: &str) -> Result<&TensorInfo, WriteError> {
        if self.failed {
            return Err(WriteError::Failed { path: self.path.clone() });
        }
        match self.next_tensor() {
            Some(tensor) if tensor.name == name => Ok(tensor),
            Some(tensor) => {
                Err(WriteError::WrongTensor { given: name.to_owned(), expected: tensor.name.clone() })
            }
            None => Err(WriteError::NoMoreTensors { given: name.to_owned() }),
        }
    }

    /// After a failed write nobody knows how much of it is in the file, so the writer is done for.
    fn check(&mut self, result: io::Result<()>) -> Result<(), WriteError> {
        result.map_err(|source| {
            self.failed = true;
            WriteError::Io { path: self.path.clone(), source }
        })
    }
}

/// The reader finds the other parts by name.
fn check_part_name(path: &Path, metadata: &Metadata) -> Result<(), WriteError> {
    match Part::of(metadata).map_err(|source| WriteError::SplitKey { source })? {
        Some(part) if part.sibling(path, part.no).is_none() => Err(WriteError::PartName {
            path: path.to_owned(),
            no: part.no,
            count: part.count,
            suffix: part.suffix(),
        }),
        _ => Ok(()),
    }
}

fn create(path: &Path) -> io::Result<NamedTempFile> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    if path.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into()); // Now, not after an hour of writing.
    }
    let mut prefix = std::ffi::OsString::from(".");
    prefix.push(name);
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

/// Makes the rename itself durable.
fn sync_directory(path: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(directory(path))?.sync_all() } else { Ok(()) }
}

/// The alignment may be a huge page, so the zeros come in pieces.
fn pad(output: &mut impl Write, mut bytes: u64) -> io::Result<()> {
    let zeros = [0; 4096];
    while bytes > 0 {
        let step = bytes.min(zeros.len() as u64);
        output.write_all(&zeros[..step as usize])?;
        bytes -= step;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use esker_quant::GgmlType;

    /// The temporary file is exchanged for one that is open for reading only: every write to it fails.
    #[test]
    fn after_a_failed_write_nothing_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m.gguf");
        std::fs::write(&path, "before").unwrap();
        let specs = vec![TensorSpec { name: "a".to_owned(), ty: GgmlType::I8, shape: vec![4] }];
        let writer = || {
            let mut writer = GgufWriter::new(&path, &Metadata::new(), specs.clone(), 32).unwrap();
            let place = tempfile::Builder::new().tempfile_in(dir.path()).unwrap().into_temp_path();
            let read_only = NamedTempFile::from_parts(File::open(&place).unwrap(), place);
            writer.output = BufWriter::with_capacity(3, read_only);
            writer
        };
        let failed = format!("`{}` cannot be finished: an earlier write failed", path.display());

        let mut broken = writer();
        let error = broken.write_tensor("a", &[0; 4]).unwrap_err();
        assert_eq!(error.to_string(), format!("cannot write `{}`", path.display()));
        assert_eq!(broken.write_tensor("a", &[0; 4]).unwrap_err().to_string(), failed);
        assert_eq!(broken.finish().unwrap_err().to_string(), failed);

        let mut late = writer();
        late.output = BufWriter::with_capacity(1 << 10, late.output.into_inner().unwrap());
        late.write_tensor("a", &[0; 4]).unwrap();
        let error = late.finish().unwrap_err();
        assert!(matches!(error, WriteError::Io { .. }), "what is buffered fails at the end: {error}");

        assert_eq!(std::fs::read(&path).unwrap(), b"before");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "temporary files are gone");
    }
}
