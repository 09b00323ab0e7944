//! Options of what uses a chat template.

use clap::Args;
use serde_json::{Map, Value};
use std::path::PathBuf;

/// How a conversation becomes a prompt.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Conversation options")]
pub struct TemplateArgs {
    /// System message
    #[arg(short, long, value_name = "TEXT")]
    pub system: Option<String>,
    /// Use the Jinja template in FILE, not the model's own
    #[arg(long, value_name = "FILE")]
    pub chat_template: Option<PathBuf>,
    /// Give the template a variable; VALUE is JSON, or else text. May be repeated
    ///
    /// For example `--template-arg enable_thinking=false`.
    #[arg(long = "template-arg", value_name = "NAME=VALUE", value_parser = variable)]
    pub variables: Vec<(String, Value)>,
}

impl TemplateArgs {
    /// True if any of these options was given.
    pub fn any(&self) -> bool {
        self.system.is_some() || self.chat_template.is_some() || !self.variables.is_empty()
    }

    /// The variables by name; of equal names, the last.
    pub fn variable_map(&self) -> Map<String, Value> {
        self.variables.iter().cloned().collect()
    }
}

pub(super) fn variable(arg: &str) -> Result<(String, Value), String> {
    match arg.split_once('=') {
        Some((name, value)) if !name.is_empty() => {
            let value = serde_json::from_str(value).unwrap_or_else(|_| Value::from(value));
            Ok((name.to_owned(), value))
        }
        _ => Err("expected `NAME=VALUE`".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_json_or_text() {
        let check = |arg: &str, expect: Value| assert_eq!(variable(arg), Ok(("x".to_owned(), expect)));
        check("x=false", Value::from(false));
        check("x=[1]", serde_json::json!([1]));
        check("x=a=b", Value::from("a=b"));
        check("x=", Value::from(""));
        assert!(variable("=1").is_err() && variable("x").is_err());
    }
}
