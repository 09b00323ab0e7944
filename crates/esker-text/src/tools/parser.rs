//! Reading calls from text that arrives in pieces.

use super::events::Events;
use super::format::Opening;
use super::named::{self, Named};
use super::objects::Objects;
use super::reader::{Reader, Reading};
use super::xml::{self, Xml};
use super::{ToolFormat, ToolSpec};
use crate::tags::{Found, find};

/// What a piece of a model's text means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolEvent {
    /// Text for the user.
    Text(String),
    /// A call begins; calls are numbered from 0 and do not overlap.
    CallStart {
        /// Number of the call in this answer.
        index: usize,
        /// The call's id where the model wrote one.
        id: Option<String>,
        /// Name of the tool, as the model wrote it: it need not be one of those offered.
        name: String,
    },
    /// The arguments go on. All deltas of a call together are JSON text: an object, unless the model erred or was cut
    /// off.
    Arguments {
        /// Number of the call.
        index: usize,
        /// More of the JSON text.
        delta: String,
    },
    /// The call is over.
    CallEnd {
        /// Number of the call.
        index: usize,
        /// The model wrote all of its arguments. False if the text ended before, or if they are no JSON.
        complete: bool,
    },
}

/// Reads one answer. The reasoning must have been split off before.
#[derive(Clone, Debug)]
pub struct ToolParser {
    format: ToolFormat,
    tools: Vec<ToolSpec>,
    state: State,
    /// What has come and is not understood yet.
    pending: String,
    /// What was read since the last call ended and is text if it turns out to be no call.
    raw: String,
    /// Text has been given out: an object is not the answer as a whole any more.
    begun: bool,
    /// White space that comes now stands behind a call, and goes.
    after_call: bool,
    events: Events,
}

#[derive(Clone, Debug)]
enum State {
    Text,
    /// Behind this opening tag: what comes next decides how the calls are written.
    Opened(usize),
    Calls(Reader),
}

impl ToolParser {
    /// For an answer to a request that offers `tools`.
    pub fn new(format: ToolFormat, tools: &[ToolSpec]) -> ToolParser {
        ToolParser {
            format,
            tools: tools.to_vec(),
            state: State::Text,
            pending: String::new(),
            raw: String::new(),
            begun: false,
            after_call: false,
            events: Events::default(),
        }
    }

    /// Takes text; returns what is certain now.
    pub fn push(&mut self, text: &str) -> Vec<ToolEvent> {
        self.pending.push_str(text);
        self.advance(false);
        self.events.take()
    }

    /// Ends the text; returns the rest. A call that has begun ends here, even if its arguments are not complete.
    pub fn finish(&mut self) -> Vec<ToolEvent> {
        self.advance(true);
        self.events.take()
    }

    fn advance(&mut self, last: bool) {
        let pending = std::mem::take(&mut self.pending);
        let mut rest = &*pending;
        loop {
            let more = match &mut self.state {
                State::Text => self.text(&mut rest, last),
                State::Opened(_) => self.opened(&mut rest, last),
                State::Calls(_) => self.calls(&mut rest, last),
            };
            if !more {
                break;
            }
        }
        self.pending = if last { String::new() } else { rest.to_owned() };
    }

    /// Gives out text up to the next opening tag; `false` if nothing more can be done.
    fn text(&mut self, rest: &mut &str, last: bool) -> bool {
        let tags: Vec<&str> = self.format.openings().iter().map(|&(tag, _)| tag).collect();
        if self.format == ToolFormat::LlamaJson && !self.begun {
            let trimmed = rest.trim_start();
            if trimmed.is_empty() && !last {
                return false;
            }
            if trimmed.starts_with('{') {
                self.raw = rest[..rest.len() - trimmed.len()].to_owned();
                *rest = trimmed;
                let names = self.tools.iter().map(|tool| tool.name.clone()).collect();
                self.state = State::Calls(Reader::Objects(Objects::new(None, Some(names))));
                return true;
            }
        }
        match find(rest, &tags, last) {
            Found::At { tag, start } => {
                let text = rest[..start].trim_end();
                self.give_text(text);
                self.raw = rest[text.len()..start + tags[tag].len()].to_owned();
                *rest = &rest[start + tags[tag].len()..];
                self.state = State::Opened(tag);
                true
            }
            Found::Not { safe } => {
                // White space may stand before a call, where it goes.
                let end = if last { safe } else { rest[..safe].trim_end().len() };
                self.give_text(&rest[..end]);
                *rest = &rest[end..];
                false
            }
        }
    }

    fn give_text(&mut self, text: &str) {
        let text = if self.after_call { text.trim_start() } else { text };
        if !text.is_empty() {
            self.begun = true;
            self.after_call = false;
            self.events.text(text);
        }
    }

    /// Chooses the reader; models that know one notation of a family may use the other.
    fn opened(&mut self, rest: &mut &str, last: bool) -> bool {
        let State::Opened(tag) = self.state else { return true };
        let opening = self.format.openings()[tag].1;
        let trimmed = rest.trim_start();
        if trimmed.is_empty() && !last {
            return false;
        }
        let object = trimmed.starts_with(['{', '[']);
        let qwen = |in_call| Reader::Xml(Xml::new(&xml::QWEN, &self.tools, in_call));
        let reader = match opening {
            Opening::Section(close) if object || self.format.only_objects() => {
                Reader::Objects(Objects::new(close, None))
            }
            Opening::Section(_) | Opening::Call => match self.format {
                ToolFormat::HermesJson | ToolFormat::QwenXml => qwen(opening == Opening::Call),
                ToolFormat::GlmXml => Reader::Xml(Xml::new(&xml::GLM, &self.tools, false)),
                ToolFormat::MiniMaxXml => Reader::Xml(Xml::new(&xml::MINIMAX, &self.tools, false)),
                ToolFormat::DeepSeekV3 | ToolFormat::DeepSeekV31 => {
                    Reader::Named(Named::new(&named::DEEPSEEK, opening == Opening::Call))
                }
                ToolFormat::KimiK2 => Reader::Named(Named::new(&named::KIMI, opening == Opening::Call)),
                _ => Reader::Named(Named::new(&named::MISTRAL, false)),
            },
        };
        self.raw.push_str(&rest[..rest.len() - trimmed.len()]);
        *rest = trimmed;
        self.state = State::Calls(reader);
        true
    }

    fn calls(&mut self, rest: &mut &str, last: bool) -> bool {
        let State::Calls(reader) = &mut self.state else { return true };
        let before = self.events.activity();
        let progress = reader.read(rest, last, &mut self.events);
        let used = &rest[..progress.used];
        *rest = &rest[progress.used..];
        if self.events.activity() != before {
            // A call has begun, gone on or ended: what led to it is no text any more.
            self.raw.clear();
            self.begun = true;
            self.after_call = true;
        } else {
            self.raw.push_str(used);
        }
        match progress.reading {
            Reading::More => false,
            Reading::Again => true,
            Reading::Over => {
                self.raw.clear();
                self.state = State::Text;
                true
            }
            Reading::NoCall => {
                let raw = std::mem::take(&mut self.raw);
                self.give_text(&raw);
                self.begun = true;
                self.state = State::Text;
                true
            }
        }
    }
}
