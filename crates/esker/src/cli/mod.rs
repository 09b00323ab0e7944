//! The arguments of the program and of its commands: clap types, nothing else.

mod bench;
mod chat;
mod config_file;
mod engine;
mod inspect;
mod logits;
mod plan;
mod repack;
mod run;
mod sampling;
mod serve;
mod shell;
mod template;
mod tokens;

pub use bench::{BenchArgs, BenchCommand, QuantArg, SynthArgs};
pub use chat::ChatArgs;
pub use config_file::{expand as expand_config, print as print_config};
pub use engine::{EngineArgs, kv_type_name, memory_that_is_enough};
pub use inspect::InspectArgs;
pub use logits::LogitsArgs;
pub use plan::PlanArgs;
pub use repack::RepackArgs;
pub use run::RunArgs;
pub use sampling::{GenerationArgs, SETTINGS, set_value, settings};
pub use serve::{LogFormat, ServeArgs};
pub use shell::{CompletionsArgs, ManArgs};
pub use template::TemplateArgs;
pub use tokens::{DetokenizeArgs, TokenizeArgs};

use clap::{Args, ColorChoice, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;

/// Runs Mixture-of-Experts language models that are bigger than memory
///
/// Esker runs language models from GGUF files. Only data goes to standard output; notes, progress, speed and
/// errors go to standard error.
#[derive(Debug, Parser)]
#[command(name = "esker", version, max_term_width = 100, arg_required_else_help = true)]
#[command(subcommand_required = true, disable_help_subcommand = true, after_long_help = AFTER_HELP)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
    #[command(flatten)]
    pub global: GlobalArgs,
}

const AFTER_HELP: &str = "\
Model:
  MODEL is the path of a GGUF file; of a split set, of its first file.
  Without it a small demo model is used, so that commands can be tried at
  once: `esker-moe-64m-small.gguf`. It is for trying and testing: it
  writes text, but knows nothing. It is looked for in
    - the directory `$ESKER_MODELS`
    - `models` in the current directory and those above it
    - `models` in the directory of the program and those above it
    - `models` in the source tree that the program was built from

Examples:
  esker run -p 'Once upon a time' -n 100
  esker chat model.gguf
  esker serve model.gguf
  esker plan model.gguf --memory 6G

Exit codes:
  0    success, also when the reader of a pipe has gone
  1    an error
  2    wrong usage
  130  interrupted by Ctrl-C

Environment:
  ESKER_API_KEY   key that clients of `esker serve` have to present
  ESKER_MODELS    directory of the demo model
  NO_COLOR        no colours, unless `--color always` is given
  XDG_CACHE_HOME  where measurements of disks are kept
                  [default: ~/.cache]
  XDG_STATE_HOME  where `esker chat` keeps the history of its input
                  [default: ~/.local/state]";

/// Options of every command.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Global options")]
pub struct GlobalArgs {
    /// Say more on standard error
    #[arg(short, long, global = true, overrides_with = "quiet")]
    pub verbose: bool,
    /// Say nothing but errors on standard error
    #[arg(short, long, global = true, overrides_with = "verbose")]
    pub quiet: bool,
    /// When to use colours
    #[arg(long, value_name = "WHEN", global = true, value_enum, default_value_t = ColorWhen::Auto)]
    pub color: ColorWhen,
}

/// When to use colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ColorWhen {
    /// On terminals, unless `NO_COLOR` is set
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Run(Box<RunArgs>),
    Chat(Box<ChatArgs>),
    Serve(Box<ServeArgs>),
    Plan(Box<PlanArgs>),
    Inspect(InspectArgs),
    Tokenize(TokenizeArgs),
    Detokenize(DetokenizeArgs),
    Logits(LogitsArgs),
    Repack(RepackArgs),
    Bench(BenchArgs),
    Completions(CompletionsArgs),
    Man(ManArgs),
}

impl Command {
    /// Options of the engine, if the command has them.
    pub fn engine(&self) -> Option<&EngineArgs> {
        match self {
            Command::Run(args) => Some(&args.engine),
            Command::Chat(args) => Some(&args.engine),
            Command::Serve(args) => Some(&args.engine),
            Command::Plan(args) => Some(&args.engine),
            Command::Logits(args) => Some(&args.engine),
            _ => None,
        }
    }
}

/// The value of `--color` in `args`, found without parsing them: the last one that can be understood.
pub fn color_before_parsing(args: impl Iterator<Item = OsString>) -> ColorChoice {
    let mut choice = ColorChoice::Auto;
    let mut value_next = false;
    for arg in args {
        let Some(arg) = arg.to_str() else { continue };
        if arg == "--" {
            break;
        }
        let value = if value_next { Some(arg) } else { arg.strip_prefix("--color=") };
        value_next = arg == "--color";
        choice = match value {
            Some("auto") => ColorChoice::Auto,
            Some("always") => ColorChoice::Always,
            Some("never") => ColorChoice::Never,
            _ => choice,
        };
    }
    choice
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn arguments_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn color_is_found_before_parsing() {
        let check = |args: &[&str], expect| {
            assert_eq!(color_before_parsing(args.iter().map(OsString::from)), expect, "{args:?}");
        };
        check(&["run", "-p", "x"], ColorChoice::Auto);
        check(&["--color", "never", "run"], ColorChoice::Never);
        check(&["run", "--color=always"], ColorChoice::Always);
        check(&["run", "--color=always", "--color", "never"], ColorChoice::Never);
        check(&["run", "--", "--color=always"], ColorChoice::Auto);
        check(&["run", "--color=sometimes"], ColorChoice::Auto);
    }
}
