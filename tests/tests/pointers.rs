//! Pointers that the clients of a machine share (HydraDB 4.2.4), over shared
//! memory and over TCP: what they save, that neither a killed nor a hostile
//! client harms the others, and that a server can do without. (The file that
//! they share over TCP: `pointer_files`.)

use remora_arena::{Mapping, Words};
use remora_client_core::{
    ConnectError, Counts, Options, Path, PointerCacheKind, Session, SetOptions, SharedPointers,
    Wake, Wanted,
};
use remora_fabric::Transport;
use remora_fabric::shm::Connected;
use remora_layout::arena_header::word;
use remora_layout::hash::{KeyHash, mix};
use remora_layout::limits::POINTER_TABLE_BYTES;
use remora_layout::pointer::RemotePointer;
use remora_layout::pointer_table::{Hint, LINE_WORDS, home_line};
use remora_tests::proc::descriptors;
use remora_tests::{
    DEADLINE, Random, RawSession, Role, ServerProcess, long_leases, role, wait_until,
};
use std::collections::HashMap;
use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path as FilePath, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const KEYS: u64 = 200;
/// Pointers that a private cache may lose of them: those whose window was full. One
/// server in about ten has a hash seed with which it loses some (at most 9 in 20,000
/// seeds of a model).
const MOST_LOST: u64 = 20;
const LINES: usize = POINTER_TABLE_BYTES / 64;
const SECOND_NS: u64 = 1_000_000_000;

fn server() -> ServerProcess {
    ServerProcess::start(&["--shards=1", "--max-memory=32MiB", "--fabric-address=127.0.0.1:0"])
}

/// A machine of clients: what carries their sessions, and where they keep what
/// they share.
struct Machine {
    transport: Transport,
    directory: PathBuf,
    _kept: Option<TempDir>,
}

impl Machine {
    fn new(transport: Transport) -> Self {
        let kept = tempfile::tempdir_in("/dev/shm").unwrap();
        Self { transport, directory: kept.path().join("remora"), _kept: Some(kept) }
    }

    /// Arguments for a process that plays a part on it.
    fn arguments<'a>(&'a self, server: &'a str, name: &'a str) -> [&'a str; 4] {
        [server, self.transport.name(), self.directory.to_str().unwrap(), name]
    }

    fn of_arguments(arguments: &[String]) -> Self {
        let transport = match &*arguments[1] {
            "shm" => Transport::Shm,
            _ => Transport::Tcp,
        };
        Self { transport, directory: PathBuf::from(&arguments[2]), _kept: None }
    }

    fn options(&self, pointer_cache: PointerCacheKind) -> Options {
        let transport = match self.transport {
            Transport::Shm => Wanted::Shm,
            _ => Wanted::Tcp,
        };
        let pointer_directory = Some(self.directory.clone());
        Options { transport, pointer_directory, ..options(pointer_cache) }
    }

    /// The table as a process maps it that keeps to no rule. `raw` is a session
    /// over shared memory with the same server.
    fn table_words(&self, raw: &Connected) -> Words {
        Words::new(match self.transport {
            Transport::Shm => {
                let table = raw.pointer_table.as_ref().expect("it is granted");
                Mapping::of_peer(table.as_fd(), POINTER_TABLE_BYTES).unwrap()
            }
            _ => {
                let mut files = std::fs::read_dir(&self.directory).unwrap();
                let path = files.next().expect("a client has made it").unwrap().path();
                assert!(files.next().is_none(), "one table for all");
                let file = File::options().read(true).write(true).open(path).unwrap();
                Mapping::of_own_file(file.as_fd(), POINTER_TABLE_BYTES).unwrap()
            }
        })
    }

    fn table(&self, raw: &Connected) -> SharedPointers {
        SharedPointers::new(self.table_words(raw), raw.hello.pointer_table_seed.get())
    }
}

fn options(pointer_cache: PointerCacheKind) -> Options {
    Options { wake: Wake::Event, pointer_cache, ..long_leases() }
}

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

fn set_all(session: &mut Session, round: u64) {
    for number in 0..KEYS {
        let value = (number + round * 1_000).to_be_bytes();
        session.set(&key(number), &value, SetOptions::default()).unwrap();
    }
}

/// Reads every key, which has to be of this round: what that cost.
fn get_all(session: &mut Session, round: u64) -> Counts {
    let before = session.totals();
    for number in 0..KEYS {
        let value = (number + round * 1_000).to_be_bytes();
        let got = session.get(&key(number), Path::Choose).unwrap();
        assert_eq!(got.value, Some(&value[..]));
    }
    session.totals().since(&before)
}

#[test]
fn plays_its_part() {
    let Some((name, arguments)) = role() else { return };
    let socket = FilePath::new(&arguments[0]);
    let machine = Machine::of_arguments(&arguments);
    match name.as_str() {
        "writer" => write_for_ever(&machine, socket),
        _ => read_in_rounds(&machine, socket, &arguments[3]),
    }
}

/// Reads everything once told to, in three rounds, and says what it cost.
fn read_in_rounds(machine: &Machine, socket: &FilePath, name: &str) {
    let options = machine.options(PointerCacheKind::Shared);
    let mut session = Session::connect(socket, &options).unwrap();
    for round in 0..3 {
        let go = format!("go:{name}:{round}");
        while session.get(go.as_bytes(), Path::Ask).unwrap().value.is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let Counts { asked, stale, read_lease_lapsed, .. } = get_all(&mut session, round);
        Role::say(&format!("{asked} {stale} {read_lease_lapsed}"));
    }
    Role::wait_for_end();
}

/// Lets one reader read: how many keys it asked for and found stale, and how
/// often it asked for one unread or stale because its read lease had lapsed.
fn one_round(session: &mut Session, reader: &mut Role, name: usize, round: u64) -> [u64; 3] {
    let go = format!("go:{name}:{round}");
    session.set(go.as_bytes(), b"", SetOptions::default()).unwrap();
    let said = reader.hear().expect("the reader lives");
    let mut numbers = said.split(' ').map(|number| number.parse().unwrap());
    std::array::from_fn(|_| numbers.next().unwrap())
}

#[test]
fn one_client_warms_the_others_and_one_stale_read_serves_the_machine() {
    one_client_warms_the_others(&Machine::new(Transport::Shm));
}

#[test]
fn over_tcp_too_one_client_warms_the_others_and_one_stale_read_serves_the_machine() {
    one_client_warms_the_others(&Machine::new(Transport::Tcp));
}

/// A reader has asked for nothing but what its read lease lapsed for.
fn all_are_read([asked, stale, lapsed]: &[u64; 3]) -> bool {
    asked == lapsed && *stale == 0
}

fn one_client_warms_the_others(machine: &Machine) {
    let server = server();
    let socket = server.socket();
    let socket = socket.to_str().unwrap();
    // Process A, and one that stands for a writer on another machine.
    let mut warm = server.session_with(&machine.options(PointerCacheKind::Shared));
    assert_eq!(warm.transport(), machine.transport);
    let mut away = server.session_with(&options(PointerCacheKind::Off));
    set_all(&mut away, 0);
    let first = get_all(&mut warm, 0);
    assert!(first.asked == KEYS, "the first of the machine asks: {first:?}");

    let mut readers: Vec<Role> = ["0", "1", "2"]
        .map(|name| Role::start(module_path!(), "reader", &machine.arguments(socket, name)))
        .into();
    let mut round_of = |session: &mut Session, round| -> Vec<[u64; 3]> {
        let readers = readers.iter_mut().enumerate();
        readers.map(|(name, reader)| one_round(session, reader, name, round)).collect()
    };
    let fresh = round_of(&mut away, 0);
    assert!(fresh.iter().all(all_are_read), "{fresh:?}");

    set_all(&mut away, 1);
    let updated = round_of(&mut away, 1);
    println!("asked, stale, lapsed: fresh {fresh:?}, after an update elsewhere {updated:?}");
    let [asked, stale, lapsed] = updated[0];
    assert_eq!((asked, stale + lapsed), (KEYS, KEYS), "once for each key: {updated:?}");
    assert!(updated[1..].iter().all(all_are_read), "{updated:?}");

    // The writer's own reply brings the successor: not one stale READ.
    set_all(&mut warm, 2);
    let shared = round_of(&mut away, 2);
    println!("after an update by one that shares {shared:?}");
    assert!(shared.iter().all(all_are_read), "{shared:?}");
}

#[test]
fn without_sharing_every_client_pays_for_itself() {
    let server = server();
    let mut away = server.session_with(&options(PointerCacheKind::Off));
    set_all(&mut away, 0);
    let mut sessions: Vec<Session> =
        (0..3).map(|_| server.session_with(&options(PointerCacheKind::Private))).collect();
    for session in &mut sessions {
        assert_eq!(get_all(session, 0).asked, KEYS, "each has to warm up");
    }
    set_all(&mut away, 1);
    for session in &mut sessions {
        let counts = get_all(session, 1);
        assert_eq!(counts.asked, KEYS, "none is served by another's pointers: {counts:?}");
        let lost = KEYS - (counts.stale + counts.read_lease_lapsed);
        assert!(lost <= MOST_LOST, "{counts:?}");
    }
    assert_eq!((away.totals().hits, away.totals().read), (0, 0), "off is off");
}

#[test]
fn a_server_that_isolates_its_clients_shares_nothing_and_says_so() {
    let flags = ["--max-memory=32MiB", "--pointer-sharing=false", "--fabric-address=127.0.0.1:0"];
    let server = ServerProcess::start(&flags);
    for transport in [Transport::Shm, Transport::Tcp] {
        let machine = Machine::new(transport);
        let options = machine.options(PointerCacheKind::Shared);
        let error = Session::connect(&server.socket(), &options).unwrap_err();
        assert!(matches!(error, ConnectError::NoPointerSharing { .. }), "{error}");
        assert!(error.to_string().contains("pointer_sharing = true"), "{error}");
        assert!(!machine.directory.exists(), "not even a directory for it");
    }
    let raw = RawSession::connect(&server.socket());
    assert!(raw.connected.pointer_table.is_none());
    let mut session = server.session_with(&options(PointerCacheKind::Private));
    set_all(&mut session, 0);
    let counts = get_all(&mut session, 0);
    assert_eq!(counts.read + counts.asked, KEYS, "{counts:?}");
    assert!(counts.asked - counts.read_lease_lapsed <= MOST_LOST, "{counts:?}");
    assert_eq!(server.resp().info("sessions_violated"), 0);
}

const HASHES: u64 = 32;

/// Few hashes, so that processes meet at the same lines.
fn hash(draw: u64) -> KeyHash {
    KeyHash(mix(draw % HASHES, 17))
}

/// A hint in which everything follows from hash and number.
fn proven(hash: KeyHash, number: u32) -> Hint {
    let proof = mix(hash.0, number as u64);
    let pointer =
        RemotePointer { region: 0, slot: number, length: 80, generation: (proof >> 32) as u32 };
    Hint { hash, pointer, lease_end_ns: 2 * SECOND_NS + proof % SECOND_NS, term_ms: 1_000 }
}

fn write_for_ever(machine: &Machine, socket: &FilePath) {
    let _session = Session::connect(socket, &machine.options(PointerCacheKind::Shared)).unwrap();
    let raw = RawSession::connect(socket);
    let table = machine.table(&raw.connected);
    let mut random = Random::new(std::process::id() as u64);
    for number in 0u32.. {
        let hash = hash(random.below(1 << 30) as u64);
        match random.below(8) {
            0 => table.remove(hash),
            _ => table.put(&proven(hash, number), SECOND_NS),
        }
        if number == 100 {
            Role::say("writing");
        }
    }
}

/// Mappings of a process with this in their line.
fn mappings(pid: u32, name: &str) -> usize {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    maps.lines().filter(|line| line.contains(name)).count()
}

#[test]
fn clients_killed_while_they_write_harm_nobody_and_leave_nothing() {
    clients_are_killed_while_they_write(&Machine::new(Transport::Shm));
}

#[test]
fn over_tcp_too_clients_killed_while_they_write_harm_nobody_and_leave_nothing() {
    clients_are_killed_while_they_write(&Machine::new(Transport::Tcp));
}

fn clients_are_killed_while_they_write(machine: &Machine) {
    const ROUNDS: usize = 12;
    let mut server = server();
    let socket = server.socket();
    let _session = server.session_with(&machine.options(PointerCacheKind::Shared));
    let raw = RawSession::connect(&socket);
    let table = machine.table(&raw.connected);
    let left_open = |server: &ServerProcess| {
        let pid = server.pid();
        (descriptors(pid), mappings(pid, "remora-to-"), mappings(pid, "remora-pointers"))
    };
    // A grant ends a little after its client has it.
    let (mut before, mut same) = (left_open(&server), 0);
    wait_until("the first session is settled", || {
        let now = left_open(&server);
        same = if now == before { same + 1 } else { 0 };
        before = now;
        same == 20
    });
    assert_eq!(before.2, 1);
    let (is_over, hits) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let _over = OnDrop(&is_over);
        let reader = scope.spawn(|| {
            for draw in 0u64.. {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                let hash = hash(draw);
                let Some(found) = table.find(hash) else { continue };
                let expected = proven(hash, found.pointer(found.region_low()).slot);
                assert_eq!(found.pointer(found.region_low()), expected.pointer);
                assert_eq!(found.lease_end_ns(), expected.lease_end_ns);
                hits.fetch_add(1, Ordering::Relaxed);
            }
        });
        let mut random = Random::new(3);
        let socket = socket.to_str().unwrap();
        let start = || Role::start(module_path!(), "writer", &machine.arguments(socket, ""));
        let mut writers = [start(), start()];
        for round in 0..ROUNDS {
            // The other one goes on writing while this one is killed.
            let writer = &mut writers[round % 2];
            assert_eq!(writer.hear().as_deref(), Some("writing"));
            let before = hits.load(Ordering::Relaxed);
            wait_until("the reader sees what is written", || {
                reader.is_finished() || hits.load(Ordering::Relaxed) > before + 100
            });
            std::thread::sleep(Duration::from_micros(random.below(5_000) as u64));
            writer.kill();
            *writer = start();
        }
        drop(writers);
        is_over.store(true, Ordering::Relaxed);
        reader.join().expect("only what was put is seen");
    });
    println!("{hits:?} hits, {ROUNDS} writers killed");
    // What they left behind is used on at once.
    for number in 0..HASHES {
        let hint = proven(hash(number), u32::MAX);
        table.put(&hint, SECOND_NS);
        assert_eq!(
            table.find(hint.hash).map(|found| found.pointer(found.region_low())),
            Some(hint.pointer)
        );
    }
    wait_until("nothing of them is left", || left_open(&server) == before);
    let mut resp = server.resp();
    let sessions = resp.info("connected_sessions_shm") + resp.info("connected_sessions_tcp");
    assert_eq!(sessions, 2, "the raw one and the honest one");
    assert!(server.is_alive());
}

/// Writes garbage everywhere, and hints that pass their checksum but lead
/// anywhere, until told to end.
fn mislead(machine: &Machine, connected: &Connected, is_over: &AtomicBool, seed_of_random: u64) {
    let (words, table) = (machine.table_words(connected), machine.table(connected));
    let hash_seed = connected.hello.hash_seed.get();
    let regions = connected.arenas.iter().map(|arena| arena.load(word::REGION) as u32);
    let regions: Vec<u32> = regions.collect();
    let mut random = Random::new(seed_of_random);
    while !is_over.load(Ordering::Relaxed) {
        let hash = KeyHash::of(&key(random.below(60) as u64), hash_seed);
        let word = |random: &mut Random| u64::from_le_bytes(random.bytes(8).try_into().unwrap());
        if random.below(4) == 0 {
            let line = match random.below(2) {
                0 => home_line(hash, LINES),
                _ => random.below(LINES),
            };
            for at in 0..LINE_WORDS {
                words.store(line * LINE_WORDS + at, word(&mut random));
            }
            continue;
        }
        let lengths = [0, 8, 31, 48, 80, 69_664, u32::MAX];
        let pointer = RemotePointer {
            region: match random.below(4) {
                0 => word(&mut random) as u32,
                _ => regions[random.below(regions.len())],
            },
            // Most of them lie where records are.
            slot: word(&mut random) as u32 >> random.below(32),
            length: lengths[random.below(lengths.len())],
            generation: random.below(5) as u32,
        };
        let lease_end_ns = word(&mut random);
        table.put(&Hint { hash, pointer, lease_end_ns, term_ms: word(&mut random) }, SECOND_NS);
    }
}

#[test]
fn a_hostile_table_costs_reads_but_never_gives_a_wrong_value() {
    a_hostile_table_costs_reads(&Machine::new(Transport::Shm));
}

#[test]
fn over_tcp_too_a_hostile_table_costs_reads_but_never_gives_a_wrong_value() {
    a_hostile_table_costs_reads(&Machine::new(Transport::Tcp));
}

fn a_hostile_table_costs_reads(machine: &Machine) {
    let mut server = server();
    let raw = RawSession::connect(&server.socket());
    let mut session = server.session_with(&machine.options(PointerCacheKind::Shared));
    let mut map: HashMap<u64, Vec<u8>> = HashMap::new();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _over = OnDrop(&is_over);
        scope.spawn(|| mislead(machine, &raw.connected, &is_over, 5));
        let mut random = Random::new(9);
        let (began, mut steps) = (Instant::now(), 0);
        let is_misled = |Counts { stale, retries, read, .. }| stale > 0 && retries > 0 && read > 0;
        // On a busy machine it takes longer until the other thread has written.
        while steps < 15_000 || !is_misled(session.totals()) {
            assert!(began.elapsed() < DEADLINE, "it is not misled: {:?}", session.totals());
            steps += 1;
            let number = random.below(60) as u64;
            let path = [Path::Read, Path::Choose][random.below(2)];
            match random.below(12) {
                0 => {
                    let value = random.bytes(40);
                    session.set(&key(number), &value, SetOptions::default()).unwrap();
                    map.insert(number, value);
                }
                1 => {
                    let was = map.remove(&number).is_some();
                    assert_eq!(session.del(&key(number)).unwrap(), was);
                }
                2 => {
                    let keys: Vec<[u8; 8]> = (0..60).map(key).collect();
                    let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
                    let mut see = |at: usize, value: Option<&[u8]>, _| {
                        assert_eq!(value, map.get(&(at as u64)).map(Vec::as_slice));
                    };
                    session.get_batch(&keys, path, &mut see).unwrap();
                }
                _ => {
                    let got = session.get(&key(number), path).unwrap();
                    assert_eq!(got.value, map.get(&number).map(Vec::as_slice), "{path:?}");
                }
            }
        }
    });
    println!("{:?}", session.totals());
    // Once they are left alone, pointers serve again.
    set_all(&mut session, 0);
    let counts = get_all(&mut session, 0);
    assert!(counts.read + counts.read_lease_lapsed > KEYS * 9 / 10, "{counts:?}");
    assert!(server.is_alive());
    assert_eq!(server.resp().info("sessions_violated"), 0);
}

/// Sets a flag in any case, so that a failed test ends too.
struct OnDrop<'a>(&'a AtomicBool);

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
