//! The contract of a coordinator: what keeps the topology, and knows which members are there
//! (HydraDB 5.1, H31).
//!
//! ```text
//!   member                            coordinator: 3 or 5 servers with a quorum
//!     Coordinator -- requests -->       topology        one value, changed by compare-and-set
//!                 <-- events --         presence        one entry for each instance, of its session
//!                                       candidates      in the order in which they came; the first
//!                                                       of them is the watcher
//! ```
//! A [`Coordinator`] is one member's session. A call begins a request, and waits for nothing; what
//! comes of it is an [`Event`]. Nothing here is on the path of an operation of a client.
//!
//! # What each backend keeps
//!
//! `conformance.rs` tests it, with the same numbers.
//!
//! 1. **One answer.** Each request has one [`Event::Answer`]. [`Outcome::Done`]: it happened, a quorum
//!    has it, and it outlives each failure of a minority. [`Outcome::Refused`] and
//!    [`Outcome::NotSent`]: it has not happened, and will not. [`Outcome::Unknown`]: it has happened,
//!    or it will, or neither. After the next [`SessionState::Connected`] it happens no more.
//! 2. **Compare-and-set.** A topology is recorded only if its version is one more than the recorded one
//!    and the cluster is the same, all at once. So of the proposals of one version one succeeds at
//!    most. A proposal of a watcher is recorded only while that watcher's candidacy is there.
//! 3. **Topologies rise.** The versions that are delivered never fall. Each comes once, and once more
//!    with each [`SessionState::Connected`]; some may be left out. While the session is connected the
//!    newest one comes in the end.
//! 4. **Before the answer.** Behind [`Outcome::Done`] of a proposal, that topology or a newer one was
//!    delivered before. Behind [`Refused::Outdated`], another one was, or one that cannot be read.
//! 5. **Presence.** An instance is present from its [`Outcome::Done`] on, until it leaves or its session
//!    ends. One member has one presence: another session's is refused until then.
//! 6. **Renewal.** [`Outcome::Done`] of a renewal says: at one moment after it was sent, the session
//!    lived, the instance was present in it, and the recorded topology had the version that the
//!    request names. A quorum says so, not one server from its memory. So nothing that a newer topology
//!    says was recorded before the renewal was sent.
//! 7. **Watcher.** At the coordinator there is one first candidate at a time, and terms rise. A watcher
//!    may learn late that it is none any more; what it proposes is refused then (2).
//! 8. **Session.** A session ends when the coordinator has not heard of the member for
//!    [`Coordinator::session_ms`], and not earlier; without its quorum the coordinator ends none. Its
//!    presence and its candidacy end with it. A member that has heard nothing for two thirds of that
//!    gets [`SessionState::Suspended`]. No promise about data may depend on that: a process may stand
//!    still, and a link may fail in one direction. A lease, which counts from the sending of a
//!    renewal, does not. A new session begins by itself after [`SessionState::Lost`], without presence
//!    and candidacy.
//! 9. **Nothing old after a gap.** Behind [`SessionState::Suspended`] and [`SessionState::Lost`] no
//!    request from before has [`Outcome::Done`]. Behind [`SessionState::Connected`] the topology, the
//!    members and the candidate's standing come anew, read after it, though nothing has changed.

use crate::topology::{DecodeError, Instance, MemberId, Topology};
use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

/// Names a request of one [`Coordinator`]; numbers rise from 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RequestId(pub u64);

/// The term of a watcher: a later watcher has a greater one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Term(pub u64);

impl Display for Term {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// What a coordinator tells its member.
#[derive(Clone, PartialEq, Debug)]
pub enum Event {
    /// The session has changed.
    Session(SessionState),
    /// The topology that is recorded, or was a moment ago.
    Topology(Arc<Topology>),
    /// There is none: the cluster has not been made.
    NoTopology,
    /// There is one that this program cannot read. It proposes nothing then.
    UnreadableTopology(DecodeError),
    /// The instances that are present, sorted, or were a moment ago.
    Members(Vec<Instance>),
    /// How the member stands as a candidate.
    Standing(Standing),
    /// What has become of a request.
    Answer(RequestId, Outcome),
}

/// What is known of the session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SessionState {
    /// The coordinator answers.
    Connected,
    /// It does not. The session may be there still, and what it knows of the cluster may be old.
    Suspended,
    /// The session has ended: its presence and its candidacy are gone.
    Lost,
}

/// What is known of a candidacy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// It is no candidate.
    Out,
    /// Others came before it.
    Waits,
    /// It is the first: the watcher, in this term.
    Leads(Term),
}

/// What has become of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It happened.
    Done,
    /// It did not, and this is why.
    Refused(Refused),
    /// It did not: the session is not connected, or too many requests wait.
    NotSent,
    /// It is not known: the session was interrupted meanwhile.
    Unknown,
}

/// Why the coordinator refuses a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// The recorded topology is not the one before that which was proposed, or not the one that a
    /// renewal names.
    Outdated,
    /// There is a topology already, which [`Coordinator::create`] does not replace.
    HasTopology,
    /// Another session has the presence of this member, perhaps that of its process before.
    IsPresent,
    /// The instance is not present in this session.
    NotPresent,
    /// The candidacy of that term is over.
    NotWatcher,
}

/// A topology that is to be recorded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Proposal {
    /// What a change has made of the recorded one: its version is one more.
    pub topology: Topology,
    /// Of a watcher: its term.
    pub term: Option<Term>,
}

/// One member's session at the coordinator. See the module's text for what it keeps.
///
/// `now_ms` is a clock of the caller's own, which may jump forward and never goes back. The caller
/// polls at least every tenth of [`Coordinator::session_ms`]: some backends keep the session alive
/// there.
pub trait Coordinator {
    /// Time after which the coordinator ends the session of a silent member, ms.
    fn session_ms(&self) -> u64;

    /// Records the first topology of a cluster, if there is none.
    fn create(&mut self, now_ms: u64, topology: &Topology) -> RequestId;

    /// Records the next topology: compare-and-set by version.
    fn propose(&mut self, now_ms: u64, proposal: &Proposal) -> RequestId;

    /// Makes an instance present, until the session ends. Present in this session already: done.
    fn enter(&mut self, now_ms: u64, instance: Instance) -> RequestId;

    /// Ends the presence of this session's instance. None is present: done.
    fn leave(&mut self, now_ms: u64) -> RequestId;

    /// Asks a quorum whether the session lives, its instance is present, and the recorded topology
    /// still has this version. A lease counts from `now_ms`, before anything is sent.
    fn renew(&mut self, now_ms: u64, topology_version: u64) -> RequestId;

    /// Becomes a candidate for the watcher. A candidate already: done.
    fn stand(&mut self, now_ms: u64) -> RequestId;

    /// Is no candidate any more. None before: done.
    fn step_down(&mut self, now_ms: u64) -> RequestId;

    /// The next event, if there is one.
    fn poll(&mut self, now_ms: u64) -> Option<Event>;
}

/// An instance as bytes, as the coordinator keeps the presence of a member.
///
/// ```text
///   format 4 | 0 4 | member 8 | incarnation 8
/// ```
pub fn encode_presence(instance: Instance) -> [u8; PRESENCE_BYTES] {
    let mut bytes = [0; PRESENCE_BYTES];
    bytes[..4].copy_from_slice(&PRESENCE_FORMAT.to_le_bytes());
    bytes[8..16].copy_from_slice(&instance.member.0.to_le_bytes());
    bytes[16..].copy_from_slice(&instance.incarnation.to_le_bytes());
    bytes
}

/// The instance that was encoded so; `None` if another program has written it.
pub fn decode_presence(bytes: &[u8]) -> Option<Instance> {
    let bytes: &[u8; PRESENCE_BYTES] = bytes.try_into().ok()?;
    let word =
        |at: usize| bytes[at..at + 8].iter().rev().fold(0, |all, &byte| all << 8 | u64::from(byte));
    let instance = Instance { member: MemberId(word(8)), incarnation: word(16) };
    (word(0) == PRESENCE_FORMAT.into() && instance.member.0 != 0).then_some(instance)
}

/// Bytes of a presence.
pub const PRESENCE_BYTES: usize = 24;
const PRESENCE_FORMAT: u32 = 1;
