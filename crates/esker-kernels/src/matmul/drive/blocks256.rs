//! Products with Q8x256 activations.

use super::super::Rows;
use super::super::kinds::Kind256;
use super::super::simd::Simd;
use crate::act::{Line, Row256};
use crate::lanes::hsum16;

/// All rows for the tokens `token` to `token + N - 1`.
#[inline(always)]
pub(in crate::matmul) fn tile<S: Simd, K: Kind256, const N: usize>(s: S, rows: &Rows<'_>, token: usize) {
    let mut x = [rows.acts.row_q8x256(rows.act_row(token)); N];
    for (i, x) in x.iter_mut().enumerate().skip(1) {
        *x = rows.acts.row_q8x256(rows.act_row(token + i));
    }
    for r in 0..rows.n_rows {
        let values = row::<S, K, N>(s, rows.row(r), &x);
        for (i, value) in values.into_iter().enumerate() {
            rows.put(token + i, r, value);
        }
    }
}

#[inline(always)]
fn row<S: Simd, K: Kind256, const N: usize>(s: S, row: &[u8], x: &[Row256<'_>; N]) -> [f32; N] {
    let blocks: &[K::Block] = bytemuck::cast_slice(row);
    let mut acc = [s.zero(); N];
    let mut mins = [s.zero4(); N];
    for (b, block) in blocks.iter().enumerate() {
        let x_codes = x.map(|x| &x.codes.as_chunks::<4>().0[b]);
        let scales = s.scales(K::scales(block));
        let mut sums = [s.zero_ints(); N];
        group::<S, K, N, 0>(s, block, scales, &x_codes, &mut sums);
        group::<S, K, N, 1>(s, block, scales, &x_codes, &mut sums);
        group::<S, K, N, 2>(s, block, scales, &x_codes, &mut sums);
        group::<S, K, N, 3>(s, block, scales, &x_codes, &mut sums);
        let d = s.f16(K::d(block)) * K::FACTOR;
        for i in 0..N {
            acc[i] = s.fma(s.splat(d * x[i].scales[b]), s.floats(sums[i]), acc[i]);
        }
        if K::MIN {
            let (dmin, min) = K::mins(block);
            let dmin = s.f16(dmin);
            for i in 0..N {
                let d = dmin * x[i].scales[b];
                mins[i] = match K::GROUP {
                    16 => s.add_mins16(mins[i], d, min, &x[i].sums16.as_chunks().0[b]),
                    _ => s.add_mins8(mins[i], d, min[0], &x[i].sums32.as_chunks().0[b]),
                };
            }
        }
    }
    let mut out = [0.0; N];
    for i in 0..N {
        out[i] = hsum16(&s.store(acc[i]));
        if K::MIN {
            let [a, b, c, d] = s.store4(mins[i]);
            out[i] -= (a + c) + (b + d);
        }
    }
    out
}

/// Adds the products of 64 weights, scaled, to the block's sums.
#[inline(always)]
fn group<S: Simd, K: Kind256, const N: usize, const G: usize>(
    s: S,
    block: &K::Block,
    scales: S::Scales,
    x: &[&[Line<i8, 64>; 4]; N],
    sums: &mut [S::Ints; N],
) {
    let w = K::codes::<S, G>(s, block);
    let scales = match K::GROUP {
        16 => s.spread16::<G>(scales),
        _ => s.spread32::<G>(scales),
    };
    if K::SIGNED {
        let w = s.product_weights(w);
        for i in 0..N {
            sums[i] = s.add_scaled(sums[i], s.products_signed(w, &x[i][G]), scales);
        }
    } else {
        for i in 0..N {
            sums[i] = s.add_scaled(sums[i], s.products_unsigned(w, &x[i][G]), scales);
        }
    }
}
