//! What can go wrong for an application.

use crate::options::Address;
use remora_client_core as core;
use remora_layout::limits::{MAX_CLIENT_SESSIONS, MAX_IN_FLIGHT, MAX_INLINE_BYTES, MAX_KEY_BYTES};
use remora_protocol::message::Status;
use std::fmt;

/// Why an operation failed. Where [`Error::is_final`] says so, the session is
/// over: connect again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The session belongs to the process that made it.
    #[error("this session belongs to the parent process: a forked child must connect itself")]
    Forked,
    /// The server's process has gone.
    #[error("the server has gone: connect again once it is back")]
    ServerGone,
    /// The server has ended the session, or has started anew.
    #[error("the server has ended this session: connect again")]
    SessionEnded,
    /// No reply within the timeout, and no heartbeats either.
    #[error(
        "no reply from the server within the session's timeout, and its heartbeats have stopped: connect again"
    )]
    ServerSilent,
    /// No reply within the timeout, from a server whose heartbeats arrive. The server may have
    /// executed the request, may execute it later, or never. The session continues.
    #[error(
        "no reply from the server within the session's timeout: whether the request is carried out is unknown"
    )]
    TimedOut,
    /// Other threads of the process hold the memory for large replies.
    #[error(
        "no memory for a large reply came free within the session's timeout: allow more of it, or fetch fewer large values at once"
    )]
    NoFreeBuffer,
    /// The RDMA device cannot register memory for a large reply.
    #[error("{0}")]
    NotRegistered(Cause),
    /// The link to the server failed.
    #[error("{0}")]
    Link(Cause),
    /// The server wrote what no honest server writes.
    #[error("the server broke the protocol: {0}")]
    Protocol(&'static str),
    /// The key is longer than the limit.
    #[error("the key is longer than {MAX_KEY_BYTES} bytes")]
    KeyTooLong,
    /// Key and value are together longer than the limit of one request.
    #[error("key and value are together longer than {MAX_INLINE_BYTES} bytes, one request's most")]
    ValueTooLong,
    /// The session has too many requests in flight.
    #[error("more than {MAX_IN_FLIGHT} requests in flight: take their replies first")]
    TooManyInFlight,
    /// Every session number of the connection is taken.
    #[error("this process has {MAX_CLIENT_SESSIONS} sessions on one connection: drop some")]
    TooManySessions,
    /// Names and values of an object's fields are too many or too long.
    #[error("an object cannot have so many fields, or such long ones")]
    BadFields,
    /// MongoDB allows no such name of a database or a collection.
    #[error("a database or a collection cannot have this name")]
    BadNamespace,
    /// The server refused a request about documents, as MongoDB does.
    #[error("the server refused: MongoDB's error {code}")]
    Documents {
        /// MongoDB's code of the error.
        code: i32,
    },
    /// The server's disk has not confirmed all changes in time
    /// ([`Session::wait_synced`](crate::Session::wait_synced)). They are in the server's memory, and
    /// go on to the disk.
    #[error(
        "the server's disk has not confirmed {changes} or more changes within the timeout: they are in its memory and go on to the disk, wait again"
    )]
    NotSynced {
        /// Changes that are not on the disk, as far as the session knows.
        changes: u64,
    },
    /// Replicas have not stored all changes in time
    /// ([`Session::wait_replicated`](crate::Session::wait_replicated)). They are in the server's
    /// memory, and go on to its replicas.
    #[error(
        "{replicas} replica(s) have stored the changes, fewer than asked for within the timeout: they are in the server's memory and go on to its replicas, wait again"
    )]
    NotReplicated {
        /// Replicas that have, at the shard with the fewest.
        replicas: u64,
    },
    /// The server is a replica, and what it shows may be older than
    /// [`Options::max_lag`](crate::Options::max_lag) allows.
    #[error("{0}")]
    TooStale(Cause),
    /// The reply to a change was lost with its primary, or did not come in time: the change may have
    /// happened, may happen yet, or never. The client has not sent it again
    /// ([`ClusterSession`](crate::ClusterSession)).
    #[error("whether the change happened is unknown: its primary is gone or has not answered")]
    Unknown,
    /// No server leads the group of the key within the timeout; nothing was changed
    /// ([`ClusterSession`](crate::ClusterSession)).
    #[error("no server of the cluster leads the key's group within the session's timeout")]
    NoPrimary,
    /// The server refused the request.
    #[error("the server refused: {0}")]
    Refused(Refusal),
}

impl Error {
    /// Whether the session is over: only a new connection helps.
    ///
    /// ```
    /// use remora_client::{Error, Refusal};
    ///
    /// assert!(Error::ServerGone.is_final());
    /// assert!(!Error::Refused(Refusal::WrongType).is_final());
    /// ```
    pub fn is_final(self) -> bool {
        matches!(
            self,
            Self::Forked
                | Self::ServerGone
                | Self::SessionEnded
                | Self::ServerSilent
                | Self::Link(_)
                | Self::Protocol(_)
        )
    }

    /// Why the server refused, if it did.
    ///
    /// ```
    /// use remora_client::{Error, Refusal};
    ///
    /// assert_eq!(Error::Refused(Refusal::OutOfMemory).refusal(), Some(Refusal::OutOfMemory));
    /// assert_eq!(Error::TimedOut.refusal(), None);
    /// ```
    pub fn refusal(self) -> Option<Refusal> {
        match self {
            Self::Refused(refusal) => Some(refusal),
            _ => None,
        }
    }
}

impl From<core::Error> for Error {
    fn from(error: core::Error) -> Self {
        match error {
            core::Error::Forked => Self::Forked,
            core::Error::ServerGone => Self::ServerGone,
            core::Error::SessionEnded => Self::SessionEnded,
            core::Error::ServerSilent => Self::ServerSilent,
            core::Error::TimedOut => Self::TimedOut,
            core::Error::NoFreeBuffer => Self::NoFreeBuffer,
            core::Error::NoBuffer(_) => Self::NotRegistered(Cause(error)),
            core::Error::Link(_) => Self::Link(Cause(error)),
            core::Error::Protocol(what) => Self::Protocol(what),
            core::Error::KeyTooLong => Self::KeyTooLong,
            core::Error::ValueTooLong => Self::ValueTooLong,
            core::Error::TooManySubmitted => Self::TooManyInFlight,
            core::Error::TooManySessions => Self::TooManySessions,
            core::Error::TooStale { .. } => Self::TooStale(Cause(error)),
            core::Error::NotSynced { changes } => Self::NotSynced { changes },
            core::Error::NotReplicated { replicas } => Self::NotReplicated { replicas },
            core::Error::DocumentRefused { code } => Self::Documents { code },
            core::Error::Refused(status) => Self::Refused(Refusal::of(status)),
        }
    }
}

/// The transport's description of a failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cause(core::Error);

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Why the server refused a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The key holds a value of another type.
    #[error("the key holds a value of another type")]
    WrongType,
    /// The value is not a 64-bit integer.
    #[error("the value is not a 64-bit integer")]
    NotAnInteger,
    /// The score would not be a number.
    #[error("the score would not be a number")]
    NotANumber,
    /// The sum does not fit a 64-bit integer.
    #[error("the result does not fit a 64-bit integer")]
    Overflow,
    /// The server's memory is full.
    #[error("its memory is full; raise max_memory or remove keys")]
    OutOfMemory,
    /// Key, value, field or id is longer than its limit.
    #[error("key or value is longer than its limit")]
    TooLarge,
    /// The expiry is out of range.
    #[error("the expiry is out of range")]
    InvalidExpiry,
    /// There is no such key.
    #[error("there is no such key")]
    NoKey,
    /// There is no such tree.
    #[error("there is no such tree")]
    NoTree,
    /// NaN, infinite or inverted numbers are no rectangle.
    #[error("a rectangle needs finite numbers, minima first")]
    BadRect,
    /// It is no geometry, or its bounds differ from the rectangle.
    #[error("not a geometry, or not one with this rectangle")]
    BadGeometry,
    /// A node of a tree cannot have room for so many entries.
    #[error("a node cannot have room for so many entries")]
    BadCapacity,
    /// A client can build only an empty tree of many objects.
    #[error("the tree is not empty: only an empty one can be built")]
    NotEmpty,
    /// Two of the objects to build the tree of have the same id.
    #[error("two of the objects to build of have one id")]
    DuplicateId,
    /// The server gave up building the tree, or another client has begun to build it.
    #[error("this load of the tree is over: another has begun, or nothing came for too long")]
    LoadOver,
    /// The server is a replica of another one.
    #[error("it is a replica: its primary, which its INFO names, is to be changed")]
    ReadOnly,
    /// The server is a replica that answers no reads.
    #[error(
        "it is a replica and answers no reads: ask its primary, which its INFO names, or start it with --replica-reads stale"
    )]
    NoReads,
    /// The server is a replica that does not have all data of its primary yet.
    #[error("it is a replica and copies its primary's data: ask again later")]
    Copying,
    /// The server is a primary of a cluster without its lease: another one may lead.
    #[error(
        "the in-sync set of its cluster has not confirmed that it leads, and another server may"
    )]
    Fenced,
    /// The key belongs to another group of the server's cluster.
    #[error("the key belongs to another group of its cluster: connect by a ClusterClient")]
    OtherGroup,
    /// The wait for a key has ended; nothing was changed.
    #[error("the wait for a key ended: it became a replica, or stops")]
    WaitEnded,
    /// The disk of the server's log takes nothing more; nothing was changed.
    #[error("the disk of the server's log takes nothing: its INFO says why")]
    NotKept,
    /// Fewer replicas keep up than the server asks for before it acknowledges; nothing was changed.
    #[error(
        "too few of its replicas keep up: start or mend replicas or, outside a cluster, lower its --min-replicas"
    )]
    TooFewReplicas,
    /// The server has no log on a disk, so that nothing it holds outlives it.
    #[error("it keeps nothing on a disk: start it with --data-dir DIR")]
    NothingKept,
    /// The key is being renamed, copied or moved.
    #[error("the key is being renamed, copied or moved: ask again")]
    TryAgain,
    /// The value changed too much during the read: ask again.
    #[error("the value changed too much while it was read: ask again")]
    Outrun,
    /// The pieces of a large value stopped coming: send it again.
    #[error("the value did not go on coming, and was given up: send it again")]
    Stalled,
    /// The server did not understand the request.
    #[error("it did not understand the request")]
    Malformed,
    /// The session's user may not do this, or not with this key.
    #[error("this user may not do this, or not with this key: ACL LOG says what was refused")]
    NoPermission,
    /// The value is larger than any reply.
    #[error("the value is too large for a reply of this form; get it by itself")]
    NeedsBuffer,
}

impl Refusal {
    fn of(status: Status) -> Self {
        match status {
            Status::WrongType => Self::WrongType,
            Status::NotAnInteger => Self::NotAnInteger,
            Status::NotANumber => Self::NotANumber,
            Status::Overflow => Self::Overflow,
            Status::OutOfMemory => Self::OutOfMemory,
            Status::TooLarge => Self::TooLarge,
            Status::InvalidExpiry => Self::InvalidExpiry,
            Status::NotFound => Self::NoKey,
            Status::NoTree => Self::NoTree,
            Status::BadRectangle => Self::BadRect,
            Status::BadGeometry => Self::BadGeometry,
            Status::BadCapacity => Self::BadCapacity,
            Status::NotEmpty => Self::NotEmpty,
            Status::TwiceGiven => Self::DuplicateId,
            Status::OtherLoad => Self::LoadOver,
            Status::ReadOnly => Self::ReadOnly,
            Status::NoReads => Self::NoReads,
            Status::Copying => Self::Copying,
            Status::Fenced => Self::Fenced,
            Status::OtherGroup => Self::OtherGroup,
            Status::WaitEnded | Status::Unblocked => Self::WaitEnded,
            Status::NotKept => Self::NotKept,
            Status::TooFewReplicas => Self::TooFewReplicas,
            Status::NothingKept => Self::NothingKept,
            Status::TryAgain | Status::InPieces => Self::TryAgain,
            Status::Outrun => Self::Outrun,
            Status::Stalled => Self::Stalled,
            Status::NoPermission => Self::NoPermission,
            Status::NeedsBuffer => Self::NeedsBuffer,
            // `Refused` is an error of its own, and the last one never comes to a session, which ends instead.
            Status::Ok
            | Status::NotDone
            | Status::Malformed
            | Status::AskOwner
            | Status::Refused
            | Status::RoleChanged => Self::Malformed,
        }
    }
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct ConnectError(pub(crate) core::ConnectError);

impl ConnectError {
    /// The kind of failure.
    ///
    /// ```no_run
    /// use remora_client::{Client, ConnectFailure, Options};
    ///
    /// let address = "/run/user/1000/remora.sock".parse()?;
    /// match Client::connect(&address, &Options::default()) {
    ///     Err(error) if error.kind() == ConnectFailure::Unreachable => println!("start the server"),
    ///     other => println!("{:?}", other.map(|client| client.transport())),
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn kind(&self) -> ConnectFailure {
        match &self.0 {
            core::ConnectError::Unreachable { .. } => ConnectFailure::Unreachable,
            core::ConnectError::Refused { refusal, .. } if refusal.is_about_the_user() => {
                ConnectFailure::NotLoggedIn
            }
            core::ConnectError::LongCredentials => ConnectFailure::NotLoggedIn,
            core::ConnectError::Refused { .. } => ConnectFailure::Refused,
            core::ConnectError::Unavailable { .. } | core::ConnectError::Verbs { .. } => {
                ConnectFailure::TransportUnavailable
            }
            core::ConnectError::NotAServer { .. } => ConnectFailure::NotAServer,
            core::ConnectError::NeedsTls { .. } | core::ConnectError::Tls { .. } => {
                ConnectFailure::Tls
            }
            core::ConnectError::NoPointerSharing { .. }
            | core::ConnectError::PointerFile { .. } => ConnectFailure::NoPointerSharing,
            core::ConnectError::Memory(_)
            | core::ConnectError::Link(_)
            | core::ConnectError::System(_) => ConnectFailure::System,
        }
    }
}

/// Why there is no [`ClusterClient`](crate::ClusterClient).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClusterConnectError {
    /// No address was given.
    #[error("no address of a server of the cluster was given, or none was tried in time")]
    NoAddress,
    /// The last server that was tried gives no session.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The server has gone meanwhile, or does not answer.
    #[error(transparent)]
    Session(Error),
    /// The server belongs to no cluster, or has not reached its coordinator yet.
    #[error("the server at {0} belongs to no cluster, or has not reached its coordinator yet")]
    NoCluster(Address),
    /// The topology cannot be read: the server is of another release.
    #[error("the topology that the server at {0} tells cannot be read: {1}")]
    Topology(Address, String),
}

/// Kinds of [`ConnectError`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ConnectFailure {
    /// No server listens there.
    Unreachable,
    /// The server refused the session.
    Refused,
    /// The server has users, and gives this one no session: it is none of them, its password is another
    /// one, or it may not do all.
    NotLoggedIn,
    /// The transport that the options name is not available.
    TransportUnavailable,
    /// The peer is no Remora server of this version.
    NotAServer,
    /// One side speaks TLS and the other does not, or they do not trust each other's certificates.
    Tls,
    /// The options ask for shared pointers, and they are not available.
    NoPointerSharing,
    /// The operating system refused something, or the link failed at once.
    System,
}
