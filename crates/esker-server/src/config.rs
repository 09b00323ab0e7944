//! What a service is started with. The command line fills it in; nothing here reads files or the environment.

use esker_engine::{EngineOptions, SESSIONS_MAX, Sampling};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// What a service is started with.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// The model: a GGUF file, or the first of a split set.
    pub model: PathBuf,
    /// The name that clients know it by.
    pub model_name: String,
    /// Other names that it answers to.
    pub aliases: Vec<String>,
    /// How it is loaded and run. [`slots`](Self::slots) sequences are planned for, whatever is set here.
    pub engine: EngineOptions,
    /// Where to listen.
    pub address: SocketAddr,
    /// What clients have to present; required unless `address` is a loopback address.
    pub api_key: Option<String>,
    /// Origins of web pages, besides our own, that may call the service from a browser.
    pub allowed_origins: Vec<String>,
    /// Sequences that are computed at once.
    pub slots: usize,
    /// Sequences that may wait for a slot; more are refused with status 429.
    pub queue: usize,
    /// Bounds on what clients may ask for.
    pub limits: Limits,
    /// Settings of requests that do not say otherwise.
    pub sampling: Sampling,
    /// How reasoning is bounded.
    pub thinking: ThinkingConfig,
    /// Jinja source to be used in place of the file's chat template.
    pub chat_template: Option<String>,
    /// Variables that every conversation's template gets; a request's own come on top.
    pub template_variables: serde_json::Map<String, serde_json::Value>,
}

/// Bounds on what clients may ask for, and on how long they may take to ask.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Bytes of a request's body.
    pub body_bytes: usize,
    /// Time for a request's headers to arrive.
    pub header_timeout: Duration,
    /// Time for a request's body to arrive.
    pub body_timeout: Duration,
    /// Time for which a client may take nothing of what it is sent.
    pub write_timeout: Duration,
    /// Connections at a time; others wait to be accepted.
    pub connections: usize,
    /// New tokens of a sequence; a request that names no number gets this, or what the context has room for.
    pub max_tokens: usize,
    /// Answers to one request (`n`).
    pub choices: usize,
    /// Stop strings of one request.
    pub stops: usize,
    /// Tools of one request.
    pub tools: usize,
    /// Messages of one request.
    pub messages: usize,
    /// Likeliest tokens that are reported for each token.
    pub top_logprobs: usize,
    /// Time that answers may go on after the service was told to end; then they are cut off.
    pub shutdown_grace: Duration,
    /// Prompt tokens in a pass while other sequences are being decoded: bounds how long these stand still.
    pub prefill_share: usize,
}

/// How reasoning is bounded.
#[derive(Clone, Debug)]
pub struct ThinkingConfig {
    /// Tokens of a sequence that are kept for the answer: reasoning may not take them. At most half of what the
    /// request may generate.
    pub answer_reserve: usize,
    /// Reasoning of requests that name no budget; `None`: whatever the reserve leaves.
    pub budget: Option<usize>,
    /// What the model is told when its reasoning is ended, before the tag that closes it.
    pub closing_sentence: String,
    /// End reasoning that exceeds its budget. Off, it goes on for as long as the model likes.
    pub close: bool,
}

/// Sequences at once, by default.
pub const DEFAULT_SLOTS: usize = 4;
/// Waiting sequences, by default.
pub const DEFAULT_QUEUE: usize = 64;
/// The port, by default.
pub const DEFAULT_PORT: u16 = 8080;
/// Said to a model whose reasoning has to end, by default.
pub const DEFAULT_CLOSING_SENTENCE: &str = "\n\nThat is all the time there is for thinking. I answer now.\n";

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            body_bytes: 4 << 20,
            header_timeout: Duration::from_secs(30),
            body_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(60),
            connections: 512,
            max_tokens: 1 << 20,
            choices: 8,
            stops: 16,
            tools: 128,
            messages: 4096,
            top_logprobs: 20,
            shutdown_grace: Duration::from_secs(20),
            prefill_share: 128,
        }
    }
}

impl Default for ThinkingConfig {
    fn default() -> ThinkingConfig {
        ThinkingConfig {
            answer_reserve: 512,
            budget: None,
            closing_sentence: DEFAULT_CLOSING_SENTENCE.to_owned(),
            close: true,
        }
    }
}

impl ServerConfig {
    /// A service of `model` on a loopback address, everything else by default.
    pub fn new(model: PathBuf, model_name: String) -> ServerConfig {
        ServerConfig {
            model,
            model_name,
            aliases: Vec::new(),
            engine: EngineOptions::default(),
            address: SocketAddr::from(([127, 0, 0, 1], DEFAULT_PORT)),
            api_key: None,
            allowed_origins: Vec::new(),
            slots: DEFAULT_SLOTS,
            queue: DEFAULT_QUEUE,
            limits: Limits::default(),
            sampling: Sampling::default(),
            thinking: ThinkingConfig::default(),
            chat_template: None,
            template_variables: serde_json::Map::new(),
        }
    }

    /// Checks what can be checked before a model is loaded.
    ///
    /// # Errors
    /// Names the first setting that is out of its range.
    pub fn check(&self) -> Result<(), ConfigError> {
        if !self.address.ip().is_loopback() && self.api_key.as_deref().is_none_or(str::is_empty) {
            return Err(ConfigError::KeyRequired { address: self.address });
        }
        let ranges = [
            ("slots", self.slots, 1, SESSIONS_MAX),
            ("queue", self.queue, 0, 1 << 16),
            ("max_tokens", self.limits.max_tokens, 1, usize::MAX),
            ("connections", self.limits.connections, 1, 1 << 16),
            ("prefill_share", self.limits.prefill_share, 1, 1 << 16),
            ("choices", self.limits.choices, 1, 128),
        ];
        for (name, value, least, most) in ranges {
            if !(least..=most).contains(&value) {
                return Err(ConfigError::Range { name, value, least, most });
            }
        }
        match self.api_key.as_deref() {
            Some(key) if !key.bytes().all(|b| b.is_ascii_graphic()) => Err(ConfigError::KeyText),
            _ => Ok(()),
        }
    }
}

/// A setting is out of its range.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// Others than this machine's users can reach the address.
    #[error("{address} can be reached from other machines: an API key is required")]
    KeyRequired {
        /// Where the service was to listen.
        address: SocketAddr,
    },
    /// The key could not be sent in a header.
    #[error("the API key has characters other than visible ASCII ones")]
    KeyText,
    /// A number is out of its range.
    #[error("`{name}` is {value}, expected {least} to {most}")]
    Range {
        /// Field of [`ServerConfig`] or [`Limits`].
        name: &'static str,
        /// Its value.
        value: usize,
        /// The least that is possible.
        least: usize,
        /// The most that is possible.
        most: usize,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_required_off_loopback() {
        let mut config = ServerConfig::new("m.gguf".into(), "m".into());
        config.check().expect("loopback needs no key");
        config.address = SocketAddr::from(([0, 0, 0, 0], 80));
        assert!(matches!(config.check(), Err(ConfigError::KeyRequired { .. })));
        config.api_key = Some(String::new());
        assert!(matches!(config.check(), Err(ConfigError::KeyRequired { .. })));
        config.api_key = Some("k".to_owned());
        config.check().expect("a key was given");
        config.api_key = Some("k y".to_owned());
        assert!(matches!(config.check(), Err(ConfigError::KeyText)));
    }

    #[test]
    fn numbers_have_ranges() {
        let mut config = ServerConfig::new("m.gguf".into(), "m".into());
        config.slots = 0;
        assert_eq!(config.check().unwrap_err().to_string(), "`slots` is 0, expected 1 to 64");
    }
}
