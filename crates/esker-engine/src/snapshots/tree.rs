//! The tree of token sequences: nodes, links, and finding the way.

use super::{Blob, Snapshots};
use twox_hash::xxhash3_128;

/// What a node costs besides its tokens and states.
pub(super) const NODE_BYTES: usize = 256;

/// Hash of all tokens from the beginning to the end of a node; 0 is the empty sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Key(pub(super) u128);

impl Key {
    /// The key of this sequence followed by `tokens`.
    pub(super) fn followed_by(self, tokens: &[u32]) -> Key {
        let mut hasher = xxhash3_128::Hasher::new();
        hasher.write(&self.0.to_le_bytes());
        for token in tokens {
            hasher.write(&token.to_le_bytes());
        }
        Key(hasher.finish_128())
    }
}

/// One node of the tree.
pub(super) struct Node {
    pub(super) parent: Option<usize>,
    pub(super) children: Vec<usize>,
    pub(super) key: Key,
    /// Position of the first token.
    pub(super) start: usize,
    pub(super) tokens: Vec<u32>,
    pub(super) positions: Option<Blob>,
    /// Empty for sequences that are lists.
    pub(super) end: Option<Blob>,
    /// The node's file has its positions, and possibly its end.
    pub(super) file: Option<FileState>,
    pub(super) positions_used: u64,
    pub(super) end_used: u64,
}

/// What of a node is on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileState {
    pub(super) has_end: bool,
    pub(super) bytes: u64,
}

impl Node {
    pub(super) fn end_position(&self) -> usize {
        self.start + self.tokens.len()
    }

    pub(super) fn can_end(&self) -> bool {
        self.end.is_some() || self.file.is_some_and(|f| f.has_end)
    }

    pub(super) fn ram_bytes(&self) -> usize {
        let blob = |b: &Option<Blob>| b.as_ref().map_or(0, |b| b.len());
        NODE_BYTES + 4 * self.tokens.len() + blob(&self.positions) + blob(&self.end)
    }
}

impl Snapshots {
    pub(super) fn node(&self, at: usize) -> &Node {
        self.nodes[at].as_ref().expect("links lead to nodes")
    }

    pub(super) fn node_mut(&mut self, at: usize) -> &mut Node {
        self.nodes[at].as_mut().expect("links lead to nodes")
    }

    pub(super) fn by_key(&self, key: Key) -> Option<usize> {
        self.nodes.iter().position(|n| n.as_ref().is_some_and(|n| n.key == key))
    }

    /// The node with the longest sequence that is a beginning of `tokens`, and its length.
    pub(super) fn deepest(&self, tokens: &[u32]) -> (Option<usize>, usize) {
        let mut best = (None, 0);
        let mut open = vec![(&self.roots, 0)];
        while let Some((children, from)) = open.pop() {
            for &child in children {
                let node = self.node(child);
                if tokens[from..].starts_with(&node.tokens) {
                    let to = node.end_position();
                    if to > best.1 {
                        best = (Some(child), to);
                    }
                    open.push((&node.children, to));
                }
            }
        }
        best
    }

    /// A node and those above it.
    pub(super) fn path(&self, node: Option<usize>) -> Vec<usize> {
        std::iter::successors(node, |&at| self.node(at).parent).collect()
    }

    pub(super) fn add(
        &mut self,
        parent: Option<usize>,
        tokens: Vec<u32>,
        positions: Option<Blob>,
        end: Option<Blob>,
        file: Option<FileState>,
    ) -> usize {
        let (key, start) = parent.map_or((Key(0), 0), |p| (self.node(p).key, self.node(p).end_position()));
        self.clock += 1;
        let node = Node {
            parent,
            children: Vec::new(),
            key: key.followed_by(&tokens),
            start,
            tokens,
            positions,
            end,
            file,
            positions_used: self.clock,
            end_used: self.clock,
        };
        self.used += node.ram_bytes();
        let at = match self.nodes.iter().position(Option::is_none) {
            Some(at) => at,
            None => {
                self.nodes.push(None);
                self.nodes.len() - 1
            }
        };
        self.nodes[at] = Some(node);
        match parent {
            Some(parent) => self.node_mut(parent).children.push(at),
            None => self.roots.push(at),
        }
        at
    }

    /// A node was used, and with it the positions of those above it; its end only if `is_end`.
    pub(super) fn touch(&mut self, node: Option<usize>, is_end: bool) {
        self.clock += 1;
        let clock = self.clock;
        for at in self.path(node) {
            self.node_mut(at).positions_used = clock;
        }
        if let Some(node) = node.filter(|_| is_end) {
            self.node_mut(node).end_used = clock;
        }
    }

    /// Takes a node without children out of the tree, and deletes its file.
    pub(super) fn remove(&mut self, at: usize) {
        let node = self.nodes[at].take().expect("a node");
        self.used -= node.ram_bytes();
        let siblings = match node.parent {
            Some(parent) => &mut self.node_mut(parent).children,
            None => &mut self.roots,
        };
        siblings.retain(|&sibling| sibling != at);
        if let Some(folder) = &self.folder
            && node.file.is_some()
        {
            folder.delete(node.key);
        }
    }

    /// Removes a node and everything below it.
    pub(super) fn remove_tree(&mut self, at: usize) {
        let mut all = vec![at];
        let mut next = 0;
        while next < all.len() {
            all.extend_from_slice(&self.node(all[next]).children);
            next += 1;
        }
        all.into_iter().rev().for_each(|at| self.remove(at));
    }
}
