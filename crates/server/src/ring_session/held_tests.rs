//! Replies that are held back until they are durable.

use super::uploads::tests::Client;
use remora_engine::Durability;
use remora_layout::limits::{FRAMES_PER_TURN, HELD_REPLIES};
use remora_protocol::hash::HashCommand;
use remora_protocol::message::Status;
use remora_protocol::{Command, Condition, Expiry, Items};

const OK: Option<Status> = Some(Status::Ok);
const NOT_FOUND: Option<Status> = Some(Status::NotFound);

/// The id of a request of one session of the client.
fn id(session: u32, request: u32) -> u32 {
    session << 16 | request
}

fn send(client: &mut Client, id: u32, command: &Command<'_>) {
    let mut frame = Vec::new();
    command.encode_into(id, &mut frame);
    client.send(&[&frame]);
}

fn set<'a>(key: &'a [u8]) -> Command<'a> {
    let (condition, expiry) = (Condition::Always, Expiry::Never);
    Command::Set { key, value: b"value", condition, expiry, get: false }
}

/// Turns until there is nothing to do.
fn settle(client: &mut Client) {
    client.turn();
    while client.session.has_work() {
        client.turn();
    }
}

#[test]
fn replies_wait_in_the_order_of_their_session_and_others_go_on() {
    let mut client = Client::with(Durability::Told);
    send(&mut client, id(1, 1), &set(b"a"));
    send(&mut client, id(1, 2), &Command::Get { key: b"other" });
    send(&mut client, id(2, 1), &Command::Get { key: b"other" });
    send(&mut client, id(3, 1), &Command::Get { key: b"a" });
    send(&mut client, id(1, 3), &set(b"b"));
    settle(&mut client);
    assert_eq!(client.replies(), [(id(2, 1), NOT_FOUND)], "it depends on nothing");
    assert_eq!(client.session.held_replies(), 4);
    client.shard.set_durable(1);
    settle(&mut client);
    let mut told = client.replies();
    told.sort_by_key(|&(id, _)| id >> 16);
    assert_eq!(told, [(id(1, 1), OK), (id(1, 2), NOT_FOUND), (id(3, 1), OK)]);
    client.shard.set_durable(2);
    settle(&mut client);
    assert_eq!(client.replies(), [(id(1, 3), OK)]);
    assert_eq!(client.session.held_replies(), 0);
}

/// The client of an application asks whether its changes are on the disk: that reply waits for the
/// replies of its own session, and neither for what is durable nor for the disk.
#[test]
fn a_question_about_the_disk_waits_for_nothing() {
    let mut client = Client::with(Durability::Told);
    let asks = Command::Synced { until: 0, begins: true };
    send(&mut client, id(1, 1), &asks);
    client.shard.set_synced(0);
    send(&mut client, id(2, 1), &set(b"a"));
    send(&mut client, id(3, 1), &asks);
    settle(&mut client);
    assert_eq!(client.replies(), [(id(1, 1), OK), (id(3, 1), Some(Status::NotDone))]);
    assert_eq!(client.session.held_replies(), 1);
    assert!(client.shard.wants_sync());
    client.shard.set_durable(1);
    settle(&mut client);
    assert_eq!(client.replies(), [(id(2, 1), OK)]);
    client.shard.set_synced(1);
    send(&mut client, id(3, 2), &asks);
    settle(&mut client);
    assert_eq!(client.replies(), [(id(3, 2), OK)]);
}

/// A group of changes becomes durable at once.
#[test]
fn one_turn_sends_the_replies_to_all_sessions() {
    let mut client = Client::with(Durability::Told);
    for session in 1..=5 {
        send(&mut client, id(session, 1), &set(b"a"));
        send(&mut client, id(session, 2), &set(b"b"));
    }
    settle(&mut client);
    assert_eq!(client.session.held_replies(), 10);
    // The last one of the last session waits on.
    client.shard.set_durable(9);
    client.turn();
    assert_eq!((client.replies().len(), client.session.held_replies()), (9, 1));
    assert!(!client.session.has_work());
}

#[test]
fn with_too_many_held_replies_requests_wait_in_the_ring_and_none_is_lost() {
    let mut client = Client::with(Durability::Told);
    let all = HELD_REPLIES as u32 + 100;
    let mut told = Vec::new();
    for request in 0..all {
        send(&mut client, id(1, request), &set(b"a"));
        if request % 10 == 9 {
            settle(&mut client);
        }
    }
    settle(&mut client);
    let executed = client.shard.last_sequence();
    assert!((HELD_REPLIES as u64..all as u64).contains(&executed), "{executed}");
    assert!(!client.session.has_work(), "it sleeps until something is durable");
    assert_eq!(client.replies(), []);
    for durable in [executed, all as u64] {
        client.shard.set_durable(durable);
        settle(&mut client);
        told.extend(client.replies());
    }
    client.shard.set_durable(all as u64);
    settle(&mut client);
    told.extend(client.replies());
    assert_eq!(told, (0..all).map(|request| (id(1, request), OK)).collect::<Vec<_>>());
}

#[test]
fn a_flush_is_answered_at_its_end_and_others_go_on() {
    let mut client = Client::with(Durability::Memory);
    for number in 0..3_000u32 {
        let key = number.to_le_bytes();
        client.shard.execute(&set(&key), client.shard.hash(&key), Default::default());
    }
    send(&mut client, id(1, 1), &Command::Flush);
    send(&mut client, id(1, 2), &Command::Count);
    client.turn();
    let mut turns = 0;
    while client.shard.wants_release() {
        assert!(client.session.has_work(), "it waits for its end");
        send(&mut client, id(2, turns), &Command::Count);
        client.turn();
        assert_eq!(client.replies(), [(id(2, turns), OK)]);
        client.shard.release_some(Default::default());
        turns += 1;
    }
    assert!(turns > 5, "{turns}");
    settle(&mut client);
    assert_eq!(client.replies(), [(id(1, 1), OK), (id(1, 2), OK)]);
}

#[test]
fn searches_of_a_client_that_takes_nothing_begin_one_after_the_other() {
    const VALUE_BYTES: usize = 4 << 20;
    let mut client = Client::with(Durability::Memory);
    let value = vec![7; VALUE_BYTES];
    let mut list = Vec::new();
    [b"f", &value[..]].iter().for_each(|item| Items::push(&mut list, item));
    let pairs = Items::parse(&list).unwrap();
    let command = Command::Of { key: b"h", request: HashCommand::Set { pairs }.request() };
    let hash = client.shard.hash(b"h");
    assert_eq!(client.shard.execute(&command, hash, Default::default()).status, Status::Ok);
    let mut list = Vec::new();
    Items::push(&mut list, b"f");
    let get = HashCommand::GetMany { names: Items::parse(&list).unwrap() }.request();
    for request in 0..FRAMES_PER_TURN as u32 {
        // Of one thread of the client, and of others.
        send(&mut client, id(request % 4, request), &Command::Of { key: b"h", request: get });
    }
    let mut told = [Vec::new(), Vec::new(), Vec::new(), Vec::new()];
    for _ in 0..10_000 {
        client.turn();
        let kept = client.session.kept_bytes();
        assert!(kept <= VALUE_BYTES + (1 << 20), "{kept} bytes are kept");
        for (id, status) in client.replies() {
            assert_eq!(status, OK);
            told[id as usize >> 16].push(id & 0xffff);
        }
        client.give_credit();
    }
    for (session, mut told) in told.into_iter().enumerate() {
        // Each has many frames.
        told.dedup();
        assert_eq!(told, [0, 4, 8, 12].map(|at| at + session as u32));
    }
}
