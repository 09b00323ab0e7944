//! What the owner of the engine tells about a sequence while it is computed.

use crate::error::ApiError;
use serde::Serialize;
use std::time::Duration;

/// Something that happened to one choice of a request.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// More of the reasoning.
    Reasoning(String),
    /// More of the answer, and the tokens that it came with if they were asked for.
    Text { text: String, logprobs: Vec<TokenLogprob> },
    /// A tool call begins. Calls of a choice are numbered from 0 and do not overlap.
    CallStart { index: usize, id: String, name: String },
    /// More of its arguments, JSON text.
    CallArguments { index: usize, delta: String },
    /// The last one has ended; not `complete`: in the middle of its arguments.
    CallEnd { complete: bool },
    /// The last event of a choice that went well.
    Finished(Box<Finish>),
    /// The last event of one that did not.
    Failed(ApiError),
}

/// How a choice ended.
#[derive(Clone, Debug)]
pub(crate) struct Finish {
    pub reason: FinishReason,
    pub usage: Usage,
    pub thinking: ThinkingReport,
    pub timing: Timing,
}

/// Why a choice ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FinishReason {
    /// The model ended its text.
    EndOfText,
    /// It ended with tool calls.
    ToolCalls,
    /// This stop string was met.
    Stop(String),
    /// The request's, or the service's, limit of new tokens was reached.
    MaxTokens,
    /// The context is full.
    ContextFull,
}

/// Tokens of one choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Tokens of the prompt, cached ones included.
    pub prompt_tokens: usize,
    /// Of these, tokens that were not computed again.
    pub cached_tokens: usize,
    /// Tokens drawn.
    pub completion_tokens: usize,
    /// Of these, tokens of the reasoning.
    pub reasoning_tokens: usize,
}

/// What was done about a choice's reasoning.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct ThinkingReport {
    /// The most tokens that reasoning could take; `None`: any number.
    pub limit: Option<usize>,
    /// Text that was put into the model's mouth to end its reasoning, if that was done.
    pub injected: Option<String>,
    /// Tokens of it: they are not part of the completion tokens.
    pub injected_tokens: usize,
}

/// Times of a choice, for logs and metrics.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Timing {
    pub queued: Duration,
    pub prefill: Duration,
    pub decode: Duration,
}

/// A token with its likelihood.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TokenLogprob {
    pub id: u32,
    pub bytes: Vec<u8>,
    /// Natural logarithm of its probability before any sampling setting.
    pub logprob: f32,
    /// The likeliest at this place, best first.
    pub top: Vec<(u32, Vec<u8>, f32)>,
}
