//! What a session knows of locations in the server's memory: each shard's table, and pointers to
//! records, its own or the whole machine's. All of it is a hint: the bytes read there are
//! validated.
//!
//! There is no private cache in front of the shared table: so a pointer that one session found dead
//! disappears for all (HydraDB 4.2.4, H28), and a lookup costs one line either way.

use crate::connection::Connection;
use crate::error::Error;
use crate::options::{Options, PointerCacheKind};
use crate::pointer_cache::{Entry, PointerCache};
use crate::pointer_file::PointerTable;
use crate::pointer_table::SharedPointers;
use remora_index::hash::TableRef;
use remora_layout::database::Database;
use remora_layout::hash::KeyHash;
use remora_layout::limits::{LEASE_CONFIG_MAX_S, LEASE_MIN_S, MAX_KEY_BYTES};
use remora_layout::node::Home;
use remora_layout::pointer::RemotePointer;
use remora_layout::pointer_table::Hint;
use remora_layout::record::MAX_RECORD_BYTES;
use remora_layout::slot::SlotTable;
use std::sync::Arc;

/// The session's knowledge of one shard's memory.
pub(crate) struct ShardView {
    /// The shard's table, as last fetched.
    pub table: TableRef,
    /// Sequence up to which its changes were durable at the last READ.
    pub durable: u64,
}

impl ShardView {
    /// The identity that validates the nodes of its trees.
    pub fn home(&self) -> Home {
        Home { secret: self.table.secret, region: self.table.region }
    }
}

/// See the module's text.
pub(crate) struct Directory {
    /// The database of the session's keys.
    pub database: Database,
    pub hash_seed: u64,
    /// The shard of each slot; `None` if one shard has all.
    slots: Option<Arc<SlotTable>>,
    pub shards: Vec<ShardView>,
    pointers: Pointers,
    /// Minimum duration that the session assumes for pointer leases (benches only).
    least_term_ms: u64,
}

impl Directory {
    /// The knowledge at the start of a session.
    pub fn new(connection: &Connection, options: &Options) -> Self {
        let view = |table: &TableRef| ShardView {
            durable: if table.lags { 0 } else { u64::MAX },
            table: table.clone(),
        };
        Self {
            database: options.database,
            hash_seed: connection.hash_seed,
            slots: connection.slots.clone(),
            shards: connection.tables.iter().map(view).collect(),
            pointers: Pointers::of_session(options, connection.pointer_table.as_ref()),
            least_term_ms: options.lease.map_or(0, |least| least.as_millis() as u64),
        }
    }

    /// A key's hash and its shard, by the server's table (H1).
    #[inline(always)]
    pub fn locate(&self, key: &[u8]) -> Result<(KeyHash, usize), Error> {
        if key.len() > MAX_KEY_BYTES {
            return Err(Error::KeyTooLong);
        }
        let hash = KeyHash::within(self.database, key, self.hash_seed);
        Ok((hash, self.slots.as_ref().map_or(0, |slots| slots.shard_of(key))))
    }

    /// Prefetches the first line of this hash's pointer.
    #[inline(always)]
    pub fn prefetch(&self, hash: KeyHash) {
        self.pointers.prefetch(hash);
    }

    /// The known pointer of a key at this shard, if a READ through it lies in the shard's arena:
    /// another process may have written any pointer; the session checked its own when it kept them.
    #[inline(always)]
    pub fn find_pointer(&mut self, hash: KeyHash, shard: usize) -> Option<Entry> {
        let entry = self.pointers.find(hash)?;
        let region = self.shards[shard].table.region;
        let is_own = matches!(self.pointers, Pointers::Private(_));
        let may_be = is_own || self.is_readable(entry.pointer(region), shard);
        (entry.is_into(region) && may_be).then_some(entry)
    }

    /// Whether the client can follow a pointer of a key of this shard.
    #[inline(always)]
    pub fn is_readable(&self, pointer: RemotePointer, shard: usize) -> bool {
        pointer.is_some()
            && pointer.region == self.shards[shard].table.region
            && pointer.length as usize <= MAX_RECORD_BYTES
            && self.shards[shard].table.holds(pointer)
    }

    /// Keeps a pointer. Its lease counts from before the request was sent; a pointer without a
    /// lease is kept for the shortest term, as a hint.
    pub fn remember(
        &mut self,
        (hash, shard): (KeyHash, usize),
        pointer: RemotePointer,
        lease_ms: u64,
        from_ns: u64,
    ) {
        if !self.is_readable(pointer, shard) {
            return;
        }
        let term_ms = if lease_ms == 0 { LEASE_MIN_S * 1000 } else { lease_ms };
        self.pointers.put(hash, pointer, term_ms.max(self.least_term_ms), from_ns);
    }

    /// Pointers in a cache of the session's own.
    pub fn known_pointers(&self) -> usize {
        match &self.pointers {
            Pointers::Private(cache) => cache.pointers(),
            Pointers::Shared(_) => 0,
        }
    }

    /// Forgets the pointer of this hash: a write of this session invalidates it.
    #[inline]
    pub fn forget(&mut self, hash: KeyHash) {
        self.pointers.remove(hash);
    }

    /// Forgets a pointer that was found dead.
    #[inline]
    pub fn forget_dead(&mut self, hash: KeyHash, pointer: RemotePointer) {
        self.pointers.forget_dead(hash, pointer);
    }

    /// Forgets a pointer whose lease ended then, unless it has been renewed.
    #[inline]
    pub fn forget_expired(&mut self, hash: KeyHash, pointer: RemotePointer, lease_end_ns: u64) {
        self.pointers.forget_expired(hash, pointer, lease_end_ns);
    }
}

/// The pointers that a session knows.
enum Pointers {
    /// Its own.
    Private(PointerCache),
    /// The machine's.
    Shared(SharedPointers),
}

impl Pointers {
    /// As the options say. `table` is the connection's, if it has one.
    ///
    /// # Panics
    /// Shared pointers without a table: connecting has refused that.
    fn of_session(options: &Options, table: Option<&PointerTable>) -> Self {
        match options.pointer_cache {
            PointerCacheKind::Off => Self::Private(PointerCache::new(0)),
            PointerCacheKind::Private => {
                Self::Private(PointerCache::new(options.pointer_cache_entries))
            }
            PointerCacheKind::Shared => {
                let table = table.expect("looked for when the client connected");
                Self::Shared(SharedPointers::new(table.words.clone(), table.seed))
            }
        }
    }

    /// Prefetches the hash's first line.
    #[inline(always)]
    fn prefetch(&self, hash: KeyHash) {
        match self {
            Self::Private(cache) => cache.prefetch(hash),
            Self::Shared(table) => table.prefetch(hash),
        }
    }

    /// The pointer of this hash. In the shared table another process may have written anything.
    #[inline(always)]
    fn find(&mut self, hash: KeyHash) -> Option<Entry> {
        match self {
            Self::Private(cache) => cache.find(hash).map(|entry| *entry),
            Self::Shared(table) => table.find(hash),
        }
    }

    /// Keeps a pointer for a term that counts from `from_ns`.
    fn put(&mut self, hash: KeyHash, pointer: RemotePointer, term_ms: u64, from_ns: u64) {
        match self {
            Self::Private(cache) => {
                cache.put(hash, pointer, term_ms, from_ns + term_ms * 1_000_000);
            }
            Self::Shared(table) => {
                let term_ms = term_ms.min(LEASE_CONFIG_MAX_S * 1000);
                let lease_end_ns = from_ns + term_ms * 1_000_000;
                table.put(&Hint { hash, pointer, lease_end_ns, term_ms }, from_ns);
            }
        }
    }

    /// Forgets the pointer of this hash: a write of this session invalidates it.
    #[inline]
    fn remove(&mut self, hash: KeyHash) {
        match self {
            Self::Private(cache) => cache.remove(hash),
            Self::Shared(table) => table.remove(hash),
        }
    }

    /// Forgets a pointer that was found dead.
    #[inline]
    fn forget_dead(&mut self, hash: KeyHash, pointer: RemotePointer) {
        match self {
            Self::Private(cache) => cache.remove(hash),
            Self::Shared(table) => table.forget(hash, pointer, u64::MAX),
        }
    }

    /// Forgets a pointer whose lease ended then, unless it has been renewed.
    #[inline]
    fn forget_expired(&mut self, hash: KeyHash, pointer: RemotePointer, lease_end_ns: u64) {
        match self {
            Self::Private(cache) => cache.remove(hash),
            Self::Shared(table) => table.forget(hash, pointer, lease_end_ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remora_arena::{Mapping, Words};
    use remora_layout::limits::{CACHE_LINE_BYTES, POINTER_WINDOW_LINES};

    const HASH: KeyHash = KeyHash(77);

    fn pointer(slot: u32) -> RemotePointer {
        RemotePointer { region: 2, slot, length: 80, generation: 9 }
    }

    fn both() -> [Pointers; 2] {
        let words = Words::new(Mapping::heap(POINTER_WINDOW_LINES * CACHE_LINE_BYTES));
        [Pointers::Private(PointerCache::new(16)), Pointers::Shared(SharedPointers::new(words, 5))]
    }

    fn seen(pointers: &mut Pointers) -> Option<(RemotePointer, u64)> {
        pointers.find(HASH).map(|entry| (entry.pointer(2), entry.lease_end_ns()))
    }

    #[test]
    fn a_pointer_is_kept_for_its_term_until_it_is_forgotten() {
        for mut pointers in both() {
            let keep = |pointers: &mut Pointers| {
                pointers.put(HASH, pointer(3), 4_000, 500);
                assert_eq!(seen(pointers), Some((pointer(3), 4_000_000_500)));
            };
            assert_eq!(seen(&mut pointers), None);
            keep(&mut pointers);
            pointers.remove(HASH);
            assert_eq!(seen(&mut pointers), None);
            keep(&mut pointers);
            pointers.forget_dead(HASH, pointer(3));
            assert_eq!(seen(&mut pointers), None);
            keep(&mut pointers);
            pointers.forget_expired(HASH, pointer(3), 4_000_000_500);
            assert_eq!(seen(&mut pointers), None);
        }
    }

    #[test]
    fn a_shared_pointer_that_was_renewed_stays_and_no_term_is_endless() {
        let [_, mut shared] = both();
        shared.put(HASH, pointer(3), u64::MAX, 10);
        let longest = LEASE_CONFIG_MAX_S * 1_000_000_000;
        assert_eq!(seen(&mut shared), Some((pointer(3), longest + 10)));
        shared.forget_expired(HASH, pointer(3), longest + 9);
        shared.forget_dead(HASH, pointer(4));
        assert_eq!(seen(&mut shared), Some((pointer(3), longest + 10)));
    }
}
