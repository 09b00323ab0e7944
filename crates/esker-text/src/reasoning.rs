//! Splitting what a model writes into its reasoning and its answer, while the text arrives.
//!
//! A block of reasoning stands before the answer, between two tags that the model was trained with. Tags later in the
//! text are text: an answer may talk about them. White space around the tags belongs to neither side.
//!
//! Not here: limiting the reasoning (the caller ends it by feeding [`ReasoningFormat::close`]).

use crate::tags::{Found, find};
use crate::tokenizer::Tokenizer;

/// The two tags around a model's reasoning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReasoningFormat {
    open: String,
    close: String,
}

/// Tags in use, the more specific ones first. Source: the models' published chat templates and tokenizers.
const KNOWN: &[(&str, &str)] = &[
    ("<seed:think>", "</seed:think>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("[THINK]", "[/THINK]"),
    ("◁think▷", "◁/think▷"),
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"),
];

/// Whether this is a tag of some model's reasoning.
pub(crate) fn is_tag(text: &str) -> bool {
    KNOWN.iter().any(|(open, close)| text == *open || text == *close)
}

impl ReasoningFormat {
    /// Reasoning between `open` and `close`. `None` if one is empty or both are the same.
    pub fn new(open: &str, close: &str) -> Option<ReasoningFormat> {
        (!open.is_empty() && !close.is_empty() && open != close)
            .then(|| ReasoningFormat { open: open.to_owned(), close: close.to_owned() })
    }

    /// The tags that the chat template names (at least the closing one); without a template, or one that names none,
    /// the pair that the vocabulary has as two special tokens.
    pub fn detect(template: Option<&str>, tokenizer: &Tokenizer) -> Option<ReasoningFormat> {
        let named = |tag: &str| template.is_some_and(|t| t.contains(tag));
        let special = |tag: &str| tokenizer.special_token(tag).is_some();
        let found = KNOWN
            .iter()
            .find(|(_, close)| named(close))
            .or_else(|| KNOWN.iter().find(|(open, close)| special(open) && special(close)));
        found.and_then(|(open, close)| ReasoningFormat::new(open, close))
    }

    /// Opening tag.
    pub fn open(&self) -> &str {
        &self.open
    }

    /// Closing tag: what ends the reasoning when it is fed to the model.
    pub fn close(&self) -> &str {
        &self.close
    }

    /// The tokens that the splitter must see although they may be control tokens: decode with
    /// [`StreamDecoder::keeping`](crate::StreamDecoder::keeping).
    pub fn markers(&self) -> [&str; 2] {
        [&self.open, &self.close]
    }

    /// Whether a rendered prompt ends inside a block of reasoning: the template has opened it for the model.
    pub fn starts_inside(&self, prompt: &str) -> bool {
        prompt.trim_end().ends_with(&self.open)
    }
}

/// A stretch of a model's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Inside the reasoning tags, without them.
    Reasoning(String),
    /// The rest.
    Answer(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing but white space so far: the opening tag may come.
    Before,
    /// The same, after a block of reasoning: the white space goes.
    Between,
    /// Inside, where nothing but white space and a repeated opening tag have come.
    Opened,
    Inside,
    /// In the answer for good.
    After,
}

/// Splits text as it comes; see the module. The pieces joined, with the tags and the white space around them, are the
/// text.
#[derive(Clone, Debug)]
pub struct ReasoningSplitter {
    format: Option<ReasoningFormat>,
    state: State,
    /// White space before a tag that may come, or the beginning of a tag.
    pending: String,
}

impl ReasoningSplitter {
    /// Without a format everything is answer. `starts_inside`: the prompt ends behind the opening tag.
    pub fn new(format: Option<ReasoningFormat>, starts_inside: bool) -> ReasoningSplitter {
        let state = match (&format, starts_inside) {
            (None, _) => State::After,
            (Some(_), true) => State::Opened,
            (Some(_), false) => State::Before,
        };
        ReasoningSplitter { format, state, pending: String::new() }
    }

    /// Whether the text so far ends inside reasoning.
    pub fn is_inside(&self) -> bool {
        matches!(self.state, State::Opened | State::Inside)
    }

    /// Takes text; returns what is certain now.
    pub fn push(&mut self, text: &str) -> Vec<Piece> {
        self.advance(text, false)
    }

    /// Ends the text; returns the rest. Reasoning that was not closed stays reasoning.
    pub fn finish(&mut self) -> Vec<Piece> {
        self.advance("", true)
    }

    fn advance(&mut self, text: &str, last: bool) -> Vec<Piece> {
        let mut out = Vec::new();
        let Some(format) = &self.format else {
            push_piece(&mut out, Piece::Answer, text);
            return out;
        };
        self.pending.push_str(text);
        let mut rest = &*self.pending;
        loop {
            let trimmed = rest.trim_start();
            // White space alone, or the beginning of the opening tag.
            let may_open = !last && format.open.starts_with(trimmed);
            match self.state {
                State::Before | State::Between if may_open => break,
                State::Before | State::Between => {
                    if let Some(after) = trimmed.strip_prefix(&*format.open) {
                        rest = after;
                        self.state = State::Opened;
                    } else {
                        rest = if self.state == State::Between { trimmed } else { rest };
                        self.state = State::After;
                    }
                }
                State::Opened if may_open => break,
                State::Opened => match trimmed.strip_prefix(&*format.open) {
                    // The prompt has opened the block, and the model does so again.
                    Some(after) => rest = after,
                    None => {
                        rest = trimmed;
                        self.state = State::Inside;
                    }
                },
                State::Inside => match find(rest, &[&format.close], last) {
                    Found::At { start, .. } => {
                        push_piece(&mut out, Piece::Reasoning, rest[..start].trim_end());
                        rest = &rest[start + format.close.len()..];
                        self.state = State::Between;
                    }
                    Found::Not { safe } => {
                        let end = rest[..safe].trim_end().len();
                        push_piece(&mut out, Piece::Reasoning, &rest[..end]);
                        rest = if last { "" } else { &rest[end..] };
                        break;
                    }
                },
                State::After => {
                    push_piece(&mut out, Piece::Answer, rest);
                    rest = "";
                    break;
                }
            }
        }
        let done = self.pending.len() - rest.len();
        self.pending.drain(..done);
        out
    }
}

fn push_piece(out: &mut Vec<Piece>, kind: fn(String) -> Piece, text: &str) {
    if !text.is_empty() {
        out.push(kind(text.to_owned()));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn think() -> Option<ReasoningFormat> {
        ReasoningFormat::new("<think>", "</think>")
    }

    /// (reasoning, answer), joined.
    fn split<'a>(starts_inside: bool, pieces: impl IntoIterator<Item = &'a str>) -> (String, String) {
        let mut splitter = ReasoningSplitter::new(think(), starts_inside);
        let mut found: Vec<Piece> = pieces.into_iter().flat_map(|piece| splitter.push(piece)).collect();
        found.extend(splitter.finish());
        let mut joined = (String::new(), String::new());
        for piece in found {
            match piece {
                Piece::Reasoning(text) => joined.0 += &text,
                Piece::Answer(text) => joined.1 += &text,
            }
        }
        joined
    }

    #[test]
    fn tags_and_white_space_go() {
        let check = |inside, text: &str, reasoning: &str, answer: &str| {
            assert_eq!(split(inside, [text]), (reasoning.to_owned(), answer.to_owned()), "{text:?}");
        };
        check(false, "<think>\nHm, a <b> c.\n</think>\n\nHello\n", "Hm, a <b> c.", "Hello\n");
        check(true, "\nHm.\n</think>\n\nHello", "Hm.", "Hello");
        check(true, "<think>\nHm.</think>Hello", "Hm.", "Hello");
        check(true, "cut off\n", "cut off", "");
        check(true, "cut off </thi", "cut off </thi", "");
        check(false, "\n <think></think>\n", "", "");
        check(false, "<think>a</think>\n<think>b</think>c", "ab", "c");
        check(false, "  Hello <think>no</think>", "", "  Hello <think>no</think>");
        check(false, "</think>Hello", "", "</think>Hello");
        check(false, " \n", "", " \n");
        check(false, "<thin", "", "<thin");
        check(true, "a\n\nb  \n</think>x", "a\n\nb", "x");
    }

    #[test]
    fn without_a_format_all_is_answer() {
        let mut splitter = ReasoningSplitter::new(None, true);
        assert_eq!(splitter.push("<think>a"), [Piece::Answer("<think>a".to_owned())]);
        assert!(!splitter.is_inside());
        assert_eq!(splitter.finish(), []);
    }

    #[test]
    fn text_comes_as_soon_as_it_is_certain() {
        let mut splitter = ReasoningSplitter::new(think(), false);
        let reasoning = |text: &str| Piece::Reasoning(text.to_owned());
        assert_eq!(splitter.push("<thi"), []);
        assert_eq!(splitter.push("nk>\nOne "), [reasoning("One")]);
        assert!(splitter.is_inside());
        assert_eq!(splitter.push("two<"), [reasoning(" two")]);
        assert_eq!(splitter.push("three"), [reasoning("<three")]);
        assert_eq!(splitter.push("\n</think>"), []);
        assert!(!splitter.is_inside());
        assert_eq!(splitter.push("\n\nA"), [Piece::Answer("A".to_owned())]);
        assert_eq!(splitter.push(" b"), [Piece::Answer(" b".to_owned())]);
        assert_eq!(splitter.finish(), []);
    }

    #[test]
    fn a_prompt_can_open_the_reasoning() {
        let format = think().unwrap();
        assert!(format.starts_inside("<|im_start|>assistant\n<think>\n"));
        assert!(!format.starts_inside("<|im_start|>assistant\n<think>\n\n</think>\n\n"));
        assert!(!format.starts_inside("What does <think> mean?<|im_end|>\n<|im_start|>assistant\n"));
        assert_eq!(ReasoningFormat::new("", "x"), None);
        assert_eq!(ReasoningFormat::new("x", "x"), None);
    }

    proptest! {
        #[test]
        fn pieces_do_not_matter(
            parts in prop::collection::vec(
                prop_oneof!["(<think>|</think>|<|th|ink>|/| |\n|a|é)", "\\PC{0,3}"], 0..12),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
            inside: bool,
        ) {
            let text = parts.concat();
            let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len() + 1)).collect();
            at.retain(|&at| text.is_char_boundary(at));
            at.extend([0, text.len()]);
            at.sort_unstable();
            let pieces = at.windows(2).map(|w| &text[w[0]..w[1]]);
            let (reasoning, answer) = split(inside, pieces);
            prop_assert_eq!(&split(inside, [&*text]), &(reasoning.clone(), answer.clone()));
            // Nothing is lost but tags and white space.
            let bare = |text: &str| {
                text.replace("<think>", "").replace("</think>", "").replace(char::is_whitespace, "")
            };
            if !text.contains("<think") && !text.contains("</think") {
                prop_assert_eq!(bare(&(reasoning + &answer)), bare(&text));
            }
        }
    }
}
