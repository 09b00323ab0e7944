//! Constrained decoding: which tokens keep the output inside a JSON schema, a regular expression, a grammar, or the
//! notation of a tool call.
//!
//! The engine behind it is the crate `llguidance`; this module gives it our vocabulary, bounds what a request can make
//! it do, and writes the grammars for tool calls. A grammar ends at a token that ends generation.
//!
//! Not here: sampling. Start at [`GrammarVocabulary`] and [`Constraint`].

mod compile;
mod constraint;
mod error;
mod lark;
mod limits;
mod schema;
mod tool_calls;
mod vocabulary;
mod xml_call;

pub use constraint::{Constraint, ConstraintOptions};
pub use error::GrammarError;
pub use limits::{MAX_BOUND, MAX_COMBINATIONS, MAX_COMPILE_TIME, MAX_GRAMMAR_BYTES, MAX_GRAMMAR_DEPTH};
pub use vocabulary::GrammarVocabulary;
