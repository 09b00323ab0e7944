//! Prefix reuse: what a session or a snapshot has already is not computed again. The bits are those of computing it.

use crate::cached::with_causes;
use crate::engine::Engine;
use crate::options::EngineOptions;
use crate::session::Session;
use crate::snapshots::{Identity, SnapshotStats, Snapshots};
use esker_gguf::Gguf;

/// The store of snapshots that the options ask for. A folder that cannot be used is noted, and done without.
pub(crate) fn open(gguf: &Gguf, options: &EngineOptions, notes: &mut Vec<String>) -> Option<Box<Snapshots>> {
    if options.snapshot_bytes == 0 {
        return None;
    }
    let mut snapshots = Box::new(Snapshots::new(options.snapshot_bytes));
    if let Some(path) = &options.snapshot_dir {
        let opened = Identity::of(gguf, options).map_err(|e| with_causes(&e)).and_then(|identity| {
            snapshots.open_folder(path, options.snapshot_dir_bytes, identity).map_err(|e| with_causes(&e))
        });
        if let Err(why) = opened {
            notes.push(format!("snapshots are kept in memory only: {why}"));
        }
    }
    Some(snapshots)
}

impl Engine {
    /// Makes the session hold a prefix of `tokens` as long as possible and shorter than `tokens`; returns its length. What
    /// it needs is in the session already, or in a snapshot; nothing is computed. A broken session is repaired.
    pub fn reuse_prefix(&mut self, session: &mut Session, tokens: &[u32]) -> usize {
        // The last token is always fed, since its logits are wanted.
        let capacity = session.capacity();
        let limit = tokens.len().saturating_sub(1).min(capacity);
        let mut same = match session.broken {
            true => 0,
            false => session.tokens.iter().zip(&tokens[..limit]).take_while(|(a, b)| a == b).count(),
        };
        let mut own = if session.broken { 0 } else { session.state.cut(same) };
        if let Some(snapshots) = &mut self.snapshots {
            let is_list = session.state.is_list();
            while let Some(found) = snapshots.longest(tokens, limit, capacity, is_list)
                && found.len > own
            {
                if snapshots.restore(found, tokens, same, &mut session.state) {
                    session.tokens.clear();
                    session.tokens.extend_from_slice(&tokens[..found.len]);
                    session.broken = false;
                    return found.len;
                }
                // A damaged file: it is gone from the store, and the session is part one thing, part another.
                session.broken = true;
                (same, own) = (0, 0);
            }
        }
        if session.broken || !session.state.truncate(own) {
            session.state.truncate(0);
            own = 0;
        }
        session.tokens.truncate(own);
        session.broken = false;
        own
    }

    /// Keeps a snapshot of the session as it is now, for [`reuse_prefix`](Self::reuse_prefix) of any session: at the end of a
    /// message, where a conversation may go on. The end of every chunk of a prompt is kept without being asked for. Does
    /// nothing if the engine was loaded without room for snapshots, or the session is broken.
    pub fn keep_snapshot(&mut self, session: &Session) {
        if let Some(snapshots) = &mut self.snapshots
            && !session.broken
        {
            snapshots.keep(&session.tokens, &session.state);
        }
    }

    /// Waits until every snapshot that was kept is on disk. Dropping the engine does that, too.
    pub fn flush_snapshots(&mut self) {
        if let Some(snapshots) = &mut self.snapshots {
            snapshots.flush();
        }
    }

    /// What snapshots there are; all zero if none are kept.
    pub fn snapshot_stats(&mut self) -> SnapshotStats {
        self.snapshots.as_mut().map_or_else(SnapshotStats::default, |s| s.stats())
    }

    /// Keeps a snapshot if the last pass, of `n` tokens, ended a chunk of a prompt.
    pub(crate) fn keep_chunk(&mut self, session: &Session, n: usize) {
        let chunk = self.options.chunk.max(1);
        let len = session.tokens.len();
        if n > 1 && len / chunk > (len - n) / chunk {
            self.keep_snapshot(session);
        }
    }
}
