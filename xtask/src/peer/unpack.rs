//! A model with all its weights in f32, made from one with quantized weights.
//!
//! With quantized weights both sides round activations to 8 bits before each product. A difference in the last bit of
//! an activation can turn into one of 1/127 there, and such differences grow from layer to layer: logits of two correct
//! programs lie tenths apart. With the same weights in f32 nothing is rounded, and programs that compute the same
//! function agree to several digits.

use esker_gguf::{Gguf, GgufWriter, OpenError, ReadTensorError, TensorSpec, WriteError};
use esker_quant::{CodecError, GgmlType};
use std::path::{Path, PathBuf};

/// Largest file that is made, in bytes.
const BYTES_MAX: u64 = 8 << 30;

/// A model cannot be unpacked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UnpackError {
    /// The model cannot be read.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A tensor cannot be read.
    #[error(transparent)]
    Read(#[from] ReadTensorError),
    /// A tensor cannot be decoded.
    #[error("cannot decode tensor `{tensor}`")]
    Decode { tensor: String, source: CodecError },
    /// The copy cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// Too much of it.
    #[error("`{}` has {bytes} bytes in f32, expected at most {BYTES_MAX}", path.display())]
    TooLarge { path: PathBuf, bytes: u64 },
}

/// The f32 copy of `model` in `folder`; made if it is not there yet.
pub(crate) fn in_f32(model: &Path, folder: &Path) -> Result<PathBuf, UnpackError> {
    let gguf = Gguf::open(model)?;
    let stem = model.file_stem().unwrap_or_default().to_string_lossy();
    let path = folder.join(format!("{stem}-{}-f32.gguf", gguf.total_file_bytes()));
    // A copy gets its name when it is complete.
    if !path.exists() {
        write(&gguf, model, &path)?;
    }
    Ok(path)
}

fn write(gguf: &Gguf, model: &Path, path: &Path) -> Result<(), UnpackError> {
    let bytes =
        gguf.tensors.iter().fold(0_u64, |sum, t| sum.saturating_add(t.n_elements().saturating_mul(4)));
    if bytes > BYTES_MAX {
        return Err(UnpackError::TooLarge { path: model.to_owned(), bytes });
    }
    eprintln!("writing {}", path.display());
    let mut metadata = gguf.metadata.clone();
    metadata.retain(|key, _| !key.starts_with("split."));
    // The key's value for "all f32" in the GGUF specification.
    metadata.set("general.file_type", 0_u32);
    let specs = gguf.tensors.iter().map(|t| TensorSpec { ty: GgmlType::F32, ..t.spec() }).collect();
    let mut writer = GgufWriter::new(path, &metadata, specs, gguf.alignment)?;
    for tensor in &gguf.tensors {
        let packed = gguf.read_tensor(tensor)?;
        let mut values = vec![0.0; tensor.n_elements() as usize];
        esker_quant::decode(tensor.ty, &packed, &mut values)
            .map_err(|source| UnpackError::Decode { tensor: tensor.name.clone(), source })?;
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        writer.write_tensor(&tensor.name, &bytes)?;
    }
    Ok(writer.finish()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tensor_becomes_f32_and_keeps_its_values() {
        let model = crate::workspace().join("crates/esker-engine/tests/golden/logits/qwen3moe-q4_0.gguf");
        let folder = tempfile::tempdir().expect("a folder");
        let path = in_f32(&model, folder.path()).expect("unpacked");
        let (before, after) = (Gguf::open(&model).expect("model"), Gguf::open(&path).expect("copy"));
        assert!(before.tensors.iter().any(|t| t.ty == GgmlType::Q4_0), "the test needs quantized weights");
        assert_eq!(before.tensors.len(), after.tensors.len());
        for tensor in &before.tensors {
            let copy = after.tensor(&tensor.name).expect("the same names");
            assert_eq!((copy.ty, &copy.shape), (GgmlType::F32, &tensor.shape));
            let mut expected = vec![0.0; tensor.n_elements() as usize];
            let packed = before.read_tensor(tensor).expect("data");
            esker_quant::decode(tensor.ty, &packed, &mut expected).expect("decodes");
            let bytes = after.read_tensor(copy).expect("data");
            let values: Vec<f32> =
                bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
            assert_eq!(values, expected, "{}", tensor.name);
        }
        assert_eq!(in_f32(&model, folder.path()).expect("found"), path, "it is not made twice");
        assert_eq!(after.metadata.get("general.architecture"), before.metadata.get("general.architecture"));
    }
}
