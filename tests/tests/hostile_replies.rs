//! Replies that no honest server writes end the connection, and nothing worse.

use remora_arena::{Mapping, NoJournal, Owner, Words};
use remora_client_core::{Client, Clock, Error, Options, Parts, Path, Session};
use remora_engine::{Shard, ShardOptions};
use remora_fabric::AnyLink;
use remora_fabric::sim::{SimLink, SimOptions, SimTarget, SimWorld};
use remora_layout::frame::{
    FRAME_HEADER_BYTES, first_word, frame_bytes, frame_checksum, ring_seed,
};
use remora_layout::hello::ServerHello;
use remora_layout::limits::LARGE_BUFFER_BYTES;
use remora_layout::session::{mailbox_bytes, ring_offset};
use remora_protocol::Command;
use remora_protocol::message::{HAS_VALUE, IN_BUFFER, MORE, ReplyHeader, Status};
use std::sync::Arc;
use zerocopy::{FromZeros, IntoBytes};

const SEED: u64 = 5;
const INCARNATION: u64 = 1;

/// A connection without a server; the test writes the replies.
struct Fixture {
    client: Client,
    to_client: Words,
    frames: u32,
    at: usize,
}

impl Fixture {
    fn new() -> Self {
        let world = SimWorld::new(SimOptions::default());
        let shard = Shard::new(Owner::heap(1 << 20, NoJournal), ShardOptions::default());
        let to_client = Words::new(Mapping::heap(mailbox_bytes(1)));
        let target = SimTarget::new();
        target.mailbox(1, Words::new(Mapping::heap(mailbox_bytes(1))));
        let mut hello = ServerHello::new_zeroed();
        hello.incarnation = INCARNATION.into();
        hello.shards = 1.into();
        hello.session_seed = SEED.into();
        let time = world.clone();
        let parts = Parts {
            hello,
            tables: vec![shard.table_ref()],
            to_client: to_client.view(),
            large: Words::new(Mapping::heap(LARGE_BUFFER_BYTES)).view(),
            link: Box::new(move || AnyLink::Other(Box::new(SimLink::new(&world, &target)))),
            clock: Clock::Given(Arc::new(move || time.now_ns() + 1)),
            pointers: None,
        };
        let options =
            Options { wake: remora_client_core::Wake::Event, ..remora_tests::by_pointers() };
        let client = Client::over(parts, &options).unwrap();
        Self { client, to_client, frames: 0, at: ring_offset(0) }
    }

    fn session(&self) -> Session {
        self.client.session().unwrap()
    }

    /// Puts a reply into the ring that may not have been asked for.
    fn reply(&mut self, id: u32, flags: u8, value_bytes: u32, value: &[u8]) {
        let mut header = ReplyHeader::new_zeroed();
        header.id = id.into();
        header.flags = flags;
        header.value_bytes = value_bytes.into();
        self.put(header, value);
    }

    /// Lets the client ask again, with a buffer for so many bytes.
    fn needs_buffer(&mut self, id: u32, bytes: i64) {
        let mut header = ReplyHeader::new_zeroed();
        header.id = id.into();
        header.status = Status::NeedsBuffer as u8;
        header.number = bytes.into();
        self.put(header, b"");
    }

    fn put(&mut self, mut header: ReplyHeader, value: &[u8]) {
        header.incarnation = INCARNATION.into();
        let payload = [header.as_bytes(), value].concat();
        let seed = ring_seed(SEED, 0, 1);
        let word = first_word(self.frames, payload.len() as u32, seed);
        let mut frame = vec![0; FRAME_HEADER_BYTES];
        frame[..8].copy_from_slice(&word.to_le_bytes());
        frame[8..].copy_from_slice(&frame_checksum(word, &payload, seed).to_le_bytes());
        frame.extend(&payload);
        self.to_client.copy_in(self.at, &frame);
        self.frames += 1;
        self.at += frame_bytes(payload.len());
    }
}

const DOES_NOT_FIT: Error = Error::Protocol("a reply that does not fit its request");
const TO_NOBODY: Error = Error::Protocol("a reply to nobody");

#[test]
fn flags_that_contradict_each_other() {
    for (flags, value_bytes, value) in [
        (HAS_VALUE | IN_BUFFER, 100, &b""[..]),
        (HAS_VALUE | IN_BUFFER, 0, b""),
        (4, 0, b""),
        // The request named no buffer.
        (IN_BUFFER, 100, b""),
        (IN_BUFFER, u32::MAX, b""),
        (HAS_VALUE, 2, b"one"),
        (HAS_VALUE, u32::MAX, b""),
        (0, 1, b""),
    ] {
        let mut fixture = Fixture::new();
        let mut session = fixture.session();
        fixture.reply(0, flags, value_bytes, value);
        let got = session.get(b"key", Path::Ask).map(|_| ());
        assert_eq!(got, Err(DOES_NOT_FIT), "{flags} {value_bytes}");
        assert_eq!(session.exists(b"key"), Err(DOES_NOT_FIT), "it is over");
    }
}

#[test]
fn a_value_longer_than_the_buffer_that_was_named() {
    // What a server needs is no more than a value can have.
    for (needs, value_bytes, ends) in [
        (100_000, 100_000, false),
        (100_000, 100_001, true),
        (i64::MAX, 64 << 20, false),
        (i64::MAX, 64 << 20 | 8, true),
    ] {
        let mut fixture = Fixture::new();
        let mut session = fixture.session();
        fixture.needs_buffer(0, needs);
        fixture.reply(1, IN_BUFFER, value_bytes, b"");
        let got = session.get_del(b"key").map(|value| value.map(<[u8]>::len));
        let whole = Ok(Some(value_bytes as usize));
        assert_eq!(got, if ends { Err(DOES_NOT_FIT) } else { whole });
    }
}

/// They would pile up in the inbox of a session that never takes them, and
/// make its number look free.
#[test]
fn replies_to_a_session_that_has_not_asked() {
    let mut fixture = Fixture::new();
    let (mut first, second) = (fixture.session(), fixture.session());
    fixture.reply(1 << 16, 0, 0, b"");
    assert_eq!(first.exists(b"key"), Err(TO_NOBODY));
    drop(second);

    let mut fixture = Fixture::new();
    let (mut first, mut second) = (fixture.session(), fixture.session());
    second.submit(&Command::Exists { key: b"key" }).unwrap();
    // One of them is right.
    fixture.reply(1 << 16, 0, 0, b"");
    fixture.reply(1 << 16, 0, 0, b"");
    assert_eq!(first.exists(b"key"), Err(TO_NOBODY));
}

/// They would pile up without end, with the request's own session and in the inbox of
/// another.
#[test]
fn a_reply_that_another_follows_to_what_is_no_search() {
    let submitted = Command::Exists { key: b"submitted" };
    for flags in [MORE, MORE | HAS_VALUE] {
        let mut fixture = Fixture::new();
        let mut session = fixture.session();
        session.submit(&submitted).unwrap();
        (0..100).for_each(|_| fixture.reply(0, flags, 0, b""));
        assert_eq!(session.exists(b"key"), Err(DOES_NOT_FIT), "{flags}");

        let mut fixture = Fixture::new();
        let (mut first, mut second) = (fixture.session(), fixture.session());
        second.submit(&submitted).unwrap();
        (0..100).for_each(|_| fixture.reply(1 << 16, flags, 0, b""));
        assert_eq!(first.exists(b"key"), Err(DOES_NOT_FIT), "{flags}");
    }
}

/// A reply to a later request than the oldest one.
#[test]
fn a_reply_out_of_order() {
    let mut fixture = Fixture::new();
    let mut session = fixture.session();
    session.submit(&Command::Exists { key: b"submitted" }).unwrap();
    (0..2).for_each(|_| fixture.reply(1, 0, 0, b""));
    assert_eq!(session.exists(b"key"), Err(DOES_NOT_FIT));
}
