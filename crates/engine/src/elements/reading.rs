//! Reads of many elements: all, random ones, some at a time.

use super::draw::{Draw, Random, draw_different};
use super::kept::{Elements, Held, packed_of, push};
use crate::store::{PartsRead, Store};
use remora_arena::{Journal, Slot, slot_of};
use remora_index::hash::{record_field, record_key};
use remora_layout::limits::{
    DRAWN_AT_ONCE, DRAWN_BUCKETS, PARTS_TURN_BUCKETS, PARTS_TURN_BYTES, SCAN_BYTES, SCAN_PARTS,
};
use remora_layout::packed::Field;
use remora_protocol::Items;
use remora_protocol::elements::Told;
use remora_protocol::glob::Glob;
use remora_protocol::message::Status;

/// A read in turns.
pub(crate) struct Reading {
    how: How,
    /// Items that it gives in all, or has given.
    items: u64,
}

enum How {
    /// The rest, not returned yet.
    Made(Vec<u8>),
    /// All elements, as they were when the read began.
    All(PartsRead),
    /// This many of them, each equally likely.
    Some { read: PartsRead, wanted: u64, left: u64, random: Random, told: Told },
    /// This many of those of a whole object, with repetitions allowed.
    AnyOf { all: Vec<u8>, wanted: u64, random: Random, told: Told },
    /// The same, of the object with this root record, as it is at each turn.
    Any { root: Slot, wanted: u64, random: Random, draw: Draw, told: Told },
}

/// Names and values, in turn.
fn pairs(list: &[u8]) -> impl Iterator<Item = (&[u8], Field<'_>)> {
    let mut rest = list;
    std::iter::from_fn(move || {
        let (name, after) = Items::split(rest)?;
        let (value, after) = Items::split_field(after)?;
        rest = after;
        Some((name?, value?))
    })
}

impl Reading {
    /// A read that gives these items.
    pub const fn made(list: Vec<u8>, items: u64) -> Self {
        Self { how: How::Made(list), items }
    }

    /// All elements: so many.
    pub fn all<E: Elements, J: Journal>(
        store: &mut Store<J>,
        (held, elements): (Option<Held>, u64),
        told: Told,
    ) -> Self {
        let how = match held {
            None => return Self::made(Vec::new(), 0),
            Some(Held::Whole(found)) => {
                let mut list = Vec::new();
                let packed = packed_of(store, found);
                E::of_whole(packed, |name, value| E::tell(told, name, value, &mut list));
                How::Made(list)
            }
            Some(Held::Parts(root)) => {
                let root = root.slot.slot;
                How::All(match told {
                    Told::Names => store.parts.begin_read(root, |name, value, found| {
                        E::of_part(name, value, |a, b| E::tell(Told::Names, a, b, found));
                    }),
                    Told::Values => store.parts.begin_read(root, |name, value, found| {
                        E::of_part(name, value, |a, b| E::tell(Told::Values, a, b, found));
                    }),
                    Told::Both => store.parts.begin_read(root, |name, value, found| {
                        E::of_part(name, value, |a, b| E::tell(Told::Both, a, b, found));
                    }),
                })
            }
        };
        Self { how, items: elements * E::items_each(told) }
    }

    /// Random elements, of so many.
    pub fn random<E: Elements, J: Journal>(
        store: &mut Store<J>,
        (held, elements): (Option<Held>, u64),
        (count, told): (i64, Told),
        seed: u64,
    ) -> Self {
        let Some(held) = held.filter(|_| count != 0) else { return Self::made(Vec::new(), 0) };
        let wanted = count.unsigned_abs();
        let mut random = Random(seed);
        if count > 0 && wanted >= elements {
            return Self::all::<E, J>(store, (Some(held), elements), told);
        }
        if let (Held::Parts(root), true) = (held, count < 0) {
            let root = slot_of(&store.owner, root.slot.slot);
            let how = How::Any { root, wanted, random, draw: Draw::default(), told };
            return Self { how, items: 0 };
        }
        if let (Held::Parts(root), true) = (held, wanted <= DRAWN_AT_ONCE.min(elements / 4)) {
            let drawn = Self::drawn::<E, J>(store, root.slot.slot, &mut random, (wanted, told));
            if let Some(list) = drawn {
                return Self::made(list, wanted * E::items_each(told));
            }
        }
        let how = match held {
            Held::Parts(root) => {
                let read = store.parts.begin_read(root.slot.slot, |name, value, found| {
                    E::of_part(name, value, |name, value| push(Told::Both, name, value, found));
                });
                How::Some { read, wanted, left: elements, random, told }
            }
            Held::Whole(found) => {
                let mut all = Vec::new();
                E::of_whole(packed_of(store, found), |name, value| {
                    push(Told::Both, name, value, &mut all);
                });
                if count < 0 {
                    How::AnyOf { all, wanted, random, told }
                } else {
                    let mut list = Vec::new();
                    choose::<E>(&all, (wanted, elements), &mut random, told, &mut list);
                    How::Made(list)
                }
            }
        };
        Self { how, items: wanted.saturating_mul(E::items_each(told)) }
    }

    /// A few different elements of an object of parts, by lot. `None` if that is more than a turn's
    /// work: they are long, or most of what was there has gone.
    fn drawn<E: Elements, J: Journal>(
        store: &Store<J>,
        root: u32,
        random: &mut Random,
        (wanted, told): (u64, Told),
    ) -> Option<Vec<u8>> {
        let buckets = PARTS_TURN_BUCKETS + DRAWN_BUCKETS * wanted;
        let drawn = draw_different::<E, J>(store, root, random, (wanted, buckets))?;
        let mut list = Vec::new();
        for place in drawn {
            with_drawn::<E, J>(store, place, |name, value| E::tell(told, name, value, &mut list));
            if list.len() > SCAN_BYTES {
                return None;
            }
        }
        Some(list)
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
    /// Too much of the object has changed since the read began.
    pub fn turn<E: Elements, J: Journal>(
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
                let left_of = (*wanted, *left);
                let (chosen, seen) = choose::<E>(&some, left_of, random, *told, found);
                *wanted -= chosen;
                *left -= seen;
                ended
            }
            How::AnyOf { all, wanted, random, told } => {
                let all: Vec<(&[u8], Field<'_>)> = pairs(all).collect();
                while *wanted > 0 && found.len() < bytes {
                    let (name, value) = all[random.below(all.len() as u64) as usize];
                    E::tell(*told, name, value, found);
                    *wanted -= 1;
                }
                *wanted == 0
            }
            How::Any { root, wanted, random, draw, told } => {
                let mut buckets = PARTS_TURN_BUCKETS;
                while *wanted > 0 && found.len() < bytes && store.is_live(*root) {
                    let drawn = draw.go_on::<E, J>(store, root.slot, random, &mut buckets);
                    let Some(drawn) = drawn else { break };
                    with_drawn::<E, J>(store, drawn, |name, value| {
                        E::tell(*told, name, value, found);
                    });
                    *wanted -= 1;
                    self.items += E::items_each(*told);
                }
                *wanted == 0 || !store.is_live(*root)
            }
        })
    }
}

/// Hands over the element at a place of the part in a slot.
pub(crate) fn with_drawn<E: Elements, J: Journal>(
    store: &Store<J>,
    (slot, place): (u32, u64),
    mut told: impl FnMut(&[u8], Field<'_>),
) {
    let mut at = 0;
    let (name, value) = (record_key(&store.owner, slot), record_field(&store.owner, slot));
    E::of_part(name, value, |name, value| {
        if at == place {
            told(name, value);
        }
        at += 1;
    });
}

/// Chooses this many of the remaining elements, as far as this list contains them; each is equally
/// likely. Returns how many were chosen, and looked at.
fn choose<E: Elements>(
    list: &[u8],
    (wanted, left): (u64, u64),
    random: &mut Random,
    told: Told,
    found: &mut Vec<u8>,
) -> (u64, u64) {
    let (mut chosen, mut seen) = (0, 0);
    for (name, value) in pairs(list) {
        if random.below(left - seen) < wanted - chosen {
            E::tell(told, name, value, found);
            chosen += 1;
        }
        seen += 1;
    }
    (chosen, seen)
}

/// What a step of a scan looks at.
pub(crate) struct ScanOptions {
    pattern: Option<Glob>,
    /// Elements to look at.
    pub count: u64,
    looked_bytes: usize,
}

impl ScanOptions {
    /// Those of an operation.
    pub fn new(options: Items<'_>) -> Self {
        let mut options = options.iter();
        let pattern = options.next().flatten().and_then(|pattern| Glob::new(pattern, false));
        let count = options.next().flatten().and_then(|count| count.try_into().ok());
        let count = count.map_or(0, u64::from_le_bytes).clamp(1, SCAN_PARTS);
        Self { pattern, count, looked_bytes: 0 }
    }

    /// Looks at an element, and appends it if it is wanted. Whether the step has done enough.
    pub fn look<E: Elements>(
        &mut self,
        told: Told,
        (name, value): (&[u8], Field<'_>),
        list: &mut Vec<u8>,
    ) -> bool {
        self.looked_bytes += name.len();
        if self.pattern.as_ref().is_none_or(|pattern| pattern.matches(name)) {
            E::tell(told, name, value, list);
        }
        list.len() >= PARTS_TURN_BYTES || self.looked_bytes >= SCAN_BYTES
    }
}
