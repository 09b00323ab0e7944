//! `POST /v1/chat/completions`: the request.

use super::chat_messages::messages;
use super::chat_response::response;
use super::chat_stream::ChatStream;
use super::options;
use crate::error::ApiError;
use crate::fields::{Object, shown};
use crate::generation::{Input, Request, ServerDefaults, collect, start};
use crate::http::{respond, sse};
use crate::owner::Shared;
use crate::parameters::Parameters;
use axum::response::Response;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// What of a request is honoured; everything else is refused.
pub(crate) const PARAMETERS: Parameters = Parameters {
    honoured: &[
        &[
            "model",
            "messages",
            "stream",
            "stream_options",
            "max_tokens",
            "max_completion_tokens",
            "n",
            "stop",
            "logprobs",
            "top_logprobs",
            "tools",
            "tool_choice",
            "parallel_tool_calls",
            "response_format",
            "reasoning_effort",
            "thinking_budget",
            "thinking_close",
            "thinking_closing_sentence",
            "chat_template_kwargs",
        ],
        options::SAMPLING,
    ],
    metadata: options::METADATA,
    neutral: &["store", "service_tier", "modalities", "verbosity"],
};

/// A request, with how its answer is to be sent.
#[derive(Debug)]
pub(crate) struct Chat {
    pub request: Request,
    pub model: String,
    pub stream: bool,
    pub include_usage: bool,
}

/// Answers a request.
pub(crate) async fn chat(shared: &Arc<Shared>, id: &str, body: Value) -> Result<Response, ApiError> {
    let defaults = ServerDefaults::new(&shared.config);
    let Chat { request, model, stream, include_usage } = parse(body, &defaults, &shared.config)?;
    let logprobs = request.logprobs.is_some();
    let running = start(shared, id, request).await?;
    if stream {
        let encoder = ChatStream::new(model, running.choices, running.prompt_tokens, logprobs, include_usage);
        return Ok(sse::stream(running, encoder));
    }
    let answers = collect(running).await?;
    Ok(respond::json(&response(&answers, &model, logprobs)))
}

/// Reads a request.
pub(crate) fn parse(
    body: Value,
    defaults: &ServerDefaults,
    config: &crate::config::ServerConfig,
) -> Result<Chat, ApiError> {
    let limits = &defaults.limits;
    let mut o = Object::new(body, "")?;
    let model = options::model(&mut o, config)?;
    let Some(list) = o.array("messages", limits.messages)? else {
        return Err(ApiError::missing("messages", "a list of messages"));
    };
    let messages = messages(list)?;
    let tools = match o.array("tools", limits.tools)? {
        Some(list) => options::tools(list, true)?,
        None => Vec::new(),
    };
    let variables = match o.take("chat_template_kwargs") {
        None => Map::new(),
        Some(Value::Object(map)) => template_variables(map)?,
        Some(other) => return Err(ApiError::value("chat_template_kwargs", shown(&other), "an object")),
    };
    let enabled = variables.get("enable_thinking").and_then(Value::as_bool);
    let mut request = Request::new(Input::Chat { messages, tools, variables }, defaults);

    request.sampling = options::sampling(&mut o, defaults)?;
    let old = o.integer("max_tokens", 1, u64::from(u32::MAX))?;
    let new = o.integer("max_completion_tokens", 1, u64::from(u32::MAX))?;
    request.max_tokens = match (old, new) {
        (Some(a), Some(b)) if a != b => {
            return Err(ApiError::value(
                "max_tokens",
                a,
                "the same as `max_completion_tokens`, or only one of them",
            ));
        }
        (a, b) => a.or(b).map(|n| n as usize),
    };
    request.choices = o.integer("n", 1, limits.choices as u64)?.unwrap_or(1) as usize;
    request.stop = options::stop(&mut o, limits.stops)?;
    let wanted = o.bool("logprobs")?.unwrap_or(false);
    let top = o.integer("top_logprobs", 0, limits.top_logprobs as u64)?;
    request.logprobs = match (wanted, top) {
        (true, top) => Some(top.unwrap_or(0) as usize),
        (false, Some(n)) if n > 0 => {
            return Err(ApiError::value("top_logprobs", n, "`logprobs` to be true as well"));
        }
        (false, _) => None,
    };
    if let Some(choice) = o.take("tool_choice") {
        request.tool_choice = options::tool_choice(choice, true)?;
    }
    request.single_call = o.bool("parallel_tool_calls")? == Some(false);
    if let Some(format) = o.object("response_format")? {
        request.format = options::format(format, true)?;
    }
    let effort = o.string("reasoning_effort")?;
    request.thinking = options::thinking(&mut o, effort)?;
    request.thinking.enabled = request.thinking.enabled.or(enabled);
    let stream = o.bool("stream")?.unwrap_or(false);
    let include_usage = stream_options(&mut o, stream)?;
    o.ignore(options::METADATA);
    options::neutral(&mut o)?;
    o.only("modalities", &[json!(["text"])], "only text can be written")?;
    o.only("verbosity", &[json!("medium")], "the model has no such setting")?;
    refuse_by_name(&mut o)?;
    o.finish()?;
    options::check_tools(request.tools())?;
    Ok(Chat { request, model, stream, include_usage })
}

/// Variables of a request for the template: all but those that the request has other fields for.
fn template_variables(map: Map<String, Value>) -> Result<Map<String, Value>, ApiError> {
    let own = ["messages", "tools", "add_generation_prompt", "bos_token", "eos_token"];
    match own.into_iter().find(|name| map.contains_key(*name)) {
        Some(name) => {
            let why = "the service sets this variable itself";
            Err(ApiError::unsupported(format!("chat_template_kwargs.{name}"), why))
        }
        None => Ok(map),
    }
}

/// `stream_options`: true if the usage is wanted.
pub(super) fn stream_options(o: &mut Object, stream: bool) -> Result<bool, ApiError> {
    let Some(mut inner) = o.object("stream_options")? else { return Ok(false) };
    if !stream {
        return Err(ApiError::value("stream_options", "set", "`stream` to be true as well"));
    }
    let usage = inner.bool("include_usage")?.unwrap_or(false);
    // Padding that hides lengths from who watches the network; nothing is hidden on this one.
    inner.only("include_obfuscation", &[json!(false)], "events are not padded")?;
    inner.finish()?;
    Ok(usage)
}

/// Parameters that are known, and why they are not honoured.
fn refuse_by_name(o: &mut Object) -> Result<(), ApiError> {
    let known = [
        ("functions", "it is deprecated, use `tools`"),
        ("function_call", "it is deprecated, use `tool_choice`"),
        ("audio", "only text can be written"),
        ("prediction", "there is no speculative decoding from a given text"),
        ("web_search_options", "there is no web search"),
    ];
    known.into_iter().try_for_each(|(name, why)| o.only(name, &[], why))
}
