//! A thread that sleeps in the kernel for all, and leaves, lets another one take
//! its place: at a ring set, and at a TCP connection. Else the others' wake-ups are
//! lost, and their time-outs tell it.

use remora_arena::{Mapping, Words};
use remora_client_core::{Client, Error, Options, Wake};
use remora_fabric::tcp::{Connection, Exposed, Pumping, ReceiveBuffer, TcpLink};
use remora_fabric::{Link, RemoteAddress, Waited, Work};
use remora_layout::limits::MAX_RING_SETS;
use remora_tests::{DEADLINE, ServerProcess};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Barrier};
use std::time::Duration;

/// Threads at one ring set that ask in turn; how many of them ran into the time-out.
fn time_outs(server: &ServerProcess, rounds: u32) -> usize {
    let options = Options { wake: Wake::Event, timeout: DEADLINE, ..remora_tests::by_pointers() };
    let client = Client::connect(&server.socket(), &options).unwrap();
    // Sessions take sets in turn: those between have them for themselves.
    let sessions: Vec<_> = (0..8 * MAX_RING_SETS).map(|_| client.session().unwrap()).collect();
    let at_one_set = sessions.into_iter().step_by(MAX_RING_SETS);
    std::thread::scope(|scope| {
        let threads: Vec<_> = at_one_set
            .enumerate()
            .map(|(thread, mut session)| {
                scope.spawn(move || {
                    // Several shards, so that replies do not come all at once.
                    let key = format!("n{thread}");
                    (0..rounds).find_map(|_| session.incr(key.as_bytes(), 1).err())
                })
            })
            .collect();
        let ends = threads.into_iter().filter_map(|thread| thread.join().unwrap());
        ends.filter(|error| *error == Error::TimedOut).count()
    })
}

#[test]
fn a_thread_that_leaves_hands_the_sleep_over() {
    let server = ServerProcess::start(&["--max-memory=32MiB", "--shards=4", "--wake=event"]);
    // Threads that end soon: one that stayed would take the place of one that leaves.
    for _ in 0..100 {
        assert_eq!(time_outs(&server, 2), 0);
    }
}

/// Two links wait on one connection, the first one for nothing. It leads, and
/// leaves; only then does the peer answer the other's READ. How the other's
/// waiting ended.
fn second_link_waits() -> Waited {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let peer = Connection::new(listener.accept().unwrap().0, Pumping::ByAgent).unwrap();
    peer.expose(0, Exposed::Readable(Words::new(Mapping::heap(64)).view()));
    let connection = Connection::new(near, Pumping::ByLinks).unwrap();
    let links = [(); 2].map(|()| TcpLink::new(Arc::clone(&connection)));
    let [mut first, mut second] = links;
    second.reserve_landing(8);
    let from = RemoteAddress { region: 0, offset: 0 };
    second.post(&[Work::Read { id: 1, from, into: 0, bytes: 8 }]);
    let begins = &Barrier::new(2);
    std::thread::scope(|scope| {
        let second = scope.spawn(move || {
            begins.wait();
            // Long enough, most times, for the first one to lead.
            std::thread::sleep(Duration::from_millis(5));
            second.wait(Some(DEADLINE))
        });
        begins.wait();
        assert_eq!(first.wait(Some(Duration::from_millis(20))), Waited::TimedOut);
        // The request may still be on its way.
        let mut buffer = ReceiveBuffer::default();
        while !second.is_finished() {
            peer.serve(&mut buffer, false, &mut |_| {});
            std::thread::sleep(Duration::from_millis(1));
        }
        second.join().unwrap()
    })
}

#[test]
fn a_link_that_leaves_hands_the_socket_over() {
    for _ in 0..30 {
        assert_eq!(second_link_waits(), Waited::Completed);
    }
}
