//! Keys of every type: one space of names, one way to remove, expire and
//! overwrite them, and memory that comes back in bounded turns.

use crate::scored;
use remora_arena::{NoJournal, Owner};
use remora_engine::{Eviction, Now, Shard, ShardOptions};
use remora_index::rtree::{LocalWalk, Query};
use remora_layout::kind::Kind;
use remora_layout::limits::{BIN_MEMBERS, RELEASE_RECORDS, RELEASE_TURNS};
use remora_layout::node::{Home, NodeRef};
use remora_layout::rect::Predicate;
use remora_layout::rect::Rect;
use remora_layout::tree::TreeInfo;
use remora_protocol::geo::Position;
use remora_protocol::message::Status;
use remora_protocol::tree::{TreeCommand, TreeSettings};
use remora_protocol::{Command, Condition, ExpireCondition, Expiry};

const NOW: Now = Now { unix_ms: 1_700_000_000_000, since_start_s: 5 };
const EVERYWHERE: Rect = Rect { min_x: -1e9, max_x: 1e9, min_y: -1e9, max_y: 1e9 };

fn shard(bytes: usize) -> Shard {
    let options = ShardOptions { eviction: Eviction::None, ..ShardOptions::default() };
    Shard::new(Owner::heap(bytes, NoJournal), options)
}

/// Status, number and value of the answer.
fn ask(shard: &mut Shard, command: &Command<'_>, now: Now) -> (Status, i64, Option<Vec<u8>>) {
    let hash = command.key().map_or(shard.hash(b""), |key| shard.hash(key));
    let reply = shard.execute(command, hash, now);
    (reply.status, reply.number, reply.value.map(<[u8]>::to_vec))
}

fn tree(shard: &mut Shard, key: &[u8], command: TreeCommand<'_>) -> (Status, i64, Option<Vec<u8>>) {
    let request = command.checked().map(TreeCommand::request).unwrap();
    ask(shard, &Command::Of { key, request }, NOW)
}

fn put(shard: &mut Shard, key: &[u8], id: u64) -> Status {
    let rect = Rect::point(id as f64, 1.0).unwrap();
    tree(shard, key, TreeCommand::put(id, rect, Some(b"data"), None)).0
}

fn geo(shard: &mut Shard, key: &[u8], member: &[u8]) -> Status {
    let score = Position::new(2.35, 48.86).unwrap().score();
    let list = scored::scored([(score, member)]);
    ask(shard, &Command::Of { key, request: scored::add(&list).request() }, NOW).0
}

fn set(key: &[u8], get: bool) -> Command<'_> {
    let (condition, expiry) = (Condition::Always, Expiry::Never);
    Command::Set { key, value: b"string", condition, expiry, get }
}

fn type_of(shard: &mut Shard, key: &[u8]) -> Option<Kind> {
    let (status, number, _) = ask(shard, &Command::Type { key }, NOW);
    (status == Status::Ok).then_some(Kind(number as u8))
}

/// One key of each type that there is.
fn one_of_each(shard: &mut Shard) -> [(&'static [u8], Kind); 3] {
    assert_eq!(ask(shard, &set(b"s", false), NOW).0, Status::Ok);
    assert_eq!(put(shard, b"t", 7), Status::Ok);
    assert_eq!(geo(shard, b"g", b"m"), Status::Ok);
    [(b"s", Kind::STRING), (b"t", Kind::RTREE), (b"g", Kind::SORTED_SET)]
}

#[test]
fn a_name_has_one_object_of_one_type() {
    let mut shard = shard(4 << 20);
    let keys = one_of_each(&mut shard);
    assert_eq!(ask(&mut shard, &Command::Count, NOW).1, 3);
    for (key, kind) in keys {
        assert_eq!(type_of(&mut shard, key), Some(kind));
        assert_eq!(ask(&mut shard, &Command::Exists { key }, NOW).1, 1);
        assert_eq!(ask(&mut shard, &Command::Ttl { key }, NOW).1, -1);
        let wrong = |is_it: bool| if is_it { Status::Ok } else { Status::WrongType };
        let get = ask(&mut shard, &Command::Get { key }, NOW).0;
        assert_eq!(get, wrong(kind == Kind::STRING));
        assert_eq!(put(&mut shard, key, 9), wrong(kind == Kind::RTREE));
        assert_eq!(tree(&mut shard, key, TreeCommand::Info).0, wrong(kind == Kind::RTREE));
        assert_eq!(geo(&mut shard, key, b"n"), wrong(kind == Kind::SORTED_SET));
    }
    shard.audit().unwrap();
}

#[test]
fn any_key_is_removed_expired_and_overwritten_alike() {
    for how in 0..5 {
        let mut shard = shard(4 << 20);
        for (key, kind) in one_of_each(&mut shard) {
            let expire = |at_ms| Command::Expire { key, at_ms, condition: ExpireCondition::Always };
            let after = match how {
                0 => {
                    assert_eq!(ask(&mut shard, &Command::Del { key }, NOW).1, 1);
                    NOW
                }
                1 => {
                    assert_eq!(ask(&mut shard, &expire(NOW.unix_ms - 1), NOW).1, 1);
                    NOW
                }
                2 => {
                    assert_eq!(ask(&mut shard, &expire(NOW.unix_ms + 100), NOW).1, 1);
                    assert_eq!(ask(&mut shard, &Command::Ttl { key }, NOW).1, 100);
                    Now { unix_ms: NOW.unix_ms + 100, ..NOW }
                }
                3 => {
                    // An old value that is no string cannot be given.
                    let is_string = kind == Kind::STRING;
                    let status = ask(&mut shard, &set(key, true), NOW).0;
                    assert_eq!(status == Status::Ok, is_string, "{kind:?}");
                    assert_eq!(ask(&mut shard, &set(key, false), NOW).0, Status::Ok);
                    assert_eq!(type_of(&mut shard, key), Some(Kind::STRING));
                    assert_eq!(ask(&mut shard, &Command::Del { key }, NOW).1, 1);
                    NOW
                }
                _ => {
                    assert!(ask(&mut shard, &Command::Flush, NOW).1 > 0);
                    // The others come again, to be flushed one by one.
                    let gone = ask(&mut shard, &Command::Exists { key }, NOW).1;
                    one_of_each(&mut shard);
                    assert_eq!(ask(&mut shard, &Command::Del { key }, NOW).1, 1);
                    assert_eq!(gone, 0);
                    NOW
                }
            };
            assert_eq!(ask(&mut shard, &Command::Exists { key }, after).1, 0, "{how} {kind:?}");
            shard.audit().unwrap();
        }
        ask(&mut shard, &Command::Flush, NOW);
        shard.release_some(NOW);
        let stats = shard.stats();
        assert_eq!((stats.keys, stats.expiring, stats.trees, stats.geo_keys), (0, 0, 0, 0));
        assert_eq!((stats.tree_bytes, stats.geo_bytes), (0, 0));
        shard.audit().unwrap();
    }
}

#[test]
fn an_expiry_is_met_by_the_sweep_too() {
    let mut shard = shard(4 << 20);
    for (key, _) in one_of_each(&mut shard).into_iter().filter(|(_, kind)| *kind != Kind::RTREE) {
        let (at_ms, condition) = (NOW.unix_ms + 10, ExpireCondition::Always);
        ask(&mut shard, &Command::Expire { key, at_ms, condition }, NOW);
    }
    assert_eq!(shard.stats().expiring, 2);
    let later = Now { unix_ms: NOW.unix_ms + 10, since_start_s: 6 };
    shard.tick(later);
    let stats = shard.stats();
    assert_eq!((stats.keys, stats.expiring, stats.expired), (1, 0, 2));
    assert_eq!((stats.trees, stats.geo_keys), (1, 0));
    shard.audit().unwrap();
}

/// A client that removes a large key waits for a bounded part of it; the rest is freed in turns,
/// and no command sees it meanwhile.
#[test]
fn a_large_key_gives_its_memory_back_in_turns() {
    const MEMBERS: usize = 20_000;
    for is_tree in [false, true] {
        let mut shard = shard(64 << 20);
        let empty = shard.stats().slots.used_bytes;
        for at in 0..MEMBERS {
            let status = match is_tree {
                true => put(&mut shard, b"k", at as u64),
                false => geo(&mut shard, b"k", format!("m{at}").as_bytes()),
            };
            assert_eq!(status, Status::Ok);
        }
        let full = shard.stats().slots.used_bytes;
        assert_eq!(ask(&mut shard, &Command::Del { key: b"k" }, NOW).1, 1);
        assert_eq!(shard.stats().slots.used_bytes, full, "nothing is freed by the removal itself");
        assert_eq!(type_of(&mut shard, b"k"), None);
        shard.audit().unwrap();
        let mut turns = 0;
        while shard.wants_release() {
            let before = shard.stats().slots.used_bytes;
            shard.release_some(NOW);
            turns += 1;
            let freed = before - shard.stats().slots.used_bytes;
            // An object's record has 48 bytes here, a bin less than 512.
            let most = if is_tree { 64 } else { 512 };
            assert!(freed <= (RELEASE_TURNS * RELEASE_RECORDS * most + 256) as u64, "{freed}");
            if turns % 16 == 0 {
                // The name is free again at once, and its new value stays.
                assert_eq!(ask(&mut shard, &set(b"k", false), NOW).0, Status::Ok);
                shard.audit().unwrap();
            }
        }
        let parts = if is_tree { MEMBERS } else { MEMBERS / BIN_MEMBERS as usize / 2 };
        assert!(turns >= parts / (RELEASE_TURNS * RELEASE_RECORDS), "{turns}");
        ask(&mut shard, &Command::Del { key: b"k" }, NOW);
        assert_eq!(shard.stats().slots.used_bytes, empty);
        shard.audit().unwrap();
    }
}

/// Memory that only waits to be released causes no refusal.
#[test]
fn a_full_shard_takes_new_keys_right_after_a_large_one_went() {
    let mut shard = shard(1 << 20);
    let mut id = 0;
    while put(&mut shard, b"k", id) == Status::Ok {
        id += 1;
    }
    assert_eq!(ask(&mut shard, &Command::Del { key: b"k" }, NOW).1, 1);
    let value = vec![7; 300 << 10];
    let (condition, expiry) = (Condition::Always, Expiry::Never);
    let set = Command::Set { key: b"s", value: &value, condition, expiry, get: false };
    assert_eq!(ask(&mut shard, &set, NOW).0, Status::Ok);
    shard.audit().unwrap();
}

/// Readers that know where a tree lies find its header dead from when the key goes or
/// is overwritten.
#[test]
fn readers_of_a_tree_ask_once_its_key_has_gone() {
    let read = |shard: &Shard, at: NodeRef| {
        let options = ShardOptions::default();
        let home = Home { secret: options.record_secret, region: options.region };
        let query = Query::Window { window: EVERYWHERE, predicate: Predicate::Intersects };
        LocalWalk::begin(shard.owner().view().clone(), home, at, query).is_ok()
    };
    for how in 0..3 {
        let mut shard = shard(4 << 20);
        assert_eq!(
            tree(&mut shard, b"t", TreeCommand::Create(TreeSettings::default())).0,
            Status::Ok
        );
        let (_, _, info) = tree(&mut shard, b"t", TreeCommand::Info);
        let words: Vec<u64> = info
            .unwrap()
            .chunks_exact(8)
            .map(|word| u64::from_le_bytes(word.try_into().unwrap()))
            .collect();
        let at = TreeInfo::from_words(&words).unwrap().at;
        assert!(read(&shard, at));
        let key = &b"t"[..];
        match how {
            0 => drop(ask(&mut shard, &Command::Del { key }, NOW)),
            1 => drop(ask(&mut shard, &set(key, false), NOW)),
            _ => drop(ask(&mut shard, &Command::Flush, NOW)),
        }
        assert!(!read(&shard, at), "{how}");
    }
}
