//! Ordered trees: the client asks for changes, and reads keys and ranges by either route.
//!
//! Invariants:
//! * what READs found counts only if the read lease still held when the last one had completed;
//! * it counts only if the tree's root record, read behind the last node, is live, of the known
//!   generation, and has not expired. So all leaves were the tree's own;
//! * a value that lies in a record counts if its leaf does, and as `long` says;
//! * a cached node is a hint: each leaf says for which keys it speaks (`cache`);
//! * only the owner can say that there is no tree. That a key is not in a tree READs can say: a leaf
//!   has all keys between its fences.

use super::cache::{KeptNodes, OrderedCache};
use super::long::{Resolved, resolve};
use super::value::OrderedValue;
use crate::asker::Answer;
use crate::choose::{Class, Route};
use crate::core::Core;
use crate::counts::Counts;
use crate::directory::Directory;
use crate::error::Error;
use crate::path::{Path, ServedBy};
use crate::read::{doubt, find_record};
use crate::router::Timing;
use remora_fabric::Link;
use remora_index::btree::{Direction, Get, Range, Scan};
use remora_layout::btree::{
    INTEGER_BYTES, KeyForm, ORDERED_ROOT_BYTES, OrderedHeader, verify_ordered_root,
};
use remora_layout::hash::KeyHash;
use remora_layout::kind::Kind;
use remora_layout::limits::{READ_RETRIES, SLOT_UNIT_BYTES};
use remora_layout::node::{Home, NodeRef, NotANode};
use remora_layout::packed::Field;
use remora_layout::record::{Mutable, RECORD_HEADER_BYTES, state_offset};
use remora_layout::tree::RootPlace;
use remora_protocol::message::Status;
use remora_protocol::ordered::{OrderedCommand, OrderedRange};
use remora_protocol::{Command, Items};
use remora_walk::remote::{NodeCache, Reads, Tally, Wide};
use remora_walk::{End, Walk};
use std::ops::Bound;

/// Leaves that a range reads at a time, at most.
const MAX_LEAVES: usize = 16;
/// A range of more keys is asked for, unless the caller says how: what it costs is mostly its bytes.
const MAX_KEYS_READ: u64 = 4_096;
/// Classes of ranges: by the bits of their limits, up to those of `MAX_KEYS_READ`.
const RANGE_CLASSES: usize = MAX_KEYS_READ.ilog2() as usize + 1;

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

/// Events of the READs of a tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct OrderedEvents {
    /// A key was looked up by READs.
    pub read: u64,
    /// A range was read by READs.
    pub ranges: u64,
    /// A walk began again at the root, as nodes had gone.
    pub began_again: u64,
    /// Kept nodes were forgotten, as they led to nodes that were divided or had gone.
    pub led_astray: u64,
    /// The tree was no longer at its known place.
    pub gone: u64,
    /// The tree may have expired.
    pub expired: u64,
    /// A value's record had gone: its key had another value, or none, by then.
    pub long_gone: u64,
}

/// Where a tree lies.
#[derive(Clone, Copy, Debug)]
struct Known {
    place: RootPlace,
    header: OrderedHeader,
}

/// A session's view of one ordered tree: where it lies, and its top levels. It is a hint.
#[derive(Debug)]
pub struct OpenOrdered {
    key: Box<[u8]>,
    hash: KeyHash,
    shard: usize,
    known: Option<Known>,
    kept: KeptNodes,
    /// Leaves of a range that are read at a time, at most.
    parallel: usize,
    events: OrderedEvents,
    /// What its lookups cost.
    class: Class,
    /// The same of ranges, by the bits of their limits.
    range_classes: Vec<Class>,
}

/// A walk over a tree.
trait OrderedWalk: Walk<Head = OrderedHeader> {
    fn set_durable(&mut self, sequence: u64);
    fn want_durable(&mut self);
    fn durable(&self) -> u64;
}

impl OrderedWalk for Get<'_> {
    fn set_durable(&mut self, sequence: u64) {
        self.set_durable(sequence);
    }

    fn want_durable(&mut self) {
        self.want_durable();
    }

    fn durable(&self) -> u64 {
        self.durable()
    }
}

impl OrderedWalk for Scan {
    fn set_durable(&mut self, sequence: u64) {
        self.set_durable(sequence);
    }

    fn want_durable(&mut self) {
        self.want_durable();
    }

    fn durable(&self) -> u64 {
        self.durable()
    }
}

/// What a walk by READs came to.
enum Walked<F> {
    /// What it found counts.
    Found(F),
    /// The tree is not where it was.
    Gone,
    /// Only the owner knows.
    Ask,
}

impl OpenOrdered {
    /// A view of the tree that a key holds, or will hold. Nothing is asked.
    pub(crate) fn new(directory: &Directory, key: &[u8]) -> Result<Self, Error> {
        let (hash, shard) = directory.locate(key)?;
        Ok(Self {
            key: key.into(),
            hash,
            shard,
            known: None,
            kept: KeptNodes::new(OrderedCache::default()),
            parallel: MAX_LEAVES,
            events: OrderedEvents::default(),
            class: Class::NEW,
            range_classes: vec![Class::NEW; RANGE_CLASSES],
        })
    }

    /// The tree's key.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// What has happened to the reads of it.
    pub fn events(&self) -> OrderedEvents {
        self.events
    }

    /// Keeps inner nodes so from now on; none of those that it has.
    pub fn set_cache(&mut self, cache: OrderedCache) {
        self.kept = KeptNodes::new(cache);
    }

    /// Its nodes are chosen together with those of others from now on (`shared`). It keeps none of
    /// those that it has.
    pub(super) fn share_cache(&mut self, bytes: usize) {
        self.kept = KeptNodes::shared(bytes);
    }

    /// Its kept nodes, if they are chosen together with those of others, and the tree is known.
    pub(super) fn shared_nodes(&mut self) -> Option<(&OrderedHeader, &mut NodeCache)> {
        let known = self.known.as_ref().filter(|_| self.kept.is_shared())?;
        Some((&known.header, &mut self.kept.nodes))
    }

    /// Keeps the inner nodes that it has chosen so far, whatever it visits from now on.
    pub fn settle_cache(&mut self) {
        self.kept.settle();
    }

    /// Reads so many leaves of a range at a time, at most; `None`: as many as by default.
    pub fn set_parallel(&mut self, leaves: Option<usize>) {
        self.parallel = leaves.unwrap_or(MAX_LEAVES).max(1);
    }

    /// Bytes of inner nodes that it keeps now, and how many they are.
    pub fn cached(&self) -> (usize, usize) {
        (self.kept.nodes.bytes(), self.kept.nodes.len())
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
        let got = match self
            .read_by(core, &timing, cost, |own, core, cost| own.find_by_reads(core, key, cost))?
        {
            Ok(((value, nodes_visited), served_by, counts)) => {
                self.events.read += 1;
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
        let bits = of.1.checked_ilog2().unwrap_or(0) as usize;
        let at = bits.min(self.range_classes.len() - 1);
        let mut class = self.range_classes[at].clone();
        let (timing, _) = core.router.begin_search(&mut core.asker.endpoint, &mut class, path)?;
        let found = match self.read_by(core, &timing, cost, |own, core, cost| {
            own.scan_by_reads(core, range, of, cost)
        })? {
            Ok(((entries, nodes_visited), served_by, counts)) => {
                self.events.ranges += 1;
                OrderedFound { entries, nodes_visited, served_by, counts }
            }
            Err(cost) => self.range_asked(core, range, of, cost)?,
        };
        let Core { router, asker, .. } = core;
        let by = (found.served_by, &found.counts);
        router.end_search(&mut asker.endpoint, &mut class, &timing, by.0, by.1)?;
        self.range_classes[at] = class;
        Ok(found)
    }

    /// Reads, if this route says so. What reading has cost, if the owner has to be asked.
    fn read_by<T>(
        &mut self,
        core: &mut Core,
        timing: &Timing,
        mut cost: Counts,
        read: impl FnOnce(&mut Self, &mut Core, &mut Counts) -> Result<Option<T>, Error>,
    ) -> Result<Result<(T, ServedBy, Counts), Counts>, Error> {
        if timing.route == Route::Ask {
            return Ok(Err(cost));
        }
        if !core.asker.may_read(self.shard) {
            cost.behind_writes = 1;
            return Ok(Err(cost));
        }
        let Some(found) = read(self, core, &mut cost)? else {
            cost.undecided = 1;
            return Ok(Err(cost));
        };
        core.asker.endpoint.staleness.conclude_reads();
        cost.read = 1;
        core.meter.add(&cost);
        let served_by = ServedBy::read_after((cost.retries + cost.stale) as u32);
        Ok(Ok((found, served_by, cost)))
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
        let (list, mut counts) = core.ask_list(self.shard, &self.key, request)?;
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
            let Some(known) = self.place(core, cost)? else { break };
            let Some(key) = known.header.keys.parse(key, &mut integer) else { break };
            let (home, region_bytes) = self.region(core);
            let walk = Get::begin(key, home, known.place.at, known.header, region_bytes);
            match self.walk(core, (known, walk), 2, cost)? {
                Walked::Found((walk, is_there)) => {
                    let (tree, value) = (known.place.at, is_there.then(|| walk.value()));
                    match resolve(core, (self.shard, tree), value.into_iter(), cost)? {
                        Resolved::Values(mut values) => {
                            return Ok(Some((values.pop(), walk.believed())));
                        }
                        Resolved::Changed => self.events.long_gone += 1,
                        Resolved::Ask => break,
                    }
                }
                Walked::Ask => break,
                Walked::Gone => self.forget(cost),
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
            let Some(known) = self.place(core, cost)? else { break };
            let keys = known.header.keys;
            let mut integers = [[0; INTEGER_BYTES]; 2];
            let [from, to] = &mut integers;
            let (from, to) = (parsed(keys, range.from, from), parsed(keys, range.to, to));
            let Some((from, to)) = from.zip(to) else { break };
            let range = Range { from, to, direction, limit };
            let parallel =
                limit.div_ceil(known.header.fan_out as usize / 2).clamp(1, self.parallel);
            let (home, region_bytes) = self.region(core);
            let at = known.place.at;
            let walk = Scan::begin(range, parallel, home, at, known.header, region_bytes);
            match self.walk(core, (known, walk), parallel.max(2), cost)? {
                Walked::Found((walk, ())) => {
                    let in_leaves = walk.entries().map(|(_, value)| value);
                    match resolve(core, (self.shard, at), in_leaves, cost)? {
                        Resolved::Values(values) => {
                            let texts = walk.entries().map(|(key, _)| keys.text(key));
                            return Ok(Some((texts.zip(values).collect(), walk.believed())));
                        }
                        Resolved::Changed => self.events.long_gone += 1,
                        Resolved::Ask => break,
                    }
                }
                Walked::Ask => break,
                Walked::Gone => self.forget(cost),
            }
        }
        Ok(None)
    }

    /// Where the tree lies. `None` if only the owner knows.
    fn place(&mut self, core: &mut Core, cost: &mut Counts) -> Result<Option<Known>, Error> {
        if self.known.is_none() {
            self.look_up(core, cost)?;
        }
        Ok(self.known)
    }

    fn region(&self, core: &Core) -> (Home, u64) {
        let shard = &core.directory.shards[self.shard];
        (shard.home(), shard.table.region_bytes)
    }

    fn forget(&mut self, cost: &mut Counts) {
        self.events.gone += 1;
        cost.stale += 1;
        self.known = None;
        self.kept.nodes.clear();
    }

    /// Finds the tree's root record by its key, if the owner need not be asked.
    fn look_up(&mut self, core: &mut Core, cost: &mut Counts) -> Result<(), Error> {
        let (endpoint, directory) = (&mut core.asker.endpoint, &mut core.directory);
        let at = (&*self.key, self.hash, self.shard);
        let (found, _) = find_record((endpoint, directory), at, Kind::ORDERED, cost)?;
        let Some(found) = found.filter(|found| found.kind.is_root()) else { return Ok(()) };
        // The record's class, with the header behind the key, has landed.
        let endpoint = &core.asker.endpoint;
        let record = endpoint.link.landed(0, found.fetched_bytes);
        let verified = found.record(record);
        let pointer = verified.pointer;
        let key_bytes = pointer.length as usize - RECORD_HEADER_BYTES - verified.value.len();
        let from = state_offset(key_bytes);
        let slot = pointer.slot + (from / SLOT_UNIT_BYTES) as u32;
        let at = NodeRef { slot, generation: pointer.generation };
        let place = RootPlace { record: pointer.slot, at };
        let home = core.directory.shards[self.shard].home();
        let bytes = record.get(..from + ORDERED_ROOT_BYTES);
        let root = bytes.and_then(|bytes| verify_ordered_root(place, bytes, home).ok());
        self.known = root.map(|(header, _)| Known { place, header });
        Ok(())
    }

    /// Carries a walk out, with so many READs at a time.
    fn walk<W: OrderedWalk>(
        &mut self,
        core: &mut Core,
        (known, mut walk): (Known, W),
        issued: usize,
        cost: &mut Counts,
    ) -> Result<Walked<(W, W::Found)>, Error> {
        let shard = &core.directory.shards[self.shard];
        walk.set_durable(shard.durable);
        if shard.table.lags {
            walk.want_durable();
        }
        self.kept.begin_walk(&known.header);
        let mut cache = std::mem::replace(&mut self.kept.nodes, NodeCache::new(0));
        let place = (self.shard as u32, known.place.ranges_of(ORDERED_ROOT_BYTES));
        let (most, bytes) = ((issued, u64::MAX), known.header.node_bytes as usize);
        let mut wide = Wide::new(walk, place, bytes, most, &mut cache);
        let walked = self.follow(core, known, &mut wide, cost);
        self.events.led_astray += wide.forgotten();
        let walk = wide.walk;
        self.kept.nodes = cache;
        cost.retries += u64::from(walk.retries());
        if walk.durable() != u64::MAX {
            let shard = &mut core.directory.shards[self.shard];
            shard.durable = shard.durable.max(walk.durable());
        }
        Ok(match walked? {
            Walked::Found(found) => Walked::Found((walk, found)),
            Walked::Gone => Walked::Gone,
            Walked::Ask => Walked::Ask,
        })
    }

    /// Walks until the end, with as many restarts as it takes.
    fn follow<W: OrderedWalk>(
        &mut self,
        core: &mut Core,
        mut known: Known,
        wide: &mut Wide<'_, W>,
        cost: &mut Counts,
    ) -> Result<Walked<W::Found>, Error> {
        // Bounded: a walk begins again a bounded number of times.
        loop {
            match wide.run(&mut core.asker.endpoint, cost)? {
                End::Found(found) => {
                    let refused = self.refused(core, known, wide.root_landed(), cost)?;
                    return Ok(refused.unwrap_or(Walked::Found(found)));
                }
                End::Ask(_) | End::Beyond | End::Stale => return Ok(Walked::Ask),
                End::Restart => {
                    self.events.began_again += 1;
                    match self.read_header(core, known.place, cost)? {
                        Some(header) => known.header = header,
                        None => return Ok(Walked::Gone),
                    }
                    self.known = Some(known);
                }
            }
            if wide.walk.restart(&known.header).is_err() {
                return Ok(Walked::Ask);
            }
        }
    }

    /// Why what a walk found does not count: the root, which was read behind all nodes, has gone, or may
    /// have expired. `None`: it counts.
    fn refused<F>(
        &mut self,
        core: &mut Core,
        known: Known,
        (from, bytes): (usize, usize),
        cost: &mut Counts,
    ) -> Result<Option<Walked<F>>, Error> {
        let (home, _) = self.region(core);
        let landed = core.asker.endpoint.landed(from, bytes);
        let (header, mutable) = match verify_ordered_root(known.place, landed, home) {
            Ok(root) => root,
            Err(NotANode::Dead) => return Ok(Some(Walked::Gone)),
            Err(NotANode::Torn) => match self.read_root(core, known.place, cost)? {
                Some(root) => root,
                None => return Ok(Some(Walked::Ask)),
            },
        };
        self.known = Some(Known { header, ..known });
        if doubt(&mut core.asker.endpoint, mutable.expires_at_ms, cost)?.is_some() {
            self.events.expired += 1;
            return Ok(Some(Walked::Ask));
        }
        Ok(None)
    }

    fn read_header(
        &mut self,
        core: &mut Core,
        place: RootPlace,
        cost: &mut Counts,
    ) -> Result<Option<OrderedHeader>, Error> {
        Ok(self.read_root(core, place, cost)?.map(|(header, _)| header))
    }

    /// Reads the root record of a tree by itself; `None` if it has gone, or changes too fast.
    fn read_root(
        &mut self,
        core: &mut Core,
        place: RootPlace,
        cost: &mut Counts,
    ) -> Result<Option<(OrderedHeader, Mutable)>, Error> {
        let home = core.directory.shards[self.shard].home();
        let endpoint = &mut core.asker.endpoint;
        let from = place.words_at();
        let bytes = place.at.offset() + ORDERED_ROOT_BYTES - from as usize;
        for _ in 0..=READ_RETRIES {
            endpoint.fetch(self.shard as u32, from, bytes)?;
            cost.fetched(1, 0, bytes as u64);
            match verify_ordered_root(place, endpoint.landed(0, bytes), home) {
                Ok(root) => return Ok(Some(root)),
                Err(NotANode::Torn) => cost.retries += 1,
                Err(NotANode::Dead) => return Ok(None),
            }
        }
        Ok(None)
    }

    pub(super) fn ask(
        &self,
        core: &mut Core,
        command: &OrderedCommand<'_>,
    ) -> Result<Answer, Error> {
        core.ask(&Command::Of { key: &self.key, request: command.request() })
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
