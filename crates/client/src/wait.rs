//! Waiting for replies, alone at a ring set or with other threads.
//!
//! Whoever waits tries to take the lane's receiver. Who has it polls the ring,
//! keeps its own reply and delivers the others; who has it not watches its
//! inbox. Who has polled long enough sleeps: one thread in the kernel, for
//! all that stand at the set, the others on their inboxes. What it keeps true, so that no wake-up
//! is lost:
//! * while a thread is parked, another sleeps in the kernel for it or has
//!   been nudged to do so: the parking thread announces itself and then looks
//!   for the sleeper's lock once more, the sleeper gives the lock back and then
//!   looks for parked threads;
//! * the thread in the kernel went there only after a look at every lane that
//!   a reply is due in, with no other thread at its receiver, and then into its own inbox:
//!   what another thread took out of a lane before the look stands there. Behind the look
//!   at the inbox a thread that delivers finds it announced, and wakes it over shared
//!   memory. Over a network there is no need: such a reply was not in the ring yet, and
//!   what arrives after the look ends the wait of its link.

use crate::api::Wake;
use crate::ask::DOES_NOT_FIT;
use crate::at_ring::{AtRing, Taken, answered, is_followed};
use crate::connection::{Connection, try_lock};
use crate::error::Error;
use crate::in_flight::InFlight;
use crate::ring_set::{RingSet, Sleep};
use crate::session::{PAUSE, Session};
use crate::sync::{AtomicUsize, POLLS_PER_CLOCK, spin_loop};
use remora_fabric::{Completion, Link, Waited};
use remora_layout::frame::frame_bytes;
use remora_layout::limits::RING_BYTES;
use remora_layout::plant::{Plant, planted};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Hybrid mode polls this long for a reply before it blocks.
const HYBRID_SPIN: Duration = Duration::from_micros(50);
/// A poller looks after the server's life this often.
const LIFE_LOOK: Duration = Duration::from_millis(10);

/// While requests wait for room in a ring a parked thread looks for it this often: who
/// sleeps in the kernel may have gone there before they were handed over, and credit
/// need not wake it.
const ROOM_LOOK: Duration = Duration::from_millis(1);

/// A thread that has polled this long counts itself among those who poll, so that
/// these are no more than there are cores. Requests that are answered before meet
/// at nothing that other threads write.
const POLL_UNCOUNTED: Duration = Duration::from_micros(5);

/// Whether one wait may poll.
struct Polling<'c> {
    /// Threads of the process that poll.
    pollers: &'c AtomicUsize,
    /// `None`: it is not counted.
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

impl Session {
    /// Waits for the next reply of a shard to this session; its payload is
    /// then in `self.reply`. Gives the request that it answers.
    pub(crate) fn take_reply(&mut self, shard: usize) -> Result<InFlight, Error> {
        // One time-out for all: late replies that come before do not prolong it.
        let mut began_ns = None;
        // Bounded by what is in flight, and by the session's timeout.
        loop {
            if let Some(flight) = self.take_next(shard, &mut began_ns)? {
                return Ok(flight);
            }
        }
    }

    /// As [`Session::take_reply`], since `began_ns`; `None` if the next reply
    /// was a late one, and is dropped.
    pub(crate) fn take_next(
        &mut self,
        shard: usize,
        began_ns: &mut Option<u64>,
    ) -> Result<Option<InFlight>, Error> {
        if self.look(shard, POLLS_PER_CLOCK)? == Look::Nothing {
            let began_ns = *began_ns.get_or_insert_with(|| self.connection.time.now_ns());
            let waited = self.wait_for_reply(shard, began_ns);
            if self.inbox.take_nudge() {
                // The nudge was for whoever would sleep in the kernel next.
                self.set.nudge_one();
            }
            waited?;
        }
        let in_flight = &mut self.shards[shard].in_flight;
        let Some(&flight) = in_flight.front() else {
            return Err(self.end(Error::Protocol("a reply to nothing")));
        };
        let is_followed = is_followed(&self.reply);
        if answered(&self.reply) != Some(flight.id) || is_followed && !flight.is_search {
            return Err(self.end(DOES_NOT_FIT));
        }
        // A search's replies but the last leave the request under way.
        if !is_followed {
            in_flight.pop_front();
            if flight.is_search {
                self.inbox.end_search(flight.at());
            }
        }
        if flight.is_abandoned {
            self.drop_late(&flight, is_followed)?;
            return Ok(None);
        }
        Ok(Some(flight))
    }

    fn wait_for_reply(&mut self, shard: usize, began_ns: u64) -> Result<(), Error> {
        let connection = Arc::clone(&self.connection);
        let mut polling = Polling { pollers: &connection.pollers, may_poll: None };
        let mut looked = Duration::ZERO;
        // Bounded by the session's timeout.
        loop {
            let waited = self.connection.time.since(began_ns);
            if waited >= self.options.timeout {
                return Err(self.time_is_up());
            }
            self.check()?;
            self.now()?;
            self.push_all_on()?;
            let polls = self.polls_after(waited, || polling.may_poll(waited));
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
    fn polls_after(&self, waited: Duration, may_poll: impl FnOnce() -> bool) -> bool {
        match self.options.wake {
            Wake::Poll => true,
            Wake::Hybrid => waited < HYBRID_SPIN && may_poll(),
            Wake::Event => false,
        }
    }

    /// The next completion of the session's link, which has none at hand: an
    /// operation is under way, and over TCP it takes a while. Polls and sleeps
    /// as one who waits for a reply does.
    #[cold]
    pub(crate) fn await_completion(&mut self) -> Result<Completion, Error> {
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
            if waited >= self.options.timeout {
                let error = self.time_is_up();
                // What is under way completes on a link that nobody looks at.
                self.link = self.connection.link(self.set.number);
                return Err(error);
            }
            if !self.polls_after(waited, || may_poll)
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
        let Some(mut receiving) = try_lock(&at.lane.receiving) else {
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

    /// Delivers every reply that has come, to any session of the process: what a
    /// late one frees may be held for somebody who does not look.
    pub(crate) fn empty_rings(&mut self) -> Result<(), Error> {
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

    /// Delivers every reply in a ring, this session's own ones too, unless
    /// somebody else is at it.
    fn empty_ring(&mut self, set: &RingSet, shard: usize) -> Result<(), Error> {
        let Some(mut receiving) = try_lock(&set.lanes[shard].receiving) else { return Ok(()) };
        let mut at = AtRing { set, lane: &set.lanes[shard], ..self.at_ring(shard) };
        // What is there now is no more than a ring; a search's parts come without end
        // as long as they are taken, and its thread waits for the lock.
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

    /// Waits a moment for room in a ring, and delivers meanwhile what has come
    /// for anybody.
    pub(crate) fn help(&mut self, shard: usize) -> Result<(), Error> {
        // Over TCP this takes in what has come, credit too.
        self.connection.pass_over_writes(&mut self.link)?;
        let set = Arc::clone(&self.set);
        self.empty_ring(&set, shard)?;
        self.push_all_on()?;
        self.check()?;
        self.pause();
        Ok(())
    }

    /// Sleeps until there may be a reply: in the kernel for all threads, or
    /// parked while another thread does that.
    fn sleep(&mut self, shard: usize, timeout: Duration) -> Result<(), Error> {
        let set = Arc::clone(&self.set);
        let mut sleep = try_lock(&set.sleep);
        if sleep.is_none() {
            self.inbox.announce_parking();
            sleep = try_lock(&set.sleep);
            // Who sends for all may go on with its own work from here on, and finds the
            // parking announced; or this thread finds that it has (`crate::combine`).
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
        // Whoever nudged wanted somebody here.
        self.inbox.take_nudge();
        let slept = self.sleep_for_all(shard, &mut sleep, timeout);
        drop(sleep);
        if !planted(Plant::KeepSleepToOneself) {
            self.set.nudge_one();
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
        while !self.inbox.has_reply_of(shard) {
            let is_early = planted(Plant::SleepWithoutInbox);
            let may_sleep = !is_early || self.inbox.may_sleep_in_kernel(shard);
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
            // The signals that count are those from here on, and the thread is announced
            // within: no signal is given that does not count.
            let slept = sleep.sleep(&mut self.link, left, || {
                set.has_reply(&connection)
                    || !may_sleep
                    || !is_early && !inbox.may_sleep_in_kernel(shard)
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
            for shard in 0..self.shards.len() {
                self.empty_ring(&set, shard)?;
            }
        }
        self.inbox.awake();
        Ok(())
    }
}

/// Cores of this machine that the process may use.
fn cores() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
}
