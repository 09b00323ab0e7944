//! Files that are whole or not there: written beside their place, synced, renamed.

use crate::failure::Failure;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// A file being written. Dropped without [`finish`](Self::finish), it leaves nothing behind.
pub struct OutputFile {
    path: PathBuf,
    sink: Sink,
}

enum Sink {
    /// Becomes `path` by renaming.
    Beside(BufWriter<NamedTempFile>),
    /// What is at `path` is no regular file, such as `/dev/null`, and must not be replaced by one.
    Device(BufWriter<File>),
}

impl OutputFile {
    pub fn create(path: &Path) -> Result<OutputFile, Failure> {
        let sink = OutputFile::open(path).map_err(|e| Failure::file("write", path, &e))?;
        Ok(OutputFile { path: path.to_owned(), sink })
    }

    fn open(path: &Path) -> io::Result<Sink> {
        let existing = fs::metadata(path).ok();
        if existing.as_ref().is_some_and(fs::Metadata::is_dir) {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        if existing.is_some_and(|m| !m.is_file()) {
            return Ok(Sink::Device(BufWriter::new(OpenOptions::new().write(true).open(path)?)));
        }
        // Opened here and not there: temporary files are for their owner's eyes only, this one is as any new file.
        let new = |path: &Path| OpenOptions::new().write(true).create_new(true).open(path);
        let file = tempfile::Builder::new().prefix(".esker-").suffix(".tmp").make_in(directory(path), new)?;
        Ok(Sink::Beside(BufWriter::new(file)))
    }

    /// Makes the file appear at its path, with all that was written.
    pub fn finish(self) -> Result<(), Failure> {
        let path = self.path;
        let end = |sink: Sink| -> io::Result<()> {
            match sink {
                Sink::Device(writer) => writer.into_inner().map(drop).map_err(io::IntoInnerError::into_error),
                Sink::Beside(writer) => {
                    let file = writer.into_inner().map_err(io::IntoInnerError::into_error)?;
                    file.as_file().sync_all()?;
                    // Through a link, what it points to is replaced, not the link.
                    let place = fs::canonicalize(&path).unwrap_or_else(|_| path.clone());
                    file.persist(&place).map_err(|e| e.error)?;
                    // The new name is only safe once the directory is.
                    #[cfg(unix)]
                    File::open(directory(&place))?.sync_all()?;
                    Ok(())
                }
            }
        };
        end(self.sink).map_err(|e| Failure::file("write", &path, &e))
    }
}

impl Write for OutputFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.sink {
            Sink::Beside(writer) => writer.write(bytes),
            Sink::Device(writer) => writer.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.sink {
            Sink::Beside(writer) => writer.flush(),
            Sink::Device(writer) => writer.flush(),
        }
    }
}

/// The directory that `path` is in, of the file itself if `path` is a link.
fn directory(path: &Path) -> PathBuf {
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).expect("a directory");
        let mut names: Vec<String> =
            entries.map(|e| e.expect("an entry").file_name().into_string().expect("UTF-8")).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_appears_whole_or_not_at_all() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("out.npy");
        fs::write(&path, "before").expect("written");
        let mut file = OutputFile::create(&path).expect("created");
        file.write_all(b"half").expect("written");
        assert_eq!(fs::read(&path).expect("there"), b"before");
        drop(file);
        assert_eq!(names(directory.path()), ["out.npy"]);

        let mut file = OutputFile::create(&path).expect("created");
        file.write_all(b"after").expect("written");
        file.finish().expect("renamed");
        assert_eq!(fs::read(&path).expect("there"), b"after");
        assert_eq!(names(directory.path()), ["out.npy"]);
    }

    #[cfg(unix)]
    #[test]
    fn links_and_devices_stay_what_they_are() {
        let directory = tempfile::tempdir().expect("a directory");
        let (target, link) = (directory.path().join("target"), directory.path().join("link"));
        fs::write(&target, "before").expect("written");
        std::os::unix::fs::symlink(&target, &link).expect("linked");
        let mut file = OutputFile::create(&link).expect("created");
        file.write_all(b"after").expect("written");
        file.finish().expect("renamed");
        assert_eq!(fs::read(&target).expect("there"), b"after");
        assert!(fs::symlink_metadata(&link).expect("there").is_symlink());

        let null = Path::new("/dev/null");
        let mut file = OutputFile::create(null).expect("opened");
        file.write_all(b"gone").expect("written");
        file.finish().expect("closed");
        assert!(!fs::metadata(null).expect("there").is_file());
    }
}
