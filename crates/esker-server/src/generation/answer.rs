//! A whole answer, for requests that do not stream.

use super::event::{Event, Finish, TokenLogprob};
use super::start::Running;
use crate::error::ApiError;

/// One choice of a request, complete.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub reasoning: String,
    pub text: String,
    pub logprobs: Vec<TokenLogprob>,
    pub calls: Vec<Call>,
    pub finish: Finish,
}

/// A tool call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub id: String,
    pub name: String,
    /// JSON text; what there is of it, if the call is not complete.
    pub arguments: String,
    pub complete: bool,
}

#[derive(Default)]
struct Parts {
    reasoning: String,
    text: String,
    logprobs: Vec<TokenLogprob>,
    calls: Vec<Call>,
    finish: Option<Finish>,
}

/// Waits for all choices.
///
/// # Errors
/// The first choice's error; the others are cancelled.
pub(crate) async fn collect(mut running: Running) -> Result<Vec<Answer>, ApiError> {
    let mut choices: Vec<Parts> = (0..running.choices).map(|_| Parts::default()).collect();
    let mut open = running.choices;
    while open > 0 {
        let (choice, event) = running.next().await;
        let parts = &mut choices[choice];
        match event {
            Event::CallEnd { complete } => {
                if let Some(call) = parts.calls.last_mut() {
                    call.complete = complete;
                }
            }
            Event::Reasoning(text) => parts.reasoning.push_str(&text),
            Event::Text { text, logprobs } => {
                parts.text.push_str(&text);
                parts.logprobs.extend(logprobs);
            }
            Event::CallStart { id, name, .. } => {
                parts.calls.push(Call { id, name, arguments: String::new(), complete: false });
            }
            Event::CallArguments { index, delta } => {
                if let Some(call) = parts.calls.get_mut(index) {
                    call.arguments.push_str(&delta);
                }
            }
            Event::Finished(finish) => {
                parts.finish = Some(*finish);
                open -= 1;
            }
            Event::Failed(error) => return Err(error),
        }
    }
    let answer = |parts: Parts| {
        let Parts { reasoning, text, logprobs, calls, finish } = parts;
        let finish = finish.ok_or_else(|| ApiError::internal("a choice ended without saying how"))?;
        Ok(Answer { reasoning, text, logprobs, calls, finish })
    };
    choices.into_iter().map(answer).collect()
}
