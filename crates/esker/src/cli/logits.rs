//! Arguments of `esker logits`.

use super::EngineArgs;
use clap::Args;
use std::path::PathBuf;

/// Compute the logits of given tokens
///
/// Feeds the tokens as they are, without adding any, and writes the logits after each as a NumPy array of
/// f32, [tokens, vocabulary]. The KV cache is f32 here unless asked otherwise, so that nothing is rounded
/// that need not be.
#[derive(Args, Debug)]
#[command(after_long_help = AFTER_HELP)]
pub struct LogitsArgs {
    /// GGUF file; a small demo model if left out
    pub model: Option<PathBuf>,
    /// Token ids: a JSON list, or numbers separated by spaces or newlines, with `#` comments (`-`: standard
    /// input)
    #[arg(long, value_name = "FILE")]
    pub tokens: PathBuf,
    /// Feed one token at a time, as in decoding; the result is the same to the bit
    #[arg(long, conflicts_with = "chunk")]
    pub step: bool,
    /// Write the array to FILE.npy [default: standard output, if that is not a terminal]
    #[arg(short, long, value_name = "FILE.npy")]
    pub out: Option<PathBuf>,
    /// Print a summary as one JSON object on standard output; the array is then written only with `--out`
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub engine: EngineArgs,
}

const AFTER_HELP: &str = "\
Examples:
  esker tokenize 'Hello, world' | esker logits --tokens - --out logits.npy
  esker logits model.gguf --tokens ids.json --json

JSON:
  shape          tokens, vocabulary
  argmax         the likeliest next token after each token
  nll_mean_nats  mean negative log-likelihood of each token but the first,
                 given those before it
  non_finite     how many logits are NaN or infinite
  and step, chunk, kv_type, threads, load_s, forward_s, tokens_per_s";
