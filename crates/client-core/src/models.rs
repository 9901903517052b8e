//! Threads that share a connection, in thousands of orders of their steps: no reply is lost, and no
//! thread sleeps for ever while its reply has arrived. A thread that stops waiting while heartbeats
//! arrive does not disturb the others, and no session receives its late replies.
//!
//! The client is production's, over rings in ordinary memory. The server is a few lines: it takes
//! requests out of the rings and answers each with the number that it carries.

mod endless;
mod flush;
mod network;

use crate::asker::Answer;
use crate::client::Client;
use crate::clock::Clock;
use crate::connection::{Backend, Connection};
use crate::core::Core;
use crate::data_buffers::DataBuffers;
use crate::endpoint::PAUSE;
use crate::error::Error;
use crate::large::ask_by_buffer;
use crate::options::{Options, PointerCacheKind};
use crate::sync::{OwnBell, SLEEPS, lock};
use network::{Arrivals, NetworkLink};
use remora_arena::{Mapping, ReadView, Words};
use remora_fabric::shm::{Bell, ShmLink};
use remora_fabric::{AnyLink, Link, Transport, Wake};
use remora_index::hash::TableRef;
use remora_layout::arena_header::{ARENA_HEADER_BYTES, word};
use remora_layout::frame::ring_seed;
use remora_layout::hello::ServerHello;
use remora_layout::limits::{LARGE_BUFFER_BYTES, MAX_VALUE_BYTES, RING_BYTES};
use remora_layout::session::{credit_word, mailbox_bytes, ring_number, ring_offset, set_offset};
use remora_layout::slot::SlotTable;
use remora_protocol::Command;
use remora_protocol::message::{ReplyHeader, RequestHeader, Status};
use remora_ring::Poll;
use remora_ring::{Receiver, Sender};
use shuttle::rand::{Rng, thread_rng};
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, MaxSteps, Runner, thread};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, AtomicUsize as Count, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

const SHARDS: usize = 2;
const INCARNATION: u64 = 7;
const SEED: u64 = 0x5eed;

/// What carries the connection.
#[derive(Clone, Copy, Debug)]
enum Over {
    /// Shared memory, with so many ring sets.
    Shm(usize),
    /// Links that sleep until something arrives.
    Network,
}

/// The parts of a connection that the server has too.
struct Fixture {
    client: Client,
    sets: usize,
    to_server: Words,
    to_client: Words,
    /// Over a network.
    arrivals: Option<Arc<Arrivals>>,
    /// Its end would be the session's.
    _socket: UnixStream,
}

impl Fixture {
    fn new(over: Over) -> Self {
        let sets = match over {
            Over::Shm(sets) => sets,
            Over::Network => 1,
        };
        let to_server = Words::new(Mapping::heap(sets * mailbox_bytes(SHARDS)));
        let to_client = Words::new(Mapping::heap(sets * mailbox_bytes(SHARDS)));
        let mut hello = ServerHello::new_zeroed();
        hello.ring_sets.set(sets as u32);
        hello.incarnation.set(INCARNATION);
        hello.session_seed.set(SEED);
        hello.tell_shards(0..SHARDS as u32, &SlotTable::even(SHARDS));
        let eventfd = Bell::eventfd().expect("an eventfd");
        let arenas: Vec<ReadView> =
            (0..SHARDS).map(|_| Words::new(Mapping::heap(ARENA_HEADER_BYTES)).view()).collect();
        let (socket, of_server) = UnixStream::pair().expect("a pair of sockets");
        let arrivals = matches!(over, Over::Network).then(Arc::<Arrivals>::default);
        let backend = match &arrivals {
            None => Backend::Shm {
                socket,
                to_server: to_server.clone(),
                bells: arenas
                    .iter()
                    .map(|a| Bell::new(a.clone(), 0, Arc::clone(&eventfd)))
                    .collect(),
                arenas,
            },
            Some(arrivals) => {
                let (to_server, arrivals) = (to_server.clone(), Arc::clone(arrivals));
                let link = move || NetworkLink::new(&to_server, &arrivals);
                Backend::Other(Box::new(move || AnyLink::Other(Box::new(link()))))
            }
        };
        let mut page = vec![0; ARENA_HEADER_BYTES];
        for at in [word::BUCKETS, word::BASE_BUCKETS] {
            page[at * 8] = 1;
        }
        let table = TableRef::parse(0, RING_BYTES as u64, &page).expect("a table of one bucket");
        let connection = Connection::new(
            &hello,
            to_server.clone(),
            to_client.view(),
            None,
            vec![table; SHARDS],
            DataBuffers::region(Words::new(Mapping::heap(LARGE_BUFFER_BYTES)).view()),
            backend,
        );
        // Each look at the clock advances it, and no timeout ever expires.
        let ns = AtomicU64::new(1);
        let time = Clock::Given(Arc::new(move || ns.fetch_add(10_000, Ordering::Relaxed)));
        let mut connection = connection.expect("a page");
        connection.time = time;
        let options = Options {
            pointer_cache: PointerCacheKind::Off,
            timeout: Duration::from_secs(1 << 32),
            ..Options::default()
        };
        let client = Client { connection: Arc::new(connection), options, admission: None };
        Self { client, sets, to_server, to_client, arrivals, _socket: of_server }
    }

    /// The server has written a reply: wakes the thread that sleeps at this ring set.
    fn wake(&self, set: usize) {
        match &self.arrivals {
            None => OwnBell::new(self.to_server.clone(), SHARDS, set).ring(),
            Some(arrivals) => arrivals.tell(),
        }
    }

    /// The server's ends of a ring pair.
    fn ends(&self, set: usize, shard: usize) -> (Receiver, Sender) {
        let ring = set_offset(SHARDS, set) + ring_offset(shard);
        let seed = |direction| ring_seed(SEED, ring_number(set, shard), direction);
        let requests = Receiver::new(self.to_server.view(), ring, seed(0));
        let replies = Sender::new(0, ring as u64, seed(1));
        match self.arrivals {
            None => (requests.in_short_laps(), replies.in_short_laps()),
            Some(_) => (requests, replies),
        }
    }

    /// Answers so many requests.
    fn serve(&self, requests: u32) {
        let mut link = ShmLink::new(None);
        link.add_writable(0, self.to_client.clone());
        let mut ends: Vec<(Receiver, Sender)> =
            (0..self.sets * SHARDS).map(|at| self.ends(at / SHARDS, at % SHARDS)).collect();
        let mut answered = 0;
        while answered < requests {
            // The server is slow, so that threads go to sleep.
            thread::yield_now();
            let at = thread_rng().gen_range(0..8 * SHARDS * self.sets);
            let Some((receiver, sender)) = ends.get_mut(at) else { continue };
            let mut request = Vec::new();
            if matches!(receiver.poll(&mut request), Poll::Frame(_)) {
                let (request, _) = RequestHeader::ref_from_prefix(&request).expect("a header");
                let mut reply = ReplyHeader::new_zeroed();
                reply.status = Status::Ok as u8;
                reply.id = request.id;
                reply.number = request.argument;
                reply.incarnation.set(INCARNATION);
                sender.send(&mut link, &[reply.as_bytes()]).expect("room");
                self.wake(at / SHARDS);
                answered += 1;
            }
        }
    }
}

/// What one thread does: how it waits, and how often it asks.
type Asker = (Wake, u32);

/// How it asks.
type Ask = fn(&mut Core, &Command<'_>) -> Result<Answer, Error>;

/// Timed-out requests, in all runs.
static TIMED_OUT: Count = Count::new(0);

/// Requests that one thread handed over to another, in all runs.
static HANDED_OVER: Count = Count::new(0);

/// Lets threads ask. If `gives_up` is set, the requests of the first one time out after some looks
/// at the clock.
fn share(over: Over, askers: &[Asker], ask: Ask, gives_up: bool) {
    let fixture = Fixture::new(over);
    let threads: Vec<_> = (0i64..)
        .zip(askers)
        .map(|(thread, &(wake, times))| {
            let mut client = fixture.client.clone();
            client.options.wake = wake;
            let gives_up = gives_up && thread == 0;
            if gives_up {
                client.options.timeout = Duration::from_micros(100);
            }
            thread::spawn(move || {
                let mut session = client.session().expect("a free number");
                for time in 0..times {
                    // Keys of either shard.
                    let key = [thread as u8, time as u8];
                    let by = thread << 8 | time as i64;
                    let command = Command::Incr { key: &key, by };
                    let mut answer = ask(&mut session.core, &command);
                    while gives_up && matches!(answer, Err(Error::NoFreeBuffer)) {
                        // Nothing was sent.
                        answer = ask(&mut session.core, &command);
                    }
                    if gives_up && matches!(answer, Err(Error::TimedOut)) {
                        TIMED_OUT.fetch_add(1, Ordering::Relaxed);
                        continue;
                    }
                    assert_eq!(answer.expect("an answer").number, by);
                }
            })
        })
        .collect();
    let requests: u32 = askers.iter().map(|(_, times)| times).sum();
    fixture.serve(requests);
    threads.into_iter().for_each(|thread| thread.join().expect("it ended"));
    let sends = fixture.client.sends();
    assert!(sends.frames >= requests.into() && sends.doorbells <= sends.frames);
    HANDED_OVER.fetch_add(sends.handed_over as usize, Ordering::Relaxed);
    // Sessions that share a set wait for the one that parks, and at its ring for a sender.
    if fixture.sets >= askers.len() && !gives_up {
        assert_eq!(fixture.client.lock_waits(), 0);
    }
}

/// Orders of steps that are tried with each of two schedulers.
const RUNS: usize = 1_000;

fn run(scheduler: impl Scheduler + 'static, askers: &'static [Asker], ask: Ask) {
    run_with(scheduler, Over::Shm(1), askers, ask, false);
}

fn run_with(
    scheduler: impl Scheduler + 'static,
    over: Over,
    askers: &'static [Asker],
    ask: Ask,
    gives_up: bool,
) {
    let mut config = Config::new();
    config.stack_size = 1 << 18;
    // A thread that sleeps for ever is a deadlock, or the server waits for ever.
    config.max_steps = MaxSteps::FailAfter(200_000);
    Runner::new(scheduler, config).run(move || share(over, askers, ask, gives_up));
}

const CROWDS: [&[Asker]; 6] = {
    use Wake::{Event, Hybrid, Poll};
    [
        &[(Event, 2), (Event, 2)],
        &[(Event, 1), (Event, 1), (Event, 1)],
        &[(Event, 2), (Event, 2), (Event, 2)],
        &[(Event, 1), (Event, 2), (Hybrid, 1)],
        &[(Hybrid, 2), (Hybrid, 2), (Hybrid, 2)],
        &[(Poll, 2), (Event, 1), (Event, 1)],
    ]
};

/// The counts above are of the whole process: one test at a time.
static ONE_AT_A_TIME: std::sync::Mutex<()> = std::sync::Mutex::new(());

#[test]
fn threads_that_share_a_connection_lose_no_reply_and_no_wake_up() {
    let _guard = lock_for_test();
    for askers in CROWDS {
        run(RandomScheduler::new_from_seed(1, RUNS), askers, Core::ask);
        run(PctScheduler::new_from_seed(2, 3, RUNS), askers, Core::ask);
    }
    let sleeps = SLEEPS.load(Ordering::Relaxed);
    assert!(sleeps > CROWDS.len() * RUNS, "they did sleep in the kernel: {sleeps}");
    let handed_over = HANDED_OVER.load(Ordering::Relaxed);
    assert!(handed_over > RUNS, "one thread sends for others: {handed_over}");
}

/// Only arriving data wakes the thread that sleeps for all.
#[test]
fn threads_that_share_a_network_connection_lose_no_reply_and_no_wake_up() {
    let _guard = lock_for_test();
    for askers in CROWDS {
        let random = RandomScheduler::new_from_seed(1, RUNS);
        run_with(random, Over::Network, askers, Core::ask, false);
        let pct = PctScheduler::new_from_seed(2, 3, RUNS);
        run_with(pct, Over::Network, askers, Core::ask, false);
    }
    let sleeps = network::SLEEPS.load(Ordering::Relaxed);
    assert!(sleeps > CROWDS.len() * RUNS, "they did sleep by their links: {sleeps}");
}

/// Few orders of steps have a reply that arrives between a thread's last check of its inbox and its
/// sleep: the test needs many.
#[test]
fn threads_that_poll_before_they_sleep_miss_no_reply_over_a_network() {
    let _guard = lock_for_test();
    const POLLS_FIRST: &[Asker] = CROWDS[4];
    let random = RandomScheduler::new_from_seed(1, 4 * RUNS);
    run_with(random, Over::Network, POLLS_FIRST, Core::ask, false);
    let pct = PctScheduler::new_from_seed(2, 3, 8 * RUNS);
    run_with(pct, Over::Network, POLLS_FIRST, Core::ask, false);
}

/// With rings of their own no thread waits for another, and with fewer sets than
/// threads some share.
#[test]
fn threads_with_rings_of_their_own_lose_no_reply_and_no_wake_up() {
    let _guard = lock_for_test();
    for sets in [2, 4] {
        for askers in CROWDS {
            let random = RandomScheduler::new_from_seed(1, RUNS / 4);
            run_with(random, Over::Shm(sets), askers, Core::ask, false);
            let pct = PctScheduler::new_from_seed(2, 3, RUNS / 4);
            run_with(pct, Over::Shm(sets), askers, Core::ask, false);
        }
    }
}

const LARGE_CROWD: &[Asker] = &[(Wake::Poll, 2), (Wake::Hybrid, 2), (Wake::Event, 2)];

fn ask_for_large(core: &mut Core, command: &Command<'_>) -> Result<Answer, Error> {
    const { assert!(LARGE_BUFFER_BYTES < 3 * MAX_VALUE_BYTES, "two have room, three do not") }
    ask_by_buffer(core, command, MAX_VALUE_BYTES)
}

/// No thread gives up while others hold all of the buffer: they give it back.
#[test]
fn threads_wait_for_parts_of_the_buffer() {
    let _guard = lock_for_test();
    run(RandomScheduler::new_from_seed(1, RUNS), LARGE_CROWD, ask_for_large);
    run(PctScheduler::new_from_seed(2, 3, RUNS), LARGE_CROWD, ask_for_large);
}

/// The others get their own replies, and so does the next request of the same
/// session, or of the one that gets its number.
#[test]
fn a_thread_that_gives_up_disturbs_nobody() {
    let _guard = lock_for_test();
    use Wake::{Event, Hybrid, Poll};
    let crowds: [&[Asker]; 3] = [
        &[(Poll, 4), (Event, 2), (Event, 2)],
        &[(Hybrid, 4), (Hybrid, 2), (Event, 2)],
        &[(Event, 4), (Event, 2), (Poll, 2)],
    ];
    for askers in crowds {
        let before = TIMED_OUT.load(Ordering::Relaxed);
        for over in [Over::Shm(1), Over::Shm(2), Over::Network] {
            run_with(RandomScheduler::new_from_seed(1, RUNS), over, askers, Core::ask, true);
            run_with(PctScheduler::new_from_seed(2, 3, RUNS), over, askers, Core::ask, true);
        }
        let timed_out = TIMED_OUT.load(Ordering::Relaxed) - before;
        assert!(timed_out > RUNS / 4, "{askers:?}: {timed_out} requests timed out");
    }
}

/// The late reply of an abandoned request gives back the part of the buffer that the request holds;
/// another thread, which waits for that memory, takes that reply.
#[test]
fn a_late_reply_gives_its_part_of_the_buffer_back() {
    let _guard = lock_for_test();
    let before = TIMED_OUT.load(Ordering::Relaxed);
    for over in [Over::Shm(1), Over::Shm(4), Over::Network] {
        run_with(RandomScheduler::new_from_seed(1, RUNS), over, LARGE_CROWD, ask_for_large, true);
        run_with(PctScheduler::new_from_seed(2, 3, RUNS), over, LARGE_CROWD, ask_for_large, true);
    }
    let timed_out = TIMED_OUT.load(Ordering::Relaxed) - before;
    assert!(timed_out > RUNS / 4, "{timed_out} requests timed out");
}

fn lock_for_test() -> std::sync::MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}
