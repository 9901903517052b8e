//! Hashes against a map of maps: small and large ones, growth from one to the
//! other, reads in turns beside changes, removal, full memory, eviction.

use remora_arena::{NoJournal, Owner};
use remora_engine::{Eviction, Now, Shard, ShardOptions};
use remora_index::hash::ObjectRef;
use remora_layout::kind::Kind;
use remora_layout::limits::{
    MAX_COMMAND_ITEMS, OBJECT_LOAD_QUARTERS, PARTS_TURN_BUCKETS, RELEASE_RECORDS, RELEASE_TURNS,
    WHOLE_ITEMS,
};
use remora_layout::packed;
use remora_layout::pointer::RemotePointer;
use remora_layout::record::verify;
use remora_protocol::hash::{HashCommand, Told};
use remora_protocol::message::Status;
use remora_protocol::{Command, Condition, ExpireCondition, Expiry, Items};
use remora_testing::Random;
use remora_walk::Memory;
use std::collections::BTreeMap;

const NOW: Now = Now { unix_ms: 1_700_000_000_000, since_start_s: 5 };

type Hash = BTreeMap<Vec<u8>, Vec<u8>>;
type Answer = (Status, i64, Option<Vec<u8>>);

fn shard(bytes: usize, eviction: Eviction) -> Shard {
    let options = ShardOptions { eviction, record_secret: 7, ..ShardOptions::default() };
    Shard::new(Owner::heap(bytes, NoJournal), options)
}

fn ask(shard: &mut Shard, command: &Command<'_>, now: Now) -> Answer {
    let hash = command.key().map_or(shard.hash(b""), |key| shard.hash(key));
    let reply = shard.execute(command, hash, now);
    (reply.status, reply.number, reply.value.map(<[u8]>::to_vec))
}

fn of(shard: &mut Shard, key: &[u8], command: HashCommand<'_>) -> Answer {
    ask(shard, &Command::Of { key, request: command.request() }, NOW)
}

fn list(items: &[&[u8]]) -> Vec<u8> {
    let mut list = Vec::new();
    items.iter().for_each(|item| Items::push(&mut list, item));
    list
}

fn set(shard: &mut Shard, key: &[u8], pairs: &[(&[u8], &[u8])]) -> (Status, i64) {
    let items: Vec<&[u8]> = pairs.iter().flat_map(|(name, value)| [*name, *value]).collect();
    let list = list(&items);
    let (status, number, _) =
        of(shard, key, HashCommand::Set { pairs: Items::parse(&list).unwrap() });
    (status, number)
}

fn remove(shard: &mut Shard, key: &[u8], names: &[&[u8]]) -> (Status, i64) {
    let list = list(names);
    let (status, number, _) =
        of(shard, key, HashCommand::Remove { names: Items::parse(&list).unwrap() });
    (status, number)
}

fn as_map(value: &[u8]) -> Hash {
    let items: Vec<&[u8]> = Items::parse(value).unwrap().iter().flatten().collect();
    let mut map = Hash::new();
    for pair in items.chunks(2) {
        assert_eq!(map.insert(pair[0].into(), pair[1].into()), None, "told twice");
    }
    map
}

fn all(shard: &mut Shard, key: &[u8]) -> Hash {
    let (status, number, value) = of(shard, key, HashCommand::All { told: Told::Both });
    assert_eq!(status, Status::Ok);
    let map = as_map(&value.unwrap());
    assert_eq!(number as usize, 2 * map.len());
    map
}

fn fill(shard: &mut Shard, key: &[u8], fields: u64) -> Hash {
    let mut hash = Hash::new();
    for at in 0..fields {
        let (name, value) = (format!("field {at}").into_bytes(), at.to_string().into_bytes());
        assert_eq!(set(shard, key, &[(&name, &value)]), (Status::Ok, 1));
        hash.insert(name, value);
    }
    hash
}

fn name(at: u64) -> Vec<u8> {
    format!("field {at}").into_bytes()
}

fn release_all(shard: &mut Shard) -> u64 {
    let mut turns = 0;
    while shard.wants_release() {
        shard.release_some(NOW);
        turns += 1;
    }
    turns
}

/// Adds 3 to a field that holds `old`. Returns the new value, if that was a number.
fn increment(shard: &mut Shard, key: &[u8], (name, old): (&[u8], Option<Vec<u8>>)) -> Option<i64> {
    let (status, sum, _) = of(shard, key, HashCommand::Increment { name, by: 3 });
    let before = match &old {
        None => Some(0),
        Some(text) => std::str::from_utf8(text).unwrap().parse::<i64>().ok(),
    };
    match before {
        Some(before) => assert_eq!((status, sum), (Status::Ok, before + 3)),
        None => assert_eq!(status, Status::NotAnInteger),
    }
    before.map(|_| sum)
}

/// Asks for so many fields of a hash by chance: as HRANDFIELD does.
fn draw_fields(shard: &mut Shard, key: &[u8], held: &Hash, count: i64) {
    let command = HashCommand::Random { count, told: Told::Both };
    let (_, items, value) = of(shard, key, command);
    let list = Items::parse(value.as_deref().unwrap()).unwrap();
    let told: Vec<&[u8]> = list.iter().flatten().collect();
    assert_eq!(items as usize, told.len());
    assert!(told.chunks(2).all(|pair| held.get(pair[0]).is_some_and(|v| v == pair[1])));
    let least = count.unsigned_abs() as usize;
    let most = if count > 0 { least.min(held.len()) } else { least };
    assert_eq!(told.len() / 2, if held.is_empty() { 0 } else { most });
    assert!(count < 0 || as_map(value.as_deref().unwrap()).len() == most);
}

/// One random operation on both.
fn step(shard: &mut Shard, model: &mut BTreeMap<Vec<u8>, Hash>, random: &mut Random) {
    let key = format!("hash {}", random.below(4)).into_bytes();
    // Most names come back; some make a hash large, and one is long.
    let name = match random.below(20) {
        0 => vec![b'n'; 60 + random.below(10) as usize],
        1..8 => format!("rare {}", random.below(400)).into_bytes(),
        _ => format!("n{}", random.below(20)).into_bytes(),
    };
    let value = match random.below(12) {
        0 => vec![b'v'; 60 + random.below(200) as usize],
        _ => (random.below(2_000) as i64 - 1_000).to_string().into_bytes(),
    };
    let held = model.get(&key).cloned().unwrap_or_default();
    let old = held.get(&name).cloned();
    match random.below(13) {
        0..5 => {
            let answer = set(shard, &key, &[(&name, b"first"), (&name, &value)]);
            assert_eq!(answer, (Status::Ok, old.is_none() as i64));
            model.entry(key).or_default().insert(name, value);
        }
        5 => {
            let list = list(&[&name, &value]);
            let pair = Items::parse(&list).unwrap();
            let answer = of(shard, &key, HashCommand::SetAbsent { pair });
            assert_eq!(answer.1, old.is_none() as i64);
            model.entry(key).or_default().entry(name).or_insert(value);
        }
        6 | 7 => {
            let answer = remove(shard, &key, &[&name, b"nowhere", &name]);
            assert_eq!(answer, (Status::Ok, old.is_some() as i64));
            if let Some(hash) = model.get_mut(&key) {
                hash.remove(&name);
                if hash.is_empty() {
                    model.remove(&key);
                }
            }
        }
        8 => {
            let sum = increment(shard, &key, (&name, old));
            if let Some(sum) = sum {
                model.entry(key).or_default().insert(name, sum.to_string().into_bytes());
            }
        }
        9 => {
            let (status, root, value) = of(shard, &key, HashCommand::Get { name: &name });
            let expected = if old.is_some() { Status::Ok } else { Status::NotFound };
            assert_eq!((status, &value), (expected, &old));
            let answer = ask(shard, &Command::Type { key: &key }, NOW);
            let is_hash = answer.0 == Status::Ok && answer.1 == i64::from(Kind::HASH.0);
            assert_eq!(is_hash, !held.is_empty());
            assert!(root == 0 || old.is_some());
        }
        10 => {
            draw_fields(shard, &key, &held, random.below(12) as i64 - 4);
        }
        11 => {
            let length = of(shard, &key, HashCommand::Length);
            assert_eq!(length.1 as usize, held.len());
        }
        _ if random.below(40) == 0 => {
            assert_eq!(ask(shard, &Command::Del { key: &key }, NOW).1, !held.is_empty() as i64);
            model.remove(&key);
        }
        _ => {}
    }
}

#[test]
fn random_operations_agree_with_a_map_of_maps() {
    for seed in 0..4 {
        let mut shard = shard(4 << 20, Eviction::None);
        let (mut model, mut random) = (BTreeMap::new(), Random::new(seed));
        let mut has_been_large = false;
        for at in 0..12_000 {
            step(&mut shard, &mut model, &mut random);
            if at % 400 == 0 {
                shard.tick(NOW);
                shard.audit().unwrap();
                for key in (0..4).map(|at| format!("hash {at}").into_bytes()) {
                    assert_eq!(all(&mut shard, &key), model.get(&key).cloned().unwrap_or_default());
                }
            }
            has_been_large |= model.values().any(|hash| hash.len() > WHOLE_ITEMS);
        }
        assert!(has_been_large, "seed {seed}");
    }
}

#[test]
fn a_read_in_turns_tells_of_the_hash_as_it_was() {
    for ending in 0..4 {
        let mut shard = shard(16 << 20, Eviction::None);
        let model = fill(&mut shard, b"h", 9_000);
        let request = HashCommand::All { told: Told::Both }.request();
        let key = (&b"h"[..], shard.hash(b"h"));
        let mut read = shard.begin_read(key, request, NOW).unwrap();
        let (mut found, mut turns, mut random) = (Vec::new(), 0, Random::new(ending));
        loop {
            let turn = shard.read_turn(&mut read, &mut found, Now::default()).unwrap();
            turns += 1;
            if turn.ended {
                assert_eq!(turn.number as usize, 2 * model.len());
                break;
            }
            for _ in 0..300 {
                let name = format!("field {}", random.below(9_500)).into_bytes();
                match random.below(3) {
                    0 => drop(remove(&mut shard, b"h", &[&name])),
                    _ => drop(set(&mut shard, b"h", &[(&name, b"changed")])),
                }
            }
            // The whole hash goes, in one way or another.
            match ending {
                1 if turns == 2 => drop(ask(&mut shard, &Command::Del { key: b"h" }, NOW)),
                2 if turns == 2 => drop(ask(&mut shard, &Command::Flush, NOW)),
                3 if turns == 2 => {
                    let (condition, expiry) = (Condition::Always, Expiry::Never);
                    let set =
                        Command::Set { key: b"h", value: b"v", condition, expiry, get: false };
                    assert_eq!(ask(&mut shard, &set, NOW).0, Status::Ok);
                    shard.release_some(NOW);
                }
                _ => {}
            }
        }
        assert!(turns > 3, "{turns}");
        assert_eq!(as_map(&found), model, "ending {ending}");
        release_all(&mut shard);
        shard.audit().unwrap();
    }
}

#[test]
fn a_command_gives_a_bounded_number_of_fields() {
    let mut shard = shard(64 << 20, Eviction::None);
    let names: Vec<Vec<u8>> = (0..MAX_COMMAND_ITEMS as u64 + 2).map(name).collect();
    let pairs: Vec<(&[u8], &[u8])> = names.iter().map(|name| (&name[..], &b"v"[..])).collect();
    let most = MAX_COMMAND_ITEMS / 2;
    for half in pairs[..MAX_COMMAND_ITEMS].chunks(most) {
        assert_eq!(set(&mut shard, b"h", half), (Status::Ok, most as i64));
    }
    let names: Vec<&[u8]> = names.iter().map(|name| &name[..]).collect();
    // A request with one too many is invalid.
    for (count, is_accepted) in [(MAX_COMMAND_ITEMS, true), (MAX_COMMAND_ITEMS + 1, false)] {
        let list = list(&names[..count]);
        let names = Items::parse(&list).unwrap();
        let mut bytes = Vec::new();
        let request = HashCommand::Remove { names }.request();
        Command::Of { key: b"h", request }.encode_into(0, &mut bytes);
        let decoded = Command::decode(&bytes).map(|_| ()).map_err(|(status, _)| status);
        assert_eq!(decoded, if is_accepted { Ok(()) } else { Err(Status::TooLarge) });
    }
    let all_of_them = &names[..MAX_COMMAND_ITEMS];
    assert_eq!(remove(&mut shard, b"h", all_of_them), (Status::Ok, MAX_COMMAND_ITEMS as i64));
    release_all(&mut shard);
    shard.audit().unwrap();
}

#[test]
fn what_is_kept_for_reads_is_bounded_and_counts_in_memory() {
    let mut shard = shard(16 << 20, Eviction::None);
    let value = [b'v'; 600];
    for at in 0..9_000 {
        assert_eq!(set(&mut shard, b"h", &[(&name(at), &value)]), (Status::Ok, 1));
    }
    let request = HashCommand::All { told: Told::Both }.request();
    let key = (&b"h"[..], shard.hash(b"h"));
    // One reads from before all changes, one from before some of them.
    let mut early = shard.begin_read(key, request, NOW).unwrap();
    let mut late = None;
    let mut most = 0;
    for at in 0..9_000 {
        if at == 8_000 {
            late = Some((shard.begin_read(key, request, NOW).unwrap(), all(&mut shard, b"h")));
        }
        assert_eq!(set(&mut shard, b"h", &[(&name(at), b"new")]), (Status::Ok, 0));
        shard.tick(NOW);
        most = most.max(shard.stats().heap_bytes);
        let stats = shard.stats();
        assert!(stats.heap_bytes - stats.heap_covered_bytes < 1 << 20, "set aside in the arena");
    }
    assert!((2 << 20) - 100_000 < most && most <= 2 << 20, "{most}");
    assert_eq!(shard.read_turn(&mut early, &mut Vec::new(), NOW), Err(Status::Outrun));
    let (mut late, model) = late.unwrap();
    let mut found = Vec::new();
    while !shard.read_turn(&mut late, &mut found, NOW).unwrap().ended {}
    assert_eq!(as_map(&found), model);
    drop((early, late));
    shard.tick(NOW);
    assert_eq!(shard.stats().heap_bytes, 0);
    shard.audit().unwrap();
}

#[test]
fn the_buckets_that_are_kept_for_reads_count_too() {
    const FIELDS: u64 = 40_000;
    let mut shard = shard(16 << 20, Eviction::None);
    for at in 0..FIELDS {
        assert_eq!(set(&mut shard, b"h", &[(&name(at), b"")]), (Status::Ok, 1));
    }
    let request = HashCommand::All { told: Told::Values }.request();
    let mut read = shard.begin_read((b"h", shard.hash(b"h")), request, NOW).unwrap();
    for at in 0..FIELDS {
        assert_eq!(set(&mut shard, b"h", &[(&name(at), b"")]), (Status::Ok, 0));
    }
    shard.tick(NOW);
    // An empty value takes its length only.
    let lists = FIELDS * Items::bytes_of(0) as u64;
    let least = lists + 8 * FIELDS * 4 / OBJECT_LOAD_QUARTERS;
    assert!(shard.stats().heap_bytes > least, "{}, {least}", shard.stats().heap_bytes);
    let mut found = Vec::new();
    while !shard.read_turn(&mut read, &mut found, NOW).unwrap().ended {}
    assert_eq!(Items::parse(&found).unwrap().iter().count() as u64, FIELDS);
    shard.tick(NOW);
    assert_eq!(shard.stats().heap_bytes, 0);
}

/// Turns of a read, and its result.
fn turns_of(shard: &mut Shard, command: HashCommand<'_>) -> (u64, Vec<u8>) {
    let key = (&b"h"[..], shard.hash(b"h"));
    let mut read = shard.begin_read(key, command.request(), NOW).unwrap();
    let (mut found, mut turns) = (Vec::new(), 1);
    while !shard.read_turn(&mut read, &mut found, NOW).unwrap().ended {
        turns += 1;
    }
    (turns, found)
}

#[test]
fn a_turn_over_a_hash_of_which_most_was_removed_looks_at_a_bounded_number_of_buckets() {
    const FIELDS: u64 = 150_000;
    const BUCKETS: u64 = FIELDS * 4 / OBJECT_LOAD_QUARTERS;
    const PICKS: i64 = 100;
    let mut shard = shard(64 << 20, Eviction::None);
    fill(&mut shard, b"h", FIELDS);
    for at in 1..FIELDS {
        assert_eq!(remove(&mut shard, b"h", &[&name(at)]), (Status::Ok, 1));
    }
    let only = list(&[&name(0)]);
    // A read that goes through the table needs turns for all of its buckets.
    for command in [
        HashCommand::All { told: Told::Names },
        HashCommand::Random { count: 2, told: Told::Names },
    ] {
        let (turns, found) = turns_of(&mut shard, command);
        assert_eq!(found, only);
        assert!(turns >= BUCKETS / PARTS_TURN_BUCKETS, "{turns}");
    }
    // From a random bucket to the next field it is half of them, in the mean.
    let command = HashCommand::Random { count: -PICKS, told: Told::Names };
    let (turns, found) = turns_of(&mut shard, command);
    assert_eq!(found, only.repeat(PICKS as usize));
    let mean = PICKS as u64 * BUCKETS / 2 / PARTS_TURN_BUCKETS;
    assert!((mean * 3 / 4..mean * 3 / 2).contains(&turns), "{turns}, {mean}");
    let one = HashCommand::Random { count: -1, told: Told::Names };
    let turns: Vec<u64> = (0..PICKS)
        .map(|_| {
            let (turns, found) = turns_of(&mut shard, one);
            assert_eq!(found, only);
            turns
        })
        .collect();
    let (most, sum) = (turns.iter().max().unwrap(), turns.iter().sum::<u64>());
    assert!(*most <= 2 + BUCKETS / PARTS_TURN_BUCKETS && sum > mean / 2, "{turns:?}");
    shard.audit().unwrap();
}

#[test]
fn a_removed_hash_is_gone_at_once_and_its_memory_comes_back_in_turns() {
    const FIELDS: u64 = 20_000;
    let mut shard = shard(16 << 20, Eviction::None);
    let before = shard.stats().slots;
    fill(&mut shard, b"h", FIELDS);
    let at_ms = NOW.unix_ms + 1;
    let expire = Command::Expire { key: b"h", at_ms, condition: ExpireCondition::Always };
    assert_eq!(ask(&mut shard, &expire, NOW).1, 1);
    let later = Now { unix_ms: at_ms, ..NOW };
    assert_eq!(ask(&mut shard, &Command::Exists { key: b"h" }, later).1, 0);
    shard.audit().unwrap();
    let used = shard.stats().slots.used_bytes;
    assert!(used > FIELDS * 48, "nothing is released yet: {used}");
    let turns = release_all(&mut shard);
    assert!(turns >= FIELDS / (RELEASE_RECORDS * RELEASE_TURNS) as u64 / 2, "{turns}");
    shard.audit().unwrap();
    let after = shard.stats().slots;
    assert_eq!((after.used_bytes, after.run_bytes), (0, before.run_bytes));
}

#[test]
fn a_scan_meets_every_field_that_is_there_all_the_time() {
    let mut shard = shard(16 << 20, Eviction::None);
    let kept = fill(&mut shard, b"h", 3_000);
    let (mut met, mut cursor, mut added) = (Hash::new(), 0, 0);
    loop {
        let mut options = Vec::new();
        Items::push_none(&mut options);
        Items::push(&mut options, &50u64.to_le_bytes());
        let options = Items::parse(&options).unwrap();
        let (_, next, value) = of(&mut shard, b"h", HashCommand::Scan { cursor, options });
        let items: Vec<Vec<u8>> = Items::parse(value.as_deref().unwrap())
            .unwrap()
            .iter()
            .map(|item| item.unwrap().to_vec())
            .collect();
        assert!(items.len() < 200, "a step is bounded");
        met.extend(items.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())));
        // The table grows meanwhile.
        for _ in 0..40 {
            added += 1;
            set(&mut shard, b"h", &[(format!("added {added}").as_bytes(), b"")]);
        }
        cursor = next as u64;
        if cursor == 0 {
            break;
        }
    }
    assert!(kept.iter().all(|(name, value)| met.get(name) == Some(value)));
}

#[test]
fn a_change_without_room_leaves_no_trace() {
    let mut shard = shard(1 << 20, Eviction::None);
    let mut model: BTreeMap<Vec<u8>, Hash> = BTreeMap::new();
    let mut refused = 0;
    for at in 0..40_000u64 {
        let key = format!("k{}", at % 3).into_bytes();
        let names = [format!("a{at}").into_bytes(), format!("b{at}").into_bytes()];
        let pairs: Vec<(&[u8], &[u8])> =
            names.iter().map(|name| (&name[..], &b"0123456789"[..])).collect();
        match set(&mut shard, &key, &pairs) {
            (Status::Ok, 2) => {
                let hash = model.entry(key).or_default();
                hash.extend(names.into_iter().map(|name| (name, b"0123456789".to_vec())));
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
    for (key, hash) in &model {
        assert_eq!(&all(&mut shard, key), hash);
    }
    // A removed hash makes room for another.
    ask(&mut shard, &Command::Del { key: b"k0" }, NOW);
    assert_eq!(set(&mut shard, b"k3", &[(b"name", &[7; 100_000])]), (Status::Ok, 1));
    shard.audit().unwrap();
}

#[test]
fn small_hashes_are_evicted_and_moved_as_wholes() {
    let mut shard = shard(1 << 20, Eviction::S3Fifo);
    let mut random = Random::new(3);
    for at in 0..30_000u64 {
        let key = format!("key {}", random.below(20_000)).into_bytes();
        let value = vec![b'v'; random.below(60) as usize];
        let number = at.to_string().into_bytes();
        let pairs: [(&[u8], &[u8]); 3] = [(b"at", &number), (b"again", &number), (b"v", &value)];
        assert_eq!(set(&mut shard, &key, &pairs).0, Status::Ok);
        let held = all(&mut shard, &key);
        assert_eq!((held.len(), &held[&b"at"[..]]), (3, &held[&b"again"[..]]));
        if at % 3_000 == 0 {
            shard.audit().unwrap();
        }
    }
    let stats = shard.stats();
    assert!(stats.evicted > 1_000 && stats.keys > 1_000, "{stats:?}");
    shard.audit().unwrap();
}

/// Pointers to fields, and the objects under which they were found.
type Known = Vec<(Vec<u8>, Vec<u8>, RemotePointer, u64)>;

/// The value that a reader accepts at a pointer, if the record has these bytes and the root has its
/// present words.
fn believed<'b>(
    shard: &Shard,
    (key, name, pointer, root): (&[u8], &[u8], RemotePointer, u64),
    record: &'b [u8],
) -> Option<&'b [u8]> {
    let table = shard.table_ref();
    if root == 0 {
        let (slot, generation) = (pointer.slot, Some(pointer.generation));
        let kind = Kind::HASH.whole();
        let found = verify(record, table.secret, table.region, slot, generation, kind, key).ok()?;
        let expires = found.mutable.expires_at_ms;
        return packed::find(found.value, name).filter(|_| expires == 0 || expires > NOW.unix_ms);
    }
    let object = ObjectRef::of_root(&table, 0, root);
    let found = object.verify_part(record, pointer, Kind::HASH_FIELD, name).ok()?;
    let mut words = [0; remora_layout::record::ROOT_WORDS_BYTES];
    assert!(shard.owner().view().fetch(object.root_range().0, &mut words));
    object.check_root(&words).ok()?;
    Some(found.value)
}

fn bytes_at(shard: &Shard, pointer: RemotePointer) -> Vec<u8> {
    let mut bytes = vec![0; pointer.length as usize];
    assert!(shard.owner().view().fetch(pointer.offset(), &mut bytes));
    bytes
}

#[test]
fn readers_believe_what_a_field_held_before_or_holds_now_and_nothing_else() {
    for seed in 10..13 {
        let mut shard = shard(1 << 20, Eviction::None);
        let (mut model, mut random) = (BTreeMap::new(), Random::new(seed));
        let mut known: Known = Vec::new();
        let (mut counted, mut torn) = (0, 0);
        for at in 0..6_000 {
            // Each field that is there now can be known by a pointer.
            let holds = model.iter().nth(random.below(4) as usize).and_then(
                |(key, hash): (&Vec<u8>, &Hash)| {
                    let at = random.below(hash.len() as u64) as usize;
                    Some((key.clone(), hash.keys().nth(at)?.clone()))
                },
            );
            if let Some((key, name)) = holds {
                let request = HashCommand::Get { name: &name }.request();
                let hash = shard.hash(&key);
                let reply = shard.execute(&Command::Of { key: &key, request }, hash, NOW);
                let (pointer, root) = (reply.pointer, reply.number as u64);
                if known.len() < 200 {
                    known.push((key, name, pointer, root));
                } else {
                    let place = random.below(200) as usize;
                    known[place] = (key, name, pointer, root);
                }
            }
            let before: Vec<(Vec<u8>, Option<Vec<u8>>)> = known
                .iter()
                .map(|(key, name, pointer, _)| {
                    let held = model.get(key).and_then(|hash: &Hash| hash.get(name)).cloned();
                    (bytes_at(&shard, *pointer), held)
                })
                .collect();
            step(&mut shard, &mut model, &mut random);
            if at % 50 == 0 {
                shard.tick(NOW);
            }
            for (key, name, pointer, root) in &known {
                let held = model.get(key).and_then(|hash| hash.get(name)).map(Vec::as_slice);
                let bytes = bytes_at(&shard, *pointer);
                let value = believed(&shard, (key, name, *pointer, *root), &bytes);
                assert!(value.is_none() || value == held, "seed {seed}, step {at}");
                counted += value.is_some() as u64;
            }
            // A READ that was under way during the step has words of both times.
            for ((key, name, pointer, root), (old, held_before)) in known.iter().zip(&before) {
                let held = model.get(key).and_then(|hash| hash.get(name));
                let new = bytes_at(&shard, *pointer);
                for cut in (0..old.len()).step_by(8).filter(|_| *old != new) {
                    for (first, second) in [(old, &new), (&new, old)] {
                        let mixed = [&first[..cut], &second[cut..]].concat();
                        let value = believed(&shard, (key, name, *pointer, *root), &mixed);
                        let is_one =
                            value == held.map(Vec::as_slice) || value == held_before.as_deref();
                        assert!(value.is_none() || is_one, "seed {seed}, step {at}, cut {cut}");
                        torn += 1;
                    }
                }
            }
        }
        assert!(counted > 10_000 && torn > 1_000, "{counted} {torn}");
    }
}
