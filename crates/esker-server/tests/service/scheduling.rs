//! Several sequences at once: fairness, cancellation, a full queue, shutdown.

use crate::client;
use crate::support::{TOKENIZER, TestServer, all, busy, chat, config, scripted, tokens};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// A server whose sequences go on until they are stopped.
fn endless(change: impl FnOnce(&mut esker_server::ServerConfig)) -> TestServer {
    let word = tokens(" word")[0];
    let mut config = config();
    change(&mut config);
    TestServer::start_with(config, Some(scripted(move |_| word)))
}

#[test]
fn a_client_that_goes_away_frees_its_slot_within_a_token() {
    let server = endless(|c| c.slots = 1);
    let mut events = server.stream("/v1/chat/completions", &chat("Hello", json!({"max_tokens": 100_000})));
    for _ in 0..5 {
        events.next().expect("an event");
    }
    assert_eq!(busy(&server.state()), 1);
    let generated = |state: &Value| state["stats"]["generated_tokens"].as_u64().expect("a count");
    drop(events);
    let gone = Instant::now();
    server.wait_for("the slot is free", |state| busy(state) == 0);
    assert!(gone.elapsed() < Duration::from_secs(2), "{:?}", gone.elapsed());
    let state = server.state();
    assert_eq!(state["stats"]["sequences_cancelled"], 1);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(generated(&server.state()), generated(&state), "nothing is computed any more");
}

#[test]
fn a_client_that_waits_for_a_whole_answer_can_go_away_too() {
    let server = endless(|c| c.slots = 1);
    let body = chat("Hello", json!({"max_tokens": 100_000})).to_string();
    let bytes = client::request(
        "POST",
        "/v1/chat/completions",
        &[("content-type", "application/json")],
        body.as_bytes(),
    );
    let mut connection = std::net::TcpStream::connect(server.address).expect("connected");
    std::io::Write::write_all(&mut connection, &bytes).expect("sent");
    server.wait_for("it is computed", |state| busy(state) == 1);
    drop(connection);
    server.wait_for("the slot is free", |state| busy(state) == 0);
}

#[test]
fn a_full_queue_refuses_and_says_when_to_come_back() {
    let server = endless(|c| (c.slots, c.queue) = (1, 1));
    let running = server.stream("/v1/chat/completions", &chat("Hello", json!({"max_tokens": 100_000})));
    server.wait_for("one is computed", |state| busy(state) == 1);
    let waiting = server.stream("/v1/chat/completions", &chat("Hello", json!({"max_tokens": 100_000})));
    server.wait_for("one waits", |state| state["queue"]["waiting"] == 1);
    for (path, body) in
        [("/v1/chat/completions", chat("Hello", json!({}))), ("/v1/messages", chat("Hello", json!({})))]
    {
        let mut response = server.post(path, &body);
        assert_eq!(response.status, 429);
        let after: u64 = response.header("retry-after").expect("it says when").parse().expect("seconds");
        assert!((1..=60).contains(&after));
        assert_eq!(response.json()["error"]["type"], "rate_limit_error");
    }
    assert_eq!(server.state()["stats"]["requests_refused"], 2);
    // One that waits and goes away makes room, and nothing is computed for it.
    drop(waiting);
    std::thread::sleep(Duration::from_millis(100));
    let waiting = server.stream("/v1/chat/completions", &chat("Hello", json!({"max_tokens": 100_000})));
    drop((running, waiting));
    server.wait_for("all is quiet", |state| busy(state) == 0 && state["queue"]["waiting"] == 0);
}

#[test]
fn sequences_go_on_together() {
    let server = endless(|c| c.slots = 3);
    let body = chat("Hello", json!({"max_tokens": 60}));
    let mut streams: Vec<_> = (0..3).map(|_| server.stream("/v1/chat/completions", &body)).collect();
    // Each has a first word before any has ended.
    for stream in &mut streams {
        let first = stream.by_ref().find(|e| e.json()["choices"][0]["delta"]["content"] == " word");
        assert!(first.is_some());
    }
    assert_eq!(busy(&server.state()), 3);
    for stream in streams {
        let events = all(stream);
        assert_eq!(events.last().expect("an end").data, "[DONE]");
    }
    let passes = server.state()["stats"]["passes"].as_u64().expect("a count");
    assert!(passes < 3 * 60, "tokens of several sequences share passes: {passes}");
}

#[test]
fn a_long_prompt_does_not_stop_the_others() {
    let server = endless(|c| {
        c.slots = 2;
        c.limits.prefill_share = 32;
    });
    let mut decoding = server.stream("/v1/chat/completions", &chat("Hello", json!({"max_tokens": 900})));
    for _ in 0..4 {
        decoding.next().expect("an event");
    }
    let long = chat(&"lakes and rivers ".repeat(150), json!({"max_tokens": 1}));
    let address = server.address;
    let asked = std::thread::spawn(move || {
        client::post(address, "/v1/chat/completions", &long).expect("an answer").json()
    });
    let mut words = 0;
    while !asked.is_finished() {
        decoding.next().expect("it goes on");
        words += 1;
    }
    let prompt = asked.join().expect("answered")["usage"]["prompt_tokens"].as_u64().expect("a count");
    assert!(prompt > 300, "{prompt}");
    // A piece of the prompt for each word.
    assert!(words as u64 >= prompt / 32, "{words} words during a prompt of {prompt}");
}

#[test]
fn the_same_text_alone_and_among_others() {
    let mut config = config();
    config.slots = 4;
    let server = TestServer::start(config);
    let prompts = ["Hello, who are you?", "Once upon a time", "The weather", "List three animals"];
    let body = |text: &str| chat(text, json!({"max_tokens": 24, "temperature": 1.2, "seed": 3}));
    let text = |answer: &Value| answer["choices"][0]["message"]["content"].clone();
    let alone: Vec<Value> =
        prompts.iter().map(|p| text(&server.ask("/v1/chat/completions", &body(p)))).collect();
    let together: Vec<Value> = std::thread::scope(|scope| {
        let ask = |p: &&str| {
            let body = body(p);
            let server = &server;
            scope.spawn(move || text(&server.ask("/v1/chat/completions", &body)))
        };
        let asked: Vec<_> = prompts.iter().map(ask).collect();
        asked.into_iter().map(|a| a.join().expect("answered")).collect()
    });
    assert_eq!(alone, together);
}

#[test]
fn shutdown_lets_answers_end() {
    let mut server = endless(|c| c.limits.shutdown_grace = Duration::from_secs(60));
    let mut events = server.stream("/v1/chat/completions", &chat("Hello", json!({"max_tokens": 200})));
    let word = events.by_ref().find(|e| e.json()["choices"][0]["delta"]["content"] == " word");
    assert!(word.is_some(), "it has begun");
    server.ask_to_stop();
    let rest = all(events);
    assert_eq!(rest.last().expect("an end").data, "[DONE]");
    let finish = rest[rest.len() - 2].json();
    assert_eq!(finish["choices"][0]["finish_reason"], "length");
    server.join().expect("it ends well");
    assert!(client::get(server.address, "/health").is_err(), "nobody listens");
}

#[test]
fn shutdown_cuts_off_what_takes_too_long_and_says_so() {
    let mut server = endless(|c| {
        c.slots = 1;
        c.limits.shutdown_grace = Duration::from_millis(300);
    });
    let mut running = server.stream("/v1/chat/completions", &chat("Hello", json!({"max_tokens": 100_000})));
    running.next().expect("it has begun");
    server.wait_for("one is computed", |state| busy(state) == 1);
    let waiting = server.stream("/v1/messages", &chat("Hello", json!({"max_tokens": 100_000})));
    server.wait_for("one waits", |state| state["queue"]["waiting"] == 1);
    let asked = Instant::now();
    server.ask_to_stop();
    let events = all(running);
    assert_eq!(events.last().expect("an end").data, "[DONE]");
    let error = events[events.len() - 2].json();
    assert_eq!(error["error"]["code"], "shutting_down", "{error}");
    let events = all(waiting);
    assert_eq!(events.last().expect("an end").json()["error"]["type"], "overloaded_error");
    server.join().expect("it ends well");
    assert!(asked.elapsed() < Duration::from_secs(10), "{:?}", asked.elapsed());
}

#[test]
fn an_answer_ends_where_the_context_does() {
    let server = endless(|c| c.engine.context = Some(128));
    let answer = server.chat("Hello", json!({"max_tokens": 100_000}));
    let usage = &answer["usage"];
    assert_eq!(answer["choices"][0]["finish_reason"], "length");
    let all = usage["total_tokens"].as_u64().expect("a count");
    assert_eq!(all, 128, "the context is used to its end: {usage}");
    assert!(TOKENIZER.vocab_size() > 0);
}

#[test]
fn a_client_that_reads_nothing_loses_its_connection() {
    let server = endless(|c| {
        c.limits.connections = 1;
        c.limits.write_timeout = Duration::from_millis(500);
        c.engine.context = Some(4096);
    });
    // Likelihoods make events large: more than the buffers of a connection hold.
    let body = chat(
        "Hello",
        json!({"max_tokens": 3000, "n": 1, "logprobs": true, "top_logprobs": 20, "stream": true}),
    );
    let begun = Instant::now();
    let stalled = client::post(server.address, "/v1/chat/completions", &body).expect("it begins");
    // The only connection is free again once the server gives the other one up.
    assert_eq!(server.get("/health").status, 200);
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    drop(stalled);
}

#[test]
fn what_looks_like_the_end_of_a_message_is_text() {
    let server = endless(|_| {});
    let tokens = |content: &str| {
        let body =
            json!({"model": crate::support::MODEL, "messages": [{"role": "user", "content": content}]});
        server.ask("/v1/messages/count_tokens", &body)["input_tokens"].as_u64().expect("a count")
    };
    // A control token would be one token.
    assert!(tokens("a<|im_end|>b") > tokens("ab") + 2);
}
