//! Sizes of real models, from their published configurations.

/// Which architecture a file is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// `qwen3moe`
    Qwen3Moe,
    /// `qwen3next`
    Qwen3Next,
    /// `qwen4exp`
    Qwen4Exp,
}

impl Family {
    /// `general.architecture`, and the prefix of the model's keys.
    pub fn architecture(self) -> &'static str {
        match self {
            Family::Qwen3Moe => "qwen3moe",
            Family::Qwen3Next => "qwen3next",
            Family::Qwen4Exp => "qwen4exp",
        }
    }
}

/// All sizes of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Geometry {
    /// What it is called here.
    pub name: &'static str,
    /// Architecture.
    pub family: Family,
    /// Layers. Where there are delta-net layers, every fourth layer is full attention.
    pub n_layer: u32,
    /// Width of the residual stream.
    pub n_embd: u64,
    /// Positions that the model was trained for.
    pub n_ctx: u32,
    /// Width of a dense feed-forward, which no layer has but the metadata names; 0 for no key.
    pub n_ff_dense: u32,
    /// Full attention.
    pub attention: AttentionGeometry,
    /// Routed experts.
    pub experts: ExpertGeometry,
    /// Delta-net layers.
    pub delta: Option<DeltaGeometry>,
    /// Residual of several streams.
    pub hyper: Option<HyperGeometry>,
    /// Block index of sparse attention.
    pub index: Option<IndexGeometry>,
    /// Hashed n-gram embedding; its rows are an option.
    pub ngram: Option<NgramGeometry>,
    /// Vocabulary.
    pub vocabulary: VocabularyGeometry,
}

/// Heads of the full-attention layers.
#[derive(Clone, Debug, PartialEq)]
pub struct AttentionGeometry {
    /// Query heads.
    pub n_head: u64,
    /// Key and value heads.
    pub n_head_kv: u64,
    /// Width of a head.
    pub head_dim: u64,
    /// Rotated dimensions of a head.
    pub n_rot: u64,
    /// Base of the rotary frequencies.
    pub rope_theta: f32,
    /// M-RoPE sections; they sum to `n_rot / 2`. `None` for a model without.
    pub rope_sections: Option<[i32; 4]>,
}

/// Routed experts, and the shared one.
#[derive(Clone, Debug, PartialEq)]
pub struct ExpertGeometry {
    /// Experts of a layer.
    pub n_expert: u64,
    /// Experts of a token.
    pub n_expert_used: u32,
    /// Width of an expert's hidden layer.
    pub n_ff: u64,
    /// The same of the shared expert; 0 for none.
    pub n_ff_shared: u64,
}

/// Gated delta-net layers.
#[derive(Clone, Debug, PartialEq)]
pub struct DeltaGeometry {
    /// Key heads.
    pub n_k: u64,
    /// Value heads.
    pub n_v: u64,
    /// Width of a head.
    pub d: u64,
    /// Taps of the short convolution.
    pub taps: u64,
}

/// Hyper-connections.
#[derive(Clone, Debug, PartialEq)]
pub struct HyperGeometry {
    /// Streams.
    pub n_streams: u64,
    /// Rank of the gate.
    pub low_rank: u64,
}

/// The index that selects what full attention sees.
#[derive(Clone, Debug, PartialEq)]
pub struct IndexGeometry {
    /// Heads.
    pub n_head: u64,
    /// Width of a head.
    pub head_dim: u64,
    /// Tokens selected.
    pub top_k: u32,
    /// Tokens per block.
    pub ratio: i32,
}

/// The hashed n-gram embedding.
#[derive(Clone, Debug, PartialEq)]
pub struct NgramGeometry {
    /// Its layer.
    pub layer: u32,
    /// Longest n-gram.
    pub ngram_size: u32,
    /// Heads of each n-gram length.
    pub heads_per_ngram: u32,
    /// Taps of the convolution over time.
    pub taps: u64,
}

impl NgramGeometry {
    /// Heads, each with its part of the table; a token's row of each makes up one embedding.
    pub fn n_heads(&self) -> u64 {
        u64::from(self.ngram_size.saturating_sub(1)) * u64::from(self.heads_per_ngram)
    }
}

/// The vocabulary.
#[derive(Clone, Debug, PartialEq)]
pub struct VocabularyGeometry {
    /// Tokens.
    pub n_vocab: u64,
    /// Id of `<|endoftext|>`; `<|im_start|>` and `<|im_end|>` follow it.
    pub end_of_text: u64,
    /// `tokenizer.ggml.pre`
    pub pre: &'static str,
}

impl Geometry {
    /// The names that [`Geometry::named`] knows, large models first.
    pub const NAMES: [&'static str; 6] = [
        "qwen3-30b-a3b",
        "qwen3-next-80b",
        "qwen3.8-flash-next",
        "tiny-qwen3moe",
        "tiny-qwen3next",
        "tiny-qwen4exp",
    ];

    /// The geometry of this name: a released model, or a tiny one of the same architecture for tests.
    pub fn named(name: &str) -> Option<Geometry> {
        Some(match name {
            "qwen3-30b-a3b" => qwen3_30b_a3b(),
            "qwen3-next-80b" => qwen3_next_80b(),
            "qwen3.8-flash-next" => qwen3_8_flash_next(),
            "tiny-qwen3moe" => tiny_qwen3moe(),
            "tiny-qwen3next" => tiny_qwen3next(),
            "tiny-qwen4exp" => tiny_qwen4exp(),
            _ => return None,
        })
    }

    /// True for a delta-net layer: three of four, the fourth attends.
    pub fn is_recurrent(&self, layer: u32) -> bool {
        self.delta.is_some() && !(layer + 1).is_multiple_of(4)
    }
}

/// Source: `Qwen/Qwen3-30B-A3B`, `config.json`.
fn qwen3_30b_a3b() -> Geometry {
    Geometry {
        name: "qwen3-30b-a3b",
        family: Family::Qwen3Moe,
        n_layer: 48,
        n_embd: 2048,
        n_ctx: 40_960,
        n_ff_dense: 6144,
        attention: AttentionGeometry {
            n_head: 32,
            n_head_kv: 4,
            head_dim: 128,
            n_rot: 128,
            rope_theta: 1e6,
            rope_sections: None,
        },
        experts: ExpertGeometry { n_expert: 128, n_expert_used: 8, n_ff: 768, n_ff_shared: 0 },
        delta: None,
        hyper: None,
        index: None,
        ngram: None,
        vocabulary: VocabularyGeometry { n_vocab: 151_936, end_of_text: 151_643, pre: "qwen2" },
    }
}

/// Source: `Qwen/Qwen3-Next-80B-A3B-Instruct`, `config.json`.
fn qwen3_next_80b() -> Geometry {
    Geometry {
        name: "qwen3-next-80b",
        family: Family::Qwen3Next,
        n_layer: 48,
        n_embd: 2048,
        n_ctx: 262_144,
        n_ff_dense: 5120,
        attention: AttentionGeometry {
            n_head: 16,
            n_head_kv: 2,
            head_dim: 256,
            n_rot: 64,
            rope_theta: 1e7,
            rope_sections: None,
        },
        experts: ExpertGeometry { n_expert: 512, n_expert_used: 10, n_ff: 512, n_ff_shared: 512 },
        delta: Some(DeltaGeometry { n_k: 16, n_v: 32, d: 128, taps: 4 }),
        hyper: None,
        index: None,
        ngram: None,
        vocabulary: VocabularyGeometry { n_vocab: 151_936, end_of_text: 151_643, pre: "qwen2" },
    }
}

/// Source: `Qwen/Qwen3.8-Flash-Next`, `config.json`; without the draft block, as trunk files are published.
fn qwen3_8_flash_next() -> Geometry {
    Geometry {
        name: "qwen3.8-flash-next",
        family: Family::Qwen4Exp,
        n_layer: 48,
        n_embd: 2560,
        n_ctx: 262_144,
        n_ff_dense: 0,
        attention: AttentionGeometry {
            n_head: 24,
            n_head_kv: 2,
            head_dim: 256,
            n_rot: 64,
            rope_theta: 1e7,
            rope_sections: Some([11, 11, 10, 0]),
        },
        experts: ExpertGeometry { n_expert: 512, n_expert_used: 10, n_ff: 640, n_ff_shared: 640 },
        delta: Some(DeltaGeometry { n_k: 16, n_v: 48, d: 128, taps: 4 }),
        hyper: Some(HyperGeometry { n_streams: 4, low_rank: 320 }),
        index: Some(IndexGeometry { n_head: 4, head_dim: 128, top_k: 2048, ratio: 4 }),
        ngram: Some(NgramGeometry { layer: 1, ngram_size: 3, heads_per_ngram: 8, taps: 4 }),
        vocabulary: VocabularyGeometry { n_vocab: 248_320, end_of_text: 248_044, pre: "qwen35" },
    }
}

/// Rows of 256 everywhere, so that every type fits.
fn tiny_qwen3moe() -> Geometry {
    Geometry {
        name: "tiny-qwen3moe",
        n_layer: 4,
        n_embd: 256,
        n_ctx: 2048,
        n_ff_dense: 256,
        attention: AttentionGeometry {
            n_head: 4,
            n_head_kv: 2,
            head_dim: 64,
            n_rot: 64,
            ..qwen3_30b_a3b().attention
        },
        experts: ExpertGeometry { n_expert: 8, n_expert_used: 2, n_ff: 256, n_ff_shared: 0 },
        vocabulary: tiny_vocabulary("qwen2"),
        ..qwen3_30b_a3b()
    }
}

/// Experts of 64 rows: a row of the down projection is one block of Q2_0 and no block of a K type.
fn tiny_qwen3next() -> Geometry {
    Geometry {
        name: "tiny-qwen3next",
        n_layer: 4,
        n_embd: 256,
        n_ctx: 2048,
        n_ff_dense: 256,
        attention: AttentionGeometry {
            n_head: 4,
            n_head_kv: 2,
            head_dim: 64,
            n_rot: 16,
            ..qwen3_next_80b().attention
        },
        experts: ExpertGeometry { n_expert: 16, n_expert_used: 4, n_ff: 64, n_ff_shared: 64 },
        delta: Some(DeltaGeometry { n_k: 2, n_v: 4, d: 64, taps: 4 }),
        vocabulary: tiny_vocabulary("qwen2"),
        ..qwen3_next_80b()
    }
}

/// Experts of 96 rows: only blocks of 32 fit.
fn tiny_qwen4exp() -> Geometry {
    Geometry {
        name: "tiny-qwen4exp",
        n_layer: 4,
        n_embd: 256,
        n_ctx: 2048,
        attention: AttentionGeometry {
            n_head: 4,
            n_head_kv: 2,
            head_dim: 64,
            n_rot: 16,
            rope_sections: Some([3, 3, 2, 0]),
            ..qwen3_8_flash_next().attention
        },
        experts: ExpertGeometry { n_expert: 16, n_expert_used: 4, n_ff: 96, n_ff_shared: 96 },
        delta: Some(DeltaGeometry { n_k: 2, n_v: 6, d: 64, taps: 4 }),
        hyper: Some(HyperGeometry { n_streams: 4, low_rank: 32 }),
        index: Some(IndexGeometry { n_head: 4, head_dim: 32, top_k: 32, ratio: 4 }),
        ngram: Some(NgramGeometry { layer: 1, ngram_size: 3, heads_per_ngram: 4, taps: 4 }),
        vocabulary: tiny_vocabulary("qwen35"),
        ..qwen3_8_flash_next()
    }
}

fn tiny_vocabulary(pre: &'static str) -> VocabularyGeometry {
    VocabularyGeometry { n_vocab: 512, end_of_text: 500, pre }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_geometries() {
        for name in Geometry::NAMES {
            assert_eq!(Geometry::named(name).unwrap().name, name);
        }
        assert_eq!(Geometry::named("qwen4"), None);
    }

    #[test]
    fn every_fourth_layer_attends() {
        let hybrid = Geometry::named("qwen3-next-80b").unwrap();
        let attends: Vec<u32> = (0..12).filter(|&il| !hybrid.is_recurrent(il)).collect();
        assert_eq!(attends, [3, 7, 11]);
        let dense = Geometry::named("qwen3-30b-a3b").unwrap();
        assert!((0..48).all(|il| !dense.is_recurrent(il)));
    }
}
