//! Files that have changed since they were packed.

use crate::common::{go_on, message, metadata, mixed, names, pack_to, write};
use esker_gguf::{Array, Gguf, GgufWriter, Metadata, Value};
use esker_lab::IfExists;
use esker_lab::repack::{RepackError, unpack, verify};
use esker_packed::{PackedLayer, read_packed, tensor_name};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

fn packed() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let [source, packed] = ["m.gguf", "p.gguf"].map(|n| dir.path().join(n));
    write(&source, &metadata(), mixed(), 32);
    pack_to(&source, &packed).unwrap();
    std::fs::remove_file(source).unwrap();
    (dir, packed)
}

fn flip(path: &Path, offset: u64) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[offset as usize] ^= 0x10;
    std::fs::write(path, bytes).unwrap();
}

/// Where expert `expert` of `layer` begins, and how experts of the layer lie.
fn place(path: &Path, layer: u32, expert: u64) -> (u64, PackedLayer) {
    let gguf = Gguf::open(path).unwrap();
    let packed = read_packed(&gguf).unwrap().remove(&layer).unwrap();
    (gguf.tensor(&tensor_name(layer)).unwrap().offset + expert * packed.stride, packed)
}

/// `unpack` fails, and leaves nothing.
#[track_caller]
fn unpack_error(path: &Path) -> RepackError {
    let dir = tempfile::tempdir().unwrap();
    let error = unpack(path, &dir.path().join("b.gguf"), IfExists::Refuse, &mut go_on).unwrap_err();
    assert!(names(dir.path()).is_empty());
    error
}

#[test]
fn a_flipped_byte_is_named() {
    let (_dir, path) = packed();
    let (offset, layer) = place(&path, 2, 1);
    let part = &layer.parts[1];
    flip(&path, offset + part.offset + part.size - 1);
    let report = verify(&path, &mut go_on).unwrap();
    assert_eq!((report.n_layers, report.n_experts, report.n_bad), (2, 8, 1));
    let bad = report.first_bad.unwrap();
    assert_eq!((bad.layer, bad.expert, &bad.file, bad.offset), (2, 1, &path, offset));
    assert_eq!((bad.len, bad.expected), (layer.used_bytes(), layer.checksums[1]));
    assert_ne!(bad.found, bad.expected);
    let message = message(&unpack_error(&path));
    let named = format!("expert 1 of layer 2 (1024 bytes at byte {offset} of `{}`)", path.display());
    assert!(message.contains(&named), "{message}");

    // An earlier layer comes first, whatever was damaged first.
    let (offset, _) = place(&path, 1, 4);
    flip(&path, offset);
    let report = verify(&path, &mut go_on).unwrap();
    assert_eq!(report.n_bad, 2);
    let bad = report.first_bad.unwrap();
    assert_eq!((bad.layer, bad.expert, bad.offset), (1, 4, offset));
}

#[test]
fn a_flipped_byte_outside_of_experts() {
    let (_dir, path) = packed();
    flip(&path, Gguf::open(&path).unwrap().tensor("output_norm.weight").unwrap().offset);
    assert_eq!(verify(&path, &mut go_on).unwrap().n_bad, 0, "experts are whole");
    let error = unpack_error(&path);
    assert!(
        matches!(&error, RepackError::DamagedElsewhere { expected, found, .. } if expected != found),
        "{error}"
    );
}

#[test]
fn padding_does_not_matter() {
    let (dir, path) = packed();
    let (offset, layer) = place(&path, 1, 0);
    flip(&path, offset + layer.used_bytes());
    assert_eq!(verify(&path, &mut go_on).unwrap().n_bad, 0);
    unpack(&path, &dir.path().join("b.gguf"), IfExists::Refuse, &mut go_on).unwrap();
}

#[test]
fn truncated_files_are_refused() {
    let (_dir, path) = packed();
    let bytes = std::fs::read(&path).unwrap();
    for len in [0, 3, 40, 1000, 4096, bytes.len() - 4097, bytes.len() - 1] {
        std::fs::write(&path, &bytes[..len]).unwrap();
        let refused = |result: Result<(), RepackError>| matches!(result, Err(RepackError::Open(_)));
        assert!(refused(verify(&path, &mut go_on).map(drop)), "{len} bytes");
        assert!(refused(Err(unpack_error(&path))), "{len} bytes");
    }
}

/// Writes the file again with other metadata.
fn rewrite(path: &Path, change: impl FnOnce(&mut Metadata)) {
    let gguf = Gguf::open(path).unwrap();
    let mut metadata = gguf.metadata.clone();
    change(&mut metadata);
    let specs = gguf.tensors.iter().map(|t| t.spec()).collect();
    let mut writer = GgufWriter::new(path, &metadata, specs, gguf.alignment).unwrap();
    for tensor in &gguf.tensors {
        writer.write_tensor(&tensor.name, &gguf.read_tensor(tensor).unwrap()).unwrap();
    }
    writer.finish().unwrap();
}

/// The container's own tests go through every key; here it matters that each operation looks, and says which file.
#[test]
fn hostile_keys_are_refused() {
    let cases: [(&str, Value, &str); 6] = [
        (
            "esker.repack.version",
            9u32.into(),
            "key `esker.repack.version` is 9, expected 1: this file was repacked by another version",
        ),
        (
            "esker.repack.blk.1.rows",
            vec![5u64, 5, 1 << 62].into(),
            "the keys `esker.repack.blk.1.` make no layout: part `ffn_down_exps.weight` ends beyond byte 2^63 of the tensor",
        ),
        (
            "esker.repack.blk.1.offsets",
            vec![0u64, 192, 4096].into(),
            "key `esker.repack.blk.1.offsets` element 2 is 4096, expected at most 3456, for 640 bytes in a stride of 4096",
        ),
        (
            "esker.repack.blk.2.checksums",
            vec![0u64; 2].into(),
            "key `esker.repack.blk.2.checksums` has 2 entries, expected 3, one per expert",
        ),
        (
            "esker.repack.blk.2.parts",
            "ffn_down_exps.weight".into(),
            "key `esker.repack.blk.2.parts` is string, expected an array of strings",
        ),
        (
            "esker.repack.blk.3.parts",
            vec![0u64].into(),
            "key `esker.repack.blk.3.parts` describes tensor `blk.3.ffn_exps.packed`, which is missing",
        ),
    ];
    for (key, value, expected) in cases {
        let (_dir, path) = packed();
        rewrite(&path, |m| drop(m.set(key, value)));
        let expected = format!("`{}` cannot be used as a repacked file: {expected}", path.display());
        assert_eq!(message(&verify(&path, &mut go_on).unwrap_err()), expected);
        assert_eq!(message(&unpack_error(&path)), expected);
    }
}

#[test]
fn a_wrong_order_of_tensors_is_refused() {
    let (_dir, path) = packed();
    rewrite(&path, |m| {
        drop(m.set("esker.repack.tensor_order", Array::from(vec!["output_norm.weight".to_owned()])))
    });
    assert_eq!(verify(&path, &mut go_on).unwrap().n_bad, 0, "experts can be read all the same");
    let message = message(&unpack_error(&path));
    assert!(message.ends_with("key `esker.repack.tensor_order` lacks `blk.0.ffn_up.weight`"), "{message}");
}

/// Shapes that fit the bytes but not the model give a file that is not the source.
#[test]
fn lies_that_fit_are_found_by_the_hash() {
    let (_dir, path) = packed();
    rewrite(&path, |m| {
        m.set("esker.repack.blk.2.rows", vec![3u64, 64]);
        m.set("esker.repack.blk.2.cols", vec![128u64, 3]);
    });
    assert!(matches!(unpack_error(&path), RepackError::DamagedElsewhere { .. }));
}
