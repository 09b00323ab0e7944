//! exp and what is made of it: one sequence of exactly rounded operations for every instruction set.
//!
//! [`exp`] on sixteen lanes has no branch: `x = n ln 2 + r` with `|r| <= ln 2 / 2`, a polynomial of degree 6 in `r`
//! (minimax for the relative error, 3.1e-9 before rounding), and a multiplication by `2^n` made in the exponent
//! field. Largest error over all f32: 0.90 ulp; 98.3 % of the results are correctly rounded.

use super::vector::Vector;
use crate::lanes::LANES;

/// Below this the result is 0: `2^-125.5` and smaller, so subnormals never occur.
const EXP_LOW: f32 = -87.6;
/// Above this the result is infinite whatever `x` is.
const EXP_HIGH: f32 = 89.0;
/// `1.5 * 2^23`: adding it rounds to an integer (ties to even), left in the low bits of the sum.
const ROUND: f32 = 12_582_912.0;
// ln 2 in two parts; the first has 9 bits, so `n * LN2_HIGH` is exact.
const LN2_HIGH: f32 = 355.0 / 512.0;
const LN2_LOW: f32 = -2.121_944_4e-4;

/// `e^x`. 0 below `2^-125.5` (no subnormals), exact at 0, infinite above 88.72, NaN stays NaN.
#[inline(always)]
pub(super) fn exp<V: Vector>(x: V) -> V {
    // Operand order keeps NaN: `max` and `min` return their argument where the comparison fails.
    let x = V::splat(EXP_HIGH).min(V::splat(EXP_LOW).max(x));
    let shifted = x.mul_add(V::splat(std::f32::consts::LOG2_E), V::splat(ROUND));
    let n = shifted.sub(V::splat(ROUND));
    let r = n.mul_add(V::splat(-LN2_HIGH), x);
    let r = n.mul_add(V::splat(-LN2_LOW), r);
    // The coefficients are doubled and the scale is 2^(n-1): n reaches 128, one more than an exponent holds, and
    // at n = -126 the scale is then 0, which flushes.
    let mut p = V::splat(2.0 * 1.381_454e-3);
    for c in [8.368_745e-3, 4.166_839e-2, 1.666_652_1e-1, 4.999_999_4e-1, 1.0, 1.0] {
        p = p.mul_add(r, V::splat(2.0 * c));
    }
    let scale = shifted.shift_into_exponent(126u32.wrapping_sub(ROUND.to_bits()) << 23);
    p.mul(scale)
}

/// `1 / (1 + e^-x)`.
#[inline(always)]
pub(super) fn sigmoid<V: Vector>(x: V) -> V {
    let one = V::splat(1.0);
    one.div(one.add(exp(negated(x))))
}

/// `x / (1 + e^-x)`; -0 where `e^-x` overflows.
#[inline(always)]
pub(super) fn silu<V: Vector>(x: V) -> V {
    x.div(V::splat(1.0).add(exp(negated(x))))
}

#[inline(always)]
fn negated<V: Vector>(x: V) -> V {
    x.mul(V::splat(-1.0))
}

/// `ln(1 + e^x)`, and `x` itself above 20, where the difference is below half an ulp.
#[inline(always)]
pub(super) fn softplus<V: Vector>(x: V) -> V {
    let (mut x, u) = (x.to_array(), exp(x).to_array());
    for i in 0..LANES {
        if x[i] <= 20.0 {
            x[i] = ln_1p(u[i]);
        }
    }
    V::load(&x)
}

/// `ln(1 + u)` for `u >= 0`: the logarithm of the rounded sum plus what the rounding lost.
#[inline(always)]
fn ln_1p(u: f32) -> f32 {
    let y = 1.0 + u;
    let lost = if u < 1.0 { u - (y - 1.0) } else { 1.0 - (y - u) };
    ln(y) + lost / y
}

/// Natural logarithm of a positive normal number: `y = 2^k (1 + f)` with `1 + f` in `[2/3, 4/3)`, and
/// `ln(1 + f) = f - f²/2 + f³ P(f)` with P minimax (4.7e-9 relative).
#[inline(always)]
fn ln(y: f32) -> f32 {
    const TWO_THIRDS: u32 = 0x3f2a_aaab;
    let bits = y.to_bits().wrapping_sub(TWO_THIRDS);
    let k = (bits as i32 >> 23) as f32;
    let f = f32::from_bits((bits & 0x007f_ffff) + TWO_THIRDS) - 1.0;
    let mut p = -1.289_852_7e-1f32;
    for c in [
        1.399_114_9e-1,
        -1.218_284_7e-1,
        1.400_462_7e-1,
        -1.668_057_7e-1,
        2.001_047_3e-1,
        -2.499_979_6e-1,
        3.333_321_5e-1,
    ] {
        p = p.mul_add(f, c);
    }
    let square = f * f;
    let low = k.mul_add(LN2_LOW, square * f.mul_add(p, -0.5));
    k.mul_add(LN2_HIGH, f + low)
}

// ln 2 in two parts for f64; the first has 33 bits.
const LN2_HIGH_F64: f64 = f64::from_bits(0x3fe6_2e42_fee0_0000);
const LN2_LOW_F64: f64 = f64::from_bits(0x3dea_39ef_3579_3c76);

/// `e^x` for `x <= 0` in f64, within 1 ulp; 0 below -708. Our own, because the platform's differs between machines.
pub(super) fn exp_f64(x: f64) -> f64 {
    if x < -708.0 {
        return 0.0;
    }
    const ROUND: f64 = 6_755_399_441_055_744.0; // 1.5 * 2^52
    let shifted = x * std::f64::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = n.mul_add(-LN2_LOW_F64, n.mul_add(-LN2_HIGH_F64, x));
    // Taylor: |r| <= 0.347, so r^14 / 14! is below a fiftieth of an ulp.
    let mut p = 1.0f64;
    for i in (1..=13).rev() {
        p = p.mul_add(r / f64::from(i), 1.0);
    }
    p * f64::from_bits(shifted.to_bits().wrapping_add(1023) << 52)
}

/// Natural logarithm of a positive normal f64, within 2 ulp: `ln m = 2 artanh((m - 1) / (m + 1))`.
pub(super) fn ln_f64(y: f64) -> f64 {
    const TWO_THIRDS: u64 = 0x3fe5_5555_5555_5555;
    let bits = y.to_bits().wrapping_sub(TWO_THIRDS);
    let k = (bits as i64 >> 52) as f64;
    let m = f64::from_bits((bits & 0x000f_ffff_ffff_ffff) + TWO_THIRDS);
    let t = (m - 1.0) / (m + 1.0);
    let square = t * t;
    let mut p = 0.0f64;
    for i in (1..=12).rev() {
        p = (p + 1.0 / f64::from(2 * i + 1)) * square;
    }
    let ln_m = (2.0 * t).mul_add(p, 2.0 * t);
    k.mul_add(LN2_HIGH_F64, k.mul_add(LN2_LOW_F64, ln_m))
}
