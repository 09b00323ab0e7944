//! The canonical order of every float reduction: 16 lanes, then a fixed tree.
//!
//! Element `i` belongs to lane `i % 16`; each lane accumulates its elements in increasing order; the lanes are
//! added by [`hsum16`]. Sixteen lanes are one AVX-512 register, two AVX2 registers or four NEON registers, so
//! every instruction set can keep this order at full speed. These functions are the definition: a SIMD variant
//! must return the same bits.

/// Lanes of a canonical reduction.
pub const LANES: usize = 16;

/// Adds the lanes in the canonical tree: halves are added to each other, 16 → 8 → 4 → 2 → 1.
#[inline(always)]
pub fn hsum16(lanes: &[f32; LANES]) -> f32 {
    let mut l = *lanes;
    let mut width = LANES / 2;
    while width > 0 {
        for i in 0..width {
            l[i] += l[i + width];
        }
        width /= 2;
    }
    l[0]
}

/// Canonical dot product: lane `i % 16` is `fma(a[i], b[i], lane)` in increasing `i`, then [`hsum16`].
///
/// # Panics
/// If the lengths differ.
#[inline(always)]
pub fn dot(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len(), "both sides of a dot product have one length");
    let mut acc = [0.0; LANES];
    dot_add(&mut acc, a, b);
    hsum16(&acc)
}

/// Adds the products of `a` and `b` to the lanes, `a[0]` going to lane 0; for a long dot product in pieces of a
/// multiple of 16 elements (the last may be shorter).
#[inline(always)]
pub fn dot_add(acc: &mut [f32; LANES], a: &[f32], b: &[f32]) {
    debug_assert_eq!(a.len(), b.len());
    let (a16, a_tail) = a.as_chunks::<LANES>();
    let (b16, b_tail) = b.as_chunks::<LANES>();
    for (a, b) in a16.iter().zip(b16) {
        for l in 0..LANES {
            acc[l] = a[l].mul_add(b[l], acc[l]);
        }
    }
    for (l, (a, b)) in a_tail.iter().zip(b_tail).enumerate() {
        acc[l] = a.mul_add(*b, acc[l]);
    }
}

/// Canonical sum: lane `i % 16` adds `a[i]` in increasing `i`, then [`hsum16`].
#[inline(always)]
pub fn sum(a: &[f32]) -> f32 {
    let mut acc = [0.0; LANES];
    let (a16, tail) = a.as_chunks::<LANES>();
    for a in a16 {
        for l in 0..LANES {
            acc[l] += a[l];
        }
    }
    for (l, a) in tail.iter().enumerate() {
        acc[l] += a;
    }
    hsum16(&acc)
}

/// Canonical sum of squares: lane `i % 16` is `fma(a[i], a[i], lane)` in increasing `i`, then [`hsum16`].
#[inline(always)]
pub fn sum_of_squares(a: &[f32]) -> f32 {
    dot(a, a)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tree_adds_halves() {
        // 2^24 + 1 is not representable: the result shows which additions came first.
        let mut l = [0.0; LANES];
        l[0] = 16_777_216.0;
        l[8] = -16_777_216.0;
        l[1] = 1.0;
        assert_eq!(hsum16(&l), 1.0, "lanes 0 and 8 meet first");
        l[8] = 0.0;
        l[4] = -16_777_216.0;
        l[12] = 1.0;
        assert_eq!(hsum16(&l), 2.0, "4 and 12 meet first (-2^24 + 1 is exact), then 0 and 4");
    }

    #[test]
    fn tails_go_to_their_lanes() {
        let a: Vec<f32> = (0..37).map(|i| (i as f32 * 0.37).sin()).collect();
        let b: Vec<f32> = (0..37).map(|i| (i as f32 * 0.11).cos()).collect();
        let mut acc = [0.0f32; LANES];
        for i in 0..37 {
            acc[i % LANES] = a[i].mul_add(b[i], acc[i % LANES]);
        }
        assert_eq!(dot(&a, &b).to_bits(), hsum16(&acc).to_bits());
        assert_eq!(sum(&[1.5; 37]), 1.5 * 37.0);
        assert_eq!(sum_of_squares(&[2.0; 21]), 84.0);
    }
}
