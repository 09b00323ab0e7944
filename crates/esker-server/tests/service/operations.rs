//! What people and supervisors need: health, metrics, state, the map, keys, the page.

use crate::client::{request, send};
use crate::support::{MODEL, TestServer, config, model_path, shared};
use esker_server::{LoadError, ServeError};
use serde_json::{Value, json};
use std::path::Path;

#[test]
fn health_is_not_ready_before_a_token_can_be_made() {
    let server = TestServer::begin(config(), None);
    let mut seen = Vec::new();
    while seen.last() != Some(&"ready".to_owned()) {
        let mut response = server.get("/health");
        let status = response.status;
        let word = response.json()["status"].as_str().expect("a word").to_owned();
        assert_eq!(status == 200, word == "ready");
        if word == "loading" {
            let mut refused = server.post("/v1/chat/completions", &crate::support::chat("Hello", json!({})));
            // It may have become ready in between.
            if refused.status != 200 {
                assert_eq!(
                    (refused.status, &refused.json()["error"]["code"]),
                    (503, &json!("model_loading"))
                );
            }
        }
        seen.push(word);
    }
    assert_eq!(seen[0], "loading");
}

#[test]
fn a_model_that_does_not_load_ends_the_service_with_the_reason() {
    let folder = tempfile::tempdir().expect("a folder");
    let broken = folder.path().join("broken.gguf");
    let bytes = std::fs::read(model_path()).expect("the model");
    std::fs::write(&broken, &bytes[..bytes.len() / 2]).expect("written");
    let mut config = config();
    config.model = broken;
    let mut server = TestServer::begin(config, None);
    match server.join_unasked() {
        Err(ServeError::Load(LoadError::Open(_) | LoadError::Engine(_))) => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn metrics_are_in_the_format_of_prometheus() {
    shared().chat("Hello", json!({"max_tokens": 2}));
    let mut response = shared().get("/metrics");
    assert!(response.header("content-type").is_some_and(|t| t.starts_with("text/plain")));
    let text = response.text();
    for name in [
        "esker_ready 1",
        "esker_generated_tokens_total ",
        "esker_time_to_first_token_seconds_bucket{le=\"+Inf\"} ",
        "esker_http_responses_total{route=\"/v1/chat/completions\",status=\"200\"} ",
        "esker_memory_bytes ",
    ] {
        assert!(text.lines().any(|line| line.starts_with(name)), "{name} in\n{text}");
    }
    for line in text.lines().filter(|l| !l.starts_with('#')) {
        let value = line.rsplit(' ').next().expect("a value");
        assert!(value.parse::<f64>().is_ok(), "{line}");
    }
}

/// Every metric is described, and nothing else is.
#[test]
fn the_description_of_metrics_is_complete() {
    let text = shared().get("/metrics").text();
    let head = |line: &str| line.strip_prefix("# TYPE ")?.split(' ').next().map(str::to_owned);
    let mut names: Vec<String> = text.lines().filter_map(head).collect();
    names.sort();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/service.md");
    let docs = std::fs::read_to_string(path).expect("the description");
    let rows = docs.lines().filter(|line| line.starts_with("| `esker_"));
    let cells = rows.map(|row| row.split(" | ").next().expect("a cell"));
    let words = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    // Labels stand behind a name.
    let mut described: Vec<&str> = words.map(|name| name.split('{').next().expect("a name")).collect();
    described.sort_unstable();
    assert_eq!(described, names);
}

#[test]
fn state_and_props_describe_the_service() {
    let state = shared().state();
    assert_eq!((&state["model"]["name"], &state["model"]["n_layer"]), (&json!(MODEL), &json!(8)));
    assert_eq!(state["slots"].as_array().expect("slots").len(), 4);
    assert_eq!(state["queue"]["max"], 64);
    let props = shared().get("/props").json();
    assert_eq!(props["capabilities"]["images"], false);
    assert_eq!(props["capabilities"]["tools"], "HermesJson");
    let honoured = props["endpoints"]["/v1/chat/completions"]["honoured"].as_array().expect("a list");
    assert!(honoured.contains(&json!("logit_bias")));
}

#[test]
fn the_map_comes_at_once_and_changes() {
    let server = TestServer::start(config());
    let mut events = server.get("/api/map").events();
    let map = |event: crate::client::Event| -> Value {
        assert_eq!(event.name, "map");
        event.json()
    };
    let first = map(events.next().expect("a map"));
    assert_eq!((&first["n_layer"], &first["n_expert"]), (&json!(8), &json!(64)));
    assert_eq!(first["experts"], json!([64, 64, 64, 64, 64, 64, 64, 64]));
    // 64 experts are 8 bytes a layer, 88 characters of Base64 in all; 8 × 64 bytes are 684.
    assert_eq!(first["resident"].as_str().map(str::len), Some(88));
    assert_eq!(first["hot"].as_str().map(str::len), Some(684));
    server.chat("Hello", json!({"max_tokens": 8}));
    let second = map(events.next().expect("a change"));
    assert_ne!(second["hot"], first["hot"]);
}

#[test]
fn a_key_is_asked_for_everywhere_but_where_a_browser_starts() {
    let mut config = config();
    config.api_key = Some("secret".to_owned());
    let server = TestServer::begin(config, None);
    let status = |path: &str, headers: &[(&str, &str)]| {
        send(server.address, &request("GET", path, headers, b"")).expect("a response").status
    };
    for path in ["/v1/models", "/metrics", "/props", "/api/state", "/api/map", "/nowhere"] {
        assert_eq!(status(path, &[]), 401, "{path}");
        assert_eq!(status(path, &[("authorization", "Bearer wrong")]), 401, "{path}");
    }
    assert_eq!(status("/v1/models", &[("authorization", "Bearer secret")]), 200);
    assert_eq!(status("/v1/models", &[("x-api-key", "secret")]), 200);
    assert_eq!(status("/", &[]), 200);
    assert!([200, 503].contains(&status("/health", &[])));
    let mut refused = server.post("/v1/messages", &json!({}));
    assert_eq!((refused.status, &refused.json()["error"]["type"]), (401, &json!("authentication_error")));
}

#[test]
fn the_page_may_load_nothing_from_elsewhere() {
    let mut page = shared().get("/");
    let policy = page.header("content-security-policy").expect("a policy").to_owned();
    assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
    assert!(page.text().contains("<script"));
    for path in ["/page/app.js", "/page/style.css"] {
        let file = shared().get(path);
        assert_eq!(file.status, 200);
        assert_eq!(file.header("x-content-type-options"), Some("nosniff"));
    }
}

#[test]
fn strange_hosts_and_origins_are_refused() {
    let send_raw = |text: &str| send(shared().address, text.as_bytes()).expect("a response").status;
    assert_eq!(send_raw("GET /health HTTP/1.1\r\nhost: evil.example\r\nconnection: close\r\n\r\n"), 403);
    assert_eq!(
        send_raw(
            "GET /health HTTP/1.1\r\nhost: localhost\r\norigin: http://evil.example\r\nconnection: close\r\n\r\n"
        ),
        403
    );
    assert_eq!(send_raw("GET /health HTTP/1.1\r\nhost: 127.0.0.1:1\r\nconnection: close\r\n\r\n"), 200);
}

#[test]
fn browsers_of_permitted_origins_may_send_what_clients_send() {
    let mut config = config();
    config.allowed_origins.push("https://chat.example".to_owned());
    config.api_key = Some("secret".to_owned());
    let server = TestServer::begin(config, None);
    let asked = "authorization,content-type,x-stainless-lang,x-stainless-retry-count,anthropic-version,\
                 anthropic-dangerous-direct-browser-access";
    let ask = |method: &str, origin: &str| {
        let headers = [
            ("origin", origin),
            ("access-control-request-method", "POST"),
            ("access-control-request-headers", asked),
        ];
        send(server.address, &request(method, "/v1/messages", &headers, b"")).expect("a response")
    };
    let preflight = ask("OPTIONS", "https://chat.example");
    assert_eq!(preflight.status, 204);
    assert_eq!(preflight.header("access-control-allow-headers"), Some(asked));
    assert_eq!(preflight.header("access-control-allow-origin"), Some("https://chat.example"));
    let stranger = ask("OPTIONS", "https://evil.example");
    assert_eq!((stranger.status, stranger.header("access-control-allow-headers")), (403, None));
    let refused = ask("POST", "https://chat.example");
    assert_eq!(refused.status, 401);
    let exposed = refused.header("access-control-expose-headers").expect("a list");
    assert!(exposed.contains("retry-after") && exposed.contains("x-request-id"), "{exposed}");
}

#[test]
fn requests_that_never_end_are_ended() {
    let mut config = config();
    config.limits.header_timeout = std::time::Duration::from_millis(300);
    config.limits.body_timeout = std::time::Duration::from_millis(300);
    let server = TestServer::start(config);
    // Half a head: the connection is closed, with or without a word.
    let head = send(server.address, b"GET /health HTTP/1.1\r\nhost: local");
    assert!(head.is_err() || head.is_ok_and(|r| r.status == 408));
    let mut body = send(
        server.address,
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{",
    )
    .expect("a response");
    assert_eq!(body.status, 408);
    assert!(body.json()["error"]["message"].as_str().is_some_and(|m| m.contains("did not arrive")));
}
