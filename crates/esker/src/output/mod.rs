//! What the user sees: messages on standard error, data on standard output.
//!
//! Messages are understandable without colours, have no full stop at the end, and put commands, paths and
//! literals in backticks.

mod file;
mod npy;
mod printable;
mod progress;
mod stdout;
mod table;
pub mod units;

pub use file::OutputFile;
pub use npy::NpyWriter;
pub use printable::{escaped, printable};
pub use progress::Progress;
pub use stdout::Stdout;
pub use table::{Align, Table};

use crate::cli::{ColorWhen, GlobalArgs};
use crate::failure::Failure;
use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

/// Style of section titles and table headers.
pub const HEADING: Style = Style::new().bold();
const ERROR: Style = AnsiColor::Red.on_default().bold();
const WARNING: Style = AnsiColor::Yellow.on_default().bold();
const NOTE: Style = AnsiColor::Cyan.on_default().bold();

/// Where messages go, and how many.
pub struct Console {
    verbose: bool,
    quiet: bool,
    color: ColorChoice,
}

impl Console {
    pub fn new(args: &GlobalArgs) -> Console {
        let color = match args.color {
            ColorWhen::Auto => ColorChoice::Auto,
            ColorWhen::Always => ColorChoice::Always,
            ColorWhen::Never => ColorChoice::Never,
        };
        Console { verbose: args.verbose, quiet: args.quiet, color }
    }

    /// For what fails before the arguments have been parsed.
    pub fn for_early_failures(color: clap::ColorChoice) -> Console {
        let color = match color {
            clap::ColorChoice::Auto => ColorChoice::Auto,
            clap::ColorChoice::Always => ColorChoice::Always,
            clap::ColorChoice::Never => ColorChoice::Never,
        };
        Console { verbose: false, quiet: false, color }
    }

    /// Prints why a command ended.
    pub fn failure(&self, failure: &Failure) {
        if !failure.is_shown() {
            return;
        }
        let mut text = format!("{ERROR}error{ERROR:#}: {}\n", printable(failure.message()));
        for cause in failure.causes() {
            text += &format!("  caused by: {}\n", printable(cause));
        }
        for (label, place) in failure.places() {
            text += &format!("  {label}: {}\n", printable(place));
        }
        if let Some(hint) = failure.hint_text() {
            text += &format!("\n{NOTE}hint{NOTE:#}: {}\n", printable(hint));
        }
        self.write(&text);
    }

    /// Something is odd, and the user can do something about it.
    pub fn warning(&self, text: impl Display) {
        if !self.quiet {
            self.write(&format!("{WARNING}warning{WARNING:#}: {}\n", printable(&text.to_string())));
        }
    }

    /// Something that the user should know.
    pub fn note(&self, text: impl Display) {
        if !self.quiet {
            self.write(&format!("{NOTE}note{NOTE:#}: {}\n", printable(&text.to_string())));
        }
    }

    /// A plain line.
    pub fn line(&self, text: impl Display) {
        if !self.quiet {
            self.write(&format!("{}\n", printable(&text.to_string())));
        }
    }

    /// A table, or other text of this program, which may have styles.
    pub fn table(&self, text: &str) {
        if !self.quiet {
            self.write(text);
        }
    }

    /// More was asked for.
    pub fn is_verbose(&self) -> bool {
        self.verbose
    }

    /// Only errors are wanted.
    pub fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// Messages have colours.
    pub fn colors_messages(&self) -> bool {
        match self.color {
            ColorChoice::Auto => AutoStream::choice(&io::stderr()) != ColorChoice::Never,
            choice => choice != ColorChoice::Never,
        }
    }

    /// A plain line for those who asked to be told more.
    pub fn detail(&self, text: impl Display) {
        if self.verbose {
            self.write(&format!("{}\n", printable(&text.to_string())));
        }
    }

    /// Progress is shown: standard error is a terminal, and wanted.
    pub fn shows_progress(&self) -> bool {
        !self.quiet && io::stderr().is_terminal()
    }

    /// Standard output, with colours where they are wanted.
    pub fn stdout(&self) -> Stdout {
        Stdout::new(self.color)
    }

    /// Other texts than [`table`](Self::table)'s have gone through [`printable`]. Nobody can be told that standard error fails.
    fn write(&self, text: &str) {
        let _ = AutoStream::new(io::stderr(), self.color).lock().write_all(text.as_bytes());
    }
}
