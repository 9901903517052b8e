//! Values that prove their origin.
//!
//! A value represents a number. Its bytes name the key, or the field and its hash, and the number,
//! and repeat them to fill the length, so that every reader notices bytes of another key, of
//! another write or of two at once.

use remora_fabric::sim::Random;
use std::fmt;

/// The identities of ordered trees follow those of so many hashes.
const ORDERED_IDS: u32 = 64;
/// The identities of sorted sets follow those of so many.
const SORTED_IDS: u32 = 128;
/// The identities of collections follow those of so many.
const COLLECTION_IDS: u32 = 192;

/// The name of the first key of a tree of integers.
pub const FIRST_INTEGER: u32 = 100_000;

/// Key, length of the filling and number in front of it.
const HEADER_BYTES: usize = 16;

/// How long values are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lengths {
    /// Most bytes with which a value is filled up.
    pub most_bytes: u64,
    /// Whether all values of a key are of one length, so that one may be
    /// written over another.
    pub one_for_each_key: bool,
}

/// The number of the hash in a database.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum HashName {
    /// One that stays under its key.
    Fixed(u8),
    /// One that goes from key to key of its generation: values do not name the key.
    Moved {
        /// Its generation.
        generation: u16,
        /// The number of the key.
        key: u8,
    },
    /// A set: its members have no values.
    Set(u8),
    /// One whose fields are links. The number of such a value is its target's.
    Links(u8),
    /// An ordered tree: its keys are judged as fields are.
    Ordered(u8),
    /// A sorted set: a member's number is its score.
    Sorted(u8),
    /// A collection: its documents are judged as fields are.
    Collection(u8),
}

impl HashName {
    /// The key: the same in every database.
    pub fn key(self) -> Vec<u8> {
        self.to_string().into_bytes()
    }
}

impl fmt::Display for HashName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(hash) => write!(f, "hash:{hash}"),
            Self::Moved { generation, key } => write!(f, "moved:{generation}:{key}"),
            Self::Set(set) => write!(f, "set:{set}"),
            Self::Links(hash) => write!(f, "links:{hash}"),
            Self::Ordered(tree) => write!(f, "ordered:{tree}"),
            Self::Sorted(set) => write!(f, "sorted:{set}"),
            Self::Collection(collection) => write!(f, "collection:{collection}"),
        }
    }
}

/// The unit of judgement in a history: a key that holds a string, or a field of a hash.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Register {
    /// The database of the key.
    pub database: u8,
    /// The hash, if it is a field of one.
    pub hash: Option<HashName>,
    /// The key's number, or the field's. One of odd number is a counter: its
    /// values are decimal, as INCRBY and HINCRBY need.
    pub number: u32,
}

impl Register {
    /// The name of the key, or of the field in its hash: the same in every database.
    pub fn name(self) -> Vec<u8> {
        match self.hash {
            None => format!("key:{}", self.number).into_bytes(),
            Some(tree @ HashName::Ordered(_)) => key_name(tree, self.number),
            Some(HashName::Sorted(set)) => member_name(set, self.number),
            Some(_) => format!("field:{}", self.number).into_bytes(),
        }
    }

    /// The key that it is under, or that its hash has.
    pub fn key(self) -> Vec<u8> {
        self.hash.map_or_else(|| self.name(), HashName::key)
    }

    /// The counter of this number, or the next.
    pub fn counter(self) -> Self {
        Self { number: self.number | 1, ..self }
    }

    /// The register of this number that is no counter, or the one before.
    pub fn no_counter(self) -> Self {
        Self { number: self.number & !1, ..self }
    }

    fn is_counter(self) -> bool {
        self.number % 2 == 1
    }

    /// A number that no other register has, apart from those of the same hash under
    /// another key: that of a key in database 0 is its own.
    fn id(self) -> u32 {
        let of_hash = match self.hash {
            None => 0,
            Some(HashName::Fixed(hash) | HashName::Set(hash) | HashName::Links(hash)) => {
                (hash as u32 + 1) << 20
            }
            Some(HashName::Ordered(tree)) => (u32::from(tree) + ORDERED_IDS) << 20,
            Some(HashName::Sorted(set)) => (u32::from(set) + SORTED_IDS) << 20,
            Some(HashName::Collection(collection)) => {
                (u32::from(collection) + COLLECTION_IDS) << 20
            }
            Some(HashName::Moved { generation, .. }) => {
                return 1 << 31 | (generation as u32) << 16 | self.number;
            }
        };
        (self.database as u32) << 28 | of_hash | self.number
    }
}

impl fmt::Display for Register {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.hash {
            None => write!(f, "key {}", self.number)?,
            Some(hash) => write!(f, "field {} of {hash}", self.number)?,
        }
        if self.database > 0 { write!(f, " in database {}", self.database) } else { Ok(()) }
    }
}

/// The bytes that represent a number in a register.
pub fn encode(register: Register, number: i64, lengths: Lengths) -> Vec<u8> {
    if register.is_counter() {
        return number.to_string().into_bytes();
    }
    let key = register.id();
    let number_or_none = if lengths.one_for_each_key { 0 } else { number as u64 };
    let length = Random::new((key as u64) << 40 ^ number_or_none).below(lengths.most_bytes + 1);
    let mut filling = Random::new((key as u64) << 40 ^ number as u64);
    let bytes = HEADER_BYTES + length as usize;
    let mut value = Vec::with_capacity(bytes + 8);
    value.extend_from_slice(&key.to_le_bytes());
    value.extend_from_slice(&(length as u32).to_le_bytes());
    value.extend_from_slice(&number.to_le_bytes());
    while value.len() < bytes {
        value.extend_from_slice(&filling.number().to_le_bytes());
    }
    value.truncate(bytes);
    value
}

/// The number that these bytes represent in this register; `None` if no client wrote them there.
pub fn decode(register: Register, bytes: &[u8], lengths: Lengths) -> Option<i64> {
    if register.is_counter() {
        return std::str::from_utf8(bytes).ok()?.parse().ok();
    }
    let (header, _) = bytes.split_at_checked(HEADER_BYTES)?;
    let number = i64::from_le_bytes(header[8..].try_into().ok()?);
    (encode(register, number, lengths) == bytes).then_some(number)
}

/// Whether the keys of an ordered tree are integers.
pub fn has_integers(tree: HashName) -> bool {
    matches!(tree, HashName::Ordered(number) if number % 2 == 1)
}

/// The name of a key of a tree.
pub fn key_name(tree: HashName, number: u32) -> Vec<u8> {
    match has_integers(tree) {
        true => (FIRST_INTEGER + number).to_string().into_bytes(),
        // Of several lengths, and longer than the head of an entry.
        false => format!("key of a tree:{number}").into_bytes(),
    }
}

/// The name of a member of a sorted set. Those of sets of odd number have all lengths: some do not fit
/// a small set, and some no key of the tree.
pub fn member_name(set: u8, number: u32) -> Vec<u8> {
    let mut name = format!("member:{number}");
    let fillings = match (set % 2, number % 8) {
        (1, 3) => 10,
        (1, 7) => 40,
        _ => 0,
    };
    (0..fillings).for_each(|_| name.push_str(" and more"));
    name.into_bytes()
}
