//! Several sequences in one pass.

use crate::engine::Engine;
use crate::load::EngineError;
use crate::session::Session;
use esker_models::Output;
use esker_ops::Rows;

/// What one sequence contributes to a pass.
pub struct BatchItem<'a> {
    /// The sequence.
    pub session: &'a mut Session,
    /// Tokens that follow those it holds.
    pub tokens: &'a [u32],
    /// Which of them logits are wanted for.
    pub output: Output,
}

impl Engine {
    /// Feeds several sequences in one pass: weights and experts are read once for all. The logits asked for, by item; the
    /// bits are those of each sequence alone.
    ///
    /// # Errors
    /// As [`forward`](Self::forward), and if the items have more than [`rows_max`](Self::rows_max) tokens in all. Nothing
    /// has happened if an item is refused; after a failed read every session of the batch is broken.
    pub fn forward_batch(&mut self, items: &mut [BatchItem<'_>]) -> Result<Vec<Option<Rows>>, EngineError> {
        let rows: usize = items.iter().map(|item| item.tokens.len()).sum();
        if rows > self.rows_max() {
            return Err(EngineError::BatchTooLarge { rows, most: self.rows_max() });
        }
        items.iter_mut().map(|item| self.forward(item.session, item.tokens, item.output)).collect()
    }
}
