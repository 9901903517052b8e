//! What readers see of a replica: sessions at its shards, heartbeats that tell its lag, and a clock that
//! follows its primary's. It replaces the production control thread in few lines, as
//! [`crate::node`] does; what readers may see is decided by the production view.

use super::oracle::Oracle;
use crate::clock::HostClock;
use crate::node::session::{Granting, Session, is_lost};
use remora_client_core::Parts;
use remora_engine::{Now, Shard};
use remora_fabric::sim::{SimJournal, SimWorld};
use remora_protocol::{ClockFollower, ServerClock};
use remora_server::{MonotonicClock, ReplicaReads, ReplicaView, TurnView};
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const MS: u64 = 1_000_000;

/// What a replica shows, and its clock.
pub struct Shown {
    /// How fresh it is.
    pub view: Arc<ReplicaView>,
    /// What its shards answer by.
    pub turn_view: Arc<TurnView>,
    monotonic: HostClock,
    unix: ServerClock,
    follower: RefCell<ClockFollower>,
}

impl Shown {
    /// Of a process that begins with nothing, on a machine with this clock.
    pub fn new(monotonic: &HostClock, reads: ReplicaReads) -> Self {
        let clock = monotonic.clone();
        let clock = MonotonicClock::Given(Arc::new(move || clock.now_ns() + 1));
        let view = Arc::new(ReplicaView::new(clock, reads, true));
        Self {
            turn_view: Arc::new(TurnView::new(Arc::clone(&view))),
            view,
            monotonic: monotonic.clone(),
            unix: ServerClock::starting_at(0),
            follower: RefCell::default(),
        }
    }

    fn since_ms(&self) -> u64 {
        self.monotonic.now_ns() / MS
    }

    /// The clock by which readers judge expiries, Unix ms.
    pub fn unix_ms(&self) -> u64 {
        self.unix.unix_ms(self.since_ms())
    }

    /// Follows the clock of the primary.
    pub fn follow_clock(&self) {
        if let Some(unix_ms) = self.view.primary_unix_ms() {
            self.follower.borrow_mut().follow(&self.unix, self.since_ms(), unix_ms);
        }
    }
}

/// The sessions of a replica's readers.
#[derive(Default)]
pub struct ReaderSessions(Vec<Session>);

impl ReaderSessions {
    /// Grants a session to a reader whose machine has this clock.
    pub fn connect(
        &mut self,
        world: &SimWorld,
        granting: &Granting<'_>,
        (number, reader): (u64, &HostClock),
    ) -> Parts {
        let (session, parts) = Session::grant(world, granting, number, reader);
        self.0.push(session);
        parts
    }

    /// Serves every ring once. Whether there was anything to do.
    pub fn turn(
        &mut self,
        shards: &mut [Shard<SimJournal>],
        (now, world): (Now, &SimWorld),
        oracle: &mut Oracle,
    ) -> bool {
        let mut worked = false;
        for session in &mut self.0 {
            for (ring, shard) in session.rings.iter_mut().zip(&mut *shards) {
                match ring.turn(shard, now) {
                    Ok(frames) => worked |= frames > 0,
                    Err(error) => {
                        if !is_lost(&error) {
                            let seen = format!("a replica ended the session of a reader: {error}");
                            oracle.broken.push(("nobody breaks the protocol", seen));
                        }
                        session.violated.store(true, Ordering::Relaxed);
                    }
                }
            }
        }
        self.end_if(shards, (now, world), |of| of.violated.load(Ordering::Relaxed));
        worked
    }

    /// Whether a ring has something to do.
    pub fn has_work(&self) -> bool {
        self.0.iter().flat_map(|session| &session.rings).any(|ring| ring.has_work())
    }

    /// What is due every few milliseconds.
    pub fn tick(
        &mut self,
        shards: &mut [Shard<SimJournal>],
        now: Now,
        shown: &Shown,
        (number, epoch): (u64, u64),
    ) {
        let told_ms = shown.unix.told_unix_ms(shown.since_ms());
        for session in &mut self.0 {
            for (ring, shard) in session.rings.iter_mut().zip(&mut *shards) {
                if ring.abandon_stalled(shard, now).is_err() {
                    session.violated.store(true, Ordering::Relaxed);
                }
            }
            session.beat((number, epoch), (told_ms, shown.view.lag()), 0);
        }
    }

    /// Ends the session of a reader that has gone.
    pub fn end(&mut self, shards: &mut [Shard<SimJournal>], of: (Now, &SimWorld), number: u64) {
        self.end_if(shards, of, |session| session.number == number);
    }

    /// Ends all: the process is gone, or becomes a primary.
    pub fn end_all(&mut self, shards: &mut [Shard<SimJournal>], of: (Now, &SimWorld)) {
        self.end_if(shards, of, |_| true);
    }

    fn end_if(
        &mut self,
        shards: &mut [Shard<SimJournal>],
        (now, world): (Now, &SimWorld),
        is_over: impl Fn(&Session) -> bool,
    ) {
        while let Some(at) = self.0.iter().position(&is_over) {
            let mut session = self.0.remove(at);
            for (ring, shard) in session.rings.iter_mut().zip(&mut *shards) {
                ring.abandon(shard, now);
            }
            session.lose(world);
        }
    }

    /// Wakes this task when something comes.
    pub fn set_waiting(&self, task: Option<u64>) {
        self.0.iter().for_each(|session| session.target.set_waiting(task));
    }
}
