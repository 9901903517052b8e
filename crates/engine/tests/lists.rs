//! Lists against a plain sequence: small and large ones, growth from one to the other, changes at
//! the ends and in the middle, reads in turns beside changes, removal, full memory.

use remora_arena::{NoJournal, Owner};
use remora_engine::{Eviction, Now, Shard, ShardOptions};
use remora_layout::limits::{
    CHUNK_BYTES, CHUNK_ENTRIES, LIST_TURN_CHUNKS, MAX_KEY_BYTES, WHOLE_ENTRIES,
};
use remora_layout::packed::Field;
use remora_protocol::list::{ListCommand, Search, Side};
use remora_protocol::message::Status;
use remora_protocol::set::SetCommand;
use remora_protocol::{Command, Items};
use remora_testing::Random;
use std::collections::{BTreeMap, VecDeque};

const NOW: Now = Now { unix_ms: 1_700_000_000_000, since_start_s: 5 };

type List = VecDeque<Vec<u8>>;
type Answer = (Status, i64, Option<Vec<u8>>);

fn shard(bytes: usize, eviction: Eviction) -> Shard {
    let options = ShardOptions { eviction, record_secret: 7, ..ShardOptions::default() };
    Shard::new(Owner::heap(bytes, NoJournal), options)
}

fn ask(shard: &mut Shard, command: &Command<'_>) -> Answer {
    let hash = command.key().map_or(shard.hash(b""), |key| shard.hash(key));
    let reply = shard.execute(command, hash, NOW);
    (reply.status, reply.number, reply.value.map(<[u8]>::to_vec))
}

fn of(shard: &mut Shard, key: &[u8], command: ListCommand<'_>) -> Answer {
    ask(shard, &Command::Of { key, request: command.request() })
}

fn encoded<'a>(items: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut list = Vec::new();
    items.into_iter().for_each(|item| Items::push(&mut list, item));
    list
}

fn decoded(value: &[u8]) -> Vec<Vec<u8>> {
    Items::parse(value).unwrap().iter().flatten().map(<[u8]>::to_vec).collect()
}

/// Some of the elements are links: to all other commands those are their texts.
fn push(shard: &mut Shard, key: &[u8], side: Side, items: &[Vec<u8>]) -> (Status, i64) {
    let mut list = Vec::new();
    let is_link = |item: &[u8]| item.len() % 4 == 1 && item.len() <= MAX_KEY_BYTES;
    let field = |item| Field { value: item, is_link: is_link(item) };
    items.iter().for_each(|item| Items::push_field(&mut list, field(item)));
    let items = Items::parse(&list).unwrap();
    let (status, number, _) = of(shard, key, ListCommand::Push { side, if_there: false, items });
    (status, number)
}

fn range(shard: &mut Shard, key: &[u8], start: i64, stop: i64) -> Vec<Vec<u8>> {
    let command = ListCommand::Range { start, stop };
    let (status, number, value) = of(shard, key, command);
    if status == Status::NeedsBuffer {
        let mut read = shard.begin_read((key, shard.hash(key)), command.request(), NOW).unwrap();
        let mut found = Vec::new();
        while !shard.read_turn(&mut read, &mut found, NOW).unwrap().ended {}
        return decoded(&found);
    }
    assert_eq!(status, Status::Ok);
    let items = decoded(&value.unwrap());
    assert_eq!(number as usize, items.len());
    items
}

fn release_all(shard: &mut Shard) {
    while shard.wants_release() {
        shard.release_some(NOW);
    }
}

/// What the model has between two indexes, as Redis counts them.
fn part(list: &List, start: i64, stop: i64) -> Vec<Vec<u8>> {
    let length = list.len() as i64;
    let from_end = |index: i64| if index < 0 { index + length } else { index };
    let (start, stop) = (from_end(start).max(0), from_end(stop).min(length - 1));
    (start..=stop).map(|index| list[index as usize].clone()).collect()
}

fn element(random: &mut Random) -> Vec<u8> {
    match random.below(40) {
        0 => vec![b'x'; random.below(3 * CHUNK_BYTES)],
        1 => vec![b'y'; 60 + random.below(300usize)],
        2..20 => (random.below(300) as i64 - 150).to_string().into_bytes(),
        20..26 => random.bits().to_string().into_bytes(),
        _ => format!("element {}", random.below(400)).into_bytes(),
    }
}

/// The indexes of elements that LREM removes.
fn matches(list: &List, value: &[u8], count: i64) -> Vec<usize> {
    let most = if count == 0 { usize::MAX } else { count.unsigned_abs() as usize };
    let all = list.iter().enumerate().filter(|(_, of)| &of[..] == value).map(|(at, _)| at);
    let mut found: Vec<usize> = match count < 0 {
        false => all.take(most).collect(),
        true => all.rev().take(most).collect(),
    };
    found.sort_unstable();
    found
}

/// One random change of one list on both.
fn change(shard: &mut Shard, key: &[u8], list: &mut List, random: &mut Random) {
    let index =
        random.below(list.len() + 3) as i64 - if random.one_in(2) { list.len() as i64 } else { 1 };
    let there = usize::try_from(if index < 0 { index + list.len() as i64 } else { index })
        .ok()
        .filter(|at| *at < list.len());
    let side = if random.one_in(2) { Side::Left } else { Side::Right };
    match random.below(20) {
        0..6 => {
            let count = if random.one_in(30) { 300 } else { 1 + random.below(4usize) };
            let items: Vec<Vec<u8>> = (0..count).map(|_| element(random)).collect();
            for item in &items {
                match side {
                    Side::Left => list.push_front(item.clone()),
                    Side::Right => list.push_back(item.clone()),
                }
            }
            assert_eq!(push(shard, key, side, &items), (Status::Ok, list.len() as i64));
        }
        6..10 => {
            let count = if random.one_in(20) { 150 } else { random.below(4u64) };
            let (status, number, value) =
                of(shard, key, ListCommand::Pop { side, count, fits_frame: false });
            if list.is_empty() {
                return assert_eq!(status, Status::NotFound);
            }
            let mut popped = Vec::new();
            for _ in 0..count {
                popped.extend(match side {
                    Side::Left => list.pop_front(),
                    Side::Right => list.pop_back(),
                });
            }
            assert_eq!((status, number as usize), (Status::Ok, popped.len()));
            assert_eq!(decoded(&value.unwrap()), popped);
        }
        10 | 11 => {
            let value = match there.filter(|_| random.one_in(2)) {
                Some(at) => vec![b'z'; list[at].len()],
                None => element(random),
            };
            let (status, ..) = of(shard, key, ListCommand::SetAt { index, value: &value });
            let expected = match there {
                _ if list.is_empty() => Status::NotFound,
                Some(at) => {
                    list[at] = value;
                    Status::Ok
                }
                None => Status::NotDone,
            };
            assert_eq!(status, expected);
        }
        12 | 13 => insert(shard, (key, list), there, random),
        14 | 15 => remove(shard, (key, list), there, random),
        16 => {
            let (start, stop) = match random.below(6) {
                0 => (index, random.below(list.len() + 2) as i64),
                _ => (random.below(4) as i64, -1 - random.below(4) as i64),
            };
            *list = part(list, start, stop).into();
            assert_eq!(of(shard, key, ListCommand::Trim { start, stop }).0, Status::Ok);
        }
        17 => {
            let answer = of(shard, key, ListCommand::Index { index });
            assert_eq!(answer.2.as_ref(), there.map(|at| &list[at]));
        }
        _ => look(shard, key, list, random),
    }
}

/// Inserts beside an element, or one that may not be there.
fn insert(
    shard: &mut Shard,
    (key, list): (&[u8], &mut List),
    there: Option<usize>,
    random: &mut Random,
) {
    let pivot = there.map_or_else(|| element(random), |at| list[at].clone());
    let (value, after) = (element(random), random.one_in(2));
    let pair = encoded([&pivot[..], &value]);
    let pivot_and_value = Items::parse(&pair).unwrap();
    let answer = of(shard, key, ListCommand::Insert { after, pivot_and_value });
    let expected = match list.iter().position(|of| *of == pivot) {
        _ if list.is_empty() => 0,
        None => -1,
        Some(at) => {
            list.insert(at + usize::from(after), value);
            list.len() as i64
        }
    };
    assert_eq!((answer.0, answer.1), (Status::Ok, expected));
}

/// Removes elements that equal one, or one that may not be there.
fn remove(
    shard: &mut Shard,
    (key, list): (&[u8], &mut List),
    there: Option<usize>,
    random: &mut Random,
) {
    let value = there.map_or_else(|| element(random), |at| list[at].clone());
    let count = random.below(7) as i64 - 3;
    let gone = matches(list, &value, count);
    let answer = of(shard, key, ListCommand::Remove { count, value: &value });
    assert_eq!((answer.0, answer.1 as usize), (Status::Ok, gone.len()));
    gone.iter().rev().for_each(|at| drop(list.remove(*at)));
}

/// Compares a search and a range.
fn look(shard: &mut Shard, key: &[u8], list: &List, random: &mut Random) {
    let start = random.below(list.len() + 4) as i64 - random.below(list.len() + 4) as i64;
    let stop = start + random.below(300) as i64;
    assert_eq!(range(shard, key, start, stop), part(list, start, stop));
    let value = match list.is_empty() {
        true => b"nowhere".to_vec(),
        false => list[random.below(list.len())].clone(),
    };
    let rank = [1, 2, -1, -3][random.below(4usize)];
    let (count, most) = (random.below(3u64), random.below(2u64) * random.below(200u64));
    let how = Search { rank, count, most };
    let (_, number, found) = of(shard, key, ListCommand::Position { value: &value, how });
    let compared = if most == 0 { list.len() } else { list.len().min(most as usize) };
    let all: Vec<usize> = match rank > 0 {
        true => (0..compared).collect(),
        false => (0..list.len()).rev().take(compared).collect(),
    };
    let found_there = all.into_iter().filter(|at| list[*at] == value);
    let most = if count == 0 { usize::MAX } else { count as usize };
    let expected: Vec<Vec<u8>> = found_there
        .skip(rank.unsigned_abs() as usize - 1)
        .take(most)
        .map(|at| at.to_string().into_bytes())
        .collect();
    assert_eq!(decoded(&found.unwrap()), expected, "{how:?}");
    assert_eq!(number as usize, expected.len());
}

#[test]
fn random_operations_agree_with_plain_sequences() {
    let mut longest = 0;
    for seed in 0..4 {
        let mut shard = shard(16 << 20, Eviction::None);
        let (mut model, mut random) = (BTreeMap::<Vec<u8>, List>::new(), Random::new(seed));
        for at in 0..12_000 {
            let key = format!("list {}", random.below(3)).into_bytes();
            let list = model.entry(key.clone()).or_default();
            change(&mut shard, &key, list, &mut random);
            longest = longest.max(list.len());
            if random.one_in(2_000) {
                let there = ask(&mut shard, &Command::Del { key: &key }).1;
                assert_eq!(there, i64::from(!list.is_empty()));
                list.clear();
            }
            if at % 200 == 0 {
                shard.tick(NOW);
                shard.audit().unwrap();
                for (key, list) in &model {
                    assert_eq!(range(&mut shard, key, 0, -1), Vec::from(list.clone()));
                    let length = of(&mut shard, key, ListCommand::Length);
                    assert_eq!(length.1 as usize, list.len());
                }
            }
        }
        for key in model.keys() {
            ask(&mut shard, &Command::Del { key });
        }
        release_all(&mut shard);
        shard.audit().unwrap();
        assert_eq!(shard.used_bytes(), 0);
    }
    assert!(longest > 5 * WHOLE_ENTRIES, "{longest}");
}

/// A list of so many elements.
fn long(shard: &mut Shard, key: &[u8], elements: usize) -> List {
    let all: Vec<Vec<u8>> = (0..elements).map(|at| format!("e{at}").into_bytes()).collect();
    for some in all.chunks(1_000) {
        assert_eq!(push(shard, key, Side::Right, some).0, Status::Ok);
    }
    all.into()
}

#[test]
fn a_read_in_turns_gives_the_list_as_it_was() {
    for ending in 0..4 {
        let mut shard = shard(32 << 20, Eviction::None);
        let mut list = long(&mut shard, b"l", 30_000);
        let was = list.clone();
        let request = ListCommand::Range { start: 5, stop: -3 }.request();
        let key = (&b"l"[..], shard.hash(b"l"));
        let mut read = shard.begin_read(key, request, NOW).unwrap();
        let (mut found, mut turns, mut random) = (Vec::new(), 0, Random::new(ending));
        loop {
            let turn = shard.read_turn(&mut read, &mut found, NOW).unwrap();
            turns += 1;
            if turn.ended {
                assert_eq!(turn.number as usize, was.len() - 7);
                break;
            }
            match ending {
                1 if turns == 2 => {
                    ask(&mut shard, &Command::Del { key: b"l" });
                    list.clear();
                }
                2 if turns == 2 => {
                    assert_eq!(
                        of(&mut shard, b"l", ListCommand::Trim { start: 9, stop: 11 }).0,
                        Status::Ok
                    );
                    list = part(&list, 9, 11).into();
                }
                3 => {
                    release_all(&mut shard);
                    drop(of(
                        &mut shard,
                        b"l",
                        ListCommand::Pop { side: Side::Right, count: 3_000, fits_frame: false },
                    ));
                    (0..list.len().min(3_000)).for_each(|_| drop(list.pop_back()));
                }
                _ => {}
            }
            for _ in 0..40 {
                change(&mut shard, b"l", &mut list, &mut random);
            }
            shard.release_some(NOW);
        }
        assert!(turns > 3, "{turns}");
        assert_eq!(decoded(&found), part(&was, 5, -3), "ending {ending}");
        release_all(&mut shard);
        shard.audit().unwrap();
    }
}

/// A change that looks for its elements in turns: LREM or LINSERT of this value.
fn looked_for(random: &mut Random, value: &[u8], pair: &mut Vec<u8>) -> (i64, bool) {
    *pair = encoded([value, b"put beside"]);
    (random.below(9) as i64 - 4, random.one_in(2))
}

/// What the list has to become in the last turn, and the number of the reply.
fn changed(list: &mut List, value: &[u8], insert: Option<bool>, count: i64) -> i64 {
    let Some(after) = insert else {
        let gone = matches(list, value, count);
        gone.iter().rev().for_each(|at| drop(list.remove(*at)));
        return gone.len() as i64;
    };
    match list.iter().position(|of| of == value) {
        None => -1,
        Some(at) => {
            list.insert(at + usize::from(after), b"put beside".to_vec());
            list.len() as i64
        }
    }
}

#[test]
fn elements_are_looked_for_in_bounded_turns_beside_changes() {
    let mut most_turns = 0;
    for seed in 0..60 {
        let mut shard = shard(32 << 20, Eviction::None);
        let mut list = long(&mut shard, b"l", 60_000);
        let mut random = Random::new(seed);
        // Some are there, far behind, and some come while the search goes on.
        let value = b"looked for".to_vec();
        for _ in 0..random.below(4) {
            let index = random.below(list.len());
            list[index] = value.clone();
            of(&mut shard, b"l", ListCommand::SetAt { index: index as i64, value: &value });
        }
        let mut pair = Vec::new();
        let (count, after) = looked_for(&mut random, &value, &mut pair);
        let insert = random.one_in(3).then_some(after);
        let request = match insert {
            None => ListCommand::Remove { count, value: &value }.request(),
            Some(after) => {
                let pivot_and_value = Items::parse(&pair).unwrap();
                ListCommand::Insert { after, pivot_and_value }.request()
            }
        };
        let at = (&b"l"[..], shard.hash(b"l"));
        let mut read = shard.begin_read(at, request, NOW).unwrap();
        let mut turns = 0;
        let number = loop {
            let (before, was) = (shard.stats().list_chunks_searched, shard.last_sequence());
            let turn = shard.read_turn(&mut read, &mut Vec::new(), NOW).unwrap();
            let looked_at = shard.stats().list_chunks_searched - before;
            assert!(looked_at <= LIST_TURN_CHUNKS, "{looked_at} chunks in one turn");
            if turn.ended {
                // One change at most.
                assert!(shard.last_sequence() <= was + 1);
                break turn.number;
            }
            assert_eq!(shard.last_sequence(), was, "only the last turn changes anything");
            turns += 1;
            for _ in 0..random.below(12) {
                between(&mut shard, &mut list, &value, &mut random);
            }
        };
        most_turns = most_turns.max(turns);
        assert_eq!(number, changed(&mut list, &value, insert, count), "seed {seed}");
        assert_eq!(range(&mut shard, b"l", 0, -1), Vec::from(list), "seed {seed}");
        shard.audit().unwrap();
    }
    assert!(most_turns >= 600 / LIST_TURN_CHUNKS, "{most_turns}");
}

/// A change of the list between two turns; often it brings or takes the value that is looked for.
fn between(shard: &mut Shard, list: &mut List, value: &[u8], random: &mut Random) {
    let index = random.below(list.len());
    match random.below(6) {
        0 => {
            list[index] = value.to_vec();
            of(shard, b"l", ListCommand::SetAt { index: index as i64, value });
        }
        1 => {
            let pivot = list[random.below(list.len().min(200))].clone();
            let pair = encoded([&pivot[..], value]);
            let pivot_and_value = Items::parse(&pair).unwrap();
            let request = ListCommand::Insert { after: true, pivot_and_value };
            of(shard, b"l", request);
            let at = list.iter().position(|of| *of == pivot).unwrap();
            list.insert(at + 1, value.to_vec());
        }
        2 => {
            let side = if random.one_in(2) { Side::Left } else { Side::Right };
            push(shard, b"l", side, &[value.to_vec(), b"other".to_vec()]);
            for item in [value.to_vec(), b"other".to_vec()] {
                match side {
                    Side::Left => list.push_front(item),
                    Side::Right => list.push_back(item),
                }
            }
        }
        3 => {
            let gone = matches(list, value, 1);
            of(shard, b"l", ListCommand::Remove { count: 1, value });
            gone.iter().for_each(|at| drop(list.remove(*at)));
        }
        4 => {
            let (start, stop) = (random.below(300) as i64, -1 - random.below(300) as i64);
            *list = part(list, start, stop).into();
            of(shard, b"l", ListCommand::Trim { start, stop });
        }
        _ => {
            let side = if random.one_in(2) { Side::Left } else { Side::Right };
            of(shard, b"l", ListCommand::Pop { side, count: 70, fits_frame: false });
            let all = std::mem::take(list);
            let range = if side == Side::Left { 70..all.len() } else { 0..all.len() - 70 };
            *list = all.range(range).cloned().collect();
        }
    }
    if list.is_empty() {
        push(shard, b"l", Side::Left, &[b"other".to_vec()]);
        list.push_back(b"other".to_vec());
    }
}

#[test]
fn a_list_that_comes_anew_is_looked_through_anew() {
    let mut shard = shard(32 << 20, Eviction::None);
    long(&mut shard, b"l", 60_000);
    let request = ListCommand::Remove { count: 0, value: b"e59999" }.request();
    let at = (&b"l"[..], shard.hash(b"l"));
    let mut read = shard.begin_read(at, request, NOW).unwrap();
    assert!(!shard.read_turn(&mut read, &mut Vec::new(), NOW).unwrap().ended);
    ask(&mut shard, &Command::Del { key: b"l" });
    release_all(&mut shard);
    let mut list = long(&mut shard, b"l", 60_000);
    let turn = loop {
        let turn = shard.read_turn(&mut read, &mut Vec::new(), NOW).unwrap();
        if turn.ended {
            break turn;
        }
    };
    assert_eq!(turn.number, changed(&mut list, b"e59999", None, 0));
    assert_eq!(range(&mut shard, b"l", 0, -1), Vec::from(list));
    // Without a list there is nothing to change.
    let mut read = shard.begin_read(at, request, NOW).unwrap();
    assert!(!shard.read_turn(&mut read, &mut Vec::new(), NOW).unwrap().ended);
    ask(&mut shard, &Command::Del { key: b"l" });
    let turn = shard.read_turn(&mut read, &mut Vec::new(), NOW).unwrap();
    assert_eq!((turn.ended, turn.number), (true, 0));
}

#[test]
fn a_full_shard_refuses_and_keeps_its_lists() {
    let mut shard = shard(1 << 20, Eviction::None);
    let mut list = List::new();
    let mut random = Random::new(5);
    loop {
        let item = vec![b'v'; random.below(2_000)];
        let side = if random.one_in(2) { Side::Left } else { Side::Right };
        match push(&mut shard, b"l", side, std::slice::from_ref(&item)).0 {
            Status::Ok if side == Side::Left => list.push_front(item),
            Status::Ok => list.push_back(item),
            status => break assert_eq!(status, Status::OutOfMemory),
        }
    }
    shard.audit().unwrap();
    assert_eq!(range(&mut shard, b"l", 0, -1), Vec::from(list.clone()));
    // What is removed needs no memory.
    while list.len() > 1 {
        let value = list.remove(list.len() / 2).unwrap();
        let gone = matches(&list, &value, 0).len() + 1;
        let answer = of(&mut shard, b"l", ListCommand::Remove { count: 0, value: &value });
        assert_eq!((answer.0, answer.1 as usize), (Status::Ok, gone));
        list.retain(|of| *of != value);
    }
    assert_eq!(range(&mut shard, b"l", 0, -1), Vec::from(list));
    shard.audit().unwrap();
}

#[test]
fn a_long_list_takes_little_more_than_its_elements() {
    let mut shard = shard(64 << 20, Eviction::None);
    let before = shard.used_bytes();
    let elements = 200_000;
    for at in 0..elements {
        let item = format!("element:{at:06}").into_bytes();
        assert_eq!(push(&mut shard, b"l", Side::Right, &[item]).0, Status::Ok);
    }
    let each = (shard.used_bytes() - before) as f64 / f64::from(elements);
    // 14 bytes and one for the length: a chunk's head is shared by some 95 of them.
    assert!(each < 15.75, "{each} bytes for each element");
    const { assert!(CHUNK_ENTRIES >= 95) };
    shard.audit().unwrap();
}

/// A range of few elements is copied in one step only if it has few bytes.
#[test]
fn a_short_range_of_long_elements_is_not_given_at_once() {
    let mut shard = shard(64 << 20, Eviction::None);
    let all: Vec<Vec<u8>> = (0..100u8).map(|at| vec![at; 100_000]).collect();
    assert_eq!(push(&mut shard, b"l", Side::Right, &all).0, Status::Ok);
    for (start, stop) in [(0, 99), (3, 3), (-2, -1)] {
        let command = ListCommand::Range { start, stop };
        let answer = of(&mut shard, b"l", command);
        assert_eq!(answer, (Status::NeedsBuffer, 0, None));
        let key = (&b"l"[..], shard.hash(b"l"));
        let mut read = shard.begin_read(key, command.request(), NOW).unwrap();
        let (mut found, mut turns) = (Vec::new(), 1);
        while !shard.read_turn(&mut read, &mut found, NOW).unwrap().ended {
            turns += 1;
        }
        assert!(turns > 10 || stop - start < 2, "{turns}");
        assert_eq!(decoded(&found), part(&all.clone().into(), start, stop));
    }
}

/// What reads under way know of the chunks that they are still to look at counts: too many of them
/// are broken off, and others go on once those have ended.
#[test]
fn reads_that_would_need_too_much_are_broken_off() {
    let mut shard = shard(4 << 20, Eviction::None);
    let list = long(&mut shard, b"l", 40_000);
    let request = ListCommand::Range { start: 0, stop: -1 }.request();
    let key = (&b"l"[..], shard.hash(b"l"));
    let begin = |shard: &mut Shard| {
        let mut read = shard.begin_read(key, request, NOW).unwrap();
        let mut found = Vec::new();
        let turn = shard.read_turn(&mut read, &mut found, NOW).map(|turn| turn.ended);
        (read, found, turn)
    };
    // Each change counts the heap anew.
    let heap_bytes = |shard: &mut Shard| {
        assert_eq!(push(shard, b"other", Side::Left, &[b"x".to_vec()]).0, Status::Ok);
        shard.stats().heap_bytes
    };
    let heap = heap_bytes(&mut shard);
    let mut reads = Vec::new();
    let broken = (0..1_000).find_map(|number| match begin(&mut shard) {
        (.., Err(status)) => Some((number, status)),
        (read, found, _) => {
            reads.push((read, found));
            None
        }
    });
    let (number, status) = broken.expect("one is broken off");
    assert!(status == Status::Outrun && number > 20, "{number} {status:?}");
    assert!(heap_bytes(&mut shard) > heap + (64 << 10));
    // Those that began before go on.
    let (mut read, mut found) = reads.swap_remove(7);
    while !shard.read_turn(&mut read, &mut found, NOW).unwrap().ended {}
    assert_eq!(decoded(&found), Vec::from(list));
    drop((read, reads));
    assert_eq!(begin(&mut shard).2, Ok(false));
}

/// What LREM leaves is joined: a list of few elements takes little memory, whatever it had.
#[test]
fn chunks_that_have_lost_most_entries_are_joined() {
    for (keeps, seed) in [(2, 1), (7, 2), (40, 3)] {
        let mut shard = shard(64 << 20, Eviction::None);
        let mut random = Random::new(seed);
        let all: Vec<Vec<u8>> = (0..20_000)
            .map(|at| match random.below(keeps) {
                0 => format!("element {at}").into_bytes(),
                _ => b"an element that goes".to_vec(),
            })
            .collect();
        for some in all.chunks(500) {
            assert_eq!(push(&mut shard, b"l", Side::Right, some).0, Status::Ok);
        }
        let before = shard.used_bytes();
        let list = |shard: &mut Shard| range(shard, b"l", 0, -1);
        let left: Vec<Vec<u8>> = all.iter().filter(|of| of.len() < 20).cloned().collect();
        let indexes = all.iter().enumerate().filter(|(_, of)| of.len() == 20);
        let indexes: Vec<u8> = indexes.flat_map(|(at, _)| (at as u32).to_le_bytes()).collect();
        let removed = of(&mut shard, b"l", ListCommand::RemoveAt { indexes: &indexes });
        assert_eq!(removed.0, Status::Ok);
        release_all(&mut shard);
        shard.audit().unwrap();
        assert_eq!(list(&mut shard), left);
        let share = (left.len() as u64 * 100).div_ceil(all.len() as u64);
        let after = shard.used_bytes() * 100 / before;
        assert!(after < 2 * share + 10, "{share} % of the elements take {after} % of the memory");
    }
}

/// A change of another type counts the heap anew: reads of lists that have ended keep nothing.
#[test]
fn what_was_kept_for_reads_that_have_ended_counts_no_more() {
    let mut shard = shard(8 << 20, Eviction::None);
    long(&mut shard, b"l", 40_000);
    let request = ListCommand::Range { start: 0, stop: -1 }.request();
    let key = (&b"l"[..], shard.hash(b"l"));
    let reads: Vec<_> = (0..20)
        .map(|_| {
            let mut read = shard.begin_read(key, request, NOW).unwrap();
            shard.read_turn(&mut read, &mut Vec::new(), NOW).unwrap();
            read
        })
        .collect();
    let add = |shard: &mut Shard| {
        let members = encoded([&b"m"[..]]);
        let members = Items::parse(&members).unwrap();
        let request = SetCommand::Add { members }.request();
        assert_eq!(ask(shard, &Command::Of { key: b"s", request }).0, Status::Ok);
        shard.stats().heap_bytes
    };
    assert_eq!(push(&mut shard, b"l", Side::Left, &[b"x".to_vec()]).0, Status::Ok);
    let kept = add(&mut shard);
    drop(reads);
    let after = add(&mut shard);
    assert!(after + (16 << 10) < kept, "{kept} bytes, then {after}");
}

/// Long elements that are replaced by short ones give their memory back.
#[test]
fn long_elements_that_become_short_leave_no_idle_slots() {
    for bytes in [3_000, 8_000, 100_000] {
        let mut shard = shard(64 << 20, Eviction::None);
        let all: Vec<Vec<u8>> = (0..100u8).map(|at| vec![at; bytes]).collect();
        assert_eq!(push(&mut shard, b"l", Side::Right, &all).0, Status::Ok);
        let before = shard.used_bytes();
        for index in 0..100 {
            let set = of(&mut shard, b"l", ListCommand::SetAt { index, value: b"x" });
            assert_eq!(set.0, Status::Ok);
        }
        release_all(&mut shard);
        assert_eq!(range(&mut shard, b"l", 0, -1), vec![b"x".to_vec(); 100]);
        assert!(shard.used_bytes() < before / 4, "{} of {before}", shard.used_bytes());
        shard.audit().unwrap();
    }
}

/// A cut of a long list is one step; its memory comes back in turns.
#[test]
fn a_cut_is_released_in_turns() {
    let mut shard = shard(64 << 20, Eviction::None);
    long(&mut shard, b"l", 300_000);
    let before = shard.used_bytes();
    assert_eq!(
        of(&mut shard, b"l", ListCommand::Trim { start: 150_000, stop: 150_009 }).0,
        Status::Ok
    );
    assert!(shard.used_bytes() > before / 2 && shard.wants_release());
    shard.audit().unwrap();
    assert_eq!(range(&mut shard, b"l", 0, -1)[0], b"e150000");
    release_all(&mut shard);
    shard.audit().unwrap();
    assert!(shard.used_bytes() < before / 100);
}

#[test]
fn a_result_takes_the_place_of_whatever_a_key_holds() {
    let mut shard = shard(8 << 20, Eviction::None);
    let texts = |count: usize| -> Vec<Vec<u8>> {
        (0..count).map(|at| format!("element {at}").into_bytes()).collect()
    };
    let store = |shard: &mut Shard, key: &[u8], items: &[Vec<u8>]| {
        let list = encoded(items.iter().map(Vec::as_slice));
        let answer = of(shard, key, ListCommand::Store { items: Items::parse(&list).unwrap() });
        assert_eq!((answer.0, answer.1), (Status::Ok, items.len() as i64));
    };
    let whole = |shard: &mut Shard, key: &[u8]| range(shard, key, 0, -1);
    let set = Command::Set {
        key: b"k",
        value: b"text",
        condition: remora_protocol::Condition::Always,
        expiry: remora_protocol::Expiry::At(NOW.unix_ms + 60_000),
        get: false,
    };
    // Small and large ones, over a string that expires and over each other.
    for first in [2, 1_000] {
        for second in [3, 2_000] {
            assert_eq!(ask(&mut shard, &set).0, Status::Ok);
            store(&mut shard, b"k", &texts(first));
            assert_eq!(ask(&mut shard, &Command::Ttl { key: b"k" }).1, -1, "it expires no more");
            assert_eq!(whole(&mut shard, b"k"), texts(first));
            store(&mut shard, b"k", &texts(second));
            assert_eq!(whole(&mut shard, b"k"), texts(second));
            push(&mut shard, b"k", Side::Right, &[b"more".to_vec()]);
            assert_eq!(range(&mut shard, b"k", -1, -1), [b"more"]);
            release_all(&mut shard);
            shard.audit().unwrap();
        }
    }
    store(&mut shard, b"k", &[]);
    assert_eq!(ask(&mut shard, &Command::Exists { key: b"k" }).1, 0);
    release_all(&mut shard);
    shard.audit().unwrap();
}

/// The whole answer to a listing of elements: status, number, items.
fn listed(shard: &mut Shard, key: &[u8], bounds: (i64, i64)) -> (Status, i64, Vec<Vec<u8>>) {
    let hash = shard.hash(key);
    let mut read = match shard.begin_elements((key, hash), bounds, NOW) {
        Ok(read) => read,
        Err(reply) => {
            return (reply.status, reply.number, decoded(reply.value.unwrap_or_default()));
        }
    };
    let mut found = Vec::new();
    loop {
        let turn = shard.read_turn(&mut read, &mut found, NOW).unwrap();
        assert!(!turn.is_counted, "it goes in one piece");
        if turn.ended {
            return (Status::Ok, turn.number, decoded(&found));
        }
    }
}

#[test]
fn elements_are_listed_whatever_the_type_if_it_has_some() {
    let mut shard = shard(8 << 20, Eviction::None);
    let texts: Vec<Vec<u8>> = (0..5_000).map(|at: u32| at.to_string().into_bytes()).collect();
    for count in [3, 5_000] {
        let key = format!("list {count}").into_bytes();
        push(&mut shard, &key, Side::Right, &texts[..count]);
        let all = (Status::Ok, 2 * count as i64 + 1, texts[..count].to_vec());
        assert_eq!(listed(&mut shard, &key, (0, -1)), all);
        let two = (Status::Ok, 5, texts[1..3].to_vec());
        assert_eq!(listed(&mut shard, &key, (1, 2)), two);
        let list = encoded(texts[..count].iter().map(Vec::as_slice));
        let members = Items::parse(&list).unwrap();
        let request = remora_protocol::set::SetCommand::Add { members }.request();
        assert_eq!(ask(&mut shard, &Command::Of { key: b"members", request }).0, Status::Ok);
        // What has no order is given whole.
        let (status, number, mut items) = listed(&mut shard, b"members", (1, 2));
        items.sort_by_key(|text| std::str::from_utf8(text).unwrap().parse::<u32>().unwrap());
        assert_eq!(
            (status, number, items),
            (Status::Ok, 2 * count as i64, texts[..count].to_vec())
        );
    }
    assert_eq!(listed(&mut shard, b"none", (0, -1)), (Status::Ok, 0, Vec::new()));
    let append = Command::Append { key: b"text", value: b"text" };
    assert_eq!(ask(&mut shard, &append).0, Status::Ok);
    assert_eq!(listed(&mut shard, b"text", (0, -1)).0, Status::WrongType);
    let pair = encoded([&b"name"[..], b"value"]);
    let pairs = remora_protocol::Items::parse(&pair).unwrap();
    let request = remora_protocol::hash::HashCommand::Set { pairs }.request();
    assert_eq!(ask(&mut shard, &Command::Of { key: b"fields", request }).0, Status::Ok);
    assert_eq!(listed(&mut shard, b"fields", (0, -1)).0, Status::WrongType);
}
