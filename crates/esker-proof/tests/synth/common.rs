//! Tiny files to look at.

use esker_gguf::Gguf;
use esker_proof::synth::{Geometry, Options, Progress, Recipe, SizePlan, write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

pub const TINY: [&str; 3] = ["tiny-qwen3moe", "tiny-qwen3next", "tiny-qwen4exp"];

pub fn options(recipe: Recipe) -> Options {
    Options { recipe, ngram_rows: 4000, ..Options::default() }
}

pub fn go_on(_: Progress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

pub fn geometry(name: &str) -> Geometry {
    Geometry::named(name).unwrap()
}

/// A written file; it goes with the directory.
pub struct Written {
    _dir: TempDir,
    pub path: PathBuf,
    pub size: SizePlan,
    pub gguf: Gguf,
}

pub fn written(geometry: &Geometry, options: &Options) -> Written {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.gguf");
    let size = write(geometry, options, &path, &mut go_on).unwrap();
    let gguf = Gguf::open(&path).unwrap();
    Written { _dir: dir, path, size, gguf }
}

pub fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}
