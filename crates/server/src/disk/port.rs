//! Between a shard's thread and the log's: runs of frames there, empty buffers back.
//!
//! Invariants: each pair has bounded queues of its own, which one thread fills and one empties;
//! entries are handed over in order, each once; the shard's log keeps what is not handed over. If
//! the disk is slow the queue stays full, the log fills up, and the shard refuses changes.

use super::runs::RunSource;
use crate::sync::ArrayQueue;
use remora_arena::Journal;
use remora_engine::Shard;
use remora_layout::limits::{LOG_RUN_BYTES, LOG_RUNS_UNDER_WAY};
use remora_log::Lost;
use remora_storage::Run;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::thread::{Thread, current, park, park_timeout};
use std::time::Duration;

/// Longest buffer that is used again, bytes.
const KEPT_BUFFER_BYTES: usize = 2 * LOG_RUN_BYTES;

/// See the module's text.
pub struct LogPort {
    full: ArrayQueue<Run>,
    empty: ArrayQueue<Vec<u8>>,
    /// The shard's log has dropped entries that were not handed over.
    is_lost: AtomicBool,
    /// The shard has more than there was room for.
    waits: AtomicBool,
}

impl Default for LogPort {
    fn default() -> Self {
        let [full, empty] = [LOG_RUNS_UNDER_WAY; 2];
        let (full, empty) = (ArrayQueue::new(full), ArrayQueue::new(empty));
        Self { full, empty, is_lost: AtomicBool::new(false), waits: AtomicBool::new(false) }
    }
}

impl LogPort {
    /// The next run.
    pub fn pop(&self) -> Option<Run> {
        self.full.pop()
    }

    /// Whether the shard waits for room, since this was last asked: it is to be woken once runs were
    /// taken. The shard looks for room once more before it sleeps.
    pub fn takes_waiting(&self) -> bool {
        fence(Ordering::SeqCst);
        self.waits.load(Ordering::Relaxed) && self.waits.swap(false, Ordering::Relaxed)
    }

    /// Whether the shard can hand nothing more over.
    pub fn is_full(&self) -> bool {
        self.full.is_full()
    }

    /// Whether entries are lost: nothing after them may be written.
    pub fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Acquire)
    }

    /// Gives a buffer back.
    pub fn give_back(&self, mut buffer: Vec<u8>) {
        buffer.clear();
        if buffer.capacity() <= KEPT_BUFFER_BYTES {
            // One more than are under way is dropped.
            let _ = self.empty.push(buffer);
        }
    }
}

/// The changes that the shards have handed over and no group has taken, and for how many of them
/// the log's thread is woken.
#[derive(Default)]
pub struct Handed {
    /// Below 0 while a run is taken that is not counted yet.
    changes: AtomicI64,
    wanted: AtomicU64,
}

impl Handed {
    /// How many there are: one at least for each run.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed).max(0) as u64
    }

    /// Takes those of a run out.
    pub fn take(&self, run: &Run) {
        self.changes.fetch_sub(changes_of(run), Ordering::Relaxed);
    }

    /// The thread is woken once there are so many.
    pub fn want(&self, changes: u64) {
        self.wanted.store(changes, Ordering::Relaxed);
    }

    fn add(&self, changes: i64) {
        self.changes.fetch_add(changes, Ordering::Relaxed);
    }

    /// Whether the thread is to be woken.
    pub fn are_enough(&self) -> bool {
        // Pairs with the fence of `sleep`, as in `ring`.
        fence(Ordering::SeqCst);
        let changes = self.changes();
        changes > 0 && changes >= self.wanted.load(Ordering::Relaxed)
    }
}

fn changes_of(run: &Run) -> i64 {
    // A part of a long entry ends none.
    (run.last + 1 - run.first).max(1) as i64
}

/// Wakes a thread that sleeps until there is work.
#[derive(Default)]
pub struct ThreadBell {
    is_asleep: AtomicBool,
    thread: OnceLock<Thread>,
}

impl ThreadBell {
    /// Wakes the thread if it sleeps.
    pub fn ring(&self) {
        // Pairs with the fence of `sleep`: either this thread sees that it sleeps, or it sees the
        // work.
        fence(Ordering::SeqCst);
        if self.is_asleep.load(Ordering::Relaxed)
            && self.is_asleep.swap(false, Ordering::Relaxed)
            && let Some(thread) = self.thread.get()
        {
            thread.unpark();
        }
    }

    /// Sleeps until it is rung, or for this long, unless there is work.
    pub fn sleep(&self, most: Option<Duration>, has_work: impl Fn() -> bool) {
        self.thread.get_or_init(current);
        self.is_asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if !has_work() {
            match most {
                Some(most) => park_timeout(most),
                None => park(),
            }
        }
        self.is_asleep.store(false, Ordering::Relaxed);
    }
}

/// The shard's end of its port.
pub struct LogShipper {
    port: Arc<LogPort>,
    handed: Arc<Handed>,
    bell: Arc<ThreadBell>,
    source: RunSource,
}

impl LogShipper {
    /// For a shard with this number, whose entries before this sequence are all on the disk.
    pub fn new<J: Journal>(
        shard: &mut Shard<J>,
        (number, first): (usize, u64),
        (port, handed, bell): (Arc<LogPort>, Arc<Handed>, Arc<ThreadBell>),
    ) -> Self {
        Self { port, handed, bell, source: RunSource::new(shard, (number, first)) }
    }

    /// Whether everything was handed over.
    #[inline]
    pub fn has_shipped<J: Journal>(&self, shard: &Shard<J>) -> bool {
        self.source.has_taken_all(shard)
    }

    /// Whether something is to be handed over, and there is room.
    pub fn may_ship<J: Journal>(&self, shard: &Shard<J>) -> bool {
        !self.has_shipped(shard) && !self.port.full.is_full() && !self.port.is_lost()
    }

    /// Hands over what the log has, as far as the queue has room.
    #[inline]
    pub fn ship<J: Journal>(&mut self, shard: &mut Shard<J>) {
        if !self.has_shipped(shard) {
            self.ship_some(shard);
        }
    }

    fn ship_some<J: Journal>(&mut self, shard: &mut Shard<J>) {
        let mut sent = false;
        while !self.port.full.is_full() && !self.has_shipped(shard) {
            let buffer = self.port.empty.pop().unwrap_or_default();
            match self.source.next_run(shard, LOG_RUN_BYTES, buffer) {
                Ok(Some(run)) => {
                    let changes = changes_of(&run);
                    let pushed = self.port.full.push(run);
                    pushed.unwrap_or_else(|_| unreachable!("this thread alone fills it"));
                    self.handed.add(changes);
                    sent = true;
                }
                Ok(None) => break,
                Err(Lost { .. }) => {
                    self.port.is_lost.store(true, Ordering::Release);
                    shard.set_keeps(false);
                    self.bell.ring();
                    return;
                }
            }
        }
        if !self.has_shipped(shard) {
            self.port.waits.store(true, Ordering::Relaxed);
        }
        if sent && (self.handed.are_enough() || self.port.full.is_full()) {
            self.bell.ring();
        }
    }
}
