//! Checksums of experts, in files that have them (`esker repack`): what a disk checks a read against.

use crate::slots::SlotLayout;
use esker_disk::{Mismatch, Verify};
use esker_models::StoreLayout;
use esker_packed::ExpertHasher;
use std::sync::Arc;

/// What the bytes of every expert should be, and where in a slot they are. Shared with the threads that read.
#[derive(Debug)]
pub(crate) struct Checksums {
    /// By model layer.
    layers: Vec<Option<Layer>>,
}

#[derive(Debug)]
struct Layer {
    slots: SlotLayout,
    /// By expert.
    expected: Arc<[u64]>,
}

impl Checksums {
    /// `None` if no layer has any.
    pub(crate) fn new(layout: &StoreLayout, slots_of_layer: &[Option<SlotLayout>]) -> Option<Checksums> {
        let layer = |(layer, slots): (&Option<esker_models::ExpertLayout>, &Option<SlotLayout>)| {
            let expected = Arc::clone(layer.as_ref()?.checksums.as_ref()?);
            Some(Layer { slots: slots.clone()?, expected })
        };
        let layers: Vec<_> = layout.layers.iter().zip(slots_of_layer).map(layer).collect();
        layers.iter().any(Option::is_some).then_some(Checksums { layers })
    }

    /// The key of a [`Check`](esker_disk::Check) of expert `e` of model layer `il`.
    pub(crate) fn key(il: usize, e: u16) -> u64 {
        (il as u64) << 16 | u64::from(e)
    }
}

impl Verify for Checksums {
    fn verify(&self, key: u64, slot: &[u8]) -> Result<(), Mismatch> {
        let (il, e) = ((key >> 16) as usize, usize::from(key as u16));
        // Layers of one file may have checksums beside layers that have none.
        let Some(layer) = &self.layers[il] else { return Ok(()) };
        let mut hasher = ExpertHasher::new();
        for part in layer.slots.slices(e, slot) {
            hasher.update(part);
        }
        let (found, expected) = (hasher.finish(), layer.expected[e]);
        if found == expected { Ok(()) } else { Err(Mismatch { found, expected }) }
    }
}
