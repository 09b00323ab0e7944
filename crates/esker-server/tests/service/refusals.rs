//! What is refused, with which status, shape, name and code.

use crate::client::{request, send};
use crate::support::{MODEL, chat, merged, shared};
use serde_json::{Value, json};

/// POSTs and expects a refusal; returns its error object.
fn refused(path: &str, body: &Value, status: u16) -> Value {
    let mut response = shared().post(path, body);
    let found = response.status;
    let value = response.json();
    assert_eq!(found, status, "{body}: {value}");
    value["error"].clone()
}

fn chat_refused(more: Value, param: &str) -> Value {
    let error = refused("/v1/chat/completions", &chat("Hello", more), 400);
    assert_eq!(error["param"], param, "{error}");
    assert_eq!(error["type"], "invalid_request_error");
    error
}

#[test]
fn parameters_that_are_not_honoured_are_named() {
    let error = chat_refused(json!({"colour": "red"}), "colour");
    assert_eq!(error["code"], "unknown_parameter");
    assert_eq!(chat_refused(json!({"store": true}), "store")["code"], "unsupported_parameter");
    chat_refused(json!({"service_tier": "flex"}), "service_tier");
    chat_refused(json!({"modalities": ["text", "audio"]}), "modalities");
    chat_refused(json!({"functions": []}), "functions");
    chat_refused(json!({"web_search_options": {}}), "web_search_options");
    chat_refused(json!({"stream_options": {"include_usage": true}}), "stream_options");
    chat_refused(json!({"stream": true, "stream_options": {"x": 1}}), "stream_options.x");
    // Harmless, and absent by another word.
    shared().chat("Hello", json!({"max_tokens": 1, "user": "u", "metadata": {"a": "b"}, "store": false}));
    let mut nulls = chat("Hello", json!({"max_tokens": 1}));
    for name in ["stop", "tools", "seed", "logit_bias", "response_format", "colour"] {
        nulls[name] = Value::Null;
    }
    shared().ask("/v1/chat/completions", &nulls);
}

#[test]
fn values_out_of_range_are_named() {
    chat_refused(json!({"temperature": 3}), "temperature");
    chat_refused(json!({"temperature": "hot"}), "temperature");
    chat_refused(json!({"top_p": -0.1}), "top_p");
    chat_refused(json!({"n": 0}), "n");
    chat_refused(json!({"n": 1000}), "n");
    chat_refused(json!({"max_tokens": 0}), "max_tokens");
    chat_refused(json!({"max_tokens": 5, "max_completion_tokens": 6}), "max_tokens");
    chat_refused(json!({"max_tokens": 1.5}), "max_tokens");
    chat_refused(json!({"top_logprobs": 3}), "top_logprobs");
    chat_refused(json!({"logprobs": true, "top_logprobs": 99}), "top_logprobs");
    chat_refused(json!({"stop": [""]}), "stop[0]");
    chat_refused(json!({"stop": 5}), "stop");
    chat_refused(json!({"seed": 1.5}), "seed");
    chat_refused(json!({"logit_bias": {"x": 1}}), "logit_bias");
    chat_refused(json!({"logit_bias": {"5": 101}}), "logit_bias.5");
    let error = chat_refused(json!({"logit_bias": {"99999999": 1}}), "logit_bias");
    assert!(error["message"].as_str().is_some_and(|m| m.contains("99999999")), "{error}");
    chat_refused(json!({"reasoning_effort": "extreme"}), "reasoning_effort");
    chat_refused(json!({"response_format": {"type": "xml"}}), "response_format.type");
    chat_refused(
        json!({"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}}),
        "response_format.json_schema.schema",
    );
    for name in ["messages", "tools", "add_generation_prompt"] {
        chat_refused(json!({"chat_template_kwargs": {name: true}}), &format!("chat_template_kwargs.{name}"));
    }
    chat_refused(json!({"tool_choice": "required"}), "tool_choice");
    chat_refused(json!({"tools": [{"type": "web_search"}]}), "tools[0].type");
    chat_refused(
        json!({"tools": [{"type": "function", "function": {"name": "a b"}}]}),
        "tools[0].function.name",
    );
}

#[test]
fn wrong_messages_are_named() {
    let check = |messages: Value, param: &str| chat_refused(json!({"messages": messages}), param);
    check(json!([]), "messages");
    check(json!("Hello"), "messages");
    check(json!([5]), "messages[0]");
    check(json!([{"role": "user"}]), "messages[0].content");
    check(json!([{"content": "x"}]), "messages[0].role");
    check(json!([{"role": "robot", "content": "x"}]), "messages[0].role");
    check(json!([{"role": "user", "content": "x", "mood": "good"}]), "messages[0].mood");
    check(json!([{"role": "user", "content": [{"type": "text"}]}]), "messages[0].content[0].text");
    check(json!([{"role": "tool", "content": "x"}]), "messages[0].tool_call_id");
    check(json!([{"role": "assistant", "content": null}]), "messages[0].content");
    let image = json!([{"role": "user", "content": [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,xx"}},
    ]}]);
    let error = check(image, "messages[0].content[1]");
    assert_eq!(error["code"], "images_unsupported");
    let missing = refused("/v1/chat/completions", &json!({"model": MODEL}), 400);
    assert_eq!(
        (&missing["param"], &missing["code"]),
        (&json!("messages"), &json!("missing_required_parameter"))
    );
}

#[test]
fn prompts_that_do_not_fit_are_refused_with_both_numbers() {
    let error =
        chat_refused(json!({"messages": [{"role": "user", "content": "word ".repeat(2000)}]}), "messages");
    assert_eq!(error["code"], "context_length_exceeded");
    assert!(error["message"].as_str().is_some_and(|m| m.contains("1024")), "{error}");
    let huge = refused("/v1/completions", &json!({"model": MODEL, "prompt": "x".repeat(3 << 20)}), 400);
    assert_eq!(huge["code"], "context_length_exceeded");
    let ids = refused("/v1/completions", &json!({"model": MODEL, "prompt": [1, 99_999_999]}), 400);
    assert_eq!(ids["param"], "prompt");
}

#[test]
fn models_that_do_not_exist() {
    let error = refused("/v1/chat/completions", &chat("Hello", json!({"model": "gpt-9"})), 404);
    assert_eq!((&error["code"], &error["param"]), (&json!("model_not_found"), &json!("model")));
    let mut response = shared().get("/v1/models/gpt-9");
    assert_eq!((response.status, &response.json()["error"]["code"]), (404, &json!("model_not_found")));
    assert_eq!(shared().get(&format!("/v1/models/{MODEL}")).json()["id"], MODEL);
    assert_eq!(shared().get("/v1/models").json()["data"][0]["id"], MODEL);
}

#[test]
fn anthropic_errors_have_their_own_shape() {
    let body = json!({"model": MODEL, "max_tokens": 4, "messages": [{"role": "user", "content": "Hello"}]});
    let check = |more: Value, status: u16, kind: &str, names: &str| {
        let mut response = shared().post("/v1/messages", &merged(body.clone(), more));
        assert_eq!(response.status, status);
        let value = response.json();
        assert_eq!((&value["type"], &value["error"]["type"]), (&json!("error"), &json!(kind)), "{value}");
        assert!(value["error"]["message"].as_str().is_some_and(|m| m.contains(names)), "{value}");
    };
    check(json!({"max_tokens": null}), 400, "invalid_request_error", "`max_tokens` is missing");
    check(json!({"mood": 1}), 400, "invalid_request_error", "`mood`");
    check(json!({"model": "claude"}), 404, "not_found_error", "`claude`");
    check(
        json!({"thinking": {"type": "enabled"}}),
        400,
        "invalid_request_error",
        "`thinking.budget_tokens` is missing",
    );
    check(
        json!({"tools": [{"type": "bash_20250124", "name": "bash"}]}),
        400,
        "invalid_request_error",
        "`tools[0].type`",
    );
    let image = json!([{"role": "user", "content": [{"type": "image", "source": {}}]}]);
    check(json!({"messages": image}), 400, "invalid_request_error", "images cannot be read");
    let begun = json!([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]);
    check(json!({"messages": begun}), 400, "invalid_request_error", "`messages`");
}

#[test]
fn responses_refuse_what_needs_a_memory() {
    let body = json!({"model": MODEL, "input": "Hello"});
    let check = |more: Value, param: &str| {
        let error = refused("/v1/responses", &merged(body.clone(), more), 400);
        assert_eq!(error["param"], param, "{error}");
    };
    check(json!({"store": true}), "store");
    check(json!({"previous_response_id": "resp_1"}), "previous_response_id");
    check(json!({"conversation": "conv_1"}), "conversation");
    check(json!({"background": true}), "background");
    check(json!({"truncation": "auto"}), "truncation");
    check(json!({"include": ["file_search_call.results"]}), "include[0]");
    check(json!({"tools": [{"type": "web_search"}]}), "tools[0].type");
    check(json!({"input": [{"type": "item_reference", "id": "x"}]}), "input[0]");
    check(
        json!({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}),
        "input[0].content[0]",
    );
}

#[test]
fn routes_methods_and_bodies() {
    let address = shared().address;
    let check = |method: &str, path: &str, headers: &[(&str, &str)], body: &[u8], status: u16| {
        let mut response = send(address, &request(method, path, headers, body)).expect("a response");
        assert_eq!(response.status, status, "{method} {path} {headers:?}");
        assert!(response.header("x-request-id").is_some_and(|id| id.starts_with("req_")));
        let value = response.json();
        assert!(value["error"]["message"].as_str().is_some_and(|m| !m.is_empty()), "{value}");
    };
    let json_type = ("content-type", "application/json");
    check("GET", "/v2/models", &[], b"", 404);
    check("GET", "/v1/chat/completions", &[], b"", 405);
    check("DELETE", "/v1/models", &[], b"", 405);
    check("POST", "/v1/chat/completions", &[], b"{}", 415);
    check("POST", "/v1/chat/completions", &[("content-type", "text/plain")], b"{}", 415);
    check("POST", "/v1/chat/completions", &[json_type], b"", 400);
    check("POST", "/v1/chat/completions", &[json_type], b"{\"model\":", 400);
    check("POST", "/v1/chat/completions", &[json_type], b"[1]", 400);
    check("POST", "/v1/chat/completions", &[json_type], b"\xff\xfe", 400);
    check("POST", "/v1/chat/completions", &[json_type], "[".repeat(100_000).as_bytes(), 400);
    check("POST", "/v1/chat/completions", &[json_type], &vec![b' '; (4 << 20) + 1], 413);
    check("POST", "/v1/completions", &[json_type], format!("[{}0]", "0,".repeat(1 << 18)).as_bytes(), 413);
}

#[test]
fn ids_of_requests_are_kept_if_they_are_plain() {
    let id = |given: &str| {
        let headers = [("x-request-id", given)];
        let response = send(shared().address, &request("GET", "/health", &headers, b"")).expect("a response");
        response.header("x-request-id").expect("an id").to_owned()
    };
    assert_eq!(id("my-request.7"), "my-request.7");
    assert!(id("two words").starts_with("req_"));
    assert!(id(&"x".repeat(65)).starts_with("req_"));
}
