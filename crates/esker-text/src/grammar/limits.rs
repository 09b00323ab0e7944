//! What a grammar from a request may cost. What exceeds a limit is refused with the limit's name.

use std::time::Duration;

use llguidance::api::ParserLimits;

/// Most bytes of a grammar or regular expression; of a JSON schema, as compact JSON.
pub const MAX_GRAMMAR_BYTES: usize = 256 << 10;
/// Most levels of nesting in a schema or grammar.
pub const MAX_GRAMMAR_DEPTH: usize = 100;
/// Longest time that the compilation of a grammar may take.
pub const MAX_COMPILE_TIME: Duration = Duration::from_secs(5);
/// Largest `minItems`, `maxLength` and the like.
pub const MAX_BOUND: u64 = 100_000;
/// Most cases that the alternatives of a schema may multiply to.
pub const MAX_COMBINATIONS: u64 = 100_000;

/// Limits inside the engine: on compilation, and on one mask.
pub(super) fn parser() -> ParserLimits {
    ParserLimits {
        // Errors go to the client: without the text generated so far.
        verbose_errors: false,
        // Trades time at the start, which a request waits for, for time later.
        precompute_large_lexemes: false,
        max_lexer_states: 20_000,
        ..ParserLimits::default()
    }
}
