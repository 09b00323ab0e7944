//! The commands, one file each.

mod bench;
mod chat;
mod completions;
mod detokenize;
mod inspect;
mod logits;
mod man;
mod plan;
mod repack;
mod run;
mod serve;
mod tokenize;

use crate::cli::Command;
use crate::failure::Failure;
use crate::output::Console;
use std::process::ExitCode;

/// Runs a command.
pub fn dispatch(command: &Command, console: &Console) -> Result<ExitCode, Failure> {
    let done = |()| ExitCode::SUCCESS;
    match command {
        Command::Run(args) => run::run(args, console),
        Command::Chat(args) => chat::chat(args, console),
        Command::Serve(args) => serve::serve(args, console).map(done),
        Command::Plan(args) => plan::plan(args, console).map(done),
        Command::Inspect(args) => inspect::inspect(args, console).map(done),
        Command::Tokenize(args) => tokenize::tokenize(args, console).map(done),
        Command::Detokenize(args) => detokenize::detokenize(args, console).map(done),
        Command::Logits(args) => logits::logits(args, console).map(done),
        Command::Repack(args) => repack::repack(args, console).map(done),
        Command::Bench(args) => bench::bench(args, console).map(done),
        Command::Completions(args) => completions::completions(args, console).map(done),
        Command::Man(args) => man::man(args, console).map(done),
    }
}
