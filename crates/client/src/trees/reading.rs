//! What one search by READs keeps: which nodes are to be fetched, which are
//! under way and where they land, which of the kept ones are to be checked.

use super::tops::{Tops, version_of};
use remora_index::rtree::{Step, Walk, Want};
use remora_layout::limits::{CACHE_LINE_BYTES, MAX_VERSION_CHECKS};
use remora_layout::node::{NodeRef, Proof, VERSIONED_BYTES};
use remora_layout::plant::{Plant, planted};
use std::collections::VecDeque;

/// A node that is to be fetched, and in which round trip.
#[derive(Clone, Copy)]
pub(super) struct Planned {
    pub want: Want,
    pub round: u64,
}

/// One search under way.
pub(super) struct Reading<'t> {
    pub walk: Walk,
    pub region: u32,
    /// Bytes from one landing place to the next.
    pub stride: usize,
    pub tops: &'t mut Tops,
    pub planned: VecDeque<Planned>,
    /// What lands in each place.
    pub landing: Vec<Option<Planned>>,
    pub free: Vec<usize>,
    /// Nodes whose version words are under way, in order, or fetched.
    pub checks: Vec<NodeRef>,
    /// How many of them have been posted.
    pub checked: usize,
    /// READs under way.
    pub under_way: usize,
    /// Round trips of this beginning: READs in the longest chain of those that
    /// each waited for the one before.
    pub rounds: u64,
    /// It is given up if more nodes than this turn out to be needed.
    pub most_reads: u64,
    /// Nodes that were planned to be fetched, over all beginnings.
    planned_reads: u64,
}

/// Why a beginning ended.
pub(super) enum End {
    Done,
    /// Entries have left a node, or it has gone: the header is old.
    Again,
    /// A kept node has changed.
    Stale,
    Ask,
}

impl<'t> Reading<'t> {
    /// A walk that has begun, with this many READs of nodes at a time.
    pub fn new(walk: Walk, region: u32, issued: usize, tops: &'t mut Tops) -> Self {
        Self {
            region,
            stride: walk.node_bytes().next_multiple_of(CACHE_LINE_BYTES),
            walk,
            tops,
            planned: VecDeque::new(),
            landing: vec![None; issued],
            free: (0..issued).rev().collect(),
            checks: Vec::new(),
            checked: 0,
            under_way: 0,
            rounds: 0,
            most_reads: u64::MAX,
            planned_reads: 0,
        }
    }

    /// Bytes that its READs land in.
    pub fn landing_bytes(&self) -> usize {
        self.check_from(MAX_VERSION_CHECKS)
    }

    /// Where the version words of a kept node land.
    pub fn check_from(&self, index: usize) -> usize {
        self.landing.len() * self.stride + index * VERSIONED_BYTES
    }

    /// Begins again, with no READ under way.
    pub fn begin_again(&mut self) {
        self.planned.clear();
        self.checks.clear();
        self.checked = 0;
        self.rounds = 0;
        self.free = (0..self.landing.len()).rev().collect();
        self.landing.fill(None);
    }

    /// Plans what the walk wants after what came in round `round`; nodes that
    /// are kept are fed at once.
    pub fn plan(&mut self, round: u64) -> Option<End> {
        let mut end = None;
        while let Some(want) = self.walk.next_want() {
            let is_room = self.checks.len() < MAX_VERSION_CHECKS;
            let Some((version, bytes)) = self.tops.get(want.at).filter(|_| is_room) else {
                self.planned.push_back(Planned { want, round: round + 1 });
                self.planned_reads += 1;
                continue;
            };
            self.checks.push(want.at);
            self.rounds = self.rounds.max(round + 1);
            // Its checksum was checked when it was read.
            end = end.or(ending(self.walk.feed(want, bytes, Proof::VersionAfter(version))));
        }
        end.or((self.planned_reads > self.most_reads).then_some(End::Ask))
    }

    /// Takes the bytes of a node that was fetched.
    pub fn feed(&mut self, planned: Planned, bytes: &[u8]) -> Option<End> {
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
    pub fn check_version(&mut self, index: usize, now: &[u8]) -> Option<End> {
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
