//! The type table: id, name, block size of every ggml tensor type.
//!
//! Source: `ggml.h` (`enum ggml_type`) and `ggml-common.h` of llama.cpp, ids 0..=42. Ids of removed types are
//! named in [`UnknownType`], so that an old file gets an error that says what it holds.

use std::fmt;

/// A tensor element type of the GGUF format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(non_camel_case_types, missing_docs)]
#[repr(u32)]
pub enum GgmlType {
    F32 = 0,
    F16 = 1,
    Q4_0 = 2,
    Q4_1 = 3,
    Q5_0 = 6,
    Q5_1 = 7,
    Q8_0 = 8,
    Q8_1 = 9,
    Q2_K = 10,
    Q3_K = 11,
    Q4_K = 12,
    Q5_K = 13,
    Q6_K = 14,
    Q8_K = 15,
    IQ2_XXS = 16,
    IQ2_XS = 17,
    IQ3_XXS = 18,
    IQ1_S = 19,
    IQ4_NL = 20,
    IQ3_S = 21,
    IQ2_S = 22,
    IQ4_XS = 23,
    I8 = 24,
    I16 = 25,
    I32 = 26,
    I64 = 27,
    F64 = 28,
    IQ1_M = 29,
    BF16 = 30,
    TQ1_0 = 34,
    TQ2_0 = 35,
    MXFP4 = 39,
    NVFP4 = 40,
    Q1_0 = 41,
    Q2_0 = 42,
}

/// A type id that names no type known here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub struct UnknownType {
    /// The id as found in the file.
    pub id: u32,
}

impl fmt::Display for UnknownType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let removed = match self.id {
            4 | 5 => Some("Q4_2/Q4_3, removed from the format in 2023"),
            31..=33 => Some("a Q4_0 interleaving, removed: convert the file to Q4_0"),
            36..=38 => Some("an IQ4_NL interleaving, removed: convert the file to IQ4_NL"),
            142 | 143 => Some("PQ2_0/PTQ1_0, types of a fork"),
            _ => None,
        };
        match removed {
            Some(what) => write!(f, "tensor type id {} is {what}", self.id),
            None => write!(f, "tensor type id {} is unknown (known: 0 to 42)", self.id),
        }
    }
}

/// One row per type: type, name as other tools print it, elements per block, bytes per block.
const TABLE: &[(GgmlType, &str, usize, usize)] = {
    use GgmlType::*;
    &[
        (F32, "F32", 1, 4),
        (F16, "F16", 1, 2),
        (Q4_0, "Q4_0", 32, 18),
        (Q4_1, "Q4_1", 32, 20),
        (Q5_0, "Q5_0", 32, 22),
        (Q5_1, "Q5_1", 32, 24),
        (Q8_0, "Q8_0", 32, 34),
        (Q8_1, "Q8_1", 32, 36),
        (Q2_K, "Q2_K", 256, 84),
        (Q3_K, "Q3_K", 256, 110),
        (Q4_K, "Q4_K", 256, 144),
        (Q5_K, "Q5_K", 256, 176),
        (Q6_K, "Q6_K", 256, 210),
        (Q8_K, "Q8_K", 256, 292),
        (IQ2_XXS, "IQ2_XXS", 256, 66),
        (IQ2_XS, "IQ2_XS", 256, 74),
        (IQ3_XXS, "IQ3_XXS", 256, 98),
        (IQ1_S, "IQ1_S", 256, 50),
        (IQ4_NL, "IQ4_NL", 32, 18),
        (IQ3_S, "IQ3_S", 256, 110),
        (IQ2_S, "IQ2_S", 256, 82),
        (IQ4_XS, "IQ4_XS", 256, 136),
        (I8, "I8", 1, 1),
        (I16, "I16", 1, 2),
        (I32, "I32", 1, 4),
        (I64, "I64", 1, 8),
        (F64, "F64", 1, 8),
        (IQ1_M, "IQ1_M", 256, 56),
        (BF16, "BF16", 1, 2),
        (TQ1_0, "TQ1_0", 256, 54),
        (TQ2_0, "TQ2_0", 256, 66),
        (MXFP4, "MXFP4", 32, 17),
        (NVFP4, "NVFP4", 64, 36),
        (Q1_0, "Q1_0", 128, 18),
        (Q2_0, "Q2_0", 64, 18),
    ]
};

impl GgmlType {
    /// Every type, in id order.
    pub fn all() -> impl Iterator<Item = GgmlType> {
        TABLE.iter().map(|row| row.0)
    }

    fn row(self) -> &'static (GgmlType, &'static str, usize, usize) {
        TABLE.iter().find(|row| row.0 == self).expect("every variant has a row")
    }

    /// The type with this id in the file.
    pub fn from_id(id: u32) -> Result<GgmlType, UnknownType> {
        TABLE.iter().map(|row| row.0).find(|ty| ty.id() == id).ok_or(UnknownType { id })
    }

    /// The type with this name, in any case (`q4_k`, `Q4_K`).
    pub fn from_name(name: &str) -> Option<GgmlType> {
        TABLE.iter().find(|row| row.1.eq_ignore_ascii_case(name)).map(|row| row.0)
    }

    /// The id in the file.
    pub fn id(self) -> u32 {
        self as u32
    }

    /// The name, as other tools print it.
    pub fn name(self) -> &'static str {
        self.row().1
    }

    /// Elements per block; a row's length must be a multiple of it.
    pub fn block_elems(self) -> usize {
        self.row().2
    }

    /// Bytes per block.
    pub fn block_bytes(self) -> usize {
        self.row().3
    }

    /// Bytes of a row of `elems` elements; `None` if it is no whole number of blocks, or overflows.
    pub fn row_bytes(self, elems: usize) -> Option<usize> {
        if !elems.is_multiple_of(self.block_elems()) {
            return None;
        }
        (elems / self.block_elems()).checked_mul(self.block_bytes())
    }

    /// File bits per weight, scales included.
    pub fn bits_per_weight(self) -> f64 {
        self.block_bytes() as f64 * 8.0 / self.block_elems() as f64
    }
}

impl fmt::Display for GgmlType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_round_trip_and_are_unique() {
        let ids: Vec<u32> = GgmlType::all().map(GgmlType::id).collect();
        assert!(ids.is_sorted_by(|a, b| a < b), "{ids:?}");
        for ty in GgmlType::all() {
            assert_eq!(GgmlType::from_id(ty.id()), Ok(ty));
            assert_eq!(GgmlType::from_name(&ty.name().to_lowercase()), Some(ty));
        }
    }

    #[test]
    fn removed_ids_say_what_they_were() {
        assert!(UnknownType { id: 31 }.to_string().contains("Q4_0"));
        assert!(UnknownType { id: 99 }.to_string().contains("unknown"));
        assert_eq!(GgmlType::from_id(43), Err(UnknownType { id: 43 }));
    }

    #[test]
    fn rows_are_whole_blocks() {
        assert_eq!(GgmlType::Q2_0.row_bytes(128), Some(36));
        assert_eq!(GgmlType::Q4_K.row_bytes(128), None);
        assert_eq!(GgmlType::F64.row_bytes(usize::MAX), None);
    }
}
