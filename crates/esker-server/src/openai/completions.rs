//! `POST /v1/completions`: text that goes on from a prompt as it stands.

use super::chat::stream_options;
use super::chat_response::{completion_id, extension, fingerprint, usage};
use super::chunks::Chunks;
use super::{logprobs, options};
use crate::error::ApiError;
use crate::fields::{Object, shown};
use crate::generation::{
    Answer, Event, FinishReason, Input, Request, Running, ServerDefaults, TokenLogprob, collect, start,
};
use crate::http::sse::{Encode, SseBuffer};
use crate::http::{respond, sse};
use crate::owner::Shared;
use crate::parameters::Parameters;
use crate::time::unix_s;
use axum::response::Response;
use serde_json::{Value, json};
use std::sync::Arc;

/// What of a request is honoured; everything else is refused.
pub(crate) const PARAMETERS: Parameters = Parameters {
    honoured: &[
        &["model", "prompt", "stream", "stream_options", "max_tokens", "n", "stop", "logprobs", "echo"],
        options::SAMPLING,
    ],
    metadata: options::METADATA,
    neutral: &["best_of", "suffix"],
};

/// New tokens of requests that name no number, as this endpoint always had it.
const MAX_TOKENS: usize = 16;

/// Prompts of one request.
const PROMPTS_MAX: usize = 16;

/// A request, with how its answer is to be sent.
#[derive(Debug)]
pub(crate) struct Completion {
    /// One for each prompt.
    pub requests: Vec<Request>,
    pub model: String,
    pub stream: bool,
    pub include_usage: bool,
    pub echo: bool,
}

/// Answers a request.
pub(crate) async fn complete(shared: &Arc<Shared>, id: &str, body: Value) -> Result<Response, ApiError> {
    let defaults = ServerDefaults::new(&shared.config);
    let parsed = parse(body, &defaults, &shared.config)?;
    let Completion { requests, model, stream, include_usage, echo } = parsed;
    let echoes: Vec<String> =
        requests.iter().map(|r| if echo { prompt_text(r, shared) } else { String::new() }).collect();
    if stream {
        let Ok([request]) = <[Request; 1]>::try_from(requests) else {
            return Err(ApiError::unsupported(
                "stream",
                "several prompts cannot be streamed in one response",
            ));
        };
        let running = start(shared, id, request).await?;
        let echo = echoes.into_iter().next().unwrap_or_default();
        let encoder = CompletionStream::new(model, &running, include_usage, echo);
        return Ok(sse::stream(running, encoder));
    }
    let mut runs = Vec::with_capacity(requests.len());
    for (i, request) in requests.into_iter().enumerate() {
        runs.push(start(shared, &format!("{id}.{i}"), request).await?);
    }
    let mut choices = Vec::new();
    let mut usages = Vec::new();
    for (running, echo) in runs.into_iter().zip(&echoes) {
        let answers = collect(running).await?;
        for answer in &answers {
            choices.push(choice(choices.len(), answer, echo));
        }
        usages.push(usage(answers.iter().map(|a| a.finish.usage)));
    }
    Ok(respond::json(&json!({
        "id": completion_id("cmpl"),
        "object": "text_completion",
        "created": unix_s(),
        "model": model,
        "choices": choices,
        "usage": sum(&usages),
        "system_fingerprint": fingerprint(),
    })))
}

/// Reads a request.
pub(crate) fn parse(
    body: Value,
    defaults: &ServerDefaults,
    config: &crate::config::ServerConfig,
) -> Result<Completion, ApiError> {
    let limits = &defaults.limits;
    let mut o = Object::new(body, "")?;
    let model = options::model(&mut o, config)?;
    let inputs = prompts(o.take("prompt").unwrap_or_else(|| "".into()))?;
    let mut request = Request::new(Input::Text(String::new()), defaults);
    request.sampling = options::sampling(&mut o, defaults)?;
    let max_tokens = o.integer("max_tokens", 0, u64::from(u32::MAX))?;
    request.max_tokens = Some(max_tokens.map_or(MAX_TOKENS, |n| n as usize));
    request.choices = o.integer("n", 1, limits.choices as u64)?.unwrap_or(1) as usize;
    request.stop = options::stop(&mut o, limits.stops)?;
    request.logprobs = o.integer("logprobs", 0, limits.top_logprobs as u64)?.map(|n| n as usize);
    let echo = o.bool("echo")?.unwrap_or(false);
    if echo && request.logprobs.is_some() {
        return Err(ApiError::unsupported(
            "echo",
            "likelihoods of the prompt's tokens are not computed (`logprobs` is set)",
        ));
    }
    let stream = o.bool("stream")?.unwrap_or(false);
    let include_usage = stream_options(&mut o, stream)?;
    o.only("best_of", &[json!(1), json!(request.choices)], "answers are not ranked")?;
    o.only("suffix", &[json!("")], "text cannot be inserted before other text")?;
    o.ignore(options::METADATA);
    o.finish()?;
    let requests = inputs.into_iter().map(|input| Request { input, ..request.clone() }).collect();
    Ok(Completion { requests, model, stream, include_usage, echo })
}

/// A text, texts, token ids, or lists of these.
fn prompts(value: Value) -> Result<Vec<Input>, ApiError> {
    let expected = "a string, a list of strings, a list of token ids, or a list of such lists";
    let list = match value {
        Value::String(text) => return Ok(vec![Input::Text(text)]),
        Value::Array(list) if !list.is_empty() => list,
        other => return Err(ApiError::value("prompt", shown(&other), expected)),
    };
    let ids = |list: &[Value], at: &str| -> Result<Input, ApiError> {
        let id = |(i, v): (usize, &Value)| {
            let id = v.as_u64().and_then(|id| u32::try_from(id).ok());
            id.ok_or_else(|| ApiError::value(format!("{at}[{i}]"), shown(v), "a token id"))
        };
        Ok(Input::Tokens(list.iter().enumerate().map(id).collect::<Result<_, _>>()?))
    };
    if list[0].is_number() {
        return Ok(vec![ids(&list, "prompt")?]);
    }
    if list.len() > PROMPTS_MAX {
        return Err(ApiError::value(
            "prompt",
            format!("a list of {}", list.len()),
            &format!("at most {PROMPTS_MAX}"),
        ));
    }
    list.into_iter()
        .enumerate()
        .map(|(i, prompt)| match prompt {
            Value::String(text) => Ok(Input::Text(text)),
            Value::Array(list) => ids(&list, &format!("prompt[{i}]")),
            other => {
                Err(ApiError::value(format!("prompt[{i}]"), shown(&other), "a string or a list of token ids"))
            }
        })
        .collect()
}

fn prompt_text(request: &Request, shared: &Shared) -> String {
    match &request.input {
        Input::Text(text) => text.clone(),
        Input::Tokens(ids) => {
            let decoded = shared.loaded().map(|l| l.prompter.tokenizer().decode_lossy(ids, false));
            decoded.unwrap_or_default()
        }
        Input::Chat { .. } => String::new(),
    }
}

fn choice(index: usize, answer: &Answer, echo: &str) -> Value {
    let logprobs = (!answer.logprobs.is_empty()).then(|| logprobs::legacy(&answer.logprobs, 0));
    json!({
        "index": index,
        "text": format!("{echo}{}", answer.text),
        "logprobs": logprobs,
        "finish_reason": finish_reason(&answer.finish.reason),
        "esker": extension(&answer.finish),
    })
}

fn finish_reason(reason: &FinishReason) -> &'static str {
    match reason {
        FinishReason::EndOfText | FinishReason::Stop(_) | FinishReason::ToolCalls => "stop",
        FinishReason::MaxTokens | FinishReason::ContextFull => "length",
    }
}

/// Adds up the usage of several prompts.
fn sum(usages: &[Value]) -> Value {
    let mut total = usages.first().cloned().unwrap_or_default();
    let add = |total: &mut Value, more: &Value| {
        *total = json!(total.as_u64().unwrap_or(0) + more.as_u64().unwrap_or(0));
    };
    for more in usages.iter().skip(1) {
        for key in ["prompt_tokens", "completion_tokens", "total_tokens"] {
            add(&mut total[key], &more[key]);
        }
        let (group, key) = ("prompt_tokens_details", "cached_tokens");
        add(&mut total[group][key], &more[group][key]);
    }
    total
}

/// Writes events as chunks.
struct CompletionStream {
    chunks: Chunks,
    echo: String,
    /// Characters of each choice so far.
    offsets: Vec<usize>,
}

impl CompletionStream {
    fn new(model: String, running: &Running, include_usage: bool, echo: String) -> CompletionStream {
        let sizes = (running.choices, running.prompt_tokens);
        CompletionStream {
            chunks: Chunks::new("text_completion", "cmpl", model, sizes, include_usage),
            echo,
            offsets: vec![0; running.choices],
        }
    }

    fn text(&mut self, index: usize, text: &str, logprobs: &[TokenLogprob], out: &mut SseBuffer) {
        let shown = (!logprobs.is_empty()).then(|| logprobs::legacy(logprobs, self.offsets[index]));
        self.offsets[index] += text.chars().count();
        let choice = json!({"index": index, "text": text, "logprobs": shown, "finish_reason": null});
        self.chunks.write(choice, out);
    }
}

impl Encode for CompletionStream {
    fn start(&mut self, out: &mut SseBuffer) {
        let echo = std::mem::take(&mut self.echo);
        if echo.is_empty() {
            // So that the response begins before the first token does.
            out.comment("start");
        } else {
            for index in 0..self.chunks.choices() {
                self.text(index, &echo, &[], out);
            }
        }
    }

    fn event(&mut self, choice: usize, event: Event, out: &mut SseBuffer) {
        match event {
            Event::Text { text, logprobs } => self.text(choice, &text, &logprobs, out),
            Event::Finished(finish) => {
                self.chunks.finished(choice, finish.usage);
                let ended = json!({
                    "index": choice,
                    "text": "",
                    "logprobs": null,
                    "finish_reason": finish_reason(&finish.reason),
                    "esker": extension(&finish),
                });
                self.chunks.write(ended, out);
            }
            // A text has neither reasoning nor calls.
            _ => {}
        }
    }

    fn end(&mut self, out: &mut SseBuffer) {
        self.chunks.end(out);
    }

    fn failed(&mut self, error: &ApiError, out: &mut SseBuffer) {
        Chunks::failed(error, out);
    }
}
