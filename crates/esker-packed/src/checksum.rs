//! The checksum of an expert.

use std::hash::Hasher;
use twox_hash::xxhash3_64::{DEFAULT_SECRET_LENGTH, RawHasher, SecretBuffer};

/// XXH3-64 with seed 0 over the parts of one expert, in order, without the padding between them.
///
/// It is there to notice damage of a disk or a copy, not a forger. Memory: some hundred bytes, none of them allocated, since
/// experts are checked while a model runs; cost: far below that of reading the bytes.
#[derive(Clone)]
pub struct ExpertHasher(RawHasher<&'static [u8; DEFAULT_SECRET_LENGTH]>);

impl Default for ExpertHasher {
    fn default() -> ExpertHasher {
        ExpertHasher::new()
    }
}

impl ExpertHasher {
    /// Of no bytes yet.
    pub fn new() -> ExpertHasher {
        ExpertHasher(RawHasher::new(SecretBuffer::default()))
    }

    /// Appends bytes; how they are cut into pieces makes no difference.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }

    /// The checksum of all bytes so far.
    pub fn finish(&self) -> u64 {
        self.0.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first two values are those of `XXH3_64bits` for an empty input and for `abc` in the reference implementation.
    #[test]
    fn known_answers_and_pieces() {
        let of = |pieces: &[&[u8]]| {
            let mut hasher = ExpertHasher::new();
            pieces.iter().for_each(|p| hasher.update(p));
            hasher.finish()
        };
        assert_eq!(of(&[]), 0x2d06_8005_38d3_94c2);
        assert_eq!(of(&[b"abc"]), 0x78af_5f94_892f_3950);
        let bytes: Vec<u8> = (0..5000u32).map(|i| (i * 7) as u8).collect();
        for cut in [1, 63, 64, 255, 256, 257, 1024, 4999] {
            assert_eq!(of(&[&bytes[..cut], &bytes[cut..]]), of(&[&bytes]), "cut at {cut}");
        }
    }
}
