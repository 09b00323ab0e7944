//! Messages of the Anthropic API.

use crate::client;
use crate::support::{MODEL, all, merged, shared};
use serde_json::{Value, json};

fn body(text: &str, more: Value) -> Value {
    let body = json!({
        "model": MODEL,
        "max_tokens": 16,
        "temperature": 0,
        "messages": [{"role": "user", "content": text}],
    });
    merged(body, more)
}

#[test]
fn a_message_has_the_fields_of_the_api() {
    let message = shared().ask("/v1/messages", &body("Hello, who are you?", json!({"system": "Be kind."})));
    assert_eq!((&message["type"], &message["role"]), (&json!("message"), &json!("assistant")));
    assert_eq!(message["content"][0]["type"], "text");
    assert!(message["content"][0]["text"].as_str().is_some_and(|text| !text.is_empty()));
    assert!(["end_turn", "max_tokens"].contains(&message["stop_reason"].as_str().expect("a reason")));
    assert!(message["stop_sequence"].is_null());
    let usage = &message["usage"];
    let count = |name: &str| usage[name].as_u64().expect("a count");
    assert!(
        count("input_tokens") + count("cache_read_input_tokens") > 8 && count("output_tokens") >= 1,
        "{usage}"
    );
}

#[test]
fn a_stream_is_the_sequence_of_events_that_clients_expect() {
    let whole = shared().ask("/v1/messages", &body("Tell me a story.", json!({})));
    let events = all(shared().stream("/v1/messages", &body("Tell me a story.", json!({}))));
    for event in &events {
        assert_eq!(event.json()["type"], event.name, "the name is the type");
    }
    let mut names: Vec<&str> = events.iter().map(|e| e.name.as_str()).filter(|n| *n != "ping").collect();
    names.dedup();
    assert_eq!(
        names,
        [
            "message_start",
            "content_block_start",
            "content_block_delta",
            "content_block_stop",
            "message_delta",
            "message_stop"
        ]
    );
    assert!(events.iter().any(|e| e.name == "ping"));
    let text: String = events
        .iter()
        .filter(|e| e.name == "content_block_delta")
        .map(|e| e.json()["delta"]["text"].as_str().expect("text").to_owned())
        .collect();
    assert_eq!(whole["content"][0]["text"], text);
    let delta = events.iter().find(|e| e.name == "message_delta").expect("there").json();
    assert_eq!(delta["delta"]["stop_reason"], whole["stop_reason"]);
    assert_eq!(delta["usage"]["output_tokens"], whole["usage"]["output_tokens"]);
}

#[test]
fn tokens_are_counted_as_they_are_used() {
    let request = body("Hello, who are you?", json!({"system": [{"type": "text", "text": "Be kind."}]}));
    let count = merged(request.clone(), json!({"max_tokens": null, "temperature": null}));
    let counted = shared().ask("/v1/messages/count_tokens", &count);
    let usage = shared().ask("/v1/messages", &request)["usage"].clone();
    let used =
        usage["input_tokens"].as_u64().unwrap_or(0) + usage["cache_read_input_tokens"].as_u64().unwrap_or(0);
    assert_eq!(counted, json!({"input_tokens": used}));
}

#[test]
fn a_forced_tool_and_its_result() {
    let tools = json!([{
        "name": "get_weather",
        "description": "The weather of a city",
        "input_schema": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 12}},
            "required": ["city"],
            "additionalProperties": false,
        },
    }]);
    let choice = json!({"type": "tool", "name": "get_weather", "disable_parallel_tool_use": true});
    let request =
        body("The weather in Oslo?", json!({"tools": tools, "tool_choice": choice, "max_tokens": 80}));
    let message = shared().ask("/v1/messages", &request);
    assert_eq!(message["stop_reason"], "tool_use", "{message}");
    let call = message["content"].as_array().expect("blocks").last().expect("a block").clone();
    assert_eq!((&call["type"], &call["name"]), (&json!("tool_use"), &json!("get_weather")));
    assert!(call["input"]["city"].is_string(), "{call}");

    let events = all(shared().stream("/v1/messages", &request));
    let start = events.iter().find(|e| e.name == "content_block_start").expect("a block").json();
    assert_eq!(start["content_block"]["input"], json!({}));
    let json_text: String = events
        .iter()
        .filter(|e| e.name == "content_block_delta")
        .map(|e| e.json()["delta"]["partial_json"].as_str().expect("JSON text").to_owned())
        .collect();
    assert_eq!(serde_json::from_str::<Value>(&json_text).expect("JSON"), call["input"]);

    let result = json!({"type": "tool_result", "tool_use_id": call["id"], "content": [{"type": "text", "text": "Sunny"}]});
    let messages = json!([
        {"role": "user", "content": "The weather in Oslo?"},
        {"role": "assistant", "content": message["content"]},
        {"role": "user", "content": [result, {"type": "text", "text": "In a word."}]},
    ]);
    let answer = shared().ask("/v1/messages", &body("", json!({"messages": messages, "tools": tools})));
    assert_eq!(answer["type"], "message");
}

#[test]
fn stop_sequences_are_named() {
    let whole = shared().ask("/v1/messages", &body("Hello, who are you?", json!({"max_tokens": 32})));
    let text = whole["content"][0]["text"].as_str().expect("text").to_owned();
    let stop: String = text.chars().skip(3).take(4).collect();
    let cut = shared().ask(
        "/v1/messages",
        &body("Hello, who are you?", json!({"max_tokens": 32, "stop_sequences": [stop]})),
    );
    assert_eq!((&cut["stop_reason"], &cut["stop_sequence"]), (&json!("stop_sequence"), &json!(stop)));
    assert_eq!(cut["content"][0]["text"].as_str(), text.split(&stop).next());
}

#[test]
fn a_call_that_is_cut_off_is_no_call() {
    let tools = json!([{"name": "get_weather", "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string", "minLength": 200}},
        "required": ["city"],
        "additionalProperties": false,
    }}]);
    let more = json!({"tools": tools, "tool_choice": {"type": "any"}, "max_tokens": 24});
    let message = shared().ask("/v1/messages", &body("The weather?", more));
    assert_eq!(message["stop_reason"], "max_tokens", "{message}");
    let blocks = message["content"].as_array().expect("blocks");
    assert!(blocks.iter().all(|block| block["type"] != "tool_use"), "{message}");
    assert!(
        blocks.iter().any(|b| b["text"].as_str().is_some_and(|t| t.starts_with("get_weather("))),
        "{message}"
    );
}

#[test]
fn models_that_do_not_exist_are_refused_in_the_shape_of_the_api() {
    let headers = [("anthropic-version", "2023-06-01")];
    let ask = client::request("GET", "/v1/models/none", &headers, b"");
    let mut response = client::send(shared().address, &ask).expect("a response");
    assert_eq!(response.status, 404);
    let error = response.json();
    assert_eq!(
        (&error["type"], &error["error"]["type"]),
        (&json!("error"), &json!("not_found_error")),
        "{error}"
    );
    assert_eq!(shared().get("/v1/models/none").json()["error"]["code"], "model_not_found");
}
