//! What the sessions of a process share: the routes, and a connection to each primary.

use super::counts::{SharedCounts, count};
use super::pause::Pause;
use super::probes::{Probes, decoded};
use super::routes::{Lead, News, Routes};
use crate::options::Options;
use remora_client_core as core;
use remora_cluster::topology::{GroupId, Topology};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

/// A connection to a primary.
struct Connected {
    number: u64,
    lead: Lead,
    client: core::Client,
}

struct State {
    routes: Arc<Routes>,
    /// At most one for each group, to the primary that the routes have.
    connections: Vec<Connected>,
    /// The epoch of each group in which the client was last connected.
    used: Vec<(GroupId, u64)>,
    /// Connections so far.
    numbers: u64,
}

/// See the module's text.
pub(super) struct Shared {
    pub options: Options,
    pub counts: SharedCounts,
    state: Mutex<State>,
    /// Counts the changes of `state`: sessions look at it before each operation.
    changes: AtomicU64,
    dials: Dials,
    /// One thread at a time asks for the topology.
    probes: Mutex<Probes>,
}

/// The groups to whose primary a thread connects now: one at a time for each group, so that a primary that
/// does not answer holds up its own group only.
#[derive(Default)]
struct Dials {
    under_way: Mutex<Vec<GroupId>>,
    ended: Condvar,
}

impl Dials {
    /// The turn of a group: `Ok` at once, or `Err` once another thread has had it, or the time is up.
    fn turn(&self, group: GroupId, timeout: Duration) -> Result<Dial<'_>, ()> {
        let mut under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        if !under_way.contains(&group) {
            under_way.push(group);
            return Ok(Dial { dials: self, group });
        }
        let is_under_way = |groups: &mut Vec<GroupId>| groups.contains(&group);
        let waited = self.ended.wait_timeout_while(under_way, timeout, is_under_way);
        drop(waited);
        Err(())
    }
}

/// Ends the turn of a group.
struct Dial<'a> {
    dials: &'a Dials,
    group: GroupId,
}

impl Drop for Dial<'_> {
    fn drop(&mut self) {
        let mut under_way = self.dials.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        under_way.retain(|of| *of != self.group);
        drop(under_way);
        self.dials.ended.notify_all();
    }
}

/// The state, as a session keeps it.
pub(super) struct Seen {
    /// [`Shared::changes`] at that time, or before.
    pub changes: u64,
    pub routes: Arc<Routes>,
    /// The connection of each group, by number.
    pub connections: Vec<(GroupId, u64)>,
}

impl Shared {
    /// Without connections, by this topology.
    pub fn new(options: Options, topology: Topology, probes: Probes) -> Self {
        let state = State {
            routes: Arc::new(Routes::new(topology)),
            connections: Vec::new(),
            used: Vec::new(),
            numbers: 0,
        };
        Self {
            options,
            counts: SharedCounts::default(),
            state: Mutex::new(state),
            changes: 0.into(),
            dials: Dials::default(),
            probes: Mutex::new(probes),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes of the state so far.
    #[inline]
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// The state now.
    pub fn see(&self) -> Seen {
        let changes = self.changes();
        let state = self.state();
        let connections = state.connections.iter().map(|of| (of.lead.group, of.number)).collect();
        Seen { changes, routes: Arc::clone(&state.routes), connections }
    }

    /// A topology that a server has sent. Connections to former primaries, or of former epochs, end.
    /// Whether it is newer than what was known.
    pub fn adopt(&self, topology: Topology) -> bool {
        count(&self.counts.topologies_fetched, 1);
        let mut state = self.state();
        if state.routes.news(&topology) != News::Newer {
            return false;
        }
        let routes = Arc::new(Routes::new(topology));
        state
            .connections
            .retain(|of| routes.lead(of.lead.group).is_some_and(|lead| lead.is_as(&of.lead)));
        state.routes = routes;
        self.changes.fetch_add(1, Ordering::Release);
        true
    }

    /// As [`Shared::adopt`], of the encoding; one that cannot be read changes nothing.
    pub fn adopt_encoded(&self, bytes: &[u8]) -> bool {
        decoded(bytes).is_ok_and(|topology| self.adopt(topology))
    }

    /// The connection with this number is over.
    pub fn lose(&self, number: u64) {
        let mut state = self.state();
        let before = state.connections.len();
        state.connections.retain(|of| of.number != number);
        if state.connections.len() < before {
            count(&self.counts.connections_lost, 1);
            self.changes.fetch_add(1, Ordering::Release);
        }
    }

    /// Asks a server for the topology, unless another thread does. Whether there is a newer one.
    pub fn follow(&self, suspect: Option<&Lead>, pause: &Pause) -> bool {
        let mut probes = match self.probes.try_lock() {
            Ok(probes) => probes,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        let known = self.state().routes.addresses();
        let told = probes.ask(known, suspect.map(|of| &of.address), pause);
        told.is_ok_and(|topology| self.adopt(topology))
    }

    /// An operation has succeeded after it had failed: the connections to other servers end.
    pub fn settle(&self) {
        if let Ok(mut probes) = self.probes.try_lock() {
            probes.settle();
        }
    }

    /// A session with a primary, on the connection with this number. `None` if it gives none now, or
    /// is another process than the topology says, or if another thread has just tried, or tries for longer
    /// than `hello_timeout`.
    pub fn open(&self, lead: &Lead, hello_timeout: Duration) -> Option<(u64, core::Session)> {
        if let Some((number, client)) = self.connected(lead) {
            return Some((number, client.session().ok()?));
        }
        let turn = self.dials.turn(lead.group, hello_timeout);
        let (number, client) = match (self.connected(lead), &turn) {
            (Some(connected), _) => connected,
            (None, Err(())) => return None,
            (None, Ok(_)) => self.dial(lead, hello_timeout)?,
        };
        Some((number, client.session().ok()?))
    }

    fn dial(&self, lead: &Lead, hello_timeout: Duration) -> Option<(u64, core::Client)> {
        let options = core::Options { hello_timeout, ..self.options.core.clone() };
        let client = core::Client::connect(&lead.address, &options).ok()?;
        if client.incarnation() != lead.primary.incarnation {
            return None;
        }
        let mut state = self.state();
        if !state.routes.lead(lead.group).is_some_and(|now| now.is_as(lead)) {
            return None;
        }
        state.numbers += 1;
        let number = state.numbers;
        let before = state.used.iter().position(|(group, _)| *group == lead.group);
        match before.map(|at| &mut state.used[at].1) {
            Some(epoch) => {
                count(&self.counts.failovers_followed, u64::from(*epoch < lead.epoch));
                *epoch = lead.epoch;
            }
            None => state.used.push((lead.group, lead.epoch)),
        }
        state.connections.push(Connected { number, lead: lead.clone(), client: client.clone() });
        self.changes.fetch_add(1, Ordering::Release);
        Some((number, client))
    }

    fn connected(&self, lead: &Lead) -> Option<(u64, core::Client)> {
        let state = self.state();
        let found = state.connections.iter().find(|of| of.lead.is_as(lead))?;
        Some((found.number, found.client.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::routes::tests::{instance, topology};
    use std::net::TcpListener;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn a_primary_that_does_not_answer_holds_up_its_own_group_only() {
        // The kernel accepts, and nobody says hello.
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let lead = |group, address: std::net::SocketAddr| Lead {
            group: GroupId(group),
            epoch: 1,
            primary: instance(11),
            address: address.into(),
        };
        let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let (one, other) = (lead(1, silent.local_addr().unwrap()), lead(2, nobody));
        let options = Options::default();
        let probes = Probes::new(&options.core, &[]);
        let shared = Shared::new(options, topology(), probes);
        let has_ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert!(shared.open(&one, Duration::from_secs(60)).is_none());
                has_ended.store(true, Ordering::SeqCst);
            });
            while shared.dials.under_way.lock().unwrap().is_empty() {
                std::thread::yield_now();
            }
            assert!(shared.open(&other, Duration::from_secs(60)).is_none(), "it is refused");
            assert!(!has_ended.load(Ordering::SeqCst), "the first is not waited for");
            // One of the same group waits, but not for longer than it may.
            assert!(shared.open(&one, Duration::from_millis(10)).is_none());
            assert!(!has_ended.load(Ordering::SeqCst));
            drop(silent);
        });
        assert!(shared.dials.under_way.lock().unwrap().is_empty());
    }
}
