//! What a sequence carries from pass to pass.

use esker_ops::{IndexKeys, KvCache, KvType};

/// How much a sequence may hold, and in which type. Part of a session's identity: other options, other bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StateOptions {
    /// Positions there is room for.
    pub capacity: usize,
    /// Type of keys and values.
    pub kv_type: KvType,
}

/// One layer's memory of the past.
pub enum LayerState {
    /// Keys and values of every position.
    Attention {
        /// Keys and values.
        kv: KvCache,
        /// The block index, where the layer attends sparsely.
        index: Option<Box<IndexKeys>>,
    },
    /// A gated delta net: fixed size, and a function of the whole prefix.
    Recurrent {
        /// `[n_v_head, d, d]`
        state: Vec<f32>,
        /// `[taps - 1, n_channels]`, the raw inputs of the convolution, oldest first.
        conv: Vec<f32>,
    },
}

/// What the n-gram embedding carries.
#[derive(Default)]
pub struct NgramState {
    /// The last `ngram_size - 1` token ids, oldest first; fewer at the start of a sequence.
    pub recent: Vec<u32>,
    /// `[(taps - 1) * dilation, n_embd * n_streams]`, oldest first.
    pub conv: Vec<f32>,
}

/// Everything that a sequence of one model carries. Feeding tokens in pieces of any size gives the same bits.
pub struct SequenceState {
    /// Tokens consumed.
    pub n_past: usize,
    /// Options that it was made with.
    pub options: StateOptions,
    /// By layer.
    pub layers: Vec<LayerState>,
    /// Of the n-gram embedding, in models that have one.
    pub ngram: NgramState,
}

impl SequenceState {
    /// An empty sequence of a model without n-gram embedding.
    pub(crate) fn new(options: StateOptions, layers: impl Iterator<Item = LayerState>) -> SequenceState {
        SequenceState { n_past: 0, options, layers: layers.collect(), ngram: NgramState::default() }
    }

    /// Pretends that `len` tokens have been consumed: for measuring what a pass at that length takes.
    pub fn skip_to(&mut self, len: usize) {
        for layer in &mut self.layers {
            if let LayerState::Attention { kv, index } = layer {
                kv.skip_to(len);
                if let Some(index) = index {
                    index.skip_to(len);
                }
            }
        }
        self.n_past = len;
    }

    /// Forgets the positions from `len` on. False, and nothing is changed, if a layer's state is a function of the whole
    /// prefix (recurrent layers, the n-gram convolution) or was cut inside a block of the index.
    pub fn truncate(&mut self, len: usize) -> bool {
        if len == self.n_past {
            return true;
        }
        let can = |layer: &LayerState| matches!(layer, LayerState::Attention { index: None, .. });
        if len > self.n_past || !self.layers.iter().all(can) || !self.ngram.conv.is_empty() {
            return false;
        }
        for layer in &mut self.layers {
            if let LayerState::Attention { kv, .. } = layer {
                kv.truncate(len);
            }
        }
        self.n_past = len;
        true
    }
}

/// Memory of one sequence, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateBytes {
    /// For every position of the capacity.
    pub per_position: usize,
    /// Independent of the length.
    pub fixed: usize,
}
