//! GEO keys: sets of members, each with a position (docs/decisions/0025).
//!
//! Invariant: a GEO key has members. If there is no room, a member is not added, and a member that
//! cannot be moved stays. Changes are logged, one entry for each member.

mod keys;
mod members;
mod search;
mod seek;
mod set;
mod transfer;
mod whole;

pub(crate) use keys::GeoKeys;

use super::content::Content;
use super::object::{DumpedPart, LongRead, On, Turn, Type, find_root, resume};
use super::sought::{Seek, Sought};
use crate::store::{DumpAt, Now, ShardStats, Store};
use crate::types::arena::logged_arena;
use keys::Totals;
use remora_arena::{Journal, Slot, slot_of};
use remora_layout::kind::Kind;
use remora_layout::limits::RELEASE_RECORDS;
use remora_protocol::geo::GeoCommand;
use remora_protocol::message::Status;
use remora_protocol::{Reply, Request};
use search::Searching;
use set::score_in;

impl<J: Journal> Type<J> for GeoKeys {
    fn id(&self) -> Kind {
        Kind::GEO
    }

    fn execute<'s>(
        &'s mut self,
        store: &'s mut Store<J>,
        on: On<'_>,
        request: Request<'_>,
    ) -> Reply<'s> {
        let command = GeoCommand::of(request);
        if let GeoCommand::Store { places } = command {
            return self.geo_store(store, on, places);
        }
        let root = match find_root(store, on, Kind::GEO) {
            Ok(root) => root,
            Err(status) => return Reply::status(status),
        };
        if let Some(root) = root.filter(|_| request.is_write()) {
            self.touched.push(root);
        }
        match command {
            GeoCommand::Add { condition, tell_changed, places } => {
                self.geo_add(store, (on, root), (condition, tell_changed, places))
            }
            GeoCommand::Remove { places } => self.geo_remove(store, (on, root), places),
            GeoCommand::Scores { places } => self.geo_scores(store, root, places),
            GeoCommand::Members => match root {
                None => Reply::status(Status::NotFound),
                Some(root) => Reply::number(self.by_root[&root].members() as i64),
            },
            GeoCommand::Search { .. } => self.whole_search(store, on, request),
            GeoCommand::Store { .. } => unreachable!("stored above"),
        }
    }

    fn begin_read(
        &mut self,
        store: &mut Store<J>,
        on: On<'_>,
        request: Request<'_>,
    ) -> Result<LongRead, Status> {
        let GeoCommand::Search { query } = GeoCommand::of(request) else {
            return Err(Status::Malformed);
        };
        let search = self.begin_search(store, on, query)?;
        Ok(LongRead::new(Kind::GEO, Box::new(search)))
    }

    fn read_turn(
        &self,
        store: &Store<J>,
        read: &mut LongRead,
        found: &mut Vec<u8>,
        _now: Now,
    ) -> Result<Turn, Status> {
        let search: &mut Searching = read.state.downcast_mut().expect("it began here");
        let ended = self.search_turn(store, search, found);
        let number = if ended { self.place(store, search.root) } else { 0 };
        Ok(Turn { ended, number, gives_value: true, ..Turn::default() })
    }

    fn seek(&self, sought: &Sought<'_>) -> Option<Box<dyn Seek>> {
        seek::seek(sought)
    }

    fn release(&mut self, store: &mut Store<J>, root: u32, now: Now) -> bool {
        let Some(set) = self.by_root.get_mut(&root) else { return true };
        let some = set.take_some(RELEASE_RECORDS);
        if !some.is_empty() {
            self.totals.members -= some.len() as u64;
            some.into_iter()
                .for_each(|slot| self.drop_member(store, slot_of(&store.owner, slot), now));
            return false;
        }
        let Some(tree) = &mut set.tree else {
            self.forget(root);
            return true;
        };
        let before = tree.bytes();
        let ended = tree.release_some(&mut logged_arena(store));
        self.totals.node_bytes -= before - tree.bytes();
        if ended {
            self.forget(root);
        }
        ended
    }

    fn bytes_of(&self, _store: &Store<J>, root: u32) -> u64 {
        let set = &self.by_root[&root];
        set.data_bytes() + set.tree_bytes() + set.heap_bytes()
    }

    fn digest(&self, store: &Store<J>, slot: u32, content: &mut Content) -> bool {
        let set = &self.by_root[&slot];
        let part = *resume::<usize>(&mut content.at);
        for slot in set.slots_of(part) {
            let score = score_in(&store.owner, slot).to_le_bytes();
            content.add(&[set::member_in(&store.owner, slot), &score]);
        }
        content.at = Some(Box::new(part + 1));
        part + 1 >= set.parts()
    }

    fn encoding(&self, _is_whole: bool) -> &'static str {
        "skiplist"
    }

    fn dump(&self, store: &Store<J>, root: u32, at: &mut DumpAt, piece: &mut Vec<u8>) -> bool {
        self.dump_members(store, root, at, piece)
    }

    fn begin_load(
        &mut self,
        store: &mut Store<J>,
        on: On<'_>,
        _head: &[u8],
    ) -> Result<Slot, Status> {
        self.begin_load_members(store, on)
    }

    fn load(
        &mut self,
        store: &mut Store<J>,
        on: On<'_>,
        root: u32,
        piece: &[u8],
    ) -> Result<(), Status> {
        self.load_members(store, (on, root), piece)
    }

    fn requests(&self, part: DumpedPart<'_>, each: &mut dyn FnMut(Request<'_>)) -> bool {
        transfer::requests(part, each)
    }

    fn audit(&self, store: &Store<J>) -> Result<u64, String> {
        let mut found = Totals::default();
        for (&root, set) in &self.by_root {
            let name = remora_index::hash::record_key(&store.owner, root);
            let told = |error| format!("GEO key {}: {error}", name.escape_ascii());
            found.members += set.members();
            found.node_bytes += set.tree_bytes();
            let bytes = |slot| store.slots.bytes_of(slot_of(&store.owner, slot));
            let data_bytes = set.slots().map(bytes).sum::<u64>();
            found.data_bytes += data_bytes;
            if store.is_live(set.root) {
                set.audit(&store.owner).map_err(told)?;
                if data_bytes != set.data_bytes() {
                    return Err(told(format!("its records take {data_bytes} bytes")));
                }
                let is_incomplete = store.moves.is_loading(root) || store.moves.is_filling(root);
                if set.members() == 0 && !is_incomplete {
                    return Err(told("it has no members".into()));
                }
            }
        }
        let books = |t: Totals| (t.members, t.node_bytes, t.data_bytes);
        if books(found) != books(self.totals) {
            return Err(format!(
                "GEO keys have (members, bytes of nodes, of records) {:?}, the books say {:?}",
                books(found),
                books(self.totals)
            ));
        }
        Ok(self.totals.data_bytes)
    }

    fn heap_bytes(&mut self) -> u64 {
        for root in std::mem::take(&mut self.touched) {
            if let Some(set) = self.by_root.get_mut(&root) {
                let now = set.heap_bytes();
                self.counted_heap = self.counted_heap + now - set.counted_heap;
                set.counted_heap = now;
            }
        }
        self.counted_heap
    }

    fn count(&self, stats: &mut ShardStats) {
        stats.geo_keys = self.by_root.len() as u64;
        stats.geo_members = self.totals.members;
        stats.geo_bytes = self.totals.node_bytes + self.totals.data_bytes;
    }
}
