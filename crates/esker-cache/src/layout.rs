//! Fixed tables: which expert has which number, and which slot lies where.

use crate::config::CacheConfig;
use crate::ids::{ClassId, ExpertId, ExpertNo, SlotId};

/// Where a slot lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotPlace {
    /// Its class.
    pub class: ClassId,
    /// Its index within the class.
    pub index: u32,
    /// Offset from the start of an address range in which all slots lie one after the other, in use or not.
    pub offset_bytes: u64,
    /// Its size.
    pub len_bytes: u64,
}

pub(crate) struct Layer {
    pub first: ExpertNo,
    pub n_expert: u32,
    pub class: usize,
    pub expert_bytes: u64,
}

struct Class {
    first_slot: u32,
    n_slots: u32,
    first_byte: u64,
    slot_bytes: u64,
}

pub(crate) struct Layout {
    pub layers: Vec<Layer>,
    classes: Vec<Class>,
    layer_of: Vec<u16>,
}

impl Layout {
    /// `config` has been checked, so no sum overflows.
    pub fn new(config: &CacheConfig) -> Layout {
        let mut layers = Vec::with_capacity(config.layers.len());
        let mut layer_of = Vec::new();
        for (il, l) in config.layers.iter().enumerate() {
            layers.push(Layer {
                first: layer_of.len() as u32,
                n_expert: l.n_expert,
                class: usize::from(l.class.0),
                expert_bytes: l.expert_bytes,
            });
            layer_of.resize(layer_of.len() + l.n_expert as usize, il as u16);
        }
        let (mut first_slot, mut first_byte) = (0, 0);
        let mut classes = Vec::with_capacity(config.classes.len());
        for (i, c) in config.classes.iter().enumerate() {
            let n_slots = config.slots_max(ClassId(i as u8));
            classes.push(Class { first_slot, n_slots, first_byte, slot_bytes: c.slot_bytes });
            first_slot += n_slots;
            first_byte += c.slot_bytes * u64::from(n_slots);
        }
        Layout { layers, classes, layer_of }
    }

    pub fn n_experts(&self) -> usize {
        self.layer_of.len()
    }

    /// # Panics
    /// If there is no such layer or expert.
    pub fn expert(&self, layer: u16, index: u16) -> ExpertNo {
        let l = self.layer(layer);
        assert!(u32::from(index) < l.n_expert, "layer {layer} has {} experts, asked for {index}", l.n_expert);
        l.first + u32::from(index)
    }

    /// # Panics
    /// If there is no such layer.
    pub fn layer(&self, layer: u16) -> &Layer {
        let n = self.layers.len();
        self.layers
            .get(usize::from(layer))
            .unwrap_or_else(|| panic!("there are {n} layers, asked for layer {layer}"))
    }

    pub fn layer_of(&self, expert: ExpertNo) -> u16 {
        self.layer_of[expert as usize]
    }

    pub fn class_of(&self, expert: ExpertNo) -> usize {
        self.layers[usize::from(self.layer_of(expert))].class
    }

    pub fn expert_bytes(&self, expert: ExpertNo) -> u64 {
        self.layers[usize::from(self.layer_of(expert))].expert_bytes
    }

    pub fn id(&self, expert: ExpertNo) -> ExpertId {
        let layer = self.layer_of(expert);
        ExpertId { layer, index: (expert - self.layers[usize::from(layer)].first) as u16 }
    }

    /// # Panics
    /// If there is no such slot.
    pub fn slot_place(&self, slot: SlotId) -> SlotPlace {
        // A model has a handful of classes.
        for (i, c) in self.classes.iter().enumerate() {
            if let Some(index) = slot.0.checked_sub(c.first_slot).filter(|&index| index < c.n_slots) {
                return SlotPlace {
                    class: ClassId(i as u8),
                    index,
                    offset_bytes: c.first_byte + u64::from(index) * c.slot_bytes,
                    len_bytes: c.slot_bytes,
                };
            }
        }
        panic!("there is no slot {}", slot.0);
    }
}
