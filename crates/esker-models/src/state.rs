//! What a sequence carries from pass to pass.

use bytemuck::{cast_slice, cast_slice_mut};
use esker_ops::{IndexKeys, KvCache, KvType};
use std::ops::Range;

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
    /// The last `keep` token ids, oldest first; fewer at the start of a sequence.
    pub recent: Vec<u32>,
    /// The longest n-gram less the token itself.
    pub keep: usize,
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

    /// The longest length, at most `len`, that [`truncate`](Self::truncate) can cut the sequence to.
    pub fn cut(&self, len: usize) -> usize {
        if len >= self.n_past {
            return self.n_past;
        }
        let layer = |layer: &LayerState| match layer {
            LayerState::Attention { index: None, .. } => len,
            LayerState::Attention { index: Some(index), .. } => index.cut(len),
            LayerState::Recurrent { .. } => 0,
        };
        if self.ngram.conv.is_empty() { self.layers.iter().map(layer).min().unwrap_or(len) } else { 0 }
    }

    /// True if the sequence can be cut anywhere: all that it carries is a list with an entry for each position.
    pub fn is_list(&self) -> bool {
        let is_list = |layer: &LayerState| matches!(layer, LayerState::Attention { index: None, .. });
        self.ngram.conv.is_empty() && self.layers.iter().all(is_list)
    }

    /// Forgets the positions from `len` on. False, and nothing is changed, if `len` is neither 0 nor what
    /// [`cut`](Self::cut) allows: states that are functions of the whole prefix (recurrent layers, the n-gram
    /// convolution) cannot be cut back.
    pub fn truncate(&mut self, len: usize) -> bool {
        if len == 0 {
            self.reset();
            return true;
        }
        if self.cut(len) != len {
            return false;
        }
        if len < self.n_past {
            self.set_len(len);
            for layer in &mut self.layers {
                if let LayerState::Attention { index: Some(index), .. } = layer {
                    index.skip_to(len);
                }
            }
        }
        true
    }

    /// Forgets everything; memory is kept.
    fn reset(&mut self) {
        self.set_len(0);
        for layer in &mut self.layers {
            match layer {
                LayerState::Attention { index, .. } => {
                    if let Some(index) = index {
                        index.skip_to(0);
                    }
                }
                LayerState::Recurrent { state, conv } => {
                    state.fill(0.0);
                    conv.fill(0.0);
                }
            }
        }
        self.ngram.recent.clear();
        self.ngram.conv.fill(0.0);
    }

    fn set_len(&mut self, len: usize) {
        self.n_past = len;
        for layer in &mut self.layers {
            if let LayerState::Attention { kv, .. } = layer {
                kv.skip_to(len);
            }
        }
    }

    /// Shows the bytes of what the sequence has for each of `positions`, in pieces whose order and sizes depend on the model
    /// and `positions` alone. With those of [`save_end`](Self::save_end) they are all of the sequence.
    ///
    /// # Panics
    /// If they are not within what has been consumed.
    pub fn save_positions(&self, positions: Range<usize>, piece: &mut dyn FnMut(&[u8])) {
        assert!(positions.end <= self.n_past, "positions that have been consumed");
        for layer in &self.layers {
            if let LayerState::Attention { kv, index } = layer {
                kv.save(positions.clone(), piece);
                if let Some(index) = index {
                    index.save_blocks(positions.clone(), piece);
                }
            }
        }
    }

    /// Hands out the pieces of [`save_positions`](Self::save_positions) to be written. The length does not change.
    ///
    /// # Panics
    /// If `positions` are not within the capacity.
    pub fn restore_positions(&mut self, positions: Range<usize>, piece: &mut dyn FnMut(&mut [u8])) {
        assert!(positions.end <= self.options.capacity, "positions within the capacity");
        for layer in &mut self.layers {
            if let LayerState::Attention { kv, index } = layer {
                kv.restore(positions.clone(), piece);
                if let Some(index) = index {
                    index.restore_blocks(positions.clone(), piece);
                }
            }
        }
    }

    /// Shows the bytes of what is a function of the whole sequence: recurrent states, convolutions, the raw keys of an index
    /// block that is not complete. Nothing if [`is_list`](Self::is_list).
    pub fn save_end(&self, piece: &mut dyn FnMut(&[u8])) {
        for layer in &self.layers {
            match layer {
                LayerState::Attention { index, .. } => {
                    if let Some(index) = index {
                        piece(cast_slice(index.pending()));
                    }
                }
                LayerState::Recurrent { state, conv } => {
                    piece(cast_slice(state));
                    piece(cast_slice(conv));
                }
            }
        }
        if !self.ngram.conv.is_empty() {
            piece(cast_slice(&self.ngram.conv));
        }
    }

    /// Makes the sequence one of `tokens`, whose positions have been restored, and hands out the pieces of
    /// [`save_end`](Self::save_end) to be written.
    pub fn restore_end(&mut self, tokens: &[u32], piece: &mut dyn FnMut(&mut [u8])) {
        self.set_len(tokens.len());
        for layer in &mut self.layers {
            match layer {
                LayerState::Attention { index, .. } => {
                    if let Some(index) = index {
                        piece(cast_slice_mut(index.restore_pending(tokens.len())));
                    }
                }
                LayerState::Recurrent { state, conv } => {
                    piece(cast_slice_mut(state));
                    piece(cast_slice_mut(conv));
                }
            }
        }
        if !self.ngram.conv.is_empty() {
            self.ngram.recent.clear();
            self.ngram.recent.extend_from_slice(&tokens[tokens.len().saturating_sub(self.ngram.keep)..]);
            piece(cast_slice_mut(&mut self.ngram.conv));
        }
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
