//! One queue pair, shared by all links of a process with one peer (H41: fewer
//! connections).
//!
//! Any thread may take completions, and delivers them to the links that they belong to. `driving`
//! describes which thread waits for them.
//!
//! One thread at a time has the device, and posts the operations that all links have handed over,
//! by one doorbell. A thread that finds it taken does not wait: the holder checks again after it
//! has released the device, and a link hands over before it tries.

use super::completions::Completions;
use super::errors::VerbsError;
use super::memlock::STAGING_BYTES;
use super::objects::Domain;
use super::outbound::Outbound;
use super::peer::PeerRegion;
use super::posting::{Intake, Posting};
use super::pumping::{IfTaken, Pumped, Taken, pump};
use super::queue_pair::{QueuePair, RECEIVE};
use super::reasons::{cause, told_by};
use super::registration::Registration;
use super::traffic::{Counters, Traffic};
use super::window::Window;
use crate::awaiting::Awaiting;
use crate::locks::lock;
use crate::sync::Mutex;
use crate::waiting::{Handle, Handles, Waiters};
use crate::{LinkError, LockWaits};
use remora_layout::immediate::shard_of;
use remora_layout::limits::{SENDS_IN_A_ROW, STREAM_AHEAD_BYTES};
use remora_layout::verbs::WITHDRAWN;
use remora_verbs_sys::*;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::net::{RecvFlags, SendFlags};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Completions taken at a time.
const BATCH: usize = 32;

/// For how long a client waits to hear why its peer's device has refused an operation.
const WORD_WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// The parts of a connection. If no connection comes of them they are dropped in this order:
/// windows before their queue pair, both before the memory.
pub struct Parts {
    /// What only the peer of this queue pair may reach.
    pub windows: Vec<Window>,
    /// Connected.
    pub pair: QueuePair,
    /// Its domain.
    pub domain: Arc<Domain>,
    /// The TCP connection over which it was made.
    pub control: TcpStream,
    /// The regions that the peer grants for reading and writing.
    pub peer: Vec<PeerRegion>,
    /// Shards that this end's immediates may name.
    pub shards: usize,
    /// What this end lets the peer reach.
    pub exposed: Vec<Registration>,
    /// Told of each immediate that comes. It does not use the connection.
    pub on_immediate: Box<dyn Fn(u32) + Send + Sync>,
}

/// The queue pair and its resources, with the windows that only its peer reaches: they go before
/// their queue pair.
struct Device {
    _windows: Vec<Window>,
    pair: QueuePair,
    out: Outbound,
}

/// The receiver of the events of a connection's descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Driver {
    Agent,
    Links,
}

/// See the module's text.
pub struct Connection {
    /// Gone once the connection has ended, with its windows: before the memory
    /// that they reach.
    device: Mutex<Option<Device>>,
    /// The queue pair's number.
    number: u32,
    intake: Intake,
    counters: Arc<Counters>,
    pub(super) completions: Arc<Completions>,
    pub(super) domain: Arc<Domain>,
    peer: Vec<PeerRegion>,
    shards: usize,
    pub(super) control: TcpStream,
    /// The memory that the peer reaches.
    _exposed: Vec<Registration>,
    on_immediate: Box<dyn Fn(u32) + Send + Sync>,
    handles: Handles,
    pub(super) waiters: Waiters,
    pub(super) lock_waits: LockWaits,
    /// Immediates that have come.
    pub(super) arrivals: AtomicU64,
    /// A link waits for room.
    pub(super) room_wanted: AtomicBool,
    /// Shards that wait for WRITEs.
    awaiting: Awaiting,
    /// Batches of completions that one turn takes: all that the queue holds. A peer that sends
    /// without pause does not occupy a thread. Completions that arrive during the turn signal the
    /// channel.
    rounds: usize,
    /// The thread that sleeps for all holds it.
    pub(super) leads: Mutex<()>,
    pub(super) kick: OwnedFd,
    /// The driver so far.
    pub(super) driver: OnceLock<Driver>,
    over: OnceLock<LinkError>,
}

impl Connection {
    /// A connection of these parts.
    ///
    /// # Errors
    /// Memory to send from cannot be registered, or there is no descriptor.
    pub fn new(parts: Parts) -> Result<Arc<Self>, VerbsError> {
        let system = |why| VerbsError::Failed { step: "set up a connection", why };
        parts.control.set_nonblocking(true).map_err(system)?;
        let staging = Registration::own(&parts.domain, STAGING_BYTES)?;
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let kick = eventfd(0, flags).map_err(|error| system(error.into()))?;
        let rounds = parts.pair.entries() as usize / BATCH + 1;
        let lock_waits = LockWaits::default();
        let counters = Arc::default();
        Ok(Arc::new(Self {
            rounds,
            completions: Arc::clone(&parts.pair.completions),
            number: parts.pair.number(),
            device: Mutex::new(Some(Device {
                _windows: parts.windows,
                pair: parts.pair,
                out: Outbound::new(staging, Arc::clone(&counters)),
            })),
            intake: Intake::new(lock_waits.clone()),
            counters,
            domain: parts.domain,
            peer: parts.peer,
            shards: parts.shards,
            control: parts.control,
            _exposed: parts.exposed,
            on_immediate: parts.on_immediate,
            handles: Handles::default(),
            waiters: Waiters::new(lock_waits.clone()),
            lock_waits,
            arrivals: AtomicU64::new(0),
            room_wanted: AtomicBool::new(false),
            awaiting: Awaiting::default(),
            leads: Mutex::new(()),
            kick,
            driver: OnceLock::new(),
            over: OnceLock::new(),
        }))
    }

    /// Its domain, for a link's landing memory.
    pub(super) fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    /// The name of its device.
    pub fn device(&self) -> &str {
        &self.domain.context.name
    }

    /// Counts of the operations given to the device, and of completions.
    pub fn traffic(&self) -> Traffic {
        self.counters.read(self.arrivals.load(Ordering::Relaxed))
    }

    /// Whether this many bytes may be posted behind the operations that a link has already posted.
    pub(super) fn check_room(&self, behind: &Posting, bytes: usize) -> Result<(), LinkError> {
        self.intake.check_room(behind, bytes)
    }

    /// Takes over a link's posted operations; [`Self::flush`] gives them to the device.
    pub(super) fn post(&self, posting: &mut Posting) {
        self.intake.post(posting);
    }

    /// The peer's region with this number.
    pub(super) fn peer(&self, region: u32) -> Result<&PeerRegion, LinkError> {
        self.peer.get(region as usize).ok_or(LinkError::NoSuchRegion(region))
    }

    /// Whether the peer listens for this immediate.
    pub(super) fn check_immediate(&self, imm: Option<u32>) -> Result<(), LinkError> {
        match imm {
            Some(imm) if shard_of(imm) >= self.shards => Err(LinkError::NoSuchImmediate(imm)),
            _ => Ok(()),
        }
    }

    pub(super) fn register(&self, handle: &Arc<Handle>) {
        self.handles.enter(handle, || self.failure());
    }

    /// Times that threads have waited for each other at the shared state.
    pub fn lock_waits(&self) -> u64 {
        self.lock_waits.get()
    }

    /// Why this end's operations fail, if they do.
    pub fn failure(&self) -> Option<LinkError> {
        self.over.get().copied()
    }

    /// Hands the posted operations to the device, unless another thread has it: that thread then
    /// does. Operations for which the device has no room go out when others complete, in the thread
    /// that takes those completions.
    pub(super) fn flush(&self) {
        let mut rounds = 0;
        let (mut has_waiting, mut failed) = (false, None);
        let is_done = self.intake.drive(&self.device, |device| {
            let Some(Device { pair, out, .. }) = device else { return false };
            failed = out.flush(pair, &self.intake).err();
            has_waiting = out.has_waiting();
            if has_waiting {
                self.completions.arm(false);
            }
            rounds += 1;
            let is_for_agent = self.driver.get() == Some(&Driver::Agent);
            failed.is_none() && !has_waiting && !(is_for_agent && rounds == SENDS_IN_A_ROW)
        });
        match failed {
            Some(reason) => self.end_after(reason),
            // What completed before it was armed raises no event.
            None if has_waiting => self.pump(),
            None if is_done => {}
            None => self.wake_driver(),
        }
    }

    /// Makes the driver of the connection look at it soon.
    fn wake_driver(&self) {
        // A full counter means that a kick is already due.
        let _ = rustix::io::write(&self.kick, &1u64.to_ne_bytes());
    }

    /// Takes completions and arrived immediates, and gives the device the operations that wait for
    /// a free place or were posted during the turn. The caller has armed the completion queue.
    pub fn pump(&self) {
        self.look(IfTaken::Wait);
    }

    /// The same for a thread that polls: its first round leaves a taken device alone (`pumping`).
    pub(super) fn poll(&self) {
        self.look(IfTaken::Leave);
    }

    fn look(&self, if_taken: IfTaken) {
        self.domain.context.look_now_and_then();
        self.look_after_device();
        let take = |device: &mut Device, may_arm| self.take_completions(device, may_arm);
        match pump(&self.device, &self.intake, if_taken, self.rounds, take) {
            Pumped::Done => {}
            Pumped::Left => self.wake_driver(),
            Pumped::Failed(reason) => self.end_after(reason),
        }
    }

    /// Ends the connection whose device has failed: with the peer's reason, if the peer has sent
    /// one.
    ///
    /// A refused operation in most cases means that the peer has withdrawn the session. The peer
    /// sends the word first, but the device may be faster than the socket, so a client waits for
    /// the word. An agent serves other peers and does not wait.
    fn end_after(&self, reason: LinkError) {
        if reason == LinkError::Denied && self.driver.get() != Some(&Driver::Agent) {
            let mut control = [PollFd::new(&self.control, PollFlags::IN)];
            // Interrupted: the reason is less exact.
            let _ = poll(&mut control, Some(&WORD_WAIT));
        }
        self.end(self.ended().unwrap_or(reason));
    }

    /// One batch of completions, and the operations that then have a place. If some still wait for
    /// a place, the next completion raises an event, where `may_arm` allows it.
    fn take_completions(&self, device: &mut Device, may_arm: bool) -> Taken {
        // SAFETY: plain data, valid as zeros.
        let mut taken: [ibv_wc; BATCH] = unsafe { std::mem::zeroed() };
        let Device { pair, out, .. } = device;
        let count = self.completions.poll(&mut taken);
        let (mut told, mut failed) = (Vec::new(), cause(&taken[..count]));
        for completion in &taken[..count] {
            if completion.status != IBV_WC_SUCCESS {
                continue;
            }
            if completion.wr_id == RECEIVE {
                match told_by(completion) {
                    Ok(imm) => told.push(imm),
                    Err(reason) => failed = failed.or(Some(reason)),
                }
                if pair.expect_immediate().is_err() {
                    failed = failed.or(Some(LinkError::Device(IBV_WC_GENERAL_ERR)));
                }
            } else {
                out.complete(completion.wr_id, &self.intake);
                self.awaiting.completed();
            }
        }
        failed = failed.or(out.flush(pair, &self.intake).err());
        let waits = out.has_waiting();
        if waits && may_arm {
            self.completions.arm(false);
        }
        // In the order of arrival, whichever thread takes the next ones.
        for &imm in &told {
            self.arrivals.fetch_add(1, Ordering::SeqCst);
            (self.on_immediate)(imm);
        }
        if !told.is_empty() {
            self.waiters.wake_all();
        }
        Taken { is_full: count == BATCH, waits, failed }
    }

    /// Looks whether the peer has ended the session, or has gone.
    pub fn look_after_peer(&self) {
        self.look_after_device();
        if let Some(reason) = self.ended() {
            self.end(reason);
        }
    }

    /// Looks whether the device has gone, or has broken the queue pair. What
    /// was under way does not always complete then.
    pub(super) fn look_after_device(&self) {
        if let Some(reason) = self.domain.context.objection(self.number) {
            self.end(reason);
        }
    }

    /// The peer's word about the session's end, on the control connection. The word stays there:
    /// each thread that asks gets the same answer.
    fn ended(&self) -> Option<LinkError> {
        let mut word = [0u8; WITHDRAWN.len()];
        let flags = RecvFlags::DONTWAIT | RecvFlags::PEEK;
        match rustix::net::recv(&self.control, &mut word[..], flags) {
            Ok((_, length)) if length == word.len() && word == WITHDRAWN => {
                Some(LinkError::Withdrawn)
            }
            Ok((_, 0)) => Some(LinkError::Disconnected),
            Ok(_) => Some(LinkError::Violation("it spoke after its hello")),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => None,
            Err(_) => Some(LinkError::Disconnected),
        }
    }

    /// Ends the session for the peer, and tells it: once this has returned, this end executes no
    /// further operation of the peer.
    pub fn withdraw(&self) {
        // First: an operation that is refused from here on finds the reason
        // (docs/decisions/0021-told-first.md).
        let _ = rustix::net::send(&self.control, &WITHDRAWN, SendFlags::NOSIGNAL);
        self.end(LinkError::Disconnected);
    }

    /// Ends the connection in both directions.
    pub fn close(&self) {
        self.end(LinkError::Disconnected);
        // It may have ended already.
        let _ = self.control.shutdown(Shutdown::Both);
    }

    /// Fails all links, after the device has stopped to touch any memory.
    pub(super) fn end(&self, reason: LinkError) {
        if self.over.set(reason).is_err() {
            return;
        }
        // Windows first: a device may keep a queue pair while one is bound.
        drop(lock(&self.device).take());
        self.handles.fail(reason);
        self.wake_driver();
        self.waiters.wake_all();
    }

    /// Whether a link has waited for room since the last call, and there is
    /// some now: the caller wakes its driver.
    pub fn takes_more_again(&self) -> bool {
        self.room_wanted.load(Ordering::SeqCst)
            && self.intake.waiting_bytes() <= STREAM_AHEAD_BYTES
            && self.room_wanted.swap(false, Ordering::SeqCst)
    }

    /// Whether a large value may continue: not too many bytes wait for the device. If not, the
    /// agent learns that a link waits for room.
    pub(super) fn has_room(&self) -> bool {
        let has_room = || self.intake.waiting_bytes() <= STREAM_AHEAD_BYTES;
        if has_room() {
            return true;
        }
        {
            let _device = lock(&self.device);
            self.room_wanted.store(true, Ordering::SeqCst);
            // Completions of operations in flight wake the agent from here on.
            self.completions.arm(false);
        }
        self.pump();
        has_room()
    }

    /// The TCP connection over which it was made.
    pub fn control(&self) -> &TcpStream {
        &self.control
    }

    /// From now on every completion raises an event: this shard waits for WRITEs.
    pub(super) fn await_writes(&self, shard: usize) {
        {
            let _device = lock(&self.device);
            self.awaiting.enter(shard);
            self.completions.arm(false);
        }
        // What completed before it was armed raises no event.
        self.pump();
    }

    /// The shards, as bits, that wait for WRITEs of which some have completed since the last call:
    /// the caller has to wake them.
    pub fn take_completed(&self) -> u64 {
        self.awaiting.take()
    }

    /// Whether something waits that completions make room for, or somebody waits
    /// for room or for WRITEs. To be asked, and answered by arming, while the device is taken.
    fn wants_completions(&self, device: &Option<Device>) -> bool {
        device.as_ref().is_some_and(|device| device.out.has_waiting())
            || self.room_wanted.load(Ordering::SeqCst)
            || self.awaiting.any()
    }

    /// From now on the next immediate makes the descriptor readable, or with
    /// `all` the next completion of any kind.
    pub(super) fn arm_completions(&self, all: bool) {
        // While others cannot: it must not be armed for less after they have.
        let device = self.lock_waits.lock(&self.device);
        self.completions.arm(!(all || self.wants_completions(&device)));
    }

    /// A descriptor that becomes readable when this end's operations fail, whichever thread finds
    /// the failure, or when a shard leaves the posted operations of others to the agent.
    pub fn end_fd(&self) -> BorrowedFd<'_> {
        self.kick.as_fd()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.end(LinkError::Disconnected);
    }
}
