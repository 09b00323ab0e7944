//! Calls as a name and then the arguments as a JSON object.

use super::events::Events;
use super::json::{JsonScanner, Scan};
use super::object::MAX_NAME_BYTES;
use super::reader::{Progress, Reading, tag_at};
use crate::tags::{Found, find};

/// The id of a call, if there is one, and its name.
type Header = (Option<String>, String);

/// A notation of this kind.
#[derive(Debug)]
pub(super) struct NamedSyntax {
    /// Before each call.
    pub(super) call_open: Option<&'static str>,
    /// After each call.
    pub(super) call_close: Option<&'static str>,
    /// After the last call.
    pub(super) close: Option<&'static str>,
    /// From what stands before the arguments.
    pub(super) header: fn(&str) -> Option<Header>,
}

/// `name[CALL_ID]id[ARGS]{…}`; the tags may be lost in decoding, being control tokens.
pub(super) const MISTRAL: NamedSyntax = NamedSyntax {
    call_open: None,
    call_close: None,
    close: None,
    header: |header| {
        let header = header.trim().trim_end_matches("[ARGS]").trim_end();
        Some(match header.split_once("[CALL_ID]") {
            Some((name, id)) => (Some(id.trim().to_owned()), name.trim().to_owned()),
            None => (None, header.to_owned()),
        })
    },
};

/// V3 and R1: `function<｜tool▁sep｜>name`, then the arguments as a code block; V3.1: `name<｜tool▁sep｜>{…}`.
pub(super) const DEEPSEEK: NamedSyntax = NamedSyntax {
    call_open: Some("<｜tool▁call▁begin｜>"),
    call_close: Some("<｜tool▁call▁end｜>"),
    close: Some("<｜tool▁calls▁end｜>"),
    header: |header| {
        let (kind, rest) = header.split_once("<｜tool▁sep｜>")?;
        let name = match rest.trim() {
            "" => kind,
            rest => rest.strip_suffix("```json").or_else(|| rest.strip_suffix("```")).unwrap_or(rest),
        };
        Some((None, name.trim().to_owned()))
    },
};

/// `functions.name:0<|tool_call_argument_begin|>{…}`; all before the tag is the call's id.
pub(super) const KIMI: NamedSyntax = NamedSyntax {
    call_open: Some("<|tool_call_begin|>"),
    call_close: Some("<|tool_call_end|>"),
    close: Some("<|tool_calls_section_end|>"),
    header: |header| {
        let id = header.trim().strip_suffix("<|tool_call_argument_begin|>").unwrap_or(header).trim();
        let name = id.strip_prefix("functions.").unwrap_or(id);
        let name = match name.rsplit_once(':') {
            Some((name, number)) if number.bytes().all(|b| b.is_ascii_digit()) => name,
            _ => name,
        };
        Some((Some(id.to_owned()), name.to_owned()))
    },
};

/// Reads the calls of one section.
#[derive(Clone, Debug)]
pub(super) struct Named {
    syntax: &'static NamedSyntax,
    state: State,
    any: bool,
}

#[derive(Clone, Debug)]
enum State {
    Between,
    Header(String),
    Arguments(Box<JsonScanner>),
    /// The arguments are no JSON: they are given as they are, up to the next tag.
    Verbatim,
    /// Between the arguments and the tag that ends the call.
    Rest,
}

impl Named {
    /// `in_call`: the section began with the tag of a call.
    pub(super) fn new(syntax: &'static NamedSyntax, in_call: bool) -> Named {
        let header = in_call || syntax.call_open.is_none();
        Named {
            syntax,
            state: if header { State::Header(String::new()) } else { State::Between },
            any: false,
        }
    }

    pub(super) fn read(&mut self, text: &str, last: bool, events: &mut Events) -> Progress {
        let mut scratch = String::new();
        for (at, c) in text.char_indices() {
            let next = at + c.len_utf8();
            match &mut self.state {
                State::Between => {
                    let tags = [self.syntax.close, self.syntax.call_open];
                    match tag_at(&text[at..], &tags, last) {
                        Some(Found::At { tag: 0, .. }) => {
                            return Progress::new(at + self.syntax.close.map_or(0, str::len), self.over());
                        }
                        Some(Found::At { .. }) => {
                            self.state = State::Header(String::new());
                            return Progress::new(
                                at + self.syntax.call_open.map_or(0, str::len),
                                Reading::Again,
                            );
                        }
                        Some(Found::Not { .. }) => return Progress::new(at, Reading::More),
                        None if c.is_whitespace() => {}
                        None => return Progress::new(at, self.over()),
                    }
                }
                State::Header(header) => {
                    if c != '{' {
                        header.push(c);
                        if header.len() > 2 * MAX_NAME_BYTES {
                            return Progress::new(next, Reading::NoCall);
                        }
                        continue;
                    }
                    let plain = |name: &str| {
                        !name.is_empty()
                            && name.len() <= MAX_NAME_BYTES
                            && !name
                                .contains(|c: char| c.is_whitespace() || c.is_control() || "<>[]".contains(c))
                    };
                    let Some((id, name)) = (self.syntax.header)(header).filter(|(_, name)| plain(name))
                    else {
                        return Progress::new(at, Reading::NoCall);
                    };
                    events.start(id.filter(|id| !id.is_empty()), name);
                    let mut scanner = JsonScanner::new();
                    scanner.push(c, &mut scratch);
                    self.state = State::Arguments(Box::new(scanner));
                }
                State::Arguments(scanner) => match scanner.push(c, &mut scratch) {
                    Scan::More => {}
                    Scan::Ends => {
                        events.arguments(&scratch);
                        if self.syntax.call_close.is_none() {
                            events.end(true);
                            return Progress::new(next, Reading::Over);
                        }
                        self.state = State::Rest;
                        return Progress::new(next, Reading::Again);
                    }
                    Scan::Invalid | Scan::Ended => {
                        events.arguments(&scratch);
                        self.state = State::Verbatim;
                        return Progress::new(at, Reading::Again);
                    }
                },
                State::Verbatim | State::Rest => return self.until_tag(text, last, events),
            }
        }
        events.arguments(&scratch);
        if last {
            return self.finish(text.len(), events);
        }
        Progress::new(text.len(), Reading::More)
    }

    /// What stands between the arguments, or in place of them, and the next tag.
    fn until_tag(&mut self, text: &str, last: bool, events: &mut Events) -> Progress {
        let tags: Vec<&str> = [self.syntax.call_close, self.syntax.call_open, self.syntax.close]
            .into_iter()
            .flatten()
            .collect();
        let (end, found) = match find(text, &tags, last) {
            Found::At { tag, start } => (start, Some(tags[tag])),
            Found::Not { safe } => (safe, None),
        };
        if matches!(self.state, State::Verbatim) {
            events.arguments(&text[..end]);
        } else if let Some(other) = text[..end].find(|c: char| !c.is_whitespace() && c != '`') {
            // Not what ends a call: the model has gone on without a tag.
            events.end(true);
            return Progress::new(other, Reading::Over);
        }
        match found {
            Some(tag) => {
                events.end(matches!(self.state, State::Rest));
                self.any = true;
                self.state = State::Between;
                let used = if Some(tag) == self.syntax.call_close { end + tag.len() } else { end };
                Progress::new(used, Reading::Again)
            }
            None if last => self.finish(end, events),
            None => Progress::new(end, Reading::More),
        }
    }

    fn finish(&mut self, used: usize, events: &mut Events) -> Progress {
        let reading = match self.state {
            State::Between => self.over(),
            State::Header(_) => Reading::NoCall,
            State::Arguments(_) | State::Verbatim | State::Rest => {
                events.end(matches!(self.state, State::Rest));
                Reading::Over
            }
        };
        Progress::new(used, reading)
    }

    fn over(&self) -> Reading {
        if self.any { Reading::Over } else { Reading::NoCall }
    }
}
