//! `esker serve`: the HTTP service.

use crate::cli::{LogFormat, ServeArgs, print_config};
use crate::failure::Failure;
use crate::interrupt::Listener;
use crate::model::resolve;
use crate::output::Console;
use crate::text_input;
use esker_engine::{EngineError, EngineOptions, Memory, Sampling};
use esker_server::{
    ConfigError, Limits, LoadError, ServeError, ServerConfig, ThinkingConfig, serve as run_service,
};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;
use tracing::Level;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Threads for connections; computing has its own.
const IO_THREADS: usize = 2;
/// How often Ctrl-C is looked for.
const INTERRUPT_POLL: Duration = Duration::from_millis(50);
/// Memory for snapshots unless it is set, at most.
const SNAPSHOT_BYTES: u64 = 64 << 20;
/// The share of a budget that snapshots take unless it is set: one of so many parts.
const SNAPSHOT_PART: u64 = 16;

pub fn serve(args: &ServeArgs, console: &Console) -> Result<(), Failure> {
    if args.print_config {
        let text = print_config(std::env::args_os().collect())?;
        return console.stdout().text(&text);
    }
    let path = resolve(console, args.model.as_deref().or(args.model_option.as_deref()))?;
    let config = config(args, &path)?;
    // Before there are threads.
    esker_disk::memory::share_heap();
    log(args.network.log_format, console);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(IO_THREADS)
        .thread_name("http")
        .enable_all()
        .build()
        .map_err(|e| Failure::new("cannot start the threads for connections").cause(&e))?;
    let interrupt = Listener::new();
    let snapshots_are_set = args.requests.snapshot_memory.is_some();
    let ended = runtime.block_on(run_service(config, told_to_end(&interrupt)));
    ended.map_err(|e| failure(&path, &e, snapshots_are_set))
}

fn config(args: &ServeArgs, path: &Path) -> Result<ServerConfig, Failure> {
    let ServeArgs { network, requests, answers, engine, .. } = args;
    let name = network.name.clone().unwrap_or_else(|| model_name(path));
    let defaults = Limits::default();
    let seconds = |s: u32| Duration::from_secs(s.into());
    let mut options = engine.options(EngineOptions::default());
    options.snapshot_bytes = requests.snapshot_memory.unwrap_or(match options.memory {
        Memory::Budget(bytes) => snapshot_bytes(bytes),
        Memory::Auto | Memory::Resident => SNAPSHOT_BYTES,
    });
    options.snapshot_dir = requests.snapshot_dir.clone();
    options.snapshot_dir_bytes = requests.snapshot_dir_size;
    let chat_template = match &answers.chat_template {
        Some(path) => Some(
            String::from_utf8(text_input::read(path)?)
                .map_err(|e| Failure::new(format_args!("`{}` is not UTF-8", path.display())).cause(&e))?,
        ),
        None => None,
    };
    Ok(ServerConfig {
        engine: options,
        address: SocketAddr::new(network.host, network.port),
        api_key: network.api_key.clone(),
        allowed_origins: network.allowed_origins.clone(),
        aliases: network.aliases.clone(),
        slots: requests.slots as usize,
        queue: requests.queue as usize,
        limits: Limits {
            body_bytes: usize::try_from(requests.body_limit).unwrap_or(usize::MAX),
            header_timeout: seconds(requests.header_timeout),
            body_timeout: seconds(requests.body_timeout),
            connections: requests.connections as usize,
            max_tokens: requests.max_tokens.map_or(defaults.max_tokens, |n| n as usize),
            shutdown_grace: seconds(requests.shutdown_grace),
            prefill_share: requests.prefill_share as usize,
            ..defaults
        },
        sampling: Sampling {
            temperature: answers.temperature,
            top_k: answers.top_k,
            top_p: answers.top_p,
            min_p: answers.min_p,
            repeat_penalty: answers.repeat_penalty,
            ..Sampling::default()
        },
        thinking: ThinkingConfig {
            answer_reserve: answers.answer_reserve as usize,
            budget: answers.thinking_budget.map(|n| n as usize),
            closing_sentence: answers.thinking_closing_sentence.clone(),
            close: !answers.no_thinking_close,
        },
        chat_template,
        template_variables: answers.variables.iter().cloned().collect(),
        ..ServerConfig::new(path.to_owned(), name)
    })
}

/// Memory for snapshots in a budget, unless it is set.
fn snapshot_bytes(budget: u64) -> u64 {
    SNAPSHOT_BYTES.min(budget / SNAPSHOT_PART)
}

/// The refusal of a budget, where snapshots take a share of it: the smallest budget has room for its own share, which
/// is not that of the refused one.
fn with_snapshots_of_smallest(error: &EngineError) -> Option<EngineError> {
    let EngineError::Budget { budget, smallest_budget, arena_min, lines } = error else { return None };
    let planned = snapshot_bytes(*budget);
    let others = smallest_budget.checked_sub(planned)?;
    let snapshots = SNAPSHOT_BYTES.min(others.div_ceil(SNAPSHOT_PART - 1));
    let (before, after) = (format!("snapshots {planned}"), format!("snapshots {snapshots}"));
    let lines = match lines.contains(&before) {
        true => lines.replace(&before, &after),
        // None were planned for.
        false => format!("{lines}, {after}"),
    };
    let smallest_budget = others + snapshots;
    Some(EngineError::Budget { budget: *budget, smallest_budget, arena_min: *arena_min, lines })
}

/// The name of the file, without what says that it is one of a set.
fn model_name(path: &Path) -> String {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let of_set =
        stem.rsplit_once("-00001-of-").filter(|(_, n)| n.len() == 5 && n.bytes().all(|b| b.is_ascii_digit()));
    of_set.map_or(stem.clone(), |(name, _)| name.to_owned())
}

/// Sends what the service reports to standard error.
fn log(format: LogFormat, console: &Console) {
    let level = match (console.is_verbose(), console.is_quiet()) {
        (true, _) => Level::DEBUG,
        (false, true) => Level::ERROR,
        (false, false) => Level::INFO,
    };
    let registry = tracing_subscriber::registry().with(Targets::new().with_target("esker_server", level));
    let layer = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_target(false);
    // A subscriber that is there already stays.
    let _ = match format {
        LogFormat::Text => registry.with(layer.with_ansi(console.colors_messages())).try_init(),
        LogFormat::Json => registry.with(layer.json().flatten_event(true)).try_init(),
    };
}

/// Waits for Ctrl-C, or for SIGTERM where there is such a thing.
async fn told_to_end(interrupt: &Listener) {
    let interrupted = async {
        while !interrupt.requested() {
            tokio::time::sleep(INTERRUPT_POLL).await;
        }
    };
    tokio::select! {
        () = interrupted => {}
        () = terminated() => {}
    }
}

#[cfg(unix)]
async fn terminated() {
    use tokio::signal::unix::{SignalKind, signal};
    match signal(SignalKind::terminate()) {
        Ok(mut signal) => {
            signal.recv().await;
        }
        // Then the signal ends the program at once, as it does by default.
        Err(_) => std::future::pending().await,
    }
}

#[cfg(not(unix))]
async fn terminated() {
    std::future::pending().await
}

fn failure(path: &Path, error: &ServeError, snapshots_are_set: bool) -> Failure {
    match error {
        ServeError::Config(ConfigError::KeyRequired { .. }) => Failure::usage(error).hint(
            "set `ESKER_API_KEY`, or `api-key` in a configuration file; without a key, `--host 127.0.0.1`"
                .to_owned(),
        ),
        ServeError::Config(error) => Failure::usage(error),
        ServeError::Listen { .. } => Failure::of(error).hint("`--port N` takes another port".to_owned()),
        ServeError::Load(LoadError::Open(error)) => Failure::open(path, error),
        ServeError::Load(LoadError::Vocabulary(error)) => Failure::vocabulary(path, error),
        ServeError::Load(LoadError::Engine(error)) => {
            let adjusted = if snapshots_are_set { None } else { with_snapshots_of_smallest(error) };
            Failure::engine(path, adjusted.as_ref().unwrap_or(error))
        }
        ServeError::Load(LoadError::Template(error)) => Failure::of(error)
            .place("file", format_args!("`{}`", path.display()))
            .hint("`--chat-template FILE` uses another template than the model's".to_owned()),
        ServeError::Load(_) => Failure::of(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    #[test]
    fn the_smallest_budget_has_room_for_its_snapshots() {
        for (budget, others) in [(1 << 20, 30 << 20), (8, 12_345_679), (5 << 30, 7_777_777_777)] {
            let planned = snapshot_bytes(budget);
            let lines = match planned {
                0 => "process 5".to_owned(),
                n => format!("process 5, snapshots {n}"),
            };
            let error =
                EngineError::Budget { budget, smallest_budget: others + planned, arena_min: 3, lines };
            let Some(EngineError::Budget { smallest_budget, lines, .. }) = with_snapshots_of_smallest(&error)
            else {
                panic!("a refusal")
            };
            let snapshots = snapshot_bytes(smallest_budget);
            assert!(others + snapshots <= smallest_budget, "{smallest_budget} is enough");
            assert!(others + snapshot_bytes(smallest_budget - 2) > smallest_budget - 2, "and no less");
            assert!(lines.contains(&format!("snapshots {}", smallest_budget - others)), "{lines}");
        }
    }

    #[test]
    fn names_of_models() {
        let check = |path: &str, name: &str| assert_eq!(model_name(&PathBuf::from(path)), name);
        check("/m/Qwen3-30B-A3B-Q4_K_M.gguf", "Qwen3-30B-A3B-Q4_K_M");
        check("big-00001-of-00004.gguf", "big");
        check("big-00001-of-x.gguf", "big-00001-of-x");
    }
}
