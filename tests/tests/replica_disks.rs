//! Replicas with a data directory, as real processes: killed under load and started again they go on
//! where they were, without a copy.

use remora_tests::{Resp, ServerDirectory, ServerProcess, Value, run_remora, wait_until};
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use tempfile::TempDir;

const SMALL: [&str; 3] = ["--max-memory=64MiB", "--pin=false", "--wake=event"];

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
        ServerProcess::start(&[&SMALL[..], &[&of, &data], flags].concat())
    }
}

/// Changes of which each counts: one that is applied twice, or not at all, is seen.
fn change(resp: &mut Resp, at: u32) {
    for request in [
        format!("APPEND text-{} {at},", at % 7),
        format!("INCRBY counter-{} {at}", at % 5),
        format!("SET key-{} value-{at}", at % 300),
        format!("HSET large field-{at} {at}"),
        format!("MSET m-1 {at} m-2 b m-3 {at} m-4 d"),
        format!("GEOADD places 13.{} 38.{} place-{}", at % 1000, at % 500, at % 200),
        format!("DEL key-{}", (at * 7) % 300),
    ] {
        let reply = resp.call(&request);
        assert!(!reply.is_error(), "{request}: {reply:?}");
    }
}

/// A client that changes something all the time.
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
                change(&mut resp, at);
                at += 1;
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
    // Quiet, all of its shards are equally far.
    let last = resp.info("master_repl_offset");
    let mut of_replica = replica.resp();
    wait_until("its disk has it", || of_replica.info("slave_durable_offset") == last);
    replica.kill();
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
    wait_until("some of it is there", || of_replica.call("DBSIZE") != Value::Integer(0));
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
    replica = primary.replica(data.path(), &["--shards=2"]);
    let mut of_replica = replica.resp();
    wait_until("a copy is made", || of_replica.info("slave_copies") == 2);
    catch_up(&mut resp, &mut of_replica);
    assert_eq!(of_replica.call("EXISTS own"), Value::Integer(0));
}
