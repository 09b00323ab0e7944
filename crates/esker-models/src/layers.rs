//! Skeleton parts that several architectures share: keys, states, the read-ahead guess.

use crate::blocks::attention::Heads;
use crate::pass::Pass;
use crate::state::{LayerState, StateBytes, StateOptions};
use crate::tensors::{LoadError, Tensors};
use esker_ops::{KvCache, KvType, Matrix, Op, RopeSpec, RopeStyle, Rows, Vector, matmul, rms_norm};

/// Blocks that are run: `block_count` less the draft (MTP) blocks, which are skipped with a note.
pub(crate) fn trunk_layers(t: &mut Tensors<'_>, notes: &mut Vec<String>) -> Result<usize, LoadError> {
    let blocks = t.count("block_count")?;
    let drafts = t.opt_count("nextn_predict_layers")?.unwrap_or(0);
    if drafts >= blocks || blocks > 4096 {
        return Err(t.bad_value("block_count", blocks, format!("{} to 4096", drafts + 1)));
    }
    let n_layer = blocks - drafts;
    let present = (n_layer..blocks).filter(|il| t.skip_block(*il)).count();
    if present > 0 {
        notes.push(format!("{present} draft (MTP) block(s) in the file are recognised and not used"));
    }
    Ok(n_layer)
}

/// Which layers are recurrent: `attention.recurrent_layers`, else every layer but each `full_attention_interval`th.
pub(crate) fn is_recurrent(t: &Tensors<'_>, n_layer: usize) -> Result<Vec<bool>, LoadError> {
    let meta = &t.gguf().metadata;
    let arch = meta.str("general.architecture")?;
    if let Some(layers) = meta.opt_bool_array(&format!("{arch}.attention.recurrent_layers"))? {
        if layers.len() < n_layer {
            let expected = format!("a list of {n_layer}");
            return Err(t.bad_value(
                "attention.recurrent_layers",
                format!("a list of {}", layers.len()),
                expected,
            ));
        }
        return Ok(layers[..n_layer].to_vec());
    }
    let interval = match t.opt_count("full_attention_interval")? {
        Some(_) => t.count("full_attention_interval")?,
        None => 4,
    };
    Ok((0..n_layer).map(|il| !(il + 1).is_multiple_of(interval)).collect())
}

/// The rotary embedding of heads of `head_dim`, from the `rope.*` keys and `rope_freqs.weight`.
pub(crate) fn rope_spec(t: &Tensors<'_>, head_dim: usize, style: RopeStyle) -> Result<RopeSpec, LoadError> {
    let n_rot = t.opt_count("rope.dimension_count")?.unwrap_or(head_dim);
    if n_rot > head_dim || n_rot < 2 || !n_rot.is_multiple_of(2) {
        return Err(t.bad_value("rope.dimension_count", n_rot, format!("an even number of 2 to {head_dim}")));
    }
    let freq_base = t.opt_f32("rope.freq_base")?.unwrap_or(10_000.0);
    if !(freq_base.is_finite() && freq_base > 0.0) {
        return Err(t.bad_value("rope.freq_base", freq_base, "a positive number"));
    }
    let meta = &t.gguf().metadata;
    let arch = meta.str("general.architecture")?;
    let factor = match meta.opt_str(&format!("{arch}.rope.scaling.type"))? {
        None | Some("none") => t.opt_f32("rope.scale_linear")?.unwrap_or(1.0),
        Some("linear") => t.opt_f32("rope.scaling.factor")?.unwrap_or(1.0),
        Some(other) => return Err(t.bad_value("rope.scaling.type", other, "none or linear")),
    };
    if !(factor.is_finite() && factor > 0.0) {
        return Err(t.bad_value("rope.scaling.factor", factor, "a positive number"));
    }
    Ok(RopeSpec::new(n_rot, style, freq_base, factor))
}

/// The state of a layer that attends to everything.
pub(crate) fn attention_state(heads: Heads, options: StateOptions) -> LayerState {
    let kv = KvCache::new(options.kv_type, heads.n_head_kv, heads.head_dim, options.capacity);
    LayerState::Attention { kv, index: None }
}

/// Bytes of `n_layer` times [`attention_state`].
pub(crate) fn attention_state_bytes(heads: Heads, kv_type: KvType, n_layer: usize) -> StateBytes {
    StateBytes { per_position: 2 * heads.kv_dim() * kv_type.bytes() * n_layer, fixed: 0 }
}

/// Read-ahead: the router of layer `il` (its norm and matrix) on the residual `x` as it is before the layer under it has
/// finished. Prompts use nearly all experts: nothing is predicted for them.
pub(crate) fn predict_routes(
    pass: &mut Pass<'_>,
    il: usize,
    x: &Rows,
    router: Option<(&Vector, &Matrix)>,
    eps: f32,
) {
    if pass.is_decode
        && let Some((norm, router)) = router
        && pass.store.wants_read_ahead(il)
    {
        let _timer = pass.ctx.time(Op::Request);
        let logits = matmul(pass.ctx, router, &rms_norm(pass.ctx, x, norm, eps));
        read_ahead(pass, il, logits);
    }
}

/// Predicts the routes of layer `il` from the logits of all tokens of a decode pass: an expert is as likely to be wanted
/// as the token that likes it best says, relative to what that token likes best of all.
pub(crate) fn read_ahead(pass: &mut Pass<'_>, il: usize, mut logits: Rows) {
    if logits.n_rows() > 1 {
        let n_expert = logits.n_cols();
        for row in logits.data_mut().chunks_exact_mut(n_expert) {
            let best = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            row.iter_mut().for_each(|logit| *logit -= best);
        }
        let (first, others) = logits.data_mut().split_at_mut(n_expert);
        for other in others.chunks_exact(n_expert) {
            first.iter_mut().zip(other).for_each(|(a, b)| *a = a.max(*b));
        }
    }
    pass.store.read_ahead(il, logits.row(0));
}
