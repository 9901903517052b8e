//! Trees of places in a world: a seed's choices for them, their names, and rectangles that name the
//! change that wrote them.

use crate::check::places::Number;
use crate::hashes::HashSwarm;
use remora_client_core::{Issue, ObjectId, Rect, TreeKind, TreeRead, TreeSettings};
use remora_fabric::sim::{Random, SimOptions};
use remora_geometry::{Refine, Shape, geo_types};
use std::ops::Range;

/// Mixed into the seed: the draws for trees change no other draws.
const SALT: u64 = 0x7472_6565_735f_6f66;
/// Coordinates are multiples of this part of the unit square...
const CELLS: f64 = 1024.0;
/// ...and in x a version's number of these beside it.
const GRAINS: f64 = (1u64 << 44) as f64;
/// Enough objects that searches may take several turns of their shard.
const LARGE: u64 = 2_000;
/// A fabric whose READs take longer is slow.
const SLOW_NS: u64 = 100_000;

/// Trees of a database have numbers from this many times the database's number on.
const DATABASE_TREES: u32 = 100;
/// Those that go from key to key from here on, and so many times its own.
const MOVED_TREES: u32 = 1 << 24;

/// A seed's choice of trees.
#[derive(Clone, Copy, Debug)]
pub struct PlacesSwarm {
    /// Trees of each database; 0: none.
    pub trees: u32,
    /// Objects of a tree have ids below.
    pub ids: u64,
    /// How many of a hundred operations are about trees.
    pub percent: u64,
    /// Whether trees are also built of many objects at once.
    pub loads: bool,
    /// Operations, of a thousand on a tree, that remove it.
    pub drops: u64,
    /// Widest rectangle, in cells.
    pub widest: u64,
    /// How many of a hundred changes move an object by little.
    pub near_percent: u64,
    /// Whether some trees go from key to key.
    pub moves: bool,
}

impl PlacesSwarm {
    /// A seed's draw: trees in one world of three.
    pub fn of(seed: u64, fabric: &SimOptions, hashes: &HashSwarm) -> Self {
        let mut random = Random::new(seed ^ SALT);
        let has_trees = random.below(3) == 0;
        let mut one_of = |of: [u64; 4]| of[random.below(4) as usize];
        let is_slow = fabric.request_ns.end().max(fabric.answer_ns.end()) > &SLOW_NS;
        let ids = one_of([8, 30, 30, 120]);
        let ids = if one_of([0, 0, 0, 1]) == 1 && !is_slow { LARGE } else { ids };
        let trees = if ids == LARGE { 1 } else { one_of([1, 1, 2, 3]) as u32 };
        Self {
            trees: if !has_trees { 0 } else { trees },
            ids: if is_slow { ids.min(30) } else { ids },
            percent: if ids == LARGE { 30 } else { one_of([20, 40, 60, 80]) },
            loads: ids == LARGE || one_of([0, 1, 1, 1]) == 1,
            drops: one_of([0, 0, 3, 30]),
            widest: one_of([1, 20, 20, 200]),
            near_percent: one_of([0, 30, 60, 90]),
            // One client moves the ones or the others.
            moves: one_of([0, 1, 0, 1]) == 1 && has_trees && ids != LARGE && !hashes.moves,
        }
    }

    /// The trees of a database.
    pub fn trees_of(&self, database: u8) -> Range<u32> {
        let from = database as u32 * DATABASE_TREES;
        from..from + self.trees
    }

    /// Whether searches may take several turns of their shard.
    pub fn is_large(&self) -> bool {
        self.ids == LARGE
    }
}

/// The tree of this name, if it is one.
pub fn tree_named(swarm: &PlacesSwarm, database: u8, name: &[u8]) -> Option<u32> {
    swarm.trees_of(database).find(|&tree| tree_name(tree) == name)
}

/// A tree's name: the same in every database.
pub fn tree_name(tree: u32) -> Vec<u8> {
    match tree < MOVED_TREES {
        true => format!("tree:{}", tree % DATABASE_TREES).into_bytes(),
        false => format!("moved tree:{}", tree % MOVED_TREES).into_bytes(),
    }
}

/// The tree under a key of this number, to which trees go.
pub fn moved_tree(database: u8, key: u32) -> u32 {
    (database as u32 + 1) * MOVED_TREES + key
}

/// Whether a tree is one that goes from key to key.
pub fn is_moved(tree: u32) -> bool {
    tree >= MOVED_TREES
}

/// The id of an object in its tree, as text: one of four is no integer.
pub fn id_text(id: u64) -> String {
    if has_name(id) { format!("object {id}") } else { id.to_string() }
}

/// Whether an object's id is no integer. Such ones are not loaded.
pub fn has_name(id: u64) -> bool {
    id % 4 == 3
}

/// Whether an object may be given an expiry, though its id is an integer.
pub fn may_expire(id: u64) -> bool {
    id % 4 == 2
}

/// The object that a search has found.
pub fn number_of_id(id: ObjectId<'_>) -> u64 {
    match id {
        ObjectId::Number(number) => number,
        ObjectId::Name(name) => {
            let text = name.strip_prefix(b"object ").and_then(|text| str::from_utf8(text).ok());
            text.and_then(|text| text.parse().ok()).unwrap_or(u64::MAX)
        }
    }
}

/// An expiry that no world reaches: an object with one has a surrogate.
pub const FAR_MS: u64 = (1 << 44) - 1;

/// The settings of a new tree: small nodes, so that there are many.
pub fn settings(draw: &mut impl FnMut(u64) -> u64) -> TreeSettings {
    let kind = [TreeKind::RStar, TreeKind::Guttman, TreeKind::Hilbert][draw(3) as usize];
    TreeSettings { kind, capacity: 4 + draw(5) as usize, ..TreeSettings::default() }
}

/// How a session reads a tree: one READ at a time or many, without kept nodes,
/// with few, or with all.
pub fn reading(draw: &mut impl FnMut(u64) -> u64) -> TreeRead {
    let issue = [Issue::Single, Issue::Multi, Issue::Multi][draw(3) as usize];
    TreeRead { issue, cache_bytes: [0, 1_000, 1 << 20][draw(3) as usize] }
}

/// A window somewhere.
pub fn window(draw: &mut impl FnMut(u64) -> u64) -> Rect {
    let Some(&widest) = [50, 300, 1_000].get(draw(4) as usize) else { return everything() };
    let (at, edge) = ((draw(CELLS as u64), draw(CELLS as u64)), 1 + draw(widest));
    rect(at, (edge, edge), 0)
}

/// A window of all that there is.
pub fn everything() -> Rect {
    rect((0, 0), (2 * CELLS as u64, 2 * CELLS as u64), 0)
}

/// The rectangle that a change writes: near the object's own place, or anywhere.
pub fn new_rect(
    swarm: &PlacesSwarm,
    id: u64,
    number: Number,
    draw: &mut impl FnMut(u64) -> u64,
) -> Rect {
    let cells = CELLS as u64;
    let own = (id * 389 % (cells - 64), id * 613 % (cells - 64));
    let at = match draw(100) < swarm.near_percent {
        true => (own.0 + draw(64), own.1 + draw(64)),
        false => (draw(cells), draw(cells)),
    };
    rect(at, (draw(swarm.widest), draw(swarm.widest)), number)
}

/// No two numbers have the same rectangle.
fn rect((x, y): (u64, u64), (width, height): (u64, u64), number: Number) -> Rect {
    let cell = |cells: u64| cells as f64 / CELLS;
    let min_x = cell(x) + number as f64 / GRAINS;
    Rect { min_x, max_x: min_x + cell(width), min_y: cell(y), max_y: cell(y + height) }
}

/// The geometry of a version with this rectangle: half of them have a line
/// from corner to corner, which a window may miss.
pub fn shape_of(rect: &Rect) -> Option<Shape> {
    let has_one = ((rect.min_y * CELLS) as u64).is_multiple_of(2);
    let ends = vec![(rect.min_x, rect.min_y), (rect.max_x, rect.max_y)];
    has_one.then(|| Shape::new(geo_types::LineString::from(ends).into()).expect("a line"))
}

/// A rectangle of a version without a geometry.
pub fn without_shape(rect: Rect) -> Rect {
    let cell = if shape_of(&rect).is_some() { 1.0 / CELLS } else { 0.0 };
    Rect { min_y: rect.min_y + cell, max_y: rect.max_y + cell, ..rect }
}

/// The refined search of a window.
pub fn refine_of(window: &Rect) -> Refine {
    Refine::Intersects(Shape::of_rect(window))
}

/// Whether such a search looks for a version with this rectangle.
pub fn refined_holds(refine: &Refine, rect: &Rect) -> bool {
    refine.window().intersects(rect)
        && refine.holds(&shape_of(rect).unwrap_or_else(|| Shape::of_rect(rect)))
}

/// The bytes that an object of this version carries.
pub fn data_of(number: Number) -> Vec<u8> {
    let most = 8 * (1 + number as usize % 40);
    number.to_le_bytes().into_iter().cycle().take(most).collect()
}

/// As [`data_of`], but so long that a few objects are more than one piece of a tree.
pub fn long_data_of(number: Number) -> Vec<u8> {
    let most = 2_048 * (1 + number as usize % 4);
    number.to_le_bytes().into_iter().cycle().take(most).collect()
}

/// The version that an object's bytes name; `None` if no client wrote them.
pub fn number_of(data: &[u8]) -> Option<Number> {
    let (number, _) = data.split_first_chunk::<4>()?;
    let number = Number::from_le_bytes(*number);
    (data_of(number) == data || long_data_of(number) == data).then_some(number)
}
