//! The routes, each a line: read the body, hand it on, answer or refuse in the shape of its API.

use crate::anthropic::messages;
use crate::error::{ApiError, ErrorShape};
use crate::http::around::RequestId;
use crate::http::respond::{bytes_of, error, json, with_status};
use crate::http::{body, respond};
use crate::openai::{chat, completions, models, responses};
use crate::owner::Shared;
use crate::{map, page, state};
use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use serde_json::Value;
use std::sync::Arc;

type App = State<Arc<Shared>>;

/// All routes.
pub(crate) fn routes() -> Router<Arc<Shared>> {
    let router = Router::new()
        .route("/v1/chat/completions", post(post_chat))
        .route("/v1/completions", post(post_completions))
        .route("/v1/responses", post(post_responses))
        .route("/v1/messages", post(post_messages))
        .route("/v1/messages/count_tokens", post(post_count_tokens))
        .route("/v1/models", get(|State(shared): App| async move { json(&models::list(&shared)) }))
        .route("/v1/models/{*id}", get(get_model))
        .route(
            "/health",
            get(|State(shared): App| async move {
                let (status, value) = state::health(&shared);
                with_status(status, &value)
            }),
        )
        .route(
            "/metrics",
            get(|State(shared): App| async move {
                bytes_of(StatusCode::OK, "text/plain; version=0.0.4", shared.metrics.text(&shared))
            }),
        )
        .route("/props", get(|State(shared): App| async move { json(&state::props(&shared)) }))
        .route("/api/state", get(|State(shared): App| async move { json(&state::state(&shared)) }))
        .route("/api/map", get(|State(shared): App| async move { map::stream(&shared) }));
    page::routes(router)
}

async fn post_chat(State(shared): App, request: Request) -> Response {
    let (id, body) = read(&shared, request).await;
    let result = match body {
        Ok(body) => chat::chat(&shared, &id, body).await,
        Err(e) => Err(e),
    };
    finish(&id, result, ErrorShape::OpenAi)
}

async fn post_completions(State(shared): App, request: Request) -> Response {
    let (id, body) = read(&shared, request).await;
    let result = match body {
        Ok(body) => completions::complete(&shared, &id, body).await,
        Err(e) => Err(e),
    };
    finish(&id, result, ErrorShape::OpenAi)
}

async fn post_responses(State(shared): App, request: Request) -> Response {
    let (id, body) = read(&shared, request).await;
    let result = match body {
        Ok(body) => responses::respond(&shared, &id, body).await,
        Err(e) => Err(e),
    };
    finish(&id, result, ErrorShape::OpenAi)
}

async fn post_messages(State(shared): App, request: Request) -> Response {
    let (id, body) = read(&shared, request).await;
    let result = match body {
        Ok(body) => messages::answer(&shared, &id, body).await,
        Err(e) => Err(e),
    };
    finish(&id, result, ErrorShape::Anthropic)
}

async fn post_count_tokens(State(shared): App, request: Request) -> Response {
    let (id, body) = read(&shared, request).await;
    let result = match body {
        Ok(body) => messages::count_tokens(&shared, body).await,
        Err(e) => Err(e),
    };
    finish(&id, result, ErrorShape::Anthropic)
}

async fn get_model(State(shared): App, request: Request) -> Response {
    let path = request.uri().path();
    let id = path.strip_prefix("/v1/models/").unwrap_or_default();
    match models::one(&shared, &percent_decoded(id)) {
        Ok(model) => respond::json(&model),
        Err(e) => error(&e, ErrorShape::of(path, request.headers())),
    }
}

async fn read(shared: &Shared, request: Request) -> (String, Result<Value, ApiError>) {
    let id = request.extensions().get::<RequestId>().map(|id| id.0.clone()).unwrap_or_default();
    (id, body::json(shared, request).await)
}

fn finish(id: &str, result: Result<Response, ApiError>, shape: ErrorShape) -> Response {
    result.unwrap_or_else(|e| {
        // Messages quote at most a few characters of what a client sent.
        tracing::info!(request = id, param = e.param, code = e.code, "refused");
        error(&e, shape)
    })
}

/// A path segment as it was meant; what is no escape stays.
fn percent_decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let escaped = (byte == b'%')
            .then(|| {
                bytes
                    .get(at + 1..at + 3)
                    .and_then(|hex| u8::from_str_radix(str::from_utf8(hex).ok()?, 16).ok())
            })
            .flatten();
        out.push(escaped.unwrap_or(byte));
        at += if escaped.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes() {
        assert_eq!(percent_decoded("a%2Fb%20c"), "a/b c");
        assert_eq!(percent_decoded("100%"), "100%");
        assert_eq!(percent_decoded("%zz%e2%82%ac"), "%zz€");
    }
}
