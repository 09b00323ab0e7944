//! Where turns come from: an editor on a terminal, or lines of a pipe.

use super::command;
use super::message;
use crate::directories;
use crate::failure::Failure;
use rustyline::completion::Completer;
use rustyline::config::Configurer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Cmd, Context, Editor, EventHandler, Helper, KeyCode, KeyEvent, Modifiers};
use std::fs;
use std::io::{self, BufRead, IsTerminal};
use std::path::PathBuf;

/// Lines of history that are kept.
const HISTORY_MAX: usize = 1000;
/// Longest turn from a pipe, in bytes.
const TURN_BYTES_MAX: u64 = 16 << 20;

/// Source of turns.
pub enum Input {
    Terminal(Box<Terminal>),
    Pipe,
}

/// What came.
pub enum Turn {
    /// Text of a user, as typed.
    Text(String),
    /// Ctrl-C.
    Interrupted,
    /// Ctrl-D, or the end of the pipe.
    End,
}

impl Input {
    /// From a terminal if both ends are one: an editor without its screen, or with its output in a file, is
    /// of no use.
    pub fn new(history: bool) -> Result<Input, Failure> {
        if io::stdin().is_terminal() && io::stdout().is_terminal() {
            Terminal::new(history).map(|terminal| Input::Terminal(Box::new(terminal)))
        } else {
            Ok(Input::Pipe)
        }
    }

    pub fn is_terminal(&self) -> bool {
        matches!(self, Input::Terminal(_))
    }

    /// Waits for the next turn.
    pub fn next(&mut self) -> Result<Turn, Failure> {
        match self {
            Input::Terminal(terminal) => terminal.next(),
            Input::Pipe => next_of_pipe(&mut io::stdin().lock()),
        }
    }
}

/// Lines until the text is complete.
fn next_of_pipe(from: &mut impl BufRead) -> Result<Turn, Failure> {
    let failed = |e: io::Error| Failure::new("cannot read standard input").cause(&e);
    let mut bytes = Vec::new();
    loop {
        let room = TURN_BYTES_MAX - bytes.len() as u64;
        let n = io::Read::take(&mut *from, room).read_until(b'\n', &mut bytes).map_err(failed)?;
        if n == 0 && bytes.len() as u64 == TURN_BYTES_MAX {
            return Err(Failure::new(format_args!("a turn is longer than {} MiB", TURN_BYTES_MAX >> 20)));
        }
        let text = String::from_utf8_lossy(&bytes);
        let text = text.strip_suffix('\n').unwrap_or(&text);
        let text = text.strip_suffix('\r').unwrap_or(text);
        match n {
            0 if bytes.is_empty() => return Ok(Turn::End),
            0 => return Ok(Turn::Text(text.to_owned())),
            _ if bytes.ends_with(b"\n") && message::is_complete(text) => {
                return Ok(Turn::Text(text.to_owned()));
            }
            _ => {}
        }
    }
}

/// A line editor with history.
pub struct Terminal {
    editor: Editor<Assistance, FileHistory>,
    history: Option<PathBuf>,
}

impl Terminal {
    fn new(history: bool) -> Result<Terminal, Failure> {
        let failed = |e: ReadlineError| Failure::new("cannot use the terminal").cause(&e);
        let mut editor = Editor::<Assistance, FileHistory>::new().map_err(failed)?;
        editor.set_max_history_size(HISTORY_MAX).map_err(failed)?;
        editor.set_helper(Some(Assistance));
        editor.bind_sequence(KeyEvent(KeyCode::Enter, Modifiers::ALT), EventHandler::Simple(Cmd::Newline));
        let history = if history { directories::state().map(|d| d.join("chat-history")) } else { None };
        if let Some(path) = &history {
            // It is not there the first time, and a chat without history is better than none.
            let _ = editor.load_history(path);
        }
        Ok(Terminal { editor, history })
    }

    fn next(&mut self) -> Result<Turn, Failure> {
        match self.editor.readline("> ") {
            Ok(text) => {
                if !text.trim().is_empty() && self.editor.add_history_entry(&text).unwrap_or(false) {
                    self.save_history();
                }
                Ok(Turn::Text(text))
            }
            Err(ReadlineError::Interrupted) => Ok(Turn::Interrupted),
            Err(ReadlineError::Eof) => Ok(Turn::End),
            Err(error) => Err(Failure::new("cannot read from the terminal").cause(&error)),
        }
    }

    /// After each line, so that a killed chat keeps it. Other chats may write the same file.
    fn save_history(&mut self) {
        if let Some(path) = &self.history {
            let made = path.parent().map_or(Ok(()), fs::create_dir_all);
            let _ = made.is_ok() && self.editor.append_history(path).is_ok();
        }
    }
}

/// What the editor asks while a text is typed: whether it is complete, and which commands there are.
struct Assistance;

impl Helper for Assistance {}
impl Highlighter for Assistance {}
impl Hinter for Assistance {
    type Hint = String;
}

impl Validator for Assistance {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        let complete = message::is_complete(context.input());
        Ok(if complete { ValidationResult::Valid(None) } else { ValidationResult::Incomplete })
    }
}

impl Completer for Assistance {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        position: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        Ok((0, command::completions(line.get(..position).unwrap_or_default())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turns(text: &str) -> Vec<String> {
        let mut from = text.as_bytes();
        let mut turns = Vec::new();
        while let Turn::Text(turn) = next_of_pipe(&mut from).expect("readable") {
            turns.push(turn);
        }
        turns
    }

    #[test]
    fn each_line_of_a_pipe_is_a_turn() {
        assert_eq!(turns("a\r\nb\n\nc"), ["a", "b", "", "c"]);
        assert_eq!(turns("a\\\nb\nc\n"), ["a\\\nb", "c"]);
        assert_eq!(turns("\"\"\"a\nb\"\"\"\nc\n"), ["\"\"\"a\nb\"\"\"", "c"]);
        assert_eq!(turns("\"\"\"a\nb\n"), ["\"\"\"a\nb"]);
        assert_eq!(turns(""), [""; 0]);
    }
}
