//! Tokenizers, streaming detokenization and chat templates, from what a GGUF file says about them.
//!
//! Not here: reading the file (callers fill a [`VocabSpec`]), sampling, and what the text of a model means.
//! Start at [`Tokenizer`] and [`ChatTemplate`]; `pre` is the table of split patterns.
#![forbid(unsafe_code)]

mod bpe;
mod end_of_generation;
mod error;
mod pre;
mod special;
mod split;
mod spm;
mod stream;
mod template;
mod tokenizer;
mod unigram;
mod vocab;

pub use error::{EncodeError, TokenizerError, TokenizerWarning};
pub use special::MAX_SPECIAL_BYTES;
pub use stream::{StreamDecoder, Utf8Stream};
pub use template::{
    BASE_FUEL, BASE_OUTPUT_BYTES, ChatInput, ChatTemplate, FUEL_PER_INPUT_BYTE, MAX_INPUT_DEPTH,
    MAX_TEMPLATE_BYTES, OUTPUT_PER_INPUT_BYTE, TemplateError, TemplateWarning,
};
pub use tokenizer::{EncodeOptions, SUPPORTED_MODELS, Tokenizer};
pub use vocab::{MAX_TOKEN_BYTES, MAX_TOKENS, MAX_VOCAB_BYTES, VocabSpec};
