//! A client session against a server in this process.

use remora_client::{Options, Path, Session, SetOptions, Via, Wake};
use remora_server::{Config, Server};

struct Bed {
    server: Option<Server>,
    directory: tempfile::TempDir,
}

fn bed(shards: usize) -> Bed {
    let directory = tempfile::tempdir().unwrap();
    let config = Config {
        resp_address: "127.0.0.1:0".parse().unwrap(),
        socket_path: directory.path().join("remora.sock"),
        shards,
        max_memory_bytes: 64 << 20,
        buckets: 0,
        wake: remora_server::Wake::Hybrid,
        pin: false,
        lease_min_ms: 1000,
    };
    Bed { server: Some(Server::start(config).unwrap()), directory }
}

impl Bed {
    fn session(&self, wake: Wake) -> Session {
        let options = Options { wake, ..Options::default() };
        Session::connect(&self.directory.path().join("remora.sock"), &options).unwrap()
    }
}

#[test]
fn a_key_is_asked_then_read() {
    let bed = bed(2);
    let mut session = bed.session(Wake::Hybrid);
    assert!(session.get(b"k", Path::Choose).unwrap().value.is_none());
    assert!(session.set(b"k", b"v", SetOptions::default()).unwrap());
    let got = session.get(b"k", Path::Ask).unwrap();
    assert_eq!((got.value, got.via, got.counts.round_trips), (Some(&b"v"[..]), Via::Asked, 1));
    let got = session.get(b"k", Path::Choose).unwrap();
    assert_eq!((got.value, got.via, got.counts.round_trips), (Some(&b"v"[..]), Via::Read, 1));
    assert_eq!(got.counts.hits, 1);
    // Another session has no pointer: bucket, then record.
    let mut other = bed.session(Wake::Event);
    std::thread::sleep(std::time::Duration::from_millis(30));
    let _ = other.get(b"k", Path::Read).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(30));
    let mut third = bed.session(Wake::Event);
    let _ = third.exists(b"k");
    let got = third.get(b"k", Path::Read).unwrap();
    assert_eq!((got.value, got.via, got.counts.round_trips), (Some(&b"v"[..]), Via::Read, 2));
    let got = third.get(b"k", Path::Read).unwrap();
    assert_eq!((got.via, got.counts.round_trips, got.counts.nodes), (Via::Read, 1, 1));
    session.set(b"k", b"w", SetOptions::default()).unwrap();
    let got = third.get(b"k", Path::Choose).unwrap();
    assert_eq!((got.value, got.via, got.counts.stale), (Some(&b"w"[..]), Via::AskedAfterRead, 1));
    assert_eq!(got.counts.round_trips, 2);
}
