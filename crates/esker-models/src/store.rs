//! What a model asks for by need, not at load: routed experts and rows of large tables.

use esker_gguf::TensorInfo;
use esker_ops::{ExpertWeights, Weights};
use esker_quant::GgmlType;
use std::path::PathBuf;
use std::sync::Arc;

/// Where one layer's routed experts are in the file.
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
    /// Tensors of the file that hold them: one for each part, or one for all (repacked files).
    pub tensors: Vec<TensorInfo>,
    /// Gate, up, down; or gate and up in one, down.
    pub parts: Vec<ExpertPart>,
    /// XXH3-64 of each expert's parts, in files that bring them.
    pub checksums: Option<Arc<[u64]>>,
}

/// One matrix of every expert of a layer: expert `e`'s is at `offset + e * stride` of its tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpertPart {
    /// Which of the matrices.
    pub role: PartRole,
    /// Element type.
    pub ty: GgmlType,
    /// Index into [`ExpertLayout::tensors`].
    pub tensor: usize,
    /// Of expert 0, from the start of the tensor.
    pub offset: u64,
    /// From one expert to the next.
    pub stride: u64,
    /// Of one expert.
    pub bytes: u64,
}

/// What a part of an expert is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartRole {
    /// `[n_ff, n_embd]`
    Gate,
    /// `[n_ff, n_embd]`
    Up,
    /// `[2 * n_ff, n_embd]`, gate rows first.
    GateUp,
    /// `[n_embd, n_ff]`
    Down,
}

impl ExpertLayout {
    /// Bytes of one expert, without padding.
    pub fn expert_bytes(&self) -> u64 {
        self.parts.iter().map(|p| p.bytes).sum()
    }

    /// The matrices of an expert, given the bytes of its parts in the order of [`parts`](Self::parts).
    ///
    /// # Panics
    /// If a slice has another length than its part.
    pub fn weights<'a>(&self, slices: &[&'a [u8]]) -> ExpertWeights<'a> {
        let &ExpertLayout { n_ff, n_embd, .. } = self;
        let up_down = |ty, bytes| Weights::new(ty, n_ff, n_embd, bytes);
        let (mut gate, mut up, mut down) = (None, None, None);
        for (part, &bytes) in self.parts.iter().zip(slices) {
            match part.role {
                PartRole::Gate => gate = Some(up_down(part.ty, bytes)),
                PartRole::Up => up = Some(up_down(part.ty, bytes)),
                PartRole::GateUp => {
                    let (first, second) = bytes.split_at(bytes.len() / 2);
                    gate = Some(up_down(part.ty, first));
                    up = Some(up_down(part.ty, second));
                }
                PartRole::Down => down = Some(Weights::new(part.ty, n_embd, n_ff, bytes)),
            }
        }
        let missing = "loaders place all matrices of an expert";
        ExpertWeights { gate: gate.expect(missing), up: up.expect(missing), down: down.expect(missing) }
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

    /// A forward pass over `n_tokens` begins: `is_decode` if each is the next of a sequence of its own, else some belong to
    /// a prompt. What an earlier pass left unfinished is over.
    fn begin_pass(&mut self, n_tokens: usize, is_decode: bool) -> Result<(), StoreError>;

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

    /// Predicted router logits of layer `il` for the token at hand; for several tokens, for each expert the best of them.
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

impl RouteBias<'_> {
    /// True if the bias can change a selection of `k`.
    pub fn is_active(&self, k: usize) -> bool {
        self.bonus > 0.0 && self.protect < k
    }

    /// Chooses anew the ranks of `ranked` after the protected ones, which hold the top of the raw `logits` already:
    /// resident experts get their bonus. `score` is scratch. The order is that of the biased scores.
    pub fn reselect(&self, logits: &[f32], score: &mut Vec<f32>, ranked: &mut [u32]) {
        score.clear();
        let biased = |(l, &here): (&f32, &bool)| if here { l + self.bonus } else { *l };
        score.extend(logits.iter().zip(self.resident).map(biased));
        let (protected, others) = ranked.split_at_mut(self.protect);
        protected.iter().for_each(|&e| score[e as usize] = f32::NEG_INFINITY);
        esker_ops::top_k(score, others);
    }
}
