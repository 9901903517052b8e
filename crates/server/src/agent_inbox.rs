//! How other threads reach an agent.

use crossbeam_queue::SegQueue;
use remora_fabric::remote::RemoteConnection;
use remora_fabric::shm::Bell;
use remora_fabric::shm::mark::ReadyMark;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A connection for an agent to serve.
pub struct Served {
    /// The connection.
    pub connection: RemoteConnection,
    /// The session's number.
    pub session: u64,
    /// The marks that announce new mail to each shard.
    pub marks: Arc<[ReadyMark]>,
    /// Set by the agent when the connection is at its end.
    pub has_ended: Arc<AtomicBool>,
}

/// How other threads reach an agent.
pub struct AgentInbox {
    new: SegQueue<Served>,
    /// Connections that want a turn although no event says so.
    wanted: SegQueue<u64>,
    bell: Bell,
}

impl AgentInbox {
    /// The inbox of the agent of the thread that this bell wakes.
    pub fn new(bell: Bell) -> Arc<Self> {
        Arc::new(Self { new: SegQueue::new(), wanted: SegQueue::new(), bell })
    }

    /// Gives the agent a connection.
    pub fn serve(&self, served: Served) {
        self.new.push(served);
        self.bell.ring();
    }

    /// A connection wants a turn.
    pub fn want(&self, token: u64) {
        self.wanted.push(token);
        self.bell.ring();
    }

    /// The next connection that it was given.
    pub fn next_served(&self) -> Option<Served> {
        self.new.pop()
    }

    /// The next connection that wants a turn.
    pub fn next_wanted(&self) -> Option<u64> {
        self.wanted.pop()
    }

    /// Whether nothing waits there.
    pub fn is_empty(&self) -> bool {
        self.new.is_empty() && self.wanted.is_empty()
    }
}
