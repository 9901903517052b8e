//! Traffic of the sessions' connections, for INFO.

use remora_fabric::{tcp, verbs};
use std::collections::HashMap;
use std::ops::AddAssign;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A connection that counts.
pub trait Counting {
    /// The type of its counts.
    type Traffic: AddAssign + Copy + Default;

    /// Its counts so far.
    fn traffic(&self) -> Self::Traffic;
}

impl Counting for tcp::Connection {
    type Traffic = tcp::Traffic;

    fn traffic(&self) -> tcp::Traffic {
        Self::traffic(self)
    }
}

impl Counting for verbs::Connection {
    type Traffic = verbs::Traffic;

    fn traffic(&self) -> verbs::Traffic {
        Self::traffic(self)
    }
}

/// Sums over the present connections and the former ones.
pub struct TrafficSums<C: Counting>(Mutex<Sums<C>>);

struct Sums<C: Counting> {
    /// By the session's number.
    live: HashMap<u64, Arc<C>>,
    ended: C::Traffic,
}

impl<C: Counting> Default for TrafficSums<C> {
    fn default() -> Self {
        Self(Mutex::new(Sums { live: HashMap::new(), ended: C::Traffic::default() }))
    }
}

impl<C: Counting> TrafficSums<C> {
    /// A session has this connection.
    pub fn enter(&self, session: u64, connection: Arc<C>) {
        self.lock().live.insert(session, connection);
    }

    /// The session has ended.
    pub fn leave(&self, session: u64) {
        let mut sums = self.lock();
        if let Some(connection) = sums.live.remove(&session) {
            sums.ended += connection.traffic();
        }
    }

    /// All of it.
    pub fn sum(&self) -> C::Traffic {
        let sums = self.lock();
        let mut sum = sums.ended;
        sums.live.values().for_each(|connection| sum += connection.traffic());
        sum
    }

    fn lock(&self) -> MutexGuard<'_, Sums<C>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
