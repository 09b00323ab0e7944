//! What can be wrong with a vocabulary, and what is odd about it but tolerated.

use std::fmt;

/// Why a tokenizer cannot be built. Field names are those of the GGUF keys after `tokenizer.ggml.`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenizerError {
    /// The algorithm is not one of ours.
    #[error("tokenizer model `{model}` is not supported, expected one of {supported}", supported = crate::SUPPORTED_MODELS.join(", "))]
    UnknownModel {
        /// The file's `model`.
        model: String,
    },
    /// There is no token at all.
    #[error("`tokens` is empty")]
    NoTokens,
    /// More tokens than [`MAX_TOKENS`](crate::MAX_TOKENS).
    #[error("`tokens` has {n} entries, at most {max} are supported")]
    TooManyTokens {
        /// Entries found.
        n: usize,
        /// The limit.
        max: usize,
    },
    /// The token texts are too long together.
    #[error("`tokens` holds {bytes} bytes of text, at most {max} are supported")]
    VocabularyTooLarge {
        /// Bytes found.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// One token text is too long.
    #[error("token {id} has {bytes} bytes, at most {max} are supported")]
    TokenTooLong {
        /// The token.
        id: usize,
        /// Its length.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// Two arrays that go together differ in length.
    #[error("`{field}` has {found} entries, expected {expected}, one for each token")]
    LengthMismatch {
        /// The array.
        field: &'static str,
        /// Its length.
        found: usize,
        /// Number of tokens.
        expected: usize,
    },
    /// An array that the model needs is missing.
    #[error("tokenizer model `{model}` needs `{field}`, which is missing or empty")]
    Missing {
        /// The array.
        field: &'static str,
        /// The file's `model`.
        model: String,
    },
    /// A kind of token that does not exist.
    #[error("`token_type[{id}]` is {value}, expected 0 to 6")]
    TokenType {
        /// The token.
        id: usize,
        /// Its type in the file.
        value: i32,
    },
    /// A score is not a number.
    #[error("`scores[{id}]` is not a number")]
    Score {
        /// The token.
        id: usize,
    },
    /// A token of type byte that names no byte.
    #[error("token {id} is of type byte but its text is `{text}`, expected `<0x00>` to `<0xFF>`")]
    ByteToken {
        /// The token.
        id: usize,
        /// Its text.
        text: String,
    },
    /// A special token id beyond the vocabulary.
    #[error("`{field}_token_id` is {id}, but the vocabulary has {n_tokens} tokens")]
    IdOutOfRange {
        /// `bos`, `eos` or `eot`.
        field: &'static str,
        /// Its value.
        id: u32,
        /// Number of tokens.
        n_tokens: usize,
    },
    /// A merge that is not two texts with a space between.
    #[error("`merges[{index}]` is `{text}`, expected two tokens with a space between them")]
    MergeSyntax {
        /// Which merge.
        index: usize,
        /// Its text.
        text: String,
    },
    /// A merge of, or into, something that is no token.
    #[error("`merges[{index}]` is `{text}`, but `{missing}` is not in the vocabulary")]
    MergeUnknownToken {
        /// Which merge.
        index: usize,
        /// Its text.
        text: String,
        /// The token that does not exist.
        missing: String,
    },
    /// The control and user-defined tokens are too long together.
    #[error("control and user-defined tokens hold {bytes} bytes of text, at most {max} are supported")]
    SpecialTokensTooLarge {
        /// Bytes found.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// The search automaton for control and user-defined tokens could not be built.
    #[error("cannot index the control and user-defined tokens")]
    SpecialTokens(#[source] aho_corasick::BuildError),
    /// A split pattern of ours does not compile: a bug here, not in the file.
    #[error("split pattern `{pattern}` does not compile")]
    Pattern {
        /// The pattern.
        pattern: &'static str,
        /// The regex crate's reason.
        #[source]
        source: Box<regex_automata::meta::BuildError>,
    },
}

/// Something odd in a vocabulary that is tolerated; callers show it to the user.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TokenizerWarning {
    /// The file names no pre-tokenizer; `default` is used.
    MissingPre,
    /// The file names a pre-tokenizer that is not known; `default` is used.
    UnknownPre {
        /// The file's `pre`.
        pre: String,
    },
    /// Several tokens have the same text; encoding uses the lowest id.
    DuplicateTokens {
        /// How many are ignored.
        count: usize,
        /// The first such text.
        text: String,
        /// The id that encoding uses for it.
        kept: u32,
        /// The id that encoding never produces.
        ignored: u32,
    },
    /// Some single bytes have no token, so not every text can be encoded.
    MissingByteTokens {
        /// How many of the 256 are missing.
        count: usize,
    },
    /// Merges whose result is a control token are left out: text must not turn into a control token.
    MergesIntoControl {
        /// How many.
        count: usize,
        /// The control token of the first.
        token: String,
    },
    /// An id that is only advisory lies beyond the vocabulary and is ignored.
    IdOutOfRange {
        /// `unk` or `pad`.
        field: &'static str,
        /// Its value.
        id: u32,
        /// Number of tokens.
        n_tokens: usize,
    },
    /// The file asks for BOS or EOS around texts but does not name the token.
    AddWithoutId {
        /// `bos` or `eos`.
        field: &'static str,
    },
    /// The vocabulary names no token that ends a generation.
    NoEndOfGeneration,
}

impl fmt::Display for TokenizerWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MissingPre => write!(
                f,
                "the file names no pre-tokenizer (`tokenizer.ggml.pre`); using `default`, the text may be split \
                 differently from how the model was trained"
            ),
            Self::UnknownPre { pre } => write!(
                f,
                "pre-tokenizer `{pre}` is not known; using `default`, the text may be split differently from \
                 how the model was trained"
            ),
            Self::DuplicateTokens { count, text, kept, ignored } => write!(
                f,
                "{count} tokens repeat the text of another, first {ignored} that of {kept} (`{text}`); encoding \
                 uses the lowest id"
            ),
            Self::MissingByteTokens { count } => {
                write!(f, "{count} of 256 bytes have no token; text that needs them cannot be encoded")
            }
            Self::MergesIntoControl { count, token } => {
                write!(f, "{count} merges produce control tokens (first `{token}`) and are left out")
            }
            Self::IdOutOfRange { field, id, n_tokens } => {
                write!(f, "`{field}_token_id` is {id}, but the vocabulary has {n_tokens} tokens; ignored")
            }
            Self::AddWithoutId { field } => {
                write!(f, "`add_{field}_token` is set, but there is no `{field}_token_id`; ignored")
            }
            Self::NoEndOfGeneration => {
                write!(f, "no token of the vocabulary ends a generation; only a length limit will stop it")
            }
        }
    }
}

/// Why a text cannot be encoded.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum EncodeError {
    /// The vocabulary has neither a token for this text nor one for unknown text.
    #[error("the vocabulary has no token for `{text}` and none for unknown text")]
    NoToken {
        /// The character or byte.
        text: String,
    },
}
