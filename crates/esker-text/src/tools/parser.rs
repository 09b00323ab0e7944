//! Reading calls from text that arrives in pieces.

use super::{ToolFormat, ToolSpec};

/// What a piece of a model's text means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolEvent {
    /// Text for the user.
    Text(String),
    /// A call begins; calls are numbered from 0 and do not overlap.
    CallStart {
        /// Number of the call in this answer.
        index: usize,
        /// The call's id where the model wrote one.
        id: Option<String>,
        /// Name of the tool, as the model wrote it: it need not be one of those offered.
        name: String,
    },
    /// The arguments go on. All deltas of a call together are JSON text, an object unless the model erred.
    Arguments {
        /// Number of the call.
        index: usize,
        /// More of the JSON text.
        delta: String,
    },
    /// The call is complete.
    CallEnd {
        /// Number of the call.
        index: usize,
    },
}

/// Reads one answer. The reasoning must have been split off before.
#[derive(Clone, Debug)]
pub struct ToolParser {
    format: ToolFormat,
    tools: Vec<ToolSpec>,
    pending: String,
}

impl ToolParser {
    /// For an answer to a request that offers `tools`.
    pub fn new(format: ToolFormat, tools: &[ToolSpec]) -> ToolParser {
        ToolParser { format, tools: tools.to_vec(), pending: String::new() }
    }

    /// Takes text; returns what is certain now.
    pub fn push(&mut self, text: &str) -> Vec<ToolEvent> {
        let _ = (&self.format, &self.tools);
        self.pending.push_str(text);
        match std::mem::take(&mut self.pending) {
            text if text.is_empty() => Vec::new(),
            text => vec![ToolEvent::Text(text)],
        }
    }

    /// Ends the text; returns the rest.
    pub fn finish(&mut self) -> Vec<ToolEvent> {
        self.push("")
    }
}
