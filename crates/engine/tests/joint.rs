//! A change of two shards (decision 0070), part by part: refusals, full memory, eviction, and what
//! readers and the log find.

use remora_arena::{NoJournal, Owner, state_in};
use remora_engine::{Durability, Eviction, Now, Shard, ShardOptions};
use remora_layout::database::Database;
use remora_layout::limits::JOINT_ROOM_BYTES;
use remora_layout::record::State;
use remora_log::Part;
use remora_protocol::list::{ListCommand, Side};
use remora_protocol::message::Status;
use remora_protocol::set::SetCommand;
use remora_protocol::{Command, Condition, Expiry, Items, Request};

const NOW: Now = Now { unix_ms: 1_700_000_000_000, since_start_s: 5 };
const ARENA_BYTES: usize = 4 << 20;

fn shard(number: u32, options: ShardOptions) -> Shard {
    let bytes = ARENA_BYTES + options.reserve_bytes as usize;
    Shard::new(Owner::heap(bytes, NoJournal), ShardOptions { log_shard: number, ..options })
}

fn encoded(key: &[u8], request: Request<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    Command::Of { key, request }.encode_within(Database::ZERO, 0, &mut bytes);
    bytes
}

fn items(of: &[&[u8]]) -> Vec<u8> {
    let mut list = Vec::new();
    of.iter().for_each(|item| Items::push(&mut list, item));
    list
}

fn push(key: &[u8], element: &[u8]) -> Vec<u8> {
    let list = items(&[element]);
    let items = Items::parse(&list).unwrap();
    encoded(key, ListCommand::Push { side: Side::Left, if_there: false, items }.request())
}

fn pop(key: &[u8]) -> Vec<u8> {
    encoded(key, ListCommand::Pop { side: Side::Left, count: 1, fits_frame: false }.request())
}

fn execute(shard: &mut Shard, bytes: &[u8]) -> (Status, i64) {
    let (database, command, _) = Command::decode_within(bytes).unwrap();
    let reply = shard.execute(&command, shard.hash_of(database, &command), NOW);
    (reply.status, reply.number)
}

fn set(shard: &mut Shard, key: &[u8], value: &[u8]) -> Status {
    let (condition, expiry) = (Condition::Always, Expiry::Never);
    let set = Command::Set { key, value, condition, expiry, get: false };
    let hash = shard.hash(key);
    shard.execute(&set, hash, NOW).status
}

/// The parts of the last entry of a log.
fn last_parts(shard: &Shard) -> Vec<(u32, u64)> {
    let entries = shard.log().entries();
    let parts = entries.last().unwrap().entry().parts;
    parts.iter().map(|part| (part.shard(), part.sequence())).collect()
}

#[test]
fn both_entries_name_both_parts() {
    let [mut from, mut to] = [0, 1].map(|number| shard(number, ShardOptions::default()));
    execute(&mut from, &push(b"a", b"x"));
    set(&mut to, b"other", b"1");
    let hash = from.hash(b"a");
    from.hold(b"a", hash).unwrap();
    let held = Part::new(0, from.last_sequence() + 1);
    let first = to.first_part(&push(b"b", b"x"), held, NOW);
    assert_eq!((first.status, first.entry), (Status::Ok, Some(2)));
    let second = from.second_part(&pop(b"a"), Some(Part::new(1, 2)), NOW);
    assert_eq!((second.status, second.entry), (Status::Ok, Some(2)));
    from.let_go(b"a", hash);
    let sorted = |shard: &Shard| {
        let mut parts = last_parts(shard);
        parts.sort_unstable();
        parts
    };
    assert_eq!((sorted(&from), sorted(&to)), (vec![(0, 2), (1, 2)], vec![(0, 2), (1, 2)]));
    assert_eq!(execute(&mut from, &pop(b"a")).0, Status::NotFound);
    assert_eq!(execute(&mut to, &pop(b"b")), (Status::Ok, 1));
    assert!(last_parts(&to).is_empty(), "the next change is of its shard alone");
}

#[test]
fn a_part_that_is_refused_leaves_no_trace() {
    let mut to = shard(1, ShardOptions::default());
    set(&mut to, b"b", b"a string");
    let before = to.last_sequence();
    let first = to.first_part(&push(b"b", b"x"), Part::new(0, 1), NOW);
    assert_eq!((first.status, first.entry), (Status::WrongType, None));
    assert_eq!(to.last_sequence(), before);
    set(&mut to, b"c", b"1");
    assert!(last_parts(&to).is_empty());
}

/// What the other part depends on, where the first one has nothing to do.
#[test]
fn a_part_that_changes_nothing_says_what_it_waits_for() {
    let options = ShardOptions { durability: Durability::Told, ..ShardOptions::default() };
    let mut to = shard(1, options);
    let list = items(&[b"m"]);
    let members = Items::parse(&list).unwrap();
    let add = encoded(b"s", SetCommand::Add { members }.request());
    execute(&mut to, &add);
    let first = to.first_part(&add, Part::new(0, 1), NOW);
    assert_eq!((first.status, first.number, first.entry, first.wait), (Status::Ok, 0, None, 1));
    to.set_durable(1);
    assert_eq!(to.first_part(&add, Part::new(0, 1), NOW).wait, 0);
}

/// Readers of the memory ask until the change is over.
#[test]
fn a_held_key_is_not_read() {
    let mut from = shard(0, ShardOptions::default());
    set(&mut from, b"a", b"value");
    let hash = from.hash(b"a");
    let pointer = from.execute(&Command::Get { key: b"a" }, hash, NOW).pointer;
    let state = |shard: &Shard| state_in(shard.owner(), pointer.slot);
    assert_eq!(state(&from), State::Live);
    from.hold(b"a", hash).unwrap();
    assert_eq!(state(&from), State::Pending);
    from.let_go(b"a", hash);
    assert_eq!(state(&from), State::Live, "nothing was taken");
    // A list of chunks changes in its place.
    for element in 0..3000 {
        execute(&mut from, &push(b"list", format!("{element}").as_bytes()));
    }
    let hash = from.hash(b"list");
    from.hold(b"list", hash).unwrap();
    assert!(from.second_part(&pop(b"list"), Some(Part::new(1, 1)), NOW).entry.is_some());
    from.let_go(b"list", hash);
    from.audit().unwrap();
}

/// Fills the memory with strings.
fn fill(shard: &mut Shard) -> u32 {
    (0..).find(|at| set(shard, format!("fill-{at}").as_bytes(), &[7; 900]) != Status::Ok).unwrap()
}

fn large_set(shard: &mut Shard) {
    for at in 0..2000 {
        let member = format!("member-{at}");
        let list = items(&[member.as_bytes()]);
        let members = Items::parse(&list).unwrap();
        execute(shard, &encoded(b"s", SetCommand::Add { members }.request()));
    }
}

fn take_all(shard: &mut Shard) {
    for at in 0..2000 {
        let member = format!("member-{at}");
        let list = items(&[member.as_bytes()]);
        let members = Items::parse(&list).unwrap();
        let hash = shard.hash(b"s");
        shard.hold(b"s", hash).unwrap();
        let before = shard.last_sequence();
        let remove = encoded(b"s", SetCommand::Remove { members }.request());
        let taken = shard.second_part(&remove, Some(Part::new(1, at + 1)), NOW);
        assert_eq!((taken.status, taken.entry), (Status::Ok, Some(before + 1)));
        assert_eq!(shard.last_sequence(), before + 1, "nothing else is logged");
        shard.let_go(b"s", hash);
    }
    shard.audit().unwrap();
}

#[test]
fn full_memory_refuses_no_second_part() {
    let reserve_bytes = 1 << 20;
    let mut full = shard(0, ShardOptions { reserve_bytes, ..ShardOptions::default() });
    large_set(&mut full);
    fill(&mut full);
    take_all(&mut full);
    // Without any memory no part begins.
    let mut none = shard(0, ShardOptions::default());
    execute(&mut none, &push(b"a", b"x"));
    fill(&mut none);
    let hash = none.hash(b"a");
    let free = none.stats().slots.free_bytes;
    assert!(free < JOINT_ROOM_BYTES, "{free} bytes are free");
    assert_eq!(none.hold(b"a", hash), Err(Status::OutOfMemory));
}

#[test]
fn nothing_is_evicted_between_the_parts() {
    let options = ShardOptions { eviction: Eviction::S3Fifo, ..ShardOptions::default() };
    let mut evicts = shard(0, ShardOptions { reserve_bytes: 1 << 20, ..options });
    for at in 0..6_000 {
        set(&mut evicts, format!("fill-{at}").as_bytes(), &[7; 900]);
    }
    large_set(&mut evicts);
    take_all(&mut evicts);
}
