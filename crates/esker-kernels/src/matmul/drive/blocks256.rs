//! Products with Q8x256 activations.
//!
//! As in `blocks32`, the float scales of a row are converted and multiplied in a pass of their own.

use super::super::kinds::{Codes, Kind256};
use super::super::simd::Simd;
use super::super::{Rows, each};
use super::prefetch;
use crate::act::{Line, Row256};

/// Blocks whose scales are multiplied at a time.
const SEGMENT: usize = 64;

/// All rows for the tokens `token` to `token + N - 1`.
#[inline(always)]
pub(in crate::matmul) fn tile<S: Simd, K: Kind256, const N: usize>(s: S, rows: &Rows<'_>, token: usize) {
    let x: [_; N] = rows.of_tile(token, |row| rows.acts.row_q8x256(row));
    let mut scratch = Scratch {
        d: [0; SEGMENT],
        dmin: [0; SEGMENT],
        products: [[0.0; SEGMENT]; N],
        min_products: [[0.0; SEGMENT]; N],
    };
    let n_blocks = rows.n_cols / 256;
    if n_blocks == 0 || n_blocks > SEGMENT / 2 {
        for r in 0..rows.n_rows {
            let mut sums = Sums::<S, N>::new(s);
            for (segment, blocks) in bytemuck::cast_slice(rows.row(r)).chunks(SEGMENT).enumerate() {
                let x_scales = each(x, |x| &x.scales[segment * SEGMENT..]);
                multiply_scales::<S, K, N>(s, blocks, &x_scales, &mut scratch);
                add_blocks::<S, K, N>(s, blocks, &x, segment * SEGMENT, &scratch, 0, &mut sums);
            }
            sums.put::<K>(s, rows, token, r);
        }
        return;
    }
    // Some whole rows make a segment. They lie one after the other; activations' scales have to be repeated.
    let at_a_time = SEGMENT / n_blocks;
    let mut x_scales = [[0.0; SEGMENT]; N];
    for i in 0..N {
        for to in x_scales[i].chunks_exact_mut(n_blocks) {
            to.copy_from_slice(&x[i].scales[..n_blocks]);
        }
    }
    let mut r = 0;
    for segment in bytemuck::cast_slice::<u8, K::Block>(rows.bytes).chunks(at_a_time * n_blocks) {
        multiply_scales::<S, K, N>(s, segment, &each(x_scales.each_ref(), |x| &x[..]), &mut scratch);
        let mut first = 0;
        while N == 1 && segment.len() - first >= 4 * n_blocks {
            // Four lane sums at a time are formed faster.
            let mut sums = Sums::<S, 4>::new(s);
            for row in 0..4 {
                let mut one = Sums::<S, N>::new(s);
                let blocks = &segment[first..first + n_blocks];
                add_blocks::<S, K, N>(s, blocks, &x, 0, &scratch, first, &mut one);
                (sums.acc[row], sums.mins[row]) = (one.acc[0], one.mins[0]);
                first += n_blocks;
            }
            for (i, value) in sums.values::<K>(s).into_iter().enumerate() {
                rows.put(token, r + i, value);
            }
            r += 4;
        }
        for blocks in segment[first..].chunks_exact(n_blocks) {
            let mut sums = Sums::<S, N>::new(s);
            add_blocks::<S, K, N>(s, blocks, &x, 0, &scratch, first, &mut sums);
            sums.put::<K>(s, rows, token, r);
            first += n_blocks;
            r += 1;
        }
    }
}

/// Scales of one segment: of part of a row, or of some rows.
struct Scratch<const N: usize> {
    /// Half-precision bits, as they are in the blocks.
    d: [u16; SEGMENT],
    dmin: [u16; SEGMENT],
    /// Weight scale times activation scale, for each token.
    products: [[f32; SEGMENT]; N],
    min_products: [[f32; SEGMENT]; N],
}

/// The state of `N` dot products.
struct Sums<S: Simd, const N: usize> {
    acc: [S::Floats; N],
    mins: [S::Floats4; N],
}

impl<S: Simd, const N: usize> Sums<S, N> {
    #[inline(always)]
    fn new(s: S) -> Sums<S, N> {
        Sums { acc: [s.zero(); N], mins: [s.zero4(); N] }
    }

    /// Writes the results of row `r`.
    #[inline(always)]
    fn put<K: Kind256>(&self, s: S, rows: &Rows<'_>, token: usize, r: usize) {
        for (i, value) in self.values::<K>(s).into_iter().enumerate() {
            rows.put(token + i, r, value);
        }
    }

    #[inline(always)]
    fn values<K: Kind256>(&self, s: S) -> [f32; N] {
        let mut values = s.hsums(&self.acc);
        if K::MIN {
            for i in 0..N {
                let [a, b, c, d] = s.store4(self.mins[i]);
                values[i] -= (a + c) + (b + d);
            }
        }
        values
    }
}

/// Adds the products of consecutive blocks of a row: activations from block `x_first` on, scales of `scratch` from
/// `first` on.
#[inline(always)]
fn add_blocks<S: Simd, K: Kind256, const N: usize>(
    s: S,
    blocks: &[K::Block],
    x: &[Row256<'_>; N],
    x_first: usize,
    scratch: &Scratch<N>,
    first: usize,
    sums: &mut Sums<S, N>,
) {
    let products = each(scratch.products.each_ref(), |p| &p[first..][..blocks.len()]);
    let min_products = each(scratch.min_products.each_ref(), |p| &p[first..][..blocks.len()]);
    for (b, block) in blocks.iter().enumerate() {
        prefetch(s, block);
        let at = x_first + b;
        let x_codes = each(*x, |x| &x.codes.as_chunks::<4>().0[at]);
        let prepared = K::prepare(s, block);
        let scales = s.scales(K::scales(block));
        let mut ints = [s.zero_ints(); N];
        group::<S, K, N, 0>(s, block, &prepared, scales, &x_codes, &mut ints);
        group::<S, K, N, 1>(s, block, &prepared, scales, &x_codes, &mut ints);
        group::<S, K, N, 2>(s, block, &prepared, scales, &x_codes, &mut ints);
        group::<S, K, N, 3>(s, block, &prepared, scales, &x_codes, &mut ints);
        for i in 0..N {
            sums.acc[i] = s.fma(s.splat(products[i][b]), s.floats(ints[i]), sums.acc[i]);
        }
        if K::MIN {
            let min = K::mins(block);
            for i in 0..N {
                let d = min_products[i][b];
                sums.mins[i] = match K::GROUP {
                    16 => s.add_mins16(sums.mins[i], d, min, &x[i].sums16.as_chunks().0[at]),
                    _ => s.add_mins8(sums.mins[i], d, min[0], &x[i].sums32.as_chunks().0[at]),
                };
            }
        }
    }
}

/// Fills the products for one segment; `x_scales` reach to a multiple of 16. (Those past its end are of old scales, and not used.)
#[inline(always)]
fn multiply_scales<S: Simd, K: Kind256, const N: usize>(
    s: S,
    blocks: &[K::Block],
    x_scales: &[&[f32]; N],
    scratch: &mut Scratch<N>,
) {
    for (b, block) in blocks.iter().enumerate() {
        scratch.d[b] = K::d(block);
        if K::MIN {
            scratch.dmin[b] = K::dmin(block);
        }
    }
    for v in 0..blocks.len().div_ceil(16) {
        let mut d = s.load_f16(&scratch.d.as_chunks().0[v]);
        if K::FACTOR != 1.0 {
            d = s.mul(d, s.splat(K::FACTOR));
        }
        let dmin = s.load_f16(&scratch.dmin.as_chunks().0[v]);
        for i in 0..N {
            let x_scales = s.load(&x_scales[i].as_chunks().0[v]);
            scratch.products[i].as_chunks_mut().0[v] = s.store(s.mul(d, x_scales));
            if K::MIN {
                scratch.min_products[i].as_chunks_mut().0[v] = s.store(s.mul(dmin, x_scales));
            }
        }
    }
}

/// The scales of group `G`, spread over its weights.
#[inline(always)]
pub(super) fn group_scales<S: Simd, K: Kind256, const G: usize>(s: S, scales: S::Scales) -> S::Spread {
    match K::GROUP {
        16 => s.spread16::<G>(scales),
        _ => s.spread32::<G>(scales),
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
    let scales = group_scales::<S, K, G>(s, scales);
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
