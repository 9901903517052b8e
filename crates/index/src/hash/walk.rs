//! The reader's side of the hash index: bucket, then record (a cold GET).
//!
//! A walk concludes only with a record that passed every check. Absence is
//! never concluded: a key that was moved between two fetches would be missed.
//! Then, as when a bound is reached, the owner is asked. A walk whose view of
//! the table is too old for its key says so, and goes on with a newer one.

use super::view::{Home, TableRef};
use crate::memory::Memory;
use remora_arena::{CLASSES, class_bytes};
use remora_layout::bucket::{BUCKET_BYTES, BUCKET_SLOTS, BucketHeader, BucketSlot};
use remora_layout::hash::KeyHash;
use remora_layout::limits::{CHAIN_BUCKETS, READ_RETRIES, SLOT_UNIT_BYTES, WALK_CANDIDATES};
use remora_layout::record::{MAX_RECORD_BYTES, RECORD_HEADER_BYTES, Reject, Verified, verify};

/// Bytes that a walk wants next, in its table's region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Want {
    /// Byte offset, a multiple of 16.
    pub offset: u64,
    /// How many; at most the largest size class, and never beyond the region.
    pub bytes: usize,
}

/// Why reading did not conclude.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AskReason {
    /// No record of the key was met; only the owner says "absent".
    NotFound,
    /// The record is not yet as durable as configured.
    Pending,
    /// A bound was reached.
    TooManyTries,
}

/// What a walk says after it was fed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step<'b> {
    /// Fetch these bytes and feed them.
    Fetch(Want),
    /// The record, in the bytes just fed.
    Found(Verified<'b>),
    /// The key's bucket has been split since the walk's view was made: fetch
    /// the arena's header page, and go on with [`Walk::refresh`].
    Moved,
    /// Ask the owner.
    Ask(AskReason),
}

#[derive(Clone, Copy)]
enum At {
    Bucket,
    Record(BucketSlot),
}

/// One lookup of one key.
#[derive(Clone)]
pub struct Walk<'k> {
    key: &'k [u8],
    hash: KeyHash,
    region: u32,
    region_bytes: u64,
    secret: u64,
    home: Home,
    at: At,
    candidates: [BucketSlot; BUCKET_SLOTS],
    waiting: usize,
    overflow: Option<u32>,
    buckets_seen: usize,
    records_seen: usize,
    retries: u32,
}

impl<'k> Walk<'k> {
    /// A walk and the first bytes that it wants.
    #[inline]
    pub fn begin(key: &'k [u8], hash: KeyHash, table: &TableRef) -> (Self, Want) {
        let home = table.home(hash);
        let none = BucketSlot { slot: 0, class: 0, generation_low: 0, signature: 0 };
        let walk = Self {
            key,
            hash,
            region: table.region,
            region_bytes: table.region_bytes,
            secret: table.secret,
            home,
            at: At::Bucket,
            candidates: [none; BUCKET_SLOTS],
            waiting: 0,
            overflow: None,
            buckets_seen: 0,
            records_seen: 0,
            retries: 0,
        };
        (walk, Want { offset: home.offset, bytes: BUCKET_BYTES })
    }

    /// Begins again with another view of the same table, after
    /// [`Step::Moved`]. To be called with the old one if no page could be
    /// had, so that the number of tries stays bounded.
    pub fn refresh(&mut self, table: &TableRef) -> Result<Want, AskReason> {
        if !self.may_retry() {
            return Err(AskReason::TooManyTries);
        }
        self.home = table.home(self.hash);
        Ok(self.restart())
    }

    /// Times that a fetch was in vain so far: torn, dead, or of a bucket that
    /// the key has left.
    pub fn retries(&self) -> u32 {
        self.retries
    }

    /// Buckets and records fetched so far.
    pub fn nodes(&self) -> usize {
        self.buckets_seen + self.records_seen
    }

    /// Takes the bytes that were wanted.
    #[inline]
    pub fn feed<'b>(&mut self, bytes: &'b [u8]) -> Step<'b> {
        match self.at {
            At::Bucket => self.take_bucket(bytes),
            At::Record(slot) => self.take_record(slot, bytes),
        }
    }

    fn take_bucket(&mut self, bytes: &[u8]) -> Step<'static> {
        self.buckets_seen += 1;
        let word = |index: usize| {
            let word = bytes.get(index * 8..index * 8 + 8)?;
            Some(u64::from_le_bytes(word.try_into().expect("eight bytes")))
        };
        let header = BucketHeader(word(0).unwrap_or(0));
        if self.home.is_left(header, self.hash) {
            return Step::Moved;
        }
        self.overflow = header.overflow();
        for index in (0..BUCKET_SLOTS).filter(|index| header.used() & 1 << index != 0) {
            let slot = BucketSlot::from_word(word(1 + index).unwrap_or(0));
            if slot.signature == self.hash.signature() {
                self.candidates[self.waiting] = slot;
                self.waiting += 1;
            }
        }
        self.next()
    }

    fn take_record<'b>(&mut self, slot: BucketSlot, bytes: &'b [u8]) -> Step<'b> {
        self.records_seen += 1;
        match verify(bytes, self.secret, self.region, slot.slot, None, self.key) {
            Ok(found) if found.pointer.generation as u8 == slot.generation_low => {
                Step::Found(found)
            }
            Err(Reject::Pending) => Step::Ask(AskReason::Pending),
            Err(Reject::OtherKey) => self.next(),
            // Torn: the same READ again. Dead, or of another generation: the
            // bucket has changed since it was read.
            Err(Reject::Torn) if self.may_retry() => Step::Fetch(self.want_record(slot)),
            Err(Reject::Dead) | Ok(_) if self.may_retry() => Step::Fetch(self.restart()),
            _ => Step::Ask(AskReason::TooManyTries),
        }
    }

    fn may_retry(&mut self) -> bool {
        self.retries += 1;
        self.retries <= READ_RETRIES
    }

    fn restart(&mut self) -> Want {
        self.waiting = 0;
        self.overflow = None;
        self.want_bucket(self.home.offset)
    }

    fn want_bucket(&mut self, offset: u64) -> Want {
        self.at = At::Bucket;
        Want { offset, bytes: BUCKET_BYTES }
    }

    fn want_record(&mut self, slot: BucketSlot) -> Want {
        self.at = At::Record(slot);
        let offset = slot.slot as u64 * SLOT_UNIT_BYTES as u64;
        // The class of a large record may reach beyond its pages, and beyond
        // the region's end.
        let left = self.region_bytes.saturating_sub(offset);
        let most = class_bytes(slot.class).min(MAX_RECORD_BYTES);
        Want { offset, bytes: left.min(most as u64) as usize }
    }

    /// The next candidate, else the next bucket of the chain, else the owner.
    fn next(&mut self) -> Step<'static> {
        while self.waiting > 0 {
            self.waiting -= 1;
            let slot = self.candidates[self.waiting];
            // A word read from elsewhere may name anything.
            if (slot.class as usize) < CLASSES {
                let want = self.want_record(slot);
                if self.records_seen >= WALK_CANDIDATES {
                    return Step::Ask(AskReason::TooManyTries);
                }
                if want.bytes >= RECORD_HEADER_BYTES {
                    return Step::Fetch(want);
                }
            }
        }
        match self.overflow.take() {
            Some(_) if self.buckets_seen >= CHAIN_BUCKETS => Step::Ask(AskReason::TooManyTries),
            Some(link) => {
                let offset = link as u64 * SLOT_UNIT_BYTES as u64;
                if offset + BUCKET_BYTES as u64 > self.region_bytes {
                    return Step::Ask(AskReason::TooManyTries);
                }
                Step::Fetch(self.want_bucket(offset))
            }
            None => Step::Ask(AskReason::NotFound),
        }
    }
}

/// Runs a walk over memory that this process maps: another thread of the
/// server, or a test. `scratch` is grown as needed and holds the record;
/// `table` is brought up to date when the walk finds it old.
pub fn walk_locally<'s>(
    memory: &impl Memory,
    table: &mut TableRef,
    key: &[u8],
    hash: KeyHash,
    scratch: &'s mut Vec<u8>,
) -> Result<Verified<'s>, AskReason> {
    let (mut walk, mut want) = Walk::begin(key, hash, table);
    // Bounded: every walk is (limits READ_RETRIES, CHAIN_BUCKETS, WALK_CANDIDATES).
    loop {
        if scratch.len() < want.bytes {
            scratch.resize(want.bytes, 0);
        }
        if !memory.fetch(want.offset, &mut scratch[..want.bytes]) {
            return Err(AskReason::TooManyTries);
        }
        match walk.feed(&scratch[..want.bytes]) {
            Step::Fetch(next) => want = next,
            Step::Ask(reason) => return Err(reason),
            Step::Moved => {
                if let Some(newer) = TableRef::read(table.region, memory) {
                    *table = newer;
                }
                want = walk.refresh(table)?;
            }
            Step::Found(found) => {
                // Ends the borrow of the loop's turn: the record's place in
                // the scratch is known from its lengths.
                let (pointer, mutable) = (found.pointer, found.mutable);
                let end = pointer.length as usize;
                let from = end - found.value.len();
                return Ok(Verified { value: &scratch[from..end], mutable, pointer });
            }
        }
    }
}
