//! The operations of a hostile client with raw verbs in a session: it can do nothing beyond its
//! grants. Each refusal has its control beside it: the same operation succeeds for the client that
//! has the grant. They need devices: the virtual machine of `make rxe` runs them.

use crate::verbs_world::{ARENA, ARENA_BYTES, MAILBOX_BYTES, Raw, Server, Session, bare, content};
use remora_arena::{Mapping, Words};
use remora_fabric::conformance::DEADLINE;
use remora_fabric::verbs::{
    Registration, Verb, VerbsLink, access, bind_window, is_software, key_of,
};
use remora_fabric::{Link, LinkError, RemoteAddress, Waited, Work};
use remora_verbs_sys::*;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Not a word of any arena.
const EVIL: u64 = 0xbad0_bad0_bad0_bad0;

/// An attack: its operation on the client's end, and its status.
type Attack<'a> = &'a dyn Fn(&mut Raw) -> u32;

/// Each attack comes from a client of its own, which could READ and WRITE its own memory just
/// before. The device denies the attack, and the arena does not change.
fn denied(server: &Server, name: &str, attack: Attack<'_>) {
    let (session, mut client) = server.session();
    let before = content(&server.arena);
    let (arena, mailbox) = (client.arena, client.mailbox);
    let word = client.read(arena.address.get() + 8, arena.rkey.get());
    assert_eq!(word, Ok(1), "{name}: the honest READ");
    let written = client.write(mailbox.address.get() + 8, mailbox.rkey.get(), 77);
    assert_eq!((written, session.mailbox.load_acquire(1)), (IBV_WC_SUCCESS, 77), "{name}");
    assert_eq!(attack(&mut client), IBV_WC_REM_ACCESS_ERR, "{name}");
    assert_eq!(content(&server.arena), before, "{name}: the arena has changed");
    let mut expected = vec![0; MAILBOX_BYTES / 8];
    expected[1] = 77;
    assert_eq!(content(&session.mailbox), expected, "{name}: the mailbox has changed");
}

fn read(client: &mut Raw, at: u64, rkey: u32) -> u32 {
    client.read(at, rkey).err().unwrap_or(IBV_WC_SUCCESS)
}

/// An arena in pieces, whose words are their own numbers.
#[test]
fn an_arena_in_pieces_is_read_whole_and_each_key_reaches_its_piece_only() {
    const PIECE: usize = ARENA_BYTES / 4 + 8;
    let server = Server::in_pieces(PIECE);
    denied(&server, "a READ over a piece's end with its key", &|client| {
        let (at, rkey) = (client.whole.address, client.whole.rkeys[0]);
        // The control: each piece can be read to its end.
        assert_eq!(client.read(at + PIECE as u64 - 8, rkey), Ok(PIECE as u64 / 8 - 1));
        assert_eq!(client.read(at + PIECE as u64, client.whole.rkeys[1]), Ok(PIECE as u64 / 8));
        client.run(Verb::Read, at + PIECE as u64 - 8, rkey, 16)
    });
    denied(&server, "a READ behind the last piece", &|client| {
        let (end, rkey) = (client.whole.address + ARENA_BYTES as u64, client.whole.rkeys[3]);
        assert_eq!(client.read(end - 8, rkey), Ok(ARENA_BYTES as u64 / 8 - 1));
        client.run(Verb::Read, end - 8, rkey, 16)
    });
    denied(&server, "a WRITE into the second piece", &|client| {
        let (at, rkey) = (client.whole.address + PIECE as u64, client.whole.rkeys[1]);
        client.write(at, rkey, EVIL)
    });
    let (_session, raw) = server.session();
    assert_eq!(raw.whole.rkeys.len(), 4);
    let mut link = VerbsLink::new(raw.into_connection());
    link.reserve_landing(ARENA_BYTES);
    let mut read = |offset: usize, bytes| {
        let from = RemoteAddress { region: ARENA, offset: offset as u64 };
        link.post(&[Work::Read { id: 5, from, into: 0, bytes }]);
        let done = loop {
            if let Some(done) = link.poll() {
                break done;
            }
            assert_ne!(link.wait(Some(DEADLINE)), Waited::TimedOut);
        };
        assert_eq!(done.id, 5);
        assert_eq!(link.poll(), None, "one READ, one completion");
        done.result.map(|()| link.landed(0, bytes).to_vec())
    };
    let words = |offset: usize, bytes: usize| -> Vec<u8> {
        (offset / 8..(offset + bytes) / 8).flat_map(|word| (word as u64).to_le_bytes()).collect()
    };
    // Within a piece, up to its end, over one end, over several, all, the last.
    for (offset, bytes) in [
        (0, 64),
        (PIECE - 64, 64),
        (PIECE - 8, 16),
        (PIECE, 64),
        (PIECE - 16, PIECE + 32),
        (0, ARENA_BYTES),
        (ARENA_BYTES - 8, 8),
        (ARENA_BYTES, 0),
    ] {
        assert!(read(offset, bytes) == Ok(words(offset, bytes)), "{offset} {bytes}");
    }
    let (region, offset, bytes) = (ARENA, ARENA_BYTES as u64 - 8, 16);
    let beyond = Err(LinkError::OutOfBounds { region, offset, bytes });
    assert_eq!(read(ARENA_BYTES - 8, 16), beyond);
}

#[test]
fn an_arena_cannot_be_written_nor_read_beyond_its_ends() {
    let server = Server::new();
    let whole = |client: &Raw| (client.arena.address.get(), client.arena.rkey.get());
    denied(&server, "a WRITE into the arena", &|client| {
        let (at, rkey) = whole(client);
        client.write(at, rkey, EVIL)
    });
    denied(&server, "a WRITE with an immediate into the arena", &|client| {
        let (at, rkey) = whole(client);
        client.memory.store(0, &EVIL.to_le_bytes());
        client.run(Verb::Write(Some(0)), at, rkey, 8)
    });
    denied(&server, "a long WRITE into the arena", &|client| {
        let (at, rkey) = whole(client);
        client.memory.store(0, &[0xee; 16 << 10]);
        client.run(Verb::Write(None), at, rkey, 16 << 10)
    });
    denied(&server, "a READ before the arena", &|client| {
        let (at, rkey) = whole(client);
        read(client, at - 8, rkey)
    });
    denied(&server, "a READ behind the arena", &|client| {
        let (at, rkey) = whole(client);
        let end = at + client.arena.bytes.get();
        // The control: the last word can be read.
        assert_eq!(client.read(end - 8, rkey), Ok(client.arena.bytes.get() / 8 - 1));
        read(client, end, rkey)
    });
    denied(&server, "a READ over the arena's end", &|client| {
        let (at, rkey) = whole(client);
        let last = at + client.arena.bytes.get() - 8;
        client.run(Verb::Read, last, rkey, 16)
    });
    denied(&server, "a READ of the arena by the mailbox's key", &|client| {
        let (at, rkey) = (client.arena.address.get(), client.mailbox.rkey.get());
        read(client, at, rkey)
    });
}

#[test]
fn a_mailbox_can_be_written_within_its_bounds_and_not_be_read() {
    let server = Server::new();
    let window = |client: &Raw| {
        let key = client.mailbox;
        (key.address.get(), key.address.get() + key.bytes.get(), key.rkey.get())
    };
    denied(&server, "a READ of the mailbox", &|client| {
        let (at, _, rkey) = window(client);
        read(client, at, rkey)
    });
    denied(&server, "a WRITE before the mailbox", &|client| {
        let (at, _, rkey) = window(client);
        client.write(at - 8, rkey, EVIL)
    });
    denied(&server, "a WRITE behind the mailbox", &|client| {
        let (_, end, rkey) = window(client);
        // The control: the last word can be written. The test restores it.
        assert_eq!(client.write(end - 8, rkey, 0), IBV_WC_SUCCESS);
        client.write(end, rkey, EVIL)
    });
    denied(&server, "a WRITE over the mailbox's end", &|client| {
        let (_, end, rkey) = window(client);
        client.memory.store(0, &[0xee; 16]);
        client.run(Verb::Write(None), end - 8, rkey, 16)
    });
    denied(&server, "a WRITE by another key of the mailbox's window", &|client| {
        let (at, _, rkey) = window(client);
        client.write(at, rkey ^ 1, EVIL)
    });
    denied(&server, "a WRITE into the mailbox by the arena's key", &|client| {
        let at = client.mailbox.address.get();
        client.write(at, client.arena.rkey.get(), EVIL)
    });
}

#[test]
fn another_clients_mailbox_is_out_of_reach_with_its_key() {
    let server = Server::new();
    let (victim, mut owner) = server.session();
    let (at, rkey) = (owner.mailbox.address.get(), owner.mailbox.rkey.get());
    denied(&server, "a WRITE into another's mailbox", &|client| client.write(at, rkey, EVIL));
    denied(&server, "a READ of another's mailbox", &|client| read(client, at, rkey));
    denied(&server, "a WRITE into another's mailbox by the own key", &|client| {
        client.write(at, client.mailbox.rkey.get(), EVIL)
    });
    denied(&server, "a WRITE into the own mailbox by another's key", &|client| {
        client.write(client.mailbox.address.get(), rkey, EVIL)
    });
    assert!(content(&victim.mailbox).iter().all(|word| *word == 0));
    // The control: the owner can do it with the same key, after all attacks.
    assert_eq!(owner.write(at, rkey, 5), IBV_WC_SUCCESS);
    assert_eq!(victim.mailbox.load_acquire(0), 5);
}

/// A mailbox as `accept` makes it, whose registration and window the test
/// holds.
#[test]
fn the_key_of_a_registration_is_none_and_a_freed_window_is_the_end() {
    for attack in ["rkey", "lkey", "freed"] {
        let server = Server::new();
        let (far_domain, far, mut client, _control) = bare();
        let mailbox = Words::new(Mapping::heap(MAILBOX_BYTES));
        let arena =
            Registration::readable(&far_domain, &server.arena.view(), 0..ARENA_BYTES).unwrap();
        let memory = Registration::of(&far_domain, &mailbox, access::BY_WINDOW).unwrap();
        let window = bind_window(&far_domain, &far, &memory).unwrap();
        let key = key_of(&memory, window.rkey);
        let at = key.address.get();
        assert_eq!(client.write(at, window.rkey, 5), IBV_WC_SUCCESS);
        assert_eq!(mailbox.load_acquire(0), 5);
        let status = match attack {
            "rkey" => client.write(at, memory.rkey(), EVIL),
            "lkey" => client.write(at, memory.lkey(), EVIL),
            _ => {
                let rkey = window.rkey;
                drop(window);
                // The queue pair is not broken.
                assert_eq!(client.read(arena.address() + 8, arena.rkey()), Ok(1));
                client.write(at, rkey, EVIL)
            }
        };
        assert_eq!(status, IBV_WC_REM_ACCESS_ERR, "{attack}");
        assert_eq!(mailbox.load_acquire(0), 5, "{attack}");
    }
}

/// The server's end of a session fails by the client's fault.
fn is_found_out(session: &Session) {
    let end = Instant::now() + DEADLINE;
    while session.connection.failure().is_none() {
        session.connection.pump();
        assert!(Instant::now() < end, "the server does not notice");
    }
    let failure = session.connection.failure();
    assert!(matches!(failure, Some(LinkError::Violation(_))), "{failure:?}");
}

/// A message can name a key for the peer's device to invalidate.
#[test]
fn no_client_invalidates_an_arena() {
    let server = Server::new();
    let (_session, mut honest) = server.session();
    let (at, rkey) = (honest.arena.address.get() + 8, honest.arena.rkey.get());
    for key in [rkey, rkey ^ 1] {
        let (session, mut hostile) = server.session();
        println!("an arena's key {key:#x} is invalidated: status {}", hostile.invalidate(key));
        is_found_out(&session);
        assert_eq!(honest.read(at, rkey), Ok(1));
        let (_session, mut fresh) = server.session();
        assert_eq!(fresh.read(at, rkey), Ok(1));
    }
}

/// A key that differs in its random bits, the own key, another client's key. One key is never named
/// twice: that crashes the kernel of a server on Soft-RoCE (docs/assumptions.md, D9).
#[test]
fn who_invalidates_a_window_loses_its_own_session() {
    let server = Server::new();
    let (session, mut victim) = server.session();
    let (at, rkey) = (victim.mailbox.address.get(), victim.mailbox.rkey.get());
    let before = content(&server.arena);
    for attack in ["beside", "own", "another's"] {
        let (hostile_session, mut hostile) = server.session();
        let own = (hostile.mailbox.address.get(), hostile.mailbox.rkey.get());
        let key = match attack {
            "beside" => rkey ^ 1,
            "own" => own.1,
            _ => rkey,
        };
        let status = hostile.invalidate(key);
        is_found_out(&hostile_session);
        assert_ne!(hostile.write(own.0, own.1, EVIL), IBV_WC_SUCCESS, "{attack}");
        assert!(content(&hostile_session.mailbox).iter().all(|word| *word == 0), "{attack}");
        let reached = victim.write(at, rkey, 5);
        println!("{attack} key is invalidated: status {status}; its owner's WRITE: {reached}");
        // Soft-RoCE does not check the owner of a window.
        if attack != "another's" || !is_software(session.connection.device()) {
            assert_eq!(reached, IBV_WC_SUCCESS, "{attack}");
        }
        assert_eq!(session.mailbox.load_acquire(0), 5, "{attack}");
    }
    assert_eq!(content(&server.arena), before);
    // Other clients are not affected.
    let (session, mut fresh) = server.session();
    let key = fresh.mailbox;
    assert_eq!(fresh.write(key.address.get(), key.rkey.get(), 6), IBV_WC_SUCCESS);
    assert_eq!(session.mailbox.load_acquire(0), 6);
}

#[test]
fn a_withdrawn_client_executes_nothing_more_however_busy_it_is() {
    let server = Server::new();
    let (session, mut client) = server.session();
    let (at, rkey) = (client.mailbox.address.get(), client.mailbox.rkey.get());
    let arena = client.arena;
    let withdrawn = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut count = 0;
            // Ends when the peer is gone: the tries are exhausted.
            loop {
                count += 1;
                let status = client.write(at, rkey, count);
                if status != IBV_WC_SUCCESS {
                    break (count, status);
                }
                assert!(count < 1 << 20 || !withdrawn.load(Ordering::Acquire), "it goes on");
            }
        });
        // The control: it is busy.
        while session.mailbox.load_acquire(0) < 20 {
            std::thread::sleep(Duration::from_millis(1));
        }
        session.connection.withdraw();
        let last = session.mailbox.load_acquire(0);
        withdrawn.store(true, Ordering::Release);
        let (count, status) = writer.join().unwrap();
        assert_eq!(session.mailbox.load_acquire(0), last, "it was executed afterwards");
        // The last operation was executed without an answer, or not at all.
        assert!(count - last <= 1, "{count} {last}");
        // The server closes its window first, then its queue pair.
        assert!([IBV_WC_REM_ACCESS_ERR, IBV_WC_RETRY_EXC_ERR].contains(&status), "{status}");
    });
    // It can no longer READ.
    assert!(client.read(arena.address.get(), arena.rkey.get()).is_err());
    // The control: a fresh session of the same server works.
    let (_session, mut client) = server.session();
    let arena = client.arena;
    assert_eq!(client.read(arena.address.get() + 16, arena.rkey.get()), Ok(2));
}
