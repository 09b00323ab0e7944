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
