//! What all threads of a round share.

use crate::load::{Key, ServerAddress};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// Problems of a round that are kept.
const MOST_PROBLEMS: usize = 20;
const PAUSE: Duration = Duration::from_millis(2);

/// See the module's text.
pub struct Round<'a> {
    /// All keys.
    pub keys: &'a [Key],
    /// Where the servers are.
    pub servers: &'a [ServerAddress],
    /// All threads are to end.
    pub stops: AtomicBool,
    /// Acknowledged changes.
    pub acknowledged: AtomicU64,
    /// Changes whose reply was lost, or did not say whether they happened.
    pub unknown: AtomicU64,
    /// Answers to readers.
    pub reads: AtomicU64,
    /// Acknowledged changes that are gone.
    pub lost: AtomicU64,
    /// Reads of states that were older than what was known.
    pub stale: AtomicU64,
    /// What should not be, in words.
    pub problems: Mutex<Vec<String>>,
    awaited: Mutex<Option<Awaited>>,
}

/// The first acknowledgement of any server but one.
#[derive(Clone, Copy, Debug)]
struct Awaited {
    but_of: usize,
    since: Instant,
    came: Option<SystemTime>,
}

impl<'a> Round<'a> {
    /// One that begins.
    pub fn new(keys: &'a [Key], servers: &'a [ServerAddress]) -> Self {
        Self {
            keys,
            servers,
            stops: false.into(),
            acknowledged: 0.into(),
            unknown: 0.into(),
            reads: 0.into(),
            lost: 0.into(),
            stale: 0.into(),
            problems: Mutex::default(),
            awaited: Mutex::default(),
        }
    }

    /// Whether all threads are to end.
    pub fn is_over(&self) -> bool {
        self.stops.load(Ordering::Relaxed)
    }

    /// Notes something that should not be, a few times.
    pub fn problem(&self, text: String) {
        let mut problems = self.problems.lock().expect("no thread panics with it");
        if problems.len() < MOST_PROBLEMS {
            problems.push(text);
        }
    }

    /// A server has acknowledged a change of a key, which was sent at this time.
    pub fn acknowledge(&self, (key, number): (usize, u64), server: usize, sent: Instant) {
        self.keys[key].history().acknowledged(number, Instant::now());
        self.acknowledged.fetch_add(1, Ordering::Relaxed);
        if let Some(awaited) = &mut *self.awaited.lock().expect("no thread panics with it")
            && (awaited.but_of != server || sent >= awaited.since)
        {
            awaited.came.get_or_insert_with(SystemTime::now);
        }
    }

    /// From now on the first acknowledgement is awaited that a server but this one sends, or that it
    /// sends for a change that it gets later.
    pub fn await_change(&self, but_of: usize) {
        let awaited = Awaited { but_of, since: Instant::now(), came: None };
        *self.awaited.lock().expect("no thread panics with it") = Some(awaited);
    }

    /// When it came; there has to be one by the limit, since `what`.
    pub fn wait_for_change(&self, limit: Duration, what: &str) -> Option<SystemTime> {
        let began = Instant::now();
        loop {
            let awaited = *self.awaited.lock().expect("no thread panics with it");
            if let Some(came) = awaited.and_then(|of| of.came) {
                return Some(came);
            }
            if began.elapsed() > limit {
                self.problem(format!("nothing is acknowledged {limit:?} after {what}"));
                return None;
            }
            std::thread::sleep(PAUSE);
        }
    }
}
