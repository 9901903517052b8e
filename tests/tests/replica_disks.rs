//! Replicas with a data directory, as real processes: killed under load and started again they go on
//! where they were, without a copy.

use crate::replicas::keys;
use remora_tests::{Resp, ServerDirectory, ServerProcess, Value, run_remora, wait_until};
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use tempfile::TempDir;

const SMALL: [&str; 3] = ["--max-memory=64MiB", "--pin=false", "--wake=event"];
/// Enough for any number of shards.
const ROOMY: [&str; 3] = ["--max-memory=256MiB", "--pin=false", "--wake=event"];

/// A primary at an address that stays the same, with a directory or without.
struct Primary {
    place: Arc<ServerDirectory>,
    address: String,
    flags: Vec<String>,
    server: ServerProcess,
}

impl Primary {
    fn start(flags: &[&str]) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let (place, address) = (ServerDirectory::new(), format!("127.0.0.1:{port}"));
        let fabric = format!("--fabric-address={address}");
        let all = SMALL.iter().chain(flags).map(ToString::to_string).chain([fabric]);
        let flags: Vec<String> = all.collect();
        let server = Self::serve(&place, &flags);
        Self { place, address, flags, server }
    }

    fn serve(place: &Arc<ServerDirectory>, flags: &[String]) -> ServerProcess {
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        ServerProcess::start_at(place, &flags)
    }

    fn replica(&self, data: &Path, flags: &[&str]) -> ServerProcess {
        let (of, data) =
            (format!("--replica-of={}", self.address), format!("--data-dir={}", data.display()));
        ServerProcess::start(&[&ROOMY[..], &[&of, &data], flags].concat())
    }
}

/// Changes of which each counts: one that is applied twice, or not at all, is seen.
fn change(resp: &mut Resp, at: u32) {
    for request in changes(at) {
        let reply = resp.call(&request);
        assert!(!reply.is_error(), "{request}: {reply:?}");
    }
}

fn changes(at: u32) -> [String; 7] {
    [
        format!("APPEND text-{} {at},", at % 7),
        format!("INCRBY counter-{} {at}", at % 5),
        format!("SET key-{} value-{at}", at % 300),
        format!("HSET large field-{at} {at}"),
        format!("MSET m-1 {at} m-2 b m-3 {at} m-4 d"),
        format!("GEOADD places 13.{} 38.{} place-{}", at % 1000, at % 500, at % 200),
        format!("DEL key-{}", (at * 7) % 300),
    ]
}

/// A client that changes something all the time, until it is to end or its server dies.
struct Load {
    ends: Arc<AtomicBool>,
    thread: JoinHandle<u32>,
}

impl Load {
    fn begin(server: &ServerProcess, from: u32) -> Self {
        let (mut resp, ends) = (server.resp(), Arc::new(AtomicBool::new(false)));
        let is_over = Arc::clone(&ends);
        let thread = std::thread::spawn(move || {
            let mut at = from;
            while !is_over.load(Ordering::Relaxed) {
                for request in changes(at) {
                    let words: Vec<&[u8]> = request.split(' ').map(str::as_bytes).collect();
                    let Ok(reply) = resp.try_call(&words) else { return at };
                    assert!(!reply.is_error(), "{request}: {reply:?}");
                }
                at += 1;
                // Its hash grows all the time, and is not to fill the memory.
                std::thread::sleep(Duration::from_millis(2));
            }
            at
        });
        Self { ends, thread }
    }

    fn end(self) -> u32 {
        self.ends.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

fn digest(resp: &mut Resp) -> Value {
    resp.call("DEBUG DIGEST")
}

fn says(replica: &mut Resp, what: &str) -> bool {
    let Value::Bulk(text) = replica.call("INFO replication") else { panic!("INFO gives no text") };
    String::from_utf8_lossy(&text).contains(what)
}

fn catch_up(primary: &mut Resp, replica: &mut Resp) {
    let last = primary.info("master_repl_offset");
    wait_until("the replica has it all", || replica.info("slave_repl_offset") >= last);
    assert_eq!(digest(primary), digest(replica));
}

fn directory() -> TempDir {
    tempfile::tempdir().unwrap()
}

#[test]
fn a_replica_that_was_killed_goes_on_without_a_copy() {
    for (durability, shards) in [("everysec", 2), ("fsync", 3), ("memory", 2)] {
        let primary = Primary::start(&["--shards=2"]);
        let mut resp = primary.server.resp();
        (0..100).for_each(|at| change(&mut resp, at));
        let (data, mut next) = (directory(), 100);
        let flags = [format!("--durability={durability}"), format!("--shards={shards}")];
        let flags = [&flags[0][..], &flags[1][..]];
        let mut replica = primary.replica(data.path(), &flags);
        catch_up(&mut resp, &mut replica.resp());
        assert_eq!(replica.resp().info("slave_copies"), 2);
        for round in 0..3 {
            let load = Load::begin(&primary.server, next);
            let mut of_replica = replica.resp();
            let far = of_replica.info("slave_repl_offset") + 300;
            wait_until("it follows", || of_replica.info("slave_repl_offset") > far);
            if round == 1 {
                assert!(!of_replica.call("BGSAVE").is_error());
                wait_until("it is saved", || of_replica.info("snapshots_written") == 1);
                wait_until("it goes on", || of_replica.info("slave_repl_offset") > far + 500);
            }
            replica.kill();
            replica = primary.replica(data.path(), &flags);
            next = load.end();
            let mut of_replica = replica.resp();
            catch_up(&mut resp, &mut of_replica);
            assert_eq!(of_replica.info("slave_copies"), 0, "{durability}, {shards} shards");
            let last = resp.info("master_repl_offset");
            wait_until("its disk has it", || of_replica.info("slave_durable_offset") == last);
            wait_until("its primary knows that", || says(&mut resp, &format!("durable={last},")));
        }
    }
}

#[test]
fn a_replica_goes_on_with_another_number_of_shards() {
    let primary = Primary::start(&["--shards=2"]);
    let mut resp = primary.server.resp();
    (0..200).for_each(|at| change(&mut resp, at));
    let data = directory();
    let mut replica = primary.replica(data.path(), &["--shards=3"]);
    catch_up(&mut resp, &mut replica.resp());
    let mut of_replica = replica.resp();
    wait_until("the copy is saved", || of_replica.info("snapshots_written") == 1);
    (200..300).for_each(|at| change(&mut resp, at));
    catch_up(&mut resp, &mut of_replica);
    // Quiet, all of its shards are equally far.
    let last = resp.info("master_repl_offset");
    wait_until("its disk has it", || of_replica.info("slave_durable_offset") == last);
    replica.kill();
    let directory = data.path().to_str().unwrap();
    let verified = run_remora(&["log", "verify", directory]);
    assert_eq!(verified.code, Some(0), "{verified:?}");
    let dumped = run_remora(&["log", "dump", directory]).out;
    for what in ["applied=Entry of=1/2 at=", "applied=At of=0/2 at=", "db=0 Append key=text-1 "] {
        assert!(dumped.contains(what), "{what}");
    }
    for shards in [1, 2, 3] {
        replica = primary.replica(data.path(), &[&format!("--shards={shards}")]);
        let mut of_replica = replica.resp();
        catch_up(&mut resp, &mut of_replica);
        assert_eq!(of_replica.info("slave_copies"), 0, "{shards} shards");
        replica.kill();
    }
    // Under load they may differ: then it takes a copy, and never a mixture.
    replica = primary.replica(data.path(), &["--shards=3"]);
    for shards in [1, 4] {
        let load = Load::begin(&primary.server, 1000 * shards);
        let mut of_replica = replica.resp();
        let far = of_replica.info("slave_repl_offset") + 300;
        wait_until("it follows", || of_replica.info("slave_repl_offset") > far);
        replica.kill();
        replica = primary.replica(data.path(), &[&format!("--shards={shards}")]);
        load.end();
        catch_up(&mut resp, &mut replica.resp());
    }
}

#[test]
fn an_interrupted_copy_begins_anew_and_is_no_data_of_a_primary() {
    let primary = Primary::start(&["--shards=2"]);
    let mut resp = primary.server.resp();
    let value = "v".repeat(100_000);
    for at in 0..300 {
        resp.call(&format!("SET large-{at} {value}"));
    }
    (0..50).for_each(|at| change(&mut resp, at));
    let data = directory();
    let mut replica = primary.replica(data.path(), &["--shards=2"]);
    let mut of_replica = replica.resp();
    wait_until("some of it is there", || keys(&mut of_replica) > 0);
    let was_whole = !says(&mut of_replica, "master_sync_in_progress:1");
    replica.kill();
    let (port, of_data) = ("--port=0", format!("--data-dir={}", data.path().display()));
    let socket = format!("--socket={}", data.path().join("../s-none").display());
    if !was_whole {
        let refused = run_remora(&["serve", port, &socket, &of_data]);
        assert_eq!(refused.code, Some(2), "{refused:?}");
        assert!(refused.err.contains("copy of its primary is not complete"), "{}", refused.err);
    }
    replica = primary.replica(data.path(), &["--shards=2"]);
    catch_up(&mut resp, &mut replica.resp());
}

#[test]
fn the_directory_of_a_replica_serves_as_a_primary_and_then_its_own_changes_count() {
    let primary = Primary::start(&["--shards=2"]);
    let mut resp = primary.server.resp();
    (0..100).for_each(|at| change(&mut resp, at));
    let data = directory();
    let mut replica = primary.replica(data.path(), &["--shards=2"]);
    catch_up(&mut resp, &mut replica.resp());
    let last = resp.info("master_repl_offset");
    let mut of_replica = replica.resp();
    wait_until("its disk has it", || of_replica.info("slave_durable_offset") == last);
    replica.kill();
    let mut alone = ServerProcess::start_with_data(data.path(), &["--shards=2"]);
    let mut own = alone.resp();
    assert_eq!(digest(&mut own), digest(&mut resp));
    assert_eq!(own.call("SET own 1"), Value::ok());
    let before = digest(&mut own);
    alone.kill();
    alone = ServerProcess::start_with_data(data.path(), &["--shards=3"]);
    assert_eq!(digest(&mut alone.resp()), before);
    alone.kill();
    // Its changes are none of the primary's: it takes a copy.
    replica = primary.replica(data.path(), &["--shards=2", "--replica-reads=stale"]);
    let mut of_replica = replica.resp();
    wait_until("a copy is made", || of_replica.info("slave_copies") == 2);
    catch_up(&mut resp, &mut of_replica);
    wait_until("its own key is gone", || of_replica.call("EXISTS own") == Value::Integer(0));
}

/// Copies a data directory that no server has.
fn copy_directory(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy_directory(&entry.path(), &target),
            false => _ = std::fs::copy(entry.path(), target).unwrap(),
        }
    }
}

#[test]
fn a_primary_that_was_killed_goes_on_with_its_replicas() {
    for durability in ["everysec", "fsync"] {
        let of_primary = directory();
        let data_flag = format!("--data-dir={}", of_primary.path().display());
        let durable = format!("--durability={durability}");
        let mut primary = Primary::start(&["--shards=2", &data_flag, &durable]);
        (0..100).for_each(|at| change(&mut primary.server.resp(), at));
        let (data, other) = (directory(), directory());
        let replicas = [
            primary.replica(data.path(), &["--shards=2"]),
            primary.replica(other.path(), &["--shards=3"]),
        ];
        let mut next = 100;
        for replica in &replicas {
            catch_up(&mut primary.server.resp(), &mut replica.resp());
        }
        for _ in 0..2 {
            let mut of_replica = replicas[0].resp();
            let load = Load::begin(&primary.server, next);
            let far = of_replica.info("slave_repl_offset") + 300;
            wait_until("it follows", || of_replica.info("slave_repl_offset") > far);
            primary.server.kill();
            next = load.end() + 1;
            primary.server = Primary::serve(&primary.place, &primary.flags);
            let mut resp = primary.server.resp();
            change(&mut resp, next);
            for replica in &replicas {
                let mut replica = replica.resp();
                wait_until("it has what the primary has", || {
                    replica.info("master_sync_in_progress") == 0
                        && digest(&mut replica) == digest(&mut resp)
                });
            }
        }
        // A clean end: nothing is lost, and nothing copied.
        let copies = replicas[0].resp().info("slave_copies");
        catch_up(&mut primary.server.resp(), &mut replicas[0].resp());
        primary.server.terminate();
        assert_eq!(primary.server.ended(), Some(0));
        primary.server = Primary::serve(&primary.place, &primary.flags);
        change(&mut primary.server.resp(), next + 1);
        let mut resp = primary.server.resp();
        let mut replica = replicas[0].resp();
        wait_until("it goes on", || digest(&mut replica) == digest(&mut resp));
        assert_eq!(replica.info("slave_copies"), copies, "{durability}");
    }
}

#[test]
fn what_a_primary_has_lost_stays_at_its_replica_until_it_is_told() {
    let of_primary = directory();
    let kept = of_primary.path().join("kept");
    let data_flag = format!("--data-dir={}", kept.display());
    let mut primary = Primary::start(&["--shards=2", &data_flag]);
    (0..100).for_each(|at| change(&mut primary.server.resp(), at));
    let data = directory();
    let mut replica = primary.replica(data.path(), &["--shards=2"]);
    catch_up(&mut primary.server.resp(), &mut replica.resp());
    // Its disk loses what comes now.
    let old = of_primary.path().join("old");
    copy_directory(&kept, &old);
    (100..150).for_each(|at| change(&mut primary.server.resp(), at));
    catch_up(&mut primary.server.resp(), &mut replica.resp());
    let before = digest(&mut replica.resp());
    primary.server.kill();
    std::fs::remove_dir_all(&kept).unwrap();
    copy_directory(&old, &kept);
    primary.server = Primary::serve(&primary.place, &primary.flags);
    change(&mut primary.server.resp(), 500);
    for _ in 0..2 {
        let mut of_replica = replica.resp();
        wait_until("it says why", || says(&mut of_replica, "its disk has lost entries"));
        assert_eq!(digest(&mut of_replica), before, "nothing is thrown away");
        // Not after a restart of its own, either.
        replica.kill();
        replica = primary.replica(data.path(), &["--shards=2"]);
    }
    let mut of_replica = replica.resp();
    wait_until("it says why", || says(&mut of_replica, "its disk has lost entries"));
    assert_eq!(digest(&mut of_replica), before);
    assert_eq!(of_replica.call("RESYNC"), Value::ok());
    let mut resp = primary.server.resp();
    wait_until("it is copied", || digest(&mut of_replica) == digest(&mut resp));
}

#[test]
fn a_server_with_a_directory_changes_its_role_and_its_disk_follows() {
    let primary = Primary::start(&["--shards=2"]);
    let mut resp = primary.server.resp();
    (0..100).for_each(|at| change(&mut resp, at));
    let data = directory();
    let flags = ["--shards=2", "--replica-reads=stale"];
    let mut server = ServerProcess::start_with_data(data.path(), &flags);
    let mut own = server.resp();
    (0..50).for_each(|at| assert_eq!(own.call(&format!("SET own-{at} 1")), Value::ok()));
    let (host, port) = primary.address.split_once(':').unwrap();
    assert_eq!(own.call(&format!("REPLICAOF {host} {port}")), Value::ok());
    catch_up(&mut resp, &mut own);
    wait_until("its own keys are gone", || own.call("EXISTS own-1") == Value::Integer(0));
    (100..150).for_each(|at| change(&mut resp, at));
    catch_up(&mut resp, &mut own);
    // It is promoted, changes something, and is killed: as a primary it has both.
    assert_eq!(own.call("REPLICAOF NO ONE"), Value::ok());
    (150..200).for_each(|at| change(&mut own, at));
    let before = digest(&mut own);
    drop(own);
    server.kill();
    server = ServerProcess::start_with_data(data.path(), &flags);
    let mut own = server.resp();
    assert_eq!(digest(&mut own), before);
    change(&mut own, 200);
    // And once more a replica, and killed: it has what the primary has.
    assert_eq!(own.call(&format!("REPLICAOF {host} {port}")), Value::ok());
    catch_up(&mut resp, &mut own);
    let last = resp.info("master_repl_offset");
    wait_until("its disk has it", || own.info("slave_durable_offset") == last);
    server.kill();
    let mut replica = primary.replica(data.path(), &flags);
    catch_up(&mut resp, &mut replica.resp());
    assert_eq!(replica.resp().info("slave_copies"), 0);
    replica.kill();
}

#[test]
fn a_replica_that_was_away_goes_on_as_far_as_the_backlog_reaches() {
    let primary = Primary::start(&["--shards=2", "--replica-backlog=16MiB"]);
    let mut resp = primary.server.resp();
    (0..100).for_each(|at| change(&mut resp, at));
    assert_eq!(resp.info("repl_backlog_size"), 2 << 20, "no replica was there");
    let data = directory();
    let mut replica = primary.replica(data.path(), &["--shards=2"]);
    // 8 MiB of each shard are kept. 100 kB each, so that both shards get about as many.
    let value = "v".repeat(100_000);
    for (values, copies) in [(80, 0), (400, 2)] {
        let mut of_replica = replica.resp();
        catch_up(&mut resp, &mut of_replica);
        let last = resp.info("master_repl_offset");
        wait_until("its disk has it", || of_replica.info("slave_durable_offset") == last);
        replica.kill();
        wait_until("the primary knows", || resp.info("connected_slaves") == 0);
        for at in 0..values {
            assert_eq!(resp.call(&format!("SET large-{} {value}", at % 100)), Value::ok());
        }
        assert_eq!(resp.info("repl_backlog_size"), 16 << 20);
        let mut kept = 0;
        wait_until("INFO tells what is kept", || {
            kept = resp.info("repl_backlog_histlen");
            kept > 7_000_000
        });
        assert!(kept <= 16 << 20, "{kept}");
        replica = primary.replica(data.path(), &["--shards=2"]);
        let mut of_replica = replica.resp();
        catch_up(&mut resp, &mut of_replica);
        assert_eq!(of_replica.info("slave_copies"), copies, "{values} values");
    }
}
