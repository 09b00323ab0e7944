//! Completions of plain text.

use crate::support::{MODEL, all, merged, shared, tokens};
use serde_json::{Value, json};

fn body(prompt: Value, more: Value) -> Value {
    merged(json!({"model": MODEL, "prompt": prompt, "temperature": 0, "max_tokens": 8}), more)
}

#[test]
fn text_and_tokens_are_the_same_prompt() {
    let text = shared().ask("/v1/completions", &body(json!("Once upon a time"), json!({})));
    assert_eq!(text["object"], "text_completion");
    let ids = shared().ask("/v1/completions", &body(json!(tokens("Once upon a time")), json!({})));
    assert_eq!(text["choices"][0]["text"], ids["choices"][0]["text"]);
    let both = shared().ask("/v1/completions", &body(json!(["Once upon a time", "The"]), json!({})));
    assert_eq!(both["choices"][0]["text"], text["choices"][0]["text"]);
    assert_eq!(both["choices"][1]["index"], 1);
    assert!(both["usage"]["prompt_tokens"].as_u64() > text["usage"]["prompt_tokens"].as_u64());
}

#[test]
fn echo_and_streams() {
    let plain = shared().ask("/v1/completions", &body(json!("The old"), json!({})));
    let echoed = shared().ask("/v1/completions", &body(json!("The old"), json!({"echo": true})));
    let expected = format!("The old{}", plain["choices"][0]["text"].as_str().expect("text"));
    assert_eq!(echoed["choices"][0]["text"], expected);
    let events = all(shared().stream("/v1/completions", &body(json!("The old"), json!({"echo": true}))));
    assert_eq!(events.last().expect("events").data, "[DONE]");
    let text: String = events
        .iter()
        .filter(|e| e.data != "[DONE]")
        .map(|e| e.json()["choices"][0]["text"].as_str().expect("text").to_owned())
        .collect();
    assert_eq!(text, expected);
}

#[test]
fn likelihoods_have_the_old_shape() {
    let answer =
        shared().ask("/v1/completions", &body(json!("The"), json!({"logprobs": 2, "max_tokens": 4})));
    let logprobs = &answer["choices"][0]["logprobs"];
    let list = |name: &str| logprobs[name].as_array().expect("a list").clone();
    let text: String = list("tokens").iter().map(|t| t.as_str().expect("text")).collect();
    assert_eq!(answer["choices"][0]["text"], text);
    assert_eq!(list("token_logprobs").len(), list("text_offset").len());
    assert!(list("top_logprobs").iter().all(|top| top.as_object().is_some_and(|t| t.len() == 2)));
}
