use super::*;
use crate::{select_blocks, top_k};

/// Indices by (value descending, index ascending).
fn ranked(row: &[f32]) -> Vec<u32> {
    let mut order: Vec<u32> = (0..row.len() as u32).collect();
    order.sort_by(|&a, &b| row[b as usize].total_cmp(&(row[a as usize] + 0.0)).then(a.cmp(&b)));
    order
}

fn rows() -> Vec<Vec<f32>> {
    let mut random = Random(11);
    let mut rows = Vec::new();
    for n in [1usize, 2, 5, 31, 33, 64, 512, 2000] {
        rows.push(random.values(n));
        // Few different values: ties everywhere.
        rows.push((0..n).map(|_| random.below(4) as f32 - 1.0).collect());
        rows.push((0..n).map(|i| i as f32).collect());
        rows.push((0..n).map(|i| -(i as f32)).collect());
        rows.push(vec![0.0; n]);
        rows.push(vec![f32::NEG_INFINITY; n]);
        rows.push((0..n).map(|i| [f32::INFINITY, -1e-45, f32::NEG_INFINITY, 1e-45][i % 4]).collect());
        // What a rectified sum gives: most of it exactly 0.
        rows.push(random.values(n).iter().map(|x| x.max(0.6) - 0.6).collect());
    }
    rows
}

#[test]
fn top_k_is_the_head_of_a_stable_sort() {
    for row in rows() {
        let order = ranked(&row);
        for k in [1, 2, 10, 63, row.len()] {
            if k <= row.len() {
                let mut out = vec![77; k + 1];
                top_k(&row, k, &mut out);
                assert_eq!(out[..k], order[..k], "{k} of {}", row.len());
                assert_eq!(out[k], 77, "beyond k nothing is written");
            }
        }
    }
}

#[test]
fn blocks_are_the_best_in_index_order() {
    for row in rows() {
        let order = ranked(&row);
        for m in [0, 1, 2, 16, 100, row.len() - 1, row.len(), row.len() + 5] {
            let n = m.min(row.len());
            let mut expected = order[..n].to_vec();
            expected.sort_unstable();
            let mut out = vec![77; n];
            assert_eq!(select_blocks(&row, m, &mut out), n);
            assert_eq!(out, expected, "{m} of {}", row.len());
        }
    }
    assert_eq!(select_blocks(&[], 3, &mut []), 0);
}

#[test]
fn signed_zeros_are_equal() {
    let row = [-0.0, 0.0, -0.0, -1.0];
    let mut out = [0; 2];
    top_k(&row, 2, &mut out);
    assert_eq!(out, [0, 1]);
    select_blocks(&row, 2, &mut out);
    assert_eq!(out, [0, 1]);
}

#[test]
#[should_panic(expected = "NaN at 40")]
fn top_k_refuses_nan() {
    let mut row = [0.0; 64];
    row[40] = f32::NAN;
    top_k(&row, 2, &mut [0; 2]);
}

#[test]
#[should_panic(expected = "NaN among the block scores")]
fn select_refuses_nan() {
    select_blocks(&[0.0, f32::NAN, 1.0], 1, &mut [0]);
}
