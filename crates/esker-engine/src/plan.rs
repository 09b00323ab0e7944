//! The memory plan: what everything takes, before any of it is taken.
//!
//! Sizes of weights and states follow from the file's header. Scratch memory is not a formula: the model's own forward
//! pass is run on an idle context, which takes the memory and computes nothing, once for a prompt chunk at the end of
//! the context and once for a single token of each session. So the plan cannot drift from the code.

use crate::batch;
use crate::load::EngineError;
use crate::map::JUST_READ_MAX;
use crate::options::EngineOptions;
use crate::slots::{SizeClass, SlotLayout, share_arena, slot_layouts};
use crate::tables;
use arrayvec::ArrayVec;
use esker_gguf::{Gguf, TensorInfo};
use esker_models::{
    ExpertStore, Model, Output, Pass, Purpose, RouteBias, RoutingMoved, Scratch, Segment, StateOptions,
    StoreError, StoreLayout, TableId,
};
use esker_ops::{Ctx, ExpertWeights, WeightBytes};
use std::sync::Arc;

/// What direct reads are planned for: the alignment of every common file system. Files that ask for less still fit.
pub(crate) const PLAN_ALIGN: usize = 4096;

/// Tensors up to this size are read when a plan is made: loaders look at the values of the smallest ones.
const READ_FOR_PLAN: u64 = 4096;

/// One line of the plan.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct PlanLine {
    /// A stable name.
    pub name: &'static str,
    /// Bytes.
    pub bytes: u64,
    /// What it is, for people.
    pub what: String,
}

/// The slots of one size.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct ClassPlan {
    /// Bytes of one slot.
    pub slot_bytes: u64,
    /// Slots.
    pub n_slots: usize,
    /// Experts of all layers that use the class.
    pub n_experts: usize,
    /// Layers that use the class.
    pub n_layers: usize,
}

/// How a model is laid out inside a budget.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Plan {
    /// Bytes that the process may take in all.
    pub budget: u64,
    /// The smallest budget that would work with these options.
    pub smallest_budget: u64,
    /// Context length that is planned for, tokens.
    pub context: usize,
    /// Prompt tokens per pass.
    pub chunk: usize,
    /// Sessions that are planned for.
    pub sessions: usize,
    /// What takes memory, the arena last.
    pub lines: Vec<PlanLine>,
    /// The arena's slots.
    pub classes: Vec<ClassPlan>,
    /// Bytes of one token's experts, all layers.
    pub experts_per_token_bytes: u64,
    /// Bytes of dense weights that every token reads.
    pub dense_bytes: u64,
}

impl Plan {
    /// Sum of all lines.
    pub fn total(&self) -> u64 {
        self.lines.iter().map(|l| l.bytes).sum()
    }

    /// Share of the model's experts that fit in the arena.
    pub fn resident_share(&self) -> f64 {
        let slots: u64 = self.classes.iter().map(|c| c.n_slots as u64 * c.slot_bytes).sum();
        let all: u64 = self.classes.iter().map(|c| c.n_experts as u64 * c.slot_bytes).sum();
        if all == 0 { 1.0 } else { slots as f64 / all as f64 }
    }
}

/// Everything about a model's memory that does not depend on the budget.
pub(crate) struct Sizes {
    /// Tensors that stay in memory.
    pub(crate) kept: Vec<TensorInfo>,
    pub(crate) vectors: u64,
    pub(crate) layout: StoreLayout,
    pub(crate) slots_of_layer: Vec<Option<SlotLayout>>,
    pub(crate) classes: Vec<SizeClass>,
    /// Of all sessions.
    pub(crate) state: u64,
    pub(crate) scratch_decode: u64,
    pub(crate) scratch_prompt: u64,
    pub(crate) sampler: u64,
    pub(crate) sessions: usize,
    pub(crate) snapshots: u64,
    pub(crate) tables: u64,
    pub(crate) cache: u64,
}

impl Sizes {
    /// Measures the model of `gguf` for a context and options.
    pub(crate) fn measure(
        gguf: &Gguf,
        options: &EngineOptions,
        context: usize,
        threads: usize,
    ) -> Result<Sizes, EngineError> {
        // Every tensor is a range of this: untouched, it takes addresses and no memory.
        let largest = gguf.tensors.iter().map(|t| t.size).max().unwrap_or(0);
        let zeros =
            Zeros::new(usize::try_from(largest).map_err(|_| EngineError::TooLarge { bytes: largest })?);
        let mut kept = Vec::new();
        let mut vectors = 0;
        let mut fetch = |tensor: &TensorInfo, purpose: Purpose| match purpose {
            Purpose::Kept => {
                kept.push(tensor.clone());
                Ok(zeros.bytes(tensor.size as usize))
            }
            Purpose::Decoded => {
                vectors += tensor.n_elements() * 4;
                match tensor.size {
                    ..=READ_FOR_PLAN => {
                        gguf.read_tensor(tensor).map(WeightBytes::from).map_err(|e| e.to_string())
                    }
                    _ => Ok(zeros.bytes(tensor.size as usize)),
                }
            }
        };
        let (model, layout) = Model::load(gguf, &mut fetch)?;
        kept.dedup_by(|a, b| a.name == b.name);
        let state = model.state_bytes(options.kv_type);
        let sessions = options.sessions as u64;
        // A session also keeps its token ids.
        let state = sessions * (state.fixed as u64 + (state.per_position as u64 + 4) * context as u64);
        let chunk = options.chunk.clamp(1, context);
        // Some sessions decode beside another one's prompt, or the prompt has the pass for itself.
        let scratch = |n_rows, output| -> Result<u64, EngineError> {
            let of = |sessions| {
                scratch_bytes(&model, &layout, options, context, threads, sessions, n_rows, output)
            };
            Ok(of(options.sessions)?.max(if n_rows > options.sessions { of(1)? } else { 0 }))
        };
        let scratch_decode = scratch(options.sessions, Output::Last)?;
        let scratch_prompt = match (chunk.max(options.sessions), options.all_logits) {
            (1, _) => 0,
            (rows, false) => scratch(rows, Output::Last)?,
            (rows, true) => scratch(rows, Output::All)?,
        };
        let (slots_of_layer, classes) =
            slot_layouts(&layout, PLAN_ALIGN, &vec![PLAN_ALIGN; gguf.files.len()]);
        // A sampler keeps the logits, the candidates with their ids, and their probabilities in f64.
        let sampler = sessions * 20 * model.n_vocab() as u64;
        let in_memory = |t: &&esker_models::TableLayout| !kept.iter().any(|k| k.name == t.tensor.name);
        let on_disk: Vec<_> = layout.tables.iter().filter(in_memory).cloned().collect();
        let tables = tables::disk_bytes(&on_disk, PLAN_ALIGN) as u64;
        // The state machine's own tables: about 100 bytes for each expert, and as much for each slot.
        let of_map = (size_of::<(u16, u16)>() * JUST_READ_MAX) as u64;
        let cache = of_map + 200 * classes.iter().map(|c| c.n_experts as u64).sum::<u64>();
        Ok(Sizes {
            kept,
            vectors,
            layout,
            slots_of_layer,
            classes,
            state,
            scratch_decode,
            scratch_prompt,
            sampler,
            sessions: options.sessions,
            snapshots: options.snapshot_bytes,
            tables,
            cache,
        })
    }

    /// What a model that is all in memory takes besides its weights.
    pub(crate) fn beside_weights(&self) -> u64 {
        self.state + self.scratch_prompt + self.scratch_decode + self.sampler + self.snapshots
    }

    fn each_session(&self) -> String {
        if self.sessions == 1 { String::new() } else { format!(" in each of {} sessions", self.sessions) }
    }

    /// Lays the model out in `budget` bytes, of which the process takes `process` already.
    ///
    /// # Errors
    /// If a token's experts would not fit; the error names the smallest budget that works.
    pub(crate) fn plan(
        &self,
        budget: u64,
        process: u64,
        context: usize,
        chunk: usize,
    ) -> Result<(Plan, Vec<usize>), EngineError> {
        let dense: u64 = self.kept.iter().map(|t| t.size.next_multiple_of(PLAN_ALIGN as u64)).sum();
        let line = |name, bytes, what: &str| PlanLine { name, bytes, what: what.to_owned() };
        let mut lines = vec![
            line("process", process, "program, metadata and vocabulary, as measured"),
            line("dense_weights", dense + self.vectors, "every token reads them"),
            line(
                "sequence_state",
                self.state,
                &format!("keys, values, recurrent states for {context} tokens{}", self.each_session()),
            ),
            line(
                "decode_scratch",
                self.scratch_decode + self.sampler,
                &format!("activations of one token{}, sampler", self.each_session()),
            ),
            line(
                "prompt_scratch",
                self.scratch_prompt,
                &format!("activations of {} tokens, while a prompt runs", chunk.max(self.sessions)),
            ),
            line("table_rows", self.tables, "row cache and read buffers of embedding tables"),
            line("disk", esker_disk::BOUNCE_BYTES as u64, "buffer of unaligned reads"),
            line("expert_cache", self.cache, "tables of the cache itself"),
        ];
        if self.snapshots > 0 {
            lines.push(line("snapshots", self.snapshots, "states of prefixes that conversations share"));
        }
        let fixed: u64 = lines.iter().map(|l| l.bytes).sum();
        let arena_min: u64 = self.classes.iter().map(|c| (c.slots_min * c.slot_bytes) as u64).sum();
        let smallest_budget = fixed + arena_min;
        let n_slots = budget.checked_sub(fixed).and_then(|arena| share_arena(&self.classes, arena));
        let Some(n_slots) = n_slots else {
            let lines: Vec<String> = lines.iter().map(|l| format!("{} {}", l.name, l.bytes)).collect();
            return Err(EngineError::Budget { budget, smallest_budget, arena_min, lines: lines.join(", ") });
        };
        let arena: u64 = n_slots.iter().zip(&self.classes).map(|(&n, c)| (n * c.slot_bytes) as u64).sum();
        lines.push(line("expert_arena", arena, "slots of routed experts"));
        let experts_per_token_bytes = self
            .layout
            .layers
            .iter()
            .zip(&self.slots_of_layer)
            .filter_map(|(l, s)| Some((l.as_ref()?.n_expert_used * s.as_ref()?.expert_bytes) as u64))
            .sum();
        let classes = self.classes.iter().zip(&n_slots).map(|(c, &n_slots)| ClassPlan {
            slot_bytes: c.slot_bytes as u64,
            n_slots,
            n_experts: c.n_experts,
            n_layers: c.layers.len(),
        });
        let plan = Plan {
            budget,
            smallest_budget,
            context,
            chunk,
            sessions: self.sessions,
            lines,
            classes: classes.collect(),
            experts_per_token_bytes,
            dense_bytes: self.kept.iter().map(|t| t.size).sum(),
        };
        Ok((plan, n_slots))
    }
}

/// Scratch memory of a pass over `n_rows` tokens of `sessions`: one of each, the others of a prompt that ends at the end of
/// the context.
#[expect(clippy::too_many_arguments, reason = "a model, how it is run, and a pass")]
fn scratch_bytes(
    model: &Model,
    layout: &StoreLayout,
    options: &EngineOptions,
    context: usize,
    threads: usize,
    sessions: usize,
    n_rows: usize,
    output: Output,
) -> Result<u64, EngineError> {
    let ctx = Ctx::idle(threads);
    let first = n_rows - (sessions - 1);
    let tokens = vec![0; first];
    let state = |capacity| model.new_state(StateOptions { capacity, kv_type: options.kv_type });
    let mut states = vec![state(context)];
    states[0].skip_to(context - first);
    states.resize_with(sessions, || state(1));
    let mut segments: Vec<Segment<'_>> =
        states.iter_mut().map(|state| Segment { tokens: &tokens[..1], state, output }).collect();
    segments[0].tokens = &tokens;
    let mut store = ZeroStore::new(layout.clone());
    let (mut scratch, mut moved) = (Scratch::default(), RoutingMoved::default());
    let mut pass = Pass::new(&ctx, &mut store, &mut scratch, &mut moved, &segments)?;
    let logits = model.forward(&mut pass, &mut segments)?;
    let counts = segments.iter().map(|s| s.output.n_rows(s.tokens.len()));
    let mut by_session = Vec::new();
    batch::split(&ctx, logits, counts, &mut by_session);
    drop(by_session);
    Ok((ctx.scratch().peak + scratch.bytes()) as u64)
}

/// Zeros that take no memory until they are touched.
struct Zeros(Arc<Vec<u8>>);

impl Zeros {
    fn new(bytes: usize) -> Zeros {
        Zeros(Arc::new(vec![0; bytes]))
    }

    fn bytes(&self, n: usize) -> WeightBytes {
        WeightBytes::new(self.0.clone(), 0..n)
    }
}

/// Experts and rows of zeros.
struct ZeroStore {
    layout: StoreLayout,
    zeros: Vec<u8>,
    il: usize,
    n: usize,
    given: bool,
}

impl ZeroStore {
    fn new(layout: StoreLayout) -> ZeroStore {
        let slice =
            |l: &esker_models::ExpertLayout| l.parts.iter().map(|p| p.bytes as usize).max().unwrap_or(0);
        let largest = layout.layers.iter().flatten().map(slice).max().unwrap_or(0);
        ZeroStore { layout, zeros: vec![0; largest], il: 0, n: 0, given: false }
    }
}

impl ExpertStore for ZeroStore {
    fn layout(&self) -> &StoreLayout {
        &self.layout
    }

    fn begin_pass(&mut self, _n_tokens: usize, _is_decode: bool) -> Result<(), StoreError> {
        Ok(())
    }

    fn begin(&mut self, il: usize, experts: &[u32], _n_tokens: &[u32]) -> Result<(), StoreError> {
        (self.il, self.n, self.given) = (il, experts.len(), false);
        Ok(())
    }

    fn wait(&mut self, ready: &mut Vec<usize>) -> Result<(), StoreError> {
        if !std::mem::replace(&mut self.given, true) {
            ready.extend(0..self.n);
        }
        Ok(())
    }

    fn weights(&self, _position: usize) -> ExpertWeights<'_> {
        let layout = self.layout.layers[self.il].as_ref().expect("a layer with experts");
        let slices: ArrayVec<&[u8], 3> =
            layout.parts.iter().map(|p| &self.zeros[..p.bytes as usize]).collect();
        layout.weights(&slices)
    }

    fn release(&mut self, _position: usize) {}

    fn route_bias(&mut self, _il: usize) -> Option<RouteBias<'_>> {
        None
    }

    fn routed(&mut self, _il: usize, _logits: &[f32], _chosen: &[u32]) {}

    fn wants_read_ahead(&self, _il: usize) -> bool {
        // Predictions take scratch memory too.
        true
    }

    fn read_ahead(&mut self, _il: usize, _logits: &[f32]) {}

    fn rows(&mut self, _table: TableId, _rows: &[u64], _out: &mut [f32]) -> Result<(), StoreError> {
        Ok(())
    }
}
