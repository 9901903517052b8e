//! What a shard can be asked, and what it answers. Commands have one encoding,
//! for rings, in-process queues and the operation log.
//!
//! Expiries are absolute, in Unix ms: whoever accepts a request turns "in ten
//! seconds" into a point in time once, so that replaying an entry later means
//! the same.

mod encoding;
mod pairs;
mod reply;
mod tree;

pub use pairs::Pairs;
pub use remora_index::rtree::Predicate;
pub use reply::Reply;
pub use tree::{
    HAS_DATA, HAS_GEOMETRY, Objects, Refined, TreeCommand, TreeRequest, TreeSettings,
    window_predicate,
};

/// When a SET takes effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Condition {
    /// Always.
    #[default]
    Always,
    /// Only if the key does not exist (NX).
    IfAbsent,
    /// Only if the key exists (XX).
    IfPresent,
}

/// What a SET does to the key's expiry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Expiry {
    /// The key no longer expires.
    #[default]
    Never,
    /// The expiry stays as it is (KEEPTTL).
    Keep,
    /// Unix ms.
    At(u64),
}

/// When an EXPIRE takes effect (Redis 7.0).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ExpireCondition {
    /// Always.
    #[default]
    Always,
    /// Only if the key has no expiry (NX).
    IfNone,
    /// Only if the key has one (XX).
    IfSome,
    /// Only if later than the present one; none counts as infinite (GT).
    IfLater,
    /// Only if earlier than the present one; none counts as infinite (LT).
    IfEarlier,
    /// Only if the key has an expiry and the new one is earlier (XX LT).
    IfSomeEarlier,
}

/// One request to one shard. Keys and values borrow from the message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Command<'a> {
    /// The value, with a pointer and a lease.
    Get {
        /// The key.
        key: &'a [u8],
    },
    /// Sets a key.
    Set {
        /// The key.
        key: &'a [u8],
        /// Its new value.
        value: &'a [u8],
        /// When to set it.
        condition: Condition,
        /// What happens to the expiry.
        expiry: Expiry,
        /// Reply with the old value.
        get: bool,
    },
    /// Removes a key; `number` is 1 if it was there.
    Del {
        /// The key.
        key: &'a [u8],
    },
    /// `number` is 1 if the key is there.
    Exists {
        /// The key.
        key: &'a [u8],
    },
    /// Adds to the integer that the key holds (0 if it is absent).
    Incr {
        /// The key.
        key: &'a [u8],
        /// What to add.
        by: i64,
    },
    /// Sets the expiry; in the past means "remove now". `number` is 1 if done.
    Expire {
        /// The key.
        key: &'a [u8],
        /// Unix ms.
        at_ms: u64,
        /// When to set it.
        condition: ExpireCondition,
    },
    /// `number` is the time to live in ms, -1 without expiry, -2 without key.
    Ttl {
        /// The key.
        key: &'a [u8],
    },
    /// Sets all pairs, which are of this shard, as one change: no reader sees
    /// a part of it as the whole, and no pair is set if one has no room.
    MultiSet {
        /// The pairs.
        pairs: Pairs<'a>,
    },
    /// Appends to the value (empty if the key is absent); the expiry stays.
    /// `number` is the new length in bytes.
    Append {
        /// The key.
        key: &'a [u8],
        /// What to append.
        value: &'a [u8],
    },
    /// Overwrites the value from `offset` on, behind zeros where it was
    /// shorter; the expiry stays. `number` is the new length in bytes. An
    /// empty `value` changes nothing and makes no key.
    SetRange {
        /// The key.
        key: &'a [u8],
        /// Bytes before the first one written.
        offset: u64,
        /// What to write.
        value: &'a [u8],
    },
    /// The bytes from `start` to `end`, both included; negative ones count
    /// from the end, -1 being the last. Empty if the key is absent. Bounds of
    /// more bits go through [`crate::string_edit::narrow_range`].
    GetRange {
        /// The key.
        key: &'a [u8],
        /// First byte.
        start: i32,
        /// Last byte.
        end: i32,
    },
    /// Sets one bit, behind zeros where the value was shorter; the expiry
    /// stays. `number` is the bit before.
    SetBit {
        /// The key.
        key: &'a [u8],
        /// In bits; 0 is the highest bit of the first byte.
        offset: u32,
        /// The bit.
        bit: bool,
    },
    /// `number` is one bit; 0 behind the end and if the key is absent.
    GetBit {
        /// The key.
        key: &'a [u8],
        /// In bits; 0 is the highest bit of the first byte.
        offset: u32,
    },
    /// `number` is the value's length in bytes; 0 if the key is absent.
    StrLen {
        /// The key.
        key: &'a [u8],
    },
    /// The value; the key is removed.
    GetDel {
        /// The key.
        key: &'a [u8],
    },
    /// The value, with a pointer and a lease; the expiry is changed.
    GetEx {
        /// The key.
        key: &'a [u8],
        /// Unix ms, and in the past means "remove now"; `None`: the key no
        /// longer expires.
        at_ms: Option<u64>,
    },
    /// Something about a tree of places.
    Tree {
        /// The tree's name.
        name: &'a [u8],
        /// What.
        request: TreeRequest<'a>,
    },
    /// `number` is the count of keys of the shard.
    Count,
    /// Removes every key of the shard.
    Flush,
}

impl<'a> Command<'a> {
    /// The key, or the tree's name, if the command has one; several or none
    /// otherwise.
    pub fn key(&self) -> Option<&'a [u8]> {
        match *self {
            Self::Get { key }
            | Self::Set { key, .. }
            | Self::Del { key }
            | Self::Exists { key }
            | Self::Incr { key, .. }
            | Self::Expire { key, .. }
            | Self::Ttl { key }
            | Self::Append { key, .. }
            | Self::SetRange { key, .. }
            | Self::GetRange { key, .. }
            | Self::SetBit { key, .. }
            | Self::GetBit { key, .. }
            | Self::StrLen { key }
            | Self::GetDel { key }
            | Self::GetEx { key, .. } => Some(key),
            Self::Tree { name, .. } => Some(name),
            Self::MultiSet { .. } | Self::Count | Self::Flush => None,
        }
    }

    /// Whether the command may change anything.
    pub fn is_write(&self) -> bool {
        if let Self::Tree { request, .. } = self {
            return request.is_write();
        }
        !matches!(
            self,
            Self::Get { .. }
                | Self::Exists { .. }
                | Self::Ttl { .. }
                | Self::GetRange { .. }
                | Self::GetBit { .. }
                | Self::StrLen { .. }
                | Self::Count
        )
    }

    /// Whether the reply may bring a value.
    pub fn brings_value(&self) -> bool {
        matches!(
            self,
            Self::Get { .. }
                | Self::GetRange { .. }
                | Self::GetDel { .. }
                | Self::GetEx { .. }
                | Self::Set { get: true, .. }
        )
    }
}
