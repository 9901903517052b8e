//! Searching the positions of a sorted set, in turns of the shard: through its R-tree, or one member
//! after the other.

use super::held::SortedSets;
use super::places::{member_in, score_in};
use super::ranges::Span;
use super::ranging::Ranging;
use crate::elements::{Held, packed_of};
use crate::store::Store;
use crate::types::object::{On, Turn};
use remora_arena::{Journal, Slot, slot_of};
use remora_index::btree::Direction;
use remora_index::rtree::Cursor;
use remora_layout::limits::{NODE_ENTRIES, SEARCH_TURN_BYTES, SEARCH_TURN_NODES};
use remora_layout::node::node_bytes;
use remora_layout::packed_scores;
use remora_layout::rect::{Predicate, Rect};
use remora_protocol::geo::{Centre, GeoQuery, Member, Members, Position, Shape, position_of};
use remora_protocol::message::Status;
use remora_protocol::sorted::Scored;

/// A search that is under way.
pub(super) struct Searching {
    area: Area,
    /// It may end with this many members.
    enough: u64,
    how: How,
}

/// What is searched for.
#[derive(Clone, Copy)]
struct Area {
    centre: Position,
    shape: Shape,
}

enum How {
    /// Of a small set: all that it has found.
    Made(Vec<u8>),
    /// All members of a large set, as they were at the beginning; so many were found.
    Scan(Ranging, u64),
    /// Through its tree.
    Tree(Box<Walking>),
}

/// A walk through the tree of a set.
struct Walking {
    /// The root record of the key.
    root: Slot,
    cursor: Cursor,
    /// The window after this one.
    next: Option<Rect>,
    /// Members of earlier windows, and of this one.
    members: [u64; 2],
    /// Bytes of the results of earlier windows.
    window_from: usize,
}

impl Area {
    /// Appends a member if it lies there; whether it does.
    fn take(self, (score, member): (f64, &[u8]), at: Position, found: &mut Vec<u8>) -> bool {
        let distance = self.shape.distance_within(self.centre, at);
        if let Some(distance) = distance {
            Members::push(found, &Member { score, distance, member });
        }
        distance.is_some()
    }

    /// The same of a member whose score may be no position.
    fn take_scored(self, (score, member): (f64, &[u8]), found: &mut Vec<u8>) -> bool {
        position_of(score).is_some_and(|at| self.take((score, member), at, found))
    }
}

impl SortedSets {
    /// Begins a search.
    ///
    /// # Errors
    /// `NotFound`: no such key; `WrongType`: it holds another type; `NotDone`: it does not have the
    /// member that is the centre.
    pub(super) fn begin_search<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        on: On<'_>,
        query: GeoQuery<'_>,
    ) -> Result<Searching, Status> {
        let held = Self::find(store, on)?.ok_or(Status::NotFound)?;
        let search = query.search();
        let centre = match search.centre {
            Centre::At(position) => position,
            Centre::Member(member) => {
                Position::of_score(self.score(store, held, member).ok_or(Status::NotDone)?)
            }
        };
        let area = Area { centre, shape: search.shape };
        let enough = if search.enough == 0 { u64::MAX } else { search.enough };
        let how = match held {
            Held::Whole(found) => {
                let (mut list, mut members) = (Vec::new(), 0);
                for of in packed_scores::items(packed_of(store, found)) {
                    members += u64::from(members < enough && area.take_scored(of, &mut list));
                }
                How::Made(list)
            }
            Held::Parts(root) if self.places.complete(root.slot.slot).is_some() => {
                let (window, next) = search.shape.windows(centre);
                How::Tree(Box::new(Walking {
                    root: slot_of(&store.owner, root.slot.slot),
                    cursor: Cursor::new(window, Predicate::Intersects),
                    next,
                    members: [0; 2],
                    window_from: 0,
                }))
            }
            Held::Parts(root) => {
                self.places.want(store, root.slot.slot);
                let span = Span { from: 0, to: self.length(store, held) };
                let all = (span, Direction::Ascending);
                How::Scan(self.begin_large(store, root.slot.slot, all), 0)
            }
        };
        Ok(Searching { area, enough, how })
    }

    /// Continues a search for one turn; `found` has all results so far, as [`Members`]. Of a key that
    /// was removed meanwhile a walk finds nothing, as if it had been removed before.
    ///
    /// # Errors
    /// Too much has changed since it began, or the tree has ended.
    pub(super) fn search_turn<J: Journal>(
        &self,
        store: &Store<J>,
        search: &mut Searching,
        found: &mut Vec<u8>,
    ) -> Result<Turn, Status> {
        let (area, enough) = (search.area, search.enough);
        let (ended, number) = match &mut search.how {
            How::Made(list) => {
                found.append(list);
                (true, 0)
            }
            How::Scan(ranging, members) => {
                let mut list = Vec::new();
                let turn = ranging.turn(self, store, &mut list)?;
                for of in Scored::in_list(&list) {
                    *members += u64::from(*members < enough && area.take_scored(of, found));
                }
                (turn.ended || *members >= enough, 0)
            }
            How::Tree(walking) => {
                let ended = walking.turn(self, store, (area, enough), found)?;
                (ended, self.places.tree_word(store, walking.root))
            }
        };
        let number = if ended { number } else { 0 };
        Ok(Turn { ended, number, gives_value: true, ..Turn::default() })
    }
}

impl Walking {
    fn turn<J: Journal>(
        &mut self,
        sets: &SortedSets,
        store: &Store<J>,
        (area, enough): (Area, u64),
        found: &mut Vec<u8>,
    ) -> Result<bool, Status> {
        if !store.is_live(self.root) {
            found.clear();
            return Ok(true);
        }
        let places = sets.places.complete(self.root.slot).ok_or(Status::Outrun)?;
        let Self { cursor, next, members, window_from, .. } = self;
        let step = (SEARCH_TURN_BYTES / node_bytes(NODE_ENTRIES)) as u64;
        let (before, last) = (found.len(), cursor.nodes() + SEARCH_TURN_NODES);
        // Bounded: each step visits a node, or ends a window.
        loop {
            let (restarts, mark) = (cursor.restarts(), found.len());
            let (mut met, mut is_enough) = (0, false);
            let ended = places.tree.search_some(&store.owner, cursor, step, |object| {
                is_enough |= members[0] + members[1] + met >= enough;
                if !is_enough {
                    let slot = object.word as u32;
                    let of = (score_in(&store.owner, slot), member_in(&store.owner, slot));
                    met += u64::from(area.take(of, Position::of_point(&object.rect), found));
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
            if is_enough || members[0] + members[1] >= enough {
                return Ok(true);
            }
            if ended {
                let Some(window) = next.take() else { return Ok(true) };
                *cursor = Cursor::new(window, Predicate::Intersects);
                *members = [members[0] + members[1], 0];
                *window_from = found.len();
                return Ok(false);
            }
            if found.len().saturating_sub(before) >= SEARCH_TURN_BYTES || cursor.nodes() >= last {
                return Ok(false);
            }
        }
    }
}
