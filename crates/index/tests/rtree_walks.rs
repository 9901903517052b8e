//! Walks over trees that change at the same time. Every store of a history of changes is recorded.
//! A reader then fetches nodes word by word, in any order, while any number of stores happens
//! between two words. This is the weakest READ that the fabric allows.
//!
//! Two rules hold for each object. A walk shows a state that was true at some time during the walk,
//! and no state that is older than one that an earlier walk has shown. An object that was in the
//! window all the time is shown.

use crate::feeder::{Source, feed};
use crate::fixture::{HOME, KINDS, TreeFixture};
use crate::replay::{Recorder, Replay};
use remora_arena::NoJournal;
use remora_index::rtree::{AskReason, Query, Search, Want, walk_locally};
use remora_layout::node::{NodeRef, Proof, node_bytes, verify_node};
use remora_layout::rect::Predicate;
use remora_layout::rect::Rect;
use remora_layout::tree::{TREE_HEADER_BYTES, TreeHeader, TreeKind, verify_header};
use remora_testing::Random;
use remora_walk::{Step, Walk, What};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

/// One change: its stores, and its object.
struct Change {
    from: usize,
    to: usize,
    id: u64,
    rect: Option<Rect>,
}

impl Replay<'_> {
    /// Reads as a process that maps the memory does: its loads keep their order. At one word it
    /// stands still while many stores happen.
    fn read_in_order(&mut self, at: NodeRef, bytes: usize, random: &mut Random) -> (Vec<u8>, u64) {
        let first = at.offset() / 8;
        let before = self.words[first + 1];
        let still = random.below(bytes as u64 / 8) as usize;
        let mut taken = Vec::new();
        for word in 0..bytes / 8 {
            if word == still {
                let steps = random.below(800);
                self.go_on(steps as usize);
            }
            taken.extend(self.words[first + word].to_le_bytes());
        }
        let after = self.words[first + 1];
        (taken, if before == after { after } else { after | 1 })
    }

    fn header(&mut self, at: NodeRef, random: &mut Random) -> TreeHeader {
        loop {
            let bytes = self.read(at, TREE_HEADER_BYTES, random);
            if let Ok(header) = verify_header(&bytes, HOME, at, Proof::Checksum) {
                return header;
            }
            self.go_on(1);
        }
    }

    /// A walk with many nodes under way, which arrive in any order.
    fn walk(
        &mut self,
        at: NodeRef,
        query: Query,
        random: &mut Random,
    ) -> Result<Search, AskReason> {
        let header = self.header(at, random);
        let mut walk = Search::begin(query, HOME, header, self.words.len() as u64 * 8);
        let width = 1 + random.below(8) as usize;
        feed(&mut walk, width, &mut Late { replay: self, random, header: at })?;
        Ok(walk)
    }
}

/// Nodes that arrive late, torn and in any order.
struct Late<'l, 'r> {
    replay: &'l mut Replay<'r>,
    random: &'l mut Random,
    header: NodeRef,
}

impl Source<Search> for Late<'_, '_> {
    fn bytes(&mut self, want: &Want) -> (Vec<u8>, Proof) {
        (self.replay.read(node_of(want), want.bytes, self.random), Proof::Checksum)
    }

    fn head(&mut self) -> TreeHeader {
        self.replay.header(self.header, self.random)
    }

    fn next(&mut self, under_way: usize) -> usize {
        self.random.below(under_way as u64) as usize
    }
}

fn node_of(want: &Want) -> NodeRef {
    let What::Node { at, .. } = want.what else { panic!("a search wants nodes") };
    at
}

/// A history of changes of small trees, recorded.
struct History {
    start: Vec<u64>,
    stores: Vec<(usize, u64)>,
    changes: Vec<Change>,
    /// The nodes and their levels, at some times.
    nodes: Vec<(usize, Vec<(NodeRef, u8)>)>,
    header_at: NodeRef,
}

fn rect(random: &mut Random) -> Rect {
    let (x, y) = (random.below(100) as f64, random.below(100) as f64);
    Rect::new(x, x + random.below(9) as f64, y, y + random.below(9) as f64).unwrap()
}

fn record(kind: TreeKind, capacity: usize, changes: usize, random: &mut Random) -> History {
    let recorder = Recorder::default();
    let mut fixture = TreeFixture::new(kind, capacity, 1 << 20, recorder.clone());
    let words = fixture.owner.region_bytes() / 8;
    let header_at = fixture.tree.at();
    let start: Vec<u64> = (0..words).map(|word| fixture.owner.word(word)).collect();
    recorder.0.borrow_mut().clear();
    let (mut done, mut nodes) = (Vec::new(), Vec::new());
    for step in 0..changes {
        let from = recorder.0.borrow().len();
        let before: HashMap<u64, Rect> = fixture.objects.iter().copied().collect();
        let grows = (step * 4 / changes).is_multiple_of(2);
        match random.below(4) {
            0 => fixture.insert(rect(random)),
            1 if grows => fixture.insert(rect(random)),
            1 | 2 => fixture.remove_some(random),
            _ => {
                let to = rect(random);
                fixture.move_some(random, to);
            }
        }
        let to = recorder.0.borrow().len();
        let all = fixture.all_nodes().into_iter();
        nodes.push((to, all.map(|at| (at, fixture.tree.node(&fixture.owner, at).0)).collect()));
        let after: HashMap<u64, Rect> = fixture.objects.iter().copied().collect();
        let ids = before.keys().chain(after.keys());
        if let Some(&id) = ids.into_iter().find(|id| before.get(id) != after.get(id)) {
            done.push(Change { from, to, id, rect: after.get(&id).copied() });
        }
    }
    fixture.check();
    let stores = recorder.0.borrow().clone();
    History { start, stores, changes: done, nodes, header_at }
}

/// The states that walks of one reader have shown, and the times at which each state was true.
struct Checker<'h> {
    /// The states of each object: the change that made it, and its rectangle.
    states: HashMap<u64, Vec<(usize, Option<Rect>)>>,
    /// The latest state of each object that a walk has shown.
    shown: HashMap<u64, usize>,
    changes: &'h [Change],
}

impl<'h> Checker<'h> {
    fn new(changes: &'h [Change]) -> Self {
        let mut states: HashMap<_, Vec<_>> = HashMap::new();
        for (index, change) in changes.iter().enumerate() {
            states.entry(change.id).or_default().push((index + 1, change.rect));
        }
        states.values_mut().for_each(|states| states.insert(0, (0, None)));
        Self { states, shown: HashMap::new(), changes }
    }

    /// One walk, over a window, from one time to another.
    fn check(
        &mut self,
        window: &Rect,
        from: usize,
        to: usize,
        walk: &Search,
    ) -> Result<(), String> {
        let results: HashMap<u64, Rect> =
            walk.results().iter().map(|object| (object.word, object.rect)).collect();
        if results.len() != walk.results().len() {
            return Err("a result stands twice".into());
        }
        // Changes that were over when the walk began, or had begun at its end.
        let over = self.changes.partition_point(|change| change.to <= from);
        let begun = self.changes.partition_point(|change| change.from < to);
        for (id, states) in &self.states {
            let at = |changes| states.partition_point(|&(made, _)| made <= changes) - 1;
            let first = at(over).max(self.shown.get(id).copied().unwrap_or(0));
            let possible = first..=at(begun).max(first);
            let hit = |state: usize| states[state].1.filter(|rect| rect.intersects(window));
            match results.get(id) {
                Some(rect) => {
                    let state = possible.clone().find(|&state| hit(state) == Some(*rect));
                    let Some(state) = state else {
                        return Err(format!("object {id} is shown where it never was: {rect:?}"));
                    };
                    self.shown.insert(*id, state);
                }
                None if possible.clone().all(|state| hit(state).is_some()) => {
                    return Err(format!("object {id} was there all the time"));
                }
                // Not shown: the first state in which it is not in the window.
                None => {
                    let state = possible.clone().find(|&state| hit(state).is_none());
                    self.shown.insert(*id, state.expect("one at least"));
                }
            }
        }
        if results.keys().any(|id| !self.states.contains_key(id)) {
            return Err("an object is shown that never was".into());
        }
        Ok(())
    }
}

fn run(
    kind: TreeKind,
    capacity: usize,
    changes: usize,
    calm: u64,
    between: u64,
    seed: u64,
) -> Result<[u64; 3], String> {
    let mut random = Random::new(seed);
    let history = record(kind, capacity, changes, &mut random);
    let mut checker = Checker::new(&history.changes);
    let mut replay =
        Replay { words: history.start.clone(), stores: &history.stores, time: 0, calm };
    let [mut walks, mut retried, mut asked] = [0; 3];
    while replay.time < history.stores.len() {
        replay.go_on(random.below(between) as usize);
        let window = match random.below(3) {
            0 => Rect::new(-1.0, 200.0, -1.0, 200.0).unwrap(),
            _ => {
                let (x, y) = (random.below(80) as f64, random.below(80) as f64);
                Rect::new(x, x + 40.0, y, y + 40.0).unwrap()
            }
        };
        let query = Query::Window { window, predicate: Predicate::Intersects };
        let from = replay.time;
        walks += 1;
        match replay.walk(history.header_at, query, &mut random) {
            Ok(walk) => {
                retried += (walk.retries() > 0) as u64;
                checker.check(&window, from, replay.time, &walk)?;
            }
            Err(AskReason::Broken) => return Err("the owner's memory is no tree".into()),
            Err(_) => asked += 1,
        }
    }
    Ok([walks, retried, asked])
}

#[test]
fn torn_and_late_reads_never_give_a_wrong_result() {
    let mut all = [0; 3];
    for kind in KINDS {
        for (seed, capacity) in [4, 5, 8, 15].into_iter().enumerate() {
            for calm in [2, 10, 40, 150] {
                let counts = run(kind, capacity, 1_000, calm, 60, seed as u64 * 31 + calm)
                    .unwrap_or_else(|error| panic!("{kind:?} {capacity} {calm}: {error}"));
                all.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
            }
        }
    }
    let [walks, retried, asked] = all;
    // Some walks had to try again and some had to ask. Most had to do neither.
    assert!(walks > 10_000 && retried > 500 && asked > 100 && asked < walks / 2, "{all:?}");
}

#[test]
fn what_passes_by_version_would_pass_by_checksum() {
    // Over nodes that are changed, freed and used again during the walk.
    let (mut whole, mut refused) = (0, 0);
    for kind in KINDS {
        let mut random = Random::new(17);
        let history = record(kind, 4, 4_000, &mut random);
        let fresh =
            || Replay { words: history.start.clone(), stores: &history.stores, time: 0, calm: 1 };
        let mut replay = fresh();
        // The same history many times, at other times.
        for (time, nodes) in (0..30).flat_map(|_| &history.nodes) {
            if *time == history.nodes[0].0 {
                replay = fresh();
            }
            if *time < replay.time {
                continue;
            }
            replay.go_on(time - replay.time);
            let (at, level) = nodes[random.below(nodes.len() as u64) as usize];
            let (bytes, version) = replay.read_in_order(at, node_bytes(4), &mut random);
            match verify_node(&bytes, HOME, at, level, Proof::VersionAfter(version)) {
                Ok(_) => {
                    whole += 1;
                    let proved = verify_node(&bytes, HOME, at, level, Proof::Checksum);
                    assert!(proved.is_ok(), "{kind:?}: {at:?} is part old, part new");
                }
                Err(_) => refused += 1,
            }
        }
    }
    assert!(whole > 100 && refused > 100, "{whole} {refused}");
}

#[test]
fn what_one_walk_has_shown_no_later_one_takes_back() {
    // Several walks within one change: the new place, and never the old one afterwards.
    for kind in KINDS {
        for (seed, capacity) in [4, 8, 15].into_iter().enumerate() {
            let counts = run(kind, capacity, 1_500, 500, 6, seed as u64)
                .unwrap_or_else(|error| panic!("{kind:?} {capacity}: {error}"));
            assert!(counts[0] - counts[2] > 1_000, "{counts:?}");
        }
    }
}

#[test]
fn hostile_bytes_end_in_an_error_or_in_nothing() {
    // Bytes that pass every check (the reader shares the secret) and are no tree: a node that names
    // itself, or places outside of the region.
    let mut random = Random::new(3);
    let mut fixture = TreeFixture::new(TreeKind::RStar, 4, 1 << 20, NoJournal);
    for _ in 0..200 {
        fixture.insert(rect(&mut random));
    }
    let window = Rect::new(-1.0, 200.0, -1.0, 200.0).unwrap();
    let query = Query::Window { window, predicate: Predicate::Intersects };
    let header = fixture.tree.header();
    for _ in 0..3_000 {
        let mut walk = Search::begin(query, HOME, header, fixture.owner.region_bytes() as u64);
        let mut fed = 0;
        while let Some(want) = walk.next_want() {
            let mut bytes = fixture.owner.slice(want.offset as usize, want.bytes).to_vec();
            let spoiled = random.below(10) == 0;
            if spoiled {
                // Random bytes, which the reader accepts because of their version.
                for _ in 0..=random.below(3) {
                    let word = 2 + random.below(bytes.len() as u64 / 8 - 2) as usize;
                    bytes[word * 8..word * 8 + 8].copy_from_slice(&random.bits().to_le_bytes());
                }
            }
            let version = u64::from_le_bytes(bytes[8..16].try_into().unwrap());
            match walk.feed(want, &bytes, Proof::VersionAfter(version)) {
                Step::Found(()) | Step::Ask(_) => break,
                Step::Restart => {
                    if walk.restart(&header).is_err() {
                        break;
                    }
                }
                Step::More => {}
            }
            fed += 1;
            assert!(fed < 10_000, "bounded");
        }
    }
}

#[test]
fn a_tree_that_always_changes_is_asked() {
    let mut random = Random::new(9);
    let mut fixture = TreeFixture::new(TreeKind::RStar, 4, 1 << 20, NoJournal);
    for _ in 0..100 {
        fixture.insert(rect(&mut random));
    }
    let window = Rect::new(-1.0, 200.0, -1.0, 200.0).unwrap();
    let query = Query::Window { window, predicate: Predicate::Intersects };
    let old = fixture.tree.header();
    let bytes = |fixture: &TreeFixture<NoJournal>, at: NodeRef, count| {
        fixture.owner.slice(at.offset(), count).to_vec()
    };
    // The header does not change: left_at is greater again and again.
    for _ in 0..300 {
        fixture.insert(rect(&mut random));
        fixture.remove_some(&mut random);
    }
    let mut walk = Search::begin(query, HOME, old, 1 << 20);
    let mut restarts = 0;
    let reason = loop {
        let want = walk.next_want().expect("it is not done");
        let copy = bytes(&fixture, node_of(&want), want.bytes);
        match walk.feed(want, &copy, Proof::Checksum) {
            Step::Restart => match walk.restart(&old) {
                Ok(()) => restarts += 1,
                Err(reason) => break reason,
            },
            Step::More => {}
            step => panic!("{step:?}"),
        }
    };
    assert_eq!((reason, restarts), (AskReason::TooManyRestarts, 8));
    // A node that is always torn.
    let mut walk = Search::begin(query, HOME, fixture.tree.header(), 1 << 20);
    let reason = loop {
        let want = walk.next_want().expect("it is not done");
        let mut copy = bytes(&fixture, node_of(&want), want.bytes);
        copy[8] ^= 1;
        match walk.feed(want, &copy, Proof::Checksum) {
            Step::More => {}
            Step::Ask(reason) => break reason,
            step => panic!("{step:?}"),
        }
    };
    assert_eq!(reason, AskReason::TooManyRetries);
}

#[test]
fn threads_search_while_the_owner_changes() {
    // Objects with even ids stay; odd ones come, go and move.
    for kind in KINDS {
        let mut random = Random::new(21);
        let mut fixture = TreeFixture::new(kind, 6, 1 << 20, NoJournal);
        for _ in 0..if cfg!(miri) { 40 } else { 400 } {
            fixture.insert(rect(&mut random));
        }
        let stay: Vec<(u64, Rect)> =
            fixture.objects.iter().copied().filter(|(id, _)| id % 2 == 0).collect();
        fixture.objects.retain(|(id, _)| id % 2 == 1);
        let (words, at) = (fixture.owner.view().clone(), fixture.tree.at());
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut random = Random::new(4);
                let (mut scratch, mut walks, mut asked) = (Vec::new(), 0u64, 0u64);
                while !over.load(Ordering::Relaxed) || walks == 0 {
                    let (x, y) = (random.below(80) as f64, random.below(80) as f64);
                    let window = Rect::new(x, x + 20.0, y, y + 20.0).unwrap();
                    let query = Query::Window { window, predicate: Predicate::Intersects };
                    let Ok(walk) = walk_locally(&words, HOME, at, query, &mut scratch) else {
                        asked += 1;
                        continue;
                    };
                    walks += 1;
                    let shown: HashMap<u64, Rect> =
                        walk.results().iter().map(|object| (object.word, object.rect)).collect();
                    assert_eq!(shown.len(), walk.results().len());
                    for (id, rect) in stay.iter().filter(|(_, rect)| rect.intersects(&window)) {
                        assert_eq!(shown.get(id), Some(rect), "{kind:?}: {id} is there");
                    }
                    assert!(shown.values().all(|rect| rect.intersects(&window)));
                }
                (walks, asked)
            });
            let steps = if cfg!(miri) { 60 } else { 20_000 };
            for _ in 0..steps {
                match random.below(4) {
                    0 if fixture.objects.len() < 300 => {
                        fixture.insert(rect(&mut random));
                    }
                    0 | 1 => fixture.remove_some(&mut random),
                    _ => {
                        let to = rect(&mut random);
                        fixture.move_some(&mut random, to);
                    }
                }
            }
            over.store(true, Ordering::Relaxed);
            let (walks, _) = reader.join().unwrap();
            assert!(walks > 0);
        });
        fixture.objects.extend(stay);
        fixture.check();
    }
}
