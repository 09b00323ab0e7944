//! Standard output whose failures end the command, quietly if the reader has gone.

use super::printable;
use crate::failure::Failure;
use anstream::{AutoStream, ColorChoice};
use serde::Serialize;
use std::io::{self, IsTerminal, Write};

/// Standard output. Nothing else in this program writes there.
pub struct Stdout {
    stream: AutoStream<io::Stdout>,
    is_terminal: bool,
}

impl Stdout {
    pub(super) fn new(color: ColorChoice) -> Stdout {
        let stdout = io::stdout();
        Stdout { is_terminal: stdout.is_terminal(), stream: AutoStream::new(stdout, color) }
    }

    pub fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// Text of this program, which may have styles.
    pub fn print(&mut self, text: &str) -> Result<(), Failure> {
        self.stream.write_all(text.as_bytes()).and_then(|()| self.stream.flush()).map_err(Failure::stdout)
    }

    /// Text that comes from elsewhere: as it is, but a terminal is not given control sequences.
    pub fn text(&mut self, text: &str) -> Result<(), Failure> {
        if self.is_terminal { self.bytes(printable(text).as_bytes()) } else { self.bytes(text.as_bytes()) }
    }

    /// Bytes as they are.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let mut stdout = io::stdout().lock();
        stdout.write_all(bytes).and_then(|()| stdout.flush()).map_err(Failure::stdout)
    }

    /// One JSON value, on one line.
    pub fn json(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        let mut text = serde_json::to_vec(value).map_err(|e| Failure::stdout(e.into()))?;
        text.push(b'\n');
        self.bytes(&text)
    }
}
