//! Text that a command reads: from a file, or from standard input if that is not a terminal.

use crate::failure::Failure;
use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::path::Path;

/// Longest text that is read. A prompt of this size has more tokens than any context.
const BYTES_MAX: u64 = 256 << 20;

/// All bytes of `path`, or of standard input if it is `-`.
pub fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    if path == Path::new("-") {
        return read_stdin();
    }
    let failed = |e: io::Error| Failure::file("read", path, &e);
    let file = File::open(path).map_err(failed)?;
    read_bounded(file).map_err(failed)
}

/// What a message calls `path`.
pub fn name(path: &Path) -> String {
    if path == Path::new("-") { "standard input".to_owned() } else { format!("`{}`", path.display()) }
}

/// All bytes of standard input, if it is not a terminal.
pub fn read_piped_stdin() -> Result<Option<Vec<u8>>, Failure> {
    if io::stdin().is_terminal() { Ok(None) } else { read_stdin().map(Some) }
}

fn read_stdin() -> Result<Vec<u8>, Failure> {
    read_bounded(io::stdin().lock()).map_err(|e| Failure::new("cannot read standard input").cause(&e))
}

fn read_bounded(from: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err(io::Error::other(format!("longer than {} MiB", BYTES_MAX >> 20)));
    }
    Ok(bytes)
}
