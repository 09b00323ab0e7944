//! The definition of every product: short enough to check by eye, no tricks.
//!
//! Three forms, by activation format. In all of them lane sums are exact integers or fused multiply-adds in
//! increasing order, and [`hsum16`] ends the row.
//!
//! * F32: the canonical dot product of [`lanes`](crate::lanes) with the decoded row.
//!
//! A lane starts at +0, and adding +0 to a lane makes -0 to +0; that is all that the padding with zeros below does.
//!
//! * Q8x32: element `i` of a pair of 32-blocks belongs to lane `i % 64 / 4`. Per block (per 16 weights where the type
//!   has a scale for each 16), each lane adds `(d_w · d_x) · Σ w·x`, the sum being its 4 integer products. Types with a
//!   minimum `m` add `m · (d_x · Σ x)` of block `b` to lane `b % 16` of a second set of 16 lanes, summed the same way. A
//!   row is padded with blocks of zeros to 2 (for the minima: 16).
//! * Q8x256: lanes as above; per block of 256 each lane adds `(d_w · d_x) · Σ scale·w·x` over its 16 products. Types
//!   with minima subtract `(dmin_w · d_x) · Σ min·Σ x` for each 64 elements, in four lanes of their own.

mod blocks256;
mod blocks32;

use super::{Rows, decoded};
use crate::act::{ActFormat, Row32, Row256, act_format};
use crate::lanes::{LANES, hsum16};
use esker_quant::GgmlType;

/// Computes all rows for all tokens.
pub(super) fn run(rows: &Rows<'_>) {
    match act_format(rows.ty) {
        ActFormat::F32 => decoded::run(rows),
        ActFormat::Q8x32 => each(rows, |row, t| dot32(rows.ty, row, rows.acts.row_q8x32(t))),
        ActFormat::Q8x256 => each(rows, |row, t| dot256(rows.ty, row, rows.acts.row_q8x256(t))),
    }
}

fn each(rows: &Rows<'_>, dot: impl Fn(&[u8], usize) -> f32) {
    for r in 0..rows.n_rows {
        for t in 0..rows.n_tokens() {
            rows.put(t, r, dot(rows.row(r), rows.act_row(t)));
        }
    }
}

/// 32 weights: `w[j] = d[j / 16] · q[j] + m`.
struct Ints32 {
    q: [i8; 32],
    d: [f32; 2],
    m: Option<f32>,
}

fn dot32(ty: GgmlType, row: &[u8], x: Row32<'_>) -> f32 {
    let mut acc = [0.0f32; LANES];
    let mut mins = [0.0f32; LANES];
    let (mut n_blocks, mut has_min) = (0, false);
    blocks32::each(ty, row, |b, w| {
        n_blocks = b + 1;
        let x_codes = &x.codes[b / 2].0[b % 2 * 32..][..32];
        for l in 0..8 {
            let sum: i32 = (4 * l..4 * l + 4).map(|j| i32::from(w.q[j]) * i32::from(x_codes[j])).sum();
            let lane = &mut acc[b % 2 * 8 + l];
            *lane = (w.d[l / 4] * x.scales[b]).mul_add(sum as f32, *lane);
        }
        if let Some(m) = w.m {
            has_min = true;
            mins[b % LANES] = m.mul_add(x.scaled_sums[b], mins[b % LANES]);
        }
    });
    if n_blocks % 2 == 1 {
        acc[8..].iter_mut().for_each(|lane| *lane += 0.0);
    }
    if n_blocks % 16 > 0 {
        mins[n_blocks % 16..].iter_mut().for_each(|lane| *lane += 0.0);
    }
    if has_min { hsum16(&acc) + hsum16(&mins) } else { hsum16(&acc) }
}

/// 256 weights: `w[j] = d · scales[j / 16] · q[j] - dmin · mins[j / 16]`.
struct Ints256 {
    q: [i8; 256],
    scales: [i8; 16],
    d: f32,
    min: Option<(f32, [u8; 16])>,
}

fn dot256(ty: GgmlType, row: &[u8], x: Row256<'_>) -> f32 {
    let mut acc = [0.0f32; LANES];
    let mut mins = [0.0f32; 4];
    let mut has_min = false;
    blocks256::each(ty, row, |b, w| {
        let mut sums = [0i32; LANES];
        for j in 0..256 {
            let product = i32::from(w.q[j]) * i32::from(x.codes[b * 4 + j / 64].0[j % 64]);
            sums[j % 64 / 4] += i32::from(w.scales[j / 16]) * product;
        }
        for l in 0..LANES {
            acc[l] = (w.d * x.scales[b]).mul_add(sums[l] as f32, acc[l]);
        }
        if let Some((dmin, min)) = w.min {
            has_min = true;
            for (g, lane) in mins.iter_mut().enumerate() {
                let groups = 4 * g..4 * g + 4;
                let sum: i32 = groups.map(|s| i32::from(min[s]) * i32::from(x.sums16[b * 16 + s])).sum();
                *lane = (dmin * x.scales[b]).mul_add(sum as f32, *lane);
            }
        }
    });
    let acc = hsum16(&acc);
    if has_min { acc - ((mins[0] + mins[2]) + (mins[1] + mins[3])) } else { acc }
}

/// The magnitude of each weight's parts, `|d · scale · q| + |min|`: what rounding errors are measured against.
#[cfg(test)]
pub(super) fn magnitudes(ty: GgmlType, row: &[u8]) -> Vec<f64> {
    let mut out = Vec::new();
    match act_format(ty) {
        ActFormat::F32 => {
            let mut values = vec![0.0; row.len() / ty.block_bytes() * ty.block_elems()];
            esker_quant::decode(ty, row, &mut values).expect("whole blocks");
            out.extend(values.iter().map(|v| f64::from(v.abs())));
        }
        ActFormat::Q8x32 => blocks32::each(ty, row, |_, w| {
            let m = f64::from(w.m.unwrap_or(0.0)).abs();
            out.extend((0..32).map(|j| (f64::from(w.d[j / 16]) * f64::from(w.q[j])).abs() + m));
        }),
        ActFormat::Q8x256 => blocks256::each(ty, row, |_, w| {
            let (dmin, mins) = w.min.unwrap_or((0.0, [0; 16]));
            out.extend((0..256).map(|j| {
                let m = f64::from(dmin) * f64::from(mins[j / 16]);
                (f64::from(w.d) * f64::from(w.scales[j / 16]) * f64::from(w.q[j])).abs() + m.abs()
            }));
        }),
    }
    out
}
