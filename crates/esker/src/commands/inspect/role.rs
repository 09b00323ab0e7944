//! What a tensor is for, from its name.
//!
//! Names are those of GGUF files (`ffn_gate_exps`, ...), for any architecture: this also serves files that
//! cannot be run.

use esker_gguf::TensorInfo;
use serde::Serialize;

/// A part of a layer, or of what is outside of layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Attention, delta net or another mixer of tokens, its norms included.
    Mixer,
    Router,
    /// Routed experts, biases and scales included.
    Experts,
    Shared,
    /// The feed-forward of a dense layer.
    Ffn,
    /// Norms and the like.
    Other,
    /// Token embeddings.
    Embedding,
    Output,
    /// Tables of further embeddings, by token or n-gram.
    Table,
}

impl Role {
    /// Parts of a layer, in the order of the columns.
    pub const OF_LAYER: [Role; 6] =
        [Role::Mixer, Role::Router, Role::Experts, Role::Shared, Role::Ffn, Role::Other];

    pub fn name(self) -> &'static str {
        match self {
            Role::Mixer => "mixer",
            Role::Router => "router",
            Role::Experts => "experts",
            Role::Shared => "shared",
            Role::Ffn => "ffn",
            Role::Other => "other",
            Role::Embedding => "embedding",
            Role::Output => "output",
            Role::Table => "table",
        }
    }

    pub fn of(tensor: &TensorInfo) -> Role {
        if tensor.block().is_none() {
            return Role::of_global(&tensor.name);
        }
        let name = tensor.name_in_block();
        let begins = |prefixes: &[&str]| prefixes.iter().any(|p| name.starts_with(p));
        if name.contains("_exps.") {
            Role::Experts
        } else if name.contains("_shexp.") {
            Role::Shared
        } else if begins(&["ffn_gate_inp.", "exp_probs_b"]) {
            Role::Router
        } else if begins(&["attn_", "ssm_", "indexer.", "time_mix_", "shortconv."]) {
            Role::Mixer
        } else if begins(&["ffn_gate.", "ffn_up.", "ffn_down."]) {
            Role::Ffn
        } else {
            Role::Other
        }
    }

    fn of_global(name: &str) -> Role {
        match name {
            "token_embd.weight" => Role::Embedding,
            "output.weight" | "output.bias" => Role::Output,
            name if name.starts_with("per_layer_token_embd") => Role::Table,
            _ => Role::Other,
        }
    }
}

/// How a layer mixes tokens, from the names of its tensors.
pub fn mixer<'a>(names: impl Iterator<Item = &'a str> + Clone) -> &'static str {
    let has = |prefix: &str| names.clone().any(|name| name.starts_with(prefix));
    if has("ssm_beta") || has("ssm_ba") || has("ssm_alpha") {
        "delta net"
    } else if has("ssm_") {
        "state space"
    } else if has("indexer.") {
        "sparse attention"
    } else if has("attn_kv_a") {
        "latent attention"
    } else if has("attn_") {
        "attention"
    } else if has("time_mix_") {
        "time mix"
    } else if has("shortconv.") {
        "convolution"
    } else {
        "none"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use esker_quant::GgmlType;

    #[test]
    fn tensors_have_roles() {
        let check = |name: &str, expect: Role| {
            let (ty, shape) = (GgmlType::F32, vec![1]);
            let tensor = TensorInfo { name: name.to_owned(), ty, shape, file: 0, offset: 0, size: 4 };
            assert_eq!(Role::of(&tensor), expect, "{name}");
        };
        check("token_embd.weight", Role::Embedding);
        check("per_layer_token_embd.weight", Role::Table);
        check("output.weight", Role::Output);
        check("output_norm.weight", Role::Other);
        check("blk.3.attn_norm.weight", Role::Mixer);
        check("blk.3.ssm_out.weight", Role::Mixer);
        check("blk.3.indexer.q_proj.weight", Role::Mixer);
        check("blk.3.ffn_gate_inp.weight", Role::Router);
        check("blk.3.exp_probs_b.bias", Role::Router);
        check("blk.3.ffn_gate_inp_shexp.weight", Role::Shared);
        check("blk.3.ffn_up_shexp.weight", Role::Shared);
        check("blk.3.ffn_gate_up_exps.weight", Role::Experts);
        check("blk.3.ffn_down_exps.bias", Role::Experts);
        check("blk.3.ffn_down.weight", Role::Ffn);
        check("blk.3.ffn_norm.weight", Role::Other);
        check("blk.3.nextn.eh_proj.weight", Role::Other);
    }

    #[test]
    fn mixers_are_told_apart() {
        let check = |names: &[&str], expect| assert_eq!(mixer(names.iter().copied()), expect);
        check(&["attn_norm.weight", "attn_q.weight"], "attention");
        check(&["attn_q.weight", "indexer.k_proj.weight"], "sparse attention");
        check(&["attn_q_a.weight", "attn_kv_a_mqa.weight"], "latent attention");
        check(&["attn_qkv.weight", "ssm_beta.weight"], "delta net");
        check(&["ssm_in.weight"], "state space");
        check(&["ffn_up.weight"], "none");
    }
}
