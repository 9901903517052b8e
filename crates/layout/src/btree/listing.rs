//! What a listing says of the levels and nodes of a tree.

use crate::node::NodeRef;

/// What a level of a tree holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LevelInfo {
    /// Its nodes.
    pub nodes: u64,
    /// Their entries; not those of deep nodes, which are nodes of the same level.
    pub entries: u64,
    /// Those of its nodes that are deep.
    pub deep: u64,
    /// Lookups that came to its nodes, as far as the owner has counted them; not of leaves.
    pub accesses: u64,
}

/// Words of an encoded [`LevelInfo`].
pub const LEVEL_INFO_WORDS: usize = 4;

impl LevelInfo {
    /// As words.
    pub const fn to_words(&self) -> [u64; LEVEL_INFO_WORDS] {
        [self.nodes, self.entries, self.deep, self.accesses]
    }

    /// What words encode.
    pub const fn from_words(words: &[u64; LEVEL_INFO_WORDS]) -> Self {
        let [nodes, entries, deep, accesses] = *words;
        Self { nodes, entries, deep, accesses }
    }
}

/// A node without its entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NodeInfo {
    /// Its place.
    pub at: NodeRef,
    /// Its level.
    pub level: u8,
    /// Its children are of its own level.
    pub is_deep: bool,
    /// Keys in it and below it.
    pub keys: u64,
    /// Lookups that came to it, about; of leaves they are not counted.
    pub accesses: u64,
}

/// Words of an encoded [`NodeInfo`].
pub const NODE_INFO_WORDS: usize = 4;

impl NodeInfo {
    /// As words.
    pub const fn to_words(&self) -> [u64; NODE_INFO_WORDS] {
        let shape = self.level as u64 | (self.is_deep as u64) << 8;
        [self.at.to_word(), shape, self.keys, self.accesses]
    }

    /// What words encode; `None` if they encode none.
    pub const fn from_words(words: &[u64; NODE_INFO_WORDS]) -> Option<Self> {
        let [at, shape, keys, accesses] = *words;
        if shape >> 9 != 0 {
            return None;
        }
        let (level, is_deep) = (shape as u8, shape >> 8 == 1);
        Some(Self { at: NodeRef::from_word(at), level, is_deep, keys, accesses })
    }

    /// The level of its children, if it has any.
    pub const fn child_level(&self) -> u8 {
        if self.is_deep { self.level } else { self.level.saturating_sub(1) }
    }
}

/// A child that an inner node names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChildInfo {
    /// Its low fence.
    pub key: Vec<u8>,
    /// Its place.
    pub at: NodeRef,
    /// Keys in it and below it.
    pub keys: u64,
    /// Lookups that came to it, about; of leaves they are not counted.
    pub accesses: u64,
}

/// Words of an encoded [`ChildInfo`], its key apart.
pub const CHILD_INFO_WORDS: usize = 3;

impl ChildInfo {
    /// As words, without the key.
    pub const fn to_words(&self) -> [u64; CHILD_INFO_WORDS] {
        [self.at.to_word(), self.keys, self.accesses]
    }

    /// What a key and words encode.
    pub const fn from_words(key: Vec<u8>, words: &[u64; CHILD_INFO_WORDS]) -> Self {
        let [at, keys, accesses] = *words;
        Self { key, at: NodeRef::from_word(at), keys, accesses }
    }
}

/// An inner node with its content. Its keys are those of the tree: integers are 8 bytes, most
/// significant first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InnerNode {
    /// The node.
    pub info: NodeInfo,
    /// The smallest key that may be below it.
    pub low: Vec<u8>,
    /// The first key that may not be below it.
    pub high: Option<Vec<u8>>,
    /// Its children, by key.
    pub children: Vec<ChildInfo>,
}
