//! How fresh what a replica shows of one log is, by the replica's own clock.
//!
//! ```text
//!   replica                         primary
//!     clock 5 ---- acknowledges ---->
//!     <---- commit position 70, clock 5 ----   read after clock 5 came
//!   applied up to 70: as fresh as at clock 5
//! ```
//! What the primary had committed when the replica's clock showed 5 is within position 70,
//! whatever the network does. So the bound needs no common clock.
//!
//! Invariants:
//! * a log is as fresh as a clock only once the commit position that came with it is applied. A mark
//!   that is left out, or comes late, makes the log look older, never fresher;
//! * a copy shows entries up to its end that may not be committed yet: the log is as fresh as
//!   nothing until the commit position has reached that end;
//! * the primary reads its clock before its commit position. Readers of the replica judge expiries by
//!   that time, not by a later one: a value that had been overwritten by then is still there, and would
//!   be missing, which it never was at the primary;
//! * the log is as fresh as a clock only once the clock that clients know shows the time that came with
//!   it: a client never takes for live what had expired by then.

use remora_layout::limits::LAG_MARKS;
use std::collections::VecDeque;

/// What the primary says with an echoed clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mark {
    /// The primary's commit position.
    pub commit: u64,
    /// The replica's monotonic clock, ns, that the primary had taken before.
    pub clock_ns: u64,
    /// The primary's clock, Unix ms.
    pub time_ms: u64,
}

/// As of when a log, or a replica, is fresh.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FreshAt {
    /// The replica's monotonic clock, ns.
    pub clock_ns: u64,
    /// The time by which readers judge expiries, Unix ms.
    pub time_ms: u64,
}

impl FreshAt {
    /// The same of what consists of both.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self {
            clock_ns: self.clock_ns.min(other.clock_ns),
            time_ms: self.time_ms.min(other.time_ms),
        }
    }
}

/// See the module's text.
#[derive(Clone, Debug)]
pub struct Freshness {
    /// Commit positions below this say nothing.
    floor: u64,
    /// Marks whose positions are not applied, oldest first.
    marks: VecDeque<Mark>,
    at: Option<FreshAt>,
    /// The last mark that was taken or left out; nothing goes back.
    last: Option<Mark>,
}

impl Freshness {
    /// Of a log whose entries up to this one are there, committed or not.
    pub const fn behind(sequence: u64) -> Self {
        Self { floor: sequence, marks: VecDeque::new(), at: None, last: None }
    }

    /// Takes a mark.
    pub fn take(&mut self, mark: Mark) {
        if mark.commit < self.floor {
            return;
        }
        // What an earlier message has committed stays so: the greater position is the safe one.
        let last = self.last.unwrap_or(mark);
        let commit = mark.commit.max(last.commit);
        let mark = Mark { commit, time_ms: mark.time_ms.max(last.time_ms), ..mark };
        if self.last.is_some() && mark.clock_ns <= last.clock_ns {
            return;
        }
        self.last = Some(mark);
        match self.marks.back_mut() {
            // Applied together, so that the newer clock is as good.
            Some(back) if back.commit == commit && back.time_ms == mark.time_ms => *back = mark,
            _ => self.marks.push_back(mark),
        }
        if self.marks.len() > LAG_MARKS {
            self.thin();
        }
    }

    /// Leaves every other mark out, but the last one.
    fn thin(&mut self) {
        let last = self.marks.len() - 1;
        let mut at = 0;
        self.marks.retain(|_| {
            at += 1;
            (at - 1) % 2 == last % 2
        });
    }

    /// The entries up to `applied` are applied, and the replica's clock shows `unix_ms`.
    pub fn advance(&mut self, applied: u64, unix_ms: u64) {
        while let Some(mark) = self.marks.front()
            && mark.commit <= applied
            && mark.time_ms <= unix_ms
        {
            self.at = Some(FreshAt { clock_ns: mark.clock_ns, time_ms: mark.time_ms });
            self.marks.pop_front();
        }
    }

    /// As of when the log is fresh; `None` if that is not known.
    pub fn at(&self) -> Option<FreshAt> {
        self.at
    }

    /// Marks that wait.
    pub fn waiting(&self) -> usize {
        self.marks.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: u64 = 1_700_000_000_000;

    fn mark(commit: u64, clock_ns: u64) -> Mark {
        Mark { commit, clock_ns, time_ms: TIME }
    }

    #[test]
    fn a_log_is_as_fresh_as_a_clock_once_its_position_is_applied() {
        let mut log = Freshness::behind(0);
        assert_eq!(log.at().map(|at| at.clock_ns), None);
        for (commit, clock_ns) in [(10, 5), (10, 7), (30, 9), (30, 11)] {
            log.take(mark(commit, clock_ns));
        }
        assert_eq!(log.waiting(), 2, "one position needs its newest clock only");
        for (applied, fresh) in [(9, None), (10, Some(7)), (29, Some(7)), (30, Some(11))] {
            log.advance(applied, TIME);
            assert_eq!(log.at().map(|at| at.clock_ns), fresh, "applied {applied}");
        }
        // The link is lost: nothing comes, and the lag grows with the clock.
        log.advance(30, TIME + 60_000);
        assert_eq!(log.at().map(|at| at.clock_ns), Some(11));
    }

    #[test]
    fn a_copy_counts_once_its_end_is_committed() {
        let mut log = Freshness::behind(100);
        log.take(mark(99, 5));
        log.advance(100, TIME);
        assert_eq!(
            log.at().map(|at| at.clock_ns),
            None,
            "an entry of the copy may not be committed"
        );
        log.take(mark(100, 6));
        log.advance(100, TIME);
        assert_eq!(log.at().map(|at| at.clock_ns), Some(6));
    }

    #[test]
    fn the_clock_has_to_show_the_time_of_the_primary() {
        let mut log = Freshness::behind(0);
        log.take(mark(0, 5));
        log.advance(0, TIME - 1);
        assert_eq!(log.at().map(|at| at.clock_ns), None);
        log.advance(0, TIME);
        assert_eq!(log.at().map(|at| at.clock_ns), Some(5));
    }

    #[test]
    fn nothing_goes_back_and_a_repeated_clock_says_nothing_new() {
        let mut log = Freshness::behind(0);
        log.take(mark(20, 10));
        log.take(mark(40, 10));
        log.take(mark(40, 9));
        // An honest primary never goes back; a smaller position must not look fresher.
        log.take(mark(5, 12));
        log.advance(19, TIME);
        assert_eq!(log.at().map(|at| at.clock_ns), None);
        log.advance(20, TIME);
        assert_eq!(log.at().map(|at| at.clock_ns), Some(12));
        log.take(mark(50, 11));
        log.advance(50, TIME);
        assert_eq!(log.at().map(|at| at.clock_ns), Some(12));
    }

    #[test]
    fn a_full_queue_is_thinned_and_never_too_optimistic() {
        let mut log = Freshness::behind(0);
        let marks = 10 * LAG_MARKS as u64;
        // One entry is committed at each ns of the clock, and is in the position of the next mark.
        for at in 1..=marks {
            log.take(mark(at, at));
            assert!(log.waiting() <= LAG_MARKS);
        }
        let mut before = 0;
        for applied in 1..=marks {
            log.advance(applied, TIME);
            let fresh = log.at().map(|at| at.clock_ns).unwrap_or(0);
            assert!(before <= fresh && fresh <= applied, "{fresh} with {applied} applied");
            before = fresh;
        }
        assert_eq!(before, marks, "the newest clock is never left out");
    }
}
