//! From any model file to an expert-major one.

use super::RepackError;
use super::plan::{Experts, Plan, why_not_canonical};
use super::source::{Files, Span, go_on};
use crate::output::{IfExists, Output, check_target};
use crate::progress::{Meter, Progress, Stage};
use esker_gguf::{Gguf, Layout, Metadata, StringArray};
use esker_packed::{EXPERT_ALIGN, ExpertHasher, Source, is_packed};
use std::ops::ControlFlow;
use std::path::Path;

/// What [`pack`] did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackReport {
    /// Bytes of the source, all files together.
    pub source_bytes: u64,
    /// Bytes of the result.
    pub out_bytes: u64,
    /// Layers with experts.
    pub n_layers: usize,
    /// Experts of all layers.
    pub n_experts: u64,
    /// Bytes of all experts, without padding.
    pub expert_bytes: u64,
    /// Bytes of padding in and between experts.
    pub padding_bytes: u64,
    /// SHA-256 of the source, in hexadecimal.
    pub source_sha256: String,
    /// Why [`unpack`](super::unpack) will give the same model, but not the same bytes; `None` if it gives the same bytes.
    pub not_identical: Option<String>,
}

/// Writes the model at `src` (the first file of a split set) as one expert-major file.
///
/// Every tensor but the routed experts is copied as it is; experts follow, layer by layer. The result appears at `out`
/// when it is complete. Cost: two passes over the source, the first to hash it. The stages reported are
/// [`Stage::Hash`] and [`Stage::Copy`].
/// # Errors
/// If the source has no routed experts, or is repacked already; if its experts are no gated feed-forward; if a file
/// cannot be read or written; if `progress` breaks off. Then nothing has changed at `out`.
pub fn pack(
    src: &Path,
    out: &Path,
    if_exists: IfExists,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<PackReport, RepackError> {
    let gguf = Gguf::open(src)?;
    if is_packed(&gguf) {
        return Err(RepackError::AlreadyPacked { path: src.to_owned() });
    }
    let plan = Plan::new(&gguf)?;
    if plan.layers.is_empty() {
        return Err(RepackError::NoExperts { path: src.to_owned() });
    }
    check_target(out, &gguf.files, if_exists)?;
    let mut files = Files::open(&gguf)?;
    let not_identical = why_not_canonical(&gguf, &mut files)?;
    let source_bytes = gguf.total_file_bytes();
    let sha256 = files.sha256(&gguf, &mut Meter::new(progress, Stage::Hash, source_bytes))?;

    let source = Source {
        sha256: sha256.clone(),
        n_files: u32::try_from(gguf.files.len()).unwrap_or(u32::MAX),
        canonical: not_identical.is_none(),
        tensor_order: gguf.tensors.iter().map(|t| t.name.as_str()).collect::<StringArray>(),
        alignment: gguf.metadata.get("general.alignment").cloned(),
    };
    // All checksums are still 0; the header has the same length with the right ones.
    let layout = Layout::new(&metadata(&gguf, &source, &plan), plan.specs(), EXPERT_ALIGN)?;
    let mut output = Output::create(out, layout.file_bytes(), &gguf.files, if_exists, false)?;
    let mut meter = Meter::new(progress, Stage::Copy, layout.file_bytes());
    output.write(layout.header())?;
    go_on(&mut meter, output.at())?;
    let plan = copy(plan, &layout, &mut files, &mut output, &mut meter)?;

    let full = Layout::new(&metadata(&gguf, &source, &plan), plan.specs(), EXPERT_ALIGN)?;
    assert_eq!(full.header().len(), layout.header().len(), "checksums are numbers of fixed size");
    output.rewrite_start(full.header())?;
    files.check_unchanged()?;
    output.commit()?;

    let n_experts = plan.layers.values().map(|l| l.packed.n_expert).sum();
    let expert_bytes = plan.layers.values().map(|l| l.packed.n_expert * l.packed.expert_bytes()).sum();
    let packed_bytes: u64 = plan.layers.values().map(|l| l.packed.n_expert * l.packed.stride).sum();
    Ok(PackReport {
        source_bytes,
        out_bytes: full.file_bytes(),
        n_layers: plan.layers.len(),
        n_experts,
        expert_bytes,
        padding_bytes: packed_bytes - expert_bytes,
        source_sha256: sha256,
        not_identical,
    })
}

/// Writes all tensors; returns the plan with its checksums filled in.
fn copy<'a>(
    mut plan: Plan<'a>,
    layout: &Layout,
    files: &mut Files,
    output: &mut Output,
    meter: &mut Meter<'_>,
) -> Result<Plan<'a>, RepackError> {
    let mut places = layout.tensors().iter();
    let mut next_offset = || places.next().expect("the layout has every tensor of the plan").offset;
    for tensor in &plan.dense {
        pad(output, next_offset(), meter)?;
        files.copy(Span { file: tensor.file, offset: tensor.offset, len: tensor.size }, output, meter)?;
    }
    for experts in plan.layers.values_mut() {
        pad(output, next_offset(), meter)?;
        copy_experts(experts, files, output, meter)?;
    }
    pad(output, layout.file_bytes(), meter)?;
    Ok(plan)
}

fn copy_experts(
    experts: &mut Experts<'_>,
    files: &mut Files,
    output: &mut Output,
    meter: &mut Meter<'_>,
) -> Result<(), RepackError> {
    let Experts { packed, tensors } = experts;
    for e in 0..packed.n_expert {
        let start = output.at();
        let mut hasher = ExpertHasher::new();
        for (part, tensor) in packed.parts.iter().zip(tensors.iter()) {
            pad(output, start + part.offset, meter)?;
            let span = Span { file: tensor.file, offset: tensor.offset + e * part.size, len: part.size };
            files.read(span, &mut |piece| {
                hasher.update(piece);
                output.write(piece)?;
                go_on(meter, piece.len() as u64)
            })?;
        }
        pad(output, start + packed.stride, meter)?;
        packed.checksums[e as usize] = hasher.finish();
    }
    Ok(())
}

fn pad(output: &mut Output, offset: u64, meter: &mut Meter<'_>) -> Result<(), RepackError> {
    let before = output.at();
    output.pad_to(offset)?;
    go_on(meter, output.at() - before)
}

/// The source's metadata without split keys, with the container's keys.
fn metadata(gguf: &Gguf, source: &Source, plan: &Plan<'_>) -> Metadata {
    let mut metadata = gguf.metadata.clone();
    if gguf.files.len() > 1 {
        metadata.remove_split_keys();
    }
    source.describe(&mut metadata);
    for (&layer, experts) in &plan.layers {
        experts.packed.describe(layer, &mut metadata);
    }
    metadata
}
