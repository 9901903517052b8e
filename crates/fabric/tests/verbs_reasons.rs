//! The reasons for which connections over RDMA end, and the effects of an end. Operations fail with
//! one reason, none is repeated, landing memory is not written, and a fresh connection works. They
//! need devices: the virtual machine of `make rxe` runs them.

use crate::verbs_world::{
    ARENA, ARENA_BYTES, MAILBOX, MAILBOX_BYTES, Server, Session, bare, be_asked_again_soon,
};
use remora_arena::{Mapping, Words};
use remora_fabric::conformance::DEADLINE;
use remora_fabric::verbs::{Connection, Registration, VerbsLink, access, key_of};
use remora_fabric::{Completion, Link, LinkError, RemoteAddress, Waited, Work};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

fn read(id: u64, word: u64) -> Work<'static> {
    let from = RemoteAddress { region: ARENA, offset: word * 8 };
    Work::Read { id, from, into: 0, bytes: 8 }
}

fn write(id: u64, bytes: &[u8; 8]) -> Work<'_> {
    let to = RemoteAddress { region: MAILBOX, offset: 0 };
    Work::Write { id, to, bytes, imm: Some(0) }
}

fn completion(link: &mut VerbsLink) -> Completion {
    loop {
        if let Some(completion) = link.poll() {
            return completion;
        }
        assert_ne!(link.wait(Some(DEADLINE)), Waited::TimedOut, "an operation does not end");
    }
}

fn honest(server: &Server) -> (Session, Arc<Connection>, VerbsLink) {
    let (session, connection, mut link) = connected(server);
    works(&session, &mut link);
    (session, connection, link)
}

/// The same, before anything was read or written.
fn connected(server: &Server) -> (Session, Arc<Connection>, VerbsLink) {
    let (session, raw) = server.session();
    let connection = raw.into_connection();
    let mut link = VerbsLink::new(Arc::clone(&connection));
    link.reserve_landing(ARENA_BYTES);
    (session, connection, link)
}

/// READs and WRITEs succeed, and every completion is of an operation that this link posted.
fn works(session: &Session, link: &mut VerbsLink) {
    link.post(&[write(1, &7u64.to_le_bytes()), read(2, 3)]);
    for id in [1, 2] {
        assert_eq!(completion(link), Completion { id, result: Ok(()) });
    }
    assert_eq!(link.landed(0, 8), 3u64.to_le_bytes());
    assert_eq!(session.mailbox.load_acquire(0), 7);
    session.connection.pump();
    assert_eq!(std::mem::take(&mut *session.told.lock().unwrap()), [0]);
    session.mailbox.store_release(0, 0);
}

/// Posts a batch on a connection that has ended. Each operation fails for this reason, and so do
/// later ones and those of a new link.
fn fails(connection: &Arc<Connection>, link: &mut VerbsLink, reason: LinkError) {
    link.post(&[write(11, &9u64.to_le_bytes()), read(12, 4), write(13, &9u64.to_le_bytes())]);
    for id in [11, 12, 13] {
        assert_eq!(completion(link), Completion { id, result: Err(reason) });
    }
    assert_eq!(link.poll(), None);
    assert_eq!(link.failure(), Some(reason));
    assert_eq!(connection.failure(), Some(reason));
    link.post(&[read(14, 5)]);
    assert_eq!(completion(link), Completion { id: 14, result: Err(reason) });
    let mut other = VerbsLink::new(Arc::clone(connection));
    assert_eq!(other.wait(Some(DEADLINE)), Waited::Failed(reason));
}

/// Nothing of the failed operations was executed then or is later.
fn not_repeated(server: &Server, failed: &Session) {
    let (session, _connection, mut link) = honest(server);
    std::thread::sleep(Duration::from_millis(300));
    failed.connection.pump();
    assert_eq!(failed.mailbox.load_acquire(0), 0);
    assert!(failed.told.lock().unwrap().is_empty());
    session.connection.pump();
    assert!(session.told.lock().unwrap().is_empty());
    works(&session, &mut link);
}

/// The virtual machine's commands to cut and restore the connection.
fn cable(action: &str) {
    let net = std::env::var("REMORA_RXE_NET").expect("the virtual machine says how");
    let script = format!("source {net}; rxe_count=2; {action} 0");
    assert!(Command::new("bash").args(["-c", &script]).status().unwrap().success(), "{action}");
}

/// Each test would consume the events that wake the other.
#[test]
#[should_panic(expected = "driven by an agent or by links that wait, not by both")]
fn a_link_cannot_wait_where_an_agent_serves() {
    let server = Server::new();
    let (session, _raw) = server.session();
    session.connection.serve();
    VerbsLink::new(Arc::clone(&session.connection)).wait(Some(Duration::from_millis(1)));
}

#[test]
#[should_panic(expected = "driven by an agent or by links that wait, not by both")]
fn an_agent_cannot_serve_where_a_link_has_waited() {
    let server = Server::new();
    let (session, _raw) = server.session();
    VerbsLink::new(Arc::clone(&session.connection)).wait(Some(Duration::from_millis(1)));
    session.connection.serve();
}

#[test]
fn a_pulled_cable_is_no_answer() {
    let server = Server::new();
    let (session, connection, mut link) = honest(&server);
    cable("rxe_unplug");
    fails(&connection, &mut link, LinkError::NoAnswer);
    cable("rxe_plug");
    not_repeated(&server, &session);
}

#[test]
fn a_peer_whose_queue_pair_is_gone_without_a_word_is_no_answer() {
    let server = Server::new();
    let (session, connection, mut link) = honest(&server);
    // The control connection stays open: `session.control` is its other half.
    let Session { connection: far, control: _open, told, mailbox } = session;
    drop(far);
    fails(&connection, &mut link, LinkError::NoAnswer);
    assert!(told.lock().unwrap().is_empty());
    assert_eq!(mailbox.load_acquire(0), 0);
    honest(&server);
}

#[test]
fn a_wrong_key_is_denied_and_the_server_knows_whose_fault_it_was() {
    let server = Server::new();
    let (session, mut raw) = server.session();
    raw.mailbox.rkey = raw.arena.rkey;
    let connection = raw.into_connection();
    let mut link = VerbsLink::new(Arc::clone(&connection));
    link.reserve_landing(8);
    fails(&connection, &mut link, LinkError::Denied);
    // The server's end breaks too, because of its peer.
    let end = Instant::now() + DEADLINE;
    while session.connection.failure().is_none() {
        session.connection.pump();
        assert!(Instant::now() < end, "the server does not notice");
    }
    let failure = session.connection.failure();
    assert!(matches!(failure, Some(LinkError::Violation(_))), "{failure:?}");
    not_repeated(&server, &session);
}

/// Serves as a server's agent does, until `is_over`.
fn agent(connection: &Connection, is_over: &AtomicBool) {
    connection.serve();
    while !is_over.load(Ordering::SeqCst) {
        let kick = connection.end_fd();
        let mut fds = [PollFd::new(connection, PollFlags::IN), PollFd::new(&kick, PollFlags::IN)];
        let a_while = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
        // An agent serves only when it has an event.
        if poll(&mut fds, Some(&a_while)).is_ok_and(|ready| ready > 0) {
            // An agent takes each kick once.
            let _ = rustix::io::read(kick, &mut [0; 8]);
            connection.serve();
        }
    }
}

#[test]
fn what_the_device_has_no_room_for_goes_out_though_nobody_looks_at_the_link() {
    let server = Server::new();
    let (session, raw) = server.session();
    let (own, key) = (raw.own.clone(), raw.own_key());
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| agent(&session.connection, &is_over));
        let mut back = VerbsLink::new(Arc::clone(&session.connection));
        // Each batch is three times the memory to send from.
        for round in 1..=5u64 {
            let all = own.bytes();
            for _ in 0..768 * 1024 / all {
                let bytes = round.to_le_bytes().repeat(all / 8);
                back.post_to_named(round, key.address.get(), key.rkey.get(), &bytes);
            }
            back.post_to_named(99, key.address.get(), key.rkey.get(), &(round + 100).to_le_bytes());
            let end = Instant::now() + DEADLINE;
            while own.load_acquire(0) != round + 100 && Instant::now() < end {
                std::thread::yield_now();
            }
            let came = own.load_acquire(0);
            is_over.store(came != round + 100, Ordering::SeqCst);
            assert_eq!(came, round + 100, "it waits for ever");
        }
        is_over.store(true, Ordering::SeqCst);
    });
}

#[test]
fn memory_that_a_peer_names_and_has_not_ends_its_own_session() {
    let server = Server::new();
    // Requests name where their replies may go.
    for (address, key) in [(0x1000, 0), (0x1000, 0xdead_beef), (u64::MAX - 7, 1)] {
        let (session, connection, _link) = honest(&server);
        let mut back = VerbsLink::new(Arc::clone(&session.connection));
        back.post_to_named(30, address, key, &[1; 8]);
        assert_eq!(completion(&mut back), Completion { id: 30, result: Err(LinkError::Denied) });
        assert_eq!(session.connection.failure(), Some(LinkError::Denied));
        drop((session, connection));
    }
    honest(&server);
}

#[test]
fn withdrawn_and_disconnected_are_told_apart() {
    let server = Server::new();
    let (session, connection, mut link) = honest(&server);
    session.connection.withdraw();
    fails(&connection, &mut link, LinkError::Withdrawn);
    not_repeated(&server, &session);
    let (session, connection, mut link) = honest(&server);
    session.connection.close();
    fails(&connection, &mut link, LinkError::Disconnected);
    not_repeated(&server, &session);
}

/// Sends more to a peer that takes nothing than it has receive requests for. Returns the reason of
/// the end.
fn fills(link: &mut VerbsLink) -> LinkError {
    let mut executed = 0;
    let reason = loop {
        link.post(&[write(20, &9u64.to_le_bytes())]);
        match completion(link).result {
            Ok(()) => executed += 1,
            Err(reason) => break reason,
        }
        assert!(executed < 1 << 16, "it has room without end");
    };
    // It broke when the receive requests were used up, not before.
    assert_eq!(executed, 1024);
    reason
}

#[test]
fn a_peer_that_takes_no_immediates_is_an_overrun() {
    let server = Server::new();
    let (_session, connection, mut link) = honest(&server);
    let reason = fills(&mut link);
    // Soft-RoCE counts the time for which the peer says that it must wait as time without an
    // answer, and that limit comes first.
    assert!(matches!(reason, LinkError::Overrun | LinkError::NoAnswer), "{reason}");
    assert_eq!(connection.failure(), Some(reason));
    honest(&server);
}

/// The same between bare queue pairs. The peer is asked again so soon that no other limit comes
/// first.
#[test]
fn a_device_that_has_asked_often_enough_reports_an_overrun() {
    let (far_domain, far, mut raw, _control) = bare();
    be_asked_again_soon(&far);
    let mailbox = Words::new(Mapping::heap(MAILBOX_BYTES));
    let memory = Registration::of(&far_domain, &mailbox, access::WRITE).unwrap();
    raw.mailbox = key_of(&memory, memory.rkey());
    let connection = raw.into_connection();
    let mut link = VerbsLink::new(Arc::clone(&connection));
    assert_eq!(fills(&mut link), LinkError::Overrun);
    assert_eq!(connection.failure(), Some(LinkError::Overrun));
}

/// Stops the writer, even if the test fails.
struct Stopping<'s>(&'s AtomicBool);

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

#[test]
fn nothing_lands_after_an_end() {
    let server = Server::new();
    let (_session, _connection, mut link) = honest(&server);
    let stop = AtomicBool::new(false);
    let whole = |id| Work::Read {
        id,
        from: RemoteAddress { region: ARENA, offset: 0 },
        into: 0,
        bytes: ARENA_BYTES,
    };
    std::thread::scope(|scope| {
        let arena = &server.arena;
        scope.spawn(|| {
            for round in 1.. {
                (0..ARENA_BYTES / 8).for_each(|at| arena.store(at, round));
                if stop.load(Ordering::Acquire) {
                    break;
                }
            }
        });
        let _stopping = Stopping(&stop);
        let mut landing = || {
            link.post(&[whole(0)]);
            assert_eq!(completion(&mut link).result, Ok(()));
            link.landed(0, ARENA_BYTES).to_vec()
        };
        // The control: READs return the changed words.
        let (first, end) = (landing(), Instant::now() + DEADLINE);
        while landing() == first {
            assert!(Instant::now() < end, "nothing changes");
        }
        // If the machine holds up this thread for long, all of them are executed first: then the
        // test opens another session.
        let mut failed = 0;
        while failed == 0 {
            assert!(Instant::now() < end, "nothing is under way");
            let (_session, connection, mut link) = connected(&server);
            // One post, which does not wait for any of them.
            let batch: Vec<Work<'_>> = (0..256).map(whole).collect();
            link.post(&batch);
            let executed = completion(&mut link);
            assert_eq!(executed.result, Ok(()));
            connection.close();
            for _ in 1..256 {
                failed += completion(&mut link).result.is_err() as u32;
            }
            let landed = link.landed(0, ARENA_BYTES).to_vec();
            std::thread::sleep(Duration::from_millis(500));
            assert!(landed == link.landed(0, ARENA_BYTES), "something landed after the end");
        }
    });
}
