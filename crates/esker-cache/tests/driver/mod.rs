//! A cache with a disk that completes when it is told to, for tests that follow a few steps by hand.
#![allow(dead_code, reason = "each test uses a part of it")]

use esker_cache::{
    Action, CacheConfig, ClassConfig, ClassId, ExpertCache, ExpertId, LayerConfig, Phase, Priority, ReadId,
    Residency,
};

/// `n_layers` layers of `n_expert` experts of 100 bytes, all of one class of `n_slots` slots; read-ahead off.
pub fn config(n_layers: usize, n_expert: u32, top_k: u32, n_slots: u32) -> CacheConfig {
    let layer = LayerConfig { n_expert, top_k, class: ClassId(0), expert_bytes: 100 };
    let class = ClassConfig { slot_bytes: 128, n_slots };
    let mut config = CacheConfig::new(vec![layer; n_layers], vec![class], 16);
    config.read_ahead = esker_cache::ReadAheadConfig::OFF;
    config
}

pub struct Driver {
    pub cache: ExpertCache,
    pub in_flight: Vec<(ReadId, ExpertId, Priority)>,
    /// Everything since the last look.
    pub actions: Vec<Action>,
}

impl Driver {
    pub fn new(config: CacheConfig) -> Driver {
        let cache = ExpertCache::new(config).expect("valid");
        Driver { cache, in_flight: Vec::new(), actions: Vec::new() }
    }

    /// Calls the cache and takes note of the reads that it wants.
    pub fn call(&mut self, f: impl FnOnce(&mut ExpertCache, &mut Vec<Action>)) -> Vec<Action> {
        let mut actions = Vec::new();
        f(&mut self.cache, &mut actions);
        for action in &actions {
            if let Action::Read { read, expert, priority, .. } = *action {
                self.in_flight.push((read, expert, priority));
            }
        }
        self.cache.check().expect("consistent");
        self.actions.extend_from_slice(&actions);
        actions
    }

    pub fn begin(&mut self, phase: Phase) {
        self.call(|cache, actions| cache.begin_step(phase, actions));
    }

    pub fn want(&mut self, layer: u16, experts: &[u16]) -> Vec<Action> {
        self.call(|cache, actions| cache.want(layer, experts, actions))
    }

    pub fn release(&mut self, layer: u16, experts: &[u16]) {
        for &expert in experts {
            self.call(|cache, actions| cache.release(layer, expert, actions));
        }
    }

    pub fn read_ahead(&mut self, layer: u16, ranked: &[u16]) -> Vec<Action> {
        self.call(|cache, actions| cache.read_ahead(layer, ranked, actions))
    }

    /// Completes the read in flight at `index`.
    pub fn complete(&mut self, index: usize, ok: bool) -> Vec<Action> {
        let (read, _, _) = self.in_flight.remove(index);
        self.call(|cache, actions| cache.read_done(read, ok, actions))
    }

    pub fn complete_all(&mut self) {
        while !self.in_flight.is_empty() {
            self.complete(0, true);
        }
    }

    /// Wants, waits for and releases experts of a layer.
    pub fn use_experts(&mut self, layer: u16, experts: &[u16]) {
        self.want(layer, experts);
        self.complete_all();
        self.release(layer, experts);
    }

    /// The same for more experts than there are slots: each is released as soon as it is ready.
    pub fn use_many(&mut self, layer: u16, experts: &[u16]) {
        let mut ready = self.want(layer, experts);
        let mut n_used = 0;
        while n_used < experts.len() {
            let mut next = Vec::new();
            for action in ready {
                if let Action::Ready { expert, .. } = action {
                    n_used += 1;
                    next.extend(self.call(|cache, actions| cache.release(layer, expert.index, actions)));
                }
            }
            if !self.in_flight.is_empty() {
                next.extend(self.complete(0, true));
            }
            ready = next;
        }
    }

    pub fn is_resident(&self, layer: u16, index: u16) -> bool {
        matches!(self.cache.residency(ExpertId { layer, index }), Residency::Resident(_))
    }

    pub fn mask(&self, layer: u16) -> Vec<bool> {
        let n_expert = self.cache.config().layers[usize::from(layer)].n_expert;
        let mut mask = vec![false; n_expert as usize];
        self.cache.resident_mask(layer, &mut mask);
        mask
    }
}

/// The experts that a list of actions reads, in order.
pub fn reads(actions: &[Action]) -> Vec<(u16, u16)> {
    let read = |a: &Action| match *a {
        Action::Read { expert, .. } => Some((expert.layer, expert.index)),
        _ => None,
    };
    actions.iter().filter_map(read).collect()
}

/// The experts that are reported ready.
pub fn ready(actions: &[Action]) -> Vec<u16> {
    let ready = |a: &Action| match *a {
        Action::Ready { expert, .. } => Some(expert.index),
        _ => None,
    };
    actions.iter().filter_map(ready).collect()
}
