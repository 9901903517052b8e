//! Requests that wait for keys: in their order, each once, whatever gives the key something. What
//! they wait for here is a field of a hash, which they remove.

use remora_arena::{NoJournal, Owner};
use remora_engine::{Durability, LargeSet, Now, Served, Shard, ShardOptions, Tried, WaitFor};
use remora_layout::database::Database;
use remora_layout::limits::SERVED_AT_ONCE;
use remora_protocol::hash::HashCommand;
use remora_protocol::message::Status;
use remora_protocol::{Claim, Command, Condition, Dumped, Expiry, Items, Pairs};

const NOW: Now = Now { unix_ms: 1_700_000_000_000, since_start_s: 5 };

fn shard() -> Shard {
    Shard::new(Owner::heap(8 << 20, NoJournal), ShardOptions::default())
}

fn items(all: &[&[u8]]) -> Vec<u8> {
    let mut list = Vec::new();
    all.iter().for_each(|item| Items::push(&mut list, item));
    list
}

/// A request that removes this field of the first of these hashes that there is.
fn wait(number: u64, keys: &[&[u8]], field: &[u8]) -> WaitFor {
    let names = items(&[field]);
    let request = HashCommand::Remove { names: Items::parse(&names).unwrap() }.request();
    let encoded = |key: &&[u8]| {
        let mut bytes = Vec::new();
        Command::Of { key, request }.encode_within(Database::ZERO, 0, &mut bytes);
        bytes.into_boxed_slice()
    };
    let commands = keys.iter().map(encoded).collect();
    WaitFor { name: [0, 0, 0, number], claim: Claim::default(), commands }
}

fn execute(shard: &mut Shard, command: &Command<'_>) -> (Status, i64) {
    let hash = shard.hash(command.key().unwrap());
    let reply = shard.execute(command, hash, NOW);
    (reply.status, reply.number)
}

/// Makes a hash of these fields, or adds them.
fn put(shard: &mut Shard, key: &[u8], fields: &[Vec<u8>]) {
    let pairs: Vec<&[u8]> = fields.iter().flat_map(|field| [&field[..], b"v"]).collect();
    let pairs = items(&pairs);
    let request = HashCommand::Set { pairs: Items::parse(&pairs).unwrap() }.request();
    let (status, new) = execute(shard, &Command::Of { key, request });
    assert_eq!((status, new), (Status::Ok, fields.len() as i64));
}

fn length(shard: &mut Shard, key: &[u8]) -> i64 {
    let request = HashCommand::Length.request();
    execute(shard, &Command::Of { key, request }).1
}

/// The answers since the last call: number of the request, number of the reply, and the key.
fn served(shard: &mut Shard) -> Vec<(u64, i64, Vec<u8>)> {
    let next = || shard.pop_served();
    std::iter::from_fn(next).map(|of| (of.name[3], of.number, key_of(&of))).collect()
}

fn key_of(served: &Served) -> Vec<u8> {
    let value = served.value.as_deref().unwrap_or_default();
    Items::split(value).and_then(|(key, _)| key).unwrap_or_default().to_vec()
}

fn field(number: u64) -> Vec<u8> {
    format!("f{number}").into_bytes()
}

#[test]
fn the_first_key_that_holds_something_serves_at_once() {
    let mut shard = shard();
    put(&mut shard, b"b", &[field(0), field(1)]);
    put(&mut shard, b"c", &[field(0)]);
    let Tried::Served(first) = shard.wait_for(wait(1, &[b"a", b"b", b"c"], b"f0"), NOW) else {
        panic!("b has it")
    };
    assert_eq!((first.status, first.number, key_of(&first)), (Status::Ok, 1, b"b".to_vec()));
    assert_eq!((length(&mut shard, b"b"), length(&mut shard, b"c")), (1, 1));
    assert_eq!((shard.waiters(), shard.has_waiters_due()), (0, false));
}

#[test]
fn a_key_of_another_type_is_refused_now_and_waited_for_later() {
    let mut shard = shard();
    let (condition, expiry) = (Condition::Always, Expiry::Never);
    let set = Command::Set { key: b"s", value: b"text", condition, expiry, get: false };
    assert_eq!(execute(&mut shard, &set).0, Status::Ok);
    let Tried::Served(refused) = shard.wait_for(wait(1, &[b"a", b"s"], b"f0"), NOW) else {
        panic!("a refusal")
    };
    assert_eq!((refused.status, refused.value), (Status::WrongType, None));
    assert_eq!(shard.wait_for(wait(2, &[b"k"], b"f0"), NOW), Tried::Waits);
    let set = Command::Set { key: b"k", value: b"text", condition, expiry, get: false };
    assert_eq!(execute(&mut shard, &set).0, Status::Ok);
    shard.serve_waiters(NOW);
    assert_eq!((served(&mut shard), shard.waiters()), (vec![], 1));
    assert_eq!(execute(&mut shard, &Command::Del { key: b"k" }).1, 1);
    put(&mut shard, b"k", &[field(0)]);
    shard.serve_waiters(NOW);
    assert_eq!(served(&mut shard), [(2, 1, b"k".to_vec())]);
}

#[test]
fn waiters_are_served_in_their_order_before_later_commands() {
    let mut shard = shard();
    for number in 0..10 {
        assert_eq!(shard.wait_for(wait(number, &[b"k"], &field(number)), NOW), Tried::Waits);
    }
    let fields: Vec<_> = (0..4).map(field).collect();
    put(&mut shard, b"k", &fields);
    assert!(shard.has_waiters_due());
    // The next command finds what they have left.
    assert_eq!(length(&mut shard, b"k"), 0);
    let order: Vec<u64> = served(&mut shard).iter().map(|of| of.0).collect();
    assert_eq!((order, shard.waiters()), (vec![0, 1, 2, 3], 6));
}

#[test]
fn a_step_serves_some_and_later_steps_the_others_in_order() {
    let mut shard = shard();
    let all = 3 * SERVED_AT_ONCE as u64 + 5;
    for number in 0..all {
        assert_eq!(shard.wait_for(wait(number, &[b"k"], &field(number)), NOW), Tried::Waits);
    }
    let fields: Vec<_> = (0..=all).map(field).collect();
    put(&mut shard, b"k", &fields);
    shard.serve_waiters(NOW);
    let first = served(&mut shard);
    assert_eq!(first.len(), SERVED_AT_ONCE);
    // One that comes now waits behind them, although its key holds something.
    let last = wait(all, &[b"k"], &field(all));
    shard.serve_waiters(NOW);
    assert_eq!(shard.wait_for(last, NOW), Tried::Waits);
    let mut order: Vec<u64> = first.iter().map(|of| of.0).collect();
    while shard.has_waiters_due() {
        shard.serve_waiters(NOW);
        order.extend(served(&mut shard).iter().map(|of| of.0));
    }
    assert_eq!(order, (0..=all).collect::<Vec<_>>());
    assert_eq!((length(&mut shard, b"k"), shard.waiters()), (0, 0));
}

/// More requests wait than a step serves, and something comes for all of them.
fn more_than_a_step() -> (Shard, u64) {
    let mut shard = shard();
    let all = 3 * SERVED_AT_ONCE as u64 + 5;
    for number in 0..all {
        assert_eq!(shard.wait_for(wait(number, &[b"k"], &field(number)), NOW), Tried::Waits);
    }
    let fields: Vec<_> = (0..all).map(field).collect();
    put(&mut shard, b"k", &fields);
    (shard, all)
}

#[test]
fn a_command_takes_nothing_from_those_who_wait_for_its_keys() {
    let mut pairs = Vec::new();
    Pairs::push(&mut pairs, b"other", b"v");
    Pairs::push(&mut pairs, b"k", b"v");
    let pairs = Pairs::parse(&pairs).unwrap();
    let text = |key| {
        let (value, condition, expiry) = (&b"v"[..], Condition::Always, Expiry::Never);
        Command::Set { key, value, condition, expiry, get: false }
    };
    let (key, database) = (&b"k"[..], Database::ZERO);
    let onto = Command::Transfer { key: b"t", to: b"k", database, replaces: true, keeps: false };
    let commands = [Command::Del { key }, Command::Exists { key }, text(key), Command::Count, onto];
    for command in commands.into_iter().chain([Command::MultiSet { pairs }, Command::FlushAll]) {
        let (mut shard, all) = more_than_a_step();
        let hash = shard.hash_of(Database::ZERO, &command);
        let number = shard.execute(&command, hash, NOW).number;
        assert!(number <= 0 || !matches!(command, Command::Del { .. }), "{command:?}: {number}");
        let order: Vec<u64> = served(&mut shard).iter().map(|of| of.0).collect();
        assert_eq!(order, (0..all).collect::<Vec<_>>(), "{command:?}");
        assert_eq!(shard.waiters(), 0, "{command:?}");
    }
    // What is asked of the disk concerns no key.
    let (mut shard, _) = more_than_a_step();
    let synced = Command::Synced { until: 0, begins: false };
    let _ = shard.execute(&synced, shard.hash_of(Database::ZERO, &synced), NOW);
    assert_eq!(served(&mut shard).len(), SERVED_AT_ONCE);
}

#[test]
fn a_large_value_takes_nothing_from_those_who_wait_for_its_key() {
    let (mut shard, all) = more_than_a_step();
    let (hash, value_bytes) = (shard.hash(b"k"), 3);
    let (condition, expiry) = (Condition::Always, Expiry::Never);
    let set = LargeSet { key: b"k", hash, value_bytes, condition, expiry, get: false };
    let mut upload = shard.begin_upload(set, NOW).unwrap();
    shard.upload(&mut upload, b"abc").unwrap();
    let _ = shard.finish_upload(upload, NOW);
    assert_eq!((served(&mut shard).len() as u64, shard.waiters()), (all, 0));
}

#[test]
fn one_that_waits_for_many_keys_counts_as_many_of_a_step() {
    let mut shard = shard();
    let names: Vec<_> = (0..SERVED_AT_ONCE as u64 / 2).map(field).collect();
    let keys: Vec<&[u8]> = names.iter().map(|name| &name[..]).collect();
    for number in 0..5 {
        assert_eq!(shard.wait_for(wait(number, &keys, &field(number)), NOW), Tried::Waits);
    }
    put(&mut shard, keys[3], &(0..5).map(field).collect::<Vec<_>>());
    for expected in [2, 2, 1] {
        shard.serve_waiters(NOW);
        assert_eq!(served(&mut shard).len(), expected);
    }
}

/// Their commands, and their places at all their keys: a client could fill the machine with them.
#[test]
fn what_is_kept_for_those_who_wait_counts_in_the_memory() {
    let mut shard = Shard::new(Owner::heap(1 << 20, NoJournal), ShardOptions::default());
    let key = vec![b'k'; 1 << 10];
    for _ in 0..2 {
        let mut number = 0;
        // Twice the memory could not be kept.
        while number < 2048 && shard.wait_for(wait(number, &[&key], b"f0"), NOW) == Tried::Waits {
            number += 1;
        }
        assert!((100..1024).contains(&number), "{number} wait");
        let Tried::Served(refused) = shard.wait_for(wait(number, &[&key], b"f0"), NOW) else {
            panic!("a refusal")
        };
        assert_eq!((refused.status, refused.value), (Status::OutOfMemory, None));
        assert_eq!(shard.waiters() as u64, number);
        for number in 0..number {
            shard.withdraw(&[0, 0, 0, number]);
        }
    }
    // Many at keys of their own: their queues go, too.
    for number in 0..5_000 {
        let names = [field(number), field(number + 1)];
        let keys = [&names[0][..], &names[0], &names[1]];
        assert_eq!(shard.wait_for(wait(number, &keys, b"f0"), NOW), Tried::Waits);
        shard.withdraw(&[0, 0, 0, number]);
    }
}

#[test]
fn a_key_on_its_way_holds_up_none_of_the_others() {
    let mut shard = shard();
    put(&mut shard, b"k", &[field(0)]);
    let hash = shard.hash(b"k");
    let _ = shard.execute(&Command::Dump { key: b"k", holds: true }, hash, NOW);
    assert_eq!(shard.wait_for(wait(1, &[b"k"], b"f0"), NOW), Tried::Waits);
    for (number, key) in [(2, b"a"), (3, b"b")] {
        assert_eq!(shard.wait_for(wait(number, &[key], b"f0"), NOW), Tried::Waits);
        put(&mut shard, key, &[field(0)]);
    }
    shard.serve_waiters(NOW);
    assert_eq!(served(&mut shard), [(2, 1, b"a".to_vec()), (3, 1, b"b".to_vec())]);
    assert_eq!((length(&mut shard, b"k"), shard.waiters()), (1, 1));
    shard.serve_all_waiters(NOW);
    assert_eq!((served(&mut shard), shard.waiters()), (vec![], 1));
}

#[test]
fn who_has_no_claim_changes_nothing() {
    let mut shard = shard();
    let (one, two) = (wait(1, &[b"k"], b"f0"), wait(2, &[b"k"], b"f0"));
    let claim = one.claim.clone();
    assert_eq!(shard.wait_for(one, NOW), Tried::Waits);
    assert_eq!(shard.wait_for(two, NOW), Tried::Waits);
    assert!(claim.take());
    put(&mut shard, b"k", &[field(0)]);
    shard.serve_waiters(NOW);
    assert_eq!(served(&mut shard), [(2, 1, b"k".to_vec())]);
    let late = WaitFor { claim, ..wait(3, &[b"k"], b"f1") };
    put(&mut shard, b"k", &[field(1)]);
    assert_eq!(shard.wait_for(late, NOW), Tried::Taken);
    assert_eq!((length(&mut shard, b"k"), shard.waiters()), (1, 0));
}

#[test]
fn what_is_withdrawn_waits_at_none_of_its_keys() {
    let mut shard = shard();
    assert_eq!(shard.wait_for(wait(1, &[b"a", b"b"], b"f0"), NOW), Tried::Waits);
    assert_eq!(shard.wait_for(wait(2, &[b"b", b"b"], b"f0"), NOW), Tried::Waits);
    shard.withdraw(&[0, 0, 0, 1]);
    put(&mut shard, b"a", &[field(0)]);
    put(&mut shard, b"b", &[field(0)]);
    shard.serve_waiters(NOW);
    assert_eq!(served(&mut shard), [(2, 1, b"b".to_vec())]);
    assert_eq!((length(&mut shard, b"a"), shard.waiters()), (1, 0));
    assert!(!shard.has_waiters_due());
}

#[test]
fn a_key_that_gets_anothers_value_serves_and_so_does_another_database() {
    let mut shard = shard();
    assert_eq!(shard.wait_for(wait(1, &[b"to"], b"f0"), NOW), Tried::Waits);
    put(&mut shard, b"from", &[field(0), field(1)]);
    assert_eq!((served(&mut shard), shard.has_waiters_due()), (vec![], false));
    let other = Database::new(3).unwrap();
    let transfer = |database, keeps| {
        let (key, to) = (&b"from"[..], &b"to"[..]);
        Command::Transfer { key, to, database, replaces: false, keeps }
    };
    assert_eq!(execute(&mut shard, &transfer(other, true)), (Status::Ok, 1));
    shard.serve_waiters(NOW);
    assert_eq!(served(&mut shard), []);
    assert_eq!(execute(&mut shard, &transfer(Database::ZERO, false)), (Status::Ok, 1));
    shard.serve_waiters(NOW);
    assert_eq!(served(&mut shard), [(1, 1, b"to".to_vec())]);
}

#[test]
fn an_answer_waits_for_its_change() {
    let options = ShardOptions { durability: Durability::Told, ..ShardOptions::default() };
    let mut shard = Shard::new(Owner::heap(8 << 20, NoJournal), options);
    assert_eq!(shard.wait_for(wait(1, &[b"k"], b"f0"), NOW), Tried::Waits);
    put(&mut shard, b"k", &[field(0)]);
    let before = shard.last_sequence();
    shard.serve_waiters(NOW);
    let answer = shard.pop_served().unwrap();
    assert_eq!((answer.wait, shard.last_sequence()), (before + 1, before + 1));
}

#[test]
fn a_shard_that_applies_has_no_waiters() {
    let mut shard = shard();
    assert_eq!(shard.wait_for(wait(1, &[b"k"], b"f0"), NOW), Tried::Waits);
    shard.withdraw_all();
    shard.begin_applying();
    assert_eq!(shard.waiters(), 0);
    let Tried::Served(refused) = shard.wait_for(wait(2, &[b"k"], b"f0"), NOW) else {
        panic!("a refusal")
    };
    assert_eq!((refused.status, shard.waiters()), (Status::ReadOnly, 0));
}

#[test]
fn ten_thousand_waiters_of_one_key_do_not_hold_the_shard() {
    const MANY: u64 = 10_000;
    let mut shard = shard();
    for number in 0..MANY {
        assert_eq!(shard.wait_for(wait(number, &[b"k", b"other"], b"f0"), NOW), Tried::Waits);
    }
    // Each takes the only field: one is served by each change.
    for number in 0..10 {
        put(&mut shard, b"k", &[field(0)]);
        shard.serve_waiters(NOW);
        assert_eq!(served(&mut shard), [(number, 1, b"k".to_vec())]);
        assert!(!shard.has_waiters_due());
    }
    for number in 10..MANY {
        shard.withdraw(&[0, 0, 0, number]);
    }
    put(&mut shard, b"k", &[field(0)]);
    put(&mut shard, b"other", &[field(0)]);
    assert_eq!((shard.waiters(), shard.has_waiters_due()), (0, false));
}

#[test]
fn a_key_that_is_on_its_way_serves_when_it_has_arrived() {
    let mut shard = shard();
    put(&mut shard, b"k", &[field(0)]);
    let hash = shard.hash(b"k");
    let dumped = shard.execute(&Command::Dump { key: b"k", holds: true }, hash, NOW);
    let dump = Dumped::parse(dumped.value.unwrap()).unwrap().dump;
    assert_eq!(shard.wait_for(wait(1, &[b"k"], b"f0"), NOW), Tried::Waits);
    for _ in 0..3 {
        assert!(shard.has_waiters_due(), "it is looked at again");
        shard.serve_waiters(NOW);
        assert_eq!((served(&mut shard), shard.waiters()), (vec![], 1));
    }
    assert_eq!(execute(&mut shard, &Command::EndDump { key: b"k", dump }).0, Status::Ok);
    assert_eq!(served(&mut shard), []);
    shard.serve_waiters(NOW);
    assert_eq!(served(&mut shard), [(1, 1, b"k".to_vec())]);
}
