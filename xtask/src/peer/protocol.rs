//! What is asked of a side and what it answers: one JSON object per line. `driver.py` speaks the same.

use serde::{Deserialize, Serialize};

/// A request; `do` names it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub(crate) enum Request {
    /// Who are you. Before anything is loaded. Answered by [`Facts`].
    Facts,
    /// Load a model. Once per process. Answered by [`Loaded`].
    Load(Load),
    /// Continue a prompt greedily. Answered by [`Completion`].
    Complete(Complete),
    /// Token ids of a text, without BOS and EOS. Answered by [`Tokens`].
    Tokenize {
        /// The text.
        text: String,
        /// Recognise control tokens in it.
        special: bool,
    },
    /// The prompt of a conversation. Answered by [`Rendered`].
    Render {
        /// A list of `{"role", "content"}`.
        messages: serde_json::Value,
    },
    /// Log-probabilities along a given continuation. Only Esker's side. Answered by [`Scores`].
    Score {
        /// Not empty.
        prompt: Vec<u32>,
        /// Fed whatever the model would have preferred.
        continuation: Vec<u32>,
        /// For each token of the continuation, the ids whose log-probabilities at its place are wanted.
        wanted: Vec<Vec<u32>>,
    },
}

/// How a model is loaded.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Load {
    /// The GGUF file.
    pub(crate) model: String,
    /// Threads that compute, in prefill and decode.
    pub(crate) threads: usize,
    /// Tokens there must be room for.
    pub(crate) context: usize,
    /// Type of keys and values.
    pub(crate) kv: Kv,
    /// Whether llama.cpp may use its fused attention, which rounds to f16 in between. Esker has nothing like it.
    pub(crate) flash_attention: bool,
    /// Instruction set for Esker; llama.cpp's is fixed when it is compiled.
    pub(crate) isa: Option<String>,
    /// Weights need not fit into memory: Esker takes so many bytes in all; llama.cpp maps the file and leaves weights as
    /// they are in it, so that the kernel may drop pages. `None`: all of the model is in memory.
    pub(crate) memory: Option<u64>,
    /// Where Esker keeps what it measures of disks; only with `memory`.
    pub(crate) probe_folder: Option<String>,
}

/// Types of keys and values that both sides have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kv {
    /// 32 bits.
    F32,
    /// 16 bits.
    F16,
}

/// A continuation that is asked for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Complete {
    /// Not empty.
    pub(crate) prompt: Vec<u32>,
    /// Tokens wanted, at least 1.
    pub(crate) n: usize,
    /// For each token drawn, so many of the likeliest are listed.
    pub(crate) top: usize,
    /// Go on where the model would end.
    pub(crate) ignore_eos: bool,
    /// Keep what the last completion left of the same tokens, and compute only what the prompt has beyond it. Without
    /// this all of the prompt is computed.
    pub(crate) resume: bool,
}

/// Who a side is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Facts {
    /// Name and version of the package.
    pub(crate) version: String,
    /// Instruction sets in use; llama.cpp's own words about it.
    pub(crate) isa: String,
}

/// A model is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Loaded {
    /// From the request to readiness.
    pub(crate) load_ms: f64,
}

/// A continuation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Completion {
    /// Tokens drawn, an end-of-generation token included.
    pub(crate) tokens: Vec<u32>,
    /// Tokens of the prompt that were computed: all of them, or the rest after what was kept.
    pub(crate) prompt_n: usize,
    /// From the prompt's first token to the first token drawn.
    pub(crate) prompt_ms: f64,
    /// From the first token drawn to the last: one decode step less than there are tokens.
    pub(crate) decode_ms: f64,
    /// For each token drawn, the likeliest ones, best first. Empty unless asked for.
    pub(crate) top: Vec<Vec<Candidate>>,
}

/// A token that could have been drawn.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Candidate {
    /// The token.
    pub(crate) id: u32,
    /// In nats, over the whole vocabulary.
    pub(crate) logprob: f64,
}

/// Token ids of a text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Tokens {
    /// The ids.
    pub(crate) tokens: Vec<u32>,
}

/// A rendered chat template.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Rendered {
    /// The prompt; none if the binding offers no way to render the template as llama.cpp does.
    pub(crate) prompt: Option<String>,
}

/// Log-probabilities along a continuation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Scores {
    /// The likeliest token at each place.
    pub(crate) best: Vec<u32>,
    /// Those asked for, in nats.
    pub(crate) logprobs: Vec<Vec<f64>>,
}

/// A reply on its line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reply {
    /// The answer.
    Ok(serde_json::Value),
    /// Why there is none.
    Error(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_flat_objects() {
        let complete = Complete { prompt: vec![1, 2], n: 3, top: 0, ignore_eos: true, resume: false };
        let line = serde_json::to_string(&Request::Complete(complete)).expect("plain data");
        assert_eq!(
            line,
            r#"{"do":"complete","prompt":[1,2],"n":3,"top":0,"ignore_eos":true,"resume":false}"#
        );
        assert_eq!(serde_json::to_string(&Request::Facts).expect("plain data"), r#"{"do":"facts"}"#);
    }

    #[test]
    fn replies_are_told_apart() {
        let read = |line: &str| serde_json::from_str::<Reply>(line).expect("a reply");
        assert_eq!(read(r#"{"error":"no such file"}"#), Reply::Error("no such file".to_owned()));
        let Reply::Ok(value) = read(r#"{"ok":{"load_ms":1.5}}"#) else { panic!("an answer") };
        assert_eq!(serde_json::from_value::<Loaded>(value).expect("its fields"), Loaded { load_ms: 1.5 });
        assert!(serde_json::from_str::<Reply>("Loading model...").is_err());
    }
}
