//! Read-ahead: predictions, when they are read, and whether that pays.
//!
//! A prediction is a list of experts that a layer still to come will probably want, best first. Missing ones are
//! read when no layer waits for anything (or for no more than `demand_max` reads), nearest layer first and in a layer by rank; those that are there
//! are held, so that they are not evicted just before they are needed. Both only up to `Pool::held_max` slots.
//!
//! *When it decides.* With a live map: when the disk falls idle, and what has not been issued when its layer
//! comes is dropped. With a stepwise map no decision may depend on the disk: slots are taken when the
//! prediction arrives, every read is issued sooner or later, and slots are held until the step ends.
//!
//! *What a wrong one costs.* A read ahead is not a use: an expert that its layer did not want is where its last
//! use has put it in the order of eviction, usually first. Wrong predictions therefore replace each other, not
//! what is in use. (Counting them as uses made a cache of 600 slots with predictions right in 60 % miss 305
//! experts a token; without read-ahead it is 268, and this way 129. `examples/policies.rs`.)
//!
//! *Whether it pays* is judged by the share of missing predicted experts that their layer then wanted. That
//! needs no reads, so it goes on being measured while read-ahead is off, and turning it on again costs nothing.

use std::collections::VecDeque;

use super::{ExpertCache, State};
use crate::action::{Action, Priority};
use crate::config::{ReadAheadConfig, Visibility};
use crate::ids::{ExpertNo, NONE, Phase, SlotId};

#[derive(Clone, Copy)]
struct Predicted {
    expert: ExpertNo,
    /// It was missing: reading it ahead was, or would have been, worth a try.
    is_candidate: bool,
}

/// The predictions for one layer in this step.
struct Layer {
    predicted: Vec<Predicted>,
    /// The layer's want has come.
    is_over: bool,
}

/// A read that may be issued when the disk is idle.
#[derive(Clone, Copy)]
struct Pending {
    expert: ExpertNo,
    rank: u16,
}

pub(super) struct ReadAhead {
    config: ReadAheadConfig,
    layers: Vec<Layer>,
    pending: VecDeque<Pending>,
    on: bool,
    n_judged: u32,
    n_useful: u32,
}

impl ReadAhead {
    pub fn new(config: ReadAheadConfig, n_layers: usize) -> ReadAhead {
        let per_layer = if config.is_off() { 0 } else { usize::from(config.per_layer_max) };
        let layer = || Layer { predicted: Vec::with_capacity(per_layer), is_over: false };
        ReadAhead {
            config,
            layers: (0..n_layers).map(|_| layer()).collect(),
            pending: VecDeque::with_capacity(n_layers * per_layer),
            on: !config.is_off(),
            n_judged: 0,
            n_useful: 0,
        }
    }

    pub fn is_on(&self) -> bool {
        self.on
    }
}

impl ExpertCache {
    /// `layer`, which is still to come in this step, will probably want these experts, best first.
    ///
    /// Acts on the first `per_layer_max` ranks in decode steps, and ignores prompts, layers whose want has
    /// come, and experts named before for the layer in this step. Never changes what is computed.
    ///
    /// # Panics
    /// If there is no such layer or expert.
    pub fn read_ahead(&mut self, layer: u16, ranked: &[u16], actions: &mut Vec<Action>) {
        let per_layer_max = usize::from(self.config.read_ahead.per_layer_max);
        let il = usize::from(layer);
        let class = self.layout.layer(layer).class;
        let decode = self.phase == Some(Phase::Decode);
        if self.config.read_ahead.is_off() || !decode || self.ahead.layers[il].is_over {
            return;
        }
        for (rank, &index) in ranked.iter().enumerate().take(per_layer_max) {
            let e = self.layout.expert(layer, index);
            let predicted = &self.ahead.layers[il].predicted;
            if predicted.len() == per_layer_max {
                break;
            }
            if predicted.iter().any(|p| p.expert == e) {
                continue;
            }
            let is_candidate = match self.experts[e as usize].state {
                State::OnDisk => self.add_candidate(e, rank as u16, class),
                State::Resident => {
                    if self.ahead.on && self.experts[e as usize].pins == 0 && self.may_hold(class) {
                        self.hold(e);
                        self.update_place(e);
                    }
                    false
                }
                State::Waiting | State::Queued | State::Reading => false,
            };
            self.ahead.layers[il].predicted.push(Predicted { expert: e, is_candidate });
            self.counters.read_ahead.predicted += 1;
        }
        self.pump(actions);
    }

    /// Returns whether the outcome will count.
    fn add_candidate(&mut self, e: ExpertNo, rank: u16, class: usize) -> bool {
        if self.ahead.on {
            if self.config.visibility == Visibility::Stepwise && !self.reserve(e, class) {
                return false;
            }
            self.ahead.pending.push_back(Pending { expert: e, rank });
        }
        true
    }

    /// Takes a slot for a predicted expert.
    fn reserve(&mut self, e: ExpertNo, class: usize) -> bool {
        if !self.may_hold(class) {
            return false;
        }
        // Before a slot is taken: it may be the last free one, or another's, whose eviction would count.
        let is_near = self.was_near(e);
        let Some(slot) = self.take_slot(class) else { return false };
        self.experts[e as usize].is_near = is_near;
        self.assign(e, slot);
        self.hold(e);
        true
    }

    fn may_hold(&self, class: usize) -> bool {
        let pool = &self.slots.pools[class];
        pool.n_held < pool.held_max()
    }

    fn hold(&mut self, e: ExpertNo) {
        let class = self.layout.class_of(e);
        let slot = self.slots.get(self.experts[e as usize].slot);
        if !slot.is_held {
            slot.is_held = true;
            self.slots.pools[class].n_held += 1;
        }
    }

    /// Ends the hold on an expert's slot. Returns whether there was one: its place in the queue must then be
    /// updated, if it stays there.
    pub(super) fn unhold(&mut self, e: ExpertNo) -> bool {
        let slot = self.experts[e as usize].slot;
        let was_held = slot.0 != NONE && std::mem::take(&mut self.slots.get(slot).is_held);
        if was_held {
            self.slots.pools[self.layout.class_of(e)].n_held -= 1;
        }
        was_held
    }

    /// The disk is idle or about to be: issues reads of predicted experts.
    pub(super) fn pump_ahead(&mut self, actions: &mut Vec<Action>) {
        let in_flight_max = usize::from(self.config.read_ahead.in_flight_max);
        while self.reads.has_room() && self.reads.n_ahead() < in_flight_max {
            let Some(&Pending { expert: e, rank }) = self.ahead.pending.front() else { break };
            let is_due = match self.config.visibility {
                Visibility::Stepwise => {
                    // Otherwise its layer came first and has taken it over.
                    self.experts[e as usize].state == State::Queued && self.experts[e as usize].pins == 0
                }
                Visibility::Live => {
                    let is_over = self.ahead.layers[usize::from(self.layout.layer_of(e))].is_over;
                    let is_due = self.ahead.on
                        && !is_over
                        && self.experts[e as usize].state == State::OnDisk
                        && self.reserve(e, self.layout.class_of(e));
                    self.counters.read_ahead.dropped += u64::from(!is_due);
                    is_due
                }
            };
            self.ahead.pending.pop_front();
            if is_due {
                self.issue(e, Priority::ReadAhead { rank }, false, actions);
            }
        }
    }

    /// The layer's want has come (it is the present one): what were the predictions worth?
    pub(super) fn judge_predictions(&mut self, layer: u16, n_wanted: usize) {
        let il = usize::from(layer);
        if std::mem::replace(&mut self.ahead.layers[il].is_over, true)
            || self.ahead.layers[il].predicted.is_empty()
        {
            return;
        }
        self.counters.read_ahead.predicted_lookups += n_wanted as u64;
        for i in 0..self.ahead.layers[il].predicted.len() {
            let Predicted { expert: e, is_candidate } = self.ahead.layers[il].predicted[i];
            let wanted = self.experts[e as usize].last_want == self.want_serial;
            self.counters.read_ahead.predicted_wanted += u64::from(wanted);
            if is_candidate {
                self.judge_candidate(wanted);
            }
            if !wanted && self.config.visibility == Visibility::Live && self.unhold(e) {
                self.update_place(e);
            }
        }
    }

    fn judge_candidate(&mut self, wanted: bool) {
        let counters = &mut self.counters.read_ahead;
        counters.candidates += 1;
        counters.candidates_wanted += u64::from(wanted);
        let ahead = &mut self.ahead;
        ahead.n_judged += 1;
        ahead.n_useful += u32::from(wanted);
        if ahead.n_judged < ahead.config.window {
            return;
        }
        let percent = u64::from(ahead.n_useful) * 100 / u64::from(ahead.n_judged);
        if ahead.on && percent < u64::from(ahead.config.off_below_percent) {
            ahead.on = false;
            counters.turned_off += 1;
        } else if !ahead.on && percent >= u64::from(ahead.config.on_from_percent) {
            ahead.on = true;
            counters.turned_on += 1;
        }
        ahead.n_judged = 0;
        ahead.n_useful = 0;
    }

    /// A new step begins: predictions are about one step only.
    pub(super) fn forget_predictions(&mut self) {
        if self.config.visibility == Visibility::Live {
            self.counters.read_ahead.dropped += self.ahead.pending.len() as u64;
        }
        self.ahead.pending.clear();
        for il in 0..self.ahead.layers.len() {
            self.ahead.layers[il].is_over = false;
            while let Some(Predicted { expert, .. }) = self.ahead.layers[il].predicted.pop() {
                if self.unhold(expert) {
                    self.update_place(expert);
                }
            }
        }
    }

    /// Takes back the least promising slot that is reserved for a read not yet issued. Such a read waits until
    /// nobody waits for anything, so whoever needs its slot must not wait for it in turn.
    pub(super) fn give_up_reservation(&mut self, class: usize) -> Option<SlotId> {
        let is_reserved = |p: &Pending| {
            let x = &self.experts[p.expert as usize];
            x.state == State::Queued && x.pins == 0 && self.layout.class_of(p.expert) == class
        };
        let index = self.ahead.pending.iter().rposition(is_reserved)?;
        let Pending { expert, .. } = self.ahead.pending.remove(index)?;
        self.counters.read_ahead.dropped += 1;
        self.empty(expert);
        self.slots.pools[class].free.pop().map(SlotId)
    }

    /// Whether no read-ahead read is due. With a live map none ever has to be.
    pub(super) fn ahead_is_quiet(&self) -> bool {
        self.config.visibility == Visibility::Live || self.ahead.pending.is_empty()
    }
}
