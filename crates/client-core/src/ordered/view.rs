//! Ordered trees: the client asks for changes, and reads keys and ranges by either route.
//!
//! Invariants:
//! * what READs found counts as [`BtreeView`] says;
//! * a value that lies in a record counts if its leaf does, and as `long` says;
//! * that a key is not in a tree READs can say: a leaf has all keys between its fences.

use super::long::{Resolved, resolve};
use super::value::OrderedValue;
use crate::asker::Answer;
use crate::btree::{
    BtreeView, MAX_KEYS_READ, OrderedCache, OrderedEvents, RangeClasses, TreeOf, Walked, read_by,
};
use crate::choose::Class;
use crate::core::Core;
use crate::counts::Counts;
use crate::directory::Directory;
use crate::error::Error;
use crate::path::{Path, ServedBy};
use remora_index::btree::{Direction, Get, Range};
use remora_layout::btree::{INTEGER_BYTES, KeyForm};
use remora_layout::kind::Kind;
use remora_layout::limits::READ_RETRIES;
use remora_layout::packed::Field;
use remora_protocol::message::Status;
use remora_protocol::ordered::{OrderedCommand, OrderedRange};
use remora_protocol::{Command, Items};
use remora_walk::Walk;
use std::ops::Bound;

/// An ordered tree is all that its key holds.
const ORDERED: TreeOf = TreeOf::Key { kind: Kind::ORDERED, header_at: 0 };

/// The value of a key of a tree, and how it was fetched.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct OrderedGot {
    /// The value; `None`: the key is not there.
    pub value: Option<OrderedValue>,
    /// Nodes on the way to it, those that were kept among them; 0 if the server was asked.
    pub nodes_visited: u64,
    /// How it was fetched.
    pub served_by: ServedBy,
    /// What it cost.
    pub counts: Counts,
}

/// Keys of a range, as users write them, with their values.
pub type OrderedEntries = Vec<(Vec<u8>, OrderedValue)>;

/// The entries of a range, and how they were fetched.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct OrderedFound {
    /// The entries.
    pub entries: OrderedEntries,
    /// Nodes that the range was gathered from, those that were kept among them; 0 if the server was
    /// asked.
    pub nodes_visited: u64,
    /// How they were fetched.
    pub served_by: ServedBy,
    /// What it cost.
    pub counts: Counts,
}

/// A session's view of one ordered tree: where it lies, and its top levels. It is a hint.
#[derive(Debug)]
pub struct OpenOrdered {
    tree: BtreeView,
    /// What its lookups cost.
    class: Class,
    /// The same of ranges.
    range_classes: RangeClasses,
}

impl OpenOrdered {
    /// A view of the tree that a key holds, or will hold. Nothing is asked.
    pub(crate) fn new(directory: &Directory, key: &[u8]) -> Result<Self, Error> {
        let tree = BtreeView::new(directory, key, ORDERED)?;
        Ok(Self { tree, class: Class::NEW, range_classes: RangeClasses::default() })
    }

    /// The tree's key.
    pub fn key(&self) -> &[u8] {
        self.tree.key()
    }

    /// What has happened to the reads of it.
    pub fn events(&self) -> OrderedEvents {
        self.tree.events
    }

    /// Its B+tree, for a cache that several of them share.
    pub fn tree_mut(&mut self) -> &mut BtreeView {
        &mut self.tree
    }

    /// Keeps inner nodes so from now on; none of those that it has.
    pub fn set_cache(&mut self, cache: OrderedCache) {
        self.tree.set_cache(cache);
    }

    /// Keeps the inner nodes that it has chosen so far, whatever it visits from now on.
    pub fn settle_cache(&mut self) {
        self.tree.settle_cache();
    }

    /// Reads so many leaves of a range at a time, at most; `None`: as many as by default.
    pub fn set_parallel(&mut self, leaves: Option<usize>) {
        self.tree.set_parallel(leaves);
    }

    /// Bytes of inner nodes that it keeps now, and how many they are.
    pub fn cached(&self) -> (usize, usize) {
        self.tree.cached()
    }

    /// The value of a key.
    pub(crate) fn get(
        &mut self,
        core: &mut Core,
        key: &[u8],
        path: Path,
    ) -> Result<OrderedGot, Error> {
        core.asker.ready()?;
        let mut class = self.class.clone();
        let (timing, _) = core.router.begin_search(&mut core.asker.endpoint, &mut class, path)?;
        let cost = Counts { operations: 1, ..Counts::default() };
        let shard = self.tree.shard();
        let read = read_by((&mut *core, shard), &timing, cost, |core, cost| {
            self.find_by_reads(core, key, cost)
        });
        let got = match read? {
            Ok(((value, nodes_visited), served_by, counts)) => {
                self.tree.events.read += 1;
                OrderedGot { value, nodes_visited, served_by, counts }
            }
            Err(cost) => self.get_asked(core, key, cost)?,
        };
        let Core { router, asker, .. } = core;
        let of = (got.served_by, &got.counts);
        router.end_search(&mut asker.endpoint, &mut class, &timing, of.0, of.1)?;
        self.class = class;
        Ok(got)
    }

    /// The entries of a range.
    pub(crate) fn range(
        &mut self,
        core: &mut Core,
        range: OrderedRange<'_>,
        of: (bool, u64),
        path: Path,
    ) -> Result<OrderedFound, Error> {
        core.asker.ready()?;
        let cost = Counts { operations: 1, ..Counts::default() };
        if path == Path::Choose && of.1 > MAX_KEYS_READ {
            return self.range_asked(core, range, of, cost);
        }
        let mut class = self.range_classes.of(of.1).clone();
        let (timing, _) = core.router.begin_search(&mut core.asker.endpoint, &mut class, path)?;
        let shard = self.tree.shard();
        let read = read_by((&mut *core, shard), &timing, cost, |core, cost| {
            self.scan_by_reads(core, range, of, cost)
        });
        let found = match read? {
            Ok(((entries, nodes_visited), served_by, counts)) => {
                self.tree.events.ranges += 1;
                OrderedFound { entries, nodes_visited, served_by, counts }
            }
            Err(cost) => self.range_asked(core, range, of, cost)?,
        };
        let Core { router, asker, .. } = core;
        let by = (found.served_by, &found.counts);
        router.end_search(&mut asker.endpoint, &mut class, &timing, by.0, by.1)?;
        *self.range_classes.of(of.1) = class;
        Ok(found)
    }

    /// Asks for a range, after reading has cost `cost`.
    fn range_asked(
        &self,
        core: &mut Core,
        range: OrderedRange<'_>,
        (is_reverse, limit): (bool, u64),
        cost: Counts,
    ) -> Result<OrderedFound, Error> {
        let wasted = Counts { operations: 0, ..cost };
        core.meter.add(&wasted);
        let served_by = ServedBy::asked_after(cost.round_trips);
        let request = OrderedCommand::Range { range, is_reverse, limit }.request();
        let (list, mut counts) = core.ask_list(self.tree.shard(), self.tree.key(), request)?;
        counts.add(&wasted);
        Ok(OrderedFound { entries: entries_of(&list), nodes_visited: 0, served_by, counts })
    }

    /// Looks a key up by READs. `None` if only the owner knows.
    fn find_by_reads(
        &mut self,
        core: &mut Core,
        key: &[u8],
        cost: &mut Counts,
    ) -> Result<Option<(Option<OrderedValue>, u64)>, Error> {
        let mut integer = [0; INTEGER_BYTES];
        for _ in 0..=READ_RETRIES {
            let Some(known) = self.tree.place(core, cost)? else { break };
            let Some(key) = known.header.keys.parse(key, &mut integer) else { break };
            let (home, region_bytes) = self.tree.region(core);
            let walk = Get::begin(key, home, known.place.at, known.header, region_bytes);
            match self.tree.walk(core, (known, walk), 2, cost)? {
                Walked::Found((walk, is_there)) => {
                    let (tree, value) = (known.place.at, is_there.then(|| walk.value()));
                    match resolve(core, (self.tree.shard(), tree), value.into_iter(), cost)? {
                        Resolved::Values(mut values) => {
                            return Ok(Some((values.pop(), walk.believed())));
                        }
                        Resolved::Changed => self.tree.events.long_gone += 1,
                        Resolved::Ask => break,
                    }
                }
                Walked::Ask => break,
                Walked::Gone => self.tree.forget(cost),
            }
        }
        Ok(None)
    }

    /// Reads a range by READs. `None` if only the owner knows.
    fn scan_by_reads(
        &mut self,
        core: &mut Core,
        range: OrderedRange<'_>,
        (is_reverse, limit): (bool, u64),
        cost: &mut Counts,
    ) -> Result<Option<(OrderedEntries, u64)>, Error> {
        let direction = if is_reverse { Direction::Descending } else { Direction::Ascending };
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        for _ in 0..=READ_RETRIES {
            let Some(known) = self.tree.place(core, cost)? else { break };
            let keys = known.header.keys;
            let mut integers = [[0; INTEGER_BYTES]; 2];
            let [from, to] = &mut integers;
            let (from, to) = (parsed(keys, range.from, from), parsed(keys, range.to, to));
            let Some((from, to)) = from.zip(to) else { break };
            let range = Range { from, to, direction, limit };
            match self.tree.scan(core, known, range, cost)? {
                Walked::Found(walk) => {
                    let at = known.place.at;
                    let in_leaves = walk.entries().map(|(_, value)| value);
                    match resolve(core, (self.tree.shard(), at), in_leaves, cost)? {
                        Resolved::Values(values) => {
                            let texts = walk.entries().map(|(key, _)| keys.text(key));
                            return Ok(Some((texts.zip(values).collect(), walk.believed())));
                        }
                        Resolved::Changed => self.tree.events.long_gone += 1,
                        Resolved::Ask => break,
                    }
                }
                Walked::Ask => break,
                Walked::Gone => self.tree.forget(cost),
            }
        }
        Ok(None)
    }

    pub(super) fn ask(
        &self,
        core: &mut Core,
        command: &OrderedCommand<'_>,
    ) -> Result<Answer, Error> {
        core.ask(&Command::Of { key: self.tree.key(), request: command.request() })
    }

    /// Asks for a key's value, after reading has cost `cost`.
    fn get_asked(&self, core: &mut Core, key: &[u8], cost: Counts) -> Result<OrderedGot, Error> {
        let wasted = Counts { operations: 0, ..cost };
        core.meter.add(&wasted);
        let served_by = ServedBy::asked_after(cost.round_trips);
        let answer = self.ask(core, &OrderedCommand::Get { key })?;
        let value = match (answer.status, answer.value) {
            (Status::Ok, Some(range)) => {
                let value = core.in_reply(range).to_vec();
                Some(OrderedValue { value, is_link: answer.number == 1 })
            }
            _ => None,
        };
        let mut counts = answer.counts;
        counts.add(&wasted);
        Ok(OrderedGot { value, nodes_visited: 0, served_by, counts })
    }
}

/// A bound as a tree has keys; `None` if it is none there.
fn parsed<'k>(
    keys: KeyForm,
    bound: Bound<&'k [u8]>,
    integer: &'k mut [u8; INTEGER_BYTES],
) -> Option<Bound<&'k [u8]>> {
    Some(match bound {
        Bound::Unbounded => Bound::Unbounded,
        Bound::Included(key) => Bound::Included(keys.parse(key, integer)?),
        Bound::Excluded(key) => Bound::Excluded(keys.parse(key, integer)?),
    })
}

pub(super) fn entries_of(list: &[u8]) -> OrderedEntries {
    let mut fields = Items::parse(list).into_iter().flat_map(Items::fields).flatten();
    let pairs = std::iter::from_fn(|| Some((fields.next()?, fields.next()?)));
    let owned = |(key, of): (Field<'_>, Field<'_>)| {
        (key.value.to_vec(), OrderedValue { value: of.value.to_vec(), is_link: of.is_link })
    };
    pairs.map(owned).collect()
}
