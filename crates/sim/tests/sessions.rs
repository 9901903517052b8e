//! One session alone with a server, in virtual time: what it asks for, and
//! what it need not ask for.

use remora_client::{Client, Counts, Options, Path, Session, SetOptions, Wake};
use remora_engine::{Command, ShardOptions};
use remora_fabric::sim::{SimOptions, SimWorld, Tasks};
use remora_layout::limits::{LEASE_MIN_S, MAX_IN_FLIGHT, RIGHT_MS, RING_BYTES};
use remora_sim::clock::HostClock;
use remora_sim::faults::Faults;
use remora_sim::node::{Node, NodeOptions};
use remora_sim::tasks::Coroutines;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

const MS: u64 = 1_000_000;

/// Runs `body` as the only client of a server with one shard.
fn alone(body: impl FnOnce(&SimWorld, &mut Session) + 'static) {
    let world = SimWorld::new(SimOptions::default());
    world.run_tasks_by(Coroutines);
    let options = NodeOptions {
        shards: 1,
        arena_bytes: 8 << 20,
        shard: ShardOptions::default(),
        clock_gains_ppm: 0,
        pointer_lines: 0,
        audits: true,
    };
    let faults = Rc::new(Faults::new(&world, BTreeMap::new()));
    let node = Rc::new(RefCell::new(Node::new(&world, options, faults)));
    node.borrow_mut().start();
    let parts = node.borrow_mut().connect(&HostClock::new(&world, MS, 0)).expect("it is up");
    let server = Rc::clone(&node);
    Coroutines::spawn(&world, move || Node::run(&server));
    let inner = world.clone();
    let client = Coroutines::spawn(&world, move || {
        let options = Options { wake: Wake::Event, ..Options::default() };
        let client = Client::over(parts, &options).expect("no process forks here");
        body(&inner, &mut client.session().expect("the first session"));
    });
    let ran = catch_unwind(AssertUnwindSafe(|| {
        while Coroutines::is_alive(client) {
            assert!(world.step(u64::MAX), "the server's ticks do not end");
        }
    }));
    if let Err(panic) = ran {
        Coroutines::abandon_all();
        resume_unwind(panic);
    }
    node.borrow_mut().close();
    assert!(node.borrow().violations.is_empty() && node.borrow().misfits.is_empty());
    Coroutines::forget_all();
    world.forget_all();
}

/// Lets the task that runs stand still for so long.
fn pause(world: &SimWorld, ns: u64) {
    let (task, until_ns) = (Coroutines.current().expect("it runs"), world.now_ns() + ns);
    while world.now_ns() < until_ns {
        world.suspend_until(task, until_ns);
    }
}

/// Reads a key of this value, by itself or as a batch of one; gives the cost.
fn read(session: &mut Session, in_batch: bool, path: Path) -> Counts {
    let right = Some(&b"value"[..]);
    if !in_batch {
        let got = session.get(b"key", path).expect("an answer");
        assert_eq!(got.value, right);
        return got.counts;
    }
    let mut each = |_, value: Option<&[u8]>, _| assert_eq!(value, right);
    session.get_batch(&[b"key"], path, &mut each).expect("an answer")
}

/// Reads once in a while, for so long; gives the cost of all.
fn read_for(
    world: &SimWorld,
    session: &mut Session,
    in_batch: bool,
    path: Path,
    ns: u64,
) -> Counts {
    let (mut counts, until_ns) = (Counts::default(), world.now_ns() + ns);
    while world.now_ns() < until_ns {
        counts.add(&read(session, in_batch, path));
        pause(world, 5 * MS);
    }
    counts
}

/// The client's clock goes out by WRITEs, and heartbeats bring it back: that
/// is all that the right needs.
#[test]
fn who_only_reads_never_has_to_ask() {
    alone(|world, session| {
        session.set(b"key", b"value", SetOptions::default()).expect("room");
        for in_batch in [false, true] {
            let counts = read_for(world, session, in_batch, Path::Read, 10 * RIGHT_MS * MS);
            assert_eq!((counts.asked, counts.right_lapsed), (0, 0), "{counts:?}");
            assert!(counts.operations > 300, "{counts:?}");
        }
    });
}

/// A popular key's lease is renewed in its last eighth, by asking once, so
/// that it never ends; who only reads does not ask.
#[test]
fn the_lease_of_a_popular_key_is_renewed_before_it_ends() {
    const TERMS: u64 = 8;
    for in_batch in [false, true] {
        alone(move |world, session| {
            session.set(b"key", b"value", SetOptions::default()).expect("room");
            let ns = TERMS * LEASE_MIN_S * 1_000 * MS;
            let counts = read_for(world, session, in_batch, Path::Choose, ns);
            assert_eq!((counts.lease_expired, counts.right_lapsed), (0, 0), "{counts:?}");
            assert_eq!(counts.hits, counts.operations, "{counts:?}");
            // Terms grow with a key's popularity.
            assert!((1..=TERMS * 8 / 7).contains(&counts.asked), "{counts:?}");
            let counts = read_for(world, session, in_batch, Path::Read, 2 * ns);
            assert_eq!((counts.asked, counts.right_lapsed), (0, 0), "{counts:?}");
            assert!(counts.lease_expired > 0, "{counts:?}");
        });
    }
}

/// Requests and replies that no ring holds: the thread that makes them takes
/// replies to get room, and finds them later, in order.
#[test]
fn one_thread_fills_both_rings_with_gathered_requests() {
    const REQUESTS: usize = MAX_IN_FLIGHT - 24;
    let key = |number: usize| format!("{number:0width$}", width = 1_500 + number % 7).into_bytes();
    let value = |number: usize| vec![number as u8; 1_500 + number % 11];
    assert!(REQUESTS * 1_500 > 4 * RING_BYTES);
    alone(move |_, session| {
        for number in 0..REQUESTS {
            session.set(&key(number), &value(number), SetOptions::default()).expect("room");
        }
        for number in 0..REQUESTS {
            session.submit(&Command::Get { key: &key(number) }).expect("it goes out");
        }
        for number in 0..REQUESTS {
            let mut is_right = false;
            let mut take = |_, reply: &remora_engine::Reply<'_>| {
                is_right = reply.value == Some(&value(number)[..]);
            };
            assert!(session.next_reply(&mut take).expect("an answer"));
            assert!(is_right, "reply {number}");
        }
        assert_eq!(session.in_flight(), 0);
    });
}
