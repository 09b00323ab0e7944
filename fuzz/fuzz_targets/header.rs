//! Any bytes, read as a GGUF header: no panic, no excess of memory, errors that print; and what reads, writes
//! again and reads back the same.
//!
//! Run: `cargo install cargo-fuzz`, then here
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run header corpus/header seeds/header -- -dict=gguf.dict -max_len=4096`
//! (the address sanitizer is not in stable Rust, hence the variable; `cargo fuzz run -s none ...` needs none, and
//! runs five times as many inputs a second).
//! `-malloc_limit_mb=8` makes a single large allocation a failure.

#![no_main]

use esker_gguf::{Header, Layout};
use libfuzzer_sys::fuzz_target;
use std::error::Error;
use std::hint::black_box;

fuzz_target!(|bytes: &[u8]| {
    let header = match Header::read(bytes, bytes.len() as u64) {
        Ok(header) => header,
        Err(error) => {
            black_box((error.to_string(), error.hint(), error.source().map(ToString::to_string)));
            return;
        }
    };
    for tensor in &header.tensors {
        assert!(tensor.offset >= header.data_offset);
        assert!(tensor.offset + tensor.size <= bytes.len() as u64);
        black_box((tensor.block(), tensor.name_in_block(), tensor.expert_stack(), tensor.n_elements()));
    }
    for (key, value) in header.metadata.iter() {
        assert!(header.metadata.get(key).is_some());
        black_box(value.type_name());
        let _ = black_box((
            header.metadata.u32(key),
            header.metadata.f32_array(key),
            header.metadata.str_array(key),
        ));
    }

    let specs: Vec<_> = header.tensors.iter().map(|tensor| tensor.spec()).collect();
    let written =
        Layout::new(&header.metadata, specs.clone(), header.alignment).expect("what was read can be written");
    let again = Header::read(written.header(), written.file_bytes()).expect("what was written can be read");
    assert_eq!(specs, again.tensors.iter().map(|tensor| tensor.spec()).collect::<Vec<_>>());
    assert_eq!(header.alignment, again.alignment);
    // By bytes, because a NaN is not equal to itself.
    let rewritten = Layout::new(&again.metadata, specs, again.alignment).expect("and written once more");
    assert_eq!(written.header(), rewritten.header());
});
