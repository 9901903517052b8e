//! Hundreds of clients over RDMA at one server: they connect at once, are
//! silent at once and die at once, and a client that reads goes on reading.
//!
//! In the virtual machine of `make rxe`, with the server on device rxe0 and the
//! clients on rxe1 (`REMORA_RDMA_DEVICES`).

use remora_client_core::{
    Client, ConnectError, Counts, Options, Path, ServedBy, Session, SetOptions, Wake, Wanted,
};
use remora_fabric::{Address, Transport, client_hello};
use remora_layout::hello::{Refusal, ServerHello};
use remora_layout::limits::{MAX_HALF_OPEN, READ_LEASE_MS};
use remora_layout::verbs::VerbsEnd;
use remora_tests::proc::descriptors;
use remora_tests::{Resp, Role, ServerProcess, Value, role, wait_until};
use rustix::thread::{CpuSet, sched_setaffinity};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant};
use zerocopy::{FromZeros, IntoBytes};

const SERVER: &str = "10.0.0.1:7000";
const SHARDS: u64 = 2;
const READS: u64 = 4;

pub fn server(flags: &[&str]) -> ServerProcess {
    let common = "--bind=10.0.0.1 --fabric-address=10.0.0.1:7000 --shards=2 --max-memory=64MiB \
                  --pin=false --wake=event --reads-per-client=4 --rdma-devices=rxe0 --protected-mode=false";
    let flags = common.split_whitespace().chain(flags.iter().copied());
    ServerProcess::start(&flags.collect::<Vec<_>>())
}

pub fn address() -> SocketAddr {
    SERVER.parse().unwrap()
}

pub fn options(transport: Wanted) -> Options {
    Options { transport, wake: Wake::Event, ..remora_tests::options() }
}

fn client(transport: Wanted) -> Result<Client, ConnectError> {
    let connect_timeout = Duration::from_secs(120);
    Client::connect(Address::Tcp(address()), &Options { connect_timeout, ..options(transport) })
}

/// Sets a key, asks for it and reads it. A machine that stands still may let a
/// right to read lapse: then it was asked for once more, and is read again.
fn use_it(session: &mut Session, name: &str) {
    let (key, value) = (format!("{name}:key"), format!("what {name} has set").repeat(3));
    session.set(key.as_bytes(), value.as_bytes(), SetOptions::default()).unwrap();
    let mut get = |path| {
        let got = session.get(key.as_bytes(), path).unwrap();
        assert_eq!(got.value, Some(value.as_bytes()), "{key} {path:?}");
        got.served_by
    };
    assert_eq!(get(Path::Ask), ServedBy::Asked);
    let is_read =
        (0..20).any(|_| matches!(get(Path::Read), ServedBy::Read | ServedBy::ReadAfter(_)));
    assert!(is_read, "{name} never reads");
}

#[test]
fn plays_its_part() {
    let Some((name, arguments)) = role() else { return };
    match name.as_str() {
        "storm" => storm(arguments[0].parse().unwrap()),
        _ => nine(),
    }
}

/// Connects so many clients at once, uses each, and lives on until it is killed.
fn storm(count: usize) {
    // What is looked at is the server, and it has processors of its own in incarnation.
    rustix::process::nice(19).unwrap();
    let gate = Barrier::new(count);
    let all = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..count {
            scope.spawn(|| {
                gate.wait();
                let client = client(Wanted::Verbs).unwrap();
                all.lock().unwrap().push(client.session().unwrap());
            });
        }
    });
    for (number, session) in all.lock().unwrap().iter_mut().enumerate() {
        use_it(session, &format!("storm{number}"));
    }
    Role::say(&format!("served {}", all.lock().unwrap().len()));
    Role::wait_for_end();
}

/// With room for eight: the ninth gets TCP or a reason, until one leaves.
fn nine() {
    // By auto a client on the same host would get shared memory.
    let id = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(id.path(), "another host\n").unwrap();
    let boot_id = "/proc/sys/kernel/random/boot_id";
    let bound = Command::new("mount").arg("--bind").arg(id.path()).arg(boot_id).status();
    assert!(bound.unwrap().success());
    // Read once, at the first hello.
    let _ = client_hello(Wanted::Auto);
    assert!(Command::new("umount").arg(boot_id).status().unwrap().success());

    let mut eight: Vec<_> = (0..8).map(|_| client(Wanted::Auto).unwrap()).collect();
    assert!(eight.iter().all(|client| client.transport() == Transport::Verbs));
    let refused = client(Wanted::Verbs).err().unwrap();
    let is_full =
        matches!(refused, ConnectError::Refused { refusal: Refusal::TooManyQueuePairs, .. });
    assert!(is_full && refused.to_string().contains("max_queue_pairs"), "{refused}");
    let ninth = client(Wanted::Auto).unwrap();
    assert_eq!(ninth.transport(), Transport::Tcp);
    for (number, client) in eight.iter().enumerate() {
        use_it(&mut client.session().unwrap(), &format!("eight{number}"));
    }
    use_it(&mut ninth.session().unwrap(), "ninth");
    drop(eight.pop());
    wait_until("a queue pair is free again", || client(Wanted::Verbs).is_ok());
    Role::say("done");
}

/// A reader on a thread of its own, until it is told to stop: what it has
/// counted since it began to read.
fn read_on(stop: &AtomicBool, tell: impl Fn()) -> Counts {
    let mut session = Session::connect(address(), &options(Wanted::Verbs)).unwrap();
    session.set(b"earlier", b"still here", SetOptions::default()).unwrap();
    let read = |session: &mut Session| {
        let got = session.get(b"earlier", Path::Read).unwrap();
        assert_eq!(got.value, Some(&b"still here"[..]));
        std::thread::sleep(Duration::from_millis(2));
    };
    for _ in 0..20 {
        read(&mut session);
    }
    let before = session.totals();
    tell();
    while !stop.load(Ordering::Relaxed) {
        read(&mut session);
    }
    session.totals().since(&before)
}

/// Stops the reader, even if the test fails.
struct Stopping<'s>(&'s AtomicBool);

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// How often a processor of this machine stood still for so long that a
/// heartbeat may come late for that reason alone. (An emulator beside other
/// work does so now and then.)
fn standstills(stop: &AtomicBool, processor: usize) -> u64 {
    let mut only = CpuSet::new();
    only.set(processor);
    sched_setaffinity(None, &only).unwrap();
    let (nap, mut count) = (Duration::from_millis(10), 0);
    while !stop.load(Ordering::Relaxed) {
        let began = Instant::now();
        std::thread::sleep(nap);
        count += u64::from(began.elapsed() > Duration::from_millis(READ_LEASE_MS / 4));
    }
    count
}

/// While `body` runs one reader reads, and hardly has to ask, but where the
/// machine stood still.
fn beside_a_reader(what: &str, body: impl FnOnce()) {
    let stop = AtomicBool::new(false);
    let (counts, standstills) = std::thread::scope(|scope| {
        let (sender, begun) = channel();
        let reader = scope.spawn(|| read_on(&stop, move || sender.send(()).unwrap()));
        begun.recv().expect("the reader reads");
        let stopping = Stopping(&stop);
        let witnesses = [0, 1].map(|processor| {
            let stop = &stop;
            scope.spawn(move || standstills(stop, processor))
        });
        body();
        drop(stopping);
        let standstills: u64 = witnesses.map(|witness| witness.join().unwrap()).iter().sum();
        (reader.join().unwrap(), standstills)
    });
    let Counts { read, asked, read_lease_lapsed, .. } = counts;
    println!("{what}: the reader has read {read}, asked {asked}; {standstills} standstills");
    assert!(read > 100 && asked == read_lease_lapsed, "{what}: {counts:?}");
    // Not all that holds up a thread of an emulated machine is seen by the
    // witnesses: one READ in five hundred may meet it. Set-ups and endings that
    // are not made in steps hold up more.
    assert!(read_lease_lapsed <= standstills + read / 500, "{what}: {counts:?}");
}

fn is_answered(resp: &mut Resp) -> bool {
    resp.call("PING") == Value::Simple("PONG".into())
}

#[test]
fn hundreds_connect_at_once_and_die_at_once() {
    let many = std::env::var("REMORA_MANY").map_or(300, |many| many.parse::<usize>().unwrap());
    let server = server(&[]);
    let mut resp = server.resp();
    let files = descriptors(server.pid());
    let (mut storm, mut most_half_open) = (None, 0);
    beside_a_reader("connecting", || {
        let heard = std::thread::scope(|scope| {
            let hearing = scope.spawn(|| {
                let mut role = Role::start(module_path!(), "storm", &[&many.to_string()]);
                let heard = role.hear();
                storm = Some(role);
                heard
            });
            let mut pings = 0;
            while !hearing.is_finished() {
                assert!(is_answered(&mut resp));
                most_half_open = most_half_open.max(resp.info("queue_pairs_half_open"));
                pings += 1;
                std::thread::sleep(Duration::from_millis(20));
            }
            let busy = resp.info("sessions_told_busy");
            println!(
                "{pings} PINGs answered; {busy} times told to come again; up to {most_half_open} half open"
            );
            hearing.join().unwrap()
        });
        assert_eq!(heard, Some(format!("served {many}")), "{}", server.log());
        // The threads are counted with the heartbeats.
        wait_until("all are counted", || resp.info("verbs_client_threads") == many as u64 + 1);
        assert_eq!(resp.info("queue_pairs"), many as u64 + 1);
        assert_eq!(resp.info("queue_pairs_unshared"), (many as u64 + 1) * SHARDS);
        assert_eq!(resp.info("queue_pairs_half_open"), 0);
        println!(
            "queue pairs {}, unshared {}",
            resp.info("queue_pairs"),
            resp.info("queue_pairs_unshared")
        );
    });
    assert!(most_half_open <= MAX_HALF_OPEN as u64);
    beside_a_reader("dying", || {
        assert_eq!(resp.info("queue_pairs"), many as u64 + 1);
        storm.take().unwrap().kill();
        wait_until("the killed ones' queue pairs go", || {
            is_answered(&mut resp) && resp.info("queue_pairs") == 1
        });
        assert_eq!(resp.info("queue_pairs_unshared"), SHARDS);
        assert_eq!(resp.info("connected_sessions_verbs"), 1);
    });
    wait_until("all descriptors are back", || descriptors(server.pid()) <= files + 1);
    assert_eq!(resp.info("sessions_violated"), 0);
}

/// Says hello and nothing more: how it is answered, and at most so many READs.
fn half_open() -> (TcpStream, ServerHello, VerbsEnd) {
    let mut stream = TcpStream::connect(address()).unwrap();
    stream.write_all(client_hello(Wanted::Verbs).as_bytes()).unwrap();
    (stream, ServerHello::new_zeroed(), VerbsEnd::new_zeroed())
}

#[test]
fn silent_clients_are_bounded_and_time_out() {
    let server = server(&[]);
    let mut resp = server.resp();
    beside_a_reader("silent", || {
        let mut all: Vec<_> = (0..MAX_HALF_OPEN + 20).map(|_| half_open()).collect();
        let (mut greeted, mut busy) = (0, 0);
        for (stream, hello, end) in &mut all {
            stream.read_exact(hello.as_mut_bytes()).unwrap();
            match Refusal::from_number(hello.refusal.get()) {
                None => {
                    stream.read_exact(end.as_mut_bytes()).unwrap();
                    assert_eq!(u64::from(end.read_depth), READS);
                    greeted += 1;
                }
                Some(Refusal::Busy) => busy += 1,
                Some(other) => panic!("{other}"),
            }
        }
        assert_eq!((greeted, busy), (MAX_HALF_OPEN, 20));
        assert_eq!(resp.info("queue_pairs_half_open"), MAX_HALF_OPEN as u64);
        wait_until("they are cut off", || {
            is_answered(&mut resp) && resp.info("queue_pairs_half_open") == 0
        });
        assert_eq!(resp.info("hellos_timed_out"), MAX_HALF_OPEN as u64);
    });
}

#[test]
fn the_limit_of_queue_pairs_is_tcp_or_a_reason() {
    let server = server(&["--max-queue-pairs=8"]);
    let mut resp = server.resp();
    let mut nine = Role::start(module_path!(), "nine", &[]);
    assert_eq!(nine.hear().as_deref(), Some("done"), "{}", server.log());
    assert_eq!(resp.info("queue_pairs_limit"), 8);
    assert!(resp.info("sessions_without_queue_pair") >= 2);
}
