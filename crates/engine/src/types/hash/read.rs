//! Reads of many fields: all, random ones, some at a time.

use super::held::{Hashes, Held, length, packed_of, value_of};
use crate::store::{PartsRead, Store};
use remora_arena::{Journal, Slot, slot_of};
use remora_index::hash::{record_key, record_value};
use remora_layout::hash::mix;
use remora_layout::limits::{
    MAX_REPLY_BYTES, PARTS_TURN_BUCKETS, PARTS_TURN_BYTES, SCAN_BYTES, SCAN_PARTS,
};
use remora_layout::packed;
use remora_protocol::glob::Glob;
use remora_protocol::hash::Told;
use remora_protocol::message::Status;
use remora_protocol::{Items, Reply};

/// A read in turns.
pub(super) struct Reading {
    how: How,
    /// Items that it gives in all, or has given.
    items: u64,
}

enum How {
    /// The rest, not returned yet.
    Made(Vec<u8>),
    /// All fields, as they were when the read began.
    All(PartsRead),
    /// This many of them, each equally likely.
    Some { read: PartsRead, wanted: u64, left: u64, random: Random, told: Told },
    /// This many of a packed hash, with repetitions allowed.
    AnyOf { all: Vec<u8>, wanted: u64, random: Random, told: Told },
    /// The same, of the hash with this root record, as it is at each turn.
    Any { root: Slot, wanted: u64, random: Random, draw: Draw, told: Told },
}

/// Random numbers from a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(1);
        ((u128::from(mix(self.0, bound)) * u128::from(bound)) >> 64) as u64
    }
}

fn push(told: Told, name: &[u8], value: &[u8], found: &mut Vec<u8>) {
    match told {
        Told::Names => Items::push(found, name),
        Told::Values => Items::push(found, value),
        Told::Both => {
            Items::push(found, name);
            Items::push(found, value);
        }
    }
}

const fn items_each(told: Told) -> u64 {
    if matches!(told, Told::Both) { 2 } else { 1 }
}

/// Names and values, in turn.
fn pairs(list: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut rest = list;
    std::iter::from_fn(move || {
        let (name, after) = Items::split(rest)?;
        let (value, after) = Items::split(after)?;
        rest = after;
        Some((name?, value?))
    })
}

impl Reading {
    const fn made(list: Vec<u8>, items: u64) -> Self {
        Self { how: How::Made(list), items }
    }

    /// The values of these fields.
    ///
    /// # Errors
    /// They are too long for one reply.
    pub fn many<J: Journal>(
        store: &Store<J>,
        held: Option<Held>,
        names: Items<'_>,
    ) -> Result<Self, Status> {
        let mut list = Vec::new();
        let (mut items, mut bytes) = (0, 0);
        for name in names.iter().flatten() {
            match held.and_then(|held| value_of(store, held, name)) {
                Some(value) => {
                    bytes += value.len();
                    if bytes > MAX_REPLY_BYTES {
                        return Err(Status::TooLarge);
                    }
                    Items::push(&mut list, value);
                }
                None => Items::push_none(&mut list),
            }
            items += 1;
        }
        Ok(Self::made(list, items))
    }

    /// All fields.
    pub fn all<J: Journal>(store: &mut Store<J>, held: Option<Held>, told: Told) -> Self {
        match held {
            None => Self::made(Vec::new(), 0),
            Some(Held::Whole(found)) => {
                let mut list = Vec::new();
                let mut items = 0;
                for (name, value) in packed::pairs(packed_of(store, found)) {
                    push(told, name, value, &mut list);
                    items += items_each(told);
                }
                Self::made(list, items)
            }
            Some(Held::Parts(root)) => {
                let read = match told {
                    Told::Names => store
                        .parts
                        .begin_read(root.slot.slot, |n, v, found| push(Told::Names, n, v, found)),
                    Told::Values => store
                        .parts
                        .begin_read(root.slot.slot, |n, v, found| push(Told::Values, n, v, found)),
                    Told::Both => store
                        .parts
                        .begin_read(root.slot.slot, |n, v, found| push(Told::Both, n, v, found)),
                };
                Self { items: read.parts * items_each(told), how: How::All(read) }
            }
        }
    }

    /// Random fields.
    pub fn random<J: Journal>(
        store: &mut Store<J>,
        held: Option<Held>,
        (count, told): (i64, Told),
        seed: u64,
    ) -> Self {
        let Some(held) = held.filter(|_| count != 0) else { return Self::made(Vec::new(), 0) };
        let (fields, wanted) = (length(store, held), count.unsigned_abs());
        let random = Random(seed);
        if count > 0 && wanted >= fields {
            return Self::all(store, Some(held), told);
        }
        if let (Held::Parts(root), true) = (held, count < 0) {
            let root = slot_of(&store.owner, root.slot.slot);
            let how = How::Any { root, wanted, random, draw: Draw::default(), told };
            return Self { how, items: 0 };
        }
        let how = match Self::all(store, Some(held), Told::Both).how {
            How::All(read) => How::Some { read, wanted, left: fields, random, told },
            How::Made(all) if count < 0 => How::AnyOf { all, wanted, random, told },
            How::Made(all) => {
                let (mut list, mut random) = (Vec::new(), random);
                choose(&all, (wanted, fields), &mut random, told, &mut list);
                How::Made(list)
            }
            How::Some { .. } | How::AnyOf { .. } | How::Any { .. } => unreachable!("all of them"),
        };
        Self { how, items: wanted.saturating_mul(items_each(told)) }
    }

    /// The number of items in all; once it has ended, the number returned.
    pub fn items(&self) -> i64 {
        self.items as i64
    }

    /// Whether that is known from the start.
    pub const fn is_counted(&self) -> bool {
        !matches!(self.how, How::Any { .. })
    }

    /// Continues until `found` has this many bytes, or the read has looked at
    /// [`PARTS_TURN_BUCKETS`]. True at the end.
    ///
    /// # Errors
    /// Too much of the hash has changed since the read began.
    pub fn turn<J: Journal>(
        &mut self,
        store: &Store<J>,
        found: &mut Vec<u8>,
        bytes: usize,
    ) -> Result<bool, Status> {
        Ok(match &mut self.how {
            How::Made(list) => {
                found.append(list);
                true
            }
            How::All(read) => store.parts.read_more(&store.owner, read, found, bytes)?,
            How::Some { read, wanted, left, random, told } => {
                let mut some = Vec::new();
                let ended =
                    store.parts.read_more(&store.owner, read, &mut some, PARTS_TURN_BYTES)?;
                let (chosen, seen) = choose(&some, (*wanted, *left), random, *told, found);
                *wanted -= chosen;
                *left -= seen;
                ended
            }
            How::AnyOf { all, wanted, random, told } => {
                let all: Vec<(&[u8], &[u8])> = pairs(all).collect();
                while *wanted > 0 && found.len() < bytes {
                    let (name, value) = all[random.below(all.len() as u64) as usize];
                    push(*told, name, value, found);
                    *wanted -= 1;
                }
                *wanted == 0
            }
            How::Any { root, wanted, random, draw, told } => {
                let mut buckets = PARTS_TURN_BUCKETS;
                while *wanted > 0 && found.len() < bytes && store.is_live(*root) {
                    let slot = draw.go_on(store, root.slot, random, &mut buckets);
                    let Some(slot) = slot else { break };
                    let value = record_value(&store.owner, slot);
                    push(*told, record_key(&store.owner, slot), value, found);
                    *wanted -= 1;
                    self.items += items_each(*told);
                }
                *wanted == 0 || !store.is_live(*root)
            }
        })
    }
}

/// Chooses this many of the remaining fields, as far as this list contains them; each is equally
/// likely. Returns how many were chosen, and looked at.
fn choose(
    list: &[u8],
    (wanted, left): (u64, u64),
    random: &mut Random,
    told: Told,
    found: &mut Vec<u8>,
) -> (u64, u64) {
    let (mut chosen, mut seen) = (0, 0);
    for (name, value) in pairs(list) {
        if random.below(left - seen) < wanted - chosen {
            push(told, name, value, found);
            chosen += 1;
        }
        seen += 1;
    }
    (chosen, seen)
}

/// Buckets drawn by lot for one random part, before they are looked at in order.
const LOTS: u64 = 256;
/// Places of a chain of buckets that lots are drawn among, at least: three buckets.
const LOT_PLACES: u64 = 21;

/// Progress of the search for one random part. Each part is equally likely, except in a table of
/// which most was removed.
#[derive(Default)]
struct Draw {
    /// Lots that were drawn.
    lots: u64,
    /// The bucket that was looked at last.
    bucket: u64,
}

impl Draw {
    /// Looks for a part of an object that has parts, in at most this many buckets. With the slot of
    /// a part it starts again.
    fn go_on<J: Journal>(
        &mut self,
        store: &Store<J>,
        root: u32,
        random: &mut Random,
        buckets: &mut u64,
    ) -> Option<u32> {
        let parts = store.parts.of(root);
        while *buckets > 0 {
            *buckets -= 1;
            let is_by_lot = self.lots < LOTS;
            self.bucket = if is_by_lot {
                self.lots += 1;
                random.below(parts.buckets())
            } else {
                (self.bucket + 1) % parts.buckets()
            };
            let chain = parts.in_bucket(&store.owner, self.bucket);
            // Longer chains are rare.
            let least = if is_by_lot { LOT_PLACES } else { 0 };
            let place = random.below(least.max(chain.len() as u64));
            if let Some(&slot) = chain.get(place as usize) {
                *self = Self::default();
                return Some(slot);
            }
        }
        None
    }
}

impl Hashes {
    pub(super) fn scan<'s, J: Journal>(
        &'s mut self,
        store: &Store<J>,
        held: Option<Held>,
        cursor: u64,
        options: Items<'_>,
    ) -> Reply<'s> {
        let mut options = options.iter();
        let pattern = options.next().flatten().and_then(|pattern| Glob::new(pattern, false));
        let count = options.next().flatten().and_then(|count| count.try_into().ok());
        let count = count.map_or(0, u64::from_le_bytes).clamp(1, SCAN_PARTS);
        let list = &mut self.scratch;
        list.clear();
        let mut looked_bytes = 0;
        let mut tell = |name: &[u8], value: &[u8]| {
            looked_bytes += name.len();
            if pattern.as_ref().is_none_or(|pattern| pattern.matches(name)) {
                push(Told::Both, name, value, list);
            }
            list.len() >= PARTS_TURN_BYTES || looked_bytes >= SCAN_BYTES
        };
        let next = match held {
            None => 0,
            Some(Held::Whole(found)) => {
                packed::pairs(packed_of(store, found)).for_each(|(name, value)| {
                    tell(name, value);
                });
                0
            }
            Some(Held::Parts(root)) => {
                let parts = store.parts.of(root.slot.slot);
                // Splits move parts only into later buckets, and no bucket is removed.
                let (mut bucket, mut looked) = (cursor, 0);
                let mut is_full = false;
                while bucket < parts.buckets() && looked < count && !is_full {
                    for slot in parts.in_bucket(&store.owner, bucket) {
                        let value = record_value(&store.owner, slot);
                        is_full |= tell(record_key(&store.owner, slot), value);
                        looked += 1;
                    }
                    bucket += 1;
                    if (bucket - cursor) >= 10 * count {
                        break;
                    }
                }
                if bucket < parts.buckets() { bucket } else { 0 }
            }
        };
        Reply { value: Some(&self.scratch), ..Reply::number(next as i64) }
    }
}
