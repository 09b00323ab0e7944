//! MXFP4 and NVFP4: E2M1 values with a scale per 32 or 16 weights.

use crate::blocks::codebooks::KVALUES_E2M1;
use crate::blocks::{BlockMXFP4, BlockNVFP4, e8m0_half_to_f32, ue4m3_half_to_f32};

fn value(code: u8) -> f32 {
    f32::from(KVALUES_E2M1[usize::from(code & 15)])
}

pub(super) fn mxfp4(block: &BlockMXFP4, out: &mut [f32; 32]) {
    let d = e8m0_half_to_f32(block.e);
    for (j, byte) in block.qs.iter().enumerate() {
        out[j] = value(byte & 15) * d;
        out[j + 16] = value(byte >> 4) * d;
    }
}

pub(super) fn nvfp4(block: &BlockNVFP4, out: &mut [f32; 64]) {
    let (groups, _) = block.qs.as_chunks::<8>();
    for (g, out) in out.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let d = ue4m3_half_to_f32(block.d[g]);
        for (j, byte) in groups[g].iter().enumerate() {
            out[j] = value(byte & 15) * d;
            out[j + 8] = value(byte >> 4) * d;
        }
    }
}
