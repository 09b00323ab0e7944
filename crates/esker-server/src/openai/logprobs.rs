//! Likelihoods of tokens, in the shapes of the endpoints.

use crate::generation::TokenLogprob;
use serde_json::{Value, json};

/// As chat completions and responses have them.
pub(super) fn content(logprobs: &[TokenLogprob]) -> Value {
    logprobs.iter().map(token).collect()
}

fn token(l: &TokenLogprob) -> Value {
    let top = l.top.iter().map(|(_, bytes, logprob)| entry(bytes, *logprob));
    let mut out = entry(&l.bytes, l.logprob);
    out["top_logprobs"] = top.collect();
    out
}

fn entry(bytes: &[u8], logprob: f32) -> Value {
    json!({"token": text(bytes), "logprob": finite(logprob), "bytes": bytes})
}

/// As legacy completions have them; `offset`: characters of text before the first token.
pub(super) fn legacy(logprobs: &[TokenLogprob], mut offset: usize) -> Value {
    let mut offsets = Vec::with_capacity(logprobs.len());
    for l in logprobs {
        offsets.push(offset);
        offset += text(&l.bytes).chars().count();
    }
    let top = |l: &TokenLogprob| -> Value {
        l.top
            .iter()
            .map(|(_, bytes, logprob)| (text(bytes), json!(finite(*logprob))))
            .collect::<serde_json::Map<_, _>>()
            .into()
    };
    json!({
        "tokens": logprobs.iter().map(|l| text(&l.bytes)).collect::<Vec<_>>(),
        "token_logprobs": logprobs.iter().map(|l| finite(l.logprob)).collect::<Vec<_>>(),
        "top_logprobs": logprobs.iter().map(top).collect::<Vec<_>>(),
        "text_offset": offsets,
    })
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// JSON has no infinities; OpenAI writes -9999 for what is impossible.
fn finite(logprob: f32) -> f32 {
    if logprob.is_finite() { logprob } else { -9999.0 }
}
