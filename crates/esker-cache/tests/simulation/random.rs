//! Configurations thrown with dice.

use super::dice::Rng;
use esker_cache::{
    CacheConfig, ClassConfig, ClassId, LayerConfig, PolicyConfig, ReadAheadConfig, RebalanceConfig,
    Visibility,
};

/// Small enough that everything collides with everything.
pub fn config(rng: &mut Rng) -> CacheConfig {
    let n_classes = 1 + rng.below(3);
    let n_layers = n_classes + rng.below(4);
    let slot_bytes: Vec<u64> = (0..n_classes).map(|_| 4096 * (1 + rng.below(8))).collect();
    let layers: Vec<LayerConfig> = (0..n_layers)
        .map(|il| {
            let class = if il < n_classes { il } else { rng.below(n_classes) };
            let n_expert_max = if rng.chance(20) { 150 } else { 20 };
            let n_expert = 1 + rng.below(n_expert_max) as u32;
            let top_k = 1 + rng.below(u64::from(n_expert.min(6))) as u32;
            let expert_bytes = slot_bytes[class as usize] - rng.below(4096);
            LayerConfig { n_expert, top_k, class: ClassId(class as u8), expert_bytes }
        })
        .collect();
    let mut config = CacheConfig::new(layers, Vec::new(), 1 + rng.below(8) as u16);
    for (class, &slot_bytes) in slot_bytes.iter().enumerate() {
        let slots_min = config.slots_min(ClassId(class as u8));
        let extra = match rng.below(4) {
            0 => 0,
            1 => rng.below(4),
            2 => rng.below(30),
            _ => rng.below(120),
        };
        config.classes.push(ClassConfig { slot_bytes, n_slots: slots_min + extra as u32 });
    }
    config.visibility = if rng.chance(40) { Visibility::Stepwise } else { Visibility::Live };
    config.policy = policy(rng);
    if config.policy == PolicyConfig::Clairvoyant {
        config.visibility = Visibility::Live;
    }
    config.prompt_slots = rng.below(20) as u32;
    if rng.chance(80) {
        let off_below_percent = rng.below(60) as u8;
        config.read_ahead = ReadAheadConfig {
            per_layer_max: 1 + rng.below(8) as u16,
            in_flight_max: 1 + rng.below(u64::from(config.reads_max)) as u16,
            demand_max: rng.below(4) as u16,
            window: 1 + rng.below(30) as u32,
            off_below_percent,
            on_from_percent: off_below_percent + rng.below(20) as u8,
        };
    } else {
        config.read_ahead = ReadAheadConfig::OFF;
    }
    if rng.chance(70) {
        config.rebalance = RebalanceConfig {
            steps: 1 + rng.below(4) as u32,
            share_percent: 1 + rng.below(50) as u8,
            ratio_percent: 100 + rng.below(60) as u16,
            deviations: rng.below(3) as u8,
        };
    }
    config
}

/// Any policy, with parameters from all of their range.
pub fn policy(rng: &mut Rng) -> PolicyConfig {
    let decay = *rng.pick(&[0.01, 0.5, 0.9, 0.99, 0.99999]).expect("not empty");
    let prompt_steps = rng.below(64) as u16;
    let depth = 1 + rng.below(12) as u16;
    match rng.below(8) {
        0 => PolicyConfig::Lru,
        1 => PolicyConfig::Lfu { half_life_steps: 1 + rng.below(50) as u32, prompt_steps },
        2 => PolicyConfig::Ema { decay, prompt_steps },
        3 => PolicyConfig::NearPickEma { decay, prompt_steps, depth, near_percent: rng.below(101) as u8 },
        4 => PolicyConfig::InverseRouterEma { decay, prompt_steps, depth },
        5 => PolicyConfig::ProtectedLru { slowdown: 1 + rng.below(9) as u8 },
        6 => PolicyConfig::S3Fifo { small_percent: 1 + rng.below(99) as u8 },
        _ => PolicyConfig::Clairvoyant,
    }
}
