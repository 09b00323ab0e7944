//! Responses: JSON, text, errors in the shape of an API.

use crate::error::{ApiError, ErrorShape};
use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use serde::Serialize;

/// JSON with status 200.
pub(crate) fn json(value: &impl Serialize) -> Response {
    with_status(StatusCode::OK, value)
}

/// JSON.
pub(crate) fn with_status(status: StatusCode, value: &impl Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(bytes) => bytes_of(status, "application/json", bytes),
        Err(e) => {
            tracing::error!(error = %e, "a response could not be written");
            bytes_of(StatusCode::INTERNAL_SERVER_ERROR, "application/json", b"{}".to_vec())
        }
    }
}

/// Bytes of a media type.
pub(crate) fn bytes_of(status: StatusCode, media_type: &'static str, bytes: impl Into<Body>) -> Response {
    let mut response = Response::new(bytes.into());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}

/// A refusal, in the shape of an API.
pub(crate) fn error(error: &ApiError, shape: ErrorShape) -> Response {
    let mut response = with_status(error.kind.status(), &error.body(shape));
    if let Some(seconds) = error.retry_after_s {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}
