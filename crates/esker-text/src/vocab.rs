//! The vocabulary: what a GGUF file says about its tokens, checked once and kept compactly.
//!
//! Not here: how text becomes tokens (`bpe`, `spm`, `unigram`) and which tokens are special (`special`).
//! Source: GGUF keys `tokenizer.ggml.*`; the GPT-2 byte alphabet (openai/gpt-2 `encoder.py`); SentencePiece's
//! `▁` for a space and `<0xXX>` for a byte.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher, RandomState};

use hashbrown::HashTable;

use crate::error::{TokenizerError, TokenizerWarning};

/// Most entries that a vocabulary may have.
pub const MAX_TOKENS: usize = 1 << 22;
/// Longest token, in bytes of its text in the file. The longest known in the wild are runs of 128 blanks.
pub const MAX_TOKEN_BYTES: usize = 4096;
/// Most bytes of text in a vocabulary, all tokens together.
pub const MAX_VOCAB_BYTES: usize = 1 << 30;

/// What a GGUF file says about its tokenizer; plain data, not yet checked.
///
/// Empty vectors mean that the file has no such array. Fields carry the name of their key after
/// `tokenizer.ggml.`, ids without `_token_id`.
#[derive(Clone, Debug, Default)]
pub struct VocabSpec {
    /// Algorithm: `gpt2` (byte-level BPE), `llama` (SentencePiece BPE), `t5` (unigram), `gemma4` (BPE over characters).
    pub model: String,
    /// Name of the pre-tokenizer, for `gpt2`; empty if the file does not say.
    pub pre: String,
    /// Token texts by id, in the file's notation (GPT-2 byte alphabet, or `▁` for a space).
    pub tokens: Vec<String>,
    /// One score a token; needed by `llama` and `t5`.
    pub scores: Vec<f32>,
    /// One kind a token: 0 or 1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte. Empty: all normal.
    pub token_types: Vec<i32>,
    /// `left right`, best first; needed by `gpt2` and `gemma4`.
    pub merges: Vec<String>,
    /// Beginning of sequence.
    pub bos: Option<u32>,
    /// End of sequence.
    pub eos: Option<u32>,
    /// End of turn.
    pub eot: Option<u32>,
    /// Unknown text.
    pub unk: Option<u32>,
    /// Padding.
    pub pad: Option<u32>,
    /// Whether a text starts with BOS; the default depends on model and pre-tokenizer.
    pub add_bos: Option<bool>,
    /// Whether a text ends with EOS; default true for `t5`, else false.
    pub add_eos: Option<bool>,
    /// Whether a blank is put before the text; default true for `llama` and `t5`.
    pub add_space_prefix: Option<bool>,
    /// Jinja source of the chat template (`tokenizer.chat_template`).
    pub chat_template: Option<String>,
}

/// What a token is for (`tokenizer.ggml.token_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum TokenType {
    Normal,
    Unknown,
    Control,
    UserDefined,
    Unused,
    Byte,
}

impl TokenType {
    fn from_gguf(value: i32) -> Option<TokenType> {
        Some(match value {
            0 | 1 => TokenType::Normal,
            2 => TokenType::Unknown,
            3 => TokenType::Control,
            4 => TokenType::UserDefined,
            5 => TokenType::Unused,
            6 => TokenType::Byte,
            _ => return None,
        })
    }
}

/// How the file writes the bytes of a normal token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notation {
    /// Every character stands for one byte (GPT-2).
    ByteAlphabet,
    /// `▁` is a space, `<0xXX>` a byte, all else is itself (SentencePiece).
    Pieces,
}

/// The bytes of all tokens in one allocation, and their kinds.
#[derive(Debug)]
pub(crate) struct Vocab {
    bytes: Vec<u8>,
    ends: Vec<u32>,
    types: Vec<TokenType>,
}

impl Vocab {
    /// Checks the arrays of `spec` against each other and decodes the token texts.
    pub(crate) fn new(spec: &VocabSpec, notation: Notation) -> Result<Vocab, TokenizerError> {
        let n = spec.tokens.len();
        check_count(n)?;
        check_length("token_type", spec.token_types.len(), n)?;
        check_length("scores", spec.scores.len(), n)?;
        let total: usize = spec.tokens.iter().map(String::len).sum();
        if total > MAX_VOCAB_BYTES {
            return Err(TokenizerError::VocabularyTooLarge { bytes: total, max: MAX_VOCAB_BYTES });
        }
        if let Some(id) = spec.scores.iter().position(|s| s.is_nan()) {
            return Err(TokenizerError::Score { id });
        }

        let mut vocab = Vocab {
            bytes: Vec::with_capacity(total),
            ends: Vec::with_capacity(n),
            types: Vec::with_capacity(n),
        };
        for (id, text) in spec.tokens.iter().enumerate() {
            if text.len() > MAX_TOKEN_BYTES {
                return Err(TokenizerError::TokenTooLong { id, bytes: text.len(), max: MAX_TOKEN_BYTES });
            }
            let ty = match spec.token_types.get(id) {
                None => TokenType::Normal,
                Some(&v) => TokenType::from_gguf(v).ok_or(TokenizerError::TokenType { id, value: v })?,
            };
            vocab.push_bytes(id, text, ty, notation)?;
            vocab.ends.push(vocab.bytes.len() as u32);
            vocab.types.push(ty);
        }
        Ok(vocab)
    }

    fn push_bytes(
        &mut self,
        id: usize,
        text: &str,
        ty: TokenType,
        notation: Notation,
    ) -> Result<(), TokenizerError> {
        match (ty, notation) {
            (TokenType::Byte, _) => {
                let byte = parse_byte_token(text)
                    .ok_or_else(|| TokenizerError::ByteToken { id, text: text.to_owned() })?;
                self.bytes.push(byte);
            }
            (TokenType::Control | TokenType::Unknown, _)
            | (TokenType::UserDefined, Notation::ByteAlphabet) => {
                self.bytes.extend_from_slice(text.as_bytes())
            }
            // Padding entries of a byte-level vocabulary; they are no text.
            (TokenType::Unused, Notation::ByteAlphabet) => {}
            (TokenType::Normal, Notation::ByteAlphabet) => {
                let start = self.bytes.len();
                for c in text.chars() {
                    let Some(byte) = alphabet_to_byte(c) else {
                        // Not written in the alphabet after all: it stands for itself.
                        self.bytes.truncate(start);
                        self.bytes.extend_from_slice(text.as_bytes());
                        break;
                    };
                    self.bytes.push(byte);
                }
            }
            (_, Notation::Pieces) => self.bytes.extend_from_slice(text.replace('▁', " ").as_bytes()),
        }
        Ok(())
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The bytes that token `id` stands for.
    pub(crate) fn bytes(&self, id: u32) -> Option<&[u8]> {
        let i = id as usize;
        let end = *self.ends.get(i)? as usize;
        let start = if i == 0 { 0 } else { self.ends[i - 1] as usize };
        Some(&self.bytes[start..end])
    }

    pub(crate) fn token_type(&self, id: u32) -> Option<TokenType> {
        self.types.get(id as usize).copied()
    }

    /// Ids of the 256 byte tokens (`<0xXX>` of type byte), where the vocabulary has them.
    pub(crate) fn byte_tokens(&self) -> Box<[Option<u32>; 256]> {
        let mut ids = Box::new([None; 256]);
        for id in 0..self.len() as u32 {
            if self.types[id as usize] == TokenType::Byte
                && let Some(&[byte]) = self.bytes(id)
            {
                ids[byte as usize].get_or_insert(id);
            }
        }
        ids
    }
}

fn check_count(n: usize) -> Result<(), TokenizerError> {
    match n {
        0 => Err(TokenizerError::NoTokens),
        _ if n > MAX_TOKENS => Err(TokenizerError::TooManyTokens { n, max: MAX_TOKENS }),
        _ => Ok(()),
    }
}

fn check_length(field: &'static str, found: usize, expected: usize) -> Result<(), TokenizerError> {
    if found != 0 && found != expected {
        return Err(TokenizerError::LengthMismatch { field, found, expected });
    }
    Ok(())
}

/// Finds a token by its bytes. Does not own them: every call needs the vocabulary it was built from.
///
/// The hash is keyed at random, so a hostile vocabulary cannot make it degenerate.
#[derive(Debug)]
pub(crate) struct PieceIndex {
    table: HashTable<u32>,
    hasher: RandomState,
    /// Longest piece in the index, in bytes.
    pub(crate) max_len: usize,
}

impl PieceIndex {
    /// Indexes the tokens that `wanted` accepts; of equal ones the lowest id. Empty tokens are left out.
    pub(crate) fn new(vocab: &Vocab, wanted: impl Fn(u32) -> bool) -> PieceIndex {
        let hasher = RandomState::new();
        let mut table = HashTable::with_capacity(vocab.len());
        let mut max_len = 0;
        for id in (0..vocab.len() as u32).filter(|&id| wanted(id)) {
            let Some(piece) = vocab.bytes(id).filter(|p| !p.is_empty()) else { continue };
            max_len = max_len.max(piece.len());
            let hash = hasher.hash_one(piece);
            let rehash = |&other: &u32| hasher.hash_one(vocab.bytes(other).unwrap_or_default());
            table.entry(hash, |&other| vocab.bytes(other) == Some(piece), rehash).or_insert(id);
        }
        PieceIndex { table, hasher, max_len }
    }

    pub(crate) fn get(&self, vocab: &Vocab, piece: &[u8]) -> Option<u32> {
        if piece.len() > self.max_len {
            return None;
        }
        self.table.find(self.hasher.hash_one(piece), |&id| vocab.bytes(id) == Some(piece)).copied()
    }
}

/// Ids by token text, as the file writes it; of equal texts the lowest id, with a warning. Empty texts are left out.
pub(crate) fn index_texts(spec: &VocabSpec) -> (HashMap<&str, u32>, Option<TokenizerWarning>) {
    let mut ids: HashMap<&str, u32> = HashMap::with_capacity(spec.tokens.len());
    let mut count = 0;
    let mut first = None;
    for (id, text) in spec.tokens.iter().enumerate().filter(|(_, text)| !text.is_empty()) {
        match ids.entry(text) {
            Entry::Vacant(entry) => {
                entry.insert(id as u32);
            }
            Entry::Occupied(entry) => {
                count += 1;
                first.get_or_insert((text, *entry.get(), id as u32));
            }
        }
    }
    let warning = first.map(|(text, kept, ignored)| TokenizerWarning::DuplicateTokens {
        count,
        text: text.clone(),
        kept,
        ignored,
    });
    (ids, warning)
}

/// The character that stands for `byte` in the GPT-2 alphabet: printable Latin-1 for itself, the other 68 in
/// order from U+0100.
pub(crate) fn byte_to_alphabet(byte: u8) -> char {
    let printable = |b: u8| matches!(b, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    if printable(byte) {
        return char::from(byte);
    }
    let before = (0..byte).filter(|&b| !printable(b)).count() as u32;
    char::from_u32(0x100 + before).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// Inverse of [`byte_to_alphabet`].
pub(crate) fn alphabet_to_byte(c: char) -> Option<u8> {
    match c as u32 {
        v @ (0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff) => Some(v as u8),
        // The bytes that are not printable, in order: 0..=0x20, 0x7f..=0xa0, 0xad.
        v @ 0x100..=0x120 => Some((v - 0x100) as u8),
        v @ 0x121..=0x142 => Some((v - 0x121 + 0x7f) as u8),
        0x143 => Some(0xad),
        _ => None,
    }
}

/// `<0x0A>` → 10.
fn parse_byte_token(text: &str) -> Option<u8> {
    let hex = text.strip_prefix("<0x")?.strip_suffix('>')?;
    (hex.len() == 2 && hex.bytes().all(|b| b.is_ascii_hexdigit()))
        .then(|| u8::from_str_radix(hex, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alphabet_is_a_bijection() {
        let mut seen = std::collections::HashSet::new();
        for byte in 0..=255u8 {
            let c = byte_to_alphabet(byte);
            assert!(seen.insert(c));
            assert_eq!(alphabet_to_byte(c), Some(byte));
        }
        assert_eq!((0..0x400).filter_map(char::from_u32).filter_map(alphabet_to_byte).count(), 256);
        assert_eq!(byte_to_alphabet(b' '), 'Ġ');
        assert_eq!(byte_to_alphabet(b'\n'), 'Ċ');
    }

    #[test]
    fn byte_tokens_are_parsed_strictly() {
        assert_eq!(parse_byte_token("<0x0A>"), Some(10));
        assert_eq!(parse_byte_token("<0xff>"), Some(255));
        for bad in ["<0x>", "<0x0>", "<0x00A>", "<0x+1>", "0x0A", "<0xé>", ""] {
            assert_eq!(parse_byte_token(bad), None, "{bad}");
        }
    }

    #[test]
    fn count_is_bounded() {
        assert!(check_count(MAX_TOKENS).is_ok());
        assert!(matches!(check_count(MAX_TOKENS + 1), Err(TokenizerError::TooManyTokens { .. })));
        assert!(matches!(check_count(0), Err(TokenizerError::NoTokens)));
    }
}
