//! Test support: golden arrays, and where the test files are that are too large for the repository.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};

/// An array of a `.npz` file.
#[derive(Clone, Debug)]
pub struct Array<T> {
    /// Sizes, slowest first.
    pub shape: Vec<usize>,
    /// Elements, row-major.
    pub data: Vec<T>,
}

impl<T> Array<T> {
    /// Elements of the first index `i`.
    pub fn row(&self, i: usize) -> &[T] {
        let n = self.data.len() / self.shape[0];
        &self.data[i * n..(i + 1) * n]
    }
}

/// Reads array `name` of the `.npz` file at `path`; `None` if it has no such array.
///
/// # Panics
/// If the file cannot be read or the elements are of another type: golden files are part of the test.
pub fn npz<T: npyz::Deserialize>(path: &Path, name: &str) -> Option<Array<T>> {
    let mut file = npyz::npz::NpzArchive::open(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let array = file.by_name(name).unwrap_or_else(|e| panic!("{}: {name}: {e}", path.display()))?;
    let shape = array.shape().iter().map(|&n| n as usize).collect();
    assert_eq!(array.order(), npyz::Order::C, "{}: {name} is row-major", path.display());
    let data = array.into_vec().unwrap_or_else(|e| panic!("{}: {name}: {e}", path.display()));
    Some(Array { shape, data })
}

/// The folder of test files that are too large for the repository: `ESKER_SHARED`, or `shared` beside the checkout.
/// Prints why a test does nothing if there is none.
pub fn shared(what: &str) -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let path = std::env::var_os("ESKER_SHARED").map_or(beside, PathBuf::from).join(what);
    if !path.exists() {
        eprintln!("skipped: {what} is not here (set ESKER_SHARED to the folder of large test files)");
        return None;
    }
    Some(path)
}

/// The model that ships in the repository.
pub fn small_model() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/esker-moe-64m-small.gguf")
}
