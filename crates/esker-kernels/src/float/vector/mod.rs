//! Sixteen f32 lanes, the unit that every float operation is written in.
//!
//! One trait because one body serves a plain array (the definition of every operation here), AVX2, AVX-512 and
//! NEON. Each operation is exactly rounded and lane by lane, or a fixed tree, so all implementations give the same
//! bits; `tests` compares them.
//!
//! Rule for the implementations on intrinsics: their values are made and used only inside functions instantiated by
//! `multiversion!`, which checked the features. All methods are `#[inline(always)]` and end up in such a function.

mod array;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(test)]
mod tests;

pub(super) use array::Array;
#[cfg(target_arch = "x86_64")]
pub(super) use avx2::Avx2;
#[cfg(target_arch = "x86_64")]
pub(super) use avx512::Avx512;
#[cfg(target_arch = "aarch64")]
pub(super) use neon::Neon;

use super::kv::Element;
use crate::lanes::LANES;

/// Sixteen f32 values.
pub(super) trait Vector: Copy {
    /// Whether the registers hold sixteen accumulators of a tile of sums, or only four; a tile's shape changes the
    /// speed, not the order of any sum.
    const WIDE_TILES: bool;

    fn splat(x: f32) -> Self;
    fn load(x: &[f32; LANES]) -> Self;
    fn store(self, out: &mut [f32; LANES]);
    /// Exact conversion of IEEE half-precision bits.
    fn load_f16(x: &[u16; LANES]) -> Self;
    /// Round to nearest, ties to even, to IEEE half precision.
    fn store_f16(self, out: &mut [u16; LANES]);

    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    fn div(self, other: Self) -> Self;
    /// `self * b + c`, rounded once.
    fn mul_add(self, b: Self, c: Self) -> Self;
    /// `if self > other { self } else { other }`: `other` where either is NaN.
    fn max(self, other: Self) -> Self;
    /// `if self < other { self } else { other }`: `other` where either is NaN.
    fn min(self, other: Self) -> Self;
    /// The bits of each lane, shifted left by 23 (out of the mantissa, into the exponent), plus `bias`.
    fn shift_into_exponent(self, bias: u32) -> Self;
    /// Lanes of a canonical sum, added in its tree ([`hsum16`](crate::lanes::hsum16)).
    fn hsum(self) -> f32;

    #[inline(always)]
    fn zero() -> Self {
        Self::splat(0.0)
    }

    /// [`hsum`](Self::hsum) of each vector.
    #[inline(always)]
    fn hsum_each<const N: usize>(v: &[Self; N]) -> [f32; N] {
        let mut sums = [0.0; N];
        for i in 0..N {
            sums[i] = v[i].hsum();
        }
        sums
    }

    #[inline(always)]
    fn first(self) -> f32 {
        self.to_array()[0]
    }

    #[inline(always)]
    fn to_array(self) -> [f32; LANES] {
        let mut out = [0.0; LANES];
        self.store(&mut out);
        out
    }

    /// The largest lane (the order cannot matter); NaN lanes are passed over unless all are NaN.
    #[inline(always)]
    fn hmax(self) -> f32 {
        let l = self.to_array();
        let mut best = f32::NEG_INFINITY;
        for x in l {
            best = if x > best { x } else { best };
        }
        best
    }

    /// `x`, filled up with zeros. At most 16 elements.
    #[inline(always)]
    fn load_part(x: &[f32]) -> Self {
        Self::load_part_or(x, 0.0)
    }

    /// `x`, filled up with `rest`. At most 16 elements.
    #[inline(always)]
    fn load_part_or(x: &[f32], rest: f32) -> Self {
        match x.try_into() {
            Ok(full) => Self::load(full),
            Err(_) => Self::load(&filled(x, rest)),
        }
    }

    /// The first `out.len()` lanes; at most 16.
    #[inline(always)]
    fn store_part(self, out: &mut [f32]) {
        match out.try_into() {
            Ok(full) => self.store(full),
            Err(_) => copy_first(&self.to_array(), out),
        }
    }

    /// As [`load_part`](Self::load_part), from half precision.
    #[inline(always)]
    fn load_f16_part(x: &[u16]) -> Self {
        match x.try_into() {
            Ok(full) => Self::load_f16(full),
            Err(_) => Self::load_f16(&filled(x, 0)),
        }
    }

    /// As [`store_part`](Self::store_part), to half precision.
    #[inline(always)]
    fn store_f16_part(self, out: &mut [u16]) {
        match out.try_into() {
            Ok(full) => self.store_f16(full),
            Err(_) => {
                let mut all = [0; LANES];
                self.store_f16(&mut all);
                copy_first(&all, out);
            }
        }
    }
}

// Only the end of a ragged row comes here: out of line, the loops around stay small.
#[cold]
#[inline(never)]
fn filled<T: Copy>(x: &[T], rest: T) -> [T; LANES] {
    let mut full = [rest; LANES];
    full[..x.len()].copy_from_slice(x);
    full
}

#[cold]
#[inline(never)]
fn copy_first<T: Copy>(all: &[T; LANES], out: &mut [T]) {
    out.copy_from_slice(&all[..out.len()]);
}

/// Canonical dot product ([`crate::lanes::dot`]).
#[inline(always)]
pub(super) fn dot<V: Vector>(a: &[f32], b: &[f32]) -> f32 {
    let (a16, a_tail) = a.as_chunks::<LANES>();
    let (b16, b_tail) = b.as_chunks::<LANES>();
    let mut acc = V::zero();
    for (a, b) in a16.iter().zip(b16) {
        acc = V::load(a).mul_add(V::load(b), acc);
    }
    if !a_tail.is_empty() {
        acc = V::load_part(a_tail).mul_add(V::load_part(b_tail), acc);
    }
    acc.hsum()
}

// In the three loops below `f` is called at one place only, ragged ends included. A closure cannot be marked
// `#[inline(always)]`; one that is called once is inlined, and must be, to be compiled with the right features.

/// `y[i] = f(y[i])`, sixteen at a time.
#[inline(always)]
pub(super) fn map<V: Vector>(y: &mut [f32], f: impl Fn(V) -> V) {
    for y in y.chunks_mut(LANES) {
        f(V::load_part(y)).store_part(y);
    }
}

/// `y[i] = f(y[i], x[i])`, sixteen at a time.
#[inline(always)]
pub(super) fn zip_map<V: Vector>(y: &mut [f32], x: &[f32], f: impl Fn(V, V) -> V) {
    debug_assert_eq!(y.len(), x.len());
    for (y, x) in y.chunks_mut(LANES).zip(x.chunks(LANES)) {
        f(V::load_part(y), V::load_part(x)).store_part(y);
    }
}

/// `out[i] = f(a[i], b[i])`, sixteen at a time.
#[inline(always)]
pub(super) fn map_two<V: Vector>(out: &mut [f32], a: &[f32], b: &[f32], f: impl Fn(V, V) -> V) {
    debug_assert!(out.len() == a.len() && a.len() == b.len());
    for ((out, a), b) in out.chunks_mut(LANES).zip(a.chunks(LANES)).zip(b.chunks(LANES)) {
        f(V::load_part(a), V::load_part(b)).store_part(out);
    }
}

/// Canonical dot products of `H` rows of f32 with `P` rows of stored elements, all of one length, sharing the loads:
/// `[h * P + p]` is row `h` times row `p`; `N = H * P`.
#[inline(always)]
pub(super) fn dot_tile<V: Vector, E: Element, const H: usize, const P: usize, const N: usize>(
    a: [&[f32]; H],
    b: [&[E]; P],
) -> [f32; N] {
    let n = a[0].len();
    let whole = n / LANES;
    // Plain loops: array::map and from_fn are not always inlined.
    let mut a16: [&[[f32; LANES]]; H] = [&[]; H];
    for h in 0..H {
        a16[h] = &a[h].as_chunks().0[..whole];
    }
    let mut b16: [&[[E; LANES]]; P] = [&[]; P];
    for p in 0..P {
        b16[p] = &b[p].as_chunks().0[..whole];
    }
    let mut sums = [V::zero(); N];
    for i in 0..whole {
        let mut row = [V::zero(); P];
        for p in 0..P {
            row[p] = E::load(&b16[p][i]);
        }
        for h in 0..H {
            let a = V::load(&a16[h][i]);
            for p in 0..P {
                sums[h * P + p] = a.mul_add(row[p], sums[h * P + p]);
            }
        }
    }
    if !n.is_multiple_of(LANES) {
        for h in 0..H {
            let a = V::load_part(&a[h][whole * LANES..n]);
            for p in 0..P {
                let b = E::load_part(&b[p][whole * LANES..n]);
                sums[h * P + p] = a.mul_add(b, sums[h * P + p]);
            }
        }
    }
    V::hsum_each(&sums)
}
