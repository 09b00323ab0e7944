//! Cutting text into the pieces that BPE works on, by one or more patterns.
//!
//! Published split patterns end in `\s+(?!\S)|\s+`: of a run of white space before a word, the last character is left
//! for the word. That look-ahead is the only one they need, so it is done by hand here and the rest runs on a
//! finite automaton, in time linear in the text. Each stage cuts the pieces of the stage before, and a look-ahead
//! does not see past the end of its piece.

use regex_automata::Input;
use regex_automata::meta::Regex;

use crate::error::TokenizerError;

/// One cut, as data.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cut {
    /// Alternatives that go before `\s+(?!\S)|\s+`, which is implied. Text that nothing matches is a piece, too.
    Words(&'static str),
    /// Every match is a piece, and so is what lies between.
    Matches(&'static str),
    /// Runs of digits, cut into threes from the right: `\d{1,3}(?=(?:\d{3})*\b)`. A run that a letter follows stays
    /// whole, as it does there. (Joiners are no letters, unlike in the regex crate's `\w`.)
    Thousands,
}

/// Cuts, compiled.
#[derive(Debug)]
pub(crate) struct Splitter {
    stages: Vec<Stage>,
}

#[derive(Debug)]
enum Stage {
    Words(Regex),
    Matches(Regex),
    Thousands { digits: Regex, word: Regex },
}

/// Index of `\s+` in the pattern list of [`Stage::Words`]; earlier patterns win.
const BLANK_RUN: usize = 1;

impl Splitter {
    pub(crate) fn new(cuts: &[Cut]) -> Result<Splitter, TokenizerError> {
        let stages = cuts.iter().map(|cut| {
            Ok(match *cut {
                Cut::Words(pattern) => Stage::Words(compile(&[pattern, r"\s+"])?),
                Cut::Matches(pattern) => Stage::Matches(compile(&[pattern])?),
                Cut::Thousands => Stage::Thousands {
                    digits: compile(&[r"\d+"])?,
                    word: compile(&[r"\A[\w--[\u{200c}\u{200d}]]"])?,
                },
            })
        });
        Ok(Splitter { stages: stages.collect::<Result<_, TokenizerError>>()? })
    }

    /// Calls `piece` with the pieces of `text`, in order; together they are `text`, and none is empty.
    pub(crate) fn split<'t, E>(
        &self,
        text: &'t str,
        piece: &mut dyn FnMut(&'t str) -> Result<(), E>,
    ) -> Result<(), E> {
        split_by(&self.stages, text, piece)
    }
}

fn compile(patterns: &[&'static str]) -> Result<Regex, TokenizerError> {
    Regex::new_many(patterns)
        .map_err(|e| TokenizerError::Pattern { pattern: patterns[0], source: Box::new(e) })
}

fn split_by<'t, E>(
    stages: &[Stage],
    text: &'t str,
    piece: &mut dyn FnMut(&'t str) -> Result<(), E>,
) -> Result<(), E> {
    let Some((stage, rest)) = stages.split_first() else {
        return if text.is_empty() { Ok(()) } else { piece(text) };
    };
    let mut emit = |part: &'t str| match rest {
        _ if part.is_empty() => Ok(()),
        [] => piece(part),
        _ => split_by(rest, part, piece),
    };
    let mut done = 0;
    let mut at = 0;
    while at < text.len() {
        let regex = match stage {
            Stage::Words(regex) | Stage::Matches(regex) => regex,
            Stage::Thousands { digits, .. } => digits,
        };
        let Some(found) = regex.search(&Input::new(text).range(at..)) else { break };
        let (start, mut end) = (found.start(), found.end());
        match stage {
            Stage::Words(_) if found.pattern().as_usize() == BLANK_RUN && end < text.len() => {
                // Leave the last blank to the word that follows, unless it is the only one.
                if let Some((last, _)) = text[start..end].char_indices().next_back().filter(|&(i, _)| i > 0) {
                    end = start + last;
                }
            }
            Stage::Thousands { word, .. } => {
                if !word.is_match(&text[end..]) {
                    emit(&text[done..start])?;
                    let mut left = text[start..end].chars().count();
                    let mut from = start;
                    for (i, _) in text[start..end].char_indices().skip(1) {
                        left -= 1;
                        if left.is_multiple_of(3) {
                            emit(&text[from..start + i])?;
                            from = start + i;
                        }
                    }
                    emit(&text[from..end])?;
                    done = end;
                }
                at = end;
                continue;
            }
            _ => {}
        }
        emit(&text[done..start])?;
        emit(&text[start..end])?;
        done = end;
        // No pattern here matches the empty string; should one, go on behind it.
        at = if end > start { end } else { end + text[end..].chars().next().map_or(1, char::len_utf8) };
    }
    emit(&text[done..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(cuts: &[Cut], text: &str, expect: &[&str]) {
        let splitter = Splitter::new(cuts).unwrap();
        let mut pieces = Vec::new();
        splitter
            .split(text, &mut |p| {
                pieces.push(p);
                Ok::<_, ()>(())
            })
            .unwrap();
        assert_eq!(pieces, expect, "{text:?}");
    }

    #[test]
    fn last_blank_goes_to_the_word() {
        const WORDS: &[Cut] = &[Cut::Words(r" ?\p{L}+| ?[^\s\p{L}]+")];
        check(WORDS, "a b", &["a", " b"]);
        check(WORDS, "a   b", &["a", "  ", " b"]);
        check(WORDS, "a \t b", &["a", " \t", " b"]);
        check(WORDS, "a\tb", &["a", "\t", "b"]);
        check(WORDS, "a\u{3000}\u{3000}b", &["a", "\u{3000}", "\u{3000}", "b"]);
        check(WORDS, "a  ", &["a", "  "]);
        check(WORDS, "  ", &["  "]);
        check(WORDS, "", &[]);
    }

    #[test]
    fn later_stages_cut_earlier_pieces() {
        check(&[Cut::Matches(r"\p{N}"), Cut::Words(r" ?\p{L}+")], "ab 12 c", &["ab", " ", "1", "2", " c"]);
    }

    #[test]
    fn digits_group_from_the_right() {
        check(&[Cut::Thousands], "x 1234567 y", &["x ", "1", "234", "567", " y"]);
        check(&[Cut::Thousands], "123", &["123"]);
        check(&[Cut::Thousands], "1234", &["1", "234"]);
        check(&[Cut::Thousands], "1234km 12", &["1234km ", "12"]);
        check(&[Cut::Thousands], "٣٤٥٦", &["٣", "٤٥٦"]);
    }
}
