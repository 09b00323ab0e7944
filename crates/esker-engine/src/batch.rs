//! Passes: the tokens of one sequence, or of several together.

use crate::engine::Engine;
use crate::load::EngineError;
use crate::options::SESSIONS_MAX;
use crate::session::Session;
use arrayvec::ArrayVec;
use esker_models::{Output, Pass, Segment};
use esker_ops::{Ctx, Phase, Rows};
use std::time::Instant;

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
    /// Feeds `tokens` in one pass and returns the logits asked for.
    ///
    /// # Errors
    /// If a token is not in the vocabulary, the context is full, or weights cannot be read.
    pub fn forward(
        &mut self,
        session: &mut Session,
        tokens: &[u32],
        output: Output,
    ) -> Result<Option<Rows>, EngineError> {
        self.pass(&mut [BatchItem { session, tokens, output }])
    }

    /// Feeds several sequences in one pass: weights are read once for all, experts at most once. The logits asked for, by
    /// item; the bits are those of each sequence alone.
    ///
    /// # Errors
    /// As [`forward`](Self::forward), and if there are more items than sessions planned for, or more tokens in all than
    /// [`rows_max`](Self::rows_max). If an item is refused, nothing has happened; after a failed read every session that
    /// has tokens in the batch is broken.
    pub fn forward_batch(&mut self, items: &mut [BatchItem<'_>]) -> Result<Vec<Option<Rows>>, EngineError> {
        let mut logits = Vec::with_capacity(items.len());
        self.forward_batch_into(items, &mut logits)?;
        Ok(logits)
    }

    /// As [`forward_batch`](Self::forward_batch); replaces the contents of `logits`, whose memory is reused. What is left
    /// in it from the last pass is best dropped before: its memory then serves this one.
    ///
    /// # Errors
    /// As [`forward_batch`](Self::forward_batch). `logits` is then empty.
    pub fn forward_batch_into(
        &mut self,
        items: &mut [BatchItem<'_>],
        logits: &mut Vec<Option<Rows>>,
    ) -> Result<(), EngineError> {
        logits.clear();
        let (sessions, rows) = (items.len(), items.iter().map(|item| item.tokens.len()).sum());
        if sessions > self.options.sessions || rows > self.rows_max() {
            let (sessions_most, rows_most) = (self.options.sessions, self.rows_max());
            return Err(EngineError::BatchTooLarge { sessions, sessions_most, rows, rows_most });
        }
        let all = self.pass(items)?;
        split(&self.ctx, all, items.iter().map(|item| item.output.n_rows(item.tokens.len())), logits);
        Ok(())
    }

    /// One pass; the logits of all items together.
    fn pass(&mut self, items: &mut [BatchItem<'_>]) -> Result<Option<Rows>, EngineError> {
        let n_vocab = self.model.n_vocab();
        for BatchItem { session, tokens, .. } in items.iter() {
            if session.broken {
                return Err(EngineError::BrokenSession);
            }
            if let Some(&token) = tokens.iter().find(|&&t| t as usize >= n_vocab) {
                return Err(EngineError::TokenRange { token, n_vocab });
            }
            let (used, capacity) = (session.tokens.len(), session.capacity());
            if used + tokens.len() > capacity {
                return Err(EngineError::ContextFull { used, more: tokens.len(), capacity });
            }
        }
        let n_rows: usize = items.iter().map(|item| item.tokens.len()).sum();
        if n_rows == 0 {
            return Ok(None);
        }
        // Buffers of one shape do not fit another: without this, those of several shapes would be held, and the plan is
        // for one at a time. Steady decoding does not come here.
        let shape = (n_rows, items.iter().map(|item| item.output.n_rows(item.tokens.len())).sum());
        if self.shape != shape {
            self.trim_scratch();
            self.shape = shape;
        }
        let is_decode = items.iter().all(|item| item.tokens.len() <= 1);
        let profile = self.ctx.profile();
        profile.begin(if is_decode { Phase::Decode } else { Phase::Prefill });
        let started = profile.is_on().then(Instant::now);
        let mut segments: ArrayVec<Segment<'_>, SESSIONS_MAX> = ArrayVec::new();
        for BatchItem { session, tokens, output } in items.iter_mut().filter(|item| !item.tokens.is_empty()) {
            session.broken = true;
            segments.push(Segment { tokens, state: &mut session.state, output: *output });
        }
        let mut pass =
            Pass::new(&self.ctx, self.store.as_dyn(), &mut self.scratch, &mut self.moved, &segments)?;
        let logits = self.model.forward(&mut pass, &mut segments)?;
        drop(segments);
        if let Some(started) = started {
            self.ctx.profile().end_pass(n_rows, started.elapsed());
        }
        for BatchItem { session, tokens, .. } in items.iter_mut().filter(|item| !item.tokens.is_empty()) {
            session.tokens.extend_from_slice(tokens);
            session.broken = false;
            self.keep_chunk(session, tokens.len());
        }
        Ok(logits)
    }

    /// Gives the memory of the last passes back to the system.
    pub(crate) fn trim_scratch(&mut self) {
        self.ctx.trim_scratch();
        self.scratch.trim();
        self.shape = (0, 0);
    }
}

/// Hands every item its rows of `all`: so many each, in order.
pub(crate) fn split(
    ctx: &Ctx,
    mut all: Option<Rows>,
    counts: impl Iterator<Item = usize>,
    out: &mut Vec<Option<Rows>>,
) {
    let mut end = 0;
    out.extend(counts.map(|n| {
        let start = end;
        end += n;
        match &all {
            Some(rows) if n > 0 && n == rows.n_rows() => all.take(),
            Some(rows) if n > 0 => {
                let mut own = ctx.rows(n, rows.n_cols());
                own.data_mut().copy_from_slice(rows.rows(start..end));
                Some(own)
            }
            _ => None,
        }
    }));
}
