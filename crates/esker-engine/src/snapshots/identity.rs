//! What ties snapshots to a model and to how it is run: other files, other types, other snapshots.

use crate::options::EngineOptions;
use esker_gguf::Gguf;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;
use twox_hash::xxhash3_128;

/// Raised when the bits of a session, or how they are laid out in a snapshot, change.
const STATE_VERSION: u32 = 1;

/// Pieces of each file's tensor data that are hashed.
const SAMPLES: u64 = 64;
const SAMPLE_BYTES: u64 = 4096;

/// A hash of everything that the bits of a session depend on besides its tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Identity(pub(crate) u128);

/// A model file cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read `{}`", path.display())]
pub(crate) struct IdentityError {
    path: PathBuf,
    source: io::Error,
}

impl Identity {
    /// Of a model and options.
    ///
    /// Of each file: its size, its time of change, its header whole, and pieces from all over its tensors. Hashing all of a
    /// file would take longer than what snapshots save; the time of change finds what the pieces miss.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub(crate) fn of(gguf: &Gguf, options: &EngineOptions) -> Result<Identity, IdentityError> {
        let mut hasher = xxhash3_128::Hasher::new();
        let route = (options.route_bias.lambda.to_bits(), options.route_bias.protect);
        let version = env!("CARGO_PKG_VERSION");
        let endian = cfg!(target_endian = "big");
        let how = format!("esker {version} {STATE_VERSION} {:?} {route:?} {endian}", options.kv_type);
        hasher.write(how.as_bytes());
        for (index, path) in gguf.files.iter().enumerate() {
            let data = gguf.tensors.iter().filter(|t| t.file == index).map(|t| t.offset).min();
            hash_file(path, data, &mut hasher)
                .map_err(|source| IdentityError { path: path.clone(), source })?;
        }
        Ok(Identity(hasher.finish_128()))
    }
}

/// `data`: where tensors begin.
fn hash_file(path: &Path, data: Option<u64>, hasher: &mut xxhash3_128::Hasher) -> io::Result<()> {
    let mut file = File::open(path)?;
    let metadata = file.metadata()?;
    let size = metadata.len();
    let changed = metadata.modified()?.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos());
    hasher.write(&size.to_le_bytes());
    hasher.write(&changed.to_le_bytes());
    let data = data.unwrap_or(size).min(size);
    let mut buffer = vec![0; 1 << 16];
    let mut hash = |file: &mut File, mut left: u64| -> io::Result<()> {
        while left > 0 {
            let n = left.min(buffer.len() as u64) as usize;
            file.read_exact(&mut buffer[..n])?;
            hasher.write(&buffer[..n]);
            left -= n as u64;
        }
        Ok(())
    };
    hash(&mut file, data)?;
    let rest = size - data;
    for i in 0..SAMPLES {
        let at = (u128::from(rest) * u128::from(i) / u128::from(SAMPLES)) as u64;
        file.seek(SeekFrom::Start(data + at))?;
        hash(&mut file, SAMPLE_BYTES.min(rest - at))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cached::RouteBiasOptions;
    use esker_ops::KvType;

    #[test]
    fn every_part_counts() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("model.gguf");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/logits/llama.gguf");
        std::fs::copy(source, &path).expect("a copy");
        let gguf = Gguf::open(&path).expect("a model");
        let of = |options: &EngineOptions| Identity::of(&gguf, options).expect("readable");
        let options = EngineOptions::default();
        let first = of(&options);
        assert_eq!(of(&options), first);
        assert_ne!(of(&EngineOptions { kv_type: KvType::F32, ..options.clone() }), first);
        let route_bias = RouteBiasOptions { lambda: 0.5, ..RouteBiasOptions::default() };
        assert_ne!(of(&EngineOptions { route_bias, ..options.clone() }), first);
        // How fast it is computed makes no difference.
        assert_eq!(of(&EngineOptions { threads: Some(3), chunk: 7, ..options.clone() }), first);

        let time = std::fs::metadata(&path).and_then(|m| m.modified()).expect("a time");
        let change = |at: usize| {
            let mut bytes = std::fs::read(&path).expect("the file");
            bytes[at] ^= 1;
            std::fs::write(&path, bytes).expect("written");
            let file = File::options().write(true).open(&path).expect("the file");
            file.set_modified(time).expect("the old time");
        };
        let data = gguf.tensors.iter().map(|t| t.offset).min().expect("tensors") as usize;
        let middle = data + (std::fs::metadata(&path).expect("there").len() as usize - data) / 2;
        for at in [100, data + 17, middle + 5] {
            let before = of(&options);
            change(at);
            assert_ne!(of(&options), before, "byte {at}, at the same time");
            change(at);
            assert_eq!(of(&options), before);
        }
        let file = File::options().write(true).open(&path).expect("the file");
        file.set_modified(time + std::time::Duration::from_millis(1)).expect("a new time");
        assert_ne!(of(&options), first, "another time");
    }
}
