//! Sources that are not one canonical file.

use crate::common::{assert_same_model, go_on, metadata, mixed, pack_to, spec, write};
use esker_gguf::Gguf;
use esker_lab::IfExists;
use esker_lab::repack::{Restored, unpack, verify};
use esker_quant::GgmlType;
use std::path::Path;

/// Packs and restores `source`; it must come back as `restored`, and `pack` must have said why not as it was.
#[track_caller]
fn check(source: &Path, restored: Restored, why: Option<&str>) {
    let dir = tempfile::tempdir().unwrap();
    let [packed, back] = ["p.gguf", "b.gguf"].map(|n| dir.path().join(n));
    let report = pack_to(source, &packed).unwrap();
    assert_eq!(report.not_identical.as_deref(), why);
    assert_eq!(verify(&packed, &mut go_on).unwrap().n_bad, 0);
    let unpacked = unpack(&packed, &back, IfExists::Refuse, &mut go_on).unwrap();
    assert_eq!(unpacked.restored, restored);
    let same = std::fs::read(source).unwrap() == std::fs::read(&back).unwrap();
    assert_eq!(same, restored == Restored::Identical);
    let mut original = Gguf::open(source).unwrap();
    original.metadata.remove_split_keys();
    assert_same_model(&original, &Gguf::open(&back).unwrap());
}

#[test]
fn other_alignments() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.gguf");
    for (value, bytes) in [(32u64, 32), (64, 64), (4096, 4096), (8192, 8192)] {
        // The key stands before others, and is wider than it has to be.
        let mut keys = esker_gguf::Metadata::new();
        keys.set("general.alignment", value);
        metadata().iter().for_each(|(key, value)| drop(keys.set(key, value.clone())));
        write(&path, &keys, mixed(), bytes);
        check(&path, Restored::Identical, None);
    }
}

#[test]
fn a_file_of_version_2() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.gguf");
    write(&path, &metadata(), mixed(), 32);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[4] = 2;
    std::fs::write(&path, bytes).unwrap();
    check(&path, Restored::Equivalent, Some("its header is of another version or form"));
}

#[test]
fn other_padding() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.gguf");
    write(&path, &metadata(), mixed(), 32);
    let bytes = std::fs::read(&path).unwrap();
    let gguf = Gguf::open(&path).unwrap();
    let ends = "it ends elsewhere than after its last tensor and padding";

    std::fs::write(&path, [&bytes[..], &[0; 32]].concat()).unwrap();
    check(&path, Restored::Equivalent, Some(ends));
    let last = gguf.tensor("output_norm.weight").unwrap();
    std::fs::write(&path, &bytes[..(last.offset + last.size) as usize]).unwrap();
    check(&path, Restored::Equivalent, Some(ends));

    let padded = gguf.tensor("blk.0.ffn_up.weight").unwrap();
    let mut dirty = bytes.clone();
    dirty[(padded.offset + padded.size) as usize] = 1;
    std::fs::write(&path, dirty).unwrap();
    check(&path, Restored::Equivalent, Some("the padding between its tensors is not zero"));
}

#[test]
fn tensors_in_another_order_than_the_directory() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.gguf");
    let mut specs = mixed();
    specs.push(spec("a", GgmlType::F32, &[8]));
    specs.push(spec("b", GgmlType::F32, &[8]));
    write(&path, &metadata(), specs, 32);
    let mut bytes = std::fs::read(&path).unwrap();
    let gguf = Gguf::open(&path).unwrap();
    // The last 8 bytes of a directory entry are the offset of its data, after name, dimensions and type.
    let entry = |name: &str| {
        let mut key = (name.len() as u64).to_le_bytes().to_vec();
        key.extend(name.as_bytes());
        key.extend([1, 0, 0, 0, 8]);
        let at = bytes.windows(key.len()).position(|w| w == key).unwrap();
        at + key.len() - 5 + 4 + 8 + 4
    };
    let (a, b) = (entry("a"), entry("b"));
    let offsets: Vec<u8> = bytes[a..a + 8].to_vec();
    bytes.copy_within(b..b + 8, a);
    bytes[b..b + 8].copy_from_slice(&offsets);
    std::fs::write(&path, &bytes).unwrap();
    let swapped = Gguf::open(&path).unwrap();
    assert_eq!(
        swapped.tensor("a").unwrap().offset,
        gguf.tensor("b").unwrap().offset,
        "the test needs such a file"
    );
    check(&path, Restored::Equivalent, Some("its header is of another version or form"));
}

#[test]
fn a_split_set_becomes_one_file() {
    let dir = tempfile::tempdir().unwrap();
    let part = |no: u32| dir.path().join(format!("m-{:05}-of-00003.gguf", no + 1));
    // Gate and up of one layer are in different files.
    let specs = mixed();
    for (no, range) in [0..3, 3..5, 5..9].into_iter().enumerate() {
        let mut keys = if no == 0 { metadata() } else { esker_gguf::Metadata::new() };
        keys.set("split.no", no as u16);
        keys.set("split.count", 3u16);
        keys.set("split.tensors.count", 9u32);
        write(&part(no as u32), &keys, specs[range].to_vec(), 32);
    }
    check(&part(0), Restored::Merged { n_files: 3 }, Some("it is a set of 3 files"));
}
