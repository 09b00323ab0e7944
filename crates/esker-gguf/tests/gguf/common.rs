//! Files built byte by byte, and errors with their causes in one line.

use std::error::Error;

pub const U8: u32 = 0;
pub const U32: u32 = 4;
pub const BOOL: u32 = 7;
pub const STRING: u32 = 8;
pub const ARRAY: u32 = 9;
pub const U64: u32 = 10;

/// Bytes of a file, right or wrong.
#[derive(Clone, Default)]
pub struct Raw(pub Vec<u8>);

impl Raw {
    /// Magic, version and counts.
    pub fn start(version: u32, n_tensors: u64, n_keys: u64) -> Raw {
        Raw(b"GGUF".to_vec()).u32(version).u64(n_tensors).u64(n_keys)
    }

    pub fn bytes(mut self, bytes: &[u8]) -> Raw {
        self.0.extend(bytes);
        self
    }

    pub fn u32(self, n: u32) -> Raw {
        self.bytes(&n.to_le_bytes())
    }

    pub fn u64(self, n: u64) -> Raw {
        self.bytes(&n.to_le_bytes())
    }

    pub fn string(self, text: &[u8]) -> Raw {
        self.u64(text.len() as u64).bytes(text)
    }

    /// A key and its type; the value follows.
    pub fn key(self, key: &str, value_type: u32) -> Raw {
        self.string(key.as_bytes()).u32(value_type)
    }

    /// The start of an array; the elements follow.
    pub fn array(self, element_type: u32, count: u64) -> Raw {
        self.u32(element_type).u64(count)
    }

    pub fn tensor(self, name: &str, shape: &[u64], type_id: u32, offset: u64) -> Raw {
        let raw = self.string(name.as_bytes()).u32(shape.len() as u32);
        shape.iter().fold(raw, |raw, &n| raw.u64(n)).u32(type_id).u64(offset)
    }

    /// Pads to a multiple of 32, then appends `n` bytes of data.
    pub fn data(mut self, n: usize) -> Raw {
        let start = self.0.len().next_multiple_of(32);
        self.0.resize(start + n, 0);
        self
    }
}

/// The error and its causes, as a program would print them.
pub fn message(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
