//! Chat templates: the Jinja source in `tokenizer.chat_template` turned into a prompt, as Hugging Face
//! `apply_chat_template` does with Jinja2 in Python.
//!
//! Templates come from downloaded files and are treated as hostile: work, memory, recursion and output of a render are
//! bounded by the size of its input.
//!
//! Not as in Python: unary `+` is an error, and so are the filters `batch`, `center`, `groupby`, `pprint`, `slice`,
//! `wordcount` and those for HTML; `x.items` without a call is the item, not the method; integers beyond 64 bits
//! in the input are floats.
//! Source: transformers `chat_template_utils.py` (what is defined, which options are set); Jinja2's template
//! designer documentation; Python's documentation for what methods, `str()` and `json.dumps` do.

mod clock;
mod json;
mod methods;
mod operators;
mod program;
mod python;
mod shield;
mod source;
mod traits;

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Value;
use minijinja::{Environment, ErrorKind, State};

use crate::error::TokenizerError;
use crate::tokenizer::Tokenizer;

pub use traits::TemplateTraits;

use operators::Limits;
use program::Program;
use shield::Shield;

/// Largest template source, in bytes; published ones stay below 32 KiB.
pub const MAX_TEMPLATE_BYTES: usize = 256 << 10;
/// Deepest nesting of messages and tools.
pub const MAX_INPUT_DEPTH: usize = 200;
/// Work that a render may do whatever its input: about this many steps, or 64 times as many bytes created.
pub const BASE_FUEL: u64 = 1_000_000;
/// Further work for each byte of input.
pub const FUEL_PER_INPUT_BYTE: u64 = 8;
/// Output that a render may produce whatever its input, in bytes.
pub const BASE_OUTPUT_BYTES: usize = 1 << 20;
/// Further output for each byte of input.
pub const OUTPUT_PER_INPUT_BYTE: usize = 8;

/// The name under which the template stands in its environment.
const NAME: &str = "chat_template";

/// Filters of the engine that Jinja2 does not have, or that wrap lists in lists outside of the limits.
const NOT_OURS: &[&str] = &["batch", "bool", "chain", "groupby", "lines", "pprint", "slice", "split", "zip"];

/// `<|im_start|>role\n…<|im_end|>\n` for each message.
const CHATML: &str = "{%- for message in messages %}\n\
    {{- '<|im_start|>' + message.role + '\\n' + (message.content or '') + '<|im_end|>\\n' }}\n\
    {%- endfor %}\n\
    {%- if add_generation_prompt %}\n\
    {{- '<|im_start|>assistant\\n' }}\n\
    {%- endif %}\n";

/// What a chat template is rendered with.
#[derive(Clone, Debug, Default)]
pub struct ChatInput {
    /// The conversation: a list of `{"role": …, "content": …}` as in the OpenAI API, with `tool_calls` and so on.
    pub messages: serde_json::Value,
    /// Descriptions of the tools, or none.
    pub tools: Option<serde_json::Value>,
    /// Whether the prompt ends with the beginning of the assistant's turn.
    pub add_generation_prompt: bool,
    /// Further variables, such as `enable_thinking`; they override the others.
    pub extra: serde_json::Map<String, serde_json::Value>,
}

/// A compiled chat template. Immutable; share it behind a reference.
#[derive(Clone)]
pub struct ChatTemplate {
    env: Environment<'static>,
    source: Arc<str>,
    bos: String,
    eos: String,
    shield: Option<Shield>,
}

/// Something about the choice of template that the user should know.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TemplateWarning {
    /// The file has no template; ChatML is used.
    Missing {
        /// Whether the vocabulary has the tokens of ChatML.
        has_chatml_tokens: bool,
    },
}

impl fmt::Display for TemplateWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Missing { has_chatml_tokens } = self;
        write!(f, "the file has no chat template (`tokenizer.chat_template`); using ChatML")?;
        if !has_chatml_tokens {
            write!(f, ", whose tokens the vocabulary lacks: this may not be a chat model")?;
        }
        Ok(())
    }
}

/// Why a chat template cannot be compiled or rendered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TemplateError {
    /// The source is longer than [`MAX_TEMPLATE_BYTES`].
    #[error("the chat template has {bytes} bytes, at most {max} are supported")]
    TooLarge {
        /// Its length.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// The source is not valid Jinja.
    #[error("chat template, {}: {reason}", At(*.line))]
    Syntax {
        /// Line in the source, from 1.
        line: Option<usize>,
        /// What is wrong.
        reason: String,
    },
    /// The template called `raise_exception`: it does not accept this conversation.
    #[error("the chat template refuses the conversation ({}): {message}", At(*.line))]
    Raised {
        /// Line in the source, from 1.
        line: Option<usize>,
        /// The template's words.
        message: String,
    },
    /// An expression failed.
    #[error("chat template, {}: {reason}", At(*.line))]
    Render {
        /// Line in the source, from 1.
        line: Option<usize>,
        /// What failed.
        reason: String,
    },
    /// The template does more work, or creates more data, than a conversation of this size can need.
    #[error("chat template, {}: stopped after {fuel} steps, more than this conversation can need", At(*.line))]
    OutOfFuel {
        /// Line in the source, from 1.
        line: Option<usize>,
        /// The limit.
        fuel: u64,
    },
    /// The prompt becomes longer than a conversation of this size can need.
    #[error("the chat template wrote more than {max} bytes, more than this conversation can need")]
    OutputTooLarge {
        /// The limit.
        max: usize,
    },
    /// Messages or tools are nested more deeply than [`MAX_INPUT_DEPTH`].
    #[error("`{field}` is nested more than {max} levels deep")]
    InputTooDeep {
        /// `messages`, `tools` or the name of a further variable.
        field: String,
        /// The limit.
        max: usize,
    },
}

/// "line 3", or that it is not known.
struct At(Option<usize>);

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(line) => write!(f, "line {line}"),
            None => write!(f, "line unknown"),
        }
    }
}

impl ChatTemplate {
    /// Compiles a template. `bos` and `eos` are the texts of these tokens, empty if there are none.
    /// # Errors
    /// [`TemplateError::TooLarge`], [`TemplateError::Syntax`].
    pub fn new(source: &str, bos: &str, eos: &str) -> Result<ChatTemplate, TemplateError> {
        if source.len() > MAX_TEMPLATE_BYTES {
            return Err(TemplateError::TooLarge { bytes: source.len(), max: MAX_TEMPLATE_BYTES });
        }
        let mut env = Environment::new();
        env.set_debug(false);
        env.set_unknown_method_callback(methods::call);
        env.set_formatter(python::write_value);
        env.add_filter("tojson", json::to_json);
        env.add_filter("string", python::to_string);
        env.add_filter("int", python::to_int);
        env.add_filter("float", python::to_float);
        env.add_test("sequence", python::is_sequence);
        env.add_test("iterable", python::is_iterable);
        env.add_function("raise_exception", raise_exception);
        env.remove_global("debug");
        for filter in NOT_OURS {
            env.remove_filter(filter);
        }
        let source: Arc<str> = source::prepare(source).into();
        Program::new(&source, syntax()?).map_err(|e| syntax_error(&e))?;
        let template = ChatTemplate { env, source, bos: bos.to_owned(), eos: eos.to_owned(), shield: None };
        Ok(template.with_clock(SystemTime::now))
    }

    /// The template for a model whose file has none: ChatML.
    pub fn default_chatml() -> ChatTemplate {
        ChatTemplate::new(CHATML, "", "").expect("ChatML compiles, a test renders it")
    }

    /// The file's own template; ChatML, and a warning, if it has none.
    /// # Errors
    /// If the file's template does not compile.
    pub fn for_tokenizer(
        tokenizer: &Tokenizer,
    ) -> Result<(ChatTemplate, Option<TemplateWarning>), TemplateError> {
        match tokenizer.chat_template() {
            Some(source) if !source.trim().is_empty() => {
                let text = |id: Option<u32>| {
                    let bytes = id.and_then(|id| tokenizer.token_bytes(id)).unwrap_or_default();
                    String::from_utf8_lossy(bytes).into_owned()
                };
                let template = ChatTemplate::new(source, &text(tokenizer.bos()), &text(tokenizer.eos()))?;
                Ok((template, None))
            }
            _ => {
                let has_chatml_tokens =
                    ["<|im_start|>", "<|im_end|>"].iter().all(|t| tokenizer.special_token(t).is_some());
                let warning = TemplateWarning::Missing { has_chatml_tokens };
                Ok((ChatTemplate::default_chatml(), Some(warning)))
            }
        }
    }

    /// Replaces the clock behind `strftime_now`, which gives the time in UTC. With a fixed one, renders repeat exactly.
    pub fn with_clock(mut self, now: impl Fn() -> SystemTime + Send + Sync + 'static) -> ChatTemplate {
        self.env.add_function("strftime_now", move |format: &str| {
            clock::format(now(), format)
                .map_err(|reason| minijinja::Error::new(ErrorKind::InvalidOperation, reason))
        });
        self
    }

    /// Keeps control tokens of `tokenizer` in messages, tools and variables from being taken for the template's own: a
    /// user who writes `<|im_end|>` does not end his turn. The prompt then has invisible marks, which the tokenizer takes
    /// out when it encodes with [`EncodeOptions::special`](crate::EncodeOptions::special).
    ///
    /// Tags of reasoning stay as they are: templates look for them in what the assistant said.
    /// # Errors
    /// If the names of the tokens are too many to be searched for.
    pub fn shielding(mut self, tokenizer: &Tokenizer) -> Result<ChatTemplate, TokenizerError> {
        self.shield = Some(Shield::new(tokenizer)?);
        Ok(self)
    }

    /// The prompt for a conversation. Its control tokens are text: encode it with
    /// [`EncodeOptions::special`](crate::EncodeOptions::special).
    /// # Errors
    /// If the template refuses the conversation, fails, or exceeds a limit.
    pub fn render(&self, input: &ChatInput) -> Result<String, TemplateError> {
        let mut input_bytes = 0;
        let mut value = |field: &str, json: &serde_json::Value| {
            json::to_value(json, MAX_INPUT_DEPTH, &mut input_bytes, self.shield.as_ref())
                .ok_or_else(|| TemplateError::InputTooDeep { field: field.to_owned(), max: MAX_INPUT_DEPTH })
        };
        let mut variables = vec![
            ("bos_token", Value::from(&*self.bos)),
            ("eos_token", Value::from(&*self.eos)),
            ("messages", value("messages", &input.messages)?),
            ("tools", value("tools", input.tools.as_ref().unwrap_or(&serde_json::Value::Null))?),
            ("documents", Value::from(())),
            ("add_generation_prompt", Value::from(input.add_generation_prompt)),
        ];
        for (name, json) in &input.extra {
            variables.push((name, value(name, json)?));
        }

        let limits = Limits::new(input_bytes);
        let max = BASE_OUTPUT_BYTES + OUTPUT_PER_INPUT_BYTE * input_bytes;
        let program = Program::new(&self.source, syntax()?).map_err(|e| syntax_error(&e))?;
        match program::run(&program, &self.env, Value::from_pairs(variables), limits) {
            // Fuel bounds what was created until here, this bounds what is kept.
            Ok(output) if output.len() > max => Err(TemplateError::OutputTooLarge { max }),
            Ok(output) => Ok(output),
            Err(e) => Err(render_error(&e, limits.fuel)),
        }
    }
}

impl fmt::Debug for ChatTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatTemplate").field("bos", &self.bos).field("eos", &self.eos).finish_non_exhaustive()
    }
}

/// Marks an error as the template's own, among the engine's.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct RaisedByTemplate(Arc<str>);

fn raise_exception(state: &State, message: &Value) -> Result<Value, minijinja::Error> {
    let message: Arc<str> = python::str(state, message)?.into();
    Err(minijinja::Error::new(ErrorKind::InvalidOperation, message.to_string())
        .with_source(RaisedByTemplate(message)))
}

/// As transformers sets Jinja2.
fn syntax() -> Result<SyntaxConfig, TemplateError> {
    SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build().map_err(|e| syntax_error(&e))
}

fn syntax_error(e: &minijinja::Error) -> TemplateError {
    TemplateError::Syntax { line: e.line(), reason: reason(e) }
}

fn render_error(e: &minijinja::Error, fuel: u64) -> TemplateError {
    // Errors inside macros are wrapped; the innermost one knows best.
    let mut innermost = e;
    let mut next: Option<&(dyn std::error::Error + 'static)> = Some(e);
    while let Some(error) = next {
        if let Some(raised) = error.downcast_ref::<RaisedByTemplate>() {
            return TemplateError::Raised { line: innermost.line(), message: raised.0.to_string() };
        }
        if let Some(inner) = error.downcast_ref::<minijinja::Error>() {
            innermost = inner;
        }
        next = error.source();
    }
    match innermost.kind() {
        ErrorKind::OutOfFuel => TemplateError::OutOfFuel { line: innermost.line(), fuel },
        _ => TemplateError::Render { line: innermost.line(), reason: reason(innermost) },
    }
}

fn reason(e: &minijinja::Error) -> String {
    match e.detail() {
        Some(detail) => format!("{}: {detail}", e.kind()),
        None => e.kind().to_string(),
    }
}
