//! Norms, activations, routing, recurrences: everything that is no matrix product and no attention.

use crate::{Ctx, Op, Rows, Vector};
use esker_kernels as k;
use esker_kernels::{DeltaShape, Strided};
use std::ops::Range;

/// `x / sqrt(mean(x²) + eps) ⊙ gamma` for each row; `gamma`: `[n_cols]`.
pub fn rms_norm(ctx: &Ctx, x: &Rows, gamma: &Vector, eps: f32) -> Rows {
    rms_norm_grouped(ctx, x, gamma, x.n_cols(), eps)
}

/// [`rms_norm`] of groups of `n` consecutive elements: the statistic is per group, `gamma` is `[n_cols]`.
pub fn rms_norm_grouped(ctx: &Ctx, x: &Rows, gamma: &Vector, n: usize, eps: f32) -> Rows {
    let _timer = ctx.time(Op::Norm);
    assert_eq!(gamma.values().len(), x.n_cols(), "one gain per column");
    let mut out = ctx.rows(x.n_rows(), x.n_cols());
    k::rms_norm(&ctx.pool, x.data(), gamma.values(), n, eps, out.data_mut());
    out
}

/// [`rms_norm`] of every head in place; `gamma` (`[head_dim]`) is shared by the heads.
pub fn rms_norm_heads(ctx: &Ctx, x: &mut Rows, gamma: &Vector, eps: f32) {
    let _timer = ctx.time(Op::Norm);
    let n = gamma.values().len();
    k::rms_norm_in_place(&ctx.pool, x.data_mut(), gamma.values(), n, eps);
}

/// `x / sqrt(Σx² + eps) * scale` for every group of `n` elements within some columns, in place.
pub fn l2_norm_columns(ctx: &Ctx, x: &mut Rows, columns: Range<usize>, n: usize, eps: f32, scale: f32) {
    let _timer = ctx.time(Op::Norm);
    let stride = x.n_cols();
    k::l2_norm_columns_in_place(&ctx.pool, x.data_mut(), stride, columns, n, eps, scale);
}

/// `y += x`.
pub fn add(ctx: &Ctx, y: &mut Rows, x: &Rows) {
    let _timer = ctx.time(Op::Elementwise);
    assert_eq!((y.n_rows(), y.n_cols()), (x.n_rows(), x.n_cols()), "sum of equal shapes");
    k::add_in_place(&ctx.pool, y.data_mut(), x.data());
}

/// `silu(gate) ⊙ up`.
pub fn swiglu(ctx: &Ctx, gate: &Rows, mut up: Rows) -> Rows {
    let _timer = ctx.time(Op::Elementwise);
    k::silu_mul_in_place(&ctx.pool, up.data_mut(), gate.data());
    up
}

/// `y ⊙= σ(gate)`.
pub fn sigmoid_gate(ctx: &Ctx, y: &mut Rows, gate: &Rows) {
    let _timer = ctx.time(Op::Elementwise);
    k::sigmoid_mul_in_place(&ctx.pool, y.data_mut(), gate.data());
}

/// `y ⊙= silu(gate)`.
pub fn silu_gate(ctx: &Ctx, y: &mut Rows, gate: &Rows) {
    let _timer = ctx.time(Op::Elementwise);
    k::silu_mul_in_place(&ctx.pool, y.data_mut(), gate.data());
}

/// `x = silu(x * scale)`.
pub fn silu(ctx: &Ctx, x: &mut Rows, scale: f32) {
    let _timer = ctx.time(Op::Elementwise);
    k::silu_scaled_in_place(&ctx.pool, x.data_mut(), scale);
}

/// `x = scale_out * σ(x * scale_in)`.
pub fn sigmoid(ctx: &Ctx, x: &mut Rows, scale_in: f32, scale_out: f32) {
    let _timer = ctx.time(Op::Elementwise);
    k::sigmoid_scaled_in_place(&ctx.pool, x.data_mut(), scale_in, scale_out);
}

/// `y[t] += σ(logit[t]) · x[t]`; `logit`: `[n_tokens, 1]`.
pub fn scale_rows_by_sigmoid(ctx: &Ctx, y: &mut Rows, x: &Rows, logit: &mut Rows) {
    let _timer = ctx.time(Op::Elementwise);
    k::sigmoid_scaled_in_place(&ctx.pool, logit.data_mut(), 1.0, 1.0);
    k::add_scaled_rows(&ctx.pool, y.data_mut(), x.data(), logit.data(), x.n_cols());
}

/// Softmax of every row.
pub fn softmax(ctx: &Ctx, x: &mut Rows) {
    let _timer = ctx.time(Op::Elementwise);
    let n = x.n_cols();
    k::softmax_rows(&ctx.pool, x.data_mut(), n);
}

/// The indices of the `k` largest of `row`, largest first; ties go to the lower index.
///
/// # Panics
/// If `out` is longer than `row`, or a value is NaN.
pub fn top_k(row: &[f32], out: &mut [u32]) {
    k::top_k(row, out.len(), out);
}

/// `y[t] += Σ_rank weights[t, rank] · expert_out[t * n_rank + rank]`, added in rank order.
pub fn weighted_sum(ctx: &Ctx, expert_out: &Rows, weights: &Rows, y: &mut Rows) {
    let _timer = ctx.time(Op::ExpertsSum);
    let n = y.n_cols();
    k::weighted_sum_rows(&ctx.pool, expert_out.data(), weights.data(), y.data_mut(), n);
}

/// Splits `[n_tokens, n_heads * 2 * n]`, where each head has `n` values of one thing and then `n` of another.
pub fn split_interleaved(ctx: &Ctx, x: &Rows, n: usize) -> (Rows, Rows) {
    let _timer = ctx.time(Op::Elementwise);
    let mut first = ctx.rows(x.n_rows(), x.n_cols() / 2);
    let mut second = ctx.rows(x.n_rows(), x.n_cols() / 2);
    k::split_halves(&ctx.pool, x.data(), n, first.data_mut(), second.data_mut());
    (first, second)
}

/// The rows `which` of `x`, in that order; `n` of them.
pub fn gather_rows(ctx: &Ctx, x: &Rows, n: usize, which: impl Iterator<Item = usize>) -> Rows {
    let _timer = ctx.time(Op::Elementwise);
    let mut out = ctx.rows(n, x.n_cols());
    for (to, from) in which.enumerate() {
        out.row_mut(to).copy_from_slice(x.row(from));
    }
    out
}

/// Every row of `x` repeated `n` times side by side: the streams of a fresh wide residual.
pub fn repeat_streams(ctx: &Ctx, x: &Rows, n: usize) -> Rows {
    let _timer = ctx.time(Op::Streams);
    let mut out = ctx.rows(x.n_rows(), n * x.n_cols());
    for t in 0..x.n_rows() {
        for stream in out.row_mut(t).chunks_exact_mut(x.n_cols()) {
            stream.copy_from_slice(x.row(t));
        }
    }
    out
}

/// `(1/n_streams) Σ_s x[s] ⊙ gate[s]`: `[n_tokens, n_streams * n]` twice gives `[n_tokens, n]`.
pub fn mix_streams(ctx: &Ctx, x: &Rows, gate: &Rows, n_streams: usize) -> Rows {
    let _timer = ctx.time(Op::Streams);
    let n = x.n_cols() / n_streams;
    let mut out = ctx.rows(x.n_rows(), n);
    k::hc_mix_mean(&ctx.pool, x.data(), gate.data(), n_streams, n, out.data_mut());
    out
}

/// `r[t, s] += w[t, s] · y[t]` for each of the streams; `w`: `[n_tokens, n_streams]`.
pub fn combine_streams(ctx: &Ctx, r: &mut Rows, y: &Rows, w: &Rows) {
    let _timer = ctx.time(Op::Streams);
    k::hc_combine(&ctx.pool, r.data_mut(), y.data(), w.data(), w.n_cols(), y.n_cols());
}

/// A causal depthwise convolution over time, followed by SiLU: a kernel and how far apart its taps are.
#[derive(Clone, Copy)]
pub struct ShortConv<'a> {
    /// `[n_channels, taps]`, the last tap on the current token.
    pub kernel: &'a Vector,
    /// Tokens from tap to tap.
    pub dilation: usize,
}

/// [`ShortConv`] of the rows `rows` of `x`, which are one sequence's, into the same rows of `out`.
///
/// `history`: the `(taps - 1) * dilation` rows before them, oldest first; updated.
pub fn short_conv(
    ctx: &Ctx,
    x: &Rows,
    rows: Range<usize>,
    history: &mut [f32],
    conv: ShortConv<'_>,
    out: &mut Rows,
) {
    let _timer = ctx.time(Op::Conv);
    let channels = x.n_cols();
    let kernel = conv.kernel.values();
    let taps = kernel.len() / channels;
    let (x, out) = (x.rows(rows.clone()), out.rows_mut(rows));
    k::causal_conv(&ctx.pool, x, history, kernel, taps, conv.dilation, channels, true, out);
}

/// `alpha = a ⊙ softplus(alpha + dt_bias)`: the log-decay of every head, never positive.
pub fn softplus_decay(ctx: &Ctx, alpha: &mut Rows, dt_bias: &Vector, a: &Vector) {
    let _timer = ctx.time(Op::Elementwise);
    k::softplus_decay(&ctx.pool, alpha.data_mut(), dt_bias.values(), a.values());
}

/// The gated delta rule, token after token, over the rows `rows`, which are one sequence's. Source: arXiv:2412.06464.
///
/// `qkv`: `[n_tokens, (2 * n_k + n_v) * d]`, queries and keys normalised ([`l2_norm_columns`]); `decay`, `beta`:
/// `[n_tokens, n_v]`; `state`: `[n_v, d, d]`, updated; `out`: `[n_tokens, n_v * d]`.
#[expect(clippy::too_many_arguments, reason = "the inputs of the recurrence, its state and its output")]
pub fn delta_net(
    ctx: &Ctx,
    qkv: &Rows,
    decay: &Rows,
    beta: &Rows,
    rows: Range<usize>,
    state: &mut [f32],
    shape: &DeltaShape,
    out: &mut Rows,
) {
    let _timer = ctx.time(Op::DeltaNet);
    let (key_dim, stride) = (shape.n_k * shape.d, qkv.n_cols());
    let of_rows = qkv.rows(rows.clone());
    let from = |column: usize| Strided { data: &of_rows[column..], stride };
    let (q, key, v) = (from(0), from(key_dim), from(2 * key_dim));
    let (decay, beta, out) = (decay.rows(rows.clone()), beta.rows(rows.clone()), out.rows_mut(rows));
    k::delta_net(&ctx.pool, q, key, v, decay, beta, state, shape, out);
}

/// Dot product of each group of `n_cols / n_groups` elements of `a` with the same group of `b`: `[n_tokens, n_groups]`.
pub fn group_dots(ctx: &Ctx, a: &Rows, b: &Rows, n_groups: usize) -> Rows {
    let _timer = ctx.time(Op::Elementwise);
    let mut out = ctx.rows(a.n_rows(), n_groups);
    k::row_dots(&ctx.pool, a.data(), b.data(), a.n_cols() / n_groups, out.data_mut());
    out
}

/// `σ(sign(x) · sqrt(max(|x|, 1e-6)))` with `sign(0) = 0`, of `x` times `scale`, in place.
pub fn signed_root_gate(ctx: &Ctx, x: &mut Rows, scale: f32) {
    let _timer = ctx.time(Op::Elementwise);
    for x in x.data_mut() {
        let s = *x * scale;
        *x = if s == 0.0 { 0.0 } else { s.abs().max(1e-6).sqrt().copysign(s) };
    }
    sigmoid(ctx, x, 1.0, 1.0);
}
