//! Replies that come from their shard in pieces.

use crate::resp::tests::world::World;
use remora_frontend::{OwnedReply, ReplyForm as _, ShardAnswer};
use remora_layout::limits::{CONNECTION_PAUSE_OUTPUT_BYTES, CONNECTION_PIECE_BYTES};
use remora_protocol::message::Status;
use remora_resp::ReplyForm;
use remora_resp::commands::server;
use remora_resp::wire::RespVersion;
use std::collections::BTreeMap;

const FIELDS: usize = 120_000;
/// Bytes that sockets hold for a client that does not read.
const SOCKET_BYTES: usize = 100_000;

/// Pieces that a client gets which does not read.
const MOST_PIECES: usize = CONNECTION_PAUSE_OUTPUT_BYTES / CONNECTION_PIECE_BYTES + 2;

/// A value long enough that all are several times the buffer.
fn value(field: usize) -> String {
    format!("{field:090}")
}

/// The hash `h`, by connection 0.
fn fill(world: &mut World) {
    for from in (0..FIELDS).step_by(500) {
        let pairs: String = (from..from + 500).map(|at| format!(" f{at} {}", value(at))).collect();
        assert_eq!(world.call(0, &format!("HSET h{pairs}\r\n")).0, ":500\r\n");
    }
}

/// The result of a HGETALL.
fn fields(reply: &str) -> BTreeMap<&str, &str> {
    let mut lines = reply.split("\r\n");
    assert_eq!(lines.next(), Some(&*format!("*{}", 2 * FIELDS)));
    let items: Vec<&str> = lines.skip(1).step_by(2).collect();
    items.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect()
}

fn is_as_it_was(reply: &str) -> bool {
    let told = fields(reply);
    told.len() == FIELDS && (0..FIELDS).all(|at| told[&*format!("f{at}")] == value(at))
}

#[test]
fn a_long_reply_comes_as_fast_as_it_is_read_and_tells_of_one_moment() {
    let mut world = World::new(2);
    fill(&mut world);
    world.bound(0, SOCKET_BYTES);
    let (mut reply, mut jobs) = world.call(0, "HGETALL h\r\nPING\r\n");
    assert!(jobs <= MOST_PIECES, "{jobs} pieces for one that does not read");
    while !reply.ends_with("+PONG\r\n") {
        // Others are served meanwhile, and their changes do not show.
        let field = jobs * 37 % FIELDS;
        assert_eq!(world.call(1, &format!("HSET h f{field} new\r\n")).0, ":0\r\n");
        assert_eq!(world.call(1, &format!("HDEL h f{field}\r\n")).0, ":1\r\n");
        assert_eq!(world.call(1, &format!("HSET h f{field} again\r\n")).0, ":1\r\n");
        let (more, asked) = world.call(0, "");
        assert!(more.len() <= SOCKET_BYTES && !more.is_empty());
        reply += &more;
        jobs += asked;
    }
    assert!(jobs > 3 * MOST_PIECES, "{jobs} pieces");
    assert!(is_as_it_was(reply.strip_suffix("+PONG\r\n").unwrap()));
    assert_eq!(world.heap_bytes(), 0, "nothing is kept for it any more");
}

#[test]
fn a_reader_that_goes_leaves_nothing_at_the_shard() {
    for is_written in [false, true] {
        let mut world = World::new(3);
        fill(&mut world);
        world.bound(1, SOCKET_BYTES);
        if is_written {
            world.call(1, "HGETALL h\r\n");
        } else {
            world.send(1, "HGETALL h\r\n");
            world.serve();
        }
        world.cut(1);
        // Changed fields are no longer copied for any reader.
        for from in (0..FIELDS).step_by(1_000) {
            assert_eq!(world.call(2, &format!("HSET h f{from} new\r\n")).0, ":0\r\n");
        }
        assert_eq!((world.open().0, world.heap_bytes()), (2, 0));
    }
}

#[test]
fn a_reader_for_which_too_much_is_kept_is_cut_off() {
    let mut world = World::new(3);
    fill(&mut world);
    world.bound(0, SOCKET_BYTES);
    world.call(0, "HGETALL h\r\n");
    assert_eq!(world.call(1, "DEL h\r\n").0, ":1\r\n");
    // The shard's memory is 64 MiB, and an eighth of it is less than the hash.
    assert!(world.heap_bytes() <= 8 << 20);
    assert_eq!(world.open(), (3, 0));
    // It reads on, up to the bytes that were under way.
    let mut told = 0;
    for _ in 0..2 * MOST_PIECES * CONNECTION_PIECE_BYTES / SOCKET_BYTES {
        let (more, _) = world.call(0, "");
        told += more.len();
    }
    assert_eq!(world.open(), (2, 1));
    assert!(told < FIELDS * 100 / 2);
    // One that asks now has an answer.
    assert_eq!(world.call(2, "HGETALL h\r\n").0, "*0\r\n");
    assert_eq!(world.heap_bytes(), 0);
}

/// One shard that could not return its digest is enough; no client gets a partial one.
#[test]
fn a_digest_that_a_shard_has_refused_is_no_digest() {
    let digest = |status| OwnedReply { value: Some(vec![1; 16]), ..OwnedReply::status(status) };
    let write = |parts: [OwnedReply; 2]| {
        let mut out = Vec::new();
        let parts: Vec<ShardAnswer<'_>> = parts.iter().map(ShardAnswer::from).collect();
        ReplyForm::Combined(&server::DIGEST).write(&mut out, RespVersion::Resp2, &parts);
        String::from_utf8(out).unwrap()
    };
    assert!(write([Status::Ok; 2].map(digest)).starts_with('+'));
    let told = write([digest(Status::Ok), OwnedReply::status(Status::TryAgain)]);
    assert_eq!(
        told,
        "-TRYAGAIN keys were changed all the time: ask again when fewer changes come\r\n"
    );
}
