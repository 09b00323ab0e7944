//! `esker inspect`.

use crate::support::{TINY, arg, assert_run, directory, json, run, unknown_architecture};
use serde_json::{Value, json};

#[test]
fn tiny_model() {
    assert_run!(run(&["inspect", TINY, "--metadata", "--tensors"]), @r#"
    exit code: 0
    --- stdout ---
    llama3
      file            llama3.gguf
      architecture    llama, supported
      parameters      131 k in 21 tensors
      size            526 KiB, 32.00 bits per weight, GGUF version 3
      layers          2
      width           64
      context         4096 tokens
      vocabulary      512 tokens (gpt2/qwen2), without chat template

    Layers
      layer  mixes by      mixer       ffn  other    total
          0  attention  96.2 KiB  96.0 KiB  256 B  192 KiB
          1  attention  96.2 KiB  96.0 KiB  256 B  192 KiB

    Outside of layers
      tensor              type  shape         size
      rope_freqs.weight   F32   [16]          64 B
      token_embd.weight   F32   [64, 512]  128 KiB
      output_norm.weight  F32   [64]         256 B

    Types
      type  tensors  parameters     size    share  bits/weight
      F32        21       131 k  513 KiB  100.0 %        32.00

    Quantization mix
      part       parameters     size  bits/weight  types by size
      mixer          49.3 k  192 KiB        32.00  F32 100.0 %
      ffn            49.2 k  192 KiB        32.00  F32 100.0 %
      other             208    832 B        32.00  F32 100.0 %
      embedding      32.8 k  128 KiB        32.00  F32 100.0 %

    Metadata
      general.architecture                    llama
      general.type                            model
      general.name                            llama3
      general.size_label                      131K
      llama.block_count                       2
      llama.context_length                    4096
      llama.embedding_length                  64
      llama.feed_forward_length               128
      llama.attention.head_count              4
      llama.attention.head_count_kv           2
      llama.rope.freq_base                    500000
      llama.attention.layer_norm_rms_epsilon  0.00001
      llama.attention.key_length              32
      llama.attention.value_length            32
      general.file_type                       0
      llama.vocab_size                        512
      llama.rope.dimension_count              32
      general.quantization_version            2
      tokenizer.ggml.model                    gpt2
      tokenizer.ggml.pre                      qwen2
      tokenizer.ggml.tokens                   [!, ", #, $, %, &, ', (, … 512 string]
      tokenizer.ggml.token_type               [1, 1, 1, 1, 1, 1, 1, 1, … 512 i32]
      tokenizer.ggml.merges                   [Ġ Ġ, ã ģ, ã Ĥ, ã ĥ, Ċ Ċ, ĠĠ ĠĠ, e r, Ġ t, … 247 string]
      tokenizer.ggml.bos_token_id             503
      tokenizer.ggml.eos_token_id             505
      tokenizer.ggml.padding_token_id         503
      tokenizer.ggml.add_bos_token            false

    Tensors
      tensor                    type  shape          size  offset
      rope_freqs.weight         F32   [16]           64 B   13216
      token_embd.weight         F32   [64, 512]   128 KiB   13280
      blk.0.attn_norm.weight    F32   [64]          256 B  144352
      blk.0.ffn_down.weight     F32   [128, 64]  32.0 KiB  144608
      blk.0.ffn_gate.weight     F32   [64, 128]  32.0 KiB  177376
      blk.0.ffn_up.weight       F32   [64, 128]  32.0 KiB  210144
      blk.0.ffn_norm.weight     F32   [64]          256 B  242912
      blk.0.attn_k.weight       F32   [64, 64]   16.0 KiB  243168
      blk.0.attn_output.weight  F32   [128, 64]  32.0 KiB  259552
      blk.0.attn_q.weight       F32   [64, 128]  32.0 KiB  292320
      blk.0.attn_v.weight       F32   [64, 64]   16.0 KiB  325088
      blk.1.attn_norm.weight    F32   [64]          256 B  341472
      blk.1.ffn_down.weight     F32   [128, 64]  32.0 KiB  341728
      blk.1.ffn_gate.weight     F32   [64, 128]  32.0 KiB  374496
      blk.1.ffn_up.weight       F32   [64, 128]  32.0 KiB  407264
      blk.1.ffn_norm.weight     F32   [64]          256 B  440032
      blk.1.attn_k.weight       F32   [64, 64]   16.0 KiB  440288
      blk.1.attn_output.weight  F32   [128, 64]  32.0 KiB  456672
      blk.1.attn_q.weight       F32   [64, 128]  32.0 KiB  489440
      blk.1.attn_v.weight       F32   [64, 64]   16.0 KiB  522208
      output_norm.weight        F32   [64]          256 B  538592
    --- stderr ---
    "#);
}

#[test]
fn demo_model() {
    assert_run!(run(&["inspect"]), @r#"
    exit code: 0
    --- stdout ---
    Qwen4Exp-Tiny-MoE
      file            [DEMO]
      architecture    qwen4exp, supported
      parameters      64.3 M in 214 tensors
      size            28.6 MiB, 3.69 bits per weight, GGUF version 3
      layers          8
      width           256
      context         4096 tokens
      vocabulary      8192 tokens (gpt2/qwen35), with chat template
      experts         64 in each of 8 layers, 6 used per token
      one expert      38.5 KiB
      all experts     19.2 MiB
      everything else 9.05 MiB
      one token uses  1.80 MiB of experts

    Layers
      layer  mixes by            mixer    router   experts    shared    other     total     one expert  expert types
          0  delta net         192 KiB  64.0 KiB  2.41 MiB  69.0 KiB  116 KiB  2.84 MiB  64 x 38.5 KiB  gate IQ2_S, up IQ2_S, down IQ4_NL
          1  delta net         192 KiB  64.0 KiB  2.41 MiB  69.0 KiB  356 KiB  3.07 MiB  64 x 38.5 KiB  gate IQ2_S, up IQ2_S, down IQ4_NL
          2  delta net         192 KiB  64.0 KiB  2.41 MiB  69.0 KiB  116 KiB  2.84 MiB  64 x 38.5 KiB  gate IQ2_S, up IQ2_S, down IQ4_NL
          3  sparse attention  257 KiB  64.0 KiB  2.41 MiB  69.0 KiB  116 KiB  2.90 MiB  64 x 38.5 KiB  gate IQ2_S, up IQ2_S, down IQ4_NL
          4  delta net         192 KiB  64.0 KiB  2.41 MiB  69.0 KiB  116 KiB  2.84 MiB  64 x 38.5 KiB  gate IQ2_S, up IQ2_S, down IQ4_NL
          5  delta net         192 KiB  64.0 KiB  2.41 MiB  69.0 KiB  116 KiB  2.84 MiB  64 x 38.5 KiB  gate IQ2_S, up IQ2_S, down IQ4_NL
          6  delta net         192 KiB  64.0 KiB  2.41 MiB  69.0 KiB  116 KiB  2.84 MiB  64 x 38.5 KiB  gate IQ2_S, up IQ2_S, down IQ4_NL
          7  sparse attention  257 KiB  64.0 KiB  2.41 MiB  69.0 KiB  116 KiB  2.90 MiB  64 x 38.5 KiB  gate IQ2_S, up IQ2_S, down IQ4_NL

    Outside of layers
      tensor                       type    shape             size
      output.weight                Q5_K    [256, 8192]   1.38 MiB
      output_hc_down.weight        Q5_K    [1024, 32]    22.0 KiB
      output_hc_norm.weight        F32     [1024]        4.00 KiB
      output_hc_up.weight          Q5_1    [32, 1024]    24.0 KiB
      per_layer_token_embd.weight  Q4_0    [32, 160384]  2.75 MiB
      token_embd.weight            IQ4_XS  [256, 8192]   1.06 MiB

    Types
      type    tensors  parameters      size   share  bits/weight
      IQ2_S        16      33.6 M  10.2 MiB  36.2 %         2.56
      IQ4_NL        8      16.8 M  9.00 MiB  31.8 %         4.50
      Q5_K         62      5.60 M  3.67 MiB  13.0 %         5.50
      Q4_0          1      5.13 M  2.75 MiB   9.7 %         4.50
      IQ4_XS        1      2.10 M  1.06 MiB   3.8 %         4.25
      F32          68       167 k   651 KiB   2.2 %        32.00
      Q5_1         25       819 k   600 KiB   2.1 %         6.00
      F16          29      94.2 k   184 KiB   0.6 %        16.00
      BF16          4      81.9 k   160 KiB   0.6 %        16.00

    Quantization mix
      part       parameters      size  bits/weight  types by size
      mixer          2.22 M  1.63 MiB         6.16  Q5_K 84.5 %, BF16 9.6 %, F32 3.0 %, F16 2.9 %
      router          131 k   512 KiB        32.00  F32 100.0 %
      experts        50.3 M  19.2 MiB         3.21  IQ2_S 53.2 %, IQ4_NL 46.8 %
      shared          788 k   552 KiB         5.74  Q5_K 63.8 %, Q5_1 34.8 %, F32 1.4 %
      other          1.53 M  1.19 MiB         6.51  Q5_K 48.8 %, Q5_1 33.5 %, F16 11.2 %, F32 6.6 %
      embedding      2.10 M  1.06 MiB         4.25  IQ4_XS 100.0 %
      output         2.10 M  1.38 MiB         5.50  Q5_K 100.0 %
      table          5.13 M  2.75 MiB         4.50  Q4_0 100.0 %
    --- stderr ---
    note: using the demo model `[DEMO]`: for trying and testing, it knows nothing
    "#);
}

/// Control characters of the file do not reach the terminal.
#[test]
fn unknown_architecture_is_shown() {
    let directory = directory();
    assert_run!(run(&["inspect", arg(&unknown_architecture(directory.path())), "--metadata"]), @r#"
    exit code: 0
    --- stdout ---
    No\u{1b}body
      file            [DIR]/nobody.gguf
      architecture    nobody\u{1b}[31m, not supported (supported: llama, olmoe, qwen3moe, qwen3next, qwen35moe, qwen4exp)
      parameters      26.0 k in 12 tensors
      size            102 KiB, 32.00 bits per weight, GGUF version 3
      layers          2
      experts         4 to 8 in each of 2 layers
      one expert      6.00 KiB
      all experts     72.0 KiB
      everything else 29.5 KiB
      drafts (MTP)    block 2, 12.0 KiB: recognised, not run

    Layers
      layer  mixes by              mixer    router   experts     other     total    one expert  expert types
          0  attention          4.00 KiB  1.00 KiB  48.0 KiB         -  53.0 KiB  8 x 6.00 KiB  gate F32, up F32, down F32
          1  state space        4.00 KiB     512 B  24.0 KiB         -  28.5 KiB  4 x 6.00 KiB  gate_up F32, down F32
          2  attention (draft)  4.00 KiB         -         -  8.00 KiB  12.0 KiB             -

    Outside of layers
      tensor             type  shape         size
      token_embd.weight  F32   [32, 64]  8.00 KiB

    Types
      type  tensors  parameters     size    share  bits/weight
      F32        12      26.0 k  102 KiB  100.0 %        32.00

    Quantization mix
      part       parameters      size  bits/weight  types by size
      mixer          3.07 k  12.0 KiB        32.00  F32 100.0 %
      router            384  1.50 KiB        32.00  F32 100.0 %
      experts        18.4 k  72.0 KiB        32.00  F32 100.0 %
      other          2.05 k  8.00 KiB        32.00  F32 100.0 %
      embedding      2.05 k  8.00 KiB        32.00  F32 100.0 %

    Metadata
      general.architecture  nobody\u{1b}[31m
      general.name          No\u{1b}body
    --- stderr ---
    "#);
}

#[test]
fn json_has_sizes_in_bytes() {
    let directory = directory();
    let path = unknown_architecture(directory.path());
    let value = json(&["inspect", arg(&path), "--json"]);
    let expert = 3 * 16 * 32 * 4;
    assert_eq!(value["experts"]["expert_bytes_min"], expert);
    assert_eq!(value["experts"]["total_bytes"], 12 * expert);
    assert_eq!((&value["experts"]["count_min"], &value["experts"]["count_max"]), (&json!(4), &json!(8)));
    assert_eq!(value["experts"]["token_bytes"], Value::Null, "the file does not say how many are used");
    assert_eq!(value["layers"][1]["bytes"], json!({ "mixer": 4096, "router": 512, "experts": 4 * expert }));
    assert_eq!(value["drafts"], json!({ "blocks": [2], "bytes": 4096 + 8192 }));
    assert_eq!(value["supported"], false);
    let bytes: u64 =
        value["types"].as_array().expect("types").iter().map(|t| t["bytes"].as_u64().expect("n")).sum();
    assert_eq!(value["tensor_bytes"], bytes);
    assert_eq!(value.get("metadata"), None);

    let value = json(&["inspect", TINY, "--json", "--metadata", "--tensors"]);
    assert_eq!(value["metadata"]["llama.rope.freq_base"], 500_000.0);
    assert_eq!(value["metadata"]["tokenizer.ggml.tokens"]["length"], 512);
    assert_eq!(value["tensors"].as_array().map(Vec::len), Some(21));
    assert_eq!(value["tensors"][1]["shape"], json!([64, 512]));
    assert_eq!(value["bits_per_weight"], 32.0);
}
