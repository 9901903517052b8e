//! The choice through a real server: what is chosen never changes an answer,
//! each policy goes the ways that it is said to go, and each operation can be
//! explained.

use remora_client_core::{
    ConcurrencyLimit, Options, Path, PointerCacheKind, Policy, Predicate, Query, Rect, Route,
    ServedBy, Session, SetOptions, TreeSettings, Wanted, Why,
};
use remora_tests::{Random, ServerProcess, long_leases, wait_until};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const FLAGS: [&str; 3] = ["--shards=2", "--max-memory=64MiB", "--fabric-address=127.0.0.1:0"];
const TREE: &[u8] = b"tree";
const OBJECTS: u64 = 5_000;

fn options(transport: Wanted, policy: Policy) -> Options {
    Options { transport, policy, ..long_leases() }
}

fn key(number: u64) -> Vec<u8> {
    format!("key:{number}").into_bytes()
}

/// Keys and places: the object of number `n` is a point of the diagonal.
fn fill(session: &mut Session) {
    for number in 0..200 {
        session.set(&key(number), &number.to_le_bytes(), SetOptions::default()).unwrap();
    }
    session.create_tree(TREE, &TreeSettings::default()).unwrap();
    let point = |id: u64| (id, Rect::point(id as f64, id as f64).unwrap());
    session.load_tree(TREE, &mut (0..OBJECTS).map(point), &mut |_| {}).unwrap();
}

fn window(from: u64, to: u64) -> Query {
    let window = Rect::new(from as f64, to as f64, from as f64, to as f64).unwrap();
    Query::Window { window, predicate: Predicate::Intersects }
}

/// Operations of all kinds, checked; gives how many were asked and how many read.
fn operate(session: &mut Session, operations: u64, seed: u64) -> (u64, u64) {
    let mut tree = session.open_tree(TREE).unwrap().unwrap();
    let mut random = Random::new(seed);
    let before = session.totals();
    for round in 0..operations {
        match round % 4 {
            0 => {
                let number = random.below(300) as u64;
                let got = session.get(&key(number), Path::Choose).unwrap();
                let expected = (number < 200).then(|| number.to_le_bytes());
                assert_eq!(got.value, expected.as_ref().map(|bytes| &bytes[..]), "{number}");
            }
            1 => {
                let numbers: Vec<u64> = (0..8).map(|_| random.below(300) as u64).collect();
                let keys: Vec<Vec<u8>> = numbers.iter().map(|&number| key(number)).collect();
                let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
                let mut seen = BTreeSet::new();
                let each = &mut |index: usize, value: Option<&[u8]>, _: ServedBy| {
                    let number = numbers[index];
                    let expected = (number < 200).then(|| number.to_le_bytes());
                    assert_eq!(value, expected.as_ref().map(|bytes| &bytes[..]), "{number}");
                    seen.insert(index);
                };
                session.get_batch(&keys, Path::Choose, each).unwrap();
                assert_eq!(seen.len(), 8, "once each");
            }
            2 => {
                let from = random.below(OBJECTS as usize) as u64;
                let most = 1 << random.below(12);
                let to = from + random.below(most) as u64;
                let found =
                    session.search_tree(&mut tree, &window(from, to), Path::Choose).unwrap();
                let found: BTreeSet<u64> = found.objects.iter().map(|object| object.word).collect();
                assert!(found.into_iter().eq(from..OBJECTS.min(to + 1)), "{from} to {to}");
            }
            _ => {
                let (x, wanted) = (random.below(OBJECTS as usize) as f64, 1 + random.below(9));
                let query = Query::Nearest { x, y: x, wanted };
                let found = session.search_tree(&mut tree, &query, Path::Choose).unwrap();
                assert_eq!(found.objects.len(), wanted);
                assert_eq!(found.objects[0].word as f64, x, "the nearest comes first");
            }
        }
        if round % 50 == 49 {
            // Own writes are seen whatever is chosen.
            let number = random.below(200) as u64;
            session.set(&key(number), &number.to_le_bytes(), SetOptions::default()).unwrap();
        }
    }
    let counts = session.totals().since(&before);
    (counts.asked, counts.read)
}

#[test]
fn no_policy_changes_an_answer() {
    let server = ServerProcess::start(&FLAGS);
    fill(&mut server.session());
    for transport in [Wanted::Shm, Wanted::Tcp] {
        for policy in Policy::ALL {
            let mut session = server.session_with(&options(transport, policy));
            let (asked, read) = operate(&mut session, 2_000, 7);
            println!("{transport:?} {}: {asked} asked, {read} read", policy.name());
            match policy {
                Policy::Ask => assert_eq!(read, 0),
                // What is absent, and what follows own writes, is asked for.
                Policy::Read => assert!(read > asked, "{asked} and {read}"),
                // Both ways are tried.
                Policy::Cost | Policy::Pointer => assert!(asked > 0 && read > 0),
                // They ask a server that is not busy.
                Policy::CatfishLiteral | Policy::CatfishKeep => assert!(asked > 0),
                other => panic!("{other:?} promises nothing here"),
            }
        }
    }
    assert_eq!(server.resp().info("sessions_violated"), 0);
}

/// Catfish's rule (A12, A13, A6) with a real server, which measures itself how busy it is:
/// nothing is read before a heartbeat has said more than 95 %; then some is, in runs, and
/// between them the server is asked.
#[test]
fn by_the_papers_rule_a_server_that_says_that_it_is_busy_is_read() {
    let server = ServerProcess::start(&["--shards=1", "--max-memory=64MiB"]);
    for policy in [Policy::CatfishLiteral, Policy::CatfishKeep] {
        let mut session = server.session_with(&options(Wanted::Shm, policy));
        session.set(b"key", b"value", SetOptions::default()).unwrap();
        let mut was_busy = false;
        // Gives whether it was read. A heartbeat may come during the lookup.
        let mut look_up = || {
            was_busy |= session.server_utilisation_ppm().is_some_and(|ppm| ppm > 950_000);
            let via = session.get(b"key", Path::Choose).unwrap().served_by;
            was_busy |= session.server_utilisation_ppm().is_some_and(|ppm| ppm > 950_000);
            assert!(via == ServedBy::Asked || was_busy, "read before the server was busy");
            via != ServedBy::Asked
        };
        for _ in 0..30 {
            std::thread::sleep(Duration::from_millis(2));
            look_up();
        }
        let stop = AtomicBool::new(false);
        let keys = [&b"absent"[..]; 1_000];
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let mut session = server.session();
                    while !stop.load(Ordering::Relaxed) {
                        session.get_batch(&keys, Path::Ask, &mut |_, _, _| ()).unwrap();
                    }
                });
            }
            let (mut runs, mut asked, mut is_run) = (0, 0, false);
            wait_until("three runs of reads, and requests between them", || {
                let is_read = look_up();
                (runs, asked) = (runs + (is_read && !is_run) as u32, asked + !is_read as u32);
                is_run = is_read;
                runs >= 3 && asked >= 3
            });
            stop.store(true, Ordering::Relaxed);
        });
    }
}

/// An operation can be explained, and the explanation fits what was done.
#[test]
fn operations_are_explained() {
    let server = ServerProcess::start(&FLAGS);
    fill(&mut server.session());
    for policy in Policy::ALL {
        let mut session = server.session_with(&options(Wanted::Shm, policy));
        let mut tree = session.open_tree(TREE).unwrap().unwrap();
        session.search_tree(&mut tree, &window(3, 9), Path::Choose).unwrap();
        assert_eq!(session.explanation(), None, "nobody wanted to know");
        session.explain(true);
        let mut ways = [0, 0];
        for round in 0..400u64 {
            let via = match round % 2 {
                0 => session.search_tree(&mut tree, &window(3, 9), Path::Choose).unwrap().served_by,
                _ => session.get(&key(round % 100), Path::Choose).unwrap().served_by,
            };
            let said = session.explanation().unwrap();
            assert_eq!((said.policy, said.served_by), (policy, via));
            assert!(said.actual_ns > 0);
            let was_asked = via == ServedBy::Asked;
            assert_eq!(said.route == Route::Ask, was_asked, "{said}");
            assert_eq!(
                said.why == Why::Policy,
                !matches!(policy, Policy::Cost | Policy::CatfishLiteral | Policy::CatfishKeep),
                "{said}"
            );
            // What is known is what was tried.
            let is_known = said.ask_ns.is_some() && said.read_ns.is_some();
            assert!(policy == Policy::Cost || !is_known, "{said}");
            assert!(policy != Policy::Cost || is_known || round < 300, "{said}");
            assert!(said.ask_ns.is_some() || said.read_ns.is_some() || round < 300, "{said}");
            ways[was_asked as usize] += 1;
        }
        println!("{}: {ways:?}; {}", policy.name(), session.explanation().unwrap());
        for path in [Path::Ask, Path::Read] {
            session.search_tree(&mut tree, &window(3, 9), path).unwrap();
            assert_eq!(session.explanation().unwrap().why, Why::Given);
        }
    }
}

/// READs of absent keys conclude nothing: what they take is the READs and the
/// request that follows. (That such keys are asked for: `crates/sim/tests/sessions.rs`,
/// in virtual time.)
#[test]
fn keys_that_are_absent_are_asked_for_after_reading() {
    let server = ServerProcess::start(&FLAGS);
    fill(&mut server.session());
    let mut session = server.session_with(&options(Wanted::Shm, Policy::Read));
    session.explain(true);
    assert_eq!(session.get(&key(1000), Path::Choose).unwrap().served_by, ServedBy::AskedAfterRead);
    let said = session.explanation().unwrap().to_string();
    assert!(said.ends_with("did not conclude: both count as reading"), "{said}");
}

/// Clients that share a table of pointers share the number of walks, as two processes of a
/// machine do.
#[test]
fn clients_of_a_machine_share_the_number_of_walks() {
    let server = ServerProcess::start(&FLAGS);
    fill(&mut server.session());
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let client = |pointer_cache| {
        let options = Options {
            concurrency_limit: ConcurrencyLimit::AtMost(4),
            pointer_cache,
            pointer_directory: Some(directory.path().join("remora")),
            ..options(Wanted::Tcp, Policy::Read)
        };
        remora_client_core::Client::connect(&server.socket(), &options).unwrap()
    };
    for (cache, limit) in [(PointerCacheKind::Shared, 2), (PointerCacheKind::Private, 4)] {
        let clients = [client(cache), client(cache)];
        let mut sessions = clients.each_ref().map(|client| client.session().unwrap());
        // A client that a busy machine holds up for long counts as one that does not walk.
        wait_until("each client has its part", || {
            sessions.iter_mut().for_each(|session| _ = operate(session, 40, 1));
            clients.each_ref().map(|client| client.walks_at_a_time()) == [Some(limit); 2]
        });
    }
}

/// The threads of a client over TCP walk one at a time, and each finds all.
#[test]
fn walks_take_turns() {
    let server = ServerProcess::start(&FLAGS);
    fill(&mut server.session());
    let client = |coordination| {
        let options =
            Options { concurrency_limit: coordination, ..options(Wanted::Tcp, Policy::Read) };
        remora_client_core::Client::connect(&server.socket(), &options).unwrap()
    };
    for (coordination, limit) in [
        (ConcurrencyLimit::AtMost(1), Some(1)),
        (ConcurrencyLimit::Off, None),
        (ConcurrencyLimit::Auto, Some(2)),
    ] {
        let client = client(coordination);
        assert_eq!(client.walks_at_a_time(), limit);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let client = &client;
                scope.spawn(move || {
                    let mut session = client.session().unwrap();
                    let (_, read) = operate(&mut session, 400, thread);
                    assert!(read > 0);
                });
            }
        });
    }
}
