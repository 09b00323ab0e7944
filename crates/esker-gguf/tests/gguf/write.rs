//! The writer: what it refuses, and what it leaves on disk.

use crate::common::message;
use esker_gguf::{Array, Gguf, GgufWriter, Header, Layout, Metadata, TensorSpec, Value, WriteError};
use esker_quant::GgmlType;
use std::path::Path;

fn spec(name: &str, ty: GgmlType, shape: &[u64]) -> TensorSpec {
    TensorSpec { name: name.to_owned(), ty, shape: shape.to_vec() }
}

fn two() -> Vec<TensorSpec> {
    vec![spec("a", GgmlType::F32, &[3]), spec("b", GgmlType::Q8_0, &[32, 2])]
}

fn metadata() -> Metadata {
    let mut metadata = Metadata::new();
    metadata.set("general.architecture", "llama");
    metadata
}

fn files(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[track_caller]
fn refused<T>(result: Result<T, WriteError>, expected: &str) {
    let error = result.err().expect("must be refused");
    assert_eq!(message(&error), expected);
}

#[test]
fn data_lands_where_the_layout_says() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.gguf");
    let mut writer = GgufWriter::new(&path, &metadata(), two(), 4096).unwrap();
    assert_eq!(writer.layout().file_bytes(), 3 * 4096);
    writer.write_tensor("a", &[1; 12]).unwrap();
    assert_eq!(writer.next_tensor().map(|t| &t.name[..]), Some("b"));
    writer.write_part("b", &[2; 5]).unwrap();
    writer.write_part("b", &[]).unwrap();
    writer.write_tensor("b", &[3; 63]).unwrap();
    assert_eq!(writer.next_tensor(), None);
    writer.finish().unwrap();

    let bytes = std::fs::read(&path).unwrap();
    assert_eq!(bytes.len(), 3 * 4096);
    assert_eq!(&bytes[4096..4108], &[1; 12]);
    assert_eq!(&bytes[4108..8192], &[0; 4084]);
    assert_eq!(&bytes[8192..8197], &[2; 5]);
    assert_eq!(&bytes[8197..8260], &[3; 63]);
    let gguf = Gguf::open(&path).unwrap();
    assert_eq!(gguf.alignment, 4096);
    assert_eq!(gguf.metadata.get("general.alignment"), Some(&Value::U32(4096)));
    assert_eq!(gguf.read_tensor(gguf.tensor("a").unwrap()).unwrap(), [1; 12]);
    assert_eq!((gguf.total_tensor_bytes(), gguf.total_elements()), (80, 67));
    assert_eq!(files(dir.path()), ["m.gguf"]);
}

#[test]
fn an_unfinished_writer_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.gguf");
    std::fs::write(&path, "before").unwrap();
    let mut writer = GgufWriter::new(&path, &metadata(), two(), 32).unwrap();
    writer.write_tensor("a", &[0; 12]).unwrap();
    let during = files(dir.path());
    assert_eq!(during.len(), 2);
    assert!(during[0].starts_with(".m.gguf.") && during[0].ends_with(".tmp"), "{during:?}");
    drop(writer);
    assert_eq!(files(dir.path()), ["m.gguf"]);
    assert_eq!(std::fs::read(&path).unwrap(), b"before");

    let mut writer = GgufWriter::new(&path, &metadata(), two(), 32).unwrap();
    writer.write_part("a", &[0; 11]).unwrap();
    refused(writer.finish(), "tensor `a` and 1 after it are not complete");
    assert_eq!(files(dir.path()), ["m.gguf"]);
    assert_eq!(std::fs::read(&path).unwrap(), b"before");
}

#[test]
fn finishing_replaces_what_was_there() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.gguf");
    std::fs::write(&path, "before").unwrap();
    GgufWriter::new(&path, &metadata(), vec![], 32).unwrap().finish().unwrap();
    let gguf = Gguf::open(&path).unwrap();
    assert!(gguf.tensors.is_empty());
    assert_eq!(gguf.total_file_bytes() % 32, 0);
    assert_eq!(files(dir.path()), ["m.gguf"]);
}

#[test]
#[cfg(unix)]
fn the_file_is_as_readable_as_any_other() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode();
    let (plain, path) = (dir.path().join("plain"), dir.path().join("m.gguf"));
    std::fs::write(&plain, "").unwrap();
    GgufWriter::new(&path, &metadata(), vec![], 32).unwrap().finish().unwrap();
    assert_eq!(mode(&path), mode(&plain));
}

#[test]
fn order_and_sizes_are_checked() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = GgufWriter::new(&dir.path().join("m.gguf"), &metadata(), two(), 32).unwrap();
    refused(writer.write_tensor("b", &[0; 68]), "tensor `b` is given, expected `a`");
    refused(writer.write_tensor("a", &[0; 8]), "tensor `a` is given 8 bytes, expected 12");
    writer.write_part("a", &[0; 8]).unwrap();
    refused(writer.write_part("a", &[0; 5]), "tensor `a` is given 13 bytes, expected 12");
    writer.write_part("a", &[0; 4]).unwrap();
    refused(writer.write_part("a", &[0; 1]), "tensor `a` is given, expected `b`");
    writer.write_tensor("b", &[0; 68]).unwrap();
    refused(writer.write_tensor("c", &[]), "tensor `c` is given after the last one");
    writer.finish().unwrap();
}

#[test]
fn what_could_not_be_read_is_not_written() {
    let layout = |metadata: &Metadata, tensors, alignment| Layout::new(metadata, tensors, alignment);
    let empty = Metadata::new();
    refused(
        layout(&empty, vec![spec("a", GgmlType::Q4_K, &[128])], 32),
        "the shape of tensor `a` is impossible: a row of 128 elements is not a multiple of Q4_K's block of 256",
    );
    refused(
        layout(&empty, vec![spec("a", GgmlType::I8, &[1]), spec("a", GgmlType::I8, &[1])], 32),
        "the file would not be readable: tensor `a` is there twice",
    );
    refused(
        layout(&empty, vec![spec("", GgmlType::I8, &[1])], 32),
        "the file would not be readable: \
         the name of tensor 0 at byte 24 has 0 bytes, expected 1 to 1024",
    );
    let half = spec("half", GgmlType::I8, &[1 << 62]);
    refused(
        layout(&empty, vec![half.clone(), spec("b", GgmlType::I8, &[1 << 62])], 32),
        "tensor `b` would end beyond byte 2^63 of the file",
    );
    assert!(layout(&empty, vec![half], 32).is_ok());
    for alignment in [0, 24, 4 << 20] {
        refused(
            layout(&empty, vec![], alignment),
            &format!(
                "the file would not be readable: \
                 key `general.alignment` is {alignment}, expected a power of two of 1 to 2097152"
            ),
        );
    }
    let mut aligned = Metadata::new();
    aligned.set("general.alignment", 64u32);
    refused(layout(&aligned, vec![], 32), "alignment 32 is not that of the metadata, 64");
    assert!(layout(&aligned, vec![], 64).is_ok());

    let mut bad = Metadata::new();
    bad.set("a\n", true);
    refused(
        layout(&bad, vec![], 32),
        "the file would not be readable: \
         the key of metadata entry 0 at byte 24 is `a\\n`, expected UTF-8 without control characters",
    );
    let deep = (0..4).fold(Array::U8(vec![]), |inner, _| Array::Arrays(vec![inner]));
    let mut bad = Metadata::new();
    bad.set("deep", Value::Array(deep));
    refused(
        layout(&bad, vec![], 32),
        "the file would not be readable: key `deep`: the array at byte 88 is nested deeper than 4 levels",
    );
}

#[test]
fn a_scalar_is_written_as_one_element() {
    let layout = Layout::new(&Metadata::new(), vec![spec("s", GgmlType::F32, &[])], 32).unwrap();
    let header = Header::read(layout.header(), layout.file_bytes()).unwrap();
    assert_eq!(header.tensors, layout.tensors());
    assert_eq!((&header.tensors[0].shape[..], header.tensors[0].size), (&[1][..], 4));
}

#[test]
fn places_that_cannot_be_written() {
    let dir = tempfile::tempdir().unwrap();
    let attempt = |path: &Path| GgufWriter::new(path, &metadata(), vec![], 32).err().map(|e| message(&e));
    for path in [dir.path().to_owned(), dir.path().join("none/m.gguf"), "/".into(), "..".into()] {
        let text = attempt(&path).expect("must be refused");
        assert!(text.starts_with(&format!("cannot write `{}`: ", path.display())), "{text}");
    }
    assert_eq!(files(dir.path()), [""; 0]);
}

#[test]
fn a_tensor_that_the_file_no_longer_has() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.gguf");
    let mut writer = GgufWriter::new(&path, &metadata(), two(), 32).unwrap();
    writer.write_tensor("a", &[0; 12]).unwrap();
    writer.write_tensor("b", &[0; 68]).unwrap();
    writer.finish().unwrap();
    let gguf = Gguf::open(&path).unwrap();
    let b = gguf.tensor("b").unwrap();
    std::fs::File::options().write(true).open(&path).unwrap().set_len(b.offset + 67).unwrap();
    let text = message(&gguf.read_tensor(b).unwrap_err());
    let start =
        format!("tensor `b` (68 bytes at byte {} of `{}`) cannot be read: ", b.offset, path.display());
    assert!(text.starts_with(&start), "{text}");
}
