//! One connection, shared by all links of a process with one peer.

use super::frame::Refused;
use super::inbound::{Inbound, ReceiveBuffer};
use super::outbound::{Outbound, Sent};
use super::regions::{Exposed, Regions};
use super::socket::Socket;
use super::traffic::{Counters, Traffic};
use crate::awaiting::Awaiting;
use crate::locks::lock;
use crate::sync::{AtomicBool, Mutex, MutexGuard, Ordering, SENDS_IN_A_ROW, fence};
use crate::waiting::{Handle, Handles, Turns, Waiters};
use crate::{HelloStream, LinkError, LockWaits};
use remora_layout::limits::STREAM_AHEAD_BYTES;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock, TryLockError};
use std::time::Duration;

/// The reader of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pumping {
    /// The links themselves, in `poll` and `wait`: a client.
    ByLinks,
    /// One agent, by [`Connection::serve`]: a server. Links only take the agent's deliveries.
    ByAgent,
}

/// How a turn of the agent ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Nothing more is there: wait for readiness.
    Idle,
    /// More may be there: the connection wants another turn.
    More,
    /// The peer has gone: take the connection down.
    Closed,
    /// The connection broke off for this reason: take it down.
    Failed(LinkError),
}

/// The result of a turn of the agent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// How it ended.
    pub state: State,
    /// Frames executed.
    pub frames: usize,
    /// READ bytes answered.
    pub read_bytes: usize,
}

/// One TCP connection; see the module's text.
pub struct Connection {
    pub(super) socket: Socket,
    pub(super) regions: Regions,
    pub(super) out: Mutex<Outbound>,
    pub(super) inbound: Mutex<Inbound>,
    handles: Handles,
    pub(super) waiters: Waiters,
    /// WRITEs of the peer that are stored.
    pub(super) arrivals: AtomicU64,
    /// A link waits for room in the buffer.
    pub(super) room_wanted: AtomicBool,
    /// Shards that wait for WRITEs.
    pub(super) awaiting: Awaiting,
    pumping: Pumping,
    /// Set under the lock of `out`.
    leader_sleeps: AtomicBool,
    /// A thread that has sent for others for long has left the rest to the holder of the pump,
    /// which sends it when it releases the pump.
    is_left: AtomicBool,
    /// Lets the agent serve the connection soon.
    wake_agent: OnceLock<Box<dyn Fn() + Send + Sync>>,
    pub(super) counters: Counters,
    pub(super) lock_waits: LockWaits,
}

impl Connection {
    /// Takes a connected stream, plain or with TLS, at a frame's start in both directions.
    ///
    /// # Errors
    /// The kernel refuses an option of the socket, or a descriptor.
    pub fn new(stream: impl Into<HelloStream>, pumping: Pumping) -> std::io::Result<Arc<Self>> {
        let socket = Socket::new(stream.into(), pumping == Pumping::ByLinks)?;
        Ok(Arc::new(Self::over(socket, pumping)))
    }

    pub(super) fn over(socket: Socket, pumping: Pumping) -> Self {
        let lock_waits = LockWaits::default();
        Self {
            socket,
            regions: Regions::new(),
            out: Mutex::new(Outbound::new()),
            inbound: Mutex::new(Inbound::new()),
            handles: Handles::default(),
            waiters: Waiters::new(lock_waits.clone()),
            arrivals: AtomicU64::new(0),
            room_wanted: AtomicBool::new(false),
            awaiting: Awaiting::default(),
            pumping,
            leader_sleeps: AtomicBool::new(false),
            is_left: AtomicBool::new(false),
            wake_agent: OnceLock::new(),
            counters: Counters::default(),
            lock_waits,
        }
    }

    /// Lets the peer read or write a region of this end. This end chooses region numbers, below
    /// [`remora_layout::limits::MAX_REGIONS`].
    pub fn expose(&self, region: u32, exposed: Exposed) {
        self.regions.expose(region, exposed);
    }

    /// Withdraws a region. Once this has returned, this end executes no further operation of the
    /// peer on it; the next one fails the peer's link.
    pub fn withdraw(&self, region: u32) {
        self.regions.withdraw(region);
    }

    /// Withdraws all regions, and tells the peer: the session is over. Once this has returned, this
    /// end executes no further operation of the peer. [`Self::serve`] must not call it.
    pub fn withdraw_all(&self) {
        self.regions.withdraw_all();
        let inbound = match self.pumping {
            Pumping::ByAgent => Some(lock(&self.inbound)),
            // A leader may sleep with the pump for long: then the peer learns it from the first
            // refused request.
            Pumping::ByLinks => self.inbound.try_lock().ok(),
        };
        if let Some(mut inbound) = inbound {
            self.refuse(&mut inbound, Refused::Withdrawn);
            self.tell(&mut inbound);
            drop(inbound);
            self.send_left();
            self.waiters.hand_over();
        }
    }

    /// Ends the connection in both directions; buffered bytes are lost.
    pub fn close(&self) {
        self.break_off(LinkError::Disconnected);
    }

    /// Why this end's operations fail, if they do.
    pub fn failure(&self) -> Option<LinkError> {
        self.lock_out().failure
    }

    /// Sets the callback that makes the agent call [`Self::serve`] without an event of the socket:
    /// a shard has sent for others for long, and leaves the rest.
    pub fn set_wake_agent(&self, wake: impl Fn() + Send + Sync + 'static) {
        let _ = self.wake_agent.set(Box::new(wake));
    }

    /// Counts of the traffic over the connection so far.
    pub fn traffic(&self) -> Traffic {
        self.counters.read()
    }

    /// Times that threads have waited for each other at the shared state.
    pub fn lock_waits(&self) -> u64 {
        self.lock_waits.get()
    }

    pub(super) fn lock_out(&self) -> MutexGuard<'_, Outbound> {
        self.lock_waits.lock(&self.out)
    }

    /// One turn of the agent, never blocking: one receive, executes all whole frames, answers,
    /// flushes. A turn that has answered a piece of READ bytes, or executed
    /// [`remora_layout::limits::TCP_FRAMES_PER_TURN`] frames, leaves the others to the next one,
    /// which receives nothing. It passes on immediates of the peer's WRITEs one by one, each after
    /// its bytes are stored.
    ///
    /// Fit for edge-triggered readiness: after a receive that did not fill the
    /// buffer the socket is empty, and what comes later is an event of its own.
    /// Only a peer's end that came before is not: `is_hung_up` is to say so
    /// from the event that tells it on. A turn that receives nothing does not
    /// use up an event: after it the connection wants another turn. Register
    /// the connection for reading and writing; other threads' posts can leave
    /// bytes to be flushed, too. With TLS the session may keep what the socket
    /// does not have any more: then, too, the connection wants another turn.
    pub fn serve(
        &self,
        buffer: &mut ReceiveBuffer,
        is_hung_up: bool,
        on_immediate: &mut dyn FnMut(u32),
    ) -> Progress {
        let mut inbound = lock(&self.inbound);
        inbound.lend(buffer);
        let state = self.pump(&mut inbound, is_hung_up, on_immediate);
        inbound.give_back(buffer);
        Progress { state, frames: inbound.frames, read_bytes: inbound.read_bytes }
    }

    /// Whether bytes wait for the socket to take them: call
    /// [`Self::serve`] again when it is writable.
    pub fn wants_write(&self) -> bool {
        self.lock_out().pending_bytes() > 0
    }

    /// Whether a link has waited for room since the last call, and there is some now: the caller
    /// has to wake the driver of that link.
    pub fn takes_more_again(&self) -> bool {
        use std::sync::atomic::Ordering::SeqCst;
        self.room_wanted.load(SeqCst)
            && self.lock_out().pending_bytes() <= STREAM_AHEAD_BYTES
            && self.room_wanted.swap(false, SeqCst)
    }

    /// The shards, as bits, that wait for WRITEs of which some have completed since the last call:
    /// the caller has to wake them.
    pub fn take_completed(&self) -> u64 {
        self.awaiting.take()
    }

    /// How an ended connection ended.
    pub(super) fn ended(&self) -> State {
        match self.failure() {
            None | Some(LinkError::Disconnected) => State::Closed,
            Some(reason) => State::Failed(reason),
        }
    }

    /// Bytes that go out before any frame: the hello.
    pub(super) fn begin_with(&self, bytes: &[u8]) {
        self.lock_out().begin_with(bytes);
        self.flush();
    }

    pub(super) fn register(&self, handle: &Arc<Handle>) {
        self.handles.enter(handle, || self.failure());
    }

    /// Fails all links of this end; the connection still serves the peer's requests.
    pub(super) fn fail(&self, reason: LinkError) {
        if !self.lock_out().fail(reason) {
            return;
        }
        self.handles.fail(reason);
    }

    /// Fails all links of this end and ends the connection.
    pub(super) fn break_off(&self, reason: LinkError) {
        self.fail(reason);
        self.socket.shut_down();
        self.waiters.wake_all();
    }

    /// Sends buffered bytes, as far as the socket takes them, unless another thread does: that
    /// thread also sends bytes added meanwhile. The rest is left to the leader, which is told to
    /// watch for room, or to the agent, which the socket notifies. False if the connection is
    /// broken.
    pub(super) fn flush(&self) -> bool {
        let mut rounds = 0;
        loop {
            let Some(mut sending) = self.lock_out().begin_sending() else { return true };
            let (sent, bytes) = sending.send(&self.socket);
            self.counters.sent(bytes);
            let mut out = self.lock_out();
            let has_more = out.end_sending(sending, bytes);
            match sent {
                Sent::Broken => {
                    drop(out);
                    self.break_off(LinkError::Disconnected);
                    return false;
                }
                Sent::Some => {
                    if self.leader_sleeps.load(Ordering::Relaxed) {
                        self.socket.kick();
                    }
                    return true;
                }
                Sent::All if !has_more => return true,
                Sent::All => {}
            }
            let leader_sleeps = self.leader_sleeps.load(Ordering::Relaxed);
            drop(out);
            rounds += 1;
            if rounds == SENDS_IN_A_ROW {
                if self.leave_rest(leader_sleeps) {
                    return true;
                }
                rounds = 0;
            }
        }
    }

    /// Leaves added bytes to the agent, or to the holder of the pump; false if there is neither.
    /// Then the thread keeps sending: without a thread that pumps no reply and no credit arrives,
    /// so that the others' in-flight bytes are bounded.
    pub(super) fn leave_rest(&self, leader_sleeps: bool) -> bool {
        if let Some(wake) = self.wake_agent.get() {
            wake();
            return true;
        }
        if self.pumping == Pumping::ByAgent {
            return false;
        }
        self.is_left.store(true, Ordering::Relaxed);
        // Either this thread finds the pump free, or the thread that releases it finds the mark.
        fence(Ordering::SeqCst);
        // If it was free it is let go at once, before another thread hears of it.
        let is_taken = matches!(self.inbound.try_lock(), Err(TryLockError::WouldBlock));
        if is_taken {
            if leader_sleeps {
                self.socket.kick();
            }
            self.counters.left_rest();
        } else {
            self.is_left.store(false, Ordering::Relaxed);
            self.waiters.hand_over();
        }
        is_taken
    }

    /// After the pump was released: sends the bytes left to its holder.
    pub(super) fn send_left(&self) {
        fence(Ordering::SeqCst);
        let is_left =
            self.is_left.load(Ordering::Relaxed) && self.is_left.swap(false, Ordering::Relaxed);
        if is_left {
            self.flush();
        }
    }

    /// A link polls: pumps once, if no other thread does.
    pub(super) fn pump_by_link(&self) {
        if self.pumping == Pumping::ByAgent {
            return;
        }
        match self.inbound.try_lock() {
            Ok(mut inbound) => {
                self.pump_for_link(&mut inbound);
                drop(inbound);
                self.send_left();
                self.waiters.hand_over();
            }
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Poisoned(_)) => self.break_off(LinkError::Disconnected),
        }
    }

    fn pump_for_link(&self, inbound: &mut Inbound) -> State {
        // Over shared memory an immediate only wakes; so it does here.
        self.pump(inbound, false, &mut |_| {})
    }

    fn sleep_on_socket(&self, timeout: Option<Duration>) {
        use Ordering::Relaxed;
        let wants_room = {
            // Under the lock: a later poster sees that this thread sleeps.
            let out = self.lock_out();
            self.leader_sleeps.store(true, Relaxed);
            out.wants_room()
        };
        self.socket.sleep(wants_room, timeout);
        self.leader_sleeps.store(false, Relaxed);
    }
}

impl Turns for Connection {
    fn lead(&self, timeout: Option<Duration>, mut came: impl FnMut() -> bool) -> bool {
        if self.pumping == Pumping::ByAgent {
            return false;
        }
        let mut inbound = match self.inbound.try_lock() {
            Ok(inbound) => inbound,
            Err(TryLockError::WouldBlock) => return false,
            Err(TryLockError::Poisoned(_)) => {
                self.break_off(LinkError::Disconnected);
                return true;
            }
        };
        if self.pump_for_link(&mut inbound) == State::Idle && !came() {
            self.sleep_on_socket(timeout);
            self.pump_for_link(&mut inbound);
        }
        drop(inbound);
        self.send_left();
        // No hand-over: the caller leads again, or hands over when it leaves.
        true
    }

    fn waiters(&self) -> &Waiters {
        &self.waiters
    }
}
