//! The token ids that both sides are given: ordinary text, a different stretch of it for every pair.

use std::path::{Path, PathBuf};

/// Where each pair's stretch begins after the one before; no divisor of a text's length, with luck.
const STRIDE: usize = 131;

/// The built-in text; `prompt.txt` beside this file.
const TEXT: &str = include_str!("prompt.txt");

/// There is nothing to prompt with.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PromptError {
    /// The file cannot be read as UTF-8 text.
    #[error("cannot read `{}` as text", path.display())]
    Read { path: PathBuf, cause: std::io::Error },
    /// Nothing in it.
    #[error("the prompt's text has no tokens")]
    Empty,
}

/// The text to be cut up: the file's, or the built-in one.
pub(crate) fn text(file: Option<&Path>) -> Result<String, PromptError> {
    match file {
        Some(path) => {
            std::fs::read_to_string(path).map_err(|cause| PromptError::Read { path: path.to_owned(), cause })
        }
        None => Ok(TEXT.to_owned()),
    }
}

/// `length` ids of the text `ids`, which is repeated as often as needed; `pair` chooses the stretch, `None` the one for
/// warming up.
///
/// # Errors
/// If `ids` is empty.
pub(crate) fn stretch(ids: &[u32], length: usize, pair: Option<usize>) -> Result<Vec<u32>, PromptError> {
    let begin = pair.map_or(0, |pair| (pair + 1) * STRIDE);
    let endless = ids.iter().copied().cycle();
    match ids.len() {
        0 => Err(PromptError::Empty),
        n => Ok(endless.skip(begin % n).take(length).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_differ_and_repeat_the_text() {
        let ids: Vec<u32> = (0..1000).collect();
        let warm = stretch(&ids, 2048, None).expect("ids");
        let first = stretch(&ids, 2048, Some(0)).expect("ids");
        assert_eq!((warm.len(), warm[0], warm[1000]), (2048, 0, 0));
        assert_eq!(first[0], STRIDE as u32);
        assert!(warm.iter().zip(&first).all(|(a, b)| a != b));
        assert!(stretch(&[], 1, None).is_err());
    }

    #[test]
    fn the_built_in_text_is_long_enough_to_vary() {
        assert!(text(None).expect("built in").split_whitespace().count() > 600);
        assert!(text(Some(Path::new("no/such/file"))).is_err());
    }
}
