//! What a model asks for by need, not at load: routed experts and rows of large tables.

use esker_gguf::TensorInfo;
use esker_ops::ExpertWeights;
use std::path::PathBuf;

/// Where one layer's routed experts are in the file. Each tensor is `[n_expert]` slices of equal size.
#[derive(Clone, Debug, PartialEq)]
pub struct ExpertLayout {
    /// Number of experts of this layer.
    pub n_expert: usize,
    /// How many a token uses.
    pub n_expert_used: usize,
    /// Width of the experts' hidden layer.
    pub n_ff: usize,
    /// Width of the residual stream.
    pub n_embd: usize,
    /// The tensors that hold them.
    pub tensors: ExpertTensors,
}

/// The tensors of one layer's routed experts.
#[derive(Clone, Debug, PartialEq)]
pub enum ExpertTensors {
    /// `ffn_gate_exps` and `ffn_up_exps` `[n_expert, n_ff, n_embd]`, `ffn_down_exps` `[n_expert, n_embd, n_ff]`.
    Split {
        /// Gate.
        gate: TensorInfo,
        /// Up.
        up: TensorInfo,
        /// Down.
        down: TensorInfo,
    },
    /// `ffn_gate_up_exps` `[n_expert, 2 * n_ff, n_embd]`, gate rows first, and `ffn_down_exps`.
    Fused {
        /// Gate and up.
        gate_up: TensorInfo,
        /// Down.
        down: TensorInfo,
    },
}

impl ExpertTensors {
    /// The tensors, in the order in which their slices stand in a slot.
    pub fn list(&self) -> impl Iterator<Item = &TensorInfo> {
        let (a, b, c) = match self {
            ExpertTensors::Split { gate, up, down } => (gate, up, Some(down)),
            ExpertTensors::Fused { gate_up, down } => (gate_up, down, None),
        };
        [Some(a), Some(b), c].into_iter().flatten()
    }
}

/// A large table whose rows are read by need: token embeddings, n-gram embeddings.
#[derive(Clone, Debug, PartialEq)]
pub struct TableLayout {
    /// The tensor.
    pub tensor: TensorInfo,
    /// Rows.
    pub n_rows: usize,
    /// Elements per row.
    pub n_cols: usize,
}

/// Everything of a model that a store holds. `layers[il]` is `None` where the layer has no routed experts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StoreLayout {
    /// Routed experts, by layer.
    pub layers: Vec<Option<ExpertLayout>>,
    /// Tables, by [`TableId`].
    pub tables: Vec<TableLayout>,
}

/// Index into [`StoreLayout::tables`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableId(pub usize);

/// Weights could not be had. The generation that asked ends; the process and its other sessions go on.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A read failed, also when repeated.
    #[error("cannot read {what} from `{}`: {cause}", file.display())]
    Read {
        /// The expert or row.
        what: String,
        /// The file.
        file: PathBuf,
        /// Offset, length and reason.
        cause: String,
    },
    /// The store has no room for what a single layer of a single token needs.
    #[error("{0}")]
    NoRoom(String),
}

/// Hands out routed experts and table rows: all resident, or cached from a disk.
///
/// The life of a layer's experts: [`begin`](Self::begin), then [`wait`](Self::wait) until every one has been given out,
/// each computed through [`weights`](Self::weights) and then [`release`](Self::release)d. An expert is never seen
/// before its read has completed.
pub trait ExpertStore {
    /// What is held here.
    fn layout(&self) -> &StoreLayout;

    /// A forward pass over `n_tokens` begins; more than one is a prompt. What an earlier pass left unfinished is over.
    fn begin_pass(&mut self, n_tokens: usize) -> Result<(), StoreError>;

    /// Layer `il` needs `experts` (distinct; for one token, most important first), each for so many of the pass's
    /// tokens. Missing ones are requested from the disk.
    fn begin(&mut self, il: usize, experts: &[u32], n_tokens: &[u32]) -> Result<(), StoreError>;

    /// Appends to `ready` positions in `experts` that became usable since the last call: at least one, waiting if
    /// necessary, or none when all have been given.
    fn wait(&mut self, ready: &mut Vec<usize>) -> Result<(), StoreError>;

    /// The matrices of a ready, unreleased position.
    fn weights(&self, position: usize) -> ExpertWeights<'_>;

    /// Position `position` has been computed: its slot may be reused.
    fn release(&mut self, position: usize);

    /// What routing may see of layer `il` (cache-aware routing): sets `mask[e]` for resident experts. `None` if the
    /// store was not asked to route by residency.
    fn route_bias(&mut self, il: usize) -> Option<RouteBias<'_>>;

    /// The raw router logits of one token, for policies that learn from near picks, with what was `chosen`.
    fn routed(&mut self, il: usize, logits: &[f32], chosen: &[u32]);

    /// True if a prediction for layer `il` would be used; asked before its logits are computed.
    fn wants_read_ahead(&self, il: usize) -> bool;

    /// Predicted router logits of layer `il` for the token at hand.
    fn read_ahead(&mut self, il: usize, logits: &[f32]);

    /// Decodes `rows` of `table` into `out`, `[rows, n_cols]`.
    fn rows(&mut self, table: TableId, rows: &[u64], out: &mut [f32]) -> Result<(), StoreError>;
}

/// Residency as one routing decision sees it. Source: arXiv:2412.00099 ("cache prior").
pub struct RouteBias<'a> {
    /// `[n_expert]`: resident, fixed for the token and layer.
    pub resident: &'a [bool],
    /// Added to the selection score of resident experts, in logit units: lambda times the layer's logit range.
    pub bonus: f32,
    /// Ranks taken from the raw logits always.
    pub protect: usize,
}
