//! Requests of sessions that wait for a key: here for a field of a hash, which they remove.

use super::uploads::tests::Client;
use super::waits::WaitOrder;
use remora_engine::{Durability, Served};
use remora_layout::database::Database;
use remora_layout::limits::{
    MAX_CLIENT_SESSIONS, MAX_ENDED_WAIT_BYTES, MAX_KEY_BYTES, MAX_WAITED_KEYS,
};
use remora_protocol::hash::HashCommand;
use remora_protocol::message::{REQUEST_HEADER_BYTES, Status, WAIT};
use remora_protocol::set::SetCommand;
use remora_protocol::{Command, Items};

const OK: Option<Status> = Some(Status::Ok);
const NOT_FOUND: Option<Status> = Some(Status::NotFound);
const KEY: &[u8] = b"k";

/// The id of a request of one session of the client.
fn id(session: u32, request: u32) -> u32 {
    session << 16 | request
}

fn with_field(names: bool, act: impl FnOnce(&Command<'_>)) {
    let mut list = Vec::new();
    Items::push(&mut list, b"f");
    if !names {
        Items::push(&mut list, b"v");
    }
    let items = Items::parse(&list).unwrap();
    let request = match names {
        true => HashCommand::Remove { names: items }.request(),
        false => HashCommand::Set { pairs: items }.request(),
    };
    act(&Command::Of { key: KEY, request });
}

/// A request that waits for so many ms.
fn wait(client: &mut Client, id: u32, ms: u64) {
    let mut encoded = Vec::new();
    with_field(true, |command| command.encode_within(Database::ZERO, id, &mut encoded));
    wait_with(client, id, ms, &encoded);
}

fn wait_with(client: &mut Client, id: u32, ms: u64, command: &[u8]) {
    let mut frame = Vec::new();
    Command::Get { key: b"" }.encode_into(id, &mut frame);
    frame.truncate(REQUEST_HEADER_BYTES);
    frame[0] = WAIT;
    frame.extend_from_slice(&ms.to_le_bytes());
    frame.extend_from_slice(command);
    client.send(&[&frame]);
    settle(client);
}

fn get(client: &mut Client, id: u32) {
    let mut frame = Vec::new();
    Command::Get { key: b"other" }.encode_into(id, &mut frame);
    client.send(&[&frame]);
    settle(client);
}

/// Somebody gives the key its field, and the waiter is served.
fn put(client: &mut Client) {
    with_field(false, |command| {
        let hash = client.shard.hash(KEY);
        assert_eq!(client.shard.execute(command, hash, Default::default()).number, 1);
    });
    client.shard.serve_waiters(Default::default());
}

fn settle(client: &mut Client) {
    client.turn();
    while client.session.has_work() {
        client.turn();
    }
}

#[test]
fn one_that_waits_holds_nobody_up_and_is_answered_once() {
    let mut client = Client::with(Durability::Memory);
    wait(&mut client, id(1, 1), 0);
    get(&mut client, id(2, 1));
    assert_eq!(client.replies(), [(id(2, 1), NOT_FOUND)]);
    assert_eq!((client.session.waits(), client.shard.waiters()), (1, 1));
    put(&mut client);
    let served = client.shard.pop_served_at_rings().expect("it is served");
    client.session.answer_wait(&served).unwrap();
    client.session.answer_wait(&served).unwrap();
    assert_eq!(client.replies(), [(id(1, 1), OK)]);
    assert_eq!(client.session.waits(), 0);
    // Something is there: it does not wait.
    put(&mut client);
    wait(&mut client, id(1, 2), 0);
    assert_eq!(client.replies(), [(id(1, 2), OK)]);
    assert_eq!(client.session.waits(), 0);
}

#[test]
fn the_next_frame_of_its_session_ends_a_wait() {
    let mut client = Client::with(Durability::Memory);
    wait(&mut client, id(1, 1), 0);
    get(&mut client, id(1, 2));
    assert_eq!(client.replies(), [(id(1, 1), NOT_FOUND), (id(1, 2), NOT_FOUND)]);
    assert_eq!((client.session.waits(), client.shard.waiters()), (0, 0));
    // One that is served already is answered before.
    wait(&mut client, id(1, 3), 0);
    put(&mut client);
    get(&mut client, id(1, 4));
    assert_eq!(client.replies(), [(id(1, 3), OK), (id(1, 4), NOT_FOUND)]);
    assert!(client.shard.pop_served_at_rings().is_none());
}

#[test]
fn a_wait_ends_in_time_and_its_deadline_with_it() {
    let mut client = Client::with(Durability::Memory);
    wait(&mut client, id(1, 1), 5);
    wait(&mut client, id(2, 1), 0);
    let deadlines: Vec<_> = client.session.take_deadlines().collect();
    let &[(super::Deadline::Begins, until_ms, of)] = &deadlines[..] else { panic!("one begins") };
    assert_eq!(of, id(1, 1));
    client.session.time_out_wait(&mut client.shard, id(1, 1)).unwrap();
    assert_eq!(client.replies(), [(id(1, 1), NOT_FOUND)]);
    let deadlines: Vec<_> = client.session.take_deadlines().collect();
    assert_eq!(deadlines, [(super::Deadline::Ends, until_ms, id(1, 1))]);
    client.session.end_waits(&mut client.shard, Status::WaitEnded).unwrap();
    assert_eq!(client.replies(), [(id(2, 1), Some(Status::WaitEnded))]);
    assert_eq!((client.session.waits(), client.shard.waiters()), (0, 0));
}

#[test]
fn a_client_that_goes_leaves_no_waiter() {
    let mut client = Client::with(Durability::Memory);
    wait(&mut client, id(1, 1), 0);
    client.session.abandon(&mut client.shard, Default::default());
    assert_eq!((client.session.waits(), client.shard.waiters()), (0, 0));
    put(&mut client);
    assert!(!client.shard.has_waiters_due());
    assert_eq!(client.shard.keys(), 1);
}

/// A client has so many sessions, each with one wait of so many bytes, and a shard keeps no more of it.
#[test]
fn nonsense_sessions_and_long_commands_do_not_wait() {
    let mut client = Client::with(Durability::Memory);
    let last = MAX_CLIENT_SESSIONS as u32 - 1;
    for session in [last + 1, u16::MAX.into()] {
        wait(&mut client, id(session, 1), 0);
        assert_eq!(client.replies(), [(id(session, 1), Some(Status::Malformed))]);
    }
    let with_members = |bytes: usize| {
        let mut list = Vec::new();
        (b'0'..b'4').for_each(|of| Items::push(&mut list, &vec![of; bytes / 4]));
        let request = SetCommand::Add { members: Items::parse(&list).unwrap() }.request();
        let mut command = Vec::new();
        Command::Of { key: KEY, request }.encode_within(Database::ZERO, 0, &mut command);
        command
    };
    wait_with(&mut client, id(1, 1), 0, &with_members(MAX_KEY_BYTES + 256));
    assert_eq!(client.replies(), [(id(1, 1), Some(Status::Malformed))]);
    assert_eq!((client.session.waits(), client.shard.waiters()), (0, 0));
    wait(&mut client, id(last, 1), 0);
    wait_with(&mut client, id(1, 2), 0, &with_members(MAX_KEY_BYTES));
    assert_eq!((client.replies(), client.session.waits()), (vec![], 2));
}

/// A field for each of so many keys.
fn wait_for_keys(client: &mut Client, id: u32, keys: &[Vec<u8>]) {
    let mut encoded = Vec::new();
    let mut list = Vec::new();
    Items::push(&mut list, b"f");
    let request = HashCommand::Remove { names: Items::parse(&list).unwrap() }.request();
    for key in keys {
        Command::Of { key, request }.encode_within(Database::ZERO, id, &mut encoded);
    }
    wait_with(client, id, 0, &encoded);
}

/// The thread of the shard gets an order for each that begins and ends; nothing waits at this shard alone.
#[test]
fn a_wait_over_shards_is_ended_by_its_claim_and_its_late_answer_dropped() {
    let mut client = Client::with(Durability::Memory);
    let keys = [b"a".to_vec(), b"b".to_vec()];
    wait_for_keys(&mut client, id(1, 1), &keys);
    wait_for_keys(&mut client, id(2, 1), &keys);
    let orders: Vec<WaitOrder> = client.session.take_wait_orders().collect();
    let [WaitOrder::Begin { claim, commands, .. }, WaitOrder::Begin { claim: other, .. }] =
        &orders[..]
    else {
        panic!("both begin")
    };
    assert_eq!((commands.len(), client.session.waits(), client.shard.waiters()), (2, 0, 0));
    // The role's end is for the shard's thread to tell.
    client.session.end_waits(&mut client.shard, Status::WaitEnded).unwrap();
    assert_eq!(client.replies(), []);
    // A shard answers the one, and the other one's client sends its next frame first.
    assert!(claim.take());
    get(&mut client, id(1, 2));
    get(&mut client, id(2, 2));
    let ended = [(1, 1), (1, 2), (2, 1), (2, 2)].map(|(of, number)| (id(of, number), NOT_FOUND));
    assert_eq!(client.replies(), ended);
    assert!(other.is_taken());
    let late = Served { name: [0; 4], status: Status::Ok, number: 0, value: None, wait: 0 };
    client.session.answer_over_shards(id(1, 1), &late).unwrap();
    assert_eq!(client.replies(), []);
    let ends: Vec<WaitOrder> = client.session.take_wait_orders().collect();
    assert!(matches!(ends[..], [WaitOrder::End(_), WaitOrder::End(_)]));
}

#[test]
fn waits_over_shards_that_end_faster_than_shards_let_go_are_bounded() {
    let mut client = Client::with(Durability::Memory);
    let keys = [vec![b'a'; 30_000], vec![b'b'; 30_000]];
    let (mut orders, mut begun) = (Vec::new(), 0);
    // The next frame of the session ends each of them.
    let refused = loop {
        begun += 1;
        wait_for_keys(&mut client, id(1, begun), &keys);
        orders.extend(client.session.take_wait_orders());
        match client.replies().last() {
            Some(&(of, status)) if of == id(1, begun) => break status,
            _ => assert!(begun < 1_000, "it is bounded"),
        }
    };
    assert_eq!(refused, Some(Status::OutOfMemory));
    assert!(begun as usize * 60_000 <= MAX_ENDED_WAIT_BYTES + 120_000, "{begun}");
    orders.clear();
    wait_for_keys(&mut client, id(1, begun + 1), &keys);
    assert_eq!(client.replies(), []);
}

#[test]
fn commands_that_are_no_commands_for_keys_do_not_wait() {
    let mut client = Client::with(Durability::Memory);
    let keys = vec![b"k".to_vec(); MAX_WAITED_KEYS + 1];
    wait_for_keys(&mut client, id(1, 1), &[]);
    wait_for_keys(&mut client, id(1, 2), &keys);
    let mut whole = Vec::new();
    with_field(true, |command| command.encode_within(Database::ZERO, 0, &mut whole));
    let mut get = Vec::new();
    Command::Get { key: KEY }.encode_within(Database::ZERO, 0, &mut get);
    let other = [&whole[..], &get].concat();
    wait_with(&mut client, id(1, 3), 0, &whole[..whole.len() - 1]);
    wait_with(&mut client, id(1, 4), 0, &[&whole[..], &whole[..5]].concat());
    wait_with(&mut client, id(1, 5), 0, &other);
    let refused = [1, 2, 3, 4, 5].map(|of| (id(1, of), Some(Status::Malformed)));
    assert_eq!(client.replies(), refused);
    assert_eq!(client.session.take_wait_orders().count(), 0);
}
