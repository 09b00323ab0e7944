//! One sequence: its tokens and what the model remembers of them.

use esker_models::SequenceState;

/// One sequence of tokens with its KV cache and recurrent states.
pub struct Session {
    pub(crate) state: SequenceState,
    /// Tokens that have been fed, oldest first: exactly those that `state` has consumed.
    pub(crate) tokens: Vec<u32>,
    /// A pass failed half-way: the state is part old, part new.
    pub(crate) broken: bool,
}

impl Session {
    /// Tokens fed so far.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Tokens there is room for in all.
    pub fn capacity(&self) -> usize {
        self.state.options.capacity
    }
}
