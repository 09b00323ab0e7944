//! What a cache is made from, and every reason to refuse it.

use crate::ids::ClassId;
use crate::policy::PolicyConfig;

/// Most experts of all layers together: a bound on what a wrong file can make the cache allocate.
pub const EXPERTS_MAX: u64 = 1 << 22;
/// Most slots of all classes together.
pub const SLOTS_MAX: u64 = 1 << 22;
/// Most reads in flight.
pub const READS_MAX: u16 = 4096;

/// One layer with routed experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerConfig {
    /// Experts of this layer, from the file (a pruned layer has fewer), 1 to 65,536.
    pub n_expert: u32,
    /// Experts that one token uses, 1 to `n_expert`.
    pub top_k: u32,
    /// Which slots its experts fit into.
    pub class: ClassId,
    /// Bytes of one expert, at most the class's `slot_bytes`.
    pub expert_bytes: u64,
}

/// One size class of slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassConfig {
    /// Bytes of one slot, alignment included.
    pub slot_bytes: u64,
    /// Slots to begin with, at least the largest `top_k` of the layers that use the class. All classes' together are the
    /// arena; see [`RebalanceConfig`] for how it is divided later.
    pub n_slots: u32,
}

/// Which residency map the router sees (cache-aware routing).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visibility {
    /// The router does not look (lambda = 0): the map is live, nothing waits, and read-ahead decides when
    /// the disk falls idle. What stays in memory may then depend on timing; what is computed does not.
    Live,
    /// The router looks (lambda > 0): the map advances only in `begin_step`, which asks that no read be in
    /// flight, and no decision depends on when reads complete.
    Stepwise,
}

/// Read-ahead of predicted experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadAheadConfig {
    /// Predicted ranks of a layer that are acted on in one step; 0 turns read-ahead off.
    pub per_layer_max: u16,
    /// Most read-ahead reads in flight, at most `reads_max`; less leaves room for demand that arrives
    /// meanwhile. 0 turns read-ahead off.
    pub in_flight_max: u16,
    /// Read-ahead begins when at most so many reads that a layer waits for are in flight. The disk must carry out
    /// demand first; then a few keep it busy while the last of them are on their way, at the price that the next
    /// layer's demand may wait for what the disk has begun.
    pub demand_max: u16,
    /// Missing predicted experts after which it is judged whether reading ahead pays.
    pub window: u32,
    /// It turns itself off when fewer than this share of them was wanted, in percent.
    pub off_below_percent: u8,
    /// It turns itself on again when at least this share would have been wanted, in percent; at least
    /// `off_below_percent`.
    pub on_from_percent: u8,
}

impl ReadAheadConfig {
    /// No read-ahead.
    pub const OFF: ReadAheadConfig = ReadAheadConfig {
        per_layer_max: 0,
        in_flight_max: 0,
        demand_max: 0,
        window: 1,
        off_below_percent: 0,
        on_from_percent: 0,
    };

    pub(crate) fn is_off(&self) -> bool {
        self.per_layer_max == 0 || self.in_flight_max == 0
    }
}

/// How the arena is divided anew among size classes while the cache runs.
///
/// What is measured is what bytes would be worth: an expert that decode needs back soon after it was evicted would have been
/// kept if its class had had a little more, so its read is counted for the class. A class whose bytes are worth more than
/// another's gets some of them, between two decode steps. Only what is the same in every run is counted, so that
/// [`Visibility::Stepwise`] stays reproducible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RebalanceConfig {
    /// Decode steps between two decisions; 0: the arena stays divided as it is.
    pub steps: u32,
    /// Share of the arena that goes from one class to another at a time, in percent, 1 to 50. Also what is meant by a
    /// little more: what a larger share would be worth says little of the next one.
    pub share_percent: u8,
    /// A byte must be worth at least so much to the class that gets it, in percent of what it is worth to the one that gives
    /// it; at least 100.
    pub ratio_percent: u16,
    /// By so many standard deviations of the counts the two must differ, or chance would move slots to and fro.
    pub deviations: u8,
}

impl RebalanceConfig {
    /// The arena stays divided as it is.
    pub const OFF: RebalanceConfig =
        RebalanceConfig { steps: 0, share_percent: 1, ratio_percent: 100, deviations: 0 };

    /// The arena follows demand.
    pub const ON: RebalanceConfig =
        RebalanceConfig { steps: 8, share_percent: 3, ratio_percent: 125, deviations: 4 };

    pub(crate) fn is_off(&self) -> bool {
        self.steps == 0
    }
}

/// What a cache is made from.
#[derive(Clone, Debug, PartialEq)]
pub struct CacheConfig {
    /// Layers with routed experts, in order.
    pub layers: Vec<LayerConfig>,
    /// Size classes.
    pub classes: Vec<ClassConfig>,
    /// What to evict.
    pub policy: PolicyConfig,
    /// What the router sees.
    pub visibility: Visibility,
    /// Most reads in flight, 1 to [`READS_MAX`]: the queue depth that was measured for the disk.
    pub reads_max: u16,
    /// Slots of each class that a prompt works in, as in a ring: so many of its missing experts are read and
    /// computed with at a time, and so many slots are not kept for decode while it runs. Raised to the class's
    /// largest `top_k` where it is below.
    pub prompt_slots: u32,
    /// Read-ahead.
    pub read_ahead: ReadAheadConfig,
    /// Dividing the arena anew. Where it is on, a class has more slots than are in use at a time: see
    /// [`CacheConfig::slots_max`].
    pub rebalance: RebalanceConfig,
}

impl CacheConfig {
    /// A configuration with the defaults: least recently used, routing that does not look at the cache,
    /// read-ahead of `top_k` ranks, enough prompt slots that reads can run ahead of compute, and an arena that stays
    /// divided as it is.
    pub fn new(layers: Vec<LayerConfig>, classes: Vec<ClassConfig>, reads_max: u16) -> CacheConfig {
        let top_k = layers.iter().map(|l| l.top_k).max().unwrap_or(0);
        CacheConfig {
            layers,
            classes,
            policy: PolicyConfig::Lru,
            visibility: Visibility::Live,
            reads_max,
            // One set of reads in flight, one set being computed, one token's experts pinned.
            prompt_slots: top_k.saturating_add(2 * u32::from(reads_max)),
            read_ahead: ReadAheadConfig {
                per_layer_max: u16::try_from(top_k).unwrap_or(u16::MAX),
                in_flight_max: reads_max.div_ceil(2),
                demand_max: 0,
                window: 256,
                off_below_percent: 25,
                on_from_percent: 40,
            },
            rebalance: RebalanceConfig::OFF,
        }
    }

    /// Bytes of all slots that may be in use at a time.
    pub fn arena_bytes(&self) -> u64 {
        self.classes.iter().fold(0, |sum: u64, c| sum.saturating_add(c.bytes_of(c.n_slots)))
    }

    /// Slots that a class is made with, in use or not: those it begins with, and where the arena may be divided anew, as
    /// many as it could then be given. Slots that are not in use need addresses, and no memory.
    ///
    /// # Panics
    /// If there is no such class.
    pub fn slots_max(&self, class: ClassId) -> u32 {
        let own = &self.classes[usize::from(class.0)];
        if self.rebalance.is_off() {
            return own.n_slots;
        }
        let n_experts = self.layers.iter().filter(|l| l.class == class).map(|l| u64::from(l.n_expert)).sum();
        let others = (0..self.classes.len()).filter(|&i| i != usize::from(class.0));
        let others_min = others.fold(0, |sum: u64, i| {
            sum.saturating_add(self.classes[i].bytes_of(self.slots_min(ClassId(i as u8))))
        });
        let room = self.arena_bytes().saturating_sub(others_min);
        let n_fit = room.checked_div(own.slot_bytes).unwrap_or(0).min(n_experts);
        own.n_slots.max(u32::try_from(n_fit).unwrap_or(u32::MAX))
    }

    /// Largest `top_k` of the layers that use `class`: the fewest slots that work.
    pub fn slots_min(&self, class: ClassId) -> u32 {
        self.layers.iter().filter(|l| l.class == class).map(|l| l.top_k).max().unwrap_or(0)
    }

    /// Checks everything that [`ExpertCache::new`](crate::ExpertCache::new) relies on.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        if self.layers.is_empty() || self.layers.len() > usize::from(u16::MAX) {
            return Err(ConfigError::LayerCount { found: self.layers.len() });
        }
        if self.classes.is_empty() || self.classes.len() > 1 + usize::from(u8::MAX) {
            return Err(ConfigError::ClassCount { found: self.classes.len() });
        }
        self.check_layers()?;
        self.check_classes()?;
        if self.reads_max == 0 || self.reads_max > READS_MAX {
            return Err(ConfigError::ReadsMax { found: self.reads_max });
        }
        let ahead = &self.read_ahead;
        if ahead.in_flight_max > self.reads_max {
            return Err(ConfigError::ReadAheadInFlight {
                found: ahead.in_flight_max,
                reads_max: self.reads_max,
            });
        }
        if ahead.window == 0 || ahead.on_from_percent > 100 || ahead.off_below_percent > ahead.on_from_percent
        {
            return Err(ConfigError::ReadAheadWindow {
                window: ahead.window,
                off: ahead.off_below_percent,
                on: ahead.on_from_percent,
            });
        }
        let rebalance = &self.rebalance;
        if !(1..=50).contains(&rebalance.share_percent) || rebalance.ratio_percent < 100 {
            return Err(ConfigError::Rebalance {
                share: rebalance.share_percent,
                ratio: rebalance.ratio_percent,
            });
        }
        self.policy.check()?;
        if self.policy == PolicyConfig::Clairvoyant && self.visibility == Visibility::Stepwise {
            return Err(ConfigError::ClairvoyantRouting);
        }
        Ok(())
    }

    fn check_layers(&self) -> Result<(), ConfigError> {
        let mut n_experts = 0;
        for (layer, l) in self.layers.iter().enumerate() {
            if l.n_expert == 0 || l.n_expert > 1 + u32::from(u16::MAX) {
                return Err(ConfigError::ExpertCount { layer, found: l.n_expert });
            }
            if l.top_k == 0 || l.top_k > l.n_expert {
                return Err(ConfigError::TopK { layer, found: l.top_k, n_expert: l.n_expert });
            }
            let Some(class) = self.classes.get(usize::from(l.class.0)) else {
                return Err(ConfigError::UnknownClass {
                    layer,
                    found: l.class.0,
                    classes: self.classes.len(),
                });
            };
            if l.expert_bytes == 0 || l.expert_bytes > class.slot_bytes {
                return Err(ConfigError::ExpertBytes {
                    layer,
                    found: l.expert_bytes,
                    slot_bytes: class.slot_bytes,
                });
            }
            n_experts += u64::from(l.n_expert);
        }
        if n_experts > EXPERTS_MAX {
            return Err(ConfigError::TooManyExperts { found: n_experts });
        }
        Ok(())
    }

    fn check_classes(&self) -> Result<(), ConfigError> {
        let mut n_slots = 0;
        let mut bytes: u64 = 0;
        for (i, c) in self.classes.iter().enumerate() {
            let class = ClassId(i as u8);
            let slots_min = self.slots_min(class);
            if slots_min == 0 {
                return Err(ConfigError::UnusedClass { class: class.0 });
            }
            if c.n_slots < slots_min {
                return Err(ConfigError::TooFewSlots { class: class.0, found: c.n_slots, slots_min });
            }
            n_slots += u64::from(c.n_slots);
            bytes = c
                .slot_bytes
                .checked_mul(u64::from(c.n_slots))
                .and_then(|b| bytes.checked_add(b))
                .ok_or(ConfigError::ArenaBytes { class: class.0 })?;
        }
        if n_slots <= SLOTS_MAX {
            n_slots = (0..self.classes.len()).map(|i| u64::from(self.slots_max(ClassId(i as u8)))).sum();
        }
        if n_slots > SLOTS_MAX {
            return Err(ConfigError::TooManySlots { found: n_slots });
        }
        Ok(())
    }
}

impl ClassConfig {
    fn bytes_of(&self, n_slots: u32) -> u64 {
        self.slot_bytes.saturating_mul(u64::from(n_slots))
    }
}

/// Why a configuration is refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs, reason = "the message of each variant says what its fields are")]
pub enum ConfigError {
    #[error("`layers` has {found} entries, expected 1 to 65535")]
    LayerCount { found: usize },
    #[error("`classes` has {found} entries, expected 1 to 256")]
    ClassCount { found: usize },
    #[error("layer {layer}: `n_expert` is {found}, expected 1 to 65536")]
    ExpertCount { layer: usize, found: u32 },
    #[error("layer {layer}: `top_k` is {found}, expected 1 to `n_expert` = {n_expert}")]
    TopK { layer: usize, found: u32, n_expert: u32 },
    #[error("layer {layer}: `class` is {found}, but there are {classes} classes")]
    UnknownClass { layer: usize, found: u8, classes: usize },
    #[error("layer {layer}: `expert_bytes` is {found}, expected 1 to the slot's {slot_bytes}")]
    ExpertBytes { layer: usize, found: u64, slot_bytes: u64 },
    #[error("{found} experts in all layers, at most {EXPERTS_MAX} are supported")]
    TooManyExperts { found: u64 },
    #[error(
        "class {class} has {found} slots, but one token needs {slots_min} of them at once: the smallest that works is {slots_min}"
    )]
    TooFewSlots { class: u8, found: u32, slots_min: u32 },
    #[error("class {class} is used by no layer")]
    UnusedClass { class: u8 },
    #[error("{found} slots in all classes, at most {SLOTS_MAX} are supported")]
    TooManySlots { found: u64 },
    #[error("the slots up to class {class} have more than 2^64 bytes")]
    ArenaBytes { class: u8 },
    #[error("`reads_max` is {found}, expected 1 to {READS_MAX}")]
    ReadsMax { found: u16 },
    #[error("`read_ahead.in_flight_max` is {found}, expected at most `reads_max` = {reads_max}")]
    ReadAheadInFlight { found: u16, reads_max: u16 },
    #[error(
        "`read_ahead`: window {window}, off below {off} %, on from {on} %; expected a window of at least 1 and off <= on <= 100"
    )]
    ReadAheadWindow { window: u32, off: u8, on: u8 },
    #[error(
        "`rebalance`: a share of {share} %, a ratio of {ratio} %; expected a share of 1 to 50 and a ratio of at least 100"
    )]
    Rebalance { share: u8, ratio: u16 },
    #[error("policy `{policy}`: `{field}` is {found}, expected {expected}")]
    PolicyField { policy: &'static str, field: &'static str, found: f64, expected: &'static str },
    #[error(
        "the clairvoyant policy cannot be combined with cache-aware routing: the future would depend on its own choices"
    )]
    ClairvoyantRouting,
}
