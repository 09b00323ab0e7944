//! Rotary position embedding. Source: arXiv:2104.09864; the two pairings are those of GGUF's NORM and NEOX kinds.

use crate::{Ctx, Op, Rows};
use esker_kernels::RopeStyle;

/// A model's rotary embedding.
#[derive(Clone, Debug)]
pub struct RopeSpec {
    /// How many of a head's dimensions turn; the rest pass through.
    pub n_rot: usize,
    /// Which dimensions form a pair.
    pub style: RopeStyle,
    /// Radians per position of pair `i`, `[n_rot / 2]`.
    frequencies: Vec<f64>,
}

impl RopeSpec {
    /// Pair `i` turns by `freq_base^(-2i / n_rot) / position_scale` per position.
    pub fn new(n_rot: usize, style: RopeStyle, freq_base: f32, position_scale: f32) -> RopeSpec {
        let frequency =
            |i| libm::pow(f64::from(freq_base), -2.0 * i as f64 / n_rot as f64) / f64::from(position_scale);
        RopeSpec { n_rot, style, frequencies: (0..n_rot / 2).map(frequency).collect() }
    }

    /// Divides the frequencies by the file's factors (llama 3's `rope_freqs.weight`), `[n_rot / 2]`.
    pub fn apply_factors(&mut self, factors: &[f32]) {
        assert_eq!(factors.len(), self.frequencies.len(), "one factor per pair");
        self.frequencies.iter_mut().zip(factors).for_each(|(f, factor)| *f /= f64::from(*factor));
    }
}

/// Cosines and sines of some positions, `[n_tokens, n_rot / 2]` each; computed once per forward pass.
///
/// Angles are f64 and `libm` is the same code on every machine, so they do not depend on the platform's library.
pub struct RopeAngles {
    cos: Rows,
    sin: Rows,
    n_rot: usize,
    style: RopeStyle,
}

impl RopeAngles {
    /// Angles of `positions`, in order, of which there are at most `room`.
    pub fn new(
        ctx: &Ctx,
        spec: &RopeSpec,
        room: usize,
        positions: impl Iterator<Item = usize>,
    ) -> RopeAngles {
        let _timer = ctx.time(Op::Rope);
        let half = spec.n_rot / 2;
        let mut cos = ctx.rows(room, half);
        let mut sin = ctx.rows(room, half);
        let mut n = 0;
        for (t, position) in positions.enumerate() {
            n = t + 1;
            for (i, frequency) in spec.frequencies.iter().enumerate() {
                let (s, c) = libm::sincos(position as f64 * frequency);
                cos.row_mut(t)[i] = c as f32;
                sin.row_mut(t)[i] = s as f32;
            }
        }
        let (cos, sin) = (cos.first(n), sin.first(n));
        RopeAngles { cos, sin, n_rot: spec.n_rot, style: spec.style }
    }
}

/// Turns every head of `x`, `[n_tokens, n_heads * head_dim]`, in place.
pub fn rope_heads(ctx: &Ctx, x: &mut Rows, head_dim: usize, angles: &RopeAngles) {
    let _timer = ctx.time(Op::Rope);
    assert_eq!(x.n_rows(), angles.cos.n_rows(), "one angle row per token");
    let n_heads = x.n_cols() / head_dim;
    let RopeAngles { cos, sin, n_rot, style } = angles;
    esker_kernels::rope(&ctx.pool, x.data_mut(), n_heads, head_dim, *n_rot, cos.data(), sin.data(), *style);
}
