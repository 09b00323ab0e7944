//! Which tensor has which type.

use esker_quant::GgmlType;
use esker_quant::GgmlType::{F16, F32, IQ3_S, IQ4_NL, IQ4_XS, Q2_0, Q4_K, Q5_0, Q5_K, Q6_K, Q8_0};

/// A mix of types as quantized releases have it. Norms, routers, convolutions and other small tensors are F32 always, the
/// attention index F16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recipe {
    /// Experts Q4_K, down Q6_K; attention Q4_K with values Q6_K; embedding Q4_K, output Q6_K. About 4.9 bits.
    Q4K,
    /// Experts Q2_0, everything else Q8_0.
    Q2_0,
    /// Experts IQ3_S, down IQ4_NL; everything else Q5_K, embedding and tables IQ4_XS.
    Iq3,
    /// Everything Q8_0.
    Q8_0,
    /// Everything F16.
    F16,
}

/// What a tensor is to a recipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Token embedding.
    Embedding,
    /// Table of n-gram embeddings.
    Table,
    /// Output head.
    Output,
    /// A matrix of attention, delta net, mixers or shared expert.
    Dense,
    /// Those of them that quantizers give more bits: values, down projections.
    DenseFine,
    /// Gate and up of routed experts.
    ExpertIn,
    /// Down of routed experts.
    ExpertDown,
    /// Projections of the attention index.
    Index,
    /// Everything that is F32 always.
    Small,
}

impl Recipe {
    /// Every recipe with its name.
    pub const ALL: [(Recipe, &'static str); 5] = [
        (Recipe::Q4K, "q4_k"),
        (Recipe::Q2_0, "q2_0"),
        (Recipe::Iq3, "iq3"),
        (Recipe::Q8_0, "q8_0"),
        (Recipe::F16, "f16"),
    ];

    /// The recipe of this name.
    pub fn from_name(name: &str) -> Option<Recipe> {
        Self::ALL.iter().find(|(_, known)| *known == name).map(|(recipe, _)| *recipe)
    }

    /// The name, as [`Recipe::from_name`] takes it.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(recipe, _)| *recipe == self).map_or("", |(_, name)| name)
    }

    /// `general.file_type`. Source: `enum llama_ftype` of llama.cpp; the type of most bytes.
    pub(super) fn file_type(self) -> u32 {
        match self {
            Recipe::F16 => 1,
            Recipe::Q8_0 => 7,
            Recipe::Q4K => 15,
            Recipe::Iq3 => 26,
            Recipe::Q2_0 => 41,
        }
    }

    /// The type of a tensor with rows of `row` elements: the first choice whose blocks divide a row.
    pub(super) fn type_of(self, role: Role, row: u64) -> GgmlType {
        let fits = |ty: &&GgmlType| row.is_multiple_of(ty.block_elems() as u64);
        // The last choice has no blocks.
        *self.choices(role).iter().find(fits).expect("F16 and F32 fit any row")
    }

    /// In order of preference. The second choices are those of `llama-quantize`, but that down projections of experts fall
    /// back to Q5_0, about the mean of what it uses in different layers.
    fn choices(self, role: Role) -> &'static [GgmlType] {
        use Role::*;
        match (self, role) {
            (_, Small) => &[F32],
            (_, Index) | (Recipe::F16, _) => &[F16],
            (Recipe::Q8_0, _) => &[Q8_0, F16],

            (Recipe::Q4K, Embedding | Table | Dense | ExpertIn) => &[Q4_K, Q5_0, F16],
            (Recipe::Q4K, ExpertDown) => &[Q6_K, Q5_0, F16],
            (Recipe::Q4K, Output | DenseFine) => &[Q6_K, Q8_0, F16],

            (Recipe::Q2_0, ExpertIn | ExpertDown) => &[Q2_0, Q8_0, F16],
            (Recipe::Q2_0, _) => &[Q8_0, F16],

            (Recipe::Iq3, ExpertIn) => &[IQ3_S, IQ4_NL, F16],
            (Recipe::Iq3, ExpertDown) => &[IQ4_NL, F16],
            (Recipe::Iq3, Embedding | Table) => &[IQ4_XS, IQ4_NL, F16],
            (Recipe::Iq3, Output | Dense | DenseFine) => &[Q5_K, Q5_0, F16],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for (recipe, name) in Recipe::ALL {
            assert_eq!((recipe.name(), Recipe::from_name(name)), (name, Some(recipe)));
        }
        assert_eq!(Recipe::from_name("q5"), None);
    }

    #[test]
    fn rows_that_do_not_fit_fall_back() {
        let of = |recipe: Recipe, role, row| recipe.type_of(role, row);
        assert_eq!(of(Recipe::Q4K, Role::ExpertDown, 768), Q6_K);
        assert_eq!(of(Recipe::Q4K, Role::ExpertDown, 640), Q5_0);
        assert_eq!(of(Recipe::Q4K, Role::DenseFine, 640), Q8_0);
        assert_eq!(of(Recipe::Q2_0, Role::ExpertDown, 640), Q2_0);
        assert_eq!(of(Recipe::Q2_0, Role::ExpertDown, 96), Q8_0);
        assert_eq!(of(Recipe::Iq3, Role::Table, 160), IQ4_NL);
        assert_eq!(of(Recipe::Iq3, Role::Dense, 320), Q5_0);
        assert_eq!(of(Recipe::Q8_0, Role::Dense, 7), F16);
        assert_eq!(of(Recipe::F16, Role::Small, 7), F32);
    }
}
