//! The HTTP service: the APIs of OpenAI and Anthropic over one engine, and a page that shows what the machine holds.
//!
//! A request passes `http` (connection, key, body), the file of its endpoint in `openai` or `anthropic` (conversion),
//! `generation` (prompt and grammar), and waits in the queue of `owner`, the thread that drives the engine and computes
//! several sequences at once. Events come back the same way.
//!
//! Not here: arguments, configuration files and signals, which are the command line's. Start at [`serve`], and at
//! [`ServerConfig`] for everything that can be set.
#![forbid(unsafe_code)]

mod anthropic;
mod config;
mod error;
mod fields;
mod generation;
mod http;
mod map;
mod metrics;
mod openai;
mod owner;
mod page;
mod parameters;
mod routes;
mod state;
mod time;

pub use config::{
    ConfigError, DEFAULT_CLOSING_SENTENCE, DEFAULT_PORT, DEFAULT_QUEUE, DEFAULT_SLOTS, Limits, ServerConfig,
    ThinkingConfig,
};
pub use http::server::{ServeError, Server, serve};
pub use owner::{Draw, DrawFactory, LoadError};
