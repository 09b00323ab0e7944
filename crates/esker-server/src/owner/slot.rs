//! A slot: the session of one sequence, and what is being done with it.

use super::draw::Draw;
use super::queue::Job;
use super::status::{Phase, SlotState};
use crate::error::ApiError;
use crate::generation::{
    Event, Finish, FinishReason, Next, Output, ThinkingReport, Timing, TokenLogprob, Usage,
};
use crate::metrics::Metrics;
use esker_engine::{Session, logprobs};
use esker_text::Tokenizer;
use std::time::{Duration, Instant};

/// Prompts without messages get a snapshot before their last token if they are at least this long.
const SNAPSHOT_TOKENS_MIN: usize = 64;

/// Room for one sequence. The session stays when a sequence ends: the next one may begin alike.
pub(super) struct Slot {
    pub session: Session,
    pub sequence: Option<Sequence>,
    /// When its last sequence ended.
    pub idle_since: Instant,
}

/// A sequence that is being computed.
pub(super) struct Sequence {
    pub job: Job,
    output: Output,
    draw: Box<dyn Draw>,
    /// Tokens to be fed, those before `fed` have been.
    feed: Vec<u32>,
    fed: usize,
    cached: usize,
    /// Tokens of the session after which a snapshot is taken, in order.
    snapshots: Vec<usize>,
    drawn: usize,
    reasoned: usize,
    thinking: ThinkingReport,
    /// The text was ended in its middle, by a stop string or after the only call that was wanted.
    cut: bool,
    allowed: Vec<u32>,
    /// What the grammar allows next is in `allowed` already.
    mask_is_known: bool,
    admitted: Instant,
    first_token: Option<Instant>,
    last_token: Instant,
}

/// How a sequence goes on after its logits have been used.
pub(super) enum Step {
    More,
    Done(FinishReason),
    Failed(ApiError),
}

impl Sequence {
    /// A job's sequence in a session that holds `cached` tokens of its prompt.
    pub fn new(job: Job, draw: Box<dyn Draw>, cached: usize) -> Sequence {
        let prompt = &job.prompt;
        let n = prompt.tokens.len();
        let ends = &prompt.message_ends;
        let mut snapshots: Vec<usize> = match (ends.first(), ends.last()) {
            (Some(&first), Some(&last)) => vec![first, last],
            _ if n >= SNAPSHOT_TOKENS_MIN => vec![n - 1],
            _ => Vec::new(),
        };
        snapshots.dedup();
        snapshots.retain(|&at| at > cached && at < n);
        let now = Instant::now();
        Sequence {
            output: Output::new(job.output.clone()),
            draw,
            feed: prompt.tokens[cached..].to_vec(),
            fed: 0,
            cached,
            snapshots,
            drawn: 0,
            reasoned: 0,
            thinking: ThinkingReport { limit: job.thinking_limit, ..ThinkingReport::default() },
            cut: false,
            allowed: Vec::new(),
            mask_is_known: false,
            admitted: now,
            first_token: None,
            last_token: now,
            job,
        }
    }

    /// Ends reasoning that the prompt has opened and for which there is no room.
    ///
    /// # Errors
    /// If the grammar of the answer forbids it.
    pub fn begin(&mut self) -> Result<(), ApiError> {
        if self.job.thinking_limit == Some(0) && self.output.in_reasoning() {
            self.close_reasoning()?;
        }
        Ok(())
    }

    /// Feeds the model what ends its reasoning; tells whoever listens, and reports it.
    fn close_reasoning(&mut self) -> Result<(), ApiError> {
        let closing = self.job.closing.clone();
        self.mask_is_known = false;
        if let Some(constraint) = &mut self.job.constraint {
            for &token in &closing.tokens {
                constraint.accept(token).map_err(ApiError::internal)?;
            }
        }
        let job = &self.job;
        self.output.push_text(&closing.text, &mut |event| job.tell(event));
        self.thinking.injected.get_or_insert_with(String::new).push_str(&closing.text);
        self.thinking.injected_tokens += closing.tokens.len();
        self.feed.extend(&closing.tokens);
        Ok(())
    }

    pub fn phase(&self) -> Phase {
        if self.first_token.is_some() { Phase::Decode } else { Phase::Prefill }
    }

    /// Tokens to be fed next, at most `most`, and whether they are the last ones before a token is drawn. Ends where a
    /// snapshot is to be taken.
    pub fn next_tokens(&self, held: usize, most: usize) -> (&[u32], bool) {
        let rest = &self.feed[self.fed..];
        let until = self.snapshots.first().map_or(usize::MAX, |at| at - held);
        let n = rest.len().min(most).min(until);
        (&rest[..n], n == rest.len())
    }

    /// Tokens still to be fed.
    pub fn left(&self) -> usize {
        self.feed.len() - self.fed
    }

    /// `n` tokens have been fed, so that the session holds `held`. True if a snapshot is to be taken.
    pub fn fed(&mut self, n: usize, held: usize) -> bool {
        self.fed += n;
        let due = self.snapshots.first() == Some(&held);
        if due {
            self.snapshots.remove(0);
        }
        due
    }

    /// Draws a token, given the logits of the last one that was fed.
    pub fn advance(
        &mut self,
        logits: &[f32],
        session: &Session,
        tokenizer: &Tokenizer,
        metrics: &Metrics,
    ) -> Step {
        let now = Instant::now();
        match self.first_token {
            None => {
                self.first_token = Some(now);
                metrics.first_token.observe(now - self.job.submitted);
            }
            Some(_) => metrics.between_tokens.observe(now - self.last_token),
        }
        self.last_token = now;
        if self.job.max_tokens == 0 {
            return Step::Done(FinishReason::MaxTokens);
        }
        let token = match self.draw(logits, session, tokenizer) {
            Ok(token) => token,
            Err(error) => return Step::Failed(error),
        };
        self.drawn += 1;
        metrics.generated_tokens.add(1);
        if tokenizer.is_end_of_generation(token) {
            return Step::Done(self.ended());
        }
        if let Some(constraint) = &mut self.job.constraint
            && let Err(e) = constraint.accept(token)
        {
            return Step::Failed(ApiError::internal(e));
        }
        let logprob = self.job.logprobs.map(|top| token_logprob(logits, token, top, tokenizer));
        let was_inside = self.output.in_reasoning();
        let job = &self.job;
        let next = self.output.push(tokenizer, token, logprob, &mut |event| job.tell(event));
        let inside = self.output.in_reasoning();
        if was_inside || inside {
            self.reasoned += 1;
        }
        match next {
            Next::More => {}
            Next::Stop(text) => {
                self.cut = true;
                return Step::Done(FinishReason::Stop(text));
            }
            Next::CallDone => {
                self.cut = true;
                return Step::Done(FinishReason::ToolCalls);
            }
            Next::CallRefused => {
                self.cut = true;
                return Step::Done(FinishReason::EndOfText);
            }
        }
        match self.next_mask() {
            Ok(true) => {}
            // Nothing can follow: the model need not be asked for the token that ends the text.
            Ok(false) => return Step::Done(self.ended()),
            Err(error) => return Step::Failed(error),
        }
        if self.drawn >= self.job.max_tokens {
            return Step::Done(FinishReason::MaxTokens);
        }
        self.feed.clear();
        self.fed = 0;
        self.feed.push(token);
        if inside
            && self.job.thinking_limit.is_some_and(|limit| self.reasoned >= limit)
            && let Err(error) = self.close_reasoning()
        {
            return Step::Failed(error);
        }
        if session.tokens().len() + self.feed.len() > session.capacity() {
            return Step::Done(FinishReason::ContextFull);
        }
        Step::More
    }

    /// Finds out what the grammar allows next; false if that is nothing but the end.
    fn next_mask(&mut self) -> Result<bool, ApiError> {
        let Some(constraint) = &mut self.job.constraint else { return Ok(true) };
        constraint.mask(&mut self.allowed).map_err(ApiError::internal)?;
        self.mask_is_known = true;
        Ok(!constraint.is_over())
    }

    /// Sets `allowed` to what may come next; false if that is anything.
    fn restrict(&mut self, n_vocab: usize, tokenizer: &Tokenizer) -> Result<bool, ApiError> {
        if self.job.constraint.is_some() {
            if !std::mem::take(&mut self.mask_is_known) {
                self.next_mask()?;
                self.mask_is_known = false;
            }
            return Ok(true);
        }
        // Reasoning that was ended does not begin again, and calls that are not wanted do not begin.
        let spec = &self.job.output;
        let reasoning = spec.reasoning.as_ref().filter(|_| self.thinking.injected.is_some());
        let calls = spec.tools.as_ref().filter(|_| spec.no_calls);
        let open = reasoning.and_then(|format| tokenizer.special_token(format.open()));
        let calls = calls.into_iter().flat_map(|(format, _)| format.openers());
        let calls = calls.filter_map(|tag| tokenizer.special_token(tag));
        let mut restricted = false;
        for token in open.into_iter().chain(calls) {
            if !std::mem::replace(&mut restricted, true) {
                self.allowed.clear();
                self.allowed.resize(n_vocab.div_ceil(32), u32::MAX);
            }
            if let Some(word) = self.allowed.get_mut(token as usize / 32) {
                *word &= !(1 << (token % 32));
            }
        }
        Ok(restricted)
    }

    fn draw(&mut self, logits: &[f32], session: &Session, tokenizer: &Tokenizer) -> Result<u32, ApiError> {
        let restricted = self.restrict(logits.len(), tokenizer)?;
        let allowed = restricted.then_some(&*self.allowed);
        let drawn = self.draw.draw(logits, session.tokens(), allowed);
        drawn.ok_or_else(|| {
            ApiError::internal("no token is possible: the bias forbids all that the grammar allows")
        })
    }

    /// Why the model ended its text.
    fn ended(&self) -> FinishReason {
        if self.output.calls() > 0 { FinishReason::ToolCalls } else { FinishReason::EndOfText }
    }

    /// Tells the end of the sequence.
    pub fn finish(mut self, reason: FinishReason, metrics: &Metrics) {
        let job = &self.job;
        let mut emit = |event| job.tell(event);
        if self.cut {
            self.output.finish_cut(&mut emit);
        } else {
            self.output.finish(&mut emit);
        }
        let reason = match reason {
            // The last piece of the text can complete a call.
            FinishReason::EndOfText if self.output.calls() > 0 => FinishReason::ToolCalls,
            other => other,
        };
        let usage = Usage {
            prompt_tokens: job.prompt.tokens.len(),
            cached_tokens: self.cached,
            completion_tokens: self.drawn,
            reasoning_tokens: self.reasoned,
        };
        let first = self.first_token.unwrap_or(self.last_token);
        let timing = Timing {
            queued: self.admitted - job.submitted,
            prefill: first - self.admitted,
            decode: self.last_token - first,
        };
        metrics.prompt_tokens.add(usage.prompt_tokens as u64);
        metrics.cached_tokens.add(usage.cached_tokens as u64);
        tracing::info!(
            request = job.request,
            choice = job.choice,
            finish = ?reason_name(&reason),
            prompt_tokens = usage.prompt_tokens,
            cached_tokens = usage.cached_tokens,
            completion_tokens = usage.completion_tokens,
            reasoning_tokens = usage.reasoning_tokens,
            thinking_closed = self.thinking.injected.is_some(),
            injected_tokens = self.thinking.injected_tokens,
            queued_ms = millis(timing.queued),
            prefill_ms = millis(timing.prefill),
            decode_ms = millis(timing.decode),
            "finished"
        );
        let thinking = self.thinking;
        job.tell(Event::Finished(Box::new(Finish { reason, usage, thinking, timing })));
    }

    /// How long the sequence has had its slot.
    pub fn kept(&self) -> Duration {
        self.admitted.elapsed()
    }

    pub fn state(&self, held: usize) -> SlotState {
        let decoding = self.first_token.map_or(0.0, |first| (self.last_token - first).as_secs_f64());
        let rate = if decoding > 0.0 { self.drawn.saturating_sub(1) as f64 / decoding } else { 0.0 };
        let prompt_tokens = self.job.prompt.tokens.len();
        SlotState {
            phase: self.phase(),
            prompt_tokens,
            prefilled_tokens: held.min(prompt_tokens),
            generated_tokens: self.drawn,
            tokens_per_s: rate,
        }
    }
}

fn token_logprob(logits: &[f32], token: u32, top: usize, tokenizer: &Tokenizer) -> TokenLogprob {
    let all = logprobs(logits, token, top);
    let bytes = |id: u32| tokenizer.token_bytes(id).unwrap_or_default().to_vec();
    TokenLogprob {
        id: token,
        bytes: bytes(token),
        logprob: all.drawn.logprob,
        top: all.top.iter().map(|l| (l.token, bytes(l.token), l.logprob)).collect(),
    }
}

fn reason_name(reason: &FinishReason) -> &'static str {
    match reason {
        FinishReason::EndOfText => "end_of_text",
        FinishReason::ToolCalls => "tool_calls",
        FinishReason::Stop(_) => "stop_string",
        FinishReason::MaxTokens => "max_tokens",
        FinishReason::ContextFull => "context_full",
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
