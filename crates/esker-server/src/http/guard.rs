//! Who may call: the API key, the host name, the origin of web pages.
//!
//! Without a key the service listens on a loopback address only. Web pages are code of strangers that runs on this
//! machine, so even then a request must not come from one of another origin, nor by a name that a stranger's DNS points
//! here.

use crate::config::ServerConfig;
use crate::error::{ApiError, ErrorKind};
use crate::page;
use axum::http::header::{AUTHORIZATION, HOST, ORIGIN};
use axum::http::{HeaderMap, Method};
use subtle::ConstantTimeEq;

/// Refuses what may not call.
///
/// # Errors
/// If the key is missing or wrong, or the request comes from a page of another origin.
pub(crate) fn check(
    config: &ServerConfig,
    method: &Method,
    path: &str,
    headers: &HeaderMap,
) -> Result<(), ApiError> {
    let host = headers.get(HOST).and_then(|h| h.to_str().ok()).unwrap_or_default();
    if config.api_key.is_none() && !is_loopback_name(host) {
        let message =
            format!("the header `host` is `{host:.100}`, expected a loopback address or `localhost`");
        return Err(ApiError::new(ErrorKind::Forbidden, message).code("host_not_allowed"));
    }
    if let Some(origin) = headers.get(ORIGIN)
        && !allows_origin(config, origin.to_str().unwrap_or_default(), host)
    {
        let message = "pages of this origin may not call the service; `--allow-origin` permits one";
        return Err(ApiError::new(ErrorKind::Forbidden, message).code("origin_not_allowed"));
    }
    match &config.api_key {
        // A browser loads the page before it can present a key, and supervisors ask for the health without one.
        Some(key) if path != "/health" && !page::has(path) && method != Method::OPTIONS => {
            check_key(key, headers)
        }
        _ => Ok(()),
    }
}

/// Whether pages of an origin may call: ours, and those that were permitted.
pub(crate) fn allows_origin(config: &ServerConfig, origin: &str, host: &str) -> bool {
    let own = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    own.is_some_and(|own| own.eq_ignore_ascii_case(host))
        || config.allowed_origins.iter().any(|allowed| allowed == "*" || allowed.eq_ignore_ascii_case(origin))
}

fn check_key(key: &str, headers: &HeaderMap) -> Result<(), ApiError> {
    let bearer = headers.get(AUTHORIZATION).and_then(|value| {
        let value = value.as_bytes();
        let (scheme, token) = value.split_at_checked(7)?;
        scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
    });
    let given = bearer.or_else(|| headers.get("x-api-key").map(|value| value.as_bytes()));
    match given {
        // The time that this takes tells the length of the key at most.
        Some(given) if bool::from(given.ct_eq(key.as_bytes())) => Ok(()),
        Some(_) => {
            Err(ApiError::new(ErrorKind::Unauthorized, "the API key is wrong").code("invalid_api_key"))
        }
        None => {
            let message = "an API key is required, as `Authorization: Bearer KEY` or `x-api-key: KEY`";
            Err(ApiError::new(ErrorKind::Unauthorized, message).code("missing_api_key"))
        }
    }
}

/// Whether a `Host` header names this machine without the help of DNS.
fn is_loopback_name(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    let name = name.trim_end_matches('.');
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    fn config(key: Option<&str>) -> ServerConfig {
        let mut config = ServerConfig::new("m".into(), "m".into());
        config.api_key = key.map(str::to_owned);
        config
    }

    fn verdict(
        config: &ServerConfig,
        path: &str,
        headers: &[(&'static str, &'static str)],
    ) -> Option<&'static str> {
        let headers =
            headers.iter().map(|(k, v)| (k.parse().unwrap(), HeaderValue::from_static(v))).collect();
        check(config, &Method::POST, path, &headers).err().map(|e| e.code.unwrap_or("?"))
    }

    #[test]
    fn names_of_this_machine() {
        for name in ["localhost", "localhost:80", "127.0.0.1:8080", "127.8.9.1", "[::1]:8080", "LOCALHOST."] {
            assert!(is_loopback_name(name), "{name}");
        }
        for name in
            ["", "example.org", "127.0.0.1.example.org:80", "10.0.0.1:80", "[::2]", "localhost.example.org"]
        {
            assert!(!is_loopback_name(name), "{name}");
        }
    }

    #[test]
    fn strangers_pages_may_not_call() {
        let open = config(None);
        let local = ("host", "localhost:80");
        assert_eq!(verdict(&open, "/v1/models", &[local]), None);
        assert_eq!(verdict(&open, "/v1/models", &[("host", "evil.example")]), Some("host_not_allowed"));
        assert_eq!(verdict(&open, "/v1/models", &[local, ("origin", "http://localhost:80")]), None);
        let evil = ("origin", "http://evil.example");
        assert_eq!(verdict(&open, "/v1/models", &[local, evil]), Some("origin_not_allowed"));
        assert_eq!(verdict(&open, "/v1/models", &[local, ("origin", "null")]), Some("origin_not_allowed"));
        let mut permitted = config(None);
        permitted.allowed_origins.push("http://evil.example".to_owned());
        assert_eq!(verdict(&permitted, "/v1/models", &[local, evil]), None);
    }

    #[test]
    fn keys() {
        let closed = config(Some("secret"));
        let host = ("host", "example.org");
        assert_eq!(verdict(&closed, "/v1/models", &[host]), Some("missing_api_key"));
        assert_eq!(verdict(&closed, "/health", &[host]), None);
        for good in
            [("authorization", "Bearer secret"), ("authorization", "bearer  secret"), ("x-api-key", "secret")]
        {
            assert_eq!(verdict(&closed, "/v1/models", &[host, good]), None, "{good:?}");
        }
        for bad in [
            ("authorization", "Bearer secre"),
            ("authorization", "Bearer secrets"),
            ("x-api-key", ""),
            ("x-api-key", "SECRET"),
        ] {
            assert_eq!(verdict(&closed, "/v1/models", &[host, bad]), Some("invalid_api_key"), "{bad:?}");
        }
        assert_eq!(
            verdict(&closed, "/v1/models", &[host, ("authorization", "Basic secret")]),
            Some("missing_api_key")
        );
    }
}
