//! Operations on keys of any type: databases, scans, any key, transfers.

use remora_arena::{NoJournal, Owner};
use remora_engine::{Now, Shard, ShardOptions};
use remora_layout::database::Database;
use remora_layout::limits::RANDOM_KEY_BUCKETS;
use remora_protocol::message::Status;
use remora_protocol::{Command, Condition, ExpireCondition, Expiry, Reply};
use remora_protocol::{Dumped, ScannedKeys};
use std::collections::{BTreeMap, BTreeSet};

const NOW: Now = Now { unix_ms: 1_700_000_000_000, since_start_s: 5 };

fn shard() -> Shard {
    let options = ShardOptions { hash_seed: 11, buckets: 2, ..ShardOptions::default() };
    Shard::new(Owner::heap(32 << 20, NoJournal), options)
}

fn database(number: usize) -> Database {
    Database::new(number).unwrap()
}

/// Status, number and value of a command in a database.
fn ask(shard: &mut Shard, on: Database, command: &Command<'_>) -> (Status, i64, Option<Vec<u8>>) {
    let hash = shard.hash_of(on, command);
    let Reply { status, number, value, .. } = shard.execute(command, hash, NOW);
    (status, number, value.map(<[u8]>::to_vec))
}

fn set(shard: &mut Shard, on: Database, key: &[u8], value: &[u8], expiry: Expiry) {
    let condition = Condition::Always;
    let command = Command::Set { key, value, condition, expiry, get: false };
    assert_eq!(ask(shard, on, &command).0, Status::Ok);
}

fn get(shard: &mut Shard, on: Database, key: &[u8]) -> Option<Vec<u8>> {
    ask(shard, on, &Command::Get { key }).2
}

#[test]
fn each_database_has_keys_of_its_own() {
    let mut shard = shard();
    for (at, on) in Database::all().enumerate() {
        set(&mut shard, on, b"k", &[at as u8], Expiry::Never);
        for more in 0..at {
            set(&mut shard, on, format!("more {more}").as_bytes(), b"", Expiry::Never);
        }
    }
    for (at, on) in Database::all().enumerate() {
        assert_eq!(get(&mut shard, on, b"k"), Some(vec![at as u8]));
        assert_eq!(ask(&mut shard, on, &Command::Count).1, at as i64 + 1);
    }
    let stats = shard.stats();
    assert_eq!(stats.databases.iter().map(|of| of.keys).sum::<u64>(), stats.keys);
    assert_eq!(ask(&mut shard, database(3), &Command::Flush).1, 4);
    assert_eq!(get(&mut shard, database(3), b"k"), None);
    assert_eq!(get(&mut shard, database(4), b"k"), Some(vec![4]));
    shard.audit().unwrap();
    // The log knows the databases, too.
    let mut again = self::shard();
    for entry in shard.log().entries() {
        let (on, command, _) = Command::decode_within(entry.operation()).unwrap();
        ask(&mut again, on, &command);
    }
    assert_eq!(again.stats().databases, stats_after(&shard));
    assert_eq!(get(&mut again, database(15), b"k"), Some(vec![15]));
    ask(&mut shard, database(9), &Command::FlushAll);
    assert_eq!(shard.stats().keys, 0);
    shard.audit().unwrap();
}

fn stats_after(shard: &Shard) -> [remora_engine::KeyCounts; remora_layout::database::DATABASES] {
    shard.stats().databases
}

/// One step of a scan: the keys, and where to continue.
fn step(shard: &mut Shard, on: Database, place: u32, count: u32) -> (Vec<Vec<u8>>, u32) {
    let (status, next, list) = ask(shard, on, &Command::Scan { place, count });
    assert_eq!(status, Status::Ok);
    let list = list.unwrap();
    (ScannedKeys::new(&list).map(|(_, key)| key.to_vec()).collect(), next as u32)
}

#[test]
fn a_scan_tells_of_every_key_that_stays_while_the_table_grows_and_keys_go() {
    for (count, per_step) in [(1u32, 1usize), (10, 40), (1_000, 3_000)] {
        let mut shard = shard();
        let (on, other) = (database(2), database(7));
        let name = |what: &str, at: usize| format!("{what}:{at}").into_bytes();
        for at in 0..3_000 {
            set(&mut shard, on, &name("stays", at), b"v", Expiry::Never);
            set(&mut shard, on, &name("goes", at), b"v", Expiry::Never);
            set(&mut shard, other, &name("other", at), b"v", Expiry::Never);
        }
        let buckets = shard.stats().buckets;
        let mut met: BTreeMap<Vec<u8>, u32> = BTreeMap::new();
        let (mut place, mut steps, mut coming) = (0, 0, 0);
        loop {
            let (keys, next) = step(&mut shard, on, place, count);
            keys.into_iter().for_each(|key| *met.entry(key).or_default() += 1);
            steps += 1;
            if next == 0 {
                break;
            }
            assert!(next > place, "it goes on");
            place = next;
            for _ in 0..per_step.min(20_000 - coming) {
                set(&mut shard, on, &name("comes", coming), b"v", Expiry::Never);
                set(&mut shard, on, &name("comes too", coming), b"v", Expiry::Never);
                ask(&mut shard, on, &Command::Del { key: &name("goes", coming % 3_000) });
                coming += 1;
            }
        }
        assert!(steps > 1 && shard.stats().buckets > buckets, "it grew: {steps} steps");
        for at in 0..3_000 {
            assert_eq!(met.get(&name("stays", at)), Some(&1), "step of {count}: {at}");
        }
        assert!(!met.keys().any(|key| key.starts_with(b"other")), "another database's");
    }
}

#[test]
fn a_step_of_a_scan_is_bounded_by_bytes_and_ends_on_a_whole_key() {
    let mut shard = shard();
    let long = |at: u8| vec![at; 60_000];
    (0..40).for_each(|at| set(&mut shard, Database::ZERO, &long(at), b"", Expiry::Never));
    let (mut place, mut met) = (0, BTreeSet::new());
    loop {
        let (keys, next) = step(&mut shard, Database::ZERO, place, u32::MAX);
        assert!(keys.len() <= 1, "one long key is enough for a step");
        met.extend(keys.iter().map(|key| key[0]));
        place = next;
        if next == 0 {
            break;
        }
    }
    assert_eq!(met.len(), 40);
}

#[test]
fn any_key_is_as_likely_as_any_other() {
    let mut shard = shard();
    let on = database(1);
    assert_eq!(
        ask(&mut shard, on, &Command::RandomKey { random: 1, place: None }).0,
        Status::NotFound
    );
    let keys = 50u32;
    for at in 0..keys {
        set(&mut shard, on, &at.to_le_bytes(), b"", Expiry::Never);
    }
    // Keys of another database are never given.
    (0..500u32).for_each(|at| set(&mut shard, database(2), &at.to_be_bytes(), b"", Expiry::Never));
    let mut counts: BTreeMap<Vec<u8>, u32> = BTreeMap::new();
    let draws = 400 * keys;
    for random in 0..draws {
        let random = random.wrapping_mul(0x9e37_79b1);
        let (status, _, key) = ask(&mut shard, on, &Command::RandomKey { random, place: None });
        assert_eq!(status, Status::Ok);
        *counts.entry(key.unwrap()).or_default() += 1;
    }
    assert_eq!(counts.len(), keys as usize);
    // 400 are expected, with a deviation of 20.
    assert!(counts.values().all(|count| (300..500).contains(count)), "{counts:?}");
}

/// The result of RANDOMKEY, and its number of turns. Between two turns this many keys of another
/// database are set.
fn any_key(
    shard: &mut Shard,
    (on, random): (Database, u32),
    coming: u32,
) -> (Option<Vec<u8>>, u64) {
    let (mut place, mut turns) = (None, 0);
    loop {
        turns += 1;
        assert!(turns < 10_000, "it ends");
        let (status, next, key) = ask(shard, on, &Command::RandomKey { random, place });
        match status {
            Status::Ok => return (Some(key.unwrap()), turns),
            Status::NotFound => return (None, turns),
            status => assert_eq!(status, Status::NotDone),
        }
        place = Some(next as u32);
        for at in 0..coming {
            let key = format!("coming {turns} {at}");
            set(shard, Database::ZERO, key.as_bytes(), b"", Expiry::Never);
        }
    }
}

#[test]
fn the_one_key_among_many_of_another_database_is_found_in_one_pass() {
    for coming in [0, 50] {
        let mut shard = shard();
        let on = database(3);
        for at in 0..60_000u32 {
            set(&mut shard, Database::ZERO, &at.to_le_bytes(), b"", Expiry::Never);
        }
        set(&mut shard, on, b"the one", b"", Expiry::Never);
        let mut most = 0;
        for random in 0..40u32 {
            let (key, turns) = any_key(&mut shard, (on, random.wrapping_mul(0x9e37_79b1)), coming);
            assert_eq!(key.as_deref(), Some(&b"the one"[..]));
            most = most.max(turns);
        }
        // The bucket that a pass begins in may be looked at twice.
        let buckets = shard.stats().buckets;
        assert!(buckets > 4_352 && most > 1, "{buckets} buckets, {most} turns");
        assert!(most <= buckets.div_ceil(RANDOM_KEY_BUCKETS) + 1, "{most} turns");
        // It expires, and is met: then it is gone.
        let (key, condition) = (b"the one", ExpireCondition::Always);
        let expire = Command::Expire { key, at_ms: NOW.unix_ms + 1, condition };
        assert_eq!(ask(&mut shard, on, &expire).1, 1);
        let later = Now { unix_ms: NOW.unix_ms + 1, ..NOW };
        let (mut place, mut turns) = (None, 0);
        loop {
            turns += 1;
            assert!(turns <= buckets.div_ceil(RANDOM_KEY_BUCKETS) + 1, "one pass");
            let command = Command::RandomKey { random: 5, place };
            let reply = shard.execute(&command, shard.hash_of(on, &command), later);
            if reply.status == Status::NotFound {
                break;
            }
            assert_eq!(reply.status, Status::NotDone);
            place = Some(reply.number as u32);
        }
        assert_eq!(shard.stats().databases[3], remora_engine::KeyCounts::default());
        shard.audit().unwrap();
    }
}

#[test]
fn what_a_key_has_goes_to_another_key_or_database() {
    let (zero, five) = (Database::ZERO, database(5));
    let transfer = |key, to, database, replaces, keeps| Command::Transfer {
        key,
        to,
        database,
        replaces,
        keeps,
    };
    let mut shard = shard();
    let missing = transfer(b"a", b"b", zero, true, false);
    assert_eq!(ask(&mut shard, zero, &missing).0, Status::NotFound);
    let at_ms = NOW.unix_ms + 9_000;
    set(&mut shard, zero, b"a", b"value", Expiry::At(at_ms));
    set(&mut shard, zero, b"b", b"other", Expiry::Never);
    // RENAMENX, and to itself.
    assert_eq!(ask(&mut shard, zero, &transfer(b"a", b"b", zero, false, false)).1, 0);
    assert_eq!(ask(&mut shard, zero, &transfer(b"a", b"a", zero, true, false)).1, 1);
    assert_eq!(get(&mut shard, zero, b"a"), Some(b"value".to_vec()));
    // COPY, then RENAME, then MOVE.
    assert_eq!(ask(&mut shard, zero, &transfer(b"a", b"c", zero, false, true)).1, 1);
    assert_eq!(ask(&mut shard, zero, &transfer(b"a", b"b", zero, true, false)).1, 1);
    assert_eq!(get(&mut shard, zero, b"a"), None);
    assert_eq!(ask(&mut shard, zero, &transfer(b"b", b"b", five, false, false)).1, 1);
    assert_eq!(get(&mut shard, zero, b"b"), None);
    for (on, key) in [(five, &b"b"[..]), (zero, b"c")] {
        assert_eq!(get(&mut shard, on, key), Some(b"value".to_vec()));
        assert_eq!(ask(&mut shard, on, &Command::ExpireTime { key }).1, at_ms as i64);
        assert_eq!(ask(&mut shard, on, &Command::Persist { key }).1, 1);
        assert_eq!(ask(&mut shard, on, &Command::Persist { key }).1, 0);
        assert_eq!(ask(&mut shard, on, &Command::ExpireTime { key }).1, -1);
    }
    assert_eq!(shard.stats().expiring, 0);
    shard.audit().unwrap();
}

#[test]
fn a_dumped_record_is_removed_only_while_it_is_held() {
    let (mut shard, mut other) = (shard(), shard());
    let zero = Database::ZERO;
    set(&mut shard, zero, b"k", b"one", Expiry::Never);
    let dump = Command::Dump { key: b"k", holds: false };
    let bytes = ask(&mut shard, zero, &dump).2.unwrap();
    let dumped = Dumped::parse(&bytes).unwrap();
    let restore = Command::Restore { key: b"new", dumped, replaces: false };
    assert_eq!(ask(&mut other, zero, &restore).1, 1);
    assert_eq!(ask(&mut other, zero, &restore).1, 0, "it is there");
    assert_eq!(get(&mut other, zero, b"new"), Some(b"one".to_vec()));
    let del = Command::DelDumped { key: b"k", dump: dumped.dump };
    assert_eq!(ask(&mut shard, zero, &del).1, 0, "it was not held");
    let hold = Command::Dump { key: b"k", holds: true };
    let bytes = ask(&mut shard, zero, &hold).2.unwrap();
    let dump = Dumped::parse(&bytes).unwrap().dump;
    let del = Command::DelDumped { key: b"k", dump };
    let end = Command::EndDump { key: b"k", dump };
    assert_eq!(ask(&mut shard, zero, &end).0, Status::Ok);
    assert_eq!(ask(&mut shard, zero, &del).1, 0, "it is held no more");
    set(&mut shard, zero, b"k", b"two", Expiry::Never);
    let bytes = ask(&mut shard, zero, &hold).2.unwrap();
    let dump = Dumped::parse(&bytes).unwrap().dump;
    assert_eq!(ask(&mut shard, zero, &del).1, 0, "another dump is under way");
    assert_eq!(get(&mut shard, zero, b"k"), Some(b"two".to_vec()));
    assert_eq!(ask(&mut shard, zero, &Command::DelDumped { key: b"k", dump }).1, 1);
    assert_eq!(get(&mut shard, zero, b"k"), None);
    assert!(Dumped::parse(&bytes[..20]).is_none());
}

#[test]
fn expiries_obey_their_conditions_in_every_database() {
    let mut shard = shard();
    let on = database(6);
    set(&mut shard, on, b"k", b"v", Expiry::Never);
    let expire = |shard: &mut Shard, more: u64, condition| {
        let at_ms = NOW.unix_ms + more;
        ask(shard, on, &Command::Expire { key: b"k", at_ms, condition }).1
    };
    assert_eq!(expire(&mut shard, 100, ExpireCondition::IfSome), 0);
    assert_eq!(expire(&mut shard, 100, ExpireCondition::IfNone), 1);
    assert_eq!(expire(&mut shard, 50, ExpireCondition::IfLater), 0);
    assert_eq!(expire(&mut shard, 50, ExpireCondition::IfEarlier), 1);
    assert_eq!(shard.stats().databases[6].expiring, 1);
    let later = Now { unix_ms: NOW.unix_ms + 60, ..NOW };
    let exists = Command::Exists { key: b"k" };
    let hash = shard.hash_of(on, &exists);
    assert_eq!(shard.execute(&exists, hash, later).number, 0);
    assert_eq!(shard.stats().databases[6], remora_engine::KeyCounts::default());
}
