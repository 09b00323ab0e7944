//! `POST /v1/responses`: the request. Nothing is kept, so every request brings its whole conversation.

use super::options;
use super::responses_input::input;
use super::responses_output::{Echo, response};
use super::responses_stream::ResponseStream;
use crate::error::ApiError;
use crate::fields::{Object, shown};
use crate::generation::{Input, Message, Request, Role, ServerDefaults, collect, start};
use crate::http::{self, sse};
use crate::owner::Shared;
use crate::parameters::Parameters;
use axum::response::Response;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// What of a request is honoured; everything else is refused.
pub(crate) const PARAMETERS: Parameters = Parameters {
    honoured: &[&[
        "model",
        "input",
        "instructions",
        "stream",
        "max_output_tokens",
        "temperature",
        "top_p",
        "top_logprobs",
        "include",
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "text",
        "reasoning",
    ]],
    metadata: options::METADATA,
    neutral: &["store", "service_tier", "truncation", "background", "stream_options"],
};

/// A request, with how its answer is to be sent.
#[derive(Debug)]
pub(crate) struct Responses {
    pub request: Request,
    pub stream: bool,
    pub echo: Echo,
}

/// Answers a request.
pub(crate) async fn respond(shared: &Arc<Shared>, id: &str, body: Value) -> Result<Response, ApiError> {
    let defaults = ServerDefaults::new(&shared.config);
    let Responses { request, stream, echo } = parse(body, &defaults, &shared.config)?;
    let running = start(shared, id, request).await?;
    if stream {
        let encoder = ResponseStream::new(echo);
        return Ok(sse::stream(running, encoder));
    }
    let answers = collect(running).await?;
    let answer = answers.first().ok_or_else(|| ApiError::internal("there is no answer"))?;
    Ok(http::respond::json(&response(answer, &echo)))
}

/// Reads a request.
pub(crate) fn parse(
    body: Value,
    defaults: &ServerDefaults,
    config: &crate::config::ServerConfig,
) -> Result<Responses, ApiError> {
    let limits = &defaults.limits;
    let mut o = Object::new(body, "")?;
    let model = options::model(&mut o, config)?;
    let instructions = o.string("instructions")?;
    let mut messages: Vec<Message> =
        instructions.iter().map(|text| Message::new(Role::System, text.as_str())).collect();
    messages.extend(input(o.need("input", "a string or a list of items")?, limits.messages)?);
    if messages.iter().all(|m| m.role == Role::System) && instructions.is_some() && messages.len() == 1 {
        return Err(ApiError::value("input", "empty", "at least one item"));
    }
    let shown_tools = o.array("tools", limits.tools)?.unwrap_or_default();
    let tools = options::tools(shown_tools.clone(), false)?;
    options::check_tools(&tools)?;
    let mut request = Request::new(Input::Chat { messages, tools, variables: Map::new() }, defaults);
    request.sampling = options::basic_sampling(&mut o, defaults)?;
    request.max_tokens = o.integer("max_output_tokens", 1, u64::from(u32::MAX))?.map(|n| n as usize);
    let shown_choice = o.take("tool_choice").unwrap_or_else(|| "auto".into());
    request.tool_choice = options::tool_choice(shown_choice.clone(), false)?;
    let parallel = o.bool("parallel_tool_calls")?.unwrap_or(true);
    request.single_call = !parallel;
    let shown_text = text(&mut o, &mut request)?;
    let effort = reasoning(&mut o, &mut request)?;
    let include = include(&mut o)?;
    let top = o.integer("top_logprobs", 0, limits.top_logprobs as u64)?;
    request.logprobs = match (include.logprobs, top) {
        (true, top) => Some(top.unwrap_or(0) as usize),
        (false, Some(n)) if n > 0 => {
            return Err(ApiError::value(
                "top_logprobs",
                n,
                "`include` to have `message.output_text.logprobs` as well",
            ));
        }
        (false, _) => None,
    };
    let stream = o.bool("stream")?.unwrap_or(false);
    if let Some(mut inner) = o.object("stream_options")? {
        inner.only("include_obfuscation", &[json!(false)], "events are not padded")?;
        inner.finish()?;
    }
    o.ignore(options::METADATA);
    // The default of OpenAI's service is to keep responses; the response says that this one does not.
    o.only("store", &[json!(false)], "nothing is kept")?;
    o.only("service_tier", &[json!("auto"), json!("default")], "there is one tier")?;
    o.only("truncation", &[json!("disabled")], "items are not dropped from a conversation")?;
    o.only("background", &[json!(false)], "there is no way to come back for an answer")?;
    for (name, why) in [
        ("previous_response_id", "nothing is kept, so `input` has to have the whole conversation"),
        ("conversation", "nothing is kept, so `input` has to have the whole conversation"),
        ("prompt", "there are no stored prompts"),
        ("max_tool_calls", "only functions can be called, and the client calls them"),
        ("context_management", "contexts are not edited"),
    ] {
        o.only(name, &[], why)?;
    }
    o.finish()?;
    let echo = Echo {
        model,
        instructions,
        max_output_tokens: request.max_tokens,
        temperature: request.sampling.temperature,
        top_p: request.sampling.top_p,
        top_logprobs: request.logprobs.unwrap_or(0),
        logprobs: include.logprobs,
        encrypted_reasoning: include.encrypted_reasoning,
        tools: shown_tools,
        tool_choice: shown_choice,
        parallel,
        text: shown_text,
        effort,
    };
    Ok(Responses { request, stream, echo })
}

struct Include {
    logprobs: bool,
    encrypted_reasoning: bool,
}

fn include(o: &mut Object) -> Result<Include, ApiError> {
    let mut out = Include { logprobs: false, encrypted_reasoning: false };
    for (i, value) in o.array("include", 16)?.unwrap_or_default().into_iter().enumerate() {
        match value.as_str() {
            Some("message.output_text.logprobs") => out.logprobs = true,
            Some("reasoning.encrypted_content") => out.encrypted_reasoning = true,
            _ => {
                let why = format!(
                    "it is {}, expected `message.output_text.logprobs` or `reasoning.encrypted_content`",
                    shown(&value)
                );
                return Err(ApiError::unsupported(format!("include[{i}]"), why));
            }
        }
    }
    Ok(out)
}

fn text(o: &mut Object, request: &mut Request) -> Result<Value, ApiError> {
    let default = json!({"format": {"type": "text"}});
    let Some(mut text) = o.object("text")? else { return Ok(default) };
    let mut echo = default;
    if let Some(format) = text.take("format") {
        echo["format"] = format.clone();
        request.format = options::format(Object::new(format, "text.format")?, false)?;
    }
    text.only("verbosity", &[json!("medium")], "the model has no such setting")?;
    text.finish()?;
    Ok(echo)
}

fn reasoning(o: &mut Object, request: &mut Request) -> Result<Option<String>, ApiError> {
    let Some(mut reasoning) = o.object("reasoning")? else { return Ok(None) };
    let effort = reasoning.string("effort")?;
    // Reasoning is given as it is, whichever summary is asked for.
    for name in ["summary", "generate_summary"] {
        reasoning.only(
            name,
            &[json!("auto"), json!("concise"), json!("detailed")],
            "no such summary is known",
        )?;
    }
    request.thinking = options::thinking_of_effort(effort.clone(), "reasoning.effort")?;
    reasoning.finish()?;
    Ok(effort)
}
