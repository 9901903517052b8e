//! Searching a GEO key: in turns of the shard, or to the end.

use super::keys::GeoKeys;
use super::set::{member_in, score_in};
use crate::store::Store;
use crate::types::object::{On, find_root};
use remora_arena::{Journal, Slot, slot_of};
use remora_index::rtree::Cursor;
use remora_layout::kind::Kind;
use remora_layout::limits::{NODE_ENTRIES, SEARCH_TURN_BYTES, SEARCH_TURN_NODES};
use remora_layout::node::node_bytes;
use remora_layout::rect::Predicate;
use remora_layout::rect::Rect;
use remora_protocol::geo::{Centre, GeoCommand, GeoQuery, Member, Members};
use remora_protocol::geo::{Position, Shape};
use remora_protocol::message::Status;
use remora_protocol::{Reply, Request};

/// A search that is under way.
pub(super) struct Searching {
    /// The root record of the key.
    pub root: Slot,
    centre: Position,
    shape: Shape,
    cursor: Cursor,
    /// The window after this one.
    next: Option<Rect>,
    /// It may end with this many members.
    enough: u64,
    /// Those of earlier windows, and of this one.
    members: [u64; 2],
    /// Bytes of the results of earlier windows.
    window_from: usize,
}

impl GeoKeys {
    /// Begins a search of a GEO key.
    ///
    /// # Errors
    /// `NotFound`: no such key; `WrongType`: it holds another type; `NotDone`: it does not have the
    /// member that is the centre.
    pub(super) fn begin_search<J: Journal>(
        &self,
        store: &mut Store<J>,
        on: On<'_>,
        query: GeoQuery<'_>,
    ) -> Result<Searching, Status> {
        let root = find_root(store, on, Kind::GEO)?.ok_or(Status::NotFound)?;
        let set = &self.by_root[&root];
        let search = query.search();
        let centre = match search.centre {
            Centre::At(position) => position,
            Centre::Member(member) => {
                let slot = set.find(&store.owner, member).ok_or(Status::NotDone)?;
                Position::of_score(score_in(&store.owner, slot))
            }
        };
        let (window, next) = search.shape.windows(centre);
        Ok(Searching {
            root: slot_of(&store.owner, root),
            centre,
            shape: search.shape,
            cursor: Cursor::new(window, Predicate::Intersects),
            next,
            enough: if search.enough == 0 { u64::MAX } else { search.enough },
            members: [0; 2],
            window_from: 0,
        })
    }

    /// Continues a search for one turn of the shard; `found` has all results so far, as
    /// [`Members`]. True at its end. A key that was removed meanwhile counts as one that was
    /// removed before: nothing is found.
    pub(super) fn search_turn<J: Journal>(
        &self,
        store: &Store<J>,
        search: &mut Searching,
        found: &mut Vec<u8>,
    ) -> bool {
        let set = self.by_root.get(&search.root.slot).filter(|_| store.is_live(search.root));
        let Some(set) = set else {
            found.clear();
            return true;
        };
        let Searching { centre, shape, cursor, next, enough, members, window_from, .. } = search;
        let (centre, shape) = (*centre, *shape);
        let take = |slot: u32, position: Position, found: &mut Vec<u8>| {
            let Some(distance) = shape.distance_within(centre, position) else { return 0 };
            let (member, score) = (member_in(&store.owner, slot), score_in(&store.owner, slot));
            Members::push(found, &Member { score, distance, member });
            1
        };
        let Some(tree) = &set.tree else {
            found.clear();
            let mut members = 0;
            for slot in set.slots() {
                let position = Position::of_score(score_in(&store.owner, slot));
                members += take(slot, position, found);
                if members >= *enough {
                    break;
                }
            }
            return true;
        };
        let step = (SEARCH_TURN_BYTES / node_bytes(NODE_ENTRIES)) as u64;
        let (before, last) = (found.len(), cursor.nodes() + SEARCH_TURN_NODES);
        // Bounded: each step visits a node, or ends a window.
        loop {
            let (restarts, mark) = (cursor.restarts(), found.len());
            let mut met = 0;
            let mut is_enough = false;
            let ended = tree.search_some(&store.owner, cursor, step, |object| {
                is_enough |= members[0] + members[1] + met >= *enough;
                if !is_enough {
                    met += take(object.word as u32, Position::of_point(&object.rect), found);
                }
            });
            if cursor.restarts() == restarts {
                members[1] += met;
            } else {
                // The window was begun again: its results come again.
                found.drain(*window_from..mark);
                members[1] = met;
                is_enough = false;
            }
            if is_enough || members[0] + members[1] >= *enough {
                return true;
            }
            if ended {
                let Some(window) = next.take() else { return true };
                *cursor = Cursor::new(window, Predicate::Intersects);
                *members = [members[0] + members[1], 0];
                *window_from = found.len();
                return false;
            }
            if found.len().saturating_sub(before) >= SEARCH_TURN_BYTES || cursor.nodes() >= last {
                return false;
            }
        }
    }

    /// A search to its end, for a caller that cannot take it in turns.
    pub(super) fn whole_search<'s, J: Journal>(
        &'s mut self,
        store: &mut Store<J>,
        on: On<'_>,
        request: Request<'_>,
    ) -> Reply<'s> {
        let GeoCommand::Search { query } = GeoCommand::of(request) else {
            return Reply::status(Status::Malformed);
        };
        let mut search = match self.begin_search(store, on, query) {
            Ok(search) => search,
            Err(status) => return Reply::status(status),
        };
        let mut found = std::mem::take(&mut self.scratch);
        found.clear();
        // Bounded by the tree: nothing changes meanwhile.
        while !self.search_turn(store, &mut search, &mut found) {}
        self.scratch = found;
        let place = self.place(store, search.root);
        Reply { value: Some(&self.scratch), ..Reply::number(place) }
    }
}
