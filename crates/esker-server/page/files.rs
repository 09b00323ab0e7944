//! The files of the page, embedded in the binary: nothing is read from disk at run time, nothing is fetched from elsewhere.
//!
//! Included by `src` with `#[path]`, so that the list of files stays beside them.

/// One file of the page.
pub struct PageFile {
    /// Path at which it is served.
    pub path: &'static str,
    /// Value of `Content-Type`.
    pub content_type: &'static str,
    /// The file.
    pub body: &'static str,
}

/// Value of `Content-Security-Policy` for every answer with a file of the page.
///
/// Nothing inline, nothing from elsewhere, no frames; text can't become markup (Trusted Types with no policy).
pub const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const SVG: &str = "image/svg+xml";

/// All files of the page.
pub const PAGE_FILES: &[PageFile] = &[
    PageFile { path: "/", content_type: HTML, body: include_str!("index.html") },
    PageFile { path: "/page/style.css", content_type: STYLE, body: include_str!("style.css") },
    PageFile { path: "/page/icon.svg", content_type: SVG, body: include_str!("icon.svg") },
    PageFile { path: "/page/theme.js", content_type: SCRIPT, body: include_str!("theme.js") },
    PageFile { path: "/page/app.js", content_type: SCRIPT, body: include_str!("app.js") },
    PageFile { path: "/page/api.js", content_type: SCRIPT, body: include_str!("api.js") },
    PageFile { path: "/page/chat.js", content_type: SCRIPT, body: include_str!("chat.js") },
    PageFile { path: "/page/conversations.js", content_type: SCRIPT, body: include_str!("conversations.js") },
    PageFile { path: "/page/dom.js", content_type: SCRIPT, body: include_str!("dom.js") },
    PageFile { path: "/page/highlight.js", content_type: SCRIPT, body: include_str!("highlight.js") },
    PageFile { path: "/page/inline.js", content_type: SCRIPT, body: include_str!("inline.js") },
    PageFile { path: "/page/machine.js", content_type: SCRIPT, body: include_str!("machine.js") },
    PageFile { path: "/page/map.js", content_type: SCRIPT, body: include_str!("map.js") },
    PageFile { path: "/page/markdown.js", content_type: SCRIPT, body: include_str!("markdown.js") },
    PageFile { path: "/page/message.js", content_type: SCRIPT, body: include_str!("message.js") },
    PageFile { path: "/page/settings.js", content_type: SCRIPT, body: include_str!("settings.js") },
];
