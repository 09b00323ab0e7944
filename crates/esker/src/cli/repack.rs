//! Arguments of `esker repack`.

use clap::Args;
use std::path::PathBuf;

/// Lay the experts of a model out for quick reading, or undo that
///
/// Writes a model whose experts lie one after the other, each on pages of its own and with a checksum: one read brings
/// an expert from the disk, where three do otherwise, and damage is noticed. All else is as it was, and so is every
/// result. The file of a split set is the first one; the result is one file.
#[derive(Args, Debug)]
#[command(after_long_help = AFTER_HELP)]
pub struct RepackArgs {
    /// GGUF file; with `--undo` and `--verify`, one that was repacked
    pub model: PathBuf,
    /// File to write
    #[arg(required_unless_present = "verify", conflicts_with = "verify")]
    pub out: Option<PathBuf>,
    /// Write the model that was repacked again
    #[arg(long, conflicts_with = "verify")]
    pub undo: bool,
    /// Read all experts and compare their checksums; write nothing
    #[arg(long)]
    pub verify: bool,
    /// Put the result in the place of a file that exists
    #[arg(long, conflicts_with = "verify")]
    pub force: bool,
    /// Print one JSON object on standard output; sizes are in bytes
    #[arg(long)]
    pub json: bool,
}

const AFTER_HELP: &str = "\
Examples:
  esker repack model.gguf model-packed.gguf
  esker run model-packed.gguf --memory 6G -p 'Once upon a time'
  esker repack --verify model-packed.gguf
  esker repack --undo model-packed.gguf model.gguf

The result appears when it is complete: after an error, or Ctrl-C, nothing
has changed at OUT. What `--undo` writes is compared with the SHA-256 of the
file that was repacked, where its bytes can be the same: those of a split
set, or of a file with another order or padding, become an equal model in
one file.";
