//! One command for each of several keys of a shard, or of several objects of one tree there: one
//! job, and one reply for all. The rules for keys hold for objects, too.
//!
//! Invariant: each key's answer is in the list at the position of its key. A batch that reads for a
//! closed connection ends ([`FoundBytes::is_too_large`]).

use remora_layout::hash::KeyHash;
use remora_layout::limits::{
    CONNECTION_KEYS_PER_TURN, CONNECTION_REQUESTS_PER_TURN, JOB_KEYS_AT_ONCE, MAX_REPLY_BYTES,
};
use remora_protocol::message::Status;
use remora_protocol::{Command, Request};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The command of one key.
pub type KeyCommand = fn(&[u8]) -> Command<'_>;
/// The request about the part of an object with this name.
pub type PartRequest = fn(&[u8]) -> Request<'_>;

/// The operation on each of them.
#[derive(Clone)]
pub enum Each {
    /// The command of a key.
    Key(KeyCommand),
    /// A request about a part of the object with this key.
    Part(Arc<[u8]>, PartRequest),
    /// A read of the part with this name of a key's object.
    PartOf(Arc<[u8]>, PartRequest),
}

/// A change of a large object takes the time of this many keys.
const KEYS_PER_PART: usize = CONNECTION_KEYS_PER_TURN / CONNECTION_REQUESTS_PER_TURN;

impl Each {
    /// The command for one of them.
    #[inline]
    pub fn command<'a>(&'a self, word: &'a [u8]) -> Command<'a> {
        match self {
            Self::Key(of) => of(word),
            Self::Part(key, request) => Command::Of { key, request: request(word) },
            Self::PartOf(part, request) => Command::Of { key: word, request: request(part) },
        }
    }

    /// Whether they are changed.
    pub fn is_write(&self) -> bool {
        match self {
            Self::Key(of) => of(&[]).is_write(),
            Self::Part(..) => true,
            Self::PartOf(..) => false,
        }
    }

    /// The time that one takes, in keys.
    pub const fn cost(&self) -> usize {
        match self {
            Self::Key(_) | Self::PartOf(..) => 1,
            Self::Part(..) => KEYS_PER_PART,
        }
    }
}

/// Bytes of the values that all batches of a request have found.
#[derive(Clone, Default)]
pub struct FoundBytes(Arc<AtomicUsize>);

impl FoundBytes {
    /// A batch has found this many more bytes.
    pub fn add(&self, bytes: usize) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Whether the values exceed a reply, or the request is no longer wanted.
    pub fn is_too_large(&self) -> bool {
        self.0.load(Ordering::Relaxed) > MAX_REPLY_BYTES
    }
}

/// Held by the request. When it is dropped, the batches of the request stop reading.
#[derive(Default)]
pub struct WantedBytes(FoundBytes);

impl WantedBytes {
    /// For a batch of the request.
    pub fn found(&self) -> FoundBytes {
        self.0.clone()
    }
}

impl Drop for WantedBytes {
    fn drop(&mut self) {
        self.0.0.store(usize::MAX / 2, Ordering::Relaxed);
    }
}

/// Several keys of one shard and one database.
pub struct KeyBatch {
    each: Each,
    found: FoundBytes,
    /// The keys, one after the other.
    bytes: Vec<u8>,
    /// Each key's hash, and where it ends.
    keys: Vec<(KeyHash, u32)>,
}

impl KeyBatch {
    /// A batch without keys.
    pub const fn new(each: Each, found: FoundBytes) -> Self {
        Self { each, found, bytes: Vec::new(), keys: Vec::new() }
    }

    /// Adds a key.
    pub fn push(&mut self, key: &[u8], hash: KeyHash) {
        self.bytes.extend_from_slice(key);
        self.keys.push((hash, self.bytes.len() as u32));
    }

    /// Bytes that it takes.
    pub fn bytes(&self) -> usize {
        self.bytes.len() + size_of_val(&self.keys[..])
    }

    /// How many keys.
    pub fn keys(&self) -> usize {
        self.keys.len()
    }

    /// Whether it is executed at once.
    pub fn is_small(&self) -> bool {
        self.keys.len() * self.each.cost() <= JOB_KEYS_AT_ONCE
    }

    /// The operation on each of them.
    pub const fn each(&self) -> &Each {
        &self.each
    }

    /// Bytes that the batches of its request have found.
    pub const fn found(&self) -> &FoundBytes {
        &self.found
    }

    /// The hash of a key.
    #[inline]
    pub fn hash(&self, at: usize) -> KeyHash {
        self.keys[at].0
    }

    /// The command for a key.
    #[inline]
    pub fn command(&self, at: usize) -> Command<'_> {
        self.each.command(self.key(at))
    }

    fn key(&self, at: usize) -> &[u8] {
        let from = at.checked_sub(1).map_or(0, |before| self.keys[before].1);
        &self.bytes[from as usize..self.keys[at].1 as usize]
    }
}

/// The answers for keys, in an encoded list: status 1 | number 8 | value_bytes 4 | value; the
/// greatest length stands for no value.
#[derive(Default)]
pub struct KeyReplies(Vec<u8>);

/// Status, number and value of an answer.
pub type KeyReply<'a> = (Status, i64, Option<&'a [u8]>);

/// Bytes before an answer's value.
pub const REPLY_HEAD_BYTES: usize = 13;
/// Stands for the length of no value.
const NO_VALUE: u32 = u32::MAX;

impl KeyReplies {
    /// Removes all answers; keeps the memory.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Bytes of memory that it keeps.
    pub fn capacity(&self) -> usize {
        self.0.capacity()
    }

    /// Adds an answer. Bytes of its value.
    pub fn push(&mut self, status: Status, number: i64, value: Option<&[u8]>) -> usize {
        self.begin(status, number, value.map(<[u8]>::len));
        self.0.extend_from_slice(value.unwrap_or_default());
        value.map_or(0, <[u8]>::len)
    }

    /// With capacity for the answers of this many keys without values.
    pub fn with_room(keys: usize) -> Self {
        Self(Vec::with_capacity(keys * REPLY_HEAD_BYTES))
    }

    /// Bytes of the list so far.
    pub const fn bytes(&self) -> usize {
        self.0.len()
    }

    /// Returns the list, and keeps nothing of it.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.0)
    }

    /// Appends a piece of the value of the answer that was begun last.
    pub fn extend(&mut self, piece: &[u8]) {
        self.0.extend_from_slice(piece);
    }

    /// Adds an answer; the caller appends its value of this many bytes after it.
    pub fn begin(&mut self, status: Status, number: i64, value_bytes: Option<usize>) {
        let mut head = [0; REPLY_HEAD_BYTES];
        head[0] = status as u8;
        head[1..9].copy_from_slice(&number.to_le_bytes());
        let bytes = value_bytes.map_or(NO_VALUE, |bytes| bytes as u32);
        head[9..].copy_from_slice(&bytes.to_le_bytes());
        self.0.extend_from_slice(&head);
    }

    /// The answers: status, number and value of each.
    pub fn iter(&self) -> impl Iterator<Item = KeyReply<'_>> {
        Self::each(&self.0)
    }

    /// Those of an encoded list.
    pub fn each(list: &[u8]) -> impl Iterator<Item = KeyReply<'_>> {
        let mut rest = list;
        std::iter::from_fn(move || {
            let (head, behind) = rest.split_first_chunk::<REPLY_HEAD_BYTES>()?;
            let number = i64::from_le_bytes(*head[1..].first_chunk()?);
            let bytes = u32::from_le_bytes(*head[9..].first_chunk()?);
            let length = if bytes == NO_VALUE { 0 } else { bytes as usize };
            let (value, behind) = behind.split_at_checked(length)?;
            rest = behind;
            let status = Status::from_number(head[0])?;
            Some((status, number, (bytes != NO_VALUE).then_some(value)))
        })
    }
}
