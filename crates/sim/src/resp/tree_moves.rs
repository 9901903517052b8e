//! Trees that go from key to key: RENAME and COPY, in pieces where they are large.
//!
//! One RESP client changes them, one request after another, so that it knows each key's tree; ring
//! clients look at them. No key gets the same tree twice, so that a rectangle under a key names the
//! change that brought it there. After a connection that ended with a request under way, or a
//! server that died, the client uses other keys.

use super::moves::{Mover, Moving};
use super::requests::{Expect, Maker, Request};
use crate::check::places::{Act, Whole};
use crate::places::{id_text, long_data_of, moved_tree, new_rect, tree_name, without_shape};
use crate::probes::Probe;
use remora_client_core::Rect;
use remora_layout::limits::DUMP_PIECE_BYTES;
use std::collections::BTreeMap;

/// The number of trees at a time.
const TREES: usize = 3;

/// That client's knowledge.
#[derive(Default)]
pub struct TreeMoves {
    /// Keys so far.
    keys: u32,
    /// The objects of each tree.
    held: BTreeMap<u32, Whole>,
    /// A key to be replaced, with a tree of its own.
    replaced: Option<u32>,
    moving: Moving,
}

impl Mover for TreeMoves {
    fn begin_anew(&mut self, _: &Maker) {
        self.held.clear();
        self.replaced = None;
    }

    fn moving(&mut self) -> &mut Moving {
        &mut self.moving
    }

    fn probe(&self) -> Probe {
        Probe::TreeMoved
    }

    fn next(&mut self, maker: &Maker) -> Request {
        let Some(tree) = self.any(maker) else { return self.create(maker) };
        match maker.draw(20) {
            0 | 1 => self.go(maker, "RENAME", tree),
            2 if self.held.len() < TREES => self.go(maker, "COPY", tree),
            3 if self.held.len() > 1 => self.del(maker, tree),
            4 if self.replaced.is_none() => {
                let other = self.key(maker);
                self.replaced = Some(other);
                self.add(maker, other)
            }
            5 | 6 => self.remove(maker, tree),
            _ => self.add(maker, tree),
        }
    }
}

impl TreeMoves {
    /// Any of the trees except the one to be replaced.
    fn any(&self, maker: &Maker) -> Option<u32> {
        let trees: Vec<u32> =
            self.held.keys().copied().filter(|&tree| Some(tree) != self.replaced).collect();
        let at = maker.draw(trees.len().max(1) as u64) as usize;
        trees.get(at).copied()
    }

    /// A key that never had a tree.
    fn key(&mut self, maker: &Maker) -> u32 {
        self.keys += 1;
        let tree = moved_tree(maker.database, self.keys);
        self.held.insert(tree, Whole::new());
        maker.world.moved_trees.borrow_mut().push(tree);
        tree
    }

    fn create(&mut self, maker: &Maker) -> Request {
        let tree = self.key(maker);
        let kind = ["rstar", "guttman", "hilbert"][maker.draw(3) as usize];
        let capacity = (4 + maker.draw(5)).to_string();
        let words = ["KIND", kind, "CAPACITY", &capacity];
        request("RTREE.CREATE", tree, &words, Expect::Ok, Vec::new())
    }

    fn add(&mut self, maker: &Maker, tree: u32) -> Request {
        let (world, now_ns) = (&maker.world, maker.world.sim.now_ns());
        let id = maker.draw(world.swarm.places.ids);
        let places = &mut world.history.borrow_mut().places;
        let number = places.next_number();
        let rect = new_rect(&world.swarm.places, id, number, &mut |below| maker.draw(below));
        let rect = without_shape(rect);
        let act = places.put(tree, &[(id, rect)], Some(true), now_ns);
        let held = self.held.get_mut(&tree).expect("it is there");
        let is_new = held.insert(id, (rect, number)).is_none();
        let Rect { min_x, min_y, max_x, max_y } = rect;
        let [min_x, min_y, max_x, max_y] = [min_x, min_y, max_x, max_y].map(|at| at.to_string());
        let words = [&*id_text(id), &min_x, &min_y, &max_x, &max_y, "DATA"];
        let mut request =
            request("RTREE.ADD", tree, &words, Expect::Exactly(is_new as i64), vec![act]);
        request.words.push(long_data_of(number));
        request
    }

    fn remove(&mut self, maker: &Maker, tree: u32) -> Request {
        let (world, now_ns) = (&maker.world, maker.world.sim.now_ns());
        let id = maker.draw(world.swarm.places.ids);
        let act = world.history.borrow_mut().places.remove(tree, id, now_ns);
        let held = self.held.get_mut(&tree).expect("it is there");
        let was_there = held.remove(&id).is_some();
        let expect = Expect::Exactly(was_there as i64);
        request("RTREE.REM", tree, &[&*id_text(id)], expect, vec![act])
    }

    fn del(&mut self, maker: &Maker, tree: u32) -> Request {
        self.held.remove(&tree);
        let act = becomes(maker, tree, &Whole::new());
        request("DEL", tree, &[], Expect::Exactly(1), vec![act])
    }

    /// A tree, or a copy of it, moves to another key.
    fn go(&mut self, maker: &Maker, command: &str, from: u32) -> Request {
        let replaced = self.replaced.take_if(|_| maker.draw(2) == 0);
        let to = replaced.unwrap_or_else(|| self.key(maker));
        let keeps = command == "COPY";
        let objects = match keeps {
            true => self.held.get(&from).cloned(),
            false => self.held.remove(&from),
        };
        let objects = objects.expect("it is there");
        let bytes: usize = objects.values().map(|&(_, number)| long_data_of(number).len()).sum();
        self.moving.is_in_pieces = bytes > DUMP_PIECE_BYTES;
        // Between shards both keys have it for a moment.
        let mut acts = vec![becomes(maker, to, &objects)];
        if !keeps {
            acts.push(becomes(maker, from, &Whole::new()));
        }
        self.held.insert(to, objects);
        let expect = if keeps { Expect::Exactly(1) } else { Expect::Ok };
        let mut request = request(command, from, &[], expect, acts);
        request.words.push(tree_name(to));
        request.words.extend(keeps.then(|| b"REPLACE".to_vec()));
        request
    }
}

/// A tree becomes this at once.
fn becomes(maker: &Maker, tree: u32, objects: &Whole) -> Act {
    let (world, now_ns) = (&maker.world, maker.world.sim.now_ns());
    let ids = world.swarm.places.ids;
    world.history.borrow_mut().places.becomes(tree, objects, ids, now_ns)
}

fn request(command: &str, tree: u32, words: &[&str], expect: Expect, acts: Vec<Act>) -> Request {
    let mut all = vec![command.as_bytes().to_vec(), tree_name(tree)];
    all.extend(words.iter().map(|word| word.as_bytes().to_vec()));
    Request { acts, ..Request::new(all, expect, Vec::new()) }
}
