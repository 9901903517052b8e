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

use super::reading::{End, Reading};
use super::{Issue, OpenTree, Tops};
use crate::admission::{Admission, Admitted};
use crate::api::Counts;
use crate::error::Error;
use crate::session::Session;
use remora_fabric::{Link, RemoteAddress, Work};
use remora_index::rtree::{Query, Walk};
use remora_layout::limits::{MAX_ISSUED, READ_RETRIES, WALK_RETRIES};
use remora_layout::node::{Home, NotANode, Proof, VERSIONED_BYTES};
use remora_layout::plant::{Plant, planted};
use remora_layout::tree::{TREE_HEADER_BYTES, TreeHeader, verify_header};
use remora_ring::WRITE_ID;

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

impl Session {
    /// Searches by READs; the objects are in `self.found` then. `None` if it
    /// did not conclude. A right that has lapsed is renewed by a small request,
    /// before the walk or for another one. It does not conclude either if it
    /// turns out to need more than `most_reads` nodes. It waits until it is
    /// admitted (C24).
    pub(super) fn read_tree(
        &mut self,
        tree: &mut OpenTree,
        query: &Query,
        most_reads: Option<u64>,
        cost: &mut Counts,
    ) -> Result<Option<Walked>, Error> {
        if !self.may_read(tree.shard) {
            cost.behind_writes = 1;
            return Ok(None);
        }
        let Some(admission) = self.admission.clone() else {
            return self.read_admitted(tree, query, most_reads, cost);
        };
        let mut walk = self.await_admission(&admission)?;
        let (began_ns, before) = (self.connection.time.now_ns(), cost.round_trips);
        let walked = self.read_admitted(tree, query, most_reads, cost);
        let took_ns = self.connection.time.now_ns().saturating_sub(began_ns);
        walk.round_trip_ns = took_ns.checked_div(cost.round_trips - before).unwrap_or(0);
        if walked.is_err() && planted(Plant::FailedWalkStays) {
            std::mem::forget(walk);
        }
        walked
    }

    fn await_admission<'a>(&mut self, admission: &'a Admission) -> Result<Admitted<'a>, Error> {
        if !self.connection.sleeps_by_link_alone() {
            return Ok(admission.enter());
        }
        // Nobody but the link knows how to sleep there.
        loop {
            if let Some(walk) = admission.try_enter() {
                return Ok(walk);
            }
            // A WRITE that has completed would end each pause at once.
            self.connection.pass_over_writes(&mut self.link)?;
            self.pause();
        }
    }

    fn read_admitted(
        &mut self,
        tree: &mut OpenTree,
        query: &Query,
        most_reads: Option<u64>,
        cost: &mut Counts,
    ) -> Result<Option<Walked>, Error> {
        for tries in 0..=READ_RETRIES {
            if !self.holds_right()? && !planted(Plant::ReadTreePastRight) {
                self.renew_right(tree, cost)?;
            }
            let Some(walked) = self.walk_by_reads(tree, query, most_reads, cost)? else {
                return Ok(None);
            };
            if self.holds_right()? || planted(Plant::ReadTreePastRight) {
                return Ok(Some(Walked { retries: walked.retries + tries, ..walked }));
            }
        }
        Ok(None)
    }

    pub(super) fn holds_right(&mut self) -> Result<bool, Error> {
        let now_ns = self.now()?;
        Ok(self.right.holds(now_ns))
    }

    /// Renews the right to read by a request whose reply is short.
    fn renew_right(&mut self, tree: &OpenTree, cost: &mut Counts) -> Result<(), Error> {
        let before = self.totals;
        let info = self.tree_info(&tree.name);
        let spent = self.totals.since(&before);
        self.totals = before;
        cost.round_trips += spent.round_trips;
        cost.bytes += spent.bytes;
        cost.right_lapsed += 1;
        info.map(drop)
    }

    /// One walk by READs, from as many beginnings as it takes; what it found
    /// counts only if the right still holds now.
    fn walk_by_reads(
        &mut self,
        tree: &mut OpenTree,
        query: &Query,
        most_reads: Option<u64>,
        cost: &mut Counts,
    ) -> Result<Option<Walked>, Error> {
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
        let mut reading = Reading::new(walk, table.region, issued, &mut tops);
        reading.most_reads = most_reads.unwrap_or(u64::MAX);
        self.link.reserve_landing(reading.landing_bytes());
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
        Ok(concluded?.then_some(walked))
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
            let into = reading.check_from(index);
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
            let from = reading.check_from(index);
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
    pub(super) fn read_tree_header(
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
