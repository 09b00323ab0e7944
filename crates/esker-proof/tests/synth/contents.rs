//! Tensors, types, values, sizes.

use crate::common::{TINY, geometry, go_on, options, written};
use esker_gguf::Gguf;
use esker_proof::synth::{Options, Recipe, plan_size, write};
use esker_quant::GgmlType;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// Shapes of the tensors of layers, by name without `blk.N.`, and of the others.
fn shapes(gguf: &Gguf, layer: Option<u32>) -> BTreeMap<&str, Vec<u64>> {
    let of_layer = gguf.tensors.iter().filter(|t| t.block() == layer);
    of_layer.map(|t| (t.name_in_block(), t.shape.clone())).collect()
}

#[track_caller]
fn check_shapes(gguf: &Gguf, layer: Option<u32>, expected: &[(&str, &[u64])]) {
    let expected: BTreeMap<_, _> = expected.iter().map(|(name, shape)| (*name, shape.to_vec())).collect();
    assert_eq!(shapes(gguf, layer), expected, "layer {layer:?}");
}

const ATTENTION: [(&str, &[u64]); 5] = [
    ("attn_k.weight", &[256, 128]),
    ("attn_v.weight", &[256, 128]),
    ("attn_output.weight", &[256, 256]),
    ("attn_q_norm.weight", &[64]),
    ("attn_k_norm.weight", &[64]),
];

#[test]
fn tensors_of_qwen3moe() {
    let file = written(&geometry("tiny-qwen3moe"), &options(Recipe::Q8_0));
    check_shapes(
        &file.gguf,
        None,
        &[("token_embd.weight", &[256, 512]), ("output.weight", &[256, 512]), ("output_norm.weight", &[256])],
    );
    for layer in 0..4 {
        let rest: [(&str, &[u64]); 7] = [
            ("attn_norm.weight", &[256]),
            ("attn_q.weight", &[256, 256]),
            ("ffn_norm.weight", &[256]),
            ("ffn_gate_inp.weight", &[256, 8]),
            ("ffn_gate_exps.weight", &[256, 256, 8]),
            ("ffn_up_exps.weight", &[256, 256, 8]),
            ("ffn_down_exps.weight", &[256, 256, 8]),
        ];
        check_shapes(&file.gguf, Some(layer), &[&ATTENTION[..], &rest].concat());
    }
    assert_eq!(file.gguf.tensors.len(), 3 + 4 * 12);
}

#[test]
fn tensors_of_qwen3next() {
    let file = written(&geometry("tiny-qwen3next"), &options(Recipe::Q8_0));
    let common: [(&str, &[u64]); 10] = [
        ("attn_norm.weight", &[256]),
        ("post_attention_norm.weight", &[256]),
        ("ffn_gate_inp.weight", &[256, 16]),
        ("ffn_gate_exps.weight", &[256, 64, 16]),
        ("ffn_up_exps.weight", &[256, 64, 16]),
        ("ffn_down_exps.weight", &[64, 256, 16]),
        ("ffn_gate_inp_shexp.weight", &[256]),
        ("ffn_gate_shexp.weight", &[256, 64]),
        ("ffn_up_shexp.weight", &[256, 64]),
        ("ffn_down_shexp.weight", &[64, 256]),
    ];
    let delta: [(&str, &[u64]); 8] = [
        ("attn_qkv.weight", &[256, 512]),
        ("attn_gate.weight", &[256, 256]),
        ("ssm_conv1d.weight", &[4, 512]),
        ("ssm_ba.weight", &[256, 8]),
        ("ssm_dt.bias", &[4]),
        ("ssm_a", &[4]),
        ("ssm_norm.weight", &[64]),
        ("ssm_out.weight", &[256, 256]),
    ];
    for layer in 0..3 {
        check_shapes(&file.gguf, Some(layer), &[&common[..], &delta].concat());
    }
    let gated: [(&str, &[u64]); 1] = [("attn_q.weight", &[256, 512])];
    check_shapes(&file.gguf, Some(3), &[&common[..], &ATTENTION, &gated].concat());
    assert_eq!(file.gguf.tensors.len(), 3 + 3 * 18 + 16);
}

#[test]
fn tensors_of_qwen4exp() {
    let file = written(&geometry("tiny-qwen4exp"), &options(Recipe::Q8_0));
    let table = &file.gguf.tensor("per_layer_token_embd.weight").unwrap().shape;
    assert!(table[0] == 32 && table[1].is_multiple_of(128) && (4000..5000).contains(&table[1]), "{table:?}");
    check_shapes(
        &file.gguf,
        None,
        &[
            ("token_embd.weight", &[256, 512]),
            ("output.weight", &[256, 512]),
            ("output_hc_norm.weight", &[1024]),
            ("output_hc_down.weight", &[1024, 32]),
            ("output_hc_up.weight", &[32, 1024]),
            ("per_layer_token_embd.weight", table),
        ],
    );
    let common: [(&str, &[u64]); 16] = [
        ("hc_attn_norm.weight", &[1024]),
        ("hc_attn_down.weight", &[1024, 32]),
        ("hc_attn_up.weight", &[32, 1024]),
        ("hc_attn_inject.weight", &[1024, 4]),
        ("hc_ffn_norm.weight", &[1024]),
        ("hc_ffn_down.weight", &[1024, 32]),
        ("hc_ffn_up.weight", &[32, 1024]),
        ("hc_ffn_inject.weight", &[1024, 4]),
        ("ffn_gate_inp.weight", &[256, 16]),
        ("ffn_gate_exps.weight", &[256, 96, 16]),
        ("ffn_up_exps.weight", &[256, 96, 16]),
        ("ffn_down_exps.weight", &[96, 256, 16]),
        ("ffn_gate_inp_shexp.weight", &[256]),
        ("ffn_gate_shexp.weight", &[256, 96]),
        ("ffn_up_shexp.weight", &[256, 96]),
        ("ffn_down_shexp.weight", &[96, 256]),
    ];
    let delta: [(&str, &[u64]); 9] = [
        ("attn_qkv.weight", &[256, 640]),
        ("attn_gate.weight", &[256, 384]),
        ("ssm_conv1d.weight", &[4, 640]),
        ("ssm_beta.weight", &[256, 6]),
        ("ssm_alpha.weight", &[256, 6]),
        ("ssm_dt.bias", &[6]),
        ("ssm_a", &[6]),
        ("ssm_norm.weight", &[64]),
        ("ssm_out.weight", &[384, 256]),
    ];
    let ple: [(&str, &[u64]); 6] = [
        ("ple_key.weight", &[256, 1024]),
        ("ple_value.weight", &[256, 256]),
        ("ple_norm_key.weight", &[1024]),
        ("ple_norm_query.weight", &[1024]),
        ("ple_norm_conv.weight", &[1024]),
        ("ple_conv1d.weight", &[4, 1024]),
    ];
    let attention: [(&str, &[u64]); 5] = [
        ("attn_q.weight", &[256, 512]),
        ("indexer.q_proj.weight", &[256, 128]),
        ("indexer.k_proj.weight", &[256, 32]),
        ("indexer.q_norm.weight", &[32]),
        ("indexer.k_norm.weight", &[32]),
    ];
    for layer in [0, 2] {
        check_shapes(&file.gguf, Some(layer), &[&common[..], &delta].concat());
    }
    check_shapes(&file.gguf, Some(1), &[&common[..], &delta, &ple].concat());
    check_shapes(&file.gguf, Some(3), &[&common[..], &ATTENTION, &attention].concat());
}

/// Tensors without MTP of the released model: 6 global, 48 times 16, 36 times 9, 12 times 10, 6 of the n-gram layer.
#[test]
fn sizes_of_the_released_models() {
    let plan = |name: &str, recipe, ngram_rows| {
        plan_size(&geometry(name), &Options { recipe, ngram_rows, ..Options::default() }).unwrap()
    };
    let flash = plan("qwen3.8-flash-next", Recipe::Q2_0, 320_000_000);
    assert_eq!(flash.n_tensors, 1224);
    // 125.74e9 weights and 51.20e9 in the table.
    assert_eq!(flash.n_weights / 10_000_000, 17_694);
    // 3 * 2560 * 640 weights of 2.25 bits, of 10 experts in 48 layers.
    assert_eq!(flash.one_expert_bytes, 3 * 2560 * 640 / 64 * 18);
    assert_eq!(flash.touched_expert_bytes, 480 * flash.one_expert_bytes);
    assert_eq!(flash.n_experts, 48 * 512);

    let a3b = plan("qwen3-30b-a3b", Recipe::Q8_0, 0);
    // 30.53e9 parameters by the model's card.
    assert_eq!(a3b.n_weights / 10_000_000, 3053);
    assert_eq!(a3b.n_tensors, 579);
    let next = plan("qwen3-next-80b", Recipe::F16, 0);
    assert_eq!(next.n_weights / 1_000_000_000, 79);
}

#[test]
fn files_are_what_was_planned() {
    for name in TINY {
        for (recipe, _) in Recipe::ALL {
            let (geometry, options) = (geometry(name), options(recipe));
            let plan = plan_size(&geometry, &options).unwrap();
            let file = written(&geometry, &options);
            assert_eq!(plan, file.size);
            assert_eq!(plan.file_bytes, std::fs::metadata(&file.path).unwrap().len());
            assert_eq!(plan.n_weights, file.gguf.total_elements());
            assert_eq!(plan.expert_bytes, file.gguf.expert_tensor_bytes());
            let all = plan.expert_bytes + plan.table_bytes + plan.dense_bytes;
            assert_eq!(all, file.gguf.total_tensor_bytes());
            assert_eq!(plan.by_type.iter().map(|(_, bytes)| bytes).sum::<u64>(), all);
        }
    }
}

#[test]
fn types_follow_the_recipe() {
    let of = |name: &str, recipe, tensor: &str| {
        written(&geometry(name), &options(recipe)).gguf.tensor(tensor).unwrap().ty
    };
    let down = "blk.1.ffn_down_exps.weight";
    assert_eq!(of("tiny-qwen3moe", Recipe::Q4K, down), GgmlType::Q6_K);
    assert_eq!(of("tiny-qwen4exp", Recipe::Q4K, down), GgmlType::Q5_0);
    assert_eq!(of("tiny-qwen3next", Recipe::Q2_0, down), GgmlType::Q2_0);
    assert_eq!(of("tiny-qwen3moe", Recipe::Iq3, "blk.0.ffn_up_exps.weight"), GgmlType::IQ3_S);
    assert_eq!(of("tiny-qwen3moe", Recipe::Iq3, "token_embd.weight"), GgmlType::IQ4_XS);
    assert_eq!(of("tiny-qwen3moe", Recipe::F16, "blk.3.ffn_gate_inp.weight"), GgmlType::F32);
    assert_eq!(of("tiny-qwen4exp", Recipe::Q4K, "blk.3.indexer.k_proj.weight"), GgmlType::F16);
}

/// Matrices have a standard deviation of one over the root of the row length, small tensors are in their ranges.
#[test]
fn values_keep_activations_in_size() {
    for name in TINY {
        for (recipe, _) in Recipe::ALL {
            let file = written(&geometry(name), &options(recipe));
            for tensor in &file.gguf.tensors {
                let mut values = vec![0.0; tensor.n_elements() as usize];
                esker_quant::decode(tensor.ty, &file.gguf.read_tensor(tensor).unwrap(), &mut values).unwrap();
                let within = |low: f32, high: f32| values.iter().all(|v| (low..=high).contains(v));
                let in_block = tensor.name_in_block();
                let fine = match in_block {
                    "ssm_dt.bias" => within(-6.9, -2.25),
                    "ssm_a" => within(-16.0, -0.5),
                    name if name.contains("hc_") && name.ends_with("_norm.weight") => within(1.8, 2.2),
                    name if name.contains("norm") => within(0.9, 1.1),
                    _ => {
                        let rows = ["token_embd.weight", "per_layer_token_embd.weight"].contains(&in_block);
                        let mixes = ["attn_output.weight", "ssm_out.weight"].contains(&in_block);
                        let gain = if mixes { 0.1 } else { 1.0 };
                        let std = if rows { 1.0 } else { gain / (tensor.shape[0] as f32).sqrt() };
                        let squares: f32 = values.iter().map(|v| v * v).sum();
                        let rms = (squares / values.len() as f32).sqrt();
                        // Five standard errors of few values, or of few block scales.
                        let tolerance = 5.0 / (values.len() as f32 / 16.0).sqrt();
                        (rms / std - 1.0).abs() < tolerance.max(0.03)
                    }
                };
                assert!(fine, "{name} {recipe:?}: {}", tensor.name);
            }
        }
    }
}

#[test]
fn every_expert_is_another() {
    let file = written(&geometry("tiny-qwen3moe"), &options(Recipe::Q4K));
    for tensor in file.gguf.tensors.iter().filter(|t| t.is_expert()) {
        let (n_expert, bytes) = tensor.expert_stack().unwrap();
        let data = file.gguf.read_tensor(tensor).unwrap();
        let experts: Vec<&[u8]> = data.chunks_exact(bytes as usize).collect();
        assert_eq!(experts.len() as u64, n_expert);
        for (i, a) in experts.iter().enumerate() {
            for b in &experts[..i] {
                let same = a.iter().zip(*b).filter(|(a, b)| a == b).count();
                assert!(same * 10 < a.len(), "{}: {same} of {} bytes are equal", tensor.name, a.len());
            }
        }
    }
}

/// The hash pins the bytes of a seed: a change of it changes every file that anyone has made.
#[test]
fn a_seed_means_its_bytes() {
    let hash = |options: &Options| {
        let bytes = std::fs::read(written(&geometry("tiny-qwen4exp"), options).path).unwrap();
        bytes.iter().fold(0xcbf2_9ce4_8422_2325u64, |h, &b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3))
    };
    let first = options(Recipe::Q4K);
    assert_eq!(hash(&first), hash(&first));
    assert_ne!(hash(&first), hash(&Options { seed: 1, ..first.clone() }));
    assert_eq!(hash(&first), 10_888_726_782_721_579_026);
}

#[test]
fn cutting_layers_keeps_their_kinds() {
    let file = written(&geometry("tiny-qwen4exp"), &Options { layers: Some(2), ..options(Recipe::Q8_0) });
    let meta = &file.gguf.metadata;
    assert_eq!(meta.u32("qwen4exp.block_count"), Ok(2));
    assert_eq!(meta.bool_array("qwen4exp.attention.recurrent_layers"), Ok(vec![true, true]));
    assert_eq!(meta.i32_array("qwen4exp.attention.compress_ratios"), Ok(vec![0, 0]));
    assert!(file.gguf.tensors.iter().all(|t| t.block().is_none_or(|layer| layer < 2)));
    assert_eq!(file.size.n_layers, 2);
}

#[test]
fn progress_ends_at_the_size() {
    let dir = tempfile::tempdir().unwrap();
    let mut seen = Vec::new();
    let size = write(&geometry("tiny-qwen3moe"), &options(Recipe::F16), &dir.path().join("m"), &mut |p| {
        seen.push(p);
        ControlFlow::Continue(())
    })
    .unwrap();
    assert!(seen.is_sorted_by(|a, b| a.done < b.done));
    let last = seen[seen.len() - 1];
    // Less than one alignment of padding may follow the last tensor.
    assert!(last.total == size.file_bytes && size.file_bytes - last.done < 32);
    let _ = go_on(last);
}
