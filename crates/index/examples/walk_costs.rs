//! Walks at rest, for counting their instructions under callgrind: run it
//! with two numbers of rounds, and divide the difference.
//!
//! `valgrind --tool=callgrind target/release/examples/walk_costs MODE ROUNDS`, MODE one of
//! `record`, `window`, `nearest`, `owner`, `pausing`, `fed` (a walk that is fed the owner's own bytes).

use remora_arena::{NewRecord, NoJournal, Owner, Slots, publish_live, write_pending};
use remora_index::hash::{Table, TableRef};
use remora_index::rtree::{Arena, Cursor, Query, Search, Tree, TreeOptions};
use remora_layout::arena_header::{ARENA_HEADER_BYTES, word};
use remora_layout::bucket::{BUCKET_BYTES, BucketSlot};
use remora_layout::database::Database;
use remora_layout::hash::KeyHash;
use remora_layout::kind::Kind;
use remora_layout::limits::PAGE_BYTES;
use remora_layout::node::{Home, NodeRef};
use remora_layout::rect::Predicate;
use remora_layout::rect::Rect;
use remora_layout::tree::{TREE_HEADER_BYTES, TreeKind};
use remora_walk::{Proof, Step, Walk};
use std::hint::black_box;

const HOME: Home = Home { secret: 1, region: 0 };
const KEYS: u64 = 4096;
const OBJECTS: u64 = 100_000;

fn random(state: &mut u64) -> f64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    (*state >> 11) as f64 / (1u64 << 53) as f64
}

fn records(rounds: u64) -> u64 {
    let bytes = 8 << 20;
    let mut owner = Owner::heap(bytes, NoJournal);
    let mut slots = Slots::new(ARENA_HEADER_BYTES + 1024 * BUCKET_BYTES, bytes);
    owner.store(word::RECORD_SECRET, 1);
    let mut table = Table::new(&mut owner, ARENA_HEADER_BYTES, 1024);
    for number in 0..KEYS {
        let key = number.to_le_bytes();
        let hash = KeyHash::of(&key, 1);
        let record = NewRecord {
            database: Database::ZERO,
            key: &key,
            value: &[7; 32],
            kind: Kind::STRING,
            expires_at_ms: 0,
        };
        let slot = slots.allocate(&mut owner, record.record_bytes(), 0).expect("memory");
        let pointer = write_pending(&mut owner, 1, 0, slot, &record);
        publish_live(&mut owner, slot);
        let entry = BucketSlot {
            slot: pointer.slot,
            class: slot.class,
            generation_low: pointer.generation as u8,
            signature: hash.signature(),
        };
        let full = table.needs_overflow(&owner, hash);
        let more = full.then(|| slots.allocate_bucket(&mut owner, 0).expect("memory").slot);
        table.insert(&mut owner, hash, entry, more);
    }
    let (memory, mut view) = (owner.view(), TableRef::read(0, owner.view()).expect("a table"));
    let (mut scratch, mut found) = (Vec::new(), 0);
    for round in 0..rounds {
        let key = black_box(round % KEYS).to_le_bytes();
        let hash = KeyHash::of(&key, 1);
        let record = remora_index::hash::walk_locally(
            memory,
            &mut view,
            &key,
            hash,
            Kind::STRING,
            &mut scratch,
        );
        found += record.is_ok_and(|record| record.value.len() == 32) as u64;
    }
    found
}

fn searches(mode: &str, rounds: u64) -> u64 {
    let bytes = (OBJECTS as usize * 180 + (4 << 20)).next_multiple_of(PAGE_BYTES);
    let mut owner = Owner::heap(bytes, NoJournal);
    let mut slots = Slots::new(PAGE_BYTES, bytes);
    let mut arena = Arena { owner: &mut owner, slots: &mut slots, changed_at: 0 };
    let bounds = Rect::new(0.0, 1.0, 0.0, 1.0).expect("a rectangle");
    let options = TreeOptions { kind: TreeKind::RStar, capacity: 30, bounds };
    let slot = arena.slots.allocate(arena.owner, TREE_HEADER_BYTES, 0).expect("memory");
    let at = NodeRef { slot: slot.slot, generation: slot.generation };
    let mut tree = Tree::create(&mut arena, HOME, at, options).expect("memory");
    let mut state = 0x9e37_79b9_7f4a_7c15;
    let point = |state: &mut u64| Rect::point(random(state), random(state)).expect("finite");
    let all = (0..OBJECTS).map(|id| (id, point(&mut state))).collect();
    tree.load(&mut arena, all).expect("memory");
    let (mut scratch, mut found) = (Vec::new(), 0);
    for _ in 0..rounds {
        let (x, y) = (random(&mut state) * 0.97, random(&mut state) * 0.97);
        let window = Rect::new(x, x + 0.03, y, y + 0.03).expect("finite");
        let predicate = Predicate::Intersects;
        match mode {
            "owner" => {
                tree.search(&owner, &window, predicate, |_| found += 1);
            }
            "pausing" => {
                let mut cursor = Cursor::new(window, predicate);
                while !tree.search_some(&owner, &mut cursor, 16, |_| found += 1) {}
            }
            "fed" => found += fed(&owner, &tree, Query::Window { window, predicate }),
            _ => {
                let query = match mode {
                    "window" => Query::Window { window, predicate },
                    _ => Query::Nearest { x, y, wanted: 10 },
                };
                let walk =
                    remora_index::rtree::walk_locally(owner.view(), HOME, at, query, &mut scratch);
                found += walk.expect("at rest").results().len() as u64;
            }
        }
    }
    found
}

/// The cost of the owner's searches if they were walks: no copy, no checksum.
fn fed(owner: &Owner<NoJournal>, tree: &Tree, query: Query) -> u64 {
    let mut search = Search::begin(query, HOME, tree.header(), owner.region_bytes() as u64);
    while let Some(want) = search.next_want() {
        let bytes = owner.slice(want.offset as usize, want.bytes);
        let version = owner.word(want.offset as usize / 8 + 1);
        if search.feed(want, bytes, Proof::VersionAfter(version)) != Step::More {
            break;
        }
    }
    search.results().len() as u64
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mode = arguments.next().expect("a mode");
    let rounds = arguments.next().and_then(|text| text.parse().ok()).expect("a number");
    let found = if mode == "record" { records(rounds) } else { searches(&mode, rounds) };
    println!("{mode}: {rounds} rounds, {found} found");
}
