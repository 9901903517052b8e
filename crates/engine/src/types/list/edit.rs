//! Changes in the middle of lists: LSET, LINSERT, LREM.
//!
//! A chunk in which entries change is written anew in its place if it has room, and otherwise
//! replaced by new ones.

use super::change::{entry_of, index_in, put_whole};
use super::dumps::Change;
use super::entries::entry_bytes;
use super::held::{Held, Listed, Lists, packed_of};
use crate::keys;
use crate::store::Store;
use crate::types::object::On;
use remora_arena::{ArenaFull, Journal, Slot};
use remora_index::chain::{At, Chain, chunk_entries};
use remora_layout::chain::encoded;
use remora_layout::limits::{MAX_KEY_BYTES, WHOLE_ENTRIES, WHOLE_ENTRIES_BYTES};
use remora_protocol::list::ListCommand;
use remora_protocol::message::Status;
use remora_protocol::{Command, Reply};

/// Encoded entries, of which those from `number` on, `gone` many, are replaced.
fn spliced(all: &[u8], number: usize, gone: usize, new: &[u8]) -> Vec<u8> {
    let bytes = |count: usize| encoded(all).take(count).map(<[u8]>::len).sum::<usize>();
    [&all[..bytes(number)], new, &all[bytes(number + gone)..]].concat()
}

impl Lists {
    pub(super) fn set_at<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, held): (On<'_>, Option<Held>),
        index: i64,
        value: &[u8],
    ) -> Reply<'static> {
        let Some(held) = held else { return Reply::status(Status::NotFound) };
        let Some(index) = index_in(self.length(store, held), index) else {
            return Reply::status(Status::NotDone);
        };
        let entry = entry_of(on, ListCommand::SetAt { index: index as i64, value });
        let new = entry_bytes(value);
        let set = match held {
            Held::Whole(found) => {
                let made = spliced(&packed_of(store, found), index as usize, 1, &new);
                self.put(store, (on, held), &made, &entry)
            }
            Held::Chain(found) => {
                let root = found.slot.slot;
                let chain = &self.listed(root).chain;
                let (at, number) = chain.directory().find(index).expect("there is the index");
                let all = chain.entries(&store.owner, at);
                let is_as_long = encoded(all).nth(number).is_some_and(|old| old.len() == new.len());
                if is_as_long {
                    self.keep_chunk(store, root, at);
                    store.commit(on.hash.database(), &entry, |store| {
                        self.publish(store, root, on.now, |listed, store, _| {
                            listed.chain.overwrite(&mut store.owner, (at, number), &new);
                        });
                    });
                    self.listed(root).note(Change::Replaced(index, &new));
                    return Reply::status(Status::Ok);
                }
                let made = spliced(all, number, 1, &new);
                let set = self.rewrite(store, (on, root), (at, &made), &entry);
                if set.is_ok() {
                    self.listed(root).note(Change::Replaced(index, &new));
                }
                set
            }
        };
        Reply::status(set.err().unwrap_or(Status::Ok))
    }

    /// A chunk is about to change.
    fn keep_chunk<J: Journal>(&mut self, store: &Store<J>, root: u32, at: At) {
        let Self { by_root, reads, .. } = self;
        if let Some(Listed { chain, readers, .. }) = by_root.get_mut(&root)
            && !readers.is_empty()
        {
            let slot = chain.directory().get(at).slot;
            readers.keep(reads, slot, chunk_entries(&store.owner, slot));
        }
    }

    /// Writes a list that lies whole in its record anew; it gets chunks if it becomes too large.
    fn put<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, held): (On<'_>, Held),
        made: &[u8],
        entry: &Command<'_>,
    ) -> Result<(), Status> {
        let Held::Whole(found) = held else { unreachable!("it lies whole in its record") };
        if encoded(made).count() <= WHOLE_ENTRIES && made.len() <= WHOLE_ENTRIES_BYTES {
            return put_whole(store, (on, Some(found)), made, entry);
        }
        self.make_chain(store, (on, found.mutable.expires_at_ms), made, entry)
    }

    /// Changes the entries of one chunk.
    fn rewrite<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, root): (On<'_>, u32),
        (at, made): (At, &[u8]),
        entry: &Command<'_>,
    ) -> Result<(), Status> {
        let chain = &self.listed(root).chain;
        let fits = chain.fits((&store.owner, &store.slots), at, made);
        let is_idle = chain.would_be_idle((&store.owner, &store.slots), at, made.len());
        let plan = if fits && !is_idle { Vec::new() } else { chain.plan_replace(made) };
        let (fits, new) = match Self::take_slots(store, plan.iter().map(|of| of.1), on.now) {
            Ok(new) => (plan.is_empty(), new),
            // It stays where it is, although most of its slot is idle.
            Err(ArenaFull { .. }) if fits => (true, Vec::new()),
            Err(ArenaFull { .. }) => return Err(Status::OutOfMemory),
        };
        if fits {
            self.keep_chunk(store, root, at);
        }
        store.commit(on.hash.database(), entry, |store| {
            self.publish(store, root, on.now, |listed, store, dropped| {
                let memory = (&mut store.owner, &store.slots);
                match fits {
                    true => listed.chain.rewrite(memory, at, made),
                    false => listed.chain.replace(memory, at, made, (&plan, &new), dropped),
                }
            });
        });
        Ok(())
    }

    pub(super) fn insert_at<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, held): (On<'_>, Option<Held>),
        index: u64,
        value: &[u8],
    ) -> Reply<'static> {
        let Some(held) = held.filter(|held| index < self.length(store, *held)) else {
            return Reply::status(Status::NotDone);
        };
        if on.key.len() > MAX_KEY_BYTES {
            return Reply::status(Status::TooLarge);
        }
        let entry = entry_of(on, ListCommand::InsertAt { index, value });
        let new = entry_bytes(value);
        let inserted = match held {
            Held::Whole(found) => {
                let made = spliced(&packed_of(store, found), index as usize, 0, &new);
                self.put(store, (on, held), &made, &entry)
            }
            Held::Chain(found) => {
                let root = found.slot.slot;
                let chain = &self.listed(root).chain;
                let (at, number) = chain.directory().find(index).expect("there is the index");
                let made = spliced(chain.entries(&store.owner, at), number, 0, &new);
                let inserted = self.rewrite(store, (on, root), (at, &made), &entry);
                if inserted.is_ok() {
                    self.listed(root).note(Change::Inserted(index, &new));
                }
                inserted
            }
        };
        Reply::status(inserted.err().unwrap_or(Status::Ok))
    }

    pub(super) fn remove_at<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, held): (On<'_>, Option<Held>),
        indexes: &[u8],
    ) -> Reply<'static> {
        let Some(held) = held else { return Reply::status(Status::NotDone) };
        let length = self.length(store, held);
        let there: Vec<u32> =
            ListCommand::indexes(indexes).take_while(|&index| u64::from(index) < length).collect();
        if there.is_empty() {
            return Reply::status(Status::NotDone);
        }
        let entry = entry_of(on, ListCommand::RemoveAt { indexes });
        let is_filling =
            matches!(held, Held::Chain(found) if store.moves.is_filling(found.slot.slot));
        if there.len() as u64 == length && !is_filling {
            keys::del(store, on);
            return Reply::status(Status::Ok);
        }
        match held {
            Held::Whole(found) => {
                let mut gone = there.iter().copied().peekable();
                let all = packed_of(store, found);
                let all = encoded(&all).enumerate();
                let kept = all.filter(|(index, _)| gone.next_if_eq(&(*index as u32)).is_none());
                let made: Vec<u8> = kept.flat_map(|(_, entry)| entry).copied().collect();
                let put = put_whole(store, (on, Some(found)), &made, &entry);
                Reply::status(put.err().unwrap_or(Status::Ok))
            }
            Held::Chain(found) => {
                let root = found.slot.slot;
                store.commit(on.hash.database(), &entry, |store| {
                    self.remove_from_chain(store, (on, root), &there);
                });
                self.listed(root).note(Change::Removed(&there));
                Reply::status(Status::Ok)
            }
        }
    }

    /// Removes entries from chunks, in their places: this needs no memory. Chunks without entries
    /// go, and so do those whose entries fit into the chunk before them.
    fn remove_from_chain<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, root): (On<'_>, u32),
        indexes: &[u32],
    ) {
        // From the end, so that the other indexes stay as they are.
        let mut left = indexes;
        let mut chunks: Vec<(u64, usize)> = Vec::new();
        while let Some(&last) = left.last() {
            let directory = self.listed(root).chain.directory();
            let (at, number) = directory.find(last.into()).expect("there is the index");
            let first = u64::from(last) - number as u64;
            let before = left.partition_point(|&index| u64::from(index) < first);
            chunks.push((first, left.len() - before));
            self.keep_chunk(store, root, at);
            left = &left[..before];
        }
        self.publish(store, root, on.now, |listed, store, dropped| {
            let (mut left, mut made) = (indexes, Vec::new());
            for (first, count) in chunks {
                let (others, gone) = left.split_at(left.len() - count);
                left = others;
                let (at, _) = listed.chain.directory().find(first).expect("it was found before");
                let mut gone = gone.iter().map(|&index| u64::from(index) - first).peekable();
                let all = listed.chain.entries(&store.owner, at);
                made.clear();
                for (number, entry) in encoded(all).enumerate() {
                    if gone.next_if_eq(&(number as u64)).is_none() {
                        made.extend_from_slice(entry);
                    }
                }
                let none: (&[_], &[Slot]) = (&[], &[]);
                let memory = (&mut store.owner, &store.slots);
                if made.is_empty() {
                    listed.chain.replace(memory, at, &made, none, dropped);
                    continue;
                }
                let next = next_that_fits(&listed.chain, store, at, &mut made);
                let memory = (&mut store.owner, &store.slots);
                listed.chain.rewrite(memory, at, &made);
                if let Some(next) = next {
                    let memory = (&mut store.owner, &store.slots);
                    listed.chain.replace(memory, next, &[], none, dropped);
                }
            }
        });
    }
}

/// The chunk behind this one, if its entries have room in this one's slot behind those that were made for
/// it: they are added there.
fn next_that_fits<J: Journal>(
    chain: &Chain,
    store: &Store<J>,
    at: At,
    made: &mut Vec<u8>,
) -> Option<At> {
    let next = chain.directory().next(at)?;
    let own = made.len();
    made.extend_from_slice(chain.entries(&store.owner, next));
    if chain.fits((&store.owner, &store.slots), at, made) {
        return Some(next);
    }
    made.truncate(own);
    None
}
