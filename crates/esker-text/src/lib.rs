//! Tokenizers, streaming detokenization and chat templates, from what a GGUF file says about them; and what a
//! model's text means: reasoning, tool calls, and grammars that it is held to.
//!
//! Not here: reading the file (callers fill a [`VocabSpec`]) and sampling.
//! Start at [`Tokenizer`] and [`ChatTemplate`]; `pre` is the table of split patterns.
#![forbid(unsafe_code)]

mod bpe;
mod end_of_generation;
mod error;
pub mod grammar;
pub mod incremental;
mod pre;
pub mod reasoning;
mod special;
mod split;
mod spm;
mod stream;
mod tags;
mod template;
mod tokenizer;
pub mod tools;
mod unigram;
mod vocab;

pub use error::{EncodeError, TokenizerError, TokenizerWarning};
pub use special::MAX_SPECIAL_BYTES;
pub use stream::{StreamDecoder, Utf8Stream};
pub use template::{
    BASE_FUEL, BASE_OUTPUT_BYTES, ChatInput, ChatTemplate, FUEL_PER_INPUT_BYTE, MAX_INPUT_DEPTH,
    MAX_TEMPLATE_BYTES, OUTPUT_PER_INPUT_BYTE, TemplateError, TemplateTraits, TemplateWarning,
};
pub use tokenizer::{EncodeOptions, SUPPORTED_MODELS, Tokenizer};
pub use vocab::{MAX_TOKEN_BYTES, MAX_TOKENS, MAX_VOCAB_BYTES, VocabSpec};
