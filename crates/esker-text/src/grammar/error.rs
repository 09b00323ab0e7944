//! Why a grammar cannot be used.

use std::time::Duration;

/// Why a constraint cannot be made or used any more.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GrammarError {
    /// No token ends generation, so no constrained text could.
    #[error("the vocabulary has no token that ends generation, expected at least one for constrained output")]
    NoEndOfGeneration,
    /// The vocabulary exceeds the engine's tables.
    #[error(
        "the vocabulary's prefix tree has {nodes} nodes, at most {max} are supported for constrained output"
    )]
    VocabularyTooLarge {
        /// Nodes needed.
        nodes: usize,
        /// The limit.
        max: usize,
    },
    /// The grammar or schema is too long.
    #[error("the {what} has {bytes} bytes, at most {max} are supported")]
    TooLarge {
        /// `JSON schema`, `regular expression`, `grammar`.
        what: &'static str,
        /// Its length.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// The grammar or schema is nested too deeply.
    #[error("the {what} is nested more than {max} levels deep")]
    TooDeep {
        /// `JSON schema`, `regular expression`, `grammar`.
        what: &'static str,
        /// The limit.
        max: usize,
    },
    /// A schema whose alternatives multiply.
    #[error("the JSON schema's combinations (`allOf`, `anyOf`, `$ref`) expand to more than {max} cases")]
    TooManyCombinations {
        /// The limit.
        max: u64,
    },
    /// A number in a schema is beyond what a grammar can count.
    #[error("`{keyword}` is {value}, at most {max} is supported")]
    BoundTooLarge {
        /// The keyword.
        keyword: &'static str,
        /// Its value.
        value: String,
        /// The limit.
        max: u64,
    },
    /// The grammar or schema is wrong, or uses what is not supported; the reason names it.
    #[error("the {what} is not supported: {reason}")]
    Unsupported {
        /// `JSON schema`, `regular expression`, `grammar`, `tool`.
        what: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// Compiling took too long.
    #[error("the {what} took more than {limit:?} to compile")]
    TimeLimit {
        /// `JSON schema`, `regular expression`, `grammar`.
        what: &'static str,
        /// The limit.
        limit: Duration,
    },
    /// Too many compilations run at once.
    #[error("{max} grammars are being compiled already")]
    Busy {
        /// The limit.
        max: usize,
    },
    /// The text so far cannot be followed further: a limit of the engine was hit, or a token was not allowed.
    #[error("constrained output failed: {reason}")]
    Failed {
        /// What happened.
        reason: String,
    },
}
