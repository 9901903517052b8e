//! What clients read at a replica: how old it may be, told with each result; what is refused; and
//! that nothing is shown that no primary has committed.

use remora_client_core::{
    Counts, Error, Link, OpenHash, OpenTree, Options, Path, Predicate, Query, Rect, Session,
    Target, TreeKind, TreeSettings, Wake, Wanted,
};
use remora_protocol::message::Status;
use remora_tests::{
    Fault, Relay, Resp, ServerProcess, UnreliableDisk, Value, by_pointers, free_port, wait_for,
    wait_until, while_read_lease_lapses,
};
use rustix::process::Signal;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const SMALL: [&str; 3] = ["--max-memory=64MiB", "--pin=false", "--wake=event"];
/// Of a replica, also of one with more shards than its primary: each has as much as one of those.
const LARGER: [&str; 3] = ["--max-memory=256MiB", "--pin=false", "--wake=event"];
const KEY: &[u8] = b"counter";
const HASH: &[u8] = b"hash";
const FIELD: &[u8] = b"field";
const TREE: &[u8] = b"tree";

/// A primary with two shards, and a relay to its address for sessions over TCP.
struct Primary {
    server: ServerProcess,
    relay: Relay,
}

impl Primary {
    fn start() -> Self {
        let address = format!("127.0.0.1:{}", free_port());
        let fabric = format!("--fabric-address={address}");
        let server = ServerProcess::start(&[&SMALL[..], &["--shards=2", &fabric]].concat());
        Self { server, relay: Relay::to(address.parse().unwrap()) }
    }

    /// A replica with so many shards, over shared memory, or over TCP through the relay.
    fn replica(&self, shards: usize, over_tcp: bool, more: &[&str]) -> Replica {
        let socket = self.server.socket().display().to_string();
        let of = if over_tcp { self.relay.address().to_string() } else { socket };
        let address = format!("127.0.0.1:{}", free_port());
        let of = format!("--replica-of={of}");
        let (shards, fabric) =
            (format!("--shards={shards}"), format!("--fabric-address={address}"));
        let mut flags = [&LARGER[..], &[&of, &shards, &fabric], more].concat();
        if over_tcp {
            flags.push("--transport=tcp");
        }
        Replica { server: ServerProcess::start(&flags), address }
    }
}

struct Replica {
    server: ServerProcess,
    address: String,
}

impl Replica {
    /// A session by shared memory or by TCP.
    fn session(&self, over_tcp: bool, max_lag: Option<Duration>) -> Session {
        let options = Options { wake: Wake::Event, max_lag, ..by_pointers() };
        match over_tcp {
            false => self.server.session_with(&options),
            true => {
                let options = Options { transport: Wanted::Tcp, ..options };
                let address: remora_client_core::Address = self.address.parse().unwrap();
                Session::connect(address, &options).unwrap()
            }
        }
    }
}

fn info(resp: &mut Resp) -> String {
    let Value::Bulk(text) = resp.call("INFO replication") else { panic!("INFO gives no text") };
    String::from_utf8(text).unwrap()
}

fn lag_us(resp: &mut Resp) -> Option<u64> {
    let text = info(resp);
    let line = text.lines().find_map(|line| line.strip_prefix("replica_lag_us:"));
    line.expect("a replica says its lag").trim().parse().ok()
}

/// Counts up, all the time, at a string, a field and an object of a tree, and knows when each number
/// was there at the latest.
struct Writer {
    /// By number, the time at which the primary had acknowledged it at all three.
    acknowledged: Arc<Mutex<Vec<Instant>>>,
    ends: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Writer {
    fn start(primary: &ServerProcess) -> Self {
        let mut session = primary.session();
        let settings = TreeSettings { kind: TreeKind::RStar, ..TreeSettings::default() };
        session.create_tree(TREE, &settings).unwrap();
        let hash = session.open_hash(HASH).unwrap();
        let acknowledged = Arc::new(Mutex::new(Vec::new()));
        let ends = Arc::new(AtomicBool::new(false));
        let (of_thread, ending) = (Arc::clone(&acknowledged), Arc::clone(&ends));
        let mut write = move |number: u64| {
            let text = number.to_string();
            session.set(KEY, text.as_bytes(), Default::default()).unwrap();
            session.hash_set(&hash, &[(FIELD, text.as_bytes())]).unwrap();
            let at = number as f64;
            session.put_place(TREE, 7u64, Rect::new(at, at, 0.0, 0.0).unwrap(), None).unwrap();
            of_thread.lock().unwrap().push(Instant::now());
        };
        write(0);
        let thread = std::thread::spawn(move || {
            for number in 1.. {
                if ending.load(Ordering::Relaxed) {
                    return;
                }
                write(number);
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        Self { acknowledged, ends, thread: Some(thread) }
    }

    fn newest(&self) -> u64 {
        self.acknowledged.lock().unwrap().len() as u64 - 1
    }

    /// Checks a number that was read at a replica by an operation that began then: the primary still
    /// had it at some time no longer ago than the lag. Returns by how much it was older than the
    /// newest one, at least.
    fn check(&self, number: u64, began: Instant, lag: Duration) -> Duration {
        let next = self.acknowledged.lock().unwrap().get(number as usize + 1).copied();
        // The next number was there when it was acknowledged, at the latest.
        let stale = next.map_or(Duration::ZERO, |next| began.saturating_duration_since(next));
        assert!(stale <= lag, "{number} was {stale:?} old, and {lag:?} was told");
        stale
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What is read of each type, and how.
struct Reader {
    session: Session,
    hash: OpenHash,
    tree: OpenTree,
    /// Results of READs alone.
    one_sided: [u64; 3],
    /// The oldest result.
    oldest: Duration,
}

impl Reader {
    fn new(mut session: Session) -> Self {
        let hash = session.open_hash(HASH).unwrap();
        let tree = wait_for("the tree is there", || session.open_tree(TREE).ok().flatten());
        // It is unknown until each shard of the primary has been heard.
        wait_until("the lag is known", || {
            let got = session.get(KEY, Path::Ask);
            got.is_ok_and(|got| got.value.is_some() && got.counts.lag_ns < u64::MAX)
        });
        Self { session, hash, tree, one_sided: [0; 3], oldest: Duration::ZERO }
    }

    /// Reads the number at one of the three, and checks it.
    fn read(&mut self, which: usize, path: Path, writer: &Writer) {
        let began = Instant::now();
        let (number, counts) = match which {
            0 => {
                let got = self.session.get(KEY, path).unwrap();
                (parse(got.value.expect("it is there")), got.counts)
            }
            1 => {
                let got = self.session.hash_get(&mut self.hash, FIELD, path).unwrap();
                (parse(got.value.expect("it is there")), got.counts)
            }
            _ => {
                let window = Rect::new(0.0, 1e9, 0.0, 0.0).unwrap();
                let query = Query::Window { window, predicate: Predicate::Intersects };
                let found = self.session.search_tree(&mut self.tree, &query, path).unwrap();
                assert_eq!(found.objects.len(), 1, "a tree is shown whole");
                (found.objects[0].rect.min_x as u64, found.counts)
            }
        };
        assert!(counts.lag_ns > 0, "a replica is never taken for a primary");
        // Before a replica has said its lag, that is not known.
        let lag = match counts.lag_ns {
            u64::MAX => Duration::MAX,
            known => Duration::from_nanos(known),
        };
        assert_eq!(self.session.lag(), Some(lag));
        let stale = writer.check(number, began, Duration::from_nanos(counts.lag_ns));
        self.oldest = self.oldest.max(stale);
        self.one_sided[which] += u64::from(counts.read == 1);
    }

    /// Reads all three on both paths, until this was done often enough.
    fn read_all(&mut self, writer: &Writer, mut goes_on: impl FnMut(&Self) -> bool) {
        let until = Instant::now() + remora_tests::DEADLINE;
        while goes_on(self) {
            assert!(Instant::now() < until, "{:?} one-sided reads", self.one_sided);
            for which in 0..3 {
                self.read(which, Path::Ask, writer);
                self.read(which, Path::Read, writer);
            }
        }
    }
}

fn parse(value: &[u8]) -> u64 {
    std::str::from_utf8(value).unwrap().parse().unwrap()
}

#[test]
fn each_result_says_how_old_it_may_be_asked_and_one_sidedly() {
    let primary = Primary::start();
    let writer = Writer::start(&primary.server);
    let replicas = [(2, false), (3, true)]
        .map(|(shards, over_tcp)| primary.replica(shards, over_tcp, &["--replica-reads=stale"]));
    for (replica, over_tcp) in [(&replicas[0], false), (&replicas[0], true), (&replicas[1], true)] {
        let mut reader = Reader::new(replica.session(over_tcp, None));
        reader.read_all(&writer, |reader| reader.one_sided.iter().any(|&reads| reads < 50));
    }
    // RESP tells it by INFO, before the read.
    let mut resp = replicas[1].server.resp();
    for _ in 0..200 {
        let (began, lag) = (Instant::now(), lag_us(&mut resp).expect("it is known"));
        let Value::Bulk(number) = resp.call("GET counter") else { panic!("it is there") };
        writer.check(parse(&number), began, Duration::from_micros(lag));
    }
    // A primary has no lag.
    let mut session = primary.server.session();
    let asked = session.get(KEY, Path::Ask).unwrap().counts;
    assert_eq!((asked.lag_ns, session.lag()), (0, None));
    assert!(writer.newest() > 0);
}

#[test]
fn the_lag_is_a_bound_while_the_link_or_the_replica_stands_still() {
    const OLD: Duration = Duration::from_millis(300);
    let primary = Primary::start();
    let writer = Writer::start(&primary.server);
    let replica = primary.replica(3, true, &["--replica-reads=stale"]);
    let mut reader = Reader::new(replica.session(true, None));
    reader.read_all(&writer, |reader| reader.one_sided.iter().any(|&reads| reads < 5));
    primary.relay.hold(true);
    reader.read_all(&writer, |reader| reader.oldest < OLD);
    primary.relay.hold(false);
    // What was held comes now, and is old; what follows is fresh again.
    let mut fresh = 0;
    reader.read_all(&writer, |reader| {
        fresh += u64::from(reader.session.lag() < Some(OLD / 2));
        fresh < 20
    });

    let replica = primary.replica(2, false, &["--replica-reads=stale"]);
    let mut reader = Reader::new(replica.session(false, None));
    reader.read_all(&writer, |reader| reader.one_sided.iter().any(|&reads| reads < 5));
    stop(&replica.server);
    // The lease lasts for some more READs of what stands still, and then the server is asked.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(OLD);
            replica.server.signal(Signal::CONT);
        });
        let mut reads = 0;
        reader.read_all(&writer, |_| {
            reads += 1;
            reads < 50
        });
    });
}

/// Stops a server. No thread of it does anything when this returns.
fn stop(server: &ServerProcess) {
    server.signal(Signal::STOP);
    wait_until("it stands still", || {
        remora_tests::proc::tasks(server.pid()).iter().all(|task| task.is_stopped)
    });
}

#[test]
fn while_the_primary_is_silent_the_lag_grows_and_too_old_results_are_errors() {
    const MOST: Duration = Duration::from_millis(200);
    let primary = Primary::start();
    let mut resp = primary.server.resp();
    resp.call("SET counter 1");
    resp.call("HSET hash field 1");
    resp.call("RTREE.ADD tree 7 1 1 1 1");
    let replica = primary.replica(3, false, &["--replica-reads=stale"]);
    let mut sessions = [false, true].map(|over_tcp| replica.session(over_tcp, Some(MOST)));
    let mut unbounded = replica.session(true, None);
    for session in &mut sessions {
        wait_until("it is fresh", || {
            session.get(KEY, Path::Ask).is_ok_and(|got| got.value.is_some())
        });
    }
    let mut trees = [&mut sessions[0], &mut unbounded]
        .map(|session| wait_for("the tree is there", || session.open_tree(TREE).ok().flatten()));
    stop(&primary.server);
    let stopped = Instant::now();
    std::thread::sleep(MOST);
    for session in &mut sessions {
        for path in [Path::Ask, Path::Read, Path::Choose] {
            let stale = session.get(KEY, path).unwrap_err();
            assert!(matches!(stale, Error::TooStale { lag_ms: Some(ms) } if ms > 200), "{stale:?}");
            assert!(!stale.is_final() && stale.to_string().contains("max_lag"), "{stale}");
            let all = session.get_batch(&[KEY, b"other"], path, &mut |_, _, _| {});
            assert!(matches!(all, Err(Error::TooStale { .. })), "{all:?}");
            let mut hash = session.open_hash(HASH).unwrap();
            assert!(matches!(
                session.hash_get(&mut hash, FIELD, path),
                Err(Error::TooStale { .. })
            ));
        }
        assert!(matches!(session.exists(KEY), Err(Error::TooStale { .. })));
    }
    let window = Rect::new(0.0, 2.0, 0.0, 2.0).unwrap();
    let query = Query::Window { window, predicate: Predicate::Intersects };
    let stale = sessions[0].search_tree(&mut trees[0], &query, Path::Read).map(drop);
    assert!(matches!(stale, Err(Error::TooStale { .. })), "{stale:?}");
    // Without a bound the results say it.
    for path in [Path::Ask, Path::Read] {
        let began = Instant::now();
        let got = unbounded.get(KEY, path).unwrap();
        assert_eq!(got.value, Some(&b"1"[..]));
        assert!(u128::from(got.counts.lag_ns) >= (began - stopped).as_nanos(), "{path:?}");
        let began = Instant::now();
        let found = unbounded.search_tree(&mut trees[1], &query, path).unwrap();
        assert_eq!(found.objects.len(), 1);
        assert!(u128::from(found.counts.lag_ns) >= (began - stopped).as_nanos(), "{path:?}");
    }
    let began = Instant::now();
    let told = lag_us(&mut replica.server.resp()).unwrap();
    assert!(u128::from(told) >= (began - stopped).as_micros());
    primary.server.signal(Signal::CONT);
    for session in &mut sessions {
        wait_until("it is fresh again", || session.get(KEY, Path::Read).is_ok());
    }
}

#[test]
fn a_replica_that_answers_no_reads_says_so_everywhere() {
    let primary = Primary::start();
    let mut resp = primary.server.resp();
    resp.call("SET counter 1");
    resp.call("HSET hash field 1");
    resp.call("RTREE.ADD tree 7 1 1 1 1");
    let replica = primary.replica(2, false, &[]);
    let mut of_replica = replica.server.resp();
    wait_until("it follows", || of_replica.call("DEBUG DIGEST") == resp.call("DEBUG DIGEST"));
    for request in [
        "GET counter",
        "MGET counter other",
        "EXISTS counter",
        "TTL counter",
        "TYPE counter",
        "HGET hash field",
        "HGETALL hash",
        "DBSIZE",
        "SCAN 0",
        "KEYS *",
        "RANDOMKEY",
        "RTREE.INFO tree",
        "GEOPOS geo a",
    ] {
        let Value::Error(text) = of_replica.call(request) else { panic!("{request} was answered") };
        let of = primary.server.socket().display().to_string();
        assert!(text.starts_with("REPLICA ") && text.contains(&of), "{request}: {text}");
        assert!(text.contains("replica_reads is none"), "{text}");
    }
    for request in ["SET counter 2", "DEL counter", "FLUSHALL", "HSET hash f 1", "EXPIRE counter 5"]
    {
        let refused = Value::Error("READONLY You can't write against a read only replica.".into());
        assert_eq!(of_replica.call(request), refused, "{request}");
    }
    for request in ["PING", "INFO", "COMMAND COUNT", "CLIENT ID", "SELECT 1", "ECHO a"] {
        assert!(!of_replica.call(request).is_error(), "{request}");
    }
    let Value::Error(unknown) = of_replica.call("NOTHING") else { panic!("it is none") };
    assert!(unknown.starts_with("ERR unknown command"), "{unknown}");
    wait_until("INFO tells it all the same", || lag_us(&mut of_replica).is_some());

    for mut session in [false, true].map(|over_tcp| replica.session(over_tcp, None)) {
        let until = Instant::now() + Duration::from_millis(500);
        // Longer than any lease: nothing renews one.
        while Instant::now() < until {
            for path in [Path::Ask, Path::Read, Path::Choose] {
                assert_eq!(session.get(KEY, path).unwrap_err(), Error::Refused(Status::NoReads));
                let all = session.get_batch(&[KEY, b"other"], path, &mut |_, _, _| {});
                assert_eq!(all, Err(Error::Refused(Status::NoReads)));
                let mut hash = session.open_hash(HASH).unwrap();
                let field = session.hash_get(&mut hash, FIELD, path);
                assert_eq!(field.unwrap_err(), Error::Refused(Status::NoReads));
            }
            assert_eq!(session.open_tree(TREE).map(drop), Err(Error::Refused(Status::NoReads)));
        }
        assert_eq!(session.totals().read, 0);
        let set = session.set(KEY, b"2", Default::default());
        assert_eq!(set, Err(Error::Refused(Status::ReadOnly)));
        let text = Error::Refused(Status::NoReads).to_string();
        assert!(text.contains("--replica-reads stale") && text.contains("primary"), "{text}");
    }
}

#[test]
fn a_replica_without_all_data_answers_no_reads() {
    let nowhere = format!("--replica-of=127.0.0.1:{}", free_port());
    let server = ServerProcess::start(&[&SMALL[..], &[&nowhere, "--replica-reads=stale"]].concat());
    let mut resp = server.resp();
    let Value::Error(text) = resp.call("GET key") else { panic!("it has nothing") };
    assert!(text.starts_with("LOADING "), "{text}");
    assert!(info(&mut resp).contains("replica_lag_us:\r\n"));
    assert_eq!(server.session().get(KEY, Path::Read).unwrap_err(), Error::Refused(Status::Copying));
    assert!(matches!(resp.call("SET key 1"), Value::Error(text) if text.starts_with("READONLY ")));
}

#[test]
fn nothing_partial_is_seen_while_a_copy_is_under_way() {
    const OBJECTS: usize = 3_000;
    let primary = Primary::start();
    let mut resp = primary.server.resp();
    for id in 0..OBJECTS {
        resp.send(&[b"RTREE.ADD", b"tree", id.to_string().as_bytes(), b"1", b"1", b"1", b"1"])
            .unwrap();
    }
    (0..OBJECTS).for_each(|_| drop(resp.receive().unwrap()));
    let replica = primary.replica(2, false, &["--replica-reads=stale"]);
    let mut session = replica.session(false, None);
    let mut tree = wait_for("the tree is there", || session.open_tree(TREE).ok().flatten());
    let window = Rect::new(0.0, 2.0, 0.0, 2.0).unwrap();
    let query = Query::Window { window, predicate: Predicate::Intersects };
    let mut copies = replica.server.resp();
    stop(&replica.server);
    // More than the log keeps for a reader that is away.
    let value = "v".repeat(100_000);
    for at in 0..4000 {
        resp.call(&format!("SET large-{} {value}", at % 50));
    }
    replica.server.signal(Signal::CONT);
    let (mut whole, mut refused) = (0, 0);
    let until = Instant::now() + remora_tests::DEADLINE;
    // Some searches before it loses its place, all through the copy, and some after it.
    while whole < 200 || copies.info("slave_copies") < 4 {
        assert!(Instant::now() < until, "{whole} whole, {refused} refused");
        for path in [Path::Ask, Path::Read] {
            match session.search_tree(&mut tree, &query, path) {
                Ok(found) => {
                    assert_eq!(found.objects.len(), OBJECTS, "{path:?}");
                    whole += 1;
                }
                Err(Error::Refused(Status::Copying)) => {
                    refused += 1;
                    whole = 0;
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
    assert!(refused > 0);
}

/// A replica that has received `SET counter 2`, which its primary has not committed: the disk of that
/// does not sync.
struct Uncommitted {
    disk: UnreliableDisk,
    /// Waits for the reply to the SET.
    resp: Resp,
    /// Flags for another replica.
    flags: Vec<String>,
    replica: ServerProcess,
    _primary: ServerProcess,
}

impl Uncommitted {
    /// With so many shards of the primary and of the replica.
    fn start(primary_shards: usize, shards: usize) -> Self {
        let disk = UnreliableDisk::new();
        let primary = disk.serve(&[&format!("--shards={primary_shards}"), "--durability=fsync"]);
        let mut resp = primary.resp();
        assert_eq!(resp.call("SET counter 1"), Value::ok());
        let own = [
            format!("--shards={shards}"),
            "--replica-reads=stale".into(),
            format!("--replica-of={}", primary.socket().display()),
        ];
        let flags: Vec<String> = LARGER.map(str::to_owned).into_iter().chain(own).collect();
        let replica = start_with(&flags);
        let mut of_replica = replica.resp();
        wait_until("it follows", || of_replica.call("GET counter") == Value::bulk("1"));
        disk.set_fault(Some(Fault::Sync));
        // Its reply waits for the disk.
        resp.send(&[b"SET", b"counter", b"2"]).unwrap();
        wait_until("the entry came", || {
            of_replica.info("slave_received_offset") > of_replica.info("slave_commit_offset")
        });
        Self { disk, resp, flags, replica, _primary: primary }
    }
}

fn start_with(flags: &[String]) -> ServerProcess {
    ServerProcess::start(&flags.iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
fn what_the_primary_has_not_committed_is_not_shown() {
    let mut scene = Uncommitted::start(2, 3);
    let (replica, mut of_replica) = (&scene.replica, scene.replica.resp());
    let mut session = replica.session();
    for _ in 0..50 {
        assert_eq!(of_replica.call("GET counter"), Value::bulk("1"));
        for path in [Path::Ask, Path::Read] {
            assert_eq!(session.get(KEY, path).unwrap().value, Some(&b"1"[..]), "{path:?}");
        }
    }
    // Nor does a replica that copies what the primary has in its memory.
    let other = start_with(&scene.flags);
    let mut of_other = other.resp();
    wait_until("it has a copy", || of_other.info("slave_copies") >= 2);
    for _ in 0..50 {
        let shown = of_other.call("GET counter");
        assert!(shown.is_error() || shown == Value::bulk("1"), "{shown:?}");
    }
    scene.disk.set_fault(None);
    assert_eq!(scene.resp.receive().unwrap(), Value::ok());
    for resp in [&mut of_replica, &mut of_other] {
        wait_until("it is committed", || resp.call("GET counter") == Value::bulk("2"));
    }
}

/// It applies what it has received before it follows another one, as that may never be reached. No
/// primary has acknowledged it.
#[test]
fn what_was_not_committed_is_not_shown_either_when_another_primary_is_named() {
    let scene = Uncommitted::start(1, 1);
    let replica = &scene.replica;
    let (mut told, mut asked) = (replica.resp(), replica.resp());
    let mut session = replica.session();
    assert_eq!(session.get(KEY, Path::Read).unwrap().value, Some(&b"1"[..]));
    let nowhere = format!("127.0.0.1:{}", free_port());
    let reads = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let reads = &reads;
        let changed = scope.spawn(move || {
            wait_until("both read", || reads.load(Ordering::Relaxed) > 100);
            assert_eq!(told.call(&format!("REPLICAOF {nowhere}")), Value::ok());
        });
        scope.spawn(move || {
            while !changed.is_finished() {
                if let Ok(got) = session.get(KEY, Path::Read) {
                    assert_eq!(got.value, Some(&b"1"[..]));
                    reads.fetch_add(1, Ordering::Relaxed);
                }
            }
            assert!(session.get(KEY, Path::Read).is_err());
        });
        // Ends with the first refusal.
        while let shown @ Value::Bulk(_) = asked.call("GET counter") {
            assert_eq!(shown, Value::bulk("1"));
        }
    });
    // It was applied: a promotion would keep it.
    let mut promoted = replica.resp();
    assert_eq!(promoted.call("REPLICAOF NO ONE"), Value::ok());
    assert_eq!(promoted.call("GET counter"), Value::bulk("2"));
}

/// A replica that hears nothing answers as of the time of its data for some seconds, and says how old they
/// are: its primary may have given a key more time meanwhile.
#[test]
fn a_key_expires_at_a_replica_with_the_time_of_its_data_and_is_removed_by_the_primary_alone() {
    let primary = Primary::start();
    let mut resp = primary.server.resp();
    let replica = primary.replica(3, false, &["--replica-reads=stale"]);
    let mut of_replica = replica.server.resp();
    let mut session = replica.session(false, None);
    wait_until("it follows", || of_replica.call("DBSIZE") == Value::Integer(0));
    resp.call("SET stays 1");
    resp.call("SET key 1 PX 1500");
    resp.call("HSET hash field 1");
    resp.call("PEXPIRE hash 1500");
    wait_until("it has them", || of_replica.call("DBSIZE") == Value::Integer(3));
    stop(&primary.server);
    let stopped = Instant::now();
    // They expire, and several sweeps of a shard would remove them.
    std::thread::sleep(Duration::from_millis(2_000));
    assert_eq!(of_replica.call("GET key"), Value::bulk("1"));
    assert_eq!(of_replica.call("HGET hash field"), Value::bulk("1"));
    for path in [Path::Ask, Path::Read] {
        let got = session.get(b"key", path).unwrap().value.map(<[u8]>::to_vec);
        assert_eq!(got.as_deref(), Some(&b"1"[..]));
        assert!(session.lag() >= Some(stopped.elapsed() / 2), "{:?}", session.lag());
        let mut hash = session.open_hash(HASH).unwrap();
        assert!(session.hash_get(&mut hash, FIELD, path).unwrap().value.is_some());
    }
    assert_eq!(of_replica.call("DBSIZE"), Value::Integer(3), "nothing is removed by the replica");
    primary.server.signal(Signal::CONT);
    wait_until("they have expired", || {
        of_replica.call("GET key") == Value::Null
            && of_replica.call("HGET hash field") == Value::Null
    });
    for path in [Path::Ask, Path::Read] {
        assert_eq!(session.get(b"key", path).unwrap().value, None);
    }
    wait_until("the primary removes them", || of_replica.call("DBSIZE") == Value::Integer(1));
    assert_eq!(of_replica.call("GET stays"), Value::bulk("1"));
    assert_eq!((of_replica.info("expired_keys"), resp.info("expired_keys")), (0, 2));
}

/// The link of a holder, and what a chase of it by READs finds and costs.
fn follow(session: &mut Session, number: u64) -> (Link, String, Counts) {
    while_read_lease_lapses(session, |session| {
        let mut holder = session.open_hash(format!("holder:{number}").as_bytes()).unwrap();
        let link = session.link_get(&mut holder, b"to", Path::Read).unwrap().expect("a link");
        let chased = session.chase(&link, Path::Read).unwrap();
        let Target::Hash(hash) = &chased.target else { panic!("{:?}", chased.target) };
        let name = String::from_utf8(hash.get(b"name").unwrap().value.to_vec()).unwrap();
        let counts = chased.counts;
        (link, name, counts)
    })
}

/// The same, after the link was reported if its hint did not lead to the target: a copy brings keys in any
/// order, so that a target may come behind its link.
fn follow_mended(session: &mut Session, number: u64) -> (Link, String, Counts) {
    let (link, name, counts) = follow(session, number);
    if link.hint.is_some() && counts.stale_hints == 0 {
        return (link, name, counts);
    }
    let links = session.stale_links();
    assert_eq!(session.mend_links(links).unwrap(), 1, "{number}");
    follow(session, number)
}

/// A replica's links have hints of where its own records lie, and are mended there.
#[test]
fn links_are_followed_by_a_read_at_a_replica_too() {
    let primary = Primary::start();
    let mut resp = primary.server.resp();
    let mut write = |numbers: std::ops::Range<u64>| {
        for number in numbers {
            resp.call(&format!("HSET item:{number} name n{number}"));
            resp.call(&format!("LINK.SET holder:{number} to item:{number}"));
        }
    };
    // Some come with the copy, the others one by one.
    write(0..20);
    for over_tcp in [false, true] {
        let replica = primary.replica(2, over_tcp, &["--replica-reads=stale"]);
        let from = if over_tcp { 40 } else { 20 };
        write(from..from + 20);
        let (mut at_replica, all) = (replica.server.resp(), 0..from + 20);
        for number in all.clone() {
            let item = (format!("HGET item:{number} name"), format!("n{number}"));
            let holder = (format!("HGET holder:{number} to"), format!("item:{number}"));
            for (call, value) in [item, holder] {
                wait_until("it has come", || at_replica.call(&call) == Value::bulk(&*value));
            }
        }
        let mut session = replica.session(over_tcp, None);
        for number in all.clone() {
            let (link, name, counts) = follow_mended(&mut session, number);
            assert!(link.hint.is_some() && name == format!("n{number}"), "{number}: {name}");
            assert_eq!((counts.nodes, counts.stale_hints), (1, 0), "{number}: {counts:?}");
        }
    }
    // A target that grew lies elsewhere at the replica, too.
    let replica = primary.replica(1, false, &["--replica-reads=stale"]);
    let mut session = replica.session(false, None);
    wait_until("it is copied", || session.get(b"none", Path::Ask).is_ok());
    follow_mended(&mut session, 3);
    let long = "x".repeat(60);
    primary.server.resp().call(&format!("HSET item:3 name {long} other {long}"));
    let mut at_replica = replica.server.resp();
    wait_until("it has come", || at_replica.call("HGET item:3 name") == Value::bulk(&*long));
    let (_, name, counts) = follow(&mut session, 3);
    assert_eq!((name, counts.nodes, counts.stale_hints), (long, 3, 1), "{counts:?}");
    let (_, _, counts) = follow_mended(&mut session, 3);
    assert_eq!((counts.nodes, counts.stale_hints), (1, 0), "{counts:?}");
}
