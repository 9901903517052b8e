//! One command for each of several keys of a shard, or of several objects of one tree
//! there: one job, and one reply for all. What is said of keys holds for objects, too.
//!
//! What it keeps true: a batch is executed in its order and in bounded pieces, of so
//! many keys and about so many bytes; what the batches of a request have found never
//! exceeds a reply by more than a piece of each. Each key's answer stands in the list at
//! the place of its key. A batch that reads for a connection that is gone ends.

use crate::jobs::OwnedReply;
use remora_arena::Journal;
use remora_engine::{Download, Now, Outcome, Shard};
use remora_layout::hash::KeyHash;
use remora_layout::limits::{
    JOB_KEYS_AT_ONCE, JOB_KEYS_PER_TURN, RESP_KEYS_PER_TURN, RESP_MAX_REPLY_BYTES,
    RESP_REQUESTS_AHEAD, RESP_REQUESTS_PER_TURN, STREAM_PIECE_BYTES,
};
use remora_protocol::Reply;
use remora_protocol::message::Status;
use remora_protocol::{Command, Request};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The command of one key.
pub type KeyCommand = fn(&[u8]) -> Command<'_>;
/// The request that changes the part of an object with this name.
pub type PartRequest = fn(&[u8]) -> Request<'_>;

/// What is done with each of them.
#[derive(Clone)]
pub enum Each {
    /// The command of a key.
    Key(KeyCommand),
    /// A request about a part of the object with this key.
    Part(Arc<[u8]>, PartRequest),
}

/// A change of a large object takes the time of so many keys.
const KEYS_PER_PART: usize = RESP_KEYS_PER_TURN / RESP_REQUESTS_PER_TURN;

impl Each {
    /// The command for one of them.
    #[inline]
    pub fn command<'a>(&'a self, word: &'a [u8]) -> Command<'a> {
        match self {
            Self::Key(of) => of(word),
            Self::Part(key, request) => Command::Of { key, request: request(word) },
        }
    }

    /// Whether they are changed.
    fn is_write(&self) -> bool {
        match self {
            Self::Key(of) => of(&[]).is_write(),
            Self::Part(..) => true,
        }
    }

    /// The time that one takes, in keys.
    pub const fn cost(&self) -> usize {
        match self {
            Self::Key(_) => 1,
            Self::Part(..) => KEYS_PER_PART,
        }
    }
}

/// Bytes of the values that all batches of a request have found.
#[derive(Clone, Default)]
pub struct FoundBytes(Arc<AtomicUsize>);

impl FoundBytes {
    fn add(&self, bytes: usize) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }

    fn is_too_large(&self) -> bool {
        self.0.load(Ordering::Relaxed) > RESP_MAX_REPLY_BYTES
    }
}

/// The request's own end of them: without it no more is wanted.
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
    /// No keys yet.
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

    fn key(&self, at: usize) -> &[u8] {
        let from = at.checked_sub(1).map_or(0, |before| self.keys[before].1);
        &self.bytes[from as usize..self.keys[at].1 as usize]
    }
}

/// What keys were answered, in an encoded list: status 1 | number 8 | value_bytes 4 |
/// value, with [`NO_VALUE`] bytes for none.
#[derive(Default)]
pub struct KeyReplies(Vec<u8>);

/// Status, number and value of an answer.
pub type KeyReply<'a> = (Status, i64, Option<&'a [u8]>);

/// Bytes before an answer's value.
pub const REPLY_HEAD_BYTES: usize = 13;
/// Stands for the length of no value.
const NO_VALUE: u32 = u32::MAX;

impl KeyReplies {
    /// None any more; the memory stays.
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

    /// Adds an answer whose value of so many bytes is appended behind.
    fn begin(&mut self, status: Status, number: i64, value_bytes: Option<usize>) {
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

/// A batch that is being executed.
pub struct KeyWork {
    batch: KeyBatch,
    /// Keys that were executed.
    done: usize,
    found: KeyReplies,
    /// Bytes of the values among them.
    value_bytes: usize,
    /// The sequence that the reply waits for.
    wait: u64,
    /// The value of the last key, and bytes of it that are copied.
    download: Option<(Download, usize)>,
}

impl KeyWork {
    /// Nothing is executed yet.
    pub fn new(batch: KeyBatch) -> Self {
        let found = KeyReplies(Vec::with_capacity(batch.keys() * REPLY_HEAD_BYTES));
        Self { batch, done: 0, found, value_bytes: 0, wait: 0, download: None }
    }

    /// Bytes of the answers so far.
    pub const fn found_bytes(&self) -> usize {
        self.found.0.len()
    }

    /// Executes a piece. The reply and the sequence that it waits for, once all keys
    /// are executed.
    pub fn turn<J: Journal>(
        &mut self,
        shard: &mut Shard<J>,
        now: Now,
    ) -> Option<(OwnedReply, u64)> {
        let until = self.batch.keys().min(self.done + JOB_KEYS_PER_TURN);
        let value_bytes = self.value_bytes;
        let until_bytes = self.found.0.len() + STREAM_PIECE_BYTES;
        self.copy_piece(shard, now);
        while self.download.is_none() && self.done < until && self.found.0.len() < until_bytes {
            self.execute_some(shard, (until, until_bytes), now);
        }
        self.batch.found.add(self.value_bytes - value_bytes);
        // Changes are made to the end, also for a connection that is gone.
        let is_read = !self.batch.each.is_write();
        if is_read && self.batch.found.is_too_large() {
            if let Some((download, _)) = self.download.take() {
                shard.end_download(download, now);
            }
            return Some((OwnedReply::status(Status::TooLarge), self.wait));
        }
        if self.download.is_some() || self.done < self.batch.keys() {
            return None;
        }
        let value = Some(std::mem::take(&mut self.found.0));
        Some((OwnedReply { value, ..OwnedReply::status(Status::Ok) }, self.wait))
    }

    /// Executes some keys that are fetched side by side, up to one whose value goes in
    /// pieces, or with which so many bytes are found.
    fn execute_some<J: Journal>(
        &mut self,
        shard: &mut Shard<J>,
        (until, until_bytes): (usize, usize),
        now: Now,
    ) {
        let Self { batch, found, .. } = self;
        let until = until.min(self.done + RESP_REQUESTS_AHEAD);
        let some = &batch.keys[self.done..until];
        some.iter().for_each(|(hash, _)| shard.prefetch(*hash));
        some.iter().for_each(|(hash, _)| shard.prefetch_record(*hash));
        for at in self.done..until {
            let command = batch.each.command(batch.key(at));
            self.done += 1;
            match shard.execute_or_stream(&command, batch.keys[at].0, now) {
                Outcome::Reply(Reply { status, number, value, wait, .. }) => {
                    self.wait = self.wait.max(wait);
                    self.value_bytes += found.push(status, number, value);
                }
                Outcome::Stream(Reply { status, number, wait, .. }, download) => {
                    self.wait = self.wait.max(wait);
                    self.value_bytes += download.len();
                    found.begin(status, number, Some(download.len()));
                    self.download = Some((download, 0));
                    return;
                }
            }
            if found.0.len() >= until_bytes {
                return;
            }
        }
    }

    /// Copies a piece of a value, if one is under way.
    fn copy_piece<J: Journal>(&mut self, shard: &mut Shard<J>, now: Now) {
        let Some((download, copied)) = self.download.take() else { return };
        let piece = shard.piece(&download, copied, STREAM_PIECE_BYTES);
        let copied = copied + piece.len();
        self.found.0.extend_from_slice(piece);
        if copied < download.len() {
            self.download = Some((download, copied));
        } else {
            shard.end_download(download, now);
        }
    }
}
