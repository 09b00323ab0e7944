//! From a path to a model: what is mapped, what is read, and what can go wrong.

use crate::resident::ResidentStore;
use crate::sampler::SamplingError;
use esker_disk::MappedFile;
use esker_gguf::{Gguf, MetadataError, OpenError, TensorInfo};
use esker_models::{ExpertStore, LoadError, Model, StoreError};
use esker_ops::{KvType, WeightBytes};
use std::path::Path;
use std::sync::Arc;

/// How a model is loaded and run.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// Threads that compute; `None`: as many as there are physical cores.
    pub threads: Option<usize>,
    /// Tokens that a session has room for; `None`: [`DEFAULT_CONTEXT`], or what the model was trained for if less.
    pub context: Option<usize>,
    /// Prompt tokens per pass. Changes no bit of the result.
    pub chunk: usize,
    /// Type of keys and values.
    pub kv_type: KvType,
}

/// Context of a session unless another is asked for.
pub const DEFAULT_CONTEXT: usize = 4096;

impl Default for EngineOptions {
    fn default() -> EngineOptions {
        EngineOptions { threads: None, context: None, chunk: 512, kv_type: KvType::F16 }
    }
}

/// A model cannot be loaded or run.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The file cannot be read or is damaged.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The file's bytes cannot be mapped.
    #[error(transparent)]
    Map(#[from] esker_disk::MapError),
    /// The model cannot be built.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A key is missing or has the wrong type.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
    /// The file's vocabulary cannot be used.
    #[error("the file has no usable vocabulary: {cause}")]
    Vocabulary {
        /// Reason.
        cause: String,
    },
    /// A token id that the model does not have.
    #[error("token {token} is not in the vocabulary of {n_vocab} tokens")]
    TokenRange {
        /// The id.
        token: u32,
        /// Size of the vocabulary.
        n_vocab: usize,
    },
    /// More tokens than there is room for.
    #[error("{more} more token(s) do not fit a context of {capacity} that holds {used}")]
    ContextFull {
        /// Tokens in the session.
        used: usize,
        /// Tokens to be added.
        more: usize,
        /// Room in all.
        capacity: usize,
    },
    /// Nothing to continue.
    #[error("the prompt has no tokens, and the vocabulary names none to begin with")]
    EmptyPrompt,
    /// An earlier pass failed half-way.
    #[error("this session's last pass failed; begin a new one")]
    BrokenSession,
    /// A sampling setting is out of range.
    #[error(transparent)]
    Sampling(#[from] SamplingError),
    /// Weights could not be read during a pass.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What [`load`] hands to the engine.
pub(crate) struct Loaded {
    pub(crate) gguf: Gguf,
    pub(crate) model: Model,
    pub(crate) store: Box<dyn ExpertStore>,
    pub(crate) context: usize,
    pub(crate) notes: Vec<String>,
}

/// Physical cores that this process may use.
pub fn default_threads() -> usize {
    let allowed = std::thread::available_parallelism().map_or(1, usize::from);
    num_cpus::get_physical().clamp(1, allowed)
}

/// Opens, maps, builds.
pub(crate) fn load(path: &Path, options: &EngineOptions) -> Result<Loaded, EngineError> {
    let gguf = Gguf::open(path)?;
    let files = gguf
        .files
        .iter()
        .map(|path| MappedFile::open(path).map(|file| Arc::new(Mapped(file))))
        .collect::<Result<Vec<_>, _>>()?;
    let mut fetch = |tensor: &TensorInfo| mapped(&files, tensor);
    let (model, layout) = Model::load(&gguf, &mut fetch)?;
    let store = ResidentStore::new(layout, &mut fetch)
        .map_err(|cause| LoadError::Read { name: "experts".into(), cause })?;
    let notes = model.notes().to_vec();
    let context = context(&gguf, options)?;
    Ok(Loaded { gguf, model, store: Box::new(store), context, notes })
}

/// A mapped file that weights can own a share of.
struct Mapped(MappedFile);

impl AsRef<[u8]> for Mapped {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// A tensor's bytes in the mapped files.
fn mapped(files: &[Arc<Mapped>], tensor: &TensorInfo) -> Result<WeightBytes, String> {
    let file = &files[tensor.file];
    let range = usize::try_from(tensor.offset).ok().zip(usize::try_from(tensor.size).ok());
    match range.and_then(|(start, len)| Some(start..start.checked_add(len)?)) {
        Some(range) if range.end <= file.0.len() => Ok(WeightBytes::new(file.clone(), range)),
        _ => Err("the file has become shorter since its directory was read".to_owned()),
    }
}

/// The context asked for, or the default within what the model was trained for.
fn context(gguf: &Gguf, options: &EngineOptions) -> Result<usize, EngineError> {
    let arch = gguf.metadata.str("general.architecture")?;
    let trained =
        gguf.metadata.opt_u32(&format!("{arch}.context_length"))?.map_or(usize::MAX, |n| n as usize);
    Ok(options.context.unwrap_or(DEFAULT_CONTEXT.min(trained)).max(1))
}
