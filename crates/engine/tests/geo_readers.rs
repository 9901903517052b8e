//! The tree of positions of a sorted set is searched from its shard's memory while the shard works: between any two fetches of
//! the reader members come, move and go, their slots get other members' names and strings, keys end
//! and begin again. The reader must find only members that were there at some moment of the search,
//! and all that were there throughout.

use crate::scored;
use remora_arena::{NoJournal, Owner, ReadView};
use remora_engine::geo_read::{ReadLimits, Unread, read_members};
use remora_engine::{Now, Shard, ShardOptions};
use remora_layout::kind::Kind;
use remora_layout::limits::WHOLE_ITEMS;
use remora_layout::node::{Home, NodeRef};
use remora_layout::record::Lengths;
use remora_layout::tree::RootPlace;
use remora_protocol::geo::{Centre, GeoQuery, GeoSearch, Member, Members};
use remora_protocol::geo::{Position, Shape};
use remora_protocol::sorted::SortedCommand;
use remora_protocol::{Command, Condition, ExpireCondition, Expiry};
use remora_testing::Random;
use remora_walk::Memory;
use remora_walk::local::WalkLimits;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

const START: Now = Now { unix_ms: 1_700_000_000_000, since_start_s: 1 };
const KEY: &[u8] = b"places";
const LIMITS: ReadLimits = ReadLimits { walk: WalkLimits::REGION, found_bytes: 1 << 16 };
const CENTRE: Position = Position { longitude: 13.4, latitude: 52.5 };

/// Somewhere around the centre, as members are kept.
fn position(random: &mut Random) -> Position {
    let (x, y) = (random.between(-0.05, 0.05), random.between(-0.05, 0.05));
    let position = Position::new(CENTRE.longitude + x, CENTRE.latitude + y).unwrap();
    Position::of_score(position.score())
}

/// Where members were at each moment of a search.
type Moment = BTreeMap<Vec<u8>, Position>;

struct World {
    shard: Shard,
    random: Random,
    now: Now,
    /// The key's members; empty where it is absent.
    members: Moment,
    moments: Vec<Moment>,
    /// One in so many fetches meets a change.
    rare: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let options = ShardOptions { record_secret: 77, region: 3, ..ShardOptions::default() };
        let shard = Shard::new(Owner::heap(8 << 20, NoJournal), options);
        let random = Random::new(0x9e37_79b9_7f4a_7c15 ^ seed);
        Self { shard, random, now: START, members: Moment::new(), moments: Vec::new(), rare: 1 }
    }

    fn ask(&mut self, command: &Command<'_>) -> i64 {
        let hash = command.key().map(|key| self.shard.hash(key)).unwrap();
        self.shard.execute(command, hash, self.now).number
    }

    fn geo(&mut self, add: bool, member: &[u8], position: Position) {
        let list = scored::scored([(position.score(), member)]);
        let names = scored::names(&list);
        let command = if add { scored::add(&list) } else { scored::remove(&names) };
        self.ask(&Command::Of { key: KEY, request: command.request() });
    }

    /// Turns until there is nothing to do: the key has its tree if it was searched.
    fn quiet(&mut self) {
        while self.shard.wants_release() {
            self.shard.release_some(self.now);
        }
    }

    /// One change, most of them of one member.
    fn change(&mut self) {
        let some = format!("member-{:03}", self.random.below(300)).into_bytes();
        match self.random.below(4000) {
            0 => {
                self.ask(&Command::Del { key: KEY });
                self.members.clear();
            }
            1 => {
                // Over it goes a string, which goes again.
                let (condition, expiry) = (Condition::Always, Expiry::Never);
                let set = Command::Set { key: KEY, value: &[7; 40], condition, expiry, get: false };
                self.ask(&set);
                self.ask(&Command::Del { key: KEY });
                self.members.clear();
            }
            2 => {
                let (at_ms, condition) = (self.now.unix_ms + 1, ExpireCondition::Always);
                self.ask(&Command::Expire { key: KEY, at_ms, condition });
                self.moments.push(self.members.clone());
                self.now.unix_ms += 1;
                self.members.clear();
            }
            3..200 => {
                // A string in a slot that a member may have had.
                let (condition, expiry) = (Condition::Always, Expiry::Never);
                let set =
                    Command::Set { key: &some, value: b"8 bytes.", condition, expiry, get: false };
                self.ask(&set);
                self.ask(&Command::Del { key: &some });
            }
            200..1500 => {
                self.geo(false, &some, CENTRE);
                self.members.remove(&some);
            }
            _ => {
                let position = position(&mut self.random);
                self.geo(true, &some, position);
                self.members.insert(some, position);
            }
        }
        self.moments.push(self.members.clone());
    }
}

/// The shard's memory; the shard works on between any two fetches.
struct Busy<'w> {
    words: ReadView,
    world: &'w RefCell<World>,
}

impl Busy<'_> {
    fn meanwhile(&self) {
        let mut world = self.world.borrow_mut();
        let rare = world.rare;
        while world.random.below(rare) == 0 {
            world.change();
        }
    }
}

impl Memory for Busy<'_> {
    fn bytes(&self) -> usize {
        self.words.bytes()
    }

    fn fetch(&self, offset: u64, into: &mut [u8]) -> bool {
        self.meanwhile();
        self.words.fetch(offset, into)
    }
}

fn within(shape: Shape, moment: &Moment) -> BTreeMap<Vec<u8>, f64> {
    let near = |(member, &to): (&Vec<u8>, &Position)| {
        shape.distance_within(CENTRE, to).map(|distance| (member.clone(), distance))
    };
    moment.iter().filter_map(near).collect()
}

/// Compares the read members with those present meanwhile.
fn judge(shape: Shape, tells: bool, moments: &[Moment], found: &[u8]) {
    let moments: Vec<_> = moments.iter().map(|moment| within(shape, moment)).collect();
    let mut read = BTreeSet::new();
    for Member { member, distance, score } in Members::parse(found).unwrap().iter() {
        assert!(read.insert(member.to_vec()), "{} twice", member.escape_ascii());
        let at = Position::of_score(score);
        let fits = !tells || shape.distance_within(CENTRE, at) == Some(distance);
        assert!(fits, "{} is not at {at:?}", member.escape_ascii());
        let was_there = moments
            .iter()
            .any(|moment| moment.get(member).is_some_and(|&there| !tells || there == distance));
        assert!(was_there, "{} at {distance} never was", member.escape_ascii());
    }
    for member in moments[0].keys() {
        let stayed = moments.iter().all(|moment| moment.contains_key(member));
        assert!(!stayed || read.contains(member), "{} is missing", member.escape_ascii());
    }
}

/// Where the shard says that the key's tree lies, once it has one.
fn place(world: &mut World) -> Option<RootPlace> {
    let mut encoded = Vec::new();
    let search =
        GeoSearch { centre: Centre::At(CENTRE), shape: Shape::Circle { radius: 1.0 }, enough: 1 };
    search.write(&mut encoded);
    let query = GeoQuery::parse(&encoded).unwrap();
    let command = Command::Of { key: KEY, request: SortedCommand::Search { query }.request() };
    world.ask(&command);
    world.quiet();
    let word = world.ask(&command);
    (word != 0).then(|| RootPlace::of(NodeRef::from_word(word as u64), KEY.len()).unwrap())
}

#[test]
fn what_is_read_was_there() {
    let (mut read, mut asked, mut gone, mut busy) = (0, 0, 0, 0);
    for seed in 0..3 {
        let world = World::new(seed);
        let words = world.shard.owner().view().clone();
        let home = Home { secret: 77, region: 3 };
        let (mut scratch, mut at) = (Vec::new(), None);
        let world = RefCell::new(world);
        for round in 0..4000 {
            let mut guard = world.borrow_mut();
            let here = &mut *guard;
            if round % 10 == 0 || at.is_none() {
                (0..100).for_each(|_| here.change());
                at = place(here);
            }
            let Some(known) = at else { continue };
            here.rare = [4, 20, 100][round % 3];
            here.moments = vec![here.members.clone()];
            let size = 200.0 * (1 + here.random.below(60)) as f64;
            let shape = match here.random.below(2) {
                0 => Shape::Circle { radius: size },
                _ => Shape::Box { width: size, height: size * 1.5 },
            };
            let tells = here.random.below(2) == 0;
            let now_ms = here.now.unix_ms;
            drop(guard);
            let search = GeoSearch { centre: Centre::At(CENTRE), shape, enough: 0 };
            let memory = Busy { words: words.clone(), world: &world };
            let mut found = Vec::new();
            let outcome = read_members(
                &memory,
                home,
                (known, now_ms),
                (&search, !tells),
                LIMITS,
                (&mut scratch, &mut found),
            );
            let moments = std::mem::take(&mut world.borrow_mut().moments);
            match outcome {
                Ok(()) => {
                    read += 1;
                    busy += (moments.len() > 1) as u32;
                    judge(shape, tells, &moments, &found);
                }
                Err(Unread::Ask) => asked += 1,
                Err(Unread::Gone) => {
                    gone += 1;
                    at = None;
                }
            }
        }
    }
    assert!(read > 1500 && busy > 500 && asked > 500 && gone > 100, "{read} {busy} {asked} {gone}");
}

/// The read memory, but every record says that it is of another kind.
struct OtherKind(ReadView, Kind);

impl Memory for OtherKind {
    fn bytes(&self) -> usize {
        self.0.bytes()
    }

    fn fetch(&self, offset: u64, into: &mut [u8]) -> bool {
        let done = self.0.fetch(offset, into);
        if let Ok(word) = into.try_into()
            && let Some(lengths) = Lengths::from_word(u64::from_le_bytes(word))
            && lengths.kind == Kind::SORTED_PLACE
        {
            let other = Lengths { kind: self.1, ..lengths };
            into.copy_from_slice(&other.to_word().to_le_bytes());
        }
        done
    }
}

#[test]
fn a_record_that_is_no_member_is_not_read() {
    let shape = Shape::Circle { radius: 1e6 };
    let search = GeoSearch { centre: Centre::At(CENTRE), shape, enough: 0 };
    let mut world = World::new(9);
    for at in 0..200 {
        let position = position(&mut world.random);
        world.geo(true, format!("m{at}").as_bytes(), position);
    }
    let at = place(&mut world).unwrap();
    for kind in [Kind::SORTED_PLACE, Kind::STRING, Kind::OBJECT] {
        let memory = OtherKind(world.shard.owner().view().clone(), kind);
        let (mut scratch, mut found) = (Vec::new(), Vec::new());
        let (home, buffers) = (Home { secret: 77, region: 3 }, (&mut scratch, &mut found));
        let read =
            read_members(&memory, home, (at, START.unix_ms), (&search, true), LIMITS, buffers);
        let expected = if kind == Kind::SORTED_PLACE { Ok(()) } else { Err(Unread::Ask) };
        assert_eq!(read, expected, "{kind:?}");
    }
}

/// A key that has expired or gone, or that a string replaces, is not read from then
/// on, even under its old place.
#[test]
fn a_key_that_has_ended_is_not_read() {
    let search =
        GeoSearch { centre: Centre::At(CENTRE), shape: Shape::Circle { radius: 1e6 }, enough: 0 };
    let home = Home { secret: 77, region: 3 };
    let read = |world: &World, at, now_ms| {
        let (mut scratch, mut found) = (Vec::new(), Vec::new());
        let words = world.shard.owner().view().clone();
        let buffers = (&mut scratch, &mut found);
        read_members(&words, home, (at, now_ms), (&search, true), LIMITS, buffers)
            .map(|()| Members::parse(&found).unwrap().iter().count())
    };
    for ends in 0..3 {
        let mut world = World::new(9);
        for at in 0..200 {
            assert_eq!(place(&mut world).is_none(), at <= WHOLE_ITEMS, "{at}");
            let position = position(&mut world.random);
            world.geo(true, format!("m{at}").as_bytes(), position);
        }
        let at = place(&mut world).unwrap();
        assert_eq!(read(&world, at, START.unix_ms), Ok(200));
        let (condition, expiry) = (Condition::Always, Expiry::Never);
        match ends {
            0 => {
                let (at_ms, condition) = (START.unix_ms + 1000, ExpireCondition::Always);
                assert_eq!(world.ask(&Command::Expire { key: KEY, at_ms, condition }), 1);
                assert_eq!(place(&mut world), Some(at));
                assert_eq!(read(&world, at, at_ms - 1), Ok(200));
                assert_eq!(read(&world, at, at_ms), Err(Unread::Ask));
                world.now.unix_ms = at_ms;
                assert_eq!(place(&mut world), None);
            }
            1 => {
                world.ask(&Command::Set { key: KEY, value: b"x", condition, expiry, get: false });
            }
            _ => assert_eq!(world.ask(&Command::Del { key: KEY }), 1),
        }
        assert_eq!(read(&world, at, world.now.unix_ms), Err(Unread::Gone));
    }
}
