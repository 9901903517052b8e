//! A node of a tree of places.
//!
//! ```text
//!  word 0  guardian   | generation 32 | state 8 | 0 8 | colour 1 | 0 15 |
//!  word 1  version    odd while the node changes; begins with the generation
//!                     in its upper half, so that none comes again here
//!  word 2  checksum   | XXH3 of word 3 to the last entry; seed: see below |
//!  word 3  shape      | entries 16 | level 8 | kind 8 | 0 32 |
//!  word 4  left_at    tree counter from which on entries may be missing here
//!  word 5  changed_at sequence of the last change; readers ask while it is not durable
//!  word 6  lhv        largest Hilbert value (Hilbert R-trees only, else 0)
//!  word 7  0
//!  then    entries    40 bytes each: a rectangle and a word
//! ```
//! The word of an entry is an object's id in leaves (level 0), a [`NodeRef`] in the levels above.
//! The tree's capacity decides the length of a node: 64 and 40 bytes for each entry, 1264 for 30
//! (C7). The bytes behind the used entries have no meaning.
//!
//! The checksum's seed holds the arena's secret, region, slot, generation and the version about to
//! be published: neither a mixture of old and new nor a copy of a node in another place passes.
//! Nodes have one seed; headers and records have others.

use crate::hash::{checksum, mix};
use crate::limits::{
    CACHE_LINE_BYTES, MAX_NODE_ENTRIES, MAX_TREE_HEIGHT, READ_SEARCH_NODE_BYTES,
    READ_SEARCH_OBJECTS, SLOT_UNIT_BYTES, STREAM_BYTES,
};
use crate::record::{Guardian, State, checksum_seed};
use crate::rect::{RECT_BYTES, Rect};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes before a node's entries: one cache line.
pub const NODE_HEADER_BYTES: usize = 64;
/// Bytes of an entry.
pub const ENTRY_BYTES: usize = 40;
/// Offset of the checksummed part, of nodes and headers.
pub const NODE_CHECKED_FROM: usize = 24;

/// Bytes of the first words, guardian and version: if both are unchanged, the whole node is
/// unchanged.
pub const VERSIONED_BYTES: usize = 16;

/// Word offsets in a node; the first four are a tree header's too, see
/// [`crate::tree`].
pub mod word {
    /// Guardian.
    pub const GUARDIAN: usize = 0;
    /// Version.
    pub const VERSION: usize = 1;
    /// Checksum.
    pub const CHECKSUM: usize = 2;
    /// Shape.
    pub const SHAPE: usize = 3;
    /// The node's `left_at`.
    pub const LEFT_AT: usize = 4;
    /// The node's `changed_at`.
    pub const CHANGED_AT: usize = 5;
    /// The node's largest Hilbert value.
    pub const LHV: usize = 6;
}

/// Bytes of a node with room for `capacity` entries: 1264 for 30.
#[inline]
pub const fn node_bytes(capacity: usize) -> usize {
    NODE_HEADER_BYTES + capacity * ENTRY_BYTES
}

/// One entry of a node.
#[derive(Clone, Copy, PartialEq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Entry {
    /// The object's rectangle, or the smallest one around a child's entries.
    pub rect: Rect,
    /// The object's id, or a [`NodeRef`] to the child.
    pub word: u64,
}

impl Entry {
    /// The entry that [`ENTRY_BYTES`] encode, at any address.
    #[inline(always)]
    pub fn from_bytes(bytes: &[u8; ENTRY_BYTES]) -> Self {
        zerocopy::transmute!(*bytes)
    }
}

/// Where a node lies in its tree's region, and under which generation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash, PartialOrd, Ord)]
pub struct NodeRef {
    /// The slot, in units of [`SLOT_UNIT_BYTES`]; never 0.
    pub slot: u32,
    /// The generation that its guardian must have.
    pub generation: u32,
}

impl NodeRef {
    /// The word as it stands in an entry.
    #[inline(always)]
    pub const fn to_word(self) -> u64 {
        self.slot as u64 | (self.generation as u64) << 32
    }

    /// The reference that a word encodes.
    #[inline(always)]
    pub const fn from_word(word: u64) -> Self {
        Self { slot: word as u32, generation: (word >> 32) as u32 }
    }

    /// Byte offset in the region.
    #[inline(always)]
    pub const fn offset(self) -> usize {
        self.slot as usize * SLOT_UNIT_BYTES
    }
}

/// The algorithm that writes a tree (C4); readers read all kinds alike.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum TreeKind {
    /// The R*-tree: forced reinsertion, split by margin and overlap (C5).
    #[default]
    RStar = 0,
    /// Guttman's R-tree with the quadratic split.
    Guttman = 1,
    /// The Hilbert R-tree: entries in the order of a curve, two nodes split
    /// into three (C6).
    Hilbert = 2,
}

impl TreeKind {
    /// The kind that a byte encodes.
    pub const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            0 => Some(Self::RStar),
            1 => Some(Self::Guttman),
            2 => Some(Self::Hilbert),
            _ => None,
        }
    }
}

/// Word 3 of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeShape {
    /// Entries in use.
    pub entries: u16,
    /// Levels below; 0 for leaves.
    pub level: u8,
    /// The tree's kind.
    pub kind: TreeKind,
}

impl NodeShape {
    /// The word as it stands in memory.
    pub const fn to_word(self) -> u64 {
        self.entries as u64 | (self.level as u64) << 16 | (self.kind as u64) << 24
    }

    /// The shape that a word encodes; `None` if no writer stores such a word.
    #[inline(always)]
    pub const fn from_word(word: u64) -> Option<Self> {
        let (entries, level) = (word as u16, (word >> 16) as u8);
        let Some(kind) = TreeKind::from_byte((word >> 24) as u8) else { return None };
        if word >> 32 != 0 || level >= MAX_TREE_HEIGHT || entries as usize > MAX_NODE_ENTRIES {
            return None;
        }
        Some(Self { entries, level, kind })
    }
}

/// What a checksum belongs to: a node, a header, or the state of a chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub enum CheckedPart {
    /// A node.
    Node = 1,
    /// A tree's header.
    Header = 2,
    /// The state of a chain of chunks.
    Chain = 3,
    /// A node of a B+tree.
    OrderedNode = 4,
    /// A B+tree's header.
    OrderedHeader = 5,
}

/// The owner of checked bytes: a checksum binds them to it, beside their version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Home {
    /// The arena's secret.
    pub secret: u64,
    /// The arena.
    pub region: u32,
}

impl Home {
    /// The checksum of the checked part of a node or header.
    #[inline]
    pub fn checksum(self, part: CheckedPart, at: NodeRef, version: u64, checked: &[u8]) -> u64 {
        let seed = checksum_seed(self.secret, self.region, at.slot, at.generation);
        checksum(checked, seed ^ mix(version, part as u64))
    }
}

/// How a reader knows that it fetched consistent bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Proof {
    /// By the checksum: a READ returns its words in any order.
    Checksum,
    /// By the version word (seqlock): the reader loads it once more after it copied the bytes, and
    /// orders its own loads. The owner's thread gives the version in the bytes: no other thread
    /// changes them.
    VersionAfter(u64),
}

/// Why fetched bytes are not the expected node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotANode {
    /// The owner is changing it, or the bytes are part old and part new: fetch it again.
    Torn,
    /// The owner has freed the node: the path to it is old.
    Dead,
}

/// A node whose bytes have passed every check.
#[derive(Clone, Copy, Debug)]
pub struct VerifiedNode<'a> {
    /// Entries, level, kind.
    pub shape: NodeShape,
    /// The tree counter from which on entries may be missing in this node.
    pub left_at: u64,
    /// Position in the operation log of its last change.
    pub changed_at: u64,
    entries: &'a [u8],
}

impl<'a> VerifiedNode<'a> {
    /// Its entries. Their rectangles are what the owner wrote.
    #[inline(always)]
    pub fn entries(&self) -> impl ExactSizeIterator<Item = Entry> + use<'a> {
        self.entry_bytes().iter().map(Entry::from_bytes)
    }

    /// Its entries as bytes, at any address.
    #[inline(always)]
    pub fn entry_bytes(&self) -> &'a [[u8; ENTRY_BYTES]] {
        self.entries.as_chunks().0
    }
}

/// The word at `index` of bytes that are long enough.
#[inline(always)]
pub(crate) fn word_at(bytes: &[u8], index: usize) -> u64 {
    u64::from_le_bytes(bytes[index * 8..index * 8 + 8].try_into().expect("eight bytes"))
}

/// Whether bytes fetched from `at`, at least [`VERSIONED_BYTES`], begin as the node there did in
/// this version.
pub fn is_version(bytes: &[u8], at: NodeRef, version: u64) -> bool {
    bytes.len() >= VERSIONED_BYTES && check_head(bytes, at) == Ok(version)
}

/// The version of bytes that begin as a node; odd if they are too short for one.
#[inline(always)]
pub fn version_of(bytes: &[u8]) -> u64 {
    if bytes.len() < VERSIONED_BYTES { 1 } else { word_at(bytes, word::VERSION) }
}

/// Checks guardian and version, of a node or header alike; returns the version.
#[inline(always)]
pub(crate) fn check_head(bytes: &[u8], at: NodeRef) -> Result<u64, NotANode> {
    let guardian = Guardian::from_word(word_at(bytes, word::GUARDIAN)).ok_or(NotANode::Torn)?;
    if guardian.generation != at.generation || guardian.state != State::Live {
        return Err(NotANode::Dead);
    }
    let version = word_at(bytes, word::VERSION);
    if version & 1 == 1 { Err(NotANode::Torn) } else { Ok(version) }
}

#[inline(always)]
pub(crate) fn check_proof(
    home: Home,
    part: CheckedPart,
    at: NodeRef,
    version: u64,
    proof: Proof,
    bytes: &[u8],
) -> Result<(), NotANode> {
    let whole = match proof {
        Proof::VersionAfter(after) => after == version,
        Proof::Checksum => {
            let checked = &bytes[NODE_CHECKED_FROM..];
            home.checksum(part, at, version, checked) == word_at(bytes, word::CHECKSUM)
        }
    };
    if whole { Ok(()) } else { Err(NotANode::Torn) }
}

/// Checks bytes that a reader fetched as the node at `at`, which must be of `level`. They may be
/// longer than the node.
#[inline]
pub fn verify_node(
    bytes: &[u8],
    home: Home,
    at: NodeRef,
    level: u8,
    proof: Proof,
) -> Result<VerifiedNode<'_>, NotANode> {
    if bytes.len() < NODE_HEADER_BYTES {
        return Err(NotANode::Torn);
    }
    let version = check_head(bytes, at)?;
    let shape = NodeShape::from_word(word_at(bytes, word::SHAPE)).ok_or(NotANode::Torn)?;
    let end = node_bytes(shape.entries as usize);
    if shape.level != level || end > bytes.len() {
        return Err(NotANode::Torn);
    }
    check_proof(home, CheckedPart::Node, at, version, proof, &bytes[..end])?;
    Ok(VerifiedNode {
        shape,
        left_at: word_at(bytes, word::LEFT_AT),
        changed_at: word_at(bytes, word::CHANGED_AT),
        entries: &bytes[NODE_HEADER_BYTES..end],
    })
}

const _: () = assert!(ENTRY_BYTES == RECT_BYTES + 8 && size_of::<Entry>() == ENTRY_BYTES);
const _: () = assert!(NODE_HEADER_BYTES == CACHE_LINE_BYTES);
const _: () = assert!(node_bytes(30) == 1264);
const _: () = assert!(node_bytes(MAX_NODE_ENTRIES) <= READ_SEARCH_NODE_BYTES);
const _: () = assert!(READ_SEARCH_OBJECTS == STREAM_BYTES / ENTRY_BYTES);

#[cfg(test)]
mod tests {
    use super::*;

    const HOME: Home = Home { secret: 0x5ec2_e7ed, region: 3 };
    const AT: NodeRef = NodeRef { slot: 77, generation: 5 };

    fn node(version: u64, entries: u64) -> Vec<u8> {
        let guardian = Guardian { generation: AT.generation, state: State::Live, class: 0 };
        let shape = NodeShape { entries: entries as u16, level: 1, kind: TreeKind::Guttman };
        let mut words = vec![guardian.to_word(), version, 0, shape.to_word(), 9, 10, 0, 0];
        for id in 0..entries {
            words.extend([id as f64, 8.0, 1.0, 2.0].map(f64::to_bits));
            words.push(id);
        }
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let sum = HOME.checksum(CheckedPart::Node, AT, version, &bytes[NODE_CHECKED_FROM..]);
        bytes[16..24].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    #[test]
    fn a_whole_node_passes_and_keeps_what_it_says() {
        let mut bytes = node(4, 3);
        bytes.extend([0xff; 80]);
        let found = verify_node(&bytes, HOME, AT, 1, Proof::Checksum).unwrap();
        assert_eq!((found.shape.entries, found.left_at, found.changed_at), (3, 9, 10));
        let ids: Vec<u64> = found.entries().map(|entry| entry.word).collect();
        assert_eq!(ids, [0, 1, 2]);
        assert_eq!(found.entries().next().unwrap().rect.max_x, 8.0);
        assert!(verify_node(&bytes, HOME, AT, 1, Proof::VersionAfter(4)).is_ok());
        let late = verify_node(&bytes, HOME, AT, 1, Proof::VersionAfter(6));
        assert_eq!(late.unwrap_err(), NotANode::Torn);
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let good = node(4, 3);
        for bit in 0..good.len() * 8 {
            if (40..49).contains(&bit) {
                continue; // the guardian's class, which nodes do not have, and its colour
            }
            let mut bytes = good.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(verify_node(&bytes, HOME, AT, 1, Proof::Checksum).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_node_is_bound_to_its_place_version_and_level() {
        let bytes = node(4, 3);
        let check = |home, at, level| verify_node(&bytes, home, at, level, Proof::Checksum);
        let other = |slot, generation| NodeRef { slot, generation };
        assert_eq!(check(HOME, other(78, 5), 1).unwrap_err(), NotANode::Torn);
        assert_eq!(check(HOME, other(77, 6), 1).unwrap_err(), NotANode::Dead);
        assert_eq!(check(HOME, AT, 0).unwrap_err(), NotANode::Torn);
        assert!(check(Home { region: 4, ..HOME }, AT, 1).is_err());
        assert!(check(Home { secret: 1, ..HOME }, AT, 1).is_err());
        // Old entries under a new version, and the other way round.
        let mut mixed = node(6, 3);
        mixed[16..24].copy_from_slice(&bytes[16..24]);
        assert!(verify_node(&mixed, HOME, AT, 1, Proof::Checksum).is_err());
        let odd = node(5, 3);
        assert_eq!(verify_node(&odd, HOME, AT, 1, Proof::Checksum).unwrap_err(), NotANode::Torn);
        for cut in 0..bytes.len() {
            assert!(verify_node(&bytes[..cut], HOME, AT, 1, Proof::Checksum).is_err());
        }
    }
}
