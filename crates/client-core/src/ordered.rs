//! Ordered trees: the client asks for changes, and reads keys by either route.
//!
//! Invariants:
//! * what READs found counts only if the read lease still held when the last one had completed;
//! * it counts only if the tree's root record, read behind the last node, is live, of the known
//!   generation, and has not expired. So all nodes were the tree's own, the cached ones too;
//! * a cached node counts only if its version was read again and is the same (`node_cache`);
//! * only the owner can say that there is no tree. That a key is not in a tree READs can say: a leaf
//!   has all keys between its fences.

use crate::asker::Answer;
use crate::choose::{Class, Route};
use crate::core::Core;
use crate::counts::Counts;
use crate::directory::Directory;
use crate::error::Error;
use crate::path::{Path, ServedBy};
use crate::read::{doubt, find_record};
use crate::session::Session;
use remora_fabric::Link;
use remora_index::btree::Get;
use remora_layout::btree::{
    INTEGER_BYTES, LEVEL_INFO_WORDS, LevelInfo, ORDERED_INFO_WORDS, ORDERED_ROOT_BYTES,
    OrderedHeader, OrderedInfo, ValueKind, verify_ordered_root,
};
use remora_layout::hash::KeyHash;
use remora_layout::kind::Kind;
use remora_layout::limits::{READ_RETRIES, SLOT_UNIT_BYTES, WORD_BYTES};
use remora_layout::node::{NodeRef, NotANode};
use remora_layout::packed::Field;
use remora_layout::record::{Mutable, RECORD_HEADER_BYTES, state_offset};
use remora_layout::tree::RootPlace;
use remora_protocol::message::Status;
use remora_protocol::ordered::{OrderedCommand, OrderedRange, OrderedSettings};
use remora_protocol::{Command, Items};
use remora_walk::remote::{NodeCache, Reads, Tally, Wide};
use remora_walk::{End, Walk};
use zerocopy::FromBytes;

/// Bytes of inner nodes that a view keeps, the top levels first.
const CACHE_BYTES: usize = 1 << 20;

/// A value of an ordered tree.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct OrderedValue {
    /// The value; of a link the name of the key that it leads to.
    pub value: Vec<u8>,
    /// Whether it is a link.
    pub is_link: bool,
}

/// The value of a key of a tree, and how it was fetched.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct OrderedGot {
    /// The value; `None`: the key is not there.
    pub value: Option<OrderedValue>,
    /// How it was fetched.
    pub served_by: ServedBy,
    /// What it cost.
    pub counts: Counts,
}

/// Keys of a range, as users write them, with their values.
pub type OrderedEntries = Vec<(Vec<u8>, OrderedValue)>;

/// Events of the READs of a tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct OrderedEvents {
    /// A key was looked up by READs.
    pub read: u64,
    /// A walk began again at the root, as nodes had gone.
    pub began_again: u64,
    /// A walk began again, as a cached node had changed.
    pub stale_kept: u64,
    /// The tree was no longer at its known place.
    pub gone: u64,
    /// The tree may have expired.
    pub expired: u64,
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
    node_cache: NodeCache,
    events: OrderedEvents,
    /// What its lookups cost.
    class: Class,
}

/// What a walk by READs came to.
enum Walked {
    /// The key's value, or its absence.
    Found(Option<OrderedValue>),
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
            node_cache: NodeCache::new(CACHE_BYTES),
            events: OrderedEvents::default(),
            class: Class::NEW,
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

    /// Keeps so many bytes of inner nodes from now on; none of those that it has.
    pub fn set_cache_bytes(&mut self, bytes: usize) {
        self.node_cache = NodeCache::new(bytes);
    }

    /// The value of a key.
    pub(crate) fn get(
        &mut self,
        core: &mut Core,
        key: &[u8],
        path: Path,
    ) -> Result<OrderedGot, Error> {
        core.asker.ready()?;
        let cost = Counts { operations: 1, ..Counts::default() };
        let mut class = self.class.clone();
        let (timing, _) = core.router.begin_search(&mut core.asker.endpoint, &mut class, path)?;
        let got = match timing.route {
            Route::Ask => self.get_asked(core, key, cost),
            Route::Read => self.get_read(core, key, cost),
        };
        let got = got.and_then(|got| {
            let Core { router, asker, .. } = &mut *core;
            let of = (got.served_by, &got.counts);
            router.end_search(&mut asker.endpoint, &mut class, &timing, of.0, of.1)?;
            Ok(got)
        });
        self.class = class;
        got
    }

    fn get_read(
        &mut self,
        core: &mut Core,
        key: &[u8],
        mut cost: Counts,
    ) -> Result<OrderedGot, Error> {
        if !core.asker.may_read(self.shard) {
            cost.behind_writes = 1;
            return self.get_asked(core, key, cost);
        }
        let Some(value) = self.find_by_reads(core, key, &mut cost)? else {
            cost.undecided = 1;
            return self.get_asked(core, key, cost);
        };
        core.asker.endpoint.staleness.conclude_reads();
        self.events.read += 1;
        cost.read = 1;
        core.meter.add(&cost);
        let served_by = ServedBy::read_after((cost.retries + cost.stale) as u32);
        Ok(OrderedGot { value, served_by, counts: cost })
    }

    /// Looks a key up by READs. `None` if only the owner knows.
    fn find_by_reads(
        &mut self,
        core: &mut Core,
        key: &[u8],
        cost: &mut Counts,
    ) -> Result<Option<Option<OrderedValue>>, Error> {
        for _ in 0..=READ_RETRIES {
            let Some(known) = self.known else {
                if self.look_up(core, cost)? {
                    continue;
                }
                return Ok(None);
            };
            match self.walk(core, known, key, cost)? {
                Walked::Found(value) => return Ok(Some(value)),
                Walked::Ask => return Ok(None),
                Walked::Gone => {
                    self.events.gone += 1;
                    cost.stale += 1;
                    self.forget();
                }
            }
        }
        Ok(None)
    }

    fn forget(&mut self) {
        self.known = None;
        self.node_cache.clear();
    }

    /// Finds the tree's root record by its key. False if only the owner knows.
    fn look_up(&mut self, core: &mut Core, cost: &mut Counts) -> Result<bool, Error> {
        let (endpoint, directory) = (&mut core.asker.endpoint, &mut core.directory);
        let at = (&*self.key, self.hash, self.shard);
        let (found, _) = find_record((endpoint, directory), at, Kind::ORDERED, cost)?;
        let Some(found) = found.filter(|found| found.kind.is_root()) else { return Ok(false) };
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
        Ok(self.known.is_some())
    }

    fn walk(
        &mut self,
        core: &mut Core,
        known: Known,
        text: &[u8],
        cost: &mut Counts,
    ) -> Result<Walked, Error> {
        let mut integer = [0; INTEGER_BYTES];
        let Some(key) = known.header.keys.parse(text, &mut integer) else {
            return Ok(Walked::Ask);
        };
        let shard = &core.directory.shards[self.shard];
        let mut walk =
            Get::begin(key, shard.home(), known.place.at, known.header, shard.table.region_bytes);
        walk.set_durable(shard.durable);
        if shard.table.lags {
            walk.want_durable();
        }
        let mut cache = std::mem::replace(&mut self.node_cache, NodeCache::new(0));
        let place = (self.shard as u32, known.place.ranges_of(ORDERED_ROOT_BYTES));
        // The versions of kept nodes are read with the node below: a place of its own is enough for that.
        let (most, bytes) = ((2, u64::MAX), known.header.node_bytes as usize);
        let mut wide = Wide::new(walk, place, bytes, most, &mut cache);
        let walked = self.follow(core, known, &mut wide, cost);
        cost.retries += u64::from(wide.walk.retries());
        let durable = wide.walk.durable();
        if durable != u64::MAX {
            let shard = &mut core.directory.shards[self.shard];
            shard.durable = shard.durable.max(durable);
        }
        self.node_cache = cache;
        walked
    }

    /// Walks until the end, with as many restarts as it takes.
    fn follow(
        &mut self,
        core: &mut Core,
        mut known: Known,
        wide: &mut Wide<'_, Get<'_>>,
        cost: &mut Counts,
    ) -> Result<Walked, Error> {
        // Bounded: a walk begins again a bounded number of times.
        loop {
            match wide.run(&mut core.asker.endpoint, cost)? {
                End::Found(is_there) => {
                    return self.conclude(core, known, (wide, is_there), cost);
                }
                End::Ask(_) | End::Beyond => return Ok(Walked::Ask),
                End::Stale => self.events.stale_kept += 1,
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

    /// Whether what a walk found counts: the root, which was read behind all nodes, stands.
    fn conclude(
        &mut self,
        core: &mut Core,
        known: Known,
        (wide, is_there): (&Wide<'_, Get<'_>>, bool),
        cost: &mut Counts,
    ) -> Result<Walked, Error> {
        let home = core.directory.shards[self.shard].home();
        let (from, bytes) = wide.root_landed();
        let endpoint = &mut core.asker.endpoint;
        let (header, mutable) =
            match verify_ordered_root(known.place, endpoint.landed(from, bytes), home) {
                Ok(root) => root,
                Err(NotANode::Dead) => return Ok(Walked::Gone),
                Err(NotANode::Torn) => match self.read_root(core, known.place, cost)? {
                    Some(root) => root,
                    None => return Ok(Walked::Ask),
                },
            };
        self.known = Some(Known { header, ..known });
        if doubt(&mut core.asker.endpoint, mutable.expires_at_ms, cost)?.is_some() {
            self.events.expired += 1;
            return Ok(Walked::Ask);
        }
        let value = wide.walk.value();
        Ok(Walked::Found(is_there.then(|| OrderedValue {
            value: value.bytes.to_vec(),
            is_link: value.kind == ValueKind::Link,
        })))
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

    fn ask(&self, core: &mut Core, command: &OrderedCommand<'_>) -> Result<Answer, Error> {
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
        Ok(OrderedGot { value, served_by, counts })
    }
}

fn entries_of(list: &[u8]) -> OrderedEntries {
    let mut fields = Items::parse(list).into_iter().flat_map(Items::fields).flatten();
    let pairs = std::iter::from_fn(|| Some((fields.next()?, fields.next()?)));
    let owned = |(key, of): (Field<'_>, Field<'_>)| {
        (key.value.to_vec(), OrderedValue { value: of.value.to_vec(), is_link: of.is_link })
    };
    pairs.map(owned).collect()
}

impl Session {
    /// A view of the ordered tree that a key holds, or will hold. Nothing is asked.
    ///
    /// # Errors
    /// The key is too long.
    pub fn open_ordered(&self, key: &[u8]) -> Result<OpenOrdered, Error> {
        OpenOrdered::new(&self.core.directory, key)
    }

    /// Makes an empty ordered tree. False if there is one.
    ///
    /// # Errors
    /// See [`Error`]. Settings beyond the limits are refused.
    pub fn ordered_create(
        &mut self,
        open: &OpenOrdered,
        settings: OrderedSettings,
    ) -> Result<bool, Error> {
        let command = OrderedCommand::Create(settings);
        Ok(open.ask(&mut self.core, &command)?.status == Status::Ok)
    }

    /// Gives a key of a tree a value, or a link; true if the key is new.
    pub fn ordered_set(
        &mut self,
        open: &OpenOrdered,
        key: &[u8],
        (value, is_link): (&[u8], bool),
    ) -> Result<bool, Error> {
        let command = OrderedCommand::Set { key, value: Field { value, is_link } };
        Ok(open.ask(&mut self.core, &command)?.number == 1)
    }

    /// Removes a key of a tree; true if it was there.
    pub fn ordered_remove(&mut self, open: &OpenOrdered, key: &[u8]) -> Result<bool, Error> {
        Ok(open.ask(&mut self.core, &OrderedCommand::Delete { key })?.number == 1)
    }

    /// The value of a key of a tree.
    pub fn ordered_get(
        &mut self,
        open: &mut OpenOrdered,
        key: &[u8],
        path: Path,
    ) -> Result<OrderedGot, Error> {
        open.get(&mut self.core, key, path)
    }

    /// The entries of a range, in order or against it, so many at most.
    pub fn ordered_range(
        &mut self,
        open: &OpenOrdered,
        range: OrderedRange<'_>,
        (is_reverse, limit): (bool, u64),
    ) -> Result<OrderedEntries, Error> {
        self.core.begin()?;
        let request = OrderedCommand::Range { range, is_reverse, limit }.request();
        let (list, _) = self.core.ask_list(open.shard, &open.key, request)?;
        Ok(entries_of(&list))
    }

    /// How many keys a range has.
    pub fn ordered_count(
        &mut self,
        open: &OpenOrdered,
        range: OrderedRange<'_>,
    ) -> Result<u64, Error> {
        self.core.begin()?;
        Ok(open.ask(&mut self.core, &OrderedCommand::Count { range })?.number as u64)
    }

    /// How many keys stand before this one; `None` if it is not there.
    pub fn ordered_rank(&mut self, open: &OpenOrdered, key: &[u8]) -> Result<Option<u64>, Error> {
        self.core.begin()?;
        let answer = open.ask(&mut self.core, &OrderedCommand::Rank { key })?;
        Ok((answer.status == Status::Ok).then_some(answer.number as u64))
    }

    /// The key with so many before it, and its value; below 0 from the end.
    pub fn ordered_select(
        &mut self,
        open: &OpenOrdered,
        rank: i64,
    ) -> Result<Option<(Vec<u8>, OrderedValue)>, Error> {
        self.core.begin()?;
        let core = &mut self.core;
        let answer = open.ask(core, &OrderedCommand::Select { rank })?;
        let range = answer.value.filter(|_| answer.status == Status::Ok);
        Ok(range.and_then(|range| entries_of(core.in_reply(range)).pop()))
    }

    /// What a tree is; `None` if there is none.
    pub fn ordered_info(&mut self, open: &OpenOrdered) -> Result<Option<OrderedInfo>, Error> {
        self.core.begin()?;
        let core = &mut self.core;
        let answer = open.ask(core, &OrderedCommand::Info)?;
        let Some(range) = answer.value.filter(|_| answer.status == Status::Ok) else {
            return Ok(None);
        };
        let words = <[u64; ORDERED_INFO_WORDS]>::read_from_bytes(core.in_reply(range));
        match words.ok().and_then(|words| OrderedInfo::from_words(&words)) {
            Some(info) => Ok(Some(info)),
            None => Err(core.asker.endpoint.end(Error::Protocol("a tree that cannot be"))),
        }
    }

    /// The levels of a tree, from the root down; none if there is no tree.
    pub fn ordered_levels(&mut self, open: &OpenOrdered) -> Result<Vec<LevelInfo>, Error> {
        self.core.begin()?;
        let core = &mut self.core;
        let answer = open.ask(core, &OrderedCommand::Levels)?;
        let Some(range) = answer.value.filter(|_| answer.status == Status::Ok) else {
            return Ok(Vec::new());
        };
        let levels = core.in_reply(range).chunks_exact(LEVEL_INFO_WORDS * WORD_BYTES);
        let words = levels.map(<[u64; LEVEL_INFO_WORDS]>::read_from_bytes);
        Ok(words.flatten().map(|words| LevelInfo::from_words(&words)).collect())
    }
}
