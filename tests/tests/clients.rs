//! Clients that die in the middle, never read, or lie: the server ends their
//! sessions, and the others are served on.

use remora_client_core::{ConnectError, Path, Session, SetOptions};
use remora_fabric::shm;
use remora_layout::frame::{FRAME_HEADER_BYTES, MAX_PAYLOAD_BYTES, first_word};
use remora_layout::hello::{ClientHello, HELLO_MAGIC, PROTOCOL_VERSION, Refusal};
use remora_layout::limits::{READ_LEASE_MS, TORN_FRAME_MS};
use remora_layout::session::{credit_word, mailbox_bytes, ring_offset};
use remora_protocol::Command;
use remora_protocol::message::{ReplyHeader, RequestHeader};
use remora_tests::proc::{anonymous_kib, descriptors};
use remora_tests::{DEADLINE, Random, RawSession, Role, ServerProcess, greet, role, wait_until};
use std::fs::Permissions;
use std::io::{Read, Write};
use std::mem::offset_of;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use zerocopy::{FromBytes, IntoBytes};

fn server() -> ServerProcess {
    ServerProcess::start(&["--shards=1", "--max-memory=32MiB"])
}

/// Sets and gets so many keys, each way; all of it has to work.
fn serve_others(session: &mut Session, rounds: u64) {
    for round in 0..rounds {
        let (key, value) = ((round % 50).to_le_bytes(), round.to_le_bytes());
        session.set(&key, &value, SetOptions::default()).unwrap();
        for path in [Path::Ask, Path::Read] {
            assert_eq!(session.get(&key, path).unwrap().value, Some(&value[..]));
        }
    }
}

fn sessions(server: &ServerProcess) -> u64 {
    server.resp().info("connected_sessions_shm")
}

fn violated(server: &ServerProcess) -> u64 {
    server.resp().info("sessions_violated")
}

/// The server still runs and takes new clients.
fn is_well(server: &mut ServerProcess) {
    assert!(server.is_alive(), "{}", server.log());
    assert!(!server.log().contains("panic"), "{}", server.log());
    serve_others(&mut server.session(), 50);
}

#[test]
fn plays_its_part() {
    let Some((name, arguments)) = role() else { return };
    let mut raw = RawSession::connect(std::path::Path::new(&arguments[0]));
    if name == "half a frame" {
        let mut payload = Vec::new();
        Command::Del { key: &[b'k'; 1000] }.encode_into(1, &mut payload);
        let frame = raw.first_frame(&payload);
        raw.to_server().copy_in(ring_offset(0), &frame[..frame.len() / 2]);
        raw.ring_bell();
    } else {
        // Until ring and credit are used up for some time.
        let (mut sent, mut full) = (0, 0);
        while full < 20 {
            if raw.send(&Command::Get { key: b"large" }, sent) {
                (sent, full) = (sent + 1, 0);
            } else {
                full += 1;
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    }
    Role::say("done");
    Role::wait_for_end();
}

#[test]
fn a_client_killed_in_the_middle_of_a_frame_holds_nobody_up() {
    let mut server = server();
    let mut other = server.session();
    serve_others(&mut other, 10);
    let before = sessions(&server);
    for _ in 0..3 {
        let mut client =
            Role::start(module_path!(), "half a frame", &[server.socket().to_str().unwrap()]);
        assert_eq!(client.hear().as_deref(), Some("done"));
        assert_eq!(sessions(&server), before + 1);
        serve_others(&mut other, 200);
        client.kill();
        serve_others(&mut other, 200);
        wait_until("the session is taken down", || sessions(&server) == before);
    }
    is_well(&mut server);
}

#[test]
fn a_torn_frame_that_never_completes_ends_its_session() {
    let mut server = server();
    let mut other = server.session();
    let raw = RawSession::connect(&server.socket());
    let frame = raw.first_frame(&[7; 500]);
    let torn = Instant::now();
    raw.to_server().copy_in(ring_offset(0), &frame[..200]);
    raw.ring_bell();
    wait_until("the session ends", || {
        serve_others(&mut other, 20);
        raw.is_withdrawn()
    });
    let borne = torn.elapsed();
    println!("borne for {borne:?}");
    assert!(borne >= Duration::from_millis(TORN_FRAME_MS), "{borne:?}");
    assert_eq!(violated(&server), 1);
    is_well(&mut server);
}

#[test]
fn a_frame_in_two_parts_is_served_once_it_is_whole() {
    // A machine that holds up the test for TORN_FRAME_MS between the parts ends
    // the session; then the test takes another one.
    wait_until("a frame is completed in time", frame_in_two_parts_is_served);
}

/// Writes the header of a frame, and the rest after the shard has looked at it.
/// Returns false if the rest came too late.
fn frame_in_two_parts_is_served() -> bool {
    let server = server();
    let mut resp = server.resp();
    let mut raw = RawSession::connect(&server.socket());
    let mut payload = Vec::new();
    Command::Exists { key: b"k" }.encode_into(9, &mut payload);
    let frame = raw.first_frame(&payload);
    let busy = resp.info("shard_busy_us");
    // First word last but one word: as a NIC without order would write it.
    let torn = Instant::now();
    raw.to_server().copy_in(ring_offset(0), &frame[..FRAME_HEADER_BYTES]);
    raw.ring_bell();
    wait_until("the shard looks at the frame, or ends the session", || {
        resp.info("shard_busy_us") > busy + 1_000 || raw.is_withdrawn()
    });
    assert!(raw.receive().is_none());
    let rest = &frame[FRAME_HEADER_BYTES..];
    raw.to_server().copy_in(ring_offset(0) + FRAME_HEADER_BYTES, rest);
    raw.ring_bell();
    wait_until("the reply, or the end", || raw.receive().is_some() || raw.is_withdrawn());
    if raw.is_withdrawn() {
        assert!(torn.elapsed() >= Duration::from_millis(TORN_FRAME_MS), "it ended early");
        return false;
    }
    assert_eq!(violated(&server), 0);
    true
}

#[test]
fn a_client_that_never_reads_holds_up_only_itself() {
    let server = server();
    let mut other = server.session();
    let value = vec![b'v'; 60_000];
    other.set(b"large", &value, SetOptions::default()).unwrap();
    let resident = anonymous_kib(server.pid());
    let mut raw = RawSession::connect(&server.socket());
    // It asks until ring and credit are used up: until there is still no room
    // after the shard has served others many times.
    let (mut sent, mut full) = (0, 0);
    while full < 20 {
        if raw.send(&Command::Get { key: b"large" }, sent) {
            (sent, full) = (sent + 1, 0);
        } else {
            serve_others(&mut other, 10);
            full += 1;
        }
    }
    let grown = anonymous_kib(server.pid()).saturating_sub(resident);
    println!("{sent} requests of 60 kB each unread, {grown} KiB more at the server");
    assert!(sent > 1000, "{sent}");
    assert!(grown < 16 << 10, "{grown} KiB");
    assert!(!raw.is_withdrawn(), "slow is not hostile");
    serve_others(&mut other, 500);
    // Now it reads: everything comes, in order.
    for id in 0..sent {
        let mut reply = None;
        wait_until("the next reply", || {
            reply = raw.receive();
            reply.is_some()
        });
        let reply = reply.unwrap();
        let (header, rest) = ReplyHeader::read_from_prefix(&reply).unwrap();
        assert_eq!((header.id.get(), header.status), (id, 0));
        assert_eq!(rest, value);
    }
    assert!(raw.receive().is_none());
    assert!(raw.send(&Command::Get { key: b"large" }, sent), "there is room again");
    wait_until("a reply", || raw.receive().is_some());
    assert_eq!(violated(&server), 0);
}

#[test]
fn a_client_that_never_reads_and_is_killed_leaves_nothing() {
    let mut server = server();
    let mut other = server.session();
    other.set(b"large", &[1; 60_000], SetOptions::default()).unwrap();
    let (before, resident) = (sessions(&server), anonymous_kib(server.pid()));
    for _ in 0..5 {
        let mut client =
            Role::start(module_path!(), "never reads", &[server.socket().to_str().unwrap()]);
        assert_eq!(client.hear().as_deref(), Some("done"));
        serve_others(&mut other, 100);
        client.kill();
        serve_others(&mut other, 100);
        wait_until("the session is taken down", || sessions(&server) == before);
    }
    let grown = anonymous_kib(server.pid()).saturating_sub(resident);
    assert!(grown < 16 << 10, "{grown} KiB");
    is_well(&mut server);
}

#[test]
fn an_impossible_length_ends_the_session() {
    let mut server = server();
    for (count, length) in [MAX_PAYLOAD_BYTES as u32 + 1, u32::MAX - 1, 1 << 31].iter().enumerate()
    {
        let raw = RawSession::connect(&server.socket());
        let word = first_word(0, *length, raw.seed());
        raw.to_server().copy_in(ring_offset(0), &word.to_le_bytes());
        raw.ring_bell();
        wait_until("the session ends", || raw.is_withdrawn());
        assert_eq!(violated(&server), count as u64 + 1);
    }
    is_well(&mut server);
}

#[test]
fn credit_for_what_was_never_sent_ends_the_session() {
    let mut server = server();
    server.session().set(b"large", &[1; 60_000], SetOptions::default()).unwrap();
    for (count, credit) in [u64::MAX, 1 << 40, 1 << 63].into_iter().enumerate() {
        let mut raw = RawSession::connect(&server.socket());
        raw.give_credit(credit);
        // The server looks at credit when it needs some.
        for id in 0..20 {
            let _ = raw.send(&Command::Get { key: b"large" }, id);
        }
        wait_until("the session ends", || raw.is_withdrawn());
        assert_eq!(violated(&server), count as u64 + 1);
    }
    is_well(&mut server);
}

#[test]
fn random_bytes_all_over_the_mailbox_harm_nobody_else() {
    let mut server = server();
    let mut other = server.session();
    let mut random = Random::new(11);
    let mut raws = Vec::new();
    for round in 0..30 {
        let raw = RawSession::connect(&server.socket());
        // Of two ring sets.
        let bytes = 2 * mailbox_bytes(raw.connected.arenas.len());
        raw.to_server().copy_in(0, &random.bytes(bytes));
        if round % 2 == 0 {
            // The right sequence, so that the rest is looked at.
            let length = random.below(1 << 20) as u32;
            let word = first_word(0, length, raw.seed());
            raw.to_server().copy_in(ring_offset(0), &word.to_le_bytes());
        }
        raw.ring_bell();
        serve_others(&mut other, 5);
        let at = credit_word(0) * 8;
        raw.to_server().copy_in(at, &random.bits().to_le_bytes());
        raws.push(raw);
    }
    wait_until("hostile sessions are ended, and counted", || {
        let ended = raws.iter().filter(|raw| raw.is_withdrawn()).count() as u64;
        ended >= 5 && ended == violated(&server)
    });
    is_well(&mut server);
}

#[test]
fn whole_frames_with_senseless_requests_are_answered_as_such() {
    let mut server = server();
    let mut random = Random::new(12);
    let mut answered = 0;
    for _ in 0..200 {
        let mut raw = RawSession::connect(&server.socket());
        let count = random.below(200);
        let mut payload = random.bytes(count);
        if let Some(op) = payload.first_mut() {
            *op = random.below(12) as u8;
        }
        let session_at = offset_of!(RequestHeader, id) + 2;
        if let Some(session) = payload.get_mut(session_at..session_at + 2) {
            // The one whose ring it stands in: there the reply comes.
            session.fill(0);
        }
        raw.to_server().copy_in(ring_offset(0), &raw.first_frame(&payload));
        raw.ring_bell();
        wait_until("an answer or the end", || {
            let came = raw.receive().is_some();
            answered += came as u32;
            came || raw.is_withdrawn()
        });
    }
    println!("{answered} of 200 answered");
    is_well(&mut server);
}

fn hello(magic: u64, version: u32) -> ClientHello {
    let honest = remora_fabric::client_hello(remora_fabric::detect::Wanted::Shm);
    ClientHello { magic: magic.into(), version: version.into(), ..honest }
}

#[test]
fn strange_hellos_are_refused_with_the_reason() {
    let mut server = server();
    for (hello, refusal) in [
        (hello(0x1234, PROTOCOL_VERSION), Refusal::NotAHello),
        (hello(u64::MAX, u32::MAX), Refusal::NotAHello),
        (hello(HELLO_MAGIC, PROTOCOL_VERSION + 1), Refusal::Version),
        (hello(HELLO_MAGIC, 0), Refusal::Version),
    ] {
        let (mut socket, answer, fds) = greet(&server.socket(), &hello).unwrap();
        assert_eq!(Refusal::from_number(answer.refusal.get()), Some(refusal));
        assert!(fds.is_empty(), "memory for a stranger");
        assert_eq!(socket.read(&mut [0; 8]).unwrap(), 0, "and the socket is closed");
    }
    // One of another version may be shorter, and is not waited for.
    let mut old = UnixStream::connect(server.socket()).unwrap();
    old.write_all(&hello(HELLO_MAGIC, 6).as_bytes()[..40]).unwrap();
    let mut head = [0; 16];
    old.read_exact(&mut head).unwrap();
    assert_eq!(head[12], Refusal::Version as u8);
    assert!(Refusal::Version.to_string().contains("different protocol versions"));
    assert_eq!(sessions(&server), 0);
    let nowhere = shm::connect(std::path::Path::new("/nowhere/s"));
    assert!(matches!(nowhere, Err(ConnectError::Unreachable { .. })));
    is_well(&mut server);
}

#[test]
fn half_a_hello_and_silence_is_cut_off_and_holds_nobody_up() {
    let mut server = server();
    let mut half = UnixStream::connect(server.socket()).unwrap();
    half.write_all(&hello(HELLO_MAGIC, PROTOCOL_VERSION).as_bytes()[..8]).unwrap();
    let mut other = server.session();
    serve_others(&mut other, 100);
    half.set_read_timeout(Some(DEADLINE)).unwrap();
    assert_eq!(half.read(&mut [0; 8]).unwrap(), 0, "cut off");
    // In two halves it is as good as in one.
    let mut slow = UnixStream::connect(server.socket()).unwrap();
    let whole = hello(HELLO_MAGIC, PROTOCOL_VERSION);
    slow.write_all(&whole.as_bytes()[..8]).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    slow.write_all(&whole.as_bytes()[8..]).unwrap();
    wait_until("it is granted", || sessions(&server) == 2);
    is_well(&mut server);
}

#[test]
fn five_hundred_connects_and_disconnects_leave_nothing() {
    let mut server = server();
    let mut other = server.session();
    serve_others(&mut other, 10);
    let open = descriptors(server.pid());
    for round in 0..500u64 {
        let mut session = server.session();
        if round % 10 == 0 {
            serve_others(&mut session, 1);
            serve_others(&mut other, 1);
        }
    }
    wait_until("all are taken down", || sessions(&server) == 1);
    wait_until("descriptors are closed", || descriptors(server.pid()) <= open + 1);
    assert_eq!(server.resp().info("total_sessions_granted"), 501);
    is_well(&mut server);
}

/// After its hello a client has nothing to say on the socket; one that floods
/// it must not keep heartbeats and new sessions from the others.
#[test]
fn a_client_that_floods_its_control_socket_holds_nobody_up() {
    let mut server = server();
    let mut other = server.session();
    other.set(b"k", b"v", SetOptions::default()).unwrap();
    let raw = RawSession::connect(&server.socket());
    let mut socket = raw.connected.socket.try_clone().unwrap();
    socket.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let flood = std::thread::spawn({
        let stop = Arc::clone(&stop);
        move || {
            let bytes = vec![b'x'; 1 << 16];
            let mut written = 0u64;
            while !stop.load(Ordering::Relaxed) {
                match socket.write(&bytes) {
                    Ok(count) => written += count as u64,
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                    Err(_) => break, // The server may end it for that.
                }
            }
            written
        }
    });
    // A read lease that a reply gave ends after READ_LEASE_MS. What is read later was read
    // by a read lease that a heartbeat gave.
    let (mut asked_at, mut by_heartbeats) = (Instant::now(), 0);
    wait_until("heartbeats come during the flood", || {
        let began = Instant::now();
        let got = other.get(b"k", Path::Read).unwrap();
        if got.counts.asked > 0 {
            asked_at = Instant::now();
        } else if began - asked_at > Duration::from_millis(READ_LEASE_MS) {
            by_heartbeats += 1;
        }
        by_heartbeats >= 100
    });
    let connected = shm::connect(&server.socket()).map(|_| ());
    stop.store(true, Ordering::Relaxed);
    let written = flood.join().unwrap();
    println!("{written} bytes of flood; connected {connected:?}");
    assert!(connected.is_ok());
    is_well(&mut server);
}

/// The server asks the kernel who is at the other end of its socket. Needs root, to be another user.
#[test]
fn another_user_of_the_machine_gets_no_session() {
    if !rustix::process::geteuid().is_root() {
        return println!("not tested: only root can be another user");
    }
    let mut server = server();
    // The modes of the socket and its directories keep others out as well.
    let socket = server.socket();
    for path in socket.ancestors().take(3) {
        let mode = if path == socket { 0o666 } else { 0o755 };
        std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }
    // It says that it is the server's user.
    let lie = hello(HELLO_MAGIC, PROTOCOL_VERSION);
    let (refusal, fds) = std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            // Of this thread alone, which ends.
            let nobody = Some(rustix::thread::Uid::from_raw(12_345));
            rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
            let (_, answer, fds) = greet(&socket, &lie).unwrap();
            (Refusal::from_number(answer.refusal.get()), fds.len())
        });
        other.join().unwrap()
    });
    assert_eq!((refusal, fds), (Some(Refusal::OtherUser), 0));
    assert_eq!(sessions(&server), 0);
    is_well(&mut server);
}
