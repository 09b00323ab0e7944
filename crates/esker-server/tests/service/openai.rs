//! Chat completions.

use crate::support::{MODEL, TestServer, all, chat, config, merged, scripted, shared, tokens};
use serde_json::{Value, json};

#[test]
fn an_answer_has_the_fields_of_the_api() {
    let answer = shared().chat("Hello, who are you?", json!({}));
    assert_eq!(answer["object"], "chat.completion");
    assert_eq!(answer["model"], MODEL);
    assert!(answer["id"].as_str().is_some_and(|id| id.starts_with("chatcmpl-")));
    let choice = &answer["choices"][0];
    assert_eq!(choice["index"], 0);
    assert_eq!(choice["message"]["role"], "assistant");
    assert!(choice["message"]["content"].as_str().is_some_and(|text| !text.is_empty()), "{answer}");
    assert!(["stop", "length"].contains(&choice["finish_reason"].as_str().expect("a reason")));
    let usage = &answer["usage"];
    let count = |name: &str| usage[name].as_u64().expect("a count");
    assert_eq!(count("total_tokens"), count("prompt_tokens") + count("completion_tokens"));
    assert!(count("prompt_tokens") > 5 && (1..=16).contains(&count("completion_tokens")));
}

#[test]
fn a_stream_says_what_the_whole_answer_says() {
    let whole = shared().chat("Tell me a story.", json!({"max_tokens": 24}));
    let body = chat("Tell me a story.", json!({"max_tokens": 24, "stream_options": {"include_usage": true}}));
    let events = all(shared().stream("/v1/chat/completions", &body));
    assert_eq!(events.last().expect("events").data, "[DONE]");
    let chunks: Vec<Value> = events[..events.len() - 1].iter().map(|e| e.json()).collect();
    assert!(chunks.iter().all(|c| c["object"] == "chat.completion.chunk" && c["id"] == chunks[0]["id"]));
    assert_eq!(chunks[0]["choices"][0]["delta"]["role"], "assistant");
    let text: String = chunks.iter().filter_map(|c| c["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(whole["choices"][0]["message"]["content"], text);
    let finish = &chunks[chunks.len() - 2]["choices"][0]["finish_reason"];
    assert_eq!(*finish, whole["choices"][0]["finish_reason"]);
    let last = &chunks[chunks.len() - 1];
    assert_eq!(last["choices"], json!([]));
    assert_eq!(last["usage"]["completion_tokens"], whole["usage"]["completion_tokens"]);
    assert!(chunks[..chunks.len() - 1].iter().all(|c| c["usage"].is_null()));
}

#[test]
fn the_same_seed_gives_the_same_text() {
    let ask = |seed: u64| {
        let body = json!({"temperature": 1.5, "seed": seed, "max_tokens": 12, "top_p": 1});
        shared().chat("Once upon a time", body)["choices"][0]["message"]["content"].clone()
    };
    assert_eq!(ask(7), ask(7));
    assert!((0..4).any(|seed| ask(seed) != ask(7)), "other seeds give other texts");
}

#[test]
fn several_choices() {
    let answer =
        shared().chat("Say something", json!({"n": 3, "temperature": 1.5, "seed": 5, "max_tokens": 12}));
    let choices = answer["choices"].as_array().expect("choices");
    assert_eq!(choices.iter().map(|c| c["index"].as_u64()).collect::<Vec<_>>(), [Some(0), Some(1), Some(2)]);
    let texts: Vec<&Value> = choices.iter().map(|c| &c["message"]["content"]).collect();
    assert!(texts.iter().any(|t| *t != texts[0]), "they differ: {texts:?}");
    // The first is the one that the seed alone gives.
    let alone = shared().chat("Say something", json!({"temperature": 1.5, "seed": 5, "max_tokens": 12}));
    assert_eq!(alone["choices"][0]["message"]["content"], *texts[0]);
}

#[test]
fn stop_strings_are_not_part_of_the_answer() {
    let whole = shared().chat("Hello, who are you?", json!({"max_tokens": 32}));
    let text = whole["choices"][0]["message"]["content"].as_str().expect("text").to_owned();
    let stop: String = text.chars().skip(4).take(3).collect();
    let before = text.split(&stop).next().expect("a beginning").to_owned();
    let cut = shared().chat("Hello, who are you?", json!({"max_tokens": 32, "stop": [stop, "never"]}));
    let choice = &cut["choices"][0];
    assert_eq!((&choice["message"]["content"], &choice["finish_reason"]), (&json!(before), &json!("stop")));
    assert_eq!(choice["esker"]["stop"], stop);
}

#[test]
fn likelihoods_come_with_every_token_of_the_answer() {
    let answer = shared().chat("Hello", json!({"logprobs": true, "top_logprobs": 3, "max_tokens": 8}));
    let choice = &answer["choices"][0];
    let content = choice["logprobs"]["content"].as_array().expect("a list");
    let text: String = content.iter().map(|l| l["token"].as_str().expect("text")).collect();
    assert_eq!(choice["message"]["content"], text);
    for entry in content {
        let top = entry["top_logprobs"].as_array().expect("a list");
        assert_eq!(top.len(), 3);
        // Greedy: what was drawn is the likeliest.
        assert_eq!(top[0]["token"], entry["token"]);
        let p: Vec<f64> = top.iter().map(|t| t["logprob"].as_f64().expect("a number")).collect();
        assert!(p[0] <= 0.0 && p[0] >= p[1] && p[1] >= p[2], "{p:?}");
    }
    let body = chat("Hello", json!({"logprobs": true, "top_logprobs": 3, "max_tokens": 8}));
    let streamed: String = all(shared().stream("/v1/chat/completions", &body))
        .iter()
        .filter(|e| e.data != "[DONE]")
        .flat_map(|e| e.json()["choices"][0]["logprobs"]["content"].as_array().cloned().unwrap_or_default())
        .map(|l| l["token"].as_str().expect("text").to_owned())
        .collect();
    assert_eq!(streamed, text);
}

#[test]
fn a_bias_forbids_and_forces() {
    let answer = shared().chat("Hello", json!({"logprobs": true, "max_tokens": 1}));
    let first = answer["choices"][0]["logprobs"]["content"][0]["token"].as_str().expect("text").to_owned();
    let id = crate::support::tokens(&first)[0].to_string();
    let forbidden = shared().chat("Hello", json!({"logit_bias": {id.clone(): -100}, "max_tokens": 1}));
    assert_ne!(forbidden["choices"][0]["message"]["content"], first);
    let forced = shared().chat("What is your name?", json!({"logit_bias": {id: 100}, "max_tokens": 3}));
    assert_eq!(forced["choices"][0]["message"]["content"], first.repeat(3));
}

#[test]
fn json_by_a_schema() {
    let schema = json!({
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 12}, "n": {"type": "integer", "minimum": 0, "maximum": 99}},
        "required": ["city", "n"],
        "additionalProperties": false,
    });
    let format =
        json!({"type": "json_schema", "json_schema": {"name": "place", "schema": schema, "strict": true}});
    for seed in 0..3 {
        let body = json!({"response_format": format, "temperature": 0.5, "seed": seed, "max_tokens": 400,
            "reasoning_effort": "none"});
        let answer = shared().chat("A city", body);
        let text = answer["choices"][0]["message"]["content"].as_str().expect("text");
        let value: Value = serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {answer}"));
        let fields = value.as_object().expect("an object");
        assert_eq!(fields.keys().collect::<Vec<_>>(), ["city", "n"]);
        assert!(value["n"].as_u64().is_some_and(|n| n <= 99) && value["city"].is_string(), "{value}");
    }
}

fn weather() -> Value {
    json!([{"type": "function", "function": {
        "name": "get_weather",
        "description": "The weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 12}},
            "required": ["city"],
            "additionalProperties": false,
        },
    }}])
}

#[test]
fn a_required_call_is_made_and_its_arguments_are_streamed() {
    let more = json!({"tools": weather(), "tool_choice": "required", "parallel_tool_calls": false, "max_tokens": 80});
    let answer = shared().chat("What is the weather in Oslo?", more.clone());
    let choice = &answer["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls", "{answer}");
    assert_eq!(choice["message"]["content"], Value::Null);
    let call = &choice["message"]["tool_calls"][0];
    assert_eq!((&call["type"], &call["function"]["name"]), (&json!("function"), &json!("get_weather")));
    let arguments = call["function"]["arguments"].as_str().expect("text");
    let parsed: Value = serde_json::from_str(arguments).expect("JSON");
    assert!(parsed["city"].is_string(), "{arguments}");

    let events = all(shared().stream("/v1/chat/completions", &chat("What is the weather in Oslo?", more)));
    let chunks: Vec<Value> = events.iter().filter(|e| e.data != "[DONE]").map(|e| e.json()).collect();
    let deltas: Vec<&Value> =
        chunks.iter().map(|c| &c["choices"][0]["delta"]["tool_calls"][0]).filter(|d| !d.is_null()).collect();
    assert_eq!(deltas[0]["function"]["name"], "get_weather");
    assert!(deltas[0]["id"].as_str().is_some_and(|id| id.starts_with("call_")));
    let streamed: String = deltas.iter().filter_map(|d| d["function"]["arguments"].as_str()).collect();
    assert_eq!(streamed, arguments);
    assert!(deltas.len() > 3, "arguments come in pieces: {deltas:?}");
}

#[test]
fn tools_that_may_not_be_called_stay_in_the_prompt() {
    let ask = |more: Value| shared().chat("What is the weather in Bergen?", more);
    let auto = ask(json!({"tools": weather(), "max_tokens": 4}));
    let none = ask(json!({"tools": weather(), "tool_choice": "none", "max_tokens": 4}));
    let without = ask(json!({"max_tokens": 4}));
    let count = |answer: &Value| answer["usage"]["prompt_tokens"].as_u64().expect("a count");
    assert_eq!(count(&auto), count(&none));
    assert!(count(&without) < count(&none));
    let cached = none["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().expect("a count");
    assert!(cached + 8 >= count(&none), "{cached} of {}", count(&none));
}

#[test]
fn a_call_that_is_not_allowed_is_not_made() {
    let call = tokens(
        "I look.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\"}}\n</tool_call><|im_end|>",
    );
    let start = tokens("<|im_start|>assistant\n");
    // Says what is in `call`, whatever was asked.
    let script = move |held: &[u32]| {
        let at = held.windows(start.len()).rposition(|w| w == start).map_or(0, |at| at + start.len());
        call[(held.len() - at).min(call.len() - 1)]
    };
    let server = TestServer::start_with(config(), Some(scripted(script)));
    let ask = |more: Value| {
        server
            .chat("What is the weather in Oslo?", merged(json!({"max_tokens": 60, "tools": weather()}), more))
    };
    let auto = ask(json!({}));
    assert_eq!(auto["choices"][0]["finish_reason"], "tool_calls", "{auto}");
    let none = ask(json!({"tool_choice": "none"}));
    let message = &none["choices"][0]["message"];
    assert!(message["tool_calls"].is_null(), "{none}");
    assert!(message["content"].as_str().is_some_and(|text| text.starts_with("I look.")), "{none}");
}

#[test]
fn an_answer_in_a_form_may_also_be_a_call() {
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 99}},
        "required": ["n"], "additionalProperties": false});
    let format = json!({"type": "json_schema", "json_schema": {"name": "n", "schema": schema}});
    for seed in 0..4 {
        let more = json!({"tools": weather(), "response_format": format, "temperature": 1, "seed": seed,
            "max_tokens": 300, "reasoning_effort": "none"});
        let answer = shared().chat("A number", more);
        let choice = &answer["choices"][0];
        match choice["finish_reason"].as_str() {
            Some("tool_calls") => {
                let arguments = choice["message"]["tool_calls"][0]["function"]["arguments"].as_str();
                let parsed: Result<Value, _> = serde_json::from_str(arguments.expect("text"));
                assert!(parsed.is_ok_and(|arguments| arguments.is_object()), "{answer}");
            }
            Some("stop") => {
                let text = choice["message"]["content"].as_str().expect("text");
                let value: Value = serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {answer}"));
                assert!(value["n"].is_u64(), "{answer}");
            }
            // Arguments of tools that are not strict may be long.
            _ => assert_eq!(choice["finish_reason"], "length", "{answer}"),
        }
    }
}

#[test]
fn an_answer_that_is_over_costs_no_further_token() {
    let format = json!({"type": "json_schema", "json_schema": {"name": "n", "schema": {"enum": ["a"]}}});
    let more = json!({"response_format": format, "logprobs": true, "reasoning_effort": "none"});
    let answer = shared().chat("Say a", more);
    let choice = &answer["choices"][0];
    assert_eq!((&choice["message"]["content"], &choice["finish_reason"]), (&json!("\"a\""), &json!("stop")));
    let reported = choice["logprobs"]["content"].as_array().expect("tokens").len() as u64;
    assert_eq!(answer["usage"]["completion_tokens"].as_u64(), Some(reported), "{answer}");
}

#[test]
fn several_system_messages_are_one() {
    let ask = |system: Value| {
        let mut messages = system.as_array().expect("a list").clone();
        messages.push(json!({"role": "user", "content": "Hello"}));
        let answer = shared().chat("", json!({"messages": messages, "max_tokens": 4}));
        answer["usage"]["prompt_tokens"].as_u64().expect("a count")
    };
    let system = |text: &str| json!({"role": "system", "content": text});
    let two = ask(json!([system("Be brief."), {"role": "developer", "content": "Be kind."}]));
    assert_eq!(two, ask(json!([system("Be brief.\n\nBe kind.")])));
}

#[test]
fn a_second_round_has_the_result_of_the_call() {
    let call = json!({"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": "{\"city\": \"Oslo\"}"}});
    let messages = json!([
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "What is the weather in Oslo?"}]},
        {"role": "assistant", "content": null, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "Sunny, 20 degrees"},
    ]);
    let answer = shared().chat("", json!({"messages": messages, "tools": weather(), "tool_choice": "none"}));
    assert!(answer["choices"][0]["message"]["tool_calls"].is_null(), "{answer}");
    assert!(answer["usage"]["prompt_tokens"].as_u64().is_some_and(|n| n > 20));
}

#[test]
fn a_conversation_that_goes_on_reuses_its_beginning() {
    let long = "Tell me about the lakes of the north, their fish and their islands. ".repeat(6);
    let first = shared().chat(&long, json!({"max_tokens": 12}));
    let said = first["choices"][0]["message"]["content"].clone();
    let messages = json!([
        {"role": "user", "content": long},
        {"role": "assistant", "content": said},
        {"role": "user", "content": "And the rivers?"},
    ]);
    let second = shared().chat("", json!({"messages": messages, "max_tokens": 12}));
    let cached = second["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().expect("a count");
    let before = first["usage"]["prompt_tokens"].as_u64().expect("a count");
    // All but the end of the prompt, where the assistant's turn begins, at least.
    assert!(cached + 8 >= before, "{cached} of {before}");
    let fresh = crate::support::TestServer::start(crate::support::config());
    let alone = fresh.chat("", json!({"messages": messages, "max_tokens": 12}));
    assert_eq!(alone["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
    assert_eq!(alone["choices"][0]["message"]["content"], second["choices"][0]["message"]["content"]);
}

#[test]
fn a_conversation_goes_on_after_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = || {
        let mut config = crate::support::config();
        config.engine.snapshot_dir = Some(folder.path().to_owned());
        config
    };
    let long = "Tell me about the lakes of the north, their fish and their islands. ".repeat(6);
    let first = crate::support::TestServer::start(config());
    let said = first.chat(&long, json!({"max_tokens": 12}));
    drop(first);
    let messages = json!([
        {"role": "user", "content": long},
        {"role": "assistant", "content": said["choices"][0]["message"]["content"]},
        {"role": "user", "content": "And the rivers?"},
    ]);
    let ask = |server: &crate::support::TestServer| {
        server.chat("", json!({"messages": messages, "max_tokens": 12}))
    };
    let second = ask(&crate::support::TestServer::start(config()));
    let cached = second["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().expect("a count");
    let before = said["usage"]["prompt_tokens"].as_u64().expect("a count");
    assert!(cached + 8 >= before, "{cached} of {before}");
    let fresh = ask(&crate::support::TestServer::start(crate::support::config()));
    assert_eq!(fresh["choices"][0]["message"]["content"], second["choices"][0]["message"]["content"]);
}
