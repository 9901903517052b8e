//! The servers of the coordinator in memory, and the links to its members.
//!
//! Invariants: a message of a connection that a later one has replaced does nothing. A link keeps a
//! bounded number of messages: the member has few requests and reads under way, and each watch is
//! told once.

use super::wire::{Counts, Downward, Recorded, Request, Topic, Upward};
use crate::coordinator::{Outcome, Refused, Standing, Term};
use crate::topology::{Instance, MemberId, Topology};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A message on its way: when it arrives, its connection, and what it says.
type OnTheWay<T> = VecDeque<(u64, u64, T)>;

#[derive(Default)]
struct Link {
    /// The connection that counts: the last one that was opened.
    connection: u64,
    /// The session of that connection; `None` if it was closed.
    session: Option<u64>,
    upward: OnTheWay<Upward>,
    downward: OnTheWay<Downward>,
    upward_ms: u64,
    downward_ms: u64,
    is_upward_cut: bool,
    is_downward_cut: bool,
    /// What the member is told of when it changes.
    watched: BTreeSet<Topic>,
    /// The standing that it has read last.
    read_standing: Option<Standing>,
    /// What its server has, if that lags.
    lagging: Option<(Option<Recorded>, Vec<Instance>)>,
}

struct Session {
    session_ms: u64,
    heard_ms: u64,
    presence: Option<Instance>,
    term: Option<Term>,
}

/// See the module's text.
pub(super) struct Ensemble {
    now_ms: u64,
    has_quorum: bool,
    links: BTreeMap<u64, Link>,
    links_made: u64,
    sessions: BTreeMap<u64, Session>,
    sessions_made: u64,
    terms_made: u64,
    topology: Option<Recorded>,
    counts: Counts,
}

impl Default for Ensemble {
    fn default() -> Self {
        Self {
            now_ms: 0,
            has_quorum: true,
            links: BTreeMap::new(),
            links_made: 0,
            sessions: BTreeMap::new(),
            sessions_made: 0,
            terms_made: 0,
            topology: None,
            counts: Counts::default(),
        }
    }
}

impl Ensemble {
    pub(super) fn open_link(&mut self) -> u64 {
        self.links_made += 1;
        self.links.insert(self.links_made, Link::default());
        self.links_made
    }

    pub(super) fn close_link(&mut self, link: u64) {
        self.links.remove(&link);
    }

    pub(super) fn cut(&mut self, link: u64, to: bool, from: bool) {
        if let Some(link) = self.links.get_mut(&link) {
            (link.is_upward_cut, link.is_downward_cut) = (to, from);
        }
    }

    pub(super) fn delay(&mut self, link: u64, to_ms: u64, from_ms: u64) {
        if let Some(link) = self.links.get_mut(&link) {
            (link.upward_ms, link.downward_ms) = (to_ms, from_ms);
        }
    }

    pub(super) fn lag(&mut self, link: u64, lags: bool) {
        let now = lags.then(|| (self.topology.clone(), self.members()));
        if let Some(link) = self.links.get_mut(&link) {
            link.lagging = now;
        }
        if !lags {
            self.tell_all(Topic::Topology);
            self.tell_all(Topic::Members);
            self.tell_all(Topic::Standing);
        }
    }

    pub(super) fn set_quorum(&mut self, has_quorum: bool) {
        if has_quorum && !self.has_quorum {
            self.sessions.values_mut().for_each(|of| of.heard_ms = self.now_ms);
        }
        self.has_quorum = has_quorum;
        if !has_quorum {
            for link in self.links.values_mut() {
                // Replies of the last moment are lost with their connections.
                link.downward.clear();
                link.close(self.now_ms);
            }
        }
    }

    pub(super) fn overwrite(&mut self, bytes: Vec<u8>) {
        let (cluster, version) =
            Topology::decode(&bytes).map_or((0, 0), |of| (of.cluster, of.version));
        self.topology = Some(Recorded { cluster, version, bytes });
        self.tell_all(Topic::Topology);
    }

    pub(super) fn topology(&self) -> Option<Topology> {
        Topology::decode(&self.topology.as_ref()?.bytes).ok()
    }

    pub(super) fn counts(&self) -> Counts {
        self.counts
    }

    pub(super) fn members(&self) -> Vec<Instance> {
        let mut members: Vec<_> = self.sessions.values().filter_map(|of| of.presence).collect();
        members.sort();
        members
    }

    pub(super) fn watcher(&self) -> Option<(Term, Option<u64>)> {
        let (&id, term) = self
            .sessions
            .iter()
            .filter_map(|(id, of)| Some((id, of.term?)))
            .min_by_key(|(_, term)| *term)?;
        let link = self.links.iter().find(|(_, link)| link.session == Some(id));
        Some((term, link.map(|(link, _)| *link)))
    }

    /// A member sends this over a connection.
    pub(super) fn send(&mut self, link: u64, connection: u64, message: Upward) {
        let now_ms = self.now_ms;
        if let Some(link) = self.links.get_mut(&link) {
            let before = link.upward.back().map_or(0, |of| of.0);
            link.upward.push_back((before.max(now_ms + link.upward_ms), connection, message));
        }
    }

    /// What has arrived at a member.
    pub(super) fn receive(&mut self, link: u64) -> Option<(u64, Downward)> {
        let now_ms = self.now_ms;
        let link = self.links.get_mut(&link).filter(|of| !of.is_downward_cut)?;
        link.downward.front().filter(|of| of.0 <= now_ms)?;
        link.downward.pop_front().map(|(_, connection, message)| (connection, message))
    }

    pub(super) fn advance(&mut self, now_ms: u64) {
        let until_ms = now_ms.max(self.now_ms);
        while let Some((at_ms, link)) = self.next_arrival(until_ms) {
            self.expire(at_ms);
            self.now_ms = self.now_ms.max(at_ms);
            let arrived = self.links.get_mut(&link).and_then(|of| of.upward.pop_front());
            if let Some((_, connection, message)) = arrived {
                self.arrived(link, connection, message);
            }
        }
        self.expire(until_ms);
        self.now_ms = until_ms;
    }

    /// The message to the coordinator that arrives first by then, and its link.
    fn next_arrival(&self, until_ms: u64) -> Option<(u64, u64)> {
        let open = self.links.iter().filter(|(_, link)| !link.is_upward_cut);
        let first = open.filter_map(|(id, link)| Some((link.upward.front()?.0, *id))).min()?;
        (first.0 <= until_ms).then_some(first)
    }

    /// Ends the sessions of which nothing was heard for their time.
    fn expire(&mut self, now_ms: u64) {
        if !self.has_quorum {
            return;
        }
        let is_over = |of: &Session| of.heard_ms + of.session_ms <= now_ms;
        let over: Vec<_> =
            self.sessions.iter().filter(|(_, of)| is_over(of)).map(|(id, _)| *id).collect();
        for id in over {
            self.sessions.remove(&id);
            for link in self.links.values_mut().filter(|of| of.session == Some(id)) {
                link.close(now_ms);
            }
            self.tell_all(Topic::Members);
            self.tell_all(Topic::Standing);
        }
    }

    fn arrived(&mut self, link_id: u64, connection: u64, message: Upward) {
        let Some(link) = self.links.get_mut(&link_id).filter(|_| self.has_quorum) else { return };
        if let Upward::Connect { session, session_ms } = message {
            if connection > link.connection {
                self.connect(link_id, connection, session, session_ms);
            }
            return;
        }
        let Some(session_id) = link.session.filter(|_| connection == link.connection) else {
            return;
        };
        if let Some(session) = self.sessions.get_mut(&session_id) {
            session.heard_ms = self.now_ms;
        }
        self.counts.requests += 1;
        match message {
            Upward::Connect { .. } => {}
            Upward::Ping => self.tell(link_id, Downward::Pong),
            Upward::Read(topic) => self.read(link_id, session_id, topic),
            Upward::Request(id, request) => {
                self.catch_up(link_id);
                let is_of_topology = matches!(request, Request::Create(_) | Request::Propose(..));
                let is_proposal = matches!(request, Request::Propose(..));
                let outcome = self.execute(session_id, request);
                self.counts.proposals += u64::from(is_proposal);
                self.counts.refused += u64::from(is_proposal && outcome != Outcome::Done);
                if is_of_topology || outcome == Outcome::Refused(Refused::Outdated) {
                    // Its member knows the topology that the outcome is about before it.
                    let bytes = self.topology.as_ref().map(|of| of.bytes.clone());
                    self.tell(link_id, Downward::Topology(bytes));
                }
                self.tell(link_id, Downward::Answer(id, outcome));
            }
        }
    }

    fn connect(&mut self, link_id: u64, connection: u64, session: Option<u64>, session_ms: u64) {
        let session = match session {
            Some(id) => self.sessions.get_mut(&id).map(|of| (id, of)),
            None => {
                self.sessions_made += 1;
                let made = Session { session_ms, heard_ms: 0, presence: None, term: None };
                let id = self.sessions_made;
                Some((id, self.sessions.entry(id).or_insert(made)))
            }
        };
        let reply = match session {
            Some((session, of)) => {
                of.heard_ms = self.now_ms;
                Downward::Welcome { session }
            }
            None => Downward::Expired,
        };
        let Some(link) = self.links.get_mut(&link_id) else { return };
        link.connection = connection;
        link.session = match reply {
            Downward::Welcome { session } => Some(session),
            _ => None,
        };
        link.watched.clear();
        link.read_standing = None;
        self.tell(link_id, reply);
    }

    fn read(&mut self, link_id: u64, session_id: u64, topic: Topic) {
        let standing = self.standing(session_id);
        let now = (self.topology.clone(), self.members());
        let Some(link) = self.links.get_mut(&link_id) else { return };
        link.watched.insert(topic);
        let (topology, members) = link.lagging.clone().unwrap_or(now);
        let reply = match topic {
            Topic::Topology => Downward::Topology(topology.map(|of| of.bytes)),
            Topic::Members => Downward::Members(members),
            Topic::Standing => {
                link.read_standing = Some(standing);
                Downward::Standing(standing)
            }
        };
        self.tell(link_id, reply);
    }

    /// A server that has executed a change of its member has all that was before it.
    fn catch_up(&mut self, link_id: u64) {
        let link = self.links.get_mut(&link_id);
        if link.is_some_and(|of| of.lagging.take().is_some()) {
            self.tell_of_change(link_id, Topic::Topology);
            self.tell_of_change(link_id, Topic::Members);
            self.tell_of_change(link_id, Topic::Standing);
        }
    }

    fn execute(&mut self, session_id: u64, request: Request) -> Outcome {
        let result = match request {
            Request::Create(first) => self.create(first),
            Request::Propose(next, term) => self.record(session_id, next, term),
            Request::Enter(instance) => self.enter(session_id, instance),
            Request::Leave => {
                self.with_session(session_id, Topic::Members, |of| of.presence = None)
            }
            Request::Renew { topology_version } => self.renew(session_id, topology_version),
            Request::Stand => self.stand(session_id),
            Request::StepDown => {
                self.with_session(session_id, Topic::Standing, |of| of.term = None)
            }
        };
        result.map_or_else(Outcome::Refused, |()| Outcome::Done)
    }

    fn create(&mut self, first: Recorded) -> Result<(), Refused> {
        if self.topology.is_some() {
            return Err(Refused::HasTopology);
        }
        self.topology = Some(first);
        self.tell_all(Topic::Topology);
        Ok(())
    }

    fn record(
        &mut self,
        session_id: u64,
        next: Recorded,
        term: Option<Term>,
    ) -> Result<(), Refused> {
        let now = self.topology.as_ref().ok_or(Refused::Outdated)?;
        if (now.cluster, now.version + 1) != (next.cluster, next.version) {
            return Err(Refused::Outdated);
        }
        let candidacy = self.sessions.get(&session_id).and_then(|of| of.term);
        if term.is_some() && term != candidacy {
            return Err(Refused::NotWatcher);
        }
        self.topology = Some(next);
        self.tell_all(Topic::Topology);
        Ok(())
    }

    fn enter(&mut self, session_id: u64, instance: Instance) -> Result<(), Refused> {
        let present = self.presence_of(instance.member);
        let own = self.sessions.get(&session_id).and_then(|of| of.presence);
        match (present, own) {
            (Some((session, of)), _) if session == session_id && of == instance => Ok(()),
            (None, None) => {
                self.with_session(session_id, Topic::Members, |of| of.presence = Some(instance))
            }
            _ => Err(Refused::IsPresent),
        }
    }

    fn presence_of(&self, member: MemberId) -> Option<(u64, Instance)> {
        let present = |(id, of): (&u64, &Session)| Some((*id, of.presence?));
        self.sessions.iter().filter_map(present).find(|(_, of)| of.member == member)
    }

    fn renew(&self, session_id: u64, topology_version: u64) -> Result<(), Refused> {
        if self.sessions.get(&session_id).is_none_or(|of| of.presence.is_none()) {
            return Err(Refused::NotPresent);
        }
        match &self.topology {
            Some(of) if of.version == topology_version => Ok(()),
            _ => Err(Refused::Outdated),
        }
    }

    fn stand(&mut self, session_id: u64) -> Result<(), Refused> {
        let term = Term(self.terms_made + 1);
        self.terms_made += 1;
        self.with_session(session_id, Topic::Standing, |of| {
            of.term.get_or_insert(term);
        })
    }

    /// Changes a session that is there.
    fn with_session(
        &mut self,
        session_id: u64,
        topic: Topic,
        change: impl FnOnce(&mut Session),
    ) -> Result<(), Refused> {
        if let Some(session) = self.sessions.get_mut(&session_id) {
            change(session);
        }
        self.tell_all(topic);
        Ok(())
    }

    fn standing(&self, session_id: u64) -> Standing {
        match self.sessions.get(&session_id).and_then(|of| of.term) {
            None => Standing::Out,
            Some(term) if self.watcher().is_some_and(|of| of.0 == term) => Standing::Leads(term),
            Some(_) => Standing::Waits,
        }
    }

    /// Tells all members that have read this and were not told since.
    fn tell_all(&mut self, topic: Topic) {
        let links: Vec<_> = self.links.keys().copied().collect();
        for link in links {
            self.tell_of_change(link, topic);
        }
    }

    fn tell_of_change(&mut self, link_id: u64, topic: Topic) {
        let Some(link) = self.links.get(&link_id) else { return };
        let Some(session) = link.session.filter(|_| link.lagging.is_none()) else { return };
        let is_same =
            topic == Topic::Standing && link.read_standing == Some(self.standing(session));
        let Some(link) = self.links.get_mut(&link_id).filter(|_| !is_same) else { return };
        if link.watched.remove(&topic) {
            self.tell(link_id, Downward::Changed(topic));
        }
    }

    fn tell(&mut self, link: u64, message: Downward) {
        let now_ms = self.now_ms;
        self.counts.count(&message);
        if let Some(link) = self.links.get_mut(&link) {
            link.tell(now_ms, message);
        }
    }
}

impl Link {
    fn tell(&mut self, now_ms: u64, message: Downward) {
        let before = self.downward.back().map_or(0, |of| of.0);
        let at_ms = before.max(now_ms + self.downward_ms);
        self.downward.push_back((at_ms, self.connection, message));
    }

    /// Its server closes the connection.
    fn close(&mut self, now_ms: u64) {
        self.tell(now_ms, Downward::Closed);
        self.session = None;
        self.watched.clear();
    }
}
