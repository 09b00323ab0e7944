//! What the readers of the notations have in common.

use super::events::Events;
use super::named::Named;
use super::objects::Objects;
use super::xml::Xml;
use crate::tags::Found;

/// Reads a section of calls. It stops behind each call, so that the caller knows which text can still be taken back.
#[derive(Clone, Debug)]
pub(super) enum Reader {
    Objects(Objects),
    Named(Named),
    Xml(Xml),
}

/// How far a reader got.
#[derive(Clone, Copy, Debug)]
pub(super) struct Progress {
    /// Bytes of the text that are done with.
    pub(super) used: usize,
    pub(super) reading: Reading,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// More text is needed, behind what is left. Not if there is none.
    More,
    /// A call has ended, or another kind of text begins: go on with what is left.
    Again,
    /// The section is over.
    Over,
    /// What was read since the last call ended, or since the section began, is none.
    NoCall,
}

impl Progress {
    pub(super) fn new(used: usize, reading: Reading) -> Progress {
        Progress { used, reading }
    }
}

impl Reader {
    pub(super) fn read(&mut self, text: &str, last: bool, events: &mut Events) -> Progress {
        match self {
            Reader::Objects(objects) => objects.read(text, last, events),
            Reader::Named(named) => named.read(text, last, events),
            Reader::Xml(xml) => xml.read(text, last, events),
        }
    }
}

/// Which of `tags` the text begins with. `Not`: it is too short to tell.
pub(super) fn tag_at(text: &str, tags: &[Option<&str>], last: bool) -> Option<Found> {
    let found = tags.iter().position(|tag| tag.is_some_and(|tag| text.starts_with(tag)));
    if let Some(tag) = found {
        return Some(Found::At { tag, start: 0 });
    }
    let partial = !last && tags.iter().flatten().any(|tag| tag.starts_with(text));
    partial.then_some(Found::Not { safe: 0 })
}
