//! How a thread that takes messages waits for them.
//!
//! Ring and send/receive wait as the product does: poll, or block in the
//! kernel, or poll for a while and then block, by the product's wake-up
//! protocol. Indicator messages are only polled for; after a number of empty
//! looks the thread sleeps 100 ns (HydraDB 4.2.1, H17).

use super::super::form::Messages;
use super::super::nap::{self, POLLS_PER_NAP};
use remora_arena::{AsleepWord, Mapping, Words};
use remora_command_line::Wake;
use remora_fabric::shm::Sleeper;
use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// As the product's shard: polls for this long after the last work, then blocks.
pub const HYBRID_SPIN: Duration = Duration::from_micros(20);
/// Empty polls between two looks at the clock, or between two offers of the
/// core to others where it is crowded.
pub const POLLS_PER_CLOCK: u32 = 64;
/// The word that shows clients that a thread at a shard sleeps. Several threads may sleep there: it
/// is 1 while at least one does.
pub struct Asleep {
    word: AsleepWord,
    sleepers: Mutex<u32>,
}

impl Asleep {
    /// No thread sleeps yet.
    pub fn new(word: AsleepWord) -> Arc<Self> {
        Arc::new(Self { word, sleepers: Mutex::new(0) })
    }

    fn change(&self, by: i32) {
        let mut sleepers = self.sleepers.lock().unwrap_or_else(PoisonError::into_inner);
        *sleepers = sleepers.checked_add_signed(by).expect("who wakes has slept");
        self.word.word().store(u64::from(*sleepers > 0), Ordering::Relaxed);
    }
}

/// How a thread waits that is woken by others of its process.
#[derive(Clone, Copy)]
pub struct WaitMode {
    pub wake: Wake,
    /// Whether a thread that polls has to offer the core to others.
    pub is_crowded: bool,
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
        // The sleeper's own word is private; clients see `asleep`.
        let sleeper = Sleeper::new(AsleepWord::new(Words::new(Mapping::heap(8)), 0))?;
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

    /// The thread itself calls this once.
    pub fn begin(&self) {
        if self.naps {
            nap::prepare();
        }
    }

    /// How the threads wait to which this thread hands over.
    pub fn wait_mode(&self) -> WaitMode {
        WaitMode { wake: self.wake, is_crowded: self.is_crowded }
    }

    /// Wakes also for this descriptor.
    pub fn watch(&self, fd: BorrowedFd<'_>) -> std::io::Result<()> {
        self.sleeper.watch(fd, 0)
    }

    /// Stops waking for it.
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
                nap::nap();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_says_whether_anybody_sleeps() {
        let words = Words::new(Mapping::heap(64));
        let asleep = Asleep::new(AsleepWord::new(words.clone(), 3));
        let mut seen = Vec::new();
        for by in [1, 1, -1, -1, 1, -1] {
            asleep.change(by);
            seen.push(words.load(3));
        }
        assert_eq!(seen, [1, 1, 1, 0, 1, 0]);
    }

    /// H17: after 128 empty looks, one after the other, the thread sleeps, and with work in
    /// between it does not.
    #[test]
    fn a_thread_that_polls_for_indicators_naps_after_128_empty_looks() {
        let asleep = Asleep::new(AsleepWord::new(Words::new(Mapping::heap(64)), 3));
        let mut rest = Rest::new(Wake::Poll, Messages::Indicator, asleep, false).unwrap();
        rest.begin();
        let mut naps = |looks: u32, rounds: u32| {
            let before = nap::NAPS.get();
            for _ in 0..rounds {
                (0..looks).for_each(|_| rest.wait(|| false));
                rest.worked();
            }
            nap::NAPS.get() - before
        };
        assert_eq!(naps(127, 500), 0);
        assert_eq!(naps(128, 500), 500);
        assert_eq!(naps(256, 500), 1_000);
        // The kernel lets none be shorter, however busy it is.
        let took = |_| {
            let began = Instant::now();
            nap::nap();
            began.elapsed()
        };
        assert!((0..500).map(took).min() >= Some(Duration::from_nanos(100)), "none was asleep");
    }
}
