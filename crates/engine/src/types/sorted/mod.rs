//! Sorted sets: members in the order of their scores (docs/decisions/0082). A small one lies whole in
//! its record, packed ([`remora_layout::packed_scores`]). A large one has a table by member, bins of
//! members with their scores ([`crate::elements::bins`]), and a B+tree by score and member ([`large_sets`]).
//! Once it is searched for positions it also has an R-tree of these ([`places`]).
//!
//! A change is logged by its result: members that get scores, members removed, or the key removed.

mod change;
mod changes;
mod combine;
mod held;
mod keys;
mod large;
mod large_sets;
mod packing;
mod pieces;
mod places;
mod ranges;
mod ranging;
mod read;
mod readers;
mod search;
mod seek;
mod table;
mod transfer;
mod whole;

pub(crate) use held::SortedSets;

use super::content::Content;
use super::object::{ChangeStep, DumpedPart, Listing, LongRead, On, Turn, Type, whole_read};
use super::sought::{Seek, Sought};
use crate::elements::bins::{self, Packing};
use crate::elements::combine::{MemberReader, WithScores, reader};
use crate::elements::digest_by;
use crate::store::{DumpAt, Now, ShardStats, Store};
use packing::Scores;
use read::Reading;
use remora_arena::{Journal, Slot};
use remora_index::btree::Direction;
use remora_layout::kind::Kind;
use remora_protocol::message::Status;
use remora_protocol::sorted::SortedCommand;
use remora_protocol::{Reply, Request};

impl SortedSets {
    /// Executes a long read to its end.
    fn at_once<'s, J: Journal>(
        &'s mut self,
        store: &'s mut Store<J>,
        on: On<'_>,
        request: Request<'_>,
    ) -> Reply<'s> {
        let mut found = std::mem::take(&mut self.scratch);
        let reply = whole_read(self, store, (on, request), &mut found);
        self.scratch = found;
        let value = Some(&self.scratch[..]).filter(|_| reply.status == Status::Ok);
        Reply { value, ..reply }
    }
}

impl<J: Journal> Type<J> for SortedSets {
    fn id(&self) -> Kind {
        Kind::SORTED_SET
    }

    fn execute<'s>(
        &'s mut self,
        store: &'s mut Store<J>,
        on: On<'_>,
        request: Request<'_>,
    ) -> Reply<'s> {
        let command = SortedCommand::of(request);
        match command {
            SortedCommand::Store { members } => return self.store(store, on, members),
            // The key may hold a set.
            SortedCommand::Combine { .. } => return self.at_once(store, on, request),
            _ => {}
        }
        let held = match Self::find(store, on) {
            Ok(held) => held,
            Err(status) => return Reply::status(status),
        };
        let at = (on, held);
        match command {
            SortedCommand::Add { when, counts_changed, members } => {
                self.add(store, at, (when, counts_changed, members))
            }
            SortedCommand::Increment { when, by, member } => {
                self.increment(store, at, (when, by, member))
            }
            SortedCommand::Remove { members } => self.remove(store, at, members),
            SortedCommand::Pop { count, from_greatest } => {
                self.pop(store, at, (count, from_greatest))
            }
            SortedCommand::RemoveRange { range } => self.remove_range(store, at, &range),
            SortedCommand::Length => {
                Reply::number(held.map_or(0, |held| self.length(store, held) as i64))
            }
            SortedCommand::Score { member } => self.tell_score(store, at, member),
            SortedCommand::Scores { members } => self.tell_scores(store, held, members),
            SortedCommand::Rank { member, is_reverse } => {
                self.rank(store, held, (member, is_reverse))
            }
            SortedCommand::Count { range } => {
                let count = |held| self.span(store, held, &range, Direction::Ascending).count();
                Reply::number(held.map_or(0, count) as i64)
            }
            SortedCommand::Range(read) | SortedCommand::Collect(read) => {
                self.range(store, held, &read)
            }
            SortedCommand::Scan { cursor, options } => self.scan(store, held, (cursor, options)),
            SortedCommand::Random { .. }
            | SortedCommand::Combine { .. }
            | SortedCommand::Search { .. }
            | SortedCommand::Store { .. } => self.at_once(store, on, request),
        }
    }

    fn begin_read(
        &mut self,
        store: &mut Store<J>,
        on: On<'_>,
        request: Request<'_>,
    ) -> Result<LongRead, Status> {
        let command = SortedCommand::of(request);
        let state: Box<dyn std::any::Any + Send> = match command {
            SortedCommand::Pop { .. } | SortedCommand::RemoveRange { .. } => {
                return self.begin_removal(store, on, command);
            }
            SortedCommand::Combine { how, aggregate, sources, count_to } => {
                return combine::begin(store, on, (how, aggregate), (sources, count_to));
            }
            SortedCommand::Search { query } => Box::new(self.begin_search(store, on, query)?),
            SortedCommand::Range(read) | SortedCommand::Collect(read) => {
                let held = Self::find(store, on)?;
                let is_one = matches!(command, SortedCommand::Collect(_));
                Box::new(Reading { ranging: self.begin_range(store, held, &read), is_one })
            }
            SortedCommand::Random { count } => {
                let held = Self::find(store, on)?;
                Box::new(self.begin_random(store, held, count))
            }
            _ => return Err(Status::Malformed),
        };
        Ok(LongRead::new(Kind::SORTED_SET, state))
    }

    fn read_turn(
        &self,
        store: &Store<J>,
        read: &mut LongRead,
        found: &mut Vec<u8>,
        _now: Now,
    ) -> Result<Turn, Status> {
        self.go_on(store, read, found)
    }

    fn change_turn(
        &mut self,
        store: &mut Store<J>,
        on: On<'_>,
        read: &mut LongRead,
    ) -> Result<ChangeStep, Status> {
        self.remove_piece(store, on, read)
    }

    fn listing(&self) -> Option<Listing> {
        Some(Listing::Ordered(transfer::listing))
    }

    fn seek(&self, sought: &Sought<'_>) -> Option<Box<dyn Seek>> {
        seek::seek(sought)
    }

    fn scored(&self) -> Option<MemberReader<J, f64>> {
        Some(reader::<Scores, WithScores, J>())
    }

    fn half_of<'c>(&self, request: Request<'c>) -> Option<Request<'c>> {
        match request {
            Request::Sorted(SortedCommand::Pop { count: count @ 2.., from_greatest }) => {
                Some(SortedCommand::Pop { count: count / 2, from_greatest }.request())
            }
            _ => None,
        }
    }

    fn release(&mut self, store: &mut Store<J>, root: u32, now: Now) -> bool {
        self.release_some(store, root, now)
    }

    fn tend(&mut self, store: &mut Store<J>, now: Now) -> bool {
        let (more, root) = self.places.tend(store, now);
        if let Some(root) = root.filter(|&root| store.evictor.is_weighed(root)) {
            let bytes = Type::<J>::bytes_of(self, store, root);
            store.evictor.weigh(&store.owner, root, bytes);
        }
        more
    }

    fn bytes_of(&self, store: &Store<J>, root: u32) -> u64 {
        let tree = self.large.get(root).map_or(0, |of| of.tree.bytes() + of.tree.heap_bytes());
        store.parts.of(root).weight() + tree + self.places.bytes_of(root)
    }

    fn digest(&self, store: &Store<J>, slot: u32, content: &mut Content) -> bool {
        // A score of -0 is 0 in a small set, and the same set may be a large one elsewhere.
        digest_by::<Scores, J>(store, slot, content, |content, member, score| {
            let score = Scores::payload_of(score.value) + 0.0;
            content.add(&[member, &score.to_le_bytes()]);
        })
    }

    fn encoding(&self, is_whole: bool) -> &'static str {
        if is_whole { "listpack" } else { "skiplist" }
    }

    fn dump(&self, store: &Store<J>, root: u32, at: &mut DumpAt, piece: &mut Vec<u8>) -> bool {
        bins::dump::<Scores, J>(store, root, at, piece)
    }

    fn begin_load(
        &mut self,
        store: &mut Store<J>,
        on: On<'_>,
        _head: &[u8],
    ) -> Result<Slot, Status> {
        self.make_empty(store, on)
    }

    fn load(
        &mut self,
        store: &mut Store<J>,
        on: On<'_>,
        root: u32,
        piece: &[u8],
    ) -> Result<(), Status> {
        self.add_piece(store, (on, root), piece)
    }

    fn requests(&self, part: DumpedPart<'_>, each: &mut dyn FnMut(Request<'_>)) -> bool {
        transfer::requests(part, each)
    }

    fn has_whole(&self) -> bool {
        true
    }

    fn audit(&self, store: &Store<J>) -> Result<u64, String> {
        self.audit_all(store)
    }

    fn heap_bytes(&mut self) -> u64 {
        self.large.taken().heap_bytes + self.places.heap_bytes()
    }

    fn kept_bytes(&self) -> u64 {
        self.reads.bytes()
    }

    fn count(&self, stats: &mut ShardStats) {
        let (keys, places) = self.places.totals();
        stats.sorted_sets = self.large.count();
        stats.sorted_bytes = self.large.taken().node_bytes;
        stats.geo_keys = keys;
        stats.geo_members = places.places;
        stats.geo_bytes = places.node_bytes + places.data_bytes;
    }
}
