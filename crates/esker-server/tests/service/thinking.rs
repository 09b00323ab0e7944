//! Reasoning and its budget, with a model that thinks as long as it may.

use crate::support::{TOKENIZER, TestServer, all, chat, config, merged, scripted, tokens};
use esker_server::{DEFAULT_CLOSING_SENTENCE, DrawFactory};
use serde_json::{Value, json};
use std::sync::LazyLock;

/// Opens its reasoning, thinks for `thoughts` tokens, closes it and answers. Whatever closes the reasoning, it goes on
/// with the answer.
fn thinker(thoughts: usize) -> DrawFactory {
    let one = |text: &str| TOKENIZER.special_token(text).unwrap_or_else(|| panic!("{text} is a token"));
    let (open, close, turn, end) = (one("<think>"), one("</think>"), one("<|im_start|>"), one("<|im_end|>"));
    let [thought] = tokens(THOUGHT)[..] else { panic!("one token is a thought") };
    let answer = tokens("It is blue.");
    let gap = tokens("\n\n");
    scripted(move |all| {
        let begin = all.iter().rposition(|&t| t == turn).expect("the turn has begun");
        let said = &all[begin..];
        match (said.iter().position(|&t| t == open), said.iter().rposition(|&t| t == close)) {
            (None, None) => open,
            (Some(at), None) if said.len() - at <= thoughts => thought,
            (Some(_), None) => close,
            (_, Some(at)) => {
                let after = &said[at + 1..];
                let after = after.strip_prefix(&*gap).unwrap_or(after);
                answer.get(after.len()).copied().unwrap_or(end)
            }
        }
    })
}

const THOUGHTS: usize = 100;
const THOUGHT: &str = " the";

static SERVER: LazyLock<TestServer> = LazyLock::new(|| {
    let mut config = config();
    config.thinking.answer_reserve = 32;
    TestServer::start_with(config, Some(thinker(THOUGHTS)))
});

fn ask(more: Value) -> Value {
    SERVER.chat("What colour is the sky?", merged(json!({"max_tokens": 400}), more))
}

fn thoughts(answer: &Value) -> usize {
    let reasoning = answer["choices"][0]["message"]["reasoning_content"].as_str().unwrap_or("");
    reasoning
        .split(DEFAULT_CLOSING_SENTENCE.trim())
        .next()
        .unwrap_or("")
        .split_whitespace()
        .filter(|w| *w == THOUGHT.trim())
        .count()
}

/// Checks that the answer has room, and what was done to the reasoning.
fn check(answer: &Value, thought: usize, injected: Option<&str>) {
    let choice = &answer["choices"][0];
    assert_eq!(choice["message"]["content"], "It is blue.", "{answer}");
    assert_eq!(choice["finish_reason"], "stop");
    assert_eq!(thoughts(answer), thought, "{answer}");
    assert_eq!(choice["esker"]["thinking"]["injected"].as_str(), injected);
}

fn sentence() -> String {
    format!("{DEFAULT_CLOSING_SENTENCE}</think>\n\n")
}

#[test]
fn without_a_budget_reasoning_is_as_long_as_it_is() {
    let answer = ask(json!({}));
    check(&answer, THOUGHTS, None);
    let usage = &answer["usage"]["completion_tokens_details"];
    // The closing tag is reasoning as well.
    assert_eq!(usage["reasoning_tokens"], THOUGHTS + 1);
}

#[test]
fn without_a_budget_there_is_room_for_an_answer() {
    for max_tokens in [40, 60, 120] {
        let answer = ask(json!({"max_tokens": max_tokens}));
        let reserve = 32.min(max_tokens / 2);
        let limit = max_tokens - reserve;
        assert_eq!(answer["choices"][0]["esker"]["thinking"]["limit"], limit);
        if limit <= THOUGHTS {
            check(&answer, limit, Some(&sentence()));
        } else {
            check(&answer, THOUGHTS, None);
        }
    }
}

#[test]
fn a_small_budget_ends_reasoning_early_and_says_so() {
    let answer = ask(json!({"thinking_budget": 10}));
    check(&answer, 10, Some(&sentence()));
    let reasoning = answer["choices"][0]["message"]["reasoning_content"].as_str().expect("text");
    assert!(reasoning.ends_with(DEFAULT_CLOSING_SENTENCE.trim_end()), "{reasoning}");
    let report = &answer["choices"][0]["esker"]["thinking"];
    assert_eq!(report["injected_tokens"], tokens(&sentence()).len());
    assert_eq!(report["limit"], 10);
}

#[test]
fn a_large_budget_changes_nothing() {
    check(&ask(json!({"thinking_budget": 300})), THOUGHTS, None);
    check(&ask(json!({"reasoning_effort": "high"})), THOUGHTS, None);
}

#[test]
fn a_budget_of_nothing_is_no_reasoning() {
    // The template closes the reasoning before it begins.
    for more in [
        json!({"thinking_budget": 0}),
        json!({"reasoning_effort": "none"}),
        json!({"chat_template_kwargs": {"enable_thinking": false}}),
    ] {
        check(&ask(more), 0, None);
    }
}

#[test]
fn the_sentence_can_be_another_one_or_none() {
    let answer = ask(json!({"thinking_budget": 10, "thinking_closing_sentence": " Enough!\n"}));
    check(&answer, 10, Some(" Enough!\n</think>\n\n"));
    let answer = ask(json!({"thinking_budget": 10, "thinking_closing_sentence": ""}));
    check(&answer, 10, Some("</think>\n\n"));
}

#[test]
fn it_can_be_turned_off() {
    let answer = ask(json!({"thinking_budget": 10, "thinking_close": false}));
    check(&answer, THOUGHTS, None);
    let answer = ask(json!({"max_tokens": 50, "thinking_close": false}));
    let choice = &answer["choices"][0];
    assert_eq!((&choice["finish_reason"], &choice["message"]["content"]), (&json!("length"), &json!("")));
    assert!(
        choice["esker"]["thinking"]["injected"].is_null() && choice["esker"]["thinking"]["limit"].is_null()
    );
}

#[test]
fn streams_have_the_sentence_as_reasoning() {
    let body = chat("What colour is the sky?", json!({"max_tokens": 400, "thinking_budget": 10}));
    let events = all(SERVER.stream("/v1/chat/completions", &body));
    let chunks: Vec<Value> = events.iter().filter(|e| e.data != "[DONE]").map(|e| e.json()).collect();
    let join = |field: &str| -> String {
        chunks.iter().filter_map(|c| c["choices"][0]["delta"][field].as_str()).collect()
    };
    assert!(join("reasoning_content").contains(DEFAULT_CLOSING_SENTENCE.trim()), "{chunks:?}");
    assert_eq!(join("content"), "It is blue.");
    let end = chunks.last().expect("an end");
    assert_eq!(end["choices"][0]["esker"]["thinking"]["injected"], sentence());
}

#[test]
fn anthropic_has_blocks_of_thinking() {
    let body = chat(
        "What colour is the sky?",
        json!({"max_tokens": 400, "thinking": {"type": "enabled", "budget_tokens": 10}}),
    );
    let message = SERVER.ask("/v1/messages", &body);
    let content = message["content"].as_array().expect("blocks");
    assert_eq!(content.len(), 2, "{message}");
    assert_eq!((&content[0]["type"], &content[1]["text"]), (&json!("thinking"), &json!("It is blue.")));
    assert!(content[0]["signature"].as_str().is_some_and(|s| !s.is_empty()));
    assert_eq!(message["esker"]["thinking"]["injected"], sentence());
    let events = all(SERVER.stream("/v1/messages", &body));
    let kinds: Vec<String> = events
        .iter()
        .filter(|e| e.name == "content_block_start")
        .map(|e| e.json()["content_block"]["type"].as_str().expect("a type").to_owned())
        .collect();
    assert_eq!(kinds, ["thinking", "text"]);
    assert!(events.iter().any(|e| e.json()["delta"]["type"] == "signature_delta"));
    // What it thought can be sent back.
    let messages = json!([
        {"role": "user", "content": "What colour is the sky?"},
        {"role": "assistant", "content": content},
        {"role": "user", "content": "And the sea?"},
    ]);
    SERVER.ask("/v1/messages", &chat("", json!({"messages": messages})));
    let off = chat("The sky?", json!({"max_tokens": 400, "thinking": {"type": "disabled"}}));
    assert_eq!(SERVER.ask("/v1/messages", &off)["content"][0]["type"], "text");
}

#[test]
fn responses_have_items_of_reasoning() {
    let body = json!({
        "model": crate::support::MODEL,
        "input": "What colour is the sky?",
        "max_output_tokens": 400,
        "reasoning": {"effort": "low", "summary": "auto"},
        "include": ["reasoning.encrypted_content"],
    });
    let response = SERVER.ask("/v1/responses", &body);
    let items = response["output"].as_array().expect("items");
    assert_eq!((&items[0]["type"], &items[1]["type"]), (&json!("reasoning"), &json!("message")));
    assert_eq!(response["usage"]["output_tokens_details"]["reasoning_tokens"], THOUGHTS + 1);
    // The items can be sent back, with the reasoning only in what is called encrypted.
    let mut reasoning = items[0].clone();
    reasoning.as_object_mut().expect("an object").remove("content");
    let input = json!([{"role": "user", "content": "The sky?"}, reasoning, items[1], {"role": "user", "content": "The sea?"}]);
    SERVER.ask("/v1/responses", &json!({"model": crate::support::MODEL, "input": input}));
    let events = all(SERVER.stream("/v1/responses", &body));
    assert!(events.iter().any(|e| e.name == "response.reasoning_text.delta"));
}

#[test]
fn a_schema_waits_for_the_end_of_the_reasoning() {
    let format =
        json!({"type": "json_schema", "json_schema": {"name": "x", "schema": {"enum": ["It is blue."]}}});
    let answer = ask(json!({"response_format": format, "thinking_budget": 10}));
    let choice = &answer["choices"][0];
    assert_eq!(choice["message"]["content"], "\"It is blue.\"", "{answer}");
    assert_eq!(thoughts(&answer), 10);
}

/// A template that opens the reasoning itself and knows no switch, as some models have it.
const ALWAYS: &str = "{%- for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{%- endfor %}\
    {{- '<|im_start|>assistant\n<think>\n' }}{# </think> #}";

#[test]
fn reasoning_that_the_prompt_opens_can_be_turned_off_and_bounded() {
    let mut config = config();
    config.chat_template = Some(ALWAYS.to_owned());
    let server = TestServer::start_with(config, Some(thinker(THOUGHTS)));
    let ask = |more: Value| server.chat("What colour is the sky?", merged(json!({"max_tokens": 400}), more));
    check(&ask(json!({})), THOUGHTS - 1, None);
    check(&ask(json!({"thinking_budget": 10})), 10, Some(&sentence()));
    for off in [json!({"thinking_budget": 0}), json!({"reasoning_effort": "none"})] {
        check(&ask(off), 0, Some("\n</think>\n\n"));
    }
    let format =
        json!({"type": "json_schema", "json_schema": {"name": "x", "schema": {"enum": ["It is blue."]}}});
    let answer = ask(json!({"response_format": format, "thinking_budget": 0}));
    assert_eq!(answer["choices"][0]["message"]["content"], "\"It is blue.\"", "{answer}");
}

#[test]
fn a_template_without_tools_is_given_none() {
    let mut config = config();
    config.chat_template =
        Some("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}".to_owned());
    let server = TestServer::start(config);
    let props = server.get("/props").json();
    assert!(props["capabilities"]["tools"].is_null());
    let tools = json!([{"type": "function", "function": {"name": "f"}}]);
    let mut refused = server.post("/v1/chat/completions", &chat("Hello", json!({"tools": tools})));
    assert_eq!((refused.status, &refused.json()["error"]["param"]), (400, &json!("tools")));
}

#[test]
fn what_closes_reasoning_has_to_fit_as_well() {
    let mut config = config();
    config.chat_template = Some(ALWAYS.to_owned());
    config.engine.context = Some(24);
    let server = TestServer::start_with(config, Some(thinker(THOUGHTS)));
    let sizes: Vec<u16> = (1..24)
        .map(|n| {
            let text = " the".repeat(n);
            let mut response = server.post(
                "/v1/chat/completions",
                &chat(&text, json!({"thinking_budget": 0, "max_tokens": null})),
            );
            let body = response.json();
            match response.status {
                200 => assert!(body["usage"]["completion_tokens"].as_u64().is_some_and(|n| n > 0), "{body}"),
                _ => assert_eq!(body["error"]["code"], "context_length_exceeded", "{body}"),
            }
            response.status
        })
        .collect();
    assert!(sizes.contains(&200) && sizes.contains(&400) && sizes.is_sorted(), "{sizes:?}");
}
