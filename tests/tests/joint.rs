//! Changes of two shards (decision 0070): a server is killed under a load of moves between shards, and
//! each element is there once.

use remora_protocol::list::Side;
use remora_tests::{Random, Resp, ServerProcess, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// More keys than shards, so that most moves are between two of them.
const KEYS: u64 = 9;
const ELEMENTS: usize = 300;
const CLIENTS: u64 = 8;

fn random_move(random: &mut Random) -> Vec<String> {
    let [from, to] = [0; 2].map(|_| random.below(KEYS));
    let element = random.below(ELEMENTS as u64);
    let words = match random.below(8) {
        0 => format!("RPOPLPUSH list-{from} list-{to}"),
        1 => format!("BLMOVE list-{from} list-{to} LEFT RIGHT 0.01"),
        2 => format!("BRPOPLPUSH list-{from} list-{to} 0.01"),
        3 | 4 => format!("LMOVE list-{from} list-{to} LEFT LEFT"),
        _ => format!("SMOVE set-{from} set-{to} m{element}"),
    };
    words.split(' ').map(str::to_owned).collect()
}

/// Moves until the server is gone. How many calls moved something.
fn moves(address: SocketAddr, seed: u64, ends: &AtomicBool) -> u64 {
    let (mut random, mut moved) = (Random::new(seed), 0);
    let Ok(mut resp) = Resp::connect(address) else { return 0 };
    while !ends.load(Ordering::Relaxed) {
        let words = random_move(&mut random);
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        match resp.try_call(&words) {
            Ok(Value::Bulk(_) | Value::Integer(1)) => moved += 1,
            Ok(reply) => assert!(!reply.is_error(), "{reply:?}"),
            Err(_) => break,
        }
    }
    moved
}

/// How often each element is in any list, and each member in any set.
fn all(resp: &mut Resp) -> BTreeMap<String, u32> {
    let mut all = BTreeMap::new();
    for key in 0..KEYS {
        for request in [format!("LRANGE list-{key} 0 -1"), format!("SMEMBERS set-{key}")] {
            let Value::Array(values) = resp.call(&request) else { panic!("{request}") };
            for value in values {
                let Value::Bulk(element) = value else { panic!("{value:?}") };
                *all.entry(String::from_utf8(element.to_vec()).unwrap()).or_default() += 1;
            }
        }
    }
    all
}

#[test]
fn a_killed_server_has_each_moved_element_once() {
    let directory = tempfile::tempdir().unwrap();
    let flags = ["--durability=fsync", "--shards=3"];
    let mut server = ServerProcess::start_with_data(directory.path(), &flags);
    let mut resp = server.resp();
    for number in 0..ELEMENTS as u64 {
        assert!(!resp.call(&format!("RPUSH list-{} e{number}", number % KEYS)).is_error());
        assert!(!resp.call(&format!("SADD set-{} m{number}", number % KEYS)).is_error());
    }
    let once: BTreeMap<String, u32> = all(&mut resp);
    assert_eq!(once.len(), 2 * ELEMENTS);
    let moved = AtomicU64::new(0);
    for round in 0..5 {
        let (address, ends) = (server.resp_address(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for client in 0..CLIENTS {
                let (ends, moved) = (&ends, &moved);
                scope.spawn(move || {
                    let of_client = moves(address, 100 * round + client, ends);
                    moved.fetch_add(of_client, Ordering::Relaxed);
                });
            }
            std::thread::sleep(Duration::from_millis(700 + 100 * round));
            server.kill();
            ends.store(true, Ordering::Relaxed);
        });
        server = ServerProcess::start_with_data(directory.path(), &flags);
        let found = all(&mut server.resp());
        let lost: BTreeSet<_> = once.keys().filter(|of| !found.contains_key(*of)).collect();
        let twice: Vec<_> = found.iter().filter(|of| *of.1 > 1).collect();
        assert!(lost.is_empty() && twice.is_empty(), "lost {lost:?}, twice {twice:?}");
    }
    assert!(moved.into_inner() > 100, "the load moved little");
}

/// A held shard takes nothing from rings either: what the move has looked at stays at its end.
#[test]
fn what_clients_of_rings_push_meanwhile_is_there_once() {
    const PUSHED: u64 = 600;
    let server = ServerProcess::start(&["--shards=3", "--max-memory=64MiB"]);
    let mut resp = server.resp();
    for number in 0..ELEMENTS as u64 {
        assert!(!resp.call(&format!("RPUSH list-{} e{number}", number % KEYS)).is_error());
    }
    let (moved, ends) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (ends, moved, address) = (&ends, &moved, server.resp_address());
            scope.spawn(move || {
                moved.fetch_add(moves(address, client, ends), Ordering::Relaxed);
            });
        }
        let pushing = (0..2).map(|client| {
            let mut session = server.session();
            scope.spawn(move || {
                for number in 0..PUSHED {
                    let key = format!("list-{}", number % KEYS);
                    let element = format!("r{client}-{number}");
                    let side = if number % 2 == 0 { Side::Left } else { Side::Right };
                    let list = session.open_list(key.as_bytes()).unwrap();
                    session.list_push(&list, side, &[element.as_bytes()]).unwrap();
                }
            })
        });
        let pushing: Vec<_> = pushing.collect();
        pushing.into_iter().for_each(|thread| thread.join().unwrap());
        ends.store(true, Ordering::Relaxed);
    });
    let found = all(&mut resp);
    let twice: Vec<_> = found.iter().filter(|of| *of.1 > 1).collect();
    assert!(twice.is_empty(), "{twice:?}");
    assert_eq!(found.len() as u64, ELEMENTS as u64 + 2 * PUSHED);
    assert!(moved.into_inner() > 100, "the load moved little");
}
