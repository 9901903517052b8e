//! Large replies to clients that read as fast as they are sent to.

use crate::resp::tests::world::{World, request};
use remora_layout::limits::CONNECTION_SEND_BYTES_PER_TURN;

const LARGE: usize = 10 << 20;

#[test]
fn a_large_reply_to_a_fast_reader_takes_turns_and_others_are_served_between_them() {
    let mut world = World::at_home(2);
    let value = "v".repeat(LARGE);
    assert_eq!(world.call(0, &request(&format!("SET k {value}"))).0, "+OK\r\n");
    world.send(0, "GET k\r\n");
    let (mut reply, mut turns) = (String::new(), 0);
    while !world.is_done() {
        world.send(1, "PING\r\n");
        world.serve();
        world.execute();
        assert_eq!(world.written(1), "+PONG\r\n");
        let sent = world.written(0);
        assert!(sent.len() <= CONNECTION_SEND_BYTES_PER_TURN, "{} bytes in a turn", sent.len());
        turns += (!sent.is_empty()) as usize;
        reply += &sent;
    }
    // The client has sent nothing more, and its stream was never full.
    assert!(reply == format!("${LARGE}\r\n{value}\r\n"));
    assert_eq!(turns, LARGE.div_ceil(CONNECTION_SEND_BYTES_PER_TURN) + 1);
}

/// The bytes that a client takes before its stream is full end a turn, too: the turn continues with
/// the event that reports room.
#[test]
fn a_full_stream_is_waited_for() {
    let mut world = World::at_home(1);
    let value = "v".repeat(LARGE);
    world.call(0, &request(&format!("SET k {value}")));
    world.bound(0, 3 * CONNECTION_SEND_BYTES_PER_TURN);
    let mut reply = world.call(0, "GET k\r\n").0;
    while reply.len() < LARGE {
        let more = world.call(0, "").0;
        assert!(!more.is_empty() && more.len() <= 3 * CONNECTION_SEND_BYTES_PER_TURN);
        reply += &more;
    }
    assert!(reply == format!("${LARGE}\r\n{value}\r\n"));
}
