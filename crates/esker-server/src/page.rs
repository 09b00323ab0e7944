//! The page at `/`: files that are part of the program.

use crate::http::respond::bytes_of;
use crate::owner::Shared;
use axum::Router;
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY, X_FRAME_OPTIONS};
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use axum::routing::get;
use std::sync::Arc;

#[path = "../page/files.rs"]
mod files;

use files::PageFile;

/// Adds a route for each file.
pub(crate) fn routes(router: Router<Arc<Shared>>) -> Router<Arc<Shared>> {
    files::PAGE_FILES
        .iter()
        .fold(router, |router, file| router.route(file.path, get(move || async move { serve(file) })))
}

/// Whether a path is a file of the page.
pub(crate) fn has(path: &str) -> bool {
    files::PAGE_FILES.iter().any(|file| file.path == path)
}

fn serve(file: &PageFile) -> Response {
    let mut response = bytes_of(StatusCode::OK, file.content_type, file.body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(files::CONTENT_SECURITY_POLICY));
    headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    // A new version of the program has a new page.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}
