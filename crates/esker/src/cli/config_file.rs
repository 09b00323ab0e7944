//! The configuration file of `esker serve`: its keys are the long names of options, so that it can hold every option and
//! is checked like the command line. Its options are put before those that were given, which win by coming later.

use super::Cli;
use crate::failure::Failure;
use crate::output::escaped;
use clap::{ArgAction, ArgMatches, Command, CommandFactory};
use std::ffi::{OsStr, OsString};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use toml::Value;

/// The command that has a configuration file.
const COMMAND: &str = "serve";
/// Options that concern this run alone.
const NOT_IN_FILES: &[&str] = &["help", "config", "print-config", "verbose", "quiet", "color"];
/// Options that are not to be shown.
const SECRET: &[&str] = &["api-key"];

/// The arguments of the program (its name first) with those of the configuration file that they name, if any.
///
/// # Errors
/// If the file cannot be read, is not TOML, or has options that do not exist or cannot have their values.
pub fn expand(args: Vec<OsString>) -> Result<Vec<OsString>, Failure> {
    let Some(at) = command_index(&args) else { return Ok(args) };
    let Some(path) = config_path(&args[at + 1..]) else { return Ok(args) };
    let text = std::fs::read_to_string(&path).map_err(|e| Failure::file("read", &path, &e))?;
    let from_file = options(&text).map_err(|failure| place(failure, &path))?;
    check(&from_file).map_err(|failure| place(failure, &path))?;
    let mut expanded = args[..=at].to_vec();
    expanded.extend(from_file);
    expanded.extend_from_slice(&args[at + 1..]);
    Ok(expanded)
}

fn place(failure: Failure, path: &Path) -> Failure {
    failure
        .place("file", format_args!("`{}`", path.display()))
        .hint("`esker serve --print-config` shows all options as a configuration file".to_owned())
}

/// Where the command is, if it is the one that has a file: before it there are only options of every command.
fn command_index(args: &[OsString]) -> Option<usize> {
    let mut at = 1;
    loop {
        match args.get(at)?.to_str()? {
            COMMAND => return Some(at),
            "--color" => at += 2,
            option if option.starts_with('-') => at += 1,
            _ => return None,
        }
    }
}

/// The last `--config FILE`.
fn config_path(args: &[OsString]) -> Option<PathBuf> {
    let mut found = None;
    let mut args = args.iter().take_while(|arg| *arg != OsStr::new("--"));
    while let Some(arg) = args.next() {
        match arg.to_str() {
            Some("--config") => found = args.next().map(PathBuf::from),
            Some(text) => found = text.strip_prefix("--config=").map(PathBuf::from).or(found),
            None => {}
        }
    }
    found
}

/// The options of a file as arguments.
fn options(text: &str) -> Result<Vec<OsString>, Failure> {
    let table: toml::Table = text.parse().map_err(|e: toml::de::Error| {
        Failure::usage("the configuration file is not TOML").cause_text(e.to_string().trim_end().to_owned())
    })?;
    let command = subcommand();
    let mut out = Vec::new();
    for (key, value) in table {
        let name = key.replace('_', "-");
        let arg = command.get_arguments().find(|arg| arg.get_long() == Some(&name));
        let Some(arg) = arg.filter(|_| !NOT_IN_FILES.contains(&&*name)) else {
            let key = escaped(&key, 80);
            return Err(Failure::usage(format_args!("`{key}` is no option of `esker {COMMAND}`")));
        };
        let is_flag = matches!(arg.get_action(), ArgAction::SetTrue);
        let values = match value {
            Value::Array(values) if matches!(arg.get_action(), ArgAction::Append) => values,
            value => vec![value],
        };
        for value in values {
            match (value, is_flag) {
                (Value::Boolean(true), true) => out.push(format!("--{name}").into()),
                (Value::Boolean(false), true) => {}
                (Value::String(text), false) => out.push(format!("--{name}={text}").into()),
                (Value::Integer(n), false) => out.push(format!("--{name}={n}").into()),
                (Value::Float(x), false) => out.push(format!("--{name}={x}").into()),
                (other, _) => {
                    let expected = if is_flag { "true or false" } else { "a string or a number" };
                    let found = other.type_str();
                    return Err(Failure::usage(format_args!(
                        "`{key}` is of type {found}, expected {expected}"
                    )));
                }
            }
        }
    }
    Ok(out)
}

/// Parses the file's options alone, so that an error is known to be the file's.
fn check(options: &[OsString]) -> Result<(), Failure> {
    let args = [OsString::from("esker"), COMMAND.into()].into_iter().chain(options.iter().cloned());
    Cli::command().try_get_matches_from(args).map(drop).map_err(|e| {
        let text = e.to_string();
        let first = text.lines().next().unwrap_or_default();
        Failure::usage(first.strip_prefix("error: ").unwrap_or(first))
    })
}

/// All options as a configuration file, with the values that they have.
///
/// # Errors
/// If the arguments cannot be parsed, which was tried before.
pub fn print(args: Vec<OsString>) -> Result<String, Failure> {
    let matches = Cli::command().try_get_matches_from(expand(args)?).map_err(|e| Failure::of(&e))?;
    let Some((COMMAND, matches)) = matches.subcommand() else { return Ok(String::new()) };
    let mut out = String::new();
    let model: Option<&PathBuf> = matches.get_one("model");
    for arg in subcommand().get_arguments() {
        let Some(name) = arg.get_long().filter(|name| !NOT_IN_FILES.contains(name)) else { continue };
        let values = values(matches, arg.get_id().as_str(), arg.get_action());
        let values = match (name, model) {
            ("model", Some(model)) => Some(Value::String(model.display().to_string())),
            _ => values,
        };
        let _ = match values {
            Some(_) if SECRET.contains(&name) => writeln!(out, "# {name} is set, and not shown"),
            Some(value) => writeln!(out, "{name} = {value}"),
            None => writeln!(out, "# {name} ="),
        };
    }
    Ok(out)
}

/// The value of an option, if it has one.
fn values(matches: &ArgMatches, id: &str, action: &ArgAction) -> Option<Value> {
    if matches!(action, ArgAction::SetTrue) {
        return Some(Value::Boolean(matches.get_flag(id)));
    }
    let raw = matches.try_get_raw(id).ok().flatten()?;
    let mut values: Vec<Value> = raw.map(|raw| value(&raw.to_string_lossy())).collect();
    match action {
        ArgAction::Append => Some(Value::Array(values)),
        _ => values.pop(),
    }
}

fn value(text: &str) -> Value {
    match (text.parse::<i64>(), text.parse::<f64>()) {
        (Ok(n), _) => Value::Integer(n),
        (_, Ok(x)) if x.is_finite() => Value::Float(x),
        _ => Value::String(text.to_owned()),
    }
}

fn subcommand() -> Command {
    let command = Cli::command();
    command.find_subcommand(COMMAND).cloned().expect("the command exists, a test parses it")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn os(args: &[&str]) -> Vec<OsString> {
        args.iter().map(OsString::from).collect()
    }

    #[test]
    fn the_command_and_its_file_are_found() {
        assert_eq!(command_index(&os(&["esker", "serve", "--config", "x"])), Some(1));
        assert_eq!(command_index(&os(&["esker", "--color", "never", "-v", "serve"])), Some(4));
        assert_eq!(command_index(&os(&["esker", "run", "serve"])), None);
        assert_eq!(command_index(&os(&["esker"])), None);
        let path = |args: &[&str]| config_path(&os(args)).map(|p| p.display().to_string());
        assert_eq!(path(&["--config", "a", "--config=b"]).as_deref(), Some("b"));
        assert_eq!(path(&["--", "--config", "a"]), None);
    }

    #[test]
    fn keys_are_options() {
        let text = "slots = 8\nmemory = \"6G\"\nno_read_ahead = true\nno-direct-io = false\nalias = [\"a\", \"b\"]\ntemp = 0.5";
        let expected =
            ["--slots=8", "--memory=6G", "--no-read-ahead", "--alias=a", "--alias=b", "--temp=0.5"];
        let mut options = options(text).expect("good");
        options.sort();
        let mut expected = os(&expected);
        expected.sort();
        assert_eq!(options, expected);
        check(&options).expect("all parse");
    }

    #[test]
    fn wrong_files_are_refused_by_name() {
        let message =
            |text: &str| options(text).and_then(|o| check(&o)).expect_err("refused").message().to_owned();
        assert_eq!(message("slot = 8"), "`slot` is no option of `esker serve`");
        assert_eq!(message("print-config = true"), "`print-config` is no option of `esker serve`");
        assert_eq!(
            message("no-read-ahead = 1"),
            "`no-read-ahead` is of type integer, expected true or false"
        );
        assert_eq!(message("slots = [1, 2]"), "`slots` is of type array, expected a string or a number");
        assert_eq!(message("= 3"), "the configuration file is not TOML");
        assert!(
            message("slots = 0").starts_with("invalid value '0' for '--slots <N>'"),
            "{}",
            message("slots = 0")
        );
    }

    #[test]
    fn later_options_win() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("c.toml");
        std::fs::write(&path, "slots = 8\nqueue = 3\nmodel = \"a.gguf\"").expect("written");
        let path = path.display().to_string();
        let args = os(&["esker", "serve", "b.gguf", "--config", &path, "--slots", "2", "--api-key", "k"]);
        let printed = print(args).expect("parses");
        for line in [
            "slots = 2",
            "queue = 3",
            "model = \"b.gguf\"",
            "host = \"127.0.0.1\"",
            "memory = \"auto\"",
            "no-read-ahead = false",
            "# api-key is set, and not shown",
            "# threads =",
        ] {
            assert!(printed.lines().any(|l| l == line), "{line} in\n{printed}");
        }
        // What was printed is a configuration file.
        check(&options(&printed).expect("TOML")).expect("parses again");
    }
}
