//! What clients read at a replica: how old it may be, told with each result; what is refused; and
//! that nothing is shown that no primary has committed.

use remora_client_core::{
    Counts, Error, OpenHash, OpenTree, Options, Path, Predicate, Query, Rect, Session, TreeKind,
    TreeSettings, Wake, Wanted,
};
use remora_protocol::message::Status;
use remora_tests::{
    Relay, Resp, ServerDirectory, ServerProcess, Value, by_pointers, wait_for, wait_until,
};
use rustix::process::Signal;
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const SMALL: [&str; 3] = ["--max-memory=64MiB", "--pin=false", "--wake=event"];
const KEY: &[u8] = b"counter";
const HASH: &[u8] = b"hash";
const FIELD: &[u8] = b"field";
const TREE: &[u8] = b"tree";

/// A port that no process has.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

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
        let (shards, fabric) = (format!("--shards={shards}"), format!("--fabric-address={address}"));
        let mut flags = [&SMALL[..], &[&of, &shards, &fabric], more].concat();
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

    fn waits_for(&self, line: &str) {
        let mut resp = self.server.resp();
        wait_until(line, || info(&mut resp).contains(line));
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
        assert_eq!(self.session.lag(), Some(Duration::from_nanos(counts.lag_ns)));
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
    // A primary has no lag.
    let mut session = primary.server.session();
    let asked = session.get(KEY, Path::Ask).unwrap().counts;
    assert_eq!((asked.lag_ns, session.lag()), (0, None));
    assert!(writer.newest() > 0);
}
