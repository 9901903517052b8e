//! A combination under way.
//!
//! The result is that of the objects as they were when the read began. For an intersection or a
//! difference each member of one object, the *base*, is looked up in the others. Reads of all of them
//! begin at once ([`crate::store::PartsRead`]), and rest. If one of the others changes meanwhile, the
//! lookups end: what is left of the base goes into a table, and the others are read from beginning to
//! end. A union goes through a table from the start.
//!
//! Scores are joined from the object with the fewest members to the one with the most, as in Redis:
//! the digits of a sum depend on the order. An object that is named several times, with no other of
//! as many members between, is read once, and its scores are joined once for each of its weights.
//!
//! A turn is bounded however many objects there are: by the members that it reads, and by their
//! lookups.

use super::form::Form;
use super::reader::{Join, MemberReader};
use super::source::Source;
use super::table::Found;
use crate::elements::bins::LOOKUPS;
use crate::store::Store;
use crate::types::object::{On, Turn};
use remora_arena::Journal;
use remora_layout::hash::KeyHash;
use remora_layout::limits::{COMBINE_TURN_MEMBERS, MAX_REPLY_BYTES, MAX_WEIGHTS};
use remora_protocol::elements::Combination;
use remora_protocol::message::Status;
use std::collections::BTreeMap;

/// What is asked for, beside the keys of other objects.
#[derive(Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub how: Combination,
    /// Members that were found before, a list in the form of the result: they stand before the
    /// command's own object.
    pub before: Option<&'a [u8]>,
    /// The weight of the command's own object.
    pub own_weight: f64,
    /// How two scores become one.
    pub join: fn(f64, f64) -> f64,
    /// Only the number of members is wanted, up to this, if not 0.
    pub count_to: Option<u64>,
}

/// How far it has come.
enum Stage {
    /// The base's members are looked up.
    Lookups,
    /// What is left of the base goes into the table.
    Gather,
    /// The other with this number is read: its members are marked in the table.
    Mark(usize),
    /// The table is read.
    Tell,
    /// Each source, this one next, is read into the table, and new members are given.
    Union(usize),
}

/// Members that were read from the base and are being looked up.
struct Lot<S> {
    list: Vec<u8>,
    /// Where the member stands that is next.
    at: usize,
    /// The other in which that is looked up next: the ones before it have said yes.
    other: usize,
    /// What those have made of its score.
    so_far: Option<S>,
    /// No members come after these.
    is_last: bool,
}

impl<S> Default for Lot<S> {
    fn default() -> Self {
        Self { list: Vec::new(), at: 0, other: 0, so_far: None, is_last: false }
    }
}

/// See the module's text.
pub(crate) struct Combining<F: Form> {
    how: Combination,
    count_to: Option<u64>,
    join: fn(f64, f64) -> f64,
    /// The base first.
    sources: Vec<Source>,
    stage: Stage,
    lot: Lot<F::Score>,
    table: Found<F>,
    /// Members of the result so far.
    count: u64,
}

/// The objects that are named: the number of the key, the key, and the weight; and whether a difference
/// takes the command's own object from itself. Where weights count, a key is here each time that it is
/// named.
type Named<'a> = (Vec<(usize, On<'a>, f64)>, bool);

fn named<'a, F: Form>(
    on: On<'a>,
    asked: &Asked<'_>,
    others: impl Iterator<Item = (&'a [u8], f64)>,
    hash_seed: u64,
) -> Result<Named<'a>, Status> {
    let mut all = vec![(0, on, asked.own_weight)];
    // Their numbers, and how often they are named.
    let (mut keys, mut takes_itself) = (BTreeMap::from([(on.key, (0, 1))]), false);
    let has_weights = F::HAS_WEIGHTS && asked.how != Combination::Diff;
    for (key, weight) in others {
        takes_itself |= key == on.key && asked.before.is_none();
        let number = keys.len();
        let (number, times) = keys.entry(key).or_insert((number, 0));
        *times += 1;
        if *times > 1 && !has_weights {
            continue;
        }
        if *times > MAX_WEIGHTS {
            return Err(Status::TooLarge);
        }
        let hash = KeyHash::within(on.hash.database(), key, hash_seed);
        all.push((*number, On { key, hash, ..on }, weight));
    }
    Ok((all, takes_itself && asked.how == Combination::Diff))
}

impl<F: Form> Combining<F> {
    /// Begins a read; also gives the hashes of the other keys.
    ///
    /// # Errors
    /// A key is of a type that cannot be read; or so many small objects are named that their copies
    /// would be longer than a reply; or one is named more often than [`MAX_WEIGHTS`].
    pub fn begin<'a, J: Journal>(
        store: &mut Store<J>,
        on: On<'a>,
        asked: &Asked<'_>,
        others: impl Iterator<Item = (&'a [u8], f64)>,
        readers: &[MemberReader<J, F::Score>],
    ) -> Result<(Self, Vec<KeyHash>), Status> {
        let Asked { how, join, count_to, .. } = *asked;
        let (all, is_empty) = named::<F>(on, asked, others, store.options.hash_seed)?;
        let (mut named, mut copied) = (Vec::with_capacity(all.len()), 0);
        let hashes = all.iter().skip(1).map(|(_, on, _)| on.hash).collect();
        for (number, on, weight) in all {
            let source = Source::of::<F, J>(store, (on, vec![weight]), readers)?;
            copied += source.copied_bytes();
            if copied > MAX_REPLY_BYTES {
                return Err(Status::TooLarge);
            }
            named.push((number, source));
        }
        if how == Combination::Inter || (how == Combination::Union && F::HAS_WEIGHTS) {
            named.sort_by_key(|(_, source)| source.members);
        }
        // Named again with none between: it is read once.
        named.dedup_by(|(number, again), (before, source)| {
            let is_same = number == before;
            if is_same {
                source.weights.append(&mut again.weights);
            }
            is_same
        });
        let made = |list: &[u8]| Source::made::<F>(list.to_vec());
        let sources = match is_empty {
            true => vec![made(&[])],
            false => {
                let named = named.into_iter().map(|(_, source)| source);
                asked.before.map(made).into_iter().chain(named).collect()
            }
        };
        let stage = match how {
            Combination::Union => Stage::Union(0),
            Combination::Inter | Combination::Diff => Stage::Lookups,
        };
        let (table, lot) = (Found::new(on.hash.0), Lot::default());
        Ok((Self { how, count_to, join, sources, stage, lot, table, count: 0 }, hashes))
    }

    /// Continues for one turn.
    ///
    /// # Errors
    /// Too much has changed since it began: `Outrun`, also if what is left of the base is then
    /// longer than a reply. The result is too long for a reply: `TooLarge`.
    pub fn turn<J: Journal>(
        &mut self,
        store: &Store<J>,
        readers: &[MemberReader<J, F::Score>],
        found: &mut Vec<u8>,
    ) -> Result<Turn, Status> {
        let has_ended = match self.stage {
            Stage::Lookups => self.look_up(store, readers, found)?,
            Stage::Union(_) => self.unite(store, found)?,
            _ => self.go_on(store, found)?,
        };
        let is_enough = self.count_to.is_some_and(|most| most > 0 && self.count >= most);
        if is_enough {
            self.count = self.count_to.unwrap_or_default();
        }
        if found.len() > MAX_REPLY_BYTES {
            return Err(Status::TooLarge);
        }
        if self.table.bytes() > MAX_REPLY_BYTES {
            // A union's table is its result; others need one only beside changes.
            let is_result = self.how == Combination::Union;
            return Err(if is_result { Status::TooLarge } else { Status::Outrun });
        }
        let gives_value = self.count_to.is_none();
        let (ended, number) = (has_ended || is_enough, self.count as i64);
        Ok(Turn { ended, number, gives_value, ..Turn::default() })
    }

    /// Goes on through the table.
    fn go_on<J: Journal>(&mut self, store: &Store<J>, found: &mut Vec<u8>) -> Result<bool, Status> {
        let Self { how, join, count_to, sources, stage, table, count, .. } = self;
        match *stage {
            Stage::Gather => {
                let mut list = Vec::new();
                let base = &mut sources[0];
                let ended = base.left.read::<F, J>(store, &mut list)?;
                let join = Join { how: *how, weights: &base.weights, join: *join };
                gather(table, &list, &join);
                if ended {
                    *stage = Stage::Mark(1);
                }
            }
            Stage::Mark(at) if at == sources.len() => *stage = Stage::Tell,
            Stage::Mark(at) => {
                let mut list = Vec::new();
                let source = &mut sources[at];
                let ended = source.left.read::<F, J>(store, &mut list)?;
                let join = Join { how: *how, weights: &source.weights, join: *join };
                let mark = if *how == Combination::Inter { at as u32 } else { 1 };
                for (member, score) in F::members(&list) {
                    if let Some(so_far) = table.mark(member, mark) {
                        *so_far = F::join(Some(*so_far), score, &join);
                    }
                }
                if ended {
                    *stage = Stage::Mark(at + 1);
                }
            }
            Stage::Tell | Stage::Lookups | Stage::Union(_) => {
                let marks = match how {
                    Combination::Inter => sources.len() as u32 - 1,
                    Combination::Union | Combination::Diff => 0,
                };
                let some = table.take_some(COMBINE_TURN_MEMBERS);
                let Some(some) = some else { return Ok(true) };
                for (member, (_, score)) in some.filter(|(_, (marked, _))| *marked == marks) {
                    tell::<F>((member, score), (count_to.is_none(), count), found);
                }
            }
        }
        Ok(false)
    }

    /// Reads the next source of a union into the table. A new name is given at once; scores are known
    /// at the end.
    fn unite<J: Journal>(&mut self, store: &Store<J>, found: &mut Vec<u8>) -> Result<bool, Status> {
        let Stage::Union(at) = self.stage else { return Ok(false) };
        let Some(source) = self.sources.get_mut(at) else {
            self.stage = Stage::Tell;
            return Ok(!F::HAS_WEIGHTS);
        };
        let mut list = Vec::new();
        let ended = source.left.read::<F, J>(store, &mut list)?;
        let join = Join { how: self.how, weights: &source.weights, join: self.join };
        for (member, score) in F::members(&list) {
            match self.table.add(member, F::join(None, score, &join)) {
                Some(so_far) => *so_far = F::join(Some(*so_far), score, &join),
                None if F::HAS_WEIGHTS => {}
                None => {
                    let gives = self.count_to.is_none();
                    tell::<F>((member, score), (gives, &mut self.count), found);
                }
            }
        }
        if ended {
            self.stage = Stage::Union(at + 1);
        }
        Ok(false)
    }

    /// Looks some of the base's members up in the other objects.
    fn look_up<J: Journal>(
        &mut self,
        store: &Store<J>,
        readers: &[MemberReader<J, F::Score>],
        found: &mut Vec<u8>,
    ) -> Result<bool, Status> {
        let Self { how, join, count_to, sources, stage, lot, table, count } = self;
        let Some((base, others)) = sources.split_first_mut() else { return Ok(true) };
        let join = Join { how: *how, weights: &base.weights, join: *join };
        if !others.iter().all(|of| of.is_unchanged(store)) {
            gather(table, &lot.list[lot.at..], &join);
            *stage = if lot.is_last { Stage::Mark(1) } else { Stage::Gather };
            *lot = Lot::default();
            return Ok(false);
        }
        if lot.at == lot.list.len() && !lot.is_last {
            lot.list.clear();
            lot.at = 0;
            lot.is_last = base.left.read::<F, J>(store, &mut lot.list)?;
            found.reserve(if count_to.is_none() { lot.list.len() } else { 0 });
        }
        // Beside many objects a turn may end within the lookups of one member.
        let at_once = if others.len() * LOOKUPS <= COMBINE_TURN_MEMBERS { LOOKUPS } else { 1 };
        let (mut lookups, mut some) = (COMBINE_TURN_MEMBERS, Vec::with_capacity(LOOKUPS));
        loop {
            let mut rest = &lot.list[lot.at..];
            some.clear();
            while some.len() < at_once
                && let Some((member, score, behind)) = F::split(rest)
            {
                some.push((member, F::join(None, score, &join)));
                rest = behind;
            }
            if some.is_empty() {
                return Ok(lot.is_last);
            }
            if let Some(so_far) = lot.so_far.take() {
                some[0].1 = so_far;
            }
            while !some.is_empty() && lot.other < others.len() {
                if lookups == 0 && at_once == 1 {
                    lot.so_far = Some(some[0].1);
                    return Ok(false);
                }
                lookups = lookups.saturating_sub(some.len());
                let other = &others[lot.other];
                let join = Join { weights: &other.weights, ..join };
                other.keep::<F, J>((store, readers), &mut some, &join);
                lot.other += 1;
            }
            for of in &some {
                tell::<F>(*of, (count_to.is_none(), &mut *count), found);
            }
            (lot.at, lot.other) = (lot.list.len() - rest.len(), 0);
            if lookups == 0 {
                return Ok(false);
            }
        }
    }
}

/// Puts members of the base into the table.
fn gather<F: Form>(table: &mut Found<F>, list: &[u8], join: &Join<'_>) {
    for (member, score) in F::members(list) {
        table.add(member, F::join(None, score, join));
    }
}

/// Adds a member to the result.
fn tell<F: Form>(
    (member, score): (&[u8], F::Score),
    (gives, count): (bool, &mut u64),
    found: &mut Vec<u8>,
) {
    *count += 1;
    if gives {
        F::push(found, member, score);
    }
}
