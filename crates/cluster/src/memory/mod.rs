//! A coordinator in memory, with faults: for worlds from a seed and for tests.
//!
//! ```text
//!   MemoryCoordinator  <-- link: two queues, each with a delay, each may be cut -->  Ensemble
//!      clock of its member                                                 clock of the world
//! ```
//! One value of [`MemoryEnsemble`] stands for all servers of the coordinator. Messages cross the link
//! as they cross the connections of ZooKeeper: in order, and a watch is told once, after which the
//! member reads anew. So a member knows what it knows late, and may miss what was between.

mod client;
mod ensemble;
mod wire;

pub use client::MemoryCoordinator;
pub use wire::{Counts, LinkId};

use crate::coordinator::Term;
use crate::topology::{Instance, Topology};
use ensemble::Ensemble;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// See the module's text. Clones are the same coordinator.
#[derive(Clone, Default)]
pub struct MemoryEnsemble(Arc<Mutex<Ensemble>>);

impl MemoryEnsemble {
    /// A coordinator that knows nothing, at time 0.
    pub fn new() -> Self {
        Self::default()
    }

    /// A member's session, which begins with its first poll. `session_ms` is at least 3.
    pub fn connect(&self, session_ms: u64) -> MemoryCoordinator {
        MemoryCoordinator::new(Arc::clone(&self.0), session_ms)
    }

    /// Goes on to this time, ms: what has crossed a link arrives, and sessions of silent members end.
    /// Members get what was sent to them by then when they poll.
    pub fn advance(&self, now_ms: u64) {
        self.ensemble().advance(now_ms);
    }

    /// Cuts a link: what is on its way to the coordinator (`to`), or to the member (`from`), waits.
    pub fn cut(&self, link: LinkId, to: bool, from: bool) {
        self.ensemble().cut(link.0, to, from);
    }

    /// What is sent over a link from now on takes so long to the coordinator and to the member, ms.
    pub fn delay(&self, link: LinkId, to_ms: u64, from_ms: u64) {
        self.ensemble().delay(link.0, to_ms, from_ms);
    }

    /// The server at the other end of this link lags from now on: what a member reads there is as it is
    /// now, until it changes something itself, or until this ends.
    pub fn lag(&self, link: LinkId, lags: bool) {
        self.ensemble().lag(link.0, lags);
    }

    /// The servers have a quorum, or have none: then all connections end, and nothing happens.
    /// Sessions get their whole time anew when it is back.
    pub fn set_quorum(&self, has_quorum: bool) {
        self.ensemble().set_quorum(has_quorum);
    }

    /// Replaces the recorded topology by these bytes, as a program of another version may.
    pub fn overwrite(&self, bytes: Vec<u8>) {
        self.ensemble().overwrite(bytes);
    }

    /// The recorded topology, if there is one that can be read.
    pub fn topology(&self) -> Option<Topology> {
        self.ensemble().topology()
    }

    /// The instances that are present.
    pub fn members(&self) -> Vec<Instance> {
        self.ensemble().members()
    }

    /// What has crossed the links of all members since the beginning.
    pub fn counts(&self) -> Counts {
        self.ensemble().counts()
    }

    /// The first candidate, and its link if its process is there.
    pub fn watcher(&self) -> Option<(Term, Option<LinkId>)> {
        self.ensemble().watcher().map(|(term, link)| (term, link.map(LinkId)))
    }

    fn ensemble(&self) -> MutexGuard<'_, Ensemble> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
