//! The Responses API.

use crate::support::{MODEL, all, merged, shared};
use serde_json::{Value, json};

fn body(input: Value, more: Value) -> Value {
    merged(json!({"model": MODEL, "input": input, "temperature": 0, "max_output_tokens": 16}), more)
}

#[test]
fn a_response_has_the_fields_of_the_api() {
    let response = shared()
        .ask("/v1/responses", &body(json!("Hello, who are you?"), json!({"instructions": "Be kind."})));
    assert_eq!(response["object"], "response");
    let item = &response["output"][0];
    assert_eq!((&item["type"], &item["role"]), (&json!("message"), &json!("assistant")));
    assert_eq!(item["content"][0]["type"], "output_text");
    assert_eq!(response["store"], false);
    assert!(["completed", "incomplete"].contains(&response["status"].as_str().expect("a status")));
    let incomplete = response["status"] == "incomplete";
    assert_eq!(response["incomplete_details"]["reason"] == "max_output_tokens", incomplete);
    assert!(response["usage"]["input_tokens"].as_u64().is_some_and(|n| n > 8));
}

#[test]
fn a_stream_is_numbered_and_complete() {
    let whole = shared().ask("/v1/responses", &body(json!("Tell me a story."), json!({})));
    let events = all(shared().stream("/v1/responses", &body(json!("Tell me a story."), json!({}))));
    for (i, event) in events.iter().enumerate() {
        let data = event.json();
        assert_eq!((&data["type"], &data["sequence_number"]), (&json!(event.name), &json!(i)));
    }
    let mut names: Vec<&str> = events.iter().map(|e| e.name.as_str()).collect();
    names.dedup();
    let end = format!("response.{}", whole["status"].as_str().expect("a status"));
    assert_eq!(
        names,
        [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.content_part.added",
            "response.output_text.delta",
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            &end,
        ]
    );
    let last = events.last().expect("events").json();
    assert_eq!(last["response"]["output"][0]["content"], whole["output"][0]["content"]);
}

#[test]
fn a_call_and_its_output() {
    let tools = json!([{
        "type": "function",
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 12}},
            "required": ["city"],
            "additionalProperties": false,
        },
        "strict": true,
    }]);
    let more = json!({"tools": tools, "tool_choice": "required", "parallel_tool_calls": false, "max_output_tokens": 80});
    let response = shared().ask("/v1/responses", &body(json!("The weather in Oslo?"), more.clone()));
    let call = response["output"].as_array().expect("items").last().expect("an item").clone();
    assert_eq!(
        (&call["type"], &call["name"]),
        (&json!("function_call"), &json!("get_weather")),
        "{response}"
    );
    let arguments: Value = serde_json::from_str(call["arguments"].as_str().expect("text")).expect("JSON");
    assert!(arguments["city"].is_string());

    let events = all(shared().stream("/v1/responses", &body(json!("The weather in Oslo?"), more)));
    let streamed: String = events
        .iter()
        .filter(|e| e.name == "response.function_call_arguments.delta")
        .map(|e| e.json()["delta"].as_str().expect("text").to_owned())
        .collect();
    assert_eq!(call["arguments"], streamed);

    let input = json!([
        {"role": "user", "content": [{"type": "input_text", "text": "The weather in Oslo?"}]},
        call,
        {"type": "function_call_output", "call_id": call["call_id"], "output": "Sunny"},
    ]);
    let answer = shared().ask("/v1/responses", &body(input, json!({"tools": tools, "tool_choice": "none"})));
    assert_eq!(answer["output"][0]["type"], "message");
}

#[test]
fn a_call_that_is_cut_off_is_not_complete() {
    let tools = json!([{"type": "function", "name": "get_weather", "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string", "minLength": 200}},
        "required": ["city"],
        "additionalProperties": false,
    }}]);
    let more = json!({"tools": tools, "tool_choice": "required", "max_output_tokens": 24});
    let last = |output: &Value| output.as_array().expect("items").last().expect("an item").clone();
    let response = shared().ask("/v1/responses", &body(json!("The weather?"), more.clone()));
    assert_eq!(response["status"], "incomplete");
    let call = last(&response["output"]);
    assert_eq!(
        (&call["type"], &call["status"]),
        (&json!("function_call"), &json!("incomplete")),
        "{response}"
    );
    let events = all(shared().stream("/v1/responses", &body(json!("The weather?"), more)));
    let end = events.last().expect("events").json();
    assert_eq!(end["type"], "response.incomplete");
    assert_eq!(last(&end["response"]["output"])["status"], "incomplete", "{end}");
}

#[test]
fn text_format_is_a_schema() {
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer", "maximum": 99, "minimum": 0}},
        "required": ["n"], "additionalProperties": false});
    let text = json!({"format": {"type": "json_schema", "name": "n", "schema": schema}});
    let response = shared().ask(
        "/v1/responses",
        &body(
            json!("A number"),
            json!({"text": text, "max_output_tokens": 100, "reasoning": {"effort": "none"}}),
        ),
    );
    let answer = response["output"][0]["content"][0]["text"].as_str().expect("text");
    assert!(serde_json::from_str::<Value>(answer).expect("JSON")["n"].is_u64(), "{answer}");
}
