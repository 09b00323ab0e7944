//! The `esker` command line.
//!
//! What is here and nowhere else: arguments, colours, exit codes, environment variables, the terminal. What
//! is not: how a model runs; that is `esker-engine`. Each command is a file of `commands`, its arguments a
//! file of `cli`.
#![forbid(unsafe_code)]

mod affinity;
mod cli;
mod commands;
mod conversation;
mod directories;
mod failure;
mod generate;
mod interrupt;
mod model;
mod output;
mod profile;
mod statistics;
mod text_input;
mod token_ids;

use clap::{CommandFactory, FromArgMatches};
use cli::Cli;
use output::Console;
use std::process::ExitCode;

fn main() -> ExitCode {
    // clap's own messages have to know about `--color` before it has parsed it.
    let color = cli::color_before_parsing(std::env::args_os().skip(1));
    let args = match cli::expand_config(std::env::args_os().collect()) {
        Ok(args) => args,
        Err(failure) => {
            Console::for_early_failures(color).failure(&failure);
            return ExitCode::from(failure.exit_code());
        }
    };
    let parsed = Cli::command()
        .color(color)
        .try_get_matches_from(args)
        .and_then(|matches| Cli::from_arg_matches(&matches));
    let cli = match parsed {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(failure::USAGE));
        }
    };
    let console = Console::new(&cli.global);
    interrupt::install();
    // Before compute threads are started: threads take over what their starter may use.
    let placed = match cli.command.engine().and_then(|engine| engine.cpu_mask.as_ref()) {
        Some(cpus) => cpus.apply(),
        None => Ok(()),
    };
    match placed.and_then(|()| commands::dispatch(&cli.command, &console)) {
        Ok(code) => code,
        Err(failure) => {
            console.failure(&failure);
            ExitCode::from(failure.exit_code())
        }
    }
}
