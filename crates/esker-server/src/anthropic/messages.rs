//! `POST /v1/messages` and `POST /v1/messages/count_tokens`: the request.

use super::input::{messages, system};
use super::output::message;
use super::stream::MessageStream;
use crate::error::ApiError;
use crate::fields::{Object, shown};
use crate::generation::{
    Format, Input, Message, Request, Role, ServerDefaults, Thinking, Tool, ToolChoice, collect, start,
};
use crate::http::{respond, sse};
use crate::openai::options::{basic_sampling, check_model, check_tool_name, check_tools};
use crate::owner::Shared;
use crate::parameters::Parameters;
use axum::response::Response;
use esker_engine::Sampling;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// What of a request is honoured; everything else is refused.
pub(crate) const PARAMETERS: Parameters = Parameters {
    honoured: &[&[
        "model",
        "messages",
        "max_tokens",
        "system",
        "stream",
        "temperature",
        "top_p",
        "top_k",
        "stop_sequences",
        "tools",
        "tool_choice",
        "thinking",
        "output_config",
    ]],
    metadata: &["metadata", "cache_control"],
    neutral: &["service_tier", "inference_geo"],
};

/// What of a request to count tokens is honoured.
pub(crate) const COUNT_PARAMETERS: Parameters = Parameters {
    honoured: &[&["model", "messages", "system", "tools", "tool_choice", "thinking", "output_config"]],
    metadata: &["cache_control"],
    neutral: &[],
};

/// A request, with how its answer is to be sent.
#[derive(Debug)]
pub(crate) struct Messages {
    pub request: Request,
    pub model: String,
    pub stream: bool,
}

/// Answers a request.
pub(crate) async fn answer(shared: &Arc<Shared>, id: &str, body: Value) -> Result<Response, ApiError> {
    let defaults = ServerDefaults::new(&shared.config);
    let Messages { request, model, stream } = parse(body, &defaults, &shared.config, false)?;
    let running = start(shared, id, request).await?;
    if stream {
        let encoder = MessageStream::new(model, running.prompt_tokens);
        return Ok(sse::stream(running, encoder));
    }
    let answers = collect(running).await?;
    let answer = answers.first().ok_or_else(|| ApiError::internal("there is no answer"))?;
    Ok(respond::json(&message(answer, &model)))
}

/// Counts the tokens of a request.
pub(crate) async fn count_tokens(shared: &Arc<Shared>, body: Value) -> Result<Response, ApiError> {
    let defaults = ServerDefaults::new(&shared.config);
    let Messages { request, .. } = parse(body, &defaults, &shared.config, true)?;
    let loaded = shared.ready()?;
    let counted = tokio::task::spawn_blocking(move || loaded.prompter.count(&request));
    let tokens = counted.await.map_err(|_| ApiError::internal("counting failed"))??;
    Ok(respond::json(&json!({"input_tokens": tokens})))
}

/// Reads a request; `count`: one to count its tokens.
pub(crate) fn parse(
    body: Value,
    defaults: &ServerDefaults,
    config: &crate::config::ServerConfig,
    count: bool,
) -> Result<Messages, ApiError> {
    let limits = &defaults.limits;
    let mut o = Object::new(body, "")?;
    let model = o.need_string("model")?;
    check_model(&model, config)?;
    let Some(list) = o.array("messages", limits.messages)? else {
        return Err(ApiError::missing("messages", "a list of messages"));
    };
    let mut conversation: Vec<Message> =
        system(o.take("system"))?.map(|text| Message::new(Role::System, text)).into_iter().collect();
    conversation.extend(messages(list)?);
    let tools = match o.array("tools", limits.tools)? {
        Some(list) => tools(list)?,
        None => Vec::new(),
    };
    check_tools(&tools)?;
    let input = Input::Chat { messages: conversation, tools, variables: Map::new() };
    let mut request = Request::new(input, defaults);
    (request.tool_choice, request.single_call) = match o.object("tool_choice")? {
        Some(choice) => tool_choice(choice)?,
        None => (ToolChoice::Auto, false),
    };
    let mut stream = false;
    if !count {
        let max_tokens = o.integer("max_tokens", 1, u64::from(u32::MAX))?;
        let Some(max_tokens) = max_tokens else {
            return Err(ApiError::missing("max_tokens", "a whole number of at least 1"));
        };
        request.max_tokens = Some(max_tokens as usize);
        stream = o.bool("stream")?.unwrap_or(false);
        request.sampling = sampling(&mut o, defaults)?;
        request.stop = stops(&mut o, limits.stops)?;
        o.ignore(&["metadata"]);
        o.only("service_tier", &[json!("auto"), json!("standard_only")], "there is one tier")?;
        o.only("inference_geo", &[], "the model runs on this machine")?;
    }
    if let Some(thinking) = o.object("thinking")? {
        request.thinking = self::thinking(thinking)?;
    }
    if let Some(config) = o.object("output_config")? {
        output_config(config, &mut request)?;
    }
    // Prefixes are kept without being asked for.
    o.ignore(&["cache_control"]);
    for (name, why) in [
        ("container", "no code is run here"),
        ("mcp_servers", "there are no connections to other servers"),
        ("context_management", "contexts are not edited"),
    ] {
        o.only(name, &[], why)?;
    }
    o.finish()?;
    Ok(Messages { request, model, stream })
}

fn sampling(o: &mut Object, defaults: &ServerDefaults) -> Result<Sampling, ApiError> {
    let mut s = basic_sampling(o, defaults)?;
    if let Some(k) = o.integer("top_k", 0, u64::from(u32::MAX))? {
        s.top_k = k as usize;
    }
    Ok(s)
}

fn stops(o: &mut Object, most: usize) -> Result<Vec<String>, ApiError> {
    let list = o.array("stop_sequences", most)?.unwrap_or_default();
    list.into_iter()
        .enumerate()
        .map(|(i, stop)| match stop {
            Value::String(text) if !text.is_empty() => Ok(text),
            other => Err(ApiError::value(
                format!("stop_sequences[{i}]"),
                shown(&other),
                "a string that is not empty",
            )),
        })
        .collect()
}

fn tools(list: Vec<Value>) -> Result<Vec<Tool>, ApiError> {
    list.into_iter()
        .enumerate()
        .map(|(i, value)| {
            let mut o = Object::new(value, format!("tools[{i}]"))?;
            if let Some(kind) = o.string("type")?.filter(|kind| kind != "custom") {
                return Err(ApiError::unsupported(
                    o.at("type"),
                    format_args!("tools of type `{kind:.60}` are not run here"),
                ));
            }
            let name = o.need_string("name")?;
            if let Err(expected) = check_tool_name(&name) {
                return Err(ApiError::value(
                    o.at("name"),
                    format!("`{:.80}`", name.escape_debug()),
                    expected,
                ));
            }
            let description = o.string("description")?;
            let parameters = o.need("input_schema", "a JSON schema: an object")?;
            if !parameters.is_object() {
                return Err(ApiError::value(
                    o.at("input_schema"),
                    shown(&parameters),
                    "a JSON schema: an object",
                ));
            }
            let strict = o.bool("strict")?.unwrap_or(false);
            o.ignore(&["cache_control", "eager_input_streaming"]);
            o.finish()?;
            Ok(Tool { name, description, parameters, strict })
        })
        .collect()
}

fn tool_choice(mut o: Object) -> Result<(ToolChoice, bool), ApiError> {
    let kind = o.need_string("type")?;
    let choice = match &*kind {
        "auto" => ToolChoice::Auto,
        "any" => ToolChoice::Required,
        "none" => ToolChoice::None,
        "tool" => ToolChoice::Named(o.need_string("name")?),
        other => {
            return Err(ApiError::value(
                o.at("type"),
                format!("`{other:.40}`"),
                "`auto`, `any`, `tool` or `none`",
            ));
        }
    };
    let single = o.bool("disable_parallel_tool_use")?.unwrap_or(false);
    o.finish()?;
    Ok((choice, single))
}

fn thinking(mut o: Object) -> Result<Thinking, ApiError> {
    let kind = o.need_string("type")?;
    let mut thinking = Thinking::default();
    match &*kind {
        "enabled" => {
            thinking.enabled = Some(true);
            let budget = o.integer("budget_tokens", 0, u64::from(u32::MAX))?;
            thinking.budget =
                Some(budget.ok_or_else(|| ApiError::missing(o.at("budget_tokens"), "a number of tokens"))?
                    as usize);
        }
        "adaptive" => thinking.enabled = Some(true),
        "disabled" => thinking.enabled = Some(false),
        other => {
            let expected = "`enabled`, `adaptive` or `disabled`";
            return Err(ApiError::value(o.at("type"), format!("`{other:.40}`"), expected));
        }
    }
    o.only("display", &[json!("summarized")], "thinking is shown as it is")?;
    // Ours: off, thinking is never cut short.
    thinking.close = o.bool("close")?;
    o.finish()?;
    Ok(thinking)
}

fn output_config(mut o: Object, request: &mut Request) -> Result<(), ApiError> {
    if let Some(mut format) = o.object("format")? {
        let kind = format.need_string("type")?;
        if kind != "json_schema" {
            return Err(ApiError::value(format.at("type"), format!("`{kind:.40}`"), "`json_schema`"));
        }
        let schema = format.need("schema", "a JSON schema: an object")?;
        if !schema.is_object() {
            return Err(ApiError::value(format.at("schema"), shown(&schema), "a JSON schema: an object"));
        }
        format.finish()?;
        request.format = Format::JsonSchema(schema);
    }
    request.thinking.effort = o.string("effort")?;
    if let Some(effort) = &request.thinking.effort
        && !["low", "medium", "high", "xhigh", "max"].contains(&&**effort)
    {
        return Err(ApiError::value(
            o.at("effort"),
            format!("`{effort:.40}`"),
            "`low`, `medium`, `high`, `xhigh` or `max`",
        ));
    }
    o.finish()
}
