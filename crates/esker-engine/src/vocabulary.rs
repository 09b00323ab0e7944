//! The tokenizer and chat template of a GGUF file.

use esker_gguf::{Gguf, MetadataError};
use esker_text::{Tokenizer, TokenizerError, VocabSpec};

/// The file's vocabulary cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum VocabularyError {
    /// A key is missing or has the wrong type.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
    /// The vocabulary is inconsistent or of an unknown kind.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
}

/// Builds the tokenizer from the `tokenizer.*` keys.
///
/// # Errors
/// If keys are missing, or the vocabulary is of an unknown kind.
pub fn tokenizer(gguf: &Gguf) -> Result<Tokenizer, VocabularyError> {
    let meta = &gguf.metadata;
    let id = |key: &str| meta.opt_u32(&format!("tokenizer.ggml.{key}"));
    let spec = VocabSpec {
        model: meta.str("tokenizer.ggml.model")?.to_owned(),
        pre: meta.opt_str("tokenizer.ggml.pre")?.unwrap_or("default").to_owned(),
        tokens: meta.str_array("tokenizer.ggml.tokens")?.to_vec(),
        scores: meta.opt_f32_array("tokenizer.ggml.scores")?.unwrap_or_default(),
        token_types: meta.opt_i32_array("tokenizer.ggml.token_type")?.unwrap_or_default(),
        merges: meta.opt_str_array("tokenizer.ggml.merges")?.map(|m| m.to_vec()).unwrap_or_default(),
        bos: id("bos_token_id")?,
        eos: id("eos_token_id")?,
        eot: id("eot_token_id")?,
        unk: id("unknown_token_id")?,
        pad: id("padding_token_id")?,
        add_bos: meta.opt_bool("tokenizer.ggml.add_bos_token")?,
        add_eos: meta.opt_bool("tokenizer.ggml.add_eos_token")?,
        add_space_prefix: meta.opt_bool("tokenizer.ggml.add_space_prefix")?,
        chat_template: meta.opt_str("tokenizer.chat_template")?.map(str::to_owned),
    };
    Ok(Tokenizer::new(spec)?)
}
