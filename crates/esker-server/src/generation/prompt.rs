//! From a request to tokens: chat template, tokenizer, grammar. Runs outside of the thread that owns the engine.

use super::constraint::constraint;
use super::message::{Message, Role};
use super::output::OutputSpec;
use super::request::{Format, Input, Request, Thinking, Tool, ToolChoice};
use crate::config::{ServerConfig, ThinkingConfig};
use crate::error::{ApiError, ErrorKind};
use crate::owner::LoadError;
use esker_engine::VocabularyError;
use esker_text::grammar::{Constraint, ConstraintOptions, GrammarVocabulary};
use esker_text::incremental::IncrementalEncoder;
use esker_text::reasoning::ReasoningFormat;
use esker_text::tools::ToolFormat;
use esker_text::{ChatInput, ChatTemplate, EncodeOptions, TemplateError, TemplateTraits, Tokenizer};
use serde_json::Value;
use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

/// Conversations whose tokens are remembered, for each slot.
const ENCODERS_PER_SLOT: usize = 2;
/// Texts that agree in fewer bytes than this are not taken for the same conversation.
const SAME_TEXT_MIN: usize = 64;
/// Parts of names of control tokens that are notation of tool calls, in lower case.
const TOOL_MARKS: &[&str] = &["tool", "call", "arg", "action", "python_tag", "function", "invoke", "param"];

/// The model's notations.
#[derive(Clone, Debug, Default)]
pub(crate) struct Formats {
    pub reasoning: Option<ReasoningFormat>,
    pub tools: Option<ToolFormat>,
    /// The template has a switch for reasoning.
    pub thinking_switch: bool,
}

/// What ends reasoning that takes too long.
#[derive(Debug, Default)]
pub(crate) struct Closing {
    pub tokens: Vec<u32>,
    pub text: String,
}

/// Makes prompts. Shared by all requests.
pub(crate) struct Prompter {
    tokenizer: Arc<Tokenizer>,
    template: ChatTemplate,
    traits: TemplateTraits,
    variables: serde_json::Map<String, Value>,
    pub formats: Formats,
    /// Texts at which an answer ends, where ChatML stands in for a template and the vocabulary lacks its tokens.
    stops: Vec<String>,
    thinking: ThinkingConfig,
    context: usize,
    /// Bytes of the longest token: a text has at least its bytes divided by this in tokens.
    token_bytes_max: usize,
    shown: [Arc<HashSet<u32>>; 2],
    encoders: Mutex<Vec<Remembered>>,
    encoders_max: usize,
    grammar: Result<GrammarVocabulary, String>,
}

/// A conversation whose tokens are known.
struct Remembered {
    encoder: IncrementalEncoder,
    text: String,
}

/// Tokens that a sequence begins with.
pub(crate) struct Prompt {
    pub tokens: Vec<u32>,
    /// Numbers of tokens after which a message ends: places where other conversations may branch off.
    pub message_ends: Vec<usize>,
}

/// A request as the owner of the engine takes it.
pub(crate) struct Prepared {
    pub prompt: Arc<Prompt>,
    pub output: OutputSpec,
    /// One for each choice, or none.
    pub constraints: Vec<Constraint>,
    /// Reasoning tokens at most; `None`: no bound.
    pub thinking_limit: Option<usize>,
    /// Fed to the model when that many were drawn.
    pub closing: Arc<Closing>,
    /// New tokens at most.
    pub max_tokens: usize,
}

impl Prompter {
    /// `grammar`: the vocabulary in the form that grammars need, or why there is none.
    ///
    /// # Errors
    /// If the template, the file's or the configured one, does not compile, or the vocabulary is beyond its limits.
    pub fn new(
        tokenizer: Arc<Tokenizer>,
        grammar: Result<GrammarVocabulary, String>,
        config: &ServerConfig,
        context: usize,
    ) -> Result<Prompter, LoadError> {
        let text = |id: Option<u32>| {
            let bytes = id.and_then(|id| tokenizer.token_bytes(id)).unwrap_or_default();
            String::from_utf8_lossy(bytes).into_owned()
        };
        let (template, warning) = match &config.chat_template {
            Some(source) => {
                (ChatTemplate::new(source, &text(tokenizer.bos()), &text(tokenizer.eos()))?, None)
            }
            None => ChatTemplate::for_tokenizer(&tokenizer)?,
        };
        if let Some(warning) = &warning {
            tracing::warn!("{warning}");
        }
        let source = config.chat_template.as_deref().or(tokenizer.chat_template());
        let formats = Formats {
            reasoning: ReasoningFormat::detect(source, &tokenizer),
            tools: source.and_then(ToolFormat::detect),
            thinking_switch: source.is_some_and(|source| source.contains("enable_thinking")),
        };
        let plain = |text: &&str| warning.is_some() && tokenizer.special_token(text).is_none();
        let stops = ["<|im_end|>", "<|im_start|>"].iter().filter(|text| plain(text)).map(|t| t.to_string());
        let token_bytes =
            (0..tokenizer.vocab_size() as u32).filter_map(|id| tokenizer.token_bytes(id).map(<[u8]>::len));
        Ok(Prompter {
            stops: stops.collect(),
            token_bytes_max: token_bytes.max().unwrap_or(1).max(1),
            shown: shown(&tokenizer, &formats),
            traits: template.traits(),
            // What somebody wrote into a message is text, whatever it looks like.
            template: template.shielding(&tokenizer).map_err(VocabularyError::from)?,
            tokenizer,
            variables: config.template_variables.clone(),
            formats,
            thinking: config.thinking.clone(),
            context,
            encoders: Mutex::new(Vec::new()),
            encoders_max: ENCODERS_PER_SLOT * config.slots,
            grammar,
        })
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Arc<Tokenizer> {
        &self.tokenizer
    }

    /// Tokens of a request's prompt, whether or not it fits.
    ///
    /// # Errors
    /// If the template refuses the conversation.
    pub fn count(&self, request: &Request) -> Result<usize, ApiError> {
        let (text, tokens) = self.render(request)?;
        match tokens {
            Some(tokens) => Ok(tokens.len()),
            None => self.encode(&text, true).map(|tokens| tokens.len()),
        }
    }

    /// Everything that the owner of the engine has to know about a request. `limit`: the service's own limit of new
    /// tokens.
    ///
    /// # Errors
    /// If the template refuses the conversation, the prompt does not fit, or a schema cannot be enforced.
    pub fn prepare(&self, request: &Request, limit: usize) -> Result<Prepared, ApiError> {
        let param = match &request.input {
            Input::Chat { .. } => "messages",
            _ => "prompt",
        };
        let (text, tokens) = self.render(request)?;
        let fewest = text.len() / self.token_bytes_max;
        if fewest >= self.context {
            return Err(ApiError::context(param, fewest, self.context));
        }
        let chat = matches!(request.input, Input::Chat { .. });
        let tokens = match tokens {
            Some(tokens) => tokens,
            None => self.encode(&text, chat)?,
        };
        if tokens.len() >= self.context {
            return Err(ApiError::context(param, tokens.len(), self.context));
        }
        let room = self.context - tokens.len();
        let max_tokens = request.max_tokens.unwrap_or(usize::MAX).min(limit).min(room);

        let reasoning = self.formats.reasoning.clone().filter(|_| chat);
        if chat && reasoning.is_none() && request.thinking.enabled == Some(true) {
            return Err(ApiError::unsupported("thinking", "the model's chat template knows no reasoning"));
        }
        let starts_inside = reasoning.as_ref().is_some_and(|format| format.starts_inside(&text));
        let has_tools = chat && !request.tools().is_empty();
        let no_calls = request.tool_choice == ToolChoice::None;
        if has_tools && !no_calls && self.formats.tools.is_none() {
            return Err(ApiError::unsupported("tools", "the model's chat template knows no tool calls"));
        }
        // An answer that is JSON and nothing else is not searched for calls.
        let reads_calls = has_tools && !(no_calls && request.format != Format::Text);
        let specs = request.tools().iter().map(Tool::spec).collect();
        let mut stop = request.stop.clone();
        if chat {
            stop.extend(self.stops.iter().cloned());
        }
        // A model whose reasoning is turned off must not be offered it by the grammar.
        let thinks = !request.thinking.is_off();
        let options = ConstraintOptions {
            reasoning: reasoning.clone().filter(|_| thinks || starts_inside),
            starts_inside,
        };
        let constraints = (0..request.choices)
            .filter_map(|_| constraint(request, || self.grammar(), &self.formats, &options).transpose())
            .collect::<Result<_, _>>()?;
        let (thinking_limit, closing) = match &reasoning {
            Some(format) => self.thinking_limit(&request.thinking, format, max_tokens, room)?,
            None => (None, Closing::default()),
        };
        if starts_inside && thinking_limit == Some(0) && closing.tokens.len() >= room {
            // What closes the reasoning that the template opened is part of the prompt.
            return Err(ApiError::context(param, tokens.len() + closing.tokens.len(), self.context));
        }
        let ends = tokens.iter().enumerate().filter(|(_, id)| self.tokenizer.is_end_of_generation(**id));
        let message_ends = if chat { ends.map(|(i, _)| i + 1).collect() } else { Vec::new() };
        Ok(Prepared {
            prompt: Arc::new(Prompt { message_ends, tokens }),
            output: OutputSpec {
                reasoning,
                starts_inside,
                tools: self.formats.tools.filter(|_| reads_calls).map(|format| (format, specs)),
                no_calls,
                stop,
                single_call: request.single_call,
                shown: match (chat, reads_calls) {
                    (false, _) => Arc::default(),
                    (true, tools) => self.shown[usize::from(tools)].clone(),
                },
            },
            constraints,
            thinking_limit,
            closing: Arc::new(closing),
            max_tokens,
        })
    }

    /// The prompt as text, or as tokens if the request gives them.
    fn render(&self, request: &Request) -> Result<(String, Option<Vec<u32>>), ApiError> {
        let (messages, tools, variables) = match &request.input {
            Input::Text(text) => return Ok((text.clone(), None)),
            Input::Tokens(tokens) => {
                let n_vocab = self.tokenizer.vocab_size();
                if let Some(id) = tokens.iter().find(|id| **id as usize >= n_vocab) {
                    return Err(ApiError::value("prompt", id, &format!("token ids below {n_vocab}")));
                }
                return Ok((String::new(), Some(tokens.clone())));
            }
            Input::Chat { messages, tools, variables } => (messages, tools, variables),
        };
        let mut extra = self.variables.clone();
        extra.extend(variables.clone());
        let thinking = &request.thinking;
        let off = thinking.is_off();
        if off || thinking.enabled == Some(true) {
            extra.insert("enable_thinking".to_owned(), (!off).into());
        }
        if let Some(effort) = &thinking.effort {
            extra.insert("reasoning_effort".to_owned(), effort.as_str().into());
        }
        // Tools that may not be called stay in the prompt: without them it would begin differently.
        let shown = !tools.is_empty() && (self.traits.tools || request.tool_choice != ToolChoice::None);
        if shown && !self.traits.tools {
            return Err(ApiError::unsupported("tools", "the model's chat template knows no tools"));
        }
        if !self.traits.tool_calls
            && messages.iter().any(|m| m.role == Role::Tool || !m.tool_calls.is_empty())
        {
            return Err(ApiError::unsupported("messages", "the model's chat template knows no tool calls"));
        }
        if !self.traits.system && messages.iter().any(|m| m.role == Role::System) {
            return Err(ApiError::unsupported(
                "messages",
                "the model's chat template knows no system messages",
            ));
        }
        let messages = merged_system(messages);
        let mut messages: Value = messages.iter().map(Message::for_template).collect();
        self.traits.adapt(&mut messages);
        let input = ChatInput {
            messages,
            tools: shown.then(|| tools.iter().map(Tool::for_template).collect()),
            add_generation_prompt: true,
            extra,
        };
        let text = self.template.render(&input).map_err(|e| template_refusal(&e))?;
        Ok((text, None))
    }

    /// Tokens of a text; those of an earlier text that begins alike are not computed again.
    fn encode(&self, text: &str, chat: bool) -> Result<Vec<u32>, ApiError> {
        // The template's control tokens are meant, and so are those of a caller who writes the prompt himself.
        let options = EncodeOptions { special: true, add_bos_eos: false };
        let internal =
            |e: &dyn std::error::Error| ApiError::internal(format_args!("the text cannot be encoded: {e}"));
        let mut tokens = if chat {
            let mut known = self.remembered(text, options);
            let tokens = known.encoder.encode(&self.tokenizer, text).map_err(|e| internal(&e))?.to_vec();
            text.clone_into(&mut known.text);
            let mut encoders = self.encoders.lock().unwrap_or_else(PoisonError::into_inner);
            encoders.push(known);
            if encoders.len() > self.encoders_max {
                encoders.remove(0);
            }
            tokens
        } else {
            self.tokenizer.encode(text, options).map_err(|e| internal(&e))?
        };
        // An empty text is the BOS token even of models that do not ask for it: a text has to begin with something.
        if let Some(bos) = self.tokenizer.bos()
            && (tokens.is_empty() || self.tokenizer.adds_bos() && tokens[0] != bos)
        {
            tokens.insert(0, bos);
        }
        if tokens.is_empty() {
            return Err(ApiError::value("prompt", "empty", "at least one token"));
        }
        Ok(tokens)
    }

    /// The encoder of the conversation that `text` goes on with, or a new one.
    fn remembered(&self, text: &str, options: EncodeOptions) -> Remembered {
        let same = |a: &str| a.bytes().zip(text.bytes()).take_while(|(a, b)| a == b).count();
        let mut encoders = self.encoders.lock().unwrap_or_else(PoisonError::into_inner);
        let best = encoders.iter().enumerate().map(|(i, known)| (same(&known.text), i)).max();
        match best {
            Some((n, i)) if n >= SAME_TEXT_MIN => encoders.remove(i),
            _ => Remembered { encoder: IncrementalEncoder::new(options), text: String::new() },
        }
    }

    /// Whether answers can be made to follow a grammar.
    pub fn has_grammar(&self) -> bool {
        self.grammar.is_ok()
    }

    fn grammar(&self) -> Result<GrammarVocabulary, ApiError> {
        self.grammar.clone().map_err(|why| ApiError::unsupported("response_format", why))
    }

    /// How many tokens reasoning may take so that an answer has room, and what ends it.
    fn thinking_limit(
        &self,
        asked: &Thinking,
        format: &ReasoningFormat,
        max_tokens: usize,
        room: usize,
    ) -> Result<(Option<usize>, Closing), ApiError> {
        if !asked.close.unwrap_or(self.thinking.close) {
            return Ok((None, Closing::default()));
        }
        let budget = if asked.is_off() { Some(0) } else { asked.budget.or(self.thinking.budget) };
        let sentence = match budget {
            // What was not begun needs no words to end it.
            Some(0) => "\n",
            _ => asked.closing_sentence.as_deref().unwrap_or(&self.thinking.closing_sentence),
        };
        let text = format!("{sentence}{}\n\n", format.close());
        let special = EncodeOptions { special: true, add_bos_eos: false };
        let tokens = self.tokenizer.encode(&text, special).map_err(ApiError::internal)?;
        // The closing tokens are not drawn, so they do not count as new tokens, but they take room in the context.
        let drawn = max_tokens.min(room.saturating_sub(tokens.len()));
        let reserve = self.thinking.answer_reserve.min(drawn.div_ceil(2));
        Ok((Some(budget.unwrap_or(usize::MAX).min(drawn - reserve)), Closing { tokens, text }))
    }
}

/// The messages; several system messages at the beginning become one, since most templates take no more.
fn merged_system(messages: &[Message]) -> Cow<'_, [Message]> {
    let n = messages.iter().take_while(|m| m.role == Role::System).count();
    if n < 2 {
        return Cow::Borrowed(messages);
    }
    let texts: Vec<&str> = messages[..n].iter().map(|m| m.content.as_str()).collect();
    let first = Message { content: texts.join("\n\n"), ..messages[0].clone() };
    Cow::Owned(std::iter::once(first).chain(messages[n..].iter().cloned()).collect())
}

/// Control tokens that count as text: those of reasoning; with those of tool calls.
fn shown(tokenizer: &Tokenizer, formats: &Formats) -> [Arc<HashSet<u32>>; 2] {
    let mut reasoning = HashSet::new();
    if let Some(format) = &formats.reasoning {
        reasoning.extend([format.open(), format.close()].iter().filter_map(|t| tokenizer.special_token(t)));
    }
    let mut tools = reasoning.clone();
    if formats.tools.is_some() {
        let marks = |id: &u32| {
            let name = tokenizer.token_bytes(*id).unwrap_or_default().to_ascii_lowercase();
            let name = String::from_utf8_lossy(&name).into_owned();
            TOOL_MARKS.iter().any(|mark| name.contains(mark))
        };
        let control = |id: &u32| tokenizer.is_control(*id) && !tokenizer.is_end_of_generation(*id);
        tools.extend((0..tokenizer.vocab_size() as u32).filter(control).filter(marks));
    }
    [Arc::new(reasoning), Arc::new(tools)]
}

/// A conversation that the template does not take is the client's fault, unless the template itself is broken.
fn template_refusal(error: &TemplateError) -> ApiError {
    let message = error.to_string();
    ApiError::new(ErrorKind::Invalid, message).named("messages").code("invalid_conversation")
}
