//! Handing a request to the owner of the engine.

use super::event::Event;
use super::prompt::Prepared;
use super::request::Request;
use crate::error::{ApiError, ErrorKind};
use crate::owner::{Health, Job, Refusal, Shared};
use esker_engine::{Sampler, Sampling};
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// A request that is being computed. Dropping it cancels it within one token.
#[derive(Debug)]
pub(crate) struct Running {
    pub choices: usize,
    pub prompt_tokens: usize,
    events: UnboundedReceiver<(usize, Event)>,
}

impl Running {
    /// The next event, with the number of its choice. If the owner of the engine has gone without a word, that is an
    /// error of the first choice.
    pub async fn next(&mut self) -> (usize, Event) {
        let gone = || (0, Event::Failed(ApiError::internal("the engine has stopped")));
        self.events.recv().await.unwrap_or_else(gone)
    }
}

/// Prepares a request and queues its choices.
///
/// # Errors
/// If the model cannot make tokens (yet), the request is wrong, or the queue is full.
pub(crate) async fn start(shared: &Arc<Shared>, id: &str, request: Request) -> Result<Running, ApiError> {
    let loaded = shared.ready()?;
    let limit = shared.config.limits.max_tokens;
    if request.choices > shared.config.queue + shared.config.slots {
        let most = format!(
            "at most {}, the slots and the queue together",
            shared.config.queue + shared.config.slots
        );
        return Err(ApiError::value("n", request.choices, &most));
    }
    let n_vocab = loaded.info.n_vocab;
    check_sampling(&request.sampling, n_vocab)?;
    let (choices, sampling, logprobs) = (request.choices, request.sampling.clone(), request.logprobs);
    // Templates, tokenizing and grammars take time: not on the threads that serve connections.
    let prepared = tokio::task::spawn_blocking(move || loaded.prompter.prepare(&request, limit))
        .await
        .map_err(|_| ApiError::internal("preparing the request failed"))??;
    let Prepared { prompt, output, constraints, thinking_limit, closing, max_tokens } = prepared;
    let prompt_tokens = prompt.tokens.len();
    let (sender, events) = unbounded_channel();
    let mut constraints = constraints.into_iter();
    let job = |choice: usize| Job {
        request: id.to_owned(),
        choice,
        prompt: prompt.clone(),
        output: output.clone(),
        constraint: constraints.next(),
        thinking_limit,
        closing: closing.clone(),
        max_tokens,
        // Choices of one request are to differ.
        sampling: Sampling { seed: sampling.seed.wrapping_add(choice as u64), ..sampling.clone() },
        logprobs,
        events: sender.clone(),
        submitted: Instant::now(),
    };
    let jobs = (0..choices).map(job).collect();
    shared.queue.submit(jobs).map_err(|refusal| match refusal {
        Refusal::Full { retry_after_s } => {
            shared.metrics.refused.add(1);
            let message = format!("{} requests are waiting already, try again later", shared.queue.waiting());
            ApiError {
                retry_after_s: Some(retry_after_s),
                ..ApiError::new(ErrorKind::Overloaded, message).code("queue_full")
            }
        }
        Refusal::Closed => Health::Stopping.refusal(),
    })?;
    Ok(Running { choices, prompt_tokens, events })
}

/// Ranges that depend on the vocabulary, and those of settings that came together.
fn check_sampling(sampling: &Sampling, n_vocab: usize) -> Result<(), ApiError> {
    match Sampler::new(sampling.clone(), n_vocab) {
        Ok(_) => Ok(()),
        Err(e) => Err(ApiError::value(e.name, e.value, e.expected)),
    }
}
