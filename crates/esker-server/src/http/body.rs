//! Reading a request's body as JSON, within bounds of size and time.

use crate::error::{ApiError, ErrorKind};
use crate::owner::Shared;
use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde_json::Value;

/// Bodies above this size are parsed a few at a time, since parsed JSON takes many times its length.
const LARGE_BYTES: usize = 256 << 10;

/// JSON values in a body. Parsed, a value of two bytes takes fifty times as much memory.
const VALUES_MAX: usize = 1 << 18;

/// Reads the body of `request`.
///
/// # Errors
/// If it is not declared as JSON, is too large, does not arrive in time, or is not JSON.
pub(crate) async fn json(shared: &Shared, request: Request) -> Result<Value, ApiError> {
    let (parts, body) = request.into_parts();
    // Browsers send other types across origins without asking first.
    let media_type = parts.headers.get(CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let essence = media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if essence != "application/json" {
        let found = if essence.is_empty() { "missing".to_owned() } else { format!("`{essence:.60}`") };
        let message = format!("the header `content-type` is {found}, expected `application/json`");
        return Err(ApiError::new(ErrorKind::MediaType, message));
    }
    let limit = shared.config.limits.body_bytes;
    let declared = parts.headers.get(CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse::<usize>().ok());
    if declared.is_some_and(|n| n > limit) {
        return Err(too_large(limit));
    }
    let timeout = shared.config.limits.body_timeout;
    let Ok(read) = tokio::time::timeout(timeout, read(body, limit)).await else {
        let message = format!("the body did not arrive within {} s", timeout.as_secs());
        return Err(ApiError::new(ErrorKind::Timeout, message));
    };
    let bytes = read?;
    if values(&bytes) > VALUES_MAX {
        let message = format!("the body has more than the limit of {VALUES_MAX} JSON values");
        return Err(ApiError::new(ErrorKind::TooLarge, message));
    }
    let _permit = match bytes.len() {
        ..=LARGE_BYTES => None,
        _ => Some(shared.large_bodies.acquire().await.map_err(ApiError::internal)?),
    };
    serde_json::from_slice(&bytes).map_err(|e| {
        let message = format!("the body is not JSON: {e}");
        ApiError::new(ErrorKind::Invalid, message).code("invalid_json")
    })
}

async fn read(body: Body, limit: usize) -> Result<bytes::Bytes, ApiError> {
    match Limited::new(body, limit).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(e) if e.downcast_ref::<LengthLimitError>().is_some() => Err(too_large(limit)),
        Err(e) => Err(ApiError::new(ErrorKind::Invalid, format!("the body could not be read: {e}"))),
    }
}

fn too_large(limit: usize) -> ApiError {
    ApiError::new(ErrorKind::TooLarge, format!("the body is larger than the limit of {limit} bytes"))
}

/// How many values a JSON text has, counted by what separates them outside of strings.
fn values(bytes: &[u8]) -> usize {
    let mut n = 1;
    let (mut in_string, mut escaped) = (false, false);
    for &byte in bytes {
        match (in_string, byte) {
            (true, _) if escaped => escaped = false,
            (true, b'\\') => escaped = true,
            (_, b'"') => in_string = !in_string,
            (false, b',' | b'[' | b'{') => n += 1,
            _ => {}
        }
    }
    n
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_outside_of_strings() {
        assert_eq!(values(b"1"), 1);
        assert_eq!(values(b"[1, 2, 3]"), 4);
        assert_eq!(values(br#"{"a": "x, y, [z]", "b\", [": "\\"}"#), 3);
        assert_eq!(values(br#"["a\\", 1]"#), 3);
    }
}
