//! A tree whose changes are durable late: a client that searches its memory finds the durable
//! state, or asks; the owner's replies wait for the tree's newest change.

use crate::scored;
use remora_arena::{NoJournal, Owner};
use remora_engine::{Durability, Now, Shard, ShardOptions};
use remora_index::rtree::{AskReason, LocalWalk, Query};
use remora_layout::limits::WHOLE_ITEMS;
use remora_layout::node::{Home, NodeRef};
use remora_layout::rect::Predicate;
use remora_layout::rect::Rect;
use remora_layout::tree::{TREE_INFO_WORDS, TreeInfo};
use remora_protocol::Command;
use remora_protocol::Reply;
use remora_protocol::geo::{Centre, GeoQuery, GeoSearch, Position, Shape};
use remora_protocol::message::Status;
use remora_protocol::sorted::SortedCommand;
use remora_protocol::tree::TreeCommand;
use remora_testing::Random;
use remora_walk::local::WalkLimits;
use std::collections::BTreeMap;
use zerocopy::FromBytes;

const NAME: &[u8] = b"places";
const HOME: Home = Home { secret: 77, region: 3 };
const IDS: u64 = 600;
const ROUNDS: u64 = 6_000;

type Objects = BTreeMap<u64, Rect>;

struct World {
    shard: Shard,
    random: Random,
    /// The tree's content after each change that is not durable, and before the first of them.
    versions: BTreeMap<u64, Objects>,
    /// Where its header was when it was last asked for.
    at: Option<NodeRef>,
}

impl World {
    fn new() -> Self {
        let options = ShardOptions {
            record_secret: 77,
            region: 3,
            durability: Durability::Told,
            ..ShardOptions::default()
        };
        let shard = Shard::new(Owner::heap(8 << 20, NoJournal), options);
        let versions = BTreeMap::from([(0, Objects::new())]);
        Self { shard, random: Random::new(7), versions, at: None }
    }

    fn below(&mut self, below: u64) -> u64 {
        self.random.below(below)
    }

    fn newest(&self) -> Objects {
        self.versions.values().next_back().unwrap().clone()
    }

    /// Executes; gives the status and the value. It waits for the newest change.
    fn ask(&mut self, command: TreeCommand<'_>) -> (Status, Option<Vec<u8>>) {
        let request = command.checked().map(TreeCommand::request).unwrap();
        let command = Command::Of { key: NAME, request };
        let (hash, before) = (self.shard.hash(NAME), self.shard.last_sequence());
        let Reply { status, value, wait, .. } = self.shard.execute(&command, hash, Now::default());
        let value = value.map(<[u8]>::to_vec);
        let (last, durable) = (self.shard.last_sequence(), self.shard.durable_sequence());
        let newest = *self.versions.keys().next_back().unwrap();
        let newest = if last > before { last } else { newest };
        assert_eq!(wait, if newest > durable { newest } else { 0 });
        (status, value)
    }

    fn change(&mut self) {
        let (id, mut objects) = (self.below(IDS), self.newest());
        let (x, y) = (self.below(1_000) as f64, self.below(1_000) as f64);
        let rect = Rect::new(x, x + 5.0, y, y + 5.0).unwrap();
        let command = match self.below(400) {
            0 => {
                objects.clear();
                TreeCommand::Drop
            }
            1..100 => {
                objects.remove(&id);
                TreeCommand::Remove { id: id.into() }
            }
            _ => {
                objects.insert(id, rect);
                TreeCommand::put(id, rect, None, None)
            }
        };
        let before = self.shard.last_sequence();
        self.ask(command);
        let last = self.shard.last_sequence();
        if last > before {
            self.versions.insert(last, objects);
        }
        while self.shard.wants_release() {
            self.shard.release_some(Now::default());
        }
    }

    fn become_durable(&mut self) {
        let (durable, last) = (self.shard.durable_sequence(), self.shard.last_sequence());
        let sequence = durable + self.below(last - durable + 1);
        self.shard.set_durable(sequence);
        let first = *self.versions.range(..=sequence).next_back().unwrap().0;
        self.versions = self.versions.split_off(&first);
    }

    fn look(&mut self) -> Result<(), AskReason> {
        if self.at.is_none() {
            let info = self.ask(TreeCommand::Info).1;
            let words = info.map(|v| <[u64; TREE_INFO_WORDS]>::read_from_bytes(&v).unwrap());
            self.at = words.and_then(|words| TreeInfo::from_words(&words)).map(|info| info.at);
        }
        let Some(at) = self.at else { return Err(AskReason::Broken) };
        let (x, y) = (self.below(900) as f64, self.below(900) as f64);
        let window = Rect::new(x, x + 60.0, y, y + 60.0).unwrap();
        let query = Query::Window { window, predicate: Predicate::Intersects };
        let memory = self.shard.owner().view().clone();
        let walked = LocalWalk::begin(memory, HOME, at, query).and_then(|mut walk| {
            walk.run_within(&WalkLimits::REGION, &mut Vec::new()).map(|_| walk)
        });
        let walk = walked.inspect_err(|reason| {
            if *reason == AskReason::Broken {
                self.at = None;
            }
        })?;
        let found: Vec<_> = walk.walk().results().iter().map(|o| (o.word, o.rect)).collect();
        let durable = self.versions.values().next().unwrap();
        let expected = durable.iter().filter(|(_, rect)| rect.intersects(&window));
        assert_eq!(found, expected.map(|(&id, &rect)| (id, rect)).collect::<Vec<_>>());
        Ok(())
    }
}

#[test]
fn a_search_of_the_memory_finds_what_is_durable_or_asks() {
    let mut world = World::new();
    let (mut read, mut asked, mut gone) = (0, 0, 0);
    for round in 0..ROUNDS {
        match world.below(6) {
            // For a while nothing becomes durable.
            0 if round % 500 > 250 => world.become_durable(),
            0..3 => world.change(),
            _ => match world.look() {
                Ok(()) => read += 1,
                Err(AskReason::Pending) => asked += 1,
                Err(AskReason::Broken) => gone += 1,
                Err(reason) => panic!("nothing changes meanwhile: {reason:?}"),
            },
        }
    }
    world.shard.audit().unwrap();
    println!("{read} read, {asked} asked, {gone} gone");
    assert!(read > 300 && asked > 300 && gone > 3, "{read} read, {asked} asked, {gone} gone");
}

/// A sorted set gets its tree of positions by turns, which log nothing: a client that searches the
/// memory reads the tree once the last change that it shows is durable.
#[test]
fn the_tree_of_a_searched_set_is_durable_with_the_members_that_it_has() {
    const MEMBERS: u64 = 2 * WHOLE_ITEMS as u64;
    let mut shard = World::new().shard;
    let hash = shard.hash(NAME);
    let sorted = |shard: &mut Shard, command: SortedCommand<'_>| {
        let command = Command::Of { key: NAME, request: command.request() };
        shard.execute(&command, hash, Now::default()).number
    };
    let add = |shard: &mut Shard, at: u64| {
        let score = Position::new(at as f64 / 2.0, 1.0).unwrap().score();
        let list = scored::scored([(score, &at.to_le_bytes()[..])]);
        assert_eq!(sorted(shard, scored::add(&list)), 1);
    };
    (0..MEMBERS).for_each(|at| add(&mut shard, at));
    let centre = Centre::At(Position::new(0.0, 0.0).unwrap());
    let search = GeoSearch { centre, shape: Shape::Circle { radius: 1.0 }, enough: 1 };
    let mut query = Vec::new();
    search.write(&mut query);
    let search = SortedCommand::Search { query: GeoQuery::parse(&query).unwrap() };
    assert_eq!(sorted(&mut shard, search), 0, "there is no tree yet");
    while shard.wants_release() {
        shard.release_some(Now::default());
    }
    assert_eq!(shard.last_sequence(), MEMBERS, "places are not logged");
    let at = NodeRef::from_word(sorted(&mut shard, search) as u64);
    let look = |shard: &Shard| {
        let window = Rect::new(-180.0, 180.0, -90.0, 90.0).unwrap();
        let query = Query::Window { window, predicate: Predicate::Intersects };
        let mut walk = LocalWalk::begin(shard.owner().view().clone(), HOME, at, query)?;
        walk.run_within(&WalkLimits::REGION, &mut Vec::new())?;
        Ok(walk.walk().results().len() as u64)
    };
    shard.set_durable(MEMBERS - 1);
    assert_eq!(look(&shard), Err(AskReason::Pending));
    shard.set_durable(MEMBERS);
    assert_eq!(look(&shard), Ok(MEMBERS));
    add(&mut shard, MEMBERS);
    assert_eq!(look(&shard), Err(AskReason::Pending));
    shard.set_durable(MEMBERS + 1);
    assert_eq!(look(&shard), Ok(MEMBERS + 1));
}
