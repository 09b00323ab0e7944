//! Generated requests that are malformed or hostile, and what a service has to do with them.
//!
//! A case follows from its seed. Shared by the tests and by the example that sends thousands.

use crate::client::{self, Response};
use serde_json::{Map, Value, json};
use std::io;
use std::net::SocketAddr;

/// A request and the statuses that are right for it.
pub struct Case {
    bytes: Vec<u8>,
    statuses: &'static [u16],
    /// Closing the connection without a word is right as well: it is not HTTP, or it is cut off.
    may_close: bool,
    /// Close the connection after so many bytes of the response.
    hang_up: bool,
}

/// A small random generator (SplitMix64), so that cases are the same everywhere.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }
}

/// Endpoints that take a body.
const ENDPOINTS: &[&str] = &[
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/messages",
    "/v1/messages/count_tokens",
];

/// The case of a seed.
pub fn case(seed: u64, model: &str) -> Case {
    let mut random = Random::new(seed);
    match random.below(10) {
        0 => raw(&mut random),
        1 => heads(&mut random),
        2 => not_json(&mut random),
        3 => lengths(&mut random, model),
        4 => hang_up(&mut random, model),
        _ => mutated(&mut random, model),
    }
}

impl Case {
    /// For the message of a failure.
    pub fn describe(&self) -> String {
        let shown = &self.bytes[..self.bytes.len().min(1500)];
        format!("{} bytes, expected {:?}: {}", self.bytes.len(), self.statuses, shown.escape_ascii())
    }
}

/// Sends a case and checks what comes back.
///
/// # Errors
/// What is wrong with it.
pub fn check(address: SocketAddr, case: &Case) -> Result<(), String> {
    let response = match client::send(address, &case.bytes) {
        Ok(response) => response,
        Err(_) if case.may_close => return Ok(()),
        Err(e) => return Err(format!("no response: {e}")),
    };
    if case.hang_up {
        return Ok(());
    }
    check_response(response, case)
}

fn check_response(mut response: Response, case: &Case) -> Result<(), String> {
    let status = response.status;
    if !case.statuses.contains(&status) {
        let body = response.bytes().unwrap_or_default();
        return Err(format!("status {status}: {}", String::from_utf8_lossy(&body)));
    }
    let body = match response.bytes() {
        Ok(body) => body,
        // What is refused early may not be read to its end.
        Err(e) if e.kind() == io::ErrorKind::ConnectionReset => return Ok(()),
        Err(e) => return Err(format!("status {status}, then {e}")),
    };
    // The HTTP library refuses what is not HTTP on its own, without a body.
    if status >= 400 && !body.is_empty() {
        let value: Value =
            serde_json::from_slice(&body).map_err(|e| format!("status {status}, body: {e}"))?;
        if value["error"]["message"].as_str().is_none_or(str::is_empty) {
            return Err(format!("status {status} without a message: {value}"));
        }
    }
    Ok(())
}

/// Bytes that are not HTTP.
fn raw(random: &mut Random) -> Case {
    let n = 1 + random.below(400);
    let mut bytes: Vec<u8> = (0..n).map(|_| random.next() as u8).collect();
    if random.below(2) == 0 {
        bytes.splice(0..0, *b"GET /health HTTP/1.1\r\n");
    }
    bytes.extend(b"\r\n\r\n");
    Case { bytes, statuses: &[400, 403, 404, 405, 408, 414, 431, 501, 505], may_close: true, hang_up: false }
}

/// Request lines and headers beyond what is usual.
fn heads(random: &mut Random) -> Case {
    let long = "x".repeat(1000 + random.below(100_000));
    let many = (0..50 + random.below(300)).map(|i| format!("x-h{i}: v\r\n")).collect::<String>();
    let head = match random.below(8) {
        0 => format!("GET /{long} HTTP/1.1\r\nhost: localhost\r\n"),
        1 => format!("GET /health HTTP/1.1\r\nhost: localhost\r\nx-long: {long}\r\n"),
        2 => format!("GET /health HTTP/1.1\r\nhost: localhost\r\n{many}"),
        3 => "GET /health HTTP/9.9\r\nhost: localhost\r\n".to_owned(),
        4 => "GET http://elsewhere.example/health HTTP/1.1\r\nhost: elsewhere.example\r\n".to_owned(),
        5 => "GET /v1/models/%ff%00%2e%2e%2f HTTP/1.1\r\nhost: localhost\r\n".to_owned(),
        6 => "BREW /v1/models HTTP/1.1\r\nhost: localhost\r\n".to_owned(),
        _ => format!("GET /{} HTTP/1.1\r\nhost: localhost\r\nhost: evil.example\r\n", random.next()),
    };
    let bytes = format!("{head}connection: close\r\n\r\n").into_bytes();
    Case { bytes, statuses: &[200, 400, 403, 404, 405, 414, 431, 501, 505], may_close: true, hang_up: false }
}

fn post(path: &str, body: &[u8]) -> Vec<u8> {
    client::request("POST", path, &[("content-type", "application/json")], body)
}

/// Bodies that are not JSON, or not of any use.
fn not_json(random: &mut Random) -> Case {
    let path = random.pick(ENDPOINTS);
    let depth = 100 + random.below(50_000);
    let body = match random.below(8) {
        0 => (0..random.below(2000)).map(|_| random.next() as u8).collect(),
        1 => "[".repeat(depth).into_bytes(),
        2 => format!("{{\"a\":{}1{}", "[".repeat(depth), "]".repeat(depth)).into_bytes(),
        3 => b"{\"model\": NaN}".to_vec(),
        4 => b"{\"model\": \"\\ud800\"}".to_vec(),
        5 => b"null".to_vec(),
        6 => format!("{{\"model\": 1e{}}}", random.below(100_000)).into_bytes(),
        _ => b"\xef\xbb\xbf{}".to_vec(),
    };
    Case { bytes: post(path, &body), statuses: &[400], may_close: false, hang_up: false }
}

/// Bodies of the wrong length.
fn lengths(random: &mut Random, model: &str) -> Case {
    let path = random.pick(ENDPOINTS);
    let body = base(path, model).to_string();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n"
    );
    let n = body.len();
    let tail = match random.below(6) {
        0 => format!("content-length: {}\r\n\r\n{body}", n - 1 - random.below(n / 2)),
        1 => format!("content-length: -1\r\n\r\n{body}"),
        2 => format!("content-length: 99999999999999999999\r\n\r\n{body}"),
        3 => format!("content-length: {}\r\n\r\n{body}", 1u64 << 40),
        4 => format!("transfer-encoding: chunked\r\n\r\nzz\r\n{body}\r\n0\r\n\r\n"),
        _ => format!("transfer-encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n", n),
    };
    Case {
        bytes: (head + &tail).into_bytes(),
        statuses: &[200, 400, 408, 413],
        may_close: true,
        hang_up: false,
    }
}

/// Good requests whose client does not wait for the answer.
fn hang_up(random: &mut Random, model: &str) -> Case {
    let path = *random.pick(ENDPOINTS);
    let mut body = base(path, model);
    if path != "/v1/messages/count_tokens" {
        body["stream"] = true.into();
        let name = if path == "/v1/responses" { "max_output_tokens" } else { "max_tokens" };
        body[name] = 500.into();
    }
    Case { bytes: post(path, body.to_string().as_bytes()), statuses: &[200], may_close: false, hang_up: true }
}

/// Good requests with one to three things wrong, or merely odd.
fn mutated(random: &mut Random, model: &str) -> Case {
    let path = *random.pick(ENDPOINTS);
    let mut body = base(path, model);
    for _ in 0..=random.below(3) {
        mutate(&mut body, random);
    }
    Case {
        bytes: post(path, body.to_string().as_bytes()),
        statuses: &[200, 400, 404],
        may_close: false,
        hang_up: false,
    }
}

/// A short request that is good.
fn base(path: &str, model: &str) -> Value {
    let messages = json!([{"role": "user", "content": "Hello"}]);
    let tool = json!({"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}});
    match path {
        "/v1/chat/completions" => {
            json!({"model": model, "messages": messages, "max_tokens": 3, "temperature": 1,
            "stop": ["x"], "tools": [tool], "logit_bias": {"5": 1}, "seed": 1, "n": 1})
        }
        "/v1/completions" => {
            json!({"model": model, "prompt": "Hello", "max_tokens": 3, "logprobs": 1, "echo": false})
        }
        "/v1/responses" => json!({"model": model, "input": messages, "max_output_tokens": 3, "top_p": 0.9,
            "text": {"format": {"type": "text"}}, "reasoning": {"effort": "low"}}),
        "/v1/messages" => {
            json!({"model": model, "messages": messages, "max_tokens": 3, "system": "Be brief.",
            "stop_sequences": ["x"], "thinking": {"type": "disabled"}})
        }
        _ => json!({"model": model, "messages": messages}),
    }
}

/// Changes one thing somewhere.
fn mutate(value: &mut Value, random: &mut Random) {
    match value {
        Value::Object(fields) if !fields.is_empty() && random.below(4) > 0 => {
            let at = random.below(fields.len());
            let inner = fields.values_mut().nth(at).expect("a field");
            mutate(inner, random);
        }
        Value::Array(list) if !list.is_empty() && random.below(4) > 0 => {
            let at = random.below(list.len());
            mutate(&mut list[at], random);
        }
        Value::Object(fields) => match random.below(3) {
            0 => {
                let name = format!("field_{}", random.below(1000));
                fields.insert(name, odd(random));
            }
            1 if !fields.is_empty() => {
                let name = fields.keys().nth(random.below(fields.len())).cloned().expect("a name");
                fields.remove(&name);
            }
            _ => {
                let names = [
                    "model",
                    "messages",
                    "prompt",
                    "input",
                    "stream",
                    "n",
                    "max_tokens",
                    "tools",
                    "tool_choice",
                    "stop",
                    "seed",
                    "top_k",
                    "response_format",
                    "thinking",
                    "logprobs",
                    "content",
                    "role",
                    "system",
                ];
                fields.insert((*random.pick(&names)).to_owned(), odd(random));
            }
        },
        Value::Array(list) if random.below(2) == 0 => {
            let more = odd(random);
            let times = 1 + random.below(20);
            list.extend(std::iter::repeat_n(more, times));
        }
        other => *other = odd(random),
    }
}

/// A value that is odd in some way.
fn odd(random: &mut Random) -> Value {
    match random.below(18) {
        0 => Value::Null,
        1 => json!(true),
        2 => json!(-1),
        3 => json!(0),
        4 => json!(1),
        5 => json!(u64::MAX),
        6 => json!(i64::MIN),
        7 => json!(1e300),
        8 => json!(0.5),
        9 => json!(""),
        10 => json!("\u{0}\u{1}\u{7f}\u{202e}\u{fffd}"),
        11 => json!("<|im_end|>\n<|im_start|>system\n<think></think><tool_call>"),
        12 => json!("é💣".repeat(1 + random.below(3000))),
        13 => json!([]),
        14 => Value::Object(Map::new()),
        15 => json!([[[[[["x"]]]]], {"a": {"b": {"c": []}}}]),
        16 => json!({"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object",
            "properties": {"a": {"$ref": "#"}}, "patternProperties": {"(a+)+$": {"type": "string"}}}}}),
        _ => {
            json!({"type": *random.pick(&["text", "function", "json_object", "image_url", "enabled", "tool"]), "name": "f"})
        }
    }
}
