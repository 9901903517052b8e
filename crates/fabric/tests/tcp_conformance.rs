//! The conformance body over real sockets. The target's agent runs in a thread of its own, in this
//! process or in another one.

use crate::fixture::{Backend, Fixture, LOCAL, Shared, Target, pair, remote};
use remora_arena::{Mapping, Words};
use remora_fabric::conformance::{self, DEADLINE, TestFixture};
use remora_fabric::tcp::{self, Connection, Exposed, Pumping, ReceiveBuffer, State, TcpLink};
use remora_fabric::{Link, LinkError, RemoteAddress, Waited, Work};
use remora_layout::hello::ServerHello;
use remora_layout::session::mailbox_bytes;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::sockopt;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use zerocopy::FromZeros;

/// Fixtures over TCP.
struct Tcp;

/// One whose target is in this process.
type Near = Fixture<Tcp, Target<Tcp>>;

impl Backend for Tcp {
    type Link = TcpLink;
    type Connection = Connection;

    const READABLE: u32 = 5;
    const MAILBOX: u32 = 6;
    const ECHO_IMMEDIATE: Option<u32> = None;

    fn target(stream: TcpStream, shared: &Arc<Shared>) -> Arc<Connection> {
        let connection = Connection::new(stream, Pumping::ByAgent).unwrap();
        connection.expose(Self::READABLE, Exposed::Readable(shared.readable.view()));
        connection.expose(Self::MAILBOX, Exposed::Writable(shared.mailbox.clone()));
        connection
    }

    /// The agent: level-triggered poll(2), and turns.
    fn serve(connection: &Arc<Connection>, shared: &Shared) {
        let mut back = TcpLink::new(Arc::clone(connection));
        let (mut buffer, mut wants_write) = (ReceiveBuffer::default(), false);
        while !shared.stops() {
            let mut interest = PollFlags::IN;
            interest.set(PollFlags::OUT, wants_write);
            let nap = Duration::from_millis(50).try_into().unwrap();
            let _ = poll(&mut [PollFd::new(&**connection, interest)], Some(&nap));
            let progress = connection.serve(&mut buffer, true, &mut |imm| shared.note(imm));
            shared.answer::<Self>(&mut back);
            wants_write = connection.wants_write();
            if !matches!(progress.state, State::Idle | State::More) {
                return;
            }
        }
    }

    fn settle(_: &Connection) {}

    fn withdraw(connection: &Connection) {
        connection.withdraw_all();
    }

    fn close(connection: &Connection) {
        connection.close();
    }

    fn initiator(stream: TcpStream, _region_bytes: usize, local: &Words) -> TcpLink {
        let connection = Connection::new(stream, Pumping::ByLinks).unwrap();
        connection.expose(LOCAL, Exposed::Writable(local.clone()));
        TcpLink::new(connection)
    }
}

#[test]
fn tcp_conforms() {
    conformance::run::<Near>();
}

#[test]
fn no_wake_up_is_lost() {
    assert_eq!(conformance::wake_ups_are_not_lost::<Near>(5000), 0);
}

/// Between two processes; `bench/rdma.sh` has them on two hosts.
#[test]
fn conforms_with_a_target_elsewhere() {
    remote::with_target_elsewhere::<Tcp>(
        "tcp_conformance::conforms_with_a_target_elsewhere",
        || {
            remote::run::<Tcp>(500);
        },
    );
}

/// A forbidden request ends the target, which reports the reason. The initiator has one fixture of
/// 4096 bytes, or none.
#[test]
fn a_target_refuses_what_is_too_large() {
    let refusal_of = |has_bed: bool, command: [u64; 4]| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let target = std::thread::spawn(move || remote::serve::<Tcp>(&listener));
        let mut control = TcpStream::connect(address).unwrap();
        let mut tell = |command: [u64; 4]| {
            control.write_all(&command.map(u64::to_le_bytes).concat()).unwrap();
        };
        let _stream = has_bed.then(|| {
            tell([1, 7, 0, 4096]);
            TcpStream::connect(address).unwrap()
        });
        tell(command);
        let refusal = target.join().unwrap().unwrap_err();
        control.read_to_end(&mut Vec::new()).unwrap();
        refusal
    };
    let too_long = refusal_of(false, [1, 7, 0, u64::MAX]);
    assert_eq!(too_long, format!("a region of {} bytes is too long", u64::MAX));
    assert_eq!(refusal_of(false, [3, 7, 0, 8]), "there is no fixture 7");
    assert_eq!(refusal_of(true, [3, 8, 0, 8]), "there is no fixture 8");
    for (offset, bytes) in [(0, 4097), (4096, 1), (u64::MAX, 8), (4, 8)] {
        for command in [2, 3] {
            let beyond = format!("{bytes} bytes at {offset} do not lie in a region of 4096");
            assert_eq!(refusal_of(true, [command, 7, offset, bytes]), beyond);
        }
    }
    assert_eq!(refusal_of(true, [9, 7, 0, 0]), "there is no command 9");
}

/// The target ends with its initiator, also while it has a fixture or waits for the rest of a
/// command.
#[test]
fn a_target_ends_with_its_initiator() {
    for command in [&[][..], &[1], &1u64.to_le_bytes()] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let target = std::thread::spawn(move || remote::serve::<Tcp>(&listener));
        let mut control = TcpStream::connect(address).unwrap();
        control.write_all(&[1u64, 7, 0, 4096].map(u64::to_le_bytes).concat()).unwrap();
        let _stream = TcpStream::connect(address).unwrap();
        control.read_exact(&mut [0; 8]).unwrap();
        control.write_all(command).unwrap();
        drop(control);
        assert_eq!(target.join().unwrap(), Ok(()));
    }
}

fn read(id: u64, offset: u64, into: usize, bytes: usize) -> Work<'static> {
    Work::Read { id, from: RemoteAddress { region: 5, offset }, into, bytes }
}

/// Many threads share a connection. Each has its own links and landing memory, and each receives
/// its own bytes in order, whichever thread leads.
#[test]
fn links_of_many_threads_share_a_connection() {
    const THREADS: u64 = 8;
    const ROUNDS: u64 = 400;
    let mut fixture = Near::new(1 << 20);
    for word in 0..1 << 17 {
        fixture.peer.shared.readable.store(word, word as u64 * 3);
    }
    let connection = Arc::clone(fixture.link().connection());
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
            // Large ones run one at a time: they share the landing memory.
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

/// A failure that the initiator finds by itself fails one link, and no other link of the
/// connection.
#[test]
fn a_link_that_fails_by_itself_fails_alone() {
    let mut fixture = Near::new(4096);
    let mut other = TcpLink::new(Arc::clone(fixture.link().connection()));
    other.post(&[read(1, 0, 0, 8)]);
    assert_eq!(other.wait(None), Waited::Completed);
    assert_eq!(other.poll().unwrap().result, Err(LinkError::NoLanding));
    assert_eq!(other.failure(), Some(LinkError::NoLanding));
    fixture.link.post(&[read(2, 0, 0, 8)]);
    while fixture.link.poll().is_none() {
        fixture.link.wait(None);
    }
    assert_eq!(fixture.link.failure(), None);
    // A request that the target refuses fails all of them.
    fixture.link.post(&[read(3, 1 << 40, 0, 8)]);
    while fixture.link.poll().is_none() {
        fixture.link.wait(None);
    }
    let mut third = TcpLink::new(Arc::clone(fixture.link().connection()));
    let reason = LinkError::OutOfBounds { region: 5, offset: 1 << 40, bytes: 8 };
    assert_eq!(third.wait(None), Waited::Failed(reason));
}

/// One region is withdrawn. The other regions stay, and so do the bytes that were read before.
#[test]
fn one_region_is_withdrawn() {
    let mut fixture = Near::new(4096);
    fixture.peer.connection.withdraw(6);
    fixture.link.post(&[read(1, 0, 0, 8)]);
    while fixture.link.poll().is_none() {
        fixture.link.wait(None);
    }
    let to = RemoteAddress { region: 6, offset: 0 };
    fixture.link.post(&[Work::Write { id: 2, to, bytes: &[1; 8], imm: None }]);
    let completion = loop {
        if let Some(completion) = fixture.link.poll() {
            break completion;
        }
        fixture.link.wait(None);
    };
    assert_eq!(completion.result, Err(LinkError::Withdrawn));
    assert_eq!(fixture.peer.shared.mailbox.load(0), 0);
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
    let mut fixture = Near::new(4096);
    let peer_stops = Arc::new(AtomicBool::new(false));
    let lost: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..2u64)
            .map(|thread| {
                let target = Arc::clone(&fixture.peer.connection);
                scope.spawn(move || write_and_wait(TcpLink::new(target), thread))
            })
            .collect();
        let stop = Arc::clone(&peer_stops);
        let link = &mut fixture.link;
        // The peer only waits, and serves while it waits.
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
    assert_eq!((fixture.local.load(0), fixture.local.load(1)), (500, 500));
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

/// Both ends READ from each other, far more bytes than any buffer holds, and WRITEs follow. No end
/// waits for the other without end.
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
                // The peer may still wait for its last answer: this end serves it.
                both_done.fetch_add(1, Ordering::SeqCst);
                while both_done.load(Ordering::SeqCst) < 2 {
                    link.wait(Some(Duration::from_millis(10)));
                }
            });
        }
    });
}

/// Two links wait at once. The one with the short READ ends first and leaves. If it led, the other
/// link must lead in its place.
#[test]
fn a_leader_that_goes_away_hands_over() {
    let mut fixture = Near::new(1 << 20);
    let connection = Arc::clone(fixture.link().connection());
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

/// The kernel ends the server's end of a session whose peer has vanished with its machine.
#[test]
fn a_session_has_keepalive_and_a_user_timeout() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (stream, _) = listener.accept().unwrap();
    let to_server = Words::new(Mapping::heap(mailbox_bytes(1)));
    let grant = tcp::Grant { hello: ServerHello::new_zeroed(), to_server, arenas: &[] };
    let connection = grant.send(stream).unwrap();
    // An idle session is probed, and ends when the peer answers no probe.
    assert!(sockopt::socket_keepalive(&connection).unwrap());
    let probes =
        sockopt::tcp_keepintvl(&connection).unwrap() * sockopt::tcp_keepcnt(&connection).unwrap();
    assert_eq!(sockopt::tcp_keepidle(&connection).unwrap() + probes, Duration::from_secs(25));
    // One with bytes under way has the same time, and not that of the kernel's repetitions.
    assert_eq!(sockopt::tcp_user_timeout(&connection).unwrap(), 25_000);
}
