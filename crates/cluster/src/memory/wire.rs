//! What crosses the link between a member and the coordinator in memory.

use crate::coordinator::{Outcome, RequestId, Standing, Term};
use crate::topology::Instance;

/// Names the link of one member to the coordinator.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LinkId(pub(super) u64);

/// What a member reads, and what it is told once of after that.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Topic {
    Topology,
    Members,
    Standing,
}

/// To the coordinator.
#[derive(Clone, Debug)]
pub(super) enum Upward {
    /// Opens a connection, of a new session or of this one.
    Connect {
        session: Option<u64>,
        session_ms: u64,
    },
    Ping,
    Read(Topic),
    Request(RequestId, Request),
}

/// A request of [`crate::coordinator::Coordinator`].
#[derive(Clone, Debug)]
pub(super) enum Request {
    Create(Recorded),
    Propose(Recorded, Option<Term>),
    Enter(Instance),
    Leave,
    Renew { topology_version: u64 },
    Stand,
    StepDown,
}

/// A topology as it is recorded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Recorded {
    pub cluster: u64,
    pub version: u64,
    pub bytes: Vec<u8>,
}

/// To a member.
#[derive(Clone, Debug)]
pub(super) enum Downward {
    /// The connection is open, of this session.
    Welcome {
        session: u64,
    },
    /// The session has ended.
    Expired,
    /// The connection ends.
    Closed,
    Pong,
    Topology(Option<Vec<u8>>),
    Members(Vec<Instance>),
    Standing(Standing),
    /// What was read of this is not so any more.
    Changed(Topic),
    Answer(RequestId, Outcome),
}

/// What has crossed the links so far.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// Messages of members: requests, reads and pings.
    pub requests: u64,
    /// Proposals of a topology, and those of them that were refused.
    pub proposals: u64,
    /// See `proposals`.
    pub refused: u64,
    /// Topologies that members got, and their bytes.
    pub topologies: u64,
    /// See `topologies`.
    pub topology_bytes: u64,
    /// Lists of the members that are present, and their entries.
    pub lists: u64,
    /// See `lists`.
    pub list_entries: u64,
}

impl Counts {
    pub(super) fn count(&mut self, message: &Downward) {
        match message {
            Downward::Topology(bytes) => {
                self.topologies += 1;
                self.topology_bytes += bytes.as_ref().map_or(0, |of| of.len() as u64);
            }
            Downward::Members(members) => {
                self.lists += 1;
                self.list_entries += members.len() as u64;
            }
            _ => {}
        }
    }

    /// What has crossed since an earlier count.
    pub fn since(self, before: Self) -> Self {
        Self {
            requests: self.requests - before.requests,
            proposals: self.proposals - before.proposals,
            refused: self.refused - before.refused,
            topologies: self.topologies - before.topologies,
            topology_bytes: self.topology_bytes - before.topology_bytes,
            lists: self.lists - before.lists,
            list_entries: self.list_entries - before.list_entries,
        }
    }
}
