//! Sets against a map of sets: small ones of integers and of other members, large ones; growth from
//! one to the other, bins that split and that are full, reads of one and of several in turns beside
//! changes, scans, full memory, and what readers believe.

use remora_arena::{NoJournal, Owner};
use remora_engine::{Eviction, LongRead, Now, Shard, ShardOptions};
use remora_index::hash::ObjectRef;
use remora_layout::hash::KeyHash;
use remora_layout::kind::Kind;
use remora_layout::limits::{
    BIN_MEMBERS, BIN_MOST_MEMBERS, COMBINE_TURN_MEMBERS, MAX_COMMAND_ITEMS, POP_TURN_MEMBERS,
    WHOLE_INTEGERS, WHOLE_ITEM_BYTES, WHOLE_ITEMS,
};
use remora_layout::packed_set::part_holds;
use remora_layout::part::{part_hash_seed, root_of_word};
use remora_layout::pointer::RemotePointer;
use remora_layout::record::{ROOT_WORDS_BYTES, key_in, verify};
use remora_protocol::message::Status;
use remora_protocol::set::{Combination, Others, SetCommand, packs};
use remora_protocol::{Command, Condition, Expiry, Items};
use remora_testing::Random;
use remora_walk::Memory;
use std::collections::{BTreeMap, BTreeSet};

const NOW: Now = Now { unix_ms: 1_700_000_000_000, since_start_s: 5 };

type Set = BTreeSet<Vec<u8>>;
type Model = BTreeMap<Vec<u8>, Set>;
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

fn of(shard: &mut Shard, key: &[u8], command: SetCommand<'_>) -> Answer {
    ask(shard, &Command::Of { key, request: command.request() })
}

fn list<'a>(items: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut list = Vec::new();
    items.into_iter().for_each(|item| Items::push(&mut list, item));
    list
}

fn add(shard: &mut Shard, key: &[u8], members: &[&[u8]]) -> (Status, i64) {
    let list = list(members.iter().copied());
    let (status, number, _) =
        of(shard, key, SetCommand::Add { members: Items::parse(&list).unwrap() });
    (status, number)
}

fn remove(shard: &mut Shard, key: &[u8], members: &[&[u8]]) -> (Status, i64) {
    let list = list(members.iter().copied());
    let (status, number, _) =
        of(shard, key, SetCommand::Remove { members: Items::parse(&list).unwrap() });
    (status, number)
}

fn as_set(value: &[u8]) -> Set {
    let mut set = Set::new();
    for member in Items::parse(value).unwrap().iter().flatten() {
        assert!(set.insert(member.to_vec()), "told twice: {member:?}");
    }
    set
}

fn all(shard: &mut Shard, key: &[u8]) -> Set {
    let (status, number, value) = of(shard, key, SetCommand::All);
    assert_eq!(status, Status::Ok);
    let set = as_set(&value.unwrap());
    assert_eq!(number as usize, set.len());
    set
}

fn member(at: u64) -> Vec<u8> {
    format!("member {at}").into_bytes()
}

fn fill(shard: &mut Shard, key: &[u8], members: std::ops::Range<u64>) -> Set {
    for at in members.clone() {
        assert_eq!(add(shard, key, &[&member(at)]), (Status::Ok, 1));
    }
    members.map(member).collect()
}

fn release_all(shard: &mut Shard) {
    while shard.wants_release() {
        shard.release_some(NOW);
    }
}

fn encoding(shard: &mut Shard, key: &[u8]) -> String {
    let (_, _, value) = ask(shard, &Command::Encoding { key });
    value.map_or_else(String::new, |name| String::from_utf8(name).unwrap())
}

fn draw_member(random: &mut Random) -> Vec<u8> {
    match random.below(20) {
        0 => vec![b'm'; 60 + random.below(10) as usize],
        1 => (random.below(1_i64 << 40) - (1 << 39)).to_string().into_bytes(),
        2..9 => random.below(700).to_string().into_bytes(),
        9..12 => format!("rare {}", random.below(400)).into_bytes(),
        12 => Vec::new(),
        _ => random.below(30).to_string().into_bytes(),
    }
}

/// What several sets make, by the definition.
fn combined(how: Combination, sets: &[Set]) -> Set {
    let mut made = sets[0].clone();
    for other in &sets[1..] {
        match how {
            Combination::Inter => made.retain(|member| other.contains(member)),
            Combination::Union => made.extend(other.iter().cloned()),
            Combination::Diff => made.retain(|member| !other.contains(member)),
        }
    }
    made
}

const HOW: [Combination; 3] = [Combination::Inter, Combination::Union, Combination::Diff];

fn combine(shard: &mut Shard, model: &Model, random: &mut Random) {
    let how = HOW[random.below(3) as usize];
    let mut names: Vec<Vec<u8>> = Vec::new();
    for _ in 0..1 + random.below(3) {
        names.push(format!("set {}", random.below(6)).into_bytes());
    }
    let held = |name: &Vec<u8>| model.get(name).cloned().unwrap_or_default();
    let mut sets: Vec<Set> = names.iter().map(held).collect();
    let before: Option<Set> = (random.below(3) == 0)
        .then(|| (0..random.below(50)).map(|_| draw_member(random)).collect());
    let mut items = Vec::new();
    if let Some(before) = &before {
        Items::push(&mut items, &list(before.iter().map(|of| &of[..])));
        sets.insert(0, before.clone());
    }
    names[1..].iter().for_each(|name| Items::push(&mut items, name));
    let others = Others { has_before: before.is_some(), items: Items::parse(&items).unwrap() };
    let made = combined(how, &sets);
    let (status, number, value) =
        of(shard, &names[0], SetCommand::Combine { how, others, count_to: None });
    assert_eq!((status, number as usize), (Status::Ok, made.len()));
    assert_eq!(as_set(&value.unwrap()), made, "{how:?} {names:?}");
    for most in [0, 1, 7] {
        let command = SetCommand::Combine { how, others, count_to: Some(most) };
        let (_, number, _) = of(shard, &names[0], command);
        let least = if most == 0 { made.len() } else { made.len().min(most as usize) };
        assert_eq!(number as usize, least);
    }
}

/// Asks for so many members by chance.
fn draw_some(shard: &mut Shard, key: &[u8], held: &Set, random: &mut Random) {
    let count = random.below(12) as i64 - 4;
    let (_, number, value) = of(shard, key, SetCommand::Random { count });
    let value = value.unwrap();
    let told: Vec<&[u8]> = Items::parse(&value).unwrap().iter().flatten().collect();
    assert!(told.iter().all(|of| held.contains(*of)) && told.len() == number as usize);
    let least = count.unsigned_abs() as usize;
    let most = if count > 0 { least.min(held.len()) } else { least };
    assert_eq!(told.len(), if held.is_empty() { 0 } else { most });
    assert!(count < 0 || as_set(&value).len() == most);
}

/// Removes so many members by chance.
fn pop(shard: &mut Shard, key: &[u8], (held, model): (&Set, &mut Model), random: &mut Random) {
    let count = if random.below(60) == 0 { 100_000 } else { random.below(5) };
    let (_, number, value) = of(shard, key, SetCommand::Pop { count });
    let popped = as_set(&value.unwrap());
    assert_eq!(popped.len(), held.len().min(count as usize));
    assert!(popped.len() == number as usize && popped.is_subset(held));
    take(model, key, &popped.into_iter().collect::<Vec<_>>());
}

/// One random operation on both.
fn step(shard: &mut Shard, model: &mut Model, random: &mut Random) {
    let key = format!("set {}", random.below(5)).into_bytes();
    let one = draw_member(random);
    let held = model.get(&key).cloned().unwrap_or_default();
    match random.below(16) {
        0..5 => {
            let some: Vec<Vec<u8>> = (0..random.below(4)).map(|_| draw_member(random)).collect();
            let mut members: Vec<&[u8]> = vec![&one];
            if random.below(2) == 0 {
                members.push(&one);
                members.extend(some.iter().map(|of| &of[..]));
            }
            let set = model.entry(key.clone()).or_default();
            let new = members.iter().filter(|of| set.insert(of.to_vec())).count();
            assert_eq!(add(shard, &key, &members), (Status::Ok, new as i64));
        }
        5..8 => {
            let answer = remove(shard, &key, &[&one, b"nowhere", &one]);
            assert_eq!(answer, (Status::Ok, held.contains(&one) as i64));
            take(model, &key, &[one]);
        }
        8 => {
            let (status, root, _) = of(shard, &key, SetCommand::Contains { member: &one });
            let expected = if held.contains(&one) { Status::Ok } else { Status::NotFound };
            assert_eq!(status, expected);
            assert!(root == 0 || !held.is_empty());
        }
        9 => {
            let some: Vec<Vec<u8>> = (0..9).map(|_| draw_member(random)).collect();
            let list = list(some.iter().map(|of| &of[..]));
            let members = Items::parse(&list).unwrap();
            let (_, _, value) = of(shard, &key, SetCommand::ContainsMany { members });
            let told: Vec<u8> = some.iter().map(|of| u8::from(held.contains(of))).collect();
            assert_eq!(value.unwrap(), told);
        }
        10 => draw_some(shard, &key, &held, random),
        11 => pop(shard, &key, (&held, model), random),
        12 => {
            let to = format!("set {}", random.below(5)).into_bytes();
            let list = list([&to[..], &one]);
            let to_and_member = Items::parse(&list).unwrap();
            let answer = of(shard, &key, SetCommand::Move { to_and_member });
            assert_eq!((answer.0, answer.1), (Status::Ok, held.contains(&one) as i64));
            if held.contains(&one) {
                take(model, &key, std::slice::from_ref(&one));
                model.entry(to).or_default().insert(one);
            }
        }
        13 => combine(shard, model, random),
        14 => {
            assert_eq!(of(shard, &key, SetCommand::Length).1 as usize, held.len());
        }
        _ if random.below(30) == 0 => {
            let many = if random.below(2) == 0 { 800 } else { 20 };
            let set: Set = (0..many).map(|_| draw_member(random)).collect();
            let list = list(set.iter().map(|of| &of[..]));
            let members = Items::parse(&list).unwrap();
            let answer = of(shard, &key, SetCommand::Store { members });
            assert_eq!((answer.0, answer.1 as usize), (Status::Ok, set.len()));
            model.insert(key, set);
        }
        _ => {}
    }
}

fn take(model: &mut Model, key: &[u8], members: &[Vec<u8>]) {
    let Some(set) = model.get_mut(key) else { return };
    set.retain(|of| !members.contains(of));
    if set.is_empty() {
        model.remove(key);
    }
}

#[test]
fn random_operations_agree_with_a_map_of_sets() {
    let mut met = BTreeSet::new();
    for seed in 0..4 {
        let mut shard = shard(8 << 20, Eviction::None);
        let (mut model, mut random) = (Model::new(), Random::new(seed));
        for at in 0..12_000 {
            step(&mut shard, &mut model, &mut random);
            if at % 400 == 0 {
                shard.tick(NOW);
                shard.audit().unwrap();
                for key in (0..6).map(|at| format!("set {at}").into_bytes()) {
                    assert_eq!(all(&mut shard, &key), model.get(&key).cloned().unwrap_or_default());
                    met.insert(encoding(&mut shard, &key));
                }
            }
        }
    }
    let names = ["", "hashtable", "intset"].map(str::to_owned);
    assert_eq!(met, BTreeSet::from(names));
}

#[test]
fn a_set_is_kept_as_redis_keeps_it() {
    let mut shard = shard(4 << 20, Eviction::None);
    for at in 0..WHOLE_INTEGERS {
        add(&mut shard, b"integers", &[at.to_string().as_bytes()]);
    }
    assert_eq!(encoding(&mut shard, b"integers"), "intset");
    // The smallest width, and ascending order.
    let (_, _, value) = of(&mut shard, b"integers", SetCommand::All);
    let told: Vec<Vec<u8>> =
        Items::parse(&value.unwrap()).unwrap().iter().flatten().map(<[u8]>::to_vec).collect();
    assert!(
        told.iter().map(|of| std::str::from_utf8(of).unwrap().parse::<u32>().unwrap()).is_sorted()
    );
    add(&mut shard, b"integers", &[b"-1"]);
    assert_eq!(encoding(&mut shard, b"integers"), "hashtable");
    for at in 0..WHOLE_ITEMS as u64 {
        add(&mut shard, b"items", &[&member(at)]);
    }
    // Redis 7.0 has one word for both forms; what a record holds says which it is.
    assert_eq!(encoding(&mut shard, b"items"), "hashtable");
    add(&mut shard, b"items", &[b"one more"]);
    assert_eq!(encoding(&mut shard, b"items"), "hashtable");
    add(&mut shard, b"mixed", &[b"1", b"2"]);
    add(&mut shard, b"mixed", &[b"x"]);
    remove(&mut shard, b"mixed", &[b"x"]);
    assert_eq!(encoding(&mut shard, b"mixed"), "hashtable", "it stays so, as in Redis");
    add(&mut shard, b"long", &[&[b'l'; WHOLE_ITEM_BYTES + 1]]);
    assert_eq!(encoding(&mut shard, b"long"), "hashtable");
    shard.audit().unwrap();
}

/// Members of so many bytes whose hashes lead to the same bin of a set with this root record.
fn of_one_bin(root: u64, count: usize) -> Vec<Vec<u8>> {
    let (slot, generation) = root_of_word(root);
    let seed = part_hash_seed(0, slot, generation);
    // The low bits say the bin, however many there are.
    let is_one = |of: &Vec<u8>| KeyHash::of(of, seed).0 as u32 & 0xfff == 0;
    (0..).map(|at: u64| format!("c{at}").into_bytes()).filter(is_one).take(count).collect()
}

#[test]
fn a_full_bin_spills_its_members() {
    let mut shard = shard(16 << 20, Eviction::None);
    let mut model = fill(&mut shard, b"s", 0..200);
    let root = of(&mut shard, b"s", SetCommand::Contains { member: &member(0) }).1 as u64;
    let chosen = of_one_bin(root, 3 * BIN_MOST_MEMBERS);
    for of in &chosen {
        assert_eq!(add(&mut shard, b"s", &[of]), (Status::Ok, 1));
        assert_eq!(add(&mut shard, b"s", &[of]), (Status::Ok, 0));
        model.insert(of.clone());
    }
    shard.audit().unwrap();
    assert_eq!(all(&mut shard, b"s"), model);
    // The bins grow around them, and spilled members are still found.
    model.extend(fill(&mut shard, b"s", 200..3_000));
    assert_eq!(all(&mut shard, b"s"), model);
    let mut scanned = Set::new();
    let mut cursor = 0;
    loop {
        let (next, some) = scan(&mut shard, b"s", cursor, 50);
        scanned.extend(some);
        cursor = next;
        if cursor == 0 {
            break;
        }
    }
    assert_eq!(scanned, model);
    for of in chosen.iter().step_by(2) {
        assert_eq!(remove(&mut shard, b"s", &[of]), (Status::Ok, 1));
        model.remove(of);
    }
    for of in &chosen {
        assert_eq!(add(&mut shard, b"s", &[of]).1, i64::from(model.insert(of.clone())));
    }
    shard.audit().unwrap();
    assert_eq!(all(&mut shard, b"s"), model);
}

#[test]
fn a_read_in_turns_tells_of_the_set_as_it_was() {
    for ending in 0..3 {
        let mut shard = shard(16 << 20, Eviction::None);
        let model = fill(&mut shard, b"s", 0..20_000);
        let request = SetCommand::All.request();
        let key = (&b"s"[..], shard.hash(b"s"));
        let mut read = shard.begin_read(key, request, NOW).unwrap();
        let (mut found, mut turns, mut random) = (Vec::new(), 0, Random::new(ending));
        loop {
            let turn = shard.read_turn(&mut read, &mut found, NOW).unwrap();
            turns += 1;
            if turn.ended {
                assert_eq!(turn.number as usize, model.len());
                break;
            }
            for _ in 0..300 {
                let of = member(random.below(24_000));
                match random.below(3) {
                    0 => drop(remove(&mut shard, b"s", &[&of])),
                    _ => drop(add(&mut shard, b"s", &[&of])),
                }
            }
            match ending {
                1 if turns == 2 => drop(ask(&mut shard, &Command::Del { key: b"s" })),
                2 if turns == 2 => drop(ask(&mut shard, &Command::Flush)),
                _ => {}
            }
        }
        assert!(turns > 3, "{turns}");
        assert_eq!(as_set(&found), model, "ending {ending}");
        release_all(&mut shard);
        shard.audit().unwrap();
    }
}

/// An operation in turns, beside changes between them: what it gives, its number, and its turns.
fn in_turns(
    shard: &mut Shard,
    command: SetCommand<'_>,
    mut between: impl FnMut(&mut Shard),
) -> (Vec<u8>, i64, usize) {
    let at = (&b"s"[..], shard.hash(b"s"));
    let mut read = shard.begin_read(at, command.request(), NOW).unwrap();
    let (mut found, mut turns) = (Vec::new(), 0);
    loop {
        let turn = shard.read_turn(&mut read, &mut found, NOW).unwrap();
        turns += 1;
        if turn.ended {
            return (found, turn.number, turns);
        }
        between(shard);
    }
}

/// Members that come to the key after the last one has left are not popped.
#[test]
fn what_comes_after_the_last_member_has_left_is_not_popped() {
    for members in [3, 3_000] {
        let mut shard = shard(64 << 20, Eviction::None);
        let model = fill(&mut shard, b"s", 0..members);
        let mut is_first = true;
        let (found, number, _) = in_turns(&mut shard, SetCommand::Pop { count: 10_000 }, |shard| {
            if std::mem::take(&mut is_first) {
                assert_eq!(add(shard, b"s", &[&member(0)]), (Status::Ok, 1));
            }
        });
        assert!(!is_first, "it has turns");
        assert_eq!((number as u64, as_set(&found)), (members, model));
        assert_eq!(all(&mut shard, b"s"), Set::from([member(0)]));
    }
}

#[test]
fn more_members_than_one_change_may_take_leave_in_pieces() {
    const COUNT: u64 = MAX_COMMAND_ITEMS as u64 + 10_000;
    let mut shard = shard(64 << 20, Eviction::None);
    let mut model = fill(&mut shard, b"s", 0..100_000);
    let (mut added, mut at) = (Set::new(), 200_000);
    let mut sequence = shard.last_sequence();
    let (found, number, turns) = in_turns(&mut shard, SetCommand::Pop { count: COUNT }, |shard| {
        // Each turn is one change of so many members at most, and others come between.
        assert_eq!(shard.last_sequence(), sequence + 1);
        let of = member(at);
        assert_eq!(add(shard, b"s", &[&of]), (Status::Ok, 1));
        added.insert(of);
        (at, sequence) = (at + 1, shard.last_sequence());
    });
    let popped = as_set(&found);
    assert_eq!((number as u64, popped.len() as u64), (COUNT, COUNT));
    assert!(turns as u64 > COUNT / POP_TURN_MEMBERS, "{turns}");
    model.extend(added);
    assert!(popped.is_subset(&model));
    assert_eq!(all(&mut shard, b"s"), &model - &popped);
    shard.audit().unwrap();
}

#[test]
fn all_members_of_a_large_set_leave_as_one_change() {
    let mut shard = shard(64 << 20, Eviction::None);
    let model = fill(&mut shard, b"s", 0..100_000);
    let (before, mut is_first) = (shard.last_sequence(), true);
    let (found, number, _) =
        in_turns(&mut shard, SetCommand::Pop { count: u64::MAX >> 1 }, |shard| {
            if std::mem::take(&mut is_first) {
                assert_eq!(shard.last_sequence(), before + 1);
                assert_eq!(of(shard, b"s", SetCommand::Length).1, 0);
                // What comes now is another set.
                assert_eq!(add(shard, b"s", &[b"new"]), (Status::Ok, 1));
            }
            shard.release_some(NOW);
        });
    assert_eq!(number as usize, model.len());
    assert_eq!(as_set(&found), model);
    assert_eq!(all(&mut shard, b"s"), Set::from([b"new".to_vec()]));
    release_all(&mut shard);
    shard.audit().unwrap();
}

#[test]
fn a_few_members_are_drawn_without_a_look_at_all() {
    let mut shard = shard(64 << 20, Eviction::None);
    let model = fill(&mut shard, b"s", 0..100_000);
    let (mut seen, draw) = (Set::new(), |shard: &mut Shard, count| {
        let (found, number, turns) = in_turns(shard, SetCommand::Random { count }, |_| {});
        let members = as_set(&found);
        assert_eq!((number as usize, members.len()), (count as usize, count as usize));
        (members, turns)
    });
    for _ in 0..200 {
        let (members, turns) = draw(&mut shard, 1_000);
        assert_eq!(turns, 1);
        assert!(members.is_subset(&model));
        seen.extend(members);
    }
    // 200,000 lots leave some 13.5 % of the members: e^-2.
    let share = seen.len() as f64 / model.len() as f64;
    assert!((0.85..0.88).contains(&share), "{share}");
    assert!(draw(&mut shard, 90_000).1 > 10);
    // Where most members have gone, all that is left is read.
    let mut left: Vec<Vec<u8>> = model.into_iter().collect();
    for some in left.split_off(100).chunks(1_000) {
        let some: Vec<&[u8]> = some.iter().map(Vec::as_slice).collect();
        remove(&mut shard, b"s", &some);
    }
    assert!(draw(&mut shard, 20).0.is_subset(&left.into_iter().collect()));
}

#[test]
fn sets_are_combined_as_they_were_when_the_read_began() {
    for (ending, how) in (0..4).flat_map(|ending| HOW.map(|how| (ending, how))) {
        let mut shard = shard(32 << 20, Eviction::None);
        let sets = [
            fill(&mut shard, b"a", 0..12_000),
            fill(&mut shard, b"b", 6_000..20_000),
            fill(&mut shard, b"c", 3_000..14_000),
        ];
        let made = combined(how, &sets);
        let items = list([&b"b"[..], b"c"]);
        let others = Others { has_before: false, items: Items::parse(&items).unwrap() };
        let request = SetCommand::Combine { how, others, count_to: None }.request();
        let key = (&b"a"[..], shard.hash(b"a"));
        let mut read = shard.begin_read(key, request, NOW).unwrap();
        let (mut found, mut turns, mut random) = (Vec::new(), 0, Random::new(ending));
        while !shard.read_turn(&mut read, &mut found, NOW).unwrap().ended {
            turns += 1;
            // None, one, or all of them change; or one goes.
            for _ in 0..if ending == 0 || turns > 30 { 0 } else { 100 } {
                let name: &[u8] = [b"b", b"a", b"c"][random.below(ending.min(3)) as usize];
                let of = member(random.below(24_000));
                match random.below(2) {
                    0 => drop(remove(&mut shard, name, &[&of])),
                    _ => drop(add(&mut shard, name, &[&of])),
                }
            }
            if ending == 2 && turns == 1 {
                ask(&mut shard, &Command::Del { key: b"c" });
                shard.release_some(NOW);
            }
        }
        assert!(turns > 1, "{turns}");
        assert_eq!(as_set(&found), made, "{how:?}, ending {ending}");
        drop(read);
        release_all(&mut shard);
        shard.audit().unwrap();
    }
}

/// Begins a read of several sets.
fn begin(
    shard: &mut Shard,
    how: Combination,
    keys: &[Vec<u8>],
    count_to: Option<u64>,
) -> Result<LongRead, Status> {
    let items = list(keys[1..].iter().map(|key| &key[..]));
    let others = Others { has_before: false, items: Items::parse(&items).unwrap() };
    let request = SetCommand::Combine { how, others, count_to }.request();
    let key = (&keys[0][..], shard.hash(&keys[0]));
    shard.begin_read(key, request, NOW).map_err(|reply| reply.status)
}

#[test]
fn a_turn_looks_up_a_bounded_number_of_members_in_however_many_sets() {
    const SETS: u64 = 1_500;
    const BASE: u64 = 30;
    for changes in [false, true] {
        let mut shard = shard(64 << 20, Eviction::None);
        let keys: Vec<Vec<u8>> = (0..SETS).map(|at| format!("set {at}").into_bytes()).collect();
        let members: Vec<Vec<u8>> = (0..BASE).map(member).collect();
        let mut members: Vec<&[u8]> = members.iter().map(|member| &member[..]).collect();
        let common = members.iter().map(|member| member.to_vec()).collect::<Set>();
        add(&mut shard, &keys[0], &members);
        // A long member, so that each has bins.
        let long = [b'l'; 100];
        members.push(&long);
        for key in &keys[1..] {
            assert_eq!(add(&mut shard, key, &members), (Status::Ok, BASE as i64 + 1));
        }
        let mut read = begin(&mut shard, Combination::Inter, &keys, None).unwrap();
        let (mut found, mut turns) = (Vec::new(), 0);
        while !shard.read_turn(&mut read, &mut found, NOW).unwrap().ended {
            turns += 1;
            if changes && turns == 3 {
                // In the middle of a member's lookups.
                assert_eq!(remove(&mut shard, &keys[700], &[&member(3)]), (Status::Ok, 1));
            }
        }
        assert_eq!(as_set(&found), common);
        let needed = BASE * (SETS - 1) / COMBINE_TURN_MEMBERS as u64;
        assert!(needed > 5 && turns >= needed, "{turns} turns");
    }
}

#[test]
fn a_key_that_is_named_again_is_read_once() {
    let mut shard = shard(32 << 20, Eviction::None);
    let all = fill(&mut shard, b"a", 0..2_000);
    let many = fill(&mut shard, b"b", 0..1_000);
    let again = |of: &[u8]| vec![of.to_vec(); 10_000];
    let rest: Set = all.difference(&many).cloned().collect();
    for (how, other, made) in [
        (Combination::Inter, b"a", all.clone()),
        (Combination::Union, b"a", all.clone()),
        (Combination::Diff, b"a", Set::new()),
        (Combination::Inter, b"b", many.clone()),
        (Combination::Union, b"b", all.clone()),
        (Combination::Diff, b"b", rest),
    ] {
        let keys = [vec![b"a".to_vec()], again(other)].concat();
        let mut read = begin(&mut shard, how, &keys, None).unwrap();
        let (mut found, mut turns) = (Vec::new(), 1);
        while !shard.read_turn(&mut read, &mut found, NOW).unwrap().ended {
            turns += 1;
        }
        assert_eq!(as_set(&found), made, "{how:?}");
        assert!(turns < 10, "{how:?}: {turns} turns");
    }
    add(&mut shard, b"small", &[b"1"]);
    ask(&mut shard, &Command::Append { key: b"string", value: b"1" });
    let keys = [&b"a"[..], b"a", b"string"].map(<[u8]>::to_vec);
    let refused = begin(&mut shard, Combination::Diff, &keys, None);
    assert_eq!(refused.err(), Some(Status::WrongType));
}

/// Their copies would take more than a reply may.
#[test]
fn too_many_small_sets_are_not_combined() {
    let mut shard = shard(128 << 20, Eviction::None);
    let members: Vec<Vec<u8>> =
        (0..WHOLE_ITEMS).map(|at| format!("{at:0WHOLE_ITEM_BYTES$}x").into_bytes()).collect();
    let members: Vec<&[u8]> = members.iter().map(|member| &member[1..]).collect();
    let keys: Vec<Vec<u8>> = (0..4_200).map(|at| format!("set {at}").into_bytes()).collect();
    for key in &keys {
        assert_eq!(add(&mut shard, key, &members), (Status::Ok, WHOLE_ITEMS as i64));
    }
    assert!(begin(&mut shard, Combination::Inter, &keys[..3_000], None).is_ok());
    let refused = begin(&mut shard, Combination::Inter, &keys, None);
    assert_eq!(refused.err(), Some(Status::TooLarge));
}

/// What is left of the base has to be gathered then, whatever the size of the result.
#[test]
fn a_large_base_beside_a_writer_is_outrun() {
    for changes in [false, true] {
        let mut shard = shard(160 << 20, Eviction::None);
        for at in 0..1_200u32 {
            let mut long = vec![b'l'; 60_000];
            long[..4].copy_from_slice(&at.to_le_bytes());
            assert_eq!(add(&mut shard, b"base", &[&long]), (Status::Ok, 1));
        }
        fill(&mut shard, b"other", 0..2_000);
        let keys = [b"base".to_vec(), b"other".to_vec()];
        let mut read = begin(&mut shard, Combination::Inter, &keys, Some(0)).unwrap();
        let mut found = Vec::new();
        assert!(!shard.read_turn(&mut read, &mut found, NOW).unwrap().ended);
        if changes {
            assert_eq!(remove(&mut shard, b"other", &[&member(7)]), (Status::Ok, 1));
        }
        let ended = loop {
            match shard.read_turn(&mut read, &mut found, NOW) {
                Ok(turn) if turn.ended => break Ok(turn.number),
                Ok(_) => {}
                Err(status) => break Err(status),
            }
        };
        assert_eq!(ended, if changes { Err(Status::Outrun) } else { Ok(0) });
    }
}

fn scan(shard: &mut Shard, key: &[u8], cursor: u64, count: u64) -> (u64, Vec<Vec<u8>>) {
    let mut options = Vec::new();
    Items::push_none(&mut options);
    Items::push(&mut options, &count.to_le_bytes());
    let options = Items::parse(&options).unwrap();
    let (_, next, value) = of(shard, key, SetCommand::Scan { cursor, options });
    let value = value.unwrap();
    let items = Items::parse(&value).unwrap();
    (next as u64, items.iter().flatten().map(<[u8]>::to_vec).collect())
}

#[test]
fn a_scan_meets_every_member_that_is_there_all_the_time() {
    let mut shard = shard(16 << 20, Eviction::None);
    let mut kept = fill(&mut shard, b"s", 0..3_000);
    for at in 0..300 {
        let long = format!("{at} {}", "l".repeat(WHOLE_ITEM_BYTES)).into_bytes();
        add(&mut shard, b"s", &[&long]);
        kept.insert(long);
    }
    let (mut met, mut cursor, mut added) = (Set::new(), 0, 3_000);
    loop {
        let (next, some) = scan(&mut shard, b"s", cursor, 50);
        assert!(some.len() < 200, "a step is bounded");
        met.extend(some);
        // The bins grow meanwhile.
        fill(&mut shard, b"s", added..added + 40);
        added += 40;
        cursor = next;
        if cursor == 0 {
            break;
        }
    }
    assert!(kept.is_subset(&met));
}

#[test]
fn each_member_is_drawn_as_often_as_others() {
    let mut shard = shard(16 << 20, Eviction::None);
    let model = fill(&mut shard, b"s", 0..1_000);
    let (draws, mut counts) = (100_000, BTreeMap::<Vec<u8>, u64>::new());
    let (_, _, value) = of(&mut shard, b"s", SetCommand::Random { count: -draws });
    let value = value.unwrap();
    for of in Items::parse(&value).unwrap().iter().flatten() {
        *counts.entry(of.to_vec()).or_default() += 1;
    }
    assert_eq!(counts.len(), model.len());
    // 100 each, give or take ten: six times as much is beyond chance.
    assert!(counts.values().all(|count| (40..160).contains(count)));
}

#[test]
fn a_member_of_a_large_set_costs_few_bytes() {
    const MEMBERS: u64 = 100_000;
    let mut shard = shard(32 << 20, Eviction::None);
    let before = shard.stats().slots;
    for at in 0..MEMBERS {
        add(&mut shard, b"s", &[format!("{at:08}").as_bytes()]);
    }
    let after = shard.stats().slots;
    let used = after.used_bytes + after.run_bytes - before.used_bytes - before.run_bytes;
    // Nine bytes with its length. A bin's header, its name, its slot and its place in the table are
    // shared by its members.
    let each = used / MEMBERS;
    assert!((9..9 + 128 / BIN_MEMBERS).contains(&each), "{each}");
}

/// Many members of one command fill no bin that is split in that command.
#[test]
fn members_that_come_at_once_cost_as_few_bytes() {
    for (members, stores) in [(10_000, false), (8_192, true)] {
        let mut shard = shard(32 << 20, Eviction::None);
        let before = shard.stats().slots;
        let all: Vec<Vec<u8>> = (0..members).map(|at| format!("{at:08}").into_bytes()).collect();
        let all = list(all.iter().map(|member| &member[..]));
        let all = Items::parse(&all).unwrap();
        let command = match stores {
            true => SetCommand::Store { members: all },
            false => SetCommand::Add { members: all },
        };
        let (status, added, _) = of(&mut shard, b"s", command);
        assert_eq!((status, added as u64), (Status::Ok, members));
        let after = shard.stats().slots;
        let used = after.used_bytes + after.run_bytes - before.used_bytes - before.run_bytes;
        let each = used / members;
        assert!((9..9 + 128 / BIN_MEMBERS).contains(&each), "{stores}: {each}");
        shard.audit().unwrap();
    }
}

#[test]
fn a_change_without_room_leaves_no_trace() {
    let mut shard = shard(1 << 20, Eviction::None);
    let (mut model, mut refused) = (Model::new(), 0);
    for at in 0..200_000u64 {
        let key = format!("k{}", at % 3).into_bytes();
        let names = [format!("a{at}").into_bytes(), format!("b{at}").into_bytes()];
        let names = &names[at as usize % 2..];
        let members: Vec<&[u8]> = names.iter().map(|of| &of[..]).collect();
        match add(&mut shard, &key, &members) {
            (Status::Ok, added) => {
                assert_eq!(added as usize, members.len());
                model.entry(key).or_default().extend(names.iter().cloned());
            }
            (status, _) => {
                assert_eq!(status, Status::OutOfMemory);
                refused += 1;
            }
        }
        if refused == 20 {
            break;
        }
    }
    assert_eq!(refused, 20);
    shard.audit().unwrap();
    for (key, set) in &model {
        assert_eq!(&all(&mut shard, key), set);
    }
    // A removed set makes room for another.
    ask(&mut shard, &Command::Del { key: b"k0" });
    assert_eq!(add(&mut shard, b"k3", &[b"member", &[7; 60_000]]), (Status::Ok, 2));
    shard.audit().unwrap();
}

/// Members that come one by one while records are moved to make room for them.
#[test]
fn single_members_come_while_memory_is_short_and_parts_move() {
    let (mut moved, mut refused) = (0, 0);
    for seed in 0..4 {
        let mut shard = shard(1 << 20, Eviction::None);
        let (mut model, mut random) = (Model::new(), Random::new(seed));
        for at in 0..60_000u64 {
            let other = format!("string {}", random.below(400)).into_bytes();
            match random.below(4) {
                0 => {
                    let value = vec![7; random.below(2_500) as usize];
                    let (condition, expiry) = (Condition::Always, Expiry::Never);
                    let key = &other[..];
                    let set = Command::Set { key, value: &value, condition, expiry, get: false };
                    ask(&mut shard, &set);
                }
                1 => _ = ask(&mut shard, &Command::Del { key: &other }),
                _ => {
                    let key = format!("set {}", random.below(3)).into_bytes();
                    let new = member(random.below(60_000));
                    let set = model.entry(key.clone()).or_default();
                    match add(&mut shard, &key, &[&new]) {
                        (Status::Ok, added) => {
                            assert_eq!(added == 1, set.insert(new));
                        }
                        (status, _) => {
                            assert_eq!(status, Status::OutOfMemory);
                            refused += 1;
                        }
                    }
                }
            }
            if at % 6_000 == 0 {
                shard.audit().unwrap();
            }
        }
        shard.audit().unwrap();
        for (key, set) in &model {
            assert_eq!(&all(&mut shard, key), set);
        }
        moved += shard.stats().moved;
    }
    assert!(moved > 100 && refused > 100, "{moved} moved, {refused} refused");
}

#[test]
fn the_places_of_bins_count_in_memory_as_long_as_the_set_is_there() {
    let heap = |shard: &mut Shard| {
        release_all(shard);
        shard.tick(NOW);
        shard.audit().unwrap();
        shard.stats().heap_bytes
    };
    let mut shard = shard(64 << 20, Eviction::None);
    fill(&mut shard, b"s", 0..100_000);
    let bins = 100_000 / remora_layout::limits::BIN_MEMBERS;
    let bytes = heap(&mut shard);
    assert!((4 * bins..8 * bins).contains(&bytes), "{bytes} bytes for {bins} bins");
    ask(&mut shard, &Command::Del { key: b"s" });
    assert_eq!(heap(&mut shard), 0);
    fill(&mut shard, b"s", 0..10_000);
    ask(&mut shard, &Command::FlushAll);
    assert_eq!(heap(&mut shard), 0);
    // A set that finds no room midway.
    let mut shard = self::shard(1 << 20, Eviction::None);
    let members: Vec<Vec<u8>> = (0..60_000).map(member).collect();
    let list = list(members.iter().map(|of| &of[..]));
    let stored = of(&mut shard, b"s", SetCommand::Store { members: Items::parse(&list).unwrap() });
    assert_eq!((stored.0, heap(&mut shard)), (Status::OutOfMemory, 0));
}

/// Whether a reader believes that a member is in the set; none if it has to ask.
fn believed(
    shard: &Shard,
    (key, member, pointer, root): (&[u8], &[u8], RemotePointer, u64),
    record: &[u8],
) -> Option<bool> {
    let table = shard.table_ref();
    if root == 0 {
        let (slot, generation) = (pointer.slot, Some(pointer.generation));
        let kind = Kind::SET.whole();
        let found = verify(record, table.secret, table.region, slot, generation, kind, key).ok()?;
        return Some(packs(found.value, member));
    }
    let object = ObjectRef::of_root(&table, 0, root);
    let name = key_in(record)?;
    let found = object.verify_part(record, pointer, Kind::SET_PART, name).ok()?;
    let mut words = [0; ROOT_WORDS_BYTES];
    assert!(shard.owner().view().fetch(object.root_range().0, &mut words));
    object.check_root(&words).ok()?;
    part_holds(name, found.value, member).then_some(true)
}

fn bytes_at(shard: &Shard, pointer: RemotePointer) -> Vec<u8> {
    let mut bytes = vec![0; pointer.length as usize];
    assert!(shard.owner().view().fetch(pointer.offset(), &mut bytes));
    bytes
}

/// What a reader has learnt: a member that was asked for, and where the answer stands.
type Known = Vec<(Vec<u8>, Vec<u8>, RemotePointer, u64)>;

fn learn(shard: &mut Shard, known: &mut Known, random: &mut Random) {
    let key = format!("set {}", random.below(5)).into_bytes();
    let member = draw_member(random);
    let request = SetCommand::Contains { member: &member }.request();
    let hash = shard.hash(&key);
    let reply = shard.execute(&Command::Of { key: &key, request }, hash, NOW);
    let (pointer, root) = (reply.pointer, reply.number as u64);
    if pointer.length == 0 {
        return;
    }
    let fact = (key, member, pointer, root);
    match known.len() < 200 {
        true => known.push(fact),
        false => known[random.below(200) as usize] = fact,
    }
}

#[test]
fn readers_believe_what_was_before_or_is_now_and_nothing_else() {
    for seed in 10..13 {
        let mut shard = shard(8 << 20, Eviction::None);
        let (mut model, mut random) = (Model::new(), Random::new(seed));
        let mut known = Known::new();
        let (mut there, mut not, mut torn) = (0, 0, 0);
        let holds = |model: &Model, key: &[u8], member: &[u8]| {
            model.get(key).is_some_and(|set| set.contains(member))
        };
        for at in 0..6_000 {
            learn(&mut shard, &mut known, &mut random);
            let before: Vec<(Vec<u8>, bool)> = known
                .iter()
                .map(|(key, member, pointer, _)| {
                    (bytes_at(&shard, *pointer), holds(&model, key, member))
                })
                .collect();
            step(&mut shard, &mut model, &mut random);
            if at % 50 == 0 {
                shard.tick(NOW);
            }
            for ((key, member, pointer, root), (old, held_before)) in known.iter().zip(&before) {
                let held = holds(&model, key, member);
                let new = bytes_at(&shard, *pointer);
                let told = believed(&shard, (key, member, *pointer, *root), &new);
                assert!(told.is_none_or(|told| told == held), "seed {seed}, step {at}");
                there += u64::from(told == Some(true));
                not += u64::from(told == Some(false));
                // A READ that was under way during the step has words of both times.
                for cut in (0..old.len()).step_by(8).filter(|_| *old != new) {
                    for (first, second) in [(old, &new), (&new, old)] {
                        let mixed = [&first[..cut], &second[cut..]].concat();
                        let told = believed(&shard, (key, member, *pointer, *root), &mixed);
                        let is_one = told.is_none_or(|told| told == held || told == *held_before);
                        assert!(is_one, "seed {seed}, step {at}, cut {cut}");
                        torn += 1;
                    }
                }
            }
        }
        assert!(there > 10_000 && not > 1_000 && torn > 1_000, "{there} {not} {torn}");
    }
}
