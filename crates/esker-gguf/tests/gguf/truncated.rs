//! A file cut at every byte.

use crate::common::{ARRAY, BOOL, Raw, STRING, U8, U32, message};
use esker_gguf::Header;

/// Every kind of value, nested arrays, two tensors; 4 bytes of data follow the last byte of padding.
pub fn small_file() -> Raw {
    Raw::start(3, 2, 6)
        .key("general.architecture", STRING)
        .string("größe".as_bytes())
        .key("flag", BOOL)
        .bytes(&[1])
        .key("n", U32)
        .u32(7)
        .key("tokens", ARRAY)
        .array(STRING, 3)
        .string(b"a")
        .string(b"")
        .string("ü".as_bytes())
        .key("nested", ARRAY)
        .array(ARRAY, 2)
        .array(U8, 3)
        .bytes(&[1, 2, 3])
        .array(BOOL, 1)
        .bytes(&[0])
        .key("floats", ARRAY)
        .array(6, 2)
        .bytes(&[0; 8])
        .tensor("token_embd.weight", &[32, 2], 8, 0)
        .tensor("output_norm.weight", &[5], 0, 96)
        .data(96 + 20)
}

#[test]
fn a_file_cut_anywhere_is_refused() {
    let whole = small_file().0;
    Header::read(&whole[..], whole.len() as u64).expect("the whole file reads");
    for len in 0..whole.len() {
        // As the file system reports it, and as a file that is cut after its length was asked.
        let cut = Header::read(&whole[..len], len as u64).expect_err("a cut file must be refused");
        let text = message(&cut);
        assert!(text.contains("the file has only") || text.contains("bytes are missing"), "{len}: {text}");
        assert!(cut.hint().is_some(), "{len}: {text}");
        if let Err(shrunk) = Header::read(&whole[..len], whole.len() as u64) {
            assert!(message(&shrunk).contains("the file has only 0 more"), "{len}: {shrunk}");
        }
    }
}
