//! The owner's thread: loads the model, makes a first token, computes until the service ends.

use super::draw::DrawFactory;
use super::queue::Queue;
use super::scheduler::Scheduler;
use super::status::{Health, ModelInfo, Status};
use crate::config::ServerConfig;
use crate::error::{ApiError, ErrorKind};
use crate::generation::{Event, Prompter};
use crate::metrics::Metrics;
use esker_engine::{Engine, EngineError, EngineOptions, Output, VocabularyError};
use esker_gguf::{Gguf, OpenError};
use esker_text::TemplateError;
use esker_text::grammar::GrammarVocabulary;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;
use tokio::sync::Semaphore;

/// Large bodies that are parsed at a time.
const LARGE_BODIES: usize = 2;

/// What requests and the owner of the engine share.
pub(crate) struct Shared {
    pub config: ServerConfig,
    pub queue: Queue,
    pub status: Status,
    pub metrics: Metrics,
    /// When the service was started, seconds since 1970.
    pub created_s: u64,
    /// Bodies that take much memory are parsed a few at a time.
    pub large_bodies: Semaphore,
    loaded: OnceLock<Arc<Loaded>>,
    /// When sequences that are still being computed are cut off.
    stop_at: Mutex<Option<Instant>>,
}

/// What there is once the model is loaded.
pub(crate) struct Loaded {
    pub prompter: Prompter,
    pub info: ModelInfo,
}

/// Why a model cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// It has no vocabulary that can be used, and the service is about text.
    #[error(transparent)]
    Vocabulary(#[from] VocabularyError),
    /// Its chat template, or the one that was given, does not compile.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// The model cannot be loaded or run.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The thread could not be started.
    #[error("cannot start the thread of the engine")]
    Thread(#[source] std::io::Error),
    /// A defect: the engine panicked.
    #[error("the engine stopped: {reason}")]
    Panicked {
        /// What it said.
        reason: String,
    },
}

impl Shared {
    pub fn new(config: ServerConfig) -> Shared {
        Shared {
            queue: Queue::new(config.queue, config.slots),
            status: Status::new(config.slots),
            metrics: Metrics::default(),
            created_s: crate::time::unix_s(),
            large_bodies: Semaphore::new(LARGE_BODIES),
            loaded: OnceLock::new(),
            stop_at: Mutex::new(None),
            config,
        }
    }

    /// The model, if tokens can be made.
    ///
    /// # Errors
    /// If they cannot (yet).
    pub fn ready(&self) -> Result<Arc<Loaded>, ApiError> {
        match (self.status.health(), self.loaded.get()) {
            (Health::Ready, Some(loaded)) => Ok(loaded.clone()),
            (health, _) => Err(health.refusal()),
        }
    }

    /// The model, if it is loaded.
    pub fn loaded(&self) -> Option<&Arc<Loaded>> {
        self.loaded.get()
    }

    /// Takes no more requests. Those that wait are refused; those that are being computed go on until `stop_at`.
    pub fn stop(&self, stop_at: Instant) {
        *self.stop_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(stop_at);
        self.status.set_health(Health::Stopping);
        self.drain(&Health::Stopping.refusal());
    }

    /// Whether sequences are to be cut off.
    pub fn is_over(&self) -> bool {
        let stop_at = *self.stop_at.lock().unwrap_or_else(PoisonError::into_inner);
        stop_at.is_some_and(|at| Instant::now() >= at)
    }

    fn drain(&self, error: &ApiError) {
        for job in self.queue.close() {
            job.tell(Event::Failed(error.clone()));
        }
    }

    fn fail(&self, reason: &str) {
        tracing::error!(reason, "the engine has failed");
        let health = Health::Failed(reason.to_owned());
        self.drain(&health.refusal());
        self.status.set_health(health);
    }
}

impl Health {
    /// Why a request cannot be served in this state.
    pub fn refusal(&self) -> ApiError {
        let (message, code, retry_after_s) = match self {
            Health::Loading => ("the model is being loaded".to_owned(), "model_loading", Some(2)),
            Health::Ready => ("try again".to_owned(), "try_again", Some(1)),
            Health::Failed(reason) => (format!("the engine has failed: {reason}"), "engine_failed", None),
            Health::Stopping => ("the service is shutting down".to_owned(), "shutting_down", None),
        };
        ApiError { retry_after_s, ..ApiError::new(ErrorKind::Unavailable, message).code(code) }
    }
}

/// The running thread.
pub(crate) struct Owner {
    thread: JoinHandle<Result<(), LoadError>>,
}

impl Owner {
    /// Starts it. Whether the model could be loaded is told by the health, and by [`join`](Self::join).
    ///
    /// # Errors
    /// If the system refuses another thread.
    pub fn spawn(shared: Arc<Shared>, draw: DrawFactory) -> Result<Owner, LoadError> {
        let body = move || {
            // A panic is a defect; requests must hear of it all the same.
            let result = catch_unwind(AssertUnwindSafe(|| own(&shared, &draw)));
            let result = result.unwrap_or_else(|panic| {
                let text = |p: &dyn std::any::Any| {
                    p.downcast_ref::<&str>().map(ToString::to_string).or_else(|| p.downcast_ref().cloned())
                };
                let reason = text(&*panic).unwrap_or_else(|| "panic".to_owned());
                Err(LoadError::Panicked { reason })
            });
            if let Err(e) = &result {
                shared.fail(&e.to_string());
            }
            result
        };
        let thread = std::thread::Builder::new().name("engine".to_owned()).spawn(body);
        Ok(Owner { thread: thread.map_err(LoadError::Thread)? })
    }

    /// Waits for the end of the thread.
    ///
    /// # Errors
    /// If the model could not be loaded, or the engine panicked.
    pub fn join(self) -> Result<(), LoadError> {
        let lost = |_| Err(LoadError::Panicked { reason: "the thread is gone".to_owned() });
        self.thread.join().unwrap_or_else(lost)
    }
}

fn own(shared: &Shared, draw: &DrawFactory) -> Result<(), LoadError> {
    let started = Instant::now();
    let config = &shared.config;
    // Before the engine is loaded, which counts what the process takes until then as part of its plan. The vocabulary
    // itself is the engine's.
    let grammar = {
        let gguf = Gguf::open(&config.model)?;
        GrammarVocabulary::new(&esker_engine::tokenizer(&gguf)?).map_err(|e| e.to_string())
    };
    let options = EngineOptions { sessions: config.slots, ..config.engine.clone() };
    let mut engine = Engine::load(&config.model, options)?;
    for note in engine.notes() {
        tracing::info!("{note}");
    }
    let tokenizer = engine.tokenizer()?;
    for warning in tokenizer.warnings() {
        tracing::warn!("{warning}");
    }
    let prompter = Prompter::new(tokenizer, grammar, config, engine.context())?;

    // Not ready before a token can be made.
    let mut session = engine.new_session();
    let first = prompter.tokenizer().bos().unwrap_or(0);
    engine.forward(&mut session, &[first], Output::Last)?;
    drop(session);

    let load_s = started.elapsed().as_secs_f64();
    let info = ModelInfo { load_s, ..model_info(&engine, shared) };
    tracing::info!(
        model = config.model_name,
        architecture = info.architecture,
        context = info.context,
        slots = config.slots,
        threads = info.threads,
        load_s,
        "ready: {}",
        info.memory_note
    );
    let _ = shared.loaded.set(Arc::new(Loaded { prompter, info }));
    let loaded = shared.loaded.get().expect("set above").clone();
    shared.status.set_health(Health::Ready);
    Scheduler::new(engine, shared, loaded.prompter.tokenizer().clone(), draw).run();
    Ok(())
}

fn model_info(engine: &Engine, shared: &Shared) -> ModelInfo {
    let gguf = engine.gguf();
    let architecture = gguf.architecture().unwrap_or("unknown").to_owned();
    let number = |key: &str| gguf.metadata.opt_u64(&format!("{architecture}.{key}")).ok().flatten();
    let size = |path: &std::path::PathBuf| std::fs::metadata(path).map_or(0, |m| m.len());
    let plan = engine.plan();
    ModelInfo {
        n_layer: engine.n_layer(),
        n_expert: number("expert_count").unwrap_or(0) as usize,
        n_expert_used: number("expert_used_count").unwrap_or(0) as usize,
        n_vocab: engine.n_vocab(),
        context: engine.context(),
        context_trained: number("context_length"),
        chunk: engine.rows_max(),
        threads: engine.threads(),
        file_bytes: gguf.files.iter().map(size).sum(),
        parameters: gguf.tensors.iter().map(|t| t.n_elements()).sum(),
        has_template: shared.config.chat_template.is_some()
            || gguf.metadata.str("tokenizer.chat_template").is_ok(),
        budget_bytes: plan.map(|p| p.budget),
        plan: plan.map(|p| p.lines.clone()).unwrap_or_default(),
        memory_note: engine.memory_note().to_owned(),
        notes: engine.notes().to_vec(),
        architecture,
        load_s: 0.0,
    }
}
