//! `cargo xtask parity`: the engine's parity tests, with the tables that they print.

use crate::workspace;
use std::ffi::OsString;
use std::process::Command;

/// Arguments of `parity`.
#[derive(clap::Args)]
pub(crate) struct ParityArguments {
    /// Only tests whose name contains this.
    filter: Option<String>,
}

/// The tests could not be started.
#[derive(Debug, thiserror::Error)]
#[error("cannot start `{}`", command.to_string_lossy())]
pub(crate) struct ParityError {
    command: OsString,
    #[source]
    cause: std::io::Error,
}

/// Returns whether all tests passed.
///
/// # Errors
/// If cargo cannot be started.
pub(crate) fn run(arguments: &ParityArguments) -> Result<bool, ParityError> {
    // Cargo names itself to what it runs; by hand the one on the path will do.
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(&cargo)
        .args(cargo_arguments(arguments))
        .current_dir(workspace())
        .status()
        .map_err(|cause| ParityError { command: cargo, cause })?;
    Ok(status.success())
}

fn cargo_arguments(arguments: &ParityArguments) -> Vec<&str> {
    let mut all =
        vec!["test", "--release", "-p", "esker-engine", "--test", "parity", "--test", "trained", "--"];
    // One test at a time: the tables would be printed into each other.
    all.extend(["--nocapture", "--test-threads", "1"]);
    all.extend(arguments.filter.as_deref());
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_goes_to_the_test_programs() {
        let with = ParityArguments { filter: Some("llama".to_owned()) };
        let line = cargo_arguments(&with).join(" ");
        let (cargo, tests) = line.split_once(" -- ").expect("arguments for cargo, then for the tests");
        assert!(cargo.contains("--test parity") && cargo.contains("--test trained"));
        assert!(tests.contains("--nocapture") && tests.ends_with("llama"));
        let without = cargo_arguments(&ParityArguments { filter: None });
        assert_eq!(without.len() + 1, cargo_arguments(&with).len());
    }
}
