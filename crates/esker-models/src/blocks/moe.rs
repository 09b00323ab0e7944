//! Routed feed-forward: router, top-k, experts as they become ready, sum in rank order.

use crate::pass::Pass;
use crate::store::{ExpertStore, StoreError};
use crate::tensors::{LoadError, Tensors};
use arrayvec::ArrayVec;
use esker_ops::{
    Ctx, EXPERTS_PER_ROUND, ExpertCall, Matrix, Op, Rows, matmul, matmul_many, scale_rows_by_sigmoid,
    softmax, swiglu, top_k, weighted_sum, with_expert_input,
};
use esker_quant::GgmlType;

/// How a router's logits become weights.
#[derive(Clone, Copy, Debug)]
pub struct Gating {
    /// Experts per token (top-k).
    pub n_expert_used: usize,
    /// Whether the chosen probabilities are divided by their sum.
    pub renormalise: bool,
    /// Factor on the weights.
    pub scale: f32,
}

impl Gating {
    /// Reads `expert_used_count` and the optional scale; `n_expert` is the file's count, never a constant.
    pub fn load(t: &Tensors<'_>, n_expert: usize, renormalise: bool) -> Result<Gating, LoadError> {
        let n_expert_used = t.count("expert_used_count")?;
        if n_expert_used > n_expert {
            return Err(t.bad_value(
                "expert_used_count",
                n_expert_used,
                format!("at most expert_count = {n_expert}"),
            ));
        }
        let scale = t.opt_f32("expert_weights_scale")?.filter(|&s| s != 0.0).unwrap_or(1.0);
        Ok(Gating { n_expert_used, renormalise, scale })
    }
}

/// Per token, `k` pairs (expert, weight), in order of falling probability.
pub struct Routes {
    /// `[n_tokens, k]`
    pub experts: Vec<u32>,
    /// `[n_tokens, k]`
    pub weights: Rows,
}

/// Which tokens go to which expert: the transpose of [`Routes`]. Buffers are kept from pass to pass.
#[derive(Default)]
pub struct Grouping {
    /// Distinct experts: by rank for one token, by index (the order in the file) for several.
    distinct: Vec<u32>,
    /// Tokens of each of them.
    n_tokens: Vec<u32>,
    /// `[distinct + 1]` bounds in `tokens` and `pairs`.
    bounds: Vec<usize>,
    tokens: Vec<u32>,
    /// Row of the experts' results, `token * k + rank`.
    pairs: Vec<u32>,
    counts: Vec<usize>,
    ready: Vec<usize>,
    chosen: Vec<u32>,
    score: Vec<f32>,
    experts: Vec<u32>,
}

/// Softmax over all experts, the top `k`, weights from the raw logits always.
///
/// Ties go to the lower index. The selection looks at the logits, which order the experts as their probabilities do but
/// cannot be made equal by rounding. With cache-aware routing the first `protect` ranks are those of the raw logits;
/// the others are chosen after resident experts got their bonus: it decides who is picked, never how much they count.
fn route(
    ctx: &Ctx,
    il: usize,
    logits: &Rows,
    gating: Gating,
    store: &mut dyn ExpertStore,
    scratch: &mut Grouping,
    moved: &mut RoutingMoved,
) -> Routes {
    let k = gating.n_expert_used;
    let n_tokens = logits.n_rows();
    let mut probs = ctx.rows(n_tokens, logits.n_cols());
    probs.data_mut().copy_from_slice(logits.data());
    softmax(ctx, &mut probs);
    let mut weights = ctx.rows(n_tokens, k);
    let mut experts = std::mem::take(&mut scratch.experts);
    experts.resize(n_tokens * k, 0);
    for t in 0..n_tokens {
        let chosen = &mut experts[t * k..][..k];
        top_k(logits.row(t), chosen);
        if let Some(bias) = store.route_bias(il)
            && bias.is_active(k)
        {
            scratch.chosen.clear();
            scratch.chosen.extend_from_slice(chosen);
            bias.reselect(logits.row(t), &mut scratch.score, chosen);
            // Rank order is that of the raw probabilities, whichever way an expert came in.
            chosen[bias.protect..].sort_by(|&a, &b| {
                logits.row(t)[b as usize].total_cmp(&logits.row(t)[a as usize]).then(a.cmp(&b))
            });
            moved.count(probs.row(t), &scratch.chosen, chosen);
        }
        let w = weights.row_mut(t);
        for (w, &e) in w.iter_mut().zip(chosen.iter()) {
            *w = probs.row(t)[e as usize];
        }
        if gating.renormalise {
            let sum: f32 = w.iter().sum();
            w.iter_mut().for_each(|w| *w /= sum);
        }
        if gating.scale != 1.0 {
            w.iter_mut().for_each(|w| *w *= gating.scale);
        }
        store.routed(il, logits.row(t), chosen);
    }
    Routes { experts, weights }
}

/// What cache-aware routing changed, over a session.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RoutingMoved {
    /// Picks made under cache-aware routing.
    pub picks: u64,
    /// Of these, picks that differ from the raw top-k.
    pub changed: u64,
    /// Probability of the experts that lost their place, less that of those that took it, summed over tokens and layers.
    pub mass: f64,
}

impl RoutingMoved {
    fn count(&mut self, probs: &[f32], raw: &[u32], chosen: &[u32]) {
        self.picks += chosen.len() as u64;
        let p = |e: &u32| f64::from(probs[*e as usize]);
        let lost = raw.iter().filter(|e| !chosen.contains(e));
        let won = chosen.iter().filter(|e| !raw.contains(e));
        self.changed += won.clone().count() as u64;
        self.mass += lost.map(p).sum::<f64>() - won.map(p).sum::<f64>();
    }
}

impl Grouping {
    /// Memory held, bytes.
    pub(crate) fn bytes(&self) -> usize {
        let words = [&self.distinct, &self.n_tokens, &self.tokens, &self.pairs, &self.chosen, &self.experts];
        let sizes = [&self.bounds, &self.counts, &self.ready];
        words.iter().map(|v| v.capacity() * size_of::<u32>()).sum::<usize>()
            + sizes.iter().map(|v| v.capacity() * size_of::<usize>()).sum::<usize>()
            + self.score.capacity() * size_of::<f32>()
    }

    fn group(&mut self, experts: &[u32], k: usize, n_expert: usize) {
        self.distinct.clear();
        self.n_tokens.clear();
        self.bounds.clear();
        self.bounds.push(0);
        if experts.len() == k {
            self.distinct.extend_from_slice(experts);
            self.tokens.clear();
            self.tokens.resize(k, 0);
            self.pairs.clear();
            self.pairs.extend(0..k as u32);
            self.bounds.extend(1..=k);
            self.n_tokens.resize(k, 1);
            return;
        }
        self.counts.clear();
        self.counts.resize(n_expert, 0);
        for &e in experts {
            self.counts[e as usize] += 1;
        }
        let mut start = 0;
        for (e, count) in self.counts.iter_mut().enumerate() {
            if *count > 0 {
                self.distinct.push(e as u32);
                self.n_tokens.push(*count as u32);
                start += *count;
                self.bounds.push(start);
                *count = start - *count; // from here on: where the expert's next token goes
            }
        }
        self.tokens.resize(experts.len(), 0);
        self.pairs.resize(experts.len(), 0);
        for (pair, &e) in experts.iter().enumerate() {
            let at = &mut self.counts[e as usize];
            self.tokens[*at] = (pair / k) as u32;
            self.pairs[*at] = pair as u32;
            *at += 1;
        }
    }
}

/// `Σ over the top-k experts e of w_e · down_e(silu(gate_e x) ⊙ (up_e x))`.
///
/// `x`: `[n_tokens, n_embd]`; `router`: `[n_expert, n_embd]`, GGUF `ffn_gate_inp`. `meanwhile` runs after the missing
/// experts have been requested and before any is waited for: it predicts the next layer's routes, and computes what
/// does not depend on them (the shared expert), into the sum that is returned.
pub fn moe(
    pass: &mut Pass<'_>,
    il: usize,
    x: &Rows,
    router: &Matrix,
    gating: Gating,
    meanwhile: impl FnOnce(&mut Pass<'_>) -> Option<Rows>,
) -> Result<Rows, StoreError> {
    let ctx = pass.ctx;
    let k = gating.n_expert_used;
    let timer = ctx.time(Op::Router);
    let logits = matmul(ctx, router, x);
    ctx.probe("ffn_moe_logits", il, &logits);
    let routes = route(ctx, il, &logits, gating, pass.store, pass.grouping, pass.moved);
    ctx.probe("ffn_moe_weights", il, &routes.weights);
    pass.grouping.group(&routes.experts, k, router.n_rows());
    pass.usage.count(il, &pass.grouping.distinct);
    drop(timer);
    let timer = ctx.time(Op::Request);
    pass.store.begin(il, &pass.grouping.distinct, &pass.grouping.n_tokens)?;
    drop(timer);
    let mut sum = meanwhile(pass).unwrap_or_else(|| ctx.zeros(x.n_rows(), x.n_cols()));

    let mut results = ctx.rows(x.n_rows() * k, x.n_cols());
    let layer = pass.store.layout().layers[il].as_ref().expect("the loader placed this layer's experts");
    let mut tys: ArrayVec<GgmlType, 3> = ArrayVec::new();
    tys.extend(layer.parts.iter().map(|p| p.ty));
    let Grouping { distinct, bounds, tokens, pairs, ready, .. } = &mut *pass.grouping;
    let store = &mut *pass.store;
    // An expert has at most one pair for each token, so one always fits a round.
    let pairs_max = k.max(x.n_rows());
    with_expert_input(ctx, x, &tys, pairs_max, |input| {
        let mut given = 0;
        while given < distinct.len() {
            ready.clear();
            let timer = ctx.time(Op::Wait);
            store.wait(ready)?;
            drop(timer);
            given += ready.len();
            let mut rest = &ready[..];
            while !rest.is_empty() {
                let mut calls: ArrayVec<ExpertCall<'_>, EXPERTS_PER_ROUND> = ArrayVec::new();
                let mut n_pairs = 0;
                for &position in rest {
                    let range = bounds[position]..bounds[position + 1];
                    n_pairs += range.len();
                    if n_pairs > pairs_max || calls.is_full() {
                        break;
                    }
                    let weights = store.weights(position);
                    calls.push(ExpertCall {
                        weights,
                        tokens: &tokens[range.clone()],
                        out_rows: &pairs[range],
                    });
                }
                input.swiglu(&calls, &mut results);
                let (round, left) = rest.split_at(calls.len());
                drop(calls);
                round.iter().for_each(|&position| store.release(position));
                rest = left;
            }
        }
        Ok(())
    })?;
    weighted_sum(ctx, &results, &routes.weights, &mut sum);
    pass.grouping.experts = routes.experts;
    ctx.probe("ffn_moe_out", il, &sum);
    Ok(sum)
}

/// The expert that every token uses, behind a sigmoid gate of its own.
pub struct SharedExpert {
    /// `[1, n_embd]`
    pub ffn_gate_inp_shexp: Matrix,
    /// `[n_ff, n_embd]`
    pub ffn_gate_shexp: Matrix,
    /// `[n_ff, n_embd]`
    pub ffn_up_shexp: Matrix,
    /// `[n_embd, n_ff]`
    pub ffn_down_shexp: Matrix,
}

impl SharedExpert {
    /// Reads block `il`'s shared expert of width `n_ff`.
    pub fn load(
        t: &mut Tensors<'_>,
        il: usize,
        n_ff: usize,
        n_embd: usize,
    ) -> Result<SharedExpert, LoadError> {
        Ok(SharedExpert {
            ffn_gate_inp_shexp: t.matrix(&format!("blk.{il}.ffn_gate_inp_shexp.weight"), 1, n_embd)?,
            ffn_gate_shexp: t.matrix(&format!("blk.{il}.ffn_gate_shexp.weight"), n_ff, n_embd)?,
            ffn_up_shexp: t.matrix(&format!("blk.{il}.ffn_up_shexp.weight"), n_ff, n_embd)?,
            ffn_down_shexp: t.matrix(&format!("blk.{il}.ffn_down_shexp.weight"), n_embd, n_ff)?,
        })
    }

    /// `σ(gate_inp · x) · down(silu(gate x) ⊙ (up x))`.
    pub fn forward(&self, ctx: &Ctx, x: &Rows) -> Rows {
        let _timer = ctx.time(Op::SharedExpert);
        let [gate, up, mut logit] =
            matmul_many(ctx, [&self.ffn_gate_shexp, &self.ffn_up_shexp, &self.ffn_gate_inp_shexp], x);
        let y = matmul(ctx, &self.ffn_down_shexp, &swiglu(ctx, &gate, up));
        let mut out = ctx.zeros(y.n_rows(), y.n_cols());
        scale_rows_by_sigmoid(ctx, &mut out, &y, &mut logit);
        out
    }
}
