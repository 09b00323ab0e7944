//! Continuous batching: the sequences of all slots go on together, one pass at a time.
//!
//! A pass has one token of every sequence that is being decoded and one piece of one prompt, the prompts taking turns.
//! While sequences are decoded the pieces are short, so that nobody waits long for a stranger's prompt. Nothing here
//! changes a bit of any sequence: the engine's passes give each the bits that it would have alone.

use super::draw::DrawFactory;
use super::slot::{Sequence, Slot, Step};
use super::status::{Health, MapSnapshot, Phase, SlotState};
use super::thread::Shared;
use crate::error::ApiError;
use crate::generation::{Event, FinishReason};
use esker_engine::{BatchItem, Engine, ExpertMap, Output};
use esker_text::Tokenizer;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long an idle owner sleeps before it looks for new watchers of the map.
const IDLE: Duration = Duration::from_millis(250);
/// Changes of the map are published at most this often.
const MAP_INTERVAL: Duration = Duration::from_millis(250);
/// Counters are collected at most this often: it means asking the system for memory figures.
const STATS_INTERVAL: Duration = Duration::from_secs(1);

/// Drives the engine.
pub(super) struct Scheduler<'a> {
    engine: Engine,
    shared: &'a Shared,
    tokenizer: Arc<Tokenizer>,
    draw: &'a DrawFactory,
    slots: Vec<Slot>,
    /// The slot whose prompt has the next turn.
    turn: usize,
    map: ExpertMap,
    map_at: Instant,
    rates: Rates,
    stats_at: Option<Instant>,
}

/// Tokens and time since the counters were last collected.
#[derive(Default)]
struct Rates {
    decoded: usize,
    prefilled: usize,
    decode: Duration,
    prefill: Duration,
}

impl<'a> Scheduler<'a> {
    pub fn new(
        engine: Engine,
        shared: &'a Shared,
        tokenizer: Arc<Tokenizer>,
        draw: &'a DrawFactory,
    ) -> Scheduler<'a> {
        let now = Instant::now();
        let slot = |_| Slot { session: engine.new_session(), sequence: None, idle_since: now };
        Scheduler {
            slots: (0..shared.config.slots).map(slot).collect(),
            engine,
            shared,
            tokenizer,
            draw,
            turn: 0,
            map: ExpertMap::default(),
            map_at: now,
            rates: Rates::default(),
            stats_at: None,
        }
    }

    /// Computes until the queue is closed and every sequence has ended.
    pub fn run(&mut self) {
        loop {
            self.drop_cancelled();
            if self.shared.is_over() {
                self.cut_off();
            }
            self.admit();
            let busy = self.slots.iter().any(|slot| slot.sequence.is_some());
            if busy {
                self.step();
            }
            self.publish(!busy);
            if !busy {
                if self.shared.queue.is_closed() {
                    return;
                }
                self.shared.queue.wait(IDLE);
            }
        }
    }

    /// Frees the slots of sequences that nobody listens to.
    fn drop_cancelled(&mut self) {
        for slot in &mut self.slots {
            if let Some(sequence) = slot.sequence.take_if(|s| s.job.is_cancelled()) {
                tracing::info!(
                    request = sequence.job.request,
                    choice = sequence.job.choice,
                    "cancelled: the client has gone"
                );
                self.shared.metrics.cancelled.add(1);
                release(slot, &sequence, self.shared);
            }
        }
    }

    /// The time for a shutdown is over: what still runs ends now.
    fn cut_off(&mut self) {
        for slot in &mut self.slots {
            if let Some(sequence) = slot.sequence.take() {
                sequence.job.tell(Event::Failed(Health::Stopping.refusal()));
                release(slot, &sequence, self.shared);
            }
        }
    }

    /// Gives waiting jobs to idle slots.
    fn admit(&mut self) {
        while self.slots.iter().any(|slot| slot.sequence.is_none()) {
            // Choices of one request share their prompt: the others wait until it has been computed once.
            let prompt_runs = |request: &str| {
                let runs = |s: &Sequence| s.job.request == request && s.phase() == Phase::Prefill;
                self.slots.iter().any(|slot| slot.sequence.as_ref().is_some_and(runs))
            };
            let Some(job) = self.shared.queue.take(|job| job.choice == 0 || !prompt_runs(&job.request))
            else {
                return;
            };
            let index = self.best_slot(&job.prompt.tokens);
            let slot = &mut self.slots[index];
            let cached = self.engine.reuse_prefix(&mut slot.session, &job.prompt.tokens);
            let draw = match (self.draw)(&job.sampling, self.engine.n_vocab()) {
                Ok(draw) => draw,
                Err(e) => {
                    job.tell(Event::Failed(ApiError::value(e.name, e.value, e.expected)));
                    self.shared.queue.release(Duration::ZERO);
                    continue;
                }
            };
            let mut sequence = Sequence::new(job, draw, cached);
            match sequence.begin() {
                Ok(()) => slot.sequence = Some(sequence),
                Err(error) => {
                    sequence.job.tell(Event::Failed(error));
                    release(slot, &sequence, self.shared);
                }
            }
        }
    }

    /// The idle slot for a prompt: whose session it continues furthest, else the one that has been idle longest.
    fn best_slot(&self, prompt: &[u32]) -> usize {
        let idle = self.slots.iter().enumerate().filter(|(_, slot)| slot.sequence.is_none());
        let same = |held: &[u32]| held.iter().zip(prompt).take_while(|(a, b)| a == b).count();
        let rank = |slot: &Slot| {
            let held = slot.session.tokens();
            let same = same(held);
            // A session that shares only a beginning would lose what it holds besides.
            let kept = if same * 2 >= held.len() { same } else { 0 };
            (kept, std::cmp::Reverse(slot.idle_since))
        };
        idle.max_by_key(|(_, slot)| rank(slot)).map(|(i, _)| i).expect("a slot is idle")
    }

    /// One pass.
    fn step(&mut self) {
        let started = Instant::now();
        let rows_max = self.engine.rows_max();
        let n = self.slots.len();
        let decoding = |slot: &Slot| slot.sequence.as_ref().is_some_and(|s| s.phase() == Phase::Decode);
        let any_decoding = self.slots.iter().any(decoding);
        // Whose prompt has its turn.
        let prompt = (0..n)
            .map(|i| (self.turn + i) % n)
            .find(|&i| self.slots[i].sequence.as_ref().is_some_and(|s| s.phase() == Phase::Prefill));
        if let Some(i) = prompt {
            self.turn = (i + 1) % n;
        }

        let mut rows = 0;
        let mut decoded = 0;
        let mut items = Vec::with_capacity(n);
        let mut indices = Vec::with_capacity(n);
        // Decoding comes first. Sequences with more than a token to feed may have to wait for room in the next pass.
        let mut order: Vec<usize> = (0..n).filter(|&i| decoding(&self.slots[i])).collect();
        order.sort_by_key(|&i| self.slots[i].sequence.as_ref().map_or(0, Sequence::left));
        order.extend(prompt);
        let mut slots: Vec<Option<&mut Slot>> = self.slots.iter_mut().map(Some).collect();
        for i in order {
            let slot = slots[i].take().expect("every slot is there once");
            let Some(sequence) = &slot.sequence else { continue };
            let is_prompt = Some(i) == prompt;
            let share =
                if is_prompt && any_decoding { self.shared.config.limits.prefill_share } else { rows_max };
            let most = share.min(rows_max - rows);
            let (tokens, last) = sequence.next_tokens(slot.session.tokens().len(), most);
            if tokens.is_empty() {
                continue;
            }
            rows += tokens.len();
            decoded += if is_prompt { 0 } else { 1 };
            let output = if last { Output::Last } else { Output::None };
            indices.push((i, tokens.len()));
            items.push(BatchItem { session: &mut slot.session, tokens, output });
        }
        let results = self.engine.forward_batch(&mut items);
        drop(items);
        drop(slots);

        let results = match results {
            Ok(results) => results,
            Err(e) => {
                tracing::error!(error = %e, "a pass failed");
                self.shared.metrics.failed_passes.add(1);
                for (i, _) in indices {
                    self.fail(i, ApiError::internal(format_args!("the model could not be run: {e}")));
                }
                return;
            }
        };
        for ((i, n), logits) in indices.into_iter().zip(results) {
            let slot = &mut self.slots[i];
            let Some(sequence) = &mut slot.sequence else { continue };
            if sequence.fed(n, slot.session.tokens().len()) {
                self.engine.keep_snapshot(&slot.session);
            }
            let Some(logits) = logits else { continue };
            match sequence.advance(logits.row(0), &slot.session, &self.tokenizer, &self.shared.metrics) {
                Step::More => {}
                Step::Done(reason) => self.finish(i, reason),
                Step::Failed(error) => self.fail(i, error),
            }
        }
        let took = started.elapsed();
        self.shared.metrics.passes.add(1);
        let prefilled = rows - decoded.min(rows);
        self.rates.decoded += decoded;
        self.rates.prefilled += prefilled;
        match (decoded, prefilled) {
            (_, 0) => self.rates.decode += took,
            (0, _) => self.rates.prefill += took,
            _ => {
                // Both waited for the whole pass.
                self.rates.decode += took;
                self.rates.prefill += took;
            }
        }
    }

    fn finish(&mut self, index: usize, reason: FinishReason) {
        let slot = &mut self.slots[index];
        if let Some(sequence) = slot.sequence.take() {
            // The next message of this conversation goes on from here, in whichever slot.
            self.engine.keep_snapshot(&slot.session);
            release(slot, &sequence, self.shared);
            sequence.finish(reason, &self.shared.metrics);
        }
    }

    fn fail(&mut self, index: usize, error: ApiError) {
        let slot = &mut self.slots[index];
        if let Some(sequence) = slot.sequence.take() {
            tracing::warn!(request = sequence.job.request, choice = sequence.job.choice, %error, "failed");
            release(slot, &sequence, self.shared);
            sequence.job.tell(Event::Failed(error));
        }
    }

    /// Tells others how things are.
    fn publish(&mut self, idle: bool) {
        let now = Instant::now();
        let due = self.stats_at.is_none_or(|at| now - at >= STATS_INTERVAL);
        let stats = due.then(|| {
            self.stats_at = Some(now);
            self.engine.stats()
        });
        let rate = |n: usize, time: Duration| {
            if time.is_zero() { 0.0 } else { n as f64 / time.as_secs_f64() }
        };
        let rates =
            (due && (self.rates.decoded + self.rates.prefilled > 0)).then(|| std::mem::take(&mut self.rates));
        let slots = self.slots.iter().map(|slot| match &slot.sequence {
            Some(sequence) => sequence.state(slot.session.tokens().len()),
            None => SlotState::default(),
        });
        self.shared.status.publish(|snapshot| {
            snapshot.slots.clear();
            snapshot.slots.extend(slots);
            if let Some(stats) = stats {
                snapshot.stats = stats;
            }
            if let Some(rates) = rates {
                if rates.decoded > 0 {
                    snapshot.decode_tokens_per_s = rate(rates.decoded, rates.decode);
                }
                if rates.prefilled > 0 {
                    snapshot.prefill_tokens_per_s = rate(rates.prefilled, rates.prefill);
                }
            }
        });
        let watched = self.shared.status.map.receiver_count() > 0;
        if watched && (idle || now - self.map_at >= MAP_INTERVAL) {
            self.map_at = now;
            self.engine.expert_map(&mut self.map);
            self.shared.status.map.send_if_modified(|last| {
                let changed = last.version == 0 || last.map != self.map;
                if changed {
                    *last = Arc::new(MapSnapshot { version: last.version + 1, map: self.map.clone() });
                }
                changed
            });
        }
    }
}

/// A slot is idle again.
fn release(slot: &mut Slot, sequence: &Sequence, shared: &Shared) {
    slot.idle_since = Instant::now();
    shared.queue.release(sequence.kept());
}
