//! What has gone over the TCP connections of sessions, for INFO.

use remora_fabric::tcp::{Connection, Traffic};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Sums over the connections that are there, and those that were.
#[derive(Default)]
pub struct TcpTraffic(Mutex<Sums>);

#[derive(Default)]
struct Sums {
    /// By the session's number.
    live: HashMap<u64, Arc<Connection>>,
    ended: Traffic,
}

impl TcpTraffic {
    /// A session has this connection.
    pub fn enter(&self, session: u64, connection: Arc<Connection>) {
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
    pub fn sum(&self) -> Traffic {
        let sums = self.lock();
        let mut sum = sums.ended;
        sums.live.values().for_each(|connection| sum += connection.traffic());
        sum
    }

    fn lock(&self) -> MutexGuard<'_, Sums> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
