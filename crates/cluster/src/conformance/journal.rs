//! What one member has heard, held against the contract as it comes.
//!
//! [`Journal::hear`] panics with the number of the rule of [`crate::coordinator`] that an event breaks,
//! as far as the events of one session show it. Worlds and tests give it each event.

use crate::coordinator::{Event, Outcome, Proposal, Refused, RequestId, SessionState, Standing};
use crate::topology::{Instance, Topology};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A request that has no answer yet.
struct Open {
    /// The cluster and the version that it proposes, or the version that it names.
    proposes: Option<(u64, u64)>,
    names: Option<u64>,
    /// The session was interrupted since.
    is_interrupted: bool,
}

/// See the module's text.
#[derive(Default)]
pub struct Journal {
    open: BTreeMap<RequestId, Open>,
    answers: BTreeMap<RequestId, Outcome>,
    last_id: u64,
    session: Option<SessionState>,
    topology: Option<Arc<Topology>>,
    /// Behind it came one that cannot be read.
    is_unreadable: bool,
    /// Topologies heard since the session came back.
    topologies_anew: u64,
    members: Option<Vec<Instance>>,
    standing: Option<Standing>,
    term: u64,
    sessions: [u64; 3],
    /// The other events, in order: [`Event::NoTopology`], [`Event::UnreadableTopology`].
    others: Vec<Event>,
}

impl Journal {
    /// The member asked.
    ///
    /// # Panics
    /// The id is not one more than the last one.
    pub fn asked(&mut self, id: RequestId) -> RequestId {
        assert_eq!(id.0, self.last_id + 1, "numbers of requests rise from 1");
        self.last_id = id.0;
        let open = Open { proposes: None, names: None, is_interrupted: false };
        self.open.insert(id, open);
        id
    }

    /// The member proposed.
    pub fn proposed(&mut self, id: RequestId, proposal: &Proposal) -> RequestId {
        self.asked(id);
        let of = &proposal.topology;
        self.open.entry(id).and_modify(|open| open.proposes = Some((of.cluster, of.version)));
        id
    }

    /// The member asked for a renewal under this version.
    pub fn renewed(&mut self, id: RequestId, topology_version: u64) -> RequestId {
        self.asked(id);
        self.open.entry(id).and_modify(|open| open.names = Some(topology_version));
        id
    }

    /// The member hears this.
    ///
    /// # Panics
    /// The event breaks the contract.
    pub fn hear(&mut self, event: &Event) {
        match event {
            Event::Session(state) => self.hear_session(*state),
            Event::Topology(topology) => self.hear_topology(topology),
            Event::Members(members) => {
                assert!(members.is_sorted_by(|a, b| a.member < b.member), "5: a member twice");
                self.members = Some(members.clone());
            }
            Event::Standing(standing) => self.hear_standing(*standing),
            Event::Answer(id, outcome) => self.hear_answer(*id, *outcome),
            Event::NoTopology => {
                assert!(self.topology.is_none(), "3: the topology is gone");
                self.others.push(event.clone());
            }
            Event::UnreadableTopology(_) => {
                self.is_unreadable = true;
                self.others.push(event.clone());
            }
        }
    }

    fn hear_session(&mut self, state: SessionState) {
        let may_follow = match state {
            SessionState::Connected => self.session != Some(SessionState::Connected),
            SessionState::Suspended => self.session == Some(SessionState::Connected),
            SessionState::Lost => self.session == Some(SessionState::Suspended),
        };
        assert!(may_follow, "8: {state:?} follows {:?}", self.session);
        self.session = Some(state);
        self.sessions[state as usize] += 1;
        match state {
            SessionState::Connected => self.topologies_anew = 0,
            SessionState::Suspended | SessionState::Lost => {
                self.open.values_mut().for_each(|open| open.is_interrupted = true);
                (self.members, self.standing) = (None, None);
            }
        }
    }

    fn hear_topology(&mut self, topology: &Arc<Topology>) {
        assert_eq!(topology.validate(), Ok(()), "an invalid topology");
        if let Some(before) = &self.topology {
            assert_eq!(before.cluster, topology.cluster, "3: the topology of another cluster");
            assert!(before.version <= topology.version, "3: the version fell");
            let comes_again = before.version == topology.version;
            assert!(!comes_again || self.topologies_anew == 0, "3: a version came twice");
            assert!(!comes_again || before == topology, "2: two topologies of one version");
        }
        self.topology = Some(Arc::clone(topology));
        self.is_unreadable = false;
        self.topologies_anew += 1;
    }

    fn hear_standing(&mut self, standing: Standing) {
        if let Standing::Leads(term) = standing {
            assert!(term.0 >= self.term, "7: the term fell");
            self.term = term.0;
        }
        self.standing = Some(standing);
    }

    fn hear_answer(&mut self, id: RequestId, outcome: Outcome) {
        let open = self.open.remove(&id).expect("1: an answer to no request, or a second one");
        self.answers.insert(id, outcome);
        let known = self.topology.as_ref().map_or((0, 0), |of| (of.cluster, of.version));
        match outcome {
            Outcome::Done => {
                assert!(!open.is_interrupted, "9: done behind an interruption");
                if let Some((cluster, version)) = open.proposes {
                    let is_known = known.0 == cluster && known.1 >= version;
                    assert!(is_known, "4: done, but {known:?} is what is known");
                }
            }
            Outcome::Refused(Refused::Outdated) => {
                let is_newer = match (open.proposes, open.names) {
                    (Some((cluster, version)), _) => known != (cluster, version.saturating_sub(1)),
                    (_, Some(version)) => known.1 != version,
                    (None, None) => false,
                };
                let is_newer = is_newer || self.is_unreadable;
                assert!(is_newer, "4: outdated, but {known:?} is what is known");
            }
            Outcome::Refused(_) | Outcome::NotSent | Outcome::Unknown => {}
        }
    }

    /// What became of a request, if it has its answer.
    pub fn answer(&self, id: RequestId) -> Option<Outcome> {
        self.answers.get(&id).copied()
    }

    /// Requests without an answer.
    pub fn open(&self) -> usize {
        self.open.len()
    }

    /// The session, as it was heard of last; `None` before it was connected.
    pub fn session(&self) -> Option<SessionState> {
        self.session
    }

    /// How often the session became so.
    pub fn times(&self, state: SessionState) -> u64 {
        self.sessions[state as usize]
    }

    /// The topology that came last.
    pub fn topology(&self) -> Option<&Arc<Topology>> {
        self.topology.as_ref()
    }

    /// Its version; 0 before the first.
    pub fn version(&self) -> u64 {
        self.topology.as_ref().map_or(0, |of| of.version)
    }

    /// Topologies that came since the session was connected.
    pub fn topologies_anew(&self) -> u64 {
        self.topologies_anew
    }

    /// The members, if they were heard of since the session was connected.
    pub fn members(&self) -> Option<&[Instance]> {
        self.members.as_deref()
    }

    /// The standing, if it was heard of since the session was connected.
    pub fn standing(&self) -> Option<Standing> {
        self.standing
    }

    /// Events about topologies that are not there, or cannot be read.
    pub fn others(&self) -> &[Event] {
        &self.others
    }
}
