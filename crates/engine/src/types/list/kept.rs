//! What is kept of lists for reads in turns.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Bytes that are kept for the reads of all lists of a shard.
#[derive(Default)]
pub(super) struct Reads {
    pub bytes: Arc<AtomicU64>,
    /// The most that may be.
    pub most: u64,
}

/// Bytes on the heap for a chunk that a read is still to look at: its places in the order and in the
/// set, whose nodes are half full at least.
const SLOT_BYTES: u64 = 16;

/// The reads of one list that are under way.
#[derive(Clone, Default)]
pub(super) struct Readers(Vec<Weak<Mutex<Chunks>>>);

/// What a read is still to look at.
pub(super) struct Chunks {
    /// Slots of chunks, in the order of the read; 0 for entries that are kept from the start.
    pub left: VecDeque<u32>,
    /// The same slots.
    pub slots: BTreeSet<u32>,
    /// The entries of chunks that have changed since.
    pub kept: BTreeMap<u32, Box<[u8]>>,
    /// Bytes of all this, which count in `total` too.
    pub bytes: u64,
    pub total: Arc<AtomicU64>,
    pub is_broken: bool,
}

pub(super) fn lock(chunks: &Mutex<Chunks>) -> MutexGuard<'_, Chunks> {
    chunks.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Chunks {
    fn drop(&mut self) {
        self.total.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Chunks {
    /// What a read of chunks is to look at, in this order. It is broken off at once if there is no
    /// room for that.
    pub fn new(left: VecDeque<u32>, reads: &Reads) -> Self {
        let total = Arc::clone(&reads.bytes);
        let (slots, kept) = (BTreeSet::new(), BTreeMap::new());
        let mut chunks = Self { left, slots, kept, bytes: 0, total, is_broken: false };
        if chunks.charge(chunks.left.len() as u64 * SLOT_BYTES, reads.most) {
            chunks.slots = chunks.left.iter().copied().collect();
        }
        chunks
    }

    /// Counts bytes more, or breaks the read off if there is no room for them. Whether there is.
    fn charge(&mut self, bytes: u64, most: u64) -> bool {
        if self.total.load(Ordering::Relaxed) + bytes > most {
            self.is_broken = true;
            (self.left, self.slots) = (VecDeque::new(), BTreeSet::new());
            self.kept = BTreeMap::new();
            self.total.fetch_sub(std::mem::take(&mut self.bytes), Ordering::Relaxed);
            return false;
        }
        self.total.fetch_add(bytes, Ordering::Relaxed);
        self.bytes += bytes;
        true
    }

    /// Keeps a chunk's entries, if they are still to be looked at.
    fn keep(&mut self, slot: u32, entries: &[u8], most: u64) {
        if self.slots.remove(&slot) && self.charge(entries.len() as u64, most) {
            self.kept.insert(slot, entries.into());
        }
    }
}

impl Readers {
    /// Whether no read is under way.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Keeps a chunk's entries for the reads that have not looked at them yet.
    pub fn keep(&mut self, reads: &mut Reads, slot: u32, entries: &[u8]) {
        self.0.retain(|chunks| {
            let Some(chunks) = chunks.upgrade() else { return false };
            lock(&chunks).keep(slot, entries, reads.most);
            true
        });
    }

    /// A read begins.
    pub fn add(&mut self, chunks: &Arc<Mutex<Chunks>>) {
        self.0.retain(|chunks| chunks.strong_count() > 0);
        self.0.push(Arc::downgrade(chunks));
    }
}
