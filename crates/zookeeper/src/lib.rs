//! The coordinator of a cluster over a real ZooKeeper ensemble, 3.5 or newer (HydraDB 5.1, H31).
//!
//! ```text
//!   PATH/topology                    the topology; set by its version
//!   PATH/presence/ID                 ephemeral: the member ID is present once; a renewal sets it
//!   PATH/members/ID-INCARNATION      ephemeral: what others list, without a read for each member
//!   PATH/watch/SESSION-SEQUENCE      ephemeral, sequential: candidates; the first is the watcher
//! ```
//! ID, INCARNATION and SESSION are 16 hexadecimal digits. What a request needs all at once is one
//! `multi`: presence and member; a renewal and the check of the topology's version; a proposal and the
//! check that the watcher's candidacy is there.
//!
//! Invariants:
//! * a request is sent over the connection that its caller knows, or not at all. Each connection has a
//!   runtime of its own, and what the library still keeps for a connection that was lost goes away with
//!   it. So nothing from before happens behind [`SessionState::Connected`];
//! * before a connection counts, its server has all that was recorded until then (`sync`);
//! * what the session has is read from ZooKeeper with each connection: what it knows of presence and
//!   candidacy does not depend on answers that were lost.

#![forbid(unsafe_code)]

mod address;
mod connection;
mod local_server;
mod nodes;
mod requests;
mod session;
mod tls;

pub use address::{AddressError, ZookeeperAddress};
pub use local_server::{LocalServer, LocalServerError, LocalServerPlan, LocalServerTls};

use remora_cluster::coordinator::{Coordinator, Event, Outcome, Proposal, RequestId, SessionState};
use remora_cluster::topology::{Instance, Topology};
use remora_layout::limits::COORDINATOR_REQUESTS;
use remora_tls::ClientTlsSettings;
use requests::{Asked, Heard, Request};
use session::Session;
use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use tls::LastRefusal;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

/// One member's session at a ZooKeeper ensemble. It has a thread of its own. When it is dropped the
/// session is closed, so that its presence and its candidacy end at once.
pub struct ZookeeperCoordinator {
    asked: Option<UnboundedSender<Asked>>,
    heard: Receiver<Heard>,
    thread: Option<JoinHandle<()>>,
    last_refusal: LastRefusal,
    session_ms: u64,
    /// The connection that the caller knows, counted from 1.
    connection: u64,
    is_connected: bool,
    requests: u64,
    waiting: usize,
    events: VecDeque<Event>,
}

impl ZookeeperCoordinator {
    /// A session that begins by itself as soon as a server answers. ZooKeeper may give it another time
    /// than `session_ms`: 2 to 20 of its ticks; see [`Coordinator::session_ms`]. Where the address says
    /// that ZooKeeper speaks TLS, `tls` names the files for it, which are read with each connection.
    ///
    /// # Errors
    /// No thread can be started; or the address asks for TLS, and there is no `tls`.
    pub fn connect(
        address: ZookeeperAddress,
        tls: Option<ClientTlsSettings>,
        session_ms: u64,
    ) -> std::io::Result<Self> {
        let tls = tls.filter(|_| address.is_encrypted());
        if address.is_encrypted() && tls.is_none() {
            let why = "zk+tls:// needs the authority of ZooKeeper's certificates";
            return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, why));
        }
        let (asked, to_do) = unbounded_channel();
        let (tell, heard) = channel();
        let timeout = Duration::from_millis(session_ms);
        let session = Session::new((address, tls), timeout, to_do, tell);
        let last_refusal = session.last_refusal();
        let thread =
            std::thread::Builder::new().name("zookeeper".into()).spawn(move || session.run())?;
        Ok(Self {
            asked: Some(asked),
            heard,
            thread: Some(thread),
            last_refusal,
            session_ms,
            connection: 0,
            is_connected: false,
            requests: 0,
            waiting: 0,
            events: VecDeque::new(),
        })
    }

    /// Why there is no session, where ZooKeeper refuses it or TLS fails, with what to do.
    pub fn refusal(&self) -> Option<String> {
        self.last_refusal.get()
    }

    fn request(&mut self, request: Request) -> RequestId {
        self.requests += 1;
        let id = RequestId(self.requests);
        let is_sent = self.is_connected && self.waiting < COORDINATOR_REQUESTS;
        let asked = self.asked.as_ref().filter(|_| is_sent);
        let asked = asked.map(|to| to.send(Asked { id, connection: self.connection, request }));
        match asked {
            Some(Ok(())) => self.waiting += 1,
            _ => self.events.push_back(Event::Answer(id, Outcome::NotSent)),
        }
        id
    }

    fn hear(&mut self, heard: Heard) -> Event {
        match heard {
            Heard::Connected { connection, session_ms } => {
                (self.connection, self.session_ms) = (connection, session_ms);
                self.is_connected = true;
                Event::Session(SessionState::Connected)
            }
            Heard::Event(event) => {
                match event {
                    Event::Session(_) => self.is_connected = false,
                    Event::Answer(..) => self.waiting -= 1,
                    _ => {}
                }
                event
            }
        }
    }
}

impl Coordinator for ZookeeperCoordinator {
    fn session_ms(&self) -> u64 {
        self.session_ms
    }

    fn create(&mut self, _now_ms: u64, topology: &Topology) -> RequestId {
        self.request(Request::Create(topology.clone()))
    }

    fn propose(&mut self, _now_ms: u64, proposal: &Proposal) -> RequestId {
        self.request(Request::Propose(proposal.clone()))
    }

    fn enter(&mut self, _now_ms: u64, instance: Instance) -> RequestId {
        self.request(Request::Enter(instance))
    }

    fn leave(&mut self, _now_ms: u64) -> RequestId {
        self.request(Request::Leave)
    }

    fn renew(&mut self, _now_ms: u64, topology_version: u64) -> RequestId {
        self.request(Request::Renew { topology_version })
    }

    fn stand(&mut self, _now_ms: u64) -> RequestId {
        self.request(Request::Stand)
    }

    fn step_down(&mut self, _now_ms: u64) -> RequestId {
        self.request(Request::StepDown)
    }

    fn poll(&mut self, _now_ms: u64) -> Option<Event> {
        match self.heard.try_recv() {
            Ok(heard) => Some(self.hear(heard)),
            Err(TryRecvError::Empty) => self.events.pop_front(),
            Err(TryRecvError::Disconnected) => panic!("the thread of a session has panicked"),
        }
    }
}

impl Drop for ZookeeperCoordinator {
    fn drop(&mut self) {
        // The thread ends when nobody can ask it any more.
        self.asked = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
