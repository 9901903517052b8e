//! Peers that break the protocol of the TCP transport. The connection ends with the reason, nothing
//! panics, no forbidden operation is executed, and the buffered bytes stay bounded.

use remora_arena::{Mapping, Words};
use remora_fabric::sim::Random;
use remora_fabric::tcp::{Connection, Exposed, Frame, Pumping, ReceiveBuffer, State, TcpLink};
use remora_fabric::{Link, LinkError, RemoteAddress, Waited, Work};
use remora_layout::limits::{MAX_WRITE_BYTES, READ_WINDOW_BYTES, TCP_PIECE_BYTES};
use remora_layout::wire::WIRE_HEADER_BYTES;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

struct Victim {
    buffer: ReceiveBuffer,
    connection: Arc<Connection>,
    readable: Words,
    mailbox: Words,
    attacker: TcpStream,
}

fn victim() -> Victim {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let attacker = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    attacker.set_nodelay(true).unwrap();
    let stream = listener.accept().unwrap().0;
    let connection = Connection::new(stream, Pumping::ByAgent).unwrap();
    let readable = Words::new(Mapping::heap(TCP_PIECE_BYTES));
    let mailbox = Words::new(Mapping::heap(4096));
    connection.expose(0, Exposed::Readable(readable.view()));
    connection.expose(1, Exposed::Writable(mailbox.clone()));
    Victim { buffer: ReceiveBuffer::default(), connection, readable, mailbox, attacker }
}

impl Victim {
    /// Lets the agent work until it has no more work or the connection ends.
    fn serve(&mut self) -> State {
        let mut told = 0;
        for _ in 0..100_000 {
            match self.connection.serve(&mut self.buffer, false, &mut |_| told += 1).state {
                State::More => {}
                State::Idle if self.unread() == 0 => return State::Idle,
                State::Idle => std::thread::yield_now(),
                ended => return ended,
            }
        }
        panic!("it serves without end");
    }

    /// Bytes that the kernel has not yet delivered to the victim.
    fn unread(&self) -> u64 {
        rustix::io::ioctl_fionread(&*self.connection).unwrap_or(0)
    }

    fn send(&mut self, bytes: &[u8]) -> State {
        match self.attacker.write_all(bytes) {
            Ok(()) => {}
            Err(error)
                if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => {}
            Err(error) => panic!("{error}"),
        }
        self.serve()
    }
}

fn violated(state: State) -> &'static str {
    match state {
        State::Failed(LinkError::Violation(what)) => what,
        other => panic!("{other:?}"),
    }
}

#[test]
fn frames_that_make_no_sense_end_the_connection() {
    let read = Frame::Read { region: 0, offset: 0, bytes: TCP_PIECE_BYTES }.header();
    let mut too_long =
        Frame::Write { region: 1, offset: 0, bytes: 0, imm: None, is_signalled: true }.header();
    too_long[16..20].copy_from_slice(&(MAX_WRITE_BYTES as u32 + 1).to_le_bytes());
    let cases: [(&str, Vec<u8>); 6] = [
        ("an unknown kind of frame", vec![0; WIRE_HEADER_BYTES]),
        ("a frame longer than allowed", too_long.to_vec()),
        ("bytes that nobody asked for", Frame::Data { number: 0, bytes: 8 }.header().to_vec()),
        ("it executed what nobody posted", Frame::Done(1).header().to_vec()),
        ("it executed what nobody posted", Frame::Done(u64::MAX).header().to_vec()),
        ("it asks for more than the window", read.repeat(1 + READ_WINDOW_BYTES / 100_000)),
    ];
    for (expected, bytes) in cases {
        let mut victim = victim();
        if expected.contains("window") {
            // More bytes than both kernels buffer.
            let mut state = State::Idle;
            for _ in 0..40 {
                state = victim.send(&bytes);
                if state != State::Idle {
                    break;
                }
            }
            assert_eq!(violated(state), expected);
        } else {
            assert_eq!(violated(victim.send(&bytes)), expected);
        }
        // Both directions have ended.
        assert!(!matches!(victim.serve(), State::Idle | State::More));
        let mut link = TcpLink::new(Arc::clone(&victim.connection));
        assert!(matches!(link.wait(None), Waited::Failed(LinkError::Violation(_))));
    }
}

/// Answers that count backwards or skip requests, to a link with operations under way.
#[test]
fn answers_that_do_not_fit_fail_the_link() {
    let lies = [
        ("a READ is done without its bytes", Frame::Done(1).header().to_vec()),
        ("bytes that nobody asked for", Frame::Data { number: 0, bytes: 16 }.header().to_vec()),
        ("it executed what nobody posted", Frame::Data { number: 9, bytes: 8 }.header().to_vec()),
    ];
    for (expected, lie) in lies {
        let mut victim = victim();
        let mut link = TcpLink::new(Arc::clone(&victim.connection));
        link.reserve_landing(8);
        let from = RemoteAddress { region: 0, offset: 0 };
        link.post(&[Work::Read { id: 7, from, into: 0, bytes: 8 }]);
        assert_eq!(violated(victim.send(&lie)), expected);
        let done = link.poll().unwrap();
        assert_eq!((done.id, done.result), (7, Err(LinkError::Violation(expected))));
    }
}

/// Random bytes, and honest frames with random bits flipped, in random pieces.
#[test]
fn garbage_never_panics_and_stays_in_the_mailbox() {
    let (mut ended, mut executed) = (0, 0);
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let mut victim = victim();
        let mut bytes = Vec::new();
        for _ in 0..20 {
            let length = random.below(200) as usize;
            match random.below(3) {
                0 => bytes.extend(
                    Frame::Read { region: 0, offset: random.below(600) * 8, bytes: length }
                        .header(),
                ),
                _ => {
                    let imm = (random.below(2) == 0).then_some(3);
                    let offset = random.below(400) * 8;
                    let is_signalled = random.below(2) == 0;
                    bytes.extend(
                        Frame::Write { region: 1, offset, bytes: length, imm, is_signalled }
                            .header(),
                    );
                    bytes.extend((0..length).map(|_| random.number() as u8));
                }
            }
        }
        for _ in 0..seed % 4 * 4 {
            let bit = random.below(bytes.len() as u64 * 8) as usize;
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        let mut state = State::Idle;
        let mut rest = &bytes[..];
        while !rest.is_empty() && state == State::Idle {
            let (now, later) = rest.split_at(rest.len().min(1 + random.below(300) as usize));
            state = victim.send(now);
            rest = later;
        }
        ended += (state != State::Idle) as u32;
        executed += (0..512).any(|word| victim.mailbox.load(word) != 0) as u32;
        let readable = (0..victim.readable.bytes() / 8).all(|at| victim.readable.load(at) == 0);
        assert!(readable, "a READ-only region was written");
    }
    assert!(ended > 50 && executed > 200, "{ended} {executed}");
}

/// A WRITE in the smallest pieces, then half of one, then the end: whole words are stored, the half
/// one is not reported.
#[test]
fn frames_in_single_bytes_are_put_together() {
    let mut victim = victim();
    let payload: Vec<u8> = (1..=29).collect();
    let frame = Frame::Write { region: 1, offset: 16, bytes: 29, imm: Some(4), is_signalled: true };
    let bytes = [&frame.header()[..], &payload].concat();
    let mut told = Vec::new();
    for (at, byte) in bytes.iter().chain(&bytes[..40]).enumerate() {
        victim.attacker.write_all(&[*byte]).unwrap();
        while victim.unread() == 0 {
            std::thread::yield_now();
        }
        let told = &mut |imm| told.push((at, imm));
        victim.connection.serve(&mut victim.buffer, false, told);
    }
    assert_eq!(told, [(bytes.len() - 1, 4)]);
    let mut stored = vec![0; 29];
    victim.mailbox.copy_out(16, &mut stored);
    assert_eq!(stored, payload);
    assert_eq!(victim.mailbox.load(6), 0, "nothing behind it");
    drop(victim.attacker);
    let state = loop {
        let told = &mut |_| panic!("half a WRITE");
        match victim.connection.serve(&mut victim.buffer, false, told).state {
            State::Idle | State::More => std::thread::yield_now(),
            ended => break ended,
        }
    };
    assert_eq!(state, State::Closed);
}

/// WRITEs without end by a peer that reads nothing. Answers are cumulative, so the queue does not
/// grow. The peer receives the answer to all WRITEs once it reads.
#[test]
fn a_peer_that_reads_no_answers_costs_nothing() {
    let mut victim = victim();
    let frame = Frame::Write { region: 1, offset: 0, bytes: 8, imm: None, is_signalled: true };
    let many = [&frame.header()[..], &[9; 8]].concat().repeat(1000);
    for _ in 0..100 {
        assert_eq!(victim.send(&many), State::Idle);
    }
    victim.attacker.set_nonblocking(true).unwrap();
    let mut answers = Vec::new();
    while let Ok(1..) = victim.attacker.read(&mut [0; 4096][..]).inspect(|read| answers.push(*read))
    {
    }
    assert!(answers.iter().sum::<usize>() < 100_000, "an answer for each WRITE");
}
