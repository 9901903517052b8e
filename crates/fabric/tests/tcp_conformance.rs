//! The conformance body over real sockets of the loopback, the target's agent
//! in a thread of its own.

use remora_arena::{Mapping, Words};
use remora_fabric::conformance::{self, DEADLINE, EchoBed, TestBed};
use remora_fabric::tcp::{Connection, Exposed, Pumping, ReceiveBuffer, State, TcpLink};
use remora_fabric::{Link, LinkError, RemoteAddress, Waited, Work};
use rustix::event::{PollFd, PollFlags, poll};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// Region of the initiator that the target writes.
const LOCAL: u32 = 0;

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (near, listener.accept().unwrap().0)
}

/// What the agent's thread is told and tells.
#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    echo: AtomicBool,
    told: Mutex<Vec<(u32, u64)>>,
}

struct Bed {
    readable: Words,
    mailbox: Words,
    local: Words,
    link: TcpLink,
    target: Arc<Connection>,
    shared: Arc<Shared>,
    agent: Option<JoinHandle<State>>,
}

/// The agent: level-triggered poll(2) and turns, until the end.
fn agent(target: Arc<Connection>, mailbox: Words, shared: Arc<Shared>) -> State {
    let mut back = TcpLink::new(Arc::clone(&target));
    let (mut buffer, mut wants_write) = (ReceiveBuffer::default(), false);
    while !shared.stop.load(Ordering::Acquire) {
        let mut interest = PollFlags::IN;
        interest.set(PollFlags::OUT, wants_write);
        let nap = Duration::from_millis(50).try_into().unwrap();
        let _ = poll(&mut [PollFd::new(&*target, interest)], Some(&nap));
        let progress = target.serve(&mut buffer, true, &mut |imm| {
            if shared.echo.load(Ordering::Relaxed) && imm == 1 {
                let bytes = mailbox.load_acquire(0).to_le_bytes();
                let to = RemoteAddress { region: LOCAL, offset: 0 };
                back.post(&[Work::Write { id: 0, to, bytes: &bytes, imm: None }]);
            } else {
                let word = mailbox.load_acquire(imm as usize);
                shared.told.lock().unwrap().push((imm, word));
            }
        });
        while back.poll().is_some() {}
        wants_write = target.wants_write();
        if !matches!(progress.state, State::Idle | State::More) {
            return progress.state;
        }
    }
    State::Idle
}

impl TestBed for Bed {
    type Link = TcpLink;

    fn new(region_bytes: usize) -> Self {
        let (near, far) = pair();
        let [readable, mailbox] = [(); 2].map(|()| Words::new(Mapping::heap(region_bytes)));
        let local = Words::new(Mapping::heap(4096));
        let target = Connection::new(far, Pumping::ByAgent).unwrap();
        target.expose(5, Exposed::Readable(readable.view()));
        target.expose(6, Exposed::Writable(mailbox.clone()));
        let shared = Arc::new(Shared::default());
        let agent = std::thread::spawn({
            let (target, mailbox, shared) = (target.clone(), mailbox.clone(), shared.clone());
            move || agent(target, mailbox, shared)
        });
        let connection = Connection::new(near, Pumping::ByLinks).unwrap();
        connection.expose(LOCAL, Exposed::Writable(local.clone()));
        let mut link = TcpLink::new(connection);
        link.reserve_landing(region_bytes);
        Self { readable, mailbox, local, link, target, shared, agent: Some(agent) }
    }

    fn link(&mut self) -> &mut TcpLink {
        &mut self.link
    }

    fn readable(&self) -> u32 {
        5
    }

    fn mailbox(&self) -> u32 {
        6
    }

    fn target_store(&mut self, offset: usize, bytes: &[u8]) {
        self.readable.copy_in(offset, bytes);
    }

    fn target_load(&mut self, offset: usize, bytes: usize) -> Vec<u8> {
        let mut content = vec![0; bytes];
        self.mailbox.copy_out(offset, &mut content);
        content
    }

    fn withdraw(&mut self) {
        self.target.withdraw_all();
    }

    fn lose(&mut self) -> LinkError {
        self.target.close();
        LinkError::Disconnected
    }

    fn immediates(&mut self) -> Vec<(u32, u64)> {
        std::mem::take(&mut self.shared.told.lock().unwrap())
    }
}

impl EchoBed for Bed {
    fn start_echo(&mut self, _rounds: u64) {
        self.shared.echo.store(true, Ordering::Relaxed);
    }

    fn echoed(&self) -> u64 {
        self.local.load_acquire(0)
    }

    fn stop_echo(&mut self) -> u64 {
        0
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.target.close();
        let agent = self.agent.take().unwrap();
        assert!(agent.join().is_ok() || std::thread::panicking(), "the agent panicked");
    }
}

#[test]
fn tcp_conforms() {
    conformance::run::<Bed>();
}

#[test]
fn no_wake_up_is_lost() {
    assert_eq!(conformance::wake_ups_are_not_lost::<Bed>(5000), 0);
}

fn read(id: u64, offset: u64, into: usize, bytes: usize) -> Work<'static> {
    Work::Read { id, from: RemoteAddress { region: 5, offset }, into, bytes }
}

/// Many threads share a connection: each has its own links and landing memory,
/// each gets its own bytes in order, whoever leads.
#[test]
fn links_of_many_threads_share_a_connection() {
    const THREADS: u64 = 8;
    const ROUNDS: u64 = 400;
    let mut bed = Bed::new(1 << 20);
    for word in 0..1 << 17 {
        bed.readable.store(word, word as u64 * 3);
    }
    let connection = Arc::clone(bed.link().connection());
    let lost: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let connection = Arc::clone(&connection);
                scope.spawn(move || one_of_many(TcpLink::new(connection), thread, ROUNDS))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(lost, 0, "wake-ups were lost");
}

fn one_of_many(mut link: TcpLink, thread: u64, rounds: u64) -> u64 {
    link.reserve_landing(600_000);
    let mut lost = 0;
    for round in 0..rounds {
        let count = 1 + (round + thread) % 5;
        let bytes_of = |at: u64| match (round + thread + at) % 50 {
            0 => 550_000,
            small => small as usize * 8,
        };
        let first = |at: u64| (thread * 1000 + round * 10 + at) * 8;
        for at in 0..count {
            // Large ones one at a time: they share the landing memory.
            link.post(&[read(at, first(at), 0, bytes_of(at))]);
            let mut silent = 0;
            let completion = loop {
                if let Some(completion) = link.poll() {
                    break completion;
                }
                if link.wait(Some(DEADLINE)) == Waited::TimedOut {
                    lost += link.poll().is_some() as u64;
                    silent += 1;
                    assert!(silent < 5, "no completion");
                }
            };
            assert_eq!((completion.id, completion.result), (at, Ok(())));
            for (word, bytes) in link.landed(0, bytes_of(at)).chunks_exact(8).enumerate() {
                let expected = (first(at) / 8 + word as u64) * 3;
                assert_eq!(u64::from_le_bytes(bytes.try_into().unwrap()), expected);
            }
        }
    }
    lost
}

/// A failure that the initiator finds itself fails one link, not its siblings.
#[test]
fn a_link_that_fails_by_itself_fails_alone() {
    let mut bed = Bed::new(4096);
    let mut other = TcpLink::new(Arc::clone(bed.link().connection()));
    other.post(&[read(1, 0, 0, 8)]);
    assert_eq!(other.wait(None), Waited::Completed);
    assert_eq!(other.poll().unwrap().result, Err(LinkError::NoLanding));
    assert_eq!(other.failure(), Some(LinkError::NoLanding));
    bed.link.post(&[read(2, 0, 0, 8)]);
    while bed.link.poll().is_none() {
        bed.link.wait(None);
    }
    assert_eq!(bed.link.failure(), None);
    // What the target refuses fails all of them.
    bed.link.post(&[read(3, 1 << 40, 0, 8)]);
    while bed.link.poll().is_none() {
        bed.link.wait(None);
    }
    let mut third = TcpLink::new(Arc::clone(bed.link().connection()));
    let reason = LinkError::OutOfBounds { region: 5, offset: 1 << 40, bytes: 8 };
    assert_eq!(third.wait(None), Waited::Failed(reason));
}

/// One region is withdrawn: the others, and what was read before, stay.
#[test]
fn one_region_is_withdrawn() {
    let mut bed = Bed::new(4096);
    bed.target.withdraw(6);
    bed.link.post(&[read(1, 0, 0, 8)]);
    while bed.link.poll().is_none() {
        bed.link.wait(None);
    }
    let to = RemoteAddress { region: 6, offset: 0 };
    bed.link.post(&[Work::Write { id: 2, to, bytes: &[1; 8], imm: None }]);
    let completion = loop {
        if let Some(completion) = bed.link.poll() {
            break completion;
        }
        bed.link.wait(None);
    };
    assert_eq!(completion.result, Err(LinkError::Withdrawn));
    assert_eq!(bed.mailbox.load(0), 0);
}

/// A peer that does not read: posts are refused at a bound, and nothing hangs.
#[test]
fn a_peer_that_does_not_read_overruns_the_link() {
    let (near, _far) = pair();
    let mut link = TcpLink::new(Connection::new(near, Pumping::ByLinks).unwrap());
    let bytes = vec![1; 1 << 20];
    let to = RemoteAddress { region: 0, offset: 0 };
    for id in 0..200 {
        link.post(&[Work::Write { id, to, bytes: &bytes, imm: None }]);
    }
    assert_eq!(link.failure(), Some(LinkError::Overrun));
    assert_eq!(link.poll(), None, "the first ones are still under way");
    link.connection().close();
    let results: Vec<_> = std::iter::from_fn(|| link.poll()).map(|done| done.result).collect();
    assert_eq!(results.len(), 200);
    let refused = results.iter().filter(|result| **result == Err(LinkError::Overrun)).count();
    let cut_off = results.iter().filter(|result| **result == Err(LinkError::Disconnected)).count();
    assert!(refused > 100 && cut_off > 10 && refused + cut_off == 200, "{refused} {cut_off}");
}

/// Links at the agent's end never read the socket: they sleep until the agent
/// delivers. Two threads WRITE to the peer and wait for each answer.
#[test]
fn links_at_the_agents_end_wait_for_the_agent() {
    let mut bed = Bed::new(4096);
    let peer_stops = Arc::new(AtomicBool::new(false));
    let lost: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..2u64)
            .map(|thread| {
                let target = Arc::clone(&bed.target);
                scope.spawn(move || write_and_wait(TcpLink::new(target), thread))
            })
            .collect();
        let stop = Arc::clone(&peer_stops);
        let link = &mut bed.link;
        // The peer only waits, and thereby serves.
        scope.spawn(move || {
            while !stop.load(Ordering::Acquire) {
                link.wait(Some(Duration::from_millis(20)));
            }
        });
        let lost = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
        peer_stops.store(true, Ordering::Release);
        lost
    });
    assert_eq!(lost, 0);
    assert_eq!((bed.local.load(0), bed.local.load(1)), (500, 500));
}

fn write_and_wait(mut link: TcpLink, thread: u64) -> u64 {
    let mut lost = 0;
    for round in 1..=500u64 {
        let to = RemoteAddress { region: LOCAL, offset: thread * 8 };
        link.post(&[Work::Write { id: round, to, bytes: &round.to_le_bytes(), imm: None }]);
        let mut silent = 0;
        let completion = loop {
            if let Some(completion) = link.poll() {
                break completion;
            }
            if link.wait(Some(DEADLINE)) == Waited::TimedOut {
                lost += link.poll().is_some() as u64;
                silent += 1;
                assert!(silent < 5, "no answer");
            }
        };
        assert_eq!((completion.id, completion.result), (round, Ok(())));
    }
    lost
}

/// Both ends READ from each other, far more than any buffer holds, with WRITEs
/// behind: neither waits for the other for ever.
#[test]
fn two_ends_that_read_from_each_other_do_not_block() {
    const BYTES: usize = 48 << 20;
    let (near, far) = pair();
    let both_done = &AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for (stream, own) in [(near, 1u8), (far, 2u8)] {
            scope.spawn(move || {
                let connection = Connection::new(stream, Pumping::ByLinks).unwrap();
                let readable = Words::new(Mapping::heap(BYTES));
                readable.copy_in(0, &vec![own; BYTES]);
                let mailbox = Words::new(Mapping::heap(64));
                connection.expose(5, Exposed::Readable(readable.view()));
                connection.expose(6, Exposed::Writable(mailbox.clone()));
                let mut link = TcpLink::new(connection);
                link.reserve_landing(BYTES);
                let to = RemoteAddress { region: 6, offset: 0 };
                let done = Work::Write { id: 2, to, bytes: &[1], imm: None };
                link.post(&[read(1, 0, 0, BYTES), done]);
                let mut left = 2;
                while left > 0 || mailbox.load_acquire(0) == 0 {
                    match link.poll() {
                        Some(completion) => {
                            assert_eq!(completion.result, Ok(()));
                            left -= 1;
                        }
                        None => {
                            let waited = link.wait(Some(DEADLINE));
                            assert_ne!(waited, Waited::TimedOut, "both wait for each other");
                        }
                    }
                }
                assert!(link.landed(0, BYTES).iter().all(|byte| *byte == 3 - own));
                // The peer may still wait for its last answer: serve it, too.
                both_done.fetch_add(1, Ordering::SeqCst);
                while both_done.load(Ordering::SeqCst) < 2 {
                    link.wait(Some(Duration::from_millis(10)));
                }
            });
        }
    });
}

/// Two links wait at once. The one with the short READ is done first and goes
/// away: if it led, the other one must lead in its place.
#[test]
fn a_leader_that_goes_away_hands_over() {
    let mut bed = Bed::new(1 << 20);
    let connection = Arc::clone(bed.link().connection());
    let barrier = &std::sync::Barrier::new(2);
    let lost: u64 = std::thread::scope(|scope| {
        let threads = [8, 900_000].map(|bytes| {
            let mut link = TcpLink::new(Arc::clone(&connection));
            link.reserve_landing(bytes);
            scope.spawn(move || (0..30).map(|_| one_read(&mut link, bytes, barrier)).sum::<u64>())
        });
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(lost, 0, "nobody led");
}

/// Gives 1 if the wait for it was silent for so long that its end was missed.
fn one_read(link: &mut TcpLink, bytes: usize, barrier: &std::sync::Barrier) -> u64 {
    barrier.wait();
    link.post(&[read(1, 0, 0, bytes)]);
    let mut waited = Waited::Arrived;
    while waited == Waited::Arrived {
        waited = link.wait(Some(DEADLINE));
    }
    let lost = (waited == Waited::TimedOut) as u64;
    while link.poll().is_none() {
        std::thread::yield_now();
    }
    lost
}
