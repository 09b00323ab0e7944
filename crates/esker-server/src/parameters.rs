//! What an endpoint honours, for `/props` and for messages.

use serde_json::{Value, json};

/// The parameters of an endpoint. What is in none of the lists is refused by name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parameters {
    /// Change the answer as documented.
    pub honoured: &'static [&'static [&'static str]],
    /// Accepted, and of no effect on the answer.
    pub metadata: &'static [&'static str],
    /// Accepted with the values that change nothing, otherwise refused.
    pub neutral: &'static [&'static str],
}

impl Parameters {
    /// For `/props`.
    pub fn json(&self) -> Value {
        json!({
            "honoured": self.honoured.concat(),
            "metadata": self.metadata,
            "neutral_values_only": self.neutral,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::anthropic::messages;
    use crate::config::ServerConfig;
    use crate::error::ApiError;
    use crate::generation::ServerDefaults;
    use crate::openai::{chat, completions, responses};

    type Parse = fn(Value, &ServerDefaults, &ServerConfig) -> Result<(), ApiError>;

    /// The endpoints, each with the least that it takes.
    fn endpoints() -> Vec<(&'static str, Parameters, Value, Parse)> {
        let messages = json!([{"role": "user", "content": "Hello"}]);
        vec![
            ("chat", chat::PARAMETERS, json!({"model": "m", "messages": messages}), |v, d, c| {
                chat::parse(v, d, c).map(drop)
            }),
            ("completions", completions::PARAMETERS, json!({"model": "m", "prompt": "x"}), |v, d, c| {
                completions::parse(v, d, c).map(drop)
            }),
            ("responses", responses::PARAMETERS, json!({"model": "m", "input": "x"}), |v, d, c| {
                responses::parse(v, d, c).map(drop)
            }),
            (
                "messages",
                messages::PARAMETERS,
                json!({"model": "m", "max_tokens": 1, "messages": messages}),
                |v, d, c| messages::parse(v, d, c, false).map(drop),
            ),
            (
                "count_tokens",
                messages::COUNT_PARAMETERS,
                json!({"model": "m", "messages": messages}),
                |v, d, c| messages::parse(v, d, c, true).map(drop),
            ),
        ]
    }

    #[test]
    fn the_lists_are_what_is_read() {
        let config = ServerConfig::new("m.gguf".into(), "m".into());
        let defaults = ServerDefaults::new(&config);
        let all: Vec<&str> = endpoints()
            .iter()
            .flat_map(|(_, p, _, _)| [p.honoured.concat(), p.metadata.to_vec(), p.neutral.to_vec()].concat())
            .collect();
        for (endpoint, parameters, body, parse) in endpoints() {
            parse(body.clone(), &defaults, &config).expect("the least is enough");
            let honoured = parameters.honoured.concat();
            for name in &all {
                // No parameter takes this.
                let mut body = body.clone();
                body[*name] = json!([{"no": {"such": "value"}}]);
                let error = parse(body, &defaults, &config).err();
                let code = error.as_ref().and_then(|e| e.code);
                let context = format!("{endpoint}: `{name}`: {error:?}");
                if parameters.metadata.contains(name) {
                    assert!(error.is_none(), "{context}");
                } else if parameters.neutral.contains(name) {
                    assert!(code.is_some_and(|code| code != "unknown_parameter"), "{context}");
                } else if honoured.contains(name) {
                    assert!(code.is_some_and(|code| code != "unknown_parameter"), "{context}");
                } else {
                    let known = ["unknown_parameter", "unsupported_parameter"];
                    assert!(code.is_some_and(|code| known.contains(&code)), "{context}");
                }
            }
        }
    }
}
