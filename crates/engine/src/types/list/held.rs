//! The lists of a shard, and one that was found: whole in its record, or of chunks.

use super::dumps::{Change, Dumps};
use super::kept::{Readers, Reads};
use super::matches::Searches;
use crate::store::{Found, Now, Room, Store};
use crate::types::object::{On, find as find_key};
use remora_arena::{ArenaFull, Journal, Owner, Slot, flip_dead, kind_of};
use remora_index::chain::{Chain, Directory, chunk_entries, release_dropped};
use remora_index::hash::record_value;
use remora_layout::chain::{CHAIN_STATE_BYTES, has_links, join_hints, split_hints};
use remora_layout::kind::Kind;
use remora_layout::limits::{CHUNK_ENTRIES, RELEASE_RECORDS};
use remora_layout::link::{self, Linked};
use remora_layout::node::Home;
use remora_layout::record::RECORD_HEADER_BYTES;
use remora_protocol::message::Status;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// The lists of one shard.
#[derive(Default)]
pub(crate) struct Lists {
    /// Those of chunks, by the slots of their root records.
    pub(super) by_root: BTreeMap<u32, Listed>,
    /// Chunks that are released in turns, by the slot of a record that is dead and waits for them.
    dropped: BTreeMap<u32, Dropped>,
    /// Chunks of all lists, and dropped ones.
    pub(super) chunks: u64,
    pub(super) reads: Reads,
    /// Chunks that searches for LREM and LINSERT have looked at.
    pub(super) searched_chunks: u64,
    /// Buffer for encoded entries, and for their lengths.
    pub(super) scratch: Vec<u8>,
    pub(super) lengths: Vec<u32>,
    /// Buffer for a reply's value.
    pub(super) reply: Vec<u8>,
}

/// A list of chunks.
pub(super) struct Listed {
    pub(super) chain: Chain,
    pub(super) readers: Readers,
    pub(super) dumps: Dumps,
    pub(super) searches: Searches,
}

impl Listed {
    /// The list has changed: what goes on in turns has to know.
    pub(super) fn note(&self, change: Change<'_>) {
        self.dumps.note(change);
        self.searches.note(change);
    }
}

/// Chunks that have left a list, and the reads that may still give them.
struct Dropped {
    chunks: Directory,
    readers: Readers,
}

/// A list that was found.
#[derive(Clone, Copy)]
pub(super) enum Held {
    /// Whole in its record.
    Whole(Found),
    /// A root record with chunks.
    Chain(Found),
}

/// The list of a key; none if there is no such key.
pub(super) fn find<J: Journal>(store: &mut Store<J>, on: On<'_>) -> Result<Option<Held>, Status> {
    Ok(find_key(store, on, Kind::LIST)?.map(|found| match store.kind(found).is_root() {
        true => Held::Chain(found),
        false => Held::Whole(found),
    }))
}

/// The encoded entries of a list that lies whole in its record, links with their hints.
pub(super) fn packed_of<J: Journal>(store: &Store<J>, found: Found) -> Cow<'_, [u8]> {
    entries_in(&store.owner, found.slot.slot)
}

/// The same, by the record's slot.
pub(super) fn entries_in<J: Journal>(owner: &Owner<J>, slot: u32) -> Cow<'_, [u8]> {
    let value = record_value(owner, slot);
    let linked = kind_of(owner, slot).has_links().then(|| Linked::of(value)).flatten();
    linked.map_or(Cow::Borrowed(value), |linked| join_hints(linked).into())
}

/// The kind and the value of a record in which a list lies whole that has these entries.
pub(super) fn whole_value<'p>(on: On<'_>, packed: &'p [u8]) -> (Kind, Cow<'p, [u8]>) {
    if !has_links(packed) {
        return (Kind::LIST.whole(), packed.into());
    }
    let ((text, hints), mut value) = (split_hints(packed), Vec::new());
    link::make(&mut value, RECORD_HEADER_BYTES + on.key.len(), &text, &hints);
    (Kind::LIST.whole().linked(), value.into())
}

impl Lists {
    pub(super) fn listed(&self, root: u32) -> &Listed {
        self.by_root.get(&root).expect("a root record has its list")
    }

    /// Makes an empty list of chunks for a key. Nothing leads to it yet.
    pub(super) fn new_chain<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        on: On<'_>,
        expires_at_ms: u64,
    ) -> Result<Slot, ArenaFull> {
        let named = (on.key, on.hash);
        let root = store.new_root(named, Kind::LIST, CHAIN_STATE_BYTES, expires_at_ms, on.now)?;
        let at = store.state_of(root);
        let home = Home { secret: store.options.record_secret, region: store.options.region };
        let chain = Chain::create(&mut store.owner, home, (root, at), CHUNK_ENTRIES);
        let (readers, dumps) = (Readers::default(), Dumps::default());
        let listed = Listed { chain, readers, dumps, searches: Searches::default() };
        self.by_root.insert(root.slot, listed);
        Ok(root)
    }

    /// Takes slots of these bytes. An error leaves no trace.
    pub(super) fn take_slots<J: Journal>(
        store: &mut Store<J>,
        bytes: impl Iterator<Item = usize>,
        now: Now,
    ) -> Result<Vec<Slot>, ArenaFull> {
        let mut slots = Vec::new();
        for bytes in bytes {
            match store.allocate(Room::Record { bytes }, now) {
                Ok(slot) => slots.push(slot),
                Err(full) => {
                    slots.into_iter().for_each(|slot| store.give_back(slot, now));
                    store.shed_thinned(now);
                    return Err(full);
                }
            }
        }
        if !slots.is_empty() {
            store.shed_thinned(now);
        }
        Ok(slots)
    }

    /// Changes a list of chunks, for readers in one step. Chunks that leave it are released: a few at
    /// once, more of them in turns.
    pub(super) fn publish<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        root: u32,
        now: Now,
        change: impl FnOnce(&mut Listed, &mut Store<J>, &mut Directory),
    ) {
        let listed = self.by_root.get_mut(&root).expect("a root record has its list");
        let mut dropped = Directory::default();
        let before = listed.chain.directory().chunks() as u64;
        listed.chain.begin(&mut store.owner);
        change(listed, store, &mut dropped);
        let changed_at = store.last_sequence();
        listed.chain.end(&mut store.owner, changed_at);
        let after = listed.chain.directory().chunks() as u64;
        self.chunks = self.chunks + after + dropped.chunks() as u64 - before;
        if dropped.chunks() > 0 {
            let readers = listed.readers.clone();
            self.drop_chunks(store, Dropped { chunks: dropped, readers }, now);
        }
    }

    fn drop_chunks<J: Journal>(&mut self, store: &mut Store<J>, mut dropped: Dropped, now: Now) {
        if dropped.chunks.chunks() <= RELEASE_RECORDS {
            self.release_dropped(store, &mut dropped, now);
            return;
        }
        // One of them stays until the others are released.
        let at = dropped.chunks.first().expect("there are many");
        let slot = dropped.chunks.get(at).slot;
        dropped.readers.keep(&mut self.reads, slot, chunk_entries(&store.owner, slot));
        dropped.chunks.remove(at);
        self.chunks -= 1;
        let dead = flip_dead(&mut store.owner, slot);
        self.dropped.insert(slot, dropped);
        store.bury_rest(Kind::LIST, dead);
    }

    /// Releases some of these chunks. True once there are none.
    fn release_dropped<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        dropped: &mut Dropped,
        now: Now,
    ) -> bool {
        let Dropped { chunks, readers } = dropped;
        let mut at = chunks.last();
        for _ in 0..RELEASE_RECORDS {
            let Some(here) = at.filter(|_| !readers.is_empty()) else { break };
            let slot = chunks.get(here).slot;
            readers.keep(&mut self.reads, slot, chunk_entries(&store.owner, slot));
            at = chunks.previous(here);
        }
        let before = chunks.chunks();
        let now_s = now.since_start_s;
        let memory = (&mut store.owner, &mut store.slots);
        let ended = release_dropped(memory, chunks, (RELEASE_RECORDS, now_s));
        self.chunks -= (before - chunks.chunks()) as u64;
        ended
    }

    /// Releases some chunks of a list that is gone, or that have left one. True once there are none.
    pub(super) fn release_some<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        root: u32,
        now: Now,
    ) -> bool {
        if let Some(Listed { mut chain, readers, .. }) = self.by_root.remove(&root) {
            let mut chunks = Directory::default();
            chain.take_all(&mut chunks);
            self.dropped.insert(root, Dropped { chunks, readers });
        }
        let Some(mut dropped) = self.dropped.remove(&root) else { return true };
        let ended = self.release_dropped(store, &mut dropped, now);
        if !ended {
            self.dropped.insert(root, dropped);
        }
        ended
    }

    /// Releases a list at once that no key has ever led to.
    pub(super) fn forget<J: Journal>(&mut self, store: &mut Store<J>, root: u32, now: Now) {
        // Bounded by what was just made.
        while !self.release_some(store, root, now) {}
    }

    pub(super) fn audit_all<J: Journal>(&self, store: &Store<J>) -> Result<u64, String> {
        let (mut bytes, mut chunks) = (0, 0);
        for (root, listed) in &self.by_root {
            bytes += match store.is_live(listed.chain.root()) {
                true => listed.chain.audit(&store.owner, &store.slots)?,
                false => listed.chain.bytes(),
            };
            let is_empty = listed.chain.length() == 0;
            if is_empty && !store.moves.is_filling(*root) && !store.moves.is_loading(*root) {
                return Err(format!("a list has no elements: root {root}"));
            }
            chunks += listed.chain.directory().chunks() as u64;
        }
        for dropped in self.dropped.values() {
            let slots = dropped.chunks.iter().map(|place| place.slot);
            bytes += slots
                .map(|slot| store.slots.bytes_of(remora_arena::slot_of(&store.owner, slot)))
                .sum::<u64>();
            chunks += dropped.chunks.chunks() as u64;
        }
        if chunks != self.chunks {
            return Err(format!("lists have {chunks} chunks, the books say {}", self.chunks));
        }
        Ok(bytes)
    }
}
