//! What a shard keeps of the requests that wait: [`super::waiters`] serves them.

use remora_layout::kind::Kind;
use remora_layout::limits::{WAITER_BYTES, WAITER_KEY_BYTES, WAITER_QUEUE_BYTES};
use remora_protocol::Claim;
use remora_protocol::message::Status;
use std::collections::{BTreeMap, VecDeque};

/// Names a request for the caller, who chooses it; several waiters may have one name.
pub type WaiterName = [u64; 4];

/// A request that may wait.
pub struct WaitFor {
    /// Its name.
    pub name: WaiterName,
    /// Shared by all places where it waits.
    pub claim: Claim,
    /// The encoded command for each of its keys, in the order in which the keys are looked at: each
    /// an operation of a type on one key that changes something.
    pub commands: Vec<Box<[u8]>>,
}

/// The answer to a request that may have waited.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Served {
    /// The request.
    pub name: WaiterName,
    /// The status of the reply to its command.
    pub status: Status,
    /// Its number.
    pub number: i64,
    /// If that is [`Status::Ok`], two items: the key, and the value of the command's reply.
    pub value: Option<Vec<u8>>,
    /// The sequence that the answer waits for; 0 for none.
    pub wait: u64,
}

impl Served {
    /// An answer that says that nothing was done.
    pub(super) fn refused(name: WaiterName, status: Status) -> Self {
        Self { name, status, number: 0, value: None, wait: 0 }
    }
}

impl WaitFor {
    /// The first word of the names of requests that come over rings. Their answers are taken apart
    /// from the others' ([`super::Shard::pop_served_at_rings`]).
    pub const AT_RINGS: u64 = u64::MAX;
}

/// Heap bytes of a request that waits: its commands, and a place in a queue for each. The queues count
/// for themselves.
pub(super) fn heap_bytes(wait: &WaitFor) -> u64 {
    let commands: usize = wait.commands.iter().map(|bytes| bytes.len() + WAITER_KEY_BYTES).sum();
    (commands + WAITER_BYTES) as u64
}

/// Heap bytes of a queue for this key.
pub(super) fn queue_bytes(key: &[u8]) -> u64 {
    (key.len() + WAITER_QUEUE_BYTES) as u64
}

/// The waiters for one key by operations of one type.
pub(super) struct Queue {
    pub(super) kind: Kind,
    pub(super) key: Box<[u8]>,
    /// By the waiter's number: its name, and which of its commands is for this key.
    pub(super) waiters: BTreeMap<u64, (WaiterName, usize)>,
}

/// The waiting requests of a shard.
#[derive(Default)]
pub(super) struct Waiters {
    pub(super) waiters: BTreeMap<(WaiterName, u64), WaitFor>,
    /// By the keys' hashes.
    pub(super) queues: BTreeMap<u64, Vec<Queue>>,
    pub(super) served: VecDeque<Served>,
    pub(super) served_at_rings: VecDeque<Served>,
    /// The number of the next waiter.
    pub(super) next: u64,
}
