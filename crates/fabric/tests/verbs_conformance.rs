//! The conformance body between two real RDMA devices, or over one device's loopback, or between
//! two hosts. They need a device: the virtual machine of `make rxe` runs them (feature `rxe`), with
//! `REMORA_TEST_DEVICES=TARGET,INITIATOR`.
//!
//! The halves are made as a session's are ([`remora_layout::verbs`]). One difference: the initiator
//! first says in how many pieces the target registers the memory for READs.

use crate::fixture::{Backend, Fixture, Shared, Target, remote};
use remora_arena::Words;
use remora_fabric::conformance;
use remora_fabric::verbs::{
    Connection, Domain, Mtu, Packets, Parts, PeerRegion, Registration, Unconnected, VerbsLink,
    access, bind_window, key_of, open, read_arenas,
};
use remora_layout::verbs::{ArenaPlace, RegionKey, VerbsEnd, VerbsReady};
use rustix::event::{PollFd, PollFlags, poll};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;
use zerocopy::little_endian::U32;
use zerocopy::{FromZeros, IntoBytes};

/// Most pieces that a target registers.
const MAX_PIECES: usize = 64;

/// Fixtures over verbs. The memory for READs is registered in this many pieces.
struct Verbs<const PIECES: usize>;

/// One whose target is in this process.
type Near<const PIECES: usize> = Fixture<Verbs<PIECES>, Target<Verbs<PIECES>>>;

/// A queue pair for the peer at the other end of this stream. The device is the one that
/// `REMORA_TEST_DEVICES` names for this end, or the best of `REMORA_RDMA_DEVICES`. Packets have the
/// settings of a client.
fn unconnected(stream: &TcpStream, end: usize) -> (Arc<Domain>, Unconnected) {
    let names = |variable| {
        let names = std::env::var(variable).unwrap_or_default();
        let names = names.split(',').filter(|name| !name.is_empty()).map(str::to_owned);
        names.collect::<Vec<_>>()
    };
    let devices = match names("REMORA_TEST_DEVICES").get(end) {
        Some(device) => vec![device.clone()],
        None => names("REMORA_RDMA_DEVICES"),
    };
    let local = stream.local_addr().unwrap().ip().to_canonical();
    let (domain, place) = open(Some(local), &devices).unwrap();
    let setting = |variable| std::env::var(variable).ok().map(|text| text.parse::<u32>().unwrap());
    let small = |variable| setting(variable).unwrap_or(0).try_into().unwrap();
    let packets = Packets {
        traffic_class: small("REMORA_RDMA_TRAFFIC_CLASS"),
        service_level: small("REMORA_RDMA_SERVICE_LEVEL"),
        pkey_index: small("REMORA_RDMA_PKEY_INDEX").into(),
        mtu: setting("REMORA_RDMA_MTU").map(|bytes| Mtu::of_bytes(bytes).unwrap()),
    };
    let unconnected = Unconnected::with_packets(&domain, &place, &packets).unwrap();
    (domain, unconnected)
}

/// The memory for READs, registered in this many pieces, and its description for the initiator.
fn register(domain: &Arc<Domain>, readable: &Words, pieces: usize) -> (Vec<Registration>, Vec<u8>) {
    let bytes = readable.bytes();
    // The pieces do not meet at the end of a page, unless there is only one.
    let piece_bytes = bytes.div_ceil(pieces).next_multiple_of(8);
    let registered: Vec<Registration> = (0..bytes)
        .step_by(piece_bytes)
        .map(|at| at..bytes.min(at + piece_bytes))
        .map(|part| Registration::readable(domain, &readable.view(), part).unwrap())
        .collect();
    assert_eq!(registered.len(), pieces);
    let place = ArenaPlace {
        address: registered[0].address().into(),
        bytes: (bytes as u64).into(),
        piece_bytes: (piece_bytes as u64).into(),
    };
    let mut told = place.as_bytes().to_vec();
    told.extend(registered.iter().flat_map(|piece| piece.rkey().to_le_bytes()));
    (registered, told)
}

impl<const PIECES: usize> Backend for Verbs<PIECES> {
    type Link = VerbsLink;
    type Connection = Connection;

    const READABLE: u32 = 0;
    const MAILBOX: u32 = 1;
    const ECHO_IMMEDIATE: Option<u32> = Some(0);

    fn target(mut stream: TcpStream, shared: &Arc<Shared>) -> Arc<Connection> {
        let mut pieces = U32::new_zeroed();
        stream.read_exact(pieces.as_mut_bytes()).unwrap();
        let pieces = pieces.get() as usize;
        assert!((1..=MAX_PIECES).contains(&pieces), "{pieces} pieces");
        let (domain, unconnected) = unconnected(&stream, 0);
        let (mut exposed, arena) = register(&domain, &shared.readable, pieces);
        let mailbox = Registration::of(&domain, &shared.mailbox, access::BY_WINDOW).unwrap();
        stream.write_all(unconnected.end().as_bytes()).unwrap();
        stream.write_all(&arena).unwrap();
        let (mut end, mut local) = (VerbsEnd::new_zeroed(), RegionKey::new_zeroed());
        stream.read_exact(end.as_mut_bytes()).unwrap();
        stream.read_exact(local.as_mut_bytes()).unwrap();
        let pair = unconnected.connect(&end).unwrap();
        let window = bind_window(&domain, &pair, &mailbox).unwrap();
        let mut ready = VerbsReady::new_zeroed();
        ready.mailbox = key_of(&mailbox, window.rkey);
        exposed.push(mailbox);
        let connection = Connection::new(Parts {
            pair,
            domain,
            control: stream.try_clone().unwrap(),
            peer: vec![PeerRegion::Mailbox(local)],
            shards: 1,
            exposed,
            windows: vec![window],
            on_immediate: Box::new({
                let shared = Arc::clone(shared);
                move |imm| shared.note(imm)
            }),
        })
        .unwrap();
        stream.write_all(ready.as_bytes()).unwrap();
        connection
    }

    /// The agent: sleeps until an immediate arrives, and answers it if the test wants an echo.
    fn serve(connection: &Arc<Connection>, shared: &Shared) {
        let mut back = VerbsLink::new(Arc::clone(connection));
        while !shared.stops() {
            connection.arm(false);
            shared.answer::<Self>(&mut back);
            let nap = Duration::from_millis(20).try_into().unwrap();
            let _ = poll(&mut [PollFd::new(&**connection, PollFlags::IN)], Some(&nap));
        }
    }

    /// A WRITE is complete once its bytes and its immediate are delivered; the
    /// target's thread takes the immediate a moment later.
    fn settle(connection: &Connection) {
        connection.pump();
    }

    fn withdraw(connection: &Connection) {
        connection.withdraw();
    }

    fn close(connection: &Connection) {
        connection.close();
    }

    fn initiator(mut stream: TcpStream, region_bytes: usize, local: &Words) -> VerbsLink {
        stream.write_all(U32::new(PIECES as u32).as_bytes()).unwrap();
        let mut end = VerbsEnd::new_zeroed();
        stream.read_exact(end.as_mut_bytes()).expect("the target has a device");
        let arena = read_arenas(&mut stream, 1).unwrap().remove(0);
        assert_eq!((arena.bytes, arena.rkeys.len()), (region_bytes as u64, PIECES));
        let (domain, unconnected) = unconnected(&stream, 1);
        let local = Registration::of(&domain, local, access::WRITE).unwrap();
        let own_end = unconnected.end();
        // First: the target may write as soon as it knows this end.
        let pair = unconnected.connect(&end).unwrap();
        stream.write_all(own_end.as_bytes()).unwrap();
        stream.write_all(key_of(&local, local.rkey()).as_bytes()).unwrap();
        let mut ready = VerbsReady::new_zeroed();
        stream.read_exact(ready.as_mut_bytes()).unwrap();
        let connection = Connection::new(Parts {
            pair,
            domain,
            control: stream,
            peer: vec![PeerRegion::Arena(arena), PeerRegion::Mailbox(ready.mailbox)],
            shards: 100,
            exposed: vec![local],
            windows: Vec::new(),
            on_immediate: Box::new(|_| {}),
        });
        VerbsLink::new(connection.unwrap())
    }
}

#[test]
fn verbs_conform() {
    conformance::run::<Near<1>>();
}

#[test]
fn verbs_conform_in_pieces() {
    conformance::run::<Near<21>>();
}

#[test]
fn no_wake_up_is_lost() {
    assert_eq!(conformance::wake_ups_are_not_lost::<Near<1>>(500), 0);
}

/// Between two processes; `bench/rdma.sh` has them on two hosts. The initiator
/// says in how many pieces.
#[test]
fn conforms_with_a_target_elsewhere() {
    remote::with_target_elsewhere::<Verbs<21>>(
        "verbs_conformance::conforms_with_a_target_elsewhere",
        || {
            remote::run::<Verbs<21>>(500);
        },
    );
}
