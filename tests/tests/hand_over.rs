//! The control arm of `shared_connection.rs`, and of the fabric's own tests of
//! links that share a TCP connection: threads that wait are told by a time-out
//! if a wake-up was lost, and it is lost if the thread that slept in the kernel
//! for all leaves without letting another take its place.

use remora_arena::{Mapping, Words};
use remora_client_core::{Client, Error, Options, Wake};
use remora_fabric::tcp::{Connection, Exposed, Pumping, ReceiveBuffer, TcpLink};
use remora_fabric::{Link, RemoteAddress, Waited, Work};
use remora_layout::limits::MAX_RING_SETS;
use remora_layout::plant::{Plant, choose};
use remora_tests::{DEADLINE, ServerProcess, in_own_process, wait_until};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Barrier};
use std::time::Duration;

/// Threads at one ring set that ask in turn; how many of them ran into the time-out.
fn time_outs(server: &ServerProcess, timeout: Duration, rounds: u32) -> usize {
    let options = Options { wake: Wake::Event, timeout, ..remora_tests::by_pointers() };
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
fn a_sleep_that_is_not_handed_over_is_noticed() {
    in_own_process(|| {
        let server = ServerProcess::start(&["--max-memory=32MiB", "--shards=4", "--wake=event"]);
        choose(Some(Plant::KeepSleepToOneself));
        // Threads that end at once: who stays would take the place of who leaves.
        wait_until("eight threads wait, and nobody in the kernel for them", || {
            time_outs(&server, Duration::from_millis(300), 2) > 0
        });
        choose(None);
        for _ in 0..100 {
            assert_eq!(time_outs(&server, DEADLINE, 2), 0);
        }
    });
}

/// Two links wait on one connection, the first one for nothing. It leads, and
/// leaves; only then does the peer answer the other's READ. How the other's
/// waiting ended, if it ended by `patience`.
fn second_link_waits(patience: Duration) -> Waited {
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
            second.wait(Some(patience))
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
fn a_socket_that_is_not_handed_over_is_noticed() {
    in_own_process(|| {
        choose(Some(Plant::KeepSocketToOneself));
        let patience = Duration::from_millis(300);
        wait_until("a link waits, and nobody reads its socket", || {
            second_link_waits(patience) == Waited::TimedOut
        });
        choose(None);
        for _ in 0..30 {
            assert_eq!(second_link_waits(DEADLINE), Waited::Completed);
        }
    });
}
