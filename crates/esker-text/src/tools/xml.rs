//! Calls as tags around the name and each argument; the arguments become JSON here.

use super::ToolSpec;
use super::events::Events;
use super::json::push_escaped_str;
use super::object::MAX_NAME_BYTES;
use super::reader::{Progress, Reading, tag_at};
use super::types::ArgumentTypes;
use crate::tags::{Found, find};

/// A notation of this kind.
#[derive(Debug)]
pub(super) struct XmlSyntax {
    /// Before each name; without it, the name begins the section and ends at a line end or tag.
    pub(super) call_open: Option<&'static str>,
    /// Between the name and the arguments.
    pub(super) name_end: &'static str,
    pub(super) key_open: &'static str,
    pub(super) key_end: &'static str,
    /// Between the key and the value, where it is not `key_end`.
    pub(super) value_open: Option<&'static str>,
    pub(super) value_close: &'static str,
    /// After the arguments, where it is not `close`.
    pub(super) call_close: Option<&'static str>,
    /// After the last call.
    pub(super) close: &'static str,
    /// A line end after the opening and before the closing tag of a value does not belong to it.
    pub(super) lines: bool,
}

pub(super) const QWEN: XmlSyntax = XmlSyntax {
    call_open: Some("<function="),
    name_end: ">",
    key_open: "<parameter=",
    key_end: ">",
    value_open: None,
    value_close: "</parameter>",
    call_close: Some("</function>"),
    close: "</tool_call>",
    lines: true,
};

pub(super) const GLM: XmlSyntax = XmlSyntax {
    call_open: None,
    name_end: "",
    key_open: "<arg_key>",
    key_end: "</arg_key>",
    value_open: Some("<arg_value>"),
    value_close: "</arg_value>",
    call_close: None,
    close: "</tool_call>",
    lines: false,
};

pub(super) const MINIMAX: XmlSyntax = XmlSyntax {
    call_open: Some("<invoke name=\""),
    name_end: "\">",
    key_open: "<parameter name=\"",
    key_end: "\">",
    value_open: None,
    value_close: "</parameter>",
    call_close: Some("</invoke>"),
    close: "</minimax:tool_call>",
    lines: false,
};

/// Reads the calls of one section.
#[derive(Clone, Debug)]
pub(super) struct Xml {
    syntax: &'static XmlSyntax,
    tools: Vec<ToolSpec>,
    state: State,
    /// Of the call that is being read.
    name: String,
    /// The call has been given out.
    started: bool,
    n_arguments: usize,
    /// Calls were read.
    any: bool,
}

#[derive(Clone, Debug)]
enum State {
    Between,
    Name,
    /// Before an argument or the end of the call.
    Arguments,
    Key(String),
    /// Before the tag that opens the value.
    ValueOpen(String),
    /// Before the first character of the value.
    ValueStart(String),
    /// In a string, which is given out as it comes.
    Text,
    /// In a value that is read when it is whole: key, what it may be, text so far.
    Value(String, ArgumentTypes, String),
}

/// What a state made of the text.
enum Step {
    /// Go on behind these bytes.
    Next(usize),
    /// These bytes are done with, and more are needed.
    Wait(usize),
    CallEnds(usize),
    Over(usize),
    NoCall(usize),
}

impl Xml {
    /// `in_call`: the section began with the tag of a call.
    pub(super) fn new(syntax: &'static XmlSyntax, tools: &[ToolSpec], in_call: bool) -> Xml {
        let name = in_call || syntax.call_open.is_none();
        Xml {
            syntax,
            tools: tools.to_vec(),
            state: if name { State::Name } else { State::Between },
            name: String::new(),
            started: false,
            n_arguments: 0,
            any: false,
        }
    }

    pub(super) fn read(&mut self, text: &str, last: bool, events: &mut Events) -> Progress {
        let mut at = 0;
        loop {
            let rest = &text[at..];
            let step = match &self.state {
                State::Between => self.between(rest, last),
                State::Name => self.name(rest, last),
                State::Arguments => self.arguments(rest, last, events),
                State::Key(_) => self.key(rest, last, events),
                State::ValueOpen(_) => self.value_open(rest, last),
                State::ValueStart(_) => self.value_start(rest, last, events),
                State::Text => self.text(rest, last, events),
                State::Value(..) => self.value(rest, last, events),
            };
            match step {
                // Something was understood: go on behind it.
                Step::Next(used) => at += used,
                Step::Wait(used) if last => return Progress::new(at + used, self.finish(events)),
                Step::Wait(used) => return Progress::new(at + used, Reading::More),
                Step::CallEnds(used) => return Progress::new(at + used, Reading::Again),
                Step::Over(used) => return Progress::new(at + used, self.over()),
                Step::NoCall(used) => return Progress::new(at + used, Reading::NoCall),
            }
        }
    }

    fn between(&mut self, rest: &str, last: bool) -> Step {
        let blank = rest.len() - rest.trim_start().len();
        let rest = &rest[blank..];
        match tag_at(rest, &[Some(self.syntax.close), self.syntax.call_open], last) {
            _ if rest.is_empty() => Step::Wait(blank),
            Some(Found::At { tag: 0, .. }) => Step::Over(blank + self.syntax.close.len()),
            Some(Found::At { .. }) => {
                self.state = State::Name;
                Step::Next(blank + self.syntax.call_open.map_or(0, str::len))
            }
            Some(Found::Not { .. }) => Step::Wait(blank),
            None => Step::Over(blank),
        }
    }

    fn name(&mut self, rest: &str, last: bool) -> Step {
        let (end, after) = if self.syntax.call_open.is_none() {
            // Blanks before the name, then up to a line end or tag.
            let blank = rest.len() - rest.trim_start().len();
            match rest[blank..].find(['\n', '<']) {
                Some(n) => (blank + n, blank + n),
                None => (rest.len(), usize::MAX),
            }
        } else {
            match find(rest, &[self.syntax.name_end], last) {
                Found::At { start, .. } => (start, start + self.syntax.name_end.len()),
                Found::Not { safe } => (safe, usize::MAX),
            }
        };
        self.name.push_str(&rest[..end]);
        let name = self.name.trim();
        let plain = !name.contains(|c: char| c.is_whitespace() || c.is_control() || "<>{}[]\"".contains(c));
        if !plain || name.len() > MAX_NAME_BYTES {
            return Step::NoCall(end);
        }
        if after == usize::MAX {
            return Step::Wait(end);
        }
        if name.is_empty() {
            return Step::NoCall(end);
        }
        self.name = name.to_owned();
        self.started = false;
        self.n_arguments = 0;
        self.state = State::Arguments;
        Step::Next(after)
    }

    fn arguments(&mut self, rest: &str, last: bool, events: &mut Events) -> Step {
        let blank = rest.len() - rest.trim_start().len();
        let rest = &rest[blank..];
        if rest.is_empty() {
            return Step::Wait(blank);
        }
        let tags = [Some(self.syntax.key_open), self.syntax.call_close, Some(self.syntax.close)];
        match tag_at(rest, &tags, last) {
            Some(Found::At { tag, .. }) => {
                if !self.started {
                    self.started = true;
                    events.start(None, self.name.clone());
                    events.arguments("{");
                }
                let used = blank + tags[tag].map_or(0, str::len);
                if tag == 0 {
                    self.state = State::Key(String::new());
                    return Step::Next(used);
                }
                events.arguments("}");
                self.end_call(true, events);
                if tag == 1 { Step::CallEnds(used) } else { Step::Over(used) }
            }
            Some(Found::Not { .. }) => Step::Wait(blank),
            // Something else where a tag should be.
            None if self.started => Step::Next(blank + rest.chars().next().map_or(0, char::len_utf8)),
            None => Step::NoCall(blank),
        }
    }

    fn key(&mut self, rest: &str, last: bool, events: &mut Events) -> Step {
        let State::Key(key) = &mut self.state else { return Step::Next(0) };
        let (end, found) = match find(rest, &[self.syntax.key_end], last) {
            Found::At { start, .. } => (start, true),
            Found::Not { safe } => (safe, false),
        };
        key.push_str(&rest[..end]);
        if key.len() > MAX_NAME_BYTES {
            // The arguments stay unfinished, for everybody to see.
            self.end_call(false, events);
            return Step::Over(end);
        }
        if !found {
            return Step::Wait(end);
        }
        let key = key.trim().to_owned();
        self.state = match self.syntax.value_open {
            Some(_) => State::ValueOpen(key),
            None => State::ValueStart(key),
        };
        Step::Next(end + self.syntax.key_end.len())
    }

    fn value_open(&mut self, rest: &str, last: bool) -> Step {
        let State::ValueOpen(key) = &mut self.state else { return Step::Next(0) };
        let blank = rest.len() - rest.trim_start().len();
        let rest = &rest[blank..];
        if rest.is_empty() {
            return Step::Wait(blank);
        }
        match tag_at(rest, &[self.syntax.value_open], last) {
            Some(Found::Not { .. }) => Step::Wait(blank),
            found => {
                // Without the tag the value begins here.
                self.state = State::ValueStart(std::mem::take(key));
                let tag = if found.is_some() { self.syntax.value_open.map_or(0, str::len) } else { 0 };
                Step::Next(blank + tag)
            }
        }
    }

    fn value_start(&mut self, rest: &str, last: bool, events: &mut Events) -> Step {
        let State::ValueStart(key) = &mut self.state else { return Step::Next(0) };
        let mut used = 0;
        if self.syntax.lines {
            if !last && matches!(rest, "" | "\r") {
                return Step::Wait(0);
            }
            let line_end = rest.strip_prefix("\r\n").or_else(|| rest.strip_prefix('\n'));
            used = rest.len() - line_end.unwrap_or(rest).len();
        }
        let key = std::mem::take(key);
        let schema = self.tools.iter().find(|tool| tool.name == self.name).map(|tool| &tool.parameters);
        let types = ArgumentTypes::of_argument(schema, &key);
        if types.only_text() {
            let opening = self.opening(&key);
            events.arguments(&(opening + "\""));
            self.state = State::Text;
        } else {
            self.state = State::Value(key, types, String::new());
        }
        Step::Next(used)
    }

    /// What stands before an argument's value in the JSON object.
    fn opening(&mut self, key: &str) -> String {
        let mut out = String::from(if self.n_arguments > 0 { ", \"" } else { "\"" });
        self.n_arguments += 1;
        push_escaped_str(key, &mut out);
        out.push_str("\": ");
        out
    }

    /// Where the value ends or, if it does not, how far it certainly goes; and whether it ended, with the length of the
    /// tag that is done with.
    fn value_end(&self, rest: &str, last: bool) -> (usize, Option<usize>) {
        // A value whose own tag was forgotten ends with the next argument, or with the call.
        let mut tags = vec![self.syntax.value_close, self.syntax.key_open];
        tags.extend(self.syntax.call_close);
        match find(rest, &tags, last) {
            Found::At { tag, start } => (start, Some(if tag == 0 { tags[0].len() } else { 0 })),
            Found::Not { safe } => (safe, None),
        }
    }

    fn text(&mut self, rest: &str, last: bool, events: &mut Events) -> Step {
        let (end, tag) = self.value_end(rest, last);
        let mut text = &rest[..end];
        if self.syntax.lines && (tag.is_some() || !last) {
            text = text.strip_suffix('\n').unwrap_or(text);
            text = text.strip_suffix('\r').unwrap_or(text);
        }
        let mut escaped = String::new();
        push_escaped_str(text, &mut escaped);
        if tag.is_some() {
            escaped.push('"');
            self.state = State::Arguments;
        }
        events.arguments(&escaped);
        match tag {
            Some(tag) => Step::Next(end + tag),
            None => Step::Wait(text.len()),
        }
    }

    fn value(&mut self, rest: &str, last: bool, events: &mut Events) -> Step {
        let (end, tag) = self.value_end(rest, last);
        let State::Value(key, types, text) = &mut self.state else { return Step::Next(0) };
        text.push_str(&rest[..end]);
        let Some(tag) = tag else { return Step::Wait(end) };
        let mut whole = text.as_str();
        if self.syntax.lines {
            whole = whole.strip_suffix('\n').unwrap_or(whole);
            whole = whole.strip_suffix('\r').unwrap_or(whole);
        }
        let json = types.json(whole);
        let key = std::mem::take(key);
        let opening = self.opening(&key);
        events.arguments(&(opening + &json));
        self.state = State::Arguments;
        Step::Next(end + tag)
    }

    fn end_call(&mut self, complete: bool, events: &mut Events) {
        events.end(complete);
        self.any = true;
        self.name.clear();
        self.state = State::Between;
    }

    /// The text ends here: a call that has been given out is cut off, and its arguments stay unfinished.
    fn finish(&mut self, events: &mut Events) -> Reading {
        match self.state {
            State::Between => self.over(),
            _ if self.started => {
                self.started = false;
                events.end(false);
                Reading::Over
            }
            _ => Reading::NoCall,
        }
    }

    fn over(&self) -> Reading {
        if self.any { Reading::Over } else { Reading::NoCall }
    }
}
