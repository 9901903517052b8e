//! State that the tasks of one world share: the server, the history, the faults.

use crate::counts::RunCounts;
use crate::faults::Faults;
use crate::history::History;
use crate::node::Node;
use crate::probes::{Probe, Probes};
use crate::replicas::Replicas;
use crate::resp::Resp;
use crate::swarm::Swarm;
use remora_client_core::Error;
use remora_fabric::sim::SimWorld;
use remora_layout::limits::STREAM_BYTES;
use remora_protocol::message::Status;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// A world while it runs.
pub struct World {
    /// Time, network and randomness.
    pub sim: SimWorld,
    /// The seed's choices.
    pub swarm: Swarm,
    /// The server.
    pub node: Rc<RefCell<Node>>,
    /// Its RESP.
    pub resp: Resp,
    /// The clients' observations.
    pub history: RefCell<History>,
    /// The faults.
    pub faults: Rc<Faults>,
    /// Its replicas.
    pub replicas: Replicas,
    /// The rare paths that ran.
    pub probes: RefCell<Probes>,
    /// The generation of the hashes that go from key to key.
    pub moved: Cell<u16>,
    /// The trees that do.
    pub moved_trees: RefCell<Vec<u32>>,
    pub(crate) number: Cell<i64>,
    pub(crate) over: Cell<bool>,
    pub(crate) counts: Cell<RunCounts>,
}

impl World {
    /// Whether clients begin nothing more.
    pub fn is_over(&self) -> bool {
        self.over.get()
    }

    /// A number that no value stood for before.
    pub fn next_number(&self) -> i64 {
        // Apart from sums of counters, which stay small.
        let number = self.number.get() + 1;
        self.number.set(number);
        1_000_000 * number
    }

    /// Whether the server may refuse something so.
    pub fn may_refuse(&self, error: Error) -> bool {
        self.probes.borrow_mut().add_error(error);
        let needs_buffer = self.swarm.lengths.most_bytes > STREAM_BYTES as u64;
        let is_kept_off = error == Error::Refused(Status::NotKept);
        let lacks_replicas = error == Error::Refused(Status::TooFewReplicas);
        matches!(error, Error::Refused(Status::OutOfMemory))
            || (lacks_replicas && self.swarm.node.min_replicas > 0)
            || (is_kept_off && self.node.borrow().had_trouble())
            || (needs_buffer && error == Error::Refused(Status::NeedsBuffer))
    }

    /// A call of a client timed out, and its session continues.
    pub fn timed_out(&self, client: u32) {
        self.probes.borrow_mut().add_error(Error::TimedOut);
        let asked_ns = self.sim.now_ns().saturating_sub(self.swarm.timeout.as_nanos() as u64);
        let has_held = self.node.borrow().holds_for_failed(asked_ns);
        self.probes.borrow_mut().add(Probe::DiskTimedOut, has_held as u64);
        let now_ns = self.sim.now_ns();
        self.history.borrow_mut().note(now_ns, client, format_args!("a call timed out"));
        self.suspect_time_out(client);
    }

    fn suspect_time_out(&self, client: u32) {
        let wait_ns = self.swarm.node.disk.as_ref().map_or(0, |disk| disk.longest_wait_ns());
        let is_slow = u128::from(wait_ns) >= self.swarm.timeout.as_nanos();
        if self.faults.struck().is_empty() && !is_slow {
            let seen = format!("client {client} at {} ns", self.sim.now_ns());
            self.history.borrow_mut().violate("without faults nothing times out", seen);
        }
    }

    /// A client's session came to its end.
    pub fn ended(&self, client: u32, error: Error) {
        self.probes.borrow_mut().add_error(error);
        let now_ns = self.sim.now_ns();
        self.history.borrow_mut().note(now_ns, client, format_args!("session ended: {error}"));
        if error == Error::ServerSilent {
            self.suspect_time_out(client);
        }
        let is_ours = matches!(error, Error::Protocol(_) | Error::Forked);
        if is_ours {
            let seen = format!("client {client}: {error}");
            self.history.borrow_mut().violate("nobody breaks the protocol", seen);
        }
    }
}
