//! Drawing tokens: the engine's sampler, or, in tests, a script.

use esker_engine::{Sampler, Sampling, SamplingError};

/// Draws the tokens of one sequence.
pub trait Draw: Send {
    /// The next token after `recent`, given `logits`, `[n_vocab]`; among `allowed` if there are bits. `None` if no
    /// token is left.
    fn draw(&mut self, logits: &[f32], recent: &[u32], allowed: Option<&[u32]>) -> Option<u32>;
}

impl Draw for Sampler {
    fn draw(&mut self, logits: &[f32], recent: &[u32], allowed: Option<&[u32]>) -> Option<u32> {
        self.sample_allowed(logits, recent, allowed)
    }
}

/// Makes what draws the tokens of a sequence, given its settings and the size of the vocabulary.
pub type DrawFactory = Box<dyn Fn(&Sampling, usize) -> Result<Box<dyn Draw>, SamplingError> + Send + Sync>;

/// The engine's sampler.
pub(crate) fn sampler() -> DrawFactory {
    Box::new(|sampling, n_vocab| Ok(Box::new(Sampler::new(sampling.clone(), n_vocab)?)))
}
