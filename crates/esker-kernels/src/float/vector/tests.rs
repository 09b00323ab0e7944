use super::{Array, Vector};
use crate::float::half;
use crate::float::multiversion::multiversion;
use crate::isa::Isa;
use crate::lanes::{LANES, hsum16};

multiversion! {
    fn sums = sums_body(x: &[[f32; LANES]; 20]) -> [[f32; 20]; 4];
    fn compare = compare_body(a: &[f32; LANES], b: &[f32; LANES]) -> [[f32; LANES]; 2];
    fn widen = widen_body(x: &[u16; LANES]) -> [f32; LANES];
    fn narrow = narrow_body(x: &[f32; LANES]) -> [u16; LANES];
    fn parts = parts_body(x: &[f32]) -> [f32; LANES];
    fn shift = shift_body(x: &[f32; LANES], bias: u32) -> [f32; LANES];
}

/// Sums of twenty vectors: one by one, and in groups of 20 (16 + 4), 4 and 5 (4 + 1).
#[inline(always)]
fn sums_body<V: Vector>(x: &[[f32; LANES]; 20]) -> [[f32; 20]; 4] {
    let v: [V; 20] = std::array::from_fn(|i| V::load(&x[i]));
    let mut groups = [[0.0; 20]; 4];
    groups[0] = v.map(V::hsum);
    groups[1] = V::hsum_each(&v);
    for (sums, v) in groups[2].as_chunks_mut::<4>().0.iter_mut().zip(v.as_chunks::<4>().0) {
        *sums = V::hsum_each(v);
    }
    for (sums, v) in groups[3].as_chunks_mut::<5>().0.iter_mut().zip(v.as_chunks::<5>().0) {
        *sums = V::hsum_each(v);
    }
    groups
}

#[inline(always)]
fn compare_body<V: Vector>(a: &[f32; LANES], b: &[f32; LANES]) -> [[f32; LANES]; 2] {
    [V::load(a).max(V::load(b)).to_array(), V::load(a).min(V::load(b)).to_array()]
}

#[inline(always)]
fn widen_body<V: Vector>(x: &[u16; LANES]) -> [f32; LANES] {
    V::load_f16(x).to_array()
}

#[inline(always)]
fn narrow_body<V: Vector>(x: &[f32; LANES]) -> [u16; LANES] {
    let mut out = [0; LANES];
    V::load(x).store_f16(&mut out);
    out
}

#[inline(always)]
fn parts_body<V: Vector>(x: &[f32]) -> [f32; LANES] {
    let mut out = [9.0; LANES];
    V::load_part_or(x, 7.0).store_part(&mut out[..x.len()]);
    out
}

#[inline(always)]
fn shift_body<V: Vector>(x: &[f32; LANES], bias: u32) -> [f32; LANES] {
    V::load(x).shift_into_exponent(bias).to_array()
}

#[test]
fn sums_follow_the_canonical_tree() {
    let x: [[f32; LANES]; 20] = std::array::from_fn(|i| {
        std::array::from_fn(|l| ((i * 17 + l * 5) as f32 * 0.7).sin() * 1e3f32.powi((l % 5) as i32))
    });
    let expected = x.map(|x| hsum16(&x).to_bits());
    for isa in Isa::available() {
        for sums in sums(isa, &x) {
            assert_eq!(sums.map(f32::to_bits), expected, "{isa}");
        }
    }
}

#[test]
fn comparisons_treat_nan_and_zeros_alike() {
    let special = [0.0, -0.0, 1.0, -1.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::MIN_POSITIVE / 2.0];
    let a: [f32; LANES] = std::array::from_fn(|i| special[i % 8]);
    for offset in 0..8 {
        let b: [f32; LANES] = std::array::from_fn(|i| special[(i + offset) % 8]);
        let expected = compare_body::<Array>(&a, &b).map(|row| row.map(f32::to_bits));
        for isa in Isa::available() {
            assert_eq!(compare(isa, &a, &b).map(|row| row.map(f32::to_bits)), expected, "{isa}");
        }
    }
}

#[test]
fn halves_widen_alike() {
    for isa in Isa::available() {
        for start in (0..=u16::MAX).step_by(LANES) {
            let x = std::array::from_fn(|i| start + i as u16);
            assert_eq!(
                widen(isa, &x).map(f32::to_bits),
                x.map(half::f16_to_f32).map(f32::to_bits),
                "{isa} {start:#x}"
            );
        }
    }
}

#[test]
fn halves_narrow_alike() {
    for isa in Isa::available() {
        // All exponents, and mantissas on both sides of every rounding boundary.
        for bits in (0..=u32::MAX).step_by(0x000f_07ff) {
            let x: [f32; LANES] =
                std::array::from_fn(|i| f32::from_bits(bits.wrapping_add(i as u32 * 0x0fff)));
            assert_eq!(narrow(isa, &x), x.map(half::f32_to_f16), "{isa} {bits:#x}");
        }
    }
}

#[test]
fn parts_and_shifts() {
    for isa in Isa::available() {
        for n in 0..=LANES {
            let x: Vec<f32> = (0..n).map(|i| i as f32).collect();
            let expected: [f32; LANES] = std::array::from_fn(|i| if i < n { i as f32 } else { 9.0 });
            assert_eq!(parts(isa, &x), expected, "{isa} {n}");
        }
        let integers = std::array::from_fn(|i| f32::from_bits(i as u32 * 3));
        let expected: [u32; LANES] =
            std::array::from_fn(|i| (i as u32 * 3) << 23).map(|b: u32| b.wrapping_add(1 << 30));
        assert_eq!(shift(isa, &integers, 1 << 30).map(f32::to_bits), expected, "{isa}");
    }
}
