//! Arguments of `esker tokenize` and `esker detokenize`.

use clap::Args;
use std::path::PathBuf;

/// Turn text into token ids
///
/// Prints the ids that `esker run` would feed to the model, on one line. A single argument is MODEL if it
/// ends in `.gguf` or names a file, else TEXT.
#[derive(Args, Debug)]
#[command(after_long_help = TOKENIZE_HELP)]
pub struct TokenizeArgs {
    /// GGUF file; a small demo model if left out
    pub model: Option<PathBuf>,
    /// Text; standard input if neither this nor `--file` is given
    #[arg(conflicts_with = "file")]
    pub text: Option<String>,
    /// Read the text from FILE (`-`: standard input), every byte of it
    #[arg(short, long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Recognise control tokens such as `<|im_end|>` in the text
    #[arg(long)]
    pub special: bool,
    /// Do not begin with a BOS token, even if the model asks for one
    #[arg(long)]
    pub no_bos: bool,
    /// One token a line: its id and its text
    #[arg(long, conflicts_with = "json")]
    pub pieces: bool,
    /// Print one JSON object: `tokens` (ids), `pieces` (texts), `count`
    #[arg(long)]
    pub json: bool,
}

const TOKENIZE_HELP: &str = "\
Examples:
  esker tokenize 'Hello, world'
  esker tokenize model.gguf 'Hello, world' --pieces
  esker tokenize model.gguf --file notes.txt > tokens.txt";

/// Turn token ids into text
///
/// Prints the text of the tokens, byte for byte, without a newline unless to a terminal. Control tokens are
/// left out.
#[derive(Args, Debug)]
#[command(after_long_help = DETOKENIZE_HELP)]
pub struct DetokenizeArgs {
    /// GGUF file (a small demo model if left out), then token ids; they are read from standard input if none
    /// is given
    #[arg(value_name = "MODEL|ID")]
    pub model_and_ids: Vec<String>,
    /// Show control tokens by their names
    #[arg(long)]
    pub special: bool,
}

const DETOKENIZE_HELP: &str = "\
Ids are separated by spaces, commas or newlines, and `#` begins a comment;
a JSON list does as well.

Examples:
  esker detokenize 1035 25
  esker tokenize 'Hello, world' | esker detokenize";
