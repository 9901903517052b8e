//! A link at the server that holds a shard's writes until the shard's core has worked for their
//! time.

use remora_fabric::sim::SimLink;
use remora_fabric::{Completion, Link, LinkError, RemoteAddress, Transport, Waited, Work};
use remora_layout::frame::{FRAME_HEADER_BYTES, WRAP};
use remora_protocol::message::{HAS_VALUE, MORE, ReplyHeader};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use zerocopy::FromBytes;

/// Locks; a world runs in one thread and ends with a panic.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One WRITE that is kept.
struct Kept {
    link: Arc<Mutex<SimLink>>,
    id: u64,
    to: RemoteAddress,
    bytes: Vec<u8>,
    imm: Option<u32>,
}

/// The writes since the gate was opened last.
#[derive(Clone, Copy, Default, Debug)]
pub struct Written {
    /// Bytes of replies.
    pub bytes: u64,
    /// Nodes that searches visited for them.
    pub nodes: u64,
}

#[derive(Default)]
struct State {
    kept: Vec<Kept>,
    written: Written,
}

/// The gate of one core. Cheap to clone.
#[derive(Clone, Default)]
pub struct Gate(Arc<Mutex<State>>);

impl Gate {
    /// A link behind this gate. `has_searches`: the numbers of replies with
    /// values are nodes that were visited.
    pub fn link(&self, link: SimLink, has_searches: bool) -> GateLink {
        let link = Arc::new(Mutex::new(link));
        GateLink { gate: self.clone(), link, has_searches, charged: 0 }
    }

    /// The held writes are worth this much work.
    pub fn take_written(&self) -> Written {
        std::mem::take(&mut lock(&self.0).written)
    }

    /// Lets everything through.
    pub fn open(&self) {
        let kept = std::mem::take(&mut lock(&self.0).kept);
        for Kept { link, id, to, bytes, imm } in kept {
            lock(&link).post(&[Work::Write { id, to, bytes: &bytes, imm }]);
        }
    }
}

/// A session's way back to its client, behind its core's gate.
pub struct GateLink {
    gate: Gate,
    link: Arc<Mutex<SimLink>>,
    has_searches: bool,
    /// Nodes of the search under way that were charged.
    charged: u64,
}

impl GateLink {
    /// Nodes that this reply's search has visited since its last one.
    fn nodes_of(&mut self, frame: &[u8]) -> u64 {
        let Some((head, payload)) = frame.split_at_checked(FRAME_HEADER_BYTES) else { return 0 };
        let is_wrap = head[4..8] == WRAP.to_le_bytes();
        let Ok((header, _)) = ReplyHeader::ref_from_prefix(payload) else { return 0 };
        if is_wrap || !self.has_searches || header.flags & HAS_VALUE == 0 {
            return 0;
        }
        let all = u64::try_from(header.number.get()).unwrap_or(0);
        let nodes = all.saturating_sub(self.charged);
        self.charged = if header.flags & MORE == 0 { 0 } else { all };
        nodes
    }
}

impl Link for GateLink {
    fn transport(&self) -> Transport {
        Transport::Sim
    }

    fn reads_cost_peer_cpu(&self) -> bool {
        false
    }

    fn post(&mut self, batch: &[Work<'_>]) {
        for work in batch {
            let Work::Write { id, to, bytes, imm } = *work else {
                unreachable!("a server reads nothing of its clients")
            };
            let nodes = self.nodes_of(bytes);
            let kept = Kept { link: Arc::clone(&self.link), id, to, bytes: bytes.to_vec(), imm };
            let mut state = lock(&self.gate.0);
            state.written.nodes += nodes;
            state.written.bytes += bytes.len() as u64;
            state.kept.push(kept);
        }
    }

    fn poll(&mut self) -> Option<Completion> {
        lock(&self.link).poll()
    }

    fn wait(&mut self, timeout: Option<Duration>) -> Waited {
        lock(&self.link).wait(timeout)
    }

    fn landed(&self, _at: usize, _bytes: usize) -> &[u8] {
        &[]
    }

    fn reserve_landing(&mut self, _bytes: usize) {}

    fn failure(&self) -> Option<LinkError> {
        lock(&self.link).failure()
    }

    fn has_completed(&self) -> bool {
        lock(&self.link).has_completed()
    }
}
