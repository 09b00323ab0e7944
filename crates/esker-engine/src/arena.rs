//! The memory of the experts' slots: of those in use, and addresses for those that may be in use instead of them.

use esker_cache::{CacheConfig, ClassId, RebalanceConfig};
use esker_disk::{Arena, ArenaError, Buffer};

/// Buffers of all slots of all classes, in the order of the cache's slots. Those beyond a class's first `n_slots` are not to
/// be written to before the cache restores them.
///
/// If the system does not give so many addresses, the arena stays divided as it is planned, and `config` says so from then
/// on.
pub(crate) fn slot_buffers(config: &mut CacheConfig) -> Result<Vec<Buffer>, ArenaError> {
    let is_more = (0..config.classes.len()).any(|i| slots_max(config, i) > config.classes[i].n_slots);
    let mut arena = None;
    if is_more {
        arena = Arena::sparse(Arena::bytes_for(slot_bytes(config))).ok();
        if arena.is_none() {
            config.rebalance = RebalanceConfig::OFF;
        }
    }
    let mut arena = match arena {
        Some(arena) => arena,
        None => Arena::new(Arena::bytes_for(slot_bytes(config)))?,
    };
    // Advice only: without it, reads cost more page faults and nothing else changes.
    let _ = arena.advise_huge_pages();
    let buffers = arena.carve(slot_bytes(config));
    let mut first = 0;
    for i in 0..config.classes.len() {
        let end = first + slots_max(config, i) as usize;
        for buffer in &buffers[first + config.classes[i].n_slots as usize..end] {
            let _ = buffer.advise_huge_pages(false);
        }
        first = end;
    }
    Ok(buffers)
}

fn slots_max(config: &CacheConfig, class: usize) -> u32 {
    config.slots_max(ClassId(class as u8))
}

/// Bytes of every slot.
fn slot_bytes(config: &CacheConfig) -> impl Iterator<Item = usize> {
    let slots_of = |i: usize| {
        let n = slots_max(config, i) as usize;
        std::iter::repeat_n(config.classes[i].slot_bytes as usize, n)
    };
    (0..config.classes.len()).flat_map(slots_of)
}
