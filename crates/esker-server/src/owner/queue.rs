//! Sequences that wait for a slot: a bounded queue between requests and the thread that owns the engine.

use crate::generation::{Closing, Event, OutputSpec, Prompt};
use esker_engine::Sampling;
use esker_text::grammar::Constraint;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedSender;

/// A sequence to compute.
pub(crate) struct Job {
    /// The request's id, for logs.
    pub request: String,
    /// Which of the request's choices this is.
    pub choice: usize,
    pub prompt: Arc<Prompt>,
    pub output: OutputSpec,
    pub constraint: Option<Constraint>,
    /// Reasoning tokens at most; `None`: no bound.
    pub thinking_limit: Option<usize>,
    /// Ends reasoning that has taken as many.
    pub closing: Arc<Closing>,
    /// New tokens at most.
    pub max_tokens: usize,
    pub sampling: Sampling,
    /// Report each token's likelihood, and so many alternatives.
    pub logprobs: Option<usize>,
    /// Where events go, with the number of the choice. Bounded by the tokens of the sequence; closed when nobody
    /// listens any more, which cancels it.
    pub events: UnboundedSender<(usize, Event)>,
    pub submitted: Instant,
}

impl Job {
    /// Whether nobody listens any more.
    pub fn is_cancelled(&self) -> bool {
        self.events.is_closed()
    }

    /// Tells something about the sequence; nobody listening is no error.
    pub fn tell(&self, event: Event) {
        let _ = self.events.send((self.choice, event));
    }
}

/// Why jobs were not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// There is no room; after so many seconds there may be.
    Full { retry_after_s: u64 },
    /// The service is about to end.
    Closed,
}

/// Jobs that wait.
pub(crate) struct Queue {
    // A blocking mutex: it is held for moments, and one side is not asynchronous.
    state: Mutex<State>,
    changed: Condvar,
    max: usize,
}

struct State {
    waiting: VecDeque<Job>,
    /// Slots without a sequence.
    idle_slots: usize,
    slots: usize,
    closed: bool,
    /// How long a sequence keeps its slot, on average of late.
    slot_time: Duration,
}

impl Queue {
    pub fn new(max: usize, slots: usize) -> Queue {
        let state = State {
            waiting: VecDeque::new(),
            idle_slots: slots,
            slots,
            closed: false,
            slot_time: Duration::from_secs(2),
        };
        Queue { state: Mutex::new(state), changed: Condvar::new(), max }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many may wait.
    pub fn max(&self) -> usize {
        self.max
    }

    /// How many wait.
    pub fn waiting(&self) -> usize {
        self.lock().waiting.len()
    }

    /// Takes all of a request's jobs, or none.
    ///
    /// # Errors
    /// If there is no room for them, or the service is about to end.
    pub fn submit(&self, jobs: Vec<Job>) -> Result<(), Refusal> {
        let mut state = self.lock();
        if state.closed {
            return Err(Refusal::Closed);
        }
        // Idle slots take their jobs at once, so these do not count as waiting.
        let room = self.max + state.idle_slots;
        if state.waiting.len() + jobs.len() > room {
            state.waiting.retain(|job| !job.is_cancelled());
        }
        if state.waiting.len() + jobs.len() > room {
            let turns = state.waiting.len().div_ceil(state.slots).max(1) as u32;
            let wait = state.slot_time.saturating_mul(turns);
            return Err(Refusal::Full { retry_after_s: (wait.as_secs_f64().ceil() as u64).clamp(1, 60) });
        }
        state.waiting.extend(jobs);
        drop(state);
        self.changed.notify_all();
        Ok(())
    }

    /// The next job that is `ready` and that somebody still listens to.
    pub fn take(&self, ready: impl Fn(&Job) -> bool) -> Option<Job> {
        let mut state = self.lock();
        state.waiting.retain(|job| !job.is_cancelled());
        let next = state.waiting.iter().position(ready)?;
        state.idle_slots = state.idle_slots.saturating_sub(1);
        state.waiting.remove(next)
    }

    /// A slot is idle again, after a sequence that kept it for so long.
    pub fn release(&self, kept: Duration) {
        let mut state = self.lock();
        state.idle_slots = (state.idle_slots + 1).min(state.slots);
        state.slot_time = (state.slot_time * 7 + kept) / 8;
    }

    /// Waits until there is a job, the queue is closed, or the time is over.
    pub fn wait(&self, timeout: Duration) {
        let state = self.lock();
        if state.waiting.is_empty() && !state.closed {
            let _ = self.changed.wait_timeout(state, timeout);
        }
    }

    /// Takes no more jobs; those that wait are returned.
    pub fn close(&self) -> Vec<Job> {
        let mut state = self.lock();
        state.closed = true;
        let waiting = state.waiting.drain(..).collect();
        drop(state);
        self.changed.notify_all();
        waiting
    }

    /// Whether [`close`](Self::close) was called.
    pub fn is_closed(&self) -> bool {
        self.lock().closed
    }
}
