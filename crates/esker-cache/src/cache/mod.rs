//! The state machine: calls of the engine in, actions out.
//!
//! `mod.rs` has the state and the calls of a step (begin, want, release), `filling.rs` how experts get
//! slots and reads, `ahead.rs` read-ahead, `prompt.rs` what a prompt may not evict, `resize.rs` giving slots
//! back, `division.rs` giving a class the bytes of another, `check.rs` the invariants in executable form.

mod ahead;
mod check;
mod division;
mod filling;
mod prompt;
mod resize;
mod view;

use std::collections::VecDeque;

use crate::action::{Action, Event, FailCause};
use crate::config::{CacheConfig, ConfigError, Visibility};
use crate::counters::{Counters, LayerCounters, Lookups};
use crate::evict_queue::EvictQueue;
use crate::ids::{ExpertNo, NONE, Phase, ReadId, SlotId};
use crate::layout::Layout;
use crate::policy::{AnyPolicy, Policy, Use};
use crate::reads::ReadTable;
use crate::residency::ResidencyMap;
use crate::slots::Slots;

pub use check::Inconsistency;
pub use resize::ResizeError;
pub use view::Residency;

/// Where an expert is in its way from disk to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    OnDisk,
    /// Wanted, and no slot could be given to it yet.
    Waiting,
    /// Has a slot; the read is not issued yet.
    Queued,
    Reading,
    Resident,
}

#[derive(Clone, Copy, Debug)]
struct Expert {
    /// Serial number of the last lookup; before the first, the expert's own number, so that no two are equal.
    stamp: u64,
    /// Serial number of the last lookup by decode; 0: none since it was last on disk.
    decode_stamp: u64,
    /// The last step at whose beginning it was resident, and in which it lost its slot.
    lost_in_step: u64,
    /// The last want that asked for it.
    last_want: u64,
    /// How-manieth of its class it was to be evicted while decoding; 0: it has not been.
    evicted_as: u64,
    /// `NONE` in states `OnDisk` and `Waiting`.
    slot: SlotId,
    /// Wants that are not released yet.
    pins: u32,
    state: State,
    /// Released by the engine, but not yet by the batch (see `Batch`).
    let_go: bool,
    /// Read ahead soon after it was evicted, and nobody has wanted it yet.
    is_near: bool,
}

/// The one open want of a cache whose residency routing sees.
///
/// There the order in which experts are released must not matter, since it follows the order in which reads
/// complete. So releases take effect in the order in which the experts got their slots (those that were there
/// first, then the others in the order of the want): while experts of the want still wait for slots, a pin
/// goes when all before it are released, too; when none waits, all pins go at the end. Only experts that have
/// slots are listed, so the list never waits for somebody who waits for it.
struct Batch {
    experts: Vec<ExpertNo>,
    /// Pins up to here are gone.
    cursor: usize,
    /// Experts of the want that are neither released nor failed, listed or not.
    n_open: usize,
}

/// The expert cache. See the crate documentation for how to drive it.
pub struct ExpertCache {
    config: CacheConfig,
    pub(crate) layout: Layout,
    pub(crate) policy: AnyPolicy,
    queue: EvictQueue,
    experts: Vec<Expert>,
    pub(crate) slots: Slots,
    reads: ReadTable,
    residency: ResidencyMap,
    ahead: ahead::ReadAhead,
    division: division::Division,
    /// Per class: experts in state `Waiting`, first come first served.
    waiting: Vec<VecDeque<ExpertNo>>,
    n_waiting: usize,
    /// Wanted experts in state `Queued`, in the order in which they will be read.
    to_read: VecDeque<ExpertNo>,
    batch: Batch,
    phase: Option<Phase>,
    step: u64,
    /// Serial number of the last lookup.
    stamp: u64,
    want_serial: u64,
    /// `want_serial` when the step began: later ones belong to this step.
    step_first_want: u64,
    counters: Counters,
    layer_counters: Vec<LayerCounters>,
    /// For `prompt.rs`: (last use, slot).
    ranking: Vec<(u64, u32)>,
}

impl ExpertCache {
    /// A cache in which nothing is resident. All memory that it will ever need is allocated here.
    ///
    /// # Errors
    /// If a field of `config` is out of its range, or a class has fewer slots than one token needs at once
    /// ([`ConfigError::TooFewSlots`] says how many would work).
    pub fn new(config: CacheConfig) -> Result<ExpertCache, ConfigError> {
        config.check()?;
        let layout = Layout::new(&config);
        let n_experts = layout.n_experts();
        let n_slots: Vec<u32> = config.classes.iter().map(|c| c.n_slots).collect();
        let slots = Slots::new(&config);
        let n_made: Vec<u32> = slots.pools.iter().map(|pool| pool.end - pool.first).collect();
        let n_made_max = n_made.iter().copied().max().unwrap_or(0) as usize;
        let experts_of =
            |class| layout.layers.iter().filter(move |l| l.class == class).map(|l| l.n_expert as usize);
        let waiting =
            (0..n_slots.len()).map(|class| VecDeque::with_capacity(experts_of(class).sum())).collect();
        let n_expert_max = config.layers.iter().map(|l| l.n_expert as usize).max().unwrap_or(0);
        let on_disk = |e| Expert {
            stamp: e,
            decode_stamp: 0,
            lost_in_step: 0,
            last_want: 0,
            evicted_as: 0,
            slot: SlotId(NONE),
            pins: 0,
            state: State::OnDisk,
            let_go: false,
            is_near: false,
        };
        Ok(ExpertCache {
            policy: AnyPolicy::new(config.policy, &layout, &n_slots),
            queue: EvictQueue::new(n_experts, &n_made),
            experts: (0..n_experts as u64).map(on_disk).collect(),
            reads: ReadTable::new(config.reads_max.into()),
            residency: ResidencyMap::new(&layout, config.visibility),
            ahead: ahead::ReadAhead::new(config.read_ahead, config.layers.len()),
            division: division::Division::new(&config),
            waiting,
            n_waiting: 0,
            to_read: VecDeque::with_capacity(slots.slots.len()),
            batch: Batch { experts: Vec::with_capacity(n_expert_max), cursor: 0, n_open: 0 },
            phase: None,
            step: 0,
            stamp: n_experts as u64,
            want_serial: 0,
            step_first_want: 0,
            counters: Counters::default(),
            layer_counters: vec![LayerCounters::default(); config.layers.len()],
            ranking: Vec::with_capacity(n_made_max),
            slots,
            layout,
            config,
        })
    }

    /// Begins a step: a prompt chunk, or one decoded token. Scores decay here, predictions of the last step
    /// are forgotten, now and then the arena is divided anew ([`RebalanceConfig`](crate::RebalanceConfig)), and with
    /// [`Visibility::Stepwise`] the map that routing sees becomes the present one.
    ///
    /// Cost: O(layers); O(slots · log slots) when the phase changes.
    ///
    /// # Panics
    /// With [`Visibility::Stepwise`], if a read is queued or in flight or a wanted expert is not released:
    /// what routing sees would depend on the disk. The engine waits until
    /// [`ExpertCache::is_quiet`] first. With [`Visibility::Live`] nothing needs to be waited for.
    pub fn begin_step(&mut self, phase: Phase, actions: &mut Vec<Action>) {
        if self.config.visibility == Visibility::Stepwise {
            assert!(self.is_quiet(), "a step may begin only when no read is queued or in flight");
            assert_eq!(self.batch.n_open, 0, "a step may begin only when all wanted experts are released");
        }
        self.forget_predictions();
        if phase == Phase::Decode {
            self.rebalance(actions);
        }
        self.step += 1;
        self.step_first_want = self.want_serial;
        self.policy.begin_step();
        match phase {
            Phase::Prefill => self.counters.prefill_steps += 1,
            Phase::Decode => self.counters.decode_steps += 1,
        }
        match (self.phase, phase) {
            (Some(Phase::Decode), Phase::Prefill) => self.mark_hot(),
            (Some(Phase::Prefill), Phase::Decode) => self.unmark_hot(),
            _ => {}
        }
        self.phase = Some(phase);
        self.residency.advance();
        // What was kept for the last step may be what an unfinished want waits for.
        for class in 0..self.waiting.len() {
            self.serve(class, actions);
        }
        self.pump(actions);
    }

    /// A layer needs these experts now: pins those that are there and starts reading the others.
    ///
    /// `experts`: distinct indices, in decode in the router's order. Each ends in exactly one `Ready` or
    /// `Fail`; each `Ready` is followed by one [`release`](ExpertCache::release). As many as there are slots
    /// may be pinned at once; the rest follows as experts are released, so a prompt may ask for more experts
    /// than there are slots. Up to `top_k` of the layer become ready without any release, provided that
    /// earlier wants of the class are released.
    ///
    /// Which slots the missing experts take is decided here, not when the disk is free, as long as there are
    /// slots: without read-ahead the outcome of a decode step does not depend on the disk.
    ///
    /// # Panics
    /// If no step has begun, an index is out of range or given twice, or, with [`Visibility::Stepwise`], the
    /// last want is not released.
    pub fn want(&mut self, layer: u16, experts: &[u16], actions: &mut Vec<Action>) {
        let phase = self.phase.expect("begin_step comes before want");
        let stepwise = self.config.visibility == Visibility::Stepwise;
        if stepwise {
            assert_eq!(self.batch.n_open, 0, "the last want must be released before the next");
        }
        self.want_serial += 1;
        let class = self.layout.layer(layer).class;
        // Everything that is there is pinned before anything is evicted.
        for (rank, &index) in experts.iter().enumerate() {
            let e = self.layout.expert(layer, index);
            let expert = &mut self.experts[e as usize];
            assert_ne!(expert.last_want, self.want_serial, "layer {layer} wants expert {index} twice");
            self.stamp += 1;
            expert.last_want = self.want_serial;
            expert.stamp = self.stamp;
            if phase == Phase::Decode {
                expert.decode_stamp = self.stamp;
            }
            let has_slot = expert.slot.0 != NONE;
            self.policy.wanted(Use { expert: e, rank: rank as u32, phase, has_slot, stamp: self.stamp });
            self.look_up(e, phase, actions);
            if stepwise {
                self.batch.n_open += 1;
                if has_slot {
                    self.batch.experts.push(e);
                }
            }
        }
        self.judge_predictions(layer, experts.len());
        self.serve(class, actions);
        if self.n_waiting > 0 {
            let is_waiting = |&&index: &&u16| {
                self.experts[self.layout.expert(layer, index) as usize].state == State::Waiting
            };
            self.counters.slot_waits += experts.iter().filter(is_waiting).count() as u64;
        }
        self.pump(actions);
    }

    /// Counts one lookup and pins its expert.
    fn look_up(&mut self, e: ExpertNo, phase: Phase, actions: &mut Vec<Action>) {
        let class = self.layout.class_of(e);
        let Expert { state, slot, pins, lost_in_step, .. } = self.experts[e as usize];
        self.experts[e as usize].pins = pins + 1;
        self.note_demand(e, phase);
        let mut outcome = Lookups::default();
        if slot.0 == NONE {
            outcome.misses = 1;
            if state == State::OnDisk {
                self.experts[e as usize].state = State::Waiting;
                self.waiting[class].push_back(e);
                self.n_waiting += 1;
            }
        } else {
            if pins == 0 {
                self.unhold(e);
                self.slots.pools[class].n_pinned += 1;
                if state == State::Resident {
                    self.queue.remove(class, e);
                }
            }
            let step = self.step;
            let s = self.slots.get(slot);
            let was_unused = std::mem::take(&mut s.is_unused);
            // Since the step began it has come, not come back.
            let is_new = s.filled_step == step && lost_in_step != step;
            let ahead = &mut self.counters.read_ahead;
            match state {
                State::Resident => {
                    match (was_unused, is_new) {
                        (true, true) => {
                            outcome.read_ahead_hits = 1;
                            ahead.on_time += 1;
                        }
                        (true, false) => {
                            outcome.hits = 1;
                            ahead.used_later += 1;
                        }
                        (false, _) => outcome.hits = 1,
                    }
                    actions.push(Action::Ready { expert: self.layout.id(e), slot });
                }
                State::Reading => {
                    outcome.misses = 1;
                    if was_unused {
                        ahead.late += 1;
                    }
                    if pins == 0 {
                        let read = self.reads.set_demand(e, true);
                        if was_unused {
                            actions.push(Action::Promote { read });
                        }
                    }
                }
                State::Queued => {
                    outcome.misses = 1;
                    if pins == 0 {
                        self.to_read.push_back(e);
                    }
                }
                State::OnDisk | State::Waiting => unreachable!("these have no slot"),
            }
        }
        self.count(e, phase, outcome);
    }

    /// Adds to the totals and to the layer's.
    fn count(&mut self, e: ExpertNo, phase: Phase, outcome: Lookups) {
        let per_layer = &mut self.layer_counters[usize::from(self.layout.layer_of(e))];
        let (total, layer) = match phase {
            Phase::Decode => (&mut self.counters.decode, &mut per_layer.decode),
            Phase::Prefill => (&mut self.counters.prefill, &mut per_layer.prefill),
        };
        for lookups in [total, layer] {
            lookups.hits += outcome.hits;
            lookups.read_ahead_hits += outcome.read_ahead_hits;
            lookups.misses += outcome.misses;
        }
    }

    /// The engine has finished computing with an expert that was reported `Ready`.
    ///
    /// # Panics
    /// If it is not pinned, or was not reported `Ready`.
    pub fn release(&mut self, layer: u16, expert: u16, actions: &mut Vec<Action>) {
        let e = self.layout.expert(layer, expert);
        let x = &mut self.experts[e as usize];
        let is_ready = x.pins > 0 && x.state == State::Resident && !x.let_go;
        assert!(is_ready, "layer {layer} released expert {expert}, which it does not hold");
        match self.config.visibility {
            Visibility::Live => self.unpin(e, actions),
            Visibility::Stepwise => {
                x.let_go = true;
                self.batch.n_open -= 1;
                self.advance_batch(actions);
            }
        }
        self.pump(actions);
    }

    /// Takes one pin away; the last one makes the expert evictable.
    fn unpin(&mut self, e: ExpertNo, actions: &mut Vec<Action>) {
        let x = &mut self.experts[e as usize];
        x.pins -= 1;
        if x.pins == 0 {
            let class = self.layout.class_of(e);
            let slot = x.slot;
            self.slots.end_fetch(slot, class);
            self.slots.pools[class].n_pinned -= 1;
            self.make_evictable(e);
            self.serve(class, actions);
        }
    }

    /// Lets releases take effect as far as the order of the want allows.
    fn advance_batch(&mut self, actions: &mut Vec<Action>) {
        while self.batch.cursor < self.batch.experts.len()
            && (self.batch.n_open == 0 || self.n_waiting > 0)
            && self.experts[self.batch.experts[self.batch.cursor] as usize].let_go
        {
            let e = self.batch.experts[self.batch.cursor];
            self.batch.cursor += 1;
            self.experts[e as usize].let_go = false;
            // A failed expert holds nothing.
            if self.experts[e as usize].pins > 0 {
                self.unpin(e, actions);
            }
        }
        if self.batch.cursor == self.batch.experts.len() {
            self.batch.experts.clear();
            self.batch.cursor = 0;
        }
    }

    /// A read is over. `ok`: all of its bytes arrived and were right; anything else is `false`, and a slot is
    /// never shown that was not filled completely. A read that somebody waits for is tried once more; one
    /// that nobody waits for is forgotten.
    ///
    /// # Panics
    /// If `read` is not in flight.
    pub fn read_done(&mut self, read: ReadId, ok: bool, actions: &mut Vec<Action>) {
        let done = self.reads.finish(read);
        let class = self.layout.class_of(done.expert);
        if ok {
            self.fill(done.expert, actions);
        } else {
            self.counters.reads_failed += 1;
            if !done.demand {
                self.counters.read_ahead.failed += u64::from(self.slots.get(done.slot).is_unused);
                self.empty(done.expert);
            } else if done.is_retry {
                self.fail(done.expert, FailCause::ReadFailed { read }, actions);
            } else {
                self.retry(done.expert, actions);
            }
        }
        self.serve(class, actions);
        self.pump(actions);
    }

    /// Ends every pending want: the generation was cancelled or has failed. Pins are dropped, experts still
    /// awaited end in `Fail`, reads in flight go on and their experts stay. Affects all sessions that share
    /// the cache.
    pub fn abandon(&mut self, actions: &mut Vec<Action>) {
        let cause = FailCause::Abandoned;
        for class in 0..self.waiting.len() {
            while let Some(e) = self.waiting[class].pop_front() {
                self.n_waiting -= 1;
                self.leave(e);
                self.report_failed(e, cause, actions);
            }
        }
        while let Some(e) = self.to_read.pop_front() {
            self.fail(e, cause, actions);
        }
        for i in 0..self.slots.pools.len() {
            self.abandon_pinned(i, actions);
        }
        for &e in &self.batch.experts {
            self.experts[e as usize].let_go = false;
        }
        self.batch.experts.clear();
        self.batch.cursor = 0;
        self.batch.n_open = 0;
        for class in 0..self.waiting.len() {
            self.serve(class, actions);
        }
        self.pump(actions);
    }

    /// Drops the pins of a class.
    fn abandon_pinned(&mut self, class: usize, actions: &mut Vec<Action>) {
        for slot in self.slots.pools[class].first..self.slots.pools[class].end {
            if self.slots.pools[class].n_pinned == 0 {
                break;
            }
            let e = self.slots.slots[slot as usize].owner;
            if e == NONE || self.experts[e as usize].pins == 0 {
                continue;
            }
            self.slots.end_fetch(SlotId(slot), class);
            self.slots.pools[class].n_pinned -= 1;
            match self.experts[e as usize].state {
                State::Resident => {
                    self.experts[e as usize].pins = 0;
                    self.make_evictable(e);
                }
                State::Reading => {
                    self.reads.set_demand(e, false);
                    self.report_failed(e, FailCause::Abandoned, actions);
                }
                state => unreachable!("a pinned slot cannot be {state:?} here"),
            }
        }
    }

    /// Performs a recorded call: the state after a sequence of calls is a function of the sequence alone, so
    /// a recorded run replays to the same actions and counts.
    ///
    /// # Errors
    /// Those of [`ExpertCache::shrink`] and [`ExpertCache::grow`].
    ///
    /// # Panics
    /// As the method of the same name.
    pub fn apply(&mut self, event: Event<'_>, actions: &mut Vec<Action>) -> Result<(), ResizeError> {
        match event {
            Event::BeginStep(phase) => self.begin_step(phase, actions),
            Event::Want { layer, experts } => self.want(layer, experts, actions),
            Event::ReadDone { read, ok } => self.read_done(read, ok, actions),
            Event::Release { layer, expert } => self.release(layer, expert, actions),
            Event::ReadAhead { layer, ranked } => self.read_ahead(layer, ranked, actions),
            Event::NearPicks { layer, ranked } => self.near_picks(layer, ranked),
            Event::PromptCounts { layer, n_tokens, counts } => self.prompt_counts(layer, n_tokens, counts),
            Event::NextUse { layer, expert, when } => self.set_next_use(layer, expert, when),
            Event::Shrink { class, n_slots } => self.shrink(class, n_slots, actions)?,
            Event::Grow { class, n_slots } => self.grow(class, n_slots, actions)?,
            Event::GivenBack { slot } => self.given_back(slot, actions),
            Event::Abandon => self.abandon(actions),
        }
        Ok(())
    }
}
