//! Arguments of `esker chat`.

use super::{EngineArgs, GenerationArgs, TemplateArgs};
use clap::Args;
use std::path::PathBuf;

/// Talk with a model
///
/// A conversation line by line, by the chat template of the model. Standard input can be a terminal, with
/// editing and history, or a pipe, whose lines are one turn each.
#[derive(Args, Debug)]
#[command(after_long_help = AFTER_HELP)]
pub struct ChatArgs {
    /// GGUF file; a small demo model if left out
    pub model: Option<PathBuf>,
    /// Go on with a conversation that `/save` wrote
    #[arg(long, value_name = "FILE")]
    pub load: Option<PathBuf>,
    /// Neither read nor write the history of input lines
    #[arg(long)]
    pub no_history: bool,
    /// Show at the end what was counted, as `/stats` does at any time
    #[arg(long)]
    pub stats: bool,
    #[command(flatten)]
    pub template: TemplateArgs,
    #[command(flatten)]
    pub generation: GenerationArgs,
    #[command(flatten)]
    pub engine: EngineArgs,
}

const AFTER_HELP: &str = "\
Input:
  Enter sends the message. Alt-Enter begins a new line, and so does Enter
  after a backslash; a text that begins with \"\"\" goes on until \"\"\".
  Ctrl-C ends an answer, not the conversation; Ctrl-D leaves. Lines that
  begin with `/` are commands: /help lists them. `//` sends a text that
  begins with `/`.

Examples:
  esker chat
  esker chat model.gguf --system 'Answer in French.' --temp 0.3
  printf '%s\\n' 'I am Ada.' 'Who am I?' | esker chat model.gguf --greedy";
