//! A session's view of one B+tree, of an ordered tree or a sorted set: it carries walks out by
//! READs.
//!
//! Invariants:
//! * what READs found counts only if the read lease still held when the last one had completed;
//! * it counts only if the tree's root record, read behind the last node, is live, of the known
//!   generation, and has not expired. So all leaves were the tree's own;
//! * a cached node is a hint: each leaf says for which keys it speaks (`cache`);
//! * only the owner can say that there is no tree.

use super::cache::{KeptNodes, OrderedCache};
use crate::core::Core;
use crate::counts::Counts;
use crate::directory::Directory;
use crate::error::Error;
use crate::read::{doubt, find_record};
use remora_fabric::Link;
use remora_index::btree::{Get, Range, Scan};
use remora_layout::btree::{ORDERED_ROOT_BYTES, OrderedHeader, verify_ordered_root};
use remora_layout::hash::KeyHash;
use remora_layout::kind::Kind;
use remora_layout::limits::{READ_RETRIES, SLOT_UNIT_BYTES};
use remora_layout::node::{Home, NodeRef, NotANode};
use remora_layout::record::{Mutable, RECORD_HEADER_BYTES, State, state_offset};
use remora_layout::tree::RootPlace;
use remora_walk::remote::{NodeCache, Reads, Tally, Wide};
use remora_walk::{End, Walk};

/// Leaves that a range reads at a time, at most.
const MAX_LEAVES: usize = 16;

/// Where the header of a tree is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TreeOf {
    /// In the root record of a key.
    Key {
        /// The kind of the record.
        kind: Kind,
        /// Where the header begins in the record's state.
        header_at: usize,
    },
    /// In a record whose place the owner has told.
    Told {
        /// That place.
        place: RootPlace,
        /// The record's state while the tree lives.
        while_in: State,
    },
}

impl TreeOf {
    /// The state of the root record while the tree lives.
    const fn while_in(&self) -> State {
        match self {
            Self::Key { .. } => State::Live,
            Self::Told { while_in, .. } => *while_in,
        }
    }
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
pub(crate) struct Known {
    pub place: RootPlace,
    pub header: OrderedHeader,
}

/// A session's view of one B+tree: where it lies, and its inner nodes. It is a hint.
#[derive(Debug)]
pub struct BtreeView {
    key: Box<[u8]>,
    hash: KeyHash,
    shard: usize,
    of: TreeOf,
    known: Option<Known>,
    kept: KeptNodes,
    /// Leaves of a range that are read at a time, at most.
    parallel: usize,
    /// What has happened to the reads.
    pub(crate) events: OrderedEvents,
}

/// A walk over a tree.
pub(crate) trait BtreeWalk: Walk<Head = OrderedHeader> {
    fn set_durable(&mut self, sequence: u64);
    fn want_durable(&mut self);
    fn durable(&self) -> u64;
}

impl BtreeWalk for Get<'_> {
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

impl BtreeWalk for Scan {
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
pub(crate) enum Walked<F> {
    /// What it found counts.
    Found(F),
    /// The tree is not where it was.
    Gone,
    /// Only the owner knows.
    Ask,
}

impl BtreeView {
    /// A view of the tree that a key holds, or will hold. Nothing is asked.
    pub(crate) fn new(directory: &Directory, key: &[u8], of: TreeOf) -> Result<Self, Error> {
        let (hash, shard) = directory.locate(key)?;
        Ok(Self {
            key: key.into(),
            hash,
            shard,
            of,
            known: None,
            kept: KeptNodes::new(OrderedCache::default()),
            parallel: MAX_LEAVES,
            events: OrderedEvents::default(),
        })
    }

    /// The tree's key.
    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }

    /// The shard of its key.
    pub(crate) const fn shard(&self) -> usize {
        self.shard
    }

    /// Whether the tree's place is known.
    pub(crate) const fn is_known(&self) -> bool {
        self.known.is_some()
    }

    /// Keeps inner nodes so from now on; none of those that it has.
    pub fn set_cache(&mut self, cache: OrderedCache) {
        self.kept = KeptNodes::new(cache);
    }

    /// Its nodes are chosen together with those of others from now on (`shared`). It keeps none of
    /// those that it has.
    pub(crate) fn share_cache(&mut self, bytes: usize) {
        self.kept = KeptNodes::shared(bytes);
    }

    /// Its kept nodes, if they are chosen together with those of others, and the tree is known.
    pub(crate) fn shared_nodes(&mut self) -> Option<(&OrderedHeader, &mut NodeCache)> {
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

    /// Reads a range of a tree of which this is known, some leaves at a time.
    pub(crate) fn scan(
        &mut self,
        core: &mut Core,
        known: Known,
        range: Range<'_>,
        cost: &mut Counts,
    ) -> Result<Walked<Scan>, Error> {
        let half = known.header.fan_out as usize / 2;
        let parallel = range.limit.div_ceil(half).clamp(1, self.parallel);
        let (home, region_bytes) = self.region(core);
        let walk = Scan::begin(range, parallel, home, known.place.at, known.header, region_bytes);
        Ok(match self.walk(core, (known, walk), parallel.max(2), cost)? {
            Walked::Found((walk, ())) => Walked::Found(walk),
            Walked::Gone => Walked::Gone,
            Walked::Ask => Walked::Ask,
        })
    }

    /// Where the tree lies. `None` if only the owner knows.
    pub(crate) fn place(
        &mut self,
        core: &mut Core,
        cost: &mut Counts,
    ) -> Result<Option<Known>, Error> {
        if self.known.is_none() {
            match self.of {
                TreeOf::Key { kind, header_at } => self.look_up(core, (kind, header_at), cost)?,
                TreeOf::Told { place, .. } => {
                    let header = self.read_header(core, place, cost)?;
                    self.known = header.map(|header| Known { place, header });
                }
            }
        }
        Ok(self.known)
    }

    pub(crate) fn region(&self, core: &Core) -> (Home, u64) {
        let shard = &core.directory.shards[self.shard];
        (shard.home(), shard.table.region_bytes)
    }

    pub(crate) fn forget(&mut self, cost: &mut Counts) {
        self.events.gone += 1;
        cost.stale += 1;
        self.known = None;
        self.kept.nodes.clear();
    }

    /// Finds the tree's root record by its key, if the owner need not be asked.
    fn look_up(
        &mut self,
        core: &mut Core,
        (kind, header_at): (Kind, usize),
        cost: &mut Counts,
    ) -> Result<(), Error> {
        let (endpoint, directory) = (&mut core.asker.endpoint, &mut core.directory);
        let at = (&*self.key, self.hash, self.shard);
        let (found, _) = find_record((endpoint, directory), at, kind, cost)?;
        let Some(found) = found.filter(|found| found.kind.is_root()) else { return Ok(()) };
        // The record's class, with the header behind the key, has landed.
        let endpoint = &core.asker.endpoint;
        let record = endpoint.link.landed(0, found.fetched_bytes);
        let verified = found.record(record);
        let pointer = verified.pointer;
        let key_bytes = pointer.length as usize - RECORD_HEADER_BYTES - verified.value.len();
        let from = state_offset(key_bytes) + header_at;
        let slot = pointer.slot + (from / SLOT_UNIT_BYTES) as u32;
        let at = NodeRef { slot, generation: pointer.generation };
        let place = RootPlace { record: pointer.slot, at };
        let home = core.directory.shards[self.shard].home();
        let bytes = record.get(..from + ORDERED_ROOT_BYTES);
        let root =
            bytes.and_then(|bytes| verify_ordered_root(place, bytes, home, State::Live).ok());
        self.known = root.map(|(header, _)| Known { place, header });
        Ok(())
    }

    /// Carries a walk out, with so many READs at a time.
    pub(crate) fn walk<W: BtreeWalk>(
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
    fn follow<W: BtreeWalk>(
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

    /// Why what a walk found does not count: the root, which was read behind all nodes, has gone,
    /// or may have expired. `None`: it counts.
    fn refused<F>(
        &mut self,
        core: &mut Core,
        known: Known,
        (from, bytes): (usize, usize),
        cost: &mut Counts,
    ) -> Result<Option<Walked<F>>, Error> {
        let (home, _) = self.region(core);
        let landed = core.asker.endpoint.landed(from, bytes);
        let while_in = self.of.while_in();
        let (header, mutable) = match verify_ordered_root(known.place, landed, home, while_in) {
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
            let while_in = self.of.while_in();
            match verify_ordered_root(place, endpoint.landed(0, bytes), home, while_in) {
                Ok(root) => return Ok(Some(root)),
                Err(NotANode::Torn) => cost.retries += 1,
                Err(NotANode::Dead) => return Ok(None),
            }
        }
        Ok(None)
    }
}
