//! Control tokens that somebody wrote into a message: marked, so that they stay text.

use std::borrow::Cow;

use aho_corasick::{AhoCorasick, MatchKind};

use crate::error::TokenizerError;
use crate::reasoning;
use crate::special::TEXT_MARK;
use crate::tokenizer::Tokenizer;

/// Finds the names of control tokens.
#[derive(Clone, Debug)]
pub(super) struct Shield {
    names: AhoCorasick,
}

impl Shield {
    pub(super) fn new(tokenizer: &Tokenizer) -> Result<Shield, TokenizerError> {
        // One character cannot hold a mark inside.
        let names =
            tokenizer.control_tokens().filter(|name| name.chars().count() > 1 && !reasoning::is_tag(name));
        let names = AhoCorasick::builder().match_kind(MatchKind::Standard).build(names);
        Ok(Shield { names: names.map_err(TokenizerError::SpecialTokens)? })
    }

    /// `text` with a mark behind the first character of every name.
    pub(super) fn mark<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let first = |start: usize| start + text[start..].chars().next().map_or(0, char::len_utf8);
        let mut places: Vec<usize> =
            self.names.find_overlapping_iter(text).map(|found| first(found.start())).collect();
        if places.is_empty() {
            return Cow::Borrowed(text);
        }
        places.sort_unstable();
        places.dedup();
        let mut out = String::with_capacity(text.len() + places.len() * TEXT_MARK.len_utf8());
        let mut done = 0;
        for at in places {
            out.push_str(&text[done..at]);
            out.push(TEXT_MARK);
            done = at;
        }
        out.push_str(&text[done..]);
        Cow::Owned(out)
    }
}
