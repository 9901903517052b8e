//! Ranges of a sorted set: a small one is read whole, of a large one its B+tree is walked.

use super::asked::{SortedFound, SortedMember, ask_scored};
use super::bounds::{clamped, in_keys, in_packed, is_readable, key_bound};
use super::score::{Scores, SortedScore};
use crate::asker::Answer;
use crate::btree::{BtreeView, MAX_KEYS_READ, RangeClasses, TreeOf, Walked, read_by};
use crate::choose::Class;
use crate::core::Core;
use crate::counts::Counts;
use crate::directory::Directory;
use crate::elements::{ObjectEvents, OpenObject};
use crate::error::Error;
use crate::found::Reading;
use crate::path::{Path, ServedBy};
use remora_fabric::Link;
use remora_index::btree::{Direction, Range, Scan};
use remora_layout::kind::Kind;
use remora_layout::limits::READ_RETRIES;
use remora_layout::sorted::{SORTED_TREE_AT, keys_of_scores, split_sorted_key};
use remora_protocol::sorted::{SortedCommand, SortedRange, SortedRead};
use remora_walk::Walk;
use std::ops::Bound;

/// The tree of a sorted set lies behind that of its places.
const SORTED: TreeOf = TreeOf::Key { kind: Kind::SORTED_SET, header_at: SORTED_TREE_AT };

/// Bounds of keys.
type Keys = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// A session's view of one sorted set: where it lies, where some of its members do, and inner nodes
/// of its tree. All of it is a hint.
#[derive(Debug)]
pub struct OpenSorted {
    scores: OpenObject<Scores>,
    tree: BtreeView,
    /// What ranges of it cost while it is small.
    whole_class: Class,
    /// The same while it is large.
    range_classes: RangeClasses,
}

impl OpenSorted {
    /// A view of the set that a key holds, or will hold. Nothing is asked.
    pub(super) fn new(directory: &Directory, key: &[u8]) -> Result<Self, Error> {
        Ok(Self {
            scores: OpenObject::new(directory, key)?,
            tree: BtreeView::new(directory, key, SORTED)?,
            whole_class: Class::NEW,
            range_classes: RangeClasses::default(),
        })
    }

    /// The set's key.
    pub fn key(&self) -> &[u8] {
        self.scores.key()
    }

    /// What has happened to the reads of scores, and of small sets.
    pub fn events(&self) -> ObjectEvents {
        self.scores.events()
    }

    /// The B+tree of a large set, for a cache that several of them share.
    pub fn tree_mut(&mut self) -> &mut BtreeView {
        &mut self.tree
    }

    /// Where requests go.
    pub(super) fn place(&self) -> (usize, &[u8]) {
        (self.tree.shard(), self.key())
    }

    pub(super) fn ask(
        &self,
        core: &mut Core,
        command: &SortedCommand<'_>,
    ) -> Result<Answer, Error> {
        self.scores.ask(core, command.request())
    }

    /// The score of a member.
    pub(super) fn score(
        &mut self,
        core: &mut Core,
        member: &[u8],
        path: Path,
    ) -> Result<SortedScore, Error> {
        let got = self.scores.get(core, member, path)?;
        let (served_by, counts) = (got.served_by, got.counts);
        let score = got.value.map(|value| value.try_into().map(f64::from_le_bytes));
        match score.transpose() {
            Ok(score) => Ok(SortedScore { score, served_by, counts }),
            Err(_) => Err(core.asker.endpoint.end(Error::Protocol("a score that cannot be"))),
        }
    }

    /// The members of a range.
    pub(super) fn range(
        &mut self,
        core: &mut Core,
        read: SortedRead<'_>,
        path: Path,
    ) -> Result<SortedFound, Error> {
        core.asker.ready()?;
        let cost = Counts { operations: 1, ..Counts::default() };
        let wanted = read.offset.saturating_add(read.limit);
        let is_whole = self.scores.is_whole() && !self.tree.is_known();
        let is_long = path == Path::Choose && wanted > MAX_KEYS_READ && !is_whole;
        if is_long || !is_readable(&read.range) {
            return self.range_asked(core, read, cost);
        }
        let mut class = self.class(is_whole, wanted).clone();
        let (timing, _) = core.router.begin_search(&mut core.asker.endpoint, &mut class, path)?;
        let shard = self.tree.shard();
        let by_reads = read_by((&mut *core, shard), &timing, cost, |core, cost| {
            self.range_read(core, &read, cost)
        });
        let found = match by_reads? {
            Ok(((members, nodes_visited), served_by, counts)) => {
                SortedFound { members, nodes_visited, served_by, counts }
            }
            Err(cost) => self.range_asked(core, read, cost)?,
        };
        let Core { router, asker, .. } = core;
        let by = (found.served_by, &found.counts);
        router.end_search(&mut asker.endpoint, &mut class, &timing, by.0, by.1)?;
        *self.class(is_whole, wanted) = class;
        Ok(found)
    }

    fn class(&mut self, is_whole: bool, wanted: u64) -> &mut Class {
        if is_whole { &mut self.whole_class } else { self.range_classes.of(wanted) }
    }

    /// Asks for a range, after reading has cost `cost`.
    fn range_asked(
        &self,
        core: &mut Core,
        read: SortedRead<'_>,
        cost: Counts,
    ) -> Result<SortedFound, Error> {
        let wasted = Counts { operations: 0, ..cost };
        core.meter.add(&wasted);
        let served_by = ServedBy::asked_after(cost.round_trips);
        let request = SortedCommand::Range(read);
        let (members, _, mut counts) = ask_scored(core, self.place(), request.request())?;
        counts.add(&wasted);
        Ok(SortedFound { members, nodes_visited: 0, served_by, counts })
    }

    /// Reads a range by READs. `None` if only the owner knows.
    fn range_read(
        &mut self,
        core: &mut Core,
        read: &SortedRead<'_>,
        cost: &mut Counts,
    ) -> Result<Option<(Vec<SortedMember>, u64)>, Error> {
        if !self.tree.is_known() && !self.scores.has_parts() {
            let Core { asker, directory, .. } = &mut *core;
            let reading = self.scores.read((&mut asker.endpoint, directory), None, cost)?;
            if let Reading::Value { from, bytes, .. } = reading {
                let packed = asker.endpoint.link.landed(from, bytes);
                return Ok(in_packed(packed, read).map(|members| (members, 1)));
            }
            if !self.scores.has_parts() {
                return Ok(None);
            }
            cost.undecided = 0;
        }
        let found = self.in_tree(core, read, cost)?;
        if !self.tree.is_known() {
            // It may be small by now.
            self.scores.forget();
        }
        Ok(found)
    }

    fn in_tree(
        &mut self,
        core: &mut Core,
        read: &SortedRead<'_>,
        cost: &mut Counts,
    ) -> Result<Option<(Vec<SortedMember>, u64)>, Error> {
        let Some(keys) = self.keys_of(core, &read.range, cost)? else { return Ok(None) };
        let direction = if read.is_reverse { Direction::Descending } else { Direction::Ascending };
        let wanted = clamped(read.offset.saturating_add(read.limit));
        let Some(walk) = self.scan(core, &keys, (direction, wanted), cost)? else {
            return Ok(None);
        };
        self.tree.events.ranges += 1;
        let members = in_keys(walk.entries().map(|(key, _)| key), read.offset);
        Ok(members.map(|members| (members, walk.believed())))
    }

    /// The keys of a range. `None` if only the owner knows.
    fn keys_of(
        &mut self,
        core: &mut Core,
        range: &SortedRange<'_>,
        cost: &mut Counts,
    ) -> Result<Option<Keys>, Error> {
        Ok(match *range {
            SortedRange::Index { .. } => None,
            SortedRange::Score { from, to } => {
                let [from, to] = keys_of_scores(from, to).map(|key| key.map(|key| key.to_vec()));
                let from = from.map_or(Bound::Unbounded, Bound::Included);
                Some((from, to.map_or(Bound::Unbounded, Bound::Excluded)))
            }
            SortedRange::Lex { from, to } => {
                let score = self.only_score(core, cost)?;
                score.map(|score| (key_bound(from, score), key_bound(to, score)))
            }
        })
    }

    /// The score of all members: that of the first one and of the last. `None` if they have
    /// different ones.
    fn only_score(&mut self, core: &mut Core, cost: &mut Counts) -> Result<Option<f64>, Error> {
        let all = (Bound::Unbounded, Bound::Unbounded);
        let mut scores = [None, None];
        for (score, direction) in
            scores.iter_mut().zip([Direction::Ascending, Direction::Descending])
        {
            let Some(walk) = self.scan(core, &all, (direction, 1), cost)? else { return Ok(None) };
            let first = walk.entries().next();
            *score = first.and_then(|(key, _)| Some(split_sorted_key(key)?.0));
        }
        Ok(scores[0].filter(|_| scores[0] == scores[1]))
    }

    /// Walks over the keys of the tree. `None` if only the owner knows.
    fn scan(
        &mut self,
        core: &mut Core,
        (from, to): &Keys,
        (direction, limit): (Direction, usize),
        cost: &mut Counts,
    ) -> Result<Option<Scan>, Error> {
        let (from, to) = (from.as_ref().map(|key| &key[..]), to.as_ref().map(|key| &key[..]));
        for _ in 0..=READ_RETRIES {
            let Some(known) = self.tree.place(core, cost)? else { break };
            let range = Range { from, to, direction, limit };
            match self.tree.scan(core, known, range, cost)? {
                Walked::Found(walk) => return Ok(Some(walk)),
                Walked::Ask => break,
                Walked::Gone => self.tree.forget(cost),
            }
        }
        Ok(None)
    }
}
