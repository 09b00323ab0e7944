//! What happens around every request: an id, the guard, the log line, the count, headers for browsers.

use super::{guard, respond};
use crate::error::{ApiError, ErrorKind, ErrorShape};
use crate::generation::random_seed;
use crate::owner::Shared;
use crate::page;
use axum::extract::{Request, State};
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_REQUEST_HEADERS, HOST, ORIGIN, VARY,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use std::sync::Arc;
use std::time::Instant;

/// The id of a request, ours or the client's; in logs and in the response.
#[derive(Clone, Debug)]
pub(crate) struct RequestId(pub String);

static X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
static REQUEST_ID: HeaderName = HeaderName::from_static("request-id");

/// The middleware.
pub(crate) async fn around(State(shared): State<Arc<Shared>>, mut request: Request, next: Next) -> Response {
    let started = Instant::now();
    let id = request_id(request.headers());
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    let shape = ErrorShape::of(&path, request.headers());
    let asked_headers = request.headers().get(ACCESS_CONTROL_REQUEST_HEADERS).cloned();
    let origin = permitted_origin(&shared, request.headers());
    request.extensions_mut().insert(RequestId(id.clone()));
    let mut response = match guard::check(&shared.config, &method, &path, request.headers()) {
        Err(error) => respond::error(&error, shape),
        Ok(()) if method == Method::OPTIONS && origin.is_some() => preflight(asked_headers),
        Ok(()) => next.run(request).await,
    };
    let headers = response.headers_mut();
    if let Ok(value) = HeaderValue::from_str(&id) {
        // One name is OpenAI's, the other Anthropic's.
        headers.insert(X_REQUEST_ID.clone(), value.clone());
        headers.insert(REQUEST_ID.clone(), value);
    }
    headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    if let Some(origin) = origin {
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(VARY, HeaderValue::from_static("origin"));
        // Clients wait as long as they are told, and name the request in their errors.
        let seen = HeaderValue::from_static("retry-after, x-request-id, request-id");
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, seen);
    }
    let status = response.status().as_u16();
    let route = route(&path);
    shared.metrics.responded(route, status);
    let ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    // What polls would fill the log.
    if matches!(route, "/health" | "/metrics" | "/api/state") && status < 400 {
        tracing::debug!(request = id, %method, route, status, ms, "response");
    } else {
        tracing::info!(request = id, %method, route, status, ms, "response");
    }
    response
}

/// No such route.
pub(crate) async fn not_found(request: Request) -> Response {
    let path = request.uri().path();
    let shown: String = path.chars().take(100).collect();
    let error =
        ApiError::new(ErrorKind::NotFound, format!("there is no route `{} {shown}`", request.method()));
    respond::error(&error.code("unknown_url"), ErrorShape::of(path, request.headers()))
}

/// The route has other methods.
pub(crate) async fn wrong_method(request: Request) -> Response {
    let path = request.uri().path();
    let shown: String = path.chars().take(100).collect();
    let message = format!("`{shown}` does not have the method {}", request.method());
    respond::error(&ApiError::new(ErrorKind::Method, message), ErrorShape::of(path, request.headers()))
}

/// Allows what the page asks to send: official clients send a dozen headers of their own, and which origins may call was
/// decided before.
fn preflight(asked_headers: Option<HeaderValue>) -> Response {
    let mut response = respond::bytes_of(StatusCode::NO_CONTENT, "text/plain", "");
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST"));
    if let Some(asked) = asked_headers {
        headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, asked);
    }
    headers.insert("access-control-max-age", HeaderValue::from_static("600"));
    response
}

/// The origin to name in the response, if it is another one that may call.
fn permitted_origin(shared: &Shared, headers: &HeaderMap) -> Option<HeaderValue> {
    let origin = headers.get(ORIGIN)?;
    let host = headers.get(HOST).and_then(|h| h.to_str().ok()).unwrap_or_default();
    guard::allows_origin(&shared.config, origin.to_str().ok()?, host).then(|| origin.clone())
}

/// The client's id if it is short and plain, else a new one.
fn request_id(headers: &HeaderMap) -> String {
    let given = headers.get(&X_REQUEST_ID).and_then(|id| id.to_str().ok());
    let plain = |id: &&str| {
        (1..=64).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
    };
    match given.filter(plain) {
        Some(id) => id.to_owned(),
        None => format!("req_{:08x}{:08x}", random_seed(), random_seed()),
    }
}

/// The route of a path, from a fixed set.
fn route(path: &str) -> &'static str {
    const ROUTES: &[&str] = &[
        "/health",
        "/metrics",
        "/props",
        "/api/state",
        "/api/map",
        "/v1/models",
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/responses",
        "/v1/messages",
        "/v1/messages/count_tokens",
    ];
    match ROUTES.iter().find(|route| **route == path) {
        Some(route) => route,
        None if page::has(path) => "page",
        None if path.starts_with("/v1/models/") => "/v1/models/{id}",
        None => "other",
    }
}
