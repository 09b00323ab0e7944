use super::*;
use crate::lanes::dot;
use crate::{Kv, f16_to_f32, f32_to_f16, indexer_scores, pool_blocks};

fn halves(x: &[f32]) -> Vec<u16> {
    x.iter().map(|&x| f32_to_f16(x)).collect()
}

#[test]
fn blocks_are_means_in_order() {
    for (blocks, r, d) in [(3, 4, 128), (5, 8, 20), (1, 1, 16), (0, 4, 8)] {
        let keys = Random(r as u64).values(blocks * r * d);
        let narrow = halves(&keys);
        let rounded: Vec<f32> = narrow.iter().map(|&h| f16_to_f32(h)).collect();
        for (keys, stored) in [(&keys, Kv::F32(&keys)), (&rounded, Kv::F16(&narrow))] {
            let mean = everywhere("pool_blocks", |pool| {
                let mut out = vec![0.0; blocks * d];
                pool_blocks(pool, stored, r, d, &mut out);
                out
            });
            for (i, mean) in mean.iter().enumerate() {
                let sum = (0..r).fold(0.0, |sum, j| sum + keys[(i / d * r + j) * d + i % d]);
                assert_eq!(*mean, sum * (1.0 / r as f32));
            }
        }
    }
}

#[test]
fn scores_are_rectified_per_head() {
    for (tokens, heads, d, blocks) in
        [(1, 4, 128, 700), (5, 4, 128, 65), (2, 3, 20, 7), (0, 1, 4, 2), (3, 1, 4, 0)]
    {
        let mut random = Random(d as u64);
        let (iq, keys) = (random.values(tokens * heads * d), random.values(blocks * d));
        let narrow = halves(&keys);
        let rounded: Vec<f32> = narrow.iter().map(|&h| f16_to_f32(h)).collect();
        for (keys, stored) in [(&keys, Kv::F32(&keys)), (&rounded, Kv::F16(&narrow))] {
            let scores = everywhere("indexer_scores", |pool| {
                let mut scores = vec![9.0; tokens * blocks];
                indexer_scores(pool, &iq, stored, heads, d, &mut scores);
                scores
            });
            for (i, score) in scores.iter().enumerate() {
                let (t, b) = (i / blocks, i % blocks);
                let head = |h: usize| dot(&iq[(t * heads + h) * d..][..d], &keys[b * d..][..d]);
                assert_eq!(*score, (0..heads).fold(0.0, |sum, h| sum + head(h).max(0.0)));
            }
        }
    }
}

#[test]
fn nan_reaches_the_score() {
    let mut scores = [0.0];
    indexer_scores(&Pool::new(1), &[f32::NAN, 1.0], Kv::F32(&[1.0, 1.0]), 1, 2, &mut scores);
    assert!(scores[0].is_nan());
}
