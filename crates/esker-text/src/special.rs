//! Control and user-defined tokens, found in text before anything else: leftmost, and there the longest.
//!
//! User-defined tokens (`<think>`) are part of the text language and always recognised. Control tokens
//! (`<|im_end|>`) are only recognised where the caller says that the text is trusted: in what a user wrote they
//! stay text, so that it cannot close its own turn.

use std::collections::HashMap;
use std::ops::Range;

use aho_corasick::{AhoCorasick, Input, MatchKind};

use crate::error::TokenizerError;
use crate::vocab::{TokenType, Vocab};

/// Most bytes of text in control and user-defined tokens together; the largest known vocabularies have 0.2 MiB.
pub const MAX_SPECIAL_BYTES: usize = 4 << 20;

/// Stands inside the name of a control token that is meant as text, in a text where control tokens are recognised; it
/// is taken out before the text is encoded. A code point that Unicode keeps free for such uses.
pub(crate) const TEXT_MARK: char = '\u{fdd0}';

/// The search automata.
#[derive(Debug)]
pub(crate) struct SpecialTokens {
    user_defined: Option<Matcher>,
    all: Option<Matcher>,
    by_text: HashMap<Box<str>, u32>,
}

#[derive(Debug)]
struct Matcher {
    automaton: AhoCorasick,
    ids: Vec<u32>,
    /// Longest token, in bytes.
    max_len: usize,
}

/// A stretch of text, or a token found in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fragment<'t> {
    Text(&'t str),
    Token(u32),
}

impl SpecialTokens {
    pub(crate) fn new(vocab: &Vocab) -> Result<SpecialTokens, TokenizerError> {
        let mut by_text: HashMap<Box<str>, u32> = HashMap::new();
        let mut bytes = 0;
        for id in 0..vocab.len() as u32 {
            let special = matches!(
                vocab.token_type(id),
                Some(TokenType::Control | TokenType::Unknown | TokenType::UserDefined)
            );
            // The bytes of these kinds are UTF-8: they are the text in the file.
            if special
                && let Ok(text) = str::from_utf8(vocab.bytes(id).unwrap_or_default())
                && !text.is_empty()
            {
                bytes += text.len();
                by_text.entry(text.into()).or_insert(id);
            }
        }
        if bytes > MAX_SPECIAL_BYTES {
            return Err(TokenizerError::SpecialTokensTooLarge { bytes, max: MAX_SPECIAL_BYTES });
        }
        let user_defined = |id: u32| vocab.token_type(id) == Some(TokenType::UserDefined);
        Ok(SpecialTokens {
            user_defined: Matcher::new(&by_text, user_defined)?,
            all: Matcher::new(&by_text, |_| true)?,
            by_text,
        })
    }

    /// The control or user-defined token with this text.
    pub(crate) fn get(&self, text: &str) -> Option<u32> {
        self.by_text.get(text).copied()
    }

    /// The first token in `text` from byte `from` on, and where it stands. [`fragments`](Self::fragments) finds the same
    /// tokens by going on behind each.
    pub(crate) fn find(&self, text: &str, from: usize, control: bool) -> Option<(Range<usize>, u32)> {
        let matcher = if control { &self.all } else { &self.user_defined };
        let found = matcher.as_ref()?;
        let at = found.automaton.find(Input::new(text).range(from..))?;
        Some((at.range(), found.ids[at.pattern().as_usize()]))
    }

    /// Length in bytes of the longest token that is looked for; 0 if there is none.
    pub(crate) fn max_len(&self, control: bool) -> usize {
        let matcher = if control { &self.all } else { &self.user_defined };
        matcher.as_ref().map_or(0, |m| m.max_len)
    }

    /// Cuts `text` at the tokens in it; `control` says whether control tokens count. No fragment is empty.
    pub(crate) fn fragments<'t>(&self, text: &'t str, control: bool) -> impl Iterator<Item = Fragment<'t>> {
        let matcher = if control { &self.all } else { &self.user_defined };
        let mut found = matcher.as_ref().into_iter().flat_map(move |m| {
            m.automaton.find_iter(text).map(|f| (f.range(), m.ids[f.pattern().as_usize()]))
        });
        let mut at = 0;
        let mut token = None;
        std::iter::from_fn(move || {
            if let Some(id) = token.take() {
                return Some(Fragment::Token(id));
            }
            let start = at;
            let end = match found.next() {
                Some((range, id)) => {
                    at = range.end;
                    token = Some(id);
                    range.start
                }
                None => {
                    at = text.len();
                    at
                }
            };
            if start < end {
                return Some(Fragment::Text(&text[start..end]));
            }
            token.take().map(Fragment::Token)
        })
    }
}

impl Matcher {
    fn new(
        by_text: &HashMap<Box<str>, u32>,
        wanted: impl Fn(u32) -> bool,
    ) -> Result<Option<Matcher>, TokenizerError> {
        let mut tokens: Vec<(u32, &str)> =
            by_text.iter().filter(|&(_, &id)| wanted(id)).map(|(text, &id)| (id, &**text)).collect();
        if tokens.is_empty() {
            return Ok(None);
        }
        tokens.sort_unstable();
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(tokens.iter().map(|(_, text)| text))
            .map_err(TokenizerError::SpecialTokens)?;
        let max_len = tokens.iter().map(|(_, text)| text.len()).max().unwrap_or(0);
        Ok(Some(Matcher { automaton, ids: tokens.iter().map(|&(id, _)| id).collect(), max_len }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vocab::{Notation, VocabSpec};

    #[test]
    fn longest_match_and_kinds() {
        let spec = VocabSpec {
            tokens: ["a", "<x", "<x>", "<|c|>", "b", ""].map(String::from).to_vec(),
            token_types: vec![1, 4, 4, 3, 1, 3],
            ..VocabSpec::default()
        };
        let vocab = Vocab::new(&spec, Notation::ByteAlphabet).unwrap();
        let special = SpecialTokens::new(&vocab).unwrap();
        let all = |text, control| special.fragments(text, control).collect::<Vec<_>>();
        use Fragment::{Text, Token};
        assert_eq!(all("a<x>b<xa", false), [Text("a"), Token(2), Text("b"), Token(1), Text("a")]);
        assert_eq!(all("<|c|><|c|>", true), [Token(3), Token(3)]);
        assert_eq!(all("<|c|>", false), [Text("<|c|>")]);
        assert_eq!(all("", true), []);
        assert_eq!(special.get("<|c|>"), Some(3));
        assert_eq!(special.get("a"), None);
    }
}
