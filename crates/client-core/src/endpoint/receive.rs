//! Waiting for replies, alone at a ring set or with other threads.
//!
//! A waiting thread tries to take the lane's receiver. The thread that has it polls the ring, keeps
//! its own replies and delivers the others' into their inboxes; a thread without it watches its own
//! inbox. A thread that has polled long enough sleeps: one thread in the kernel, for all sessions
//! of the set, the others on their inboxes. Invariants, so that no wake-up is lost:
//! * while a thread is parked, another sleeps in the kernel for it or has been nudged to do so: the
//!   parking thread announces itself and then checks the sleeper's lock once more; the sleeper
//!   gives the lock back and then checks for parked threads;
//! * the thread in the kernel went there only after it checked every lane in which a reply is due,
//!   with no other thread at its receiver, and then its own inbox: a reply that another thread took
//!   out of a lane before the check is in that inbox. After the check of the inbox a delivering
//!   thread finds the sleeper announced, and wakes it over shared memory. Over a network there is
//!   no need: such a reply was not in the ring yet, and data that arrives after the check ends the
//!   wait of its link.

use super::{Endpoint, PAUSE};
use crate::connection::Connection;
use crate::error::Error;
use crate::in_flight::{RequestAt, RequestId, is_followed};
use crate::inbox::Inbox;
use crate::lane::{Lane, Receiving};
use crate::ring_set::{RingSet, Sleep};
use crate::sync::{AtomicUsize, MutexGuard, POLLS_PER_CLOCK, spin_loop, try_lock};
use remora_fabric::{AnyLink, Completion, Link, RemoteAddress, Waited, Wake, Work};
use remora_layout::frame::frame_bytes;
use remora_layout::immediate;
use remora_layout::limits::RING_BYTES;
use remora_protocol::message::ReplyHeader;
use remora_ring::{Poll, WRITE_ID};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use zerocopy::FromBytes;

/// Hybrid mode polls this long for a reply before it blocks.
const HYBRID_SPIN: Duration = Duration::from_micros(50);
/// A polling thread checks the server's incarnation this often.
const INCARNATION_LOOK: Duration = Duration::from_millis(10);

/// While requests wait for room in a ring a parked thread checks for it this often: the thread that
/// sleeps in the kernel may have gone there before they were handed over, and credit need not wake
/// it.
const ROOM_LOOK: Duration = Duration::from_millis(1);

/// A thread that has polled this long counts itself among the polling threads, so that these are no
/// more than there are cores. Requests that are answered earlier touch no memory that other threads
/// write.
const POLL_UNCOUNTED: Duration = Duration::from_micros(5);

/// Whether one wait may poll.
struct Polling<'c> {
    /// Threads of the process that poll.
    pollers: &'c AtomicUsize,
    /// `None`: the thread is not counted yet.
    may_poll: Option<bool>,
}

impl Polling<'_> {
    /// Whether it may, after it has polled this long.
    fn may_poll(&mut self, waited: Duration) -> bool {
        if waited < POLL_UNCOUNTED {
            return true;
        }
        *self.may_poll.get_or_insert_with(|| self.pollers.fetch_add(1, Ordering::Relaxed) < cores())
    }
}

impl Drop for Polling<'_> {
    fn drop(&mut self) {
        if self.may_poll.is_some() {
            self.pollers.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// What a look for a reply found.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Look {
    /// The session's own reply: its payload is in `self.reply`.
    Mine,
    /// Nothing of its own.
    Nothing,
}

impl Endpoint {
    /// Waits for the next reply of a shard to this session, since `began_ns`; its payload is
    /// then in `self.reply`.
    pub fn await_reply(&mut self, shard: usize, began_ns: &mut Option<u64>) -> Result<(), Error> {
        if self.look(shard, POLLS_PER_CLOCK)? == Look::Mine {
            return Ok(());
        }
        let began_ns = *began_ns.get_or_insert_with(|| self.connection.time.now_ns());
        let waited = self.wait_for_reply(shard, began_ns);
        if self.inbox.take_nudge() {
            // The nudge was for the next thread to sleep in the kernel.
            self.set.nudge_one();
        }
        waited
    }

    fn wait_for_reply(&mut self, shard: usize, began_ns: u64) -> Result<(), Error> {
        let connection = Arc::clone(&self.connection);
        let mut polling = Polling { pollers: &connection.pollers, may_poll: None };
        let mut looked = Duration::ZERO;
        // Bounded by the session's timeout.
        loop {
            let waited = self.connection.time.since(began_ns);
            if waited >= self.timeout {
                return Err(self.time_is_up());
            }
            self.check()?;
            self.now()?;
            self.look_for_silence()?;
            self.push_all_on()?;
            let polls = self.polls_after(waited, || polling.may_poll(waited));
            if !polls {
                self.sleep(shard, self.at_a_time(self.timeout - waited))?;
            } else if waited - looked > INCARNATION_LOOK {
                looked = waited;
                self.connection.look_after_server()?;
            }
            if self.look(shard, if polls { POLLS_PER_CLOCK } else { 1 })? == Look::Mine {
                return Ok(());
            }
        }
    }

    /// Whether a wait that has lasted this long keeps polling, or sleeps.
    fn polls_after(&self, waited: Duration, may_poll: impl FnOnce() -> bool) -> bool {
        match self.wake {
            Wake::Poll => true,
            Wake::Hybrid => waited < HYBRID_SPIN && may_poll(),
            Wake::Event => false,
        }
    }

    /// The next completion of the session's link, which has none ready: an operation is in flight,
    /// and over TCP it takes a while. The thread polls and sleeps as it does when it waits for a
    /// reply.
    #[cold]
    pub(super) fn await_completion(&mut self) -> Result<Completion, Error> {
        let connection = Arc::clone(&self.connection);
        let pollers = connection.pollers.fetch_add(1, Ordering::Relaxed);
        let completed = self.wait_for_completion(pollers < cores());
        connection.pollers.fetch_sub(1, Ordering::Relaxed);
        completed
    }

    fn wait_for_completion(&mut self, may_poll: bool) -> Result<Completion, Error> {
        let started_ns = self.connection.time.now_ns();
        // Bounded by the session's timeout.
        loop {
            let waited = self.connection.time.since(started_ns);
            if waited >= self.timeout {
                let error = self.time_is_up();
                // In-flight operations complete on a link that the session no longer uses.
                self.link = self.connection.link(self.set.number);
                return Err(error);
            }
            if self.ends_when_silent {
                self.now()?;
                self.look_for_silence()?;
            }
            let most = self.at_a_time(self.timeout - waited);
            if !self.polls_after(waited, || may_poll)
                && let Waited::Failed(error) = self.link.wait(Some(most))
            {
                return Err(self.end(error.into()));
            }
            if let Some(completion) = self.link.poll() {
                return Ok(completion);
            }
        }
    }

    /// Checks for a reply up to `polls` times, in the ring if no other thread is at it, else in the
    /// inbox.
    #[inline]
    fn look(&mut self, shard: usize, polls: u32) -> Result<Look, Error> {
        let mut at = self.at_ring(shard);
        let Some(mut receiving) = try_lock(&at.lane.receiving) else {
            for _ in 0..polls {
                if at.take_delivered() {
                    return Ok(Look::Mine);
                }
                spin_loop();
            }
            return Ok(Look::Nothing);
        };
        // Threads deliver replies under the receiver's lock: replies in the inbox are older than
        // those in the ring.
        if at.take_delivered() {
            return Ok(Look::Mine);
        }
        for _ in 0..polls {
            match at.take_frame(&mut receiving)? {
                Some(Taken::Own(_)) => {
                    if !is_followed(at.reply) {
                        at.inbox.took_reply();
                    }
                    return Ok(Look::Mine);
                }
                Some(Taken::Delivered) => {}
                None if at.link.completes_at_once() => spin_loop(),
                // What the server wrote has to be taken in first.
                None => at.connection.pass_over_writes(at.link)?,
            }
        }
        Ok(Look::Nothing)
    }

    fn at_ring(&mut self, shard: usize) -> AtRing<'_> {
        let connection: &Connection = &self.connection;
        AtRing {
            connection,
            set: &self.set,
            lane: &self.set.lanes[shard],
            shard,
            number: self.number,
            inbox: &self.inbox,
            link: &mut self.link,
            reply: &mut self.reply,
        }
    }

    /// Delivers every arrived reply, to any session of the process: a waiting session that does not
    /// check may need the memory that a late reply frees.
    pub fn empty_rings(&mut self) -> Result<(), Error> {
        let connection = Arc::clone(&self.connection);
        connection.pass_over_writes(&mut self.link)?;
        for set in connection.sets() {
            for (shard, lane) in set.lanes.iter().enumerate() {
                if lane.outstanding.load(Ordering::Relaxed) > 0 {
                    self.empty_ring(set, shard)?;
                }
            }
        }
        Ok(())
    }

    /// Delivers every reply in a ring, this session's own ones too, unless another thread is at it.
    fn empty_ring(&mut self, set: &RingSet, shard: usize) -> Result<(), Error> {
        let Some(mut receiving) = try_lock(&set.lanes[shard].receiving) else { return Ok(()) };
        let mut at = AtRing { set, lane: &set.lanes[shard], ..self.at_ring(shard) };
        // The ring holds at most its length now; a search's parts arrive without end while they are
        // taken, and its thread waits for the lock.
        let mut bytes = 0;
        while bytes < RING_BYTES
            && let Some(taken) = at.take_frame(&mut receiving)?
        {
            bytes += frame_bytes(at.reply.len());
            if let Taken::Own(id) = taken {
                at.deliver(id)?;
            }
        }
        Ok(())
    }

    /// Waits a moment for room in a ring, and delivers arrived replies meanwhile.
    fn help(&mut self, shard: usize) -> Result<(), Error> {
        // Over TCP this takes in arrived data, credit too.
        self.connection.pass_over_writes(&mut self.link)?;
        let set = Arc::clone(&self.set);
        self.empty_ring(&set, shard)?;
        self.push_all_on()?;
        self.check()?;
        self.pause();
        Ok(())
    }

    /// As [`Endpoint::help`], within the session's timeout since `began_ns`.
    pub fn help_in_time(&mut self, shard: usize, began_ns: &mut Option<u64>) -> Result<(), Error> {
        let time = &self.connection.time;
        let began_ns = *began_ns.get_or_insert_with(|| time.now_ns());
        if time.since(began_ns) >= self.timeout {
            return Err(self.time_is_up());
        }
        self.help(shard)
    }

    /// Sleeps until there may be a reply: in the kernel for all threads, or
    /// parked while another thread does that.
    fn sleep(&mut self, shard: usize, timeout: Duration) -> Result<(), Error> {
        let set = Arc::clone(&self.set);
        let mut sleep = try_lock(&set.sleep);
        if sleep.is_none() {
            self.inbox.announce_parking();
            sleep = try_lock(&set.sleep);
            // From here on, a thread that sends for all either continues with its own work and
            // finds the parking announced, or this thread finds that it has stopped
            // (`crate::combine`).
            let pushed = self.push_all_on();
            if sleep.is_none() && pushed.is_ok() && self.connection.over().is_none() {
                let for_room = set.waits_for_room();
                self.inbox.park(shard, if for_room { timeout.min(ROOM_LOOK) } else { timeout });
            } else {
                self.inbox.awake();
            }
            pushed?;
        }
        let Some(mut sleep) = sleep else { return Ok(()) };
        // The thread that nudged wanted another one here.
        self.inbox.take_nudge();
        let slept = self.sleep_for_all(shard, &mut sleep, timeout);
        drop(sleep);
        self.set.nudge_one();
        slept
    }

    /// Sleeps in the kernel, again and again, and delivers every arriving reply, until one is for
    /// this session and shard.
    fn sleep_for_all(
        &mut self,
        shard: usize,
        sleep: &mut Sleep,
        timeout: Duration,
    ) -> Result<(), Error> {
        let started_ns = self.connection.time.now_ns();
        while !self.inbox.has_reply_of(shard) {
            let left = timeout.saturating_sub(self.connection.time.since(started_ns));
            if left.is_zero() {
                break;
            }
            let (connection, set) = (Arc::clone(&self.connection), Arc::clone(&self.set));
            connection.pass_over_writes(&mut self.link)?;
            self.push_all_on()?;
            // Fresh credit ends no sleep.
            let left = if set.waits_for_room() { left.min(PAUSE) } else { left };
            let inbox = &self.inbox;
            // Signals count from here on, and the thread is announced within: every signal given
            // counts.
            let slept = sleep.sleep(&mut self.link, left, || {
                connection.over().is_some() || set.has_reply() || !inbox.may_sleep_in_kernel(shard)
            });
            self.inbox.awake();
            self.check()?;
            self.now()?;
            if slept {
                connection.look_after_server()?;
            } else {
                // Another thread is at a ring: let it finish.
                self.pause();
            }
            for shard in 0..set.lanes.len() {
                self.empty_ring(&set, shard)?;
            }
        }
        self.inbox.awake();
        Ok(())
    }
}

impl Endpoint {
    /// Takes one frame that is no reply out of a shard's ring, into `self.reply`. The session is the
    /// only one of its connection. Returns whether there was one.
    pub fn take_message(&mut self, shard: usize) -> Result<bool, Error> {
        let set = Arc::clone(&self.set);
        let Some(mut receiving) = try_lock(&set.lanes[shard].receiving) else { return Ok(false) };
        let mut at = self.at_ring(shard);
        at.reply.clear();
        match receiving.receiver.poll(at.reply) {
            Poll::Frame(_) => {}
            Poll::Violated(violation) => return Err(at.connection.end(violation.into())),
            Poll::Empty | Poll::Torn => return Ok(false),
        }
        if let Some(consumed) = receiving.receiver.credit_due() {
            // The frame was taken, and counts. The next wait notices that the link is over.
            let _ = at.give_credit(&mut receiving.credit_link, consumed);
        }
        Ok(true)
    }

    /// Takes the next frame that lies in a ring of this memory, also after the end of the
    /// connection: it gives no credit.
    pub fn take_rest(&mut self, shard: usize) -> Result<bool, Error> {
        let Some(mut receiving) = try_lock(&self.set.lanes[shard].receiving) else {
            return Ok(false);
        };
        self.reply.clear();
        match receiving.receiver.poll(&mut self.reply) {
            Poll::Frame(_) => Ok(true),
            Poll::Violated(violation) => Err(violation.into()),
            Poll::Empty | Poll::Torn => Ok(false),
        }
    }

    /// Sleeps until a frame may have come, for so long at most, unless one is there.
    pub fn wait_for_messages(&mut self, most: Duration) -> Result<(), Error> {
        self.check()?;
        let now_ns = self.now()?;
        if self.lease.is_silent(now_ns) {
            return Err(self.end(Error::ServerSilent));
        }
        let set = Arc::clone(&self.set);
        let has_frame = || {
            let has = |ring: MutexGuard<'_, Receiving>| ring.receiver.has_frame();
            set.lanes.iter().any(|lane| try_lock(&lane.receiving).is_some_and(has))
        };
        if let Some(mut sleep) = try_lock(&set.sleep) {
            sleep.sleep(&mut self.link, most, has_frame);
        }
        self.connection.pass_over_writes(&mut self.link)?;
        self.connection.look_after_server()
    }
}

/// Cores of this machine that the process may use.
fn cores() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
}

/// A frame that was taken out of a ring.
enum Taken {
    /// The session's own reply, to this request.
    Own(RequestId),
    /// Another session's; it has it.
    Delivered,
}

/// One session at the receiving end of one ring.
struct AtRing<'s> {
    pub connection: &'s Connection,
    pub set: &'s RingSet,
    pub lane: &'s Lane,
    pub shard: usize,
    pub number: u16,
    pub inbox: &'s Inbox,
    pub link: &'s mut AnyLink,
    pub reply: &'s mut Vec<u8>,
}

impl AtRing<'_> {
    /// Takes this session's oldest reply that another thread has delivered.
    #[inline(always)]
    pub fn take_delivered(&mut self) -> bool {
        match self.inbox.take(self.shard) {
            Some(reply) => {
                *self.reply = reply;
                true
            }
            None => false,
        }
    }

    /// Takes one frame out of the ring into `self.reply`, and delivers another session's reply to
    /// it. `None` if there is none.
    #[inline]
    pub fn take_frame(&mut self, receiving: &mut Receiving) -> Result<Option<Taken>, Error> {
        self.reply.clear();
        match receiving.receiver.poll(self.reply) {
            Poll::Frame(_) => {}
            Poll::Violated(violation) => return Err(self.connection.end(violation.into())),
            Poll::Empty | Poll::Torn => return Ok(None),
        }
        if let Some(consumed) = receiving.receiver.credit_due() {
            self.give_credit(&mut receiving.credit_link, consumed)?;
        }
        let Ok((header, _)) = ReplyHeader::ref_from_prefix(self.reply) else {
            return Err(self.connection.end(Error::Protocol("a reply without a header")));
        };
        let id = RequestId::from_number(header.id.get());
        let is_own = id.session == self.number;
        let is_last = !is_followed(self.reply);
        if !is_last {
            self.admit_part(id)?;
        }
        if !is_own {
            self.deliver(id)?;
        }
        // Only after its session has it: the thread that sleeps for all checks this ring while a
        // reply is due in it, and its own inbox afterwards.
        if is_last {
            self.lane.outstanding.fetch_sub(1, Ordering::Release);
        }
        Ok(Some(if is_own { Taken::Own(id) } else { Taken::Delivered }))
    }

    /// Ends the connection unless the request that the reply in `self.reply` answers may have that
    /// reply, and another one.
    #[cold]
    fn admit_part(&self, id: RequestId) -> Result<(), Error> {
        let inbox = self.set.inbox(id.session);
        let to = RequestAt { shard: self.shard, sequence: id.sequence };
        let most = self.connection.search_bytes;
        match inbox.is_some_and(|inbox| inbox.admits_part(to, self.reply.len(), most)) {
            true => Ok(()),
            false => Err(self.connection.end(Error::DOES_NOT_FIT)),
        }
    }

    /// Puts the payload in `self.reply` into the inbox of the session that made
    /// the request.
    #[cold]
    pub fn deliver(&mut self, to: RequestId) -> Result<(), Error> {
        let inbox = self.set.inbox(to.session);
        let to = RequestAt { shard: self.shard, sequence: to.sequence };
        match inbox.and_then(|inbox| inbox.deliver(to, self.reply, is_followed(self.reply))) {
            None => Err(self.connection.end(Error::Protocol("a reply to nobody"))),
            Some(sleeps_in_kernel) => {
                if sleeps_in_kernel {
                    self.set.wake_sleeper();
                }
                Ok(())
            }
        }
    }

    fn give_credit(&mut self, link: &mut Option<AnyLink>, consumed: u64) -> Result<(), Error> {
        let offset = self.lane.credit_word as u64 * 8;
        let to = RemoteAddress { region: self.connection.mailbox(), offset };
        let bytes = consumed.to_le_bytes();
        // The shard may hold replies back because it lacks this credit, so the WRITE wakes it.
        let imm = Some(immediate::of(immediate::Kind::Credit, self.shard));
        let link = link.get_or_insert_with(|| self.connection.link(self.set.number));
        link.post(&[Work::Write { id: WRITE_ID, to, bytes: &bytes, imm }]);
        self.connection.pass_over_writes(link)
    }
}
