use super::*;
use crate::{KvMut, f32_to_f16, kv_store};

#[test]
fn rows_go_to_their_positions() {
    for (tokens, heads, d) in [(1, 2, 256), (5, 3, 20), (40, 2, 128), (0, 1, 4)] {
        let (capacity, first) = (tokens + 7, 3);
        let rows = Random(d as u64).values(tokens * heads * d);
        let f32s = everywhere("kv_store f32", |pool| {
            let mut store = vec![9.0; heads * capacity * d];
            kv_store(pool, &rows, KvMut::F32(&mut store), heads, capacity, d, first);
            store
        });
        let f16s = everywhere("kv_store f16", |pool| {
            let mut store = vec![9u16; heads * capacity * d];
            kv_store(pool, &rows, KvMut::F16(&mut store), heads, capacity, d, first);
            store.iter().map(|&x| f32::from(x)).collect()
        });
        for (i, (&wide, &half)) in f32s.iter().zip(&f16s).enumerate() {
            let (head, position, column) = (i / d / capacity, i / d % capacity, i % d);
            if position < first || position >= first + tokens {
                assert_eq!((wide, half), (9.0, 9.0), "untouched");
            } else {
                let x = rows[((position - first) * heads + head) * d + column];
                assert_eq!((wide, half), (x, f32::from(f32_to_f16(x))));
            }
        }
    }
}

#[test]
#[should_panic(expected = "beyond the capacity")]
fn overflow_is_refused() {
    kv_store(&Pool::new(1), &[0.0; 8], KvMut::F32(&mut [0.0; 16]), 1, 4, 4, 3);
}
