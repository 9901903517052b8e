//! A tree is searched from its shard's memory by a thread that does not own it, while the shard
//! works: between any two fetches of the reader objects come, move and go, and the tree is dropped.
//! A client that does not know the arena's secret then puts a value that looks like the tree's
//! nodes in its place, and later another tree is made. The reader must find only objects that were
//! there at some moment of the search, and all that were there throughout.

use remora_arena::{NoJournal, Owner, ReadView};
use remora_engine::{Now, Shard, ShardOptions};
use remora_index::rtree::{AskReason, LocalWalk, Query, read_header};
use remora_layout::node::{
    ENTRY_BYTES, Home, NODE_HEADER_BYTES, NodeRef, Proof, node_bytes, verify_node, word,
};
use remora_layout::rect::Predicate;
use remora_layout::rect::Rect;
use remora_layout::tree::{TREE_INFO_WORDS, TreeInfo};
use remora_protocol::tree::{TreeCommand, TreeSettings};
use remora_protocol::{Command, Condition, Expiry};
use remora_testing::Random;
use remora_walk::Memory;
use remora_walk::local::WalkLimits;
use std::cell::RefCell;
use std::collections::BTreeMap;
use zerocopy::FromBytes;

const NOW: Now = Now { unix_ms: 1_700_000_000_000, since_start_s: 1 };
const HOME: Home = Home { secret: 77, region: 3 };
const ARENA_BYTES: usize = 1 << 20;
const TREE: &[u8] = b"couriers";
const KEY: &[u8] = b"forgery";
/// A value that covers nearly all that is free.
const VALUE_BYTES: usize = 52 << 10;
/// Set in the ids of forged objects.
const FORGED: u64 = 1 << 40;
const MARK: &[u8] = b"the value begins";

fn point(random: &mut Random) -> Rect {
    let [x, _, y, _] = random.rectangle(1_000, 1);
    Rect::point(x, y).unwrap()
}

/// The tree's objects at each moment of a search.
type Moment = BTreeMap<u64, Rect>;

struct World {
    shard: Shard,
    random: Random,
    objects: Moment,
    moments: Vec<Moment>,
    has_value: bool,
    /// Times that the value covered where the tree's header had been.
    covered: u32,
    /// One in so many fetches meets a change.
    rare: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let options = ShardOptions { record_secret: 77, region: 3, ..ShardOptions::default() };
        let shard = Shard::new(Owner::heap(ARENA_BYTES, NoJournal), options);
        let random = Random::new(0x9e37_79b9_7f4a_7c15 ^ seed);
        let (objects, moments) = (Moment::new(), Vec::new());
        Self { shard, random, objects, moments, has_value: false, covered: 0, rare: 1 }
    }

    fn ask(&mut self, command: &Command<'_>) -> (i64, Option<Vec<u8>>) {
        let hash = command.key().map(|key| self.shard.hash(key)).unwrap();
        let reply = self.shard.execute(command, hash, NOW);
        (reply.number, reply.value.map(<[u8]>::to_vec))
    }

    fn tree(&mut self, command: TreeCommand<'_>) -> (i64, Option<Vec<u8>>) {
        let request = command.checked().map(TreeCommand::request).unwrap();
        self.ask(&Command::Of { key: TREE, request })
    }

    /// The shard's answer for the place of the tree's header.
    fn place(&mut self) -> Option<NodeRef> {
        let words = self.tree(TreeCommand::Info).1?;
        let words = <[u64; TREE_INFO_WORDS]>::read_from_bytes(&words).ok()?;
        TreeInfo::from_words(&words).map(|info| info.at)
    }

    /// One change, most of them of one object.
    fn change(&mut self) {
        let id = self.random.below(200);
        match self.random.below(300) {
            0 if !self.has_value => self.drop_and_forge(),
            0..20 if self.has_value => {
                self.ask(&Command::Del { key: KEY });
                self.has_value = false;
            }
            _ if self.has_value => {}
            1..100 => {
                self.tree(TreeCommand::Remove { id: id.into() });
                self.objects.remove(&id);
            }
            _ => {
                if self.objects.is_empty() {
                    // Small nodes: the tree has many.
                    let settings = TreeSettings { capacity: 4, ..TreeSettings::default() };
                    self.tree(TreeCommand::Create(settings));
                }
                let rect = point(&mut self.random);
                self.tree(TreeCommand::put(id, rect, None, None));
                self.objects.insert(id, rect);
            }
        }
        self.moments.push(self.objects.clone());
    }

    /// Drops the tree, and lets all that it had lie there again in a value, with
    /// other ids. Checksums cannot be right.
    fn drop_and_forge(&mut self) {
        let Some(at) = self.place() else { return };
        let mut forged = self.shard.owner().slice(0, ARENA_BYTES).to_vec();
        let root = read_header(self.shard.owner().view(), HOME, at).unwrap().root;
        self.forge_nodes(at, &mut forged);
        self.tree(TreeCommand::Drop);
        self.objects.clear();
        // Bounded: each turn releases something.
        while self.shard.wants_release() {
            self.shard.release_some(NOW);
        }
        let mut value = vec![0; VALUE_BYTES];
        value[..MARK.len()].copy_from_slice(MARK);
        let (condition, expiry) = (Condition::Always, Expiry::Never);
        let set = Command::Set { key: KEY, value: &value, condition, expiry, get: false };
        self.ask(&set);
        self.has_value = true;
        let memory = self.shard.owner().slice(0, ARENA_BYTES);
        let found = memory.windows(MARK.len()).position(|bytes| bytes == MARK);
        let from = found.expect("there is room for the value");
        self.covered += (from..from + VALUE_BYTES).contains(&root.offset()) as u32;
        let value = &forged[from..from + VALUE_BYTES];
        self.ask(&Command::SetRange { key: KEY, offset: 0, value });
        assert_eq!(self.shard.owner().slice(from, VALUE_BYTES), value, "it stays where it is");
    }

    /// Gives the objects of the tree at `at` other ids; its header would let no
    /// walk begin again.
    fn forge_nodes(&self, at: NodeRef, forged: &mut [u8]) {
        let header = read_header(self.shard.owner().view(), HOME, at).unwrap();
        forged[at.offset() + 8 * word::LEFT_AT + 8..][..8].fill(0xff);
        let mut nodes = vec![(header.root, header.height - 1)];
        while let Some((at, level)) = nodes.pop() {
            let bytes = self.shard.owner().slice(at.offset(), node_bytes(4));
            let node = verify_node(bytes, HOME, at, level, Proof::Checksum).unwrap();
            for (index, entry) in node.entries().enumerate() {
                if level > 0 {
                    nodes.push((NodeRef::from_word(entry.word), level - 1));
                } else {
                    let id = at.offset() + NODE_HEADER_BYTES + (index + 1) * ENTRY_BYTES - 8;
                    let word = entry.word | FORGED;
                    forged[id..id + 8].copy_from_slice(&word.to_le_bytes());
                }
            }
        }
    }
}

/// The shard's memory; the shard works on between any two fetches.
struct Busy<'w> {
    words: ReadView,
    world: &'w RefCell<World>,
}

impl Memory for Busy<'_> {
    fn bytes(&self) -> usize {
        self.words.bytes()
    }

    fn fetch(&self, offset: u64, into: &mut [u8]) -> bool {
        let mut world = self.world.borrow_mut();
        let rare = world.rare;
        while world.random.below(rare) == 0 {
            world.change();
        }
        drop(world);
        self.words.fetch(offset, into)
    }
}

/// Compares the read objects with those present meanwhile.
fn judge(window: &Rect, moments: &[Moment], found: &[(u64, Rect)]) {
    let within = |moment: &Moment, id: u64| moment.get(&id).is_some_and(|r| r.intersects(window));
    for &(id, rect) in found {
        let was_there = moments.iter().any(|moment| moment.get(&id) == Some(&rect));
        assert!(was_there && rect.intersects(window), "{id} at {rect:?} never was");
    }
    let ids: Vec<u64> = found.iter().map(|&(id, _)| id).collect();
    assert!(ids.is_sorted_by(|a, b| a < b), "one of {ids:?} stands twice");
    for &id in moments[0].keys() {
        let stayed = moments.iter().all(|moment| within(moment, id));
        assert!(!stayed || ids.contains(&id), "{id} is missing");
    }
}

fn search(memory: &Busy<'_>, at: NodeRef, window: Rect) -> Result<Vec<(u64, Rect)>, AskReason> {
    let query = Query::Window { window, predicate: Predicate::Intersects };
    let mut walk = LocalWalk::begin(memory, HOME, at, query)?;
    if !walk.run_within(&WalkLimits::ONE_TURN, &mut Vec::new())? {
        return Err(AskReason::TooManyRetries);
    }
    Ok(walk.walk().results().iter().map(|object| (object.word, object.rect)).collect())
}

#[test]
fn what_is_read_was_there() {
    let (mut read, mut busy, mut asked, mut gone, mut covered) = (0, 0, 0, 0, 0);
    for seed in 0..3 {
        let world = RefCell::new(World::new(seed));
        let words = world.borrow().shard.owner().view().clone();
        let mut at = None;
        for round in 0..2000 {
            let mut here = world.borrow_mut();
            if at.is_none() {
                (0..100).for_each(|_| here.change());
                at = here.place();
            }
            let Some(known) = at else { continue };
            here.rare = [3, 10, 40][round % 3];
            here.moments = vec![here.objects.clone()];
            let (x, y) = (here.random.below(800) as f64, here.random.below(800) as f64);
            let window = Rect::new(x, x + 600.0, y, y + 600.0).unwrap();
            drop(here);
            let outcome = search(&Busy { words: words.clone(), world: &world }, known, window);
            let moments = std::mem::take(&mut world.borrow_mut().moments);
            match outcome {
                Ok(found) => {
                    read += 1;
                    busy += (moments.len() > 1) as u32;
                    judge(&window, &moments, &found);
                }
                Err(AskReason::Broken) => {
                    gone += 1;
                    at = None;
                }
                // A value covers it, perhaps, with bytes that are not a header.
                Err(_) => {
                    asked += 1;
                    at = at.filter(|_| !world.borrow().has_value);
                }
            }
        }
        covered += world.borrow().covered;
    }
    println!("{read} read, {busy} meanwhile, {asked} asked, {gone} gone, {covered} covered");
    assert!(read > 2000 && busy > 1500 && asked > 500 && gone > 100 && covered > 100);
}
