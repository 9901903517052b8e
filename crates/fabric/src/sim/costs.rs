//! Fixed costs of operations in virtual time, instead of random ones: each link has a path there
//! and a path back, made of hops; hops may share stages.
//!
//! ```text
//!   post .. there: hop, hop .. [ effect ] .. back: hop, hop .. completion
//! ```
//! A stage serves one operation at a time, in the order of arrival: a port, a wire's bandwidth, a
//! thread that executes READs. An operation takes effect at one instant; nothing tears and nothing
//! is lost. So queueing times are exact, and two runs agree to the nanosecond.

use super::state::{Fetched, State};
use super::target::SimTarget;
use super::world::{SimWorld, lock};
use crate::{LinkError, RemoteAddress};
use std::sync::{Arc, Mutex};

/// Something that serves one operation after another. Cheap to clone: clones
/// are the same stage.
#[derive(Clone, Default, Debug)]
pub struct SimStage(Arc<Mutex<Served>>);

#[derive(Default, Debug)]
struct Served {
    free_at_ns: u64,
    busy_ns: u64,
}

impl SimStage {
    /// A stage that is free.
    pub fn new() -> Self {
        Self::default()
    }

    /// Serves what reaches it now, for `takes_ns`, behind what reached it
    /// before. Gives when that is over.
    pub fn serve(&self, now_ns: u64, takes_ns: u64) -> u64 {
        let mut served = lock(&self.0);
        served.busy_ns += takes_ns;
        served.free_at_ns = served.free_at_ns.max(now_ns) + takes_ns;
        served.free_at_ns
    }

    /// How long it has served, including the operations in flight; ns.
    pub fn busy_ns(&self) -> u64 {
        lock(&self.0).busy_ns
    }
}

/// One step of an operation's way.
#[derive(Clone, Default, Debug)]
pub struct SimHop {
    /// The stage that serves it; without one it takes as long, and no operation waits.
    pub stage: Option<SimStage>,
    /// For each READ, ns.
    pub read_ns: u64,
    /// For each WRITE, ns. What says that one has arrived takes none.
    pub write_ns: u64,
    /// For each byte that goes this way, ps.
    pub byte_ps: u64,
    /// From there to the next hop, ns.
    pub after_ns: u64,
}

/// The costs of a link's operations.
#[derive(Clone, Default, Debug)]
pub struct SimCosts {
    /// The way to the peer.
    pub there: Vec<SimHop>,
    /// The way back.
    pub back: Vec<SimHop>,
    /// Bytes that each operation takes on either way beside its own.
    pub header_bytes: u64,
    /// Whether a READ costs the peer's CPU; some hop says how much.
    pub reads_cost_peer_cpu: bool,
}

/// The kind of an operation.
pub(super) enum Act {
    Read {
        from: RemoteAddress,
        into: usize,
        bytes: usize,
    },
    Write {
        to: RemoteAddress,
        bytes: Vec<u8>,
        imm: Option<u32>,
    },
    /// Nothing: it fails, in its turn.
    Refused(LinkError),
}

/// One operation under way.
pub(super) struct Journey {
    pub world: SimWorld,
    pub target: SimTarget,
    pub state: Arc<Mutex<State>>,
    pub costs: Arc<SimCosts>,
    pub act: Act,
}

impl Journey {
    /// Goes on at this hop of the way there, now.
    pub fn there(self, hop: usize) {
        let Some(step) = self.costs.there.get(hop) else { return self.take_effect() };
        let (op_ns, own_bytes) = match &self.act {
            Act::Read { .. } => (step.read_ns, 0),
            Act::Write { bytes, .. } => (step.write_ns, bytes.len() as u64),
            Act::Refused(_) => (0, 0),
        };
        let next_ns = self.served_ns(step, op_ns, own_bytes);
        self.world.clone().schedule_at(next_ns, move || self.there(hop + 1));
    }

    fn served_ns(&self, step: &SimHop, op_ns: u64, own_bytes: u64) -> u64 {
        let takes_ns = op_ns + (own_bytes + self.costs.header_bytes) * step.byte_ps / 1_000;
        let now_ns = self.world.now_ns();
        let served_ns = match &step.stage {
            Some(stage) => stage.serve(now_ns, takes_ns),
            None => now_ns + takes_ns,
        };
        served_ns + step.after_ns
    }

    fn take_effect(self) {
        let dead = lock(&self.state).dead();
        let result = dead.map_or_else(|| self.effect(), Err);
        if let Err(reason) = result {
            lock(&self.state).refused.get_or_insert(reason);
        }
        self.back(0, result);
    }

    fn effect(&self) -> Result<Fetched, LinkError> {
        match &self.act {
            Act::Refused(reason) => Err(*reason),
            &Act::Read { from, into, bytes } => {
                let (words, _, offset) = self.target.readable(from, bytes)?;
                let mut shown = vec![0; bytes];
                words.copy_out(offset, &mut shown);
                Ok(Some((into, shown)))
            }
            Act::Write { to, bytes, imm } => {
                let (words, offset) = self.target.writable(*to, bytes.len())?;
                for (at, chunk) in bytes.chunks(8).enumerate() {
                    let mut word = [0; 8];
                    word[..chunk.len()].copy_from_slice(chunk);
                    words.store(offset / 8 + at, u64::from_le_bytes(word));
                }
                self.target.arrived(*imm, &self.world);
                Ok(None)
            }
        }
    }

    fn back(self, hop: usize, result: Result<Fetched, LinkError>) {
        let Some(step) = self.costs.back.get(hop) else {
            return lock(&self.state).complete(result);
        };
        let next_ns = match self.act {
            Act::Read { bytes, .. } => self.served_ns(step, step.read_ns, bytes as u64),
            // It waits its turn: completions come in order.
            Act::Write { .. } | Act::Refused(_) => {
                let now_ns = self.world.now_ns();
                let free_ns = step.stage.as_ref().map_or(now_ns, |stage| stage.serve(now_ns, 0));
                free_ns + step.after_ns
            }
        };
        self.world.clone().schedule_at(next_ns, move || self.back(hop + 1, result));
    }
}
