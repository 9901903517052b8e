//! Reading a tree: the walk that the owner's threads run too, fed by READs.
//!
//! What it keeps true:
//! * what was found counts only if the reading right still held when the last
//!   READ had completed;
//! * a node that was kept counts only if its version was read anew and is the
//!   same (`tops`);
//! * a walk begins under the header as it was read last. An old one has an old
//!   counter, so that too many nodes seem to have lost entries: the walk then
//!   begins again under a new header.

use super::tops::version_of;
use super::{Issue, OpenTree, Tops};
use crate::api::Counts;
use crate::error::Error;
use crate::session::Session;
use remora_fabric::{Link, RemoteAddress, Work};
use remora_index::rtree::{Query, Step, Walk, Want};
use remora_layout::limits::{MAX_ISSUED, MAX_VERSION_CHECKS, WALK_RETRIES};
use remora_layout::node::{Home, NodeRef, NotANode, Proof, VERSIONED_BYTES};
use remora_layout::plant::{Plant, planted};
use remora_layout::tree::{TREE_HEADER_BYTES, TreeHeader, verify_header};
use remora_ring::WRITE_ID;
use std::collections::VecDeque;

/// READs of version words have ids from here on.
const CHECK_ID: u64 = 1 << 32;
/// Id of a READ of a tree's header.
const HEADER_ID: u64 = 2 << 32;

/// What a walk by READs cost beside its [`Counts`].
pub(super) struct Walked {
    /// Nodes examined.
    pub nodes: u64,
    /// READs in vain, and times that it began again.
    pub retries: u32,
}

/// A node that is to be fetched, and in which round trip.
#[derive(Clone, Copy)]
struct Planned {
    want: Want,
    round: u64,
}

/// One search under way.
struct Reading<'t> {
    walk: Walk,
    region: u32,
    /// Bytes from one landing place to the next.
    stride: usize,
    tops: &'t mut Tops,
    planned: VecDeque<Planned>,
    /// What lands in each place.
    landing: Vec<Option<Planned>>,
    free: Vec<usize>,
    /// Nodes whose version words are under way, in order, or fetched.
    checks: Vec<NodeRef>,
    /// How many of them have been posted.
    checked: usize,
    /// READs under way.
    under_way: usize,
    /// Round trips of this beginning: READs in the longest chain of those that
    /// each waited for the one before.
    rounds: u64,
}

/// Why a beginning ended.
enum End {
    Done,
    /// Entries have left a node, or it has gone: the header is old.
    Again,
    /// A kept node has changed.
    Stale,
    Ask,
}

impl Session {
    /// Searches by READs; the objects are in `self.found` then. `None` if it
    /// did not conclude.
    pub(super) fn read_tree(
        &mut self,
        tree: &mut OpenTree,
        query: &Query,
        cost: &mut Counts,
    ) -> Result<Option<Walked>, Error> {
        if !self.may_read(tree.shard) {
            cost.behind_writes = 1;
            return Ok(None);
        }
        self.now()?;
        let header = match tree.header {
            Some(header) => header,
            None => match self.read_tree_header(tree, cost)? {
                Some(header) => header,
                None => return Ok(None),
            },
        };
        let table = &self.shards[tree.shard].table;
        let home = Home { secret: table.secret, region: table.region };
        let issued = match tree.reading.issue {
            Issue::Single => 1,
            Issue::Multi => MAX_ISSUED,
        };
        let mut tops = std::mem::replace(&mut tree.tops, Tops::new(0));
        let walk = Walk::begin(*query, home, header, table.region_bytes);
        let stride = walk.node_bytes().next_multiple_of(64);
        let mut reading = Reading {
            walk,
            region: table.region,
            stride,
            tops: &mut tops,
            planned: VecDeque::new(),
            landing: vec![None; issued],
            free: (0..issued).rev().collect(),
            checks: Vec::new(),
            checked: 0,
            under_way: 0,
            rounds: 0,
        };
        self.link.reserve_landing(issued * stride + MAX_VERSION_CHECKS * VERSIONED_BYTES);
        let concluded = self.walk_tree(tree, &mut reading, cost);
        let torn = reading.walk.torn() as u64;
        let walked = Walked { nodes: reading.walk.nodes(), retries: reading.walk.retries() };
        cost.retries += walked.retries as u64;
        if concluded == Ok(true) {
            self.found.clear();
            self.found.extend_from_slice(reading.walk.results());
        }
        tree.tops = tops;
        tree.events.torn += torn;
        if !concluded? {
            return Ok(None);
        }
        let now_ns = self.now()?;
        if !self.right.holds(now_ns) && !planted(Plant::ReadTreePastRight) {
            cost.right_lapsed = 1;
            return Ok(None);
        }
        Ok(Some(walked))
    }

    /// Walks until the end, from as many beginnings as it takes. False: ask.
    fn walk_tree(
        &mut self,
        tree: &mut OpenTree,
        reading: &mut Reading<'_>,
        cost: &mut Counts,
    ) -> Result<bool, Error> {
        // Bounded: a walk begins again a bounded number of times.
        loop {
            let end = self.walk_once(reading, cost);
            cost.round_trips += reading.rounds;
            let header = match (end?, tree.header) {
                (End::Done, _) => return Ok(true),
                (End::Ask, _) => return Ok(false),
                (End::Stale, Some(header)) => {
                    tree.events.stale_kept += 1;
                    header
                }
                _ => {
                    tree.events.began_again += 1;
                    match self.read_tree_header(tree, cost)? {
                        Some(header) => header,
                        None => return Ok(false),
                    }
                }
            };
            if reading.walk.restart(header).is_err() {
                return Ok(false);
            }
            reading.begin_again();
        }
    }

    /// Walks from the root. No READ is under way when it returns.
    fn walk_once(&mut self, reading: &mut Reading<'_>, cost: &mut Counts) -> Result<End, Error> {
        let mut end = reading.plan(0);
        // Bounded: every walk is.
        loop {
            if end.is_none() {
                self.post_planned(reading, cost);
            }
            if reading.under_way == 0 {
                return Ok(end.unwrap_or(End::Done));
            }
            let id = self.next_completion()?;
            reading.under_way -= 1;
            let landed = self.take_node(reading, id);
            // The first reason to end counts; what is under way is awaited.
            end = end.or(landed);
        }
    }

    /// Posts READs for as many nodes as there are places for, and for the
    /// versions of the nodes that were kept.
    fn post_planned(&mut self, reading: &mut Reading<'_>, cost: &mut Counts) {
        let mut works = std::mem::take(&mut self.batch.works);
        works.clear();
        let region = reading.region;
        for (index, at) in reading.checks.iter().enumerate().skip(reading.checked) {
            let into = reading.landing.len() * reading.stride + index * VERSIONED_BYTES;
            let from = RemoteAddress { region, offset: at.offset() as u64 };
            let id = CHECK_ID + index as u64;
            works.push(Work::Read { id, from, into, bytes: VERSIONED_BYTES });
            cost.bytes += VERSIONED_BYTES as u64;
        }
        reading.checked = reading.checks.len();
        while let Some(&place) = reading.free.last()
            && let Some(planned) = reading.planned.pop_front()
        {
            reading.free.pop();
            reading.landing[place] = Some(planned);
            match reading.landing.len() {
                1 => reading.rounds += 1,
                _ => reading.rounds = reading.rounds.max(planned.round),
            }
            let from = RemoteAddress { region, offset: planned.want.at.offset() as u64 };
            let (into, bytes) = (place * reading.stride, reading.walk.node_bytes());
            works.push(Work::Read { id: place as u64, from, into, bytes });
            cost.nodes += 1;
            cost.bytes += bytes as u64;
        }
        if !works.is_empty() {
            reading.under_way += works.len();
            self.link.post(&works);
        }
        self.batch.works = works;
    }

    fn take_node(&mut self, reading: &mut Reading<'_>, id: u64) -> Option<End> {
        if id >= CHECK_ID {
            let index = (id - CHECK_ID) as usize;
            let from = reading.landing.len() * reading.stride + index * VERSIONED_BYTES;
            let now = self.link.landed(from, VERSIONED_BYTES);
            return reading.check_version(index, now);
        }
        let place = id as usize;
        let planned = reading.landing.get_mut(place)?.take()?;
        reading.free.push(place);
        let bytes = self.link.landed(place * reading.stride, reading.walk.node_bytes());
        reading.feed(planned, bytes)
    }

    /// The next completion of one of the session's READs.
    fn next_completion(&mut self) -> Result<u64, Error> {
        loop {
            let completion = match self.link.poll() {
                Some(completion) => completion,
                None => self.await_completion()?,
            };
            if let Err(error) = completion.result {
                return Err(self.end(error.into()));
            }
            if completion.id != WRITE_ID {
                return Ok(completion.id);
            }
        }
    }

    /// Reads a tree's header. `None`: ask; where the tree lies is looked up
    /// anew then, as another one may have its name.
    fn read_tree_header(
        &mut self,
        tree: &mut OpenTree,
        cost: &mut Counts,
    ) -> Result<Option<TreeHeader>, Error> {
        let table = &self.shards[tree.shard].table;
        let home = Home { secret: table.secret, region: table.region };
        let from = RemoteAddress { region: table.region, offset: tree.at.offset() as u64 };
        for _ in 0..=WALK_RETRIES {
            self.link.reserve_landing(TREE_HEADER_BYTES);
            let bytes = TREE_HEADER_BYTES;
            self.link.post(&[Work::Read { id: HEADER_ID, from, into: 0, bytes }]);
            self.complete(HEADER_ID)?;
            cost.round_trips += 1;
            cost.bytes += bytes as u64;
            match verify_header(self.link.landed(0, bytes), home, tree.at, Proof::Checksum) {
                Ok(header) => {
                    tree.header = Some(header);
                    return Ok(Some(header));
                }
                Err(NotANode::Torn) => {
                    cost.retries += 1;
                    tree.events.torn += 1;
                }
                Err(NotANode::Dead) => {
                    tree.events.header_gone += 1;
                    self.look_up(tree)?;
                    break;
                }
            }
        }
        Ok(None)
    }

    /// Asks where a tree of this name lies now.
    fn look_up(&mut self, tree: &mut OpenTree) -> Result<(), Error> {
        tree.header = None;
        tree.tops.clear();
        if let Some(info) = self.tree_info(&tree.name)? {
            tree.at = info.at;
        }
        Ok(())
    }
}

impl Reading<'_> {
    fn begin_again(&mut self) {
        self.planned.clear();
        self.checks.clear();
        self.checked = 0;
        self.rounds = 0;
        self.free = (0..self.landing.len()).rev().collect();
        self.landing.fill(None);
    }

    /// Plans what the walk wants after what came in round `round`; nodes that
    /// are kept are fed at once.
    fn plan(&mut self, round: u64) -> Option<End> {
        let mut end = None;
        while let Some(want) = self.walk.next_want() {
            let is_room = self.checks.len() < MAX_VERSION_CHECKS;
            let Some((version, bytes)) = self.tops.get(want.at).filter(|_| is_room) else {
                self.planned.push_back(Planned { want, round: round + 1 });
                continue;
            };
            self.checks.push(want.at);
            self.rounds = self.rounds.max(round + 1);
            // Its checksum was checked when it was read.
            end = end.or(ending(self.walk.feed(want, bytes, Proof::VersionAfter(version))));
        }
        end
    }

    fn feed(&mut self, planned: Planned, bytes: &[u8]) -> Option<End> {
        let Planned { want, round } = planned;
        let nodes = self.walk.nodes();
        let proof = match planted(Plant::BelieveTornNode) {
            true => Proof::VersionAfter(version_of(bytes)),
            false => Proof::Checksum,
        };
        let step = self.walk.feed(want, bytes, proof);
        if self.walk.nodes() > nodes {
            self.tops.keep(want.at, want.level, bytes);
        }
        match step {
            Step::More => self.plan(round),
            step => ending(step),
        }
    }

    /// What the first words of a node that was kept are now.
    fn check_version(&mut self, index: usize, now: &[u8]) -> Option<End> {
        let at = self.checks[index];
        if self.tops.get(at).is_some_and(|(_, kept)| kept[..VERSIONED_BYTES] == *now) {
            return None;
        }
        if planted(Plant::TrustKeptTop) {
            return None;
        }
        self.tops.forget(at);
        Some(End::Stale)
    }
}

fn ending(step: Step) -> Option<End> {
    match step {
        // The versions of what was kept may still be under way.
        Step::More | Step::Done => None,
        Step::Again => Some(End::Again),
        Step::Ask(_) => Some(End::Ask),
    }
}
