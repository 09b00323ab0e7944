//! What a request asks for, whichever API it came through.

use super::message::Message;
use crate::config::ServerConfig;
use esker_engine::Sampling;
use esker_text::tools::ToolSpec;
use serde_json::{Map, Value, json};
use std::hash::{BuildHasher, Hasher, RandomState};

/// What a request asks for. Everything has been checked that does not need the vocabulary.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub input: Input,
    /// Answers wanted.
    pub choices: usize,
    /// New tokens of each.
    pub max_tokens: Option<usize>,
    pub sampling: Sampling,
    pub stop: Vec<String>,
    /// Report each token's likelihood, and so many alternatives.
    pub logprobs: Option<usize>,
    pub tool_choice: ToolChoice,
    /// At most one call.
    pub single_call: bool,
    pub format: Format,
    pub thinking: Thinking,
}

/// What the model goes on from.
#[derive(Clone, Debug)]
pub(crate) enum Input {
    /// Text that it continues as it stands.
    Text(String),
    /// Token ids.
    Tokens(Vec<u32>),
    /// A conversation.
    Chat {
        messages: Vec<Message>,
        tools: Vec<Tool>,
        /// Variables of the template.
        variables: Map<String, Value>,
    },
}

/// A function that the model may call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tool {
    pub name: String,
    pub description: Option<String>,
    /// JSON schema of the arguments.
    pub parameters: Value,
    /// The arguments have to follow the schema.
    pub strict: bool,
}

impl Tool {
    /// As the parser and the grammar know it.
    pub fn spec(&self) -> ToolSpec {
        ToolSpec { name: self.name.clone(), parameters: self.parameters.clone(), strict: self.strict }
    }

    /// As chat templates know it: the tool of the OpenAI API.
    pub fn for_template(&self) -> Value {
        let mut function = Map::new();
        function.insert("name".into(), self.name.as_str().into());
        if let Some(description) = &self.description {
            function.insert("description".into(), description.as_str().into());
        }
        let empty = || json!({"type": "object", "properties": {}});
        let parameters = if self.parameters.is_null() { empty() } else { self.parameters.clone() };
        function.insert("parameters".into(), parameters);
        json!({"type": "function", "function": function})
    }
}

/// Whether the model may, or has to, call tools.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum ToolChoice {
    #[default]
    Auto,
    None,
    Required,
    Named(String),
}

/// The form of the answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Format {
    #[default]
    Text,
    /// Some JSON object.
    JsonObject,
    /// JSON by a schema.
    JsonSchema(Value),
}

/// What is said about reasoning.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Thinking {
    /// Turned on or off; `None`: as the template has it.
    pub enabled: Option<bool>,
    /// Tokens that it may take.
    pub budget: Option<usize>,
    /// How hard, for templates that know the word.
    pub effort: Option<String>,
    /// End reasoning that exceeds the budget; `None`: as the service is set up.
    pub close: Option<bool>,
    /// Said when that is done; `None`: as the service is set up.
    pub closing_sentence: Option<String>,
}

impl Thinking {
    /// No reasoning is wanted.
    pub fn is_off(&self) -> bool {
        self.enabled == Some(false) || self.budget == Some(0)
    }
}

/// What requests get that they do not ask for.
#[derive(Clone, Debug)]
pub(crate) struct ServerDefaults {
    pub sampling: Sampling,
    pub limits: crate::config::Limits,
}

impl ServerDefaults {
    pub fn new(config: &ServerConfig) -> ServerDefaults {
        ServerDefaults { sampling: config.sampling.clone(), limits: config.limits.clone() }
    }
}

impl Request {
    /// A request with everything by default.
    pub fn new(input: Input, defaults: &ServerDefaults) -> Request {
        Request {
            input,
            choices: 1,
            max_tokens: None,
            sampling: defaults.sampling.clone(),
            stop: Vec::new(),
            logprobs: None,
            tool_choice: ToolChoice::Auto,
            single_call: false,
            format: Format::Text,
            thinking: Thinking::default(),
        }
    }

    /// The tools that the request offers.
    pub fn tools(&self) -> &[Tool] {
        match &self.input {
            Input::Chat { tools, .. } => tools,
            _ => &[],
        }
    }
}

/// A seed below 2^32: short enough to be typed again, and exact in every JSON reader.
pub(crate) fn random_seed() -> u64 {
    // The standard library keys its hash maps from the system's random numbers.
    RandomState::new().build_hasher().finish() >> 32
}
