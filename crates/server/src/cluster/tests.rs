//! A server that is the only member of its cluster, with a coordinator in memory.

use crate::cluster::ClusterSettings;
use crate::config::Config;
use crate::server::Server;
use remora_cluster::coordinator::{Coordinator, Event, Proposal, RequestId};
use remora_cluster::memory::{MemoryCoordinator, MemoryEnsemble};
use remora_cluster::topology::{GroupId, Instance, MemberId, Topology};
use remora_cluster::wire::{Envelope, Letter};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const SESSION_MS: u64 = 60_000;
/// The cluster of the server, and another one.
const OWN: u64 = 7;
const OTHER: u64 = 8;
/// Looks after which a test gives up.
const MOST_LOOKS: usize = 6_000;
const LOOK: Duration = Duration::from_millis(5);

/// A session in memory, whose thread stands still while a test holds the gate.
struct Gated {
    inner: MemoryCoordinator,
    ensemble: MemoryEnsemble,
    gate: Arc<Mutex<()>>,
    /// Looks behind which the topology of another cluster was delivered.
    looks_behind: Arc<AtomicU64>,
    has_delivered: bool,
    /// Turns of the thread: looks that found nothing more.
    turns: Arc<AtomicU64>,
}

impl Coordinator for Gated {
    fn session_ms(&self) -> u64 {
        self.inner.session_ms()
    }

    fn create(&mut self, now_ms: u64, topology: &Topology) -> RequestId {
        self.inner.create(now_ms, topology)
    }

    fn propose(&mut self, now_ms: u64, proposal: &Proposal) -> RequestId {
        self.inner.propose(now_ms, proposal)
    }

    fn enter(&mut self, now_ms: u64, instance: Instance) -> RequestId {
        self.inner.enter(now_ms, instance)
    }

    fn leave(&mut self, now_ms: u64) -> RequestId {
        self.inner.leave(now_ms)
    }

    fn renew(&mut self, now_ms: u64, topology_version: u64) -> RequestId {
        self.inner.renew(now_ms, topology_version)
    }

    fn stand(&mut self, now_ms: u64) -> RequestId {
        self.inner.stand(now_ms)
    }

    fn step_down(&mut self, now_ms: u64) -> RequestId {
        self.inner.step_down(now_ms)
    }

    fn poll(&mut self, now_ms: u64) -> Option<Event> {
        // A test that fails may have held it.
        let _open = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
        self.looks_behind.fetch_add(self.has_delivered.into(), Ordering::SeqCst);
        self.ensemble.advance(now_ms);
        let event = self.inner.poll(now_ms);
        self.turns.fetch_add(event.is_none().into(), Ordering::SeqCst);
        let is_other = |of: &Event| matches!(of, Event::Topology(of) if of.cluster == OTHER);
        self.has_delivered |= event.as_ref().is_some_and(is_other);
        event
    }
}

struct Lone {
    server: Server,
    ensemble: MemoryEnsemble,
    gate: Arc<Mutex<()>>,
    looks_behind: Arc<AtomicU64>,
    turns: Arc<AtomicU64>,
    _directory: tempfile::TempDir,
}

impl Lone {
    /// It leads a group that needs no replica.
    fn new() -> Self {
        let (ensemble, gate) = (MemoryEnsemble::new(), Arc::new(Mutex::new(())));
        ensemble.overwrite(cluster(OWN).encode());
        let [looks_behind, turns] = [(); 2].map(|()| Arc::<AtomicU64>::default());
        let counts = (Arc::clone(&looks_behind), Arc::clone(&turns));
        let of_thread = (ensemble.clone(), Arc::clone(&gate), counts);
        let connect = move || {
            let (ensemble, gate, (looks_behind, turns)) = of_thread.clone();
            let inner = ensemble.connect(SESSION_MS);
            let gated = Gated { inner, ensemble, gate, looks_behind, has_delivered: false, turns };
            Ok(Box::new(gated) as Box<dyn Coordinator + Send>)
        };
        let cluster = ClusterSettings {
            group: "main".into(),
            announced_resp: None,
            announced_host: None,
            coordinator: "memory".into(),
            connect: Arc::new(connect),
        };
        let directory = tempfile::tempdir().unwrap();
        let config = Config {
            cluster: Some(cluster),
            fabric_address: Some("127.0.0.1:0".parse().unwrap()),
            ..Config::for_tests(directory.path())
        };
        let server = Server::start(config).unwrap();
        let new = Self { server, ensemble, gate, looks_behind, turns, _directory: directory };
        new.until("it takes changes", "SET k v", |reply| reply == "+OK");
        new
    }

    /// The first line of the reply.
    fn call(&self, command: &str) -> String {
        let mut link = TcpStream::connect(self.server.resp_address()).unwrap();
        link.write_all(format!("{command}\r\n").as_bytes()).unwrap();
        let mut line = String::new();
        BufReader::new(link).read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn until(&self, what: &str, command: &str, holds: impl Fn(&str) -> bool) {
        let mut last = String::new();
        for _ in 0..MOST_LOOKS {
            last = self.call(command);
            if holds(&last) {
                return;
            }
            std::thread::sleep(LOOK);
        }
        panic!("waited for too long until {what}: {command} gives {last}");
    }

    /// Sends this message, as a server of a cluster does.
    fn deliver(&self, envelope: &Envelope) {
        let bytes = envelope.encode();
        let mut link = TcpStream::connect(self.server.resp_address()).unwrap();
        let head = format!("*2\r\n$14\r\nMEMBER.DELIVER\r\n${}\r\n", bytes.len());
        link.write_all(&[head.as_bytes(), &bytes, b"\r\n"].concat()).unwrap();
        let mut line = String::new();
        BufReader::new(link).read_line(&mut line).unwrap();
        assert_eq!(line, "+OK\r\n");
    }

    /// The thread of the cluster has taken what was delivered, and shows what it does: it ticks in
    /// every third turn at least.
    fn settle(&self) {
        let behind = self.turns.load(Ordering::SeqCst) + 10;
        let is_settled = || self.turns.load(Ordering::SeqCst) >= behind;
        self.until("the messages were taken", "PING", |_| is_settled());
    }

    /// The thread of the cluster stands still, until the guard is dropped.
    fn stall(&self) -> MutexGuard<'_, ()> {
        self.gate.lock().unwrap()
    }
}

fn cluster(id: u64) -> Topology {
    Topology::new(id, vec![(GroupId(1), "main".into(), 0)]).unwrap()
}

#[test]
fn a_server_whose_cluster_thread_stands_still_stops_serving_though_nobody_could_be_promoted() {
    let lone = Lone::new();
    let stalled = lone.stall();
    // Another server may enter the set and be promoted before that thread runs again.
    let down = |reply: &str| reply.starts_with("-CLUSTERDOWN the recorded in-sync set");
    lone.until("its lease has ended", "GET k", down);
    let reply = lone.call("SET k w");
    assert!(down(&reply), "{reply}");
    drop(stalled);
    lone.until("it serves again", "GET k", |reply| reply == "$1");
    lone.until("it takes changes again", "SET k w", |reply| reply == "+OK");
    lone.server.shutdown();
}

#[test]
fn a_cluster_that_was_made_anew_is_not_followed() {
    let lone = Lone::new();
    let known = lone.server.shared().cluster.topology().unwrap();
    lone.ensemble.overwrite(cluster(OTHER).encode());
    // The server has heard of it once it looks again.
    let has_heard = || lone.looks_behind.load(Ordering::SeqCst) > 1;
    lone.until("it has heard of the other one", "PING", |_| has_heard());
    let shared = lone.server.shared();
    assert_eq!(shared.cluster.topology().map(|of| of.cluster), Some(known.cluster));
    assert_eq!(shared.cluster.version(), known.version);
    lone.until("it is no watcher any more", "PING", |_| lone.ensemble.watcher().is_none());
    lone.server.shutdown();
}

#[test]
fn messages_of_another_cluster_or_for_another_server_are_not_taken() {
    let lone = Lone::new();
    let shared = lone.server.shared();
    lone.until("it is the watcher", "PING", |_| lone.ensemble.watcher().is_some());
    lone.settle();
    let own = Instance { member: shared.cluster.member, incarnation: shared.incarnation };
    let other = Instance { member: MemberId(own.member.0 ^ 1), incarnation: 1 };
    // It leads already: a message that is taken leaves a refusal.
    let letter = Letter::Promote(own.member);
    let right = Envelope { cluster: OWN, from: other, to: own, letter };
    let wrong = [
        Envelope { cluster: OTHER, ..right.clone() },
        Envelope { to: Instance { member: other.member, ..own }, ..right.clone() },
        // A message for the process before a restart.
        Envelope { to: Instance { incarnation: own.incarnation ^ 1, ..own }, ..right.clone() },
    ];
    for envelope in wrong {
        lone.deliver(&envelope);
        lone.settle();
        assert_eq!(shared.cluster.watching().refusals, [""; 0], "{envelope:?}");
    }
    lone.deliver(&right);
    lone.settle();
    let refusals = shared.cluster.watching().refusals;
    assert!(matches!(&refusals[..], [one] if one.contains("it is that member")), "{refusals:?}");
    lone.server.shutdown();
}
