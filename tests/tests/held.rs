//! A whole server whose changes are durable when the test says so: replies wait
//! for exactly what they looked at, over RESP, over rings and by reading, and
//! what waits is bounded.

use remora_client_core::{Path, Session};
use remora_layout::limits::{CONNECTION_PAUSE_PENDING, HELD_REPLIES};
use remora_protocol::Command;
use remora_protocol::message::{ReplyHeader, Status};
use remora_server::{Config, Server};
use remora_tests::{RawSession, Resp, Value, encode, options, own_config, wait_for, wait_until};
use std::io::ErrorKind;
use std::thread;
use tempfile::TempDir;
use zerocopy::FromBytes;

/// Requests that are taken in one turn, and so before the limit is looked at again.
const TURN_REQUESTS: usize = 64;

/// Replies that one RESP connection may hold.
const RESP_REQUESTS: usize = CONNECTION_PAUSE_PENDING;

/// A server of one shard.
struct Scene {
    server: Server,
    /// Tells how many replies are held.
    info: Resp,
    _directory: TempDir,
}

impl Scene {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let config = own_config(&directory.path().join("socket"));
        let server = Server::start_told(Config { shards: 1, ..config }).unwrap();
        let info = Resp::connect(server.resp_address()).unwrap();
        Self { server, info, _directory: directory }
    }

    fn resp(&self) -> Resp {
        Resp::connect(self.server.resp_address()).unwrap()
    }

    /// A connection that has sent this request.
    fn asking(&self, request: &str) -> Resp {
        let mut resp = self.resp();
        resp.send(&request.split(' ').map(str::as_bytes).collect::<Vec<_>>()).unwrap();
        resp
    }

    fn wait_for_held(&mut self, count: usize) {
        let info = &mut self.info;
        wait_until("replies are held", || info.info("replies_held") == count as u64);
    }

    /// Waits until a peer has as many as it may have of what INFO counts.
    fn wait_for_limit(&mut self, what: &str, limit: usize) {
        let count = wait_for("a limit is reached", || {
            let count = self.info.info(what) as usize;
            (count >= limit).then_some(count)
        });
        assert!(count <= limit + TURN_REQUESTS, "{what} {count}");
    }

    /// Sets the key `old`, which is durable then.
    fn set_old(&mut self) {
        let mut old = self.asking("SET old x");
        self.wait_for_held(1);
        self.durable(1);
        assert_eq!(old.receive().unwrap(), Value::ok());
    }

    /// All changes so far are durable.
    fn all_durable(&self) {
        self.durable(u64::MAX);
    }

    fn durable(&self, sequence: u64) {
        self.server.set_durable(0, sequence);
    }
}

/// Whether the server has not replied to what was asked.
fn has_nothing(resp: &Resp) -> bool {
    resp.socket.set_nonblocking(true).unwrap();
    let peeked = resp.socket.peek(&mut [0]);
    resp.socket.set_nonblocking(false).unwrap();
    peeked.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

#[test]
fn a_reply_waits_for_the_newest_change_that_it_looked_at() {
    let mut scene = Scene::new();
    scene.set_old();
    let mut set = scene.asking("SET new y");
    scene.wait_for_held(1);
    let mut get = scene.asking("GET new");
    scene.wait_for_held(2);
    let socket = scene.server.socket_path().to_owned();
    let reader = thread::spawn(move || {
        let mut session = Session::connect(&socket, &options()).unwrap();
        let durable = session.get(b"old", Path::Read).unwrap().value.map(<[u8]>::to_vec);
        let pending = session.get(b"new", Path::Read).unwrap().value.map(<[u8]>::to_vec);
        (durable, pending)
    });
    scene.wait_for_held(3);
    // What is durable is served meanwhile.
    assert_eq!(scene.resp().call("GET old"), Value::bulk("x"));
    let mut del = scene.asking("DEL old");
    scene.wait_for_held(4);
    let mut nil = scene.asking("GET old");
    scene.wait_for_held(5);
    let all = [&set, &get, &del, &nil];
    assert!(all.into_iter().all(has_nothing) && !reader.is_finished());

    scene.durable(2);
    assert_eq!(set.receive().unwrap(), Value::ok());
    assert_eq!(get.receive().unwrap(), Value::bulk("y"));
    assert_eq!(reader.join().unwrap(), (Some(b"x".to_vec()), Some(b"y".to_vec())));
    scene.wait_for_held(2);
    assert!(has_nothing(&del) && has_nothing(&nil));

    scene.durable(3);
    assert_eq!(del.receive().unwrap(), Value::Integer(1));
    assert_eq!(nil.receive().unwrap(), Value::Null);
    scene.wait_for_held(0);
    scene.server.shutdown();
}

#[test]
fn a_connection_with_many_held_replies_waits_and_the_others_are_served() {
    let mut scene = Scene::new();
    scene.set_old();
    let many = 3 * CONNECTION_PAUSE_PENDING;
    let mut busy = scene.resp();
    let requests: Vec<u8> = (0..many)
        .flat_map(|number| encode(&[b"SET", format!("key-{number}").as_bytes(), b"v"]))
        .collect();
    let mut writer = busy.socket.try_clone().unwrap();
    let writing = thread::spawn(move || std::io::Write::write_all(&mut writer, &requests).unwrap());
    scene.wait_for_limit("pending_keys", RESP_REQUESTS);
    assert_eq!(scene.resp().call("GET old"), Value::bulk("x"));
    scene.wait_for_limit("pending_keys", RESP_REQUESTS);
    assert!(has_nothing(&busy));

    // A failed disk that works again.
    let reading = thread::spawn(move || {
        for _ in 0..many {
            assert_eq!(busy.receive().unwrap(), Value::ok());
        }
    });
    wait_until("all are answered", || {
        scene.all_durable();
        reading.is_finished()
    });
    reading.join().unwrap();
    writing.join().unwrap();
    assert_eq!(scene.info.call("DBSIZE"), Value::Integer(many as i64 + 1));
    scene.server.shutdown();
}

#[test]
fn a_ring_with_many_held_replies_waits_and_a_client_that_goes_leaves_none() {
    let mut scene = Scene::new();
    scene.set_old();
    let mut session = Session::connect(scene.server.socket_path(), &options()).unwrap();
    for goes in [true, false] {
        let mut raw = RawSession::connect(scene.server.socket_path());
        let requests = HELD_REPLIES as u32 + 100;
        for id in 0..requests {
            let incr = Command::Incr { key: b"ring", by: 1 };
            wait_until("the ring has room", || raw.send(&incr, id));
        }
        scene.wait_for_limit("replies_held", HELD_REPLIES);
        let got = session.get(b"old", Path::Ask).unwrap();
        assert_eq!(got.value, Some(&b"x"[..]));
        assert!(raw.receive().is_none());
        if goes {
            drop(raw);
            scene.wait_for_held(0);
            continue;
        }
        for id in 0..requests {
            let mut reply = None;
            wait_until("a reply", || {
                scene.all_durable();
                reply = raw.receive();
                reply.is_some()
            });
            let reply = reply.unwrap();
            let (header, _) = ReplyHeader::ref_from_prefix(&reply).unwrap();
            assert_eq!((header.id.get(), header.status), (id, Status::Ok as u8));
        }
    }
    scene.server.shutdown();
}
