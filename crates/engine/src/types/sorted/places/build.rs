//! The places of a set are built in turns, some members in each.

use super::AllPlaces;
use super::set::PlaceSet;
use crate::elements::bins;
use crate::store::{Now, Store};
use crate::types::arena::logged_arena;
use crate::types::sorted::packing::Scores;
use remora_arena::{Journal, slot_of};
use remora_index::rtree::{Tree, TreeOptions};
use remora_layout::limits::NODE_ENTRIES;
use remora_layout::node::Home;
use remora_layout::rect::Rect;
use remora_layout::tree::TreeKind;
use remora_protocol::sorted::Scored;

impl AllPlaces {
    /// One turn of the work on places: of one set. Whether there is more to do, and the set.
    pub fn tend<J: Journal>(&mut self, store: &mut Store<J>, now: Now) -> (bool, Option<u32>) {
        let wanted = self.wanted.pop_first();
        let of = wanted.or(self.unfinished.first().copied());
        if let Some(root) = wanted {
            self.begin(store, root);
        } else if let Some(root) = of
            && self.turn(store, root, now)
        {
            self.unfinished.remove(&root);
        }
        (!self.wanted.is_empty() || !self.unfinished.is_empty(), of)
    }

    /// Makes an empty tree for a set that is to have places.
    fn begin<J: Journal>(&mut self, store: &mut Store<J>, root: u32) {
        let root = slot_of(&store.owner, root);
        let home = Home { secret: store.options.record_secret, region: store.options.region };
        let options = TreeOptions {
            kind: TreeKind::default(),
            capacity: NODE_ENTRIES,
            bounds: Rect::default(),
        };
        let at = store.state_of(root);
        let Ok(tree) = Tree::create(&mut logged_arena(store), home, at, options) else { return };
        let places = PlaceSet::new(root, tree, store.options.record_secret);
        self.totals.node_bytes += places.tree.bytes();
        self.by_root.insert(root.slot, places);
        self.touched.push(root.slot);
        self.unfinished.insert(root.slot);
    }

    /// Adds the places of some more members, or gives some memory back; true once that has ended.
    fn turn<J: Journal>(&mut self, store: &mut Store<J>, root: u32, now: Now) -> bool {
        let Some(places) = self.by_root.get_mut(&root) else { return true };
        if places.has_ended() {
            return self.give_some(store, root, now);
        }
        let Some(mut at) = places.begin_step() else { return true };
        let mut piece = Vec::new();
        let is_last = bins::dump::<Scores, J>(store, root, &mut at, &mut piece);
        self.touched.push(root);
        let at_root = (root, store.last_sequence());
        for (score, member) in Scored::in_list(&piece) {
            // One that has changed since the first turn has its place.
            let is_there = self.by_root[&root].find(&store.owner, member).is_some();
            if !is_there && !self.put(store, at_root, (score, member), now) {
                self.end(store, root);
                return false;
            }
        }
        let places = self.by_root.get_mut(&root).expect("looked at above");
        places.end_step(at, is_last);
        is_last
    }
}
