//! Tool calls in what a model writes: which notation its family uses, and reading it while the text arrives.
//!
//! A call comes as a start with the tool's name, its arguments as JSON text in pieces, and an end. What looks like a
//! call but does not turn out to be one is text, as the model wrote it.
//!
//! Not here: how calls and results are written into a prompt (the chat template), which tools there are, and running
//! them. Start at [`ToolFormat::detect`] and [`ToolParser`].

mod events;
mod format;
mod json;
mod named;
mod object;
mod objects;
mod parser;
mod reader;
#[cfg(test)]
mod tests;
mod types;
mod xml;

pub use format::ToolFormat;
pub use parser::{ToolEvent, ToolParser};
pub(crate) use types::ArgumentTypes;

/// A tool that a request offers to the model.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolSpec {
    /// Name, as in the prompt.
    pub name: String,
    /// JSON schema of the arguments: an object. `null` if the tool takes none, or anything.
    pub parameters: serde_json::Value,
    /// The arguments must follow the schema: constrain the model to it.
    pub strict: bool,
}

/// Whether the model must call a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolChoice {
    /// It decides itself; only the arguments of strict tools are constrained.
    Auto,
    /// It calls at least one.
    Required,
    /// It calls this one.
    Named(String),
}
