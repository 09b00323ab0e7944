//! An account of the cache kept from the outside: from calls and actions only, by the definitions of the
//! terms, with no regard to how the cache works. It asks the cache only for what it claims to be resident,
//! and for its counters, to compare.

use std::collections::BTreeMap;
use std::fmt;

use esker_cache::{
    Action, CacheConfig, ClassId, ExpertCache, ExpertId, FailCause, Lookups, Phase, Priority, ReadId,
    Residency, SlotId, Visibility,
};

use super::event::OwnedEvent;

/// A broken promise.
#[derive(Clone, Debug, PartialEq)]
pub struct Violation(pub String);

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err(Violation(format!($($message)+)));
        }
    };
}

#[derive(Clone, Debug, Default)]
struct Expert {
    /// Wants that have seen neither `Ready` nor `Fail`.
    n_awaited: u32,
    /// `Ready`s that are not released.
    n_ready: u32,
    resident: Option<SlotId>,
    /// It was resident when the step began.
    was_resident: bool,
    /// Its read was issued ahead and nobody has wanted it since.
    is_unused: bool,
    /// When decode wanted it last while it had its present slot.
    decode_use: u64,
    is_hot: bool,
}

impl Expert {
    fn is_pinned(&self) -> bool {
        self.n_awaited + self.n_ready > 0
    }
}

#[derive(Clone, Debug, Default)]
struct Slot {
    owner: Option<usize>,
    is_retired: bool,
    /// Retired, and the system has taken its memory back.
    is_given_back: bool,
}

#[derive(Clone, Copy, Debug)]
pub struct Read {
    expert: usize,
    slot: SlotId,
    /// Issued ahead, and nobody waits for it.
    is_ahead: bool,
    /// Failures that somebody has waited through.
    n_failed: u32,
}

pub struct Model {
    config: CacheConfig,
    first: Vec<usize>,
    experts: Vec<Expert>,
    slots: Vec<Slot>,
    pub reads: BTreeMap<ReadId, Read>,
    pub phase: Option<Phase>,
    /// Failure of a read that was just reported, with the expert and how often it had failed before.
    last_failure: Option<(ReadId, usize, u32)>,
    /// Classes that lost an expert marked for decode in this call.
    lost_hot: Vec<u8>,
    /// What each class was last told to have, or has been given of others.
    n_target: Vec<u32>,
    /// Slots of each class, in use or not.
    n_made: Vec<u32>,
    /// Bytes that all slots may take together: of the arena, and of what shrinks have left of it.
    arena_bytes: u64,
    bytes_max: u64,
    n_moves: u64,
    decode: Lookups,
    prefill: Lookups,
    now: u64,
    n_reads: u64,
    n_evictions: u64,
    bytes_read: u64,
    wasted_bytes: u64,
}

impl Model {
    pub fn new(config: &CacheConfig) -> Model {
        let mut first = Vec::new();
        let mut n_experts = 0;
        for l in &config.layers {
            first.push(n_experts);
            n_experts += l.n_expert as usize;
        }
        let n_made: Vec<u32> =
            (0..config.classes.len()).map(|class| config.slots_max(ClassId(class as u8))).collect();
        let arena_bytes = config.classes.iter().map(|c| u64::from(c.n_slots) * c.slot_bytes).sum();
        let mut slots = Vec::new();
        for (c, &n_made) in config.classes.iter().zip(&n_made) {
            let is_out = |i| i >= c.n_slots;
            let slot = |i| Slot { owner: None, is_retired: is_out(i), is_given_back: is_out(i) };
            slots.extend((0..n_made).map(slot));
        }
        Model {
            config: config.clone(),
            first,
            experts: vec![Expert::default(); n_experts],
            slots,
            n_made,
            arena_bytes,
            bytes_max: arena_bytes,
            n_moves: 0,
            reads: BTreeMap::new(),
            phase: None,
            last_failure: None,
            lost_hot: Vec::new(),
            n_target: config.classes.iter().map(|c| c.n_slots).collect(),
            decode: Lookups::default(),
            prefill: Lookups::default(),
            now: 0,
            n_reads: 0,
            n_evictions: 0,
            bytes_read: 0,
            wasted_bytes: 0,
        }
    }

    fn no(&self, id: ExpertId) -> usize {
        self.first[usize::from(id.layer)] + usize::from(id.index)
    }

    fn id(&self, e: usize) -> ExpertId {
        let layer = self.first.partition_point(|&first| first <= e) - 1;
        ExpertId { layer: layer as u16, index: (e - self.first[layer]) as u16 }
    }

    fn class(&self, e: usize) -> u8 {
        self.config.layers[usize::from(self.id(e).layer)].class.0
    }

    fn expert_bytes(&self, e: usize) -> u64 {
        self.config.layers[usize::from(self.id(e).layer)].expert_bytes
    }

    /// Experts that a layer holds and may release.
    pub fn ready(&self) -> Vec<ExpertId> {
        (0..self.experts.len()).filter(|&e| self.experts[e].n_ready > 0).map(|e| self.id(e)).collect()
    }

    pub fn n_awaited(&self) -> u64 {
        self.experts.iter().map(|x| u64::from(x.n_awaited)).sum()
    }

    /// Wants that are not released or failed.
    pub fn n_outstanding(&self) -> u64 {
        self.experts.iter().map(|x| u64::from(x.n_awaited + x.n_ready)).sum()
    }

    /// A slot that is computed with, for tests that plant faults.
    #[allow(dead_code, reason = "only the tests of the model need it")]
    pub fn pinned_slot(&self, class: u8) -> Option<SlotId> {
        let mut pinned = self.experts.iter().filter(|x| x.n_ready > 0).filter_map(|x| x.resident);
        pinned.find(|&slot| self.slot_class(slot) == class)
    }

    /// A slot that takes no memory, for tests that plant faults.
    #[allow(dead_code, reason = "only the tests of the model need it")]
    pub fn slot_given_back(&self) -> Option<SlotId> {
        self.slots.iter().position(|s| s.is_given_back).map(|i| SlotId(i as u32))
    }

    /// What a call means, before the cache has acted on it.
    pub fn before(&mut self, event: &OwnedEvent, cache: &ExpertCache) {
        self.last_failure = None;
        self.lost_hot.clear();
        match event {
            OwnedEvent::BeginStep(phase) => self.begin_step(*phase, cache),
            OwnedEvent::Want { layer, experts } => {
                for &index in experts {
                    let e = self.no(ExpertId { layer: *layer, index });
                    self.want(e);
                }
            }
            OwnedEvent::ReadDone { read, ok } => {
                let r = self.reads.remove(read).expect("the simulation completes reads in flight");
                let x = &mut self.experts[r.expert];
                if *ok {
                    x.resident = Some(r.slot);
                    x.is_unused = r.is_ahead;
                    self.bytes_read += self.expert_bytes(r.expert);
                } else {
                    self.last_failure = Some((*read, r.expert, r.n_failed));
                    if x.n_awaited == 0 || r.n_failed > 0 {
                        x.decode_use = 0;
                        x.is_hot = false;
                        self.slots[r.slot.0 as usize].owner = None;
                    }
                }
            }
            OwnedEvent::Release { layer, expert } => {
                let e = self.no(ExpertId { layer: *layer, index: *expert });
                self.experts[e].n_ready -= 1;
            }
            OwnedEvent::GivenBack { slot } => {
                let s = &mut self.slots[slot.0 as usize];
                s.is_given_back = s.is_retired;
            }
            OwnedEvent::Abandon => {
                for x in &mut self.experts {
                    x.n_ready = 0;
                }
            }
            _ => {}
        }
    }

    fn begin_step(&mut self, phase: Phase, cache: &ExpertCache) {
        for x in &mut self.experts {
            x.was_resident = x.resident.is_some();
        }
        if self.phase == Some(Phase::Decode) && phase == Phase::Prefill {
            self.mark_hot(cache);
        }
        if phase == Phase::Decode {
            for x in &mut self.experts {
                x.is_hot = false;
            }
        }
        self.phase = Some(phase);
    }

    /// The most recently used by decode of those that have slots, all but `prompt_slots` of the class.
    fn mark_hot(&mut self, cache: &ExpertCache) {
        for class in 0..self.config.classes.len() as u8 {
            let n_live = (0..self.slots.len())
                .filter(|&s| self.slot_class(SlotId(s as u32)) == class && !self.slots[s].is_retired)
                .count();
            let slots_min = self.config.slots_min(esker_cache::ClassId(class));
            let n_hot = n_live.saturating_sub(self.config.prompt_slots.max(slots_min) as usize);
            let has_slot =
                |e| matches!(cache.residency(self.id(e)), Residency::Reading(_) | Residency::Resident(_));
            let mut recent: Vec<usize> = (0..self.experts.len())
                .filter(|&e| self.class(e) == class && self.experts[e].decode_use > 0 && has_slot(e))
                .collect();
            recent.sort_by_key(|&e| std::cmp::Reverse(self.experts[e].decode_use));
            for &e in recent.iter().take(n_hot) {
                self.experts[e].is_hot = true;
            }
        }
    }

    fn want(&mut self, e: usize) {
        self.now += 1;
        let lookups = match self.phase {
            Some(Phase::Decode) => &mut self.decode,
            _ => &mut self.prefill,
        };
        let x = &mut self.experts[e];
        if x.resident.is_none() {
            lookups.misses += 1;
        } else if x.is_unused && !x.was_resident {
            lookups.read_ahead_hits += 1;
        } else {
            lookups.hits += 1;
        }
        x.is_unused = false;
        let is_first = x.n_awaited == 0;
        x.n_awaited += 1;
        if self.phase == Some(Phase::Decode) {
            x.decode_use = self.now;
        }
        for read in self.reads.values_mut().filter(|r| r.expert == e) {
            read.is_ahead = false;
            if is_first {
                read.n_failed = 0;
            }
        }
    }

    /// What the cache did about it.
    pub fn after(
        &mut self,
        event: &OwnedEvent,
        accepted: bool,
        actions: &[Action],
        cache: &ExpertCache,
    ) -> Result<(), Violation> {
        self.check_acceptance(event, accepted)?;
        if let OwnedEvent::Shrink { class, n_slots } | OwnedEvent::Grow { class, n_slots } = *event
            && accepted
        {
            self.resize(usize::from(class.0), n_slots, matches!(event, OwnedEvent::Shrink { .. }));
        }
        self.check_division(event, cache)?;
        for action in actions {
            match *action {
                Action::Read { read, expert, slot, priority } => {
                    self.read(read, self.no(expert), slot, priority)?;
                }
                Action::Promote { read } => {
                    ensure!(self.reads.contains_key(&read), "{read:?} is promoted and not in flight");
                }
                Action::Ready { expert, slot } => {
                    let x =
                        &mut self.experts[self.first[usize::from(expert.layer)] + usize::from(expert.index)];
                    ensure!(x.n_awaited > 0, "{expert:?} is ready and nobody waits for it");
                    ensure!(
                        x.resident == Some(slot),
                        "{expert:?} is ready in {slot:?}, it is in {:?}",
                        x.resident
                    );
                    x.n_awaited -= 1;
                    x.n_ready += 1;
                }
                Action::Fail { expert, cause } => self.fail(event, self.no(expert), cause)?,
                Action::Retire { slot } => self.retire(slot, matches!(event, OwnedEvent::BeginStep(_)))?,
                Action::Restore { slot } => self.restore(slot)?,
            }
        }
        if let Some((_, e, 0)) = self.last_failure {
            let again = self.reads.values().any(|r| r.expert == e);
            ensure!(
                again == (self.experts[e].n_awaited > 0),
                "a first failure must be tried again if wanted"
            );
        }
        self.compare_residency(cache)?;
        self.check_classes()?;
        self.compare_counters(cache)
    }

    fn check_acceptance(&self, event: &OwnedEvent, accepted: bool) -> Result<(), Violation> {
        let expected = match *event {
            OwnedEvent::Shrink { class, n_slots } | OwnedEvent::Grow { class, n_slots } => {
                let i = usize::from(class.0);
                let more =
                    u64::from(n_slots.saturating_sub(self.n_target[i])) * self.config.classes[i].slot_bytes;
                let is_grow = matches!(event, OwnedEvent::Grow { .. });
                let is_too_much = is_grow && more > 0 && self.planned_bytes() + more > self.arena_bytes;
                (self.config.slots_min(class)..=self.n_made[i]).contains(&n_slots) && !is_too_much
            }
            _ => true,
        };
        ensure!(accepted == expected, "{event:?}: accepted {accepted}, expected {expected}");
        Ok(())
    }

    pub fn slot_class(&self, slot: SlotId) -> u8 {
        let mut end = 0;
        for (class, n_made) in self.n_made.iter().enumerate() {
            end += n_made;
            if slot.0 < end {
                return class as u8;
            }
        }
        u8::MAX
    }

    fn read(&mut self, read: ReadId, e: usize, slot: SlotId, priority: Priority) -> Result<(), Violation> {
        let id = self.id(e);
        let in_flight = self.reads.len();
        ensure!(in_flight < usize::from(self.config.reads_max), "more than reads_max reads in flight");
        ensure!(!self.reads.contains_key(&read), "{read:?} is used twice");
        ensure!(self.slot_class(slot) == self.class(e), "{id:?} is read into {slot:?} of another class");
        ensure!(!self.slots[slot.0 as usize].is_retired, "{id:?} is read into {slot:?}, which is retired");
        ensure!(self.experts[e].resident.is_none(), "{id:?} is resident and read again");
        ensure!(!self.reads.values().any(|r| r.expert == e), "{id:?} is being read twice");
        let retries = self.last_failure.filter(|f| f.1 == e);
        if retries.is_none() {
            self.take_slot(slot, &format!("{id:?}"))?;
        }
        let is_ahead = match priority {
            Priority::Demand => {
                ensure!(self.experts[e].n_awaited > 0, "{id:?} is read on demand and nobody wants it");
                false
            }
            Priority::ReadAhead { .. } => {
                ensure!(self.phase == Some(Phase::Decode), "{id:?} is read ahead during a prompt");
                // Experts that are waited for.
                let awaited = self.experts.iter().filter(|x| x.n_awaited > 0).count();
                let demand_max = usize::from(self.config.read_ahead.demand_max);
                ensure!(awaited <= demand_max, "{id:?} is read ahead while {awaited} wait");
                true
            }
        };
        let n_failed = retries.map_or(0, |f| f.2 + 1);
        ensure!(n_failed < 2, "{id:?} is tried a third time");
        self.slots[slot.0 as usize].owner = Some(e);
        self.reads.insert(read, Read { expert: e, slot, is_ahead, n_failed });
        self.n_reads += 1;
        Ok(())
    }

    /// The slot's present owner loses it.
    fn take_slot(&mut self, slot: SlotId, by: &str) -> Result<(), Violation> {
        let Some(owner) = self.slots[slot.0 as usize].owner else { return Ok(()) };
        let id = self.id(owner);
        ensure!(
            !self.reads.values().any(|r| r.slot == slot),
            "{by} takes {slot:?} of {id:?}, which is being read"
        );
        ensure!(!self.experts[owner].is_pinned(), "{by} takes {slot:?} of {id:?}, which is pinned");
        self.evict(owner, slot);
        Ok(())
    }

    fn evict(&mut self, e: usize, slot: SlotId) {
        let class = self.class(e);
        let x = &mut self.experts[e];
        x.resident = None;
        x.decode_use = 0;
        if std::mem::take(&mut x.is_hot) {
            self.lost_hot.push(class);
        }
        if std::mem::take(&mut x.is_unused) {
            self.wasted_bytes += self.expert_bytes(e);
        }
        self.slots[slot.0 as usize].owner = None;
        self.n_evictions += 1;
    }

    fn fail(&mut self, event: &OwnedEvent, e: usize, cause: FailCause) -> Result<(), Violation> {
        let id = self.id(e);
        ensure!(self.experts[e].n_awaited > 0, "{id:?} failed and nobody waits for it");
        match cause {
            FailCause::Abandoned => {
                ensure!(*event == OwnedEvent::Abandon, "{id:?} is abandoned without being asked to");
            }
            FailCause::ReadFailed { read } => {
                let expected = self.last_failure.is_some_and(|(r, x, n)| r == read && x == e && n == 1);
                ensure!(expected, "{id:?} failed without two failures of its read");
            }
        }
        self.experts[e].n_awaited -= 1;
        if !self.reads.values().any(|r| r.expert == e) {
            // It has no slot.
            self.experts[e].decode_use = 0;
            self.experts[e].is_hot = false;
        }
        Ok(())
    }

    /// `at_begin`: before the step has begun.
    fn retire(&mut self, slot: SlotId, at_begin: bool) -> Result<(), Violation> {
        ensure!(!self.slots[slot.0 as usize].is_retired, "{slot:?} is retired twice");
        let owner = self.slots[slot.0 as usize].owner;
        self.take_slot(slot, "shrinking")?;
        if let Some(owner) = owner.filter(|_| at_begin) {
            self.experts[owner].was_resident = false;
        }
        self.slots[slot.0 as usize].is_retired = true;
        Ok(())
    }

    fn restore(&mut self, slot: SlotId) -> Result<(), Violation> {
        let class = usize::from(self.slot_class(slot));
        let s = &mut self.slots[slot.0 as usize];
        ensure!(std::mem::take(&mut s.is_retired), "{slot:?} is restored, but was in use");
        if std::mem::take(&mut s.is_given_back) {
            let (taken, max) = (self.taken_bytes(), self.bytes_max);
            ensure!(
                taken <= max,
                "{slot:?} is restored: {taken} bytes are taken, more than the {max} that may be"
            );
        }
        let (n_live, target) = (self.n_live(class), self.n_target[class]);
        ensure!(n_live <= target, "{slot:?} is restored: class {class} has {n_live} slots of {target}");
        Ok(())
    }

    fn resize(&mut self, class: usize, n_slots: u32, is_shrink: bool) {
        let (target, slot_bytes) = (self.n_target[class], self.config.classes[class].slot_bytes);
        if is_shrink && n_slots < target {
            self.bytes_max -= u64::from(target - n_slots) * slot_bytes;
            self.n_target[class] = n_slots;
        } else if !is_shrink && n_slots > target {
            let more = u64::from(n_slots - target) * slot_bytes;
            self.bytes_max = (self.bytes_max + more).min(self.arena_bytes);
            self.n_target[class] = n_slots;
        }
    }

    fn n_live(&self, class: usize) -> u32 {
        let first: u32 = self.n_made[..class].iter().sum();
        let slots = &self.slots[first as usize..(first + self.n_made[class]) as usize];
        slots.iter().filter(|s| !s.is_retired).count() as u32
    }

    /// Bytes of the slots that take memory.
    fn taken_bytes(&self) -> u64 {
        let taken = |(_, s): &(usize, &Slot)| !s.is_given_back;
        let bytes = |(i, _)| self.config.classes[usize::from(self.slot_class(SlotId(i as u32)))].slot_bytes;
        self.slots.iter().enumerate().filter(taken).map(bytes).sum()
    }

    /// Bytes of the slots that classes shall have.
    fn planned_bytes(&self) -> u64 {
        self.n_target.iter().zip(&self.config.classes).map(|(&n, c)| u64::from(n) * c.slot_bytes).sum()
    }

    /// Only a decode step that begins may divide the arena anew, and only so that everybody can live with it.
    fn check_division(&mut self, event: &OwnedEvent, cache: &ExpertCache) -> Result<(), Violation> {
        let classes = || (0..self.config.classes.len()).map(|class| ClassId(class as u8));
        let claimed: Vec<u32> = classes().map(|class| cache.n_slots_planned(class)).collect();
        if claimed != self.n_target {
            let may = *event == OwnedEvent::BeginStep(Phase::Decode) && self.config.rebalance.steps > 0;
            ensure!(may, "classes shall have {claimed:?} slots, were told {:?}", self.n_target);
            self.n_moves += 1;
        }
        for (i, &n) in claimed.iter().enumerate() {
            let (least, most) = (self.config.slots_min(ClassId(i as u8)), self.n_made[i]);
            ensure!(
                n >= least,
                "class {i} shall have {n} slots, fewer than the {least} that one token needs"
            );
            ensure!(n <= most, "class {i} shall have {n} slots, more than the {most} that there are");
        }
        self.n_target = claimed;
        let (planned, max) = (self.planned_bytes(), self.bytes_max);
        ensure!(planned <= max, "classes shall have {planned} bytes, more than the {max} that may be");
        ensure!(
            cache.counters().moves == self.n_moves,
            "{} moves, {} seen",
            cache.counters().moves,
            self.n_moves
        );
        Ok(())
    }

    /// Slots can change hands before the read is issued (when the queue is full), so evictions are also seen
    /// by asking. Whoever lost a slot must not have been pinned.
    fn compare_residency(&mut self, cache: &ExpertCache) -> Result<(), Violation> {
        for e in 0..self.experts.len() {
            let id = self.id(e);
            let claimed = cache.residency(id);
            if let Some(slot) = self.experts[e].resident
                && claimed != Residency::Resident(slot)
            {
                ensure!(!self.experts[e].is_pinned(), "{id:?} is pinned, but evicted: {claimed:?}");
                self.evict(e, slot);
            }
            if let Residency::Resident(slot) = claimed {
                let resident = self.experts[e].resident;
                ensure!(resident == Some(slot), "{id:?} claims {slot:?}, its reads say {resident:?}");
            }
        }
        Ok(())
    }

    /// What holds of each class as a whole.
    fn check_classes(&self) -> Result<(), Violation> {
        let (taken, arena) = (self.taken_bytes(), self.arena_bytes);
        ensure!(taken <= arena, "slots take {taken} bytes, more than the arena's {arena}");
        for (i, c) in self.config.classes.iter().enumerate() {
            let class = i as u8;
            let of_class = |s: &usize| self.slot_class(SlotId(*s as u32)) == class;
            let live = (0..self.slots.len()).filter(of_class).filter(|&s| !self.slots[s].is_retired);
            let n_live = live.clone().count() as u64;
            let bytes: u64 = live.filter_map(|s| self.slots[s].owner).map(|e| self.expert_bytes(e)).sum();
            ensure!(bytes <= n_live * c.slot_bytes, "class {class} holds {bytes} bytes in {n_live} slots");
            let spare = || {
                let of_class = (0..self.experts.len()).filter(|&e| self.class(e) == class);
                of_class.map(|e| &self.experts[e]).filter(|x| x.resident.is_some() && !x.is_pinned())
            };
            // With a stepwise map releases take effect later, and several at a time.
            if self.config.visibility == Visibility::Stepwise {
                continue;
            }
            if n_live > u64::from(self.n_target[i]) {
                ensure!(spare().count() == 0, "class {class} shall shrink, but keeps what it could give up");
            }
            if self.lost_hot.contains(&class) && self.phase == Some(Phase::Prefill) {
                ensure!(spare().all(|x| x.is_hot), "class {class} gave up what decode wants, and had other");
            }
        }
        Ok(())
    }

    fn compare_counters(&self, cache: &ExpertCache) -> Result<(), Violation> {
        let c = cache.counters();
        ensure!(c.decode == self.decode, "decode lookups {:?}, expected {:?}", c.decode, self.decode);
        ensure!(c.prefill == self.prefill, "prefill lookups {:?}, expected {:?}", c.prefill, self.prefill);
        ensure!(c.reads == self.n_reads, "{} reads counted, {} issued", c.reads, self.n_reads);
        ensure!(
            c.evictions == self.n_evictions,
            "{} evictions counted, {} seen",
            c.evictions,
            self.n_evictions
        );
        ensure!(c.bytes_read == self.bytes_read, "{} bytes counted, {} read", c.bytes_read, self.bytes_read);
        ensure!(
            c.wasted_bytes == self.wasted_bytes,
            "{} bytes wasted, expected {}",
            c.wasted_bytes,
            self.wasted_bytes
        );
        ensure!(cache.reads_in_flight() == self.reads.len(), "{} in flight", cache.reads_in_flight());
        if self.config.visibility == Visibility::Live || self.phase.is_some() {
            self.compare_masks(cache)?;
        }
        Ok(())
    }

    fn compare_masks(&self, cache: &ExpertCache) -> Result<(), Violation> {
        for (layer, l) in self.config.layers.iter().enumerate() {
            let mut mask = vec![false; l.n_expert as usize];
            cache.resident_mask(layer as u16, &mut mask);
            for (index, &bit) in mask.iter().enumerate() {
                let x = &self.experts[self.first[layer] + index];
                let expected = match self.config.visibility {
                    Visibility::Live => x.resident.is_some(),
                    Visibility::Stepwise => x.was_resident,
                };
                ensure!(bit == expected, "layer {layer} expert {index}: mask {bit}, expected {expected}");
            }
        }
        Ok(())
    }
}
