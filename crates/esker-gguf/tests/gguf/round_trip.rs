//! Whatever can be written reads back equal, and writes again to the same bytes.

use esker_gguf::{Array, Gguf, GgufWriter, Header, Layout, Metadata, RawStringArray, TensorSpec, Value};
use esker_quant::GgmlType;
use proptest::collection::vec;
use proptest::prelude::*;
use std::path::Path;

fn not_utf8() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 1..9).prop_filter("must not be UTF-8", |bytes| str::from_utf8(bytes).is_err())
}

fn raw_strings() -> impl Strategy<Value = RawStringArray> {
    (vec(vec(any::<u8>(), 0..5), 0..4), not_utf8())
        .prop_map(|(others, bad)| others.iter().chain([&bad]).collect())
}

fn flat_array() -> impl Strategy<Value = Array> {
    prop_oneof![
        vec(any::<u8>(), 0..40).prop_map(Array::from),
        vec(any::<i8>(), 0..5).prop_map(Array::from),
        vec(any::<u16>(), 0..5).prop_map(Array::from),
        vec(any::<i16>(), 0..5).prop_map(Array::from),
        vec(any::<u32>(), 0..5).prop_map(Array::from),
        vec(any::<i32>(), 0..5).prop_map(Array::from),
        vec(any::<u64>(), 0..5).prop_map(Array::from),
        vec(any::<i64>(), 0..5).prop_map(Array::from),
        vec(any::<f32>(), 0..5).prop_map(Array::from),
        vec(any::<f64>(), 0..5).prop_map(Array::from),
        vec(any::<bool>(), 0..5).prop_map(Array::from),
        vec(any::<String>(), 0..5).prop_map(Array::from),
        raw_strings().prop_map(Array::RawStrings),
    ]
}

fn array() -> impl Strategy<Value = Array> {
    flat_array().prop_recursive(3, 12, 3, |inner| vec(inner, 0..3).prop_map(Array::from))
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<u8>().prop_map(Value::from),
        any::<i8>().prop_map(Value::from),
        any::<u16>().prop_map(Value::from),
        any::<i16>().prop_map(Value::from),
        any::<u32>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f32>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        not_utf8().prop_map(Value::RawString),
        array().prop_map(Value::Array),
    ]
}

fn metadata() -> impl Strategy<Value = Metadata> {
    vec(("[a-zé_.0-9]{1,12}", value()), 0..12).prop_map(|pairs| {
        let mut metadata = Metadata::new();
        for (key, value) in pairs {
            metadata.set(key, value);
        }
        metadata
    })
}

fn tensors() -> impl Strategy<Value = Vec<TensorSpec>> {
    let types: Vec<GgmlType> = GgmlType::all().collect();
    let tensor = (proptest::sample::select(types), 1u64..3, vec(1u64..4, 0..4), "[a-z.ü]{0,8}");
    vec(tensor, 0..6).prop_map(|tensors| {
        let spec = |(i, (ty, blocks, rows, name)): (usize, (GgmlType, u64, Vec<u64>, String))| TensorSpec {
            name: format!("{name}{i}"),
            ty,
            shape: [vec![blocks * ty.block_elems() as u64], rows].concat(),
        };
        tensors.into_iter().enumerate().map(spec).collect()
    })
}

/// Data that differs from byte to byte and tensor to tensor.
fn data(seed: usize, size: u64) -> Vec<u8> {
    (0..size).map(|i| (i as usize * 7 + seed * 31 + 1) as u8).collect()
}

fn write(path: &Path, metadata: &Metadata, tensors: Vec<TensorSpec>, alignment: u64) {
    let mut writer = GgufWriter::new(path, metadata, tensors, alignment).unwrap();
    for i in 0..writer.layout().tensors().len() {
        let tensor = writer.next_tensor().unwrap().clone();
        writer.write_tensor(&tensor.name, &data(i, tensor.size)).unwrap();
    }
    writer.finish().unwrap();
}

/// Writes what `from` holds to `to`.
pub fn rewrite(from: &Gguf, to: &Path) {
    let specs = from.tensors.iter().map(|t| t.spec()).collect();
    let mut writer = GgufWriter::new(to, &from.metadata, specs, from.alignment).unwrap();
    for tensor in &from.tensors {
        writer.write_tensor(&tensor.name, &from.read_tensor(tensor).unwrap()).unwrap();
    }
    writer.finish().unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn written_files_read_back_equal(
        metadata in metadata(),
        tensors in tensors(),
        alignment in (0u32..9).prop_map(|n| 1u64 << n),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let (path, again) = (dir.path().join("a.gguf"), dir.path().join("b.gguf"));
        write(&path, &metadata, tensors.clone(), alignment);
        let gguf = Gguf::open(&path).unwrap();

        let mut expected = metadata;
        if alignment != 32 {
            expected.set("general.alignment", alignment as u32);
        }
        prop_assert_eq!(&gguf.metadata, &expected);
        prop_assert!(gguf.metadata.iter().map(|(k, _)| k).eq(expected.iter().map(|(k, _)| k)), "key order");
        prop_assert_eq!(gguf.alignment, alignment);
        let specs: Vec<TensorSpec> = gguf.tensors.iter().map(|t| t.spec()).collect();
        prop_assert_eq!(specs, tensors);
        for (i, tensor) in gguf.tensors.iter().enumerate() {
            prop_assert_eq!(gguf.read_tensor(tensor).unwrap(), data(i, tensor.size));
        }

        rewrite(&gguf, &again);
        prop_assert!(std::fs::read(&path).unwrap() == std::fs::read(&again).unwrap(), "bytes differ");
    }
}

/// Equality of floats does not see these; bytes do.
#[test]
fn bits_of_floats_survive() {
    let mut metadata = Metadata::new();
    let nans = [0x7fc0_0001, 0xffa0_0001, 0x8000_0000, 0x7f80_0000].map(f32::from_bits);
    metadata.set("one", nans[1]);
    metadata.set("many", nans.to_vec());
    metadata.set("wide", vec![f64::from_bits(0x7ff0_0000_0000_0001), -0.0]);
    let first = Layout::new(&metadata, vec![], 32).unwrap();
    let read = Header::read(first.header(), first.file_bytes()).unwrap();
    let second = Layout::new(&read.metadata, vec![], 32).unwrap();
    assert_eq!(first.header(), second.header());
    assert_eq!(read.metadata.f32("one").unwrap().to_bits(), 0xffa0_0001);
}
