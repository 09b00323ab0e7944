//! What has to go when there is no more room, in memory and in the folder.

use super::tree::Node;
use super::{Blob, Snapshots};
use std::sync::Arc;

impl Snapshots {
    /// Drops what was not used for the longest time until `need` more bytes fit. What `pinned` nodes are stays. False if
    /// that is not enough: then as much is gone as could go.
    pub(super) fn make_room(&mut self, need: usize, pinned: &[usize]) -> bool {
        if need > self.budget {
            return false;
        }
        while self.used > self.budget - need {
            let Some((at, what)) = self.victim(pinned) else { return false };
            match what {
                Droppable::End => {
                    let node = self.node_mut(at);
                    let freed = node.end.take().map_or(0, |end| end.len());
                    self.used -= freed;
                }
                Droppable::Positions => {
                    let node = self.node_mut(at);
                    let freed = node.positions.take().map_or(0, |positions| positions.len());
                    self.used -= freed;
                }
                Droppable::Node => self.remove(at),
            }
        }
        true
    }

    /// What may go, of what is in memory, and was not used for the longest time. What is being written stays.
    fn victim(&self, pinned: &[usize]) -> Option<(usize, Droppable)> {
        let is_free = |blob: &Option<Blob>| blob.as_ref().is_some_and(|b| Arc::strong_count(b) == 1);
        let mut best: Option<((bool, u64), usize, Droppable)> = None;
        for (at, node) in self.nodes.iter().enumerate() {
            let Some(node) = node else { continue };
            let mut offer = |used, what| {
                // What is in files only takes little memory, and is worth much: it goes last.
                let order = (node.positions.is_none() && node.end.is_none(), used);
                if best.is_none_or(|(b, ..)| order < b) {
                    best = Some((order, at, what));
                }
            };
            let end_bytes = node.end.as_ref().map_or(0, |end| end.len());
            if end_bytes > 0 && is_free(&node.end) {
                offer(node.end_used, Droppable::End);
            }
            if pinned.contains(&at) {
                continue;
            }
            let is_leaf = node.children.is_empty();
            match node.file {
                Some(_) if is_free(&node.positions) => offer(node.positions_used, Droppable::Positions),
                Some(_) if node.positions.is_none() && is_leaf && end_bytes == 0 => {
                    offer(node.positions_used, Droppable::Node);
                }
                None if is_leaf && end_bytes == 0 && is_free(&node.positions) => {
                    offer(node.positions_used, Droppable::Node);
                }
                _ => {}
            }
        }
        best.map(|(_, at, what)| (at, what))
    }

    /// Deletes files until `more` bytes fit into the folder: what was not used for the longest time, files of other
    /// models included.
    pub(super) fn limit_folder(&mut self, more: u64) {
        let mut own: u64 = self.nodes.iter().flatten().filter_map(|n| n.file).map(|f| f.bytes).sum();
        while let Some(folder) = &mut self.folder
            && own + folder.others_bytes() + folder.queued_bytes() + more > folder.bytes_max
        {
            if folder.delete_other() {
                continue;
            }
            // Nothing may be left without what it follows: in a file, or in memory if it is not written yet.
            let is_leaf = |n: &Node| match n.positions {
                Some(_) => n.children.iter().all(|&c| self.node(c).file.is_none()),
                None => n.children.is_empty(),
            };
            let oldest = self
                .nodes
                .iter()
                .enumerate()
                .filter_map(|(at, n)| Some((at, n.as_ref()?)))
                .filter(|(_, n)| n.file.is_some() && is_leaf(n))
                .min_by_key(|(_, n)| n.positions_used)
                .map(|(at, _)| at);
            let Some(at) = oldest else { return };
            let node = self.node_mut(at);
            own -= node.file.take().map_or(0, |f| f.bytes);
            let (key, in_memory) = (node.key, node.positions.is_some());
            self.folder().delete(key);
            if !in_memory {
                self.remove_tree(at);
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Droppable {
    End,
    Positions,
    Node,
}
