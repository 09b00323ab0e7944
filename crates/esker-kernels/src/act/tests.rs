use super::*;
use crate::isa::Isa;
use crate::testdata::{Golden, Rng};
use esker_quant::blocks::f32_to_f16;

/// The bytes of llama.cpp's blocks, built from our separate arrays.
fn as_blocks(acts: &Acts<'_>, t: usize) -> Vec<u8> {
    let mut out = Vec::new();
    match acts.format() {
        ActFormat::F32 => unreachable!("has no blocks"),
        ActFormat::Q8x32 => {
            let row = acts.row_q8x32(t);
            for b in 0..acts.n_cols() / 32 {
                out.extend(f32_to_f16(row.scales[b]).to_le_bytes());
                out.extend(row.codes[b / 2].0[b % 2 * 32..][..32].iter().map(|&q| q as u8));
            }
        }
        ActFormat::Q8x256 => {
            let row = acts.row_q8x256(t);
            for b in 0..acts.n_cols() / 256 {
                out.extend(row.scales[b].to_le_bytes());
                out.extend(row.codes[b * 4..][..4].iter().flat_map(|line| line.0).map(|q| q as u8));
                out.extend(row.sums16[b * 16..][..16].iter().flat_map(|sum| sum.to_le_bytes()));
            }
        }
    }
    out
}

#[test]
fn bytes_equal_llama_cpp() {
    let mut golden = Golden::open();
    let x: Vec<f32> = golden.array("act");
    let pool = Pool::new(2);
    for (format, name) in [(ActFormat::Q8x32, "act_q8_0"), (ActFormat::Q8x256, "act_q8_k")] {
        let expected: Vec<u8> = golden.array(name);
        let mut buf = ActBuf::new();
        let acts = buf.prepare(&pool, format, &x, 512);
        assert_eq!(acts.n_tokens(), 4);
        let actual: Vec<u8> = (0..4).flat_map(|t| as_blocks(&acts, t)).collect();
        assert_eq!(actual, expected, "{format:?}");
    }
}

/// All arrays of one row, as bits.
fn bits(isa: Isa, format: ActFormat, x: &[f32]) -> Vec<u32> {
    let blocks = blocks_q8x32(x.len());
    // Old contents must not shine through: the padding is written too.
    let mut codes = vec![Line([99i8; 64]); blocks / 2];
    let mut corrections = vec![Line([99i32; 16]); blocks / 2];
    let (mut scales, mut scaled_sums) = (vec![9.9f32; blocks], vec![9.9f32; blocks]);
    let (mut sums16, mut sums32) = (vec![99i16; x.len() / 16], vec![99i16; x.len() / 32]);
    match format {
        ActFormat::F32 => unreachable!("is not rounded"),
        ActFormat::Q8x32 => quantize::q8x32(
            isa,
            x,
            quantize::Row32Mut {
                codes: &mut codes,
                corrections: &mut corrections,
                scales: &mut scales,
                scaled_sums: &mut scaled_sums,
            },
        ),
        ActFormat::Q8x256 => quantize::q8x256(
            isa,
            x,
            quantize::Row256Mut {
                codes: &mut codes[..x.len() / 64],
                scales: &mut scales[..scales_q8x256(x.len()).min(blocks)],
                sums16: &mut sums16,
                sums32: &mut sums32,
            },
        ),
    }
    let mut out: Vec<u32> = codes.iter().flat_map(|line| line.0).map(|q| q as u32).collect();
    out.extend(corrections.iter().flat_map(|line| line.0).map(|c| c as u32));
    out.extend(scales.iter().chain(&scaled_sums).map(|v| v.to_bits()));
    out.extend(sums16.iter().chain(&sums32).map(|&s| s as u32));
    out
}

#[test]
fn every_isa_gives_the_same_bits() {
    let mut rng = Rng::new(7);
    for case in 0..200 {
        let mut x: Vec<f32> = (0..256 * (1 + case % 5)).map(|_| rng.normal()).collect();
        let power = rng.below(60) as i32 - 40;
        for v in &mut x {
            match case % 4 {
                0 => *v *= 2f32.powi(power),
                1 => *v = (*v * 4.0).round() * 0.5, // ties, both signs of the maximum
                2 if rng.below(40) == 0 => *v *= 1e4,
                3 if rng.below(3) > 0 => *v = 0.0,
                _ => (),
            }
        }
        if case == 3 {
            x.fill(f32::from_bits(1)); // the inverse overflows
        }
        for format in [ActFormat::Q8x32, ActFormat::Q8x256] {
            let expected = bits(Isa::Scalar, format, &x);
            for isa in Isa::available() {
                assert_eq!(bits(isa, format, &x), expected, "{isa} {format:?} case {case}");
            }
        }
    }
}

/// `|x - d·q| <= d/2`, and what the half-precision scale adds in Q8x32: 127 times half its last place.
#[test]
fn rounding_error_is_half_a_step() {
    let mut rng = Rng::new(3);
    let x: Vec<f32> = (0..512 * 3).map(|_| rng.normal()).collect();
    let pool = Pool::new(1);
    let mut buf = ActBuf::new();
    for format in ActFormat::ALL {
        let acts = buf.prepare(&pool, format, &x, 512);
        let mut row = vec![0.0; 512];
        for t in 0..3 {
            acts.decode_row(t, &mut row);
            for (i, (actual, x)) in row.iter().zip(&x[t * 512..]).enumerate() {
                let limit = match format {
                    ActFormat::F32 => 0.0,
                    ActFormat::Q8x32 => {
                        let d = acts.row_q8x32(t).scales[i / 32];
                        d * (0.5 + 127.0 / 2048.0 + 1e-4)
                    }
                    ActFormat::Q8x256 => acts.row_q8x256(t).scales[i / 256].abs() * (0.5 + 1e-4),
                };
                assert!((actual - x).abs() <= limit, "{format:?}: {actual} for {x}");
            }
        }
    }
}

#[test]
fn a_nan_or_infinity_shows_in_the_scale() {
    let pool = Pool::new(1);
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut x = vec![1.0f32; 256];
        x[77] = bad;
        let mut buf = ActBuf::new();
        let acts = buf.prepare(&pool, ActFormat::Q8x32, &x, 256);
        assert!(!acts.row_q8x32(0).scales[2].is_finite());
        assert!(acts.row_q8x32(0).scales[1].is_finite());
        let acts = buf.prepare(&pool, ActFormat::Q8x256, &x, 256);
        assert!(!acts.row_q8x256(0).scales[0].is_finite());
    }
}

#[test]
fn the_buffer_is_reused() {
    let pool = Pool::new(2);
    let mut buf = ActBuf::new();
    let x: Vec<f32> = (0..64 * 512).map(|i| (i as f32).sin()).collect();
    buf.prepare(&pool, ActFormat::Q8x32, &x, 512);
    let before = buf.codes.as_ptr();
    // A smaller shape after a larger one, odd number of blocks: its padding is zero.
    let acts = buf.prepare(&pool, ActFormat::Q8x32, &x[..96 * 5], 96);
    for t in 0..5 {
        let row = acts.row_q8x32(t);
        assert_eq!((row.codes.len(), row.scales.len()), (8, 16));
        assert!(row.codes[1].0[32..].iter().chain(&row.codes[2].0).all(|&q| q == 0));
        assert!(row.scales[3..].iter().chain(&row.scaled_sums[3..]).all(|&v| v == 0.0));
    }
    assert_eq!(buf.codes.as_ptr(), before);
}
