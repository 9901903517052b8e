//! One thread's handle on a connection.

use super::connection::Connection;
use super::peer::Remote;
use super::posting::Posting;
use super::registration::Registration;
use crate::pending_ops::PendingOps;
use crate::waiting::{self, Handle};
use crate::{Completion, Link, LinkError, Transport, Waited, Work};
use remora_layout::limits::{MAX_READ_BYTES, MAX_WRITE_BYTES};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A link on a shared [`Connection`]. Order holds within each link.
pub struct VerbsLink {
    connection: Arc<Connection>,
    handle: Arc<Handle>,
    /// Registered. A READ also keeps its landing memory.
    landing: Option<Arc<Registration>>,
    pending_ops: PendingOps,
    /// For each operation in the pending_ops, where it READs into.
    reads: VecDeque<(usize, usize)>,
    /// Never filled: the device writes READs to their places.
    nothing: Vec<u8>,
    /// The operations that are posted together.
    posting: Posting,
    /// Posts wait until they are released.
    is_held: bool,
}

impl VerbsLink {
    /// A further link on this connection.
    pub fn new(connection: Arc<Connection>) -> Self {
        let handle = Arc::new(Handle::new(connection.lock_waits.clone()));
        connection.register(&handle);
        Self {
            connection,
            handle,
            landing: None,
            pending_ops: PendingOps::default(),
            reads: VecDeque::new(),
            nothing: Vec::new(),
            posting: Posting::default(),
            is_held: false,
        }
    }

    /// Posts from now on wait for the doorbell until [`VerbsLink::release`], or
    /// until another link's doorbell takes them along.
    pub fn hold(&mut self) {
        self.is_held = true;
    }

    /// Rings the doorbell for what waits.
    pub fn release(&mut self) {
        if std::mem::take(&mut self.is_held) {
            self.connection.flush();
        }
    }

    /// From now on a caller waits for the completions of its WRITEs; the agent of the connection is
    /// to wake this shard for them.
    pub fn await_writes(&mut self, shard: usize) {
        self.connection.await_writes(shard);
    }

    /// Whether a large value may go on: see [`Connection::serve`].
    pub fn has_room(&self) -> bool {
        self.connection.has_room()
    }

    /// Posts a WRITE to an address of the peer's, with the key that it gave for
    /// it. Its device checks both; a wrong name ends the connection.
    pub fn post_to_named(&mut self, id: u64, address: u64, rkey: u32, bytes: &[u8]) {
        let taken = match self.pending_ops.failure().or(self.connection.failure()) {
            Some(reason) => Err(reason),
            None if bytes.len() > MAX_WRITE_BYTES => Err(LinkError::TooLong(bytes.len())),
            None => {
                let to = Remote { address, rkey, bytes: bytes.len() };
                let room = self.connection.check_room(&self.posting, bytes.len());
                room.map(|()| self.posting.write(&self.handle, to, bytes, None))
            }
        };
        self.entered(id, taken, (0, 0));
        self.hand_over();
    }

    /// Gives the operations that were posted together to the connection.
    fn hand_over(&mut self) {
        self.connection.post(&mut self.posting);
        if !self.is_held {
            self.connection.flush();
        }
    }

    /// One operation was posted, or was not; it READs into this place.
    fn entered(&mut self, id: u64, taken: Result<(), LinkError>, reads: (usize, usize)) {
        self.pending_ops.post(id, taken);
        self.reads.push_back(reads);
    }

    fn post_one(&mut self, work: &Work<'_>) -> Result<(), LinkError> {
        match *work {
            Work::Read { bytes, .. } if bytes > MAX_READ_BYTES => Err(LinkError::TooLong(bytes)),
            Work::Read { from, into, bytes, .. } => {
                let peer = self.connection.peer(from.region)?;
                let ranges = peer.read(from.region, from.offset, bytes)?;
                let landing = self.landing.as_ref().ok_or(LinkError::NoLanding)?;
                let end = into.checked_add(bytes).filter(|end| *end <= landing.bytes());
                end.ok_or(LinkError::NoLanding)?;
                self.connection.check_room(&self.posting, 0)?;
                self.posting.read(&self.handle, ranges, landing, into);
                Ok(())
            }
            Work::Write { bytes, .. } if bytes.len() > MAX_WRITE_BYTES => {
                Err(LinkError::TooLong(bytes.len()))
            }
            Work::Write { to, bytes, imm, .. } => {
                let peer = self.connection.peer(to.region)?;
                let remote = peer.write(to.region, to.offset, bytes.len())?;
                self.connection.check_immediate(imm)?;
                self.connection.check_room(&self.posting, bytes.len())?;
                self.posting.write(&self.handle, remote, bytes, imm);
                Ok(())
            }
        }
    }

    fn absorb(&mut self) {
        let (executed, failure) = self.handle.take(&mut self.nothing);
        self.pending_ops.absorb(executed, failure);
    }

    fn next(&mut self) -> Option<Completion> {
        let completion = self.pending_ops.next()?;
        self.reads.pop_front();
        Some(completion)
    }

    /// What `wait` can report without sleeping.
    fn found(&mut self) -> Option<Waited> {
        self.absorb();
        self.pending_ops.found(self.connection.arrivals.load(Ordering::SeqCst))
    }
}

impl Link for VerbsLink {
    fn transport(&self) -> Transport {
        Transport::Verbs
    }

    fn reads_cost_peer_cpu(&self) -> bool {
        false
    }

    fn post(&mut self, batch: &[Work<'_>]) {
        if batch.is_empty() {
            return;
        }
        for work in batch {
            // A link that failed by itself sends nothing more.
            let taken = match self.pending_ops.failure().or(self.connection.failure()) {
                Some(reason) => Err(reason),
                None => self.post_one(work),
            };
            let reads = match *work {
                Work::Read { into, bytes, .. } if taken.is_ok() => (into, bytes),
                _ => (0, 0),
            };
            self.entered(work.id(), taken, reads);
        }
        self.hand_over();
    }

    fn poll(&mut self) -> Option<Completion> {
        if let Some(completion) = self.next() {
            return Some(completion);
        }
        self.connection.poll();
        self.absorb();
        self.next()
    }

    fn wait(&mut self, timeout: Option<Duration>) -> Waited {
        let (connection, handle) = (Arc::clone(&self.connection), Arc::clone(&self.handle));
        let found = waiting::wait(&*connection, &handle, timeout, || self.found());
        found.unwrap_or(Waited::TimedOut)
    }

    fn landed(&self, at: usize, bytes: usize) -> &[u8] {
        let end = at + bytes;
        let is_free = |&(into, length): &(usize, usize)| into + length <= at || end <= into;
        assert!(self.reads.iter().all(is_free), "a READ into it is under way");
        match &self.landing {
            // SAFETY: no READ into the range is under way, and none can be
            // posted while `self` is borrowed.
            Some(landing) => unsafe { landing.landed(at, bytes) },
            None => &[][..bytes],
        }
    }

    fn reserve_landing(&mut self, bytes: usize) {
        let before = self.landing.as_ref().map_or(0, |landing| landing.bytes());
        if bytes <= before {
            return;
        }
        match Registration::own(self.connection.domain(), bytes) {
            Ok(landing) => {
                if self.landing.is_some() {
                    landing.store(0, self.landed(0, before));
                }
                self.landing = Some(Arc::new(landing));
            }
            Err(error) => {
                tracing::warn!(%error, "no memory to READ into");
                self.pending_ops.fail(LinkError::NotRegistered(error));
            }
        }
    }

    fn failure(&self) -> Option<LinkError> {
        self.pending_ops.failure()
    }

    fn has_completed(&self) -> bool {
        self.connection.poll();
        self.pending_ops.has_next() || self.handle.has_delivered()
    }
}
