//! What the tests of this crate share: random numbers, random weights, golden arrays.

use esker_quant::GgmlType;
use std::io::BufReader;

/// A small generator (xorshift64*), for reproducible cases.
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Rng {
        let mut rng = Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        rng.next();
        rng
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// 0 to `n - 1`.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        ((self.next() >> 32) as usize * n) >> 32
    }

    /// -1 to 1.
    pub(crate) fn uniform(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }

    /// About normal, by the sum of twelve.
    pub(crate) fn normal(&mut self) -> f32 {
        (0..12).map(|_| self.uniform()).sum::<f32>() * 0.5
    }
}

/// `n_rows` rows of `n_cols` weights of random bytes. Scales are any finite number (MXFP4: 2^-28 to 2^27, so that
/// products stay finite); the float types get numbers of moderate size.
pub(crate) fn random_weights(rng: &mut Rng, ty: GgmlType, n_rows: usize, n_cols: usize) -> Vec<u8> {
    let mut bytes = vec![0; ty.row_bytes(n_cols).expect("whole blocks") * n_rows];
    for block in bytes.chunks_exact_mut(ty.block_bytes()) {
        random_block(rng, ty, block);
    }
    bytes
}

fn random_block(rng: &mut Rng, ty: GgmlType, block: &mut [u8]) {
    use GgmlType::*;
    for byte in block.iter_mut() {
        *byte = rng.next() as u8;
    }
    let halves: &[usize] = match ty {
        Q4_0 | Q5_0 | Q8_0 | Q1_0 | Q2_0 | IQ4_NL => &[0],
        Q4_1 | Q5_1 | Q8_1 | Q4_K | Q5_K => &[0, 2],
        IQ2_XXS | IQ2_XS | IQ2_S | IQ3_XXS | IQ3_S | IQ1_S | IQ4_XS => &[0],
        Q2_K => &[80, 82],
        Q3_K => &[108],
        Q6_K => &[208],
        TQ1_0 => &[52],
        TQ2_0 => &[64],
        _ => &[],
    };
    for &at in halves {
        block[at + 1] &= 0xbf; // exponent below 16: finite
    }
    match ty {
        F32 => block.copy_from_slice(&rng.normal().to_le_bytes()),
        F64 => block.copy_from_slice(&f64::from(rng.normal()).to_le_bytes()),
        F16 => block[1] &= 0xbf,
        BF16 => block.copy_from_slice(&rng.normal().to_le_bytes()[2..]),
        Q8_K => block[..4].copy_from_slice(&rng.normal().to_le_bytes()),
        IQ1_M => block[55] &= 0xbf,
        MXFP4 => block[0] = 100 + block[0] % 56,
        _ => (),
    }
}

/// `tests/golden/dots.npz`: made with llama.cpp b11549 (see `tests/golden/README.md`).
pub(crate) struct Golden(npyz::npz::NpzArchive<BufReader<std::fs::File>>);

impl Golden {
    pub(crate) fn open() -> Golden {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/dots.npz");
        Golden(npyz::npz::NpzArchive::open(path).expect(path))
    }

    pub(crate) fn array<T: npyz::Deserialize>(&mut self, name: &str) -> Vec<T> {
        let array =
            self.0.by_name(name).expect("a readable archive").unwrap_or_else(|| panic!("no array {name}"));
        array.into_vec().unwrap_or_else(|e| panic!("{name}: {e}"))
    }
}
