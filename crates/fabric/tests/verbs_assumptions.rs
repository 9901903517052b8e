//! Probes the assumptions of `docs/assumptions.md` about RDMA devices on the devices of this
//! machine. The tests of torn words and of the order of WRITEs and immediates also run a wrong
//! operation on purpose, which the detector must report. They need devices: the virtual machine of
//! `make rxe` runs them.

use crate::verbs_world::{MAILBOX_BYTES, Raw, Server, control, devices};
use remora_arena::{Mapping, Words};
use remora_fabric::conformance::DEADLINE;
use remora_fabric::verbs::{
    QueuePair, Registration, Request, Unconnected, Verb, access, bind_window, open,
};
use remora_verbs_sys::*;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// Rounds count in one byte, so that their order does not depend on torn words.
const ROUNDS: u64 = 250;
/// Four packets of the smallest usual size.
const BYTES: usize = 4096;

fn word_of(byte: u64) -> u64 {
    (byte & 0xff) * 0x0101_0101_0101_0101
}

fn is_whole(word: u64) -> bool {
    word == word_of(word)
}

/// READs while another thread stores whole words, or halves of words. Returns how many words were
/// mixtures, and how many READs saw an incomplete change.
fn mixtures(stores_whole: bool) -> (u64, u64) {
    let server = Server::new();
    let (_session, mut client) = server.session();
    let stop = AtomicBool::new(false);
    let (at, rkey) = (client.arena.address.get(), client.arena.rkey.get());
    let arena = &server.arena;
    (0..BYTES / 8).for_each(|index| arena.store(index, 0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut byte = 0;
            while !stop.load(Ordering::Acquire) {
                byte += 1;
                for index in 0..BYTES / 8 {
                    if !stores_whole {
                        let (new, old) = (word_of(byte), word_of(byte - 1));
                        arena.store(index, new << 32 | old >> 32);
                    }
                    arena.store(index, word_of(byte));
                }
            }
        });
        let (mut mixed, mut changed) = (0, 0);
        for _ in 0..ROUNDS {
            assert_eq!(client.run(Verb::Read, at, rkey, BYTES), IBV_WC_SUCCESS);
            let words: Vec<u64> = (0..BYTES / 8).map(|index| client.landed(index * 8)).collect();
            mixed += words.iter().filter(|word| !is_whole(**word)).count() as u64;
            changed += words.windows(2).any(|pair| pair[0] != pair[1]) as u64;
        }
        stop.store(true, Ordering::Release);
        (mixed, changed)
    })
}

#[test]
fn a_read_sees_words_whole_while_they_are_stored() {
    let (mixed, changed) = mixtures(true);
    println!("of {ROUNDS} READs of {BYTES} bytes {changed} met a store, {mixed} words were mixed");
    assert_eq!(mixed, 0);
    assert!(changed > 0, "no READ met a store");
    // Halves of words are seen where they are stored.
    assert!(mixtures(false).0 > 0, "the detector sees nothing");
}

/// Two WRITEs in one batch, while another thread looks at the second's word first. Returns how
/// often it saw the second without all of the first, and how many different rounds it saw. Counts
/// mixtures in a word as well.
fn placed(in_order: bool) -> (u64, u64) {
    let server = Server::new();
    let (session, mut client) = server.session();
    let (at, rkey) = (client.mailbox.address.get(), client.mailbox.rkey.get());
    let stop = AtomicBool::new(false);
    let mailbox = &session.mailbox;
    let flag = at + BYTES as u64;
    let (mut wrong, mut seen) = (0, 0);
    let looked = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let (mut wrong, mut seen, mut last) = (0, 0, 0);
            while !stop.load(Ordering::Acquire) {
                let round = mailbox.load_acquire(BYTES / 8);
                seen += (round != last) as u64;
                last = round;
                wrong += (0..BYTES / 8).any(|at| mailbox.load_acquire(at) < round) as u64;
                looked.store(round, Ordering::Release);
            }
            (wrong, seen)
        });
        for round in 1..=ROUNDS {
            client.memory.store(0, &round.to_le_bytes().repeat(BYTES / 8 + 1));
            let mut parts = [(at, BYTES), (flag, 8)];
            if !in_order {
                parts.reverse();
            }
            let ids = parts.map(|(to, bytes)| client.post(Verb::Write(None), to, rkey, bytes));
            for id in ids {
                let done = client.completion();
                assert_eq!((done.wr_id, done.status), (id, IBV_WC_SUCCESS));
            }
            // The thread sees every round.
            while looked.load(Ordering::Acquire) != round {
                std::thread::yield_now();
            }
        }
        stop.store(true, Ordering::Release);
        (wrong, seen) = watcher.join().unwrap();
    });
    (wrong, seen)
}

#[test]
fn a_write_is_placed_before_the_next_one() {
    let (wrong, seen) = placed(true);
    println!("of {ROUNDS} pairs of WRITEs {seen} were watched, {wrong} were out of order");
    assert_eq!(wrong, 0);
    assert_eq!(seen, ROUNDS);
    // A busy machine may look too seldom: then the detector looks again.
    let end = Instant::now() + DEADLINE;
    while placed(false).0 == 0 {
        assert!(Instant::now() < end, "the detector sees nothing");
    }
}

/// A queue pair of each end in one domain each, by hand.
fn ends() -> (Arc<remora_fabric::verbs::Domain>, QueuePair, Raw) {
    let (near, _) = control();
    let (far_domain, far_place) = open(None, &devices().0).unwrap();
    let (far, client) = ends_in(&far_domain, &far_place, near);
    (far_domain, far, client)
}

fn ends_in(
    far_domain: &Arc<remora_fabric::verbs::Domain>,
    far_place: &remora_fabric::verbs::Gid,
    control: std::net::TcpStream,
) -> (QueuePair, Raw) {
    let (domain, place) = open(None, &devices().1).unwrap();
    let far = Unconnected::new(far_domain, far_place).unwrap();
    let near = Unconnected::new(&domain, &place).unwrap();
    let (remote_end, near_end) = (far.end(), near.end());
    let (far, near) = (far.connect(&near_end).unwrap(), near.connect(&remote_end).unwrap());
    (far, Raw::new(near, domain, control))
}

#[test]
fn a_read_sees_the_write_before_it() {
    let (far_domain, _far, mut client) = ends();
    let words = Words::new(Mapping::heap(MAILBOX_BYTES));
    let memory = Registration::of(&far_domain, &words, access::READ | access::WRITE).unwrap();
    let (at, rkey) = (memory.address(), memory.rkey());
    for round in 1..=ROUNDS {
        client.memory.store(0, &round.to_le_bytes().repeat(BYTES / 8));
        // Both under way at once.
        let write = client.post_from(Verb::Write(None), at, rkey, 0, BYTES);
        let read = client.post_from(Verb::Read, at, rkey, BYTES, BYTES);
        for id in [write, read] {
            let done = client.completion();
            assert_eq!((done.wr_id, done.status), (id, IBV_WC_SUCCESS));
        }
        for index in 0..BYTES / 8 {
            assert_eq!(client.landed(BYTES + index * 8), round, "word {index}");
        }
    }
}

#[test]
fn completions_come_in_order_and_one_speaks_for_all_before() {
    let server = Server::new();
    let (session, mut client) = server.session();
    for round in 0..50 {
        let local = (client.memory.address(), client.memory.lkey());
        let of = |key: &remora_layout::verbs::RegionKey| (key.address.get(), key.rkey.get());
        // A long READ comes first: a WRITE behind it could complete long before.
        let parts = [
            (Verb::Read, of(&client.arena), 16 << 10, true),
            (Verb::Write(None), of(&client.mailbox), 8, true),
            (Verb::Read, of(&client.arena), 16 << 10, false),
            (Verb::Write(None), of(&client.mailbox), 8, false),
            (Verb::Write(None), of(&client.mailbox), BYTES as u32, true),
            (Verb::Read, of(&client.arena), 8, true),
        ];
        let requests: Vec<Request> = (0..)
            .zip(parts)
            .map(|(id, (verb, remote, bytes, is_signalled))| {
                let local = (local.0, local.1);
                Request { id: round * 10 + id, verb, local, remote, bytes, is_signalled }
            })
            .collect();
        client.post_all(&requests);
        for id in [0, 1, 4, 5] {
            let done = client.completion();
            assert_eq!((done.wr_id, done.status), (round * 10 + id, IBV_WC_SUCCESS));
        }
    }
    drop(session);
}

#[test]
fn an_immediate_comes_after_its_bytes() {
    let server = Server::new();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (session, mut client) = server.session_telling({
        let seen = Arc::clone(&seen);
        move |imm, mailbox| {
            let missing = (0..BYTES / 8).filter(|at| mailbox.load_acquire(*at) < imm as u64);
            seen.lock().unwrap().push((imm, missing.count()));
        }
    });
    let (at, rkey) = (client.mailbox.address.get(), client.mailbox.rkey.get());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Acquire) {
                session.connection.pump();
            }
        });
        for round in 1..=ROUNDS {
            client.memory.store(0, &round.to_le_bytes().repeat(BYTES / 8));
            let verb = Verb::Write(Some(round as u32));
            assert_eq!(client.run(verb, at, rkey, BYTES), IBV_WC_SUCCESS);
        }
        // The detector: a WRITE whose bytes do not arrive.
        let verb = Verb::Write(Some(ROUNDS as u32 + 1));
        assert_eq!(client.run(verb, at, rkey, 0), IBV_WC_SUCCESS);
        while seen.lock().unwrap().len() <= ROUNDS as usize {
            std::thread::yield_now();
        }
        stop.store(true, Ordering::Release);
    });
    let mut expected: Vec<(u32, usize)> = (1..=ROUNDS as u32).map(|imm| (imm, 0)).collect();
    expected.push((ROUNDS as u32 + 1, BYTES / 8));
    assert_eq!(*seen.lock().unwrap(), expected);
}

#[test]
fn a_window_is_of_no_use_after_its_session() {
    let (near, _) = control();
    let (domain, place) = open(None, &devices().0).unwrap();
    let (far, mut client) = ends_in(&domain, &place, near);
    let mailbox = Words::new(Mapping::heap(MAILBOX_BYTES));
    let memory = Registration::of(&domain, &mailbox, access::BY_WINDOW).unwrap();
    let window = bind_window(&domain, &far, &memory).unwrap();
    assert_eq!(client.write(memory.address(), window.rkey, 5), IBV_WC_SUCCESS);
    let rkey = window.rkey;
    // In the order of `Connection::end`. (Soft-RoCE keeps a queue pair for a
    // long time while a window is bound to it.)
    drop(window);
    drop(far);
    // A second queue pair of the same domain.
    let (near, _) = control();
    let (far, mut client) = ends_in(&domain, &place, near);
    let status = client.write(memory.address(), rkey, 6);
    assert_eq!((status, mailbox.load_acquire(0)), (IBV_WC_REM_ACCESS_ERR, 5));
    drop(far);
    // The control: after it is bound again, to a third queue pair, it works.
    let (near, _) = control();
    let (far, mut client) = ends_in(&domain, &place, near);
    let window = bind_window(&domain, &far, &memory).unwrap();
    assert_eq!(client.write(memory.address(), window.rkey, 7), IBV_WC_SUCCESS);
    assert_eq!(mailbox.load_acquire(0), 7);
    drop(window);
}

/// Functional evidence only: times in the virtual machine are not representative.
#[test]
fn what_registering_and_binding_cost() {
    let (domain, far, _client) = ends();
    let arena = Words::new(Mapping::heap(1 << 30));
    let timed = |work: &dyn Fn()| {
        let began = Instant::now();
        work();
        began.elapsed().as_micros()
    };
    let first =
        timed(&|| drop(Registration::readable(&domain, &arena.view(), 0..arena.bytes()).unwrap()));
    let again =
        timed(&|| drop(Registration::readable(&domain, &arena.view(), 0..arena.bytes()).unwrap()));
    let small = Words::new(Mapping::heap(1 << 20));
    let mailbox = timed(&|| drop(Registration::of(&domain, &small, access::WRITE).unwrap()));
    let memory = Registration::of(&domain, &small, access::BY_WINDOW).unwrap();
    let windows = timed(&|| {
        for _ in 0..100 {
            drop(bind_window(&domain, &far, &memory).unwrap());
        }
    });
    println!(
        "1 GiB, untouched, registered and given back in {first} us, again in {again} us; \
         1 MiB in {mailbox} us; a window made, bound and given back in {} us",
        windows / 100
    );
}
