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

/// The reads of one list that are under way.
#[derive(Clone, Default)]
pub(super) struct Readers(Vec<Weak<Mutex<Chunks>>>);

/// What a read is still to look at.
pub(super) struct Chunks {
    /// Slots of chunks, in the order of the read; 0 for entries that are kept from the start.
    pub left: VecDeque<u32>,
    /// The same slots, once a chunk has changed.
    pub slots: Option<BTreeSet<u32>>,
    /// The entries of chunks that have changed since.
    pub kept: BTreeMap<u32, Box<[u8]>>,
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
    /// Keeps a chunk's entries, if they are still to be looked at.
    fn keep(&mut self, slot: u32, entries: &[u8], most: u64) {
        let left = &self.left;
        let slots = self.slots.get_or_insert_with(|| left.iter().copied().collect());
        if self.is_broken || !slots.remove(&slot) {
            return;
        }
        let bytes = entries.len() as u64;
        if self.total.load(Ordering::Relaxed) + bytes > most {
            self.is_broken = true;
            self.kept = BTreeMap::new();
            self.total.fetch_sub(std::mem::take(&mut self.bytes), Ordering::Relaxed);
            return;
        }
        self.total.fetch_add(bytes, Ordering::Relaxed);
        self.bytes += bytes;
        self.kept.insert(slot, entries.into());
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
