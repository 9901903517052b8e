//! A client of the rings by hand, for what an honest client never does.

use remora_arena::Words;
use remora_fabric::detect::Wanted;
use remora_fabric::shm::{self, Connected};
use remora_fabric::{
    Address, Credentials, Dialling, Link, LinkError, RemoteAddress, Work, connect,
};
use remora_layout::frame::{FRAME_HEADER_BYTES, first_word, frame_checksum, ring_seed};
use remora_layout::hello::{ClientHello, ServerHello};
use remora_layout::session::{WITHDRAWN_WORD, credit_word, ring_offset};
use remora_protocol::Command;
use remora_protocol::message::{Op, PIECE, RequestHeader, form};
use remora_ring::{Poll, Receiver, SendError, Sender, WRITE_ID};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use std::io::{Error, ErrorKind, IoSliceMut, Result, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use zerocopy::{FromZeros, IntoBytes};

/// Says hello at a socket by hand: the answer and the descriptors with it.
pub fn greet(path: &Path, hello: &ClientHello) -> Result<(UnixStream, ServerHello, Vec<OwnedFd>)> {
    let mut socket = UnixStream::connect(path)?;
    socket.set_read_timeout(Some(crate::DEADLINE))?;
    match socket.write_all(hello.as_bytes()) {
        // The server may have refused the client at once; its answer is there.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
        written => written?,
    }
    let mut answer = ServerHello::new_zeroed();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::net::recvmsg(
        &socket,
        &mut [IoSliceMut::new(answer.as_mut_bytes())],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    if received.bytes != size_of::<ServerHello>() {
        return Err(Error::new(ErrorKind::UnexpectedEof, "no hello"));
    }
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    Ok((socket, answer, fds))
}

fn header(op: u8, id: u32) -> RequestHeader {
    RequestHeader {
        op,
        flags: 0,
        form: 0,
        of: 0,
        key_bytes: 0.into(),
        value_bytes: 0.into(),
        id: id.into(),
        argument: 0.into(),
    }
}

/// A session of which the test writes every byte itself; shard 0 and the first ring
/// set only.
pub struct RawSession {
    /// Everything that the server granted.
    pub connected: Connected,
    sender: Sender,
    receiver: Receiver,
    mailbox: u32,
}

impl RawSession {
    /// Connects.
    pub fn connect(path: &Path) -> Self {
        Self::of(shm::connect(path).expect("a session"))
    }

    /// The same, as a user.
    pub fn connect_as(path: &Path, credentials: Credentials) -> Self {
        let dialling = Dialling { wanted: Wanted::Shm, credentials, ..Dialling::default() };
        match connect(&Address::Unix(path.to_owned()), &dialling) {
            Ok(remora_fabric::Connected::Shm(connected)) => Self::of(*connected),
            Ok(_) => panic!("a session over another transport"),
            Err(error) => panic!("{error}"),
        }
    }

    fn of(connected: Connected) -> Self {
        let seed = connected.hello.session_seed.get();
        let mailbox = connected.arenas.len() as u32;
        let ring = ring_offset(0);
        Self {
            sender: Sender::new(mailbox, ring as u64, ring_seed(seed, 0, 0)).in_short_laps(),
            receiver: Receiver::new(connected.to_client.clone(), ring, ring_seed(seed, 0, 1))
                .in_short_laps(),
            connected,
            mailbox,
        }
    }

    /// The mailbox at the server, to be written at will.
    pub fn to_server(&self) -> &Words {
        &self.connected.to_server
    }

    /// A whole first frame with this payload.
    pub fn first_frame(&self, payload: &[u8]) -> Vec<u8> {
        let seed = self.seed();
        let word = first_word(0, payload.len() as u32, seed);
        let mut frame = vec![0; FRAME_HEADER_BYTES];
        frame[..8].copy_from_slice(&word.to_le_bytes());
        frame[8..].copy_from_slice(&frame_checksum(word, payload, seed).to_le_bytes());
        frame.extend_from_slice(payload);
        frame
    }

    /// Seed of the request ring of shard 0.
    pub fn seed(&self) -> u64 {
        ring_seed(self.connected.hello.session_seed.get(), 0, 0)
    }

    /// Sets the ready bit, and wakes the shard if it would not see that.
    pub fn ring_bell(&self) {
        self.connected.doorbell(0, 0).ring();
    }

    /// Sends a request; false if the ring is full.
    pub fn send(&mut self, command: &Command<'_>, id: u32) -> bool {
        let mut payload = Vec::new();
        command.encode_into(id, &mut payload);
        self.send_payload(&payload)
    }

    /// Announces a SET of so many bytes, and sends some of its pieces.
    pub fn announce_large(&mut self, id: u32, key: &[u8], bytes: usize, pieces: usize) {
        self.announce(Op::Set, id, key, bytes);
        self.send_pieces(id, pieces);
    }

    /// Announces a request whose value of so many bytes comes in pieces.
    pub fn announce(&mut self, op: Op, id: u32, key: &[u8], bytes: usize) {
        let header = RequestHeader {
            form: form::IN_PIECES,
            key_bytes: (key.len() as u32).into(),
            value_bytes: (bytes as u32).into(),
            ..header(op as u8, id)
        };
        self.send_patiently(&[header.as_bytes(), key].concat());
    }

    /// Sends pieces of 60,000 bytes, each 7.
    pub fn send_pieces(&mut self, id: u32, pieces: usize) {
        for _ in 0..pieces {
            self.send_patiently(&[header(PIECE, id).as_bytes(), &[7; 60_000]].concat());
        }
    }

    fn send_patiently(&mut self, payload: &[u8]) {
        crate::wait_until("there is room in the ring, or the end", || {
            self.is_withdrawn() || self.send_payload(payload)
        });
    }

    /// Sends a frame with this payload; false if the ring is full, or the
    /// session has been withdrawn.
    pub fn send_payload(&mut self, payload: &[u8]) -> bool {
        if !self.sender.has_room(payload.len()) || self.sender.wants_credit() {
            let credit = self.connected.to_client.load_acquire(credit_word(0));
            self.sender.take_credit(credit).expect("the server's credit makes sense");
        }
        if !self.sender.has_room(payload.len()) {
            return false;
        }
        let sent = self.sender.send(&mut self.connected.link, &[payload]);
        if sent == Err(SendError::Link(LinkError::Withdrawn)) {
            return false;
        }
        sent.expect("there was room");
        while self.connected.link.poll().is_some() {}
        self.ring_bell();
        true
    }

    /// The payload of the next reply, if it is there; gives credit when due.
    pub fn receive(&mut self) -> Option<Vec<u8>> {
        let mut payload = Vec::new();
        match self.receiver.poll(&mut payload) {
            Poll::Frame(_) => {}
            Poll::Empty | Poll::Torn => return None,
            Poll::Violated(violation) => panic!("{violation}"),
        }
        if let Some(credit) = self.receiver.credit_due() {
            self.give_credit(credit);
            self.connected.doorbell(0, 0).ring_for_credit();
        }
        Some(payload)
    }

    /// Writes the credit word of shard 0's response ring.
    pub fn give_credit(&mut self, consumed: u64) {
        let to = RemoteAddress { region: self.mailbox, offset: credit_word(0) as u64 * 8 };
        let bytes = consumed.to_le_bytes();
        self.connected.link.post(&[Work::Write { id: WRITE_ID, to, bytes: &bytes, imm: None }]);
        while self.connected.link.poll().is_some() {}
    }

    /// Whether the server has ended the session.
    pub fn is_withdrawn(&self) -> bool {
        self.connected.to_client.load_acquire(WITHDRAWN_WORD) != 0
    }
}
