//! The reader's side of the hash index: bucket, then record (a cold GET).
//!
//! A walk concludes only with a record that passed every check. It never concludes absence: it
//! would miss a key that moved between two fetches. In that case, and when it reaches a bound, the
//! caller asks the owner. A walk whose view of the table is too old for its key says so, and
//! continues with a newer one.
//!
//! A walk may begin at a *hint*: a word as a bucket has it, which came with a link
//! ([`remora_layout::link`]) or from a cache. Such a word may be any 64 bits. Its slot and class
//! are bounded by the region, and the record that it leads to counts only if it passes every check
//! that a record behind a bucket passes, the full key above all. Otherwise the hint is *stale*, and
//! the walk goes on with the bucket.

use super::view::{Home, TableRef};
use remora_arena::{CLASSES, class_bytes};
use remora_layout::bucket::{BUCKET_BYTES, BUCKET_SLOTS, BucketHeader, BucketSlot};
use remora_layout::hash::KeyHash;
use remora_layout::kind::Kind;
use remora_layout::limits::{CHAIN_BUCKETS, READ_RETRIES, SLOT_UNIT_BYTES, WALK_CANDIDATES};
use remora_layout::pointer::RemotePointer;
use remora_layout::record::{
    MAX_RECORD_BYTES, Mutable, RECORD_HEADER_BYTES, Reject, Verified, Wanted, verify,
};
use remora_walk::local::{self, Unwatched};
use remora_walk::{End, Memory, Proof, Step, Walk, What};

/// Why reading did not conclude.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AskReason {
    /// The walk found no record of the key; only the owner says "absent".
    NotFound,
    /// The record is not yet as durable as configured, or changed in place.
    Pending,
    /// The record is of another kind than the walk demands.
    OtherKind,
    /// The walk reached a bound.
    TooManyTries,
}

/// The record that a lookup found, in the bytes that it received last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Found {
    /// Where the record lies; the length is the record's own.
    pub pointer: RemotePointer,
    /// Word 1 as it was read.
    pub mutable: Mutable,
    /// The record's own kind.
    pub kind: Kind,
    /// Where the value begins.
    value_from: usize,
    /// Its bytes, without hints of links.
    pub value_bytes: usize,
    /// Bytes fetched: the record, and behind it the rest of its slot.
    pub fetched_bytes: usize,
}

impl Found {
    /// The start of the value.
    #[inline(always)]
    pub fn value_from(&self) -> usize {
        self.value_from
    }

    /// The record, in the bytes that the lookup received last.
    #[inline(always)]
    pub fn record<'b>(&self, bytes: &'b [u8]) -> Verified<'b> {
        let Self { pointer, mutable, kind, value_from, value_bytes, .. } = *self;
        Verified { value: &bytes[value_from..][..value_bytes], value_from, mutable, pointer, kind }
    }
}

/// The kind of a lookup's want.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LookupTarget {
    /// A bucket.
    Bucket,
    /// The record that a bucket's word names.
    Record(BucketSlot),
}

/// A want of a lookup, in its table's region.
pub type Want = remora_walk::Want<LookupTarget>;

/// READs of the record that a hint names. One that is torn is read once more: bytes that are torn
/// twice are hardly a record that is being written, but a slot that now belongs to other data.
const HINT_READS: u32 = 2;

/// One lookup of one key, for a record of one kind.
#[derive(Clone)]
pub struct Lookup<'k> {
    key: &'k [u8],
    kind: Kind,
    hash: KeyHash,
    region: u32,
    region_bytes: u64,
    secret: u64,
    home: Home,
    /// Offset, length and target of the next want.
    next: Option<(u64, usize, LookupTarget)>,
    candidates: [BucketSlot; BUCKET_SLOTS],
    waiting: usize,
    overflow: Option<u32>,
    buckets_seen: usize,
    records_seen: usize,
    /// READs of the record that the hint names.
    hint_reads: u32,
    /// The next want is that record.
    is_at_hint: bool,
    is_hint_stale: bool,
    retries: u32,
}

impl<'k> Lookup<'k> {
    /// A walk to the key's record of this kind.
    #[inline]
    pub fn begin(key: &'k [u8], hash: KeyHash, kind: Kind, table: &TableRef) -> Self {
        let home = table.home(hash);
        let none = BucketSlot { slot: 0, class: 0, generation_low: 0, signature: 0 };
        Self {
            key,
            kind,
            hash,
            region: table.region,
            region_bytes: table.region_bytes,
            secret: table.secret,
            home,
            next: Some((home.offset, BUCKET_BYTES, LookupTarget::Bucket)),
            candidates: [none; BUCKET_SLOTS],
            waiting: 0,
            overflow: None,
            buckets_seen: 0,
            records_seen: 0,
            hint_reads: 0,
            is_at_hint: false,
            is_hint_stale: false,
            retries: 0,
        }
    }

    /// A walk to the key's record of this kind that begins at a hint, see the module's text; 0 is no
    /// hint.
    ///
    /// ```
    /// # use remora_index::hash::{Lookup, TableRef};
    /// # use remora_layout::{hash::KeyHash, kind::Kind};
    /// # fn example(table: &TableRef, hint: u64) {
    /// let hash = KeyHash::of(b"person:7", 0);
    /// let walk = Lookup::begin_at(b"person:7", hash, Kind::ANY, table, hint);
    /// // One READ if the hint is good; otherwise that one, a bucket and a record.
    /// # let _ = walk;
    /// # }
    /// ```
    #[inline]
    pub fn begin_at(key: &'k [u8], hash: KeyHash, kind: Kind, table: &TableRef, hint: u64) -> Self {
        let mut lookup = Self::begin(key, hash, kind, table);
        let slot = BucketSlot::from_word(hint);
        if hint == 0 {
            return lookup;
        }
        // A word with another signature was never that of this key.
        lookup.is_at_hint = slot.signature == hash.signature() && lookup.may_be_record(slot);
        lookup.is_hint_stale = !lookup.is_at_hint;
        if lookup.is_at_hint {
            let (offset, bytes) = lookup.record_range(slot);
            lookup.next = Some((offset, bytes, LookupTarget::Record(slot)));
        }
        lookup
    }

    /// The wanted key or name.
    pub fn key(&self) -> &'k [u8] {
        self.key
    }

    /// Buckets and records fetched so far.
    pub fn nodes(&self) -> usize {
        self.buckets_seen + self.records_seen + self.hint_reads as usize
    }

    /// Whether the walk began at a hint that did not lead to the key's record.
    pub fn is_hint_stale(&self) -> bool {
        self.is_hint_stale
    }

    fn take_bucket(&mut self, bytes: &[u8]) -> Step<Found, AskReason> {
        self.buckets_seen += 1;
        let word = |index: usize| {
            let word = bytes.get(index * 8..index * 8 + 8)?;
            Some(u64::from_le_bytes(word.try_into().expect("eight bytes")))
        };
        let header = BucketHeader(word(0).unwrap_or(0));
        if self.home.is_left(header, self.hash) {
            return Step::Restart;
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

    fn take_record(&mut self, slot: BucketSlot, bytes: &[u8]) -> Step<Found, AskReason> {
        let is_hinted = std::mem::take(&mut self.is_at_hint);
        self.hint_reads += u32::from(is_hinted);
        self.records_seen += usize::from(!is_hinted);
        let wanted = Wanted { kind: self.kind, database: self.hash.database() };
        match verify(bytes, self.secret, self.region, slot.slot, None, wanted, self.key) {
            Ok(found) if found.pointer.generation as u8 == slot.generation_low => {
                let Verified { value, value_from, mutable, pointer, kind } = found;
                Step::Found(Found {
                    pointer,
                    mutable,
                    kind,
                    value_from,
                    value_bytes: value.len(),
                    fetched_bytes: bytes.len(),
                })
            }
            Err(Reject::Torn) if is_hinted && self.hint_reads < HINT_READS => {
                self.is_at_hint = true;
                self.fetch_record(slot)
            }
            // Whatever else is there: it need not have to do with the key.
            _ if is_hinted => {
                self.is_hint_stale = true;
                self.fetch_home()
            }
            Err(Reject::Pending | Reject::AskOnly) => Step::Ask(AskReason::Pending),
            Err(Reject::OtherKey) => self.next(),
            Err(Reject::OtherKind) => Step::Ask(AskReason::OtherKind),
            // Torn: the same READ again. Dead, or of another generation: the
            // bucket has changed since it was read.
            Err(Reject::Torn) if self.may_retry() => self.fetch_record(slot),
            Err(Reject::Dead) | Ok(_) if self.may_retry() => self.fetch_home(),
            _ => Step::Ask(AskReason::TooManyTries),
        }
    }

    fn may_retry(&mut self) -> bool {
        self.retries += 1;
        self.retries <= READ_RETRIES
    }

    #[inline(always)]
    fn fetch(&mut self, offset: u64, bytes: usize, part: LookupTarget) -> Step<Found, AskReason> {
        self.next = Some((offset, bytes, part));
        Step::More
    }

    fn fetch_bucket(&mut self, offset: u64) -> Step<Found, AskReason> {
        self.fetch(offset, BUCKET_BYTES, LookupTarget::Bucket)
    }

    fn fetch_home(&mut self) -> Step<Found, AskReason> {
        self.waiting = 0;
        self.overflow = None;
        self.is_at_hint = false;
        self.fetch_bucket(self.home.offset)
    }

    fn fetch_record(&mut self, slot: BucketSlot) -> Step<Found, AskReason> {
        let (offset, bytes) = self.record_range(slot);
        self.fetch(offset, bytes, LookupTarget::Record(slot))
    }

    /// Whether a word can name a record: one from a torn or old bucket, or a hint, may name any slot.
    fn may_be_record(&self, slot: BucketSlot) -> bool {
        (slot.class as usize) < CLASSES && self.record_range(slot).1 >= RECORD_HEADER_BYTES
    }

    fn record_range(&self, slot: BucketSlot) -> (u64, usize) {
        let offset = slot.slot as u64 * SLOT_UNIT_BYTES as u64;
        // The class of a large record may reach beyond its pages, and beyond
        // the region's end.
        let left = self.region_bytes.saturating_sub(offset);
        let most = class_bytes(slot.class).min(MAX_RECORD_BYTES);
        (offset, left.min(most as u64) as usize)
    }

    /// The next candidate, else the next bucket of the chain, else the owner.
    fn next(&mut self) -> Step<Found, AskReason> {
        while self.waiting > 0 {
            self.waiting -= 1;
            let slot = self.candidates[self.waiting];
            if self.may_be_record(slot) {
                if self.records_seen >= WALK_CANDIDATES {
                    return Step::Ask(AskReason::TooManyTries);
                }
                return self.fetch_record(slot);
            }
        }
        match self.overflow.take() {
            Some(_) if self.buckets_seen >= CHAIN_BUCKETS => Step::Ask(AskReason::TooManyTries),
            Some(link) => {
                let offset = link as u64 * SLOT_UNIT_BYTES as u64;
                if offset + BUCKET_BYTES as u64 > self.region_bytes {
                    return Step::Ask(AskReason::TooManyTries);
                }
                self.fetch_bucket(offset)
            }
            None => Step::Ask(AskReason::NotFound),
        }
    }
}

impl Walk for Lookup<'_> {
    type Found = Found;
    type Reason = AskReason;
    type Tag = LookupTarget;
    type Head = TableRef;

    const OUT_OF_REGION: AskReason = AskReason::TooManyTries;

    #[inline(always)]
    fn next_want(&mut self) -> Option<Want> {
        let (offset, bytes, tag) = self.next.take()?;
        let what = if tag == LookupTarget::Bucket { What::Words } else { What::Record };
        Some(Want { offset, bytes, what, tag })
    }

    /// [`Step::Restart`]: the owner has split the key's bucket since the view was made.
    #[inline]
    fn feed(&mut self, want: Want, bytes: &[u8], _: Proof) -> Step<Found, AskReason> {
        match want.tag {
            LookupTarget::Bucket => self.take_bucket(bytes),
            LookupTarget::Record(slot) => self.take_record(slot, bytes),
        }
    }

    /// Begins again with another view of the same table. If the caller got no header page, it calls
    /// this with the old view, so that the number of tries stays bounded.
    fn restart(&mut self, table: &TableRef) -> Result<(), AskReason> {
        if !self.may_retry() {
            return Err(AskReason::TooManyTries);
        }
        self.home = table.home(self.hash);
        self.fetch_home();
        Ok(())
    }

    /// Fetches without a result so far: torn, dead, or of a bucket that the key has left.
    fn retries(&self) -> u32 {
        self.retries
    }
}

/// Looks a key up in memory that this process maps: another thread of the server, or a test. It
/// grows `scratch` as needed, which then holds the record; it refreshes `table` when the walk finds
/// it old.
pub fn walk_locally<'s>(
    memory: &impl Memory,
    table: &mut TableRef,
    key: &[u8],
    hash: KeyHash,
    kind: Kind,
    scratch: &'s mut Vec<u8>,
) -> Result<Verified<'s>, AskReason> {
    let found = find_locally(memory, table, key, hash, kind, scratch)?;
    Ok(found.record(scratch))
}

/// As [`walk_locally`], but returns the record: its location, and its bytes in `scratch`.
pub fn find_locally(
    memory: &impl Memory,
    table: &mut TableRef,
    key: &[u8],
    hash: KeyHash,
    kind: Kind,
    scratch: &mut Vec<u8>,
) -> Result<Found, AskReason> {
    let mut lookup = Lookup::begin(key, hash, kind, table);
    // Bounded: every walk is (limits READ_RETRIES, CHAIN_BUCKETS, WALK_CANDIDATES).
    loop {
        match local::run(&mut lookup, memory, &mut Unwatched, scratch) {
            End::Found(found) => return Ok(found),
            End::Ask(reason) => return Err(reason),
            End::Restart | End::Stale | End::Beyond => {
                if let Some(newer) = TableRef::read(table.region, memory) {
                    *table = newer;
                }
                lookup.restart(table)?;
            }
        }
    }
}
