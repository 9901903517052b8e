//! What can go wrong for an application.

use remora_fabric::LinkError;
use remora_fabric::verbs::NotRegistered;
use remora_layout::limits::{MAX_CLIENT_SESSIONS, MAX_IN_FLIGHT, MAX_INLINE_BYTES, MAX_KEY_BYTES};
use remora_protocol::message::Status;
use remora_ring::Violation;

pub use remora_fabric::ConnectError;

/// Why an operation failed. Where [`Error::is_final`] says so, the session is
/// over: connect again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// The session belongs to the process that made it.
    #[error("this session belongs to the parent process: a forked child must connect itself")]
    Forked,
    /// The server's process has gone.
    #[error("the server has gone: connect again once it is back")]
    ServerGone,
    /// The server ended the session, or begins another incarnation.
    #[error("the server has ended this session: connect again")]
    SessionEnded,
    /// No reply in time, and no heartbeats either.
    #[error(
        "no reply from the server within the session's timeout, and its heartbeats have stopped: connect again"
    )]
    ServerSilent,
    /// No reply in time, from a server whose heartbeats arrive. The server may have executed the
    /// request, may execute it later, or never. The session continues, and drops a late reply.
    #[error(
        "no reply from the server within the session's timeout: whether the request is carried out is unknown"
    )]
    TimedOut,
    /// Other threads of the process hold the memory for large replies.
    #[error(
        "no memory for a large reply came free within the session's timeout: allow more of it, or fetch fewer large values at once"
    )]
    NoFreeBuffer,
    /// The device cannot register memory for a large reply.
    #[error(transparent)]
    NoBuffer(NotRegistered),
    /// The link failed.
    #[error("the link to the server failed: {0}")]
    Link(LinkError),
    /// The server wrote what no honest server writes.
    #[error("the server broke the protocol: {0}")]
    Protocol(&'static str),
    /// Longer than the limit.
    #[error("the key is longer than {MAX_KEY_BYTES} bytes")]
    KeyTooLong,
    /// Longer than the limit.
    #[error("key and value are together longer than {MAX_INLINE_BYTES} bytes, one request's most")]
    ValueTooLong,
    /// The caller has to take replies of submitted requests first.
    #[error("more than {MAX_IN_FLIGHT} submitted requests: take their replies first")]
    TooManySubmitted,
    /// Every session number of the connection is taken.
    #[error("this process has {MAX_CLIENT_SESSIONS} sessions on one connection: drop some")]
    TooManySessions,
    /// The disk has not confirmed all changes in time.
    #[error(
        "the server's disk has not confirmed {changes} or more changes within the timeout: they are in its memory and go on to the disk, wait again"
    )]
    NotSynced {
        /// Changes that are not on the disk, as far as the session knows.
        changes: u64,
    },
    /// Replicas have not stored all changes in time.
    #[error(
        "{replicas} replica(s) have stored the changes, fewer than asked for within the timeout: they are in the server's memory and go on to its replicas, wait again"
    )]
    NotReplicated {
        /// Replicas that have, at the shard with the fewest.
        replicas: u64,
    },
    /// The server is a replica, and what it shows may be older than the session's options allow.
    #[error(
        "the replica's answer may be {} old, more than max_lag allows: ask the primary, or again later",
        age_text(*.lag_ms)
    )]
    TooStale {
        /// How old it may be, ms; `None` if that is not known.
        lag_ms: Option<u64>,
    },
    /// The model of documents refused the request.
    #[error("the server refused: MongoDB's error {code}")]
    DocumentRefused {
        /// MongoDB's code.
        code: i32,
    },
    /// The shard refused the request.
    #[error("the server refused: {}", status_text(*.0))]
    Refused(Status),
}

impl Error {
    /// The form of a reply does not fit its request.
    pub(crate) const DOES_NOT_FIT: Self = Self::Protocol("a reply that does not fit its request");

    /// Whether the session is over.
    pub fn is_final(self) -> bool {
        !matches!(
            self,
            Self::Refused(_)
                | Self::DocumentRefused { .. }
                | Self::KeyTooLong
                | Self::ValueTooLong
                | Self::TooManySubmitted
                | Self::TooManySessions
                | Self::TimedOut
                | Self::NotSynced { .. }
                | Self::NotReplicated { .. }
                | Self::TooStale { .. }
                | Self::NoFreeBuffer
                | Self::NoBuffer(_)
        )
    }
}

impl From<LinkError> for Error {
    fn from(error: LinkError) -> Self {
        match error {
            LinkError::Withdrawn => Self::SessionEnded,
            other => Self::Link(other),
        }
    }
}

impl From<NotRegistered> for Error {
    fn from(refused: NotRegistered) -> Self {
        Self::NoBuffer(refused)
    }
}

impl From<Violation> for Error {
    fn from(violation: Violation) -> Self {
        Self::Protocol(match violation {
            Violation::Length => "a frame with an impossible length",
            Violation::Credit => "a credit that makes no sense",
        })
    }
}

fn age_text(lag_ms: Option<u64>) -> String {
    lag_ms.map_or_else(|| "of an unknown age or hours".into(), |ms| format!("{ms} ms"))
}

fn status_text(status: Status) -> &'static str {
    match status {
        Status::Ok => "done",
        Status::NotFound => "there is no such key",
        Status::NotDone => "the condition did not hold",
        Status::NotAnInteger => "the value is not a 64-bit integer",
        Status::NotANumber => "the score would not be a number",
        Status::NoPermission => {
            "this session's user may not do this, or not with this key: ACL LOG says what was refused"
        }
        Status::Refused => "the model of documents refuses it",
        Status::Overflow => "the result would not fit a 64-bit integer",
        Status::OutOfMemory => "its memory is full; raise max_memory or remove keys",
        Status::TooLarge => "key or value is longer than its limit",
        Status::Malformed => "it did not understand the request",
        Status::InvalidExpiry => "the expiry is out of range",
        Status::NoTree => "there is no such tree",
        Status::BadRectangle => "a rectangle needs finite numbers, minima first",
        Status::BadCapacity => "a node cannot have room for so many entries",
        Status::NotEmpty => "the tree is not empty: only an empty one can be built",
        Status::TwiceGiven => "two of the objects to build of have one id",
        Status::WrongType => "the key holds a value of another kind",
        Status::OtherLoad => {
            "this load of the tree is over: another has begun, or nothing came for too long"
        }
        Status::ReadOnly => "it is a replica: its primary, which its INFO names, is to be changed",
        Status::NoReads => {
            "it is a replica and answers no reads: ask its primary, which its INFO names, or start it with --replica-reads stale"
        }
        Status::Copying => "it is a replica and copies its primary's data: ask again later",
        Status::Fenced => {
            "the in-sync set of its cluster has not confirmed that it leads, and another server may"
        }
        Status::OtherGroup => "the key belongs to another group of its cluster: follow the cluster",
        Status::RoleChanged => {
            "it became a replica before it could answer: whether a change outlives that is not known"
        }
        Status::WaitEnded => "the wait for a key ended: it became a replica, or stops",
        Status::Unblocked => "another client ended the wait for a key",
        Status::NotKept => "the disk of the server's log takes nothing: its INFO says why",
        Status::TooFewReplicas => {
            "too few of its replicas keep up: start or mend replicas or, outside a cluster, lower its --min-replicas"
        }
        Status::NothingKept => "it keeps nothing: start it with --data-dir",
        Status::InPieces => "it has many parts, and takes several requests",
        Status::TryAgain => "the key is being renamed, copied or moved: ask again",
        Status::Outrun => "the value changed too much while it was read",
        Status::Stalled => "the value did not go on coming, and was given up: send it again",
        Status::BadGeometry => "not a geometry, or not one with this rectangle",
        Status::AskOwner => "only the tree's own shard knows",
        Status::NeedsBuffer => "the value is too large for a reply of this form; get it by itself",
    }
}

/// Whether a shard that refuses a change so has changed nothing, and another server, or the same one
/// later, may take it.
pub(crate) fn is_refused_for_now(status: Status) -> bool {
    matches!(
        status,
        Status::ReadOnly
            | Status::NoReads
            | Status::Copying
            | Status::Fenced
            | Status::OtherGroup
            | Status::TooFewReplicas
            | Status::WaitEnded
    )
}
