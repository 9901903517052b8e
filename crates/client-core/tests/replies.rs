//! The client's reaction to replies that no honest server sends: it ends the connection and says
//! why.

use remora_arena::{Mapping, NoJournal, Owner, Words};
use remora_client_core::{Client, Clock, Error, Options, Parts};
use remora_fabric::AnyLink;
use remora_fabric::shm::{Bell, ShmLink};
use remora_index::hash::{Table, TableRef};
use remora_layout::arena_header::ARENA_HEADER_BYTES;
use remora_layout::frame::ring_seed;
use remora_layout::hello::ServerHello;
use remora_layout::session::{mailbox_bytes, ring_offset};
use remora_protocol::message::{ReplyHeader, Status};
use remora_ring::Sender;
use std::time::Duration;
use zerocopy::{FromZeros, IntoBytes};

const INCARNATION: u64 = 6;
const SEED: u64 = 0x5eed;

/// Asks whether a key exists, with this reply already in the ring. Returns the answer and the
/// result of the next request.
fn ask(reply: &[u8]) -> (Result<bool, Error>, Option<Error>) {
    let mut owner = Owner::heap(1 << 16, NoJournal);
    Table::new(&mut owner, ARENA_HEADER_BYTES, 1);
    let [to_server, to_client] = [(); 2].map(|()| Words::new(Mapping::heap(mailbox_bytes(1))));
    let mut hello = ServerHello::new_zeroed();
    hello.incarnation = INCARNATION.into();
    hello.session_seed = SEED.into();
    hello.shards = 1.into();
    hello.pid = 4242.into();
    let bell = Bell::new(to_server.view(), 8, Bell::eventfd().unwrap());
    let arena = owner.view().clone();
    let parts = Parts {
        hello,
        tables: vec![TableRef::read(0, &arena).unwrap()],
        to_client: to_client.view(),
        large: Words::new(Mapping::heap(64)).view(),
        link: Box::new(move || {
            let mut link = ShmLink::new(None);
            link.add_readable(0, arena.clone());
            link.add_writable(1, to_server.clone());
            link.add_bell(0, bell.clone());
            AnyLink::Shm(link)
        }),
        clock: Clock::default(),
        pointers: None,
    };
    let options = Options { timeout: Duration::from_secs(20), ..Options::default() };
    let client = Client::over(parts, &options).unwrap();
    let mut session = client.session().unwrap();
    assert_eq!(session.server_pid(), 4242);
    assert!(format!("{session:?}").contains("4242"), "{session:?}");
    let mut back = ShmLink::new(None);
    back.add_writable(0, to_client);
    let mut sender = Sender::new(0, ring_offset(0) as u64, ring_seed(SEED, 0, 1));
    sender.send(&mut back, &[reply]).unwrap();
    (session.exists(b"key"), client.session().err())
}

/// The reply to the first request of the first session.
fn header() -> ReplyHeader {
    let mut header = ReplyHeader::new_zeroed();
    header.status = Status::Ok as u8;
    header.number = 1.into();
    header.incarnation = INCARNATION.into();
    header
}

#[test]
fn a_sound_reply_is_the_answer() {
    assert_eq!(ask(header().as_bytes()), (Ok(true), None));
    let mut absent = header();
    absent.number = 0.into();
    assert_eq!(ask(absent.as_bytes()), (Ok(false), None));
}

#[test]
fn a_reply_that_does_not_fit_ends_the_connection() {
    let mut other_request = header();
    other_request.id = 1.into();
    let mut nobody = header();
    nobody.id = (7 << 16).into();
    let mut longer = header();
    longer.value_bytes = 1.into();
    let mut strange = header();
    strange.status = 200;
    let whole = header();
    for (what, reply) in [
        ("another request's", other_request.as_bytes()),
        ("nobody's", nobody.as_bytes()),
        ("a value is missing", longer.as_bytes()),
        ("a byte too many", &[whole.as_bytes(), &[0]].concat()),
        ("no such status", strange.as_bytes()),
        ("half a header", &whole.as_bytes()[..20]),
    ] {
        let (answer, next) = ask(reply);
        assert!(matches!(answer, Err(Error::Protocol(_))), "{what}: {answer:?}");
        assert_eq!(next, answer.err(), "{what}: the connection is over");
    }
}

#[test]
fn a_reply_of_another_incarnation_ends_the_session() {
    let mut other = header();
    other.incarnation = (INCARNATION + 1).into();
    assert_eq!(ask(other.as_bytes()), (Err(Error::SessionEnded), Some(Error::SessionEnded)));
}
