//! How far a restart has come.

use std::cell::Cell;
use std::time::Duration;

/// How often the log tells of it.
const LOGGED_EVERY: Duration = Duration::from_secs(1);

/// How far a restart has come with the entries of its data directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// Entries of the log and operations of the snapshot that were carried out.
    pub done: u64,
    /// How many there are at most: some may be of keys that are gone.
    pub of: u64,
    /// The time since it began.
    pub taken: Duration,
    /// Whether it has ended, well or not.
    pub is_over: bool,
}

impl Progress {
    /// Entries a second.
    pub fn per_s(&self) -> f64 {
        self.done as f64 / self.taken.as_secs_f64().max(1e-9)
    }

    /// The time left at this rate.
    pub fn left(&self) -> Duration {
        Duration::from_secs_f64(self.of.saturating_sub(self.done) as f64 / self.per_s().max(1.0))
    }

    /// Tells the log, every second.
    pub(crate) fn logger() -> impl Fn(Self) {
        let told = Cell::new(Duration::ZERO);
        move |progress| {
            if !progress.is_over && progress.taken >= told.get() + LOGGED_EVERY {
                told.set(progress.taken);
                let (done, of, left) = (progress.done, progress.of, progress.left().as_secs());
                let per_s = progress.per_s();
                tracing::info!(
                    "recovering: {done} of {of} entries, {per_s:.0} a second, {left} s left"
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_and_time_left_are_of_what_was_done() {
        let taken = Duration::from_secs(4);
        let progress = Progress { done: 1000, of: 5000, taken, is_over: false };
        assert_eq!((progress.per_s(), progress.left()), (250.0, Duration::from_secs(16)));
        let begun = Progress { done: 0, taken: Duration::ZERO, ..progress };
        assert_eq!(begun.left(), Duration::from_secs(5000));
        assert_eq!(Progress { done: 6000, ..progress }.left(), Duration::ZERO);
    }
}
