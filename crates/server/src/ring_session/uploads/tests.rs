//! A client that sends some pieces and then none, second by second.

use crate::replica_view::TurnView;
use crate::ring_session::{ClientEnd, RemoteEnd, RingParts, RingSession};
use remora_arena::{Mapping, NoJournal, Owner, ReadView, Words};
use remora_engine::{Durability, Now, Shard, ShardOptions};
use remora_fabric::remote::{CLIENT_LARGE, CLIENT_MAILBOX};
use remora_fabric::shm::ShmLink;
use remora_fabric::{AnyLink, Link, RemoteAddress, Work};
use remora_layout::buffer_name::BufferName;
use remora_layout::frame::ring_seed;
use remora_layout::limits::{LARGE_BUFFER_BYTES, MAX_STREAMS};
use remora_layout::session::{credit_word, mailbox_bytes, ring_offset};
use remora_protocol::message::{
    CALL_OFF, Op, PIECE, REQUEST_HEADER_BYTES, ReplyHeader, RequestHeader, Status, form,
};
use remora_protocol::{Command, Condition, Expiry};
use remora_ring::{Poll, Receiver, Sender};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use zerocopy::{FromBytes, IntoBytes};

const SEED: u64 = 5;
const IDLE_S: u64 = 3;
const VALUE_BYTES: usize = 1 << 20;
const PIECE_BYTES: usize = 32 << 10;

/// A client of one shard, at both ends of its rings.
pub(in crate::ring_session) struct Client {
    pub shard: Shard,
    pub session: RingSession,
    sender: Sender,
    to_client: ReadView,
    link: ShmLink,
    receiver: Receiver,
    second: u64,
}

impl Client {
    fn new() -> Self {
        Self::with(Durability::Memory)
    }

    pub fn with(durability: Durability) -> Self {
        let options = ShardOptions { upload_idle_s: IDLE_S, durability, ..Default::default() };
        let shard = Shard::new(Owner::heap(16 << 20, NoJournal), options);
        let to_server = Words::new(Mapping::heap(mailbox_bytes(1)));
        let to_client = Words::new(Mapping::heap(mailbox_bytes(1)));
        let mut back = ShmLink::new(None);
        back.add_writable(CLIENT_MAILBOX, to_client.clone());
        back.add_writable(CLIENT_LARGE, Words::new(Mapping::heap(LARGE_BUFFER_BYTES)));
        let session = RingSession::new(RingParts {
            session: 1,
            seed: SEED,
            shard: 0,
            incarnation: 1,
            arenas: Arc::from([shard.owner().view().clone()]),
            touched: Arc::default(),
            to_server: to_server.view(),
            link: AnyLink::Shm(back),
            client: ClientEnd::Remote(RemoteEnd::unmarked(0)),
            large: None,
            violated: Arc::new(AtomicBool::new(false)),
            threads: Arc::default(),
            searches: Arc::default(),
            view: TurnView::of_primary(),
        });
        let mut link = ShmLink::new(None);
        link.add_writable(CLIENT_MAILBOX, to_server);
        let ring = ring_offset(0);
        let sender = Sender::new(CLIENT_MAILBOX, ring as u64, ring_seed(SEED, 0, 0));
        let receiver = Receiver::new(to_client.view(), ring, ring_seed(SEED, 0, 1));
        let to_client = to_client.view();
        Self { shard, session, sender, to_client, link, receiver, second: 1 }
    }

    fn now(&self) -> Now {
        Now { unix_ms: 1_700_000_000_000 + self.second * 1_000, since_start_s: self.second }
    }

    pub fn turn(&mut self) {
        let now = self.now();
        self.session.turn(&mut self.shard, now).unwrap();
    }

    fn pass_second(&mut self) {
        self.second += 1;
        let now = self.now();
        self.shard.tick(now);
        self.session.abandon_stalled(&mut self.shard, now).unwrap();
    }

    pub fn send(&mut self, parts: &[&[u8]]) {
        let credit = self.to_client.load_acquire(credit_word(0));
        self.sender.take_credit(credit).expect("the session gives true credit");
        self.sender.send(&mut self.link, parts).expect("the session takes what comes");
    }

    /// Announces a value.
    fn announce(&mut self, op: Op, id: u32, bytes: usize) {
        let form = form::IN_PIECES;
        let (key, value_bytes) = (b"big", (bytes as u32).into());
        let header = RequestHeader { op: op as u8, form, value_bytes, ..header(id) };
        let header = RequestHeader { key_bytes: (key.len() as u32).into(), ..header };
        self.send(&[header.as_bytes(), key]);
    }

    fn piece(&mut self, id: u32, bytes: usize) {
        self.send(&[RequestHeader { op: PIECE, ..header(id) }.as_bytes(), &vec![7; bytes]]);
    }

    /// Ids and statuses of the replies that have come.
    pub fn replies(&mut self) -> Vec<(u32, Option<Status>)> {
        let mut replies = Vec::new();
        let mut payload = Vec::new();
        while let Poll::Frame(_) = self.receiver.poll(&mut payload) {
            let (header, _) = ReplyHeader::read_from_prefix(&payload).unwrap();
            replies.push((header.id.get(), Status::from_number(header.status)));
            payload.clear();
        }
        replies
    }

    /// Tells the server that the received bytes were taken.
    pub fn give_credit(&mut self) {
        if let Some(credit) = self.receiver.credit_due() {
            let to = RemoteAddress { region: CLIENT_MAILBOX, offset: credit_word(0) as u64 * 8 };
            let bytes = credit.to_le_bytes();
            self.link.post(&[Work::Write { id: 0, to, bytes: &bytes, imm: None }]);
            while self.link.poll().is_some() {}
        }
    }

    fn abandoned(&self) -> u64 {
        self.shard.stats().uploads_abandoned
    }
}

fn header(id: u32) -> RequestHeader {
    let none = [0; REQUEST_HEADER_BYTES];
    RequestHeader { id: id.into(), ..RequestHeader::read_from_bytes(&none).unwrap() }
}

#[test]
fn whatever_comes_in_pieces_is_given_up_and_late_pieces_do_no_harm() {
    let mut client = Client::new();
    client.announce(Op::Set, 1, VALUE_BYTES);
    client.announce(Op::Append, 2, VALUE_BYTES);
    // More than the shard has: refused at once, its pieces are passed over.
    client.announce(Op::Set, 3, 60 << 20);
    (1..=3).for_each(|id| client.piece(id, 1_000));
    client.turn();
    assert_eq!(client.replies(), [(3, Some(Status::OutOfMemory))]);
    assert!(client.shard.stats().slots.used_bytes > VALUE_BYTES as u64);
    for _ in 0..IDLE_S {
        client.pass_second();
    }
    assert!(client.session.may_stall());
    assert_eq!(client.replies(), []);
    // Nothing of a piece is no piece.
    client.piece(1, 0);
    client.turn();
    client.pass_second();
    let stalled = Some(Status::Stalled);
    assert_eq!(client.replies(), [(1, stalled), (2, stalled)]);
    assert_eq!(client.abandoned(), 2);
    assert_eq!(client.shard.stats().slots.used_bytes, 0);
    assert!(!client.session.may_stall());
    // Late pieces, all that were missing, and requests behind them.
    for id in 1..=3 {
        client.piece(id, 50_000);
    }
    let mut get = Vec::new();
    Command::Get { key: b"big" }.encode_into(4, &mut get);
    client.send(&[&get]);
    client.announce(Op::Set, 1, 3_000);
    client.piece(1, 3_000);
    client.turn();
    assert_eq!(client.replies(), [(4, Some(Status::NotFound)), (1, Some(Status::Ok))]);
    for _ in 0..=IDLE_S {
        client.pass_second();
    }
    assert_eq!((client.replies(), client.abandoned()), (vec![], 2));
    client.shard.audit().unwrap();
}

#[test]
fn requests_in_pieces_take_memory_of_the_shard() {
    let mut client = Client::new();
    let (arena_bytes, request_bytes) = (16 << 20, 3 << 20);
    let most = arena_bytes / request_bytes;
    let ids = 1..=most as u32 + 2;
    for id in ids.clone() {
        client.announce(Op::Append, id, request_bytes);
    }
    client.turn();
    let refused = client.replies();
    assert!(refused.iter().all(|&(_, status)| status == Some(Status::OutOfMemory)));
    let taken = ids.count() - refused.len();
    assert!((1..=most).contains(&taken), "{taken} of {most}");
    let aside_bytes = || client.shard.stats().staged_bytes as usize;
    assert!(aside_bytes() >= taken * request_bytes, "{} bytes", aside_bytes());
    client.shard.audit().unwrap();
    // One is called off; another comes, and is complete; the rest is given up.
    let before = client.shard.stats().staged_bytes as usize;
    let call_off = RequestHeader { op: CALL_OFF, ..header(1) };
    client.send(&[call_off.as_bytes()]);
    client.announce(Op::Append, 1, PIECE_BYTES);
    client.turn();
    assert_eq!(client.replies(), [(1, Some(Status::NotDone))]);
    let with_both = client.shard.stats().staged_bytes as usize;
    assert!(with_both >= before - request_bytes + PIECE_BYTES, "{with_both} of {before}");
    client.piece(1, PIECE_BYTES);
    client.turn();
    assert_eq!(client.replies(), [(1, Some(Status::Ok))]);
    let after = client.shard.stats().staged_bytes as usize;
    assert!((1..=with_both - PIECE_BYTES).contains(&after), "{after} of {with_both}");
    client.shard.audit().unwrap();
    for _ in 0..=IDLE_S {
        client.pass_second();
    }
    assert_eq!(client.abandoned(), taken as u64 - 1);
    assert_eq!(client.shard.stats().staged_bytes, 0);
    client.shard.audit().unwrap();
}

#[test]
fn the_memory_of_requests_in_pieces_comes_back_when_their_client_goes() {
    let mut client = Client::new();
    client.announce(Op::Append, 1, VALUE_BYTES);
    client.announce(Op::Append, 1, VALUE_BYTES);
    client.turn();
    let aside_bytes = client.shard.stats().staged_bytes as usize;
    assert!((VALUE_BYTES..2 * VALUE_BYTES).contains(&aside_bytes), "{aside_bytes} bytes");
    let now = client.now();
    client.session.abandon(&mut client.shard, now);
    assert_eq!(client.shard.stats().staged_bytes, 0);
    client.shard.audit().unwrap();
}

#[test]
fn pieces_that_wait_for_values_on_their_way_out_are_not_silence() {
    let mut client = Client::new();
    let value = vec![7; VALUE_BYTES];
    let (condition, expiry) = (Condition::Always, Expiry::Never);
    let set = Command::Set { key: b"k", value: &value, condition, expiry, get: false };
    let hash = client.shard.hash(b"k");
    assert_eq!(client.shard.execute(&set, hash, client.now()).status, Status::Ok);
    client.announce(Op::Set, 1, VALUE_BYTES);
    client.piece(1, 1_000);
    client.turn();
    for id in 2..2 + MAX_STREAMS as u32 {
        let mut get = Vec::new();
        Command::Get { key: b"k" }.encode_into(id, &mut get);
        get[2] = form::BUFFER;
        let bytes = (VALUE_BYTES as u32).into();
        let name = BufferName { address: 0.into(), bytes, key: 0.into() };
        client.send(&[&get, name.as_bytes()]);
    }
    client.turn();
    // The next piece lies in the ring, and the session takes no frame.
    client.piece(1, 1_000);
    let mut seconds = 0;
    while client.replies().is_empty() {
        client.turn();
        client.pass_second();
        seconds += 1;
    }
    assert!(seconds > 2 * IDLE_S, "{seconds}");
    assert_eq!(client.abandoned(), 0);
    // Then it is taken, and nothing follows it.
    client.turn();
    for _ in 0..=IDLE_S {
        client.pass_second();
    }
    assert_eq!(client.abandoned(), 1);
}
