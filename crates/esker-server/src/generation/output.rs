//! From tokens to events: characters, reasoning and answer, stop strings, tool calls, likelihoods.
//!
//! Runs in the thread that owns the engine, since what a token means decides how the sequence goes on.

use super::event::{Event, TokenLogprob};
use super::request::random_seed;
use esker_engine::StopScanner;
use esker_text::reasoning::{Piece, ReasoningFormat, ReasoningSplitter};
use esker_text::tools::{ToolEvent, ToolFormat, ToolParser, ToolSpec};
use esker_text::{Tokenizer, Utf8Stream};
use std::collections::HashSet;
use std::sync::Arc;

/// How the text of a sequence is to be read.
#[derive(Clone, Debug)]
pub(crate) struct OutputSpec {
    /// Tags of reasoning; `None`: everything is answer.
    pub reasoning: Option<ReasoningFormat>,
    /// The prompt ends inside reasoning.
    pub starts_inside: bool,
    /// Notation of tool calls, and the tools that there are.
    pub tools: Option<(ToolFormat, Vec<ToolSpec>)>,
    /// The prompt describes tools, but none may be called: the answer ends where a call would begin.
    pub no_calls: bool,
    pub stop: Vec<String>,
    /// End after the first tool call.
    pub single_call: bool,
    /// Control tokens that are part of these notations: they count as text.
    pub shown: Arc<HashSet<u32>>,
}

/// Reads the text of one sequence.
pub(crate) struct Output {
    utf8: Utf8Stream,
    splitter: ReasoningSplitter,
    scanner: StopScanner,
    /// Text given to the scanner that it has not given back.
    held: String,
    parser: Option<ToolParser>,
    spec: OutputSpec,
    /// Bytes of answer text given to the scanner.
    answered: usize,
    /// Bytes of answer text before which everything has been given out, or was a call.
    given: usize,
    /// Tokens whose text has not come out yet, with where it begins in the answer.
    pending: Vec<(usize, TokenLogprob)>,
    calls: usize,
    in_call: bool,
}

/// How a sequence goes on after a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// It does.
    More,
    /// This stop string was met.
    Stop(String),
    /// The one call that was wanted is complete.
    CallDone,
    /// A call begins that is not allowed.
    CallRefused,
}

impl Output {
    pub fn new(spec: OutputSpec) -> Output {
        Output {
            utf8: Utf8Stream::default(),
            splitter: ReasoningSplitter::new(spec.reasoning.clone(), spec.starts_inside),
            scanner: StopScanner::new(&spec.stop),
            held: String::new(),
            parser: spec.tools.as_ref().map(|(format, tools)| ToolParser::new(*format, tools)),
            spec,
            answered: 0,
            given: 0,
            pending: Vec::new(),
            calls: 0,
            in_call: false,
        }
    }

    /// Whether the text so far ends inside reasoning.
    pub fn in_reasoning(&self) -> bool {
        self.splitter.is_inside()
    }

    /// Tool calls that have begun.
    pub fn calls(&self) -> usize {
        self.calls
    }

    /// Takes a token, and its likelihood if that is wanted.
    pub fn push(
        &mut self,
        tokenizer: &Tokenizer,
        token: u32,
        logprob: Option<TokenLogprob>,
        emit: &mut dyn FnMut(Event),
    ) -> Next {
        let was_inside = self.in_reasoning();
        let shown = !tokenizer.is_control(token) || self.spec.shown.contains(&token);
        let bytes = if shown { tokenizer.token_bytes(token).unwrap_or_default() } else { &[] };
        let text = self.utf8.push(bytes);
        let start = self.answered;
        let pieces = self.splitter.push(&text);
        match (was_inside, self.in_reasoning()) {
            (false, false) => self.pending.extend(logprob.map(|l| (start, l))),
            // What came before reasoning was only its tag.
            (_, true) => self.pending.clear(),
            (true, false) => {}
        }
        self.pieces(pieces, emit)
    }

    /// Ends the text. Not for text that was cut.
    pub fn finish(&mut self, emit: &mut dyn FnMut(Event)) {
        let text = self.utf8.finish();
        let mut pieces = self.splitter.push(&text);
        pieces.extend(self.splitter.finish());
        if self.pieces(pieces, emit) != Next::More {
            return;
        }
        let rest = self.scanner.finish();
        self.held.clear();
        self.answer(rest, emit);
        let events = self.parser.as_mut().map(ToolParser::finish).unwrap_or_default();
        self.tool_events(events, emit);
        // What is left after a call is its notation.
        if !self.pending.is_empty() && self.calls == 0 {
            let logprobs = self.pending.drain(..).map(|(_, l)| l).collect();
            emit(Event::Text { text: String::new(), logprobs });
        }
    }

    /// Takes text that was put into the model's mouth.
    pub fn push_text(&mut self, text: &str, emit: &mut dyn FnMut(Event)) {
        let mut all = self.utf8.finish();
        all.push_str(text);
        let pieces = self.splitter.push(&all);
        self.pieces(pieces, emit);
    }

    /// Ends the text where it was cut, at a stop string or after a call: what the parser holds is still part of the
    /// answer.
    pub fn finish_cut(&mut self, emit: &mut dyn FnMut(Event)) {
        let events = self.parser.as_mut().map(ToolParser::finish).unwrap_or_default();
        self.tool_events(events, emit);
    }

    fn pieces(&mut self, pieces: Vec<Piece>, emit: &mut dyn FnMut(Event)) -> Next {
        for piece in pieces {
            match piece {
                Piece::Reasoning(text) => emit(Event::Reasoning(text)),
                Piece::Answer(text) => {
                    self.answered += text.len();
                    self.held.push_str(&text);
                    let (shown, met) = self.scanner.push(&text);
                    let rest = self.held.split_off(shown.len());
                    self.held = rest;
                    let next = self.answer(shown, emit);
                    if met {
                        return Next::Stop(self.met());
                    }
                    if next != Next::More {
                        return next;
                    }
                }
            }
        }
        Next::More
    }

    /// The stop string that the held text begins with.
    fn met(&self) -> String {
        let begins = |stop: &&String| !stop.is_empty() && self.held.starts_with(stop.as_str());
        self.spec.stop.iter().find(begins).cloned().unwrap_or_default()
    }

    /// Gives answer text out.
    fn answer(&mut self, text: String, emit: &mut dyn FnMut(Event)) -> Next {
        match &mut self.parser {
            Some(parser) => {
                let events = parser.push(&text);
                self.tool_events(events, emit)
            }
            None => {
                self.text(text, emit);
                Next::More
            }
        }
    }

    fn text(&mut self, text: String, emit: &mut dyn FnMut(Event)) {
        if text.is_empty() {
            return;
        }
        self.given += text.len();
        let n = self.pending.iter().take_while(|(start, _)| *start < self.given).count();
        let logprobs = self.pending.drain(..n).map(|(_, l)| l).collect();
        emit(Event::Text { text, logprobs });
    }

    fn tool_events(&mut self, events: Vec<ToolEvent>, emit: &mut dyn FnMut(Event)) -> Next {
        for event in events {
            match event {
                ToolEvent::Text(text) if self.calls > 0 && text.trim().is_empty() => {}
                ToolEvent::Text(text) => self.text(text, emit),
                ToolEvent::CallStart { .. } if self.spec.no_calls => {
                    self.parser = None;
                    self.pending.clear();
                    return Next::CallRefused;
                }
                ToolEvent::CallStart { index, id, name } => {
                    self.calls += 1;
                    self.in_call = true;
                    self.pending.clear();
                    emit(Event::CallStart { index, id: id.unwrap_or_else(call_id), name });
                }
                ToolEvent::Arguments { index, delta } => emit(Event::CallArguments { index, delta }),
                ToolEvent::CallEnd { complete, .. } => {
                    self.in_call = false;
                    self.given = self.answered;
                    self.pending.clear();
                    emit(Event::CallEnd { complete });
                    if self.spec.single_call {
                        return Next::CallDone;
                    }
                }
            }
        }
        if self.in_call {
            self.pending.clear();
        }
        Next::More
    }
}

/// An id that no other call has.
fn call_id() -> String {
    format!("call_{:08x}{:08x}{:08x}", random_seed(), random_seed(), random_seed())
}

#[cfg(test)]
mod tests {
    use super::*;
    use esker_text::EncodeOptions;
    use std::sync::LazyLock;

    static TOKENIZER: LazyLock<Tokenizer> = LazyLock::new(|| {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/esker-moe-64m-small.gguf");
        let gguf = esker_gguf::Gguf::open(path.as_ref()).expect("the shipped model opens");
        esker_engine::tokenizer(&gguf).expect("it has a vocabulary")
    });

    fn spec(stop: &[&str], tools: bool, single_call: bool) -> OutputSpec {
        let shown = ["<think>", "</think>", "<tool_call>", "</tool_call>"];
        let tool = ToolSpec { name: "f".to_owned(), parameters: serde_json::Value::Null, strict: false };
        OutputSpec {
            reasoning: ReasoningFormat::new("<think>", "</think>"),
            starts_inside: false,
            tools: tools.then(|| (ToolFormat::HermesJson, vec![tool])),
            no_calls: false,
            stop: stop.iter().map(|s| s.to_string()).collect(),
            single_call,
            shown: Arc::new(shown.iter().filter_map(|t| TOKENIZER.special_token(t)).collect()),
        }
    }

    /// What a text becomes: reasoning, answer, the texts of the tokens reported with it, calls, the end.
    fn read(spec: OutputSpec, text: &str) -> (String, String, Vec<String>, Vec<(String, String)>, Next) {
        let options = EncodeOptions { special: true, add_bos_eos: false };
        let tokens = TOKENIZER.encode(text, options).expect("text can be encoded");
        let mut output = Output::new(spec);
        let (mut reasoning, mut answer, mut reported) = (String::new(), String::new(), Vec::new());
        let mut calls: Vec<(String, String)> = Vec::new();
        let mut take = |event| match event {
            Event::Reasoning(text) => reasoning.push_str(&text),
            Event::Text { text, logprobs } => {
                answer.push_str(&text);
                reported.extend(logprobs.into_iter().map(|l| String::from_utf8_lossy(&l.bytes).into_owned()));
            }
            Event::CallStart { name, .. } => calls.push((name, String::new())),
            Event::CallArguments { index, delta } => calls[index].1.push_str(&delta),
            _ => {}
        };
        let mut next = Next::More;
        for id in tokens {
            let bytes = TOKENIZER.token_bytes(id).unwrap_or_default().to_vec();
            let logprob = TokenLogprob { id, bytes, logprob: -1.0, top: Vec::new() };
            next = output.push(&TOKENIZER, id, Some(logprob), &mut take);
            if next != Next::More {
                break;
            }
        }
        match next {
            Next::More => output.finish(&mut take),
            _ => output.finish_cut(&mut take),
        }
        (reasoning, answer, reported, calls, next)
    }

    #[test]
    fn every_token_of_an_answer_is_reported_once() {
        let text = "The sky is blue, mostly. 青い空 💣";
        let (reasoning, answer, reported, calls, next) = read(spec(&[], false, false), text);
        assert_eq!((reasoning.as_str(), answer.as_str(), calls.len(), next), ("", text, 0, Next::More));
        let n = TOKENIZER.encode(text, EncodeOptions::default()).expect("encoded").len();
        assert_eq!(reported.len(), n, "{reported:?}");
    }

    #[test]
    fn tokens_behind_a_stop_string_are_not_reported() {
        let (_, answer, reported, _, next) =
            read(spec(&["never", "lue, mo"], false, false), "The sky is blue, mostly.");
        assert_eq!((answer.as_str(), next), ("The sky is b", Next::Stop("lue, mo".to_owned())));
        let joined = reported.concat();
        // The last one may reach into the stop string, and none begins in it.
        assert!(
            joined.starts_with("The sky is b") && joined.len() < "The sky is blue, mo".len(),
            "{reported:?}"
        );
    }

    #[test]
    fn reasoning_is_not_reported_and_not_searched_for_stops() {
        let text = "<think>\nIs it blue?\n</think>\n\nIt is blue.";
        let (reasoning, answer, reported, _, next) = read(spec(&["Is it"], false, false), text);
        assert_eq!((reasoning.as_str(), answer.as_str(), next), ("Is it blue?", "It is blue.", Next::More));
        assert!(!reported.concat().contains("think"), "{reported:?}");
        assert!(reported.concat().ends_with("It is blue."), "{reported:?}");
    }

    #[test]
    fn calls_are_told_from_text() {
        let text = "I look.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>\n\
                    <tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 2}}\n</tool_call>";
        let (_, answer, reported, calls, next) = read(spec(&[], true, false), text);
        assert_eq!((answer.trim(), next), ("I look.", Next::More));
        let arguments: Vec<&str> = calls.iter().map(|(_, arguments)| arguments.as_str()).collect();
        assert_eq!(arguments, ["{\"a\": 1}", "{\"a\": 2}"]);
        assert!(!reported.concat().contains("tool_call"), "{reported:?}");
        let (_, _, _, calls, next) = read(spec(&[], true, true), text);
        assert_eq!((calls.len(), next), (1, Next::CallDone));
        // Where none is allowed the answer ends before it.
        let refusing = OutputSpec { no_calls: true, ..spec(&[], true, false) };
        let (_, answer, reported, calls, next) = read(refusing, text);
        assert_eq!((answer.trim(), calls.len(), next), ("I look.", 0, Next::CallRefused));
        assert!(!reported.concat().contains("tool_call"), "{reported:?}");
        // Without tools it is text.
        let (_, answer, _, calls, _) = read(spec(&[], false, false), text);
        assert!(answer.contains("\"arguments\"") && calls.is_empty());
    }
}
