//! The kept input of a client that sends faster than it is served.

use crate::resp::tests::world::{World, request};
use remora_frontend::READ_BYTES;
use remora_layout::limits::CONNECTION_REQUESTS_PER_TURN;

/// The client sends as fast as the server reads, and reads all replies.
#[test]
fn a_client_that_sends_without_a_pause_is_read_as_fast_as_it_is_served() {
    const PING: &str = "PING\r\n";
    let requests = 400 * CONNECTION_REQUESTS_PER_TURN;
    let mut world = World::at_home(1);
    world.send(0, &PING.repeat(requests));
    let (mut answered, mut turns) = (0, 0);
    while !world.is_done() {
        world.serve();
        let replies = world.written(0).len() / "+PONG\r\n".len();
        answered += replies;
        turns += 1;
        assert!(replies <= CONNECTION_REQUESTS_PER_TURN);
        let kept = (requests - answered) * PING.len() - world.unread(0);
        assert!(kept <= READ_BYTES + PING.len(), "{kept} bytes are kept after {turns} turns");
    }
    // Only the first bytes have announced the others.
    assert_eq!(answered, requests);
    assert!(turns <= requests / CONNECTION_REQUESTS_PER_TURN + 10, "{turns} turns");
}

#[test]
fn requests_of_all_lengths_are_executed_whole_and_in_order() {
    let mut world = World::at_home(1);
    let lengths = [1, 70_000, 3, READ_BYTES, 300_000, 10, READ_BYTES - 40];
    let (mut lines, mut replies) = (String::new(), String::new());
    for (at, length) in lengths.into_iter().enumerate() {
        let value = "v".repeat(length);
        lines += &request(&format!("SET k{at} {value}"));
        lines += &request(&format!("STRLEN k{at}")).repeat(150);
        replies += "+OK\r\n";
        replies += &format!(":{length}\r\n").repeat(150);
    }
    assert!(world.call(0, &lines).0 == replies);
}

/// A read costs a system call. Over eight shards a pipeline of 16 gets its replies in
/// several turns.
#[test]
fn a_turn_that_only_a_reply_asks_for_reads_nothing() {
    let mut world = World::new(1);
    world.serve();
    for round in 1..=3 {
        world.send(0, &request("SET key value"));
        world.serve();
        let reads = world.looks(0);
        assert_eq!(world.written(0), "", "round {round}: it is asked for");
        world.execute();
        world.serve();
        assert_eq!((world.written(0).as_str(), world.looks(0)), ("+OK\r\n", reads));
    }
}

#[test]
fn a_server_that_ends_reads_also_what_has_come_behind_requests_that_wait() {
    let mut world = World::at_home(1);
    world.send(0, &"PING\r\n".repeat(CONNECTION_REQUESTS_PER_TURN + 70));
    world.serve();
    world.send(0, &"PING\r\n".repeat(10));
    world.stop_reading();
    world.serve_until_idle();
    let pongs = world.written(0).matches("+PONG").count();
    assert_eq!((pongs, world.unread(0)), (CONNECTION_REQUESTS_PER_TURN + 80, 0));
}
