//! A call written as a JSON object: `{"name": …, "arguments": {…}}` and its variants.

use super::events::Events;
use super::json::{JsonScanner, Scan, Unescaper};

/// Longer names, ids and keys are not ours.
pub(super) const MAX_NAME_BYTES: usize = 256;

/// Reads one object, character by character.
///
/// The call starts when name and beginning of the arguments are known, in whichever order they come; what comes before
/// that can still be taken back.
#[derive(Clone, Debug)]
pub(super) struct ObjectCall {
    /// Names that the object may have, if it is only a call with one of them; its first keys must be those of a call.
    only: Option<Vec<String>>,
    state: State,
    /// Objects inside this one that are read as part of it (`"function": {…}`).
    nested: usize,
    name: Option<String>,
    id: Option<String>,
    arguments: Arguments,
    /// What is being written.
    scratch: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Arguments {
    None,
    /// Complete, before the name is known.
    Waiting(String),
    Given,
}

#[derive(Clone, Debug)]
enum State {
    Open,
    Key {
        may_end: bool,
    },
    InKey(Unescaper),
    Colon(Field),
    Value(Field),
    /// A string that is the name or the id.
    Short(Field, Unescaper),
    /// The arguments as JSON, or inside a string.
    Arguments(Box<JsonScanner>),
    Quoted {
        inside: Unescaper,
        any: bool,
    },
    Skipped(Box<JsonScanner>),
    Next,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Name,
    /// A name, or an object with the fields of a call.
    Function,
    Id,
    Type,
    Arguments,
    Other,
}

/// What a character did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    More,
    /// The object ends with this character; the call has ended.
    Ends,
    /// The object is none, or not that of a call; nothing has been given out.
    NoCall,
    /// The call has started, and the character cannot stand here. With `true` it is part of the arguments.
    Broken(bool),
}

impl ObjectCall {
    pub(super) fn new(only: Option<Vec<String>>) -> ObjectCall {
        ObjectCall {
            only,
            state: State::Open,
            nested: 0,
            name: None,
            id: None,
            arguments: Arguments::None,
            scratch: String::new(),
        }
    }

    /// Takes the next character.
    pub(super) fn push(&mut self, c: char, events: &mut Events) -> Step {
        match self.advance(c, events) {
            Some(step) => step,
            None if self.started() => {
                Step::Broken(matches!(self.state, State::Arguments(_) | State::Quoted { .. }))
            }
            None => Step::NoCall,
        }
    }

    /// Whether the call has been given out.
    pub(super) fn started(&self) -> bool {
        let streams = matches!(self.state, State::Arguments(_) | State::Quoted { .. }) && self.name.is_some();
        self.arguments == Arguments::Given || streams
    }

    /// Whether all arguments have been given out.
    pub(super) fn arguments_given(&self) -> bool {
        self.arguments == Arguments::Given
    }

    fn advance(&mut self, c: char, events: &mut Events) -> Option<Step> {
        let blank = matches!(c, ' ' | '\n' | '\r' | '\t');
        match &mut self.state {
            State::Open | State::Key { .. } | State::Colon(_) | State::Value(_) | State::Next if blank => {}
            State::Open => match c {
                '{' => self.state = State::Key { may_end: true },
                _ => return None,
            },
            State::Key { may_end } => match c {
                '"' => self.state = State::InKey(Unescaper::default()),
                '}' if *may_end => return self.close(events),
                _ => return None,
            },
            State::InKey(unescaper) => {
                if unescaper.push(c, &mut self.scratch) {
                    return (self.scratch.len() <= MAX_NAME_BYTES).then_some(Step::More);
                }
                let field = Field::of(&std::mem::take(&mut self.scratch));
                if field == Field::Other && self.only.is_some() && self.name.is_none() {
                    return None;
                }
                self.state = State::Colon(field);
            }
            State::Colon(field) => match c {
                ':' => self.state = State::Value(*field),
                _ => return None,
            },
            &mut State::Value(field) => return self.value(field, c, events),
            State::Short(field, unescaper) => {
                if unescaper.push(c, &mut self.scratch) {
                    return (self.scratch.len() <= MAX_NAME_BYTES).then_some(Step::More);
                }
                let text = std::mem::take(&mut self.scratch);
                if *field == Field::Id {
                    self.id = Some(text);
                } else {
                    let known = self.only.as_ref().is_none_or(|names| names.contains(&text));
                    if text.is_empty() || !known {
                        return None;
                    }
                    self.name = Some(text);
                    if let Arguments::Waiting(arguments) = &mut self.arguments {
                        let arguments = std::mem::take(arguments);
                        self.start(events);
                        events.arguments(&arguments);
                        self.arguments = Arguments::Given;
                    }
                }
                self.state = State::Next;
            }
            State::Arguments(scanner) => {
                let step = scanner.push(c, &mut self.scratch);
                self.stream(events);
                match step {
                    Scan::More => {}
                    Scan::Invalid => return None,
                    Scan::Ends => self.arguments_end(),
                    Scan::Ended => {
                        self.arguments_end();
                        return self.advance(c, events);
                    }
                }
            }
            State::Quoted { inside, any } => {
                let more = inside.push(c, &mut self.scratch);
                *any |= more;
                if !more && !*any {
                    self.scratch.push_str("{}");
                }
                self.stream(events);
                if !more {
                    self.arguments_end();
                }
            }
            State::Skipped(scanner) => {
                let step = scanner.push(c, &mut self.scratch);
                self.scratch.clear();
                match step {
                    Scan::More => {}
                    Scan::Invalid => return None,
                    Scan::Ends => self.state = State::Next,
                    Scan::Ended => {
                        self.state = State::Next;
                        return self.advance(c, events);
                    }
                }
            }
            State::Next => match c {
                ',' => self.state = State::Key { may_end: false },
                '}' => return self.close(events),
                _ => return None,
            },
        }
        Some(Step::More)
    }

    /// The first character of a field's value.
    fn value(&mut self, field: Field, c: char, events: &mut Events) -> Option<Step> {
        match (field, c) {
            (Field::Name | Field::Function | Field::Id, '"') => {
                self.state = State::Short(field, Unescaper::default());
                return Some(Step::More);
            }
            (Field::Function, '{') if self.nested < 2 => {
                self.nested += 1;
                self.state = State::Key { may_end: true };
                return Some(Step::More);
            }
            (Field::Name, _) => return None,
            // A second set of arguments is ignored, and `null` means none.
            (Field::Arguments, _) if self.arguments == Arguments::None && c != 'n' => {
                if self.name.is_some() {
                    self.start(events);
                }
                if c == '"' {
                    self.state = State::Quoted { inside: Unescaper::default(), any: false };
                    return Some(Step::More);
                }
                self.state = State::Arguments(Box::new(JsonScanner::new()));
            }
            _ => self.state = State::Skipped(Box::new(JsonScanner::new())),
        }
        self.advance(c, events)
    }

    fn start(&mut self, events: &mut Events) {
        events.start(self.id.take(), self.name.clone().unwrap_or_default());
    }

    /// Hands the arguments on as they come, if the call has started.
    fn stream(&mut self, events: &mut Events) {
        if self.name.is_some() {
            events.arguments(&self.scratch);
            self.scratch.clear();
        }
    }

    fn arguments_end(&mut self) {
        self.arguments = match self.name {
            Some(_) => Arguments::Given,
            None => Arguments::Waiting(std::mem::take(&mut self.scratch)),
        };
        self.state = State::Next;
    }

    fn close(&mut self, events: &mut Events) -> Option<Step> {
        if self.nested > 0 {
            self.nested -= 1;
            self.state = State::Next;
            return Some(Step::More);
        }
        self.name.as_ref()?;
        if self.arguments == Arguments::None {
            if self.only.is_some() {
                // An object that merely has a name.
                return None;
            }
            self.start(events);
            events.arguments("{}");
            self.arguments = Arguments::Given;
        }
        events.end(true);
        Some(Step::Ends)
    }
}

impl Field {
    fn of(key: &str) -> Field {
        match key {
            "name" | "tool_name" => Field::Name,
            "function" => Field::Function,
            "id" | "call_id" | "tool_call_id" => Field::Id,
            "type" => Field::Type,
            "arguments" | "parameters" => Field::Arguments,
            _ => Field::Other,
        }
    }
}
