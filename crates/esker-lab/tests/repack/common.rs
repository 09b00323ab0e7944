//! Small models to pack.

use esker_gguf::{Gguf, GgufWriter, Metadata, TensorSpec};
use esker_lab::repack::{PackReport, RepackError, pack};
use esker_lab::{IfExists, Progress};
use esker_quant::GgmlType;
use std::error::Error;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// The tiny models that the engine is tested with.
pub fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../esker-engine/tests/golden/logits")
}

pub fn go_on(_: Progress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

pub fn pack_to(src: &Path, out: &Path) -> Result<PackReport, RepackError> {
    pack(src, out, IfExists::Refuse, &mut go_on)
}

/// The error and its causes.
pub fn message(error: &dyn Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", message(source)),
        None => error.to_string(),
    }
}

pub fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

pub fn spec(name: &str, ty: GgmlType, shape: &[u64]) -> TensorSpec {
    TensorSpec { name: name.to_owned(), ty, shape: shape.to_vec() }
}

pub fn metadata() -> Metadata {
    let mut metadata = Metadata::new();
    metadata.set("general.architecture", "deepseek2");
    metadata.set("deepseek2.leading_dense_block_count", 1u32);
    metadata
}

/// A model with a dense layer first, then a layer of 5 experts in the usual three tensors, then a layer of 3 experts with
/// gate and up in one. No slice is a multiple of 64 bytes, and down comes first, as converters write it.
pub fn mixed() -> Vec<TensorSpec> {
    vec![
        spec("token_embd.weight", GgmlType::Q4_0, &[64, 7]),
        spec("blk.0.ffn_up.weight", GgmlType::F32, &[5, 3]),
        spec("blk.1.ffn_down_exps.weight", GgmlType::F16, &[5, 64, 5]),
        spec("blk.1.ffn_gate_exps.weight", GgmlType::Q4_0, &[64, 5, 5]),
        spec("blk.1.ffn_gate_inp.weight", GgmlType::F32, &[64, 5]),
        spec("blk.1.ffn_up_exps.weight", GgmlType::Q8_0, &[64, 5, 5]),
        spec("blk.2.ffn_gate_up_exps.weight", GgmlType::Q4_0, &[64, 6, 3]),
        spec("blk.2.ffn_down_exps.weight", GgmlType::F32, &[3, 64, 3]),
        spec("output_norm.weight", GgmlType::F32, &[3]),
    ]
}

/// Writes a file whose data is different everywhere.
pub fn write(path: &Path, metadata: &Metadata, specs: Vec<TensorSpec>, alignment: u64) {
    let mut writer = GgufWriter::new(path, metadata, specs, alignment).unwrap();
    let mut state = 1u32;
    while let Some(tensor) = writer.next_tensor() {
        let (name, size) = (tensor.name.clone(), tensor.size);
        let data: Vec<u8> = (0..size)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 24) as u8
            })
            .collect();
        writer.write_tensor(&name, &data).unwrap();
    }
    writer.finish().unwrap();
}

/// Both files hold the same metadata and the same tensors, in the same order.
#[track_caller]
pub fn assert_same_model(left: &Gguf, right: &Gguf) {
    assert!(left.metadata.iter().eq(right.metadata.iter()), "metadata differs");
    let specs = |gguf: &Gguf| gguf.tensors.iter().map(|t| t.spec()).collect::<Vec<_>>();
    assert_eq!(specs(left), specs(right));
    for (l, r) in left.tensors.iter().zip(&right.tensors) {
        assert!(left.read_tensor(l).unwrap() == right.read_tensor(r).unwrap(), "data of {} differs", l.name);
    }
}
