//! The commands of a chat: lines that begin with `/`.

use crate::cli::SETTINGS;
use std::path::PathBuf;

/// A command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    Help,
    Clear,
    /// `None` removes the system message.
    System(Option<String>),
    Save(PathBuf),
    Load(PathBuf),
    /// Without a name: show the settings.
    Set(Option<(String, String)>),
    Regenerate,
    Undo,
    Stats,
    Exit,
}

/// Name, arguments, meaning.
const COMMANDS: &[(&str, &str, &str)] = &[
    ("/help", "", "show this list"),
    ("/clear", "", "forget the conversation, but not the system message"),
    ("/system", "[TEXT]", "set the system message, or remove it, and forget the conversation"),
    ("/save", "FILE", "write the conversation to a new JSON file"),
    ("/load", "FILE", "go on with a conversation that was saved"),
    ("/set", "[NAME VALUE]", "change a setting, or show them all"),
    ("/regenerate", "", "drop the last answer and draw another"),
    ("/undo", "", "drop the last message and its answer"),
    ("/stats", "", "show the speed of the last answer, and what was counted since the start"),
    ("/exit", "", "leave; /quit and Ctrl-D as well"),
];

/// The command in `line`; `None` if it is a message.
///
/// # Errors
/// What is wrong with the command.
pub fn parse(line: &str) -> Option<Result<Command, String>> {
    let line = line.trim();
    if !line.starts_with('/') || line.starts_with("//") {
        return None;
    }
    let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    Some(parse_command(name, rest.trim()))
}

fn parse_command(name: &str, rest: &str) -> Result<Command, String> {
    let file = |command: fn(PathBuf) -> Command| match rest {
        "" => Err(format!("`{name}` needs the name of a file")),
        path => Ok(command(PathBuf::from(path))),
    };
    let command = match name {
        "/system" => return Ok(Command::System(Some(rest.to_owned()).filter(|text| !text.is_empty()))),
        "/save" => return file(Command::Save),
        "/load" => return file(Command::Load),
        "/set" if rest.is_empty() => return Ok(Command::Set(None)),
        "/set" => {
            let (name, value) = rest
                .split_once(|c: char| c.is_whitespace() || c == '=')
                .ok_or_else(|| format!("`/set {rest}` needs a value"))?;
            return Ok(Command::Set(Some((name.to_owned(), value.trim().to_owned()))));
        }
        "/help" => Command::Help,
        "/clear" => Command::Clear,
        "/regenerate" => Command::Regenerate,
        "/undo" => Command::Undo,
        "/stats" => Command::Stats,
        "/exit" | "/quit" => Command::Exit,
        _ => {
            return Err(format!(
                "there is no command `{name}`; `/help` lists them, `//` sends a text that begins with `/`"
            ));
        }
    };
    if rest.is_empty() { Ok(command) } else { Err(format!("`{name}` takes no arguments")) }
}

/// What `/help` shows.
pub fn help() -> String {
    let usage = |(name, arguments, _): &(&str, &str, &str)| format!("{name} {arguments}");
    let width = COMMANDS.iter().map(|c| usage(c).len()).max().unwrap_or(0);
    let mut out: String = COMMANDS.iter().map(|c| format!("  {:width$}  {}\n", usage(c), c.2)).collect();
    out += "Enter sends; Alt-Enter, or Enter after a backslash, begins a new line; \"\"\" begins and ends a block\n";
    out += "Ctrl-C ends an answer; Ctrl-D leaves";
    out
}

/// Whole lines that begin with `line`: commands, and settings after `/set`.
pub fn completions(line: &str) -> Vec<String> {
    let commands = COMMANDS.iter().map(|(name, arguments, _)| match *arguments {
        "" => name.to_string(),
        _ => format!("{name} "),
    });
    let settings = SETTINGS.iter().map(|name| format!("/set {name} "));
    let of_interest = |text: &String| text.starts_with(line) && line.starts_with('/');
    match line.starts_with("/set ") {
        true => settings.filter(of_interest).collect(),
        false => commands.filter(of_interest).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_listed_command_is_understood() {
        for (name, arguments, _) in COMMANDS {
            let parsed = parse(&format!("{name} {arguments}")).expect("a command");
            assert!(parsed.is_ok(), "{parsed:?}");
        }
    }

    #[test]
    fn commands_and_messages() {
        let check = |line: &str, expect: Command| assert_eq!(parse(line), Some(Ok(expect)), "{line}");
        check(" /system Be brief.\nVery. ", Command::System(Some("Be brief.\nVery.".into())));
        check("/system", Command::System(None));
        check("/save my chat.json", Command::Save("my chat.json".into()));
        check("/set top-k  3", Command::Set(Some(("top-k".into(), "3".into()))));
        check("/set top-k=3", Command::Set(Some(("top-k".into(), "3".into()))));
        check("/quit", Command::Exit);
        assert_eq!(parse("hello /exit"), None);
        assert_eq!(parse("//etc/hosts"), None);
        for wrong in ["/", "/exi", "/save", "/set top-k", "/clear now"] {
            assert!(parse(wrong).is_some_and(|c| c.is_err()), "{wrong}");
        }
    }

    #[test]
    fn completions_begin_with_what_was_typed() {
        assert_eq!(completions("/s"), ["/system ", "/save ", "/set ", "/stats"]);
        assert_eq!(completions("/set top-"), ["/set top-k ", "/set top-p "]);
        assert!(completions("").is_empty() && completions("/x").is_empty());
    }
}
