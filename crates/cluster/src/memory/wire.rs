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
