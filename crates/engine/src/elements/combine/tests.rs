//! Objects with scores, and plain ones, combined in turns, against what Redis would make of them.

use super::{Asked, Combining, WithScores};
use crate::elements::bins;
use crate::elements::tests::{
    ENTRY, NOW, Scores, members, on, plan, put_large, put_small, store as new_store,
};
use crate::keys;
use crate::store::Store;
use crate::types::object::Type;
use crate::types::set::Sets;
use remora_arena::NoJournal;
use remora_layout::database::Database;
use remora_layout::limits::MAX_WEIGHTS;
use remora_protocol::Items;
use remora_protocol::elements::Combination;
use remora_protocol::message::Status;
use remora_protocol::set::SetCommand;
use remora_testing::Random;
use std::collections::BTreeMap;

const HOW: [Combination; 3] = [Combination::Inter, Combination::Union, Combination::Diff];

type Object = BTreeMap<Vec<u8>, f64>;
type Join = fn(f64, f64) -> f64;

fn sum(a: f64, b: f64) -> f64 {
    if (a + b).is_nan() { 0.0 } else { a + b }
}

fn least(a: f64, b: f64) -> f64 {
    if b < a { b } else { a }
}

fn most(a: f64, b: f64) -> f64 {
    if b > a { b } else { a }
}

const JOINS: [Join; 3] = [sum, least, most];

/// As `zunionInterDiffGenericCommand` of Redis 7.0 goes about it.
fn combined(how: Combination, named: &[(&Object, f64)], join: Join) -> BTreeMap<Vec<u8>, u64> {
    let mut named = named.to_vec();
    let zero = |score: f64| if score.is_nan() { 0.0 } else { score };
    let mut made = Object::new();
    if how != Combination::Diff {
        named.sort_by_key(|(object, _)| object.len());
    }
    let (first, weight) = named[0];
    match how {
        Combination::Inter => {
            for (member, score) in first {
                let weighted =
                    |(object, weight): &(&Object, f64)| Some(object.get(member)? * weight);
                let rest: Option<Vec<f64>> = named[1..].iter().map(weighted).collect();
                if let Some(rest) = rest {
                    let all = rest.into_iter().fold(zero(score * weight), join);
                    made.insert(member.clone(), all);
                }
            }
        }
        Combination::Union => {
            for (object, weight) in named {
                for (member, score) in object {
                    let weighted = zero(score * weight);
                    let so_far = made.get(member);
                    let joined = so_far.map_or(weighted, |so_far| join(*so_far, weighted));
                    made.insert(member.clone(), joined);
                }
            }
        }
        Combination::Diff => {
            let stays = |member: &Vec<u8>| named[1..].iter().all(|of| !of.0.contains_key(member));
            made.extend(
                first.iter().filter(|of| stays(of.0)).map(|(of, with)| (of.clone(), *with)),
            );
        }
    }
    made.into_iter().map(|(member, score)| (member, score.to_bits())).collect()
}

fn member(number: u64) -> Vec<u8> {
    let mut member = number.to_string().into_bytes();
    if number % 9 == 4 {
        member.resize(70, b'.');
    }
    member
}

fn score(random: &mut Random) -> f64 {
    let some = [0.0, -0.0, 1e308, -1e308, f64::INFINITY, f64::NEG_INFINITY];
    if random.one_in(8) { random.pick(&some) } else { random.below(100_000) as f64 / 7.0 }
}

fn weight(random: &mut Random) -> f64 {
    random.pick(&[1.0, 1.0, 0.1, -3.0, 0.0, f64::INFINITY])
}

/// Objects of several types.
struct Shard {
    store: Store,
    sets: Sets,
    objects: BTreeMap<Vec<u8>, Object>,
    /// The root records of large objects with scores.
    roots: BTreeMap<Vec<u8>, u32>,
}

impl Shard {
    fn new() -> Self {
        let (mut store, sets) = (new_store(64 << 20), Sets::default());
        store.scored.extend(<Sets as Type<NoJournal>>::scored(&sets));
        Self { store, sets, objects: BTreeMap::new(), roots: BTreeMap::new() }
    }

    fn add(&mut self, key: &[u8], object: Object) {
        let list: Vec<_> = object.iter().map(|(of, with)| (of.clone(), *with)).collect();
        if list.len() > 100 || list.iter().any(|(member, _)| member.len() > 64) {
            let root = put_large(&mut self.store, key, &list);
            self.roots.insert(key.to_vec(), root);
        } else if !list.is_empty() {
            put_small(&mut self.store, key, &list);
        }
        self.objects.insert(key.to_vec(), object);
    }

    /// A set, whose members have no scores.
    fn add_set(&mut self, key: &[u8], members: impl Iterator<Item = Vec<u8>>) {
        let object: Object = members.map(|member| (member, 1.0)).collect();
        let mut list = Vec::new();
        object.keys().for_each(|member| Items::push(&mut list, member));
        let request = SetCommand::Add { members: Items::parse(&list).unwrap() }.request();
        let on = on(&self.store, key);
        assert_eq!(self.sets.execute(&mut self.store, on, request).status, Status::Ok);
        self.objects.insert(key.to_vec(), object);
    }

    /// Another score for a member of a large object with scores, or none: whatever is there.
    fn change(&mut self, random: &mut Random, number: u64) {
        let root = *self.roots.values().nth(random.below(self.roots.len())).unwrap();
        let of = member(number);
        let (puts, gone) = match random.below(2) {
            0 => (vec![(of, 5.0)], vec![]),
            _ => (vec![], vec![of]),
        };
        let planned = plan(&mut self.store, root, &puts, &gone).unwrap();
        planned.make(&mut self.store, Some((&ENTRY, Database::ZERO)), NOW);
    }

    fn begin(
        &mut self,
        (how, join): (Combination, Join),
        before: Option<&[u8]>,
        named: &[(&[u8], f64)],
    ) -> Result<Combining<WithScores>, Status> {
        let (key, own_weight) = named[0];
        let asked = Asked { how, before, own_weight, join, count_to: None };
        let (on, readers) = (on(&self.store, key), self.store.scored.clone());
        let others = named[1..].iter().copied();
        let begun = Combining::begin(&mut self.store, on, &asked, others, &readers);
        begun.map(|(combining, _)| combining)
    }

    fn end(
        &mut self,
        mut combining: Combining<WithScores>,
        mut each: impl FnMut(&mut Self, u64),
    ) -> BTreeMap<Vec<u8>, u64> {
        let (mut found, mut turns) = (Vec::new(), 0);
        while !combining.turn(&self.store, &self.store.scored, &mut found).unwrap().ended {
            turns += 1;
            each(self, turns);
        }
        let list = members(&found);
        let count = list.len();
        let made: BTreeMap<_, _> =
            list.into_iter().map(|(of, with)| (of, with.to_bits())).collect();
        assert_eq!(made.len(), count, "a member comes twice");
        made
    }

    fn expected(
        &self,
        how: Combination,
        join: Join,
        named: &[(&[u8], f64)],
    ) -> BTreeMap<Vec<u8>, u64> {
        let named: Vec<_> =
            named.iter().map(|(key, weight)| (&self.objects[*key], *weight)).collect();
        combined(how, &named, join)
    }
}

/// Small and large objects of both types, of different numbers of members.
fn some_objects(random: &mut Random) -> Shard {
    let mut shard = Shard::new();
    for (key, count) in [(&b"a"[..], 30), (b"b", 61), (b"c", 3_000), (b"d", 7_001), (b"e", 0)] {
        let mut object = Object::new();
        while object.len() < count {
            let of = match count {
                0..100 => 9 * random.below(90_u64),
                _ => random.below(9_000),
            };
            object.insert(member(of), score(random));
        }
        shard.add(key, object);
    }
    shard.add_set(b"integers", (0..200).map(|of| member(9 * of)));
    shard.add_set(b"texts", (0..2_500).map(|of| member(2 * of)));
    shard
}

#[test]
fn scores_are_joined_as_redis_joins_them() {
    let mut random = Random::new(3);
    let mut shard = some_objects(&mut random);
    let keys: Vec<Vec<u8>> = shard.objects.keys().cloned().collect();
    let mut members_told = 0;
    for round in 0..200 {
        let (how, join) = (random.pick(&HOW), random.pick(&JOINS));
        let count = 1 + random.below(5);
        let named: Vec<(&[u8], f64)> = (0..count)
            .map(|_| (&keys[random.below(keys.len())][..], weight(&mut random)))
            .collect();
        let expected = shard.expected(how, join, &named);
        let combining = shard.begin((how, join), None, &named).unwrap();
        let made = shard.end(combining, |_, _| {});
        assert_eq!(made, expected, "round {round}: {how:?} {named:?}");
        members_told += made.len();
    }
    assert!(members_told > 10_000, "{members_told}");
}

#[test]
fn scores_are_those_of_the_moment_when_the_read_began() {
    for (seed, how) in (0..4).flat_map(|seed| HOW.map(|how| (seed, how))) {
        let mut random = Random::new(seed);
        let mut shard = some_objects(&mut random);
        let named = [(&b"d"[..], 0.1), (b"c", 3.0), (b"texts", 0.5), (b"c", -1.0)];
        let named = &named[..if how == Combination::Inter { 4 } else { 2 }];
        let join = JOINS[seed as usize % 3];
        let expected = shard.expected(how, join, named);
        assert!(expected.len() > 100);
        let combining = shard.begin((how, join), None, named).unwrap();
        let mut changes = 0;
        let made = shard.end(combining, |shard, turn| {
            for _ in 0..if turn > 20 { 0 } else { 50 } {
                let number = random.below(9_000);
                shard.change(&mut random, number);
                changes += 1;
            }
        });
        assert!(changes > 0);
        assert_eq!(made, expected, "{how:?}, seed {seed}");
    }
}

/// A turn may end within the lookups of a member: its score goes on where it stopped.
#[test]
fn a_score_of_many_objects_goes_on_in_the_next_turn() {
    let mut shard = Shard::new();
    let mut random = Random::new(5);
    let keys: Vec<Vec<u8>> = (0..700).map(|at| format!("key {at}").into_bytes()).collect();
    for key in &keys {
        let object = (0..23).map(|of| (member(9 * of), random.unit() - 0.3)).collect();
        shard.add(key, object);
    }
    let named: Vec<(&[u8], f64)> = keys.iter().map(|key| (&key[..], random.unit())).collect();
    let expected = shard.expected(Combination::Inter, sum, &named);
    let combining = shard.begin((Combination::Inter, sum), None, &named).unwrap();
    let mut turns = 0;
    let made = shard.end(combining, |_, turn| turns = turn);
    assert!(turns >= 3, "{turns}");
    assert_eq!((made.len(), &made), (23, &expected));
}

#[test]
fn what_was_found_before_stands_first_with_the_weight_1() {
    let mut random = Random::new(6);
    let mut shard = some_objects(&mut random);
    let before: Object = (0..4_000).map(|of| (member(3 * of), score(&mut random))).collect();
    let mut list = Vec::new();
    for (member, score) in &before {
        list.extend_from_slice(&score.to_le_bytes());
        Items::push(&mut list, member);
    }
    for how in HOW {
        let named = [(&b"texts"[..], 2.0)];
        let combining = shard.begin((how, sum), Some(&list), &named).unwrap();
        let made = shard.end(combining, |_, _| {});
        // Of two the order does not count, but for what is no number: there is none of it here.
        let both = [(&before, 1.0), (&shard.objects[&b"texts"[..]], 2.0)];
        assert_eq!(made, combined(how, &both, sum), "{how:?}");
    }
}

#[test]
fn other_types_and_too_many_weights_are_refused() {
    let mut random = Random::new(7);
    let mut shard = some_objects(&mut random);
    let begin = |shard: &mut Shard, how, named: &[(&[u8], f64)]| {
        shard.begin((how, sum), None, named).map(drop)
    };
    let mut named = vec![(&b"a"[..], 1.0); 1 + MAX_WEIGHTS];
    let too_many = Err(Status::TooLarge);
    assert_eq!(begin(&mut shard, Combination::Union, &named), too_many);
    assert_eq!(begin(&mut shard, Combination::Inter, &named), too_many);
    assert_eq!(begin(&mut shard, Combination::Diff, &named), Ok(()), "it uses none");
    named.pop();
    assert_eq!(begin(&mut shard, Combination::Union, &named), Ok(()));

    // Without its type's word on how it is read, an object is of another type.
    shard.store.scored.truncate(1);
    let named = [(&b"a"[..], 1.0), (b"texts", 1.0)];
    for how in HOW {
        assert_eq!(begin(&mut shard, how, &named), Err(Status::WrongType));
    }
    let on = on(&shard.store, b"texts");
    keys::del(&mut shard.store, on);
    assert_eq!(begin(&mut shard, Combination::Union, &named), Ok(()));
    bins::audit::<Scores, NoJournal>(&shard.store).unwrap();
}
