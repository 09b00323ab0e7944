//! One lying file for every error, with the message that its user sees.

use crate::common::{ARRAY, BOOL, Raw, STRING, U8, U32, U64, message};
use esker_gguf::{Array, Gguf, Header, ParseError, Value, limits};

fn parse(raw: &Raw) -> Result<Header, ParseError> {
    Header::read(&raw.0[..], raw.0.len() as u64)
}

#[track_caller]
fn refused(raw: Raw, expected: &str) -> ParseError {
    let error = parse(&raw).expect_err("the file must be refused");
    assert_eq!(message(&error), expected);
    error
}

#[test]
fn other_kinds_of_files_are_named() {
    let e =
        refused(Raw(b"version https://git-lfs".to_vec()), "starts with the bytes `vers`, expected `GGUF`");
    assert!(e.hint().unwrap().contains("Git LFS"));
    let e = refused(Raw(b"PK\x03\x04....".to_vec()), "starts with the bytes `PK\\x03\\x04`, expected `GGUF`");
    assert!(e.hint().unwrap().contains("PyTorch"));
    let e = refused(Raw(b"<!DOCTYPE".to_vec()), "starts with the bytes `<!DO`, expected `GGUF`");
    assert!(e.hint().unwrap().contains("web page"));
    let e = refused(Raw(b"tjgg\x03\0\0\0".to_vec()), "starts with the bytes `tjgg`, expected `GGUF`");
    assert!(e.hint().unwrap().contains("before GGUF"));
    refused(Raw(vec![]), "the start of the file at byte 0 needs 4 bytes, but the file has only 0 more");
}

#[test]
fn versions_and_byte_orders_are_named() {
    let e = refused(Raw::start(1, 0, 0), "is GGUF version 1, expected 2 or 3");
    assert!(e.hint().unwrap().contains("2023"));
    assert!(refused(Raw::start(4, 0, 0), "is GGUF version 4, expected 2 or 3").hint().is_none());
    for magic in [b"GGUF", b"FUGG"] {
        let raw = Raw(magic.to_vec()).bytes(&3u32.to_be_bytes());
        let e = refused(raw, "is a big-endian GGUF file (version 3); only little endian is read");
        assert!(e.hint().unwrap().contains("little endian"));
    }
    assert_eq!(parse(&Raw::start(2, 0, 0)).unwrap().version, 2);
    assert_eq!(parse(&Raw::start(3, 0, 0)).unwrap().version, 3);
}

#[test]
fn counts_have_limits() {
    refused(Raw::start(3, u64::MAX, 0), "claims 18446744073709551615 tensors, expected at most 262144");
    refused(Raw::start(3, 0, 1 << 17), "claims 131072 metadata entries, expected at most 65536");
    refused(
        Raw::start(3, limits::TENSORS_MAX, limits::KEYS_MAX),
        "the key of metadata entry 0 at byte 24 needs 8 bytes, but the file has only 0 more",
    );
    refused(
        Raw::start(3, 1, 0),
        "the name of tensor 0 at byte 24 needs 8 bytes, but the file has only 0 more",
    );
}

#[test]
fn keys_are_text_of_some_length_and_unique() {
    let start = || Raw::start(3, 0, 2);
    refused(start().string(b""), "the key of metadata entry 0 at byte 24 has 0 bytes, expected 1 to 65535");
    let longest = Raw::start(3, 0, 1).key(&"k".repeat(65_535), U8).bytes(&[1]);
    assert_eq!(parse(&longest).unwrap().metadata.len(), 1);
    refused(
        start().u64(1 << 40),
        "the key of metadata entry 0 at byte 24 has 1099511627776 bytes, expected 1 to 65535",
    );
    refused(
        start().u64(9).bytes(b"short"),
        "the key of metadata entry 0 at byte 32 needs 9 bytes, but the file has only 5 more",
    );
    refused(
        start().string(b"a\xff"),
        "the key of metadata entry 0 at byte 24 is `a\\xff`, expected UTF-8 without control characters",
    );
    refused(
        start().string(b"a\x1b[2J"),
        "the key of metadata entry 0 at byte 24 is `a\\u{1b}[2J`, expected UTF-8 without control characters",
    );
    refused(start().key("a", U8).bytes(&[1]).key("a", U8).bytes(&[2]), "key `a` at byte 38 is there twice");
}

#[test]
fn values_are_of_known_types_and_inside_the_file() {
    let start = || Raw::start(3, 0, 1);
    refused(start().key("k", 13), "key `k` at byte 33 has value type 13, expected 0 to 12");
    refused(start().key("k", BOOL).bytes(&[2]), "key `k`: the bool at byte 37 is 2, expected 0 or 1");
    refused(
        start().key("k", U64).bytes(&[0; 7]),
        "the value of key `k` at byte 37 needs 8 bytes, but the file has only 7 more",
    );
    refused(
        start().key("k", STRING).u64(u64::MAX).bytes(b"x"),
        "the value of key `k` at byte 45 needs 18446744073709551615 bytes, but the file has only 1 more",
    );
    refused(start().key("k", ARRAY).array(14, 1), "key `k` at byte 37 has value type 14, expected 0 to 12");
    refused(
        start().key("k", ARRAY).array(BOOL, 3).bytes(&[1, 0, 255]),
        "key `k`: the bool at byte 51 is 255, expected 0 or 1",
    );
    for (element_type, needed) in [(U8, 1 << 62), (U32, u64::MAX), (STRING, u64::MAX), (ARRAY, u64::MAX)] {
        refused(
            start().key("k", ARRAY).array(element_type, 1 << 62).bytes(&[0; 100]),
            &format!("the value of key `k` at byte 49 needs {needed} bytes, but the file has only 100 more"),
        );
    }
    refused(
        start().key("k", ARRAY).array(STRING, 2).string(b"x").u64(7).bytes(b"y"),
        "the value of key `k` at byte 66 needs 7 bytes, but the file has only 1 more",
    );
}

#[test]
fn arrays_nest_to_a_limit() {
    let nested = |levels: usize| {
        let raw = Raw::start(3, 0, 1).key("k", ARRAY);
        (1..levels).fold(raw, |raw, _| raw.array(ARRAY, 1)).array(U8, 1).bytes(&[7])
    };
    let header = parse(&nested(limits::ARRAY_DEPTH_MAX)).unwrap();
    assert_eq!(header.metadata.get("k").and_then(Value::as_array).map(Array::depth), Some(4));
    refused(nested(5), "key `k`: the array at byte 85 is nested deeper than 4 levels");
    refused(nested(100_000), "key `k`: the array at byte 85 is nested deeper than 4 levels");
}

#[test]
fn strings_that_are_not_utf8_load_and_fail_only_when_asked_for() {
    let raw = Raw::start(3, 0, 2).key("name", STRING).string(b"\xff");
    let raw = raw.key("tokens", ARRAY).array(STRING, 3).string(b"\xc3").string(b"\xa4").string(b"ok");
    let header = parse(&raw).unwrap();
    assert_eq!(header.metadata.get("name"), Some(&Value::RawString(vec![0xff])));
    let Some(Value::Array(Array::RawStrings(tokens))) = header.metadata.get("tokens") else {
        panic!("the tokens are not UTF-8");
    };
    assert_eq!(tokens.iter().collect::<Vec<_>>(), [&b"\xc3"[..], b"\xa4", b"ok"]);
    assert_eq!(message(&header.metadata.str("name").unwrap_err()), "key `name` is not UTF-8");
    assert_eq!(
        message(&header.metadata.str_array("tokens").unwrap_err()),
        "key `tokens` element 0 is not UTF-8"
    );
}

#[test]
fn the_alignment_is_a_power_of_two_in_range() {
    let with = |n: u32| Raw::start(3, 0, 1).key("general.alignment", U32).u32(n);
    for good in [1, 8, 32, 4096, 2 << 20] {
        assert_eq!(parse(&with(good)).unwrap().alignment, u64::from(good));
    }
    for bad in [0, 3, 48, 4 << 20, u32::MAX] {
        refused(
            with(bad),
            &format!("key `general.alignment` is {bad}, expected a power of two of 1 to 2097152"),
        );
    }
    refused(
        Raw::start(3, 0, 1).key("general.alignment", STRING).string(b"32"),
        "key `general.alignment` is string, expected a power of two of 1 to 2097152",
    );
}

const F32: u32 = 0;
const Q4_K: u32 = 12;
const Q2_0: u32 = 42;

fn one(name: &str, shape: &[u64], type_id: u32, offset: u64) -> Raw {
    Raw::start(3, 1, 0).tensor(name, shape, type_id, offset).data(256)
}

#[test]
fn tensor_names_are_text_of_some_length_and_unique() {
    refused(one("", &[1], F32, 0), "the name of tensor 0 at byte 24 has 0 bytes, expected 1 to 1024");
    refused(
        one(&"n".repeat(1025), &[1], F32, 0),
        "the name of tensor 0 at byte 24 has 1025 bytes, expected 1 to 1024",
    );
    assert!(parse(&one(&"n".repeat(1024), &[1], F32, 0)).is_ok());
    refused(
        one("a\nb", &[1], F32, 0),
        "the name of tensor 0 at byte 24 is `a\\nb`, expected UTF-8 without control characters",
    );
    refused(
        Raw::start(3, 2, 0).tensor("t", &[1], F32, 0).tensor("t", &[1], F32, 32).data(64),
        "tensor `t` is there twice",
    );
}

#[test]
fn shapes_are_possible() {
    let shape = "the shape of tensor `t` at byte 24 is impossible";
    refused(one("t", &[1; 5], F32, 0), &format!("{shape}: it has 5 dimensions, expected at most 4"));
    let huge = Raw::start(3, 1, 0).string(b"t").u32(u32::MAX).data(64);
    refused(huge, &format!("{shape}: it has 4294967295 dimensions, expected at most 4"));
    refused(one("t", &[4, 0], F32, 0), &format!("{shape}: dimension 1 of [4, 0] is zero"));
    refused(
        one("t", &[128, 2], Q4_K, 0),
        &format!("{shape}: a row of 128 elements is not a multiple of Q4_K's block of 256"),
    );
    for dims in [&[1 << 62][..], &[1 << 31, 1 << 31], &[u64::MAX; 4], &[1 << 61]] {
        refused(one("t", dims, F32, 0), &format!("{shape}: {dims:?} of F32 is more than 2^63 bytes"));
    }
    let scalar = parse(&one("t", &[], F32, 0)).unwrap();
    assert_eq!((&scalar.tensors[0].shape[..], scalar.tensors[0].size), (&[1][..], 4));
}

#[test]
fn unknown_types_name_tensor_and_id() {
    refused(
        one("blk.0.ffn_up.weight", &[32], 31, 0),
        "tensor `blk.0.ffn_up.weight` at byte 24 cannot be read: \
         tensor type id 31 is a Q4_0 interleaving, removed: convert the file to Q4_0",
    );
    refused(
        one("t", &[32], 99, 0),
        "tensor `t` at byte 24 cannot be read: tensor type id 99 is unknown (known: 0 to 42)",
    );
}

#[test]
fn data_is_aligned_inside_the_file_and_not_shared() {
    refused(one("t", &[1], F32, 4), "tensor `t` has data offset 4, expected a multiple of the alignment 32");
    let e = refused(
        one("t", &[100], F32, 0),
        "tensor `t` takes 400 bytes from byte 64, but the file ends at byte 320: 144 bytes are missing",
    );
    assert!(e.hint().unwrap().contains("download"));
    refused(
        one("t", &[1], F32, u64::MAX - 31),
        "tensor `t` takes 4 bytes from byte 18446744073709551615, but the file ends at byte 320",
    );
    assert!(parse(&one("t", &[64], F32, 0)).is_ok(), "exactly to the end");
    refused(
        Raw::start(3, 2, 0).tensor("b", &[8], F32, 32).tensor("a", &[9], F32, 0).data(128),
        "tensor `a` (F32) takes 36 bytes from byte 96, and tensor `b` begins inside it, at byte 128",
    );
    let two = Raw::start(3, 2, 0).tensor("a", &[128], Q2_0, 0).tensor("b", &[8], F32, 32).data(128);
    let e = refused(
        two,
        "tensor `a` (Q2_0) takes 36 bytes from byte 96, and tensor `b` begins inside it, at byte 128",
    );
    assert!(e.hint().unwrap().contains("fork"));
}

#[test]
fn offsets_are_absolute_and_order_is_free() {
    let raw = Raw::start(3, 2, 0).tensor("b", &[8], F32, 64).tensor("a", &[9], F32, 0).data(96);
    let header = parse(&raw).unwrap();
    assert_eq!(header.data_offset, 96);
    let places: Vec<_> = header.tensors.iter().map(|t| (&t.name[..], t.offset, t.size)).collect();
    assert_eq!(places, [("b", 160, 32), ("a", 96, 36)]);
}

/// A reader whose file is huge and full of zeros, as a sparse file is.
#[test]
fn a_header_without_end_is_not_read() {
    let raw = Raw::start(3, 0, 1).key("k", ARRAY).array(U8, 1 << 40);
    let file_bytes = 1 << 41;
    let zeros = std::io::Read::chain(&raw.0[..], std::io::repeat(0));
    let error = Header::read(zeros, file_bytes).unwrap_err();
    assert_eq!(
        message(&error),
        "the value of key `k` at byte 49 needs 1099511627776 bytes: \
         a header of more than 268435456 bytes is not read"
    );
}

#[test]
fn a_file_that_shrinks_or_fails_while_it_is_read() {
    let raw = Raw::start(3, 0, 1).key("k", U64).u64(1);
    let error = Header::read(&raw.0[..40], raw.0.len() as u64).unwrap_err();
    assert_eq!(
        message(&error),
        "the value of key `k` at byte 37 needs 8 bytes, but the file has only 0 more"
    );

    struct Broken;
    impl std::io::Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(std::io::Error::other("the disk is gone"))
        }
    }
    let error = Header::read(Broken, 100).unwrap_err();
    assert_eq!(message(&error), "the start of the file at byte 0 cannot be read: the disk is gone");
}

#[test]
fn paths_that_are_no_files() {
    let dir = tempfile::tempdir().unwrap();
    let error = Gguf::open(dir.path()).unwrap_err();
    assert_eq!(message(&error), format!("`{}` is not a regular file", dir.path().display()));
    let none = dir.path().join("none.gguf");
    let error = message(&Gguf::open(&none).unwrap_err());
    assert!(error.starts_with(&format!("cannot open `{}`: ", none.display())), "{error}");
    let wrong = dir.path().join("wrong.gguf");
    std::fs::write(&wrong, "version https://git-lfs.github.com/spec/v1").unwrap();
    let error = Gguf::open(&wrong).unwrap_err();
    assert_eq!(
        message(&error),
        format!("`{}` cannot be used: starts with the bytes `vers`, expected `GGUF`", wrong.display())
    );
    assert!(error.hint().unwrap().contains("Git LFS"));
}
