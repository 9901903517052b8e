//! Changes at the ends of lists: planned, logged by their results, published.

use super::dumps::Change;
use super::entries::entry_for;
use super::held::{Held, Listed, Lists, packed_of, whole_value};
use crate::keys;
use crate::store::{Found, New, Store};
use crate::types::object::On;
use remora_arena::{ArenaFull, Journal, Slot, set_state_guardian};
use remora_index::chain::{End, PushPlan, Run, chunk_entries, lengths_of_entries};
use remora_layout::chain::{Entry, TextBuffer, encoded};
use remora_layout::limits::{
    MAX_INLINE_BYTES, MAX_KEY_BYTES, MAX_REPLY_BYTES, WHOLE_ENTRIES, WHOLE_ENTRIES_BYTES,
};
use remora_layout::packed::Field;
use remora_layout::record::State;
use remora_protocol::list::{ListCommand, Side, range};
use remora_protocol::message::Status;
use remora_protocol::{Command, Items, Reply};
use std::borrow::Cow;

/// The end of a chain that a command names.
pub(super) const fn end_of(side: Side) -> End {
    match side {
        Side::Left => End::Front,
        Side::Right => End::Back,
    }
}

/// The index that Redis means, if there is such an element.
pub(super) fn index_in(length: u64, index: i64) -> Option<u64> {
    let index = if index < 0 { index.checked_add(length as i64)? } else { index };
    u64::try_from(index).ok().filter(|index| *index < length)
}

/// The log's entry of a change of a list.
pub(super) fn entry_of<'a>(on: On<'a>, command: ListCommand<'a>) -> Command<'a> {
    Command::Of { key: on.key, request: command.request() }
}

impl Lists {
    pub(super) fn push<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, held): (On<'_>, Option<Held>),
        side: Side,
        items: Items<'_>,
    ) -> Reply<'static> {
        if on.key.len() > MAX_KEY_BYTES {
            return Reply::status(Status::TooLarge);
        }
        let mut encoded = std::mem::take(&mut self.scratch);
        let mut lengths = std::mem::take(&mut self.lengths);
        encode(store, (on, items, side), &mut encoded, &mut lengths);
        let run = Run { bytes: &encoded, lengths: &lengths };
        let entry = entry_of(on, ListCommand::Push { side, if_there: false, items });
        let pushed = match held {
            Some(Held::Chain(found)) => self.push_chain(store, (on, found), (side, run), &entry),
            Some(Held::Whole(found)) => {
                self.push_whole(store, (on, Some(found)), (side, run), &entry)
            }
            None => self.push_whole(store, (on, None), (side, run), &entry),
        };
        (self.scratch, self.lengths) = (encoded, lengths);
        match pushed {
            Ok(length) => Reply::number(length as i64),
            Err(status) => Reply::status(status),
        }
    }

    fn push_chain<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, found): (On<'_>, Found),
        (side, run): (Side, Run<'_>),
        entry: &Command<'_>,
    ) -> Result<u64, Status> {
        let root = found.slot.slot;
        if side == Side::Right && store.moves.is_filling(root) {
            // A later piece has the elements.
            return Err(Status::NotDone);
        }
        let end = end_of(side);
        let planned = self.plan_push(store, (on, root), (end, run));
        let (plan, new) = planned.map_err(|ArenaFull { .. }| Status::OutOfMemory)?;
        store.commit(on.hash.database(), entry, |store| {
            self.push_planned(store, (on, root), (end, run), (&plan, &new));
        });
        let change = match side {
            Side::Left => Change::PushedFront(run.lengths.len() as u64),
            Side::Right => Change::PushedBack(run.lengths.len() as u64),
        };
        let listed = self.listed(root);
        listed.note(change);
        Ok(listed.chain.length())
    }

    /// Takes the slots that a push needs.
    pub(super) fn plan_push<J: Journal>(
        &self,
        store: &mut Store<J>,
        (on, root): (On<'_>, u32),
        (end, run): (End, Run<'_>),
    ) -> Result<(PushPlan, Vec<Slot>), ArenaFull> {
        let chain = &self.listed(root).chain;
        let plan = chain.plan_push((&store.owner, &store.slots), end, run.lengths);
        let new = Self::take_slots(store, plan.new.iter().map(|&(_, bytes)| bytes), on.now)?;
        Ok((plan, new))
    }

    /// Pushes what is planned.
    pub(super) fn push_planned<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, root): (On<'_>, u32),
        (end, run): (End, Run<'_>),
        (plan, new): (&PushPlan, &[Slot]),
    ) {
        if plan.here > 0 {
            self.keep_end(store, root, end);
        }
        self.publish(store, root, on.now, |listed, store, _| {
            listed.chain.push((&mut store.owner, &store.slots), end, run, (plan, new));
        });
    }

    /// The chunk at one end is about to change.
    fn keep_end<J: Journal>(&mut self, store: &Store<J>, root: u32, end: End) {
        let Self { by_root, reads, .. } = self;
        let Some(Listed { chain, readers, .. }) = by_root.get_mut(&root) else { return };
        if !readers.is_empty()
            && let Some(at) = chain.chunk_at(end)
        {
            let slot = chain.directory().get(at).slot;
            readers.keep(reads, slot, chunk_entries(&store.owner, slot));
        }
    }

    /// Adds to a list that lies whole in its record, or makes one. It gets chunks if it becomes too
    /// large.
    fn push_whole<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, found): (On<'_>, Option<Found>),
        (side, run): (Side, Run<'_>),
        entry: &Command<'_>,
    ) -> Result<u64, Status> {
        let old = found.map_or(Cow::Borrowed(&[][..]), |found| packed_of(store, found));
        // Another server may have made the record: what encodes no entry is left out.
        let (there, bytes) =
            encoded(&old).fold((0, 0), |(count, bytes), entry| (count + 1, bytes + entry.len()));
        let (old, count) = (&old[..bytes], there + run.lengths.len());
        let both = match side {
            Side::Left => [run.bytes, old],
            Side::Right => [old, run.bytes],
        };
        let made = both.concat();
        match is_small(count, &made) {
            true => put_whole(store, (on, found), &made, entry)?,
            false => {
                let expires_at_ms = found.map_or(0, |found| found.mutable.expires_at_ms);
                self.make_chain(store, (on, expires_at_ms), &made, entry)?;
            }
        }
        Ok(count as u64)
    }

    /// The key gets these elements, in the place of what it holds.
    pub(super) fn store<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        on: On<'_>,
        items: Items<'_>,
    ) -> Reply<'static> {
        if items.bytes().is_empty() {
            keys::del(store, on);
            return Reply::number(0);
        }
        if on.key.len() > MAX_KEY_BYTES {
            return Reply::status(Status::TooLarge);
        }
        let (mut made, mut lengths) = (Vec::new(), Vec::new());
        encode(store, (on, items, Side::Right), &mut made, &mut lengths);
        // Expired or not: the present object is removed.
        let found = store.lookup(on.key, on.hash, on.now);
        let entry = entry_of(on, ListCommand::Store { items });
        let put = match is_small(lengths.len(), &made) {
            true => put_new(store, (on, found, 0), &made, &entry),
            false => self.make_chain(store, (on, 0), &made, &entry),
        };
        match put {
            Ok(()) => Reply::number(lengths.len() as i64),
            Err(status) => Reply::status(status),
        }
    }

    /// Lets a key hold a list of chunks with these entries.
    pub(super) fn make_chain<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, expires_at_ms): (On<'_>, u64),
        entries: &[u8],
        entry: &Command<'_>,
    ) -> Result<(), Status> {
        let full = |ArenaFull { .. }| Status::OutOfMemory;
        let root = self.new_chain(store, on, expires_at_ms).map_err(full)?;
        let mut lengths = Vec::new();
        lengths_of_entries(entries, &mut lengths);
        let bytes = lengths.iter().map(|&of| of as usize).sum();
        let run = Run { bytes: &entries[..bytes], lengths: &lengths };
        let plan = PushPlan { here: 0, new: self.listed(root.slot).chain.plan_replace(entries) };
        let slots = Self::take_slots(store, plan.new.iter().map(|&(_, bytes)| bytes), on.now);
        let new = match slots {
            Ok(new) => new,
            Err(error) => {
                self.forget(store, root.slot, on.now);
                store.flip_dead(root.slot);
                store.give_back(root, on.now);
                return Err(full(error));
            }
        };
        // Nothing leads to the root record yet.
        self.push_planned(store, (on, root.slot), (End::Back, run), (&plan, &new));
        // The place that was found before may have moved meanwhile.
        let found = store.found(on.key, on.hash);
        let named = (on.key, on.hash);
        let entered = store.enter_root(named, (root, expires_at_ms), found, entry.into(), on.now);
        if entered.is_err() {
            self.forget(store, root.slot, on.now);
            set_state_guardian(&mut store.owner, root, State::Dead);
        }
        entered.map_err(full)
    }

    pub(super) fn pop<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, held): (On<'_>, Option<Held>),
        side: Side,
        (count, fits_frame): (u64, bool),
    ) -> Reply<'_> {
        let Some(held) = held else { return Reply::status(Status::NotFound) };
        let length = self.length(store, held);
        let wanted = count.min(length);
        let most_bytes = if fits_frame { MAX_INLINE_BYTES } else { MAX_REPLY_BYTES };
        let mut found = std::mem::take(&mut self.reply);
        found.clear();
        let count = match held {
            Held::Chain(of) if wanted == 1 => {
                self.gather_one(store, of, (side, most_bytes), &mut found)
            }
            _ => self.gather(store, held, (side, wanted, most_bytes), &mut found),
        };
        self.reply = found;
        if count < wanted && (count == 0 || !fits_frame) {
            return Reply::status(Status::TooLarge);
        }
        let (from, keep) = match side {
            Side::Left => (count, length - count),
            Side::Right => (0, length - count),
        };
        let kept = if count == 0 { Ok(()) } else { self.keep_range(store, (on, held), from, keep) };
        match kept {
            Ok(()) => Reply { value: Some(&self.reply), ..Reply::number(count as i64) },
            Err(status) => Reply::status(status),
        }
    }

    /// Appends up to so many elements from one end, the outermost first, as [`Items`], as long as all
    /// of it has `most_bytes` at most. Gives how many.
    pub(super) fn gather<J: Journal>(
        &self,
        store: &Store<J>,
        held: Held,
        (side, count, most_bytes): (Side, u64, usize),
        found: &mut Vec<u8>,
    ) -> u64 {
        let (mut buffer, mut given) = (TextBuffer::default(), 0);
        self.visit(store, held, side == Side::Right, |_, entry| {
            let Some((entry, _)) = Entry::split(entry) else { return false };
            let element = entry.field(&mut buffer);
            if given == count || found.len() + Items::bytes_of(element.value.len()) > most_bytes {
                return false;
            }
            Items::push_field(found, element);
            given += 1;
            given < count
        });
        given
    }

    /// As [`Lists::gather`], one element of a list of chunks.
    fn gather_one<J: Journal>(
        &mut self,
        store: &Store<J>,
        of: Found,
        (side, most_bytes): (Side, usize),
        found: &mut Vec<u8>,
    ) -> u64 {
        let listed = self.by_root.get_mut(&of.slot.slot).expect("a root record has its list");
        let entry = listed.chain.entry_at(&store.owner, end_of(side)).and_then(Entry::split);
        let Some((entry, _)) = entry else { return 0 };
        let mut buffer = TextBuffer::default();
        let element = entry.field(&mut buffer);
        if Items::bytes_of(element.value.len()) > most_bytes {
            return 0;
        }
        Items::push_field(found, element);
        1
    }

    pub(super) fn trim<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, held): (On<'_>, Option<Held>),
        start: i64,
        stop: i64,
    ) -> Reply<'static> {
        let Some(held) = held else { return Reply::status(Status::Ok) };
        let length = self.length(store, held);
        let (from, keep) = range(length, start, stop).unwrap_or((length, 0));
        if keep == length {
            return Reply::status(Status::Ok);
        }
        match self.keep_range(store, (on, held), from, keep) {
            Ok(()) => Reply::status(Status::Ok),
            Err(status) => Reply::status(status),
        }
    }

    pub(super) fn keep<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, held): (On<'_>, Option<Held>),
        from: u64,
        keep: u64,
    ) -> Reply<'static> {
        let Some(held) = held else { return Reply::status(Status::NotDone) };
        let length = self.length(store, held);
        let from = from.min(length);
        if from == 0 && keep >= length {
            return Reply::status(Status::NotDone);
        }
        match self.keep_range(store, (on, held), from, keep.min(length - from)) {
            Ok(()) => Reply::status(Status::Ok),
            Err(status) => Reply::status(status),
        }
    }

    /// Leaves the elements of a range, which are fewer than all. The key goes with the last one.
    pub(super) fn keep_range<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, held): (On<'_>, Held),
        from: u64,
        keep: u64,
    ) -> Result<(), Status> {
        let is_filling = |store: &Store<J>| matches!(held, Held::Chain(found) if store.moves.is_filling(found.slot.slot));
        if keep == 0 && !is_filling(store) {
            keys::del(store, on);
            return Ok(());
        }
        let entry = entry_of(on, ListCommand::Keep { from, keep });
        match held {
            Held::Whole(found) => {
                let all = packed_of(store, found);
                let bytes = |count: u64| -> usize {
                    encoded(&all).take(count as usize).map(<[u8]>::len).sum()
                };
                let made = all[bytes(from)..bytes(from + keep)].to_vec();
                put_whole(store, (on, Some(found)), &made, &entry)
            }
            Held::Chain(found) => {
                let root = found.slot.slot;
                let back = self.listed(root).chain.length() - from - keep;
                store.commit(on.hash.database(), &entry, |store| {
                    self.keep_ends_after((from, back), store, root);
                    self.publish(store, root, on.now, |listed, store, dropped| {
                        let memory = (&mut store.owner, &store.slots);
                        listed.chain.cut(memory, (from, back), dropped);
                    });
                });
                self.listed(root).note(Change::Kept { from, keep });
                Ok(())
            }
        }
    }

    /// The chunks in which a cut ends are about to change.
    fn keep_ends_after<J: Journal>(
        &mut self,
        (front, back): (u64, u64),
        store: &Store<J>,
        root: u32,
    ) {
        let Self { by_root, reads, .. } = self;
        let Some(Listed { chain, readers, .. }) = by_root.get_mut(&root) else { return };
        if readers.is_empty() {
            return;
        }
        let directory = chain.directory();
        let last = (directory.entries() - 1).checked_sub(back);
        for index in [Some(front), last].into_iter().flatten() {
            if let Some((at, _)) = directory.find(index) {
                let slot = directory.get(at).slot;
                readers.keep(reads, slot, chunk_entries(&store.owner, slot));
            }
        }
    }
}

/// Whether so many encoded elements lie whole in the record.
fn is_small(elements: usize, encoded: &[u8]) -> bool {
    elements <= WHOLE_ENTRIES && encoded.len() <= WHOLE_ENTRIES_BYTES
}

/// Encodes elements in the order in which they will lie in the list.
fn encode<J: Journal>(
    store: &Store<J>,
    (on, items, side): (On<'_>, Items<'_>, Side),
    encoded: &mut Vec<u8>,
    lengths: &mut Vec<u32>,
) {
    encoded.clear();
    lengths.clear();
    let mut push = |element: Field<'_>| {
        let before = encoded.len();
        entry_for(store, on, element).push(encoded);
        lengths.push((encoded.len() - before) as u32);
    };
    let mut all = items.fields().flatten();
    match (side, all.next(), all.next()) {
        (_, Some(only), None) => push(only),
        (Side::Right, ..) => items.fields().flatten().for_each(push),
        (Side::Left, ..) => {
            let all: Vec<Field<'_>> = items.fields().flatten().collect();
            all.into_iter().rev().for_each(push);
        }
    }
}

/// Lets a key hold a list that lies whole in a new record.
pub(super) fn put_whole<J: Journal>(
    store: &mut Store<J>,
    (on, found): (On<'_>, Option<Found>),
    packed: &[u8],
    entry: &Command<'_>,
) -> Result<(), Status> {
    let expires_at_ms = found.map_or(0, |found| found.mutable.expires_at_ms);
    put_new(store, (on, found, expires_at_ms), packed, entry)
}

/// The same with this expiry.
fn put_new<J: Journal>(
    store: &mut Store<J>,
    (on, found, expires_at_ms): (On<'_>, Option<Found>, u64),
    packed: &[u8],
    entry: &Command<'_>,
) -> Result<(), Status> {
    let (kind, value) = whole_value(on, packed);
    let new = New { key: on.key, hash: on.hash, kind, value: &value, expires_at_ms };
    let put = store.put_as(new, found, entry, on.now);
    put.map(drop).map_err(|ArenaFull { .. }| Status::OutOfMemory)
}
