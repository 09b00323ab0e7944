//! The store of a model that is bigger than memory: experts in an arena of slots, the rest on disk.
//!
//! `esker-cache` decides, `esker-disk` reads, this joins the two: it carries out the cache's actions, owns the slots'
//! memory, and measures how long the layers waited. A slot's buffer is either here or with the disk; what is not here
//! cannot be computed with, so a half-read expert cannot be either.

use crate::checksums::Checksums;
use crate::guard::{Guard, Verdict};
use crate::map::JUST_READ_MAX;
use crate::slots::SlotLayout;
use crate::stats::{ArenaClass, Stats};
use crate::tables::Tables;
use esker_cache::{
    Action, ClassId, ExpertCache, ExpertId, FailCause, LayerCounters, Lookups, Phase, Priority, ReadId,
    Residency, SlotId, Visibility,
};
use esker_disk::{Buffer, Check, Completion, Disk, FileId, Read, Verify};
use esker_models::{ExpertStore, RouteBias, StoreError, StoreLayout, TableId};
use esker_ops::ExpertWeights;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Cache-aware routing (arXiv:2412.00099): off at `lambda` = 0.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct RouteBiasOptions {
    /// Share of a layer's mean logit range that resident experts get on top of their logit when experts are selected.
    pub lambda: f32,
    /// Ranks that are taken from the raw logits always.
    pub protect: usize,
}

impl Default for RouteBiasOptions {
    fn default() -> RouteBiasOptions {
        RouteBiasOptions { lambda: 0.0, protect: 3 }
    }
}

/// Times that the store measured.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StoreTimes {
    /// Compute stood still until an expert or row had been read.
    pub(crate) wait: Duration,
    /// Bytes of table rows read.
    pub(crate) row_bytes: u64,
}

/// Experts cached in slots.
pub(crate) struct CachedStore {
    layout: StoreLayout,
    slots_of_layer: Vec<Option<SlotLayout>>,
    /// Cache's number of each model layer.
    cache_layer: Vec<Option<u16>>,
    /// Model layer of each of the cache's.
    model_layer: Vec<usize>,
    cache: ExpertCache,
    disk: Box<dyn Disk>,
    files: Vec<FileId>,
    paths: Vec<PathBuf>,
    /// `None` if the file has none.
    checksums: Option<Arc<Checksums>>,
    /// By slot, in use or not; `None` while a read fills it.
    buffers: Vec<Option<Buffer>>,
    tables: Tables,
    in_flight: Vec<(ReadId, ExpertId, SlotId)>,
    actions: Vec<Action>,
    /// Those that are being carried out.
    acting: Vec<Action>,
    done: Vec<Completion>,
    want: Want,
    routing: Routing,
    last_error: Option<String>,
    phase: Phase,
    pass_tokens: u32,
    /// (expert, tokens of the chunk that use it).
    counts: Vec<(u16, u32)>,
    /// (layer, expert) read since somebody looked.
    just_read: Vec<(u16, u16)>,
    guard: Guard,
    shrinks: u64,
    pub(crate) times: StoreTimes,
}

/// The layer that is being computed.
#[derive(Default)]
struct Want {
    il: usize,
    experts: Vec<u16>,
    /// Position of each expert in `experts`, by expert.
    position: Vec<u16>,
    /// By position.
    slot: Vec<Option<SlotId>>,
    /// Positions that became ready and were not given out yet.
    ready: Vec<usize>,
    failed: Option<FailCause>,
}

/// Cache-aware routing and prediction.
struct Routing {
    options: RouteBiasOptions,
    mask: Vec<bool>,
    /// Layer that `mask` is of, in this pass.
    mask_of: Option<usize>,
    /// By model layer: mean of (largest - smallest) raw logit, as of the beginning of the pass.
    range: Vec<f32>,
    /// Sum and count of the ranges seen.
    seen: Vec<(f64, u64)>,
    score: Vec<f32>,
    ranked: Vec<u32>,
    ranked16: Vec<u16>,
    /// Ranks that are predicted.
    depth: usize,
    /// Ranks that the policy is told of; 0 if it does not listen.
    near_depth: usize,
    /// The last token's experts by raw logit, best first, `near_depth` of them.
    near16: Vec<u16>,
}

/// What a store is made from.
pub(crate) struct CachedParts {
    pub(crate) layout: StoreLayout,
    pub(crate) slots_of_layer: Vec<Option<SlotLayout>>,
    pub(crate) cache: ExpertCache,
    pub(crate) disk: Box<dyn Disk>,
    pub(crate) files: Vec<FileId>,
    pub(crate) paths: Vec<PathBuf>,
    pub(crate) buffers: Vec<Buffer>,
    pub(crate) tables: Tables,
    pub(crate) route_bias: RouteBiasOptions,
    /// Router ranks that are predicted for read-ahead.
    pub(crate) depth: usize,
    /// Router ranks that the policy is told of; 0 if it does not listen.
    pub(crate) near_depth: usize,
}

impl CachedStore {
    pub(crate) fn new(parts: CachedParts) -> CachedStore {
        let mut cache_layer = vec![None; parts.layout.layers.len()];
        let mut model_layer = Vec::new();
        for (il, layer) in parts.layout.layers.iter().enumerate() {
            if layer.is_some() {
                cache_layer[il] = Some(model_layer.len() as u16);
                model_layer.push(il);
            }
        }
        let n_expert = parts.layout.layers.iter().flatten().map(|l| l.n_expert).max().unwrap_or(0);
        let reads_max = usize::from(parts.cache.config().reads_max);
        let n_layer = parts.layout.layers.len();
        let checksums = Checksums::new(&parts.layout, &parts.slots_of_layer).map(Arc::new);
        CachedStore {
            layout: parts.layout,
            slots_of_layer: parts.slots_of_layer,
            cache_layer,
            model_layer,
            cache: parts.cache,
            disk: parts.disk,
            files: parts.files,
            paths: parts.paths,
            checksums,
            // What a layer causes, and what a shrink or a move does.
            actions: Vec::with_capacity(4 * n_expert + parts.buffers.len() / 8),
            acting: Vec::with_capacity(4 * n_expert + parts.buffers.len() / 8),
            buffers: parts.buffers.into_iter().map(Some).collect(),
            tables: parts.tables,
            in_flight: Vec::with_capacity(reads_max),
            done: Vec::with_capacity(2 * reads_max),
            want: Want { position: vec![0; n_expert], ..Want::default() },
            routing: Routing {
                options: parts.route_bias,
                mask: Vec::with_capacity(n_expert),
                mask_of: None,
                range: vec![0.0; n_layer],
                seen: vec![(0.0, 0); n_layer],
                score: Vec::with_capacity(n_expert),
                ranked: vec![0; n_expert],
                ranked16: Vec::with_capacity(n_expert),
                depth: parts.depth,
                near_depth: parts.near_depth,
                near16: Vec::with_capacity(n_expert),
            },
            last_error: None,
            phase: Phase::Prefill,
            pass_tokens: 0,
            counts: Vec::with_capacity(n_expert),
            just_read: Vec::with_capacity(JUST_READ_MAX),
            guard: Guard::new(),
            shrinks: 0,
            times: StoreTimes::default(),
        }
    }

    /// Adds what is counted here.
    pub(crate) fn count(&self, stats: &mut Stats) {
        stats.count_cache(self.cache.counters(), self.cache.layer_counters(), &self.model_layer);
        stats.wait_s = self.times.wait.as_secs_f64();
        stats.row_bytes_read = self.times.row_bytes;
        stats.arena_shrinks = self.shrinks;
        let classes = self.cache.config().classes.iter().zip(0..);
        stats.arena_classes = classes
            .map(|(class, i)| ArenaClass {
                slot_bytes: class.slot_bytes,
                n_slots: u64::from(self.cache.n_slots(ClassId(i))),
            })
            .collect();
    }

    /// Calls `expert` with the layer and number of everything that is in memory now.
    pub(crate) fn resident(&self, mut expert: impl FnMut(usize, usize)) {
        for (layer, &il) in (0..).zip(&self.model_layer) {
            let n_expert = self.layout.layers[il].as_ref().map_or(0, |l| l.n_expert);
            for index in 0..n_expert as u16 {
                if let Residency::Resident(_) = self.cache.residency(ExpertId { layer, index }) {
                    expert(il, usize::from(index));
                }
            }
        }
    }

    /// Lookups so far of every layer with experts.
    pub(crate) fn lookups(&self) -> impl Iterator<Item = (usize, Lookups)> {
        let counters = self.cache.layer_counters().iter().zip(&self.model_layer);
        counters.map(|(LayerCounters { decode, prefill }, &il)| {
            let hits = decode.hits + prefill.hits;
            let read_ahead_hits = decode.read_ahead_hits + prefill.read_ahead_hits;
            (il, Lookups { hits, read_ahead_hits, misses: decode.misses + prefill.misses })
        })
    }

    /// Moves what was read since the last call to `reads`.
    pub(crate) fn take_just_read(&mut self, reads: &mut Vec<(u16, u16)>) {
        reads.append(&mut self.just_read);
    }

    /// Gives an eighth of every class's slots back to the system.
    ///
    /// # Errors
    /// If no class can spare any: then the request ends rather than the machine swaps.
    fn shrink(&mut self, available: u64, floor: u64) -> Result<(), StoreError> {
        let classes = self.cache.config().classes.len();
        let mut shrunk = false;
        for class in 0..classes {
            let class = ClassId(class as u8);
            let n = self.cache.n_slots_planned(class);
            let fewer = (n - n / 8).max(self.cache.config().slots_min(class));
            if fewer < n && self.cache.shrink(class, fewer, &mut self.actions).is_ok() {
                shrunk = true;
            }
        }
        self.act();
        if !shrunk {
            return Err(StoreError::NoRoom(format!(
                "the machine has {available} bytes of memory left, less than the floor of {floor}, and the arena cannot \
                 become smaller"
            )));
        }
        self.shrinks += 1;
        Ok(())
    }

    fn layer(&self, il: usize) -> u16 {
        self.cache_layer[il].expect("asked for layers with experts only")
    }

    /// Carries out what the cache asked for, and what follows from that.
    fn act(&mut self) {
        while !self.actions.is_empty() {
            let mut acting = std::mem::replace(&mut self.actions, std::mem::take(&mut self.acting));
            self.carry_out(&mut acting);
            self.acting = acting;
        }
    }

    fn carry_out(&mut self, actions: &mut Vec<Action>) {
        for action in actions.drain(..) {
            match action {
                Action::Read { read, expert, slot, priority } => self.submit(read, expert, slot, priority),
                Action::Promote { read } => {
                    // A read that has just completed cannot be moved forward any more.
                    let _ = self.disk.promote(esker_disk::ReadId(read.get()));
                }
                Action::Ready { expert, slot } => {
                    let position = usize::from(self.want.position[usize::from(expert.index)]);
                    self.want.slot[position] = Some(slot);
                    self.want.ready.push(position);
                }
                Action::Fail { cause, .. } => self.want.failed = Some(cause),
                Action::Retire { slot } => {
                    let buffer = self.unread(slot);
                    // If the system refuses, the slot is unused all the same, and no other is used instead of it.
                    if buffer.release_pages().is_ok() {
                        let _ = buffer.advise_huge_pages(false);
                        self.cache.given_back(slot, &mut self.actions);
                    }
                }
                Action::Restore { slot } => {
                    let _ = self.unread(slot).advise_huge_pages(true);
                }
            }
        }
    }

    /// The buffer of a slot that no read fills.
    fn unread(&mut self, slot: SlotId) -> &mut Buffer {
        self.buffers[slot.0 as usize].as_mut().expect("the cache retires and restores empty slots")
    }

    fn submit(&mut self, read: ReadId, expert: ExpertId, slot: SlotId, priority: Priority) {
        let il = self.model_layer[usize::from(expert.layer)];
        let layout = self.slots_of_layer[il].as_ref().expect("the cache knows layers with experts only");
        let segments = layout.segments(usize::from(expert.index), &self.files);
        let buffer =
            self.buffers[slot.0 as usize].take().expect("the cache gives a slot to one read at a time");
        let priority = match priority {
            Priority::Demand => esker_disk::Priority::Demand,
            Priority::ReadAhead { .. } => esker_disk::Priority::ReadAhead,
        };
        self.in_flight.push((read, expert, slot));
        let read = Read { id: esker_disk::ReadId(read.get()), priority, buffer, segments };
        let check = self.checksums.as_ref().map(|checksums| Check {
            verifier: Arc::clone(checksums) as Arc<dyn Verify>,
            key: Checksums::key(il, expert.index),
        });
        if self.disk.submit_checked(read, check).is_err() {
            unreachable!(
                "the disk takes as many reads as the cache may have in flight, and the rows of tables"
            );
        }
    }

    /// Hands completed reads to the cache.
    fn complete(&mut self, completion: Completion) {
        let Some(completion) = self.tables.reclaim(completion) else { return };
        let at = self.in_flight.iter().position(|(read, ..)| read.get() == completion.id.0);
        let (read, expert, slot) =
            self.in_flight.swap_remove(at.expect("completions are of reads that were submitted"));
        let il = self.model_layer[usize::from(expert.layer)];
        let problem = completion.result.as_ref().err().map(|error| with_causes(error));
        self.buffers[slot.0 as usize] = Some(completion.buffer);
        let ok = problem.is_none();
        if ok && self.just_read.len() < JUST_READ_MAX {
            self.just_read.push((il as u16, expert.index));
        }
        if let Some(problem) = problem {
            self.last_error = Some(format!("expert {} of layer {il}: {problem}", expert.index));
        }
        self.cache.read_done(read, ok, &mut self.actions);
        self.act();
    }

    /// Takes in what has completed, without waiting.
    fn poll(&mut self) {
        let mut done = std::mem::take(&mut self.done);
        self.disk.poll(&mut done);
        for completion in done.drain(..) {
            self.complete(completion);
        }
        self.done = done;
    }

    /// Waits until at least one read has completed.
    fn wait_for_one(&mut self) -> Result<(), StoreError> {
        let started = Instant::now();
        let mut done = std::mem::take(&mut self.done);
        let waited = self.disk.wait(&mut done);
        self.times.wait += started.elapsed();
        for completion in done.drain(..) {
            self.complete(completion);
        }
        self.done = done;
        waited.map_err(|e| self.read_error("experts", with_causes(&e)))
    }

    fn read_error(&self, what: &str, cause: String) -> StoreError {
        StoreError::Read { what: what.to_owned(), file: self.paths[0].clone(), cause }
    }
}

/// An error and everything under it, on one line.
pub(crate) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}

impl ExpertStore for CachedStore {
    fn layout(&self) -> &StoreLayout {
        &self.layout
    }

    fn begin_pass(&mut self, n_tokens: usize, is_decode: bool) -> Result<(), StoreError> {
        // A pass that failed may have left experts pinned.
        self.cache.abandon(&mut self.actions);
        self.act();
        self.want.ready.clear();
        if self.cache.config().visibility == Visibility::Stepwise {
            // Routing will see the map: it must not depend on how fast the disk is.
            while !self.cache.is_quiet() {
                self.wait_for_one()?;
            }
        } else {
            self.poll();
        }
        if let Verdict::Low { available, floor } = self.guard.look() {
            self.shrink(available, floor)?;
        }
        let phase = if is_decode { Phase::Decode } else { Phase::Prefill };
        self.phase = phase;
        self.pass_tokens = n_tokens as u32;
        self.cache.begin_step(phase, &mut self.actions);
        self.act();
        self.routing.mask_of = None;
        for (range, (sum, n)) in self.routing.range.iter_mut().zip(&self.routing.seen) {
            *range = if *n == 0 { 0.0 } else { (sum / *n as f64) as f32 };
        }
        Ok(())
    }

    fn begin(&mut self, il: usize, experts: &[u32], n_tokens: &[u32]) -> Result<(), StoreError> {
        let layer = self.layer(il);
        self.poll();
        let want = &mut self.want;
        want.il = il;
        want.failed = None;
        want.ready.clear();
        want.slot.clear();
        want.slot.resize(experts.len(), None);
        want.experts.clear();
        for (position, &e) in experts.iter().enumerate() {
            want.experts.push(e as u16);
            want.position[e as usize] = position as u16;
        }
        if self.phase == Phase::Prefill {
            self.counts.clear();
            self.counts.extend(self.want.experts.iter().copied().zip(n_tokens.iter().copied()));
            self.cache.prompt_counts(layer, self.pass_tokens, &self.counts);
        }
        self.cache.want(layer, &self.want.experts, &mut self.actions);
        self.act();
        if self.phase == Phase::Decode && self.routing.near_depth > 0 {
            self.cache.near_picks(layer, &self.routing.near16);
        }
        Ok(())
    }

    fn wait(&mut self, ready: &mut Vec<usize>) -> Result<(), StoreError> {
        self.poll();
        loop {
            if let Some(cause) = self.want.failed.take() {
                let il = self.want.il;
                let cause = match (cause, self.last_error.take()) {
                    (FailCause::ReadFailed { .. }, Some(error)) => {
                        format!("read twice without success: {error}")
                    }
                    (cause, _) => format!("{cause:?}"),
                };
                return Err(self.read_error(&format!("experts of layer {il}"), cause));
            }
            if !self.want.ready.is_empty() {
                ready.append(&mut self.want.ready);
                return Ok(());
            }
            self.wait_for_one()?;
        }
    }

    fn weights(&self, position: usize) -> ExpertWeights<'_> {
        let il = self.want.il;
        let slot = self.want.slot[position].expect("only ready positions are asked for");
        let buffer = self.buffers[slot.0 as usize].as_ref().expect("a ready expert's slot is pinned");
        let slots = self.slots_of_layer[il].as_ref().expect("a layer with experts");
        let layout = self.layout.layers[il].as_ref().expect("a layer with experts");
        layout.weights(&slots.slices(usize::from(self.want.experts[position]), buffer))
    }

    fn release(&mut self, position: usize) {
        let layer = self.layer(self.want.il);
        self.want.slot[position] = None;
        self.cache.release(layer, self.want.experts[position], &mut self.actions);
        self.act();
    }

    fn route_bias(&mut self, il: usize) -> Option<RouteBias<'_>> {
        let RouteBiasOptions { lambda, protect } = self.routing.options;
        if lambda == 0.0 {
            return None;
        }
        if self.routing.mask_of != Some(il) {
            let layout = self.layout.layers[il].as_ref().expect("a layer with experts");
            let layer = self.layer(il);
            self.routing.mask.resize(layout.n_expert, false);
            self.cache.resident_mask(layer, &mut self.routing.mask);
            self.routing.mask_of = Some(il);
        }
        Some(RouteBias { resident: &self.routing.mask, bonus: lambda * self.routing.range[il], protect })
    }

    fn routed(&mut self, il: usize, logits: &[f32], _chosen: &[u32]) {
        let routing = &mut self.routing;
        if routing.options.lambda > 0.0 {
            let (min, max) =
                logits.iter().fold((f32::INFINITY, f32::NEG_INFINITY), |(a, b), &l| (a.min(l), b.max(l)));
            let (sum, n) = &mut routing.seen[il];
            *sum += f64::from(max - min);
            *n += 1;
        }
        if self.phase == Phase::Decode && routing.near_depth > 0 {
            let depth = routing.near_depth.min(logits.len());
            esker_ops::top_k(logits, &mut routing.ranked[..depth]);
            routing.near16.clear();
            routing.near16.extend(routing.ranked[..depth].iter().map(|&e| e as u16));
        }
    }

    fn wants_read_ahead(&self, il: usize) -> bool {
        self.cache_layer.get(il).is_some_and(Option::is_some) && self.cache.reads_ahead()
    }

    fn read_ahead(&mut self, il: usize, logits: &[f32]) {
        let layer = self.layer(il);
        let depth = self.routing.depth.min(logits.len());
        let mut ranked = std::mem::take(&mut self.routing.ranked);
        let mut score = std::mem::take(&mut self.routing.score);
        esker_ops::top_k(logits, &mut ranked[..depth]);
        if let Some(bias) = self.route_bias(il)
            && bias.is_active(depth)
        {
            bias.reselect(logits, &mut score, &mut ranked[..depth]);
        }
        self.routing.ranked16.clear();
        self.routing.ranked16.extend(ranked[..depth].iter().map(|&e| e as u16));
        self.routing.ranked = ranked;
        self.routing.score = score;
        self.cache.read_ahead(layer, &self.routing.ranked16, &mut self.actions);
        self.act();
    }

    fn rows(&mut self, table: TableId, rows: &[u64], out: &mut [f32]) -> Result<(), StoreError> {
        let started = Instant::now();
        let mut others = std::mem::take(&mut self.done);
        let result =
            self.tables.rows(table, rows, out, &mut *self.disk, |completion| others.push(completion));
        self.times.wait += started.elapsed();
        for completion in others.drain(..) {
            self.complete(completion);
        }
        self.done = others;
        match result {
            Ok(bytes) => {
                self.times.row_bytes += bytes;
                Ok(())
            }
            Err(error) => {
                let name = &self.layout.tables[table.0].tensor.name;
                Err(self.read_error(&format!("rows of `{name}`"), with_causes(&error)))
            }
        }
    }
}
