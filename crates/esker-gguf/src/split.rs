//! Split sets: which part a file says it is, and what the other parts are called.
//!
//! Source: `gguf-split` and `llama_split_path` of llama.cpp. Keys `split.no` (from 0), `split.count`,
//! `split.tensors.count` (of the whole set) are in every part, all other metadata in the first only; names end in
//! `-00001-of-00003.gguf`, counted from 1.

use crate::limits::PARTS_MAX;
use crate::metadata::{Metadata, MetadataError};
use std::path::{Path, PathBuf};

pub(crate) const NO_KEY: &str = "split.no";
pub(crate) const COUNT_KEY: &str = "split.count";
pub(crate) const TENSORS_KEY: &str = "split.tensors.count";

/// Which part of a set a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// From 0.
    pub(crate) no: u64,
    /// At least 2.
    pub(crate) count: u64,
    /// In all parts together.
    pub(crate) tensors: u64,
}

impl Part {
    /// What the metadata says; `None` for a file that is whole.
    pub(crate) fn of(metadata: &Metadata) -> Result<Option<Part>, MetadataError> {
        match metadata.opt_u64(COUNT_KEY)? {
            None | Some(0 | 1) => Ok(None),
            Some(count) if count > PARTS_MAX => Err(MetadataError::OutOfRange {
                key: COUNT_KEY.to_owned(),
                index: None,
                value: count.to_string(),
                expected: "at most 99999 parts",
            }),
            Some(count) => {
                let (no, tensors) = (metadata.u64(NO_KEY)?, metadata.u64(TENSORS_KEY)?);
                if no >= count {
                    return Err(MetadataError::OutOfRange {
                        key: NO_KEY.to_owned(),
                        index: None,
                        value: no.to_string(),
                        expected: "less than `split.count`",
                    });
                }
                Ok(Some(Part { no, count, tensors }))
            }
        }
    }

    /// The end that the name of this part has.
    pub(crate) fn suffix(self) -> String {
        format!("-{:05}-of-{:05}.gguf", self.no + 1, self.count)
    }

    /// The path of part `no`, if this part is at `path`; `None` if `path` does not end as it has to.
    pub(crate) fn sibling(self, path: &Path, no: u64) -> Option<PathBuf> {
        let prefix = path.file_name()?.to_str()?.strip_suffix(&self.suffix())?;
        Some(path.with_file_name(format!("{prefix}{}", Part { no, ..self }.suffix())))
    }
}

impl Metadata {
    /// Removes the `split.` keys: for writing a model that was read from a split set as one file.
    pub fn remove_split_keys(&mut self) {
        self.retain(|key, _| ![NO_KEY, COUNT_KEY, TENSORS_KEY].contains(&key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_parts() {
        let part = Part { no: 0, count: 3, tensors: 9 };
        let sibling = |path: &str, no| part.sibling(Path::new(path), no);
        assert_eq!(sibling("/m/a-00001-of-00003.gguf", 2), Some("/m/a-00003-of-00003.gguf".into()));
        assert_eq!(sibling("-00001-of-00003.gguf", 1), Some("-00002-of-00003.gguf".into()));
        for other in
            ["a-00001-of-00004.gguf", "a-00002-of-00003.gguf", "a.gguf", "a-00001-of-00003.GGUF", ".."]
        {
            assert_eq!(sibling(other, 0), None, "{other}");
        }
    }

    #[test]
    fn whole_files_and_bad_keys() {
        let part = |keys: &[(&str, u64)]| {
            let mut m = Metadata::new();
            keys.iter().for_each(|&(k, v)| drop(m.set(k, v)));
            Part::of(&m).map_err(|e| e.to_string())
        };
        assert_eq!(part(&[]), Ok(None));
        assert_eq!(part(&[(COUNT_KEY, 0)]), Ok(None));
        assert_eq!(part(&[(COUNT_KEY, 1)]), Ok(None));
        assert_eq!(part(&[(COUNT_KEY, 2)]), Err("key `split.no` is missing".to_owned()));
        assert_eq!(
            part(&[(COUNT_KEY, 2), (NO_KEY, 2), (TENSORS_KEY, 1)]),
            Err("key `split.no` is 2, expected less than `split.count`".to_owned())
        );
        assert_eq!(
            part(&[(COUNT_KEY, 100_000)]),
            Err("key `split.count` is 100000, expected at most 99999 parts".to_owned())
        );
    }

    #[test]
    fn a_merged_model_is_no_longer_split() {
        let mut m = Metadata::new();
        for key in [NO_KEY, "split.note", COUNT_KEY, TENSORS_KEY] {
            m.set(key, 2u16);
        }
        m.remove_split_keys();
        assert_eq!(m.iter().map(|(k, _)| k).collect::<Vec<_>>(), ["split.note"]);
    }
}
