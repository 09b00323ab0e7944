//! Arguments of `esker run`.

use super::{EngineArgs, GenerationArgs, TemplateArgs};
use clap::Args;
use std::path::PathBuf;

/// Complete a text
///
/// Continues the prompt as it stands. With `--chat`, or an option that concerns a conversation, the prompt is
/// one turn of a user and the model answers it. The text goes to standard output as it is generated and ends
/// with a newline; speed goes to standard error.
#[derive(Args, Debug)]
#[command(after_long_help = AFTER_HELP)]
pub struct RunArgs {
    /// GGUF file; a small demo model if left out
    pub model: Option<PathBuf>,
    /// Text to continue or to answer
    #[arg(short, long, value_name = "TEXT", conflicts_with = "file")]
    pub prompt: Option<String>,
    /// Read the prompt from FILE (`-`: standard input), without its last newline
    ///
    /// Without `--prompt` and `--file` the prompt is read from standard input, if that is not a terminal.
    #[arg(short, long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Answer the prompt as one turn of a conversation, by the chat template of the model
    #[arg(long)]
    pub chat: bool,
    /// Recognise control tokens such as `<|im_end|>` in the prompt
    ///
    /// In a conversation they are recognised always, since the template writes them.
    #[arg(long)]
    pub special: bool,
    /// Print one JSON object at the end, and nothing else, on standard output
    #[arg(long)]
    pub json: bool,
    /// Show at the end what was counted: lookups of experts, reads, waiting, memory; with `-v` by layer
    #[arg(long)]
    pub stats: bool,
    /// Show at the end where the time went: every operation, waiting for reads, sampling
    #[arg(long)]
    pub profile: bool,
    #[command(flatten)]
    pub template: TemplateArgs,
    #[command(flatten)]
    pub generation: GenerationArgs,
    #[command(flatten)]
    pub engine: EngineArgs,
}

const AFTER_HELP: &str = "\
Examples:
  Continue a text with the demo model, at most 100 tokens:
    esker run -p 'Once upon a time' -n 100
  Answer a question, the likeliest token always:
    esker run model.gguf --chat --greedy -p 'What is an esker?'
  Summarise a file:
    esker run model.gguf --system 'Summarise the text in one sentence.' < notes.txt
  Text, tokens and speed for a program:
    esker run model.gguf -p 'def fib(n):' --seed 1 --json

JSON:
  text      the text, to the byte
  tokens    ids of the tokens that were drawn
  finish    end_of_text, stop_string, max_tokens, context_full or cancelled
  model     path, name, architecture
  sampling  the settings, with the seed
  stats     prompt_tokens, reused_tokens, generated_tokens, load_s, prefill_s,
            decode_s, prefill_tokens_per_s, decode_tokens_per_s, threads,
            context; what `--stats` shows, and more, under names that stay:
            `docs/stats.md` describes them
  profile   with `--profile`: times by operation, for prefill and decode

Ctrl-C ends the text after the current token, with exit code 130; a second
Ctrl-C ends the program at once.";
