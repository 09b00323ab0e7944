//! Reading hyperparameters and tensors of a file at load, with errors that name them.

use crate::store::{ExpertLayout, ExpertPart, PartRole, StoreLayout, TableId, TableLayout};
use esker_gguf::{Gguf, MetadataError, TensorInfo};
use esker_ops::{Matrix, ShapeError, Vector, WeightBytes};
use esker_packed::{PackedError, PackedLayer};
use esker_quant::GgmlType;
use std::collections::{BTreeMap, HashSet};

/// A model cannot be built from a file.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// No such architecture here.
    #[error("architecture `{found}` is not supported (supported: {known})")]
    UnknownArchitecture {
        /// `general.architecture`.
        found: String,
        /// The supported names, separated by commas.
        known: String,
    },
    /// A key is missing or has the wrong type.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
    /// The file was repacked, and its experts are not where its keys say.
    #[error(transparent)]
    Packed(#[from] PackedError),
    /// A key has a value that no model can have, or that this code does not cover.
    #[error("`{key}` is {found}, expected {expected}")]
    Value {
        /// Key.
        key: String,
        /// Value.
        found: String,
        /// What would do.
        expected: String,
    },
    /// A tensor is not in the file.
    #[error("tensor `{name}` is missing (expected shape {expected})")]
    MissingTensor {
        /// Name.
        name: String,
        /// Shape, rows first.
        expected: String,
    },
    /// A tensor has another shape than the hyperparameters say.
    #[error("tensor `{name}` has shape {found}, expected {expected}")]
    Shape {
        /// Name.
        name: String,
        /// Shape in the file, rows first.
        found: String,
        /// Shape that the metadata implies.
        expected: String,
    },
    /// A tensor has a type that this place cannot have.
    #[error("tensor `{name}` has type {found}: {why}")]
    Type {
        /// Name.
        name: String,
        /// Type.
        found: String,
        /// Reason.
        why: String,
    },
    /// A tensor that the architecture has no use for: the file holds something that would silently be ignored.
    #[error("tensor `{name}` is not part of architecture `{architecture}`; its blocks have: {known}")]
    UnexpectedTensor {
        /// Name.
        name: String,
        /// Architecture.
        architecture: String,
        /// Names that were used, without block numbers.
        known: String,
    },
    /// The tensor's bytes could not be read.
    #[error("cannot read tensor `{name}`: {cause}")]
    Read {
        /// Name.
        name: String,
        /// Reason.
        cause: String,
    },
    /// Bytes and shape disagree.
    #[error("tensor `{name}`: {source}")]
    Size {
        /// Name.
        name: String,
        /// The sizes.
        source: ShapeError,
    },
}

/// What becomes of a tensor's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// They stay as they are for as long as the model lives.
    Kept,
    /// They are decoded to f32 and dropped.
    Decoded,
}

/// Fetches a tensor's bytes: mapped, or read into memory that the plan has.
pub type Fetch<'a> = dyn FnMut(&TensorInfo, Purpose) -> Result<WeightBytes, String> + 'a;

/// The tensors of a file, each taken once; what is left at the end is an error.
pub struct Tensors<'a> {
    gguf: &'a Gguf,
    fetch: &'a mut Fetch<'a>,
    architecture: String,
    used: HashSet<&'a str>,
    layout: StoreLayout,
    /// Experts that `esker repack` has put side by side, by block.
    packed: BTreeMap<u32, PackedLayer>,
}

/// Shape with rows first, as it is written everywhere here.
fn shown(shape: &[u64]) -> String {
    format!("{:?}", shape.iter().rev().collect::<Vec<_>>())
}

/// Dimensions of one written as `[n, 1]` and `[n]` are the same thing.
fn squeezed(shape: &[u64]) -> &[u64] {
    let mut n = shape.len();
    while n > 1 && shape[n - 1] == 1 {
        n -= 1;
    }
    &shape[..n]
}

impl<'a> Tensors<'a> {
    /// Tensors of `gguf`, fetched by `fetch`.
    pub fn new(gguf: &'a Gguf, fetch: &'a mut Fetch<'a>) -> Result<Tensors<'a>, LoadError> {
        let architecture = gguf.metadata.str("general.architecture")?.to_owned();
        let packed = esker_packed::read_packed(gguf)?;
        Ok(Tensors {
            gguf,
            fetch,
            architecture,
            used: HashSet::new(),
            layout: StoreLayout::default(),
            packed,
        })
    }

    /// The file.
    pub fn gguf(&self) -> &'a Gguf {
        self.gguf
    }

    /// True if the file has this tensor.
    pub fn has(&self, name: &str) -> bool {
        self.gguf.tensor(name).is_some()
    }

    /// Elements per row and number of rows of a tensor, before its shape is known to be right.
    pub fn shape(&self, name: &str) -> Option<&'a [u64]> {
        self.gguf.tensor(name).map(|t| squeezed(&t.shape))
    }

    /// `shape` is rows first, as in the architecture files.
    fn take(&mut self, name: &str, shape: &[usize]) -> Result<&'a TensorInfo, LoadError> {
        let expected: Vec<u64> = shape.iter().rev().map(|&n| n as u64).collect();
        let Some(info) = self.gguf.tensor(name) else {
            return Err(LoadError::MissingTensor { name: name.into(), expected: shown(&expected) });
        };
        if squeezed(&info.shape) != squeezed(&expected) {
            let (found, expected) = (shown(&info.shape), shown(&expected));
            return Err(LoadError::Shape { name: name.into(), found, expected });
        }
        self.used.insert(&info.name);
        Ok(info)
    }

    fn bytes(&mut self, info: &TensorInfo, purpose: Purpose) -> Result<WeightBytes, LoadError> {
        (self.fetch)(info, purpose).map_err(|cause| LoadError::Read { name: info.name.clone(), cause })
    }

    /// A `[n_rows, n_cols]` matrix.
    pub fn matrix(&mut self, name: &str, n_rows: usize, n_cols: usize) -> Result<Matrix, LoadError> {
        let info = self.take(name, &[n_rows, n_cols])?;
        check_weight_type(name, info.ty)?;
        let bytes = self.bytes(info, Purpose::Kept)?;
        Matrix::new(info.ty, n_rows, n_cols, bytes)
            .map_err(|source| LoadError::Size { name: name.into(), source })
    }

    /// A small tensor of `n` elements in all, decoded to f32.
    pub fn vector(&mut self, name: &str, shape: &[usize]) -> Result<Vector, LoadError> {
        let info = self.take(name, shape)?;
        let bytes = self.bytes(info, Purpose::Decoded)?;
        let mut values = vec![0.0; shape.iter().product()];
        esker_quant::decode(info.ty, bytes.bytes(), &mut values)
            .map_err(|e| LoadError::Read { name: name.into(), cause: e.to_string() })?;
        Ok(Vector::new(values))
    }

    /// A table whose rows are read by need.
    pub fn table(&mut self, name: &str, n_rows: usize, n_cols: usize) -> Result<TableId, LoadError> {
        let tensor = self.take(name, &[n_rows, n_cols])?.clone();
        self.layout.tables.push(TableLayout { tensor, n_rows, n_cols });
        Ok(TableId(self.layout.tables.len() - 1))
    }

    /// The output head: `output.weight`, or the token embedding where the two are tied.
    pub fn output_head(&mut self, n_vocab: usize, n_embd: usize) -> Result<Matrix, LoadError> {
        let name = if self.has("output.weight") { "output.weight" } else { "token_embd.weight" };
        self.matrix(name, n_vocab, n_embd)
    }

    /// The routed experts of block `il`; nothing is read.
    pub fn experts(
        &mut self,
        il: usize,
        n_expert: usize,
        n_expert_used: usize,
        n_ff: usize,
        n_embd: usize,
    ) -> Result<(), LoadError> {
        let layout = ExpertLayout {
            n_expert,
            n_expert_used,
            n_ff,
            n_embd,
            tensors: Vec::new(),
            parts: Vec::new(),
            checksums: None,
        };
        let layout = match u32::try_from(il).ok().and_then(|il| self.packed.remove(&il)) {
            Some(packed) => self.packed_experts(il, layout, packed)?,
            None => self.stacked_experts(il, layout)?,
        };
        let layers = &mut self.layout.layers;
        layers.resize(layers.len().max(il + 1), None);
        layers[il] = Some(layout);
        Ok(())
    }

    /// A tensor for each matrix, the experts stacked in it.
    fn stacked_experts(&mut self, il: usize, mut layout: ExpertLayout) -> Result<ExpertLayout, LoadError> {
        let ExpertLayout { n_expert, n_ff, n_embd, .. } = layout;
        let fused = self.has(&format!("blk.{il}.ffn_gate_up_exps.weight"));
        let parts: &[(PartRole, &str, usize, usize)] = match fused {
            true => &[
                (PartRole::GateUp, "ffn_gate_up_exps", 2 * n_ff, n_embd),
                (PartRole::Down, "ffn_down_exps", n_embd, n_ff),
            ],
            false => &[
                (PartRole::Gate, "ffn_gate_exps", n_ff, n_embd),
                (PartRole::Up, "ffn_up_exps", n_ff, n_embd),
                (PartRole::Down, "ffn_down_exps", n_embd, n_ff),
            ],
        };
        for &(role, name, rows, cols) in parts {
            let name = format!("blk.{il}.{name}.weight");
            let info = self.take(&name, &[n_expert, rows, cols])?.clone();
            check_weight_type(&name, info.ty)?;
            let bytes = info.size / n_expert as u64;
            layout.parts.push(ExpertPart {
                role,
                ty: info.ty,
                tensor: layout.tensors.len(),
                offset: 0,
                stride: bytes,
                bytes,
            });
            layout.tensors.push(info);
        }
        Ok(layout)
    }

    /// One tensor, each expert's matrices side by side in it.
    fn packed_experts(
        &mut self,
        il: usize,
        mut layout: ExpertLayout,
        packed: PackedLayer,
    ) -> Result<ExpertLayout, LoadError> {
        let ExpertLayout { n_expert, n_ff, n_embd, .. } = layout;
        let name = esker_packed::tensor_name(il as u32);
        let info =
            self.take(&name, &[n_expert, usize::try_from(packed.stride).unwrap_or(usize::MAX)])?.clone();
        for part in &packed.parts {
            let (role, rows, cols) = match part.name.as_str() {
                esker_packed::GATE => (PartRole::Gate, n_ff, n_embd),
                esker_packed::UP => (PartRole::Up, n_ff, n_embd),
                esker_packed::GATE_UP => (PartRole::GateUp, 2 * n_ff, n_embd),
                _ => (PartRole::Down, n_embd, n_ff),
            };
            if (part.rows, part.cols) != (rows as u64, cols as u64) {
                let (found, expected) =
                    (format!("[{}, {}]", part.rows, part.cols), format!("[{rows}, {cols}]"));
                return Err(LoadError::Shape { name: format!("{name} ({})", part.name), found, expected });
            }
            check_weight_type(&name, part.ty)?;
            let (offset, stride) = (part.offset, packed.stride);
            layout.parts.push(ExpertPart { role, ty: part.ty, tensor: 0, offset, stride, bytes: part.size });
        }
        layout.tensors.push(info);
        layout.checksums = Some(packed.checksums.into());
        Ok(layout)
    }

    /// Marks every tensor of block `il` as known and unused; false if the file has none.
    pub fn skip_block(&mut self, il: usize) -> bool {
        let prefix = format!("blk.{il}.");
        let before = self.used.len();
        self.used
            .extend(self.gguf.tensors.iter().map(|t| t.name.as_str()).filter(|n| n.starts_with(&prefix)));
        self.used.len() > before
    }

    /// Marks a tensor as known and unused.
    pub fn skip(&mut self, name: &str) {
        if let Some(info) = self.gguf.tensor(name) {
            self.used.insert(&info.name);
        }
    }

    /// What the store is to hold. `n_layer` is the number of blocks that are run.
    ///
    /// # Errors
    /// If the file has a tensor that nobody asked for.
    pub fn finish(mut self, n_layer: usize) -> Result<StoreLayout, LoadError> {
        if let Some(left) = self.gguf.tensors.iter().find(|t| !self.used.contains(t.name.as_str())) {
            let mut known: Vec<&str> = self.used.iter().map(|name| without_block(name)).collect();
            known.sort_unstable();
            known.dedup();
            let name = left.name.clone();
            return Err(LoadError::UnexpectedTensor {
                name,
                architecture: self.architecture,
                known: known.join(", "),
            });
        }
        self.layout.layers.resize(n_layer, None);
        Ok(self.layout)
    }

    // --- hyperparameters: keys are `<architecture>.<key>`

    fn key(&self, key: &str) -> String {
        format!("{}.{key}", self.architecture)
    }

    /// A count that must be there and be at least 1.
    pub fn count(&self, key: &str) -> Result<usize, LoadError> {
        let key = self.key(key);
        let value = self.gguf.metadata.u32(&key)? as usize;
        self.positive(key, value)
    }

    /// A count that may be missing.
    pub fn opt_count(&self, key: &str) -> Result<Option<usize>, LoadError> {
        Ok(self.gguf.metadata.opt_u32(&self.key(key))?.map(|v| v as usize))
    }

    fn positive(&self, key: String, value: usize) -> Result<usize, LoadError> {
        // No real model comes near; larger values only come from damaged files and would overflow size arithmetic.
        if value == 0 || value > 1 << 28 {
            return Err(LoadError::Value { key, found: value.to_string(), expected: "1 to 2^28".into() });
        }
        Ok(value)
    }

    /// A count that is one number, or one per layer and all the same.
    pub fn uniform_count(&self, key: &str, n_layer: usize) -> Result<usize, LoadError> {
        let full = self.key(key);
        let Ok(values) = self.gguf.metadata.u32_array(&full) else { return self.count(key) };
        let first = values.iter().copied().find(|&v| v != 0).unwrap_or(0);
        match values.iter().take(n_layer).find(|&&v| v != first && v != 0) {
            Some(other) => Err(LoadError::Value {
                key: full,
                found: format!("{first} in some layers and {other} in others"),
                expected: "the same value in every layer".into(),
            }),
            None => self.positive(full, first as usize),
        }
    }

    /// A number that must be there.
    pub fn f32(&self, key: &str) -> Result<f32, LoadError> {
        let key = self.key(key);
        let value = self.gguf.metadata.f32(&key)?;
        if !value.is_finite() {
            return Err(LoadError::Value {
                key,
                found: value.to_string(),
                expected: "a finite number".into(),
            });
        }
        Ok(value)
    }

    /// A number that may be missing.
    pub fn opt_f32(&self, key: &str) -> Result<Option<f32>, LoadError> {
        Ok(self.gguf.metadata.opt_f32(&self.key(key))?)
    }

    /// An error about the value of a key of this architecture.
    pub fn bad_value(&self, key: &str, found: impl ToString, expected: impl Into<String>) -> LoadError {
        LoadError::Value { key: self.key(key), found: found.to_string(), expected: expected.into() }
    }

    /// The vocabulary size: rows of `token_embd.weight`.
    pub fn n_vocab(&self) -> Result<usize, LoadError> {
        match self.shape("token_embd.weight") {
            Some(&[_, rows]) if rows > 0 && rows <= 1 << 28 => Ok(rows as usize),
            Some(other) => Err(LoadError::Shape {
                name: "token_embd.weight".into(),
                found: shown(other),
                expected: "[n_vocab, n_embd]".into(),
            }),
            None => Err(LoadError::MissingTensor {
                name: "token_embd.weight".into(),
                expected: "[n_vocab, n_embd]".into(),
            }),
        }
    }
}

fn check_weight_type(name: &str, ty: GgmlType) -> Result<(), LoadError> {
    if esker_ops::is_weight_type(ty) {
        return Ok(());
    }
    let why = "weights of this type cannot be multiplied".to_owned();
    Err(LoadError::Type { name: name.into(), found: ty.to_string(), why })
}

/// `blk.12.attn_q.weight` -> `attn_q.weight`.
fn without_block(name: &str) -> &str {
    name.strip_prefix("blk.").and_then(|rest| rest.split_once('.')).map_or(name, |(_, rest)| rest)
}
