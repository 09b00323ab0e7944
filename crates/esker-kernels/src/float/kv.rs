//! The stored type of keys and values, and writing rows into it.

use super::multiversion::{current, multiversion};
use super::norm::check_rows;
use super::split::GRAIN_MOVE;
use super::vector::Vector;
use crate::Pool;
use crate::disjoint::Disjoint;
use crate::lanes::LANES;

/// One layer's K or V (or indexer keys) to read, in the type they are stored in. Half precision is widened exactly.
#[derive(Clone, Copy, Debug)]
pub enum Kv<'a> {
    /// Stored as computed.
    F32(&'a [f32]),
    /// IEEE half-precision bits.
    F16(&'a [u16]),
}

/// One layer's K or V to write.
#[derive(Debug)]
pub enum KvMut<'a> {
    /// Stored as computed.
    F32(&'a mut [f32]),
    /// IEEE half-precision bits, rounded to nearest even.
    F16(&'a mut [u16]),
}

impl Kv<'_> {
    /// How many values are stored.
    pub fn len(&self) -> usize {
        match self {
            Kv::F32(x) => x.len(),
            Kv::F16(x) => x.len(),
        }
    }

    /// Whether nothing is stored.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl KvMut<'_> {
    /// How many values are stored.
    pub fn len(&self) -> usize {
        match self {
            KvMut::F32(x) => x.len(),
            KvMut::F16(x) => x.len(),
        }
    }

    /// Whether nothing is stored.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Writes the rows of new tokens: token `t`, head `h` goes to `dst[h, first_position + t, :]`.
///
/// `rows`: `[T, n_kv_head, d]`; `dst`: `[n_kv_head, capacity, d]`.
///
/// # Panics
/// If a length does not fit or the tokens do not fit into the capacity.
pub fn kv_store(
    pool: &Pool,
    rows: &[f32],
    mut dst: KvMut<'_>,
    n_kv_head: usize,
    capacity: usize,
    d: usize,
    first_position: usize,
) {
    check_rows(rows.len(), n_kv_head * d);
    assert_eq!(dst.len(), n_kv_head * capacity * d, "the store has one row for each head and position");
    let n_tokens = rows.len() / (n_kv_head * d);
    assert!(
        n_tokens <= capacity && first_position <= capacity - n_tokens,
        "positions {first_position}..{} are beyond the capacity of {capacity}",
        first_position + n_tokens
    );
    let isa = current();
    let grain = (GRAIN_MOVE / d).max(1);
    let place = |row: usize| {
        let (t, h) = (row / n_kv_head, row % n_kv_head);
        let start = (h * capacity + first_position + t) * d;
        start..start + d
    };
    match &mut dst {
        KvMut::F32(dst) => {
            let dst = Disjoint::new(dst);
            pool.run(n_tokens * n_kv_head, grain, &|range| {
                for row in range {
                    // SAFETY: each row is in one range of the pool and has its own place.
                    unsafe { dst.part(place(row)) }.copy_from_slice(&rows[row * d..][..d]);
                }
            });
        }
        KvMut::F16(dst) => {
            let dst = Disjoint::new(dst);
            pool.run(n_tokens * n_kv_head, grain, &|range| {
                for row in range {
                    // SAFETY: each row is in one range of the pool and has its own place.
                    narrow(isa, &rows[row * d..][..d], unsafe { dst.part(place(row)) });
                }
            });
        }
    }
}

multiversion! {
    fn narrow = narrow_body(x: &[f32], out: &mut [u16]);
}

#[inline(always)]
fn narrow_body<V: Vector>(x: &[f32], out: &mut [u16]) {
    let (x16, x_tail) = x.as_chunks::<LANES>();
    let (out16, out_tail) = out.as_chunks_mut::<LANES>();
    for (x, out) in x16.iter().zip(out16) {
        V::load(x).store_f16(out);
    }
    if !x_tail.is_empty() {
        V::load_part(x_tail).store_f16_part(out_tail);
    }
}

/// A stored element; the bodies that read K and V are generic over it.
pub(super) trait Element: Copy {
    fn load<V: Vector>(x: &[Self; LANES]) -> V;
    fn load_part<V: Vector>(x: &[Self]) -> V;
}

impl Element for f32 {
    #[inline(always)]
    fn load<V: Vector>(x: &[f32; LANES]) -> V {
        V::load(x)
    }

    #[inline(always)]
    fn load_part<V: Vector>(x: &[f32]) -> V {
        V::load_part(x)
    }
}

impl Element for u16 {
    #[inline(always)]
    fn load<V: Vector>(x: &[u16; LANES]) -> V {
        V::load_f16(x)
    }

    #[inline(always)]
    fn load_part<V: Vector>(x: &[u16]) -> V {
        V::load_f16_part(x)
    }
}
