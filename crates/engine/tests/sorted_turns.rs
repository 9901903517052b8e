//! Sorted sets in turns: ranges that give the set as it was, removals in pieces, R-trees of positions
//! that follow their set, all beside changes.

use crate::scored::{self, Members, ask, entries, in_order, in_range, in_turns, of, quiet};
use remora_arena::{NoJournal, Owner};
use remora_engine::{Eviction, Now, Shard, ShardOptions};
use remora_layout::limits::{KEPT_PARTS_SHARE, SORTED_TURN_CHANGES};
use remora_protocol::Command;
use remora_protocol::geo::{self, Centre, GeoQuery, GeoSearch, Position, Shape, position_of};
use remora_protocol::message::Status;
use remora_protocol::sorted::{Scored, SortedCommand, SortedRange, SortedRead};
use remora_testing::Random;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

const NOW: Now = Now { unix_ms: 1_700_000_000_000, since_start_s: 5 };
const KEY: &[u8] = b"sorted";

fn shard(bytes: usize) -> Shard {
    shard_with(bytes, Eviction::None)
}

fn shard_with(bytes: usize, eviction: Eviction) -> Shard {
    let options = ShardOptions { eviction, record_secret: 7, ..ShardOptions::default() };
    Shard::new(Owner::heap(bytes, NoJournal), options)
}

fn member(number: u64) -> Vec<u8> {
    let name = format!("{number} is a member");
    name.repeat(if number % 53 == 5 { 25 } else { 1 }).into_bytes()
}

/// Scores meet often, and some of them are positions.
fn score(random: &mut Random) -> f64 {
    match random.below(8) {
        0 => [0.0, 0.5, f64::INFINITY, f64::NEG_INFINITY][random.below(4) as usize],
        1..5 => position(random).score(),
        _ => random.below(200) as f64 - 100.0,
    }
}

fn position(random: &mut Random) -> Position {
    let (longitude, latitude) = random.position();
    Position::new(longitude, latitude).unwrap()
}

fn fill(shard: &mut Shard, members: u64, random: &mut Random) -> Members {
    let held: Members = (0..members).map(|at| (member(at), score(random))).collect();
    let list = scored::scored(held.iter().map(|(member, &score)| (score, &member[..])));
    assert_eq!(of(shard, KEY, scored::store(&list), NOW).1 as u64, members);
    held
}

/// One change of some of so many members, which is done if memory suffices.
fn change(shard: &mut Shard, held: &mut Members, many: u64, random: &mut Random) {
    let mut list = Vec::new();
    for _ in 0..1 + random.below(3) {
        Scored::push(&mut list, score(random), &member(random.below(many)));
    }
    if random.below(3) == 0 {
        let (status, ..) = of(shard, KEY, scored::remove(&scored::names(&list)), NOW);
        if status == Status::Ok {
            Scored::in_list(&list).for_each(|(_, member)| _ = held.remove(member));
        }
        return;
    }
    if of(shard, KEY, scored::add(&list), NOW).0 == Status::Ok {
        let mut after: BTreeMap<&[u8], f64> = BTreeMap::new();
        Scored::in_list(&list).for_each(|(score, member)| _ = after.insert(member, score));
        for (member, score) in after {
            let is_same = held.get(member) == Some(&score);
            if !is_same {
                held.insert(member.to_vec(), score);
            }
        }
    }
}

fn reads(random: &mut Random) -> SortedRead<'static> {
    let range = match random.below(3) {
        0 => SortedRange::ALL,
        1 => SortedRange::Index { start: random.below(900) as i64, stop: -1 },
        _ => SortedRange::Score { from: Bound::Excluded(-60.0), to: Bound::Unbounded },
    };
    let limit = [2_500, u64::MAX][random.below(2) as usize];
    SortedRead { range, is_reverse: random.one_in(2), offset: random.below(40), limit }
}

#[test]
fn a_range_in_turns_is_that_of_the_set_as_it_was() {
    for seed in 0..24 {
        let (mut shard, mut random) = (shard(64 << 20), Random::new(seed));
        let mut held = fill(&mut shard, 4_000, &mut random);
        let read = reads(&mut random);
        let expected = in_range(&held, &read);
        let (mut turns, rate) = (0, [0, 4, 90, 250][random.below(4) as usize]);
        let told = in_turns(&mut shard, (KEY, SortedCommand::Range(read)), NOW, |shard| {
            turns += 1;
            for _ in 0..rate {
                change(shard, &mut held, 4_600, &mut random);
            }
            match seed % 4 {
                1 if turns == 2 => drop(ask(shard, &Command::Del { key: KEY }, NOW)),
                2 if turns == 2 => drop(ask(shard, &Command::Flush, NOW)),
                3 if turns == 2 => {
                    drop(of(shard, KEY, SortedCommand::Store { members: Scored::NONE }, NOW))
                }
                _ => {}
            }
            shard.release_some(NOW);
        });
        let (found, number, turns) = told.unwrap();
        assert!(turns > 2, "{turns}");
        assert!(entries(&found) == expected, "seed {seed}: {read:?}");
        assert_eq!(number as usize, expected.len());
        quiet(&mut shard, NOW);
        shard.audit().unwrap();
    }
}

/// What ranges note is bounded by a part of the arena; one that needs more ends, and its notes go.
#[test]
fn a_range_that_would_note_too_much_is_broken_off() {
    let (mut shard, mut random) = (shard(8 << 20), Random::new(3));
    let mut held = fill(&mut shard, 9_000, &mut random);
    let before = shard.stats().heap_bytes;
    let command = SortedCommand::Range(SortedRead::of(SortedRange::ALL));
    let (mut most, mut number) = (0, 0);
    let told = in_turns(&mut shard, (KEY, command), NOW, |shard| {
        while number < 9_000 {
            let list = scored::scored([(number as f64, &member(8_999 - number)[..])]);
            of(shard, KEY, scored::add(&list), NOW);
            held.insert(member(8_999 - number), number as f64);
            number += 1;
        }
        most = most.max(shard.stats().heap_bytes);
    });
    assert_eq!(told.unwrap_err(), Status::Outrun);
    assert!(most < before + (8 << 20) / KEPT_PARTS_SHARE, "{most}");
    assert_eq!(scored::all(&mut shard, KEY, NOW), in_order(&held));
    shard.audit().unwrap();
}

#[test]
fn many_members_are_popped_in_pieces_and_each_is_a_change() {
    for from_greatest in [false, true] {
        let (mut shard, mut random) = (shard(64 << 20), Random::new(4));
        let mut held = fill(&mut shard, 6_000, &mut random);
        let read = SortedRead { is_reverse: from_greatest, ..SortedRead::of(SortedRange::ALL) };
        let expected = in_range(&held, &SortedRead { limit: 4_000, ..read });
        let mut sequence = shard.last_sequence();
        let command = SortedCommand::Pop { count: 4_000, from_greatest };
        // What is added in between lies at the other end.
        let other_end = if from_greatest { f64::NEG_INFINITY } else { f64::INFINITY };
        let (mut at, mut added) = (0, Members::new());
        let told = in_turns(&mut shard, (KEY, command), NOW, |shard| {
            assert_eq!(shard.last_sequence(), sequence + 1);
            let new = format!("new {at}").into_bytes();
            let list = scored::scored([(other_end, &new[..])]);
            assert_eq!(of(shard, KEY, scored::add(&list), NOW).1, 1);
            added.insert(new, other_end);
            (at, sequence) = (at + 1, shard.last_sequence());
        });
        let (found, number, turns) = told.unwrap();
        assert!(turns >= 4_000 / SORTED_TURN_CHANGES, "{turns}");
        assert_eq!(number, 4_000);
        assert!(entries(&found) == expected);
        held.retain(|member, _| !expected.iter().any(|(_, of)| of == member));
        held.extend(added);
        assert!(scored::all(&mut shard, KEY, NOW) == in_order(&held));
        shard.audit().unwrap();
    }
}

#[test]
fn all_members_are_popped_as_one_change() {
    let (mut shard, mut random) = (shard(64 << 20), Random::new(5));
    let held = fill(&mut shard, 6_000, &mut random);
    let (before, mut is_first) = (shard.last_sequence(), true);
    let command = SortedCommand::Pop { count: u64::MAX >> 1, from_greatest: false };
    let told = in_turns(&mut shard, (KEY, command), NOW, |shard| {
        if std::mem::take(&mut is_first) {
            assert_eq!(shard.last_sequence(), before + 1);
            assert_eq!(of(shard, KEY, SortedCommand::Length, NOW).1, 0);
            // What comes now is another set.
            let list = scored::scored([(1.0, &b"new"[..])]);
            assert_eq!(of(shard, KEY, scored::add(&list), NOW).1, 1);
        }
        shard.release_some(NOW);
    });
    let (found, number, _) = told.unwrap();
    assert_eq!(number, 6_000);
    assert!(entries(&found) == in_order(&held));
    assert_eq!(scored::all(&mut shard, KEY, NOW), [(1.0_f64.to_bits(), b"new".to_vec())]);
    quiet(&mut shard, NOW);
    shard.audit().unwrap();
}

/// Members that come to the key after the last one has left are not popped: one that comes again would
/// be popped twice.
#[test]
fn what_comes_after_the_last_member_has_left_is_not_popped() {
    for members in [3, 300] {
        let (mut shard, mut random) = (shard(64 << 20), Random::new(7));
        let held = fill(&mut shard, members, &mut random);
        let command = SortedCommand::Pop { count: 10_000, from_greatest: false };
        let again = scored::scored([(-5.0, &member(0)[..])]);
        let mut is_first = true;
        let told = in_turns(&mut shard, (KEY, command), NOW, |shard| {
            if std::mem::take(&mut is_first) {
                assert_eq!(of(shard, KEY, SortedCommand::Length, NOW).1, 0);
                assert_eq!(of(shard, KEY, scored::add(&again), NOW).1, 1);
            }
        });
        let (found, number, _) = told.unwrap();
        assert!(entries(&found) == in_order(&held));
        assert_eq!(number as usize, held.len());
        assert_eq!(scored::all(&mut shard, KEY, NOW), [((-5.0_f64).to_bits(), member(0))]);
        shard.audit().unwrap();
    }
}

/// A removal in turns ends with its set: another one that comes to the key loses nothing.
#[test]
fn a_removal_does_not_go_on_in_another_set() {
    let range = SortedRange::Score { from: Bound::Unbounded, to: Bound::Excluded(90.0) };
    let commands = [
        SortedCommand::RemoveRange { range },
        SortedCommand::Pop { count: 5_000, from_greatest: true },
    ];
    for command in commands {
        let (mut shard, mut random) = (shard(64 << 20), Random::new(8));
        fill(&mut shard, 6_000, &mut random);
        let (mut turns, mut other) = (0, Members::new());
        let told = in_turns(&mut shard, (KEY, command), NOW, |shard| {
            turns += 1;
            if turns == 2 {
                drop(ask(shard, &Command::Del { key: KEY }, NOW));
                other = fill(shard, 4_000, &mut random);
            }
        });
        let (_, number, _) = told.unwrap();
        assert_eq!(number as usize, 2 * SORTED_TURN_CHANGES);
        assert!(scored::all(&mut shard, KEY, NOW) == in_order(&other));
        quiet(&mut shard, NOW);
        shard.audit().unwrap();
    }
}

#[test]
fn a_long_range_is_removed_in_pieces() {
    let ranges = [
        SortedRange::Index { start: 100, stop: -300 },
        SortedRange::Score { from: Bound::Excluded(-90.0), to: Bound::Included(1e15) },
        SortedRange::ALL,
    ];
    for range in ranges {
        let (mut shard, mut random) = (shard(64 << 20), Random::new(6));
        let mut held = fill(&mut shard, 6_000, &mut random);
        let gone = in_range(&held, &SortedRead::of(range));
        let before = shard.last_sequence();
        let mut added = Members::new();
        let command = SortedCommand::RemoveRange { range };
        let told = in_turns(&mut shard, (KEY, command), NOW, |shard| {
            // Not of the range; those before it change the indexes of the others.
            let (score, name) = [(f64::INFINITY, "new"), (f64::NEG_INFINITY, "!")][added.len() % 2];
            let new = format!("{name} {}", added.len()).into_bytes();
            let list = scored::scored([(score, &new[..])]);
            assert_eq!(of(shard, KEY, scored::add(&list), NOW).1, 1);
            added.insert(new, score);
        });
        let (_, number, _) = told.unwrap();
        assert_eq!(number as usize, gone.len(), "{range:?}");
        let pieces = shard.last_sequence() - before - added.len() as u64;
        let is_all = range == SortedRange::ALL;
        let least = if is_all { 1 } else { gone.len().div_ceil(SORTED_TURN_CHANGES) };
        assert_eq!(pieces as usize, least, "{range:?}");
        held.retain(|member, _| !gone.iter().any(|(_, of)| of == member));
        held.extend(added);
        assert!(scored::all(&mut shard, KEY, NOW) == in_order(&held), "{range:?}");
        quiet(&mut shard, NOW);
        shard.audit().unwrap();
    }
}

/// Members with their scores within a shape, as a search finds them; and whether it used a tree.
fn search(shard: &mut Shard, centre: Position, shape: Shape) -> (BTreeSet<scored::Entry>, bool) {
    let mut query = Vec::new();
    GeoSearch { centre: Centre::At(centre), shape, enough: 0 }.write(&mut query);
    let query = GeoQuery::parse(&query).unwrap();
    let (status, word, value) = of(shard, KEY, SortedCommand::Search { query }, NOW);
    assert_eq!(status, Status::Ok);
    let value = value.unwrap();
    let found = geo::Members::parse(&value).unwrap();
    let found = found.iter().map(|of| (of.score.to_bits(), of.member.to_vec()));
    (found.collect(), word != 0)
}

fn looks(shard: &mut Shard, held: &Members, random: &mut Random) -> bool {
    let centre = Position::of_score(position(random).score());
    let shape = Shape::Circle { radius: [2.1e7, 4e6, 5e5][random.below(3) as usize] };
    let (found, has_tree) = search(shard, centre, shape);
    let within = |score: f64| {
        position_of(score).is_some_and(|at| shape.distance_within(centre, at).is_some())
    };
    let expected = held.iter().filter(|(_, score)| within(**score));
    let expected = expected.map(|(member, score)| (score.to_bits(), member.clone()));
    assert!(found == expected.collect(), "{centre:?} {shape:?}");
    has_tree
}

#[test]
fn places_follow_their_set_while_they_are_built_and_afterwards() {
    for seed in 0..4 {
        // What evicts weighs the set with its places.
        let eviction = [Eviction::None, Eviction::S3Fifo][seed as usize % 2];
        let (mut shard, mut random) = (shard_with(32 << 20, eviction), Random::new(seed));
        let mut held = fill(&mut shard, 3_000, &mut random);
        assert!(!looks(&mut shard, &held, &mut random));
        assert_eq!(shard.stats().geo_members, 0);
        let mut turns = 0;
        while shard.wants_release() {
            let (digest, sequence) = (shard.digest(), shard.last_sequence());
            shard.release_some(NOW);
            turns += 1;
            let now = (shard.digest(), shard.last_sequence());
            assert_eq!(now, (digest, sequence), "places are no content, and are not logged");
            shard.audit().unwrap();
            (0..20).for_each(|_| change(&mut shard, &mut held, 3_300, &mut random));
            shard.audit().unwrap();
            looks(&mut shard, &held, &mut random);
            assert!(turns < 1_000, "it does not end");
        }
        assert!(turns > 1, "{turns}");
        assert!(looks(&mut shard, &held, &mut random), "the tree is complete");
        for at in 0..1_500 {
            change(&mut shard, &mut held, 3_300, &mut random);
            if at % 50 == 0 {
                assert!(looks(&mut shard, &held, &mut random));
                shard.audit().unwrap();
            }
        }
        let positions = held.values().filter(|score| position_of(**score).is_some()).count();
        assert_eq!(shard.stats().geo_members as usize, positions);
        ask(&mut shard, &Command::Del { key: KEY }, NOW);
        quiet(&mut shard, NOW);
        let stats = shard.stats();
        assert_eq!((stats.geo_keys, stats.geo_members, stats.geo_bytes), (0, 0, 0));
        shard.audit().unwrap();
    }
}

/// Memory that is full ends the places of a set, not the change: searches look at all members then.
#[test]
fn places_end_where_memory_does_not_suffice() {
    let (mut ended, mut complete) = (0, 0);
    for seed in 0..12 {
        let (mut shard, mut random) = (shard(2 << 20), Random::new(seed));
        let mut held = fill(&mut shard, 1_000 + 500 * (seed % 6), &mut random);
        let digest = shard.digest();
        looks(&mut shard, &held, &mut random);
        quiet(&mut shard, NOW);
        shard.audit().unwrap();
        assert_eq!(shard.digest(), digest);
        let had_tree = looks(&mut shard, &held, &mut random);
        complete += u64::from(had_tree);
        for at in 0..3_000 {
            change(&mut shard, &mut held, 9_000, &mut random);
            if at % 100 == 0 {
                shard.audit().unwrap();
                looks(&mut shard, &held, &mut random);
                quiet(&mut shard, NOW);
            }
        }
        shard.audit().unwrap();
        let has_tree = looks(&mut shard, &held, &mut random);
        ended += u64::from(had_tree && !has_tree);
        let stats = shard.stats();
        assert_eq!(has_tree, stats.geo_members > 0, "all of it is given back");
        assert!(scored::all(&mut shard, KEY, NOW) == in_order(&held));
        ask(&mut shard, &Command::Del { key: KEY }, NOW);
        quiet(&mut shard, NOW);
        let stats = shard.stats();
        assert_eq!((stats.geo_keys, stats.geo_bytes, stats.sorted_bytes), (0, 0, 0));
        shard.audit().unwrap();
    }
    assert!(ended > 2 && complete > 4, "{ended} ended of {complete}");
}

#[test]
fn random_members_of_a_large_set_come_in_turns() {
    let (mut shard, mut random) = (shard(64 << 20), Random::new(8));
    let held = fill(&mut shard, 6_000, &mut random);
    for count in [5_000, 7_000, -9_000] {
        let command = SortedCommand::Random { count };
        let (found, number, _) = in_turns(&mut shard, (KEY, command), NOW, |_| {}).unwrap();
        let found = entries(&found);
        let expected = if count > 0 { count.min(6_000) } else { -count };
        assert_eq!((found.len() as i64, number), (expected, expected));
        assert!(found.iter().all(|(score, of)| held[of].to_bits() == *score));
        let different: BTreeSet<_> = found.iter().collect();
        assert!(count < 0 || different.len() == found.len());
    }
}
