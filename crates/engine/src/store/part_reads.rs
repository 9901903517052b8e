//! Reads of all parts of an object, in turns.
//!
//! Invariant: a read returns the object as it was when the read began. Before a part is changed or
//! released, its bucket is copied for the reads that have not returned it yet. The copies for all
//! reads of a shard are bounded and count in its memory: beyond the bound, the shard breaks off the
//! read with the largest copies, so that a slow reader stops no writer.

use remora_arena::{Journal, Owner, Slot};
use remora_index::hash::{Table, record_field, record_key, record_value};
use remora_layout::hash::KeyHash;
use remora_layout::limits::{PARTS_TURN_BUCKETS, PARTS_TURN_BYTES, SLOT_UNIT_BYTES};
use remora_layout::packed::Field;
use remora_protocol::message::Status;
use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

/// Appends a part in the form that a read in turns returns.
pub(crate) type Write = fn(name: &[u8], value: Field<'_>, found: &mut Vec<u8>);

/// A read of all parts of an object, as they were when it began.
pub(crate) struct PartsRead {
    /// The object's root record.
    pub root: Slot,
    reading: Arc<Mutex<Reading>>,
}

/// How far a read has come.
struct Reading {
    /// Buckets when it began.
    buckets: u64,
    /// The first of them that was not begun yet.
    next: u64,
    /// The one before it, and its parts that are still to be given.
    current: Vec<u32>,
    kept: Kept,
    write: Write,
}

/// The copies for a read.
struct Kept {
    /// Lists of about a turn's bytes.
    lists: VecDeque<Vec<u8>>,
    /// The buckets behind the current one that are kept already.
    ahead: BTreeSet<u64>,
    /// The bytes of both.
    bytes: u64,
    /// The sum over all reads of the shard.
    total: Arc<AtomicU64>,
    /// The copies became so large that the read cannot continue.
    is_broken: bool,
}

/// Bytes of a bucket in [`Kept::ahead`]: its number, in a set whose nodes are half full.
const AHEAD_BYTES: i64 = 24;

/// The copies for the reads of one shard.
#[derive(Default)]
pub(crate) struct PartReads {
    all: Vec<Weak<Mutex<Reading>>>,
    /// The length of `all` at which those that have ended are taken out.
    tidy_at: usize,
    bytes: Arc<AtomicU64>,
}

/// The slots of the parts in one bucket's chain.
pub(super) fn in_bucket<J: Journal>(table: &Table, owner: &Owner<J>, bucket: u64) -> Vec<u32> {
    table.places(owner, bucket).into_iter().map(|(_, slot)| slot.slot).collect()
}

/// The slots of the parts that a bucket contained at that number of buckets.
fn came_from<J: Journal>(
    table: &Table,
    owner: &Owner<J>,
    (bucket, buckets): (u64, u64),
) -> impl Iterator<Item = u32> {
    let buckets = table.came_from(bucket, buckets);
    buckets.flat_map(move |bucket| in_bucket(table, owner, bucket))
}

fn lock(reading: &Mutex<Reading>) -> MutexGuard<'_, Reading> {
    reading.lock().expect("no thread panics while holding it")
}

impl Kept {
    /// The list that more is appended to, by `add`.
    fn add(&mut self, add: impl FnOnce(&mut Vec<u8>)) {
        if self.lists.back().is_none_or(|last| last.len() >= PARTS_TURN_BYTES) {
            self.lists.push_back(Vec::new());
        }
        let last = self.lists.back_mut().expect("it was just made");
        let before = last.len();
        add(last);
        let added = last.len() - before;
        self.count(added as i64);
    }

    fn take(&mut self) -> Option<Vec<u8>> {
        let first = self.lists.pop_front()?;
        self.count(-(first.len() as i64));
        Some(first)
    }

    /// Notes that a bucket is kept. False if it was already.
    fn add_bucket(&mut self, bucket: u64) -> bool {
        let is_new = self.ahead.insert(bucket);
        if is_new {
            self.count(AHEAD_BYTES);
        }
        is_new
    }

    /// Whether a bucket was kept; from now on it is not.
    fn take_bucket(&mut self, bucket: u64) -> bool {
        let was_kept = self.ahead.remove(&bucket);
        if was_kept {
            self.count(-AHEAD_BYTES);
        }
        was_kept
    }

    fn count(&mut self, bytes: i64) {
        self.bytes = self.bytes.wrapping_add_signed(bytes);
        self.total.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    fn clear(&mut self) {
        self.lists.clear();
        self.ahead.clear();
        self.count(-(self.bytes as i64));
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.clear();
    }
}

impl Reading {
    /// The parts of a hash's bucket that the read has not returned yet.
    fn ungiven<J: Journal>(&self, table: &Table, owner: &Owner<J>, hash: KeyHash) -> Vec<u32> {
        let bucket = hash.bucket(self.buckets);
        if self.kept.is_broken || bucket + 1 < self.next || self.kept.ahead.contains(&bucket) {
            Vec::new()
        } else if bucket + 1 == self.next {
            self.current.clone()
        } else {
            came_from(table, owner, (bucket, self.buckets)).collect()
        }
    }

    /// Keeps these parts, all that is not given yet of the bucket that a hash leads to.
    fn keep<J: Journal>(&mut self, owner: &Owner<J>, hash: KeyHash, slots: &[u32]) {
        if self.kept.is_broken {
            return;
        }
        let bucket = hash.bucket(self.buckets);
        if bucket + 1 == self.next {
            self.keep_current(owner);
        } else if bucket >= self.next && self.kept.add_bucket(bucket) {
            slots.iter().for_each(|&slot| give(owner, slot, self.write, &mut self.kept));
        }
    }

    fn keep_current<J: Journal>(&mut self, owner: &Owner<J>) {
        self.current.drain(..).for_each(|slot| give(owner, slot, self.write, &mut self.kept));
    }

    fn break_off(&mut self) {
        self.kept.clear();
        self.kept.is_broken = true;
    }
}

fn give<J: Journal>(owner: &Owner<J>, slot: u32, write: Write, kept: &mut Kept) {
    kept.add(|list| write(record_key(owner, slot), record_field(owner, slot), list));
}

impl PartReads {
    /// Bytes that are kept for reads.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Takes a read in.
    fn add(&mut self, reading: &Arc<Mutex<Reading>>) {
        if self.all.len() >= self.tidy_at {
            self.all.retain(|reading| reading.strong_count() > 0);
            self.tidy_at = 2 * self.all.len() + 16;
        }
        self.all.push(Arc::downgrade(reading));
    }

    /// Breaks reads off until no more than `most` bytes are kept.
    fn bound(&mut self, most: u64) {
        while self.bytes() > most {
            let alive = self.all.iter().filter_map(Weak::upgrade);
            let Some(longest) = alive.max_by_key(|reading| lock(reading).kept.bytes) else {
                return;
            };
            lock(&longest).break_off();
        }
    }

    /// Begins a read of all parts of an object as they are now.
    pub fn begin(
        &mut self,
        (root, table): (Slot, &Table),
        of_object: &mut Readings,
        write: Write,
    ) -> PartsRead {
        let total = Arc::clone(&self.bytes);
        let (lists, ahead) = (VecDeque::new(), BTreeSet::new());
        let kept = Kept { lists, ahead, bytes: 0, total, is_broken: false };
        let reading = Arc::new(Mutex::new(Reading {
            buckets: table.buckets(),
            next: 0,
            current: Vec::new(),
            kept,
            write,
        }));
        of_object.0.push(Arc::downgrade(&reading));
        self.add(&reading);
        PartsRead { root, reading }
    }
}

/// The reads of one object.
#[derive(Default)]
pub(super) struct Readings(Vec<Weak<Mutex<Reading>>>);

impl Readings {
    /// Copies the bucket of a part with this hash for the reads that have not returned it yet. The
    /// caller calls it before that part is changed, moved or removed. The copies of all reads stay
    /// within `most` bytes: before a new copy another one is dropped, or the read itself is broken
    /// off.
    pub fn keep<J: Journal>(
        &mut self,
        (table, owner): (&Table, &Owner<J>),
        hash: KeyHash,
        (all, most): (&mut PartReads, u64),
    ) {
        self.0.retain(|reading| {
            let Some(reading) = reading.upgrade() else { return false };
            let slots = lock(&reading).ungiven(table, owner, hash);
            let of_part = |slot| record_key(owner, slot).len() + record_value(owner, slot).len();
            let bytes: u64 = slots.iter().map(|&slot| of_part(slot) as u64).sum();
            all.bound(most.saturating_sub(bytes));
            if all.bytes() + bytes > most {
                lock(&reading).break_off();
            }
            lock(&reading).keep(owner, hash, &slots);
            true
        });
    }

    /// The same for a part that only moves, out of this slot.
    pub fn keep_moving<J: Journal>(&self, owner: &Owner<J>, slot: u32) {
        for reading in self.0.iter().filter_map(Weak::upgrade) {
            let mut reading = lock(&reading);
            if reading.current.contains(&slot) {
                reading.keep_current(owner);
            }
        }
    }
}

impl PartsRead {
    /// Continues: appends to `found` until that has this many bytes, or the read has looked at
    /// [`PARTS_TURN_BUCKETS`]. True at its end. Without a table the object is gone, and its release
    /// has kept the rest.
    ///
    /// # Errors
    /// Too much has changed since it began.
    pub fn go_on<J: Journal>(
        &self,
        owner: &Owner<J>,
        table: Option<&Table>,
        found: &mut Vec<u8>,
        bytes: usize,
    ) -> Result<bool, Status> {
        let mut reading = lock(&self.reading);
        if reading.kept.is_broken {
            return Err(Status::Outrun);
        }
        while found.len() < bytes
            && let Some(list) = reading.kept.take()
        {
            found.extend_from_slice(&list);
        }
        let mut buckets = 0;
        while found.len() < bytes
            && let Some(table) = table
        {
            if let Some(slot) = reading.current.pop() {
                (reading.write)(record_key(owner, slot), record_field(owner, slot), found);
            } else if reading.next < reading.buckets && buckets < PARTS_TURN_BUCKETS {
                let bucket = reading.next;
                reading.next += 1;
                buckets += 1;
                if !reading.kept.take_bucket(bucket) {
                    let slots = came_from(table, owner, (bucket, reading.buckets));
                    reading.current = slots.collect();
                    let offsets =
                        reading.current.iter().map(|&slot| slot as usize * SLOT_UNIT_BYTES);
                    offsets.for_each(|offset| owner.prefetch(offset));
                }
            } else {
                break;
            }
        }
        let is_given = reading.next == reading.buckets && reading.current.is_empty();
        Ok((is_given || table.is_none()) && reading.kept.lists.is_empty())
    }
}
