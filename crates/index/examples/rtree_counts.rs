//! Nodes that a search visits, and heights, of trees of uniform rectangles
//! (Catfish W1, W2): counts, which no machine changes.
//!
//! `cargo run --release -p remora-index --example rtree_counts -- [objects] [capacity] [queries]`

use remora_arena::{NoJournal, Owner, Slots};
use remora_index::rtree::{Arena, Tree, TreeOptions};
use remora_layout::limits::PAGE_BYTES;
use remora_layout::node::{Home, NodeRef};
use remora_layout::rect::Predicate;
use remora_layout::rect::Rect;
use remora_layout::tree::{TREE_HEADER_BYTES, TreeKind};

/// Longest edge of an object (W1).
const EDGE: f64 = 1e-4;

fn random(state: &mut u64) -> f64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    (*state >> 11) as f64 / (1u64 << 53) as f64
}

fn rectangle(state: &mut u64, edge: f64) -> Rect {
    let (x, y) = (random(state), random(state));
    let (width, height) = (random(state) * edge, random(state) * edge);
    Rect::new(x, x + width, y, y + height).expect("finite")
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse().expect("a number"));
    let mut next = |default: usize| arguments.next().unwrap_or(default);
    let (objects, capacity, queries) = (next(2_000_000), next(30), next(20_000));
    let bounds = Rect::new(0.0, 1.0, 0.0, 1.0).expect("a rectangle");
    println!("{objects} objects, capacity {capacity}, {queries} queries a scale");
    println!("tree      height  nodes  MB  at 1e-5: nodes results  at 0.01: nodes results");
    for (kind, bulk) in [
        (TreeKind::RStar, false),
        (TreeKind::Guttman, false),
        (TreeKind::Hilbert, false),
        (TreeKind::RStar, true),
        (TreeKind::Hilbert, true),
    ] {
        let bytes = (objects * 160 + (1 << 20)).next_multiple_of(PAGE_BYTES);
        let mut owner = Owner::heap(bytes, NoJournal);
        let mut slots = Slots::new(PAGE_BYTES, bytes);
        let mut arena = Arena { owner: &mut owner, slots: &mut slots, changed_at: 0 };
        let home = Home { secret: 1, region: 0 };
        let slot = arena.slots.allocate(arena.owner, TREE_HEADER_BYTES, 0).expect("memory");
        let at = NodeRef { slot: slot.slot, generation: slot.generation };
        let mut tree = Tree::create(&mut arena, home, at, TreeOptions { kind, capacity, bounds })
            .expect("memory");
        let mut state = 0x9e37_79b9_7f4a_7c15;
        let all = (0..objects as u64).map(|id| (id, rectangle(&mut state, EDGE)));
        if bulk {
            tree.load(&mut arena, all.collect()).expect("memory");
        } else {
            for (id, rect) in all {
                tree.put(&mut arena, id, rect).expect("memory");
            }
        }
        print!(
            "{kind:?}{} {} {} {}",
            if bulk { " loaded" } else { "" },
            tree.header().height,
            tree.nodes(),
            tree.bytes() >> 20
        );
        for scale in [1e-5, 0.01] {
            let (mut nodes, mut results) = (0, 0u64);
            for _ in 0..queries {
                let window = rectangle(&mut state, scale);
                nodes += tree.search(&owner, &window, Predicate::Intersects, |_| results += 1);
            }
            let per = |count: u64| count as f64 / queries as f64;
            print!("  {scale}: {:.2} {:.4}", per(nodes), per(results));
        }
        println!();
    }
}
