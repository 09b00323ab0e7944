//! `esker bench`: what measurements of speed need.

mod synth;

use crate::cli::{BenchArgs, BenchCommand};
use crate::failure::Failure;
use crate::output::Console;

pub fn bench(args: &BenchArgs, console: &Console) -> Result<(), Failure> {
    match &args.command {
        BenchCommand::Synth(args) => synth::synth(args, console),
    }
}
