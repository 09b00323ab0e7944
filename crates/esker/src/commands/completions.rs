//! `esker completions`: scripts for shells.

use crate::cli::{Cli, CompletionsArgs};
use crate::failure::Failure;
use crate::output::Console;
use clap::CommandFactory;

pub fn completions(args: &CompletionsArgs, console: &Console) -> Result<(), Failure> {
    // Into memory first: the generator panics if a write fails.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "esker", &mut script);
    console.stdout().bytes(&script)
}
