//! Parameters that several endpoints share.

use crate::error::ApiError;
use crate::fields::{Object, shown};
use crate::generation::{Format, ServerDefaults, Thinking, Tool, ToolChoice, random_seed};
use esker_engine::Sampling;
use serde_json::{Value, json};

/// Parameters that change no answer; they are accepted and forgotten.
pub(super) const METADATA: &[&str] =
    &["user", "metadata", "safety_identifier", "prompt_cache_key", "prompt_cache_retention"];

/// Settings of sampling under the names that OpenAI gives them, and those of ours that it has no name for.
pub(super) const SAMPLING: &[&str] = &[
    "temperature",
    "top_p",
    "presence_penalty",
    "frequency_penalty",
    "logit_bias",
    "seed",
    "top_k",
    "min_p",
    "typical_p",
    "repeat_penalty",
    "penalty_last_n",
];

/// Checks that the request is for a model that there is, and returns its name.
pub(crate) fn model(o: &mut Object, shared: &crate::config::ServerConfig) -> Result<String, ApiError> {
    let name = o.need_string("model")?;
    check_model(&name, shared)?;
    Ok(name)
}

/// Checks that there is a model of this name.
pub(crate) fn check_model(name: &str, config: &crate::config::ServerConfig) -> Result<(), ApiError> {
    if name == config.model_name || config.aliases.iter().any(|alias| alias == name) {
        return Ok(());
    }
    let name: String = name.chars().take(100).collect();
    let names: Vec<&str> =
        std::iter::once(&config.model_name).chain(&config.aliases).map(String::as_str).collect();
    let message = format!("there is no model `{name}`, expected `{}`", names.join("` or `"));
    let error = ApiError::new(crate::error::ErrorKind::NotFound, message);
    Err(error.code("model_not_found").named("model"))
}

/// Temperature and top-p, which every API has; the rest by default, with a new seed.
pub(crate) fn basic_sampling(o: &mut Object, defaults: &ServerDefaults) -> Result<Sampling, ApiError> {
    let mut s = Sampling { seed: random_seed(), ..defaults.sampling.clone() };
    float(o.number("temperature", 0.0, 2.0)?, &mut s.temperature);
    float(o.number("top_p", 0.0, 1.0)?, &mut s.top_p);
    if s.top_p == 0.0 {
        // The smallest set of tokens that reaches a probability of 0 is the likeliest one.
        s.top_k = 1;
        s.top_p = 1.0;
    }
    Ok(s)
}

fn float(value: Option<f64>, to: &mut f32) {
    if let Some(value) = value {
        *to = value as f32;
    }
}

/// The parameters of [`SAMPLING`].
pub(super) fn sampling(o: &mut Object, defaults: &ServerDefaults) -> Result<Sampling, ApiError> {
    let mut s = basic_sampling(o, defaults)?;
    float(o.number("presence_penalty", -2.0, 2.0)?, &mut s.presence_penalty);
    float(o.number("frequency_penalty", -2.0, 2.0)?, &mut s.frequency_penalty);
    float(o.number("min_p", 0.0, 1.0)?, &mut s.min_p);
    float(o.number("typical_p", 0.0, 1.0)?, &mut s.typical_p);
    float(o.number("repeat_penalty", 0.01, 10.0)?, &mut s.repeat_penalty);
    if let Some(n) = o.integer("top_k", 0, u64::from(u32::MAX))? {
        s.top_k = n as usize;
    }
    if let Some(n) = o.integer("penalty_last_n", 0, 4096)? {
        s.penalty_last_n = n as usize;
    }
    s.seed = seed(o)?.unwrap_or(s.seed);
    if let Some(bias) = o.object("logit_bias")? {
        s.logit_bias = logit_bias(bias)?;
    }
    Ok(s)
}

/// Any whole number of 64 bits, with or without a sign.
fn seed(o: &mut Object) -> Result<Option<u64>, ApiError> {
    match o.take("seed") {
        None => Ok(None),
        Some(value) => match (value.as_u64(), value.as_i64()) {
            (Some(n), _) => Ok(Some(n)),
            (None, Some(n)) => Ok(Some(n.cast_unsigned())),
            (None, None) => Err(ApiError::value(o.at("seed"), shown(&value), "a whole number of 64 bits")),
        },
    }
}

fn logit_bias(o: Object) -> Result<Vec<(u32, f32)>, ApiError> {
    const MOST: usize = 1024;
    let path = o.path().to_owned();
    let entries = o.into_entries();
    if entries.len() > MOST {
        return Err(ApiError::value(
            path,
            format!("of {} tokens", entries.len()),
            &format!("at most {MOST}"),
        ));
    }
    let entry = |(id, bias): (String, Value)| {
        let range = |b: &f64| (-100.0..=100.0).contains(b);
        match (id.parse::<u32>(), bias.as_f64().filter(range)) {
            // -100 is documented to forbid a token.
            (Ok(id), Some(-100.0)) => Ok((id, f32::NEG_INFINITY)),
            (Ok(id), Some(bias)) => Ok((id, bias as f32)),
            (Err(_), _) => {
                let id: String = id.chars().take(40).collect();
                Err(ApiError::value(
                    path.clone(),
                    format!("for token `{}`", id.escape_debug()),
                    "token ids as keys",
                ))
            }
            (Ok(id), None) => {
                Err(ApiError::value(format!("{path}.{id}"), shown(&bias), "a number of -100 to 100"))
            }
        }
    };
    entries.into_iter().map(entry).collect()
}

/// `stop`: a text or some texts.
pub(super) fn stop(o: &mut Object, most: usize) -> Result<Vec<String>, ApiError> {
    let stops = match o.take("stop") {
        None => return Ok(Vec::new()),
        Some(Value::String(one)) => vec![Value::String(one)],
        Some(Value::Array(list)) if list.len() <= most => list,
        Some(other) => {
            let expected = format!("a string or a list of at most {most} strings");
            return Err(ApiError::value(o.at("stop"), shown(&other), &expected));
        }
    };
    stops
        .into_iter()
        .enumerate()
        .map(|(i, stop)| match stop {
            Value::String(text) if !text.is_empty() => Ok(text),
            other => {
                Err(ApiError::value(o.at(&format!("stop[{i}]")), shown(&other), "a string that is not empty"))
            }
        })
        .collect()
}

/// What is said about reasoning outside of `reasoning_effort`: extensions of ours.
pub(super) fn thinking(o: &mut Object, effort: Option<String>) -> Result<Thinking, ApiError> {
    let mut thinking = thinking_of_effort(effort, "reasoning_effort")?;
    if let Some(budget) = o.integer("thinking_budget", 0, u64::from(u32::MAX))? {
        thinking.budget = Some(budget as usize);
    }
    thinking.close = o.bool("thinking_close")?;
    thinking.closing_sentence = o.string("thinking_closing_sentence")?;
    if thinking.closing_sentence.as_ref().is_some_and(|s| s.len() > 1000) {
        return Err(ApiError::value(o.at("thinking_closing_sentence"), "longer", "at most 1000 bytes"));
    }
    Ok(thinking)
}

/// What an effort means.
pub(super) fn thinking_of_effort(effort: Option<String>, at: &str) -> Result<Thinking, ApiError> {
    let mut thinking = Thinking::default();
    let Some(effort) = effort else { return Ok(thinking) };
    thinking.budget = effort_budget(&effort);
    match &*effort {
        "none" => thinking.enabled = Some(false),
        "minimal" | "low" | "medium" | "high" | "xhigh" => thinking.effort = Some(effort),
        _ => {
            let expected = "`none`, `minimal`, `low`, `medium`, `high` or `xhigh`";
            return Err(ApiError::value(at, format!("`{effort:.40}`"), expected));
        }
    }
    Ok(thinking)
}

/// Tokens of reasoning for an effort, since models that know no efforts would take it for nothing.
fn effort_budget(effort: &str) -> Option<usize> {
    match effort {
        "none" => Some(0),
        "minimal" => Some(256),
        "low" => Some(1024),
        "medium" => Some(8192),
        "high" => Some(32768),
        _ => None,
    }
}

/// `tools`. What a function has is under `function` in one API (`nested`) and beside the type in another, here and in
/// [`tool_choice`].
pub(super) fn tools(list: Vec<Value>, nested: bool) -> Result<Vec<Tool>, ApiError> {
    let tool = |(i, value)| of_function(Object::new(value, format!("tools[{i}]"))?, nested, function);
    list.into_iter().enumerate().map(tool).collect()
}

/// `tool_choice`: a word, or an object that names a function.
pub(super) fn tool_choice(choice: Value, nested: bool) -> Result<ToolChoice, ApiError> {
    let at = "tool_choice";
    match choice {
        Value::String(word) => tool_choice_word(&word, at),
        choice => {
            let name = |o: &mut Object| o.need_string("name").map(ToolChoice::Named);
            of_function(Object::new(choice, at)?, nested, name)
        }
    }
}

/// Reads an object of type `function`, the only type that there is here.
fn of_function<T>(
    mut o: Object,
    nested: bool,
    read: impl FnOnce(&mut Object) -> Result<T, ApiError>,
) -> Result<T, ApiError> {
    let kind = o.need_string("type")?;
    if kind != "function" {
        let why = format_args!("it is `{kind:.40}`, expected `function`");
        return Err(ApiError::unsupported(o.at("type"), why));
    }
    let read = if nested {
        let Some(mut inner) = o.object("function")? else {
            return Err(ApiError::missing(o.at("function"), "an object with the function's name"));
        };
        let read = read(&mut inner)?;
        inner.finish()?;
        read
    } else {
        read(&mut o)?
    };
    o.finish()?;
    Ok(read)
}

/// A tool's function: `name`, `description`, `parameters`, `strict`.
fn function(o: &mut Object) -> Result<Tool, ApiError> {
    let name = o.need_string("name")?;
    if let Err(expected) = check_tool_name(&name) {
        return Err(ApiError::value(o.at("name"), format!("`{:.80}`", name.escape_debug()), expected));
    }
    let description = o.string("description")?;
    let parameters = match o.take("parameters") {
        None => Value::Null,
        Some(schema @ Value::Object(_)) => schema,
        Some(other) => {
            return Err(ApiError::value(o.at("parameters"), shown(&other), "a JSON schema: an object"));
        }
    };
    let strict = o.bool("strict")?.unwrap_or(false);
    Ok(Tool { name, description, parameters, strict })
}

/// Names of tools stand in prompts and grammars.
pub(crate) fn check_tool_name(name: &str) -> Result<(), &'static str> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"_-.".contains(&b);
    let good = (1..=128).contains(&name.len()) && name.bytes().all(plain);
    if good { Ok(()) } else { Err("1 to 128 letters, digits, `_`, `-` and `.`") }
}

/// Refuses tools of the same name.
pub(crate) fn check_tools(tools: &[Tool]) -> Result<(), ApiError> {
    for (i, tool) in tools.iter().enumerate() {
        if tools[..i].iter().any(|other| other.name == tool.name) {
            return Err(ApiError::value(
                format!("tools[{i}]"),
                format!("another `{}`", tool.name),
                "different names",
            ));
        }
    }
    Ok(())
}

/// A format given as `{"type": "text" | "json_object" | "json_schema", …}`; a schema is under `json_schema` in one API
/// and beside the type in another.
pub(super) fn format(mut o: Object, nested: bool) -> Result<Format, ApiError> {
    let kind = o.need_string("type")?;
    let format = match &*kind {
        "text" => Format::Text,
        "json_object" => Format::JsonObject,
        "json_schema" if nested => {
            let mut inner = match o.object("json_schema")? {
                Some(inner) => inner,
                None => return Err(ApiError::missing(o.at("json_schema"), "an object")),
            };
            let format = schema(&mut inner)?;
            inner.finish()?;
            format
        }
        "json_schema" => schema(&mut o)?,
        other => {
            let expected = "`text`, `json_object` or `json_schema`";
            return Err(ApiError::value(o.at("type"), format!("`{other:.40}`"), expected));
        }
    };
    o.finish()?;
    Ok(format)
}

fn schema(o: &mut Object) -> Result<Format, ApiError> {
    o.need_string("name")?;
    // The schema is always enforced, and a description would not reach the model.
    o.ignore(&["strict", "description"]);
    let schema = o.need("schema", "a JSON schema: an object")?;
    if !schema.is_object() {
        return Err(ApiError::value(o.at("schema"), shown(&schema), "a JSON schema: an object"));
    }
    Ok(Format::JsonSchema(schema))
}

fn tool_choice_word(word: &str, at: &str) -> Result<ToolChoice, ApiError> {
    match word {
        "auto" => Ok(ToolChoice::Auto),
        "none" => Ok(ToolChoice::None),
        "required" => Ok(ToolChoice::Required),
        other => {
            let expected = "`auto`, `none`, `required` or a function's name in an object";
            Err(ApiError::value(at, format!("`{other:.40}`"), expected))
        }
    }
}

/// Parameters that only have a meaning in OpenAI's own service: values that change nothing pass.
pub(super) fn neutral(o: &mut Object) -> Result<(), ApiError> {
    o.only("store", &[json!(false)], "nothing is kept")?;
    o.only("service_tier", &[json!("auto"), json!("default")], "there is one tier")
}
