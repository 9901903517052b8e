//! What passes between a member and the thread of its session.

use remora_cluster::coordinator::{Event, Proposal, RequestId};
use remora_cluster::topology::{Instance, Topology};

/// What the thread is asked.
pub(crate) struct Asked {
    pub id: RequestId,
    /// The connection that the caller knew: the request belongs to it.
    pub connection: u64,
    pub request: Request,
}

/// A request of [`remora_cluster::coordinator::Coordinator`].
pub(crate) enum Request {
    Create(Topology),
    Propose(Proposal),
    Enter(Instance),
    Leave,
    Renew { topology_version: u64 },
    Stand,
    StepDown,
}

/// What the thread says.
pub(crate) enum Heard {
    Connected { connection: u64, session_ms: u64 },
    Event(Event),
}
