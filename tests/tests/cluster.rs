//! Clusters with real processes and a real ZooKeeper: servers find each other, one of them leads, and
//! another one does when that one dies, is drained, or is told to hand over. What was acknowledged is
//! there, whoever leads.

use remora_client::{Address, ClusterClient, Options};
use remora_tests::{
    MemberStatus, Resp, ServerProcess, TestCluster, Value, free_port, run_remora, wait_for,
};
use rustix::process::Signal;
use std::net::SocketAddr;
use std::ops::Deref;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Before a writer asks another server.
const AGAIN: Duration = Duration::from_millis(10);

/// A cluster, and the servers of its group `main`.
struct Cluster {
    record: TestCluster,
    servers: Vec<ServerProcess>,
}

impl Deref for Cluster {
    type Target = TestCluster;

    fn deref(&self) -> &TestCluster {
        &self.record
    }
}

impl Cluster {
    /// So many servers without disks that are all in sync; `None` if tests are to do without ZooKeeper.
    fn of(servers: usize) -> Option<Self> {
        let mut cluster = Self::empty()?;
        (0..servers).for_each(|_| cluster.add(&[]));
        cluster.is_whole(servers);
        Some(cluster)
    }

    /// A cluster without servers.
    fn empty() -> Option<Self> {
        Some(Self { record: TestCluster::init(&[])?, servers: Vec::new() })
    }

    /// Makes a server of the in-sync set the primary.
    fn promote(&self, server: &str) {
        self.must(&["promote", server, "--yes"]);
    }

    fn add(&mut self, flags: &[&str]) {
        let server = self.start(flags);
        self.servers.push(server);
    }

    fn add_with_data(&mut self, directory: &Path) {
        self.add(&[&format!("--data-dir={}", directory.display())]);
    }

    /// What groups wait for, by `remora cluster status`.
    fn waits(&self) -> String {
        self.command(&["status"]).out.lines().filter(|line| line.starts_with("waiting: ")).collect()
    }

    fn members(&self) -> Vec<MemberStatus> {
        self.group(0).members
    }

    /// Waits until so many servers are there, one of which leads and the others are in sync. Returns the
    /// number of the primary and the epoch.
    fn is_whole(&self, servers: usize) -> (usize, u64) {
        let what = format!("all {servers} are in sync:\n{}", self.logs());
        wait_for(&what, || {
            let group = self.group(0);
            Some((group.whole(&self.servers, servers)?, group.epoch))
        })
    }

    fn logs(&self) -> String {
        self.servers.iter().map(ServerProcess::log).collect()
    }

    fn addresses(&self) -> Vec<SocketAddr> {
        self.servers.iter().map(ServerProcess::resp_address).collect()
    }

    /// The status of a server.
    fn member(&self, of: &ServerProcess) -> MemberStatus {
        let members = self.members();
        let found = members.iter().find(|member| member.resp == resp_of(of));
        found.unwrap_or_else(|| panic!("{members:?}")).clone()
    }
}

fn resp_of(server: &ServerProcess) -> String {
    server.resp_address().to_string()
}

/// Writes one key after the other, each once or until it is acknowledged, at whichever server takes it.
#[derive(Default)]
struct Load {
    addresses: Mutex<Vec<SocketAddr>>,
    acknowledged: AtomicU64,
    ends: AtomicBool,
}

impl Load {
    fn key(number: u64) -> Vec<u8> {
        format!("key:{number}").into_bytes()
    }

    fn run(&self) {
        let mut at = 0;
        while !self.ends.load(Ordering::Relaxed) {
            let addresses = self.addresses.lock().unwrap().clone();
            at = (at + 1) % addresses.len();
            let _ = Resp::connect(addresses[at]).and_then(|mut resp| self.write(&mut resp));
            std::thread::sleep(AGAIN);
        }
    }

    fn write(&self, resp: &mut Resp) -> std::io::Result<()> {
        while !self.ends.load(Ordering::Relaxed) {
            let number = self.acknowledged.load(Ordering::Relaxed);
            let key = Self::key(number);
            if resp.try_call(&[b"SET", &key, &key])? != Value::ok() {
                break;
            }
            self.acknowledged.store(number + 1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Waits until more is acknowledged than now.
    fn goes_on(&self, what: &str) {
        let before = self.acknowledged.load(Ordering::Relaxed);
        wait_for(what, || (self.acknowledged.load(Ordering::Relaxed) > before + 100).then_some(()));
    }

    /// All that was acknowledged is at this server, which leads.
    fn is_at(&self, server: &ServerProcess) {
        let mut resp = server.resp();
        let acknowledged = self.acknowledged.load(Ordering::Relaxed);
        assert!(acknowledged > 0, "there was a load");
        for number in 0..acknowledged {
            let key = Self::key(number);
            // Its lease may lapse for a moment, on a busy machine.
            let found = wait_for("it answers reads", || {
                Some(resp.try_call(&[b"GET", &key]).unwrap()).filter(|found| !found.is_error())
            });
            assert_eq!(found, Value::Bulk(key), "key {number} of {acknowledged}");
        }
    }
}

/// Does something with a cluster while it is loaded. The load ends with it.
fn under_load(cluster: &mut Cluster, what: impl FnOnce(&mut Cluster, &Load)) -> Load {
    let load = Load { addresses: Mutex::new(cluster.addresses()), ..Load::default() };
    std::thread::scope(|scope| {
        struct Ends<'a>(&'a Load);
        impl Drop for Ends<'_> {
            fn drop(&mut self) {
                self.0.ends.store(true, Ordering::Relaxed);
            }
        }
        scope.spawn(|| load.run());
        let _ends = Ends(&load);
        load.goes_on("the load begins");
        what(cluster, &load);
    });
    load
}

#[test]
fn servers_form_a_cluster_and_say_so() {
    let Some(cluster) = Cluster::of(3) else { return };
    let (primary, epoch) = cluster.is_whole(3);
    assert!(epoch > 0);
    let replica = &cluster.servers[(primary + 1) % 3];
    assert_eq!(cluster.servers[primary].resp().call("SET k v"), Value::ok());
    assert!(replica.resp().call("SET k w").is_error(), "a replica takes no changes");
    assert!(replica.resp().call("GET k").is_error(), "nor does it answer reads");
    let picture = cluster.command(&["status"]).out;
    assert!(picture.contains("group main") && picture.contains("takes changes"), "{picture}");
    let lags = wait_for("the primary tells the lag of both", || {
        let members = cluster.status()["groups"][0]["members"].as_array().unwrap().clone();
        let is_behind = |of: &serde_json::Value| of["lag_entries"] != 0;
        let lags: Vec<_> = members.into_iter().filter(|of| of["role"] != "primary").collect();
        (!lags.iter().any(is_behind)).then_some(lags)
    });
    assert_eq!(lags.len(), 2, "{lags:?}");
    let Value::Bulk(info) = cluster.servers[primary].resp().call("INFO cluster") else {
        panic!("INFO gives no text")
    };
    let info = String::from_utf8(info).unwrap();
    for line in
        ["cluster_leads:1", "cluster_serves:1", "cluster_min_replicas:1", "cluster_group:main"]
    {
        assert!(info.contains(line), "{line}: {info}");
    }
    assert!(info.contains(&format!("cluster_epoch:{epoch}")), "{info}");
    let lag = info.lines().find_map(|line| line.strip_prefix("cluster_lag:")).unwrap();
    for member in &lags {
        assert!(lag.contains(&format!("{}=", member["id"].as_str().unwrap())), "{info}");
    }
    let log = cluster.servers[primary].log();
    assert!(log.contains("leads epoch") && log.contains("and serves"), "{log}");
}

#[test]
fn a_primary_that_is_killed_under_load_loses_nothing() {
    let Some(mut cluster) = Cluster::of(3) else { return };
    let (primary, epoch) = cluster.is_whole(3);
    let load = under_load(&mut cluster, |cluster, load| {
        cluster.servers[primary].kill();
        load.goes_on("another server leads");
    });
    let (next, next_epoch) = cluster.is_whole(2);
    assert!(next != primary && next_epoch > epoch, "{next} in epoch {next_epoch}");
    load.is_at(&cluster.servers[next]);
    // It comes back as an empty replica, and has all before it counts.
    cluster.add(&[]);
    cluster.is_whole(3);
    load.is_at(&cluster.servers[next]);
}

#[test]
fn a_promotion_and_a_drain_lose_nothing() {
    let Some(mut cluster) = Cluster::of(3) else { return };
    let (primary, epoch) = cluster.is_whole(3);
    let wanted = (primary + 1) % 3;
    let load = under_load(&mut cluster, |cluster, load| {
        let name = resp_of(&cluster.servers[wanted]);
        let asked = cluster.command(&["promote", &name]);
        assert!(asked.out.contains("nothing is done yet"), "{}", asked.out);
        assert_eq!(cluster.is_whole(3), (primary, epoch), "it was not told to do it");
        cluster.promote(&name);
        load.goes_on("the one that was promoted leads");
        let (leads, then) = cluster.is_whole(3);
        assert!(leads == wanted && then > epoch, "{leads} in epoch {then}");
        cluster.must(&["drain", &name, "--yes"]);
        load.goes_on("another one leads");
        let (leads, _) = cluster.is_whole(2);
        assert_ne!(leads, wanted);
        assert_eq!(cluster.member(&cluster.servers[wanted]).role, "drained");
        cluster.must(&["undrain", &name, "--yes"]);
    });
    let (leads, _) = cluster.is_whole(3);
    load.is_at(&cluster.servers[leads]);
}

/// The primary stands still, so that the watcher gives the hand-over up. The command asks again.
#[test]
fn a_promotion_waits_as_long_as_something_happens() {
    let Some(mut cluster) = Cluster::empty() else { return };
    (0..3).for_each(|_| cluster.add(&["--session-ms=30000"]));
    let (first, _) = cluster.is_whole(3);
    let watches = |of: &ServerProcess| of.log().contains("is the watcher of the cluster");
    let watcher = cluster.servers.iter().position(watches).unwrap();
    let (primary, wanted) = ((watcher + 1) % 3, (watcher + 2) % 3);
    if first != primary {
        cluster.promote(&resp_of(&cluster.servers[primary]));
        cluster.is_whole(3);
    }
    let name = resp_of(&cluster.servers[wanted]);
    cluster.servers[primary].signal(Signal::STOP);
    let finished = std::thread::scope(|scope| {
        let promotes = scope.spawn(|| cluster.command(&["promote", &name, "--yes"]));
        wait_for("the hand-over is given up", || {
            cluster.logs().contains("it did not release its epoch in time").then_some(())
        });
        cluster.servers[primary].signal(Signal::CONT);
        promotes.join().unwrap()
    });
    assert_eq!(finished.code, Some(0), "{}\n{}", finished.out, finished.err);
    assert!(finished.out.contains("waiting: group main"), "{}", finished.out);
    assert_eq!(cluster.is_whole(3).0, wanted);
}

#[test]
fn a_drained_server_leaves_and_one_with_a_part_does_not() {
    let Some(mut cluster) = Cluster::of(3) else { return };
    let (primary, _) = cluster.is_whole(3);
    let name = resp_of(&cluster.servers[(primary + 1) % 3]);
    let refused = cluster.command(&["leave", &name, "--yes"]);
    assert_ne!(refused.code, Some(0));
    assert!(refused.err.contains("drain it first"), "{}", refused.err);
    let unknown = cluster.command(&["drain", "10.9.8.7:6", "--yes"]);
    assert!(unknown.err.contains("remora cluster status lists them"), "{}", unknown.err);
    let drained = cluster.command(&["drain", &name, "--yes"]);
    assert_eq!(drained.code, Some(0), "{}\n{}", drained.out, drained.err);
    assert!(drained.out.contains("it has no part any more"), "{}", drained.out);
    let running = cluster.command(&["leave", &name, "--yes"]);
    assert!(running.code != Some(0) && running.err.contains("stop it first"), "{}", running.err);
    let number = cluster.servers.iter().position(|of| resp_of(of) == name).unwrap();
    cluster.servers[number].kill();
    wait_for("its session has ended, and it is forgotten", || {
        (cluster.command(&["leave", &name, "--yes"]).code == Some(0)).then_some(())
    });
    assert_eq!(cluster.members().len(), 2);
    // The last replica is needed: a drain says that, and does not wait for ever.
    let (primary, _) = cluster.is_whole(2);
    let last = cluster.servers.iter().enumerate().find(|(at, _)| *at != primary && *at != number);
    let last = resp_of(last.unwrap().1);
    let waits = cluster.command(&["drain", &last, "--yes", "--wait-s=1"]);
    assert_ne!(waits.code, Some(0));
    assert!(waits.out.contains("needs 1 replica(s) in sync"), "{}", waits.out);
    let picture = cluster.command(&["status"]).out;
    assert!(picture.contains("DRAINING"), "{picture}");
    cluster.must(&["drain", &last, "--yes", "--no-wait"]);
    cluster.must(&["undrain", &last, "--yes"]);
    cluster.is_whole(2);
}

#[test]
fn servers_and_clients_reach_each_other_by_announced_names() {
    let Some(mut cluster) = Cluster::empty() else { return };
    let ports: Vec<_> = (0..2).map(|_| (free_port(), free_port())).collect();
    for (resp, fabric) in &ports {
        let announced = format!("--announce=localhost:{resp}");
        let fabric = format!("--fabric-address=127.0.0.1:{fabric}");
        cluster.add(&[&format!("--port={resp}"), &announced, &fabric]);
    }
    let replica = wait_for("the replica is in sync", || {
        cluster.group(0).with_role("in sync").next().cloned()
    });
    assert!(replica.resp.starts_with("localhost:"), "{replica:?}");
    // A client that knows one server has the names of all.
    let seed: Address = format!("localhost:{}", ports[0].1).parse().unwrap();
    let options = Options::default().timeout(Duration::from_secs(60));
    let client = ClusterClient::connect(&[seed], &options).expect("the server tells the topology");
    let mut session = client.session();
    session.set(b"courier", b"free").expect("the primary takes it");
    cluster.promote(&replica.resp);
    let got = session.get(b"courier").expect("the next one has it");
    assert_eq!(got.value, Some(&b"free"[..]));
    // Another server at an address of theirs does not take their place, and says so.
    let before = cluster.members();
    let fabric = format!("--fabric-address=127.0.0.1:{}", free_port());
    let other = cluster.start(&[&format!("--announce={}", replica.resp), &fabric]);
    wait_for("it does not join", || {
        other.log().contains("this server does not join").then_some(())
    });
    let ids = |of: &[MemberStatus]| of.iter().map(|of| of.id.clone()).collect::<Vec<_>>();
    assert_eq!(ids(&cluster.members()), ids(&before));
}

/// Where there are users, each server is one at the others, and a client has to be one.
#[test]
fn servers_with_users_follow_each_other_and_fail_over() {
    let Some(mut cluster) = Cluster::empty() else { return };
    let users = ["--requirepass=top", "--peer-password=top"];
    (0..3).for_each(|_| cluster.add(&users));
    let (first, epoch) = cluster.is_whole(3);
    let seeds: Vec<Address> = cluster.servers.iter().map(|of| Address::unix(of.socket())).collect();
    let options = Options::default().timeout(Duration::from_secs(60));
    assert!(ClusterClient::connect(&seeds, &options).is_err(), "it is no user");
    let client = ClusterClient::connect(&seeds, &options.user("", "top")).expect("it is one");
    let mut session = client.session();
    session.set(b"courier", b"free").expect("the primary takes it");
    cluster.servers[first].kill();
    let got = session.get(b"courier").expect("it is read there, or at the next one");
    assert_eq!(got.value, Some(&b"free"[..]));
    // What it was asked in between may have failed.
    wait_for("and takes changes", || session.set(b"courier", b"busy").ok());
    assert!(cluster.group(0).epoch > epoch);
    // One that is no user of the others does not come into the in-sync set, and says why.
    let stranger = cluster.start(&["--requirepass=top", "--peer-password=other"]);
    wait_for("it is refused", || stranger.log().contains("knows no such user").then_some(()));
}

#[test]
fn a_restarted_server_keeps_its_name_with_its_directory_and_else_has_another() {
    let Some(mut cluster) = Cluster::empty() else { return };
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    directories.iter().for_each(|directory| cluster.add_with_data(directory.path()));
    cluster.add(&[]);
    cluster.is_whole(3);
    let load = under_load(&mut cluster, |cluster, load| {
        let before: Vec<_> = cluster.servers.iter().map(|of| cluster.member(of)).collect();
        for (number, before) in before.iter().enumerate() {
            cluster.servers[number].kill();
            load.goes_on("the others go on");
            let data =
                directories.get(number).map(|of| format!("--data-dir={}", of.path().display()));
            let flags: Vec<&str> = data.iter().map(String::as_str).collect();
            cluster.servers[number] = cluster.start(&flags);
            *load.addresses.lock().unwrap() = cluster.addresses();
            cluster.is_whole(3);
            let is_same = cluster.member(&cluster.servers[number]).id == before.id;
            assert_eq!(is_same, data.is_some(), "server {number}");
        }
    });
    let (leads, _) = cluster.is_whole(3);
    load.is_at(&cluster.servers[leads]);
}

#[test]
fn a_server_that_joins_later_has_all_keys_before_it_counts() {
    let Some(mut cluster) = Cluster::of(2) else { return };
    let load = under_load(&mut cluster, |cluster, load| {
        cluster.add(&[]);
        load.goes_on("a change behind the start of the new one");
        cluster.is_whole(3);
        let name = resp_of(&cluster.servers[2]);
        cluster.promote(&name);
        *load.addresses.lock().unwrap() = cluster.addresses();
        load.goes_on("the new one leads");
    });
    let (leads, _) = cluster.is_whole(3);
    assert_eq!(leads, 2);
    load.is_at(&cluster.servers[2]);
}

/// All servers are killed under load. Those that are left begin again, in this order.
fn fsync_cluster_after_a_power_cut(
    order: impl Fn(usize) -> Vec<usize>,
    meanwhile: impl Fn(&Cluster, usize),
) {
    let Some(mut cluster) = Cluster::empty() else { return };
    let directories: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    let begin = |cluster: &mut Cluster, number: usize| {
        let data = format!("--data-dir={}", directories[number].path().display());
        cluster.add(&[&data, "--durability=fsync"]);
    };
    (0..3).for_each(|number| begin(&mut cluster, number));
    let (primary, epoch) = cluster.is_whole(3);
    wait_for("its directory says that it leads", || {
        (cluster.servers[primary].resp().info("cluster_durable_epoch") == epoch).then_some(())
    });
    let load = under_load(&mut cluster, |cluster, _| {
        cluster.servers.iter_mut().for_each(ServerProcess::kill);
    });
    cluster.servers.clear();
    let order = order(primary);
    for (at, &number) in order.iter().enumerate() {
        begin(&mut cluster, number);
        meanwhile(&cluster, order.len() - at - 1);
    }
    let (leads, next_epoch) = cluster.is_whole(order.len());
    assert_eq!((order[leads], next_epoch), (primary, epoch + 1), "{}", cluster.logs());
    load.is_at(&cluster.servers[leads]);
    let log = cluster.logs();
    assert!(log.contains("has all of them"), "the watcher says why: {log}");
}

#[test]
fn servers_with_fsync_go_on_by_themselves_after_all_were_killed() {
    fsync_cluster_after_a_power_cut(|_| vec![0, 1, 2], |_, _| {});
}

#[test]
fn until_the_server_that_led_is_back_the_others_wait_and_say_so() {
    let primary_last = |primary: usize| [1, 2, 3].map(|of| (primary + of) % 3).to_vec();
    fsync_cluster_after_a_power_cut(primary_last, |cluster, left| {
        if left == 1 {
            wait_for("what they wait for", || {
                let waits = cluster.waits();
                waits.contains("led last, and is not present").then_some(())
            });
        }
    });
}

#[test]
fn after_all_servers_have_restarted_an_operator_says_who_leads() {
    let Some(mut cluster) = Cluster::empty() else { return };
    let directories: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    directories.iter().for_each(|directory| cluster.add_with_data(directory.path()));
    let (primary, _) = cluster.is_whole(3);
    let load = under_load(&mut cluster, |_, _| {});
    cluster.servers.iter_mut().for_each(ServerProcess::kill);
    cluster.servers.clear();
    directories.iter().for_each(|directory| cluster.add_with_data(directory.path()));
    wait_for("all are there again", || {
        // At their new addresses: the sessions of the former processes may live on for a while.
        let members = cluster.members();
        let is_there = |server| {
            let of = members.iter().find(|member| member.resp == resp_of(server));
            of.is_some_and(|member| member.is_present)
        };
        cluster.servers.iter().all(is_there).then_some(())
    });
    let name = resp_of(&cluster.servers[primary]);
    let refused = cluster.command(&["promote", &name, "--yes"]);
    assert!(refused.err.contains("may lack acknowledged changes"), "{}", refused.err);
    // With the usual durability a disk may lack what a power cut took.
    wait_for("the watcher says why it promotes no member", || {
        cluster.waits().contains("its durability was not fsync").then_some(())
    });
    let warned = cluster.command(&["promote", &name, "--accept-loss"]);
    assert!(warned.out.contains("STOP THE FORMER PRIMARY FIRST"), "{}", warned.out);
    cluster.must(&["promote", &name, "--accept-loss", "--yes"]);
    let (leads, _) = cluster.is_whole(3);
    assert_eq!(leads, primary);
    // It was the primary, and its disk has what a process that is killed has written.
    load.is_at(&cluster.servers[primary]);
}

#[test]
fn wrong_settings_are_refused_with_what_to_do() {
    let zk = "--cluster=zk://127.0.0.1:1/x";
    for (flags, words) in [
        (&["--cluster=127.0.0.1:2181/x"][..], "does not begin with zk://"),
        (&["--cluster=zk://127.0.0.1:2181"], "is not a path like /remora"),
        (&[zk, "--replica-of=127.0.0.1:7"], "leave it out"),
        (&[zk, "--min-replicas=1"], "remora cluster init --min-replicas"),
        (&[zk, "--session-ms=5"], "is not in 100..=60000"),
        (&[zk, "--announce=here"], "is no HOST:PORT"),
        (&[zk, "--announce=here:7379"], "--fabric-address 127.0.0.1:7380"),
        (&[zk, "--bind=0.0.0.0"], "no other server reaches this one at 0.0.0.0"),
    ] {
        let finished = run_remora(&[&["serve"], flags].concat());
        assert_eq!(finished.code, Some(2), "{flags:?}: {}", finished.err);
        assert!(finished.err.contains(words), "{flags:?}: {}", finished.err);
    }
    for (flags, words) in [
        (&["--group=a b"][..], "\"a b\" is no name, or is there twice: a name has 1 to"),
        (&["--group=a", "--group=a"], "\"a\" is no name, or is there twice"),
        (&["--min-replicas=17"], "--min-replicas: 17 is not in 0..=16"),
    ] {
        let finished = run_remora(&[&["cluster", "init", zk], flags].concat());
        assert_eq!(finished.code, Some(2), "{flags:?}: {}", finished.err);
        assert!(finished.err.contains(words), "{flags:?}: {}", finished.err);
    }
    let lost = run_remora(&["cluster", "status", zk, "--timeout-s=1"]);
    assert!(lost.code != Some(0) && lost.err.contains("is ZooKeeper up"), "{}", lost.err);
}

#[test]
fn a_cluster_is_made_once_and_one_that_is_missing_is_said() {
    let Some(cluster) = Cluster::empty() else { return };
    let again = cluster.command(&["init", "--yes"]);
    assert!(again.code != Some(0) && again.err.contains("already"), "{}", again.err);
    let other = format!("--cluster=zk://{}/other", cluster.zookeeper().address());
    let none = run_remora(&["cluster", "status", &other]);
    assert!(none.err.contains("remora cluster init makes one"), "{}", none.err);
    let server = cluster.start(&["--group=none"]);
    wait_for("it says that there is no such group", || {
        server.log().contains("the cluster has no group none").then_some(())
    });
}
