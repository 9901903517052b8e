//! Memory of a client process into which servers write large values: data
//! messages, beside the small ones of the rings (RDMA_Mongo 4.3, M14).
//!
//! A request names the part that its reply may fill (M15); so every byte is either in exactly one
//! held part, or free. The paper keeps two queues of buffers, free and busy (M17); here the bytes
//! that no part covers are free, so that none can be in both queues, or lost. Dropping a part gives
//! it back, whatever happened to the request.
//!
//! Over RDMA memory costs locked pages. The client registers it on demand, in buffers that grow, up
//! to the limit of RDMA_Mongo's algorithm 2 (4.2, M9); it releases unused buffers when the limit
//! has sunk below the registered size.

use crate::clock::Clock;
use crate::sync::{Mutex, MutexGuard, lock_counted};
use remora_arena::ReadView;
use remora_fabric::LockWaits;
use remora_fabric::verbs::{DataMemory, NotRegistered};
use remora_layout::buffer_name::BufferName;
use remora_layout::limits::{DATA_BUFFER_STEP_BYTES, PAGE_BYTES};
use std::any::Any;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// How often the limit is computed again when parts are given back.
const LIMIT_LOOK: Duration = Duration::from_secs(1);

/// Memory that a server may write.
pub(crate) struct Buffer {
    pub view: ReadView,
    /// How a request names its first byte: see [`BufferName`].
    pub address: u64,
    pub key: u32,
    /// Its registration, if it has one.
    pub _registration: Option<Box<dyn Any + Send + Sync>>,
}

/// Registers memory on demand.
pub(crate) trait Registrar: Send + Sync {
    /// A new buffer.
    fn register(&self, bytes: usize) -> Result<Buffer, NotRegistered>;
    /// The present limit for the bytes of buffers, if `held` are registered.
    fn limit_bytes(&self, held: usize) -> usize;
}

/// As much memory of an RDMA device as the load allows.
pub(crate) struct ByLoad {
    pub memory: Box<DataMemory>,
    /// `S` of the formula.
    pub base_bytes: usize,
}

impl Registrar for ByLoad {
    fn register(&self, bytes: usize) -> Result<Buffer, NotRegistered> {
        let buffer = self.memory.register(bytes)?;
        let (view, address, key) = (buffer.view().clone(), buffer.address(), buffer.key());
        Ok(Buffer { view, address, key, _registration: Some(Box::new(buffer)) })
    }

    fn limit_bytes(&self, held: usize) -> usize {
        self.memory.limit_bytes(self.base_bytes, held)
    }
}

/// How much memory there is for large replies, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct DataBufferCounts {
    /// Bytes that servers may write; over RDMA registered, which locks them.
    pub bytes: usize,
    /// Bytes of it that in-flight replies hold.
    pub busy_bytes: usize,
    /// Limit for the registered bytes, as last computed; over other transports the whole memory.
    pub limit_bytes: usize,
}

/// See the module's text.
pub(crate) struct DataBuffers {
    /// `None`: the memory never changes.
    registrar: Option<Box<dyn Registrar>>,
    clock: Clock,
    pool: Mutex<Pool>,
    lock_waits: LockWaits,
}

struct Pool {
    held: Vec<Held>,
    /// Bytes of `held`, and of what is being registered.
    bytes: usize,
    limit_bytes: usize,
    looked_ns: u64,
    /// The waiting threads, in order (FIFO): no thread waits for ever, however much it needs.
    line: VecDeque<u64>,
    next_ticket: u64,
}

struct Held {
    buffer: Arc<Buffer>,
    /// Parts in use, by their start.
    busy: Vec<Range<usize>>,
}

/// The next step for a thread that needs a part.
enum Plan {
    Take(Arc<Buffer>, Range<usize>),
    /// Register so many bytes first.
    Grow(usize),
    Wait,
}

impl DataBuffers {
    /// One region, for good: over transports that need no registration.
    pub fn region(view: ReadView) -> Arc<Self> {
        let bytes = view.bytes();
        let buffer = Buffer { view, address: 0, key: 0, _registration: None };
        let held = vec![Held { buffer: Arc::new(buffer), busy: Vec::new() }];
        Self::new(None, Clock::default(), held, bytes, bytes)
    }

    /// Memory registered on demand; nothing yet.
    pub fn registered(registrar: Box<dyn Registrar>, clock: Clock) -> Arc<Self> {
        let limit_bytes = registrar.limit_bytes(0);
        Self::new(Some(registrar), clock, Vec::new(), 0, limit_bytes)
    }

    fn new(
        registrar: Option<Box<dyn Registrar>>,
        clock: Clock,
        held: Vec<Held>,
        bytes: usize,
        limit_bytes: usize,
    ) -> Arc<Self> {
        let looked_ns = clock.now_ns();
        let (line, next_ticket) = (VecDeque::new(), 0);
        let pool = Pool { held, bytes, limit_bytes, looked_ns, line, next_ticket };
        Arc::new(Self {
            registrar,
            clock,
            pool: Mutex::new(pool),
            lock_waits: LockWaits::default(),
        })
    }

    /// Enters the line for a part of this length.
    pub fn line_up(self: &Arc<Self>, bytes: usize) -> Ticket {
        let mut pool = self.lock_pool();
        let ticket = pool.next_ticket;
        pool.next_ticket += 1;
        pool.line.push_back(ticket);
        Ticket { buffers: Arc::clone(self), ticket, bytes: bytes.next_multiple_of(8).max(8) }
    }

    fn lock_pool(&self) -> MutexGuard<'_, Pool> {
        lock_counted(&self.pool, &self.lock_waits)
    }

    /// Times that a thread had to wait for another here.
    pub fn lock_waits(&self) -> u64 {
        self.lock_waits.get()
    }

    /// How much there is.
    pub fn counts(&self) -> DataBufferCounts {
        let pool = self.lock_pool();
        let busy = pool.held.iter().flat_map(|held| &held.busy);
        DataBufferCounts {
            bytes: pool.bytes,
            busy_bytes: busy.map(Range::len).sum(),
            limit_bytes: pool.limit_bytes,
        }
    }

    fn give_back(&self, part: &BufferRange) {
        let unused = {
            let mut pool = self.lock_pool();
            let held = pool.held.iter_mut().find(|held| Arc::ptr_eq(&held.buffer, &part.buffer));
            let held = held.expect("a buffer with a busy part stays");
            held.busy.retain(|busy| *busy != part.range);
            let Some(registrar) = &self.registrar else { return };
            if self.clock.since(pool.looked_ns) >= LIMIT_LOOK {
                pool.looked_ns = self.clock.now_ns();
                pool.limit_bytes = registrar.limit_bytes(pool.bytes);
            }
            let limit_bytes = pool.limit_bytes;
            pool.shrink(limit_bytes)
        };
        // Its registration ends here, outside of the lock.
        drop(unused);
    }
}

impl Pool {
    fn plan(&mut self, bytes: usize, registrar: Option<&dyn Registrar>) -> (Plan, Vec<Held>) {
        if let Some((buffer, range)) = self.held.iter_mut().find_map(|held| held.take(bytes)) {
            return (Plan::Take(buffer, range), Vec::new());
        }
        let Some(registrar) = registrar else { return (Plan::Wait, Vec::new()) };
        self.limit_bytes = registrar.limit_bytes(self.bytes);
        // Buffers that are too small, or too many, make room.
        let unused = self.shrink(self.limit_bytes.saturating_sub(bytes));
        let room = self.limit_bytes.saturating_sub(self.bytes);
        // However loaded the machine is, one value at a time is possible.
        if room < bytes && self.bytes > 0 {
            return (Plan::Wait, unused);
        }
        // Twice as much each time: few registrations reach the limit. The kernel locks whole pages.
        let most = room - room % PAGE_BYTES;
        let grow = self.bytes.max(DATA_BUFFER_STEP_BYTES).min(most).max(bytes);
        self.bytes += grow;
        (Plan::Grow(grow), unused)
    }

    /// Takes unused buffers out until there are no more than so many bytes.
    fn shrink(&mut self, bytes: usize) -> Vec<Held> {
        let mut unused = Vec::new();
        while self.bytes > bytes
            && let Some(at) = self.held.iter().position(|held| held.busy.is_empty())
        {
            let held = self.held.swap_remove(at);
            self.bytes -= held.buffer.view.bytes();
            unused.push(held);
        }
        unused
    }
}

impl Held {
    /// Takes the first free part of this length.
    fn take(&mut self, bytes: usize) -> Option<(Arc<Buffer>, Range<usize>)> {
        let mut from = 0;
        let mut at = 0;
        while let Some(part) = self.busy.get(at)
            && part.start - from < bytes
        {
            from = part.end;
            at += 1;
        }
        if self.buffer.view.bytes() - from < bytes {
            return None;
        }
        self.busy.insert(at, from..from + bytes);
        Some((Arc::clone(&self.buffer), from..from + bytes))
    }
}

/// A place in the line of waiting threads.
pub(crate) struct Ticket {
    buffers: Arc<DataBuffers>,
    ticket: u64,
    bytes: usize,
}

impl Ticket {
    /// The part, if it is this ticket's turn and there is room for it.
    ///
    /// # Errors
    /// The memory for it cannot be registered.
    pub fn try_take(&self) -> Result<Option<BufferRange>, NotRegistered> {
        let (buffers, registrar) = (&self.buffers, self.buffers.registrar.as_deref());
        let (plan, unused) = {
            let mut pool = buffers.lock_pool();
            if pool.line.front() != Some(&self.ticket) {
                return Ok(None);
            }
            pool.plan(self.bytes, registrar)
        };
        // Releasing makes room first.
        drop(unused);
        let part =
            |buffer, range| Some(BufferRange { buffers: Arc::clone(buffers), buffer, range });
        let grow = match plan {
            Plan::Take(buffer, range) => return Ok(part(buffer, range)),
            Plan::Wait => return Ok(None),
            Plan::Grow(bytes) => bytes,
        };
        // It takes a while: other threads give parts back meanwhile.
        let registered = registrar.expect("it planned to").register(grow);
        let mut pool = buffers.lock_pool();
        match registered {
            Ok(buffer) => {
                pool.bytes = pool.bytes - grow + buffer.view.bytes();
                let mut held = Held { buffer: Arc::new(buffer), busy: Vec::new() };
                let taken = held.take(self.bytes).expect("it is at least that long");
                pool.held.push(held);
                Ok(part(taken.0, taken.1))
            }
            Err(error) => {
                pool.bytes -= grow;
                Err(error)
            }
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.buffers.lock_pool().line.retain(|ticket| *ticket != self.ticket);
    }
}

/// Some bytes that a reply may fill. Dropping the range gives them back.
pub(crate) struct BufferRange {
    buffers: Arc<DataBuffers>,
    buffer: Arc<Buffer>,
    range: Range<usize>,
}

impl BufferRange {
    /// The name, as it stands in a message.
    pub fn name(&self) -> BufferName {
        BufferName {
            address: (self.buffer.address + self.range.start as u64).into(),
            bytes: (self.range.len() as u32).into(),
            key: self.buffer.key.into(),
        }
    }

    /// How long it is.
    pub fn bytes(&self) -> usize {
        self.range.len()
    }

    /// Copies its start out.
    pub fn copy_out(&self, into: &mut [u8]) {
        assert!(into.len() <= self.range.len(), "a value is not longer than its range");
        self.buffer.view.copy_out(self.range.start, into);
    }
}

impl Drop for BufferRange {
    fn drop(&mut self) {
        self.buffers.give_back(self);
    }
}

#[cfg(test)]
mod tests;
