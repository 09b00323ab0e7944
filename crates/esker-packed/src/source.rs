//! What the container says of the file that it was made from: enough to make that file again.

use crate::error::PackedError;
use crate::keys::{
    ALIGNMENT_KEY, CANONICAL_KEY, FILES_KEY, ORDER_KEY, PACKED_NAME, PREFIX, SHA256_KEY, VERSION, VERSION_KEY,
};
use crate::layer::PackedLayer;
use crate::read::check_version;
use esker_gguf::{Gguf, Metadata, StringArray, TensorSpec, Value};
use std::collections::{BTreeMap, HashMap};

const GENERAL_ALIGNMENT: &str = "general.alignment";

/// The file or split set that a repacked file was made from.
#[derive(Clone, Debug, PartialEq)]
pub struct Source {
    /// 64 lowercase hexadecimal digits: SHA-256 of the file, of the files of a set one after the other.
    pub sha256: String,
    /// Files, at least 1.
    pub n_files: u32,
    /// Writing the tensors in order, by the rules of [`esker_gguf::Layout`], gives the source byte for byte.
    pub canonical: bool,
    /// Names of all tensors, in file order.
    pub tensor_order: StringArray,
    /// `general.alignment` as it was, with its type; `None` if there was no such key.
    pub alignment: Option<Value>,
}

impl Source {
    /// Reads the keys; the file is one for which [`read_packed`](crate::read_packed) found layers.
    /// # Errors
    /// If a key is missing, or has a value that none can have.
    pub fn read(metadata: &Metadata) -> Result<Source, PackedError> {
        check_version(metadata)?;
        let wrong = |key: &str, found: String, expected: &str| {
            Err(PackedError::Value { key: key.to_owned(), found, expected: expected.to_owned() })
        };
        let sha256 = metadata.str(SHA256_KEY)?;
        if sha256.len() != 64 || !sha256.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
            return wrong(SHA256_KEY, format!("`{}`", sha256.escape_debug()), "64 hexadecimal digits");
        }
        let n_files = metadata.u32(FILES_KEY)?;
        if n_files == 0 {
            return wrong(FILES_KEY, "0".to_owned(), "at least 1");
        }
        // `u64` for the error where the key is missing or no integer; the value is kept with its type.
        let alignment = match metadata.u64(ALIGNMENT_KEY)? {
            0 => None,
            n if n.is_power_of_two() && n <= esker_gguf::limits::ALIGNMENT_MAX => {
                metadata.get(ALIGNMENT_KEY).cloned()
            }
            n => return wrong(ALIGNMENT_KEY, n.to_string(), "0 or a power of two up to 2 MiB"),
        };
        Ok(Source {
            sha256: sha256.to_owned(),
            n_files,
            canonical: metadata.bool(CANONICAL_KEY)?,
            tensor_order: metadata.str_array(ORDER_KEY)?.clone(),
            alignment,
        })
    }

    /// Turns the source's metadata into that of the repacked file, but for the layers' keys: `general.alignment` becomes
    /// 4096 (last, if there was none), the keys of the container follow.
    pub fn describe(&self, metadata: &mut Metadata) {
        metadata.set(GENERAL_ALIGNMENT, crate::keys::EXPERT_ALIGN as u32);
        metadata.set(VERSION_KEY, VERSION);
        metadata.set(SHA256_KEY, self.sha256.as_str());
        metadata.set(FILES_KEY, self.n_files);
        metadata.set(CANONICAL_KEY, self.canonical);
        metadata.set(ORDER_KEY, self.tensor_order.clone());
        metadata.set(ALIGNMENT_KEY, self.alignment.clone().unwrap_or(Value::U32(0)));
    }

    /// Undoes [`Source::describe`] and the layers' keys.
    pub fn restore(&self, metadata: &mut Metadata) {
        metadata.retain(|key, _| !key.starts_with(PREFIX));
        match &self.alignment {
            Some(value) => drop(metadata.set(GENERAL_ALIGNMENT, value.clone())),
            None => drop(metadata.remove(GENERAL_ALIGNMENT)),
        }
    }

    /// The source's alignment in bytes.
    pub fn alignment_bytes(&self) -> u64 {
        let value = self.alignment.as_ref().and_then(Value::as_integer);
        value.and_then(|n| u64::try_from(n).ok()).unwrap_or(esker_gguf::limits::ALIGNMENT_DEFAULT)
    }

    /// The tensors of the source in file order, each with where it is now.
    /// # Errors
    /// If `tensor_order` is not exactly the tensors that `gguf` holds, packed and not.
    pub fn tensors(
        &self,
        gguf: &Gguf,
        layers: &BTreeMap<u32, PackedLayer>,
    ) -> Result<Vec<(TensorSpec, Place)>, PackedError> {
        let mut here: HashMap<String, (TensorSpec, Place)> = HashMap::new();
        for (index, tensor) in gguf.tensors.iter().enumerate() {
            if tensor.name_in_block() != PACKED_NAME {
                here.insert(tensor.name.clone(), (tensor.spec(), Place::Tensor { index }));
            }
        }
        for (&layer, packed) in layers {
            for (part, p) in packed.parts.iter().enumerate() {
                let name = format!("blk.{layer}.{}", p.name);
                let shape = vec![p.cols, p.rows, packed.n_expert];
                let spec = TensorSpec { name: name.clone(), ty: p.ty, shape };
                here.insert(name, (spec, Place::Part { layer, part }));
            }
        }
        let mut tensors = Vec::with_capacity(here.len());
        for name in self.tensor_order.iter() {
            let Some(tensor) = here.remove(name) else {
                let what = "names, where it is not to be found or for the second time,";
                return Err(PackedError::Order { what, tensor: name.to_owned() });
            };
            tensors.push(tensor);
        }
        match here.into_keys().min() {
            Some(tensor) => Err(PackedError::Order { what: "lacks", tensor }),
            None => Ok(tensors),
        }
    }
}

/// Where a tensor of the source is in the repacked file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// As it was.
    Tensor {
        /// Index in [`Gguf::tensors`].
        index: usize,
    },
    /// A slice of every expert.
    Part {
        /// Layer.
        layer: u32,
        /// Index in [`PackedLayer::parts`].
        part: usize,
    },
}
