//! Remora's own client at a cluster of real processes, with a real ZooKeeper: it follows its primaries
//! by itself, reads no stale value one-sidedly, loses no acknowledged change, and sends none twice.

use remora_client::plan::{Column, text};
use remora_client::{Address, Chased, ClusterClient, Error, Options, Path, ServedBy, Target, Wake};
use remora_tests::{ServerProcess, TestCluster, wait_for, wait_until};
use rustix::process::Signal;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const SERVERS: usize = 3;
const COUNTER: &[u8] = b"counter";
/// Keys that the reader knows pointers to.
const KNOWN: usize = 50;

/// A cluster, and three servers of one group.
struct Cluster {
    record: TestCluster,
    servers: Vec<ServerProcess>,
}

impl Cluster {
    /// Whose servers are all in sync; `None` if tests are to do without ZooKeeper.
    fn start() -> Option<Self> {
        let record = TestCluster::init(&[])?;
        let servers = (0..SERVERS).map(|_| record.start(&[])).collect();
        let cluster = Self { record, servers };
        cluster.primary_of(SERVERS);
        Some(cluster)
    }

    /// Waits until so many servers are present and in sync; returns which of them leads.
    fn primary_of(&self, servers: usize) -> usize {
        wait_for(&format!("{servers} servers are in sync"), || {
            self.record.group(0).whole(&self.servers, servers)
        })
    }

    fn client(&self) -> ClusterClient {
        let sockets: Vec<Address> =
            self.servers.iter().map(|of| Address::unix(of.socket())).collect();
        let options = Options::default().wake(Wake::Event).timeout(Duration::from_secs(60));
        ClusterClient::connect(&sockets, &options).expect("a server tells the topology")
    }
}

/// What threads of one client do, and what they may say of it.
#[derive(Default)]
struct Load {
    /// Increments that were begun, were acknowledged, and whose reply was lost.
    begun: AtomicU64,
    acknowledged: AtomicU64,
    unknown: AtomicU64,
    /// Keys that were set and acknowledged, by number from 0; some have an unknown change.
    keys: AtomicU64,
    keys_unknown: AtomicU64,
    /// Reads of the counter, and those of them that READs alone concluded.
    reads: AtomicU64,
    one_sided: AtomicU64,
    ends: AtomicBool,
}

fn more(count: &AtomicU64) {
    count.fetch_add(1, Ordering::SeqCst);
}

fn now(count: &AtomicU64) -> u64 {
    count.load(Ordering::SeqCst)
}

fn key(number: u64) -> Vec<u8> {
    format!("key:{number}").into_bytes()
}

impl Load {
    /// Adds 1 to the counter, again and again. A sum is greater than all before: none was lost.
    fn increment(&self, client: &ClusterClient) {
        let (mut session, mut last) = (client.session(), 0);
        while !self.ends.load(Ordering::Relaxed) {
            more(&self.begun);
            match session.increment(COUNTER, 1) {
                Ok(sum) => {
                    assert!(sum > last, "{sum} after {last}");
                    last = sum;
                    more(&self.acknowledged);
                }
                Err(Error::Unknown) => more(&self.unknown),
                Err(other) => panic!("an increment: {other}"),
            }
        }
    }

    /// Sets one key after the other, each until it is acknowledged.
    fn set(&self, client: &ClusterClient) {
        let mut session = client.session();
        while !self.ends.load(Ordering::Relaxed) {
            let key = key(now(&self.keys));
            match session.set(&key, &key) {
                Ok(()) => more(&self.keys),
                Err(Error::Unknown) => more(&self.keys_unknown),
                Err(other) => panic!("a set: {other}"),
            }
        }
    }

    /// Reads the counter one-sidedly. It is at least what was acknowledged before the read began, and
    /// at most what was begun before the read ended.
    fn read(&self, client: &ClusterClient) {
        let mut session = client.session();
        session.set_path(Path::Read);
        for number in 0..KNOWN as u64 {
            session.get(format!("known:{number}").as_bytes()).expect("it is there");
        }
        while !self.ends.load(Ordering::Relaxed) {
            let least = now(&self.acknowledged);
            let got = session.get(COUNTER).unwrap_or_else(|error| panic!("a read: {error}"));
            let value = got.value.map(|value| String::from_utf8_lossy(value).into_owned());
            let is_one_sided = matches!(got.served_by, ServedBy::Read | ServedBy::ReadAfter(_));
            let value: u64 = value.map_or(0, |value| value.parse().expect("a number"));
            let most = now(&self.begun);
            assert!((least..=most).contains(&value), "{value} is not in {least}..={most}");
            more(&self.reads);
            if is_one_sided {
                more(&self.one_sided);
            }
        }
    }

    /// Waits until all three threads have done more than now.
    fn goes_on(&self, what: &str) {
        let counts = [&self.acknowledged, &self.keys, &self.one_sided];
        let before = counts.map(now);
        wait_until(what, || {
            counts.iter().zip(before).all(|(count, before)| now(count) > before + 100)
        });
    }

    /// Nothing that was acknowledged is lost, and nothing was done twice.
    fn holds(&self, client: &ClusterClient) {
        let mut session = client.session();
        let counter = session.increment(COUNTER, 0).expect("it is led") as u64;
        let (acknowledged, unknown) = (now(&self.acknowledged), now(&self.unknown));
        assert!(
            (acknowledged..=acknowledged + unknown).contains(&counter),
            "{counter} of {acknowledged} acknowledged and {unknown} unknown"
        );
        for number in 0..now(&self.keys) {
            let key = key(number);
            let got = session.get(&key).expect("it is led");
            assert_eq!(got.value, Some(&key[..]), "key {number} was acknowledged");
        }
        let unknown = unknown + now(&self.keys_unknown);
        assert_eq!(client.counts().unknown, unknown, "each is counted");
    }
}

/// Does something with a cluster while a client uses it. Returns the client and what it did.
fn under_load(
    cluster: &mut Cluster,
    what: impl FnOnce(&mut Cluster, &Load),
) -> (ClusterClient, Load) {
    /// The load ends with this, whatever happens.
    struct Ends<'a>(&'a Load);
    impl Drop for Ends<'_> {
        fn drop(&mut self) {
            self.0.ends.store(true, Ordering::Relaxed);
        }
    }
    let (client, load) = (cluster.client(), Load::default());
    let mut session = client.session();
    for number in 0..KNOWN as u64 {
        session.set(format!("known:{number}").as_bytes(), b"value").expect("it is led");
    }
    std::thread::scope(|scope| {
        let _ends = Ends(&load);
        scope.spawn(|| load.increment(&client));
        scope.spawn(|| load.set(&client));
        scope.spawn(|| load.read(&client));
        load.goes_on("the load begins");
        what(cluster, &load);
    });
    drop(session);
    (client, load)
}

#[test]
fn a_client_goes_on_when_its_primary_is_killed() {
    let Some(mut cluster) = Cluster::start() else { return };
    let primary = cluster.primary_of(SERVERS);
    let (client, load) = under_load(&mut cluster, |cluster, load| {
        cluster.servers[primary].kill();
        load.goes_on("the client uses another primary");
    });
    load.holds(&client);
    let counts = client.counts();
    assert_eq!(counts.failovers_followed, 1, "{counts:?}");
    assert!(counts.connections_lost >= 1, "{counts:?}");
    assert!(counts.pointers_dropped >= KNOWN as u64, "{counts:?}");
    assert!(counts.unknown <= 2, "one for each writer at most: {counts:?}");
}

#[test]
fn a_client_goes_on_when_its_primary_stands_still_and_never_reads_it_again() {
    let Some(mut cluster) = Cluster::start() else { return };
    let primary = cluster.primary_of(SERVERS);
    let (client, load) = under_load(&mut cluster, |cluster, load| {
        cluster.servers[primary].signal(Signal::STOP);
        load.goes_on("the client uses another primary");
        cluster.servers[primary].signal(Signal::CONT);
        load.goes_on("the old one is there again");
    });
    load.holds(&client);
    let counts = client.counts();
    assert!(counts.failovers_followed >= 1 && counts.connections_lost >= 1, "{counts:?}");
}

#[test]
fn a_client_follows_a_promotion_and_hears_of_changes_that_do_not_concern_it() {
    let Some(mut cluster) = Cluster::start() else { return };
    let primary = cluster.primary_of(SERVERS);
    let wanted = cluster.servers[(primary + 1) % SERVERS].resp_address().to_string();
    let other = cluster.servers[(primary + 2) % SERVERS].resp_address().to_string();
    let (client, load) = under_load(&mut cluster, |cluster, load| {
        cluster.record.must(&["promote", &wanted, "--yes"]);
        load.goes_on("the client uses the new primary");
        cluster.primary_of(SERVERS);
        load.goes_on("all are in sync");
        cluster.record.must(&["drain", &other, "--yes"]);
        load.goes_on("a replica is drained");
    });
    load.holds(&client);
    assert_eq!(client.counts().failovers_followed, 1, "{:?}", client.counts());
    // Heartbeats tell of the version; the next operation asks for it.
    let mut session = client.session();
    let version = cluster.record.status()["version"].as_u64().expect("it has a version");
    wait_until("the client knows the newest topology", || {
        session.get(COUNTER).expect("it is led");
        client.topology_version() >= version
    });
}

#[test]
fn lists_and_sets_are_changed_and_read_at_the_primary_of_their_key() {
    let Some(mut cluster) = Cluster::start() else { return };
    let client = cluster.client();
    let mut session = client.session();
    let texts = |texts: &[&str]| -> Vec<Vec<u8>> {
        texts.iter().map(|text| text.as_bytes().to_vec()).collect()
    };
    for round in 0..2 {
        assert_eq!(session.list_push_back(b"l", &[b"b", b"c", b"d"]).unwrap(), 3);
        assert_eq!(session.list_push_front(b"l", &[b"a"]).unwrap(), 4);
        assert_eq!(session.list_len(b"l").unwrap(), 4);
        for path in [Path::Ask, Path::Read] {
            session.set_path(path);
            assert_eq!(session.list_range(b"l", 1, -1).unwrap().items, texts(&["b", "c", "d"]));
            assert_eq!(session.list_index(b"l", -1).unwrap(), Some(b"d".to_vec()));
        }
        assert!(session.list_set(b"l", 0, b"z").unwrap());
        assert_eq!(session.list_remove(b"l", 0, b"c").unwrap(), 1);
        session.list_trim(b"l", 0, 1).unwrap();
        assert_eq!(session.list_pop_back(b"l", 1).unwrap(), texts(&["b"]));
        assert_eq!(session.list_pop_front(b"l", 5).unwrap(), texts(&["z"]));
        let short = Some(Duration::from_millis(20));
        assert_eq!(session.list_wait_front(b"l", short).unwrap(), None);
        let waited = std::thread::scope(|scope| {
            let mut other = client.session();
            let waits = scope.spawn(move || other.list_wait_back(b"l", None));
            session.list_push_back(b"l", &[b"waited for"]).unwrap();
            waits.join().unwrap()
        });
        assert_eq!(waited.unwrap(), Some(b"waited for".to_vec()));
        assert_eq!(session.set_add(b"s", &[b"x", b"y"]).unwrap(), 2);
        assert!(session.set_contains(b"s", b"x").unwrap());
        assert_eq!(session.set_members(b"s").unwrap().members.len(), 2);
        assert_eq!(session.set_member_count(b"s").unwrap(), 2);
        assert_eq!(session.set_remove(b"s", &[b"x", b"y"]).unwrap(), 2);
        if round == 0 {
            // The same operations go on at another primary.
            let primary = cluster.primary_of(SERVERS);
            cluster.servers[primary].kill();
            session.list_len(b"l").expect("another server leads");
        }
    }
}

/// A link that was read at one primary is followed at the next one: its hint is about memory that is gone.
#[test]
fn links_of_a_former_primary_lead_to_the_same_targets() {
    let Some(mut cluster) = Cluster::start() else { return };
    let primary = cluster.primary_of(SERVERS);
    let client = cluster.client();
    let mut session = client.session();
    for number in 0..30 {
        let [zone, courier, name] = ["zone:", "courier:", "z"].map(|of| format!("{of}{number}"));
        let (zone, courier) = (zone.as_bytes(), courier.as_bytes());
        session.hash_set(zone, &[(b"name", name.as_bytes())]).expect("it is led");
        let links: [(&[u8], &[u8]); 2] = [(b"zone", zone), (b"boss", b"courier:0")];
        assert_eq!(session.link_set(courier, &links), Ok(2));
        assert_eq!(session.link_del(courier, &[b"boss", b"none"]), Ok(1));
        assert_eq!(session.link_push(b"couriers", &[courier]), Ok(number + 1));
    }
    let couriers = session.link_range(b"couriers", 0, -1).expect("it is led");
    assert_eq!(couriers.into_iter().flatten().count(), 30);
    session.set_path(Path::Read);
    let name = |chased: &Chased<'_>| match &chased.target {
        Target::Hash(hash) => hash.get(b"name").map(|field| field.value.to_vec()),
        other => panic!("{other:?}"),
    };
    let links = wait_for("links are read with their hints", || {
        let link = |number| {
            let courier = format!("courier:{number}");
            session.link_get(courier.as_bytes(), b"zone").expect("it is led").expect("a link")
        };
        let links: Vec<_> = (0..30).map(link).collect();
        links.iter().all(|link| link.hint.is_some()).then_some(links)
    });
    let words: Vec<&[u8]> = "FROM KEYS 2 courier:3 courier:4 FOLLOW zone GET name"
        .split(' ')
        .map(str::as_bytes)
        .collect();
    let plan = text::parse(&words).expect("a plan").plan;
    for _ in 0..2 {
        for (number, link) in links.iter().enumerate() {
            let found = session.chase(link, name).expect("it is led");
            assert_eq!(found, Some(format!("z{number}").into_bytes()));
        }
        let run = session.run_plan(&plan).expect("it is led");
        let text = |name: &[u8]| vec![Column::Text(name.into())];
        assert_eq!(run.outcome.rows, [text(b"z3"), text(b"z4")]);
        cluster.servers[primary].kill();
    }
}

#[test]
fn a_server_without_a_cluster_is_no_cluster() {
    let server = ServerProcess::start(&["--max-memory=64MiB", "--pin=false"]);
    let options = Options::default().timeout(Duration::from_millis(200));
    let refused = ClusterClient::connect(&[Address::unix(server.socket())], &options);
    let why = refused.expect_err("it belongs to none").to_string();
    assert!(why.contains("belongs to no cluster"), "{why}");
}
