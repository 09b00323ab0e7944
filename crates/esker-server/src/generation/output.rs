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
    /// Bytes of answer text given to the scanner, and got back.
    answered: usize,
    shown: usize,
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
            shown: 0,
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
        self.shown += rest.len();
        self.held.clear();
        self.answer(rest, emit);
        let events = self.parser.as_mut().map(ToolParser::finish).unwrap_or_default();
        self.tool_events(events, emit);
        if !self.pending.is_empty() {
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
                    self.shown += shown.len();
                    let rest = self.held.split_off(shown.len());
                    self.held = rest;
                    let done = self.answer(shown, emit);
                    if met {
                        return Next::Stop(self.met());
                    }
                    if done {
                        return Next::CallDone;
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

    /// Gives answer text out. True if the only call that is wanted is complete.
    fn answer(&mut self, text: String, emit: &mut dyn FnMut(Event)) -> bool {
        match &mut self.parser {
            Some(parser) => {
                let events = parser.push(&text);
                self.tool_events(events, emit)
            }
            None => {
                self.text(text, emit);
                false
            }
        }
    }

    fn text(&mut self, text: String, emit: &mut dyn FnMut(Event)) {
        if text.is_empty() {
            return;
        }
        let n = self.pending.iter().take_while(|(start, _)| *start < self.shown).count();
        let logprobs = self.pending.drain(..n).map(|(_, l)| l).collect();
        emit(Event::Text { text, logprobs });
    }

    fn tool_events(&mut self, events: Vec<ToolEvent>, emit: &mut dyn FnMut(Event)) -> bool {
        for event in events {
            match event {
                ToolEvent::Text(text) if self.calls > 0 && text.trim().is_empty() => {}
                ToolEvent::Text(text) => self.text(text, emit),
                ToolEvent::CallStart { index, id, name } => {
                    self.calls += 1;
                    self.in_call = true;
                    self.pending.clear();
                    emit(Event::CallStart { index, id: id.unwrap_or_else(call_id), name });
                }
                ToolEvent::Arguments { index, delta } => emit(Event::CallArguments { index, delta }),
                ToolEvent::CallEnd { .. } => {
                    self.in_call = false;
                    self.pending.clear();
                    emit(Event::CallEnd);
                    if self.spec.single_call {
                        return true;
                    }
                }
            }
        }
        if self.in_call {
            self.pending.clear();
        }
        false
    }
}

/// An id that no other call has.
fn call_id() -> String {
    format!("call_{:08x}{:08x}{:08x}", random_seed(), random_seed(), random_seed())
}
