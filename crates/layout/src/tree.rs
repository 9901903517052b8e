//! The header of a tree of places.
//!
//! ```text
//!  80 bytes, at the start of a node's place
//!  words 0-2          as a node's ([`crate::node`]); the checksum covers words 3 to 9
//!  word 3  shape      | capacity 16 | height 8 | kind 8 | geometries 1 | 0 31 |
//!  word 4  root       a NodeRef
//!  word 5  counter    what a walk compares `left_at` with
//!  words 6-9  bounds  of the Hilbert curve (Hilbert R-trees only, else 0)
//! ```
//! Height counts levels, so that a tree of one leaf has 1.

use crate::limits::{MAX_NODE_ENTRIES, MAX_TREE_HEIGHT, MIN_NODE_ENTRIES, SLOT_UNIT_BYTES};
use crate::node::{
    CheckedPart, Home, NodeRef, NotANode, Proof, check_head, check_proof, node_bytes,
    word as node_word, word_at,
};
use crate::pointer::RemotePointer;
use crate::record::{Mutable, ROOT_WORDS_BYTES, Reject, state_offset, verify_root_words};
use crate::rect::Rect;

pub use crate::node::TreeKind;

/// Bytes of a tree's header.
pub const TREE_HEADER_BYTES: usize = 80;

/// Where the tree of a key lies: its root record, and the header in that record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RootPlace {
    /// Slot of the root record.
    pub record: u32,
    /// Where the header lies, behind the key.
    pub at: NodeRef,
}

impl RootPlace {
    /// One READ fetches a root record of up to so many bytes, header included; of a longer one a
    /// reader fetches the first words and the header.
    const SPAN_BYTES: usize = 256;

    /// The place of the root record of a key of so many bytes, whose header lies at
    /// `at`; `None` if there can be none.
    pub fn of(at: NodeRef, key_bytes: usize) -> Option<Self> {
        let units = u32::try_from(state_offset(key_bytes) / SLOT_UNIT_BYTES).ok()?;
        let record = at.slot.checked_sub(units).filter(|record| *record > 0)?;
        Some(Self { record, at })
    }

    /// Names the root record: slot and generation, without region and length.
    pub const fn record_pointer(&self) -> RemotePointer {
        RemotePointer { slot: self.record, generation: self.at.generation, ..RemotePointer::NONE }
    }

    /// Offset of the root record's first words.
    pub const fn words_at(&self) -> u64 {
        self.record as u64 * SLOT_UNIT_BYTES as u64
    }

    /// The ranges that a reader fetches behind a tree's nodes, in this order: offsets and bytes.
    /// The first [`ROOT_WORDS_BYTES`] of all the bytes are the root record's first words, the last
    /// [`TREE_HEADER_BYTES`] the header. The second range is empty if one is enough.
    pub fn ranges(&self) -> [(u64, usize); 2] {
        self.ranges_of(TREE_HEADER_BYTES)
    }

    /// The same, where the header has so many bytes.
    pub fn ranges_of(&self, header_bytes: usize) -> [(u64, usize); 2] {
        let (words, header) = (self.words_at(), self.at.offset() as u64);
        let span = (header - words) as usize + header_bytes;
        if span <= Self::SPAN_BYTES {
            return [(words, span), (header, 0)];
        }
        [(words, ROOT_WORDS_BYTES), (header, header_bytes)]
    }

    /// Checks the bytes that a reader fetched from [`RootPlace::ranges`]: the nodes fetched before
    /// were the tree's own, and the tree has not expired by the word that comes with the header.
    ///
    /// # Errors
    /// The tree has gone, or the reader has to ask the owner, or the bytes are torn.
    pub fn verify(&self, bytes: &[u8], home: Home) -> Result<(TreeHeader, Mutable), NotANode> {
        let header = bytes.last_chunk::<TREE_HEADER_BYTES>().ok_or(NotANode::Torn)?;
        let header = verify_header(header, home, self.at, Proof::Checksum)?;
        match verify_root_words(bytes, self.at.generation) {
            Ok(mutable) => Ok((header, mutable)),
            Err(Reject::Torn) => Err(NotANode::Torn),
            Err(_) => Err(NotANode::Dead),
        }
    }
}

/// The content of a tree's header.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TreeHeader {
    /// How the tree is written.
    pub kind: TreeKind,
    /// Entries that a node has room for.
    pub capacity: u16,
    /// Number of levels, at least 1.
    pub height: u8,
    /// The root.
    pub root: NodeRef,
    /// The writer raises it once for each change that took entries out of nodes.
    pub counter: u64,
    /// Bounds of the Hilbert curve; 0 for other kinds.
    pub bounds: Rect,
    /// Whether an object has, or has had, a geometry. If no object ever had one, objects are their
    /// rectangles. The writer sets it before readers can read the first such object's rectangle,
    /// and never clears it.
    pub has_geometries: bool,
}

impl TreeHeader {
    /// Words 3 to 9 as they stand in memory.
    pub fn to_words(&self) -> [u64; 7] {
        let shape = self.capacity as u64
            | (self.height as u64) << 16
            | (self.kind as u64) << 24
            | (self.has_geometries as u64) << 32;
        let Rect { min_x, max_x, min_y, max_y } = self.bounds;
        let [a, b, c, d] = [min_x, max_x, min_y, max_y].map(f64::to_bits);
        [shape, self.root.to_word(), self.counter, a, b, c, d]
    }

    /// The header that words 3 to 9 encode; `None` if they break a limit.
    pub fn from_words(words: [u64; 7]) -> Option<Self> {
        let (capacity, height) = (words[0] as u16, (words[0] >> 16) as u8);
        let fits = (MIN_NODE_ENTRIES..=MAX_NODE_ENTRIES).contains(&(capacity as usize))
            && (1..=MAX_TREE_HEIGHT).contains(&height)
            && words[0] >> 33 == 0;
        let [min_x, max_x, min_y, max_y] =
            [words[3], words[4], words[5], words[6]].map(f64::from_bits);
        Some(Self {
            kind: TreeKind::from_byte((words[0] >> 24) as u8)?,
            capacity,
            height,
            root: NodeRef::from_word(words[1]),
            counter: words[2],
            bounds: Rect { min_x, max_x, min_y, max_y },
            has_geometries: words[0] >> 32 & 1 == 1,
        })
        .filter(|_| fits)
    }
}

/// Words of a [`TreeInfo`].
pub const TREE_INFO_WORDS: usize = 16;

/// The server's description of a tree: where to read it, and what it holds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TreeInfo {
    /// Where its header lies.
    pub at: NodeRef,
    /// How it is written.
    pub kind: TreeKind,
    /// Entries that a node has room for.
    pub capacity: u16,
    /// Number of levels, at least 1.
    pub height: u8,
    /// Objects in it.
    pub objects: u64,
    /// Nodes in it.
    pub nodes: u64,
    /// Bytes of the arena that its nodes take, free nodes included.
    pub node_bytes: u64,
    /// Bytes outside the arena of the index from ids to objects.
    pub index_bytes: u64,
    /// Objects that carry bytes.
    pub with_data: u64,
    /// Objects that have a geometry.
    pub with_geometry: u64,
    /// Objects that have fields.
    pub with_fields: u64,
    /// Objects that are to expire.
    pub with_expiry: u64,
    /// Objects whose words are no ids ([`crate::object::SURROGATE`]).
    pub with_surrogate: u64,
    /// Objects that are staged for building it.
    pub staged: u64,
    /// The area that a Hilbert R-tree's curve fills; 0 for other kinds.
    pub bounds: Rect,
}

impl TreeInfo {
    /// The words as they stand in a message.
    pub fn to_words(&self) -> [u64; TREE_INFO_WORDS] {
        let shape = self.capacity as u64 | (self.height as u64) << 16 | (self.kind as u64) << 24;
        let Rect { min_x, max_x, min_y, max_y } = self.bounds;
        let [a, b, c, d] = [min_x, max_x, min_y, max_y].map(f64::to_bits);
        let Self { objects, nodes, node_bytes, index_bytes, with_data, staged, .. } = *self;
        let Self { with_geometry, with_fields, with_expiry, with_surrogate, .. } = *self;
        let with = [with_geometry, with_fields, with_expiry, with_surrogate];
        let at = self.at.to_word();
        let sizes = [at, shape, objects, nodes, node_bytes, index_bytes, with_data, staged];
        let mut words = [0; TREE_INFO_WORDS];
        words[..sizes.len()].copy_from_slice(&sizes);
        words[sizes.len()..].copy_from_slice([[a, b, c, d], with].as_flattened());
        words
    }

    /// Decodes the words; `None` if no server sends such words.
    pub fn from_words(words: &[u64]) -> Option<Self> {
        let (sizes, rest) = words.split_first_chunk::<8>()?;
        let &[a, b, c, d, with_geometry, with_fields, with_expiry, with_surrogate] = rest else {
            return None;
        };
        let &[at, shape, objects, nodes, node_bytes, index_bytes, with_data, staged] = sizes;
        let [min_x, max_x, min_y, max_y] = [a, b, c, d].map(f64::from_bits);
        Some(Self {
            at: NodeRef::from_word(at),
            kind: TreeKind::from_byte((shape >> 24) as u8)?,
            capacity: shape as u16,
            height: (shape >> 16) as u8,
            objects,
            nodes,
            node_bytes,
            index_bytes,
            with_data,
            with_geometry,
            with_fields,
            with_expiry,
            with_surrogate,
            staged,
            bounds: Rect { min_x, max_x, min_y, max_y },
        })
    }
}

/// Checks bytes that were fetched as the tree header at `at`.
pub fn verify_header(
    bytes: &[u8],
    home: Home,
    at: NodeRef,
    proof: Proof,
) -> Result<TreeHeader, NotANode> {
    if bytes.len() < TREE_HEADER_BYTES {
        return Err(NotANode::Torn);
    }
    let version = check_head(bytes, at)?;
    check_proof(home, CheckedPart::Header, at, version, proof, &bytes[..TREE_HEADER_BYTES])?;
    let words = std::array::from_fn(|index| word_at(bytes, node_word::SHAPE + index));
    TreeHeader::from_words(words).ok_or(NotANode::Torn)
}

const _: () = assert!(TREE_HEADER_BYTES <= node_bytes(MIN_NODE_ENTRIES));

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Guardian, State};

    #[test]
    fn a_root_counts_only_live_and_whole() {
        let home = Home { secret: 5, region: 2 };
        for key_bytes in [0, 1, 90, 143, 145, 5000] {
            let record = 100;
            let slot = record + (state_offset(key_bytes) / SLOT_UNIT_BYTES) as u32;
            let at = NodeRef { slot, generation: 9 };
            let place = RootPlace::of(at, key_bytes).unwrap();
            assert_eq!(place.record, record);
            let [first, second] = place.ranges();
            assert_eq!((first.0, second.0), (1600, at.offset() as u64));
            assert!(first.1 + second.1 <= RootPlace::SPAN_BYTES);
            let header = TreeHeader {
                kind: TreeKind::RStar,
                capacity: 30,
                height: 1,
                root: NodeRef { slot: 7, generation: 3 },
                counter: 4,
                bounds: Rect::default(),
                has_geometries: false,
            };
            let guardian = |state| Guardian { generation: 9, state, class: 0 }.to_word();
            let words = header.to_words().map(u64::to_le_bytes).concat();
            let sum = home.checksum(CheckedPart::Header, at, 2, &words);
            let mutable = Mutable { expires_at_ms: 77, ..Mutable::default() };
            let root = |record, block| {
                let words_of = [guardian(record), mutable.to_word()];
                let mut bytes = words_of.map(u64::to_le_bytes).concat();
                bytes.resize(first.1 + second.1 - TREE_HEADER_BYTES, 0xee);
                bytes.extend([guardian(block), 2, sum].map(u64::to_le_bytes).concat());
                bytes.extend(&words);
                bytes
            };
            let live = root(State::Live, State::Live);
            assert_eq!(place.verify(&live, home), Ok((header, mutable)));
            for state in [State::Dead, State::Pending, State::AskOnly] {
                let dead = Err(NotANode::Dead);
                assert_eq!(place.verify(&root(state, State::Live), home), dead);
                assert_eq!(place.verify(&root(State::Live, state), home), dead);
            }
            for bit in (live.len() - TREE_HEADER_BYTES) * 8 + 64..live.len() * 8 {
                let mut bytes = live.clone();
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(place.verify(&bytes, home), Err(NotANode::Torn), "bit {bit}");
            }
            let other = RootPlace { at: NodeRef { generation: 8, ..at }, ..place };
            assert_eq!(other.verify(&live, home), Err(NotANode::Dead));
        }
        assert_eq!(RootPlace::of(NodeRef { slot: 2, generation: 1 }, 0), None);
        assert_eq!(RootPlace::of(NodeRef { slot: 9, generation: 1 }, usize::MAX / 2), None);
    }

    #[test]
    fn headers_round_trip_and_break_no_limit() {
        let header = TreeHeader {
            kind: TreeKind::Hilbert,
            capacity: 30,
            height: 5,
            root: NodeRef { slot: u32::MAX, generation: 7 },
            counter: 1 << 50,
            bounds: Rect { min_x: -1.0, max_x: 2.0, min_y: 0.5, max_y: 4.0 },
            has_geometries: false,
        };
        let words = header.to_words();
        let with = TreeHeader { has_geometries: true, ..header };
        assert_eq!(TreeHeader::from_words(with.to_words()), Some(with));
        assert_eq!(TreeHeader::from_words(words), Some(header));
        for (height, capacity) in [(0, 30), (MAX_TREE_HEIGHT + 1, 30), (1, 1), (1, u16::MAX)] {
            let bad = TreeHeader { height, capacity, ..header };
            assert_eq!(TreeHeader::from_words(bad.to_words()), None);
        }
        assert_eq!(TreeHeader::from_words([words[0] | 3 << 24, 0, 0, 0, 0, 0, 0]), None);
    }
}
