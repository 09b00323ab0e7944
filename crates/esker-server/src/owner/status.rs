//! What the owner of the engine publishes for others to read: health, slots, speed, memory, the expert map.

use esker_engine::{ExpertMap, PlanLine, Stats};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use tokio::sync::watch;

/// Whether tokens can be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    /// Not yet.
    Loading,
    /// A token has been made.
    Ready,
    /// Never again, and why.
    Failed(String),
    /// No longer: the service is about to end.
    Stopping,
}

/// What does not change once a model is loaded.
#[derive(Clone, Debug, Default)]
pub(crate) struct ModelInfo {
    pub architecture: String,
    pub n_layer: usize,
    pub n_expert: usize,
    pub n_expert_used: usize,
    pub n_vocab: usize,
    pub context: usize,
    pub context_trained: Option<u64>,
    /// Tokens of one pass at most.
    pub chunk: usize,
    pub threads: usize,
    pub file_bytes: u64,
    pub parameters: u64,
    pub has_template: bool,
    pub budget_bytes: Option<u64>,
    pub plan: Vec<PlanLine>,
    pub memory_note: String,
    pub notes: Vec<String>,
    pub load_s: f64,
}

/// What a slot does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    #[default]
    Idle,
    Prefill,
    Decode,
}

impl Phase {
    pub fn name(self) -> &'static str {
        match self {
            Phase::Idle => "idle",
            Phase::Prefill => "prefill",
            Phase::Decode => "decode",
        }
    }
}

/// One slot at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SlotState {
    pub phase: Phase,
    pub prompt_tokens: usize,
    /// Of the prompt, tokens that are there: cached or processed.
    pub prefilled_tokens: usize,
    pub generated_tokens: usize,
    pub tokens_per_s: f64,
}

/// Everything that changes, at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    pub slots: Vec<SlotState>,
    /// Of the last seconds, all sequences together; 0 when nothing was computed.
    pub decode_tokens_per_s: f64,
    pub prefill_tokens_per_s: f64,
    pub stats: Stats,
}

/// The expert map at one moment; `version` grows when it changes.
#[derive(Clone, Debug, Default)]
pub(crate) struct MapSnapshot {
    pub version: u64,
    pub map: ExpertMap,
}

/// What the owner publishes.
pub(crate) struct Status {
    health: watch::Sender<Health>,
    snapshot: Mutex<Snapshot>,
    pub map: watch::Sender<Arc<MapSnapshot>>,
    pub started: Instant,
}

impl Status {
    pub fn new(slots: usize) -> Status {
        let snapshot = Snapshot { slots: vec![SlotState::default(); slots], ..Snapshot::default() };
        Status {
            health: watch::Sender::new(Health::Loading),
            snapshot: Mutex::new(snapshot),
            map: watch::Sender::new(Arc::default()),
            started: Instant::now(),
        }
    }

    pub fn health(&self) -> Health {
        self.health.borrow().clone()
    }

    /// Changes of the health.
    pub fn watch_health(&self) -> watch::Receiver<Health> {
        self.health.subscribe()
    }

    /// A failure stays.
    pub fn set_health(&self, health: Health) {
        self.health.send_if_modified(|now| {
            let change = !matches!(now, Health::Failed(_)) && *now != health;
            if change {
                *now = health;
            }
            change
        });
    }

    pub fn snapshot(&self) -> Snapshot {
        self.snapshot.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn publish(&self, change: impl FnOnce(&mut Snapshot)) {
        change(&mut self.snapshot.lock().unwrap_or_else(PoisonError::into_inner));
    }
}
