//! One request as all APIs see it: what is asked for, what is answered, and the steps between.
//!
//! The wire formats of `openai` and `anthropic` convert to [`Request`] and from [`Event`] and know nothing else of the
//! engine. A request becomes a [`Prompt`](prompt::Prompt) and one [`Job`](crate::owner::Job) for each choice.

mod answer;
mod constraint;
mod event;
mod message;
mod output;
mod prompt;
mod request;
mod start;

pub(crate) use answer::{Answer, Call, collect};
pub(crate) use event::{Event, Finish, FinishReason, ThinkingReport, Timing, TokenLogprob, Usage};
pub(crate) use message::{Message, Role, ToolCall};
pub(crate) use output::{Next, Output, OutputSpec};
pub(crate) use prompt::{Closing, Prompt, Prompter};
pub(crate) use request::{Format, Input, Request, ServerDefaults, Thinking, Tool, ToolChoice, random_seed};
pub(crate) use start::{Running, start};
