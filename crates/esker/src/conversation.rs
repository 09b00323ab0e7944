//! Messages, and the tokens that a model is prompted with.

use crate::cli::TemplateArgs;
use crate::failure::Failure;
use crate::output::Console;
use crate::text_input;
use esker_text::{ChatInput, ChatTemplate, EncodeOptions, Tokenizer};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Who says something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    System,
    User,
    Assistant,
}

/// One message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    pub role: Role,
    pub content: String,
}

/// The tokens of a prompt: a BOS token, if the model asks for one, and `text`. Never an EOS token, since the
/// text goes on.
///
/// An empty prompt is the BOS token even of models that do not ask for it: a text has to begin with
/// something.
pub fn prompt_tokens(
    tokenizer: &Tokenizer,
    text: &str,
    special: bool,
    bos: bool,
) -> Result<Vec<u32>, Failure> {
    let mut tokens = encode(tokenizer, text, special)?;
    if let Some(id) = tokenizer.bos().filter(|_| bos)
        && (tokens.is_empty() || tokenizer.adds_bos() && tokens[0] != id)
    {
        tokens.insert(0, id);
    }
    Ok(tokens)
}

fn encode(tokenizer: &Tokenizer, text: &str, special: bool) -> Result<Vec<u32>, Failure> {
    tokenizer.encode(text, EncodeOptions { special, add_bos_eos: false }).map_err(|e| Failure::of(&e))
}

/// A conversation and the template that makes prompts of it.
pub struct Conversation {
    template: ChatTemplate,
    variables: Map<String, Value>,
    pub messages: Vec<Message>,
    /// The model has no template, and none was given.
    stands_in: bool,
    seen: Option<Seen>,
}

/// A prompt and its answer as the model had them: the tokens that it drew may differ from those of the same
/// text encoded again, and then a session would be of no use for the next prompt.
struct Seen {
    text: String,
    tokens: Vec<u32>,
}

/// A prompt as text and tokens.
pub struct Prompt {
    text: String,
    pub tokens: Vec<u32>,
}

impl Conversation {
    /// An empty conversation, or one with a system message.
    pub fn new(
        console: &Console,
        tokenizer: &Tokenizer,
        args: &TemplateArgs,
    ) -> Result<Conversation, Failure> {
        let mut stands_in = false;
        let template = match &args.chat_template {
            Some(path) => {
                let source = String::from_utf8(text_input::read(path)?)
                    .map_err(|e| Failure::new(format_args!("`{}` is not UTF-8", path.display())).cause(&e))?;
                let text = |id: Option<u32>| {
                    let bytes = id.and_then(|id| tokenizer.token_bytes(id)).unwrap_or_default();
                    String::from_utf8_lossy(bytes).into_owned()
                };
                ChatTemplate::new(&source, &text(tokenizer.bos()), &text(tokenizer.eos()))
                    .map_err(|e| Failure::of(&e).place("file", format_args!("`{}`", path.display())))?
            }
            None => {
                let (template, warning) = ChatTemplate::for_tokenizer(tokenizer).map_err(|e| {
                    Failure::of(&e)
                        .hint("`--chat-template FILE` uses another template than the model's".to_owned())
                })?;
                if let Some(warning) = warning {
                    stands_in = true;
                    console.warning(warning);
                }
                template
            }
        };
        let mut conversation = Conversation {
            template,
            variables: args.variable_map(),
            messages: Vec::new(),
            stands_in,
            seen: None,
        };
        conversation.set_system(args.system.clone());
        Ok(conversation)
    }

    /// Texts at which an answer ends, besides the end-of-generation tokens: those of ChatML if it stands in
    /// for a template and the vocabulary has no such tokens, so that they come as plain text.
    pub fn stop_texts(&self, tokenizer: &Tokenizer) -> Vec<String> {
        let plain = |text: &&str| self.stands_in && tokenizer.special_token(text).is_none();
        ["<|im_end|>", "<|im_start|>"]
            .iter()
            .filter(|text| plain(text))
            .map(|text| text.to_string())
            .collect()
    }

    /// The system message.
    pub fn system(&self) -> Option<&str> {
        self.messages.first().filter(|m| m.role == Role::System).map(|m| m.content.as_str())
    }

    /// Sets or removes the system message.
    pub fn set_system(&mut self, content: Option<String>) {
        if self.system().is_some() {
            self.messages.remove(0);
        }
        if let Some(content) = content {
            self.messages.insert(0, Message { role: Role::System, content });
        }
    }

    /// Adds a message.
    pub fn say(&mut self, role: Role, content: impl Into<String>) {
        self.messages.push(Message { role, content: content.into() });
    }

    /// Removes everything but the system message.
    pub fn clear(&mut self) {
        self.messages.retain(|m| m.role == Role::System);
        self.seen = None;
    }

    /// Puts other messages in place of all.
    pub fn replace(&mut self, messages: Vec<Message>) {
        self.messages = messages;
        self.seen = None;
    }

    /// Removes the last answer and what follows it; false if there is none.
    pub fn drop_answer(&mut self) -> bool {
        match self.messages.iter().rposition(|m| m.role == Role::Assistant) {
            Some(at) if self.messages[..at].last().is_some_and(|m| m.role == Role::User) => {
                self.messages.truncate(at);
                true
            }
            _ => false,
        }
    }

    /// The prompt for the next answer.
    pub fn prompt(&self, tokenizer: &Tokenizer) -> Result<Prompt, Failure> {
        let input = ChatInput {
            messages: serde_json::to_value(&self.messages).map_err(|e| Failure::of(&e))?,
            tools: None,
            add_generation_prompt: true,
            extra: self.variables.clone(),
        };
        let text = self.template.render(&input).map_err(|e| Failure::of(&e))?;
        if let Some(seen) = &self.seen
            && let Some(rest) = text.strip_prefix(&seen.text)
        {
            let rest = encode(tokenizer, rest, true)?;
            // Text is cut anywhere, so only a control token is sure to be the same token in the whole.
            if rest.first().is_some_and(|&id| tokenizer.is_control(id)) {
                let tokens = [&seen.tokens[..], &rest].concat();
                return Ok(Prompt { text, tokens });
            }
        }
        let tokens = prompt_tokens(tokenizer, &text, true, true)?;
        Ok(Prompt { text, tokens })
    }

    /// Adds the answer to `prompt`: its text, and the tokens that were drawn.
    pub fn answered(&mut self, tokenizer: &Tokenizer, prompt: Prompt, answer: &str, drawn: &[u32]) {
        let ended = drawn.last().is_some_and(|&id| tokenizer.is_end_of_generation(id));
        let drawn = &drawn[..drawn.len() - usize::from(ended)];
        let bytes: Vec<u8> =
            drawn.iter().flat_map(|&id| tokenizer.token_bytes(id).unwrap_or_default()).copied().collect();
        // A stop string was cut off, say: then the model has seen more than the conversation has.
        self.seen = (bytes == answer.as_bytes()).then(|| {
            let Prompt { mut text, mut tokens } = prompt;
            text.push_str(answer);
            tokens.extend_from_slice(drawn);
            Seen { text, tokens }
        });
        self.say(Role::Assistant, answer);
    }
}
