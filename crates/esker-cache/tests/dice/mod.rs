//! Dice that fall the same way for a seed, everywhere and always.
#![allow(dead_code, reason = "each test uses a part of it")]

/// SplitMix64: the same numbers for a seed in every version of every library.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Below `n`, which is at least 1.
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(n)) >> 64) as u64
    }

    /// In `[0, 1)`.
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        if from.is_empty() { None } else { Some(&from[self.below(from.len() as u64) as usize]) }
    }
}

/// `n` distinct numbers below `n_expert`, low ones more often than high ones.
pub fn distinct(rng: &mut Rng, n_expert: u16, n: usize) -> Vec<u16> {
    let mut left: Vec<u16> = (0..n_expert).collect();
    let mut chosen = Vec::new();
    while chosen.len() < n && !left.is_empty() {
        let len = left.len() as u64;
        let index = rng.below(len).min(rng.below(len));
        chosen.push(left.remove(index as usize));
    }
    chosen
}
