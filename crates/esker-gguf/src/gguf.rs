//! A model: the headers of its file, or of all files of its split set.

use crate::error::{OpenError, ReadTensorError};
use crate::header::Header;
use crate::limits::TENSORS_MAX;
use crate::metadata::Metadata;
use crate::split::{self, Part};
use crate::tensor::TensorInfo;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
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
    by_name: HashMap<Box<str>, usize>,
}

impl Gguf {
    /// Reads the header of the file at `path`; of the first file of a split set, the headers of all its files.
    /// Tensor data is not touched.
    /// # Errors
    /// If a file cannot be read, is no usable GGUF file, or the set is not complete and consistent.
    pub fn open(path: &Path) -> Result<Gguf, OpenError> {
        let header = read_header(path)?;
        let part = part_of(path, &header.metadata)?;
        let mut gguf = Gguf {
            version: header.version,
            metadata: header.metadata,
            tensors: Vec::new(),
            files: Vec::new(),
            alignment: header.alignment,
            file_bytes: Vec::new(),
            by_name: HashMap::new(),
        };
        gguf.add_file(path.to_owned(), header.file_bytes, header.tensors)?;
        if let Some(part) = part {
            gguf.add_other_parts(path, part)?;
        }
        Ok(gguf)
    }

    /// The tensor of this name.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        let &index = self.by_name.get(name)?;
        self.tensors.get(index).filter(|t| t.name == name)
    }

    /// Bytes of all files together.
    pub fn total_file_bytes(&self) -> u64 {
        self.file_bytes.iter().sum()
    }

    /// Bytes of the file at `index` in `files`.
    pub fn file_bytes(&self, index: usize) -> Option<u64> {
        self.file_bytes.get(index).copied()
    }

    /// Reads the data of one tensor of this model, into memory of exactly its size. The file is opened anew: this
    /// is for tools that take a tensor at a time, not for inference.
    /// # Errors
    /// If the file cannot be read, or is shorter than it was.
    /// # Panics
    /// If `tensor.file` is not an index of `files`.
    pub fn read_tensor(&self, tensor: &TensorInfo) -> Result<Vec<u8>, ReadTensorError> {
        let path = &self.files[tensor.file];
        read_exactly(path, tensor.offset, tensor.size).map_err(|source| ReadTensorError {
            tensor: tensor.name.clone(),
            path: path.clone(),
            offset: tensor.offset,
            size: tensor.size,
            source,
        })
    }

    fn add_file(&mut self, path: PathBuf, bytes: u64, tensors: Vec<TensorInfo>) -> Result<(), OpenError> {
        let count = (self.tensors.len() + tensors.len()) as u64;
        if count > TENSORS_MAX {
            return Err(OpenError::TooManyTensors { path, count, max: TENSORS_MAX });
        }
        let file = self.files.len();
        self.files.push(path);
        self.file_bytes.push(bytes);
        for tensor in tensors {
            let index = self.tensors.len();
            if let Some(first) = self.by_name.insert(tensor.name.as_str().into(), index) {
                return Err(OpenError::DuplicateTensor {
                    name: tensor.name,
                    first: self.files[self.tensors[first].file].clone(),
                    second: self.files[file].clone(),
                });
            }
            self.tensors.push(TensorInfo { file, ..tensor });
        }
        Ok(())
    }

    fn add_other_parts(&mut self, first: &Path, part: Part) -> Result<(), OpenError> {
        let Part { no, count, tensors } = part;
        if no != 0 {
            let sibling = part.sibling(first, 0);
            return Err(OpenError::NotFirstPart { path: first.to_owned(), no, count, first: sibling });
        }
        for no in 1..count {
            let Some(path) = part.sibling(first, no) else {
                let suffix = part.suffix();
                return Err(OpenError::PartName { path: first.to_owned(), no: part.no, count, suffix });
            };
            let header = match read_header(&path) {
                Err(OpenError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                    return Err(OpenError::MissingPart { path, no, count });
                }
                other => other?,
            };
            let metadata = &header.metadata;
            for (key, expected) in
                [(split::COUNT_KEY, count), (split::NO_KEY, no), (split::TENSORS_KEY, tensors)]
            {
                let found =
                    metadata.u64(key).map_err(|source| OpenError::SplitKey { path: path.clone(), source })?;
                if found != expected {
                    return Err(OpenError::ForeignPart { path, key, found, expected });
                }
            }
            self.add_file(path, header.file_bytes, header.tensors)?;
        }
        let found = self.tensors.len() as u64;
        if found != tensors {
            let path = first.to_owned();
            return Err(OpenError::SplitTensors { path, count, found, expected: tensors });
        }
        Ok(())
    }
}

fn part_of(path: &Path, metadata: &Metadata) -> Result<Option<Part>, OpenError> {
    Part::of(metadata).map_err(|source| OpenError::SplitKey { path: path.to_owned(), source })
}

fn read_header(path: &Path) -> Result<Header, OpenError> {
    let io = |source| OpenError::Io { path: path.to_owned(), source };
    // A pipe would wait for its writer when opened, so the kind is asked first.
    if !std::fs::metadata(path).map_err(io)?.is_file() {
        return Err(OpenError::NotAFile { path: path.to_owned() });
    }
    let file = File::open(path).map_err(io)?;
    let file_bytes = file.metadata().map_err(io)?.len();
    Header::read(file, file_bytes).map_err(|source| OpenError::Header { path: path.to_owned(), source })
}

fn read_exactly(path: &Path, offset: u64, size: u64) -> io::Result<Vec<u8>> {
    let size = usize::try_from(size).map_err(|_| io::ErrorKind::OutOfMemory)?;
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(offset))?;
    let mut data = Vec::new();
    data.try_reserve_exact(size).map_err(|_| io::ErrorKind::OutOfMemory)?;
    file.take(size as u64).read_to_end(&mut data)?;
    if data.len() != size {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(data)
}
