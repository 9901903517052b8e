//! How a thread that takes messages waits for them.
//!
//! Ring and send/receive wait as the product does: poll, or block in the
//! kernel, or poll for a while and then block, by the product's wake-up
//! protocol. Indicator messages are only polled for; after a number of empty
//! looks the thread sleeps 100 ns (HydraDB 4.2.1, H17).
//!
//! What that sleep really is: the kernel adds the thread's timer slack, 50 us
//! unless told otherwise, so it is set to 1 ns here. What remains is a system
//! call, a programmed timer and a switch of threads: some microseconds where
//! the paper's text suggests a tenth of one.

use super::super::Messages;
use crate::wake::Wake;
use remora_arena::{Mapping, Words};
use remora_fabric::shm::Sleeper;
use rustix::thread::{ClockId, Timespec};
use std::num::NonZeroU64;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// As the product's shard: polls so long after the last work, then blocks.
pub const HYBRID_SPIN: Duration = Duration::from_micros(20);
/// Empty polls between two looks at the clock, or between two offers of the
/// core to others where it is crowded.
pub const POLLS_PER_CLOCK: u32 = 64;
/// Empty looks before a nap: some microseconds, about what the nap takes.
const POLLS_PER_NAP: u32 = 1000;
/// The nap that is asked for (H17).
const NAP_NS: i64 = 100;

/// The word by which clients know that somebody at a shard sleeps. Several
/// threads may sleep there: it is 1 while at least one does.
pub struct Asleep {
    words: Words,
    word: usize,
    sleepers: Mutex<u32>,
}

impl Asleep {
    /// Nobody sleeps yet.
    pub fn new(words: Words, word: usize) -> Arc<Self> {
        Arc::new(Self { words, word, sleepers: Mutex::new(0) })
    }

    fn change(&self, by: i32) {
        let mut sleepers = self.sleepers.lock().unwrap_or_else(PoisonError::into_inner);
        *sleepers = sleepers.checked_add_signed(by).expect("who wakes has slept");
        self.words.store(self.word, u64::from(*sleepers > 0));
    }
}

/// One thread's way to wait.
pub struct Rest {
    wake: Wake,
    naps: bool,
    is_crowded: bool,
    asleep: Arc<Asleep>,
    sleeper: Sleeper,
    empty_polls: u32,
    last_work: Instant,
}

impl Rest {
    /// For a thread that takes messages of this form.
    pub fn new(
        wake: Wake,
        messages: Messages,
        asleep: Arc<Asleep>,
        is_crowded: bool,
    ) -> anyhow::Result<Self> {
        // The sleeper's own word is private; `asleep` is what clients see.
        let sleeper = Sleeper::new(Words::new(Mapping::heap(8)), 0)?;
        let naps = messages == Messages::Indicator;
        Ok(Self {
            wake,
            naps,
            is_crowded,
            asleep,
            sleeper,
            empty_polls: 0,
            last_work: Instant::now(),
        })
    }

    /// To be called by the thread itself, once.
    pub fn begin(&self) {
        if self.naps {
            // Without it a nap lasts 50 us; it is a matter of latency only.
            let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        }
    }

    /// How the thread waits for other things than messages.
    pub fn wake(&self) -> Wake {
        if self.naps { Wake::Poll } else { self.wake }
    }

    /// Whether threads that poll have to offer the core to others.
    pub fn is_crowded(&self) -> bool {
        self.is_crowded
    }

    /// Wakes also for this descriptor.
    pub fn watch(&self, fd: BorrowedFd<'_>) -> std::io::Result<()> {
        self.sleeper.watch(fd)
    }

    /// No longer wakes for it.
    pub fn forget(&self, fd: BorrowedFd<'_>) {
        self.sleeper.forget(fd);
    }

    /// There was work.
    #[inline]
    pub fn worked(&mut self) {
        self.empty_polls = 0;
        if self.wake == Wake::Hybrid && !self.naps {
            self.last_work = Instant::now();
        }
    }

    /// There was none. `has_work` looks once more before the thread blocks.
    #[inline]
    pub fn wait(&mut self, has_work: impl FnOnce() -> bool) {
        self.empty_polls = self.empty_polls.wrapping_add(1);
        std::hint::spin_loop();
        if self.naps {
            if self.empty_polls.is_multiple_of(POLLS_PER_NAP) {
                nap();
            }
            return;
        }
        if self.wake != Wake::Event {
            if !self.empty_polls.is_multiple_of(POLLS_PER_CLOCK) {
                return;
            }
            if self.wake == Wake::Poll {
                if self.is_crowded {
                    std::thread::yield_now();
                }
                return;
            }
            if self.last_work.elapsed() < HYBRID_SPIN {
                return;
            }
        }
        self.asleep.change(1);
        // Stores, fences and looks once more: after our word was stored.
        self.sleeper.sleep(None, has_work);
        self.asleep.change(-1);
        self.last_work = Instant::now();
    }
}

/// Sleeps 100 ns, as far as the kernel lets it.
fn nap() {
    let request = Timespec { tv_sec: 0, tv_nsec: NAP_NS };
    // A signal may cut it short; that is no harm.
    let _ = rustix::thread::clock_nanosleep_relative(ClockId::Monotonic, &request);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_says_whether_anybody_sleeps() {
        let words = Words::new(Mapping::heap(64));
        let asleep = Asleep::new(words.clone(), 3);
        let mut seen = Vec::new();
        for by in [1, 1, -1, -1, 1, -1] {
            asleep.change(by);
            seen.push(words.load(3));
        }
        assert_eq!(seen, [1, 1, 1, 0, 1, 0]);
    }
}
