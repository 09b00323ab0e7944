use super::*;
use crate::float::math::{exp, exp_f64, ln_f64, sigmoid, silu, softplus};
use crate::float::multiversion::{current, multiversion};
use crate::float::vector::{Vector, map};

multiversion! {
    fn exp_row = exp_body(x: &mut [f32]);
    fn sigmoid_row = sigmoid_body(x: &mut [f32]);
    fn silu_row = silu_body(x: &mut [f32]);
    fn softplus_row = softplus_body(x: &mut [f32]);
}

#[inline(always)]
fn exp_body<V: Vector>(x: &mut [f32]) {
    map::<V>(x, exp);
}

#[inline(always)]
fn sigmoid_body<V: Vector>(x: &mut [f32]) {
    map::<V>(x, sigmoid);
}

#[inline(always)]
fn silu_body<V: Vector>(x: &mut [f32]) {
    map::<V>(x, silu);
}

#[inline(always)]
fn softplus_body<V: Vector>(x: &mut [f32]) {
    map::<V>(x, softplus);
}

fn apply(what: &str, row: fn(Isa, &mut [f32]), x: &[f32]) -> Vec<f32> {
    everywhere(what, |_| {
        let mut y = x.to_vec();
        row(current(), &mut y);
        y
    })
}

/// Values of all magnitudes and signs, and a fine net where exp is not flat.
fn arguments() -> Vec<f32> {
    let all_magnitudes = (0..=u32::MAX).step_by(0x0003_1d7f).map(f32::from_bits);
    let net = (0..60_000).map(|i| -90.0 + i as f32 * 0.003_011_7);
    all_magnitudes.filter(|x| !x.is_nan()).chain(net).collect()
}

/// The distance to `expected` in units of the last place of the nearest f32.
fn ulps(actual: f32, expected: f64) -> f64 {
    let nearest = expected as f32;
    let ulp = f64::from(nearest.abs().next_up()) - f64::from(nearest.abs());
    (f64::from(actual) - expected).abs() / ulp
}

#[test]
fn exp_is_within_one_ulp() {
    let x = arguments();
    for (&x, y) in x.iter().zip(apply("exp", exp_row, &x)) {
        let expected = f64::from(x).exp();
        if expected < 2f64.powf(-125.49) {
            assert!(y == 0.0 || ulps(y, expected) <= 1.0, "exp({x}) = {y}");
        } else if expected > f64::from(f32::MAX) {
            // Just above the largest f32, the largest itself is as near as infinity.
            assert!(y == f32::INFINITY || (y == f32::MAX && expected < 3.402_824e38), "exp({x}) = {y}");
        } else {
            assert!(ulps(y, expected) <= 1.0, "exp({x}) = {y}, {} ulp off", ulps(y, expected));
        }
    }
}

#[test]
fn exp_known_answers() {
    let cases = [
        (0.0, 1.0),
        (-0.0, 1.0),
        (1.0, std::f32::consts::E),
        (-1.0, 0.367_879_44),
        (f32::MIN_POSITIVE, 1.0),
        (88.722_8, 3.402_69e38),
        (88.723, f32::INFINITY),
        (1e30, f32::INFINITY),
        (f32::INFINITY, f32::INFINITY),
        (-86.9, 1.818_9e-38),
        (-87.1, 0.0),
        (-104.0, 0.0),
        (-1e30, 0.0),
        (f32::NEG_INFINITY, 0.0),
    ];
    let x: Vec<f32> = cases.iter().map(|c| c.0).collect();
    for ((x, expected), y) in cases.into_iter().zip(apply("exp", exp_row, &x)) {
        let tolerance = if expected == 0.0 || expected == 1.0 { 0.0 } else { expected * 2e-5 };
        assert!(y == expected || (y - expected).abs() <= tolerance, "exp({x}) = {y}, not {expected}");
        assert!(y.is_sign_positive());
    }
    assert!(apply("exp", exp_row, &[f32::NAN, -f32::NAN]).iter().all(|y| y.is_nan()));
}

#[test]
fn sigmoid_and_silu_are_right_everywhere() {
    let x = arguments();
    let (s, u) = (apply("sigmoid", sigmoid_row, &x), apply("silu", silu_row, &x));
    for ((&x, s), u) in x.iter().zip(s).zip(u) {
        let exact = 1.0 / (1.0 + (-f64::from(x)).exp());
        // Where e^-x overflows the result is 0; where it is small beside 1 its error vanishes.
        let bound = exact * 6.0 * ROUNDING + 1.2e-38;
        assert!((f64::from(s) - exact).abs() <= bound, "sigmoid({x}) = {s}");
        if x == f32::NEG_INFINITY {
            assert!(u.is_nan());
        } else if x == f32::INFINITY {
            assert_eq!(u, x);
        } else {
            let exact = f64::from(x) * exact;
            assert!(
                (f64::from(u) - exact).abs() <= exact.abs() * 8.0 * ROUNDING + 1.2e-36,
                "silu({x}) = {u}"
            );
        }
    }
    assert_eq!(crate::sigmoid(0.0), 0.5);
    assert!(crate::sigmoid(f32::NAN).is_nan());
}

#[test]
fn softplus_is_right_everywhere() {
    let x = arguments();
    for (&x, y) in x.iter().zip(apply("softplus", softplus_row, &x)) {
        let exact = if x > 30.0 { f64::from(x) } else { f64::from(x).exp().ln_1p() };
        let bound = exact * 4.0 * ROUNDING + 2f64.powf(-125.5);
        assert!((f64::from(y) - exact).abs() <= bound, "softplus({x}) = {y}, not {exact}");
    }
    let edge =
        apply("softplus", softplus_row, &[20.0, 20.000_002, f32::INFINITY, f32::NEG_INFINITY, f32::NAN]);
    assert_eq!(&edge[..4], [20.0, 20.000_002, f32::INFINITY, 0.0]);
    assert!(edge[4].is_nan());
}

#[test]
fn f64_exp_and_ln_agree_with_the_platform() {
    for i in 0..20_000 {
        let x = -f64::from(i) * 0.035_3;
        let (y, expected) = (exp_f64(x), x.exp());
        assert!((y - expected).abs() <= 4.0 * f64::EPSILON * expected, "exp({x}) = {y}, not {expected}");
        let x = 1.0 + f64::from(i) * f64::from(i) * 0.013;
        let (y, expected) = (ln_f64(x), x.ln());
        assert!((y - expected).abs() <= 4.0 * f64::EPSILON * expected, "ln({x}) = {y}, not {expected}");
    }
    assert_eq!((exp_f64(0.0), exp_f64(-1e9), ln_f64(1.0)), (1.0, 0.0, 0.0));
    assert!(exp_f64(f64::NAN).is_nan());
}
