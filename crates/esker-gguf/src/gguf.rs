//! A model: the headers of its file, or of all files of its split set.

use crate::error::OpenError;
use crate::header::Header;
use crate::metadata::Metadata;
use crate::tensor::TensorInfo;
use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};

/// Metadata and tensor directory of a model.
#[derive(Clone, Debug)]
pub struct Gguf {
    /// 2 or 3.
    pub version: u32,
    /// Key-value pairs of the (first) file, in its order.
    pub metadata: Metadata,
    /// All tensors, in directory order, file by file. [`Gguf::tensor`] looks up what was read from the file.
    pub tensors: Vec<TensorInfo>,
    /// The files, in the order of the set.
    pub files: Vec<PathBuf>,
    /// `general.alignment` of the (first) file, or 32.
    pub alignment: u64,
    /// Bytes of each file.
    file_bytes: Vec<u64>,
    by_name: HashMap<Box<str>, u32>,
}

impl Gguf {
    /// Reads the header of the file at `path`. Tensor data is not touched.
    /// # Errors
    /// If the file cannot be read, or is no usable GGUF file.
    pub fn open(path: &Path) -> Result<Gguf, OpenError> {
        let header = read_header(path)?;
        let by_name = header.tensors.iter().zip(0..).map(|(t, i)| (t.name.as_str().into(), i)).collect();
        Ok(Gguf {
            version: header.version,
            metadata: header.metadata,
            tensors: header.tensors,
            files: vec![path.to_owned()],
            alignment: header.alignment,
            file_bytes: vec![header.file_bytes],
            by_name,
        })
    }

    /// The tensor of this name.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        let &index = self.by_name.get(name)?;
        self.tensors.get(index as usize).filter(|t| t.name == name)
    }

    /// Bytes of all files together.
    pub fn total_file_bytes(&self) -> u64 {
        self.file_bytes.iter().sum()
    }
}

fn read_header(path: &Path) -> Result<Header, OpenError> {
    let io = |source| OpenError::Io { path: path.to_owned(), source };
    let file = File::open(path).map_err(io)?;
    let info = file.metadata().map_err(io)?;
    if !info.is_file() {
        return Err(OpenError::NotAFile { path: path.to_owned() });
    }
    Header::read(file, info.len()).map_err(|source| OpenError::Header { path: path.to_owned(), source })
}
