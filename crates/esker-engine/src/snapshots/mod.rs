//! Snapshots of sessions: prefixes that conversations share are computed once.
//!
//! A snapshot is a path in a tree of token sequences. A node holds, for some tokens that follow those of its parent, what
//! a session has for each position (keys, values), and possibly what it has at the end of them as a whole (recurrent
//! states): the two are kept and dropped independently, since the second is large and serves one length only. Nodes end
//! at multiples of [`NODE_TOKENS`] and where a session was when it was kept. So snapshots along one conversation share
//! their beginning, and so do conversations with the same system prompt.
//!
//! Memory has a budget; what was not used for the longest time goes first. With a folder ([`folder`]) every node is also
//! written to a file of its own by a thread of its own; what is in a file can leave memory and still be used.
//!
//! `mod.rs` has what is kept and found, `tree.rs` the tree, `budget.rs` what goes, `folder.rs` the files, `format.rs` what is
//! in one, `identity.rs` what ties them to a model.

mod budget;
mod folder;
mod format;
mod identity;
mod tree;

use esker_models::SequenceState;
use folder::Folder;
use format::Header;
use std::path::Path;
use std::sync::Arc;
use tree::{FileState, Key, NODE_BYTES, Node};

pub(crate) use folder::FolderError;
pub(crate) use identity::Identity;

/// Longest stretch of tokens of a node: two conversations that part inside one store its beginning twice.
const NODE_TOKENS: usize = 512;

/// Serialised states: what [`SequenceState::save_positions`] or [`SequenceState::save_end`] shows.
type Blob = Arc<Vec<u8>>;

/// What snapshots are and did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct SnapshotStats {
    /// Lengths that can be continued from.
    pub snapshots: u64,
    /// Memory taken.
    pub bytes: u64,
    /// Bytes of files of this model.
    pub disk_bytes: u64,
    /// Sessions that were continued from a snapshot.
    pub hits: u64,
    /// Tokens that did not have to be computed because of that.
    pub tokens_reused: u64,
    /// Snapshots that were asked for and had no room.
    pub refused: u64,
    /// Files that could not be written.
    pub write_errors: u64,
    /// Files that were damaged or not what their name says, and were deleted.
    pub damaged_files: u64,
}

/// The snapshots of one model and one kind of session.
pub(crate) struct Snapshots {
    /// Holes are free places.
    nodes: Vec<Option<Node>>,
    roots: Vec<usize>,
    budget: usize,
    used: usize,
    clock: u64,
    folder: Option<Folder>,
    stats: SnapshotStats,
}

/// A place in the tree that a sequence can be continued from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    node: usize,
    /// Tokens that the sequence then has: the end of the node, or within it for sequences that are lists.
    pub(crate) len: usize,
}

impl Snapshots {
    /// Room for `budget` bytes.
    pub(crate) fn new(budget: u64) -> Snapshots {
        Snapshots {
            nodes: Vec::new(),
            roots: Vec::new(),
            budget: usize::try_from(budget).unwrap_or(usize::MAX),
            used: 0,
            clock: 0,
            folder: None,
            stats: SnapshotStats::default(),
        }
    }

    /// Also keeps files in `path`, at most `bytes_max` bytes of them, and finds those of earlier runs with the same
    /// `identity`. What is damaged is deleted.
    ///
    /// # Errors
    /// If the folder cannot be made or read, or another process uses it.
    pub(crate) fn open_folder(
        &mut self,
        path: &Path,
        bytes_max: u64,
        identity: Identity,
    ) -> Result<(), FolderError> {
        let (folder, found) = Folder::open(path, bytes_max, identity)?;
        self.folder = Some(folder);
        // Parents come before their children; how long each was not used is in the order of the list.
        let mut found: Vec<(u64, Header)> = (0..).zip(found).collect();
        self.clock = found.len() as u64;
        found.sort_by_key(|(_, header)| header.start);
        for (used, header) in found {
            let parent = match header.parent {
                Key(0) => Some(None),
                key => self.by_key(key).map(Some),
            };
            let fits = |parent: Option<usize>| {
                let (key, end) =
                    parent.map_or((Key(0), 0), |p| (self.node(p).key, self.node(p).end_position()));
                header.start == end && key.followed_by(&header.tokens) == header.key
            };
            match parent {
                Some(parent) if fits(parent) => {
                    let file = FileState { has_end: header.has_end, bytes: header.file_bytes };
                    let node = self.add(parent, header.tokens, None, None, Some(file));
                    self.node_mut(node).positions_used = used;
                }
                _ => {
                    self.stats.damaged_files += 1;
                    self.folder().delete(header.key);
                }
            }
        }
        self.limit_folder(0);
        self.make_room(0, &[]);
        Ok(())
    }

    /// What there is and what happened.
    pub(crate) fn stats(&mut self) -> SnapshotStats {
        self.written();
        let nodes = || self.nodes.iter().flatten();
        SnapshotStats {
            snapshots: nodes().filter(|n| n.can_end()).count() as u64,
            bytes: self.used as u64,
            disk_bytes: nodes().filter_map(|n| n.file).map(|f| f.bytes).sum(),
            damaged_files: self.stats.damaged_files + self.folder.as_ref().map_or(0, |f| f.damaged),
            ..self.stats
        }
    }

    /// Waits until everything that was kept is on disk, if there is a folder.
    pub(crate) fn flush(&mut self) {
        if let Some(folder) = &mut self.folder {
            folder.flush();
        }
        self.written();
    }

    /// Keeps what `state` holds, which has consumed `tokens`.
    pub(crate) fn keep(&mut self, tokens: &[u32], state: &SequenceState) {
        self.written();
        if tokens.is_empty() {
            return;
        }
        let is_list = state.is_list();
        let (mut at, mut from) = self.deepest(tokens);
        self.touch(at, from == tokens.len());
        if from == tokens.len() {
            let node = at.expect("tokens are not empty");
            if !self.node(node).can_end() {
                self.keep_end(node, state);
            }
            return;
        }
        if is_list
            && let Some(found) = self.find(tokens, tokens.len(), usize::MAX, true)
            && found.len == tokens.len()
        {
            // All of it is there, as the beginning of something longer.
            self.touch(Some(found.node), false);
            return;
        }
        while from < tokens.len() {
            let to = ((from / NODE_TOKENS + 1) * NODE_TOKENS).min(tokens.len());
            let is_last = to == tokens.len();
            let positions_bytes = size(|piece| state.save_positions(from..to, piece));
            let end_bytes = if is_last { size(|piece| state.save_end(piece)) } else { 0 };
            let pinned = self.path(at);
            if !self.make_room(NODE_BYTES + 4 * (to - from) + positions_bytes + end_bytes, &pinned) {
                self.stats.refused += 1;
                return;
            }
            let positions = Some(blob(positions_bytes, |piece| state.save_positions(from..to, piece)));
            let end = (is_last || is_list).then(|| blob(end_bytes, |piece| state.save_end(piece)));
            let node = self.add(at, tokens[from..to].to_vec(), positions, end, None);
            self.write(node);
            (at, from) = (Some(node), to);
        }
    }

    /// Adds the end to a node that so far was only passed through.
    fn keep_end(&mut self, node: usize, state: &SequenceState) {
        let bytes = size(|piece| state.save_end(piece));
        let path = self.path(Some(node));
        if !self.make_room(bytes, &path) {
            self.stats.refused += 1;
            return;
        }
        self.used += bytes;
        self.node_mut(node).end = Some(blob(bytes, |piece| state.save_end(piece)));
        if self.node(node).positions.is_some() {
            self.write(node);
        }
    }

    /// The longest beginning of `tokens`, of at most `limit` tokens, that a session with room for `capacity` can be
    /// continued from.
    pub(crate) fn longest(
        &mut self,
        tokens: &[u32],
        limit: usize,
        capacity: usize,
        is_list: bool,
    ) -> Option<Found> {
        self.written();
        self.find(tokens, limit, capacity, is_list)
    }

    fn find(&self, tokens: &[u32], limit: usize, capacity: usize, is_list: bool) -> Option<Found> {
        let mut best: Option<Found> = None;
        let mut open = vec![(&self.roots, 0)];
        while let Some((children, from)) = open.pop() {
            for &child in children {
                let node = self.node(child);
                let same = node.tokens.iter().zip(&tokens[from..limit]).take_while(|(a, b)| a == b).count();
                let len = from + same;
                let is_whole = same == node.tokens.len();
                let usable = if is_list {
                    same > 0 && node.end_position() <= capacity
                } else {
                    is_whole && node.can_end() && len <= capacity
                };
                if usable && best.is_none_or(|b| len > b.len) {
                    best = Some(Found { node: child, len });
                }
                if is_whole {
                    open.push((&node.children, len));
                }
            }
        }
        best
    }

    /// Makes `state` the sequence of the first `found.len` of `tokens`. Its first `valid` positions are those of `tokens`
    /// already. False if a file was damaged: what depended on it is gone, and `state` must be emptied.
    pub(crate) fn restore(
        &mut self,
        found: Found,
        tokens: &[u32],
        valid: usize,
        state: &mut SequenceState,
    ) -> bool {
        let Found { node, len } = found;
        let mut path = self.path(Some(node));
        path.reverse();
        for &at in &path {
            let range = self.node(at).start..self.node(at).end_position();
            if range.end > valid && !self.restore_part(at, Part::Positions(range), tokens, state) {
                return false;
            }
        }
        if !self.restore_part(node, Part::End(len), tokens, state) {
            return false;
        }
        self.touch(Some(node), true);
        if let Some(folder) = &self.folder {
            path.iter()
                .filter(|at| self.node(**at).file.is_some())
                .for_each(|at| folder.touch(self.node(*at).key));
        }
        self.stats.hits += 1;
        self.stats.tokens_reused += len as u64;
        true
    }

    fn restore_part(&mut self, at: usize, part: Part, tokens: &[u32], state: &mut SequenceState) -> bool {
        let node = self.node(at);
        let blob = match part {
            Part::Positions(_) => &node.positions,
            Part::End(_) => &node.end,
        };
        let outcome = match (blob, &self.folder) {
            (Some(blob), _) => {
                let mut rest = &blob[..];
                part.restore(tokens, state, &mut |piece| match rest.split_at_checked(piece.len()) {
                    Some((from, after)) => {
                        piece.copy_from_slice(from);
                        rest = after;
                    }
                    None => unreachable!("what was saved by a session of this model has the sizes of any"),
                });
                true
            }
            (None, Some(folder)) => {
                let is_end = matches!(part, Part::End(_));
                match folder.reader(node.key, is_end) {
                    Ok(mut reader) => {
                        part.restore(tokens, state, &mut |piece| reader.read(piece));
                        reader.finish().is_ok()
                    }
                    Err(_) => false,
                }
            }
            (None, None) => unreachable!("without a folder, what a node has is in memory"),
        };
        if !outcome {
            self.stats.damaged_files += 1;
            self.remove_tree(at);
        }
        outcome
    }
}

/// Bytes that `save` shows.
fn size(save: impl FnOnce(&mut dyn FnMut(&[u8]))) -> usize {
    let mut bytes = 0;
    save(&mut |piece| bytes += piece.len());
    bytes
}

/// What `save` shows, `bytes` in all.
fn blob(bytes: usize, save: impl FnOnce(&mut dyn FnMut(&[u8]))) -> Blob {
    let mut all = Vec::with_capacity(bytes);
    save(&mut |piece| all.extend_from_slice(piece));
    Arc::new(all)
}

/// What of a sequence is restored.
#[derive(Clone, Debug)]
enum Part {
    Positions(std::ops::Range<usize>),
    /// The length.
    End(usize),
}

impl Part {
    fn restore(self, tokens: &[u32], state: &mut SequenceState, piece: &mut dyn FnMut(&mut [u8])) {
        match self {
            Part::Positions(range) => state.restore_positions(range, piece),
            Part::End(len) => state.restore_end(&tokens[..len], piece),
        }
    }
}

/// Files.
impl Snapshots {
    fn folder(&self) -> &Folder {
        self.folder.as_ref().expect("asked where there is one")
    }

    /// Hands a node to the thread that writes.
    fn write(&mut self, at: usize) {
        if self.folder.is_none() {
            return;
        }
        let node = self.node(at);
        let Some(positions) = node.positions.clone() else { return };
        let parent = node.parent.map_or(Key(0), |p| self.node(p).key);
        let job = folder::Job {
            key: node.key,
            parent,
            start: node.start,
            tokens: node.tokens.clone(),
            positions,
            end: node.end.clone(),
        };
        let bytes = job.file_bytes();
        self.limit_folder(bytes);
        let folder = self.folder.as_mut().expect("checked above");
        if bytes <= folder.bytes_max {
            folder.write(job);
        }
    }

    /// Takes note of what has been written.
    fn written(&mut self) {
        let Some(folder) = &mut self.folder else { return };
        for done in folder.done() {
            match done.result {
                Ok(()) => match self.by_key(done.key) {
                    Some(at) => {
                        let file = FileState { has_end: done.has_end, bytes: done.bytes };
                        self.node_mut(at).file = Some(file);
                    }
                    None => self.folder().delete(done.key),
                },
                Err(_) => self.stats.write_errors += 1,
            }
        }
    }
}
