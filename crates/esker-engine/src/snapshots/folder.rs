//! The folder of snapshot files: `<identity>-<key>.snapshot`, each written under a temporary name first.
//!
//! One process at a time uses a folder, by a lock on a file in it. Models share it: files of other identities are left
//! alone, but count against the folder's size, and the oldest go when it is full. Anything else in the folder is not
//! ours and is not touched.

use super::format::{self, Contents, FormatError, Header, PartReader};
use super::tree::Key;
use super::{Blob, Identity};
use std::collections::VecDeque;
use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::SystemTime;

const LOCK: &str = "esker-snapshots.lock";
const EXTENSION: &str = "snapshot";
const TEMPORARY: &str = "snapshot-part";

/// Snapshots cannot be kept on disk.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FolderError {
    /// It cannot be made, or read.
    #[error("cannot use the folder `{}`", path.display())]
    Io { path: PathBuf, source: io::Error },
    /// Another process has it.
    #[error("the folder `{}` is used by another process", path.display())]
    InUse { path: PathBuf },
}

/// An open folder.
pub(crate) struct Folder {
    path: PathBuf,
    identity: Identity,
    pub(super) bytes_max: u64,
    /// Damaged files found.
    pub(super) damaged: u64,
    /// Files of other identities, newest first.
    others: Vec<(SystemTime, u64, PathBuf)>,
    writer: Option<Writer>,
    /// Held for as long as the folder is used.
    _lock: File,
}

/// A node to be written.
pub(super) struct Job {
    pub(super) key: Key,
    pub(super) parent: Key,
    pub(super) start: usize,
    pub(super) tokens: Vec<u32>,
    pub(super) positions: Blob,
    pub(super) end: Option<Blob>,
}

impl Job {
    pub(super) fn file_bytes(&self) -> u64 {
        format::file_bytes(self.tokens.len(), self.positions.len(), self.end.as_ref().map_or(0, |e| e.len()))
    }
}

/// What became of a [`Job`].
pub(super) struct Done {
    pub(super) key: Key,
    pub(super) has_end: bool,
    /// Bytes of the file.
    pub(super) bytes: u64,
    pub(super) result: io::Result<()>,
}

/// The thread that writes.
struct Writer {
    jobs: Sender<Job>,
    done: Receiver<Done>,
    /// Jobs whose end has not been heard of, and the bytes of their files.
    open: usize,
    open_bytes: u64,
    thread: JoinHandle<()>,
    heard: VecDeque<Done>,
}

impl Folder {
    /// Opens `path`, deletes what a killed process left half-written and what is damaged, and returns the headers of the
    /// files of `identity`.
    ///
    /// # Errors
    /// If the folder cannot be made or read, or another process uses it.
    pub(super) fn open(
        path: &Path,
        bytes_max: u64,
        identity: Identity,
    ) -> Result<(Folder, Vec<Header>), FolderError> {
        let io = |source| FolderError::Io { path: path.to_owned(), source };
        create(path).map_err(io)?;
        let lock =
            File::options().write(true).create(true).truncate(false).open(path.join(LOCK)).map_err(io)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(FolderError::InUse { path: path.to_owned() }),
            Err(TryLockError::Error(error)) => return Err(io(error)),
        }
        let mut folder = Folder {
            path: path.to_owned(),
            identity,
            bytes_max,
            damaged: 0,
            others: Vec::new(),
            writer: None,
            _lock: lock,
        };
        let headers = folder.scan().map_err(io)?;
        folder.writer = Some(Writer::start(path, identity).map_err(io)?);
        Ok((folder, headers))
    }

    fn scan(&mut self) -> io::Result<Vec<Header>> {
        let mut headers: Vec<(SystemTime, Header)> = Vec::new();
        for entry in std::fs::read_dir(&self.path)? {
            let entry = entry?;
            let path = entry.path();
            let Some((identity, key, extension)) = parse(&path) else { continue };
            let Ok(metadata) = entry.metadata() else { continue };
            if !metadata.is_file() {
                continue;
            }
            if extension == TEMPORARY {
                remove(&path);
                continue;
            }
            let time = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            if identity != self.identity {
                self.others.push((time, metadata.len(), path));
                continue;
            }
            let header =
                File::open(&path).map_err(FormatError::Io).and_then(|mut file| Header::read(&mut file));
            match header {
                Ok(header) if (header.identity, header.key) == (identity, key) => {
                    headers.push((time, header))
                }
                Ok(_) | Err(FormatError::Damaged(_)) => {
                    self.damaged += 1;
                    remove(&path);
                }
                Err(FormatError::Io(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    self.damaged += 1;
                    remove(&path);
                }
                // It may be readable another time.
                Err(FormatError::Io(_)) => {}
            }
        }
        self.others.sort_by_key(|(time, ..)| std::cmp::Reverse(*time));
        // What was used last is told from times only here: within a run there is a clock.
        headers.sort_by_key(|(time, _)| *time);
        Ok(headers.into_iter().map(|(_, header)| header).collect())
    }

    /// Bytes of files of other models.
    pub(super) fn others_bytes(&self) -> u64 {
        self.others.iter().map(|(_, bytes, _)| bytes).sum()
    }

    /// Deletes the oldest file of another model; false if there is none.
    pub(super) fn delete_other(&mut self) -> bool {
        match self.others.pop() {
            Some((_, _, path)) => {
                remove(&path);
                true
            }
            None => false,
        }
    }

    fn path_of(&self, key: Key) -> PathBuf {
        self.path.join(name(self.identity, key, EXTENSION))
    }

    /// Deletes a node's file.
    pub(super) fn delete(&self, key: Key) {
        remove(&self.path_of(key));
    }

    /// A node's file was used.
    pub(super) fn touch(&self, key: Key) {
        // Only the order in which files are given up depends on it.
        if let Ok(file) = File::options().append(true).open(self.path_of(key)) {
            let _ = file.set_modified(SystemTime::now());
        }
    }

    /// Reads a node's positions or end.
    pub(super) fn reader(&self, key: Key, is_end: bool) -> Result<PartReader, FormatError> {
        PartReader::open(&self.path_of(key), self.identity, key, is_end)
    }

    /// Has a node written, some time.
    pub(super) fn write(&mut self, job: Job) {
        let bytes = job.file_bytes();
        if let Some(writer) = &mut self.writer
            && writer.jobs.send(job).is_ok()
        {
            writer.open += 1;
            writer.open_bytes += bytes;
        }
    }

    /// Bytes that are still to be written.
    pub(super) fn queued_bytes(&self) -> u64 {
        self.writer.as_ref().map_or(0, |w| w.open_bytes)
    }

    /// What has been written since the last call.
    pub(super) fn done(&mut self) -> Vec<Done> {
        let Some(writer) = &mut self.writer else { return Vec::new() };
        let mut done: Vec<Done> = writer.heard.drain(..).collect();
        while let Ok(one) = writer.done.try_recv() {
            writer.heard_of(&one);
            done.push(one);
        }
        done
    }

    /// Waits for everything that was given to [`write`](Self::write).
    pub(super) fn flush(&mut self) {
        let Some(writer) = &mut self.writer else { return };
        while writer.open > 0
            && let Ok(one) = writer.done.recv()
        {
            writer.heard_of(&one);
            writer.heard.push_back(one);
        }
    }
}

impl Drop for Folder {
    /// What was kept is written before the process ends.
    fn drop(&mut self) {
        if let Some(Writer { jobs, thread, .. }) = self.writer.take() {
            drop(jobs);
            // A panic of the thread has been printed; nobody else depends on it.
            let _ = thread.join();
        }
    }
}

impl Writer {
    fn heard_of(&mut self, done: &Done) {
        self.open -= 1;
        self.open_bytes -= done.bytes;
    }

    fn start(path: &Path, identity: Identity) -> io::Result<Writer> {
        let (jobs, incoming) = channel::<Job>();
        let (outgoing, done) = channel();
        let folder = path.to_owned();
        let run = move || {
            while let Ok(job) = incoming.recv() {
                let contents = Contents {
                    identity,
                    key: job.key,
                    parent: job.parent,
                    start: job.start,
                    tokens: &job.tokens,
                    positions: &job.positions,
                    end: job.end.as_ref().map(|end| &end[..]),
                };
                let at = |extension| folder.join(name(identity, job.key, extension));
                let result = format::write(&contents, &at(TEMPORARY), &at(EXTENSION));
                let (key, has_end, bytes) = (job.key, job.end.is_some(), job.file_bytes());
                drop(job); // before it is said to be done: memory counts
                if outgoing.send(Done { key, has_end, bytes, result }).is_err() {
                    // The engine is gone; what it kept is still worth writing.
                    continue;
                }
            }
        };
        let thread = std::thread::Builder::new().name("snapshots".to_owned()).spawn(run)?;
        Ok(Writer { jobs, done, open: 0, open_bytes: 0, thread, heard: VecDeque::new() })
    }
}

fn name(identity: Identity, key: Key, extension: &str) -> String {
    format!("{:032x}-{:032x}.{extension}", identity.0, key.0)
}

/// Identity, key and extension of a file that has one of our names.
fn parse(path: &Path) -> Option<(Identity, Key, &'static str)> {
    let (stem, extension) = path.file_name()?.to_str()?.split_once('.')?;
    let extension = [EXTENSION, TEMPORARY].into_iter().find(|e| *e == extension)?;
    let (identity, key) = stem.split_once('-')?;
    let hash = |text: &str| {
        let is_ours =
            text.len() == 32 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        if is_ours { u128::from_str_radix(text, 16).ok() } else { None }
    };
    Some((Identity(hash(identity)?), Key(hash(key)?), extension))
}

/// A folder that only its owner can look into, if it has to be made.
fn create(path: &Path) -> io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::DirBuilderExt;
        builder.mode(0o700);
    }
    builder.create(path)
}

/// Deletes a file; if that fails, it is found again at the next start.
fn remove(path: &Path) {
    let _ = std::fs::remove_file(path);
}
