//! Changes of hashes: planned, logged by their results, published.

use super::held::{self, Hashes, Held, length, value_of};
use super::links::hint_in;
use crate::elements::{self, is_filling, packed_of};
use crate::keys;
use crate::store::{Found, PartValue, Store};
use crate::types::object::On;
use remora_arena::{ArenaFull, Journal};
use remora_layout::kind::Kind;
use remora_layout::limits::{MAX_KEY_BYTES, WHOLE_ITEM_BYTES, WHOLE_ITEMS};
use remora_layout::link;
use remora_layout::packed::{self, Field};
use remora_layout::record::RECORD_HEADER_BYTES;
use remora_protocol::hash::HashCommand;
use remora_protocol::message::Status;
use remora_protocol::{Command, Items, Reply};
use remora_protocol::{decimal, integer};
use std::collections::BTreeMap;

/// Fields to set: the last value of each name.
pub(super) type Fields<'a> = BTreeMap<&'a [u8], Field<'a>>;

/// The fields of an encoded list of names and values; `None` if it is none.
pub(super) fn fields_of(list: &[u8]) -> Option<Fields<'_>> {
    let items = Items::parse(list)?;
    let is_whole = items.iter().count() % 2 == 0 && items.iter().all(|item| item.is_some());
    is_whole.then(|| pairs(items).collect())
}

/// Names and values, in turn.
fn pairs(list: Items<'_>) -> impl Iterator<Item = (&[u8], Field<'_>)> {
    let mut items = list.fields().flatten();
    std::iter::from_fn(move || Some((items.next()?.value, items.next()?)))
}

fn fits_packed(name: &[u8], field: &Field<'_>) -> bool {
    name.len() <= WHOLE_ITEM_BYTES && field.value.len() <= WHOLE_ITEM_BYTES
}

impl Hashes {
    pub(super) fn set<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, held): (On<'_>, Option<Held>),
        list: Items<'_>,
    ) -> Reply<'static> {
        if on.key.len() > MAX_KEY_BYTES {
            return Reply::status(Status::TooLarge);
        }
        let entry =
            Command::Of { key: on.key, request: HashCommand::Set { pairs: list }.request() };
        let fields: Fields<'_> = pairs(list).collect();
        let set = match held {
            Some(Held::Parts(found)) => {
                set_parts(store, (on, found.slot.slot), &fields, Some(&entry))
            }
            Some(Held::Whole(found)) => self.set_whole(store, (on, Some(found)), &fields, &entry),
            None => self.set_whole(store, (on, None), &fields, &entry),
        };
        match set {
            Ok(added) => Reply::number(added as i64),
            Err(ArenaFull { .. }) => Reply::status(Status::OutOfMemory),
        }
    }

    /// Sets fields of a hash that lies whole in its record, or makes one. It gets
    /// parts if it becomes too large.
    fn set_whole<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, found): (On<'_>, Option<Found>),
        fields: &Fields<'_>,
        entry: &Command<'_>,
    ) -> Result<u64, ArenaFull> {
        let old = found.map_or(&[][..], |found| packed_of(store, found));
        let mut made = std::mem::take(&mut self.scratch);
        made.clear();
        let mut count = 0;
        let mut replaced = 0;
        for (name, value) in packed::fields(old) {
            let new = fields.get(name);
            replaced += new.is_some() as u64;
            count += 1;
            // Fields that do not fit come from `fields`, and count below.
            if new.is_none_or(|new| fits_packed(name, new)) {
                packed::push(&mut made, name, new.copied().unwrap_or(value));
            }
        }
        let added = fields.len() as u64 - replaced;
        count += added;
        let is_small = count <= WHOLE_ITEMS as u64
            && fields.iter().all(|(name, value)| fits_packed(name, value));
        if is_small {
            for (name, value) in fields {
                if replaced == 0 || packed::find(old, name).is_none() {
                    packed::push(&mut made, name, *value);
                }
            }
        }
        let put = if is_small {
            self.put_whole(store, (on, found), &made, entry)
        } else {
            made.clear();
            let kept = packed::fields(old).filter(|(name, _)| !fields.contains_key(name));
            kept.for_each(|(name, value)| packed::push(&mut made, name, value));
            make_parts(store, (on, found), (&made, fields), entry)
        };
        self.scratch = made;
        put.map(|()| added)
    }

    pub(super) fn set_absent<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, held): (On<'_>, Option<Held>),
        pair: Items<'_>,
    ) -> Reply<'static> {
        let name = pair.iter().next().flatten().unwrap_or_default();
        if held.is_some_and(|held| value_of(store, held, name).is_some()) {
            return Reply::number(0);
        }
        self.set(store, (on, held), pair)
    }

    /// Sets one field, and logs it as that.
    fn set_one<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, held): (On<'_>, Option<Held>),
        name: &[u8],
        value: &[u8],
    ) -> Status {
        let mut list =
            Vec::with_capacity(Items::bytes_of(name.len()) + Items::bytes_of(value.len()));
        Items::push(&mut list, name);
        Items::push(&mut list, value);
        let pair = Items::parse(&list).expect("two items");
        self.set(store, (on, held), pair).status
    }

    pub(super) fn increment<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, held): (On<'_>, Option<Held>),
        name: &[u8],
        by: i64,
    ) -> Reply<'static> {
        let before = match held.and_then(|held| value_of(store, held, name)) {
            None => 0,
            Some(text) => match integer::parse(text) {
                Some(number) => number,
                None => return Reply::status(Status::NotAnInteger),
            },
        };
        let Some(after) = before.checked_add(by) else { return Reply::status(Status::Overflow) };
        let mut text = itoa::Buffer::new();
        match self.set_one(store, (on, held), name, text.format(after).as_bytes()) {
            Status::Ok => Reply::number(after),
            status => Reply::status(status),
        }
    }

    pub(super) fn increment_float<'s, J: Journal>(
        &'s mut self,
        store: &mut Store<J>,
        (on, held): (On<'_>, Option<Held>),
        name_and_by: Items<'_>,
    ) -> Reply<'s> {
        let Some((name, Field { value: by, .. })) = pairs(name_and_by).next() else {
            return Reply::status(Status::Malformed);
        };
        let before = match held.and_then(|held| value_of(store, held, name)) {
            None => Some(decimal::Extended::ZERO),
            Some(text) => decimal::parse(text),
        };
        let Some(before) = before else { return Reply::status(Status::NotAnInteger) };
        let Some(by) = decimal::parse(by) else { return Reply::status(Status::Malformed) };
        let Some(text) = before.plus(by).and_then(|sum| sum.text()) else {
            return Reply::status(Status::Overflow);
        };
        match self.set_one(store, (on, held), name, &text) {
            Status::Ok => {
                self.scratch = text;
                Reply { value: Some(&self.scratch), ..Reply::status(Status::Ok) }
            }
            status => Reply::status(status),
        }
    }

    pub(super) fn remove<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, held): (On<'_>, Option<Held>),
        names: Items<'_>,
    ) -> Reply<'static> {
        let Some(held) = held else { return Reply::number(0) };
        let mut there: Vec<&[u8]> = names.iter().flatten().collect();
        there.sort_unstable();
        there.dedup();
        there.retain(|name| value_of(store, held, name).is_some());
        let removed = there.len() as u64;
        if removed == 0 {
            return Reply::number(0);
        }
        if removed == length(store, held) && !is_filling(store, held) {
            keys::del(store, on);
            return Reply::number(removed as i64);
        }
        let request = HashCommand::Remove { names }.request();
        let entry = Command::Of { key: on.key, request };
        match held {
            Held::Parts(root) => {
                let names = there.iter().copied();
                store.commit(on.hash.database(), &entry, |store| {
                    store.remove_parts(root.slot.slot, names, on.now)
                });
            }
            Held::Whole(found) => {
                let mut made = std::mem::take(&mut self.scratch);
                made.clear();
                packed::fields(packed_of(store, found))
                    .filter(|(name, _)| there.binary_search(name).is_err())
                    .for_each(|(name, value)| packed::push(&mut made, name, value));
                let put = self.put_whole(store, (on, Some(found)), &made, &entry);
                self.scratch = made;
                if put.is_err() {
                    return Reply::status(Status::OutOfMemory);
                }
            }
        }
        Reply::number(removed as i64)
    }

    /// Lets a key hold a hash that lies whole in a new record, with the old expiry.
    fn put_whole<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, found): (On<'_>, Option<Found>),
        packed: &[u8],
        entry: &Command<'_>,
    ) -> Result<(), ArenaFull> {
        let expires_at_ms = found.map_or(0, |found| found.mutable.expires_at_ms);
        let links = packed::fields(packed).filter(|(_, field)| field.is_link);
        let hint = |(name, field): (&[u8], Field<'_>)| {
            match store.hint_of(on.hash.database(), field.value) {
                // Another shard's key, perhaps: what was known of it stays.
                0 => found.map_or(0, |found| hint_in(store, found, name, field.value)),
                hint => hint,
            }
        };
        let hints: Vec<u64> = links.map(hint).collect();
        let whole = Kind::HASH.whole();
        let value = match hints.is_empty() {
            true => (whole, packed, expires_at_ms),
            false => {
                let before = RECORD_HEADER_BYTES + on.key.len();
                link::make(&mut self.linked, before, packed, &hints);
                (whole.linked(), &self.linked[..], expires_at_ms)
            }
        };
        elements::put_as_whole(store, (on, found), value, entry)
    }
}

/// The values of fields that are parts of their own, and which of them are links.
fn part_values<J: Journal>(
    store: &Store<J>,
    on: On<'_>,
    fields: &Fields<'_>,
) -> Vec<Option<Vec<u8>>> {
    let value = |(name, field): (&&[u8], &Field<'_>)| {
        field.is_link.then(|| {
            let (mut value, hint) = (Vec::new(), store.hint_of(on.hash.database(), field.value));
            link::make(&mut value, RECORD_HEADER_BYTES + name.len(), field.value, &[hint]);
            value
        })
    };
    fields.iter().map(value).collect()
}

/// Sets fields of a hash that has parts. Without an entry no key leads to it yet, and
/// that is not logged here.
pub(super) fn set_parts<J: Journal>(
    store: &mut Store<J>,
    (on, root): (On<'_>, u32),
    fields: &Fields<'_>,
    entry: Option<&Command<'_>>,
) -> Result<u64, ArenaFull> {
    if fields.len() > 1 {
        // All misses at once.
        let parts = store.parts.of(root);
        fields.keys().for_each(|name| parts.prefetch(&store.owner, parts.hash(name)));
    }
    let linked = part_values(store, on, fields);
    let pairs = fields.iter().zip(&linked).map(|((name, field), linked)| match linked {
        Some(value) => (*name, PartValue::Linked(value)),
        None => (*name, PartValue::Plain(field.value)),
    });
    let mut planned = store.plan_parts(root, pairs, on.now)?;
    let added = planned.added;
    let mut publish = |store: &mut Store<J>| store.publish_parts(root, &mut planned, on.now);
    match entry {
        Some(entry) => store.commit(on.hash.database(), entry, publish),
        None => publish(store),
    }
    store.settle_parts(root, planned, on.now);
    Ok(added)
}

/// Lets a key hold a hash that has parts: those of a packed one, and more.
fn make_parts<J: Journal>(
    store: &mut Store<J>,
    (on, found): (On<'_>, Option<Found>),
    (packed, fields): (&[u8], &Fields<'_>),
    entry: &Command<'_>,
) -> Result<(), ArenaFull> {
    let expires_at_ms = found.map_or(0, |found| found.mutable.expires_at_ms);
    let fill = |store: &mut Store<J>, root| {
        let fields = fields.iter().map(|(name, value)| (*name, *value));
        for pair in packed::fields(packed).chain(fields) {
            // Nothing leads to the root record yet.
            set_parts(store, (on, root), &Fields::from([pair]), None)?;
        }
        Ok(())
    };
    elements::make_parts::<held::Fields, J>(store, (on, expires_at_ms), fill, entry)
}
