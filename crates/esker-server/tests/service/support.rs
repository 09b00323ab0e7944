//! Servers of the shipped model for tests, and what draws their tokens.

use crate::client::{self, Event, Events, Response};
use esker_engine::Sampling;
use esker_gguf::Gguf;
use esker_server::{Draw, DrawFactory, ServeError, Server, ServerConfig};
use esker_text::{EncodeOptions, Tokenizer};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{LazyLock, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// The name under which tests serve the model.
pub const MODEL: &str = "small";

/// The shipped model.
pub fn model_path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../models/esker-moe-64m-small.gguf")
}

/// Its tokenizer.
pub static TOKENIZER: LazyLock<Tokenizer> = LazyLock::new(|| {
    let gguf = Gguf::open(&model_path()).expect("the shipped model opens");
    esker_engine::tokenizer(&gguf).expect("it has a vocabulary")
});

/// Tokens of a text, control tokens recognised.
pub fn tokens(text: &str) -> Vec<u32> {
    TOKENIZER.encode(text, EncodeOptions { special: true, add_bos_eos: false }).expect("text can be encoded")
}

/// A configuration for tests: any port, one compute thread.
pub fn config() -> ServerConfig {
    let mut config = ServerConfig::new(model_path(), MODEL.to_owned());
    config.address = SocketAddr::from(([127, 0, 0, 1], 0));
    config.engine.threads = Some(1);
    config.engine.context = Some(1024);
    config.engine.snapshot_bytes = 32 << 20;
    config
}

/// A server in this process. Dropping it shuts it down.
pub struct TestServer {
    pub address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<Result<(), ServeError>>>,
}

impl TestServer {
    /// Starts one and waits until it is ready.
    pub fn start(config: ServerConfig) -> TestServer {
        TestServer::start_with(config, None)
    }

    /// As [`start`](Self::start), with something else that draws tokens.
    pub fn start_with(config: ServerConfig, draw: Option<DrawFactory>) -> TestServer {
        let server = TestServer::begin(config, draw);
        let begun = Instant::now();
        while client::get(server.address, "/health").expect("it listens").status != 200 {
            assert!(begun.elapsed() < Duration::from_secs(120), "the model loads in time");
            std::thread::sleep(Duration::from_millis(20));
        }
        server
    }

    /// Starts one and does not wait for the model.
    pub fn begin(config: ServerConfig, draw: Option<DrawFactory>) -> TestServer {
        let (stop, stopped) = oneshot::channel::<()>();
        let (tell, address) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
            runtime.expect("a runtime").block_on(async {
                let mut server = Server::bind(config).await?;
                if let Some(draw) = draw {
                    server = server.with_draw(draw);
                }
                tell.send(server.address()).expect("the test waits");
                server
                    .run(async {
                        let _ = stopped.await;
                    })
                    .await
            })
        });
        let address = address.recv().expect("the server listens");
        TestServer { address, stop: Some(stop), thread: Some(thread) }
    }

    /// Asks it to end, and does not wait.
    pub fn ask_to_stop(&mut self) {
        self.stop.take().map(|stop| stop.send(()));
    }

    /// Waits for its end, which it has to come to on its own.
    pub fn join_unasked(&mut self) -> Result<(), ServeError> {
        self.thread.take().expect("joined once").join().expect("the server does not panic")
    }

    /// Waits for its end.
    pub fn join(&mut self) -> Result<(), ServeError> {
        self.ask_to_stop();
        self.join_unasked()
    }

    pub fn get(&self, path: &str) -> Response {
        client::get(self.address, path).expect("a response")
    }

    pub fn post(&self, path: &str, body: &Value) -> Response {
        client::post(self.address, path, body).expect("a response")
    }

    /// POSTs, and expects a good answer.
    pub fn ask(&self, path: &str, body: &Value) -> Value {
        let mut response = self.post(path, body);
        let status = response.status;
        let value = response.json();
        assert_eq!(status, 200, "{value}");
        value
    }

    /// POSTs, and expects a stream.
    pub fn stream(&self, path: &str, body: &Value) -> Events {
        let mut body = body.clone();
        body["stream"] = true.into();
        let mut response = self.post(path, &body);
        let status = response.status;
        assert_eq!(status, 200, "{}", if status == 200 { String::new() } else { response.text() });
        assert_eq!(response.header("content-type"), Some("text/event-stream"));
        response.events()
    }

    /// A chat completion with greedy sampling, some fields replaced or added.
    pub fn chat(&self, text: &str, more: Value) -> Value {
        self.ask("/v1/chat/completions", &chat(text, more))
    }

    /// `/api/state`.
    pub fn state(&self) -> Value {
        self.get("/api/state").json()
    }

    /// Waits until a condition of the state holds.
    pub fn wait_for(&self, what: &str, condition: impl Fn(&Value) -> bool) {
        let begun = Instant::now();
        while !condition(&self.state()) {
            assert!(begun.elapsed() < Duration::from_secs(60), "{what}: {}", self.state());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.ask_to_stop();
        if let Some(thread) = self.thread.take()
            && !std::thread::panicking()
        {
            thread.join().expect("the server does not panic").expect("the server ends well");
        }
    }
}

/// The server that tests share which do not need their own.
pub fn shared() -> &'static TestServer {
    static SHARED: OnceLock<TestServer> = OnceLock::new();
    SHARED.get_or_init(|| TestServer::start(config()))
}

/// Slots of a state that compute something.
pub fn busy(state: &Value) -> usize {
    let slots = state["slots"].as_array().expect("slots");
    slots.iter().filter(|slot| slot["state"] != "idle").count()
}

/// The body of a chat completion with greedy sampling, some fields replaced or added.
pub fn chat(text: &str, more: Value) -> Value {
    let body = json!({
        "model": MODEL,
        "messages": [{"role": "user", "content": text}],
        "temperature": 0,
        "max_tokens": 16,
    });
    merged(body, more)
}

/// The fields of `more` on top of those of `body`; `null` removes one.
pub fn merged(mut body: Value, more: Value) -> Value {
    let (Value::Object(fields), Value::Object(more)) = (&mut body, more) else { panic!("objects") };
    for (name, value) in more {
        match value {
            Value::Null => fields.remove(&name),
            value => fields.insert(name, value),
        };
    }
    body
}

/// All events of a stream.
pub fn all(events: Events) -> Vec<Event> {
    events.collect()
}

/// What draws tokens by a function of all tokens so far.
pub fn scripted(script: impl Fn(&[u32]) -> u32 + Send + Sync + Clone + 'static) -> DrawFactory {
    struct Script<F>(F);
    impl<F: Fn(&[u32]) -> u32 + Send> Draw for Script<F> {
        fn draw(&mut self, _logits: &[f32], recent: &[u32], allowed: Option<&[u32]>) -> Option<u32> {
            let token = (self.0)(recent);
            let bit = |bits: &[u32]| {
                bits.get(token as usize / 32).is_some_and(|word| word >> (token % 32) & 1 == 1)
            };
            if allowed.is_none_or(bit) {
                return Some(token);
            }
            // The grammar decides: its first token.
            let (i, word) = allowed?.iter().enumerate().find(|(_, word)| **word != 0)?;
            Some(i as u32 * 32 + word.trailing_zeros())
        }
    }
    Box::new(move |_: &Sampling, _| Ok(Box::new(Script(script.clone()))))
}
