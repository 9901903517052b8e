//! The backoff of a client at a busy server: pauses that grow, and that a random number shortens,
//! so that clients that came together do not come together again; until the client's time is up.

use std::time::{Duration, Instant};

/// Upper bound of the first pause: the time of some set-ups.
const FIRST: Duration = Duration::from_millis(20);
/// No pause is longer.
const LONGEST: Duration = Duration::from_secs(1);

/// The rest of a client's backoff.
#[derive(Debug)]
pub struct Backoff {
    until: Instant,
    next: Duration,
}

impl Backoff {
    /// The whole backoff.
    pub fn new(now: Instant, time: Duration) -> Self {
        Self { until: now + time, next: FIRST }
    }

    /// How long to stay away: between half of the grown pause and all of it, as `random` says.
    /// `None`: the time is up.
    pub fn pause(&mut self, now: Instant, random: u32) -> Option<Duration> {
        let left = self.until.checked_duration_since(now).filter(|left| !left.is_zero())?;
        let half = self.next / 2;
        let pause = half + half.mul_f64(f64::from(random) / f64::from(u32::MAX));
        self.next = (self.next * 2).min(LONGEST);
        Some(pause.min(left))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_differ_by_chance_and_end_in_time() {
        let began = Instant::now();
        let time = Duration::from_secs(10);
        for random in [0, 1 << 31, u32::MAX] {
            let (mut backoff, mut now, mut before) =
                (Backoff::new(began, time), began, Duration::ZERO);
            let mut pauses = 0;
            while let Some(pause) = backoff.pause(now, random) {
                now += pause;
                assert!(now <= began + time, "beyond its time");
                assert!(pause >= FIRST / 2 && pause <= LONGEST);
                assert!(pause >= before || now == began + time, "it shrinks");
                before = pause.min(LONGEST / 2);
                pauses += 1;
            }
            assert_eq!(now, began + time, "it gives up early");
            assert!((10..40).contains(&pauses), "{pauses} times");
        }
        let first = |random| Backoff::new(began, time).pause(began, random).unwrap();
        assert_eq!((first(0), first(u32::MAX)), (FIRST / 2, FIRST));
        assert!(first(1 << 30) < first(1 << 31));
        assert_eq!(Backoff::new(began, Duration::ZERO).pause(began, 0), None);
    }
}
