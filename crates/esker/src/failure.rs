//! What a command ends with when it cannot do its work: message, causes, place, hint, exit code.

use crate::cli::memory_that_is_enough;
use crate::output::units;
use esker_engine::{EngineError, SamplingError, VocabularyError};
use esker_gguf::OpenError;
use std::error::Error;
use std::fmt::Display;
use std::io;
use std::path::Path;

/// Exit code of an error.
pub const RUNTIME: u8 = 1;
/// Exit code of wrong usage; clap's own as well.
pub const USAGE: u8 = 2;
/// Exit code after Ctrl-C: 128 + SIGINT.
pub const INTERRUPTED: u8 = 130;

/// Why a command ended early.
#[derive(Debug)]
pub struct Failure {
    kind: Kind,
    message: String,
    causes: Vec<String>,
    /// Label and text, such as `file` and a path.
    places: Vec<(&'static str, String)>,
    hint: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Runtime,
    Usage,
    Interrupted,
    /// The reader of standard output has gone: it has what it wanted.
    BrokenPipe,
}

impl Failure {
    /// An error.
    pub fn new(message: impl Display) -> Failure {
        let message = message.to_string();
        Failure { kind: Kind::Runtime, message, causes: Vec::new(), places: Vec::new(), hint: None }
    }

    /// Wrong usage that only the command can see.
    pub fn usage(message: impl Display) -> Failure {
        Failure { kind: Kind::Usage, ..Failure::new(message) }
    }

    /// Ended by Ctrl-C. Nothing is printed.
    pub fn interrupted() -> Failure {
        Failure { kind: Kind::Interrupted, ..Failure::new("interrupted") }
    }

    /// An error with its causes.
    pub fn of(error: &dyn Error) -> Failure {
        Failure::new(error).caused_by(error)
    }

    /// Standard output cannot be written.
    pub fn stdout(error: io::Error) -> Failure {
        let kind = if error.kind() == io::ErrorKind::BrokenPipe { Kind::BrokenPipe } else { Kind::Runtime };
        Failure { kind, ..Failure::new("cannot write to standard output").cause(&error) }
    }

    /// A file cannot be read or written: `verb` is "read", "write", ...
    pub fn file(verb: &str, path: &Path, error: &io::Error) -> Failure {
        Failure::new(format_args!("cannot {verb} `{}`", path.display())).cause(error)
    }

    /// Adds a cause and its causes.
    pub fn cause(mut self, error: &dyn Error) -> Failure {
        self.add_cause(error);
        self.caused_by(error)
    }

    /// Adds a cause in words.
    pub fn cause_text(mut self, text: String) -> Failure {
        self.causes.push(text);
        self
    }

    fn caused_by(mut self, error: &dyn Error) -> Failure {
        let mut next = error.source();
        while let Some(error) = next {
            self.add_cause(error);
            next = error.source();
        }
        self
    }

    /// Some errors repeat their cause in their own message; it is printed once.
    fn add_cause(&mut self, error: &dyn Error) {
        let text = error.to_string();
        if !self.causes.last().unwrap_or(&self.message).contains(&text) {
            self.causes.push(text);
        }
    }

    /// Adds where it happened.
    pub fn place(mut self, label: &'static str, text: impl Display) -> Failure {
        self.places.push((label, text.to_string()));
        self
    }

    /// Adds what the user may do about it, unless something is there.
    pub fn hint(mut self, hint: impl Into<Option<String>>) -> Failure {
        self.hint = self.hint.or(hint.into());
        self
    }

    pub fn exit_code(&self) -> u8 {
        match self.kind {
            Kind::Runtime => RUNTIME,
            Kind::Usage => USAGE,
            Kind::Interrupted => INTERRUPTED,
            Kind::BrokenPipe => 0,
        }
    }

    /// False for ends that need no words.
    pub fn is_shown(&self) -> bool {
        matches!(self.kind, Kind::Runtime | Kind::Usage)
    }

    /// True if the reader of standard output has gone.
    pub fn is_broken_pipe(&self) -> bool {
        self.kind == Kind::BrokenPipe
    }

    pub fn message(&self) -> &str {
        &self.message
    }

    pub fn causes(&self) -> &[String] {
        &self.causes
    }

    pub fn places(&self) -> &[(&'static str, String)] {
        &self.places
    }

    pub fn hint_text(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// A file is no model that can be opened.
    pub fn open(path: &Path, error: &OpenError) -> Failure {
        let hint = match error {
            OpenError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                Some("MODEL is the path of a GGUF file; without it, a small demo model is used".to_owned())
            }
            OpenError::NotAFile { .. } => models_in(path),
            other => other.hint(),
        };
        Failure::of(error).hint(hint)
    }

    /// A model cannot be loaded or run.
    pub fn engine(path: &Path, error: &EngineError) -> Failure {
        let shown = path.display();
        match error {
            EngineError::Open(error) => Failure::open(path, error),
            EngineError::Load(_) | EngineError::Metadata(_) => {
                let hint = format!("`esker inspect {shown}` shows what the file holds");
                Failure::of(error).place("file", format_args!("`{shown}`")).hint(hint)
            }
            EngineError::Vocabulary { .. } => {
                let hint = "`esker logits` takes token ids and needs no vocabulary".to_owned();
                Failure::of(error).place("file", format_args!("`{shown}`")).hint(hint)
            }
            EngineError::ContextFull { .. } => {
                Failure::of(error).hint("`--context N` makes room for more tokens".to_owned())
            }
            EngineError::Sampling(error) => Failure::from(error),
            EngineError::OptionRange { name, value, expected } => {
                // `route_bias.lambda` is the value of `--route-bias`.
                let option = name.split('.').next().unwrap_or(name).replace('_', "-");
                Failure::usage(format_args!("`--{option}` is {value}, expected {expected}"))
            }
            EngineError::Budget { budget, smallest_budget, arena_min, lines } => {
                let (budget, smallest) = (units::bytes(*budget), units::bytes(*smallest_budget));
                let enough = memory_that_is_enough(*smallest_budget);
                Failure::new(format_args!("a budget of {budget} is too small for this model"))
                    .cause_text(format!(
                        "the smallest that works with these options is {smallest}: {}, expert_arena at least {}",
                        in_units(lines),
                        units::bytes(*arena_min)
                    ))
                    .hint(format!(
                        "`--memory {enough}` is enough; a shorter `--context` or `--chunk` needs less"
                    ))
            }
            EngineError::BudgetUnavailable { budget, available } => {
                let (budget, available) = (units::bytes(*budget), units::bytes(*available));
                Failure::new(format_args!("a budget of {budget} is more than the {available} that are free"))
                    .hint("`--memory auto` takes what is free less a reserve".to_owned())
            }
            _ => Failure::of(error),
        }
    }

    /// The file system of `path` is too full for a result of `needed` bytes.
    pub fn no_space(path: &Path, needed: u64, available: u64) -> Failure {
        let (needed, available) = (units::bytes(needed), units::bytes(available));
        Failure::new(format_args!(
            "`{}` needs {needed}, and its file system has {available} left",
            path.display()
        ))
    }

    /// A file's vocabulary cannot be used.
    pub fn vocabulary(path: &Path, error: &VocabularyError) -> Failure {
        Failure::new("the file has no usable vocabulary")
            .cause(error)
            .place("file", format_args!("`{}`", path.display()))
    }
}

impl From<&SamplingError> for Failure {
    /// Settings are options here, so a wrong one is wrong usage.
    fn from(error: &SamplingError) -> Failure {
        let option = match error.name {
            "temperature" => "temp".to_owned(),
            name => name.replace('_', "-"),
        };
        Failure::usage(format_args!("`--{option}` is {}, expected {}", error.value, error.expected))
    }
}

/// Lines of a plan, `name bytes, name bytes`, with units.
fn in_units(lines: &str) -> String {
    let line = |line: &str| match line.rsplit_once(' ').and_then(|(name, n)| Some((name, n.parse().ok()?))) {
        Some((name, n)) => format!("{name} {}", units::bytes(n)),
        None => line.to_owned(),
    };
    lines.split(", ").map(line).collect::<Vec<_>>().join(", ")
}

/// For a directory in place of a file: what it has to offer.
fn models_in(directory: &Path) -> Option<String> {
    let entries = std::fs::read_dir(directory).ok()?;
    let mut models: Vec<_> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|e| e.eq_ignore_ascii_case("gguf")))
        .collect();
    models.sort();
    let first = models.first()?.display();
    Some(match models.len() {
        1 => format!("it holds a model: `{first}`"),
        n => format!("it holds {n} GGUF files, the first is `{first}`"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Layered(&'static str, Option<Box<Layered>>);

    impl std::fmt::Display for Layered {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Layered {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_deref().map(|e| e as _)
        }
    }

    #[test]
    fn a_cause_that_the_message_has_is_not_repeated() {
        let layered = |causes: [&'static str; 2]| {
            let [outer, inner] = causes;
            Layered(
                "cannot map `x`: no such file",
                Some(Layered(outer, Some(Layered(inner, None).into())).into()),
            )
        };
        assert_eq!(Failure::of(&layered(["no such file", "disk"])).causes(), ["disk"]);
        assert_eq!(Failure::of(&layered(["network", "cable"])).causes(), ["network", "cable"]);
    }

    #[test]
    fn lines_of_a_plan_have_units() {
        assert_eq!(in_units("process 3145728, table_rows 0, odd"), "process 3.00 MiB, table_rows 0 B, odd");
    }

    #[test]
    fn exit_codes_tell_the_kinds_apart() {
        assert_eq!(Failure::new("x").exit_code(), 1);
        assert_eq!(Failure::usage("x").exit_code(), 2);
        assert_eq!(Failure::interrupted().exit_code(), 130);
        let gone = Failure::stdout(io::ErrorKind::BrokenPipe.into());
        assert!(gone.exit_code() == 0 && !gone.is_shown());
        let full = Failure::stdout(io::ErrorKind::StorageFull.into());
        assert!(full.exit_code() == 1 && full.is_shown());
    }
}
