//! Arguments of `esker serve`.

use super::EngineArgs;
use super::engine::size;
use super::template::variable;
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, ValueEnum, value_parser};
use esker_engine::{SESSIONS_MAX, Sampling};
use esker_server::{DEFAULT_PORT, DEFAULT_QUEUE, DEFAULT_SLOTS, Limits, ThinkingConfig};
use serde_json::Value;
use std::net::IpAddr;
use std::path::PathBuf;

/// Serve a model to programs: the APIs of OpenAI and Anthropic, and a page at `/`
///
/// Several requests are computed at once and share what their conversations have in common. By default only programs of
/// this machine can connect.
#[derive(Args, Debug)]
#[command(after_long_help = AFTER_HELP, args_override_self = true)]
pub struct ServeArgs {
    /// GGUF file; a small demo model if left out
    pub model: Option<PathBuf>,
    /// The same, for configuration files; MODEL wins
    #[arg(long = "model", value_name = "FILE")]
    pub model_option: Option<PathBuf>,
    /// Read options from FILE (TOML): `slots = 8` stands for `--slots 8`. Options given here win
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print all options as a configuration file, and serve nothing
    #[arg(long)]
    pub print_config: bool,
    #[command(flatten)]
    pub network: NetworkArgs,
    #[command(flatten)]
    pub requests: RequestArgs,
    #[command(flatten)]
    pub answers: AnswerArgs,
    #[command(flatten)]
    pub engine: EngineArgs,
}

/// Where to listen, and to whom.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Network options")]
pub struct NetworkArgs {
    /// Address to listen on; any but a loopback address demands `--api-key`
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    pub host: IpAddr,
    /// Port; 0 lets the system choose
    #[arg(long, value_name = "N", default_value_t = DEFAULT_PORT)]
    pub port: u16,
    /// Key that clients have to present, as `Authorization: Bearer KEY` or `x-api-key: KEY`
    ///
    /// Other users of this machine can see arguments: the environment variable or a configuration file is better.
    #[arg(long, value_name = "KEY", env = "ESKER_API_KEY", hide_env_values = true)]
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub api_key: Option<String>,
    /// Let web pages of this origin, such as `https://chat.example`, call the service. May be repeated
    #[arg(long = "allow-origin", value_name = "ORIGIN")]
    pub allowed_origins: Vec<String>,
    /// Name of the model for clients [default: that of the file, without `.gguf`]
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub name: Option<String>,
    /// Another name that it answers to. May be repeated
    #[arg(long = "alias", value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub aliases: Vec<String>,
    /// Form of the log on standard error
    #[arg(long, value_name = "FORM", value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
}

/// Form of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people
    Text,
    /// One JSON object a line
    Json,
}

/// Bounds on requests.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Request options")]
pub struct RequestArgs {
    /// Sequences that are computed at once; each has room for a whole context
    #[arg(long, value_name = "N", default_value_t = DEFAULT_SLOTS as u32)]
    #[arg(value_parser = value_parser!(u32).range(1..=SESSIONS_MAX as i64))]
    pub slots: u32,
    /// Sequences that may wait; more are refused with status 429
    #[arg(long, value_name = "N", default_value_t = DEFAULT_QUEUE as u32)]
    #[arg(value_parser = value_parser!(u32).range(0..=65536))]
    pub queue: u32,
    /// New tokens of an answer at most [default: what the context has room for]
    #[arg(short = 'n', long, value_name = "N", value_parser = value_parser!(u32).range(1..))]
    pub max_tokens: Option<u32>,
    /// Prompt tokens of a pass while other sequences are decoded: less is smoother, more is faster
    #[arg(long, value_name = "N", default_value_t = Limits::default().prefill_share as u32)]
    #[arg(value_parser = value_parser!(u32).range(1..=65536))]
    pub prefill_share: u32,
    /// Size of a request's body at most
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "4M")]
    pub body_limit: u64,
    /// Seconds for a request's body to arrive
    #[arg(long, value_name = "S", default_value_t = Limits::default().body_timeout.as_secs() as u32)]
    #[arg(value_parser = value_parser!(u32).range(1..=86400))]
    pub body_timeout: u32,
    /// Seconds for a request's headers to arrive, and for which an idle connection is kept
    #[arg(long, value_name = "S", default_value_t = Limits::default().header_timeout.as_secs() as u32)]
    #[arg(value_parser = value_parser!(u32).range(1..=86400))]
    pub header_timeout: u32,
    /// Connections at a time
    #[arg(long, value_name = "N", default_value_t = Limits::default().connections as u32)]
    #[arg(value_parser = value_parser!(u32).range(1..=65536))]
    pub connections: u32,
    /// Seconds that answers may go on after Ctrl-C or SIGTERM
    #[arg(long, value_name = "S", default_value_t = Limits::default().shutdown_grace.as_secs() as u32)]
    #[arg(value_parser = value_parser!(u32).range(0..=86400))]
    pub shutdown_grace: u32,
    /// Memory for snapshots of conversations, so that they go on without being computed again; 0: none
    /// [default: 64M, or a sixteenth of a budget if that is less]
    #[arg(long, value_name = "SIZE", value_parser = size_or_none)]
    pub snapshot_memory: Option<u64>,
    /// Keep snapshots in this directory, too, so that conversations go on after a restart
    #[arg(long, value_name = "DIR")]
    pub snapshot_dir: Option<PathBuf>,
    /// Size of the snapshots in `--snapshot-dir` at most
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "8G")]
    pub snapshot_dir_size: u64,
}

/// What requests get that do not say otherwise.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Answer options")]
pub struct AnswerArgs {
    /// Use the Jinja template in FILE, not the model's own
    #[arg(long, value_name = "FILE")]
    pub chat_template: Option<PathBuf>,
    /// Give the template a variable; VALUE is JSON, or else text. May be repeated
    #[arg(long = "template-arg", value_name = "NAME=VALUE", value_parser = variable)]
    pub variables: Vec<(String, Value)>,
    /// Reasoning tokens of requests that name no budget [default: whatever `--answer-reserve` leaves]
    #[arg(long, value_name = "N")]
    pub thinking_budget: Option<u32>,
    /// Tokens that reasoning has to leave for the answer; at most half of what a request may generate
    #[arg(long, value_name = "N", default_value_t = ThinkingConfig::default().answer_reserve as u32)]
    pub answer_reserve: u32,
    /// What the model is told when its reasoning has to end; may be empty
    #[arg(long, value_name = "TEXT", default_value_t = ThinkingConfig::default().closing_sentence)]
    pub thinking_closing_sentence: String,
    /// Never end reasoning: for measurements of a model's own quality
    #[arg(long)]
    pub no_thinking_close: bool,
    /// Temperature of requests that name none; 0 picks the likeliest token always
    #[arg(long = "temp", value_name = "T", default_value_t = Sampling::default().temperature)]
    pub temperature: f32,
    /// Keep the K likeliest tokens; 0 keeps all
    #[arg(long, value_name = "K", default_value_t = Sampling::default().top_k)]
    pub top_k: usize,
    /// Keep the likeliest tokens whose probabilities reach this sum; 1 keeps all
    #[arg(long, value_name = "P", default_value_t = Sampling::default().top_p)]
    pub top_p: f32,
    /// Drop tokens less likely than this share of the likeliest; 0 drops none
    #[arg(long, value_name = "P", default_value_t = Sampling::default().min_p)]
    pub min_p: f32,
    /// Divide the positive and multiply the negative logits of recent tokens by this; 1 changes none
    #[arg(long, value_name = "R", default_value_t = Sampling::default().repeat_penalty)]
    pub repeat_penalty: f32,
}

fn size_or_none(arg: &str) -> Result<u64, String> {
    if arg == "0" { Ok(0) } else { size(arg) }
}

const AFTER_HELP: &str = "\
Clients:
  OpenAI's need the base URL http://127.0.0.1:8080/v1, Anthropic's
  http://127.0.0.1:8080, and any key if none is set. The page is at
  http://127.0.0.1:8080/. `/props` lists the parameters that are honoured;
  any other is refused by name. `docs/service.md` has the rest.

Configuration file:
  # every option of this command, without its dashes
  model = \"model.gguf\"
  slots = 8
  memory = \"6G\"
  alias = [\"gpt-4o-mini\", \"default\"]

Examples:
  esker serve model.gguf --memory 6G
  ESKER_API_KEY=secret esker serve model.gguf --host 0.0.0.0
  esker serve --config esker.toml --port 9000
  esker serve --config esker.toml --print-config

Ctrl-C or SIGTERM lets answers that have begun go on for a while; a second
Ctrl-C ends the program at once.";
