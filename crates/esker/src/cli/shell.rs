//! Arguments of `esker completions` and `esker man`.

use clap::Args;
use clap_complete::Shell;
use std::path::PathBuf;

/// Print a shell completion script
#[derive(Args, Debug)]
#[command(after_long_help = COMPLETIONS_HELP)]
pub struct CompletionsArgs {
    /// Shell
    #[arg(value_enum)]
    pub shell: Shell,
}

const COMPLETIONS_HELP: &str = "\
Examples:
  esker completions bash > ~/.bash_completion.d/esker
  esker completions fish > ~/.config/fish/completions/esker.fish";

/// Print the manual page, or write those of all commands
#[derive(Args, Debug)]
#[command(after_long_help = MAN_HELP)]
pub struct ManArgs {
    /// Directory for `esker.1`, `esker-run.1` and so on; it is made if it does not exist
    pub dir: Option<PathBuf>,
}

const MAN_HELP: &str = "\
Examples:
  esker man | man -l -
  esker man ~/.local/share/man/man1";
