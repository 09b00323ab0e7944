//! Server-sent events: events of the engine, encoded by an API, as a response body.
//!
//! Source: WHATWG HTML, "Server-sent events". Data is JSON on one line, so it needs no splitting.

use crate::error::ApiError;
use crate::generation::{Event, Running};
use axum::body::Body;
use axum::http::HeaderValue;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::Response;
use bytes::Bytes;
use futures_util::Stream;
use futures_util::stream::unfold;
use serde::Serialize;
use std::convert::Infallible;
use std::time::Duration;

/// Something is sent at least this often, so that nothing in between takes the connection for dead.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// Text of events that are to be sent.
#[derive(Debug, Default)]
pub(crate) struct SseBuffer(String);

impl SseBuffer {
    /// An event without a name.
    pub fn data(&mut self, value: &impl Serialize) {
        self.0.push_str("data: ");
        self.json(value);
        self.0.push_str("\n\n");
    }

    /// An event with a name.
    pub fn event(&mut self, name: &str, value: &impl Serialize) {
        self.0.push_str("event: ");
        self.0.push_str(name);
        self.0.push('\n');
        self.data(value);
    }

    /// `[DONE]`, which ends a stream of the OpenAI API.
    pub fn done(&mut self) {
        self.0.push_str("data: [DONE]\n\n");
    }

    /// What clients ignore.
    pub fn comment(&mut self, text: &str) {
        self.0.push_str(": ");
        self.0.push_str(text);
        self.0.push_str("\n\n");
    }

    fn json(&mut self, value: &impl Serialize) {
        match serde_json::to_string(value) {
            Ok(text) => self.0.push_str(&text),
            Err(e) => tracing::error!(error = %e, "an event could not be written"),
        }
    }

    /// Takes the text.
    pub fn take(&mut self) -> Bytes {
        Bytes::from(std::mem::take(&mut self.0))
    }
}

/// Writes the events of a request as an API has them.
pub(crate) trait Encode: Send + 'static {
    /// What comes before everything else.
    fn start(&mut self, out: &mut SseBuffer);
    /// An event of a choice that has not failed.
    fn event(&mut self, choice: usize, event: Event, out: &mut SseBuffer);
    /// All choices have finished.
    fn end(&mut self, out: &mut SseBuffer);
    /// A choice has failed: nothing comes after this.
    fn failed(&mut self, error: &ApiError, out: &mut SseBuffer);
    /// Nothing has happened for a while.
    fn keep_alive(&mut self, out: &mut SseBuffer) {
        out.comment("keep-alive");
    }
}

/// The response that streams a request. Dropping its body cancels the request.
pub(crate) fn stream(running: Running, encoder: impl Encode) -> Response {
    let open = running.choices;
    let state = State { running, encoder, open, started: false };
    response(unfold(Some(state), |state| async {
        let mut state = state?;
        let mut out = SseBuffer::default();
        let go_on = state.next(&mut out).await;
        Some((Ok(out.take()), go_on.then_some(state)))
    }))
}

/// A response with a body of events.
pub(crate) fn response(stream: impl Stream<Item = Result<Bytes, Infallible>> + Send + 'static) -> Response {
    let mut response = Response::new(Body::from_stream(stream));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // Proxies that collect a response before they pass it on would defeat the purpose.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

struct State<E> {
    running: Running,
    encoder: E,
    /// Choices that have not finished.
    open: usize,
    started: bool,
}

impl<E: Encode> State<E> {
    /// Waits for something to send. False if it is the last.
    async fn next(&mut self, out: &mut SseBuffer) -> bool {
        if !std::mem::replace(&mut self.started, true) {
            self.encoder.start(out);
            return true;
        }
        loop {
            let Ok((choice, event)) = tokio::time::timeout(KEEP_ALIVE, self.running.next()).await else {
                self.encoder.keep_alive(out);
                return true;
            };
            match event {
                Event::Failed(error) => {
                    self.encoder.failed(&error, out);
                    return false;
                }
                Event::Finished(_) => {
                    self.open -= 1;
                    self.encoder.event(choice, event, out);
                    if self.open == 0 {
                        self.encoder.end(out);
                        return false;
                    }
                }
                _ => self.encoder.event(choice, event, out),
            }
            if !out.0.is_empty() {
                return true;
            }
        }
    }
}
