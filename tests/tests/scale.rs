//! Many native clients over TCP at one server: what their sessions cost it at rest, and until all have seen
//! one change of the topology (docs/scale.md).
//!
//! `REMORA_SCALE_SESSIONS=1000` has so many; the suite has few.

use remora_client::{Address, ClusterClient, Options, Transport, Wake};
use remora_layout::limits::MAX_SESSIONS;
use remora_tests::proc::resident_kib;
use remora_tests::{ServerProcess, TestCluster, wait_for};
use std::time::{Duration, Instant};

/// What is measured at rest.
const REST: Duration = Duration::from_secs(5);
const LIMIT: Duration = Duration::from_secs(120);
/// Sessions of the server that are no clients': of replicas, and for the measurement.
const OTHERS: usize = 24;

fn sessions() -> usize {
    let asked = std::env::var("REMORA_SCALE_SESSIONS");
    asked.map_or(24, |text| text.parse().expect("a number")).min(MAX_SESSIONS - OTHERS)
}

/// What a process has used.
#[derive(Clone, Copy)]
struct Used {
    at: Instant,
    cpu_ms: u64,
}

impl Used {
    fn by(pid: u32) -> Self {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields).split(' ');
        // In user code and in the kernel, of all threads that are or were: in ticks of 10 ms.
        let ticks = fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok());
        Self { at: Instant::now(), cpu_ms: ticks.sum::<u64>() * 10 }
    }

    /// CPU time since an earlier look, ms, and that time in ms.
    fn since(self, before: Self) -> (u64, u128) {
        (self.cpu_ms - before.cpu_ms, (self.at - before.at).as_millis())
    }
}

/// Waits until a group has a primary, and so many replicas in sync.
fn members_in_sync(cluster: &TestCluster, group: usize, in_sync: usize) {
    wait_for("a group is in sync", || {
        let group = cluster.group(group);
        let leads = group.with_role("primary").next().is_some();
        (leads && group.with_role("in sync").count() == in_sync).then_some(())
    });
}

#[test]
fn native_sessions_over_tcp_rest_and_hear_of_one_change() {
    let Some(cluster) = TestCluster::init(&["--group=main", "--group=other", "--min-replicas=0"])
    else {
        return;
    };
    let count = sessions();
    let small = ["--max-memory=64MiB", "--shards=1", "--session-ms=2000"];
    let fabric = ["--fabric-address=127.0.0.1:0", "--transport=tcp"];
    let server = cluster.start(&[&small[..], &fabric].concat());
    let other = ["--group=other"];
    let _primary = cluster.start(&[&small[..], &other].concat());
    members_in_sync(&cluster, 0, 0);
    members_in_sync(&cluster, 1, 0);
    let replica = cluster.start(&[&small[..], &other].concat());
    members_in_sync(&cluster, 1, 1);
    let pid = server.pid();
    let key = key_of_first_group(&server);
    let before_kib = resident_kib(pid);
    let used = Used::by(pid);
    let options = Options::default().wake(Wake::Event).timeout(LIMIT).transport(Transport::Tcp);
    let address = [Address::unix(server.socket())];
    let clients: Vec<ClusterClient> =
        (0..count).map(|_| ClusterClient::connect(&address, &options).unwrap()).collect();
    let mut all: Vec<_> = clients.iter().map(ClusterClient::session).collect();
    all.iter_mut().for_each(|session| assert!(session.get(&key).unwrap().value.is_none()));
    let (cpu_ms, ms) = Used::by(pid).since(used);
    println!("{count} clients connect: {ms} ms, {cpu_ms} ms of the server's CPU");
    let used = Used::by(pid);
    std::thread::sleep(REST);
    let (cpu_ms, ms) = Used::by(pid).since(used);
    let kib = (resident_kib(pid) - before_kib) / count as u64;
    println!("rest: {cpu_ms} ms of the server's CPU in {ms} ms, {kib} KiB resident for each");
    let fetched = |clients: &[ClusterClient]| -> u64 {
        clients.iter().map(|of| of.counts().topologies_fetched).sum()
    };
    let (versions, before) = (clients[0].topology_version(), fetched(&clients));
    drop(replica);
    members_in_sync(&cluster, 1, 0);
    let (used, began) = (Used::by(pid), Instant::now());
    // A client asks once an operation has come behind a heartbeat with a newer version.
    while clients.iter().any(|of| of.topology_version() == versions) {
        all.iter_mut().for_each(|session| _ = session.get(&key).unwrap());
        assert!(began.elapsed() < LIMIT, "not all have heard of the change");
    }
    let (cpu_ms, ms) = Used::by(pid).since(used);
    let asked = fetched(&clients) - before;
    println!(
        "one change: all know it after {ms} ms, {asked} topologies, {cpu_ms} ms of the server's CPU"
    );
    assert!(asked <= 3 * count as u64, "{asked} topologies for {count} clients");
}

/// A key of the slots of this server's group.
fn key_of_first_group(server: &ServerProcess) -> Vec<u8> {
    let mut resp = server.resp();
    let mut keys = (0..1_000).map(|number| format!("key:{number}"));
    let key = keys.find(|key| !resp.call(&format!("GET {key}")).is_error());
    key.expect("each group has keys").into_bytes()
}
