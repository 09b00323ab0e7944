//! From an expert-major file back to the original.

use super::RepackError;
use super::source::{Files, Span, go_on};
use super::verify::{Packed, check_experts};
use crate::output::{IfExists, Output};
use crate::progress::{Meter, Progress, Stage};
use esker_gguf::Layout;
use esker_packed::{Place, Source};
use std::ops::ControlFlow;
use std::path::Path;

/// What the restored file is, compared with the file that was packed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Restored {
    /// The same bytes, by SHA-256.
    Identical,
    /// One file with the metadata and tensors of a split set.
    Merged {
        /// Files of the set.
        n_files: u32,
    },
    /// The same metadata and tensors; the original had another version, order or padding.
    Equivalent,
}

/// What [`unpack`] did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnpackReport {
    /// Bytes of the result.
    pub out_bytes: u64,
    /// Tensors of the result.
    pub n_tensors: usize,
    /// What the result is.
    pub restored: Restored,
    /// SHA-256 of the result, in hexadecimal.
    pub sha256: String,
}

/// Writes the model that was packed into `src`.
///
/// For a source of one canonical file the result is compared with the source's hash before it appears at `out`; where
/// there is nothing to compare with, the experts' checksums are verified first (a second pass, [`Stage::Verify`]). The
/// data itself is [`Stage::Copy`].
/// # Errors
/// If `src` is not repacked, or damaged; if a file cannot be read or written; if `progress` breaks off. Then nothing has
/// changed at `out`.
pub fn unpack(
    src: &Path,
    out: &Path,
    if_exists: IfExists,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<UnpackReport, RepackError> {
    let packed = Packed::open(src)?;
    let Packed { gguf, layers } = &packed;
    let wrong = |source| RepackError::Packed { path: src.to_owned(), source };
    let source = Source::read(&gguf.metadata).map_err(wrong)?;
    let tensors = source.tensors(gguf, layers).map_err(wrong)?;
    let mut metadata = gguf.metadata.clone();
    source.restore(&mut metadata);
    let (specs, places): (Vec<_>, Vec<_>) = tensors.into_iter().unzip();
    let layout = Layout::new(&metadata, specs, source.alignment_bytes())?;

    let mut output = Output::create(out, layout.file_bytes(), &gguf.files, if_exists, true)?;
    let mut files = Files::open(gguf)?;
    let comparable = source.n_files == 1 && source.canonical;
    if !comparable {
        first_bad(&packed, &mut files, progress)?;
    }
    let mut meter = Meter::new(progress, Stage::Copy, layout.file_bytes());
    output.write(layout.header())?;
    go_on(&mut meter, output.at())?;
    for (tensor, place) in layout.tensors().iter().zip(places) {
        let before = output.at();
        output.pad_to(tensor.offset)?;
        go_on(&mut meter, output.at() - before)?;
        for span in spans(&packed, place) {
            files.copy(span, &mut output, &mut meter)?;
        }
    }
    let before = output.at();
    output.pad_to(layout.file_bytes())?;
    go_on(&mut meter, output.at() - before)?;

    let sha256 = output.sha256().expect("asked for at creation");
    if comparable && sha256 != source.sha256 {
        first_bad(&packed, &mut files, progress)?;
        let (expected, found) = (source.sha256, sha256);
        return Err(RepackError::DamagedElsewhere { path: src.to_owned(), expected, found });
    }
    files.check_unchanged()?;
    output.commit()?;
    let restored = match source.n_files {
        1 if source.canonical => Restored::Identical,
        1 => Restored::Equivalent,
        n_files => Restored::Merged { n_files },
    };
    let n_tensors = layout.tensors().len();
    Ok(UnpackReport { out_bytes: layout.file_bytes(), n_tensors, restored, sha256 })
}

/// Fails with the first damaged expert, if there is one.
fn first_bad(
    packed: &Packed,
    files: &mut Files,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<(), RepackError> {
    match check_experts(packed, files, progress)?.first_bad {
        Some(bad) => Err(RepackError::Damaged { bad }),
        None => Ok(()),
    }
}

/// Where the bytes of a tensor of the original are, in order.
fn spans(packed: &Packed, place: Place) -> impl Iterator<Item = Span> {
    let (file, offset, len, step, n) = match place {
        Place::Tensor { index } => {
            let tensor = &packed.gguf.tensors[index];
            (tensor.file, tensor.offset, tensor.size, 0, 1)
        }
        Place::Part { layer, part } => {
            let (layer, tensor) = (&packed.layers[&layer], packed.tensor(layer));
            let part = &layer.parts[part];
            (tensor.file, tensor.offset + part.offset, part.size, layer.stride, layer.n_expert)
        }
    };
    (0..n).map(move |i| Span { file, offset: offset + i * step, len })
}
