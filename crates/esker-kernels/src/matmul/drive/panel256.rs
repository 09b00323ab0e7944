//! Products of Q8x256 activations of many tokens: some rows are unpacked to codes and spread scales, once, and then
//! multiplied with all tokens.
//!
//! Where a register holds half of the lanes, the halves are done one after the other: so the sums of [`TOKENS`] tokens
//! have room in 16 registers. The bits are those of `blocks256`: the same operations in the same order.

use super::super::kinds::{Codes, Kind256};
use super::super::simd::Panels;
use super::super::{Rows, each};
use super::blocks256::group_scales;
use super::{TOKENS, prefetch};
use crate::act::{Line, Row256};

/// Blocks that are unpacked at a time, unless a row has more: codes and scales take 16 KiB, and stay in the first-level
/// cache beside the activations of a tile.
const BLOCKS: usize = 32;

/// The longest row, in blocks.
const BLOCKS_MAX: usize = 64;

/// Vectors of 16 scales: at least one for each row.
const SCALES: usize = BLOCKS;

/// Unpacked rows.
struct Panel {
    codes: [[Line<i8, 64>; 4]; BLOCKS_MAX],
    scales: [[Line<i16, 32>; 4]; BLOCKS_MAX],
    /// As [`Kind256::mins`] gives them.
    mins: [[u64; 2]; BLOCKS_MAX],
    /// Scales of scales and of minima, each row's from a new vector on.
    d: [[f32; 16]; SCALES],
    dmin: [[f32; 16]; SCALES],
}

/// Scales of one row times those of each token.
struct Products<const N: usize> {
    d: [[[f32; 16]; BLOCKS_MAX / 16]; N],
    dmin: [[[f32; 16]; BLOCKS_MAX / 16]; N],
}

/// What minima are multiplied with, of four tokens side by side.
struct Four {
    /// Sums of each 32 codes of a block, 8 for each token.
    sums: [Line<i16, 32>; BLOCKS_MAX],
    /// Scales of a block's activations, each token's four times.
    scales: [Line<f32, 16>; BLOCKS_MAX],
}

impl Four {
    const NEW: Four = Four { sums: [Line([0; 32]); BLOCKS_MAX], scales: [Line([0.0; 16]); BLOCKS_MAX] };

    #[inline(always)]
    fn set(&mut self, n_blocks: usize, x: &[Row256<'_>]) {
        for (t, x) in x.iter().enumerate() {
            let sums = &x.sums32.as_chunks::<8>().0[..n_blocks];
            for (b, (sums, &scale)) in sums.iter().zip(&x.scales[..n_blocks]).enumerate() {
                self.sums[b].0.as_chunks_mut().0[t] = *sums;
                self.scales[b].0.as_chunks_mut().0[t] = [scale; 4];
            }
        }
    }
}

/// All rows for the first tokens, as many of them as make up tiles. Returns how many.
#[inline(always)]
pub(in crate::matmul) fn panels<S: Panels, K: Kind256>(s: S, rows: &Rows<'_>) -> usize {
    let (n_blocks, n_tokens) = (rows.n_cols / 256, rows.n_tokens());
    if !(1..=BLOCKS_MAX).contains(&n_blocks) || n_tokens < TOKENS {
        return 0;
    }
    let at_a_time = (BLOCKS / n_blocks).max(1);
    let mut panel = Panel {
        codes: [const { [Line([0; 64]); 4] }; BLOCKS_MAX],
        scales: [const { [Line([0; 32]); 4] }; BLOCKS_MAX],
        mins: [[0; 2]; BLOCKS_MAX],
        d: [[0.0; 16]; SCALES],
        dmin: [[0.0; 16]; SCALES],
    };
    let zero = [[0.0; 16]; BLOCKS_MAX / 16];
    let mut of_eight = Products { d: [zero; TOKENS], dmin: [zero; TOKENS] };
    let mut of_four = Products { d: [zero; 4], dmin: [zero; 4] };
    let mut fours = [Four::NEW; TOKENS / 4];
    let mut done = 0;
    let panels = bytemuck::cast_slice::<u8, K::Block>(rows.bytes).chunks(at_a_time * n_blocks);
    for (index, blocks) in panels.enumerate() {
        unpack::<S, K>(s, blocks, n_blocks, &mut panel);
        let (first_row, n_rows) = (index * at_a_time, blocks.len() / n_blocks);
        done = 0;
        while n_tokens - done >= TOKENS {
            tile::<S, K, TOKENS>(s, rows, &panel, n_rows, first_row, done, &mut of_eight, &mut fours);
            done += TOKENS;
        }
        if n_tokens - done >= 4 {
            tile::<S, K, 4>(s, rows, &panel, n_rows, first_row, done, &mut of_four, &mut fours);
            done += 4;
        }
    }
    done
}

#[inline(always)]
fn unpack<S: Panels, K: Kind256>(s: S, blocks: &[K::Block], n_blocks: usize, panel: &mut Panel) {
    for (b, block) in blocks.iter().enumerate() {
        prefetch(s, block);
        let prepared = K::prepare(s, block);
        let all = s.scales(K::scales(block));
        let (codes, scales) = (&mut panel.codes[b], &mut panel.scales[b]);
        unpack_group::<S, K, 0>(s, block, &prepared, all, codes, scales);
        unpack_group::<S, K, 1>(s, block, &prepared, all, codes, scales);
        unpack_group::<S, K, 2>(s, block, &prepared, all, codes, scales);
        unpack_group::<S, K, 3>(s, block, &prepared, all, codes, scales);
        if K::MIN {
            panel.mins[b] = K::mins(block);
        }
    }
    let n_vectors = n_blocks.div_ceil(16);
    for (row, blocks) in blocks.chunks_exact(n_blocks).enumerate() {
        for (v, blocks) in blocks.chunks(16).enumerate() {
            let (mut d, mut dmin) = ([0; 16], [0; 16]);
            for (b, block) in blocks.iter().enumerate() {
                d[b] = K::d(block);
                if K::MIN {
                    dmin[b] = K::dmin(block);
                }
            }
            let mut d = s.load_f16(&d);
            if K::FACTOR != 1.0 {
                d = s.mul(d, s.splat(K::FACTOR));
            }
            panel.d[row * n_vectors + v] = s.store(d);
            if K::MIN {
                panel.dmin[row * n_vectors + v] = s.store(s.load_f16(&dmin));
            }
        }
    }
}

#[inline(always)]
fn unpack_group<S: Panels, K: Kind256, const G: usize>(
    s: S,
    block: &K::Block,
    prepared: &K::Prepared,
    all: S::Scales,
    codes: &mut [Line<i8, 64>; 4],
    scales: &mut [Line<i16, 32>; 4],
) {
    let w = K::codes::<S, G>(s, block, prepared);
    let w = match K::CODES {
        Codes::Unsigned | Codes::Signed => w,
        Codes::Magnitudes => s.signed_codes(s.product_weights_of(w, K::signs::<G>(block))),
    };
    s.keep(w, &mut codes[G]);
    s.keep_scales(group_scales::<S, K, G>(s, all), &mut scales[G]);
}

/// The unpacked rows, `first_row` and on, for the tokens `token` to `token + N - 1`.
#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "a piece of work, and memory for it")]
fn tile<S: Panels, K: Kind256, const N: usize>(
    s: S,
    rows: &Rows<'_>,
    panel: &Panel,
    n_rows: usize,
    first_row: usize,
    token: usize,
    products: &mut Products<N>,
    fours: &mut [Four; TOKENS / 4],
) {
    let n_blocks = rows.n_cols / 256;
    let n_vectors = n_blocks.div_ceil(16);
    let x: [_; N] = rows.of_tile(token, |row| rows.acts.row_q8x256(row));
    let x_codes = each(x, |x| &x.codes.as_chunks::<4>().0[..n_blocks]);
    if K::MIN && K::GROUP == 32 {
        for (four, x) in fours.iter_mut().zip(x.as_chunks::<4>().0) {
            four.set(n_blocks, x);
        }
    }
    for row in 0..n_rows {
        for v in 0..n_vectors {
            let d = s.load(&panel.d[row * n_vectors + v]);
            let dmin = s.load(&panel.dmin[row * n_vectors + v]);
            for i in 0..N {
                let x_scales = s.load(&x[i].scales.as_chunks().0[v]);
                products.d[i][v] = s.store(s.mul(d, x_scales));
                if K::MIN && K::GROUP == 16 {
                    products.dmin[i][v] = s.store(s.mul(dmin, x_scales));
                }
            }
        }
        let blocks = row * n_blocks..(row + 1) * n_blocks;
        let (codes, scales) = (&panel.codes[blocks.clone()], &panel.scales[blocks.clone()]);
        let d = each(products.d.each_ref(), |d| &d.as_flattened()[..n_blocks]);
        let low = part_sums::<S, K, N, 0>(s, codes, scales, &x_codes, &d);
        let high = if S::PARTS == 2 { part_sums::<S, K, N, 1>(s, codes, scales, &x_codes, &d) } else { low };
        let mut acc = [s.zero(); N];
        for i in 0..N {
            acc[i] = s.join(low[i], high[i]);
        }
        let mut values = s.hsums(&acc);
        if K::MIN {
            let lanes = match K::GROUP {
                16 => {
                    let dmin = each(products.dmin.each_ref(), |d| &d.as_flattened()[..n_blocks]);
                    mins16::<S, N>(s, &panel.mins[blocks], &x, &dmin)
                }
                _ => {
                    let dmin = &panel.dmin[row * n_vectors..].as_flattened()[..n_blocks];
                    mins32::<S, N>(s, &panel.mins[blocks], dmin, fours)
                }
            };
            for (value, [a, b, c, d]) in values.iter_mut().zip(lanes) {
                *value -= (a + c) + (b + d);
            }
        }
        for (i, value) in values.into_iter().enumerate() {
            rows.put(token + i, first_row + row, value);
        }
    }
}

/// Part `PART` of the lanes of a row's sums.
#[inline(always)]
fn part_sums<S: Panels, K: Kind256, const N: usize, const PART: usize>(
    s: S,
    codes: &[[Line<i8, 64>; 4]],
    scales: &[[Line<i16, 32>; 4]],
    x: &[&[[Line<i8, 64>; 4]]; N],
    products: &[&[f32]; N],
) -> [S::PartFloats; N] {
    let mut acc = [s.part_zero_floats(); N];
    for (b, (codes, scales)) in codes.iter().zip(scales).enumerate() {
        let x = each(*x, |x| &x[b]);
        let mut ints = [s.part_zero(); N];
        for g in 0..4 {
            let w = s.part::<PART>(&codes[g]);
            let scales = s.part_scales::<PART>(&scales[g]);
            match K::CODES {
                Codes::Unsigned => {
                    for i in 0..N {
                        ints[i] = s.part_add_unsigned(ints[i], w, s.part::<PART>(&x[i][g]), scales);
                    }
                }
                Codes::Signed | Codes::Magnitudes => {
                    let w = s.part_signed(w);
                    for i in 0..N {
                        ints[i] = s.part_add_signed(ints[i], w, s.part::<PART>(&x[i][g]), scales);
                    }
                }
            }
        }
        for i in 0..N {
            acc[i] = s.part_fma(products[i][b], ints[i], acc[i]);
        }
    }
    acc
}

/// The four lanes of each token's minima, for a row with minima for each 16 weights.
#[inline(always)]
fn mins16<S: Panels, const N: usize>(
    s: S,
    mins: &[[u64; 2]],
    x: &[Row256<'_>; N],
    products: &[&[f32]; N],
) -> [[f32; 4]; N] {
    let mut acc = [s.zero4(); N];
    let sums = each(*x, |x| &x.sums16.as_chunks::<16>().0[..mins.len()]);
    for (b, &mins) in mins.iter().enumerate() {
        for i in 0..N {
            acc[i] = s.add_mins16(acc[i], products[i][b], mins, &sums[i][b]);
        }
    }
    each(acc, |acc| s.store4(acc))
}

/// As [`mins16`], for a row with minima for each 32 weights.
#[inline(always)]
fn mins32<S: Panels, const N: usize>(
    s: S,
    mins: &[[u64; 2]],
    dmin: &[f32],
    fours: &[Four; TOKENS / 4],
) -> [[f32; 4]; N] {
    let mut acc = [s.zero(); TOKENS / 4];
    for (b, (&[mins, _], &dmin)) in mins.iter().zip(dmin).enumerate() {
        for (acc, four) in acc.iter_mut().zip(fours).take(N / 4) {
            let d = s.mul(s.splat(dmin), s.load(&four.scales[b].0));
            *acc = s.add_mins_of_four(*acc, d, mins, &four.sums[b]);
        }
    }
    let mut lanes = [[0.0; 4]; N];
    for (lanes, &acc) in lanes.as_chunks_mut::<4>().0.iter_mut().zip(&acc) {
        *lanes = bytemuck::cast(s.store(acc));
    }
    lanes
}
