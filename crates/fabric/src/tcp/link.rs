//! One thread's handle on a connection.

use super::connection::Connection;
use super::outbound::Posted;
use super::waiting::{Handle, lock};
use crate::sync::Instant;
use crate::{Completion, Link, LinkError, Transport, Waited, Work};
use remora_layout::limits::{MAX_READ_BYTES, MAX_WRITE_BYTES, TCP_STREAM_AHEAD_BYTES};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// An operation that was posted and not yet polled.
struct Pending {
    id: u64,
    /// It was never sent, for this reason.
    unsent: Option<LinkError>,
}

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
    pending: VecDeque<Pending>,
    /// READs whose bytes have not all come, oldest first.
    landings: VecDeque<Landing>,
    /// Executed operations at the front of `pending`.
    executed: u64,
    incoming: Vec<u8>,
    /// Why later posts fail, as far as this link knows.
    failure: Option<LinkError>,
    /// Why the connection failed: all that was sent and not executed fails.
    broken: Option<LinkError>,
    seen_arrivals: u64,
    /// Posts are kept until they are released.
    is_held: bool,
}

impl TcpLink {
    /// A further link on this connection.
    pub fn new(connection: Arc<Connection>) -> Self {
        let handle = Arc::new(Handle::default());
        connection.register(&handle);
        Self {
            connection,
            handle,
            landing: Vec::new(),
            pending: VecDeque::new(),
            landings: VecDeque::new(),
            executed: 0,
            incoming: Vec::new(),
            failure: None,
            broken: None,
            seen_arrivals: 0,
            is_held: false,
        }
    }

    /// The connection that it shares.
    pub fn connection(&self) -> &Arc<Connection> {
        &self.connection
    }

    /// Posts from now on wait in the connection's buffer until
    /// [`TcpLink::release`], or until somebody else's posts take them along.
    pub fn hold(&mut self) {
        self.is_held = true;
    }

    /// Sends what waits.
    pub fn release(&mut self) {
        if std::mem::take(&mut self.is_held) {
            self.connection.flush();
        }
    }

    /// Whether a large value may go on: not too much waits for the socket. If
    /// it may not, the agent is told that somebody waits for room.
    pub fn has_room(&self) -> bool {
        let has_room = || lock(&self.connection.out).pending_bytes() <= TCP_STREAM_AHEAD_BYTES;
        if has_room() {
            return true;
        }
        self.connection.room_wanted.store(true, Ordering::SeqCst);
        // Once more: the agent may have sent it all before it was told.
        has_room()
    }

    /// What this end can tell by itself.
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

    /// Takes what was delivered: bytes to their places, counts, the failure.
    fn absorb(&mut self) {
        let (executed, failure) = self.handle.take(&mut self.incoming);
        self.executed += executed;
        if let Some(reason) = failure {
            self.broken.get_or_insert(reason);
            self.failure.get_or_insert(reason);
        }
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
        // A large READ must not keep its memory twice for ever.
        self.incoming.shrink_to(MAX_WRITE_BYTES);
    }

    fn next_completion(&mut self) -> Option<Completion> {
        let front = self.pending.front()?;
        let result = match (front.unsent, self.executed, self.broken) {
            (Some(reason), _, _) => Err(reason),
            (None, 1.., _) => {
                self.executed -= 1;
                Ok(())
            }
            (None, 0, Some(reason)) => Err(reason),
            (None, 0, None) => return None,
        };
        let id = front.id;
        self.pending.pop_front();
        Some(Completion { id, result })
    }

    fn has_completion(&self) -> bool {
        self.pending.front().is_some_and(|front| {
            front.unsent.is_some() || self.executed > 0 || self.broken.is_some()
        })
    }

    /// What `wait` can report without sleeping.
    fn found(&mut self) -> Option<Waited> {
        self.absorb();
        if self.has_completion() {
            return Some(Waited::Completed);
        }
        let arrivals = self.connection.arrivals.load(Ordering::SeqCst);
        if arrivals != self.seen_arrivals {
            self.seen_arrivals = arrivals;
            return Some(Waited::Arrived);
        }
        self.failure.map(Waited::Failed)
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
        let mut out = lock(&connection.out);
        for work in batch {
            // A link that failed by itself sends nothing more.
            let taken = match self.failure.or(out.failure) {
                Some(reason) => Err(reason),
                None => self.check(work).and_then(|()| match *work {
                    Work::Read { from, bytes, .. } => {
                        let posted = Posted { region: from.region, offset: from.offset, bytes };
                        out.read(&self.handle, posted)
                    }
                    Work::Write { to, bytes, imm, .. } => {
                        let posted =
                            Posted { region: to.region, offset: to.offset, bytes: bytes.len() };
                        out.write(&self.handle, posted, bytes, imm)
                    }
                }),
            };
            match (*work, taken) {
                (Work::Read { into, bytes, .. }, Ok(())) => {
                    self.landings.push_back(Landing { into, left: bytes });
                }
                (_, Err(reason)) => self.failure = Some(reason),
                _ => {}
            }
            self.pending.push_back(Pending { id: work.id(), unsent: taken.err() });
        }
        drop(out);
        if !self.is_held {
            connection.flush();
        }
    }

    fn poll(&mut self) -> Option<Completion> {
        if let Some(completion) = self.next_completion() {
            return Some(completion);
        }
        self.absorb();
        if let Some(completion) = self.next_completion() {
            return Some(completion);
        }
        self.connection.pump_by_link();
        self.absorb();
        self.next_completion()
    }

    fn wait(&mut self, timeout: Option<Duration>) -> Waited {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let connection = Arc::clone(&self.connection);
        let handle = Arc::clone(&self.handle);
        // Ends with whatever comes, or with the time.
        let waited = loop {
            if let Some(found) = self.found() {
                break found;
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                break Waited::TimedOut;
            }
            let mut first = None;
            let led = connection.lead(left, || {
                first = self.found();
                first.is_some()
            });
            if let Some(found) = first {
                break found;
            }
            if led {
                continue;
            }
            // Somebody else leads: sleep until something concerns us. Entered
            // first, looked afterwards: see `waiting`.
            handle.arm();
            connection.waiters.enter(&handle);
            let found = self.found();
            let led = found.is_none() && connection.lead(Some(Duration::ZERO), || false);
            if found.is_none() && !led {
                handle.sleep(left);
            }
            connection.waiters.leave(&handle);
            if let Some(found) = found {
                break found;
            }
        };
        // If the pump was offered to us, the next one may have it.
        connection.waiters.hand_over();
        waited
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
        self.failure
    }
}
