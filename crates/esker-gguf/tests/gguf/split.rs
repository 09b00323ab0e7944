//! Split sets on disk.

use crate::common::{Raw, U32, message};
use esker_gguf::{Gguf, GgufWriter, Metadata, OpenError, TensorSpec, WriteError};
use esker_quant::GgmlType;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A set of three: the first part has no tensors, as `gguf-split --no-tensor-first-split` makes it.
struct Set {
    dir: TempDir,
}

fn keys(no: u16, count: u16, tensors: i32) -> Metadata {
    let mut metadata = Metadata::new();
    if no == 0 {
        metadata.set("general.architecture", "llama");
    }
    metadata.set("split.no", no);
    metadata.set("split.count", count);
    metadata.set("split.tensors.count", tensors);
    metadata
}

fn write(path: &Path, metadata: &Metadata, tensors: &[&str]) {
    let specs = tensors
        .iter()
        .map(|&name| TensorSpec { name: name.to_owned(), ty: GgmlType::I8, shape: vec![3] })
        .collect();
    let mut writer = GgufWriter::new(path, metadata, specs, 32).unwrap();
    for name in tensors {
        writer.write_tensor(name, &name.as_bytes()[..3]).unwrap();
    }
    writer.finish().unwrap();
}

impl Set {
    fn new() -> Set {
        let set = Set { dir: tempfile::tempdir().unwrap() };
        set.put(1, &keys(0, 3, 3), &[]);
        set.put(2, &keys(1, 3, 3), &["one", "two"]);
        set.put(3, &keys(2, 3, 3), &["three"]);
        set
    }

    fn path(&self, number: usize) -> PathBuf {
        self.dir.path().join(format!("m-{number:05}-of-00003.gguf"))
    }

    /// Writes under a name that suits the keys, then renames to part `number`.
    fn put(&self, number: usize, metadata: &Metadata, tensors: &[&str]) {
        let no = metadata.u64("split.no").unwrap() + 1;
        let count = metadata.u64("split.count").unwrap();
        let written = self.dir.path().join(format!("new-{no:05}-of-{count:05}.gguf"));
        write(&written, metadata, tensors);
        std::fs::rename(written, self.path(number)).unwrap();
    }

    fn refused(&self) -> String {
        self.error().1
    }

    fn error(&self) -> (OpenError, String) {
        let error = Gguf::open(&self.path(1)).expect_err("the set must be refused");
        let text = message(&error).replace(&format!("{}/", self.dir.path().display()), "");
        (error, text)
    }
}

#[test]
fn the_first_part_opens_all() {
    let set = Set::new();
    let gguf = Gguf::open(&set.path(1)).unwrap();
    assert_eq!(gguf.files, [set.path(1), set.path(2), set.path(3)]);
    assert_eq!(gguf.architecture(), Ok("llama"));
    let places: Vec<_> = gguf.tensors.iter().map(|t| (&t.name[..], t.file)).collect();
    assert_eq!(places, [("one", 1), ("two", 1), ("three", 2)]);
    for tensor in &gguf.tensors {
        assert_eq!(gguf.read_tensor(tensor).unwrap(), &tensor.name.as_bytes()[..3]);
    }
    let sizes = (0..3).map(|i| std::fs::metadata(set.path(i + 1)).unwrap().len());
    assert_eq!(gguf.total_file_bytes(), sizes.clone().sum::<u64>());
    assert_eq!(gguf.file_bytes(1), sizes.clone().nth(1));
    assert_eq!(gguf.file_bytes(3), None);
}

#[test]
fn another_part_points_at_the_first() {
    let set = Set::new();
    let error = Gguf::open(&set.path(2)).unwrap_err();
    assert_eq!(
        message(&error),
        format!("`{}` is part 2 of 3 of a split set, expected the first", set.path(2).display())
    );
    let hint = error.hint().unwrap();
    assert_eq!(hint, format!("open `{}`; the other parts are found from there", set.path(1).display()));
}

#[test]
fn a_part_of_another_name_says_what_it_should_be() {
    let set = Set::new();
    let renamed = set.dir.path().join("model.gguf");
    std::fs::rename(set.path(1), &renamed).unwrap();
    let error = Gguf::open(&renamed).unwrap_err();
    assert_eq!(
        message(&error),
        format!(
            "`{}` is part 1 of 3 of a split set, expected a name ending in `-00001-of-00003.gguf`",
            renamed.display()
        )
    );
    assert!(error.hint().is_some());
}

#[test]
fn missing_and_damaged_parts_are_named() {
    let set = Set::new();
    std::fs::remove_file(set.path(3)).unwrap();
    let (error, text) = set.error();
    assert_eq!(text, "part 3 of 3 is missing: `m-00003-of-00003.gguf`");
    assert!(error.hint().unwrap().contains("download"));

    std::fs::write(set.path(3), b"GGU").unwrap();
    assert_eq!(
        set.refused(),
        "`m-00003-of-00003.gguf` cannot be used: \
         the start of the file at byte 0 needs 4 bytes, but the file has only 3 more"
    );
}

#[test]
fn parts_of_other_sets_are_refused() {
    let set = Set::new();
    set.put(2, &keys(2, 3, 3), &["one", "two"]);
    assert_eq!(
        set.refused(),
        "`m-00002-of-00003.gguf` is not of this split set: key `split.no` is 2, expected 1"
    );
    set.put(2, &keys(1, 4, 3), &["one", "two"]);
    assert_eq!(
        set.refused(),
        "`m-00002-of-00003.gguf` is not of this split set: key `split.count` is 4, expected 3"
    );
    set.put(2, &keys(1, 3, 9), &["one", "two"]);
    assert_eq!(
        set.refused(),
        "`m-00002-of-00003.gguf` is not of this split set: key `split.tensors.count` is 9, expected 3"
    );
    write(&set.path(2), &Metadata::new(), &["one", "two"]);
    assert_eq!(
        set.refused(),
        "`m-00002-of-00003.gguf` cannot be used as part of a split set: key `split.count` is missing"
    );
}

#[test]
fn tensors_are_counted_and_unique_across_parts() {
    let set = Set::new();
    set.put(3, &keys(2, 3, 3), &["three", "four"]);
    assert_eq!(
        set.refused(),
        "the 3 parts from `m-00001-of-00003.gguf` on hold 4 tensors, expected 3 by key `split.tensors.count`"
    );
    set.put(3, &keys(2, 3, 3), &["two"]);
    assert_eq!(
        set.refused(),
        "tensor `two` is in `m-00002-of-00003.gguf` and again in `m-00003-of-00003.gguf`"
    );
}

#[test]
fn keys_of_a_set_are_whole() {
    let set = Set::new();
    let mut metadata = keys(0, 3, 3);
    metadata.set("split.no", "first");
    metadata.set("split.count", 1u16);
    write(&set.path(1), &metadata, &["one"]);
    assert!(Gguf::open(&set.path(1)).is_ok(), "a set of one is a file");

    metadata.set("split.count", 3u16);
    let error = GgufWriter::new(&set.path(1), &metadata, vec![], 32).err().unwrap();
    assert_eq!(
        message(&error),
        "the file could not be opened as part of a split set: \
         key `split.no` is string, expected an integer of 0 to 2^64-1"
    );
}

#[test]
fn a_part_is_written_only_under_its_name() {
    let set = Set::new();
    let gguf = Gguf::open(&set.path(1)).unwrap();
    let merged = set.dir.path().join("merged.gguf");
    let specs = || gguf.tensors.iter().map(|t| t.spec()).collect::<Vec<_>>();
    let error = GgufWriter::new(&merged, &gguf.metadata, specs(), 32).err().unwrap();
    assert!(matches!(error, WriteError::PartName { no: 0, count: 3, .. }), "{error}");
    assert!(error.hint().unwrap().contains("split."));

    let mut metadata = gguf.metadata.clone();
    metadata.remove_split_keys();
    let mut writer = GgufWriter::new(&merged, &metadata, specs(), 32).unwrap();
    for tensor in &gguf.tensors {
        writer.write_tensor(&tensor.name, &gguf.read_tensor(tensor).unwrap()).unwrap();
    }
    writer.finish().unwrap();
    let whole = Gguf::open(&merged).unwrap();
    assert_eq!((whole.files.len(), whole.tensors.len()), (1, 3));
}

#[test]
fn a_set_holds_no_more_tensors_than_a_file_may() {
    let set = Set::new();
    for number in 1..4u16 {
        // Built by hand: three parts of 100,000 tensors of one byte, without alignment.
        let raw = Raw::start(3, 100_000, 4).key("general.alignment", U32).u32(1);
        let raw = raw.key("split.no", U32).u32(u32::from(number - 1));
        let raw = raw.key("split.count", U32).u32(3).key("split.tensors.count", U32).u32(300_000);
        let raw = (0..100_000).fold(raw, |raw, i| raw.tensor(&format!("{number}.{i}"), &[1], 24, i));
        std::fs::write(set.path(number.into()), raw.bytes(&[0; 100_000]).0).unwrap();
    }
    assert_eq!(
        set.refused(),
        "the parts up to `m-00003-of-00003.gguf` hold 300000 tensors, expected at most 262144"
    );
}
