//! A node of a B+tree, and the header of a tree.
//!
//! ```text
//!  node
//!  word 0  guardian   as a node's of a tree of places ([`crate::node`])
//!  word 1  version    the same
//!  word 2  checksum   | XXH3 of word 3 to the last used byte; the seed is a node's |
//!  word 3  shape      | entries 16 | level 8 | form 8 | used bytes 32 |
//!  word 4  moves      of a leaf: | moved_at 63 | joined 1 |, a [`MoveMark`]
//!  word 5  changed_at sequence of the last change; readers ask while it is not durable
//!  word 6  own        the node's own place, a NodeRef: a READ that the network resolved brings none
//!  word 7  tree       the place of the tree's header
//!  word 8  right      the next node of the level, a NodeRef; 0: none
//!  word 9  fences     | low bytes 16 | high bytes 16 | prefix 16 | 0 16 |
//!  then    fences     low, high                                       to a whole word
//!          heads      a word for each entry
//!          payloads   a word for each entry; none in a leaf of empty values
//!          rests      | offset 16 | key bytes behind the prefix 16 | for each entry, to a whole word;
//!                     trees of byte strings only
//!          heap       what does not fit into heads and payloads       to a whole word
//!          unused
//!  end     counts     of inner nodes: a word for each entry that there is room for: keys below the
//!                     child; for the owner, outside version and checksum
//! ```
//! All nodes of a tree have one length. A node is for the keys from its low fence, inclusive, to its
//! high fence, exclusive; without a high fence (form, bit 1) to the end. The first node of a level
//! has the empty low fence. Keys are ordered as byte strings; an integer is its 8 bytes, most
//! significant first (form, bit 0: byte strings).
//!
//! The children of an inner node are one level below it. Those of a *deep* node (form, bit 2) are of
//! its own level: it was divided while others held its address, and is the root of its part. So a
//! deep node of level 0 is no leaf.
//!
//! All keys between two fences begin with what the two have in common: the *prefix*, which entries
//! do not repeat. An integer has none. The *head* of an entry is the 8 bytes behind the prefix, as a
//! number, filled with zeros; the heap has the bytes behind those. So most comparisons compare words.
//!
//! The payload of an inner entry is a child, a NodeRef, and its key is the child's low fence. That
//! of a leaf's entry is a value:
//!
//! ```text
//!  | kind 8 | bytes 8 | bytes of the value 48        |   values of up to 6 bytes
//!  | kind 8 | 0xff 8  | offset 16 | bytes 16 | 0 16  |   the value lies in the heap
//!  | bytes of the value 64                           |   all payloads, if form, bit 3
//! ```
//! Form, bit 3: each value of the leaf is 8 bytes, of the kind [`ValueKind::Bytes`]. Form, bit 4:
//! each of them has no bytes and is of this kind, and the leaf has no payloads.
//!
//! Checks of the fixed part come first. After that no offset is believed: what lies outside of the
//! node is read as nothing, so that forged bytes never end the reader.

use crate::limits::{
    MAX_FAN_OUT, MAX_ORDERED_KEY_BYTES, MAX_ORDERED_NODE_BYTES, MAX_TREE_HEIGHT, MIN_FAN_OUT,
    SLOT_UNIT_BYTES, WORD_BYTES,
};
use crate::node::{
    CheckedPart, Home, NODE_CHECKED_FROM, NodeRef, NotANode, Proof, check_head, check_proof,
    word as node_word, word_at,
};
use crate::record::{Mutable, Reject, State, root_state};
use crate::tree::RootPlace;
use payloads::{Payloads, heap_word, short_word};
use std::cmp::Ordering;

mod item;
mod listing;
mod long;
mod moves;
mod owned;
mod payloads;
mod search;
mod splice;
mod value;

use item::{EMPTY, IN_HEAP, WORDS};
pub use item::{Item, Payload};
pub use listing::{
    CHILD_INFO_WORDS, ChildInfo, InnerNode, LEVEL_INFO_WORDS, LevelInfo, NODE_INFO_WORDS, NodeInfo,
};
pub use long::{LONG_KEY_BYTES, LongValue, long_key};
pub use moves::{MoveMark, set_move_mark};
pub use owned::Columns;
pub use splice::Splice;
pub use value::{Value, ValueKind};

/// Bytes of a node before its fences.
pub const ORDERED_HEADER_BYTES: usize = 80;
/// Bytes of a tree's header.
pub const ORDERED_ROOT_BYTES: usize = 48;
/// Bytes of a key in the head of its entry.
pub const HEAD_BYTES: usize = 8;
/// Bytes of an integer key.
pub const INTEGER_BYTES: usize = 8;
/// Longest value that lies in the payload's word.
pub const SHORT_VALUE_BYTES: usize = 6;
/// Bytes of an entry beside its key's rest and its value, at most.
pub const ENTRY_HEAD_BYTES: usize = 2 * WORD_BYTES + REST_BYTES;

const REST_BYTES: usize = 4;
const BYTE_STRINGS: u8 = 1;
const HAS_HIGH: u8 = 2;
const DEEP: u8 = 4;

/// Word offsets in a node, beside [`crate::node::word`].
pub mod word {
    /// What has moved out of a leaf or into it.
    pub const MOVES: usize = 4;
    /// The node's own place.
    pub const OWN: usize = 6;
    /// The place of the tree's header.
    pub const TREE: usize = 7;
    /// The next node of the level.
    pub const RIGHT: usize = 8;
    /// Lengths of fences and prefix.
    pub const FENCES: usize = 9;
}

/// What the keys of a tree are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum KeyForm {
    /// Integers of 64 bits: 8 bytes, most significant first.
    #[default]
    Integers = 0,
    /// Byte strings of up to [`MAX_ORDERED_KEY_BYTES`].
    Bytes = 1,
}

/// What is to stand in a node.
#[derive(Clone, Copy, Debug)]
pub struct Content<'a> {
    /// Levels below, deep nodes apart; 0 for leaves.
    pub level: u8,
    /// The children are of the same level.
    pub is_deep: bool,
    /// What the keys are.
    pub keys: KeyForm,
    /// The smallest key that may be here.
    pub low: &'a [u8],
    /// The first key that may not be here any more.
    pub high: Option<&'a [u8]>,
    /// The next node of the level; [`NodeRef::default`]: none.
    pub right: NodeRef,
    /// The entries, by key; each key between the fences.
    pub items: &'a [Item<'a>],
}

/// Whose node it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ownership {
    /// The node's place.
    pub at: NodeRef,
    /// The place of the tree's header.
    pub tree: NodeRef,
    /// Sequence of the change.
    pub changed_at: u64,
}

/// Bytes that two keys have in common at their beginnings.
pub fn common_bytes(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).take_while(|(one, other)| one == other).count()
}

/// Bytes that all keys between two fences have in common.
pub fn prefix_bytes(keys: KeyForm, low: &[u8], high: Option<&[u8]>) -> usize {
    match (keys, high) {
        (KeyForm::Bytes, Some(high)) => common_bytes(low, high),
        _ => 0,
    }
}

/// Bytes of a value in the heap.
const fn heap_value_bytes(bytes: usize) -> usize {
    if bytes > SHORT_VALUE_BYTES { bytes } else { 0 }
}

/// Bytes that one entry takes at most in a node whose prefix has so many bytes.
pub fn item_bytes(keys: KeyForm, prefix: usize, item: &Item<'_>) -> usize {
    let value = match item.payload {
        Payload::Child(_) => 0,
        Payload::Value(value) => heap_value_bytes(value.bytes.len()),
    };
    let key = match keys {
        KeyForm::Integers => 0,
        KeyForm::Bytes => REST_BYTES + item.key.len().saturating_sub(prefix + HEAD_BYTES),
    };
    2 * WORD_BYTES + key + value
}

/// Bytes that a node with this content uses; a multiple of a word.
pub fn encoded_bytes(content: &Content<'_>) -> usize {
    let Content { level, is_deep, keys, low, high, items, .. } = *content;
    let prefix = prefix_bytes(keys, low, high);
    let payloads = Payloads::of(level == 0 && !is_deep, items);
    let fence_bytes = low.len() + high.map_or(0, <[u8]>::len);
    let parts = Parts::of(keys, payloads, items.len(), fence_bytes);
    let whole: usize = items.iter().map(|item| item_bytes(keys, prefix, item)).sum();
    let value = if payloads == Payloads::Words { WORD_BYTES } else { 0 };
    let heap = whole - items.len() * (2 * WORD_BYTES + rest_bytes(keys) + value);
    (parts.heap + heap).next_multiple_of(WORD_BYTES)
}

/// Bytes for entries and fences in a node of `node_bytes`, header included.
pub const fn room_bytes(node_bytes: usize, is_leaf: bool, fan_out: usize) -> usize {
    if is_leaf { node_bytes } else { node_bytes - fan_out * WORD_BYTES }
}

/// Offset in the node of the count of an entry.
pub const fn count_offset(node_bytes: usize, fan_out: usize, index: usize) -> usize {
    node_bytes - (fan_out - index) * WORD_BYTES
}

/// Longest value that an entry of a leaf may take, if values of so many bytes lie in leaves.
pub const fn leaf_value_bytes(value_bytes: usize) -> usize {
    if value_bytes < LongValue::BYTES { LongValue::BYTES } else { value_bytes }
}

/// Fewest bytes of a node with such keys, and values of so many bytes in leaves, or in records:
/// whatever it holds, a full node and one more entry make two.
///
/// The two halves have three fences together, one of them twice, and their entries are those of a node
/// with the outer two of these fences and one more; in a leaf, payloads of another form may take a word
/// more for each. If the left half takes all that it has room for, less than one entry of its room
/// stays empty. So a node that has room for two fences, two entries and these words has room for both
/// halves. An inner node has a count of a word for each entry instead.
pub const fn least_node_bytes(fan_out: usize, key_bytes: usize, value_bytes: usize) -> usize {
    /// What the parts of two nodes take to whole words, at most.
    const PADDING_BYTES: usize = 6 * WORD_BYTES;
    let head_bytes = if key_bytes < HEAD_BYTES { key_bytes } else { HEAD_BYTES };
    let entry = ENTRY_HEAD_BYTES + key_bytes - head_bytes + leaf_value_bytes(value_bytes);
    let fences = ORDERED_HEADER_BYTES + 2 * key_bytes + PADDING_BYTES;
    (fences + 2 * entry + fan_out * WORD_BYTES).next_multiple_of(SLOT_UNIT_BYTES)
}

const fn rest_bytes(keys: KeyForm) -> usize {
    match keys {
        KeyForm::Integers => 0,
        KeyForm::Bytes => REST_BYTES,
    }
}

/// Where the parts of a node begin.
#[derive(Clone, Copy, Debug)]
struct Parts {
    heads: usize,
    payloads: usize,
    rests: usize,
    heap: usize,
}

impl Parts {
    fn of(keys: KeyForm, form: Payloads, entries: usize, fence_bytes: usize) -> Self {
        let heads = ORDERED_HEADER_BYTES + fence_bytes.next_multiple_of(WORD_BYTES);
        let payloads = heads + entries * WORD_BYTES;
        let rests = payloads + entries * form.bytes();
        let heap = rests + (entries * rest_bytes(keys)).next_multiple_of(WORD_BYTES);
        Self { heads, payloads, rests, heap }
    }
}

/// The first bytes of a key behind the prefix, as a number that orders as they do.
#[inline]
fn head_of(suffix: &[u8]) -> u64 {
    match suffix.first_chunk() {
        Some(head) => u64::from_be_bytes(*head),
        None => {
            let mut head = [0; HEAD_BYTES];
            head[..suffix.len()].copy_from_slice(suffix);
            u64::from_be_bytes(head)
        }
    }
}

/// Writes at the end of the heap.
struct Heap<'a> {
    bytes: &'a mut [u8],
    end: usize,
}

impl Heap<'_> {
    fn push(&mut self, bytes: &[u8]) -> u16 {
        let at = self.end;
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        self.end += bytes.len();
        at as u16
    }

    fn put(&mut self, at: usize, word: u64) {
        self.bytes[at..at + WORD_BYTES].copy_from_slice(&word.to_le_bytes());
    }

    fn payload(&mut self, payload: Payload<'_>, are_words: bool) -> u64 {
        let value = match payload {
            Payload::Child(at) => return at.to_word(),
            Payload::Value(value) => value,
        };
        if are_words {
            word_at(value.bytes, 0)
        } else if value.bytes.len() <= SHORT_VALUE_BYTES {
            short_word(value)
        } else {
            heap_word(value, self.push(value.bytes) as usize)
        }
    }
}

/// Encodes a node, its first three words apart, which its writer stores. Nothing has moved out of it
/// or into it ([`set_move_mark`]). Returns the used bytes.
///
/// # Panics
/// `into` is shorter than [`encoded_bytes`], or longer than a node may be.
pub fn encode(content: &Content<'_>, ownership: Ownership, into: &mut [u8]) -> usize {
    let Content { level, is_deep, keys, low, high, right, items } = *content;
    let used = encoded_bytes(content);
    assert!(used <= into.len() && into.len() <= MAX_ORDERED_NODE_BYTES, "no room for {used}");
    let into = &mut into[..used];
    into.fill(0);
    let prefix = prefix_bytes(keys, low, high);
    let high_bytes = high.map_or(0, <[u8]>::len);
    let payloads = Payloads::of(level == 0 && !is_deep, items);
    let parts = Parts::of(keys, payloads, items.len(), low.len() + high_bytes);
    let mut form = keys as u8 | payloads.form();
    for (is_so, bit) in [(high.is_some(), HAS_HIGH), (is_deep, DEEP)] {
        form |= if is_so { bit } else { 0 };
    }
    let shape =
        items.len() as u64 | (level as u64) << 16 | (form as u64) << 24 | (used as u64) << 32;
    let fences = low.len() as u64 | (high_bytes as u64) << 16 | (prefix as u64) << 32;
    let mut heap = Heap { bytes: into, end: ORDERED_HEADER_BYTES };
    heap.put(node_word::SHAPE * WORD_BYTES, shape);
    heap.put(node_word::CHANGED_AT * WORD_BYTES, ownership.changed_at);
    heap.put(word::OWN * WORD_BYTES, ownership.at.to_word());
    heap.put(word::TREE * WORD_BYTES, ownership.tree.to_word());
    heap.put(word::RIGHT * WORD_BYTES, right.to_word());
    heap.put(word::FENCES * WORD_BYTES, fences);
    heap.push(low);
    heap.push(high.unwrap_or_default());
    heap.end = parts.heap;
    for (index, item) in items.iter().enumerate() {
        let suffix = &item.key[prefix..];
        heap.put(parts.heads + index * WORD_BYTES, head_of(suffix));
        if keys == KeyForm::Bytes {
            let offset = heap.push(suffix.get(HEAD_BYTES..).unwrap_or_default());
            let at = parts.rests + index * REST_BYTES;
            heap.bytes[at..at + 2].copy_from_slice(&offset.to_le_bytes());
            let bytes = suffix.len() as u16;
            heap.bytes[at + 2..at + 4].copy_from_slice(&bytes.to_le_bytes());
        }
        if payloads != Payloads::Empty {
            let payload = heap.payload(item.payload, payloads == Payloads::Words);
            heap.put(parts.payloads + index * WORD_BYTES, payload);
        }
    }
    used
}

/// A key, taken apart for the comparisons in one node.
#[derive(Clone, Copy)]
struct Suffix<'k> {
    head: u64,
    rest: &'k [u8],
    bytes: usize,
}

impl<'k> Suffix<'k> {
    #[inline]
    fn of(suffix: &'k [u8]) -> Self {
        let rest = suffix.get(HEAD_BYTES..).unwrap_or_default();
        Self { head: head_of(suffix), rest, bytes: suffix.len() }
    }
}

/// What a reader expects of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Expected {
    /// Its place; `None` if the network resolved the READ: then the node says where it lies.
    pub at: Option<NodeRef>,
    /// The place of the tree's header.
    pub tree: NodeRef,
    /// Its level.
    pub level: u8,
}

/// Where a value lies in the bytes of its node, so that a reader finds it after its search.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ValueRange {
    /// What the bytes are.
    pub kind: ValueKind,
    /// Offset in the node.
    pub from: usize,
    /// Its length.
    pub bytes: usize,
}

/// A node: its parts lie inside of its bytes.
#[derive(Clone, Copy, Debug)]
pub struct OrderedNode<'a> {
    bytes: &'a [u8],
    entries: usize,
    level: u8,
    is_deep: bool,
    keys: KeyForm,
    payloads: Payloads,
    low: &'a [u8],
    high: Option<&'a [u8]>,
    prefix: usize,
    parts: Parts,
}

impl<'a> OrderedNode<'a> {
    /// The node that bytes hold, which may be longer; `None` if they hold none. It checks what the
    /// other methods rely on, and neither version nor checksum: the owner reads its own memory so.
    #[inline(always)]
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        if bytes.len() < ORDERED_HEADER_BYTES {
            return None;
        }
        let shape = word_at(bytes, node_word::SHAPE);
        let (entries, level) = (shape as u16 as usize, (shape >> 16) as u8);
        let (form, used) = ((shape >> 24) as u8, (shape >> 32) as usize);
        let fences = word_at(bytes, word::FENCES);
        let [low, high, prefix] = [0, 16, 32].map(|shift| (fences >> shift) as u16 as usize);
        let keys = if form & BYTE_STRINGS == 0 { KeyForm::Integers } else { KeyForm::Bytes };
        let [has_high, is_deep] = [HAS_HIGH, DEEP].map(|bit| form & bit != 0);
        let payloads = Payloads::of_form(form)?;
        let parts = Parts::of(keys, payloads, entries, low + high);
        let is_leaf = level == 0 && !is_deep;
        let is_sound = form & !(BYTE_STRINGS | HAS_HIGH | DEEP | WORDS | EMPTY) == 0
            && (is_leaf || payloads == Payloads::Tagged)
            && level < MAX_TREE_HEIGHT
            && entries <= MAX_FAN_OUT
            && used <= bytes.len()
            && parts.heap <= used
            && low.max(high) <= MAX_ORDERED_KEY_BYTES
            && (has_high || high == 0)
            && prefix <= low.min(high);
        if !is_sound {
            return None;
        }
        let bytes = &bytes[..used];
        let (low, behind) = bytes[ORDERED_HEADER_BYTES..].split_at(low);
        let high = has_high.then_some(&behind[..high]);
        Some(Self { bytes, entries, level, is_deep, keys, payloads, low, high, prefix, parts })
    }

    /// Checks bytes that a reader fetched; they may be longer than the used part of the node.
    ///
    /// # Errors
    /// They are part old, part new; or the node is dead, or another tree's, or of another level:
    /// the path to it is old.
    pub fn verify(
        bytes: &'a [u8],
        home: Home,
        expected: Expected,
        proof: Proof,
    ) -> Result<Self, NotANode> {
        if bytes.len() < ORDERED_HEADER_BYTES {
            return Err(NotANode::Torn);
        }
        let own = NodeRef::from_word(word_at(bytes, word::OWN));
        let at = expected.at.unwrap_or(own);
        let version = check_head(bytes, at)?;
        let node = Self::parse(bytes).ok_or(NotANode::Torn)?;
        check_proof(home, CheckedPart::OrderedNode, at, version, proof, node.bytes)?;
        if own != at {
            return Err(NotANode::Torn);
        }
        if node.tree() != expected.tree || node.level != expected.level {
            return Err(NotANode::Dead);
        }
        Ok(node)
    }

    /// Its entries.
    pub fn entries(&self) -> usize {
        self.entries
    }

    /// Levels below, deep nodes apart; 0 for leaves and for deep nodes above leaves.
    pub fn level(&self) -> u8 {
        self.level
    }

    /// Whether its children are of its own level.
    pub fn is_deep(&self) -> bool {
        self.is_deep
    }

    /// Whether it has values.
    #[inline]
    pub fn is_leaf(&self) -> bool {
        self.level == 0 && !self.is_deep
    }

    /// The level of its children, if it has any.
    #[inline]
    pub fn child_level(&self) -> u8 {
        if self.is_deep { self.level } else { self.level.saturating_sub(1) }
    }

    /// What its keys are.
    pub fn keys(&self) -> KeyForm {
        self.keys
    }

    /// The smallest key that may be here.
    pub fn low(&self) -> &'a [u8] {
        self.low
    }

    /// The first key that may not be here any more.
    pub fn high(&self) -> Option<&'a [u8]> {
        self.high
    }

    /// Bytes of its entries, if it takes so many bytes with them.
    pub const fn entry_bytes(&self, used: usize) -> usize {
        used - self.parts.heads
    }

    /// Bytes in use.
    pub fn used_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The next node of the level.
    pub fn right(&self) -> Option<NodeRef> {
        let right = NodeRef::from_word(word_at(self.bytes, word::RIGHT));
        (right.slot != 0).then_some(right)
    }

    /// The place of the header of the tree that it belongs to.
    pub fn tree(&self) -> NodeRef {
        NodeRef::from_word(word_at(self.bytes, word::TREE))
    }

    /// Sequence of its last change.
    pub fn changed_at(&self) -> u64 {
        word_at(self.bytes, node_word::CHANGED_AT)
    }

    /// Whether a key lies before this node, in it, or behind it.
    #[inline]
    pub fn place_of(&self, key: &[u8]) -> Ordering {
        if key < self.low {
            Ordering::Less
        } else if self.high.is_some_and(|high| key >= high) {
            Ordering::Greater
        } else {
            Ordering::Equal
        }
    }

    fn heads(&self) -> &'a [[u8; WORD_BYTES]] {
        self.bytes[self.parts.heads..self.parts.payloads].as_chunks().0
    }

    fn rest(&self, index: usize) -> (&'a [u8], usize) {
        if self.keys == KeyForm::Integers {
            return (&[], INTEGER_BYTES);
        }
        let at = self.parts.rests + index * REST_BYTES;
        let half = |at: usize| u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]]) as usize;
        let (offset, bytes) = (half(at), half(at + 2));
        let rest = bytes.saturating_sub(HEAD_BYTES);
        (self.bytes.get(offset..offset + rest).unwrap_or_default(), bytes)
    }

    fn compare(&self, index: usize, suffix: Suffix<'_>) -> Ordering {
        let (rest, bytes) = self.rest(index);
        rest.cmp(suffix.rest).then(bytes.cmp(&suffix.bytes))
    }

    /// The index of a key between the fences; if it is not there, that of the first greater one.
    #[inline(always)]
    pub fn position(&self, key: &[u8]) -> Result<usize, usize> {
        if self.keys == KeyForm::Integers
            && let Ok(key) = <[u8; INTEGER_BYTES]>::try_from(key)
        {
            // The head is the whole key.
            return search::position(self.heads(), u64::from_be_bytes(key));
        }
        self.position_of_string(key)
    }

    fn position_of_string(&self, key: &[u8]) -> Result<usize, usize> {
        let suffix = Suffix::of(key.get(self.prefix..).unwrap_or_default());
        let heads = self.heads();
        let first = heads.partition_point(|head| u64::from_le_bytes(*head) < suffix.head);
        // Entries of one head, which are few.
        for (index, head) in heads.iter().enumerate().skip(first) {
            if u64::from_le_bytes(*head) != suffix.head {
                return Err(index);
            }
            match self.compare(index, suffix) {
                Ordering::Less => {}
                Ordering::Equal => return Ok(index),
                Ordering::Greater => return Err(index),
            }
        }
        Err(self.entries)
    }

    /// The index of the child for a key between the fences, of an inner node.
    #[inline(always)]
    pub fn child_index(&self, key: &[u8]) -> usize {
        self.position(key).unwrap_or_else(|next| next.saturating_sub(1))
    }

    fn payload_at(&self, index: usize) -> usize {
        self.parts.payloads + index * self.payloads.bytes()
    }

    /// A child; `None` if there are fewer, or no payloads.
    #[inline]
    pub fn child(&self, index: usize) -> Option<NodeRef> {
        let payloads = &self.bytes[self.parts.payloads..self.parts.rests];
        let word = payloads.as_chunks::<WORD_BYTES>().0.get(index)?;
        Some(NodeRef::from_word(u64::from_le_bytes(*word)))
    }

    /// Where a value lies; `None` if there are fewer, or the bytes are forged.
    #[inline]
    pub fn value_range(&self, index: usize) -> Option<ValueRange> {
        if index >= self.entries {
            return None;
        }
        let at = self.payload_at(index);
        let whole = |bytes| Some(ValueRange { kind: ValueKind::Bytes, from: at, bytes });
        match self.payloads {
            Payloads::Words => return whole(WORD_BYTES),
            Payloads::Empty => return whole(0),
            Payloads::Tagged => {}
        }
        let word: &[u8; WORD_BYTES] = self.bytes[at..].first_chunk()?;
        let half = |at: usize| u16::from_le_bytes([word[at], word[at + 1]]) as usize;
        let (from, bytes) = match word[1] {
            IN_HEAP => (half(2), half(4)),
            short => (at + 2, short as usize),
        };
        let fits =
            from + bytes <= self.bytes.len() && (word[1] == IN_HEAP || bytes <= SHORT_VALUE_BYTES);
        fits.then_some(ValueRange { kind: ValueKind::from_byte(word[0]), from, bytes })
    }

    /// A value; `None` if there are fewer, or the bytes are forged.
    #[inline]
    pub fn value(&self, index: usize) -> Option<Value<'a>> {
        let ValueRange { kind, from, bytes } = self.value_range(index)?;
        Some(Value { kind, bytes: &self.bytes[from..from + bytes] })
    }

    /// Writes a key into `into`; gives its bytes, at most [`MAX_ORDERED_KEY_BYTES`] however forged
    /// the node is. None if there are fewer entries.
    pub fn key<'k>(
        &self,
        index: usize,
        into: &'k mut [u8; MAX_ORDERED_KEY_BYTES],
    ) -> Option<&'k [u8]> {
        let head = u64::from_le_bytes(*self.heads().get(index)?).to_be_bytes();
        let (rest, bytes) = self.rest(index);
        let head = &head[..bytes.min(HEAD_BYTES)];
        let mut end = 0;
        for part in [&self.low[..self.prefix], head, rest] {
            let part = &part[..part.len().min(into.len() - end)];
            into[end..end + part.len()].copy_from_slice(part);
            end += part.len();
        }
        Some(&into[..end])
    }
}

/// The content of a tree's header.
///
/// ```text
///  words 0-2          as a node's; the checksum covers words 3 to 5
///  word 3  shape      | fan-out 16 | height 8 | keys 8 | bytes of a node 32 |
///  word 4  root       a NodeRef
///  word 5  moves      moves that were counted: what a scan compares [`MoveMark::moved_at`] with
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OrderedHeader {
    /// Entries that a node may have.
    pub fan_out: u16,
    /// Number of levels, at least 1.
    pub height: u8,
    /// What the keys are.
    pub keys: KeyForm,
    /// Bytes of each node.
    pub node_bytes: u32,
    /// The root.
    pub root: NodeRef,
    /// Moves of entries that were counted ([`MoveMark`]).
    pub moves: u64,
}

impl OrderedHeader {
    /// Words 3 to 5 as they stand in memory.
    pub const fn to_words(&self) -> [u64; 3] {
        let shape = self.fan_out as u64
            | (self.height as u64) << 16
            | (self.keys as u64) << 24
            | (self.node_bytes as u64) << 32;
        [shape, self.root.to_word(), self.moves]
    }

    /// The header that words 3 to 5 encode; `None` if they break a limit.
    pub fn from_words(words: [u64; 3]) -> Option<Self> {
        let [shape, root, moves] = words;
        let keys = match (shape >> 24) as u8 {
            0 => KeyForm::Integers,
            1 => KeyForm::Bytes,
            _ => return None,
        };
        let (fan_out, height) = (shape as u16, (shape >> 16) as u8);
        let node_bytes = (shape >> 32) as u32;
        let fits = (MIN_FAN_OUT..=MAX_FAN_OUT).contains(&(fan_out as usize))
            && (1..=MAX_TREE_HEIGHT).contains(&height)
            && (ORDERED_HEADER_BYTES..=MAX_ORDERED_NODE_BYTES).contains(&(node_bytes as usize));
        let root = NodeRef::from_word(root);
        fits.then_some(Self { fan_out, height, keys, node_bytes, root, moves })
    }
}

/// What a tree is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OrderedInfo {
    /// The place of its header.
    pub at: NodeRef,
    /// What the keys are.
    pub keys_are: KeyForm,
    /// Entries that a node may have.
    pub fan_out: u64,
    /// Longest key, in bytes.
    pub key_bytes: u64,
    /// Longest value that lies in a leaf, in bytes.
    pub value_bytes: u64,
    /// Bytes of each node.
    pub node_bytes: u64,
    /// Number of levels.
    pub height: u64,
    /// Keys in it.
    pub keys: u64,
    /// Nodes in it.
    pub nodes: u64,
    /// Bytes of the arena that its nodes take.
    pub bytes: u64,
    /// Values that lie in records.
    pub long_values: u64,
    /// Bytes of the arena that these take.
    pub long_bytes: u64,
}

/// Words of an encoded [`OrderedInfo`].
pub const ORDERED_INFO_WORDS: usize = 12;

impl OrderedInfo {
    /// As words.
    pub const fn to_words(&self) -> [u64; ORDERED_INFO_WORDS] {
        [
            self.at.to_word(),
            self.keys_are as u64,
            self.fan_out,
            self.key_bytes,
            self.value_bytes,
            self.node_bytes,
            self.height,
            self.keys,
            self.nodes,
            self.bytes,
            self.long_values,
            self.long_bytes,
        ]
    }

    /// What words encode; `None` if they encode none.
    pub const fn from_words(words: &[u64; ORDERED_INFO_WORDS]) -> Option<Self> {
        let [at, keys_are, sizes @ .., nodes, bytes, long_values, long_bytes] = *words;
        let [fan_out, key_bytes, value_bytes, node_bytes, height, keys] = sizes;
        let keys_are = match keys_are {
            0 => KeyForm::Integers,
            1 => KeyForm::Bytes,
            _ => return None,
        };
        let at = NodeRef::from_word(at);
        Some(Self {
            at,
            keys_are,
            fan_out,
            key_bytes,
            value_bytes,
            node_bytes,
            height,
            keys,
            nodes,
            bytes,
            long_values,
            long_bytes,
        })
    }
}

/// Checks bytes that a reader fetched as the header at `at`; they may be longer.
///
/// # Errors
/// They are part old, part new, or the tree has ended.
pub fn verify_ordered_header(
    bytes: &[u8],
    home: Home,
    at: NodeRef,
    proof: Proof,
) -> Result<OrderedHeader, NotANode> {
    let bytes = bytes.get(..ORDERED_ROOT_BYTES).ok_or(NotANode::Torn)?;
    let version = check_head(bytes, at)?;
    check_proof(home, CheckedPart::OrderedHeader, at, version, proof, bytes)?;
    let words = [3, 4, 5].map(|index| word_at(bytes, index));
    OrderedHeader::from_words(words).ok_or(NotANode::Torn)
}

/// Checks the bytes that a reader fetched from the [`RootPlace::ranges_of`] of a tree: the nodes fetched
/// before were the tree's own, and it has not expired by the word that comes with the header. `while_in`
/// is the state of its root record while the tree lives: live if a key leads to the record, pending if
/// none does.
///
/// # Errors
/// The tree has gone, or the reader has to ask the owner, or the bytes are torn.
pub fn verify_ordered_root(
    place: RootPlace,
    bytes: &[u8],
    home: Home,
    while_in: State,
) -> Result<(OrderedHeader, Mutable), NotANode> {
    let header = bytes.last_chunk::<ORDERED_ROOT_BYTES>().ok_or(NotANode::Torn)?;
    let header = verify_ordered_header(header, home, place.at, Proof::Checksum)?;
    match root_state(bytes, place.at.generation) {
        Ok((state, mutable)) if state == while_in => Ok((header, mutable)),
        Err(Reject::Torn) => Err(NotANode::Torn),
        _ => Err(NotANode::Dead),
    }
}

impl KeyForm {
    /// A key as a tree of this form has it, made from what users write: integers in decimal. `None` if it
    /// is none.
    pub fn parse<'k>(
        self,
        text: &'k [u8],
        integer: &'k mut [u8; INTEGER_BYTES],
    ) -> Option<&'k [u8]> {
        if self == Self::Bytes {
            return Some(text);
        }
        let digits = text.iter().all(u8::is_ascii_digit).then_some(text)?;
        let number: u64 = str::from_utf8(digits).ok()?.parse().ok()?;
        *integer = number.to_be_bytes();
        Some(integer)
    }

    /// A key of a tree of this form as users write it.
    pub fn text(self, key: &[u8]) -> Vec<u8> {
        self.with_text(key, <[u8]>::to_vec)
    }

    /// Hands over a key as users write it.
    pub fn with_text<R>(self, key: &[u8], each: impl FnOnce(&[u8]) -> R) -> R {
        match (self, key.try_into()) {
            (Self::Integers, Ok(bytes)) => {
                each(itoa::Buffer::new().format(u64::from_be_bytes(bytes)).as_bytes())
            }
            _ => each(key),
        }
    }
}

const _: () = assert!(ORDERED_HEADER_BYTES == (word::FENCES + 1) * WORD_BYTES);
const _: () = assert!(ORDERED_HEADER_BYTES.is_multiple_of(SLOT_UNIT_BYTES));
const _: () = assert!(NODE_CHECKED_FROM == node_word::SHAPE * WORD_BYTES);
const _: () = assert!(
    least_node_bytes(MAX_FAN_OUT, MAX_ORDERED_KEY_BYTES, MAX_ORDERED_KEY_BYTES)
        <= MAX_ORDERED_NODE_BYTES
);

#[cfg(test)]
mod tests;
