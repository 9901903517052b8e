//! Unions, intersections and differences of sorted sets and sets, against their definition; in turns
//! too, beside changes of the sets.

use crate::scored::{self, Entry, Members, ask, entries, in_turns, of, quiet};
use remora_arena::{NoJournal, Owner};
use remora_engine::{Eviction, Now, Shard, ShardOptions};
use remora_protocol::message::Status;
use remora_protocol::set::SetCommand;
use remora_protocol::sorted::{Aggregate, Combination, Scored, SortedCommand, Sources};
use remora_protocol::{Command, Items};
use remora_testing::Random;
use std::collections::BTreeSet;

const NOW: Now = Now { unix_ms: 1_700_000_000_000, since_start_s: 5 };
const HOW: [Combination; 3] = [Combination::Inter, Combination::Union, Combination::Diff];
const AGGREGATES: [Aggregate; 3] = [Aggregate::Sum, Aggregate::Min, Aggregate::Max];

fn shard() -> Shard {
    let options =
        ShardOptions { eviction: Eviction::None, record_secret: 7, ..ShardOptions::default() };
    Shard::new(Owner::heap(64 << 20, NoJournal), options)
}

/// A set, the number by which its scores are multiplied, and whether it was found before.
#[derive(Clone)]
struct Weighted {
    members: Members,
    weight: f64,
    is_before: bool,
}

fn or_zero(score: f64) -> f64 {
    if score.is_nan() { 0.0 } else { score }
}

fn join(aggregate: Aggregate, one: f64, other: f64) -> f64 {
    match aggregate {
        Aggregate::Sum => or_zero(one + other),
        Aggregate::Min => {
            if other < one {
                other
            } else {
                one
            }
        }
        Aggregate::Max => {
            if other > one {
                other
            } else {
                one
            }
        }
    }
}

/// What several sets make, by the definition: as sums depend on the order, the smallest goes first.
fn combined(how: Combination, aggregate: Aggregate, mut sets: Vec<Weighted>) -> BTreeSet<Entry> {
    if how != Combination::Diff {
        sets.sort_by_key(|set| if set.is_before { 0 } else { 1 + set.members.len() });
    }
    let first = sets.remove(0);
    let weight = if how == Combination::Diff { 1.0 } else { first.weight };
    let weighted = |(member, score): (Vec<u8>, f64)| (member, or_zero(weight * score));
    let mut made: Members = first.members.into_iter().map(weighted).collect();
    for Weighted { members, weight, .. } in sets {
        match how {
            Combination::Diff => made.retain(|member, _| !members.contains_key(member)),
            Combination::Inter => {
                made.retain(|member, _| members.contains_key(member));
                for (member, score) in &mut made {
                    *score = join(aggregate, *score, weight * members[member]);
                }
            }
            Combination::Union => {
                for (member, score) in members {
                    let score = or_zero(weight * score);
                    let found = made.entry(member);
                    found.and_modify(|of| *of = join(aggregate, *of, score)).or_insert(score);
                }
            }
        }
    }
    made.into_iter().map(|(member, score)| (score.to_bits(), member)).collect()
}

/// Makes a key hold members, every third time as a set.
fn make(shard: &mut Shard, key: &[u8], members: u64, random: &mut Random) -> Members {
    let is_set = random.one_in(3);
    let mut held = Members::new();
    for _ in 0..members {
        let number = random.below(2 * members);
        let member = number.to_string().repeat(if number % 41 == 3 { 90 } else { 1 });
        let score = match random.below(12) {
            _ if is_set => 1.0,
            0 => random.pick(&[f64::INFINITY, f64::NEG_INFINITY, 0.5, 0.0]),
            _ => random.between(-9.0, 9.0),
        };
        held.insert(member.into_bytes(), score);
    }
    let list = scored::scored(held.iter().map(|(member, score)| (*score, &member[..])));
    let names = scored::names(&list);
    let store = match is_set {
        true => SetCommand::Store { members: Items::parse(&names).unwrap() }.request(),
        false => scored::store(&list).request(),
    };
    let (status, number, _) = ask(shard, &Command::Of { key, request: store }, NOW);
    assert_eq!((status, number as usize), (Status::Ok, held.len()));
    held
}

fn weight(random: &mut Random) -> f64 {
    random.pick(&[1.0, 1.0, 2.5, -1.0, 0.0, f64::INFINITY])
}

#[test]
fn sets_are_combined_by_their_definition() {
    for seed in 0..150 {
        let (mut shard, mut random) = (shard(), Random::new(seed));
        let (mut sets, mut keys) = (Vec::new(), Vec::new());
        for at in 0..1 + random.below(4) {
            let key = format!("set {at}").into_bytes();
            let size = random.pick(&[0, 3, 60, 150, 700]);
            let members = make(&mut shard, &key, size, &mut random);
            sets.push(Weighted { members, weight: weight(&mut random), is_before: false });
            keys.push(key);
        }
        let before = random.one_in(3).then(|| make(&mut shard, b"before", 50, &mut random));
        let found = before.as_ref().map(|members| {
            scored::scored(members.iter().map(|(member, score)| (*score, &member[..])))
        });
        let others = keys.iter().zip(&sets).skip(1).map(|(key, set)| (&key[..], set.weight));
        let mut items = Vec::new();
        Sources::write(&mut items, found.as_deref(), sets[0].weight, others);
        let sources = Sources::parse(found.is_some(), &items).unwrap();
        if let Some(members) = before {
            sets.insert(0, Weighted { members, weight: 1.0, is_before: true });
        }
        for (how, aggregate) in HOW.iter().flat_map(|how| AGGREGATES.map(|of| (*how, of))) {
            let expected = combined(how, aggregate, sets.clone());
            let command = SortedCommand::Combine { how, aggregate, sources, count_to: None };
            let (status, number, value) = of(&mut shard, &keys[0], command, NOW);
            assert_eq!((status, number as usize), (Status::Ok, expected.len()), "{seed} {how:?}");
            let told = entries(&value.unwrap());
            assert_eq!(told.len(), expected.len(), "each once");
            let told: BTreeSet<Entry> = told.into_iter().collect();
            assert_eq!(told, expected, "seed {seed}: {how:?} {aggregate:?}");
            for most in [0, 1, 7] {
                let count_to = Some(most);
                let command = SortedCommand::Combine { how, aggregate, sources, count_to };
                let number = of(&mut shard, &keys[0], command, NOW).1 as usize;
                let most = if most == 0 { usize::MAX } else { most as usize };
                assert_eq!(number, expected.len().min(most));
            }
        }
    }
}

#[test]
fn sets_are_combined_as_they_were_when_the_read_began() {
    for (ending, how) in (0..3).flat_map(|ending| HOW.map(|how| (ending, how))) {
        let (mut shard, mut random) = (shard(), Random::new(ending));
        let keys = [&b"a"[..], b"b", b"c"];
        let weights = [1.0, 2.0, -0.5];
        let sets = [0, 1, 2].map(|at| Weighted {
            members: make(&mut shard, keys[at], 6_000, &mut random),
            weight: weights[at],
            is_before: false,
        });
        let expected = combined(how, Aggregate::Sum, sets.to_vec());
        let mut items = Vec::new();
        Sources::write(&mut items, None, 1.0, [(keys[1], 2.0), (keys[2], -0.5)].into_iter());
        let sources = Sources::parse(false, &items).unwrap();
        let aggregate = Aggregate::Sum;
        let command = SortedCommand::Combine { how, aggregate, sources, count_to: None };
        let mut turns = 0;
        let told = in_turns(&mut shard, (keys[0], command), NOW, |shard| {
            turns += 1;
            for _ in 0..if turns > 20 { 0 } else { 100 } {
                let mut list = Vec::new();
                let member = random.below(12_000).to_string();
                Scored::push(&mut list, random.between(-9.0, 9.0), member.as_bytes());
                let names = scored::names(&list);
                let change =
                    if random.one_in(2) { scored::add(&list) } else { scored::remove(&names) };
                // It is refused where the key is a set.
                of(shard, random.pick(&keys), change, NOW);
            }
            if turns == 1 && ending == 2 {
                ask(shard, &Command::Del { key: keys[2] }, NOW);
            }
            shard.release_some(NOW);
        });
        let (found, number, _) = told.unwrap();
        let told: BTreeSet<Entry> = entries(&found).into_iter().collect();
        assert!(turns > 1 && told == expected, "{ending}, {how:?}: {turns} turns");
        assert_eq!(number as usize, expected.len());
        quiet(&mut shard, NOW);
        shard.audit().unwrap();
    }
}
