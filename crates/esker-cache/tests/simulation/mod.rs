//! Drives an [`ExpertCache`] from a seed, as an engine and a disk that behave as badly as they may: wants of
//! any size, completions out of order, failures, a disk that stops, prompts, wrong predictions, memory that
//! runs short, generations that are cut off.
//!
//! `model.rs` is told every call and every action and knows nothing of the cache's inside. It keeps its own
//! account of slots, pins and reads, and says what is wrong as a [`Violation`].
//!
//! Used by `tests/simulation_test.rs`, by `src/canary.rs` and by `examples/simulate.rs`.

#[path = "../dice/mod.rs"]
mod dice;
mod event;
mod model;
mod random;

use esker_cache::{Action, CacheConfig, ClassId, ExpertCache, ExpertId, Phase, ReadId, SlotId, Visibility};

pub use dice::Rng;
pub use event::OwnedEvent;
pub use model::{Model, Violation};

/// How often things happened, to see that a simulation reaches them.
#[derive(Clone, Copy, Debug, Default)]
#[allow(dead_code, reason = "not every user prints all of them")]
pub struct Tally {
    pub calls: u64,
    pub reads: u64,
    pub hits: u64,
    pub read_ahead_hits: u64,
    pub misses: u64,
    pub late: u64,
    pub evictions: u64,
    pub hot_evictions: u64,
    pub held_evictions: u64,
    pub slot_waits: u64,
    pub retries: u64,
    pub fails: u64,
    pub abandoned: u64,
    pub retired: u64,
    pub restored: u64,
    pub moves: u64,
    pub turned_off: u64,
    pub turned_on: u64,
}

impl Tally {
    #[allow(dead_code, reason = "the canary does not add")]
    pub fn add(&mut self, other: &Tally) {
        self.calls += other.calls;
        self.reads += other.reads;
        self.hits += other.hits;
        self.read_ahead_hits += other.read_ahead_hits;
        self.misses += other.misses;
        self.late += other.late;
        self.evictions += other.evictions;
        self.hot_evictions += other.hot_evictions;
        self.held_evictions += other.held_evictions;
        self.slot_waits += other.slot_waits;
        self.retries += other.retries;
        self.fails += other.fails;
        self.abandoned += other.abandoned;
        self.retired += other.retired;
        self.restored += other.restored;
        self.moves += other.moves;
        self.turned_off += other.turned_off;
        self.turned_on += other.turned_on;
    }
}

/// A cache, the model that watches it, and the dice.
pub struct Simulation {
    pub rng: Rng,
    pub cache: ExpertCache,
    pub model: Model,
    /// Also run [`ExpertCache::check`] after every call.
    pub check_cache: bool,
    /// Changes the actions before the model sees them: a faulty cache, for tests of the model.
    pub tamper: Option<fn(&mut Vec<Action>, &Model)>,
    /// All calls so far, if they are to be kept, and all actions.
    pub recording: Option<(Vec<OwnedEvent>, Vec<Action>)>,
    actions: Vec<Action>,
    /// The disk completes nothing for so many operations.
    stalled: u32,
    fail_percent: u64,
    /// Retired slots whose memory the system is about to take back, and how often it does so at once.
    leaving: Vec<SlotId>,
    prompt_percent: u64,
    retired: u64,
    restored: u64,
    calls: u64,
}

impl Simulation {
    #[allow(dead_code, reason = "the canary brings its own cache")]
    pub fn new(seed: u64) -> Simulation {
        Simulation::with_cache(seed, |config| {
            ExpertCache::new(config).expect("the simulation's configurations are valid")
        })
    }

    pub fn with_cache(seed: u64, make: impl FnOnce(CacheConfig) -> ExpertCache) -> Simulation {
        let mut rng = Rng::new(seed);
        let config = random::config(&mut rng);
        let fail_percent = if rng.chance(50) { 0 } else { rng.below(40) };
        let prompt_percent = *rng.pick(&[100, 100, 50, 0]).expect("not empty");
        let cache = make(config);
        Simulation {
            model: Model::new(cache.config()),
            cache,
            rng,
            check_cache: true,
            tamper: None,
            recording: None,
            actions: Vec::new(),
            stalled: 0,
            fail_percent,
            leaving: Vec::new(),
            prompt_percent,
            retired: 0,
            restored: 0,
            calls: 0,
        }
    }

    /// About `n_calls` calls, then everything that is under way is brought to its end.
    pub fn run(&mut self, n_calls: u64) -> Result<(), Violation> {
        let end = self.calls + n_calls;
        self.begin_step()?;
        while self.calls < end {
            self.operate()?;
        }
        self.finish()?;
        self.top_k_needs_no_release()
    }

    #[allow(dead_code, reason = "the canary does not count")]
    pub fn tally(&self) -> Tally {
        let c = self.cache.counters();
        Tally {
            calls: self.calls,
            reads: c.reads,
            hits: c.decode.hits + c.prefill.hits,
            read_ahead_hits: c.read_ahead.on_time,
            misses: c.decode.misses + c.prefill.misses,
            late: c.read_ahead.late,
            evictions: c.evictions,
            hot_evictions: c.hot_evictions,
            held_evictions: c.held_evictions,
            slot_waits: c.slot_waits,
            retries: c.retries,
            fails: c.wants_failed,
            abandoned: c.wants_abandoned,
            retired: self.retired,
            restored: self.restored,
            moves: c.moves,
            turned_off: c.read_ahead.turned_off,
            turned_on: c.read_ahead.turned_on,
        }
    }

    fn stepwise(&self) -> bool {
        self.cache.config().visibility == Visibility::Stepwise
    }

    /// A call, and what the system does about slots that are retired.
    fn call(&mut self, event: OwnedEvent) -> Result<(), Violation> {
        self.call_cache(event)?;
        while !self.leaving.is_empty() && self.rng.chance(self.prompt_percent) {
            self.give_back()?;
        }
        Ok(())
    }

    /// The system takes memory of a retired slot back, whichever.
    fn give_back(&mut self) -> Result<(), Violation> {
        let n = self.leaving.len() as u64;
        if n == 0 {
            return Ok(());
        }
        let slot = self.leaving.swap_remove(self.rng.below(n) as usize);
        self.call_cache(OwnedEvent::GivenBack { slot })
    }

    fn call_cache(&mut self, event: OwnedEvent) -> Result<(), Violation> {
        self.calls += 1;
        self.model.before(&event, &self.cache);
        self.actions.clear();
        let outcome = self.cache.apply(event.borrow(), &mut self.actions);
        for action in &self.actions {
            match *action {
                Action::Retire { slot } => {
                    self.retired += 1;
                    self.leaving.push(slot);
                }
                Action::Restore { slot } => {
                    self.restored += 1;
                    self.leaving.retain(|&s| s != slot);
                }
                _ => {}
            }
        }
        if let Some(tamper) = self.tamper {
            tamper(&mut self.actions, &self.model);
        }
        self.model
            .after(&event, outcome.is_ok(), &self.actions, &self.cache)
            .map_err(|violation| Violation(format!("{violation}\ncall {}: {event:?}", self.calls)))?;
        if let Some((events, actions)) = &mut self.recording {
            events.push(event);
            actions.extend_from_slice(&self.actions);
        }
        if self.check_cache
            && let Err(inconsistency) = self.cache.check()
        {
            return Err(Violation(inconsistency.to_string()));
        }
        Ok(())
    }

    fn operate(&mut self) -> Result<(), Violation> {
        self.stalled = self.stalled.saturating_sub(1);
        match self.rng.below(100) {
            0..30 => self.complete_one(),
            30..52 => self.release_one(),
            52..68 => self.want(),
            68..76 => self.predict(),
            76..80 => self.near_picks(),
            80..82 => self.prompt_counts(),
            82..84 => self.next_use(),
            84..90 => self.begin_step(),
            90 => self.token(),
            91 => self.prompt(),
            92..94 => self.resize(),
            94 => {
                self.stalled = self.rng.below(60) as u32;
                Ok(())
            }
            95 if self.rng.chance(20) => self.call(OwnedEvent::Abandon),
            96 => self.finish(),
            97 => self.top_k_needs_no_release(),
            98 => self.give_back(),
            // The system keeps the memory of a slot for good.
            99 if self.rng.chance(2) => {
                self.leaving.pop();
                Ok(())
            }
            _ => self.complete_one(),
        }
    }

    fn complete_one(&mut self) -> Result<(), Violation> {
        if self.stalled > 0 {
            return Ok(());
        }
        self.complete(self.fail_percent).map(|_| ())
    }

    /// Completes a read in flight, whichever; returns whether there was one.
    fn complete(&mut self, fail_percent: u64) -> Result<bool, Violation> {
        let reads: Vec<ReadId> = self.model.reads.keys().copied().collect();
        let Some(&read) = self.rng.pick(&reads) else { return Ok(false) };
        let ok = !self.rng.chance(fail_percent);
        self.call(OwnedEvent::ReadDone { read, ok })?;
        Ok(true)
    }

    /// Releases an expert that is ready, whichever; returns whether there was one.
    fn release(&mut self) -> Result<bool, Violation> {
        let ready = self.model.ready();
        let Some(&ExpertId { layer, index }) = self.rng.pick(&ready) else { return Ok(false) };
        self.call(OwnedEvent::Release { layer, expert: index })?;
        Ok(true)
    }

    fn release_one(&mut self) -> Result<(), Violation> {
        self.release().map(|_| ())
    }

    fn want(&mut self) -> Result<(), Violation> {
        if self.stepwise() && self.model.n_outstanding() > 0 {
            return self.finish();
        }
        let layer = self.random_layer();
        let l = self.cache.config().layers[usize::from(layer)];
        let n = match self.model.phase {
            Some(Phase::Prefill) => 1 + self.rng.below(u64::from(l.n_expert)),
            // Sometimes several sessions share a step.
            _ if self.rng.chance(10) => 1 + self.rng.below(u64::from(l.n_expert)),
            _ => u64::from(l.top_k),
        };
        let experts = self.likely_experts(layer, n as usize);
        self.call(OwnedEvent::Want { layer, experts })
    }

    fn predict(&mut self) -> Result<(), Violation> {
        let layer = self.random_layer();
        let n = 1 + self.rng.below(6) as usize;
        let ranked = self.likely_experts(layer, n);
        self.call(OwnedEvent::ReadAhead { layer, ranked })
    }

    fn near_picks(&mut self) -> Result<(), Violation> {
        let layer = self.random_layer();
        let ranked = self.likely_experts(layer, 8);
        self.call(OwnedEvent::NearPicks { layer, ranked })
    }

    fn prompt_counts(&mut self) -> Result<(), Violation> {
        let layer = self.random_layer();
        let n_tokens = 1 + self.rng.below(500) as u32;
        let experts = self.likely_experts(layer, 6);
        let counts =
            experts.into_iter().map(|e| (e, self.rng.below(u64::from(n_tokens) + 1) as u32)).collect();
        self.call(OwnedEvent::PromptCounts { layer, n_tokens, counts })
    }

    fn next_use(&mut self) -> Result<(), Violation> {
        let layer = self.random_layer();
        let expert = self.likely_experts(layer, 1)[0];
        let when = if self.rng.chance(20) { u64::MAX } else { self.rng.below(1000) };
        self.call(OwnedEvent::NextUse { layer, expert, when })
    }

    fn begin_step(&mut self) -> Result<(), Violation> {
        if self.stepwise() {
            self.finish()?;
        }
        let phase = if self.rng.chance(25) { Phase::Prefill } else { Phase::Decode };
        self.call(OwnedEvent::BeginStep(phase))
    }

    fn resize(&mut self) -> Result<(), Violation> {
        let class = ClassId(self.rng.below(self.cache.config().classes.len() as u64) as u8);
        let made = self.cache.config().slots_max(class);
        // Also numbers that are refused.
        let n_slots = self.rng.below(u64::from(made) + 2) as u32;
        if self.rng.chance(40) {
            self.call(OwnedEvent::Shrink { class, n_slots })
        } else {
            self.call(OwnedEvent::Grow { class, n_slots })
        }
    }

    /// A token as an engine runs it: all layers in order, each predicted before the one before it computes.
    fn token(&mut self) -> Result<(), Violation> {
        self.finish()?;
        self.call(OwnedEvent::BeginStep(Phase::Decode))?;
        let accuracy = *self.rng.pick(&[0, 20, 60, 100]).expect("not empty");
        let n_layers = self.cache.config().layers.len() as u16;
        let choose = |s: &mut Simulation, layer: u16| {
            let top_k = s.cache.config().layers[usize::from(layer)].top_k as usize;
            s.likely_experts(layer, top_k)
        };
        let mut experts = choose(self, 0);
        for layer in 0..n_layers {
            self.call(OwnedEvent::Want { layer, experts })?;
            experts = Vec::new();
            if layer + 1 < n_layers {
                experts = choose(self, layer + 1);
                let guess = |s: &mut Simulation, e| if s.rng.chance(accuracy) { e } else { 0 };
                let ranked = experts.iter().map(|&e| guess(self, e)).collect();
                self.call(OwnedEvent::ReadAhead { layer: layer + 1, ranked })?;
                if self.rng.chance(5) {
                    self.squeeze()?;
                }
            }
            while self.model.n_awaited() > 0 {
                if !self.complete(self.fail_percent)? {
                    return Err(Violation("no read is in flight: a want has never ended".into()));
                }
            }
            while self.release()? {}
            // The disk goes on for a while before the next layer knows what it needs.
            for _ in 0..self.rng.below(6) {
                self.complete(self.fail_percent)?;
            }
        }
        Ok(())
    }

    /// A prompt chunk after a token: every layer wants most of its experts, and computes as they come.
    fn prompt(&mut self) -> Result<(), Violation> {
        self.token()?;
        self.finish()?;
        self.call(OwnedEvent::BeginStep(Phase::Prefill))?;
        if self.rng.chance(30) {
            self.squeeze()?;
        }
        for layer in 0..self.cache.config().layers.len() as u16 {
            let n_expert = self.cache.config().layers[usize::from(layer)].n_expert;
            let n = 1 + self.rng.below(u64::from(n_expert));
            let experts = self.likely_experts(layer, n as usize);
            self.call(OwnedEvent::Want { layer, experts })?;
            self.finish()?;
        }
        Ok(())
    }

    /// Memory runs very low.
    fn squeeze(&mut self) -> Result<(), Violation> {
        let class = ClassId(self.rng.below(self.cache.config().classes.len() as u64) as u8);
        let n_slots = self.cache.config().slots_min(class);
        self.call(OwnedEvent::Shrink { class, n_slots })
    }

    /// Lets the disk complete and the engine release until nothing is awaited, in a random order.
    fn finish(&mut self) -> Result<(), Violation> {
        self.stalled = 0;
        // Every round ends a read or a pin, and reads lead to reads no more often than wants wait.
        let limit = 20 * (self.model.n_outstanding() + self.model.reads.len() as u64 + 100);
        for _ in 0..limit {
            if self.model.n_outstanding() == 0 && self.model.reads.is_empty() {
                if !self.cache.is_quiet() {
                    return Err(Violation("nothing is under way, but the cache is not quiet".into()));
                }
                return Ok(());
            }
            // Whichever comes first, and the other when there is none.
            let mut progress = self.rng.chance(50) && self.release()?;
            progress = progress || self.complete(self.fail_percent)?;
            progress = progress || self.release()?;
            if !progress {
                return Err(Violation(format!(
                    "no read is in flight and nothing to release: a want has never ended ({} outstanding)",
                    self.model.n_outstanding()
                )));
            }
        }
        Err(Violation("wants never ended although the disk and the engine made progress".into()))
    }

    /// What an engine relies on that collects a whole layer before it computes.
    fn top_k_needs_no_release(&mut self) -> Result<(), Violation> {
        self.finish()?;
        let layer = self.random_layer();
        let top_k = self.cache.config().layers[usize::from(layer)].top_k as usize;
        let experts = self.likely_experts(layer, top_k);
        self.call(OwnedEvent::Want { layer, experts })?;
        while self.model.n_awaited() > 0 {
            if !self.complete(0)? {
                return Err(Violation("top_k experts wait for a release: the want has never ended".into()));
            }
        }
        self.finish()
    }

    fn random_layer(&mut self) -> u16 {
        self.rng.below(self.cache.config().layers.len() as u64) as u16
    }

    /// `n` distinct experts, low indices more often than high ones.
    fn likely_experts(&mut self, layer: u16, n: usize) -> Vec<u16> {
        let n_expert = self.cache.config().layers[usize::from(layer)].n_expert as u16;
        dice::distinct(&mut self.rng, n_expert, n)
    }
}
