//! Ring sets: for each shard a ring pair, used by one session of the process, or several.
//!
//! Over shared memory the first sessions of a process have sets of their own: when such a session
//! asks, no other thread touches the same memory. Beyond that, and over other transports, sessions
//! share sets. Invariants:
//! * a thread puts a request into a ring under its lane's sending lock, and takes a reply under its
//!   receiving lock: rings have one writer and one reader at a time;
//! * if all sessions share one set, none waits for the sending lock: it hands its requests over to
//!   the thread that holds the lock (`crate::lane`);
//! * the id of a reply names the session that asked; the thread that takes the reply delivers it to
//!   that session's inbox, in the order of the ring;
//! * a session number is reused only after every reply to its former holder has arrived.

use crate::inbox::Inbox;
use crate::lane::{HandedOver, Lane, Receiving, Sending, Sends};
use crate::sync::{AtomicU32, Mutex, MutexGuard, OwnBell, lock_counted, try_lock};
use remora_arena::{ReadView, Words};
use remora_fabric::shm::Woken;
use remora_fabric::{AnyLink, Link, LockWaits, Waited};
use remora_layout::frame::ring_seed;
use remora_layout::immediate;
use remora_layout::limits::MAX_CLIENT_SESSIONS;
use remora_layout::session::{credit_word, ring_number, ring_offset, set_offset};
use remora_ring::{Receiver, Sender};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// See the module's text.
pub(crate) struct RingSet {
    /// Its number.
    pub number: usize,
    /// How many there are.
    sets: usize,
    /// Whether sessions hand requests over: true if it is the only set.
    pub hands_over: bool,
    /// By shard.
    pub lanes: Vec<Lane>,
    /// The inbox of its first session; mostly there is no other.
    first_inbox: OnceLock<Arc<Inbox>>,
    /// The inboxes of the other sessions: every `sets`-th number.
    other_inboxes: OnceLock<Box<[OnceLock<Arc<Inbox>>]>>,
    /// Held by the one thread that sleeps in the kernel for all sessions of this set.
    pub sleep: Mutex<Sleep>,
    /// Wakes that thread, over shared memory.
    bell: Option<OwnBell>,
    /// Times that a thread had to wait for another at a ring or an inbox.
    pub lock_waits: LockWaits,
}

/// How one thread sleeps for all sessions of a ring set.
pub(crate) enum Sleep {
    /// Until the server rings.
    Shm(OwnBell),
    /// Until something arrives, by the link of the thread that sleeps.
    ByLink,
}

/// The parts of a ring set.
pub(crate) struct SetParts<'c> {
    /// Seed of the session's rings.
    pub seed: u64,
    pub shards: usize,
    pub sets: usize,
    /// The mailbox that the server writes.
    pub to_client: &'c ReadView,
    /// The other one, if the server wakes threads through it.
    pub to_server: Option<&'c Words>,
}

impl RingSet {
    /// The set of this number; nothing is sent yet.
    pub fn new(parts: &SetParts<'_>, number: usize) -> Self {
        let &SetParts { seed, shards, sets, to_client, to_server } = parts;
        let block = set_offset(shards, number);
        let lane = |shard| {
            let ring = block + ring_offset(shard);
            let seed = |direction| ring_seed(seed, ring_number(number, shard), direction);
            // The immediate wakes the shard.
            let imm = immediate::of(immediate::Kind::Request, shard);
            let sender = Sender::new(shards as u32, ring as u64, seed(0)).with_immediate(imm);
            let receiver = Receiver::new(to_client.clone(), ring, seed(1));
            // Rings of shared memory.
            let (sender, receiver) = match to_server {
                Some(_) => (sender.in_short_laps(), receiver.in_short_laps()),
                None => (sender, receiver),
            };
            Lane {
                sending: Mutex::new(Sending::new(sender)),
                handed_over: HandedOver::default(),
                receiving: Mutex::new(Receiving { receiver, credit_link: None }),
                credit_word: block / 8 + credit_word(shard),
                to_client: to_client.clone(),
                outstanding: AtomicU32::new(0),
                sends: Sends::default(),
            }
        };
        let bell = to_server.map(|words| OwnBell::new(words.clone(), shards, number));
        let sleep = bell.clone().map_or(Sleep::ByLink, Sleep::Shm);
        Self {
            number,
            sets,
            hands_over: sets == 1,
            lanes: (0..shards).map(lane).collect(),
            first_inbox: OnceLock::new(),
            other_inboxes: OnceLock::new(),
            sleep: Mutex::new(sleep),
            bell,
            lock_waits: LockWaits::default(),
        }
    }

    /// Takes a session number that belongs to this set, if no session holds it and no reply to its
    /// former holder is in flight.
    pub fn take_number(&self, number: usize) -> Option<Arc<Inbox>> {
        let inbox = match (number / self.sets).checked_sub(1) {
            None => &self.first_inbox,
            Some(at) => &self.other_inboxes.get_or_init(|| {
                (1..MAX_CLIENT_SESSIONS / self.sets).map(|_| OnceLock::new()).collect()
            })[at],
        };
        let inbox = inbox.get_or_init(|| Arc::new(Inbox::new(self.lock_waits.clone())));
        inbox.take_if_free().then(|| Arc::clone(inbox))
    }

    /// The inbox of a session; `None` for a number that does not belong here, or
    /// was never given out.
    pub fn inbox(&self, number: u16) -> Option<&Inbox> {
        let number = number as usize;
        if number % self.sets != self.number {
            return None;
        }
        match (number / self.sets).checked_sub(1) {
            None => Some(self.first_inbox.get()?),
            Some(at) => Some(self.other_inboxes.get()?.get(at)?.get()?),
        }
    }

    fn inboxes(&self) -> impl Iterator<Item = &Arc<Inbox>> {
        let others = self.other_inboxes.get().into_iter().flatten();
        std::iter::once(&self.first_inbox).chain(others).map_while(OnceLock::get)
    }

    /// The sending end of a ring; `None` if another thread has it: then the session hands its
    /// requests over to that thread.
    #[inline]
    pub fn sending<'l>(&self, lane: &'l Lane) -> Option<MutexGuard<'l, Sending>> {
        if self.hands_over {
            try_lock(&lane.sending)
        } else {
            Some(lock_counted(&lane.sending, &self.lock_waits))
        }
    }

    /// Whether handed-over requests wait for room in a ring.
    pub fn waits_for_room(&self) -> bool {
        self.hands_over && self.lanes.iter().any(|lane| lane.handed_over.is_waiting())
    }

    /// Makes all threads of this set check again.
    pub fn nudge_all(&self) {
        self.inboxes().for_each(|inbox| inbox.nudge());
    }

    /// Wakes the thread that sleeps in the kernel, over shared memory.
    pub fn wake_sleeper(&self) {
        if let Some(bell) = &self.bell {
            bell.signal();
        }
    }

    /// Makes one of the parked threads check again: the thread that slept in the kernel for all no
    /// longer does, or a thread that sent for all continues with its own work.
    pub fn nudge_one(&self) {
        Words::full_fence();
        for inbox in self.inboxes() {
            if inbox.nudge_if_parked() {
                return;
            }
        }
    }

    /// Whether a reply may have arrived that no thread is taking, or that a thread is about to
    /// deliver: the last check of the rings before a sleep.
    pub fn has_reply(&self) -> bool {
        self.lanes.iter().any(|lane| {
            lane.outstanding.load(Ordering::Acquire) > 0
                && (try_lock(&lane.receiving).is_none_or(|ring| ring.receiver.has_frame())
                    || lane.may_push_on())
        })
    }
}

impl Sleep {
    /// Sleeps until something may have arrived, unless `scan` finds something. Returns whether it
    /// slept.
    pub fn sleep(
        &mut self,
        link: &mut AnyLink,
        timeout: Duration,
        scan: impl FnOnce() -> bool,
    ) -> bool {
        match self {
            Self::Shm(bell) => bell.sleep(timeout, scan) != Woken::Found,
            // What arrives after the scan ends the wait.
            Self::ByLink => !scan() && link.wait(Some(timeout)) != Waited::Completed,
        }
    }
}
