//! READs that never complete, on one link of a connection: while heartbeats arrive each fails
//! alone, and the session continues on another link.

use remora_arena::{Mapping, NoJournal, Owner, Words};
use remora_client_core::{Client, Clock, Error, Options, Parts, Path, Session, Wake};
use remora_fabric::{AnyLink, Completion, Link, LinkError, Transport, Waited, Work};
use remora_index::hash::{Table, TableRef};
use remora_layout::arena_header::ARENA_HEADER_BYTES;
use remora_layout::hello::ServerHello;
use remora_layout::lag::Lag;
use remora_layout::limits::SERVER_SILENT_MS;
use remora_layout::session::{CLIENT_CLOCK_WORD, HEARTBEAT_WORD, Heartbeat, mailbox_bytes};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use zerocopy::FromZeros;

const INCARNATION: u64 = 6;
const SESSION: u64 = 9;
const MS: u64 = 1_000_000;

/// A link whose WRITEs take effect at once, and whose READs are lost.
struct LosesReads {
    to_server: Words,
    completions: VecDeque<Completion>,
}

impl Link for LosesReads {
    fn transport(&self) -> Transport {
        Transport::Sim
    }

    fn reads_cost_peer_cpu(&self) -> bool {
        false
    }

    fn post(&mut self, batch: &[Work<'_>]) {
        for work in batch {
            if let Work::Write { id, to, bytes, .. } = *work {
                self.to_server.copy_in(to.offset as usize, bytes);
                self.completions.push_back(Completion { id, result: Ok(()) });
            }
        }
    }

    fn poll(&mut self) -> Option<Completion> {
        self.completions.pop_front()
    }

    fn wait(&mut self, _: Option<Duration>) -> Waited {
        Waited::TimedOut
    }

    fn landed(&self, _: usize, _: usize) -> &[u8] {
        panic!("nothing was READ")
    }

    fn reserve_landing(&mut self, _: usize) {}

    fn failure(&self) -> Option<LinkError> {
        None
    }

    fn has_completed(&self) -> bool {
        false
    }
}

/// A server that is known by its heartbeats only.
struct Server {
    beats: Arc<AtomicBool>,
    links: Arc<AtomicUsize>,
    client: Client,
}

/// Each look at the clock takes 10 ms, and lets the server beat.
fn server(timeout: Duration) -> Server {
    let mut owner = Owner::heap(1 << 16, NoJournal);
    Table::new(&mut owner, ARENA_HEADER_BYTES, 1);
    let [to_server, to_client] = [(); 2].map(|()| Words::new(Mapping::heap(mailbox_bytes(1))));
    let mut hello = ServerHello::new_zeroed();
    hello.incarnation = INCARNATION.into();
    hello.session = SESSION.into();
    hello.shards = 1.into();
    let beats = Arc::new(AtomicBool::new(true));
    let links = Arc::new(AtomicUsize::new(0));
    let clock = {
        let (beats, looks) = (Arc::clone(&beats), AtomicU64::new(0));
        let (to_server, to_client) = (to_server.clone(), to_client.clone());
        Clock::Given(Arc::new(move || {
            let looks = looks.fetch_add(1, Ordering::Relaxed) + 1;
            if beats.load(Ordering::Relaxed) {
                beat(looks, to_server.load(CLIENT_CLOCK_WORD), &to_client);
            }
            10 * MS * looks
        }))
    };
    let parts = Parts {
        hello,
        tables: vec![TableRef::read(0, owner.view()).expect("a table")],
        to_client: to_client.view(),
        large: Words::new(Mapping::heap(64)).view(),
        link: {
            let links = Arc::clone(&links);
            Box::new(move || {
                links.fetch_add(1, Ordering::Relaxed);
                let to_server = to_server.clone();
                AnyLink::Other(Box::new(LosesReads { to_server, completions: VecDeque::new() }))
            })
        },
        clock,
        pointers: None,
    };
    let options = Options { timeout, wake: Wake::Event, ..Options::default() };
    let client = Client::over(parts, &options).expect("no process forks here");
    Server { beats, links, client }
}

fn beat(sequence: u64, echoed_client_clock_ns: u64, to_client: &Words) {
    let beat = Heartbeat {
        sequence,
        utilisation_ppm_plus_1: 1,
        wait_ns: 0,
        incarnation: INCARNATION,
        epoch: 1,
        topology: 0,
        server_unix_ms: 1_700_000_000_000,
        echoed_client_clock_ns,
        session: SESSION,
        lag: Lag::PRIMARY,
    };
    for (at, word) in beat.to_words().into_iter().enumerate() {
        to_client.store(HEARTBEAT_WORD + at, word);
    }
}

fn read(session: &mut Session) -> Error {
    session.get(b"key", Path::Read).expect_err("READs are lost")
}

#[test]
fn a_read_that_is_lost_fails_alone_and_leaves_its_link_behind() {
    let server = server(Duration::from_millis(2 * SERVER_SILENT_MS));
    let mut session = server.client.session().expect("the first one");
    let before = server.links.load(Ordering::Relaxed);
    for times in 1..=3 {
        assert_eq!(read(&mut session), Error::TimedOut);
        assert_eq!(server.links.load(Ordering::Relaxed), before + times);
    }
    assert!(server.client.session().is_ok());
    server.beats.store(false, Ordering::Relaxed);
    // The server does not answer the clock that the last one wrote when it timed out.
    assert_eq!(read(&mut session), Error::ServerSilent);
    assert_eq!(read(&mut session), Error::ServerSilent);
    assert_eq!(server.client.session().err(), Some(Error::ServerSilent));
}

#[test]
fn a_view_of_a_hash_keeps_its_key_when_the_read_that_looks_for_it_is_lost() {
    let server = server(Duration::from_millis(2 * SERVER_SILENT_MS));
    let mut session = server.client.session().expect("the first one");
    let mut hash = session.open_hash(b"courier").expect("no long key");
    let lost = session.hash_get(&mut hash, b"state", Path::Read).map(|_| ());
    assert_eq!((lost, hash.key()), (Err(Error::TimedOut), &b"courier"[..]));
}
