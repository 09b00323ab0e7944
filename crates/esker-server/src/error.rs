//! What a request is refused with: one type for all APIs, and the shape that each of them gives it.

use axum::http::{HeaderMap, StatusCode};
use serde_json::{Value, json};

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// What kind of refusal it is; gives the status.
    pub kind: ErrorKind,
    /// For people. Names the field, its value and what is expected.
    pub message: String,
    /// The parameter that is wrong, `messages[0].content` for example.
    pub param: Option<String>,
    /// For programs.
    pub code: Option<&'static str>,
    /// Seconds after which the request may succeed.
    pub retry_after_s: Option<u64>,
}

/// Kinds of refusals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The request is wrong.
    Invalid,
    /// No key, or a wrong one.
    Unauthorized,
    /// The key does not help: a page of another origin, or a wrong host name.
    Forbidden,
    /// There is no such thing.
    NotFound,
    /// There is such a thing, but not with this method.
    Method,
    /// The client took too long to send it.
    Timeout,
    /// The body is too large.
    TooLarge,
    /// The body is not JSON by its header.
    MediaType,
    /// Too many requests are waiting.
    Overloaded,
    /// The model is still being loaded, has failed, or the service is about to end.
    Unavailable,
    /// Our fault.
    Internal,
}

impl ErrorKind {
    /// The HTTP status.
    pub fn status(self) -> StatusCode {
        match self {
            ErrorKind::Invalid => StatusCode::BAD_REQUEST,
            ErrorKind::Unauthorized => StatusCode::UNAUTHORIZED,
            ErrorKind::Forbidden => StatusCode::FORBIDDEN,
            ErrorKind::NotFound => StatusCode::NOT_FOUND,
            ErrorKind::Method => StatusCode::METHOD_NOT_ALLOWED,
            ErrorKind::Timeout => StatusCode::REQUEST_TIMEOUT,
            ErrorKind::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            ErrorKind::MediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            ErrorKind::Overloaded => StatusCode::TOO_MANY_REQUESTS,
            ErrorKind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            ErrorKind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    fn openai_type(self) -> &'static str {
        match self {
            ErrorKind::Overloaded => "rate_limit_error",
            ErrorKind::Unauthorized => "authentication_error",
            ErrorKind::Forbidden => "permission_error",
            ErrorKind::Unavailable | ErrorKind::Internal => "server_error",
            _ => "invalid_request_error",
        }
    }

    fn anthropic_type(self) -> &'static str {
        match self {
            ErrorKind::Unauthorized => "authentication_error",
            ErrorKind::Forbidden => "permission_error",
            ErrorKind::NotFound => "not_found_error",
            ErrorKind::TooLarge => "request_too_large",
            ErrorKind::Overloaded => "rate_limit_error",
            ErrorKind::Unavailable => "overloaded_error",
            ErrorKind::Internal => "api_error",
            _ => "invalid_request_error",
        }
    }
}

impl ApiError {
    /// A refusal in words.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> ApiError {
        ApiError { kind, message: message.into(), param: None, code: None, retry_after_s: None }
    }

    /// A parameter has a value that it cannot have.
    pub fn value(param: impl Into<String>, found: impl std::fmt::Display, expected: &str) -> ApiError {
        let param = param.into();
        let message = format!("`{param}` is {found}, expected {expected}");
        ApiError {
            param: Some(param),
            code: Some("invalid_value"),
            ..ApiError::new(ErrorKind::Invalid, message)
        }
    }

    /// A parameter is missing.
    pub fn missing(param: impl Into<String>, expected: &str) -> ApiError {
        let param = param.into();
        let message = format!("`{param}` is missing, expected {expected}");
        let code = Some("missing_required_parameter");
        ApiError { param: Some(param), code, ..ApiError::new(ErrorKind::Invalid, message) }
    }

    /// A parameter, or a value of one, that is not honoured.
    pub fn unsupported(param: impl Into<String>, why: impl std::fmt::Display) -> ApiError {
        let param = param.into();
        let message = format!("`{param}` is not supported: {why}");
        let code = Some("unsupported_parameter");
        ApiError { param: Some(param), code, ..ApiError::new(ErrorKind::Invalid, message) }
    }

    /// The prompt does not fit into the context.
    pub fn context(param: &str, tokens: usize, context: usize) -> ApiError {
        let message = format!(
            "the prompt has {tokens} tokens, the context has room for {context}, and an answer needs at least one"
        );
        let code = Some("context_length_exceeded");
        ApiError { param: Some(param.to_owned()), code, ..ApiError::new(ErrorKind::Invalid, message) }
    }

    /// Something of ours failed.
    pub fn internal(error: impl std::fmt::Display) -> ApiError {
        ApiError::new(ErrorKind::Internal, error.to_string())
    }

    /// Sets the code for programs.
    pub fn code(mut self, code: &'static str) -> ApiError {
        self.code = Some(code);
        self
    }

    /// The parameter gets another name: that of the API through which it came.
    pub fn named(mut self, param: &str) -> ApiError {
        self.param = Some(param.to_owned());
        self
    }

    /// The body in the shape of an API.
    pub fn body(&self, shape: ErrorShape) -> Value {
        match shape {
            ErrorShape::OpenAi => json!({"error": {
                "message": self.message,
                "type": self.kind.openai_type(),
                "param": self.param,
                "code": self.code,
            }}),
            ErrorShape::Anthropic => json!({"type": "error", "error": {
                "type": self.kind.anthropic_type(),
                "message": self.message,
            }}),
        }
    }
}

/// Whose shape an error has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorShape {
    /// `{"error": {"message", "type", "param", "code"}}`.
    OpenAi,
    /// `{"type": "error", "error": {"type", "message"}}`.
    Anthropic,
}

impl ErrorShape {
    /// The shape of the API that a path belongs to. Both have the models: clients of Anthropic send a header with it.
    pub fn of(path: &str, headers: &HeaderMap) -> ErrorShape {
        let below =
            |root| path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        if below("/v1/messages") || below("/v1/models") && headers.contains_key("anthropic-version") {
            ErrorShape::Anthropic
        } else {
            ErrorShape::OpenAi
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes() {
        let error = ApiError::value("top_p", 2, "0 to 1");
        assert_eq!(
            error.body(ErrorShape::OpenAi).to_string(),
            r#"{"error":{"message":"`top_p` is 2, expected 0 to 1","type":"invalid_request_error","param":"top_p","code":"invalid_value"}}"#
        );
        assert_eq!(
            error.body(ErrorShape::Anthropic).to_string(),
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"`top_p` is 2, expected 0 to 1"}}"#
        );
        let mut headers = HeaderMap::new();
        assert_eq!(ErrorShape::of("/v1/messages/count_tokens", &headers), ErrorShape::Anthropic);
        assert_eq!(ErrorShape::of("/v1/messagesx", &headers), ErrorShape::OpenAi);
        assert_eq!(ErrorShape::of("/v1/models/x", &headers), ErrorShape::OpenAi);
        headers.insert("anthropic-version", axum::http::HeaderValue::from_static("2023-06-01"));
        assert_eq!(ErrorShape::of("/v1/models/x", &headers), ErrorShape::Anthropic);
        assert_eq!(ErrorShape::of("/v1/chat/completions", &headers), ErrorShape::OpenAi);
    }
}
