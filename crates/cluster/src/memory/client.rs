//! A member's end of the link to the coordinator in memory.
//!
//! ```text
//!   connect --- Welcome ---> connected --- silence, or Closed ---> suspended --- Expired ---> lost
//!      ^                         ^                                     |                        |
//!      |                         '----------- Welcome -----------------'                        |
//!      '--------------------------------- a new session ----------------------------------------'
//! ```

use super::ensemble::Ensemble;
use super::wire::{Downward, LinkId, Recorded, Request, Topic, Upward};
use crate::coordinator::{Coordinator, Event, Outcome, Proposal, RequestId, SessionState};
use crate::topology::{Instance, Topology};
use crate::view::{View, pause_after, pause_after_list};
use remora_layout::limits::COORDINATOR_REQUESTS;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The session of one member at a [`super::MemoryEnsemble`]. When it is dropped, as when its process
/// dies, its session ends after its time.
pub struct MemoryCoordinator {
    ensemble: Arc<Mutex<Ensemble>>,
    link: u64,
    session_ms: u64,
    now_ms: u64,
    /// Numbers the connections.
    connection: u64,
    is_connected: bool,
    session: Option<u64>,
    /// When the connection was asked for.
    connecting_ms: Option<u64>,
    heard_ms: u64,
    sent_ms: u64,
    requests: u64,
    waiting: BTreeSet<RequestId>,
    view: View,
    /// What is read again then, and not earlier; and whether it has changed.
    reads: BTreeMap<Topic, (u64, bool)>,
    events: VecDeque<Event>,
}

impl MemoryCoordinator {
    pub(super) fn new(ensemble: Arc<Mutex<Ensemble>>, session_ms: u64) -> Self {
        let link = ensemble.lock().unwrap_or_else(PoisonError::into_inner).open_link();
        Self {
            ensemble,
            link,
            session_ms: session_ms.max(3),
            now_ms: 0,
            connection: 0,
            is_connected: false,
            session: None,
            connecting_ms: None,
            heard_ms: 0,
            sent_ms: 0,
            requests: 0,
            waiting: BTreeSet::new(),
            view: View::default(),
            reads: BTreeMap::new(),
            events: VecDeque::new(),
        }
    }

    /// Its link, for faults.
    pub fn link(&self) -> LinkId {
        LinkId(self.link)
    }

    fn ensemble(&self) -> MutexGuard<'_, Ensemble> {
        self.ensemble.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send(&mut self, message: Upward) {
        self.sent_ms = self.now_ms;
        self.ensemble().send(self.link, self.connection, message);
    }

    fn request(&mut self, now_ms: u64, request: Request) -> RequestId {
        self.now_ms = self.now_ms.max(now_ms);
        self.requests += 1;
        let id = RequestId(self.requests);
        if self.is_connected && self.waiting.len() < COORDINATOR_REQUESTS {
            self.waiting.insert(id);
            self.send(Upward::Request(id, request));
        } else {
            self.events.push_back(Event::Answer(id, Outcome::NotSent));
        }
        id
    }

    fn connect(&mut self) {
        self.connection += 1;
        self.connecting_ms = Some(self.now_ms);
        let (session, session_ms) = (self.session, self.session_ms);
        self.send(Upward::Connect { session, session_ms });
    }

    /// The connection is over: nothing is known of what was under way.
    fn disconnected(&mut self) {
        if !self.is_connected {
            return;
        }
        self.is_connected = false;
        self.events.push_back(Event::Session(SessionState::Suspended));
        let unknown = std::mem::take(&mut self.waiting);
        self.events.extend(unknown.into_iter().map(|id| Event::Answer(id, Outcome::Unknown)));
    }

    fn hear(&mut self, message: Downward) {
        self.heard_ms = self.now_ms;
        match message {
            Downward::Welcome { session } => self.connected(session),
            Downward::Expired => {
                self.session = None;
                self.events.push_back(Event::Session(SessionState::Lost));
                self.connect();
            }
            Downward::Closed => {
                self.disconnected();
                self.connect();
            }
            Downward::Pong => {}
            Downward::Topology(bytes) => {
                self.pause(Topic::Topology, pause_after(bytes.as_ref().map_or(0, Vec::len)));
                let event = self.view.read_topology(bytes.as_deref());
                self.events.extend(event);
            }
            Downward::Members(members) => {
                self.pause(Topic::Members, pause_after_list(members.len()));
                self.events.extend(self.view.read_members(members));
            }
            Downward::Standing(standing) => self.events.extend(self.view.read_standing(standing)),
            Downward::Changed(topic) => self.reads.entry(topic).or_default().1 = true,
            Downward::Answer(id, outcome) => {
                if self.waiting.remove(&id) {
                    self.events.push_back(Event::Answer(id, outcome));
                }
            }
        }
    }

    /// This was read. It is not read again before that time has passed.
    fn pause(&mut self, topic: Topic, pause: Duration) {
        self.reads.entry(topic).or_default().0 = self.now_ms + pause.as_millis() as u64;
    }

    /// Reads what has changed, once it may.
    fn read_again(&mut self) {
        let now_ms = self.now_ms;
        let is_due = |(_, (from_ms, has_changed)): &(&Topic, &(u64, bool))| {
            *has_changed && *from_ms <= now_ms
        };
        let due: Vec<Topic> = self.reads.iter().filter(is_due).map(|(topic, _)| *topic).collect();
        for topic in due {
            self.reads.entry(topic).or_default().1 = false;
            self.send(Upward::Read(topic));
        }
    }

    /// All that was known may be old: it is read anew.
    fn connected(&mut self, session: u64) {
        self.reads.clear();
        (self.session, self.is_connected, self.connecting_ms) = (Some(session), true, None);
        self.view.connected();
        self.events.push_back(Event::Session(SessionState::Connected));
        for topic in [Topic::Topology, Topic::Members, Topic::Standing] {
            self.send(Upward::Read(topic));
        }
    }

    /// Keeps the session alive, and sees that it is not.
    fn tick(&mut self) {
        let silent_ms = self.now_ms - self.heard_ms;
        if self.is_connected && silent_ms >= self.session_ms * 2 / 3 {
            self.disconnected();
            self.connect();
        }
        let is_idle = self.now_ms - self.sent_ms >= self.session_ms / 3;
        match self.connecting_ms {
            _ if self.is_connected && is_idle => self.send(Upward::Ping),
            Some(since_ms) if self.now_ms - since_ms >= self.session_ms / 3 => self.connect(),
            None if !self.is_connected => self.connect(),
            _ => {}
        }
    }
}

impl Coordinator for MemoryCoordinator {
    fn session_ms(&self) -> u64 {
        self.session_ms
    }

    fn create(&mut self, now_ms: u64, topology: &Topology) -> RequestId {
        self.request(now_ms, Request::Create(recorded(topology)))
    }

    fn propose(&mut self, now_ms: u64, proposal: &Proposal) -> RequestId {
        self.request(now_ms, Request::Propose(recorded(&proposal.topology), proposal.term))
    }

    fn enter(&mut self, now_ms: u64, instance: Instance) -> RequestId {
        self.request(now_ms, Request::Enter(instance))
    }

    fn leave(&mut self, now_ms: u64) -> RequestId {
        self.request(now_ms, Request::Leave)
    }

    fn renew(&mut self, now_ms: u64, topology_version: u64) -> RequestId {
        self.request(now_ms, Request::Renew { topology_version })
    }

    fn stand(&mut self, now_ms: u64) -> RequestId {
        self.request(now_ms, Request::Stand)
    }

    fn step_down(&mut self, now_ms: u64) -> RequestId {
        self.request(now_ms, Request::StepDown)
    }

    fn poll(&mut self, now_ms: u64) -> Option<Event> {
        self.now_ms = self.now_ms.max(now_ms);
        loop {
            let arrived = self.ensemble().receive(self.link);
            let Some((connection, message)) = arrived else { break };
            if connection == self.connection {
                self.hear(message);
            }
        }
        if self.is_connected {
            self.read_again();
        }
        self.tick();
        self.events.pop_front()
    }
}

impl Drop for MemoryCoordinator {
    fn drop(&mut self) {
        let link = self.link;
        self.ensemble().close_link(link);
    }
}

fn recorded(topology: &Topology) -> Recorded {
    Recorded { cluster: topology.cluster, version: topology.version, bytes: topology.encode() }
}
