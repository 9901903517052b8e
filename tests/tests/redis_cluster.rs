//! redis-py's clients of Redis Cluster and of Sentinel, at servers whose facts of the cluster the test
//! sets.

use remora_resp::cluster::{ClusterFacts, GroupFacts, NodeFacts, NodeId, SlotRun};
use remora_server::{Config, ReplicaReads, Server};
use remora_tests::{Resp, Value, own_config, run_redis_py_with, wait_until};
use std::sync::atomic::{AtomicBool, Ordering};
use tempfile::TempDir;

/// The script has ended, however it has.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Two servers in this process.
pub struct Pair {
    directory: TempDir,
    servers: [Server; 2],
}

impl Pair {
    /// Starts them; they have no slots yet.
    pub fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let servers = [0, 1].map(|at| {
            let socket = directory.path().join(format!("socket-{at}"));
            let config = Config {
                replica_reads: ReplicaReads::Stale,
                max_memory_bytes: 64 << 20,
                ..own_config(&socket)
            };
            Server::start_with_cluster_facts(config).unwrap()
        });
        Self { directory, servers }
    }

    /// A connection to one of them.
    pub fn resp(&self, at: usize) -> Resp {
        Resp::connect(self.servers[at].resp_address()).unwrap()
    }

    /// `HOST:PORT` of one of them.
    pub fn address(&self, at: usize) -> String {
        self.servers[at].resp_address().to_string()
    }

    /// One of the servers, as the facts have it.
    fn node(&self, at: usize, is_primary: bool) -> NodeFacts {
        let (server, address) = (&self.servers[at], self.servers[at].resp_address());
        NodeFacts {
            id: NodeId { member: at as u64 + 1, incarnation: server.incarnation() },
            host: address.ip().to_string(),
            port: address.port(),
            is_primary,
            is_healthy: true,
            offset: 1,
        }
    }

    /// Both get these groups, with equal parts of the slots.
    fn set_facts(&self, groups: &[GroupFacts]) {
        let slots = 16_384 / groups.len() as u16;
        let run = |group| SlotRun {
            first: slots * group as u16,
            last: slots * group as u16 + (slots - 1),
            group,
        };
        for at in 0..2 {
            self.servers[at].set_cluster_facts(ClusterFacts {
                own: self.node(at, true).id,
                epoch: groups.iter().map(|group| group.epoch).sum(),
                has_coordinator: true,
                takes_changes: true,
                groups: groups.to_vec(),
                slots: (0..groups.len()).map(run).collect(),
            });
        }
    }

    /// Each server leads half of the slots, `first` the lower one.
    pub fn halve(&self, first: usize, epoch: u64) {
        let group = |name: &str, at| GroupFacts {
            name: name.into(),
            epoch,
            nodes: vec![self.node(at, true)],
        };
        self.set_facts(&[group("one", first), group("two", 1 - first)]);
    }

    /// One group, in which this server leads.
    fn lead(&self, primary: usize, epoch: u64) {
        let nodes = [0, 1].map(|at| self.node(at, at == primary)).into();
        self.set_facts(&[GroupFacts { name: "one".into(), epoch, nodes }]);
    }

    fn follow(&self, at: usize) {
        let primary = self.directory.path().join(format!("socket-{}", 1 - at));
        let followed = self.resp(at).call(&format!("REPLICAOF {}", primary.display()));
        assert_eq!(followed, Value::ok());
    }

    /// Runs the script, and `change` once it has set the key `phase`.
    fn run(&self, mode: &str, change: impl Fn() + Sync) {
        let ports = [0, 1].map(|at| self.servers[at].resp_address().port().to_string());
        let [port, other] = ports;
        let arguments = [mode.into(), "127.0.0.1".into(), port, other];
        let has_ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let watcher = scope.spawn(|| {
                // A connection that is refused again and again is ended: each look has its own.
                let is_due =
                    || (0..2).any(|at| self.resp(at).call("GET phase") == Value::bulk("swap"));
                wait_until("the script is ready", || is_due() || has_ended.load(Ordering::Relaxed));
                change();
            });
            let ends = Ends(&has_ended);
            run_redis_py_with("cluster.py", &arguments, "redis-py follows the cluster");
            drop(ends);
            watcher.join().unwrap();
        });
    }
}

#[test]
fn redis_py_finds_each_slot_and_follows_when_they_change() {
    let pair = Pair::start();
    let mut resp = pair.resp(0);
    assert_eq!(resp.call("SET b 1"), Value::Error("CLUSTERDOWN Hash slot not served".into()));
    pair.halve(0, 1);
    pair.run("halves", || pair.halve(1, 2));
}

#[test]
fn redis_pys_cluster_and_sentinel_follow_a_failover() {
    let pair = Pair::start();
    pair.lead(0, 1);
    pair.follow(1);
    pair.run("failover", || {
        // As in a failover: it is recorded first, then the new primary leads.
        pair.lead(1, 2);
        assert_eq!(pair.resp(1).call("REPLICAOF NO ONE"), Value::ok());
        pair.follow(0);
    });
}
