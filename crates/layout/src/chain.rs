//! A chain: a sequence of entries in chunks, each with pointers to its neighbours (K5). Lists are
//! chains.
//!
//! ```text
//! state block, in the root record
//!  word 0  guardian   as a node's
//!  word 1  version    odd while any part of the chain changes
//!  word 2  checksum   | XXH3 of words 3 to 7; seed: secret, region, slot, generation, version |
//!  word 3  length     entries of the chain
//!  word 4  first      | slot 32 | class 8 | generation 24 |
//!  word 5  last       the same
//!  word 6  changed_at sequence of the last change; readers ask while it is not durable
//!  word 7  0
//!
//! chunk: a part, whose first words are those of a record
//!  word 0  guardian   | generation 32 | state 8 | class 8 | colour 1 | 0 15 |
//!  word 1  root       slot of the root record, for the owner
//!  word 2  checksum   see below
//!  word 3  lengths    | 0 24 | kind 8 | bytes from byte 32 to the end of the entries 32 |
//!  word 4  shape      | entries 16 | 0 16 | byte of the first entry 32 |
//!  word 5  next       | slot 32 | class 8 | generation 24 |; 0: none
//!  word 6  previous   the same
//!  then    room | entries | room
//! ```
//! Room before the entries is for those that come at the front of the chain, room behind them for
//! those at its end.
//!
//! The checksum is a sum: XXH3 of words 3 to 6, and XXH3 of each entry, with the entry's place in
//! the seed. So the owner changes one entry without reading the others. The seed holds the secret of
//! the chain's root record ([`crate::part::part_secret`]), region, slot and generation: a chunk of
//! another chain, or of an earlier one, never passes.
//!
//! ```text
//! entry   0xxxxxxx                  an integer, 0 to 127
//!         10xxxxxx | text           a text of 0 to 63 bytes
//!         110xxxxx | 8              an integer of 13 bits
//!         1110xxxx | 8 | text       a text of 64 to 4095 bytes
//!         0xf0 | bytes 32 | text    a longer text
//!         0xf1 .. 0xf4 | integer    an integer of 2, 3, 4 or 8 bytes
//!         0xf5 | bytes 8 | key | hint 8     a link to a key of up to 255 bytes
//!         0xf6 | bytes 32 | key | hint 8    a link to a longer one
//!         0xf9, 0xfa                the same two without a hint
//! ```
//! An entry whose text is an integer in its canonical form ([`crate::integer`]) is stored as that, in
//! the shortest form. So equal entries are equal bytes. (The forms are those of Redis's listpacks,
//! without the length behind each entry.)
//!
//! A link's text is its key ([`crate::link`]). Its hint is no part of the checksum, so that it is mended in
//! place. In a list that lies whole in its record the hints stand behind all entries, and the entries
//! are without.

use crate::hash::checksum;
use crate::integer;
use crate::kind::Kind;
use crate::limits::{CACHE_LINE_BYTES, MAX_VALUE_BYTES, WORD_BYTES};
use crate::link::Linked;
use crate::node::{CheckedPart, Home, NODE_CHECKED_FROM, NodeRef, NotANode, Proof};
use crate::node::{check_head, check_proof, word_at};
use crate::packed::Field;
use crate::part::part_secret;
use crate::record::{
    CHECKED_FROM, Guardian, Lengths, RECORD_HEADER_BYTES, Reject, State, checksum_seed,
};

/// Bytes of a chain's state block.
pub const CHAIN_STATE_BYTES: usize = 64;
/// Bytes of a chunk before its entries and the room before them.
pub const CHUNK_HEADER_BYTES: usize = 56;
/// Bytes of an encoded entry beside its text, at most.
pub const MAX_ENTRY_HEAD_BYTES: usize = 5 + WORD_BYTES;

/// Word offsets in a state block, beside [`crate::node::word`].
pub mod state_word {
    /// Number of entries.
    pub const LENGTH: usize = 3;
    /// The first chunk.
    pub const FIRST: usize = 4;
    /// The last chunk.
    pub const LAST: usize = 5;
    /// Sequence of the last change.
    pub const CHANGED_AT: usize = 6;
}

/// Word offsets in a chunk.
pub mod chunk_word {
    /// Guardian.
    pub const GUARDIAN: usize = 0;
    /// Slot of the root record.
    pub const ROOT: usize = 1;
    /// Checksum.
    pub const CHECKSUM: usize = 2;
    /// Lengths, as a record's.
    pub const LENGTHS: usize = 3;
    /// Entries and where they begin.
    pub const SHAPE: usize = 4;
    /// The next chunk.
    pub const NEXT: usize = 5;
    /// The previous chunk.
    pub const PREVIOUS: usize = 6;
}

/// What an entry is: its text, or the integer that its text denotes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Entry<'a> {
    /// A text that is no integer.
    Text(&'a [u8]),
    /// An integer.
    Integer(i64),
    /// A link to this key.
    Link {
        /// The key.
        key: &'a [u8],
        /// Where its record lay; 0: not known.
        hint: u64,
    },
}

/// Memory for the text of an integer.
#[derive(Default)]
pub struct TextBuffer(itoa::Buffer);

impl<'a> Entry<'a> {
    /// The entry of this text.
    #[inline]
    pub fn of(text: &'a [u8]) -> Self {
        // The longest integer has 20 digits.
        match text {
            [first, ..] if text.len() <= 20 && (first.is_ascii_digit() || *first == b'-') => {
                integer::parse(text).map_or(Self::Text(text), Self::Integer)
            }
            _ => Self::Text(text),
        }
    }

    /// Its text.
    #[inline]
    pub fn text<'b>(&self, buffer: &'b mut TextBuffer) -> &'b [u8]
    where
        'a: 'b,
    {
        match *self {
            Self::Text(text) | Self::Link { key: text, .. } => text,
            Self::Integer(integer) => buffer.0.format(integer).as_bytes(),
        }
    }

    /// The element, and whether it is a link.
    #[inline]
    pub fn field<'b>(&self, buffer: &'b mut TextBuffer) -> Field<'b>
    where
        'a: 'b,
    {
        Field { value: self.text(buffer), is_link: matches!(self, Self::Link { .. }) }
    }

    /// Whether this is the entry of that text, or a link to that key.
    #[inline]
    pub fn has_text(&self, text: &Self) -> bool {
        match *self {
            Self::Link { key, .. } => Entry::of(key) == *text,
            other => other == *text,
        }
    }

    /// Appends the encoded entry.
    #[inline]
    pub fn push(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Text(text) => push_text(out, text),
            Self::Integer(integer) => push_integer(out, integer),
            Self::Link { key, hint } => {
                push_key(out, key, 0);
                out.extend_from_slice(&hint.to_le_bytes());
            }
        }
    }

    /// The first entry of encoded ones, and the bytes behind it; `None` where the bytes encode none.
    #[inline]
    pub fn split(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (head, text_bytes) = head_of(bytes)?;
        let (all, rest) = bytes.split_at_checked(head + text_bytes)?;
        if is_text(bytes[0]) {
            return Some((Self::Text(&all[head..]), rest));
        }
        if is_link(bytes[0]) {
            let (key, hint) = all[head..].split_at(text_bytes - hint_bytes(bytes[0]));
            let hint = hint.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
            return Some((Self::Link { key, hint }, rest));
        }
        let signed = |from: usize| {
            let mut word = [if all[head - 1] & 0x80 == 0 { 0 } else { 0xff }; 8];
            word[..head - from].copy_from_slice(&all[from..head]);
            i64::from_le_bytes(word)
        };
        let integer = match all[0] {
            byte @ 0..=0x7f => byte.into(),
            byte @ 0xc0..=0xdf => {
                let bits = i64::from(byte & 0x1f) << 8 | i64::from(all[1]);
                bits << (64 - 13) >> (64 - 13)
            }
            _ => signed(1),
        };
        Some((Self::Integer(integer), rest))
    }
}

/// Whether an entry that begins with this byte is a text.
const fn is_text(first: u8) -> bool {
    matches!(first, 0x80..=0xbf | 0xe0..=0xf0)
}

/// Forms of a link: with a short key, and with a longer one.
const LINK: [u8; 2] = [0xf5, 0xf6];
/// The bit of a link without a hint.
const NO_HINT: u8 = 0xc;

/// Whether an entry that begins with this byte is a link.
const fn is_link(first: u8) -> bool {
    matches!(first, 0xf5 | 0xf6 | 0xf9 | 0xfa)
}

/// Bytes of the hint at the end of an entry that begins with this byte.
#[inline(always)]
const fn hint_bytes(first: u8) -> usize {
    if matches!(first, 0xf5 | 0xf6) { WORD_BYTES } else { 0 }
}

/// Bytes of the first entry's head, and of the text behind it, with its hint.
#[inline(always)]
fn head_of(bytes: &[u8]) -> Option<(usize, usize)> {
    let first = *bytes.first()?;
    Some(match first {
        0..=0x7f => (1, 0),
        0x80..=0xbf => (1, (first & 0x3f) as usize),
        0xc0..=0xdf => (2, 0),
        0xe0..=0xef => (2, ((first & 0xf) as usize) << 8 | *bytes.get(1)? as usize),
        0xf0 => {
            let length = bytes.get(1..)?.first_chunk()?;
            (5, u32::from_le_bytes(*length) as usize)
        }
        0xf1..=0xf3 => (1 + (first - 0xef) as usize, 0),
        0xf4 => (9, 0),
        0xf5 | 0xf9 => (2, *bytes.get(1)? as usize + hint_bytes(first)),
        0xf6 | 0xfa => {
            let length = bytes.get(1..)?.first_chunk()?;
            (5, (u32::from_le_bytes(*length) as usize).checked_add(hint_bytes(first))?)
        }
        _ => return None,
    })
}

/// Appends a link to a key, all but its hint; `no_hint` is [`NO_HINT`] or 0.
fn push_key(out: &mut Vec<u8>, key: &[u8], no_hint: u8) {
    match u8::try_from(key.len()) {
        Ok(bytes) => out.extend_from_slice(&[LINK[0] ^ no_hint, bytes]),
        Err(_) => {
            out.push(LINK[1] ^ no_hint);
            out.extend_from_slice(&(key.len() as u32).to_le_bytes());
        }
    }
    out.extend_from_slice(key);
}

/// Encoded entries as they stand in a record: links without hints, and their hints behind one another.
pub fn split_hints(bytes: &[u8]) -> (Vec<u8>, Vec<u64>) {
    let (mut text, mut hints) = (Vec::with_capacity(bytes.len()), Vec::new());
    for one in encoded(bytes) {
        match Entry::split(one) {
            Some((Entry::Link { key, hint }, _)) => {
                push_key(&mut text, key, NO_HINT);
                hints.push(hint);
            }
            _ => text.extend_from_slice(one),
        }
    }
    (text, hints)
}

/// The reverse: the entries of a record's value, each link with its hint.
pub fn join_hints(linked: Linked<'_>) -> Vec<u8> {
    let mut out = Vec::with_capacity(linked.text.len() + linked.len() * WORD_BYTES);
    let mut number = 0;
    for one in encoded(linked.text) {
        match Entry::split(one) {
            Some((Entry::Link { key, .. }, _)) => {
                Entry::Link { key, hint: linked.hint(number) }.push(&mut out);
                number += 1;
            }
            _ => out.extend_from_slice(one),
        }
    }
    out
}

/// Whether the first of encoded entries is a link.
#[inline]
pub fn begins_with_link(bytes: &[u8]) -> bool {
    bytes.first().is_some_and(|first| is_link(*first))
}

/// Whether any of encoded entries is a link.
pub fn has_links(bytes: &[u8]) -> bool {
    encoded(bytes).any(begins_with_link)
}

fn push_text(out: &mut Vec<u8>, text: &[u8]) {
    match text.len() {
        bytes @ 0..=63 => out.push(0x80 | bytes as u8),
        bytes @ 64..=4095 => out.extend_from_slice(&[0xe0 | (bytes >> 8) as u8, bytes as u8]),
        bytes => {
            out.push(0xf0);
            out.extend_from_slice(&(bytes as u32).to_le_bytes());
        }
    }
    out.extend_from_slice(text);
}

fn push_integer(out: &mut Vec<u8>, integer: i64) {
    let bytes = integer.to_le_bytes();
    match integer {
        0..=127 => out.push(integer as u8),
        -4096..=4095 => {
            out.extend_from_slice(&[0xc0 | (integer >> 8) as u8 & 0x1f, integer as u8]);
        }
        -0x8000..=0x7fff => {
            out.push(0xf1);
            out.extend_from_slice(&bytes[..2]);
        }
        -0x80_0000..=0x7f_ffff => {
            out.push(0xf2);
            out.extend_from_slice(&bytes[..3]);
        }
        -0x8000_0000..=0x7fff_ffff => {
            out.push(0xf3);
            out.extend_from_slice(&bytes[..4]);
        }
        _ => {
            out.push(0xf4);
            out.extend_from_slice(&bytes);
        }
    }
}

/// Bytes of the first of encoded entries, which the owner wrote; `None` at their end.
#[inline(always)]
pub fn first_bytes(bytes: &[u8]) -> Option<usize> {
    let (head, text_bytes) = head_of(bytes)?;
    Some(head + text_bytes)
}

/// Encoded entries as bytes, in order; ends early where the bytes encode none.
#[inline]
pub fn encoded(bytes: &[u8]) -> impl Iterator<Item = &[u8]> + Clone {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let (entry, after) = rest.split_at_checked(first_bytes(rest)?)?;
        rest = after;
        Some(entry)
    })
}

/// Encoded entries, in order; ends early where the bytes encode none.
#[inline]
pub fn entries(bytes: &[u8]) -> impl Iterator<Item = Entry<'_>> + Clone {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let (entry, after) = Entry::split(rest)?;
        rest = after;
        Some(entry)
    })
}

/// A neighbour of a chunk, or an end of a chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ChunkRef {
    /// The slot; 0: there is no chunk.
    pub slot: u32,
    /// Its size class, which says how much to fetch.
    pub class: u8,
    /// The low bits of its generation.
    pub generation_low: u32,
}

impl ChunkRef {
    /// The bits of a generation that a reference has.
    pub const GENERATION_BITS: u32 = 24;

    /// A chunk in this slot.
    #[inline]
    pub const fn new(slot: u32, generation: u32, class: u8) -> Self {
        let generation_low = generation & ((1 << Self::GENERATION_BITS) - 1);
        Self { slot, class, generation_low }
    }

    /// The word as it stands in memory.
    #[inline]
    pub const fn to_word(self) -> u64 {
        self.slot as u64 | (self.class as u64) << 32 | (self.generation_low as u64) << 40
    }

    /// The reference that a word encodes.
    #[inline]
    pub const fn from_word(word: u64) -> Self {
        Self { slot: word as u32, class: (word >> 32) as u8, generation_low: (word >> 40) as u32 }
    }

    /// Whether there is no chunk.
    pub const fn is_none(self) -> bool {
        self.slot == 0
    }
}

/// Word 4 of a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChunkShape {
    /// Number of entries.
    pub entries: u16,
    /// Byte of the chunk at which the first one begins.
    pub begin: u32,
}

impl ChunkShape {
    /// The word as it stands in memory.
    #[inline]
    pub const fn to_word(self) -> u64 {
        self.entries as u64 | (self.begin as u64) << 32
    }

    /// The shape that a word encodes.
    #[inline]
    pub const fn from_word(word: u64) -> Self {
        Self { entries: word as u16, begin: (word >> 32) as u32 }
    }
}

/// Word 3 of a chunk whose entries end at this byte.
#[inline]
pub const fn chunk_lengths(end: usize) -> Lengths {
    Lengths {
        key_bytes: 0,
        database: crate::database::Database::ZERO,
        kind: Kind::LIST_CHUNK,
        value_bytes: (end - RECORD_HEADER_BYTES) as u32,
    }
}

/// What the checksums of a chain's chunks are seeded with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChunkHome {
    secret: u64,
    region: u32,
}

impl ChunkHome {
    /// Of the chain with this root record, in an arena with this secret.
    pub const fn new(secret: u64, region: u32, root_slot: u32, root_generation: u32) -> Self {
        Self { secret: part_secret(secret, root_slot, root_generation), region }
    }

    /// The seed of the checksums of the chunk in this slot.
    #[inline]
    pub const fn seed(self, slot: u32, generation: u32) -> u64 {
        checksum_seed(self.secret, self.region, slot, generation)
    }
}

/// The part of a chunk's checksum that its head gives: the bytes of words 3 to 6.
#[inline]
pub fn head_sum(head: &[u8], seed: u64) -> u64 {
    checksum(head, seed)
}

/// The part of a chunk's checksum that one entry gives, which begins at this byte of the chunk.
#[inline(always)]
pub fn entry_sum(entry: &[u8], at: usize, seed: u64) -> u64 {
    let hint = entry.first().map_or(0, |first| hint_bytes(*first));
    checksum(&entry[..entry.len() - hint], seed.wrapping_add(at as u64))
}

/// The part of a chunk's checksum that these entries give, the first of which begins at this byte.
pub fn entries_sum(bytes: &[u8], at: usize, seed: u64) -> u64 {
    let mut place = at;
    encoded(bytes).fold(0, |sum: u64, entry| {
        let next = sum.wrapping_add(entry_sum(entry, place, seed));
        place += entry.len();
        next
    })
}

/// A chunk whose bytes have passed every check.
#[derive(Clone, Copy, Debug)]
pub struct VerifiedChunk<'a> {
    /// Number of entries.
    pub count: u16,
    /// The entries, encoded.
    pub entries: &'a [u8],
    /// The next chunk.
    pub next: ChunkRef,
    /// The previous one.
    pub previous: ChunkRef,
}

/// Checks bytes that a reader fetched as this chunk. They may be longer than the chunk.
///
/// # Errors
/// Why they are not that chunk.
pub fn verify_chunk(
    bytes: &[u8],
    home: ChunkHome,
    at: ChunkRef,
) -> Result<VerifiedChunk<'_>, Reject> {
    if bytes.len() < CHUNK_HEADER_BYTES {
        return Err(Reject::Torn);
    }
    let word = |index| word_at(bytes, index);
    let guardian = Guardian::from_word(word(chunk_word::GUARDIAN)).ok_or(Reject::Torn)?;
    let is_it = ChunkRef::new(at.slot, guardian.generation, at.class) == at;
    if !is_it || guardian.state != State::Live {
        return Err(Reject::Dead);
    }
    let lengths = Lengths::from_word(word(chunk_word::LENGTHS)).ok_or(Reject::Torn)?;
    if lengths.kind != Kind::LIST_CHUNK || lengths.key_bytes != 0 {
        return Err(Reject::OtherKind);
    }
    let shape = ChunkShape::from_word(word(chunk_word::SHAPE));
    let (begin, end) = (shape.begin as usize, lengths.record_bytes());
    if begin < CHUNK_HEADER_BYTES || begin > end {
        return Err(Reject::Torn);
    }
    let entries = bytes.get(begin..end).ok_or(Reject::Torn)?;
    let seed = home.seed(at.slot, guardian.generation);
    let (mut sum, mut place, mut count) =
        (head_sum(&bytes[CHECKED_FROM..CHUNK_HEADER_BYTES], seed), begin, 0);
    for entry in encoded(entries) {
        sum = sum.wrapping_add(entry_sum(entry, place, seed));
        place += entry.len();
        count += 1;
    }
    let is_whole = place == end && count == usize::from(shape.entries);
    if !is_whole || sum != word(chunk_word::CHECKSUM) {
        return Err(Reject::Torn);
    }
    let next = ChunkRef::from_word(word(chunk_word::NEXT));
    let previous = ChunkRef::from_word(word(chunk_word::PREVIOUS));
    Ok(VerifiedChunk { count: shape.entries, entries, next, previous })
}

/// A chain's state that has passed every check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChainState {
    /// The version under which it was read: as long as the state has it, nothing of the chain has
    /// changed.
    pub version: u64,
    /// Number of entries.
    pub length: u64,
    /// The first chunk.
    pub first: ChunkRef,
    /// The last one.
    pub last: ChunkRef,
    /// Sequence of the last change.
    pub changed_at: u64,
}

/// Checks bytes that a reader fetched as the state block at `at`. `home` is the arena's.
///
/// # Errors
/// The chain is being changed, or it has gone.
pub fn verify_state(
    bytes: &[u8],
    home: Home,
    at: NodeRef,
    proof: Proof,
) -> Result<ChainState, NotANode> {
    let bytes = bytes.get(..CHAIN_STATE_BYTES).ok_or(NotANode::Torn)?;
    let version = check_head(bytes, at)?;
    check_proof(home, CheckedPart::Chain, at, version, proof, bytes)?;
    let word = |index| word_at(bytes, index);
    Ok(ChainState {
        version,
        length: word(state_word::LENGTH),
        first: ChunkRef::from_word(word(state_word::FIRST)),
        last: ChunkRef::from_word(word(state_word::LAST)),
        changed_at: word(state_word::CHANGED_AT),
    })
}

const _: () = assert!(CHAIN_STATE_BYTES == CACHE_LINE_BYTES);
const _: () = assert!(CHUNK_HEADER_BYTES == (chunk_word::PREVIOUS + 1) * 8);
const _: () = assert!(chunk_word::LENGTHS * 8 == CHECKED_FROM && NODE_CHECKED_FROM == 24);
const _: () = assert!(MAX_VALUE_BYTES + MAX_ENTRY_HEAD_BYTES <= u32::MAX as usize);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link;

    fn encode(text: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        Entry::of(text).push(&mut out);
        out
    }

    #[test]
    fn texts_come_back_in_the_shortest_form() {
        let long = vec![b'x'; 5000];
        let cases: &[(&[u8], usize)] = &[
            (b"", 1),
            (b"0", 1),
            (b"127", 1),
            (b"128", 2),
            (b"-1", 2),
            (b"4095", 2),
            (b"-4096", 2),
            (b"4096", 3),
            (b"32767", 3),
            (b"-32768", 3),
            (b"32768", 4),
            (b"-8388608", 4),
            (b"8388608", 5),
            (b"-2147483648", 5),
            (b"2147483648", 9),
            (b"-9223372036854775808", 9),
            (b"9223372036854775808", 20),
            (b"01", 3),
            (b"-0", 3),
            (&long[..63], 64),
            (&long[..64], 66),
            (&long[..4095], 4097),
            (&long[..4096], 4101),
        ];
        let mut all = Vec::new();
        let mut buffer = TextBuffer::default();
        for (text, bytes) in cases {
            let one = encode(text);
            assert_eq!(one.len(), *bytes, "{}", text.escape_ascii());
            assert_eq!(first_bytes(&one), Some(*bytes));
            let (entry, rest) = Entry::split(&one).unwrap();
            assert_eq!((entry.text(&mut buffer), rest), (*text, &b""[..]));
            for cut in 0..one.len() {
                assert_eq!(Entry::split(&one[..cut]), None);
            }
            all.extend(one);
        }
        let back: Vec<Vec<u8>> = entries(&all).map(|one| one.text(&mut buffer).to_vec()).collect();
        assert!(back.iter().map(|text| &text[..]).eq(cases.iter().map(|case| case.0)));
        assert_eq!(encoded(&all).count(), cases.len());
    }

    #[test]
    fn links_come_back_with_their_hints_and_are_found_by_their_text() {
        let long = vec![b'k'; 300];
        let keys: [(&[u8], u64); 4] = [(b"user:7", 9), (b"42", 0), (b"", 1), (&long, u64::MAX)];
        let mut all = Vec::new();
        Entry::of(b"plain").push(&mut all);
        for (key, hint) in keys {
            let link = Entry::Link { key, hint };
            let mut one = Vec::new();
            link.push(&mut one);
            assert_eq!(
                (first_bytes(&one), Entry::split(&one)),
                (Some(one.len()), Some((link, &[][..])))
            );
            assert!((0..one.len()).all(|cut| Entry::split(&one[..cut]).is_none()));
            assert!(link.has_text(&Entry::of(key)) && !link.has_text(&Entry::of(b"other")));
            assert!(Entry::of(key).has_text(&Entry::of(key)) && !Entry::of(key).has_text(&link));
            all.extend(one);
        }
        // A record holds the hints apart.
        let (text, hints) = split_hints(&all);
        assert_eq!(hints, keys.map(|(_, hint)| hint));
        assert_eq!(text.len(), all.len() - 8 * hints.len());
        let without = entries(&text).skip(1).zip(keys);
        assert!(without.clone().count() == 4);
        without.for_each(|(entry, (key, _))| assert_eq!(entry, Entry::Link { key, hint: 0 }));
        let mut value = Vec::new();
        link::make(&mut value, 40, &text, &hints);
        assert_eq!(join_hints(Linked::of(&value).unwrap()), all);
        assert!(has_links(&all) && has_links(&text) && !has_links(&all[..6]));
    }

    const HOME: ChunkHome = ChunkHome::new(0x5ec2e7, 3, 40, 2);
    const AT: ChunkRef = ChunkRef::new(77, 5, 9);

    fn chunk(texts: &[&[u8]], begin: usize) -> Vec<u8> {
        let mut content = Vec::new();
        texts.iter().for_each(|text| Entry::of(text).push(&mut content));
        let end = begin + content.len();
        let guardian = Guardian { generation: 5, state: State::Live, class: 9 };
        let shape = ChunkShape { entries: texts.len() as u16, begin: begin as u32 };
        let next = ChunkRef::new(99, 0x1234_5678, 3);
        let words = [
            guardian.to_word(),
            40,
            0,
            chunk_lengths(end).to_word(),
            shape.to_word(),
            next.to_word(),
            ChunkRef::default().to_word(),
        ];
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.resize(begin, 0xee);
        bytes.extend(&content);
        let seed = HOME.seed(77, 5);
        let sum = head_sum(&bytes[CHECKED_FROM..CHUNK_HEADER_BYTES], seed)
            .wrapping_add(entries_sum(&content, begin, seed));
        bytes[16..24].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    #[test]
    fn every_flipped_bit_of_a_chunk_is_noticed() {
        let good = chunk(&[b"one", b"2", b"three hundred"], 64);
        let found = verify_chunk(&good, HOME, AT).unwrap();
        assert_eq!((found.count, found.next.slot, found.next.class), (3, 99, 3));
        assert!(found.previous.is_none());
        assert_eq!(ChunkRef::from_word(found.next.to_word()), found.next);
        for bit in 0..good.len() * 8 {
            // The guardian's class and colour, word 1, and the room before the entries.
            if (40..49).contains(&bit) || (64..128).contains(&bit) || (448..512).contains(&bit) {
                continue;
            }
            // The high bits of the generation are not in a reference, but in the seed.
            let mut bytes = good.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(verify_chunk(&bytes, HOME, AT).is_err(), "bit {bit}");
        }
        for cut in 0..good.len() {
            assert!(verify_chunk(&good[..cut], HOME, AT).is_err());
        }
        // A link's hint is mended in place: it may be any word, its key may not.
        let mut links = good.clone();
        links.truncate(64);
        let mut content = Vec::new();
        Entry::Link { key: b"key", hint: 7 }.push(&mut content);
        let end = 64 + content.len();
        links.extend(&content);
        links[24..32].copy_from_slice(&chunk_lengths(end).to_word().to_le_bytes());
        links[32..40]
            .copy_from_slice(&ChunkShape { entries: 1, begin: 64 }.to_word().to_le_bytes());
        let seed = HOME.seed(77, 5);
        let sum = head_sum(&links[CHECKED_FROM..CHUNK_HEADER_BYTES], seed)
            .wrapping_add(entries_sum(&content, 64, seed));
        links[16..24].copy_from_slice(&sum.to_le_bytes());
        for byte in 64..end {
            let mut bytes = links.clone();
            bytes[byte] ^= 1;
            assert_eq!(verify_chunk(&bytes, HOME, AT).is_ok(), byte >= end - 8, "byte {byte}");
        }
    }

    #[test]
    fn a_chunk_is_bound_to_its_chain_and_its_entries_to_their_order() {
        let bytes = chunk(&[b"a", b"b"], 56);
        assert!(verify_chunk(&bytes, HOME, AT).is_ok());
        assert!(verify_chunk(&bytes, ChunkHome::new(0x5ec2e7, 3, 40, 3), AT).is_err());
        assert!(verify_chunk(&bytes, ChunkHome::new(0x5ec2e7, 4, 40, 2), AT).is_err());
        assert!(verify_chunk(&bytes, HOME, ChunkRef { slot: 78, ..AT }).is_err());
        let mut swapped = chunk(&[b"b", b"a"], 56);
        swapped[16..24].copy_from_slice(&bytes[16..24]);
        assert!(verify_chunk(&swapped, HOME, AT).is_err());
    }
}
