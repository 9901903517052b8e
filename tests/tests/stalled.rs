//! Clients that send a part of something large, and then no more: what they
//! held serves others, and they are told, over rings and over RESP.

use remora_layout::limits::MAX_STREAMS;
use remora_protocol::Command;
use remora_protocol::message::{Op, ReplyHeader, Status};
use remora_tests::proc::anonymous_kib;
use remora_tests::{RawSession, Resp, ServerProcess, Value, encode, wait_until};
use std::collections::BTreeMap;
use zerocopy::FromBytes;

const MIB: usize = 1 << 20;

fn server(wake: &str) -> ServerProcess {
    ServerProcess::start(&["--shards=1", "--max-memory=100MiB", "--upload-idle-s=1", wake])
}

/// The next reply: its id and its status.
fn reply(raw: &mut RawSession) -> (u32, Status) {
    let mut payload = None;
    wait_until("a reply", || {
        payload = raw.receive();
        payload.is_some()
    });
    let (header, _) = ReplyHeader::read_from_prefix(&payload.unwrap()).unwrap();
    (header.id.get(), Status::from_number(header.status).unwrap())
}

#[test]
fn uploads_over_rings_that_stall_are_given_up_and_the_session_lives_on() {
    for wake in ["--wake=event", "--wake=hybrid"] {
        let server = server(wake);
        let mut resp = server.resp();
        let before = resp.info("used_memory");
        let mut raw = RawSession::connect(&server.socket());
        // As many as may be under way; two of them large.
        raw.announce_large(0, b"big", 60 * MIB, 3);
        raw.announce(Op::Append, 1, b"log", MIB);
        raw.send_pieces(1, 2);
        for id in 2..MAX_STREAMS as u32 {
            raw.announce_large(id, b"other", 100_000, 1);
        }
        let all: BTreeMap<u32, Status> = (0..MAX_STREAMS).map(|_| reply(&mut raw)).collect();
        assert!(all.into_iter().eq((0..MAX_STREAMS as u32).map(|id| (id, Status::Stalled))));
        wait_until("their memory is free again", || {
            resp.info("used_memory") == before
                && resp.info("uploads_abandoned") == MAX_STREAMS as u64
        });
        // Late pieces, and a request behind them.
        raw.send_pieces(0, 5);
        raw.send_pieces(1, 5);
        wait_until("there is room", || raw.send(&Command::Get { key: b"big" }, 100));
        assert_eq!(reply(&mut raw), (100, Status::NotFound));
        // Ids and places serve again. On a busy machine this test may stall, too.
        let mut stalled = MAX_STREAMS as u64;
        loop {
            raw.announce_large(0, b"big", 180_000, 3);
            match reply(&mut raw) {
                (0, Status::Ok) => break,
                told => assert_eq!(told, (0, Status::Stalled)),
            }
            stalled += 1;
        }
        assert_eq!(resp.call("GET big"), Value::bulk(vec![7; 180_000]));
        wait_until("all are counted", || resp.info("uploads_abandoned") == stalled);
        assert_eq!(resp.info("sessions_violated"), 0);
        assert!(!raw.is_withdrawn());
    }
}

/// A SET of so many bytes.
fn request(bytes: usize) -> Vec<u8> {
    encode(&[b"SET", b"big", &vec![7; bytes]])
}

fn refusal(resp: &mut Resp) {
    let Value::Error(text) = resp.receive().unwrap() else { panic!("no error") };
    let told = "ERR the request was given up: no more of it came for 1 s; send it again";
    assert_eq!(text, told);
}

#[test]
fn a_resp_request_that_stalls_is_given_up_and_the_connection_lives_on() {
    let server = server("--wake=event");
    let (mut resp, mut other) = (server.resp(), server.resp());
    let request = request(40 * MIB);
    let before = anonymous_kib(server.pid());
    let (half, rest) = request.split_at(request.len() / 2);
    resp.send_raw(half).unwrap();
    refusal(&mut resp);
    assert_eq!(other.info("requests_abandoned"), 1);
    wait_until("what was kept of it is given back", || {
        anonymous_kib(server.pid()) < before + (4 << 10)
    });
    // The rest comes late, and what follows it is understood.
    resp.send_raw(rest).unwrap();
    assert_eq!(resp.call("EXISTS big"), Value::Integer(0));
    assert_eq!(resp.call("SET big small"), Value::ok());
    assert_eq!(other.call("GET big"), Value::bulk("small"));
    assert_eq!((other.info("requests_abandoned"), other.info("protocol_errors")), (1, 0));
    // A stalled client that goes is no trouble either.
    resp.send_raw(half).unwrap();
    drop(resp);
    wait_until("it is gone", || other.info("connected_clients") == 1);
    assert_eq!(other.call("PING"), Value::Simple("PONG".into()));
}
