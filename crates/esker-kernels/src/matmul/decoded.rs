//! Types without a kernel of their own: rows are decoded piece by piece into a stack buffer, then the canonical f32
//! dot product.
//!
//! This is also the scalar definition of the float types, whose values are exact in f32.

use super::Rows;
use crate::lanes::{LANES, dot_add, hsum16};
use esker_quant::decode;

/// Elements decoded at a time: a multiple of every block length.
const PIECE: usize = 512;
/// Tokens that share a decoded piece.
const TOKENS: usize = 16;

/// Computes all rows for all tokens; inlined, so that it is compiled for the caller's instruction set.
#[inline(always)]
pub(super) fn run(rows: &Rows<'_>) {
    let block_bytes = rows.ty.block_bytes();
    let block_elems = rows.ty.block_elems();
    let mut piece = [0.0f32; PIECE];
    for r in 0..rows.n_rows {
        let row = rows.row(r);
        for first in (0..rows.n_tokens()).step_by(TOKENS) {
            let n_tokens = TOKENS.min(rows.n_tokens() - first);
            let mut acc = [[0.0f32; LANES]; TOKENS];
            for start in (0..rows.n_cols).step_by(PIECE) {
                let len = PIECE.min(rows.n_cols - start);
                let bytes = &row[start / block_elems * block_bytes..][..len / block_elems * block_bytes];
                decode(rows.ty, bytes, &mut piece[..len]).expect("whole blocks");
                for (i, acc) in acc[..n_tokens].iter_mut().enumerate() {
                    let x = rows.acts.row_f32(rows.act_row(first + i));
                    dot_add(acc, &piece[..len], &x[start..start + len]);
                }
            }
            for (i, acc) in acc[..n_tokens].iter().enumerate() {
                rows.put(first + i, r, hsum16(acc));
            }
        }
    }
}
