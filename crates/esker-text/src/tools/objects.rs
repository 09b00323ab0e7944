//! Calls as JSON objects, one after the other or in an array, up to a closing tag or without one.

use super::events::Events;
use super::object::{ObjectCall, Step};
use super::reader::{Progress, Reading};
use crate::tags::{Found, find};

/// Reads the objects of one section.
#[derive(Clone, Debug)]
pub(super) struct Objects {
    close: Option<&'static str>,
    only: Option<Vec<String>>,
    state: State,
    array: bool,
    any: bool,
}

#[derive(Clone, Debug)]
enum State {
    Between,
    Object(Box<ObjectCall>),
    /// The arguments of a call are no JSON: they are given as they are, up to the closing tag.
    Verbatim,
}

impl Objects {
    /// Objects up to `close`, or as far as they go. `only`: see [`ObjectCall`].
    pub(super) fn new(close: Option<&'static str>, only: Option<Vec<String>>) -> Objects {
        Objects { close, only, state: State::Between, array: false, any: false }
    }

    pub(super) fn read(&mut self, text: &str, last: bool, events: &mut Events) -> Progress {
        for (at, c) in text.char_indices() {
            match &mut self.state {
                State::Between => {
                    let rest = &text[at..];
                    if let Some(close) =
                        self.close.filter(|&close| close.starts_with(rest) || rest.starts_with(close))
                    {
                        if rest.len() >= close.len() {
                            return Progress::new(at + close.len(), self.over());
                        }
                        if !last {
                            return Progress::new(at, Reading::More);
                        }
                    }
                    match c {
                        c if c.is_whitespace() => {}
                        '{' => {
                            let mut call = ObjectCall::new(self.only.clone());
                            call.push(c, events);
                            self.state = State::Object(Box::new(call));
                        }
                        '[' if !self.any && !self.array => self.array = true,
                        ']' if self.array => {
                            self.array = false;
                            if self.close.is_none() {
                                return Progress::new(at + 1, self.over());
                            }
                        }
                        ',' | ';' if self.any => {}
                        // One more than there should be.
                        '}' | ']' if self.any && self.close.is_some() => {}
                        _ => return Progress::new(at, self.over()),
                    }
                }
                State::Object(call) => match call.push(c, events) {
                    Step::More => {}
                    Step::Ends => {
                        self.state = State::Between;
                        self.any = true;
                        return Progress::new(at + c.len_utf8(), Reading::Again);
                    }
                    Step::NoCall => return Progress::new(at, Reading::NoCall),
                    Step::Broken(true) => {
                        self.state = State::Verbatim;
                        return Progress::new(at, Reading::Again);
                    }
                    Step::Broken(false) => {
                        events.end(true);
                        self.state = State::Between;
                        self.any = true;
                        return Progress::new(at, Reading::Again);
                    }
                },
                State::Verbatim => return self.verbatim(text, last, events),
            }
        }
        if last {
            return self.finish(text.len(), events);
        }
        Progress::new(text.len(), Reading::More)
    }

    fn verbatim(&mut self, text: &str, last: bool, events: &mut Events) -> Progress {
        match find(text, self.close.as_slice(), last) {
            Found::At { start, tag: _ } => {
                events.arguments(&text[..start]);
                events.end(false);
                Progress::new(start + self.close.map_or(0, str::len), Reading::Over)
            }
            Found::Not { safe } => {
                events.arguments(&text[..safe]);
                if last {
                    return self.finish(safe, events);
                }
                Progress::new(safe, Reading::More)
            }
        }
    }

    fn finish(&mut self, used: usize, events: &mut Events) -> Progress {
        match &self.state {
            State::Between => Progress::new(used, self.over()),
            State::Object(call) if !call.started() => Progress::new(used, Reading::NoCall),
            State::Object(call) => {
                events.end(call.arguments_given());
                Progress::new(used, Reading::Over)
            }
            State::Verbatim => {
                events.end(false);
                Progress::new(used, Reading::Over)
            }
        }
    }

    fn over(&self) -> Reading {
        if self.any { Reading::Over } else { Reading::NoCall }
    }
}
