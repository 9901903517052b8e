//! The conformance body over TLS, and what a stream with TLS has that a plain one has not: bytes that
//! no event of the socket tells of, and bytes that reach the peer before they count as sent.

use crate::fixture::{Backend, Fixture, LOCAL, Shared, Target, pair};
use remora_arena::{Mapping, Words};
use remora_fabric::conformance::{self, DEADLINE};
use remora_fabric::tcp::{Connection, Exposed, Frame, Pumping, ReceiveBuffer, State, TcpLink};
use remora_fabric::{HelloStream, Link, LinkError, RemoteAddress, Waited, Work};
use remora_layout::limits::READ_WINDOW_BYTES;
use remora_layout::wire::WIRE_HEADER_BYTES;
use remora_testing::Authority;
use remora_tls::{ClientTls, Progress, ServerTls, ServerTlsSettings, TlsSession, TlsStream};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

/// Both sides' settings, of one authority.
static SIDES: LazyLock<(ServerTls, ClientTls)> = LazyLock::new(|| {
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::new(directory.path(), "ours");
    let server = authority.certify("server");
    let settings = ServerTlsSettings::new(server.certificate, server.key);
    let client = ClientTls::load(authority.file(), None).unwrap();
    (ServerTls::load(settings).unwrap(), client)
});

/// The handshake on a socket that blocks.
fn handshaken(stream: &TcpStream, mut session: TlsSession) -> TlsSession {
    while session.handshake(&mut &*stream).unwrap() != Progress::Done {}
    session
}

fn server(stream: TcpStream) -> HelloStream {
    let session = handshaken(&stream, SIDES.0.begin().unwrap());
    HelloStream::encrypted(stream, session)
}

fn client(stream: TcpStream) -> HelloStream {
    let session = handshaken(&stream, SIDES.1.begin("localhost").unwrap());
    HelloStream::encrypted(stream, session)
}

/// The client's end as a stream that blocks, and the server's connection.
fn stranger() -> (TlsStream, Arc<Connection>) {
    let (near, far) = pair();
    ends(near, far)
}

fn ends(near: TcpStream, far: TcpStream) -> (TlsStream, Arc<Connection>) {
    near.set_read_timeout(Some(DEADLINE)).unwrap();
    std::thread::scope(|scope| {
        let far = scope.spawn(move || Connection::new(server(far), Pumping::ByAgent).unwrap());
        let session = handshaken(&near, SIDES.1.begin("localhost").unwrap());
        (TlsStream::waiting(near, session), far.join().unwrap())
    })
}

struct Tls;

type Near = Fixture<Tls, Target<Tls>>;

impl Backend for Tls {
    type Link = TcpLink;
    type Connection = Connection;

    const READABLE: u32 = 5;
    const MAILBOX: u32 = 6;
    const ECHO_IMMEDIATE: Option<u32> = None;

    fn target(stream: TcpStream, shared: &Arc<Shared>) -> Arc<Connection> {
        let connection = Connection::new(server(stream), Pumping::ByAgent).unwrap();
        connection.expose(Self::READABLE, Exposed::Readable(shared.readable.view()));
        connection.expose(Self::MAILBOX, Exposed::Writable(shared.mailbox.clone()));
        connection
    }

    /// The agent: level-triggered poll(2), and turns.
    fn serve(connection: &Arc<Connection>, shared: &Shared) {
        let mut back = TcpLink::new(Arc::clone(connection));
        let (mut buffer, mut wants_write) = (ReceiveBuffer::default(), false);
        let mut nap = Duration::ZERO;
        while !shared.stops() {
            let mut interest = PollFlags::IN;
            interest.set(PollFlags::OUT, wants_write);
            let most = Timespec::try_from(nap).unwrap();
            let _ = poll(&mut [PollFd::new(&**connection, interest)], Some(&most));
            let progress = connection.serve(&mut buffer, false, &mut |imm| shared.note(imm));
            shared.answer::<Self>(&mut back);
            wants_write = connection.wants_write();
            nap = match progress.state {
                State::Idle => Duration::from_millis(50),
                State::More => Duration::ZERO,
                State::Closed | State::Failed(_) => return,
            };
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
        let connection = Connection::new(client(stream), Pumping::ByLinks).unwrap();
        connection.expose(LOCAL, Exposed::Writable(local.clone()));
        TcpLink::new(connection)
    }
}

#[test]
fn tcp_with_tls_conforms() {
    conformance::run::<Near>();
}

#[test]
fn no_wake_up_is_lost_with_tls() {
    assert_eq!(conformance::wake_ups_are_not_lost::<Near>(2000), 0);
}

fn read(id: u64, into: usize, bytes: usize) -> Work<'static> {
    Work::Read { id, from: RemoteAddress { region: 5, offset: 0 }, into, bytes }
}

/// Turns without an event, as long as the connection asks for them.
fn turns(connection: &Connection, buffer: &mut ReceiveBuffer) -> (State, usize, u32) {
    let (mut frames, mut told) = (0, 0);
    for _ in 0..10_000 {
        let progress = connection.serve(buffer, false, &mut |_| told += 1);
        frames += progress.frames;
        if progress.state != State::More {
            return (progress.state, frames, told);
        }
    }
    panic!("it serves without end");
}

/// One event, many records: after it the socket has nothing more to tell of.
#[test]
fn what_the_session_has_wants_another_turn_without_an_event() {
    let (mut attacker, connection) = stranger();
    let mailbox = Words::new(Mapping::heap(4096));
    connection.expose(6, Exposed::Writable(mailbox.clone()));
    let frame =
        Frame::Write { region: 6, offset: 0, bytes: 1024, imm: Some(1), is_signalled: false };
    let frame = [&frame.header()[..], &[7; 1024]].concat();
    attacker.write_all(&frame.repeat(100)).unwrap();
    // It has all come.
    std::thread::sleep(Duration::from_millis(200));
    let mut buffer = ReceiveBuffer::default();
    assert_eq!(turns(&connection, &mut buffer), (State::Idle, 100, 100));
    // An end behind a part of a record: the event of the end is all that tells of it.
    let part = &frame[..WIRE_HEADER_BYTES / 2];
    attacker.write_all(part).unwrap();
    drop(attacker);
    std::thread::sleep(Duration::from_millis(50));
    let mut state = State::More;
    for _ in 0..5 {
        state = connection.serve(&mut buffer, true, &mut |_| {}).state;
    }
    assert_eq!(state, State::Closed);
}

/// Records that hold nothing: a turn takes some of them, and ends.
#[test]
fn records_without_bytes_hold_no_thread() {
    let (near, far) = pair();
    let connection = std::thread::scope(|scope| {
        let far = scope.spawn(move || Connection::new(server(far), Pumping::ByAgent).unwrap());
        // What is behind a cut record never becomes whole.
        let session = handshaken(&near, SIDES.1.begin("localhost").unwrap());
        drop(session);
        far.join().unwrap()
    });
    // A record of 16 KiB, of which the last byte never comes.
    let mut record = vec![0; 5 + 16_000];
    record[..5].copy_from_slice(&[23, 3, 3, (16_000 >> 8) as u8, (16_000 & 255) as u8]);
    (&near).write_all(&record[..16_004]).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    let mut buffer = ReceiveBuffer::default();
    assert_eq!(turns(&connection, &mut buffer), (State::Idle, 0, 0));
    (&near).write_all(&record[16_004..]).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    let (state, frames, _) = turns(&connection, &mut buffer);
    assert_eq!((state, frames), (State::Closed, 0), "it is no record of the peer's");
}

/// The peer takes what comes, and asks for as much again before the agent can send on: it has bytes whose
/// record the socket took, while others of the same send do not count as sent yet.
#[test]
fn a_peer_may_ask_again_for_what_it_has_although_it_does_not_count_as_sent() {
    const READ_BYTES: usize = 2 << 10;
    const ANSWER_BYTES: usize = READ_BYTES + WIRE_HEADER_BYTES;
    let (near, far) = pair();
    sockopt::set_socket_send_buffer_size(&far, 8 << 10).unwrap();
    sockopt::set_socket_recv_buffer_size(&near, 8 << 10).unwrap();
    let (mut asking, connection) = ends(near.try_clone().unwrap(), far);
    // Longer than the kernel takes to give what it has.
    near.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    connection.expose(5, Exposed::Readable(Words::new(Mapping::heap(READ_BYTES)).view()));
    let ask = Frame::Read { region: 5, offset: 0, bytes: READ_BYTES }.header();
    let mut buffer = ReceiveBuffer::default();
    let mut came = 0;
    asking.write_all(&ask.repeat(READ_WINDOW_BYTES / ANSWER_BYTES)).unwrap();
    while came < READ_WINDOW_BYTES / 8 {
        assert_eq!(turns(&connection, &mut buffer).0, State::Idle);
        let (before, mut some) = (came / ANSWER_BYTES, [0; 1000]);
        while let Ok(more) = asking.read(&mut some) {
            came += more;
        }
        asking.write_all(&ask.repeat(came / ANSWER_BYTES - before)).unwrap();
    }
}

/// Both ends READ from each other, far more bytes than any buffer holds.
#[test]
fn two_ends_with_tls_that_read_from_each_other_do_not_block() {
    const BYTES: usize = 24 << 20;
    let (near, far) = pair();
    let barrier = &std::sync::Barrier::new(2);
    let run = move |stream: HelloStream, own: u8| {
        let connection = Connection::new(stream, Pumping::ByLinks).unwrap();
        let readable = Words::new(Mapping::heap(BYTES));
        readable.copy_in(0, &vec![own; BYTES]);
        let mailbox = Words::new(Mapping::heap(64));
        connection.expose(5, Exposed::Readable(readable.view()));
        connection.expose(6, Exposed::Writable(mailbox.clone()));
        let mut link = TcpLink::new(connection);
        link.reserve_landing(BYTES);
        let to = RemoteAddress { region: 6, offset: 0 };
        link.post(&[read(1, 0, BYTES), Work::Write { id: 2, to, bytes: &[1], imm: None }]);
        let mut left = 2;
        while left > 0 || mailbox.load_acquire(0) == 0 {
            match link.poll() {
                Some(completion) => {
                    assert_eq!(completion.result, Ok(()));
                    left -= 1;
                }
                None => assert_ne!(link.wait(Some(DEADLINE)), Waited::TimedOut),
            }
        }
        assert!(link.landed(0, BYTES).iter().all(|byte| *byte == 3 - own));
        // The peer has had its last answer once it is here.
        for _ in 0..10 {
            link.wait(Some(Duration::from_millis(5)));
        }
        barrier.wait();
    };
    std::thread::scope(|scope| {
        scope.spawn(move || run(server(far), 1));
        scope.spawn(move || run(client(near), 2));
    });
}

/// A peer that does not read: posts are refused at the same bound as without TLS.
#[test]
fn a_peer_that_does_not_read_overruns_a_link_with_tls() {
    let (near, far) = pair();
    let far = std::thread::spawn(move || server(far));
    let mut link = TcpLink::new(Connection::new(client(near), Pumping::ByLinks).unwrap());
    let _far = far.join().unwrap();
    let (bytes, to) = (vec![1; 1 << 20], RemoteAddress { region: 0, offset: 0 });
    for id in 0..200 {
        link.post(&[Work::Write { id, to, bytes: &bytes, imm: None }]);
    }
    assert_eq!(link.failure(), Some(LinkError::Overrun));
    link.connection().close();
    assert_eq!(std::iter::from_fn(|| link.poll()).count(), 200);
}
