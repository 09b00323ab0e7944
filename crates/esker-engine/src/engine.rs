//! The engine: a loaded model, its store, and the loops that drive it.

use crate::load::{self, EngineError, Loaded, Store};
use crate::options::EngineOptions;
use crate::plan::Plan;
use crate::prefix;
use crate::sampler::{Sampler, Sampling};
use crate::session::Session;
use crate::snapshots::Snapshots;
use crate::stats::Stats;
use crate::stop::StopScanner;
use crate::vocabulary::VocabularyError;
use esker_disk::{Disk, memory};
use esker_gguf::Gguf;
use esker_models::{Model, Output, RoutingMoved, Scratch, StateOptions};
use esker_ops::{Ctx, Op, Profile, Rows};
use esker_text::Tokenizer;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What a generation is asked to do.
#[derive(Clone, Debug)]
pub struct GenerateOptions {
    /// At most this many new tokens; `None` goes on until the model ends or the context is full.
    pub max_tokens: Option<usize>,
    /// How tokens are drawn.
    pub sampling: Sampling,
    /// Text that ends the generation; not part of the answer.
    pub stop: Vec<String>,
    /// Goes on past end-of-generation tokens.
    pub ignore_eos: bool,
    /// Show control tokens as text.
    pub show_special: bool,
}

impl Default for GenerateOptions {
    fn default() -> GenerateOptions {
        let sampling = Sampling::default();
        GenerateOptions {
            max_tokens: None,
            sampling,
            stop: Vec::new(),
            ignore_eos: false,
            show_special: false,
        }
    }
}

/// What happens during a generation.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// So many of the prompt's tokens have been processed.
    Prefill {
        /// Done, of this prompt.
        done: usize,
        /// In all.
        total: usize,
    },
    /// New text: whole characters. May be empty for a token that only begins one.
    Text {
        /// The token that was drawn.
        token: u32,
        /// The text that became certain with it.
        text: &'a str,
    },
}

/// Why a generation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// The model ended its text.
    EndOfText,
    /// A stop string was met.
    StopString,
    /// `max_tokens` was reached.
    MaxTokens,
    /// The context is full.
    ContextFull,
    /// The caller asked to end.
    Cancelled,
}

/// A finished generation.
#[derive(Clone, Debug)]
pub struct Generation {
    /// Tokens drawn, an end-of-generation token included.
    pub tokens: Vec<u32>,
    /// Why it ended.
    pub finish: Finish,
    /// Counts and times.
    pub stats: GenerationStats,
}

/// Counts and times of a generation.
#[derive(Clone, Copy, Debug, Default)]
pub struct GenerationStats {
    /// Tokens of the prompt, those found in the session included.
    pub prompt_tokens: usize,
    /// Of these, tokens that the session already held.
    pub reused_tokens: usize,
    /// Tokens drawn.
    pub generated_tokens: usize,
    /// From the call to the first token drawn.
    pub prefill_time: Duration,
    /// From the first token drawn to the last.
    pub decode_time: Duration,
}

impl GenerationStats {
    /// Prompt tokens that were processed, per second.
    pub fn prefill_tokens_per_s(&self) -> f64 {
        per_second(self.prompt_tokens - self.reused_tokens, self.prefill_time)
    }

    /// Decode steps per second: the first token belongs to the prompt.
    pub fn decode_tokens_per_s(&self) -> f64 {
        per_second(self.generated_tokens.saturating_sub(1), self.decode_time)
    }
}

fn per_second(count: usize, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { count as f64 / time.as_secs_f64() }
}

/// A loaded model. Owned and driven by one thread.
pub struct Engine {
    gguf: Gguf,
    pub(crate) model: Model,
    pub(crate) store: Store,
    plan: Option<Plan>,
    pub(crate) ctx: Ctx,
    pub(crate) scratch: Scratch,
    pub(crate) moved: RoutingMoved,
    /// Rows of the last pass, and those that it gave logits for.
    pub(crate) shape: (usize, usize),
    pub(crate) options: EngineOptions,
    /// `None` if none are kept.
    pub(crate) snapshots: Option<Box<Snapshots>>,
    context: usize,
    tokenizer: Result<Arc<Tokenizer>, VocabularyError>,
    notes: Vec<String>,
    memory_note: String,
}

impl Engine {
    /// Loads the model at `path` (the first file of a split set).
    ///
    /// # Errors
    /// If the file is damaged or unsupported, or does not fit the budget.
    pub fn load(path: &Path, options: EngineOptions) -> Result<Engine, EngineError> {
        Engine::load_from(path, options, None)
    }

    /// As [`load`](Self::load), but experts, rows and dense weights are read with `disk`, which must take
    /// [`READS_MAX`](crate::READS_MAX) reads and the rows of tables besides (64 will do). For simulated faults.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_with_disk(
        path: &Path,
        options: EngineOptions,
        disk: Box<dyn Disk>,
    ) -> Result<Engine, EngineError> {
        Engine::load_from(path, options, Some(disk))
    }

    fn load_from(
        path: &Path,
        options: EngineOptions,
        disk: Option<Box<dyn Disk>>,
    ) -> Result<Engine, EngineError> {
        let Loaded { gguf, tokenizer, model, store, plan, context, ctx, mut notes, memory_note } =
            load::load(path, &options, disk)?;
        let snapshots = prefix::open(&gguf, &options, &mut notes);
        Ok(Engine {
            gguf,
            model,
            store,
            plan,
            ctx,
            scratch: Scratch::default(),
            moved: RoutingMoved::default(),
            shape: (0, 0),
            options,
            snapshots,
            context,
            tokenizer,
            notes,
            memory_note,
        })
    }

    /// How the budget is laid out; `None` if all of the model is in memory.
    pub fn plan(&self) -> Option<&Plan> {
        self.plan.as_ref()
    }

    /// Everything counted since the model was loaded.
    pub fn stats(&self) -> Stats {
        let mut stats = Stats::default();
        if let Store::Cached(store) = &self.store {
            store.count(&mut stats);
        }
        stats.route_picks = self.moved.picks;
        stats.route_picks_changed = self.moved.changed;
        stats.route_mass_moved = self.moved.mass;
        stats.memory_bytes = memory::footprint().map_or(0, |f| f.pss);
        stats.peak_memory_bytes = memory::peak_resident_bytes().unwrap_or(0);
        stats
    }

    /// Scratch memory held now and at most since the last prompt's was released, bytes.
    pub fn scratch_bytes(&self) -> (usize, usize) {
        let (ctx, own) = (self.ctx.scratch(), self.scratch.bytes());
        (ctx.now + own, ctx.peak + own)
    }

    /// The file's metadata and tensor directory.
    pub fn gguf(&self) -> &Gguf {
        &self.gguf
    }

    /// Size of the vocabulary.
    pub fn n_vocab(&self) -> usize {
        self.model.n_vocab()
    }

    /// Layers of the model.
    pub fn n_layer(&self) -> usize {
        self.model.n_layer()
    }

    /// Tokens that one pass may have in all: a chunk, or one for each session if that is more.
    pub fn rows_max(&self) -> usize {
        self.options.chunk.clamp(1, self.context).max(self.options.sessions)
    }

    /// Tokens that a session has room for.
    pub fn context(&self) -> usize {
        self.context
    }

    /// Threads that compute.
    pub fn threads(&self) -> usize {
        self.ctx.threads()
    }

    /// How much of the model is in memory, why, and how the rest is read.
    pub fn memory_note(&self) -> &str {
        &self.memory_note
    }

    /// What a user should know about this file: parts left unused, values that were corrected.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Where the time of passes and of sampling goes; counts once it is turned on.
    pub fn profile(&self) -> &Profile {
        self.ctx.profile()
    }

    /// Installs the function that sees intermediate values; see [`esker_ops::ProbeFn`].
    pub fn set_probe(&self, probe: Option<esker_ops::ProbeFn>) {
        self.ctx.set_probe(probe);
    }

    /// The tokenizer of the file.
    ///
    /// # Errors
    /// If the file has none that can be used: token ids still work.
    pub fn tokenizer(&self) -> Result<Arc<Tokenizer>, EngineError> {
        self.tokenizer.as_ref().cloned().map_err(|e| EngineError::Vocabulary { cause: e.to_string() })
    }

    /// An empty session.
    pub fn new_session(&self) -> Session {
        let options = StateOptions { capacity: self.context, kv_type: self.options.kv_type };
        let tokens = Vec::with_capacity(self.context);
        Session { state: self.model.new_state(options), tokens, broken: false }
    }

    /// Feeds a prompt in chunks and returns the last token's logits, `[1, n_vocab]`; `None` if `tokens` is empty or
    /// `progress` (called with the tokens done so far) breaks. Scratch memory of the prompt is released at the end.
    ///
    /// # Errors
    /// As [`forward`](Self::forward); the whole prompt is checked before any of it is processed.
    pub fn prefill(
        &mut self,
        session: &mut Session,
        tokens: &[u32],
        mut progress: impl FnMut(usize) -> ControlFlow<()>,
    ) -> Result<Option<Rows>, EngineError> {
        let (used, capacity) = (session.tokens.len(), session.capacity());
        if used + tokens.len() > capacity {
            return Err(EngineError::ContextFull { used, more: tokens.len(), capacity });
        }
        let mut logits = None;
        let mut done = 0;
        let chunk_len = self.options.chunk.max(1);
        for chunk in tokens.chunks(chunk_len) {
            let last = done + chunk.len() == tokens.len();
            logits = self.forward(session, chunk, if last { Output::Last } else { Output::None })?;
            done += chunk.len();
            if progress(done).is_break() {
                logits = None;
                break;
            }
        }
        if tokens.len() > 1 {
            self.trim_scratch();
        }
        Ok(logits)
    }

    /// Makes the session hold `prompt` and draws tokens until one of `options`' limits, or until `on_event` breaks.
    ///
    /// Whatever beginning of `prompt` the session already holds is not computed again.
    ///
    /// # Errors
    /// If the prompt is empty, does not fit, or weights cannot be read.
    pub fn generate(
        &mut self,
        session: &mut Session,
        prompt: &[u32],
        options: &GenerateOptions,
        on_event: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
    ) -> Result<Generation, EngineError> {
        let mut sampler = Sampler::new(options.sampling.clone(), self.model.n_vocab())?;
        let started = Instant::now();
        if prompt.is_empty() {
            return Err(EngineError::EmptyPrompt);
        }
        if prompt.len() >= self.context {
            return Err(EngineError::ContextFull { used: 0, more: prompt.len() + 1, capacity: self.context });
        }
        let reused = self.reuse_prefix(session, prompt);
        let total = prompt.len() - reused;
        let mut logits =
            self.prefill(session, &prompt[reused..], |done| on_event(Event::Prefill { done, total }))?;

        self.keep_snapshot(session);

        let mut stats = GenerationStats {
            prompt_tokens: prompt.len(),
            reused_tokens: reused,
            ..GenerationStats::default()
        };
        let mut tokens = Vec::new();
        let mut stops = StopScanner::new(&options.stop);
        let tokenizer = self.tokenizer()?;
        let mut text = tokenizer.stream();
        if options.show_special {
            text = text.with_special();
        }
        let mut first_drawn = None;
        let mut finish = Finish::Cancelled;
        let full = |n: usize| options.max_tokens.is_some_and(|max| n >= max);
        if full(0) {
            logits = None;
            finish = Finish::MaxTokens;
        }
        while let Some(row) = logits.take() {
            let timer = self.ctx.time(Op::Sampling);
            let token = sampler.sample(row.row(0), &session.tokens);
            drop((timer, row));
            tokens.push(token);
            if first_drawn.is_none() {
                first_drawn = Some(Instant::now());
                stats.prefill_time = started.elapsed();
            }
            if !options.ignore_eos && tokenizer.is_end_of_generation(token) {
                finish = Finish::EndOfText;
                break;
            }
            let piece = text.push(token);
            let (shown, stopped) = stops.push(&piece);
            let cancelled = on_event(Event::Text { token, text: &shown }).is_break();
            if stopped {
                finish = Finish::StopString;
                break;
            }
            if cancelled {
                break;
            }
            if full(tokens.len()) {
                finish = Finish::MaxTokens;
                break;
            }
            if session.tokens.len() == session.capacity() {
                finish = Finish::ContextFull;
                break;
            }
            logits = self.forward(session, &[token], Output::Last)?;
        }
        if finish != Finish::StopString {
            let mut rest = stops.push(&text.finish()).0;
            rest.push_str(&stops.finish());
            if !rest.is_empty() {
                // The generation is over: nothing is left to cancel.
                let _ = on_event(Event::Text { token: tokens.last().copied().unwrap_or(0), text: &rest });
            }
        }
        self.keep_snapshot(session);
        stats.decode_time = first_drawn.map_or(Duration::ZERO, |first| first.elapsed());
        stats.generated_tokens = tokens.len();
        Ok(Generation { tokens, finish, stats })
    }
}
