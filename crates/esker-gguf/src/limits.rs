//! Every bound on what a file may claim. Each is far above any real model, and has a test that reaches it.

/// Bytes of metadata and tensor directory together, per file. A vocabulary of 250,000 tokens with its merges takes
/// about 12 MiB; the bound keeps a sparse file of a terabyte from being read as one array.
pub const HEADER_BYTES_MAX: u64 = 256 << 20;

/// Metadata entries per file; models have 20 to 100.
pub const KEYS_MAX: u64 = 1 << 16;

/// Tensors per file, and per split set; the largest models have some thousands.
pub const TENSORS_MAX: u64 = 1 << 18;

/// Bytes of a key; the specification's own limit.
pub const KEY_BYTES_MAX: u64 = 65_535;

/// Bytes of a tensor name. The specification says 64; writers exceed it in files that are not models.
pub const TENSOR_NAME_BYTES_MAX: u64 = 1024;

/// Dimensions of a tensor, as in ggml.
pub const DIMS_MAX: usize = 4;

/// Arrays inside arrays: an array of numbers has depth 1.
pub const ARRAY_DEPTH_MAX: usize = 4;

/// `general.alignment` where the key is absent.
pub const ALIGNMENT_DEFAULT: u64 = 32;

/// The largest `general.alignment`: a huge page.
pub const ALIGNMENT_MAX: u64 = 2 << 20;

/// Files of a split set; the names have five digits.
pub const PARTS_MAX: u64 = 99_999;
