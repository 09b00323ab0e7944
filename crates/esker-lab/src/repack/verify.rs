//! Reading every expert of an expert-major file and comparing its checksum.

use super::source::{Files, Span, go_on};
use super::{BadExpert, RepackError};
use crate::progress::{Meter, Progress, Stage};
use esker_gguf::{Gguf, TensorInfo};
use esker_packed::{ExpertHasher, PackedLayer, read_packed, tensor_name};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;

/// What [`verify`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// Layers with experts.
    pub n_layers: usize,
    /// Experts read.
    pub n_experts: u64,
    /// Their bytes, without padding.
    pub bytes: u64,
    /// Experts whose checksum is wrong.
    pub n_bad: u64,
    /// The first of them, by layer, then by index.
    pub first_bad: Option<BadExpert>,
}

/// Reads every expert of the repacked file at `path` and compares its checksum. Damage is in the report, not an error.
///
/// Tensors that are no experts have no checksums; [`unpack`](super::unpack) compares the whole.
/// # Errors
/// If the file is not repacked, its keys are wrong, it cannot be read, or `progress` breaks off.
pub fn verify(
    path: &Path,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<VerifyReport, RepackError> {
    let packed = Packed::open(path)?;
    let mut files = Files::open(&packed.gguf)?;
    check_experts(&packed, &mut files, progress)
}

/// A repacked file.
pub(super) struct Packed {
    pub(super) gguf: Gguf,
    /// At least one.
    pub(super) layers: BTreeMap<u32, PackedLayer>,
}

impl Packed {
    pub(super) fn open(path: &Path) -> Result<Packed, RepackError> {
        let gguf = Gguf::open(path)?;
        let layers =
            read_packed(&gguf).map_err(|source| RepackError::Packed { path: path.to_owned(), source })?;
        if layers.is_empty() {
            return Err(RepackError::NotPacked { path: path.to_owned() });
        }
        Ok(Packed { gguf, layers })
    }

    /// The tensor of a layer in `layers`.
    pub(super) fn tensor(&self, layer: u32) -> &TensorInfo {
        self.gguf.tensor(&tensor_name(layer)).expect("layers are found by their tensors")
    }
}

pub(super) fn check_experts(
    packed: &Packed,
    files: &mut Files,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<VerifyReport, RepackError> {
    let total = packed.layers.values().map(|l| l.n_expert * l.expert_bytes()).sum();
    let mut meter = Meter::new(progress, Stage::Verify, total);
    let mut report = VerifyReport { n_layers: packed.layers.len(), ..VerifyReport::default() };
    for (&layer, experts) in &packed.layers {
        let tensor = packed.tensor(layer);
        for (expert, &expected) in (0..).zip(&experts.checksums) {
            let offset = tensor.offset + expert * experts.stride;
            let mut hasher = ExpertHasher::new();
            for part in &experts.parts {
                let span = Span { file: tensor.file, offset: offset + part.offset, len: part.size };
                files.read(span, &mut |piece| {
                    hasher.update(piece);
                    go_on(&mut meter, piece.len() as u64)
                })?;
                report.bytes += part.size;
            }
            report.n_experts += 1;
            let found = hasher.finish();
            if found != expected {
                report.n_bad += 1;
                let file = packed.gguf.files[tensor.file].clone();
                let len = experts.used_bytes();
                let bad = BadExpert { layer, expert, file, offset, len, expected, found };
                report.first_bad.get_or_insert(bad);
            }
        }
    }
    Ok(report)
}
