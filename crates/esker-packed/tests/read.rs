//! Reading the container: what it gives back, and everything that it refuses.

use esker_gguf::{Array, Gguf, GgufWriter, Metadata, TensorSpec};
use esker_packed::{PackedLayer, PartShape, Place, Source, read_packed};
use esker_quant::GgmlType;
use std::error::Error;

const N_EXPERT: u64 = 3;

fn layer() -> PackedLayer {
    let shape = |name: &str, ty, rows, cols| PartShape { name: name.to_owned(), ty, rows, cols };
    let mut layer = PackedLayer::plan(
        N_EXPERT,
        vec![
            shape("ffn_gate_exps.weight", GgmlType::Q4_0, 5, 32),
            shape("ffn_up_exps.weight", GgmlType::Q4_0, 5, 32),
            shape("ffn_down_exps.weight", GgmlType::F16, 32, 5),
        ],
    )
    .unwrap();
    layer.checksums = vec![11, 22, u64::MAX];
    layer
}

fn source() -> Source {
    let names = ["a", "blk.1.ffn_up_exps.weight", "blk.1.ffn_gate_exps.weight", "blk.1.ffn_down_exps.weight"];
    Source {
        sha256: "0123456789abcdef".repeat(4),
        n_files: 1,
        canonical: true,
        tensor_order: names.into_iter().collect(),
        alignment: None,
    }
}

/// A file with a tensor `a` and packed experts in layer 1, after `change`.
fn file(change: impl FnOnce(&mut Metadata, &mut Vec<TensorSpec>)) -> Gguf {
    let mut metadata = Metadata::new();
    metadata.set("general.architecture", "qwen3moe");
    source().describe(&mut metadata);
    layer().describe(1, &mut metadata);
    let mut specs =
        vec![TensorSpec { name: "a".to_owned(), ty: GgmlType::F32, shape: vec![4] }, layer().spec(1)];
    change(&mut metadata, &mut specs);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.gguf");
    let alignment = metadata.u64("general.alignment").unwrap();
    let mut writer = GgufWriter::new(&path, &metadata, specs, alignment).unwrap();
    while let Some(tensor) = writer.next_tensor() {
        let (name, size) = (tensor.name.clone(), tensor.size as usize);
        writer.write_tensor(&name, &vec![0; size]).unwrap();
    }
    writer.finish().unwrap();
    Gguf::open(&path).unwrap()
}

/// The error and its causes.
fn message(error: &dyn Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", message(source)),
        None => error.to_string(),
    }
}

#[track_caller]
fn refused(change: impl FnOnce(&mut Metadata, &mut Vec<TensorSpec>), expected: &str) {
    let error = read_packed(&file(change)).expect_err("must be refused");
    assert_eq!(message(&error), expected);
}

#[track_caller]
fn source_refused(change: impl FnOnce(&mut Metadata), expected: &str) {
    let gguf = file(|metadata, _| change(metadata));
    let layers = read_packed(&gguf).unwrap();
    let error =
        Source::read(&gguf.metadata).and_then(|s| s.tensors(&gguf, &layers)).expect_err("must be refused");
    assert_eq!(message(&error), expected);
}

#[test]
fn what_is_described_is_read() {
    let gguf = file(|_, _| {});
    let layers = read_packed(&gguf).unwrap();
    assert_eq!(layers.len(), 1);
    assert_eq!(layers[&1], layer());
    assert_eq!(layers[&1].stride, 4096);

    let read = Source::read(&gguf.metadata).unwrap();
    assert_eq!(read, source());
    let tensors = read.tensors(&gguf, &layers).unwrap();
    let places: Vec<_> = tensors.iter().map(|(spec, place)| (spec.name.as_str(), *place)).collect();
    assert_eq!(
        places,
        [
            ("a", Place::Tensor { index: 0 }),
            ("blk.1.ffn_up_exps.weight", Place::Part { layer: 1, part: 1 }),
            ("blk.1.ffn_gate_exps.weight", Place::Part { layer: 1, part: 0 }),
            ("blk.1.ffn_down_exps.weight", Place::Part { layer: 1, part: 2 }),
        ]
    );
    assert_eq!(tensors[3].0.shape, [5, 32, 3]);

    let mut metadata = gguf.metadata.clone();
    read.restore(&mut metadata);
    assert_eq!(metadata.iter().map(|(k, _)| k).collect::<Vec<_>>(), ["general.architecture"]);
}

#[test]
fn alignment_keeps_its_place_and_type() {
    let mut metadata = Metadata::new();
    metadata.set("general.alignment", 64u64);
    metadata.set("general.name", "x");
    let original = metadata.clone();
    let source = Source { alignment: metadata.get("general.alignment").cloned(), ..source() };
    source.describe(&mut metadata);
    assert_eq!(metadata.u64("general.alignment"), Ok(4096));
    let read = Source::read(&metadata).unwrap();
    assert_eq!(read.alignment_bytes(), 64);
    read.restore(&mut metadata);
    assert_eq!(metadata, original);
}

#[test]
fn a_plain_file_has_no_packed_layers() {
    let gguf = file(|metadata, specs| {
        metadata.retain(|key, _| !key.starts_with("esker."));
        specs.truncate(1);
    });
    assert!(read_packed(&gguf).unwrap().is_empty());
}

#[test]
fn versions() {
    refused(
        |m, _| drop(m.set("esker.repack.version", 2u32)),
        "key `esker.repack.version` is 2, expected 1: this file was repacked by another version",
    );
    refused(|m, _| drop(m.remove("esker.repack.version")), "key `esker.repack.version` is missing");
    refused(|m, _| m.retain(|key, _| !key.starts_with("esker.")), "key `esker.repack.version` is missing");
}

#[test]
fn tensors_that_cannot_hold_experts() {
    let name = "blk.1.ffn_exps.packed";
    let shaped = |shape: &[u64]| {
        let shape = shape.to_vec();
        move |_: &mut Metadata, specs: &mut Vec<TensorSpec>| specs[1].shape = shape
    };
    refused(|_, specs| specs[1].ty = GgmlType::I16, &format!("tensor `{name}` has type I16, expected I8"));
    refused(
        shaped(&[4096, 3, 1]),
        &format!("tensor `{name}` has shape [4096, 3, 1], expected [stride, n_expert]"),
    );
    refused(shaped(&[4095, 3]), &format!("tensor `{name}` has stride 4095, expected a multiple of 4096"));
    // The header takes less than 2048 bytes, `a` two more pieces of 2048 after it.
    refused(
        |m, specs| {
            m.set("general.alignment", 2048u32);
            specs[0].shape = vec![600];
        },
        &format!("tensor `{name}` has offset 6144, expected a multiple of 4096"),
    );
    refused(
        |_, specs| specs[1].name = "blk.01.ffn_exps.packed".to_owned(),
        "tensor `blk.01.ffn_exps.packed` has the name blk.01.ffn_exps.packed, expected blk.1.ffn_exps.packed",
    );
    refused(
        |_, specs| drop(specs.pop()),
        "key `esker.repack.blk.1.parts` describes tensor `blk.1.ffn_exps.packed`, which is missing",
    );
    refused(
        |m, _| drop(m.set("esker.repack.blk.+1.parts", 0u8)),
        "key `esker.repack.blk.+1.parts` describes tensor `blk.+1.ffn_exps.packed`, which is missing",
    );
    refused(
        |_, specs| {
            let name = "blk.1.ffn_up_exps.weight".to_owned();
            specs.push(TensorSpec { name, ty: GgmlType::F32, shape: vec![4] });
        },
        "tensor `blk.1.ffn_up_exps.weight` is there although its layer is packed in `blk.1.ffn_exps.packed`",
    );
}

#[test]
fn lists_that_do_not_fit() {
    let key = |field: &str| format!("esker.repack.blk.1.{field}");
    for field in ["parts", "types", "rows", "cols", "offsets", "checksums"] {
        refused(|m, _| drop(m.remove(&key(field))), &format!("key `{}` is missing", key(field)));
    }
    for field in ["types", "rows", "cols", "offsets"] {
        let expected = format!("key `{}` has 2 entries, expected 3, one per part", key(field));
        refused(|m, _| drop(m.set(key(field), vec![0u64, 64])), &expected);
    }
    refused(
        |m, _| drop(m.set(key("checksums"), vec![1u64, 2])),
        "key `esker.repack.blk.1.checksums` has 2 entries, expected 3, one per expert",
    );
    refused(
        |m, _| drop(m.set(key("checksums"), vec![1i64, 2, -3])),
        "key `esker.repack.blk.1.checksums` element 2 is -3, expected an array of integers of 0 to 2^64-1",
    );
    refused(
        |m, _| drop(m.set(key("rows"), "five")),
        "key `esker.repack.blk.1.rows` is string, expected an array of integers of 0 to 2^64-1",
    );
}

#[test]
fn parts_that_make_no_expert() {
    let [up, gate, down] = ["ffn_up_exps.weight", "ffn_gate_exps.weight", "ffn_down_exps.weight"];
    for parts in [&[up, gate, down][..], &[gate, down], &[gate, gate, down], &[], &[gate, up, down, down]] {
        let names: Vec<String> = parts.iter().map(|&p| p.to_owned()).collect();
        refused(
            |m, _| drop(m.set("esker.repack.blk.1.parts", Array::from(names))),
            &format!(
                "key `esker.repack.blk.1.parts` is {}, expected gate, up and down, or gate_up and down, in this order",
                parts.join(", ")
            ),
        );
    }
    for (id, what) in [(42_000u64, "unknown (known: 0 to 42)"), (1 << 40, "unknown (known: 0 to 42)")] {
        let shown = u32::try_from(id).unwrap_or(u32::MAX);
        refused(
            |m, _| drop(m.set("esker.repack.blk.1.types", vec![2, id, 1])),
            &format!("key `esker.repack.blk.1.types` element 1: tensor type id {shown} is {what}"),
        );
    }
}

#[test]
fn shapes_and_places_that_cannot_be() {
    let layout = |field: &'static str, values: [u64; 3]| {
        move |m: &mut Metadata, _: &mut Vec<TensorSpec>| {
            drop(m.set(format!("esker.repack.blk.1.{field}"), values.to_vec()));
        }
    };
    let prefix = "the keys `esker.repack.blk.1.` make no layout: part";
    refused(layout("rows", [5, 0, 32]), &format!("{prefix} `ffn_up_exps.weight` has 0 rows of 32 elements"));
    refused(
        layout("cols", [32, 40, 5]),
        &format!(
            "{prefix} `ffn_up_exps.weight`: a row of 40 elements is not a multiple of Q4_0's block of 32"
        ),
    );
    refused(
        layout("rows", [5, u64::MAX, 32]),
        &format!("{prefix} `ffn_up_exps.weight` ends beyond byte 2^63 of the tensor"),
    );
    refused(
        layout("cols", [32, u64::MAX / 32 * 32, 5]),
        &format!("{prefix} `ffn_up_exps.weight` ends beyond byte 2^63 of the tensor"),
    );
    refused(
        layout("rows", [5, 5, i64::MAX as u64 / 10]),
        &format!("{prefix} `ffn_down_exps.weight` ends beyond byte 2^63 of the tensor"),
    );
    let offset = "key `esker.repack.blk.1.offsets` element";
    refused(
        layout("offsets", [0, 64, 256]),
        &format!("{offset} 1 is 64, expected a multiple of 64 from 90 on"),
    );
    refused(
        layout("offsets", [0, 130, 256]),
        &format!("{offset} 1 is 130, expected a multiple of 64 from 90 on"),
    );
    refused(
        layout("offsets", [128, 0, 256]),
        &format!("{offset} 1 is 0, expected a multiple of 64 from 218 on"),
    );
    refused(
        layout("offsets", [0, 128, 3840]),
        &format!("{offset} 2 is 3840, expected at most 3776, for 320 bytes in a stride of 4096"),
    );
    refused(
        layout("offsets", [0, 128, u64::MAX - 63]),
        &format!("{offset} 2 is {}, expected a multiple of 64 from 218 on", u64::MAX - 63),
    );
    // Gaps are no error: a later version may want larger ones.
    assert!(read_packed(&file(layout("offsets", [64, 512, 3776]))).is_ok());
}

#[test]
fn sources_that_cannot_be() {
    source_refused(
        |m| drop(m.set("esker.repack.source_sha256", "ABC\n")),
        "key `esker.repack.source_sha256` is `ABC\\n`, expected 64 hexadecimal digits",
    );
    source_refused(
        |m| drop(m.set("esker.repack.source_files", 0u32)),
        "key `esker.repack.source_files` is 0, expected at least 1",
    );
    source_refused(
        |m| drop(m.set("esker.repack.alignment", 48u32)),
        "key `esker.repack.alignment` is 48, expected 0 or a power of two up to 2 MiB",
    );
    source_refused(
        |m| drop(m.set("esker.repack.source_canonical", 1u8)),
        "key `esker.repack.source_canonical` is u8, expected a bool",
    );
    source_refused(
        |m| drop(m.set("esker.repack.tensor_order", Array::from(vec!["a".to_owned(), "a".to_owned()]))),
        "key `esker.repack.tensor_order` names, where it is not to be found or for the second time, `a`",
    );
    source_refused(
        |m| drop(m.set("esker.repack.tensor_order", Array::from(vec!["b".to_owned()]))),
        "key `esker.repack.tensor_order` names, where it is not to be found or for the second time, `b`",
    );
    source_refused(
        |m| drop(m.set("esker.repack.tensor_order", Array::from(vec!["a".to_owned()]))),
        "key `esker.repack.tensor_order` lacks `blk.1.ffn_down_exps.weight`",
    );
}
