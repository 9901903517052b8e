//! The role of a server, and the way in which it is changed.
//!
//! ```text
//!              REPLICAOF ADDRESS             REPLICAOF ADDRESS
//!   primary  ---------------------> replica <---+  (another one: all that was received of the
//!            <---------------------     |       |   old one is applied before)
//!              REPLICAOF NO ONE         +-------+
//!                                         RESYNC
//! ```
//! Invariants:
//! * one thread changes the role ([`super::thread`]), one change after the other; each is answered
//!   once it has happened;
//! * a server is a primary for all its shards, or for none, except for the time of a change: then
//!   its shards refuse changes of their data.

use super::state::Following;
use super::step_barrier::StepBarrier;
use remora_cluster::led_epoch::LedEpoch;
use remora_cluster::message::Position;
use remora_engine::TailPiece;
use remora_fabric::Address;
use remora_frontend::Token;
use remora_layout::limits::ROLE_CHANGES_WAITING;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

/// What a server is.
#[derive(Clone)]
pub enum Role {
    /// It takes changes, and replicas follow it.
    Primary,
    /// It follows this primary.
    Replica(Arc<Following>),
}

/// What a server is to become.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RoleChange {
    /// A primary.
    Lead,
    /// A replica of the server at this address.
    Follow(Address),
    /// It stays a replica, and copies its primary anew: what it has goes once the copy begins.
    Resync,
}

/// What a server of a cluster is to do, as the coordinator has recorded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Order {
    /// It neither leads nor follows: its log rings are withdrawn from its primary, and what they hold
    /// is taken out. Nothing beyond the commit position is applied.
    Hold,
    /// It follows the server at this address, of this incarnation, from where it is, or with a copy.
    /// The coordinator knows that this one has every acknowledged change, so no operator has to say so.
    Follow(Address, u64),
    /// It leads, with all that it has received.
    Lead,
    /// Its data directory is to say this, for a restart.
    Record(LedEpoch),
}

/// The answer to an [`Order`], or why it is not carried out: by shard of the primary, where what was
/// received of its log ends; `None` without a whole copy.
pub type OrderAnswer = Result<Option<Vec<Position>>, String>;

/// What the thread of the role is asked.
pub(crate) enum Asked {
    /// A change, and the request that waits for the answer.
    Change(RoleChange, Token),
    /// An order, and where the answer goes.
    Order(Order, SyncSender<OrderAnswer>),
    /// The server is stopping.
    Stop,
}

/// A step of a change that each shard's thread takes as soon as it reads it.
pub enum RoleStep {
    /// The shard takes no changes from now on, feeds no replica, and drops what it was given to
    /// apply.
    Follow(Arc<StepBarrier>),
    /// The shard takes changes again.
    Lead {
        /// The epoch of its entries.
        epoch: u64,
        /// The secret of the key of its log.
        log_secret: u64,
        /// By shard of the primary before, the last entries of its log.
        tails: Arc<Vec<Vec<TailPiece>>>,
        /// The step.
        barrier: Arc<StepBarrier>,
    },
}

/// The role, as all threads see it.
pub struct Roles {
    now: Mutex<Role>,
    epoch: AtomicU64,
    asked: SyncSender<Asked>,
    /// For the thread that changes the role, which takes it when it starts.
    changes: Mutex<Option<Receiver<Asked>>>,
}

impl Roles {
    /// A server starts as this, under this epoch.
    pub fn new(role: Role, epoch: u64) -> Self {
        let (asked, changes) = sync_channel(ROLE_CHANGES_WAITING);
        Self {
            now: Mutex::new(role),
            epoch: epoch.into(),
            asked,
            changes: Mutex::new(Some(changes)),
        }
    }

    /// The role now.
    pub fn now(&self) -> Role {
        self.now.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The primary that is followed now, if this server is a replica.
    pub fn following(&self) -> Option<Arc<Following>> {
        match self.now() {
            Role::Primary => None,
            Role::Replica(following) => Some(following),
        }
    }

    /// The epoch under which this server is primary, or was the last time.
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Why this server's log is not to be followed, for people.
    pub fn refusal(&self) -> String {
        match self.now() {
            Role::Primary => "this server is about to become a replica".into(),
            Role::Replica(following) => format!(
                "this server is itself a replica, of {}: follow that one, chains of replicas are not supported",
                following.primary
            ),
        }
    }

    /// Asks for a change. Its answer goes to the request with this token.
    ///
    /// # Errors
    /// The text of the reply: too many changes wait, or the server is stopping.
    pub fn ask(&self, change: RoleChange, token: Token) -> Result<(), &'static str> {
        match self.asked.try_send(Asked::Change(change, token)) {
            Ok(()) => Ok(()),
            Err(TrySendError::Full(_)) => Err("TRYAGAIN Other changes of the role are under way"),
            Err(TrySendError::Disconnected(_)) => Err("ERR The server is stopping"),
        }
    }

    /// As [`Roles::ask`], for the thread of the cluster. The answer comes through the channel; if its
    /// other end is gone, the server is stopping.
    ///
    /// # Errors
    /// As of [`Roles::ask`].
    pub fn order(&self, order: Order) -> Result<Receiver<OrderAnswer>, &'static str> {
        let (answer, answered) = sync_channel(1);
        match self.asked.try_send(Asked::Order(order, answer)) {
            Ok(()) => Ok(answered),
            Err(TrySendError::Full(_)) => Err("TRYAGAIN Other changes of the role are under way"),
            Err(TrySendError::Disconnected(_)) => Err("ERR The server is stopping"),
        }
    }

    pub(super) fn stop(&self) {
        // Fails only if the thread has ended, which is what is wanted.
        let _ = self.asked.send(Asked::Stop);
    }

    /// For the one thread that changes the role.
    pub(crate) fn take_changes(&self) -> Option<Receiver<Asked>> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(super) fn set(&self, role: Role) {
        *self.now.lock().unwrap_or_else(PoisonError::into_inner) = role;
    }

    pub(super) fn begin_epoch(&self, epoch: u64) {
        self.epoch.store(epoch, Ordering::Release);
    }
}
