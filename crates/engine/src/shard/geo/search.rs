//! Searching a GEO key: in turns of the shard, or to the end.

use super::super::{Now, Shard};
use super::set::{GeoSet, member_in, score_in};
use crate::command::{Centre, GeoQuery, Place, Places, Reply};
use crate::geo::{Position, Shape};
use remora_arena::Journal;
use remora_index::rtree::{Cursor, Predicate};
use remora_layout::hash::KeyHash;
use remora_layout::limits::{NODE_ENTRIES, SEARCH_TURN_BYTES, SEARCH_TURN_NODES};
use remora_layout::message::Status;
use remora_layout::node::node_bytes;
use remora_layout::rect::Rect;

/// A search that is under way.
#[derive(Debug)]
pub struct GeoWalk {
    key: Box<[u8]>,
    hash: KeyHash,
    serial: u64,
    centre: Position,
    shape: Shape,
    cursor: Cursor,
    /// The window after this one.
    next: Option<Rect>,
    /// It may end with so many members.
    enough: u64,
    /// Those of earlier windows, and of this one.
    members: [u64; 2],
    /// What was found, as [`Places`].
    found: Vec<u8>,
    /// Bytes of those of earlier windows.
    window_from: usize,
}

impl GeoWalk {
    /// What was found, as [`Places`].
    pub fn into_found(self) -> Vec<u8> {
        self.found
    }

    /// Bytes found so far.
    pub fn found_bytes(&self) -> usize {
        self.found.len()
    }
}

impl<J: Journal> Shard<J> {
    /// Begins a search of a GEO key.
    ///
    /// # Errors
    /// `NotFound`: no such key; `WrongType`: it holds a string; `NotDone`: it
    /// has no such member as the one that is to be the centre.
    pub fn begin_geo_search(
        &mut self,
        key: &[u8],
        hash: KeyHash,
        query: GeoQuery<'_>,
        now: Now,
    ) -> Result<GeoWalk, Status> {
        if self.lookup(key, hash, now).is_some() {
            return Err(Status::WrongType);
        }
        if !self.meets_geo(key, hash, now) {
            return Err(Status::NotFound);
        }
        let set = self.geo.get(key, hash).ok_or(Status::NotFound)?;
        let search = query.search();
        let centre = match search.centre {
            Centre::At(position) => position,
            Centre::Member(member) => {
                let slot = set.find(&self.owner, member).ok_or(Status::NotDone)?;
                Position::of_score(score_in(&self.owner, slot))
            }
        };
        let (window, next) = search.shape.windows(centre);
        Ok(GeoWalk {
            key: key.into(),
            hash,
            serial: set.serial,
            centre,
            shape: search.shape,
            cursor: Cursor::new(window, Predicate::Intersects),
            next,
            enough: if search.enough == 0 { u64::MAX } else { search.enough },
            members: [0; 2],
            found: Vec::new(),
            window_from: 0,
        })
    }

    /// Goes on with a search for one turn of the shard. True at its end. A key
    /// that has gone meanwhile is as one that went before it: nothing is found.
    pub fn geo_search_turn(&self, walk: &mut GeoWalk) -> bool {
        let set = self.geo.get(&walk.key, walk.hash).filter(|set| set.serial == walk.serial);
        let Some(set) = set else {
            walk.found.clear();
            return true;
        };
        let GeoWalk { centre, shape, cursor, next, enough, members, found, window_from, .. } = walk;
        let (centre, shape) = (*centre, *shape);
        let take = |slot: u32, position: Position, found: &mut Vec<u8>| {
            let Some(distance) = shape.distance_within(centre, position) else { return 0 };
            let (member, score) = (member_in(&self.owner, slot), score_in(&self.owner, slot));
            Places::push(found, &Place { score, distance, member });
            1
        };
        let Some(tree) = &set.tree else {
            found.clear();
            let mut members = 0;
            for slot in set.slots() {
                let position = Position::of_score(score_in(&self.owner, slot));
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
            let ended = tree.search_some(&self.owner, cursor, step, |object| {
                is_enough |= members[0] + members[1] + met >= *enough;
                if !is_enough {
                    met += take(object.word as u32, Position::of_point(&object.rect), found);
                }
            });
            if cursor.restarts() == restarts {
                members[1] += met;
            } else {
                // The window was begun again: what it had found comes again.
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

    /// Where the tree of the key that was searched is to be read, as the word of
    /// a [`remora_layout::node::NodeRef`]; 0 if it is not to be read.
    pub fn geo_place(&self, walk: &GeoWalk) -> i64 {
        let set = self.geo.get(&walk.key, walk.hash).filter(|set| set.serial == walk.serial);
        set.and_then(GeoSet::place).map_or(0, |at| at.to_word() as i64)
    }

    /// A search to its end, for whoever cannot take it in turns.
    pub(super) fn whole_geo_search(
        &mut self,
        key: &[u8],
        hash: KeyHash,
        query: GeoQuery<'_>,
        now: Now,
    ) -> Reply<'_> {
        let mut walk = match self.begin_geo_search(key, hash, query, now) {
            Ok(walk) => walk,
            Err(status) => return Reply::status(status),
        };
        while !self.geo_search_turn(&mut walk) {}
        let place = self.geo_place(&walk);
        self.geo.scratch = walk.into_found();
        Reply { value: Some(&self.geo.scratch), ..Reply::number(place) }
    }
}
