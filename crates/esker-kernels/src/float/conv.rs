//! Causal depthwise convolution over time, with the rows it still needs carried from call to call.

use super::math;
use super::multiversion::{current, multiversion};
use super::vector::Vector;
use crate::Pool;
use crate::disjoint::Disjoint;
use crate::lanes::LANES;

/// The most taps a kernel may have.
pub const CONV_TAPS_MAX: usize = 16;

/// Channels of one task: whole cache lines, and enough of a row for the prefetcher.
const TILE: usize = 64;

/// `out[t, c] = Σ_j kernel[c, j] * u[t - (taps - 1 - j) * dilation, c]`, taps in order, where `u` is `history`
/// followed by `x`; then SiLU if `silu`. Any split of a sequence into calls gives the same bits.
///
/// `x`, `out`: `[T, ch]`. `history`: `[(taps - 1) * dilation, ch]`, oldest row first, zeros at the start of a sequence;
/// updated to the last rows of `u`. `kernel`: `[ch, taps]`, the last tap multiplying the current token.
///
/// # Panics
/// If a length does not fit, `dilation` is 0, or `taps` is 0 or above [`CONV_TAPS_MAX`].
#[expect(clippy::too_many_arguments, reason = "one flat shape, two inputs, state and output")]
pub fn causal_conv(
    pool: &Pool,
    x: &[f32],
    history: &mut [f32],
    kernel: &[f32],
    taps: usize,
    dilation: usize,
    ch: usize,
    silu: bool,
    out: &mut [f32],
) {
    assert!(taps > 0 && taps <= CONV_TAPS_MAX, "a kernel has 1 to {CONV_TAPS_MAX} taps, not {taps}");
    assert!(dilation > 0 && ch > 0, "dilation and channels are at least 1");
    assert!(
        x.len().is_multiple_of(ch) && out.len() == x.len(),
        "input and output are whole rows of {ch} channels"
    );
    assert_eq!(history.len(), (taps - 1) * dilation * ch, "the history has (taps - 1) * dilation rows");
    assert_eq!(kernel.len(), ch * taps, "the kernel has {taps} taps for each channel");
    let isa = current();
    let n_tokens = x.len() / ch;
    let rows = Rows {
        x,
        history: Disjoint::new(history),
        out: Disjoint::new(out),
        kernel,
        taps,
        dilation,
        ch,
        n_tokens,
        silu,
    };
    let grain = (4096 / (TILE * taps * n_tokens.max(1))).max(1);
    pool.run(ch.div_ceil(TILE), grain, &|tiles| {
        let (start, end) = (tiles.start * TILE, ch.min(tiles.end * TILE));
        for tile in (start..end).step_by(TILE) {
            conv_tile(isa, &rows, tile, end.min(tile + TILE));
        }
        shift_history(&rows, start, end);
    });
}

struct Rows<'a> {
    x: &'a [f32],
    history: Disjoint<'a, f32>,
    out: Disjoint<'a, f32>,
    kernel: &'a [f32],
    taps: usize,
    dilation: usize,
    ch: usize,
    n_tokens: usize,
    silu: bool,
}

multiversion! {
    fn conv_tile = conv_tile_body(rows: &Rows<'_>, start: usize, end: usize);
}

/// The channels `start..end` of all tokens; no other task touches them.
#[inline(always)]
fn conv_tile_body<V: Vector>(rows: &Rows<'_>, start: usize, end: usize) {
    let &Rows { x, kernel, taps, dilation, ch, n_tokens, silu, .. } = rows;
    let past = (taps - 1) * dilation;
    // Taps beside each other per channel become rows of channels.
    let mut by_tap = [[0.0f32; TILE]; CONV_TAPS_MAX];
    let kernel = &kernel[start * taps..end * taps];
    if taps == 4 {
        for (i, channel) in kernel.as_chunks::<4>().0.iter().enumerate() {
            for j in 0..4 {
                by_tap[j][i] = channel[j];
            }
        }
    } else {
        for (i, channel) in kernel.chunks_exact(taps).enumerate() {
            for (row, &tap) in by_tap.iter_mut().zip(channel) {
                row[i] = tap;
            }
        }
    }
    for t in 0..n_tokens {
        let mut sums = [V::zero(); TILE / LANES];
        for (j, taps_row) in by_tap[..taps].iter().enumerate() {
            let row = t + j * dilation; // in history followed by x
            let u = if row < past {
                // SAFETY: only this task uses these channels of the history.
                unsafe { rows.history.part(row * ch + start..row * ch + end) }
            } else {
                &x[(row - past) * ch + start..(row - past) * ch + end]
            };
            let (tap, u) = (load_tile::<V>(taps_row), load_tile::<V>(u));
            for i in 0..TILE / LANES {
                sums[i] = tap[i].mul_add(u[i], sums[i]);
            }
        }
        if silu {
            for sum in &mut sums {
                *sum = math::silu(*sum);
            }
        }
        // SAFETY: only this task uses these channels of the output.
        let out = unsafe { rows.out.part(t * ch + start..t * ch + end) };
        for (sum, out) in sums.into_iter().zip(out.chunks_mut(LANES)) {
            sum.store_part(out);
        }
    }
}

/// The channels of a tile, zeros beyond the last.
#[inline(always)]
fn load_tile<V: Vector>(x: &[f32]) -> [V; TILE / LANES] {
    let mut tile = [V::zero(); TILE / LANES];
    if x.len() == TILE {
        for (v, x) in tile.iter_mut().zip(x.as_chunks::<LANES>().0) {
            *v = V::load(x);
        }
    } else {
        for (v, x) in tile.iter_mut().zip(x.chunks(LANES)) {
            *v = V::load_part(x);
        }
    }
    tile
}

/// Moves the last rows of `u` into the history, channels `start..end`; after all their outputs are computed.
///
/// Row by row over all channels of a task: rows are often a multiple of a page apart, and tile by tile each load
/// would follow a store to the same page offset, which processors take for the same address.
fn shift_history(rows: &Rows<'_>, start: usize, end: usize) {
    let &Rows { x, taps, dilation, ch, n_tokens, .. } = rows;
    let past = (taps - 1) * dilation;
    for row in 0..past {
        // Row `row + n_tokens` of history followed by x moves up; rows not yet overwritten lie ahead.
        let source = row + n_tokens;
        // SAFETY: only this task uses these channels of the history.
        let target = unsafe { rows.history.part(row * ch + start..row * ch + end) };
        if source >= past {
            target.copy_from_slice(&x[(source - past) * ch + start..(source - past) * ch + end]);
        } else if n_tokens > 0 {
            // SAFETY: as above, and another row than `target`, because `n_tokens > 0`.
            target.copy_from_slice(unsafe { rows.history.part(source * ch + start..source * ch + end) });
        }
    }
}
