//! Random bytes, fast and the same on every machine.
//!
//! Source: xoshiro256++ 1.0 and SplitMix64 by D. Blackman and S. Vigna (public domain, prng.di.unimi.it).

/// A stream of random numbers; not for secrets.
pub(super) struct Random {
    state: [u64; 4],
}

impl Random {
    /// The stream of piece `piece` of the tensor `name`, for one seed.
    pub(super) fn new(seed: u64, name: &str, piece: u64) -> Random {
        let mut mix = SplitMix(seed);
        let seed = mix.next() ^ fnv1a(name.as_bytes());
        let mut mix = SplitMix(seed);
        let mut mix = SplitMix(mix.next() ^ piece);
        Random { state: [mix.next(), mix.next(), mix.next(), mix.next()] }
    }

    pub(super) fn next(&mut self) -> u64 {
        let s = &mut self.state;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    pub(super) fn fill(&mut self, bytes: &mut [u8]) {
        let (words, rest) = bytes.as_chunks_mut::<8>();
        for word in words {
            *word = self.next().to_le_bytes();
        }
        let last = self.next().to_le_bytes();
        let n = rest.len();
        rest.copy_from_slice(&last[..n]);
    }
}

pub(super) struct SplitMix(pub(super) u64);

impl SplitMix {
    pub(super) const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(Self::STEP);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

fn fnv1a(bytes: &[u8]) -> u64 {
    let step = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first outputs of the authors' programs: SplitMix64 from 1234567, xoshiro256++ from the state 1, 2, 3, 4.
    #[test]
    fn known_answers() {
        let mut mix = SplitMix(1_234_567);
        assert_eq!([mix.next(), mix.next()], [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]);
        let mut random = Random { state: [1, 2, 3, 4] };
        let first = [random.next(), random.next(), random.next()];
        assert_eq!(first, [41_943_041, 58_720_359, 3_588_806_011_781_223]);
    }

    #[test]
    fn streams_are_different() {
        let first = |seed, name, piece| Random::new(seed, name, piece).next();
        let all = [first(1, "a", 0), first(2, "a", 0), first(1, "b", 0), first(1, "a", 1)];
        for (i, value) in all.iter().enumerate() {
            assert!(!all[..i].contains(value));
        }
        assert_eq!(first(1, "a", 0), all[0]);
    }
}
