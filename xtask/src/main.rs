//! Chores of the project, run as `cargo xtask CHORE`. Nothing here is part of what users get.
//!
//! Start at [`Chore`]; `bench` measures speed, `peer` is the comparison with llama.cpp, `parity` prints the tables of the
//! engine's parity tests.
#![forbid(unsafe_code)]

mod bench;
mod parity;
mod peer;

use clap::{Parser, Subcommand};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Chores of the Esker project.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", disable_help_subcommand = true)]
struct Arguments {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
#[allow(clippy::large_enum_variant, reason = "there is one, and it is moved once")]
enum Chore {
    /// Measures speed against what the machine allows.
    #[command(subcommand)]
    Bench(bench::BenchChore),
    /// Compares Esker with llama.cpp: same results, and how fast. Downloads packages from the Python package index.
    #[command(subcommand)]
    Peer(peer::PeerChore),
    /// Runs the engine's parity tests and shows the tables they print.
    Parity(parity::ParityArguments),
    /// Esker's side of a comparison: requests on stdin, replies on stdout.
    #[command(hide = true)]
    EskerSide,
}

fn main() -> ExitCode {
    let done = match Arguments::parse().chore {
        Chore::Bench(chore) => bench::run(&chore).map_err(Box::<dyn Error>::from),
        Chore::Peer(chore) => peer::run(&chore).map_err(Box::<dyn Error>::from),
        Chore::Parity(arguments) => parity::run(&arguments).map_err(Box::<dyn Error>::from),
        Chore::EskerSide => peer::esker_side().map(|()| true).map_err(Box::<dyn Error>::from),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            let mut cause = error.source();
            while let Some(error) = cause {
                eprintln!("  because: {error}");
                cause = error.source();
            }
            ExitCode::from(2)
        }
    }
}

/// The `target` folder that this program was built into.
fn target() -> PathBuf {
    let built = std::env::current_exe().ok();
    let target = built
        .as_deref()
        .and_then(|exe| exe.ancestors().find(|p| p.file_name().is_some_and(|n| n == "target")));
    target.map_or_else(|| workspace().join("target"), Path::to_owned)
}

/// The workspace's folder.
fn workspace() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask).to_owned()
}
