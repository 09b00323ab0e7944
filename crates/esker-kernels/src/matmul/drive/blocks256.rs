//! Products with Q8x256 activations.
//!
//! As in `blocks32`, the float scales of a row are converted and multiplied in a pass of their own.

use super::super::Rows;
use super::super::kinds::{Codes, Kind256};
use super::super::simd::Simd;
use super::prefetch;
use crate::act::{Line, Row256};
use crate::lanes::hsum16;

/// Blocks whose scales are multiplied at a time.
const SEGMENT: usize = 64;

/// All rows for the tokens `token` to `token + N - 1`.
#[inline(always)]
pub(in crate::matmul) fn tile<S: Simd, K: Kind256, const N: usize>(s: S, rows: &Rows<'_>, token: usize) {
    let mut x = [rows.acts.row_q8x256(rows.act_row(token)); N];
    for (i, x) in x.iter_mut().enumerate().skip(1) {
        *x = rows.acts.row_q8x256(rows.act_row(token + i));
    }
    let mut scratch = Scratch {
        d: [0; SEGMENT],
        dmin: [0; SEGMENT],
        products: [[0.0; SEGMENT]; N],
        min_products: [[0.0; SEGMENT]; N],
    };
    for r in 0..rows.n_rows {
        let values = row::<S, K, N>(s, rows.row(r), &x, &mut scratch);
        for (i, value) in values.into_iter().enumerate() {
            rows.put(token + i, r, value);
        }
    }
}

/// Scales of one segment of a row.
struct Scratch<const N: usize> {
    /// Half-precision bits, as they are in the blocks.
    d: [u16; SEGMENT],
    dmin: [u16; SEGMENT],
    /// Weight scale times activation scale, for each token.
    products: [[f32; SEGMENT]; N],
    min_products: [[f32; SEGMENT]; N],
}

#[inline(always)]
fn row<S: Simd, K: Kind256, const N: usize>(
    s: S,
    row: &[u8],
    x: &[Row256<'_>; N],
    scratch: &mut Scratch<N>,
) -> [f32; N] {
    let blocks: &[K::Block] = bytemuck::cast_slice(row);
    let mut acc = [s.zero(); N];
    let mut mins = [s.zero4(); N];
    for (segment, blocks) in blocks.chunks(SEGMENT).enumerate() {
        multiply_scales::<S, K, N>(s, blocks, x, segment, scratch);
        for (b, block) in blocks.iter().enumerate() {
            prefetch(s, block);
            let at = segment * SEGMENT + b;
            let x_codes = x.map(|x| &x.codes.as_chunks::<4>().0[at]);
            let prepared = K::prepare(s, block);
            let scales = s.scales(K::scales(block));
            let mut sums = [s.zero_ints(); N];
            group::<S, K, N, 0>(s, block, &prepared, scales, &x_codes, &mut sums);
            group::<S, K, N, 1>(s, block, &prepared, scales, &x_codes, &mut sums);
            group::<S, K, N, 2>(s, block, &prepared, scales, &x_codes, &mut sums);
            group::<S, K, N, 3>(s, block, &prepared, scales, &x_codes, &mut sums);
            for i in 0..N {
                acc[i] = s.fma(s.splat(scratch.products[i][b]), s.floats(sums[i]), acc[i]);
            }
            if K::MIN {
                let min = K::mins(block);
                for i in 0..N {
                    let d = scratch.min_products[i][b];
                    mins[i] = match K::GROUP {
                        16 => s.add_mins16(mins[i], d, min, &x[i].sums16.as_chunks().0[at]),
                        _ => s.add_mins8(mins[i], d, min[0], &x[i].sums32.as_chunks().0[at]),
                    };
                }
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

/// Fills the products for one segment. (Those past its end are of old scales, and not used.)
#[inline(always)]
fn multiply_scales<S: Simd, K: Kind256, const N: usize>(
    s: S,
    blocks: &[K::Block],
    x: &[Row256<'_>; N],
    segment: usize,
    scratch: &mut Scratch<N>,
) {
    for (b, block) in blocks.iter().enumerate() {
        scratch.d[b] = K::d(block);
        if K::MIN {
            scratch.dmin[b] = K::dmin(block);
        }
    }
    for v in 0..blocks.len().div_ceil(16) {
        let at = segment * (SEGMENT / 16) + v;
        let mut d = s.load_f16(&scratch.d.as_chunks().0[v]);
        if K::FACTOR != 1.0 {
            d = s.mul(d, s.splat(K::FACTOR));
        }
        let dmin = s.load_f16(&scratch.dmin.as_chunks().0[v]);
        for i in 0..N {
            let x_scales = s.load(&x[i].scales.as_chunks().0[at]);
            scratch.products[i].as_chunks_mut().0[v] = s.store(s.mul(d, x_scales));
            if K::MIN {
                scratch.min_products[i].as_chunks_mut().0[v] = s.store(s.mul(dmin, x_scales));
            }
        }
    }
}

/// Adds the products of 64 weights, scaled, to the block's sums.
#[inline(always)]
fn group<S: Simd, K: Kind256, const N: usize, const G: usize>(
    s: S,
    block: &K::Block,
    prepared: &K::Prepared,
    scales: S::Scales,
    x: &[&[Line<i8, 64>; 4]; N],
    sums: &mut [S::Ints; N],
) {
    let w = K::codes::<S, G>(s, block, prepared);
    let scales = match K::GROUP {
        16 => s.spread16::<G>(scales),
        _ => s.spread32::<G>(scales),
    };
    let signed = match K::CODES {
        Codes::Unsigned => {
            for i in 0..N {
                sums[i] = s.add_scaled(sums[i], s.products_unsigned(w, &x[i][G]), scales);
            }
            return;
        }
        Codes::Signed => s.product_weights(w),
        Codes::Magnitudes => s.product_weights_of(w, K::signs::<G>(block)),
    };
    for i in 0..N {
        sums[i] = s.add_scaled(sums[i], s.products_signed(signed, &x[i][G]), scales);
    }
}
