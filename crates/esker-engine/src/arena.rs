//! The memory of the experts' slots: of those in use, and addresses for those that may be in use instead of them.

use esker_cache::{CacheConfig, ClassId, RebalanceConfig};
use esker_disk::{Arena, ArenaError, Buffer};

/// Buffers of all slots of all classes, in the order of the cache's slots. Those beyond a class's first `n_slots` are not to
/// be written to before the cache restores them.
///
/// If the system does not give so many addresses, the arena stays divided as it is planned, `config` says so from then on,
/// and the system's reason is returned with the buffers.
pub(crate) fn slot_buffers(
    config: &mut CacheConfig,
) -> Result<(Vec<Buffer>, Option<ArenaError>), ArenaError> {
    slot_buffers_in(config, Arena::sparse)
}

/// `sparse` gives an arena of more addresses than memory.
fn slot_buffers_in(
    config: &mut CacheConfig,
    sparse: impl FnOnce(usize) -> Result<Arena, ArenaError>,
) -> Result<(Vec<Buffer>, Option<ArenaError>), ArenaError> {
    let is_more = (0..config.classes.len()).any(|i| slots_max(config, i) > config.classes[i].n_slots);
    let (mut arena, mut refused) = (None, None);
    if is_more {
        match sparse(Arena::bytes_for(slot_bytes(config))) {
            Ok(given) => arena = Some(given),
            Err(error) => {
                config.rebalance = RebalanceConfig::OFF;
                refused = Some(error);
            }
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
    Ok((buffers, refused))
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

#[cfg(test)]
mod tests {
    use super::*;
    use esker_cache::{ClassConfig, LayerConfig};

    fn config() -> CacheConfig {
        let layer = |class| LayerConfig { n_expert: 8, top_k: 2, class: ClassId(class), expert_bytes: 4000 };
        let classes = [4096, 8192].map(|slot_bytes| ClassConfig { slot_bytes, n_slots: 4 });
        let mut config = CacheConfig::new(vec![layer(0), layer(1)], classes.to_vec(), 8);
        config.rebalance = RebalanceConfig::ON;
        config
    }

    #[test]
    fn without_addresses_the_division_stays_and_the_reason_is_told() {
        let mut given = config();
        let (buffers, refused) = slot_buffers(&mut given).unwrap();
        assert!(refused.is_some() || (buffers.len() > 8 && given.rebalance == RebalanceConfig::ON));

        let mut planned = config();
        let (buffers, refused) = slot_buffers_in(&mut planned, |_| Arena::sparse(usize::MAX)).unwrap();
        assert!(refused.is_some() && planned.rebalance == RebalanceConfig::OFF);
        let sizes: Vec<usize> = buffers.iter().map(|b| b.len()).collect();
        assert_eq!(sizes, [[4096; 4], [8192; 4]].concat());
    }
}
