//! A record: the immutable unit that a reader fetches with one READ.
//!
//! ```text
//!  word 0  guardian   | generation 32 | state 8 | class 8 | colour 1 | 0 15 |
//!  word 1  mutable    | expires_at, Unix ms 44 | lease end, s mod 2^16 16 | popularity 4 |
//!  word 2  checksum   | XXH3 of word 3, key and value; seed: secret, region, slot, generation |
//!  word 3  lengths    | key_bytes 20 | database 4 | kind 8 | value_bytes 32 |
//!  then    key, value, zero to the end of the word
//! ```
//! (Fields are listed from the low bits up.) The guardian word has a fixed place, at the start of
//! the slot. HydraDB 4.2.3 puts it behind the bytes; there the value of a longer successor could
//! forge it. The generation is in the guardian and, through the checksum's seed, in the header:
//! readers demand that guardian, header and pointer agree. Only word 1 changes while a record is
//! live, so it stands outside the checksum.
//!
//! The allocator may reuse a page for slots of another class, so an old pointer may point into the
//! middle of another record's value. For that reason the checksum's seed holds the arena's secret:
//! a client that chooses values cannot compute the checksum. And the owner wipes the checksum of a
//! record that dies, as it does for a root's state block and a tree's nodes: otherwise a value that
//! ends at the dead record's guardian could revive the bytes that are still there behind it.
//!
//! The colour is for snapshots: it tells which of two sweeps has seen the slot last. Readers mask
//! it; it does not describe the slot's content.

use crate::database::Database;
use crate::hash::{checksum, mix};
use crate::kind::Kind;
use crate::limits::{MAX_KEY_BYTES, MAX_VALUE_BYTES};
use crate::link::{self, Linked};
use crate::pointer::RemotePointer;

/// Bytes before the key.
pub const RECORD_HEADER_BYTES: usize = 32;
/// Bytes of the longest record.
pub const MAX_RECORD_BYTES: usize = RECORD_HEADER_BYTES + MAX_KEY_BYTES + MAX_VALUE_BYTES;
/// Offset of the checksummed part: word 3, key, value.
pub const CHECKED_FROM: usize = 24;

/// Byte offset of the state block in the root record of an object whose key has so many bytes: the
/// first place behind the key where a slot could begin, so that a [`crate::node::NodeRef`] can name
/// the block as it names a node.
///
/// ```text
/// record header 32 | key | zeros to a multiple of 16 | state block
/// ```
/// A root record keeps slot and generation while its object lives. Its checksum
/// covers word 3 and the key alone: the state block changes, and begins with a
/// guardian, a version and a checksum of its own, as a node does.
#[inline]
pub const fn state_offset(key_bytes: usize) -> usize {
    (RECORD_HEADER_BYTES + key_bytes).next_multiple_of(crate::limits::SLOT_UNIT_BYTES)
}

/// State of the record in a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum State {
    /// The slot was never used, or its bytes are not a record now.
    Dead = 0,
    /// The owner has written it, but it is not yet as durable as configured: readers ask.
    Pending = 1,
    /// The current record of its key.
    Live = 2,
    /// Current, but its owner changes it in place: readers ask.
    AskOnly = 3,
}

/// The colour bit of a guardian word; readers ignore it.
pub const COLOUR_BIT: u64 = 1 << 48;

/// The guardian word (HydraDB 4.2.3, H21).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Guardian {
    /// Grows with each record that starts here; never falls.
    pub generation: u32,
    /// What the slot holds.
    pub state: State,
    /// The slot's size class.
    pub class: u8,
}

impl Guardian {
    /// The word as it stands in memory.
    #[inline]
    pub const fn to_word(self) -> u64 {
        self.generation as u64 | (self.state as u64) << 32 | (self.class as u64) << 40
    }

    /// The guardian that a word encodes; `None` if no writer stores such a word.
    #[inline]
    pub const fn from_word(word: u64) -> Option<Self> {
        let state = match (word >> 32) as u8 {
            0 => State::Dead,
            1 => State::Pending,
            2 => State::Live,
            3 => State::AskOnly,
            _ => return None,
        };
        if (word & !COLOUR_BIT) >> 48 != 0 {
            return None;
        }
        Some(Self { generation: word as u32, state, class: (word >> 40) as u8 })
    }
}

/// Word 1 of a record: the fields that its owner may change while it is live.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Mutable {
    /// Unix time in ms after which the record has expired; 0 for never.
    pub expires_at_ms: u64,
    /// End of the longest granted lease, in seconds of the server's clock modulo 2^16; 0 together
    /// with popularity 0 for none.
    pub lease_end_s: u16,
    /// How often clients lately asked for a lease while one still ran, 0 to 15.
    pub popularity: u8,
}

/// Largest representable expiry, in Unix ms (the year 2527).
pub const MAX_EXPIRES_AT_MS: u64 = (1 << 44) - 1;

impl Mutable {
    /// The word as it stands in memory.
    #[inline]
    pub const fn to_word(self) -> u64 {
        (self.expires_at_ms & MAX_EXPIRES_AT_MS)
            | (self.lease_end_s as u64) << 44
            | ((self.popularity & 15) as u64) << 60
    }

    /// Whether the record has expired at `now_ms`, Unix ms: it has from its expiry on, as in Redis.
    #[inline]
    pub const fn has_expired(self, now_ms: u64) -> bool {
        self.expires_at_ms != 0 && self.expires_at_ms <= now_ms
    }

    /// The value that a word encodes.
    #[inline]
    pub const fn from_word(word: u64) -> Self {
        Self {
            expires_at_ms: word & MAX_EXPIRES_AT_MS,
            lease_end_s: (word >> 44) as u16,
            popularity: (word >> 60) as u8,
        }
    }
}

/// Lowest of the bits of word 3 that number the database.
const DATABASE_SHIFT: u32 = 20;
/// The bits of word 3 that hold the key's length.
const KEY_BYTES_MASK: u32 = (1 << DATABASE_SHIFT) - 1;

/// Word 3 of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lengths {
    /// Bytes of the key, 0 to [`MAX_KEY_BYTES`].
    pub key_bytes: u32,
    /// The key's database; 0 in a part, which no key names.
    pub database: Database,
    /// What the record is.
    pub kind: Kind,
    /// Bytes of the value, 0 to [`MAX_VALUE_BYTES`].
    pub value_bytes: u32,
}

impl Lengths {
    /// The word as it stands in memory.
    #[inline]
    pub const fn to_word(self) -> u64 {
        Self::named(self.key_bytes as usize, self.database) as u64
            | (self.kind.0 as u64) << 24
            | (self.value_bytes as u64) << 32
    }

    /// The lengths that a word encodes; `None` if they break a limit.
    #[inline]
    pub const fn from_word(word: u64) -> Option<Self> {
        let lengths = Self {
            key_bytes: word as u32 & KEY_BYTES_MASK,
            database: Database::of_bits(word >> DATABASE_SHIFT),
            kind: Self::kind_in(word),
            value_bytes: (word >> 32) as u32,
        };
        if lengths.key_bytes as usize > MAX_KEY_BYTES
            || lengths.value_bytes as usize > MAX_VALUE_BYTES
        {
            return None;
        }
        Some(lengths)
    }

    /// The part of such a word that a reader compares with a key: its length and its database.
    #[inline(always)]
    pub const fn named(key_bytes: usize, database: Database) -> u32 {
        key_bytes as u32 & KEY_BYTES_MASK | (database.number() as u32) << DATABASE_SHIFT
    }

    /// That part of a word that was written.
    #[inline(always)]
    pub const fn named_in(word: u64) -> u32 {
        word as u32 & ((1 << 24) - 1)
    }

    /// The kind in such a word, whatever the lengths.
    #[inline(always)]
    pub const fn kind_in(word: u64) -> Kind {
        Kind((word >> 24) as u8)
    }

    /// Bytes of the whole record, header included.
    #[inline]
    pub const fn record_bytes(self) -> usize {
        RECORD_HEADER_BYTES + self.key_bytes as usize + self.value_bytes as usize
    }
}

/// The seed of a record's checksum. A copy of a record in another slot, or of another generation,
/// never passes, and neither does a forged record inside a value, because its writer does not know
/// the arena's secret.
#[inline]
pub const fn checksum_seed(secret: u64, region: u32, slot: u32, generation: u32) -> u64 {
    secret ^ mix((slot as u64) << 32 | generation as u64, region as u64)
}

/// Why fetched bytes are not the expected record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reject {
    /// The guardian says that the record is not yet durable: ask the server.
    Pending,
    /// The guardian says that the record is changed in place: ask the server.
    AskOnly,
    /// The guardian says that the owner replaced or removed the record, or the slot has another
    /// generation.
    Dead,
    /// Header, checksum and guardian do not agree: a torn READ. Read again.
    Torn,
    /// A whole record, of another key or database (equal signatures).
    OtherKey,
    /// A whole record of this key, but not of the kind that the reader expects: ask the server,
    /// which knows the key's type.
    OtherKind,
}

/// Bytes of a root record that say whether its object is valid.
pub const ROOT_WORDS_BYTES: usize = 16;

/// Checks the first words of a root record that a reader read behind a part of its object. The part
/// counts if the root is live, has the generation under which the reader looked for the part, and
/// has not expired by the word that this returns.
///
/// # Errors
/// The object has gone, or the reader has to ask the owner.
pub fn verify_root_words(bytes: &[u8], generation: u32) -> Result<Mutable, Reject> {
    match root_state(bytes, generation)? {
        (State::Live, mutable) => Ok(mutable),
        (State::Pending, _) => Err(Reject::Pending),
        (State::AskOnly, _) => Err(Reject::AskOnly),
        (State::Dead, _) => Err(Reject::Dead),
    }
}

/// The state of the root record of this generation, and its expiry, by its first words.
///
/// # Errors
/// The slot has another generation, or the words are none of a record.
pub fn root_state(bytes: &[u8], generation: u32) -> Result<(State, Mutable), Reject> {
    let (words, _) = bytes.as_chunks::<8>();
    let &[guardian, mutable, ..] = words else { return Err(Reject::Torn) };
    let guardian = Guardian::from_word(u64::from_le_bytes(guardian)).ok_or(Reject::Torn)?;
    if guardian.generation != generation {
        return Err(Reject::Dead);
    }
    Ok((guardian.state, Mutable::from_word(u64::from_le_bytes(mutable))))
}

/// What a reader expects: a record of this kind, of a key of this database.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// The record's kind; [`Kind::ANY`] for the record of a key of any type, which is never a part.
    pub kind: Kind,
    /// The key's database.
    pub database: Database,
}

impl From<Kind> for Wanted {
    /// Of database 0, as parts are.
    #[inline(always)]
    fn from(kind: Kind) -> Self {
        Self { kind, database: Database::ZERO }
    }
}

/// A record whose bytes have passed every check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Verified<'a> {
    /// The value, without hints of links.
    pub value: &'a [u8],
    /// Where it begins.
    pub value_from: usize,
    /// Word 1 as it was read.
    pub mutable: Mutable,
    /// Where the record lies; the length is the record's own.
    pub pointer: RemotePointer,
    /// What it is.
    pub kind: Kind,
}

/// The key in bytes that are to be a record, for a reader that expects a record of some name, as a
/// part that holds several elements. [`verify`] says whether they are one.
pub fn key_in(bytes: &[u8]) -> Option<&[u8]> {
    let word = bytes.get(CHECKED_FROM..RECORD_HEADER_BYTES)?;
    let lengths = Lengths::from_word(u64::from_le_bytes(*word.first_chunk()?))?;
    bytes.get(RECORD_HEADER_BYTES..)?.get(..lengths.key_bytes as usize)
}

/// How many bytes of a record's value its checksum covers: those of a root's state block, which
/// changes and has a version and a checksum of its own, are none of them, nor are hints of links.
#[inline(always)]
pub fn checked_value_bytes(kind: Kind, value: &[u8]) -> usize {
    match kind {
        kind if kind.is_root() => 0,
        kind if kind.has_links() => value.len() - link::hint_bytes(value),
        _ => value.len(),
    }
}

/// Checks bytes that were fetched from `slot` of `region`: guardian, header, checksum, full key,
/// database and kind must agree (H10, H21). `generation` is the one that the pointer demands;
/// `None` when the reader found the slot through a bucket. `wanted` is what the reader expects; if
/// it wants the root of an object, a record that holds an object of the type whole also passes.
/// `secret` is the arena's ([`crate::arena_header::word::RECORD_SECRET`]).
///
/// `bytes` may be longer than the record (a slot's whole size class).
#[inline]
pub fn verify<'a>(
    bytes: &'a [u8],
    secret: u64,
    region: u32,
    slot: u32,
    generation: Option<u32>,
    wanted: impl Into<Wanted>,
    key: &[u8],
) -> Result<Verified<'a>, Reject> {
    let Wanted { kind, database } = wanted.into();
    if bytes.len() < RECORD_HEADER_BYTES {
        return Err(Reject::Torn);
    }
    let word = |index: usize| {
        u64::from_le_bytes(bytes[index * 8..index * 8 + 8].try_into().expect("eight bytes"))
    };
    let guardian = Guardian::from_word(word(0)).ok_or(Reject::Torn)?;
    if generation.is_some_and(|generation| generation != guardian.generation) {
        return Err(Reject::Dead);
    }
    match guardian.state {
        State::Live => {}
        State::Pending => return Err(Reject::Pending),
        State::AskOnly => return Err(Reject::AskOnly),
        State::Dead => return Err(Reject::Dead),
    }
    let lengths = Lengths::from_word(word(3)).ok_or(Reject::Torn)?;
    let length = lengths.record_bytes();
    if length > bytes.len() {
        return Err(Reject::Torn);
    }
    let seed = checksum_seed(secret, region, slot, guardian.generation);
    let value_from = RECORD_HEADER_BYTES + lengths.key_bytes as usize;
    let value = &bytes[value_from..length];
    if checksum(&bytes[CHECKED_FROM..value_from + checked_value_bytes(lengths.kind, value)], seed)
        != word(2)
    {
        return Err(Reject::Torn);
    }
    if lengths.database != database || &bytes[RECORD_HEADER_BYTES..value_from] != key {
        return Err(Reject::OtherKey);
    }
    let is = lengths.kind.plain();
    if is != kind && !(kind.is_root() && is == kind.whole()) {
        match kind {
            // No key names a part, though its name may equal the key.
            Kind::ANY if is.is_part() => return Err(Reject::OtherKey),
            Kind::ANY => {}
            _ => return Err(Reject::OtherKind),
        }
    }
    let (value, value_from) = match lengths.kind.has_links() {
        true => (Linked::of(value).ok_or(Reject::Torn)?.text, value_from + link::HEAD_BYTES),
        false => (value, value_from),
    };
    Ok(Verified {
        kind: lengths.kind,
        value,
        value_from,
        mutable: Mutable::from_word(word(1)),
        pointer: RemotePointer {
            region,
            slot,
            length: length as u32,
            generation: guardian.generation,
        },
    })
}

const _: () = assert!(RECORD_HEADER_BYTES == 4 * crate::limits::WORD_BYTES);
const _: () = assert!(CHECKED_FROM == 3 * crate::limits::WORD_BYTES);

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: u64 = 0x0123_4567_89ab_cdef;

    fn record(region: u32, slot: u32, generation: u32, key: &[u8], value: &[u8]) -> Vec<u8> {
        record_of(Kind::STRING, (region, slot, generation), key, value)
    }

    fn record_of(
        kind: Kind,
        (region, slot, generation): (u32, u32, u32),
        key: &[u8],
        value: &[u8],
    ) -> Vec<u8> {
        let lengths = Lengths {
            key_bytes: key.len() as u32,
            database: Database::ZERO,
            kind,
            value_bytes: value.len() as u32,
        };
        let guardian = Guardian { generation, state: State::Live, class: 2 };
        let mut bytes = vec![0u8; lengths.record_bytes()];
        bytes[0..8].copy_from_slice(&guardian.to_word().to_le_bytes());
        bytes[24..32].copy_from_slice(&lengths.to_word().to_le_bytes());
        bytes[32..32 + key.len()].copy_from_slice(key);
        bytes[32 + key.len()..].copy_from_slice(value);
        let seed = checksum_seed(SECRET, region, slot, generation);
        let checked_to = 32 + key.len() + checked_value_bytes(kind, value);
        let sum = checksum(&bytes[CHECKED_FROM..checked_to], seed);
        bytes[16..24].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    #[test]
    fn a_whole_record_passes() {
        let bytes = record(1, 9, 4, b"key", b"value");
        let found = verify(&bytes, SECRET, 1, 9, Some(4), Kind::STRING, b"key").unwrap();
        assert_eq!(found.value, b"value");
        assert_eq!(found.pointer.generation, 4);
        assert_eq!(found.pointer.length as usize, bytes.len());
    }

    #[test]
    fn every_single_flipped_bit_is_noticed() {
        let good = record(1, 9, 4, b"key", b"some value of a record");
        for bit in 0..good.len() * 8 {
            let in_word = bit / 64;
            let class_or_colour = in_word == 0 && (40..49).contains(&(bit % 64));
            if in_word == 1 || class_or_colour {
                continue; // outside the checksum by design
            }
            let mut bytes = good.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(
                verify(&bytes, SECRET, 1, 9, Some(4), Kind::STRING, b"key").is_err(),
                "bit {bit}"
            );
        }
    }

    #[test]
    fn a_record_is_bound_to_its_place_and_generation() {
        let bytes = record(1, 9, 4, b"key", b"value");
        assert_eq!(verify(&bytes, SECRET, 1, 9, Some(5), Kind::STRING, b"key"), Err(Reject::Dead));
        assert_eq!(verify(&bytes, SECRET, 1, 8, Some(4), Kind::STRING, b"key"), Err(Reject::Torn));
        assert_eq!(verify(&bytes, SECRET, 2, 9, None, Kind::STRING, b"key"), Err(Reject::Torn));
        assert_eq!(verify(&bytes, SECRET, 1, 9, None, Kind::STRING, b"kez"), Err(Reject::OtherKey));
        assert_eq!(verify(&bytes, SECRET + 1, 1, 9, None, Kind::STRING, b"key"), Err(Reject::Torn));
    }

    #[test]
    fn a_whole_record_of_another_kind_is_not_believed() {
        let whole = Kind::HASH.whole();
        let kinds = [Kind::STRING, whole, Kind::SORTED_PLACE, Kind::OBJECT, Kind(127)];
        for (is, wanted) in kinds.iter().flat_map(|is| kinds.map(|wanted| (*is, wanted))) {
            let bytes = record_of(is, (1, 9, 4), b"key", b"value");
            for generation in [Some(4), None] {
                let found = verify(&bytes, SECRET, 1, 9, generation, wanted, b"key");
                let believed = found.map(|found| found.value.to_vec());
                let expected =
                    if is == wanted { Ok(b"value".to_vec()) } else { Err(Reject::OtherKind) };
                assert_eq!(believed, expected, "{is:?} for {wanted:?}");
            }
        }
        // Links are no other kind: the type's own code looks for them.
        let mut value = Vec::new();
        link::make(&mut value, 32 + 3, b"text", &[1, 2]);
        let mut bytes = record_of(whole.linked(), (1, 9, 4), b"key", &value);
        for (word, expected) in [(0, true), (1, true), (2, false)] {
            // A hint may be any word; what is before is checked.
            let at = bytes.len() - 8 * (word + 1);
            bytes[at] ^= 1;
            let found = verify(&bytes, SECRET, 1, 9, None, Kind::HASH, b"key");
            assert_eq!(found.is_ok(), expected, "word {word} from the end");
        }
        // A reader of an object takes one that lies whole in its record too.
        let bytes = record_of(whole, (1, 9, 4), b"key", b"value");
        assert!(verify(&bytes, SECRET, 1, 9, None, Kind::HASH, b"key").is_ok());
        let bytes = record_of(Kind::STRING.whole(), (1, 9, 4), b"key", b"value");
        let found = verify(&bytes, SECRET, 1, 9, None, Kind::STRING, b"key");
        assert_eq!(found.map(drop), Err(Reject::OtherKind));
    }

    #[test]
    fn a_record_of_another_database_is_another_keys() {
        for (is, wanted) in Database::all().flat_map(|is| Database::all().map(move |to| (is, to))) {
            let mut bytes = record(1, 9, 4, b"key", b"value");
            let lengths =
                Lengths { key_bytes: 3, database: is, kind: Kind::STRING, value_bytes: 5 };
            bytes[24..32].copy_from_slice(&lengths.to_word().to_le_bytes());
            let sum = checksum(&bytes[CHECKED_FROM..], checksum_seed(SECRET, 1, 9, 4));
            bytes[16..24].copy_from_slice(&sum.to_le_bytes());
            let wanted = Wanted { kind: Kind::STRING, database: wanted };
            let found = verify(&bytes, SECRET, 1, 9, Some(4), wanted, b"key");
            match is == wanted.database {
                true => assert_eq!(found.unwrap().value, b"value"),
                false => assert_eq!(found, Err(Reject::OtherKey)),
            }
        }
    }

    #[test]
    fn readers_mask_the_colour() {
        let mut bytes = record(1, 9, 4, b"key", b"value");
        bytes[6] |= 1;
        assert!(verify(&bytes, SECRET, 1, 9, Some(4), Kind::STRING, b"key").is_ok());
        bytes[6] |= 2;
        assert!(verify(&bytes, SECRET, 1, 9, Some(4), Kind::STRING, b"key").is_err());
    }

    #[test]
    fn states_are_told_apart() {
        let mut bytes = record(1, 9, 4, b"key", b"value");
        for (state, reject) in [
            (State::Pending, Reject::Pending),
            (State::Dead, Reject::Dead),
            (State::AskOnly, Reject::AskOnly),
        ] {
            let guardian = Guardian { generation: 4, state, class: 2 };
            bytes[0..8].copy_from_slice(&guardian.to_word().to_le_bytes());
            assert_eq!(verify(&bytes, SECRET, 1, 9, Some(4), Kind::STRING, b"key"), Err(reject));
        }
    }

    #[test]
    fn words_round_trip() {
        let guardian = Guardian { generation: u32::MAX, state: State::Pending, class: 200 };
        assert_eq!(Guardian::from_word(guardian.to_word()), Some(guardian));
        assert_eq!(Guardian::from_word(4 << 32), None);
        let mutable =
            Mutable { expires_at_ms: MAX_EXPIRES_AT_MS, lease_end_s: 65_535, popularity: 15 };
        assert_eq!(Mutable::from_word(mutable.to_word()), mutable);
        assert_eq!(Lengths::from_word(u64::MAX), None);
        let longest = Lengths {
            key_bytes: MAX_KEY_BYTES as u32,
            database: Database::of_bits(13),
            kind: Kind(255),
            value_bytes: MAX_VALUE_BYTES as u32,
        };
        assert_eq!(Lengths::from_word(longest.to_word()), Some(longest));
        let longer = Lengths { key_bytes: longest.key_bytes + 1, ..longest };
        assert_eq!(Lengths::from_word(longer.to_word()), None);
        let longer = Lengths { value_bytes: longest.value_bytes + 1, ..longest };
        assert_eq!(Lengths::from_word(longer.to_word()), None);
    }
}
