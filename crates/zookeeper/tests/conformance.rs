//! The coordinator over ZooKeeper keeps the contract: the body that the one in memory passes.

use crate::proxy::Proxy;
use crate::started;
use remora_cluster::conformance::{self, TestEnsemble};
use remora_cluster::coordinator::{Coordinator, Event, Proposal, RequestId};
use remora_cluster::topology::{Instance, Topology};
use remora_zookeeper::LocalServer;
use remora_zookeeper::{ZookeeperAddress, ZookeeperCoordinator};
use std::cell::RefCell;
use std::time::{Duration, Instant};

thread_local! {
    /// The server of this test, and the clusters that were on it.
    static SERVER: RefCell<Option<(LocalServer, u32)>> = const { RefCell::new(None) };
}

fn with_server<T>(what: impl FnOnce(&mut (LocalServer, u32)) -> T) -> T {
    SERVER.with_borrow_mut(|server| what(server.as_mut().expect("the test has started it")))
}

/// A cluster of its own on the server of the test.
struct Real {
    path: String,
    began: Instant,
}

/// A session over a link that can be cut.
struct Linked {
    session: ZookeeperCoordinator,
    proxy: Proxy,
}

impl TestEnsemble for Real {
    type Session = Linked;

    fn new() -> Self {
        let number = with_server(|(server, clusters)| {
            server.resume().expect("it answers");
            *clusters += 1;
            *clusters
        });
        Self { path: format!("/test/{number}"), began: Instant::now() }
    }

    fn connect(&mut self, session_ms: u64) -> Linked {
        let proxy = Proxy::to(with_server(|(server, _)| server.port()));
        let address = format!("zk://127.0.0.1:{}{}", proxy.port, self.path);
        let address: ZookeeperAddress = address.parse().expect("valid");
        let session = ZookeeperCoordinator::connect(address, None, session_ms).expect("a thread");
        Linked { session, proxy }
    }

    fn now_ms(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }

    fn step(&mut self) {
        std::thread::sleep(Duration::from_millis(5));
    }

    fn cut(&mut self, session: &Linked, to: bool, from: bool) {
        session.proxy.cut(to, from);
    }

    fn set_quorum(&mut self, has_quorum: bool) {
        with_server(
            |(server, _)| {
                if has_quorum { server.resume().expect("it answers") } else { server.kill() }
            },
        );
    }

    fn overwrite(&mut self, bytes: Vec<u8>) {
        let server = with_server(|(server, _)| format!("127.0.0.1:{}", server.port()));
        let path = format!("{}/topology", self.path);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        runtime.expect("a runtime").block_on(async {
            let client = zookeeper_client::Client::connect(&server).await.expect("a connection");
            client.set_data(&path, &bytes, None).await.expect("it is there");
        });
    }
}

impl Coordinator for Linked {
    fn session_ms(&self) -> u64 {
        self.session.session_ms()
    }

    fn create(&mut self, now_ms: u64, topology: &Topology) -> RequestId {
        self.session.create(now_ms, topology)
    }

    fn propose(&mut self, now_ms: u64, proposal: &Proposal) -> RequestId {
        self.session.propose(now_ms, proposal)
    }

    fn enter(&mut self, now_ms: u64, instance: Instance) -> RequestId {
        self.session.enter(now_ms, instance)
    }

    fn leave(&mut self, now_ms: u64) -> RequestId {
        self.session.leave(now_ms)
    }

    fn renew(&mut self, now_ms: u64, topology_version: u64) -> RequestId {
        self.session.renew(now_ms, topology_version)
    }

    fn stand(&mut self, now_ms: u64) -> RequestId {
        self.session.stand(now_ms)
    }

    fn step_down(&mut self, now_ms: u64) -> RequestId {
        self.session.step_down(now_ms)
    }

    fn poll(&mut self, now_ms: u64) -> Option<Event> {
        self.session.poll(now_ms)
    }
}

/// Ends the server with the test.
struct Stops;

impl Drop for Stops {
    fn drop(&mut self) {
        SERVER.set(None);
    }
}

#[test]
fn the_coordinator_over_zookeeper_conforms() {
    if LocalServer::is_skipped() {
        return;
    }
    SERVER.set(Some((started(), 0)));
    let _stops = Stops;
    conformance::run::<Real>();
}
