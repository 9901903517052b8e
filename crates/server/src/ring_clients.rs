//! The client processes whose rings one shard serves.
//!
//! Invariants:
//! * the cost of a turn does not depend on the number of clients, but on the number of those with
//!   recent requests: the others are *parked*, and looked at again when they ring. A client over
//!   shared memory signals its eventfd ([`remora_fabric::shm::ready`]); for one over a network the
//!   thread that receives its data sets a bit ([`remora_fabric::shm::mark`]);
//! * a client that is parked has nothing under way for which the shard would have
//!   to look at it by itself;
//! * each client that has work gets its turn before one gets another.

use crate::plans::Asker;
use crate::ring_session::{Deadline, ReplicaPositions, RingSession, SessionError, WaitOrder};
use remora_arena::Journal;
use remora_engine::{Now, Served as Answer, Shard};
use remora_fabric::shm::Sleeper;
use remora_fabric::shm::mark::RungClients;
use remora_frontend::OwnedReply;
use remora_layout::database::Database;
use remora_layout::limits::{DOORBELL_LOOK_US, KEPT_UNPARKED, PARK_AFTER_US};
use remora_plan::Plan;
use remora_protocol::Claim;
use remora_protocol::message::Status;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A mark of a client's eventfd has this bit, and the client's place.
const CLIENT_MARK: u64 = 1 << 63;

struct Client {
    session: RingSession,
    /// When it last had work.
    worked: Instant,
    is_parked: bool,
}

/// The outcome of a turn.
#[derive(Clone, Copy, Default)]
pub struct Served {
    /// Clients that had frames.
    pub clients: u64,
    /// Their frames.
    pub frames: u64,
    /// Some of them came without a system call of this thread.
    pub polled: bool,
    /// Clients whose ready bits the shard has looked at.
    pub looks: u64,
    /// Rings that were looked at.
    pub rings: u64,
}

/// See the module's text. `C` is the clock.
pub struct RingClients<C = fn() -> Instant> {
    /// By slot; a free slot is used again.
    clients: Vec<Option<Box<Client>>>,
    /// The places of those that are not parked.
    unparked: Vec<usize>,
    parked: usize,
    /// Those of the parked ones that ring by an eventfd.
    parked_at_eventfds: usize,
    /// Those of the others that have rung.
    marked: Arc<RungClients>,
    /// When doorbells were last looked for, and clients to be parked.
    looked: Instant,
    swept: Instant,
    /// The places of replicas.
    replicas: Vec<usize>,
    /// Clients that rang while they were parked.
    rung: u64,
    /// When waits of clients end: Unix ms, the client's place, the request's id.
    deadlines: BTreeSet<(u64, usize, u32)>,
    /// Requests that wait at this shard alone.
    waits: usize,
    /// Orders for requests that wait over shards, and the places of their clients.
    wait_orders: Vec<(usize, WaitOrder)>,
    /// Plans that were asked for.
    plans: Vec<(Asker, (Database, Plan))>,
    clock: C,
}

impl RingClients {
    /// Starts without clients. Those over a network ring in `marked` while they are parked.
    pub fn new(marked: Arc<RungClients>) -> Self {
        Self::with_clock(marked, Instant::now)
    }
}

impl<C: Fn() -> Instant> RingClients<C> {
    /// As [`RingClients::new`], with this clock.
    pub fn with_clock(marked: Arc<RungClients>, clock: C) -> Self {
        let now = clock();
        Self {
            clients: Vec::new(),
            unparked: Vec::new(),
            parked: 0,
            parked_at_eventfds: 0,
            marked,
            looked: now,
            swept: now,
            replicas: Vec::new(),
            rung: 0,
            deadlines: BTreeSet::new(),
            waits: 0,
            wait_orders: Vec::new(),
            plans: Vec::new(),
            clock,
        }
    }

    /// Serves a client from now on.
    ///
    /// # Errors
    /// The kernel does not watch its eventfd; the session comes back with why.
    pub fn attach(
        &mut self,
        mut session: RingSession,
        sleeper: &Sleeper,
    ) -> Result<(), (Box<RingSession>, std::io::Error)> {
        let free = self.clients.iter().position(Option::is_none);
        let place = free.unwrap_or(self.clients.len());
        let watched = session.eventfd().map(|fd| sleeper.watch(fd, CLIENT_MARK | place as u64));
        if let Some(Err(error)) = watched {
            return Err((Box::new(session), error));
        }
        if place == self.clients.len() {
            self.clients.push(None);
        }
        session.set_place(place);
        let client = Client { session, worked: (self.clock)(), is_parked: false };
        self.clients[place] = Some(Box::new(client));
        self.unparked.push(place);
        Ok(())
    }

    /// Removes clients, and frees the shard's memory that they hold.
    pub fn detach(
        &mut self,
        (shard, now): (&mut Shard<impl Journal>, Now),
        sleeper: &Sleeper,
        ends: impl Fn(&RingSession) -> bool,
    ) {
        for (place, client) in self.clients.iter_mut().enumerate() {
            let Some(Client { session, is_parked, .. }) = client.as_deref_mut() else { continue };
            if !ends(session) {
                continue;
            }
            self.waits -= session.waits();
            self.deadlines.retain(|of| of.1 != place);
            session.abandon(shard, now);
            gather_orders(&mut self.wait_orders, place, session);
            if let Some(eventfd) = session.eventfd() {
                sleeper.forget(eventfd);
                self.parked_at_eventfds -= *is_parked as usize;
            }
            self.parked -= *is_parked as usize;
            *client = None;
        }
        self.unparked.retain(|&place| self.clients[place].is_some());
        self.replicas.retain(|&place| self.clients[place].is_some());
    }

    /// Clients that are parked.
    pub fn parked(&self) -> usize {
        self.parked
    }

    /// Clients that are not.
    pub fn unparked(&self) -> usize {
        self.unparked.len()
    }

    /// Clients that rang while they were parked, since this was asked last.
    pub fn take_rung(&mut self) -> u64 {
        std::mem::take(&mut self.rung)
    }

    fn sessions(&self) -> impl Iterator<Item = &RingSession> {
        // A place that is not parked has a client.
        self.unparked.iter().filter_map(|&place| Some(&self.clients[place].as_ref()?.session))
    }

    /// Whether there is work: the last scan before sleeping. A parked client with work has rung.
    #[inline]
    pub fn has_work(&self) -> bool {
        !self.marked.is_empty()
            || self.sessions().any(RingSession::has_work)
            || self.replica_sessions().any(RingSession::has_stored)
    }

    /// Whether there are requests under way that may stall.
    pub fn may_stall(&self) -> bool {
        self.sessions().any(RingSession::may_stall)
    }

    /// Replies that are held back.
    pub fn held_replies(&self) -> usize {
        self.sessions().map(RingSession::held_replies).sum()
    }

    /// Each client that may have work gets its turn. Failed clients are passed to `lost`.
    pub fn serve(
        &mut self,
        (shard, now, at): (&mut Shard<impl Journal>, Now, Instant),
        mut lost: impl FnMut(&RingSession, SessionError),
    ) -> Served {
        self.take_marked(at);
        let mut served = Served::default();
        for &place in &self.unparked {
            served.looks += 1;
            let Some(client) = &mut self.clients[place] else { continue };
            let session = &mut client.session;
            if !session.is_busy() && !session.has_work() {
                continue;
            }
            client.worked = at;
            let before = session.waits();
            match session.turn(shard, now) {
                Ok(frames) => {
                    served.frames += frames as u64;
                    served.clients += (frames > 0) as u64;
                    served.polled |= frames > 0 && session.is_written_by_others();
                    if session.is_replica() && !self.replicas.contains(&place) {
                        self.replicas.push(place);
                    }
                }
                Err(error) => lost(session, error),
            }
            served.rings += session.take_looked();
            self.waits = self.waits + session.waits() - before;
            note_deadlines(&mut self.deadlines, place, session);
            gather_orders(&mut self.wait_orders, place, session);
            let number = session.session;
            self.plans.extend(
                session
                    .take_plans()
                    .map(|(id, plan)| (Asker::Session { place, session: number, id }, plan)),
            );
        }
        served
    }

    /// Plans that were asked for since the last call.
    #[inline]
    pub fn take_plans(&mut self) -> impl Iterator<Item = (Asker, (Database, Plan))> {
        std::mem::take(&mut self.plans).into_iter()
    }

    /// Whether the client at a place is this session.
    pub fn has(&self, place: usize, session: u64) -> bool {
        let client = self.clients.get(place).and_then(Option::as_ref);
        client.is_some_and(|client| client.session.session == session)
    }

    /// A plan of this session has ended, with its outcome or a refusal.
    pub fn end_plan(&mut self, (place, session, id): (usize, u64, u32), reply: OwnedReply) {
        if let Some(Some(client)) = self.clients.get_mut(place)
            && client.session.session == session
        {
            // It waits for a reply, so it is not parked.
            client.session.end_plan(id, reply);
        }
    }

    /// Requests that wait for keys at this shard alone.
    pub fn waits(&self) -> usize {
        self.waits
    }

    /// The time of the first wait that ends by time, Unix ms.
    #[inline]
    pub fn next_deadline_ms(&self) -> Option<u64> {
        self.deadlines.first().map(|deadline| deadline.0)
    }

    /// Lets the client at a place do something about its waits.
    fn with_waits(
        &mut self,
        place: usize,
        act: impl FnOnce(&mut RingSession) -> Result<(), SessionError>,
        lost: &mut impl FnMut(&RingSession, SessionError),
    ) {
        // A reply may be held back: the shard looks at the client.
        self.unpark(place, (self.clock)());
        let Some(Some(client)) = self.clients.get_mut(place) else { return };
        let before = client.session.waits();
        if let Err(error) = act(&mut client.session) {
            lost(&client.session, error);
        }
        self.waits = self.waits + client.session.waits() - before;
        note_deadlines(&mut self.deadlines, place, &mut client.session);
        gather_orders(&mut self.wait_orders, place, &mut client.session);
    }

    /// Orders for requests that wait over shards, and the places of their clients, since the last call.
    #[inline]
    pub fn take_wait_orders(&mut self) -> Vec<(usize, WaitOrder)> {
        std::mem::take(&mut self.wait_orders)
    }

    /// Sends the answer of a request, of the client at this place and with this id, that has waited over
    /// shards.
    pub fn answer_over_shards(
        &mut self,
        (place, id): (usize, u32),
        answer: &Answer,
        mut lost: impl FnMut(&RingSession, SessionError),
    ) {
        self.with_waits(place, |session| session.answer_over_shards(id, answer), &mut lost);
    }

    /// Such a request has another claim from now on.
    pub fn wait_again(&mut self, (place, id): (usize, u32), claim: Claim) {
        if let Some(Some(client)) = self.clients.get_mut(place) {
            client.session.wait_again(id, claim);
        }
    }

    /// Sends the answers of requests that have waited.
    #[inline]
    pub fn answer_waits(
        &mut self,
        shard: &mut Shard<impl Journal>,
        mut lost: impl FnMut(&RingSession, SessionError),
    ) {
        while let Some(served) = shard.pop_served_at_rings() {
            let [_, place, number, _] = served.name;
            let answer = |session: &mut RingSession| match session.session == number {
                true => session.answer_wait(&served),
                false => Ok(()),
            };
            self.with_waits(place as usize, answer, &mut lost);
        }
    }

    /// Ends the waits whose time is over.
    pub fn time_out_waits(
        &mut self,
        shard: &mut Shard<impl Journal>,
        now: Now,
        mut lost: impl FnMut(&RingSession, SessionError),
    ) {
        while let Some(&(until_ms, place, id)) = self.deadlines.first()
            && until_ms <= now.unix_ms
        {
            self.deadlines.pop_first();
            self.with_waits(place, |session| session.time_out_wait(shard, id), &mut lost);
        }
    }

    /// Ends all waits at this shard alone.
    pub fn end_waits(
        &mut self,
        shard: &mut Shard<impl Journal>,
        status: Status,
        mut lost: impl FnMut(&RingSession, SessionError),
    ) {
        let waits = |client: &Option<Box<Client>>| {
            client.as_ref().is_some_and(|client| client.session.waits() > 0)
        };
        for place in 0..self.clients.len() {
            if self.waits > 0 && waits(&self.clients[place]) {
                self.with_waits(place, |session| session.end_waits(shard, status), &mut lost);
            }
        }
    }

    /// Sends each replica what is new in the log. Whether there is more to send now.
    #[inline]
    pub fn feed_replicas(
        &mut self,
        (shard, now): (&mut Shard<impl Journal>, Now),
        mut lost: impl FnMut(&RingSession, SessionError),
    ) -> bool {
        let mut has_more = false;
        for &place in &self.replicas {
            let Some(client) = &mut self.clients[place] else { continue };
            match client.session.feed_some(shard, now) {
                Ok(more) => has_more |= more,
                Err(error) => lost(&client.session, error),
            }
        }
        has_more
    }

    /// Changes became durable: each client gets the replies that waited for them.
    pub fn release(
        &mut self,
        (shard, now): (&mut Shard<impl Journal>, Now),
        mut lost: impl FnMut(&RingSession, SessionError),
    ) {
        // One with held replies is busy, and not parked.
        for &place in &self.unparked {
            let Some(client) = &mut self.clients[place] else { continue };
            if let Err(error) = client.session.release(shard, now) {
                lost(&client.session, error);
            }
        }
    }

    /// Whether a replica waits for something that no turn brings about: the caller feeds it again
    /// with the shard's ticks.
    pub fn feeds_wait(&self) -> bool {
        self.replica_sessions().any(RingSession::feed_waits)
    }

    /// Whether the next feeding works on a copy for a replica.
    #[inline]
    pub fn may_copy(&self) -> bool {
        self.replica_sessions().any(RingSession::may_copy)
    }

    fn replica_sessions(&self) -> impl Iterator<Item = &RingSession> {
        self.replicas.iter().filter_map(|&place| Some(&self.clients[place].as_ref()?.session))
    }

    /// Whether there are replicas.
    #[inline]
    pub fn has_replicas(&self) -> bool {
        !self.replicas.is_empty()
    }

    /// The server becomes a replica: no log of it is followed any more. The replicas get the reason.
    pub fn refuse_replicas(&mut self, shard: &mut Shard<impl Journal>, why: &str) {
        for &place in &self.replicas {
            if let Some(client) = &mut self.clients[place] {
                client.session.refuse_replica(shard, why);
            }
        }
    }

    /// How far each replica has come.
    pub fn replica_positions(&self) -> impl Iterator<Item = ReplicaPositions> {
        self.replica_sessions().filter_map(RingSession::replica_positions)
    }

    /// Gives up requests that have stalled. The caller calls it with the shard's ticks.
    pub fn abandon_stalled(
        &mut self,
        (shard, now): (&mut Shard<impl Journal>, Now),
        mut lost: impl FnMut(&RingSession, SessionError),
    ) {
        for &place in &self.unparked {
            let Some(client) = &mut self.clients[place] else { continue };
            if let Err(error) = client.session.abandon_stalled(shard, now) {
                lost(&client.session, error);
            }
        }
    }

    /// Looks for doorbells, if clients are parked and that was long ago, and parks
    /// those that have had no work for a while. Cheap if there is nothing to do.
    #[inline]
    pub fn look_around(&mut self, at: Instant, sleeper: &mut Sleeper) {
        if self.parked_at_eventfds > 0
            && at - self.looked >= Duration::from_micros(DOORBELL_LOOK_US)
        {
            self.looked = at;
            sleeper.look();
            self.take_doorbells(sleeper);
        }
        let is_due = at - self.swept >= Duration::from_micros(PARK_AFTER_US);
        if is_due && self.unparked.len() > KEPT_UNPARKED {
            self.park_idle(at);
        }
    }

    /// Looks again at those that have rung, as the sleeper found.
    pub fn take_doorbells(&mut self, sleeper: &mut Sleeper) {
        for mark in sleeper.take_ready().filter(|mark| mark & CLIENT_MARK != 0) {
            let at = (self.clock)();
            self.unpark((mark ^ CLIENT_MARK) as usize, at);
        }
    }

    /// Looks again at those over a network that have rung.
    #[inline]
    fn take_marked(&mut self, at: Instant) {
        if !self.marked.is_empty() {
            self.unpark_marked(at);
        }
    }

    #[cold]
    fn unpark_marked(&mut self, at: Instant) {
        Arc::clone(&self.marked).take(|first| {
            for place in (first..self.clients.len()).step_by(RungClients::PLACES) {
                self.unpark(place, at);
            }
        });
    }

    /// Unparks the client in this slot, if there is a parked one: a client that has gone may have
    /// rung before.
    fn unpark(&mut self, place: usize, at: Instant) {
        let Some(Some(client)) = self.clients.get_mut(place) else { return };
        if std::mem::take(&mut client.is_parked) {
            client.session.unpark();
            client.worked = at;
            self.unparked.push(place);
            self.parked -= 1;
            self.parked_at_eventfds -= client.session.eventfd().is_some() as usize;
            self.rung += 1;
        }
    }

    /// Parks the clients that have had no work for a while, except for some that came or rang last.
    #[cold]
    fn park_idle(&mut self, at: Instant) {
        self.swept = at;
        let Self { clients, unparked, parked, parked_at_eventfds, .. } = self;
        let is_idle = |place: usize| {
            let client = clients[place].as_ref();
            client.is_some_and(|client| {
                let idle = at.saturating_duration_since(client.worked);
                idle >= Duration::from_micros(PARK_AFTER_US) && !client.session.is_busy()
            })
        };
        let idle: Vec<usize> = unparked.iter().copied().filter(|&place| is_idle(place)).collect();
        for &place in &idle[..idle.len().saturating_sub(KEPT_UNPARKED)] {
            let Some(client) = &mut clients[place] else { continue };
            client.is_parked = client.session.park(place);
            if client.is_parked {
                *parked += 1;
                *parked_at_eventfds += client.session.eventfd().is_some() as usize;
            }
        }
        unparked.retain(|&place| clients[place].as_ref().is_some_and(|client| !client.is_parked));
    }
}

/// Gathers a client's orders for requests that wait over shards.
#[inline]
fn gather_orders(orders: &mut Vec<(usize, WaitOrder)>, place: usize, session: &mut RingSession) {
    orders.extend(session.take_wait_orders().map(|order| (place, order)));
}

/// Notes which deadlines of a client have come and gone.
#[inline]
fn note_deadlines(
    deadlines: &mut BTreeSet<(u64, usize, u32)>,
    place: usize,
    session: &mut RingSession,
) {
    for (what, until_ms, id) in session.take_deadlines() {
        match what {
            Deadline::Begins => _ = deadlines.insert((until_ms, place, id)),
            Deadline::Ends => _ = deadlines.remove(&(until_ms, place, id)),
        }
    }
}
