//! A peer by script against one production connection of the TCP fabric, as
//! the server's agent drives it.
//!
//! The peer sends READs, WRITEs and answers, some of which make no sense, cut
//! into pieces anywhere. A model executes the same stream. What must hold:
//! * every byte of every region is what the model says: nothing is written but
//!   in mailboxes, within their bounds, and by whole words of what arrived;
//! * READs are answered with the bytes of the region, and what is refused with
//!   the right reason; all that comes back is well-formed, in order, and told;
//! * what no honest peer sends ends the connection, and nothing else does;
//! * each operation of this end completes once, rightly.

mod model;
mod stream;

use super::{Script, await_any};
use model::{Access, Answer, Model, REGIONS, WITHDRAWN, pattern};
use remora_arena::{Mapping, Words};
use remora_fabric::tcp::{
    Connection, Exposed, Frame, Pumping, ReceiveBuffer, State, TcpLink, parse,
};
use remora_fabric::{Link, LinkError, RemoteAddress, Work};
use remora_layout::limits::READ_WINDOW_BYTES;
use remora_layout::wire::{WIRE_HEADER_BYTES, reason};
use rustix::event::{PollFd, PollFlags};
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

thread_local! {
    static LISTENER: TcpListener =
        TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).expect("a free port");
}

/// What came about.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Seen {
    /// Requests of the peer that were executed.
    pub executed: u64,
    /// Bytes that it was sent for its READs.
    pub read_bytes: usize,
    /// Whether a request was refused.
    pub refused: bool,
    /// Whether the peer broke the protocol.
    pub violated: bool,
    /// Operations of this end that the peer answered.
    pub answered: usize,
}

/// The peer's end, and what it makes of what comes back.
struct Peer {
    stream: TcpStream,
    incoming: Vec<u8>,
    /// Frames of this end's own operations that have come.
    posts: usize,
    answers: usize,
    /// How many of its requests it knows to be executed.
    told: u64,
    read_bytes: usize,
}

impl Peer {
    /// Takes what is there. False once the connection is closed.
    fn receive(&mut self, model: &Model) -> bool {
        let mut bytes = [0; 1 << 16];
        loop {
            match self.stream.read(&mut bytes) {
                Ok(0) => return false,
                Ok(read) => self.incoming.extend_from_slice(&bytes[..read]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        self.understand(model);
        true
    }

    fn understand(&mut self, model: &Model) {
        let incoming = std::mem::take(&mut self.incoming);
        let mut rest = &incoming[..];
        while let Some((header, behind)) = rest.split_first_chunk::<WIRE_HEADER_BYTES>() {
            let frame = parse(header).expect("an honest end's frame");
            let payload = match frame {
                Frame::Write { bytes, .. } | Frame::Data { bytes, .. } => bytes,
                _ => 0,
            };
            let Some((payload, behind)) = behind.split_at_checked(payload) else { break };
            rest = behind;
            match frame {
                Frame::Read { .. } | Frame::Write { .. } => self.posts += 1,
                Frame::Done(executed) => {
                    assert!(executed > self.told && executed <= model.executed, "told too much");
                    self.told = executed;
                }
                Frame::Data { number, .. } => {
                    let bytes = payload.to_vec();
                    self.answer(model, &Answer::Data { number, bytes });
                    self.told = number + 1;
                    self.read_bytes += payload.len();
                }
                Frame::Fail { executed, why } => {
                    self.answer(model, &Answer::Fail { executed, why: why as u32 });
                    self.told = executed;
                }
            }
        }
        self.incoming = rest.to_vec();
    }

    fn answer(&mut self, model: &Model, answer: &Answer) {
        assert!(model.answers.get(self.answers) == Some(answer), "another answer than the model's");
        self.answers += 1;
    }

    fn has_all(&self, model: &Model) -> bool {
        self.answers == model.answers.len() && self.told >= model.awaited
    }
}

/// Plays a peer.
pub fn run(script: &[u8]) -> Seen {
    let mut script = Script::new(script);
    let (mut peer, connection) = connect();
    let model = Model::new(VecDeque::new());
    let mut memory = Vec::new();
    for (number, ((access, _), bytes)) in (0u32..).zip(REGIONS.iter().zip(&model.regions)) {
        let words = Words::new(Mapping::heap(bytes.len()));
        words.copy_in(0, bytes);
        let exposed = match access {
            Access::Read => Exposed::Readable(words.view()),
            Access::Write => Exposed::Writable(words.clone()),
        };
        connection.expose(number, exposed);
        memory.push(words);
    }
    connection.expose(WITHDRAWN, Exposed::Writable(Words::new(Mapping::heap(64))));
    connection.withdraw(WITHDRAWN);
    let (mut link, flights) = post(&connection, &mut script);
    let posted = flights.clone();
    let mut model = Model { flights, ..model };
    let withdraws = script.one_in(4);
    let piece = script.pick(&[1, 7, 24, 100, 1_000, 65_536, stream::STREAM_BYTES]);
    let stream = stream::stream(&mut script, model.flights.clone());
    model.take(&stream);

    let mut immediates = Vec::new();
    let mut ended = drive(&connection, &mut peer, &model, &stream, piece, &mut immediates);
    if ended.is_none() && withdraws && !model.is_cut {
        connection.withdraw_all();
        model.is_withdrawn = true;
        let write =
            Frame::Write { region: 2, offset: 0, bytes: 8, imm: Some(1), is_signalled: true };
        let late = [&write.header()[..], &[0xee; 8]].concat();
        model.passes_over(Some(reason::WITHDRAWN));
        ended = drive(&connection, &mut peer, &model, &late, piece, &mut immediates);
    }
    let broke = ended.is_some();
    let is_violation = |state| matches!(state, State::Failed(LinkError::Violation(_)));
    // A client that was refused before learns that first.
    assert!(ended.is_none_or(is_violation) || model.has_failed, "{ended:?}");
    if !broke {
        // The peer goes; what it sent of an unfinished frame is there by then.
        let _ = peer.stream.shutdown(Shutdown::Write);
        until(&connection, &mut peer, &model, &mut immediates, |_| false).expect("closed");
    }

    for (number, words) in memory.iter().enumerate() {
        let is_mailbox = REGIONS[number].0 == Access::Write;
        assert!(is_mailbox || bytes_of(words) == pattern(number), "what is only read has changed");
    }
    // A peer that does not take the bytes that it READs may be cut off.
    if model.asked <= READ_WINDOW_BYTES || !broke {
        assert_eq!(broke, model.is_violated, "{ended:?}");
        assert!(immediates == model.immediates, "immediates");
        for (words, expected) in memory.iter().zip(&model.regions) {
            assert!(bytes_of(words) == *expected, "a region differs from the model's");
        }
        check_completions(&mut link, &posted, &model);
    }
    Seen {
        executed: model.executed,
        read_bytes: peer.read_bytes,
        refused: model.is_refused,
        violated: broke,
        answered: model.answered,
    }
}

fn bytes_of(words: &Words) -> Vec<u8> {
    let mut bytes = vec![0; words.bytes()];
    words.copy_out(0, &mut bytes);
    bytes
}

fn connect() -> (Peer, Arc<Connection>) {
    let (stream, accepted) = LISTENER.with(|listener| {
        let address = listener.local_addr().expect("it listens");
        let stream = TcpStream::connect(address).expect("nobody else connects there");
        (stream, listener.accept().expect("it waits").0)
    });
    stream.set_nonblocking(true).expect("an option");
    stream.set_nodelay(true).expect("an option");
    // Thousands of closed connections must not hold all ports for a minute.
    rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).expect("an option");
    let peer = Peer { stream, incoming: Vec::new(), posts: 0, answers: 0, told: 0, read_bytes: 0 };
    (peer, Connection::new(accepted, Pumping::ByAgent).expect("a connection"))
}

/// Some operations of this end, for the peer to answer.
fn post(
    connection: &Arc<Connection>,
    script: &mut Script<'_>,
) -> (TcpLink, VecDeque<Option<usize>>) {
    let mut link = TcpLink::new(Arc::clone(connection));
    link.reserve_landing(8 * 128);
    let mut flights = VecDeque::new();
    let to = RemoteAddress { region: 0, offset: 0 };
    for id in 0..script.below(8) {
        let bytes = script.below(128);
        if script.one_in(2) {
            link.post(&[Work::Read { id: id as u64, from: to, into: id * 128, bytes }]);
            flights.push_back(Some(bytes));
        } else {
            link.post(&[Work::Write { id: id as u64, to, bytes: &[1; 128][..bytes], imm: None }]);
            flights.push_back(None);
        }
    }
    (link, flights)
}

fn check_completions(link: &mut TcpLink, posted: &VecDeque<Option<usize>>, model: &Model) {
    let mut landed = Vec::new();
    for (id, wanted) in posted.iter().enumerate() {
        let completion = link.poll().expect("one for each operation");
        assert_eq!(completion.id, id as u64);
        assert_eq!(completion.result.is_ok(), id < model.answered, "{completion:?}");
        if let (Some(bytes), Ok(())) = (wanted, completion.result) {
            landed.extend_from_slice(link.landed(id * 128, *bytes));
        }
    }
    assert!(link.poll().is_none());
    assert!(landed == model.landed, "a READ brought other bytes");
}

/// Sends the stream in pieces and serves, until all is answered. The state in
/// which the connection ended, if it did.
fn drive(
    connection: &Connection,
    peer: &mut Peer,
    model: &Model,
    stream: &[u8],
    piece: usize,
    immediates: &mut Vec<u32>,
) -> Option<State> {
    let piece = piece.max(stream.len() / 256).max(1);
    let mut sent = 0;
    while sent < stream.len() {
        let end = stream.len().min(sent + piece);
        match peer.stream.write(&stream[sent..end]) {
            Ok(bytes) => sent += bytes,
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            // It broke off; the agent says why.
            Err(_) => sent = stream.len(),
        }
        let progress =
            connection.serve(&mut ReceiveBuffer::default(), true, &mut |imm| immediates.push(imm));
        peer.receive(model);
        if !matches!(progress.state, State::Idle | State::More) {
            return Some(progress.state);
        }
    }
    until(connection, peer, model, immediates, |peer| !model.is_violated && peer.has_all(model))
}

/// Serves until the peer is content, or the connection has ended.
fn until(
    connection: &Connection,
    peer: &mut Peer,
    model: &Model,
    immediates: &mut Vec<u32>,
    is_content: impl Fn(&Peer) -> bool,
) -> Option<State> {
    loop {
        let progress =
            connection.serve(&mut ReceiveBuffer::default(), true, &mut |imm| immediates.push(imm));
        peer.receive(model);
        match progress.state {
            State::More => continue,
            State::Idle => {}
            ended => return Some(ended),
        }
        if is_content(peer) {
            return None;
        }
        let here = PollFlags::IN
            | if connection.wants_write() { PollFlags::OUT } else { PollFlags::empty() };
        let mut fds = [PollFd::new(connection, here), PollFd::new(&peer.stream, PollFlags::IN)];
        await_any(&mut fds, "neither end has anything to do, and not all is answered");
    }
}
