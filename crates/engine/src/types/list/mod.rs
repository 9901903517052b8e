//! Lists. A small one lies whole in its record, as encoded entries
//! ([`remora_layout::chain`]); a larger one has a root record and chunks ([`remora_index::chain`],
//! docs/decisions/0067).
//!
//! Invariant: a list has elements. A list that has become large stays large until it is removed. A
//! change is logged by its result: what is pushed, which range is kept, or the key removed. While a
//! snapshot fills a list, the list is the first elements of what it is to become.

mod change;
mod change_turns;
mod dumps;
mod edit;
mod entries;
mod held;
mod kept;
mod links;
mod matches;
mod other;
mod read;
mod search;
mod transfer;

pub(crate) use held::Lists;

use super::content::Content;
use super::object::{
    ChangeStep, DumpedPart, Listing, LongRead, On, Turn, Type, resume, whole_read,
};
use crate::store::{DumpAt, Now, ShardStats, Store};
use held::{Held, entries_in, find};
use read::Reading;
use remora_arena::{Journal, Slot, kind_of};
use remora_index::chain::Directory;
use remora_index::hash::record_field;
use remora_layout::chain::{TextBuffer, encoded, entries};
use remora_layout::kind::Kind;
use remora_layout::limits::{MAX_INLINE_BYTES, PARTS_TURN_BYTES};
use remora_layout::packed::Field;
use remora_protocol::list::ListCommand;
use remora_protocol::message::Status;
use remora_protocol::{Reply, Request};
use std::sync::atomic::Ordering;

/// Chunks that one step of a digest adds up.
const DIGEST_CHUNKS: usize = 4;

/// Bytes on the heap for a list of chunks, beside the places of those: an entry of a map, the
/// blocks of a short directory, and the places of the last entries.
const LIST_BYTES: u64 = 608;

impl<J: Journal> Type<J> for Lists {
    fn id(&self) -> Kind {
        Kind::LIST
    }

    fn execute<'s>(
        &'s mut self,
        store: &'s mut Store<J>,
        on: On<'_>,
        request: Request<'_>,
    ) -> Reply<'s> {
        let command = ListCommand::of(request);
        self.trim_buffers();
        if let ListCommand::Store { items } = command {
            return self.store(store, on, items);
        }
        let held = match find(store, on) {
            Ok(held) => held,
            Err(status) => return Reply::status(status),
        };
        let at = (on, held);
        match command {
            ListCommand::Push { if_there: true, .. } if held.is_none() => Reply::number(0),
            ListCommand::Push { side, items, .. } => self.push(store, at, side, items),
            ListCommand::Pop { side, count, fits_frame } => {
                self.pop(store, at, side, (count, fits_frame))
            }
            ListCommand::Length => {
                Reply::number(held.map_or(0, |of| self.length(store, of) as i64))
            }
            ListCommand::Index { index } => self.index(store, held, index),
            ListCommand::SetAt { index, value } => self.set_at(store, at, index, value),
            ListCommand::Insert { .. } | ListCommand::Remove { .. } => {
                self.change_at_once(store, on, request)
            }
            ListCommand::Trim { start, stop } => self.trim(store, at, start, stop),
            ListCommand::Keep { from, keep } => self.keep(store, at, from, keep),
            ListCommand::InsertAt { index, value } => self.insert_at(store, at, index, value),
            ListCommand::RemoveAt { indexes } => self.remove_at(store, at, indexes),
            ListCommand::Mend { index, target } => self.mend(store, at, index, target),
            // The log has its two changes instead.
            ListCommand::Move { .. } if store.is_applying => Reply::status(Status::Malformed),
            ListCommand::Move { from, to, other } => {
                self.move_element(store, on, (from, to), other)
            }
            ListCommand::Range { start, stop } => {
                let most_bytes = if request.is_long() { usize::MAX } else { MAX_INLINE_BYTES };
                self.range(store, held, (start, stop), most_bytes)
            }
            ListCommand::Position { .. } | ListCommand::Store { .. } => {
                self.whole_read(store, on, request)
            }
        }
    }

    fn begin_read(
        &mut self,
        store: &mut Store<J>,
        on: On<'_>,
        request: Request<'_>,
    ) -> Result<LongRead, Status> {
        if request.is_write() {
            return Self::begin_change(request);
        }
        let held = find(store, on)?;
        let reading = match ListCommand::of(request) {
            ListCommand::Range { start, stop } => self.begin_range(store, held, start, stop),
            ListCommand::Position { value, how } => self.begin_search(store, held, value, how),
            _ => return Err(Status::Malformed),
        };
        Ok(LongRead::new(Kind::LIST, Box::new(reading)))
    }

    fn read_turn(
        &self,
        store: &Store<J>,
        read: &mut LongRead,
        found: &mut Vec<u8>,
        _now: Now,
    ) -> Result<Turn, Status> {
        let reading: &mut Reading = read.state.downcast_mut().expect("it began here");
        let ended = reading.turn(&store.owner, found, found.len() + PARTS_TURN_BYTES)?;
        let (number, is_counted) = (reading.items(), reading.is_counted());
        Ok(Turn { ended, number, is_counted, gives_value: true, has_doubles: false })
    }

    fn change_turn(
        &mut self,
        store: &mut Store<J>,
        on: On<'_>,
        read: &mut LongRead,
    ) -> Result<ChangeStep, Status> {
        self.look_on(store, on, read)
    }

    fn listing(&self) -> Option<Listing> {
        Some(Listing::Ordered(|start, stop| ListCommand::Range { start, stop }.request()))
    }

    fn release(&mut self, store: &mut Store<J>, root: u32, now: Now) -> bool {
        self.release_some(store, root, now)
    }

    fn bytes_of(&self, _store: &Store<J>, root: u32) -> u64 {
        let chain = &self.listed(root).chain;
        chain.bytes() + Directory::heap_bytes(chain.directory().chunks() as u64) + LIST_BYTES
    }

    fn digest(&self, store: &Store<J>, slot: u32, content: &mut Content) -> bool {
        let mut buffer = TextBuffer::default();
        let mut add = |content: &mut Content, index: u64, bytes: &[u8]| {
            for (number, entry) in entries(bytes).enumerate() {
                let index = index + number as u64;
                let Field { value, is_link } = entry.field(&mut buffer);
                let link: &[u8] = if is_link { b"link" } else { b"" };
                content.add(&[&index.to_le_bytes(), value, link]);
            }
        };
        if kind_of(&store.owner, slot) != Kind::LIST {
            add(content, 0, &entries_in(&store.owner, slot));
            return true;
        }
        let chain = &self.listed(slot).chain;
        let mut index = *resume::<u64>(&mut content.at);
        for _ in 0..DIGEST_CHUNKS {
            let Some((at, number)) = chain.directory().find(index) else { return true };
            // The digest begins again if the list has changed since the last step.
            let first = index - number as u64;
            add(content, first, chain.entries(&store.owner, at));
            index = first + u64::from(chain.directory().get(at).entries);
        }
        content.at = Some(Box::new(index));
        index == chain.length()
    }

    /// Redis 7.0 has one encoding for lists of every size.
    fn encoding(&self, _is_whole: bool) -> &'static str {
        "quicklist"
    }

    fn dump(&self, store: &Store<J>, root: u32, at: &mut DumpAt, piece: &mut Vec<u8>) -> bool {
        self.dump_some(store, root, at, piece)
    }

    fn begin_load(
        &mut self,
        store: &mut Store<J>,
        on: On<'_>,
        _head: &[u8],
    ) -> Result<Slot, Status> {
        let made = self.new_chain(store, on, 0);
        made.map_err(|_| Status::OutOfMemory)
    }

    fn load(
        &mut self,
        store: &mut Store<J>,
        on: On<'_>,
        root: u32,
        piece: &[u8],
    ) -> Result<(), Status> {
        self.load_some(store, on, root, piece)
    }

    fn requests(&self, part: DumpedPart<'_>, each: &mut dyn FnMut(Request<'_>)) -> bool {
        transfer::requests(part, each)
    }

    fn has_whole(&self) -> bool {
        true
    }

    fn with_hints(&self, store: &Store<J>, on: On<'_>, value: &[u8]) -> Option<(Kind, Vec<u8>)> {
        links::with_hints(store, on, value)
    }

    fn audit(&self, store: &Store<J>) -> Result<u64, String> {
        self.audit_all(store)
    }

    fn count(&self, stats: &mut ShardStats) {
        stats.list_chunks_searched += self.searched_chunks;
    }

    fn heap_bytes(&mut self) -> u64 {
        let lists = self.by_root.len() as u64 * LIST_BYTES;
        lists + Directory::heap_bytes(self.chunks)
    }

    fn kept_bytes(&self) -> u64 {
        self.reads.bytes.load(Ordering::Relaxed)
    }
}

impl Lists {
    /// The number of a list's elements.
    fn length<J: Journal>(&self, store: &Store<J>, held: Held) -> u64 {
        match held {
            Held::Whole(found) => {
                encoded(record_field(&store.owner, found.slot.slot).value).count() as u64
            }
            Held::Chain(found) => self.listed(found.slot.slot).chain.length(),
        }
    }

    /// Gives back what the buffers have grown by for the last command, if that was much.
    fn trim_buffers(&mut self) {
        for buffer in [&mut self.reply, &mut self.scratch] {
            if buffer.capacity() > MAX_INLINE_BYTES {
                *buffer = Vec::new();
            }
        }
        if self.lengths.capacity() > MAX_INLINE_BYTES / size_of::<u32>() {
            self.lengths = Vec::new();
        }
    }

    /// Executes a read in turns to its end.
    fn whole_read<'s, J: Journal>(
        &'s mut self,
        store: &mut Store<J>,
        on: On<'_>,
        request: Request<'_>,
    ) -> Reply<'s> {
        let mut found = std::mem::take(&mut self.reply);
        let reply = whole_read(self, store, (on, request), &mut found);
        self.reply = found;
        Reply { value: Some(&self.reply[..]).filter(|_| reply.status == Status::Ok), ..reply }
    }
}
