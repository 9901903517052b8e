//! One thread's handle on a connection.

use super::connection::Connection;
use super::outbound::Posted;
use crate::pending_ops::PendingOps;
use crate::waiting::{self, Handle};
use crate::{Completion, Link, LinkError, Transport, Waited, Work};
use remora_layout::limits::{MAX_READ_BYTES, MAX_WRITE_BYTES, STREAM_AHEAD_BYTES};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Where the bytes of a READ go.
struct Landing {
    into: usize,
    left: usize,
}

/// A link on a shared [`Connection`]. Order holds within each link.
pub struct TcpLink {
    connection: Arc<Connection>,
    handle: Arc<Handle>,
    landing: Vec<u8>,
    pending_ops: PendingOps,
    /// READs whose bytes have not all come, oldest first.
    landings: VecDeque<Landing>,
    incoming: Vec<u8>,
    /// Posts are kept until they are released.
    is_held: bool,
    /// WRITEs complete at once, or at some time.
    is_signalled: bool,
}

impl TcpLink {
    /// A further link on this connection.
    pub fn new(connection: Arc<Connection>) -> Self {
        let handle = Arc::new(Handle::new(connection.lock_waits.clone()));
        connection.register(&handle);
        Self {
            connection,
            handle,
            landing: Vec::new(),
            pending_ops: PendingOps::default(),
            landings: VecDeque::new(),
            incoming: Vec::new(),
            is_held: false,
            is_signalled: true,
        }
    }

    /// No caller waits for the completions of this link's WRITEs: the peer acknowledges them with
    /// the next bytes that it sends, or when it has executed
    /// [`remora_layout::limits::UNSIGNALLED_WRITES`].
    #[must_use]
    pub fn unsignalled(self) -> Self {
        Self { is_signalled: false, ..self }
    }

    /// From now on a caller waits for the completions of its WRITEs; the agent of the connection is
    /// to wake this shard for them.
    pub fn await_writes(&mut self, shard: usize) {
        self.is_signalled = true;
        self.connection.awaiting.enter(shard);
    }

    /// The connection that it shares.
    pub fn connection(&self) -> &Arc<Connection> {
        &self.connection
    }

    /// From now on posts wait in the connection's buffer until [`TcpLink::release`], or until
    /// another link's posts take them along.
    pub fn hold(&mut self) {
        self.is_held = true;
    }

    /// Sends what waits.
    pub fn release(&mut self) {
        if std::mem::take(&mut self.is_held) {
            self.connection.flush();
        }
    }

    /// Whether a large value may continue: not too many bytes wait for the socket. If not, it tells
    /// the agent that a link waits for room.
    pub fn has_room(&self) -> bool {
        let has_room = || self.connection.lock_out().pending_bytes() <= STREAM_AHEAD_BYTES;
        if has_room() {
            return true;
        }
        self.connection.room_wanted.store(true, Ordering::SeqCst);
        // Once more: the agent may have sent it all before it was told.
        has_room()
    }

    /// The checks that this end can make by itself.
    fn check(&self, work: &Work<'_>) -> Result<(), LinkError> {
        match *work {
            Work::Read { bytes, .. } if bytes > MAX_READ_BYTES => Err(LinkError::TooLong(bytes)),
            Work::Read { into, bytes, .. } => {
                let end = into.checked_add(bytes).filter(|end| *end <= self.landing.len());
                end.map(|_| ()).ok_or(LinkError::NoLanding)
            }
            Work::Write { bytes, .. } if bytes.len() > MAX_WRITE_BYTES => {
                Err(LinkError::TooLong(bytes.len()))
            }
            Work::Write { .. } => Ok(()),
        }
    }

    /// Takes the deliveries: bytes to their places, counts, the failure.
    fn absorb(&mut self) {
        let (executed, failure) = self.handle.take(&mut self.incoming);
        self.pending_ops.absorb(executed, failure);
        let mut bytes = &self.incoming[..];
        while let Some(landing) = self.landings.front_mut()
            && (!bytes.is_empty() || landing.left == 0)
        {
            let (now, later) = bytes.split_at(bytes.len().min(landing.left));
            self.landing[landing.into..landing.into + now.len()].copy_from_slice(now);
            landing.into += now.len();
            landing.left -= now.len();
            if landing.left == 0 {
                self.landings.pop_front();
            }
            bytes = later;
        }
        self.incoming.clear();
        // A large READ must not keep its memory twice permanently.
        self.incoming.shrink_to(MAX_WRITE_BYTES);
    }

    /// What `wait` can report without sleeping.
    fn found(&mut self) -> Option<Waited> {
        self.absorb();
        self.pending_ops.found(self.connection.arrivals.load(Ordering::SeqCst))
    }
}

impl Link for TcpLink {
    fn transport(&self) -> Transport {
        Transport::Tcp
    }

    fn reads_cost_peer_cpu(&self) -> bool {
        true
    }

    fn post(&mut self, batch: &[Work<'_>]) {
        if batch.is_empty() {
            return;
        }
        let connection = Arc::clone(&self.connection);
        let mut out = connection.lock_out();
        for work in batch {
            // A link that failed by itself sends nothing more.
            let taken = match self.pending_ops.failure().or(out.failure) {
                Some(reason) => Err(reason),
                None => self.check(work).and_then(|()| match *work {
                    Work::Read { from, bytes, .. } => {
                        let posted = Posted { region: from.region, offset: from.offset, bytes };
                        out.read(&self.handle, posted)
                    }
                    Work::Write { to, bytes, imm, .. } => {
                        let posted =
                            Posted { region: to.region, offset: to.offset, bytes: bytes.len() };
                        out.write(&self.handle, posted, bytes, (imm, self.is_signalled))
                    }
                }),
            };
            if let (Work::Read { into, bytes, .. }, Ok(())) = (*work, taken) {
                self.landings.push_back(Landing { into, left: bytes });
            }
            self.pending_ops.post(work.id(), taken);
        }
        drop(out);
        if !self.is_held {
            connection.flush();
        }
    }

    fn poll(&mut self) -> Option<Completion> {
        if let Some(completion) = self.pending_ops.next() {
            return Some(completion);
        }
        self.absorb();
        if let Some(completion) = self.pending_ops.next() {
            return Some(completion);
        }
        self.connection.pump_by_link();
        self.absorb();
        self.pending_ops.next()
    }

    fn wait(&mut self, timeout: Option<Duration>) -> Waited {
        let (connection, handle) = (Arc::clone(&self.connection), Arc::clone(&self.handle));
        let found = waiting::wait(&*connection, &handle, timeout, || self.found());
        found.unwrap_or(Waited::TimedOut)
    }

    fn landed(&self, at: usize, bytes: usize) -> &[u8] {
        &self.landing[at..at + bytes]
    }

    fn reserve_landing(&mut self, bytes: usize) {
        if self.landing.len() < bytes {
            self.landing.resize(bytes, 0);
        }
    }

    fn failure(&self) -> Option<LinkError> {
        self.pending_ops.failure()
    }

    fn has_completed(&self) -> bool {
        self.pending_ops.has_next() || self.handle.has_delivered()
    }
}
