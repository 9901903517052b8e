//! How far a replica has come with its primary, for its threads, and for INFO and ROLE.

use super::resume::Resume;
use remora_fabric::Address;
use remora_layout::limits::MAX_SHARDS;
use remora_replica::Follower;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// What the threads of a replica share. There is a new one for each primary that it is told to
/// follow.
pub struct Following {
    /// The address of the primary.
    pub primary: Address,
    /// The only incarnation of it that is followed; 0: any.
    expected: u64,
    /// Since when it is to be followed.
    since: Instant,
    /// The incarnation of the primary; 0 before the first link.
    pub incarnation: AtomicU64,
    /// Its epoch; 0 before it has answered.
    pub epoch: AtomicU64,
    /// Whether the link to the primary is up.
    pub is_up: AtomicBool,
    /// Whether all logs are followed, and no copy is under way.
    pub follows: AtomicBool,
    /// Whether a copy is under way.
    pub is_copying: AtomicBool,
    /// By shard of this server, the batches that it has carried out.
    pub done: Vec<AtomicU64>,
    /// Turns in which a shard of this server waited for the sweep of a flush.
    pub sweep_turns: AtomicU64,
    /// By shard of this server, the last entry of each log of the primary that it has applied.
    pub applied: Vec<[AtomicU64; MAX_SHARDS]>,
    /// By shard of this server, the last entry of each log of the primary that is on its disk.
    pub durable: Vec<[AtomicU64; MAX_SHARDS]>,
    /// Where the logs go on after a restart, until the thread has taken it.
    pub resume: Mutex<Resume>,
    /// The sum over the logs of the last entry that was received, and that was applied.
    pub received_total: AtomicU64,
    /// See [`Following::received_total`].
    pub applied_total: AtomicU64,
    /// The same of what is on the disk.
    pub durable_total: AtomicU64,
    /// The same of the commit positions.
    pub commit_total: AtomicU64,
    /// By shard of this server, since when it has no memory for the next entry, ms after `since`; 0 if
    /// it has.
    full_since_ms: Vec<AtomicU64>,
    /// Copies that were begun anew because a shard had no memory for an entry.
    pub copies_for_room: AtomicU64,
    /// Copies since it is followed.
    pub copies: AtomicU64,
    /// Times since then that a log of the primary went on without a copy.
    pub resumes: AtomicU64,
    /// Links made since then.
    pub links: AtomicU64,
    /// Times that its thread waited, for messages or the next heartbeat.
    pub sleeps: AtomicU64,
    /// Of the copies that are under way.
    pub copy: CopyCounts,
    /// When the primary was last heard of, ms after `since`.
    heard_ms: AtomicU64,
    /// Why its link does not follow; empty if it does.
    trouble: Mutex<String>,
    /// By shard of this server, why it applies nothing; empty if it does.
    shard_troubles: Mutex<Vec<String>>,
}

/// How far the copies that are under way have come. They begin at zero with the first one.
#[derive(Default)]
pub struct CopyCounts {
    /// Bytes that have come.
    pub came_bytes: AtomicU64,
    /// Operations that the shards have loaded.
    pub loaded: AtomicU64,
    /// Keys that the primary had when they began.
    pub keys: AtomicU64,
    /// Bytes that these took there.
    pub bytes: AtomicU64,
    /// When they began, ms after the following did.
    pub began_ms: AtomicU64,
}

impl Following {
    /// Of a server with so many shards.
    pub fn new(primary: Address, shards: usize) -> Self {
        Self {
            primary,
            expected: 0,
            since: Instant::now(),
            incarnation: AtomicU64::new(0),
            epoch: AtomicU64::new(0),
            is_up: AtomicBool::new(false),
            follows: AtomicBool::new(false),
            is_copying: AtomicBool::new(false),
            done: (0..shards).map(|_| AtomicU64::new(0)).collect(),
            sweep_turns: AtomicU64::new(0),
            applied: (0..shards).map(|_| [const { AtomicU64::new(0) }; MAX_SHARDS]).collect(),
            durable: (0..shards).map(|_| [const { AtomicU64::new(0) }; MAX_SHARDS]).collect(),
            resume: Mutex::new(Resume::default()),
            durable_total: AtomicU64::new(0),
            received_total: AtomicU64::new(0),
            applied_total: AtomicU64::new(0),
            commit_total: AtomicU64::new(0),
            full_since_ms: (0..shards).map(|_| AtomicU64::new(0)).collect(),
            copies_for_room: AtomicU64::new(0),
            copies: AtomicU64::new(0),
            resumes: AtomicU64::new(0),
            links: AtomicU64::new(0),
            sleeps: AtomicU64::new(0),
            copy: CopyCounts::default(),
            heard_ms: AtomicU64::new(0),
            trouble: Mutex::default(),
            shard_troubles: Mutex::new(vec![String::new(); shards]),
        }
    }

    /// Of a server of a cluster with so many shards, which has no primary yet.
    pub fn unled(shards: usize) -> Self {
        let following = Self::new(Address::Unix(PathBuf::new()), shards);
        following.set_trouble("the coordinator has not said which server leads");
        following
    }

    /// Whether this incarnation of the primary may be followed.
    pub fn is_of(&self, incarnation: u64) -> bool {
        self.expected == 0 || self.expected == incarnation
    }

    /// Another primary takes the place of this one's. Its shards have carried out all that they were
    /// given.
    pub fn moved(&self, (primary, expected): (Address, u64)) -> Self {
        let next = Self { expected, ..Self::new(primary, self.done.len()) };
        let pairs = |of: &[[AtomicU64; MAX_SHARDS]], to: &[[AtomicU64; MAX_SHARDS]]| {
            for (of, to) in of.iter().flatten().zip(to.iter().flatten()) {
                to.store(of.load(Ordering::Acquire), Ordering::Relaxed);
            }
        };
        pairs(&self.applied, &next.applied);
        pairs(&self.durable, &next.durable);
        next
    }

    /// Why it does not follow; empty if it does.
    pub fn trouble(&self) -> String {
        let of_link = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        let of_shards = self.shard_troubles.lock().unwrap_or_else(PoisonError::into_inner);
        let all = of_shards.iter().chain([&*of_link]).map(String::as_str);
        all.filter(|why| !why.is_empty()).collect::<Vec<_>>().join("; ")
    }

    /// Its link does not follow, for this reason, or does again (empty). Whether that is news.
    pub fn set_trouble(&self, why: &str) -> bool {
        replace(&mut self.trouble.lock().unwrap_or_else(PoisonError::into_inner), why)
    }

    /// A shard of this server applies nothing, for this reason, or does again (empty). Whether that is
    /// news.
    pub fn set_shard_trouble(&self, shard: usize, why: &str) -> bool {
        let mut troubles = self.shard_troubles.lock().unwrap_or_else(PoisonError::into_inner);
        replace(&mut troubles[shard], why)
    }

    /// Whether a shard has memory for its next entry.
    pub fn note_room(&self, shard: usize, has_room: bool) {
        let since = if has_room { 0 } else { self.ms().max(1) };
        // The first time counts.
        if has_room || self.full_since_ms[shard].load(Ordering::Relaxed) == 0 {
            self.full_since_ms[shard].store(since, Ordering::Relaxed);
        }
    }

    /// For how long a shard has had no memory for its next entry, ms; 0 if all have.
    pub fn full_ms(&self) -> u64 {
        let since = self.full_since_ms.iter().map(|since| since.load(Ordering::Relaxed));
        let first = since.filter(|since| *since > 0).min();
        first.map_or(0, |since| (self.ms() - since).max(1))
    }

    /// The shards go on from there.
    pub fn resume(&mut self, resume: Resume) {
        for (shard, log, sequence) in resume.positions() {
            for of in [&self.applied, &self.durable] {
                of[shard][log].store(sequence, Ordering::Relaxed);
            }
        }
        *self.resume.get_mut().unwrap_or_else(PoisonError::into_inner) = resume;
    }

    /// What takes the messages of each log of the primary, if that is known from before a restart.
    pub fn take_followers(&self) -> Vec<Follower> {
        let resume =
            std::mem::take(&mut *self.resume.lock().unwrap_or_else(PoisonError::into_inner));
        resume.followers()
    }

    /// The last entry of a log that these shards have applied.
    pub fn applied_of(&self, log: usize, shards: impl Iterator<Item = usize>) -> u64 {
        least(&self.applied, log, shards)
    }

    /// The last entry of a log that is on the disk of these shards; 0 without one.
    pub fn durable_of(&self, log: usize, shards: impl Iterator<Item = usize>) -> u64 {
        least(&self.durable, log, shards)
    }

    /// Batches that all shards have carried out, operations that they have loaded, and turns of their
    /// sweeps: it grows with all progress.
    pub fn progress(&self) -> u64 {
        let done: u64 = self.done.iter().map(|done| done.load(Ordering::Acquire)).sum();
        let others = [&self.copy.loaded, &self.sweep_turns];
        others.into_iter().fold(done, |sum, of| sum.wrapping_add(of.load(Ordering::Relaxed)))
    }

    /// Milliseconds since it is followed.
    pub fn ms(&self) -> u64 {
        self.since.elapsed().as_millis() as u64
    }

    /// The primary was heard of.
    pub fn hear(&self) {
        self.heard_ms.store(self.ms(), Ordering::Relaxed);
    }

    /// Seconds since the primary was heard of, or since it is to be followed.
    pub fn silent_s(&self) -> u64 {
        self.ms().saturating_sub(self.heard_ms.load(Ordering::Relaxed)) / 1000
    }
}

/// Sets a text. Whether it was another one before.
fn replace(text: &mut String, to: &str) -> bool {
    let is_news = *text != to;
    to.clone_into(text);
    is_news
}

fn least(of: &[[AtomicU64; MAX_SHARDS]], log: usize, shards: impl Iterator<Item = usize>) -> u64 {
    shards.map(|shard| of[shard][log].load(Ordering::Acquire)).min().unwrap_or(0)
}
