//! Hashed n-gram embedding added to the wide residual of one layer (PLE of `qwen4exp`).

use crate::blocks::hyper::HyperShape;
use crate::pass::{Pass, Segment, with_rows};
use crate::state::NgramState;
use crate::store::{StoreError, TableId};
use crate::tensors::{LoadError, Tensors};
use esker_ops::{
    Ctx, Matrix, Rows, ShortConv, Vector, add, combine_streams, group_dots, matmul_many, rms_norm_grouped,
    short_conv, signed_root_gate,
};

/// Sizes, multipliers and moduli; from the file's metadata, never constants.
#[derive(Clone, Debug)]
pub struct NgramHparams {
    /// Longest n-gram.
    pub ngram_size: usize,
    /// Heads of each n-gram length.
    pub heads_per_ngram: usize,
    /// Taps of the convolution over time; its dilation is `ngram_size`.
    pub taps: usize,
    /// Stands for what is before the sequence, and cuts what is before itself.
    pub eos: u32,
    /// `[ngram_size]`
    pub multipliers: Vec<u64>,
    /// `[n_heads]`
    pub head_sizes: Vec<u64>,
    /// `[n_heads]`
    pub head_offsets: Vec<u64>,
    /// Elements of one row of the table.
    pub row: usize,
}

impl NgramHparams {
    /// Reads the `ple.*` keys and checks them against each other.
    pub fn load(t: &Tensors<'_>, n_embd: usize) -> Result<NgramHparams, LoadError> {
        let meta = &t.gguf().metadata;
        let arch = meta.str("general.architecture")?;
        let list = |key: &str| meta.u64_array(&format!("{arch}.{key}"));
        let hp = NgramHparams {
            ngram_size: t.count("ple.ngram_size")?,
            heads_per_ngram: t.count("ple.heads_per_ngram")?,
            taps: t.count("ple.conv_kernel")?,
            eos: meta.u32(&format!("{arch}.ple.eos_token_id"))?,
            multipliers: list("ple.layer_multipliers")?,
            head_sizes: list("ple.head_vocab_sizes")?,
            head_offsets: list("ple.head_offsets")?,
            row: t.count("embedding_length_per_layer_input")?,
        };
        if !(2..=8).contains(&hp.ngram_size) {
            return Err(t.bad_value("ple.ngram_size", hp.ngram_size, "2 to 8"));
        }
        if !(2..=64).contains(&hp.taps) {
            return Err(t.bad_value("ple.conv_kernel", hp.taps, "2 to 64"));
        }
        if hp.n_heads() > 64 {
            return Err(t.bad_value("ple.heads_per_ngram", hp.heads_per_ngram, "at most 64 heads in all"));
        }
        let lengths = [
            ("ple.layer_multipliers", hp.multipliers.len(), hp.ngram_size),
            ("ple.head_vocab_sizes", hp.head_sizes.len(), hp.n_heads()),
            ("ple.head_offsets", hp.head_offsets.len(), hp.n_heads()),
            ("embedding_length_per_layer_input", hp.row * hp.n_heads(), n_embd),
        ];
        for (key, found, expected) in lengths {
            if found != expected {
                return Err(t.bad_value(key, format!("of length {found}"), format!("length {expected}")));
            }
        }
        if hp.head_sizes.contains(&0) {
            return Err(t.bad_value("ple.head_vocab_sizes", "0 for a head", "at least 1"));
        }
        Ok(hp)
    }

    fn n_heads(&self) -> usize {
        (self.ngram_size - 1) * self.heads_per_ngram
    }

    /// Rows that the table must have at least.
    fn rows_min(&self) -> Option<u64> {
        self.head_offsets
            .iter()
            .zip(&self.head_sizes)
            .map(|(o, s)| o.checked_add(*s))
            .try_fold(0, |m, r| Some(m.max(r?)))
    }

    /// Rows of convolution history.
    fn history(&self) -> usize {
        (self.taps - 1) * self.ngram_size
    }

    /// A fresh state for streams of `wide` elements in all.
    pub fn new_state(&self, wide: usize) -> NgramState {
        NgramState {
            recent: Vec::with_capacity(self.ngram_size),
            keep: self.ngram_size - 1,
            conv: vec![0.0; self.history() * wide],
        }
    }

    /// Bytes of [`new_state`](Self::new_state).
    pub fn state_bytes(&self, wide: usize) -> usize {
        4 * (self.history() * wide + self.ngram_size)
    }

    /// Appends the `n_heads` table rows of each token; `recent` are the ids before the first.
    ///
    /// Looking back from a token, the first id that is missing or EOS, and everything older, counts as EOS; the token's
    /// own EOS does not cut its context. All arithmetic is modulo 2^64.
    pub fn rows(&self, recent: &[u32], tokens: &[u32], rows: &mut Vec<u64>) {
        for i in 0..tokens.len() {
            let back = |s: usize| match i.checked_sub(s) {
                Some(j) => Some(tokens[j]),
                None => recent.len().checked_sub(s - i).map(|j| recent[j]),
            };
            let mut mixed = u64::from(tokens[i]).wrapping_mul(self.multipliers[0]);
            let mut cut = false;
            for s in 1..self.ngram_size {
                let id = back(s).filter(|&id| !cut && id != self.eos);
                cut = id.is_none();
                mixed ^= u64::from(id.unwrap_or(self.eos)).wrapping_mul(self.multipliers[s]);
                for g in 0..self.heads_per_ngram {
                    let h = (s - 1) * self.heads_per_ngram + g;
                    rows.push(mixed % self.head_sizes[h] + self.head_offsets[h]);
                }
            }
        }
    }

    /// Remembers the last `ngram_size - 1` ids.
    pub fn advance(&self, recent: &mut Vec<u32>, tokens: &[u32]) {
        let keep = self.ngram_size - 1;
        if tokens.len() >= keep {
            recent.clear();
            recent.extend_from_slice(&tokens[tokens.len() - keep..]);
        } else {
            let drop = (recent.len() + tokens.len()).saturating_sub(keep);
            recent.drain(..drop);
            recent.extend_from_slice(tokens);
        }
    }
}

/// The module's weights; `wide` = streams times width.
pub struct Ngram {
    table: TableId,
    shape: HyperShape,
    /// `[wide, n_embd]`
    ple_key: Matrix,
    /// `[n_embd, n_embd]`
    ple_value: Matrix,
    ple_norm_key: Vector,
    ple_norm_query: Vector,
    ple_norm_conv: Vector,
    /// `[wide, taps]`
    ple_conv1d: Vector,
}

impl Ngram {
    /// Reads block `il`'s module and places its table.
    pub fn load(
        t: &mut Tensors<'_>,
        il: usize,
        hp: &NgramHparams,
        shape: HyperShape,
    ) -> Result<Ngram, LoadError> {
        let (n_embd, wide) = (shape.n_embd, shape.n_streams * shape.n_embd);
        const TABLE: &str = "per_layer_token_embd.weight";
        let n_rows = t.shape(TABLE).and_then(|s| s.get(1)).copied().unwrap_or(0);
        match hp.rows_min() {
            Some(least) if least <= n_rows && u32::try_from(n_rows).is_ok() => {}
            _ => {
                let expected = format!("sizes plus offsets within the {n_rows} rows of `{TABLE}`");
                return Err(t.bad_value("ple.head_offsets", format!("{:?}", hp.head_offsets), expected));
            }
        }
        let name = |part: &str| format!("blk.{il}.{part}.weight");
        Ok(Ngram {
            shape,
            table: t.table(TABLE, n_rows as usize, hp.row)?,
            ple_key: t.matrix(&name("ple_key"), wide, n_embd)?,
            ple_value: t.matrix(&name("ple_value"), n_embd, n_embd)?,
            ple_norm_key: t.vector(&name("ple_norm_key"), &[wide])?,
            ple_norm_query: t.vector(&name("ple_norm_query"), &[wide])?,
            ple_norm_conv: t.vector(&name("ple_norm_conv"), &[wide])?,
            ple_conv1d: t.vector(&name("ple_conv1d"), &[wide, hp.taps])?,
        })
    }

    /// The embedding of each token's n-grams, `[n_tokens, n_embd]`. Depends on ids only, so it can be read before the
    /// first layer runs.
    pub(crate) fn embed(
        &self,
        pass: &mut Pass<'_>,
        hp: &NgramHparams,
        segments: &[Segment<'_>],
    ) -> Result<Rows, StoreError> {
        let rows = pass.table_rows(self.table, |rows| {
            segments.iter().for_each(|s| hp.rows(&s.state.ngram.recent, s.tokens, rows));
        })?;
        Ok(rows.reshaped(hp.row * hp.n_heads()))
    }

    /// Adds the gated n-gram values and their convolution over time to the wide residual `r`.
    pub(crate) fn forward(
        &self,
        ctx: &Ctx,
        hp: &NgramHparams,
        emb: &Rows,
        r: &mut Rows,
        segments: &mut [Segment<'_>],
    ) {
        let HyperShape { n_streams, eps, .. } = self.shape;
        let n = emb.n_cols();
        let [key, value] = matmul_many(ctx, [&self.ple_key, &self.ple_value], emb);
        let key = rms_norm_grouped(ctx, &key, &self.ple_norm_key, n, eps);
        let query = rms_norm_grouped(ctx, r, &self.ple_norm_query, n, eps);
        let mut gate = group_dots(ctx, &key, &query, n_streams); // [n_tokens, n_streams]
        signed_root_gate(ctx, &mut gate, 1.0 / (n as f32).sqrt());
        let mut gv = ctx.zeros(r.n_rows(), r.n_cols());
        combine_streams(ctx, &mut gv, &value, &gate);
        let u = rms_norm_grouped(ctx, &gv, &self.ple_norm_conv, n, eps);
        let conv_of = ShortConv { kernel: &self.ple_conv1d, dilation: hp.ngram_size };
        let mut conv = ctx.rows(u.n_rows(), u.n_cols());
        for (rows, segment) in with_rows(segments) {
            short_conv(ctx, &u, rows, &mut segment.state.ngram.conv, conv_of, &mut conv);
        }
        add(ctx, r, &gv);
        add(ctx, r, &conv);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The constants of the published configuration.
    fn published() -> NgramHparams {
        let sizes: Vec<u64> = [3, 23, 33, 47, 59, 63, 69, 77, 81, 93, 107, 147, 153, 159, 161, 171]
            .map(|d| 20_000_000 + d)
            .to_vec();
        let offsets = (0..sizes.len()).map(|h| sizes[..h].iter().sum()).collect();
        NgramHparams {
            ngram_size: 3,
            heads_per_ngram: 8,
            taps: 4,
            eos: 248_044,
            multipliers: vec![23_703_573_157_769, 20_109_073_645_365, 8_052_911_324_071],
            head_sizes: sizes,
            head_offsets: offsets,
            row: 160,
        }
    }

    fn picked(rows: &[u64]) -> Vec<[u64; 4]> {
        rows.chunks(16).map(|r| [r[0], r[7], r[8], r[15]]).collect()
    }

    const WORKED: [[u64; 4]; 3] = [
        [6_783_314, 151_975_917, 166_590_818, 304_278_145],
        [13_651_586, 156_148_099, 164_064_427, 302_012_296],
        [1_013_992, 153_473_718, 169_773_359, 309_933_205],
    ];

    #[test]
    fn rows_of_worked_examples() {
        let hp = published();
        let mut rows = Vec::new();
        hp.rows(&[], &[9419, 1814, 0], &mut rows);
        assert_eq!(picked(&rows), WORKED);
        assert_eq!(hp.rows_min(), Some(320_001_446));
        // A token after EOS has the rows of the same token at the start of a sequence.
        rows.clear();
        hp.rows(&[], &[248_044, 9419, 1814], &mut rows);
        assert_eq!(picked(&rows)[1..], WORKED[..2]);
    }

    #[test]
    fn rows_do_not_depend_on_how_the_tokens_are_cut() {
        let hp = published();
        let tokens = [5, 248_044, 7, 9, 11, 248_044, 248_044, 13, 1, 2, 3];
        let mut whole = Vec::new();
        hp.rows(&[], &tokens, &mut whole);
        for size in 1..tokens.len() {
            let (mut rows, mut recent) = (Vec::new(), Vec::new());
            for piece in tokens.chunks(size) {
                hp.rows(&recent, piece, &mut rows);
                hp.advance(&mut recent, piece);
            }
            assert_eq!(rows, whole, "pieces of {size}");
            assert_eq!(recent, tokens[tokens.len() - 2..]);
        }
    }
}
