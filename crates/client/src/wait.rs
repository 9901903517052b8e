//! Waiting for replies when several threads share one ring.
//!
//! Whoever waits tries to take the lane's receiver. Who has it polls the ring,
//! keeps its own reply and delivers the others; who has it not watches its
//! inbox. Who has polled long enough sleeps: one thread in the kernel, for
//! all, the others on their inboxes. What it keeps true, so that no wake-up
//! is lost:
//! * while a thread is parked, another sleeps in the kernel for it or has
//!   been nudged to do so: the parking thread announces itself and then looks
//!   for the sleeper's lock once more, the sleeper gives the lock back and then
//!   looks for parked threads;
//! * the thread in the kernel went there only after a look at every lane that
//!   a reply is due in, with nobody else at its receiver.

use crate::api::Wake;
use crate::connection::{Connection, Sleep, lock, try_lock};
use crate::error::Error;
use crate::inbox::Inbox;
use crate::lane::Lane;
use crate::session::{InFlight, RequestId, Session};
use crate::sync::{POLLS_PER_CLOCK, spin_loop};
use remora_fabric::{AnyLink, Completion, Link, RemoteAddress, Waited, Work};
use remora_layout::immediate;
use remora_layout::message::{MORE, ReplyHeader};
use remora_layout::plant::{Plant, planted};
use remora_ring::{Poll, Receiver, WRITE_ID};
use std::mem::offset_of;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;
use std::time::Duration;
use zerocopy::FromBytes;

/// Hybrid mode polls this long for a reply before it blocks.
const HYBRID_SPIN: Duration = Duration::from_micros(50);
/// A poller looks after the server's life this often.
const LIFE_LOOK: Duration = Duration::from_millis(10);

/// What a look for a reply found.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Look {
    /// The session's own reply: its payload is in `self.reply`.
    Mine,
    /// Nothing of its own.
    Nothing,
}

impl Session {
    /// Waits for the next reply of a shard to this session; its payload is
    /// then in `self.reply`. Gives the request that it answers.
    pub(crate) fn take_reply(&mut self, shard: usize) -> Result<InFlight, Error> {
        if self.look(shard, POLLS_PER_CLOCK)? == Look::Nothing {
            let connection = std::sync::Arc::clone(&self.connection);
            let pollers = connection.pollers.fetch_add(1, Ordering::Relaxed);
            let waited = self.wait_for_reply(shard, pollers < cores());
            connection.pollers.fetch_sub(1, Ordering::Relaxed);
            if self.inbox().take_nudge() {
                // The nudge was for whoever would sleep in the kernel next.
                connection.hand_over_sleep();
            }
            waited?;
        }
        let in_flight = &mut self.shards[shard].in_flight;
        // A search's replies but the last leave the request under way.
        let flight = match is_followed(&self.reply) {
            true => in_flight.front().copied(),
            false => in_flight.pop_front(),
        };
        flight.ok_or_else(|| self.end(Error::Protocol("a reply to nothing")))
    }

    pub(crate) fn inbox(&self) -> &Inbox {
        self.connection.inbox(self.number).expect("taken when the session was made")
    }

    fn wait_for_reply(&mut self, shard: usize, may_poll: bool) -> Result<(), Error> {
        let started_ns = self.connection.time.now_ns();
        let mut looked = Duration::ZERO;
        // Bounded by the session's timeout.
        loop {
            let waited = self.connection.time.since(started_ns);
            if waited >= self.options.timeout {
                return Err(self.end(Error::TimedOut));
            }
            self.check()?;
            self.now()?;
            let polls = self.polls_after(waited, may_poll);
            if !polls {
                self.sleep(shard, self.options.timeout - waited)?;
            } else if waited - looked > LIFE_LOOK {
                looked = waited;
                self.connection.look_after_server()?;
            }
            if self.look(shard, if polls { POLLS_PER_CLOCK } else { 1 })? == Look::Mine {
                return Ok(());
            }
        }
    }

    /// Whether a wait that has lasted this long polls on, or sleeps.
    fn polls_after(&self, waited: Duration, may_poll: bool) -> bool {
        match self.options.wake {
            Wake::Poll => true,
            Wake::Hybrid => may_poll && waited < HYBRID_SPIN,
            Wake::Event => false,
        }
    }

    /// The next completion of the session's link, which has none at hand: an
    /// operation is under way, and over TCP it takes a while. Polls and sleeps
    /// as one who waits for a reply does.
    #[cold]
    pub(crate) fn await_completion(&mut self) -> Result<Completion, Error> {
        let connection = std::sync::Arc::clone(&self.connection);
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
            if waited >= self.options.timeout {
                return Err(self.end(Error::TimedOut));
            }
            if !self.polls_after(waited, may_poll)
                && let Waited::Failed(error) = self.link.wait(Some(self.options.timeout - waited))
            {
                return Err(self.end(error.into()));
            }
            if let Some(completion) = self.link.poll() {
                return Ok(completion);
            }
        }
    }

    /// Looks for a reply up to `polls` times, in the ring if nobody else is at
    /// it, else in the inbox.
    #[inline]
    fn look(&mut self, shard: usize, polls: u32) -> Result<Look, Error> {
        let mut at = self.at_ring(shard);
        let Some(mut receiver) = try_lock(&at.lane.receiver) else {
            for _ in 0..polls {
                if at.take_delivered() {
                    return Ok(Look::Mine);
                }
                spin_loop();
            }
            return Ok(Look::Nothing);
        };
        // Replies are delivered under the receiver's lock: what the inbox
        // holds is older than what the ring does.
        if at.take_delivered() {
            return Ok(Look::Mine);
        }
        for _ in 0..polls {
            match at.take_frame(&mut receiver)? {
                Some(Look::Mine) => {
                    if !is_followed(at.reply) {
                        at.inbox.took_reply();
                    }
                    return Ok(Look::Mine);
                }
                Some(Look::Nothing) => {}
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
            lane: &connection.lanes[shard],
            shard,
            number: self.number,
            inbox: connection.inbox(self.number).expect("taken when the session was made"),
            link: &mut self.link,
            reply: &mut self.reply,
        }
    }

    /// Delivers every reply in a shard's ring, this session's own ones too,
    /// unless somebody else is at it.
    fn empty_ring(&mut self, shard: usize) -> Result<(), Error> {
        let mut at = self.at_ring(shard);
        let Some(mut receiver) = try_lock(&at.lane.receiver) else { return Ok(()) };
        // Bounded by what is outstanding.
        while let Some(look) = at.take_frame(&mut receiver)? {
            if look == Look::Mine {
                at.deliver(at.number)?;
            }
        }
        Ok(())
    }

    /// Waits a moment for room in a ring, and delivers meanwhile what has come
    /// for anybody.
    pub(crate) fn help(&mut self, shard: usize) -> Result<(), Error> {
        // Over TCP this takes in what has come, credit too.
        self.connection.pass_over_writes(&mut self.link)?;
        self.empty_ring(shard)?;
        self.check()?;
        self.pause();
        Ok(())
    }

    /// Sleeps until there may be a reply: in the kernel for all threads, or
    /// parked while another thread does that.
    fn sleep(&mut self, shard: usize, timeout: Duration) -> Result<(), Error> {
        let connection = std::sync::Arc::clone(&self.connection);
        let sleep = try_lock(&connection.sleep).or_else(|| {
            self.inbox().announce_parking();
            let late = try_lock(&connection.sleep);
            if late.is_none() && connection.over().is_none() {
                self.inbox().park(shard, timeout);
            } else {
                self.inbox().awake();
            }
            late
        });
        let Some(mut sleep) = sleep else { return Ok(()) };
        // Whoever nudged wanted somebody here.
        self.inbox().take_nudge();
        let slept = self.sleep_for_all(shard, &mut sleep, timeout);
        drop(sleep);
        if !planted(Plant::KeepSleepToOneself) {
            connection.hand_over_sleep();
        }
        slept
    }

    /// Sleeps in the kernel, again and again, and delivers every reply that
    /// comes, until one is for this session and shard.
    fn sleep_for_all(
        &mut self,
        shard: usize,
        sleep: &mut Sleep,
        timeout: Duration,
    ) -> Result<(), Error> {
        let started_ns = self.connection.time.now_ns();
        while self.inbox().may_sleep_in_kernel(shard) {
            let left = timeout.saturating_sub(self.connection.time.since(started_ns));
            if left.is_zero() {
                break;
            }
            let connection = std::sync::Arc::clone(&self.connection);
            connection.pass_over_writes(&mut self.link)?;
            let slept = sleep.sleep(&mut self.link, left, || {
                connection.over().is_some()
                    || connection.lanes.iter().any(|lane| {
                        lane.outstanding.load(Ordering::Relaxed) > 0
                            && try_lock(&lane.receiver).is_none_or(|ring| ring.has_frame())
                    })
            });
            self.inbox().awake();
            self.check()?;
            self.now()?;
            if slept {
                connection.look_after_server()?;
            } else {
                // Another thread is at a ring: let it finish.
                self.pause();
            }
            for shard in 0..connection.lanes.len() {
                self.empty_ring(shard)?;
            }
        }
        self.inbox().awake();
        Ok(())
    }
}

/// One session at the receiving end of one ring.
struct AtRing<'s> {
    connection: &'s Connection,
    lane: &'s Lane,
    shard: usize,
    number: u16,
    inbox: &'s Inbox,
    link: &'s mut AnyLink,
    reply: &'s mut Vec<u8>,
}

impl AtRing<'_> {
    /// Takes this session's oldest reply that another thread has delivered.
    #[inline(always)]
    fn take_delivered(&mut self) -> bool {
        match self.inbox.take(self.shard) {
            Some(reply) => {
                *self.reply = reply;
                true
            }
            None => false,
        }
    }

    /// Takes one frame out of the ring into `self.reply`; another session's is
    /// delivered to it. `None` if there is none.
    #[inline]
    fn take_frame(&mut self, receiver: &mut Receiver) -> Result<Option<Look>, Error> {
        self.reply.clear();
        match receiver.poll(self.reply) {
            Poll::Frame(_) => {}
            Poll::Violated(violation) => return Err(self.connection.end(violation.into())),
            Poll::Empty | Poll::Torn => return Ok(None),
        }
        if !is_followed(self.reply) {
            self.lane.outstanding.fetch_sub(1, Ordering::Relaxed);
        }
        if let Some(consumed) = receiver.credit_due() {
            self.give_credit(consumed)?;
        }
        let Ok((header, _)) = ReplyHeader::ref_from_prefix(self.reply) else {
            return Err(self.connection.end(Error::Protocol("a reply without a header")));
        };
        let id = RequestId::from_number(header.id.get());
        if id.session == self.number {
            return Ok(Some(Look::Mine));
        }
        self.deliver(id.session)?;
        Ok(Some(Look::Nothing))
    }

    /// Puts the payload in `self.reply` into a session's inbox.
    #[cold]
    fn deliver(&mut self, session: u16) -> Result<(), Error> {
        let inbox = self.connection.inbox(session);
        match inbox.and_then(|inbox| inbox.deliver(self.shard, self.reply, is_followed(self.reply)))
        {
            None => Err(self.connection.end(Error::Protocol("a reply to nobody"))),
            Some(sleeps_in_kernel) => {
                if sleeps_in_kernel {
                    self.connection.wake_sleeper();
                }
                Ok(())
            }
        }
    }

    fn give_credit(&mut self, consumed: u64) -> Result<(), Error> {
        let offset = self.lane.credit_word as u64 * 8;
        let to = RemoteAddress { region: self.connection.mailbox(), offset };
        let bytes = consumed.to_le_bytes();
        // The shard may hold replies back for want of this credit: it is woken.
        let imm = Some(immediate::of(immediate::Kind::Credit, self.shard));
        let mut link = lock(&self.lane.credit_link);
        let link = link.get_or_insert_with(|| self.connection.link());
        link.post(&[Work::Write { id: WRITE_ID, to, bytes: &bytes, imm }]);
        self.connection.pass_over_writes(link)
    }
}

/// Whether another reply to the same request follows this one.
#[inline(always)]
fn is_followed(reply: &[u8]) -> bool {
    reply.get(offset_of!(ReplyHeader, flags)).is_some_and(|flags| flags & MORE != 0)
}

/// Cores of this machine that the process may use.
fn cores() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
}
