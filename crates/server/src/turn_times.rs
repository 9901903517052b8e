//! How long a shard's thread spends on one kind of work in a turn, in which it serves no client.

use rustix::time::{ClockId, clock_gettime};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// See the module's text.
#[derive(Default)]
pub struct TurnTimes {
    /// Turns with that work.
    pub count: AtomicU64,
    /// The longest one, ns.
    pub longest_ns: AtomicU64,
    /// The most CPU time that the shard's thread spent in one, ns: without the time in which
    /// another thread had its core.
    pub longest_cpu_ns: AtomicU64,
}

impl TurnTimes {
    /// Carries out the work of one turn, and takes its time.
    pub fn time<R>(&self, turn: impl FnOnce() -> R) -> R {
        let (began, began_cpu_ns) = (Instant::now(), thread_cpu_ns());
        let result = turn();
        let (ns, cpu_ns) = (began.elapsed().as_nanos() as u64, thread_cpu_ns() - began_cpu_ns);
        self.count.fetch_add(1, Ordering::Relaxed);
        self.longest_ns.fetch_max(ns, Ordering::Relaxed);
        self.longest_cpu_ns.fetch_max(cpu_ns, Ordering::Relaxed);
        result
    }

    /// Takes over the times of others.
    pub fn copy_from(&self, from: &Self) {
        let copy = |from: &AtomicU64, to: &AtomicU64| {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        };
        copy(&from.count, &self.count);
        copy(&from.longest_ns, &self.longest_ns);
        copy(&from.longest_cpu_ns, &self.longest_cpu_ns);
    }
}

fn thread_cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_longest_turn_counts_and_a_turn_that_sleeps_takes_no_cpu_time() {
        let (times, ms) = (TurnTimes::default(), 1_000_000);
        times.time(|| std::thread::sleep(Duration::from_millis(30)));
        times.time(|| ());
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        assert_eq!(of(&times.count), 2);
        assert!(of(&times.longest_ns) >= 30 * ms);
        assert!(of(&times.longest_cpu_ns) < of(&times.longest_ns));
        let copied = TurnTimes::default();
        copied.copy_from(&times);
        assert_eq!(of(&copied.longest_cpu_ns), of(&times.longest_cpu_ns));
        assert_eq!((of(&copied.count), of(&copied.longest_ns)), (2, of(&times.longest_ns)));
    }
}
