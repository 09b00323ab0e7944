//! Arguments of `esker inspect`.

use clap::Args;
use std::path::PathBuf;

/// Show what a GGUF file holds
///
/// Architecture, parameters, sizes per layer and per expert, tensor types. Only the header is read, so this
/// is quick for files of any size, and works for architectures that cannot be run. Of a repacked file the model is
/// shown; `--tensors` lists what is in the file.
#[derive(Args, Debug)]
#[command(after_long_help = AFTER_HELP)]
pub struct InspectArgs {
    /// GGUF file; a small demo model if left out
    pub model: Option<PathBuf>,
    /// List all tensors
    #[arg(long)]
    pub tensors: bool,
    /// List all metadata, long values abbreviated
    #[arg(long)]
    pub metadata: bool,
    /// Print one JSON object on standard output
    ///
    /// Sizes are in bytes. With `--metadata`, arrays of more than 64 elements become an object with `type`,
    /// `length` and the `first` 8.
    #[arg(long)]
    pub json: bool,
}

const AFTER_HELP: &str = "\
Examples:
  esker inspect model.gguf
  esker inspect model.gguf --metadata --tensors
  esker inspect model.gguf --json | jq .experts";
