//! The judge: what was sent, acknowledged and seen of one key, and what may be found of it.
//!
//! A key has one writer, so its states have an order. After a crash the key must hold the state
//! after some prefix of what was sent that contains all that the durability promises. Before one,
//! no reader may see an older state than one that was acknowledged, or seen, before the read began.

use crate::state::State;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// States older than this, and than the last acknowledged one, are forgotten: more than any
/// durability lets a write wait.
const KEPT: Duration = Duration::from_secs(8);
/// However long the last acknowledged change ago: states that are kept at most.
const MOST_KEPT: usize = 1 << 14;

/// What survives a crash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Promise {
    /// Nothing needs to.
    Nothing,
    /// All that was acknowledged or seen.
    All,
    /// What was acknowledged or seen by this moment.
    Until(Instant),
}

/// What the judge says of a state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It may be found.
    Fine,
    /// So many acknowledged or seen changes that were promised are gone.
    Lost(u64),
    /// The key never had this state.
    Never,
}

/// The state after one change.
#[derive(Clone, Copy, Debug)]
struct Step {
    number: u64,
    digest: u64,
    head: u64,
    acknowledged: Option<Instant>,
    seen: Option<Instant>,
}

impl Step {
    /// When it became known outside of the server.
    fn known(&self) -> Option<Instant> {
        match (self.acknowledged, self.seen) {
            (Some(acknowledged), Some(seen)) => Some(acknowledged.min(seen)),
            (acknowledged, seen) => acknowledged.or(seen),
        }
    }
}

/// One key's history.
#[derive(Debug)]
pub struct History {
    /// The oldest first; never empty.
    steps: VecDeque<Step>,
    /// Whether there were steps before the first one.
    has_forgotten: bool,
}

impl History {
    /// A key that holds this, as all know.
    pub fn new(state: &State, now: Instant) -> Self {
        let step = Step {
            number: 0,
            digest: state.digest(),
            head: state.head_digest(),
            acknowledged: Some(now),
            seen: None,
        };
        Self { steps: [step].into(), has_forgotten: false }
    }

    /// A change is sent, after which the key holds this. Returns its number.
    pub fn sent(&mut self, state: &State) -> u64 {
        let number = self.last() + 1;
        let (digest, head) = (state.digest(), state.head_digest());
        self.steps.push_back(Step { number, digest, head, acknowledged: None, seen: None });
        number
    }

    /// The change of this number is acknowledged.
    pub fn acknowledged(&mut self, number: u64, now: Instant) {
        if let Some(step) = self.step(number) {
            step.acknowledged = Some(now);
        }
        self.forget(now);
    }

    fn step(&mut self, number: u64) -> Option<&mut Step> {
        let first = self.steps[0].number;
        self.steps.get_mut(number.checked_sub(first)? as usize)
    }

    fn last(&self) -> u64 {
        self.steps[self.steps.len() - 1].number
    }

    /// The newest step that is known outside: a read that begins now sees it, or a newer one.
    pub fn newest_known(&self) -> u64 {
        self.newest(|_| true)
    }

    fn newest(&self, counts: impl Fn(Instant) -> bool) -> u64 {
        let known = |step: &&Step| step.known().is_some_and(&counts);
        self.steps.iter().rev().find(known).map_or(self.steps[0].number, |step| step.number)
    }

    /// A read that began when `bound` was the newest known step saw this head. False: it was an
    /// older one, or one that never was.
    pub fn saw(&mut self, bound: u64, head: u64, now: Instant) -> bool {
        self.see(bound, head, now).is_some()
    }

    /// The oldest step from `bound` on with this head is seen. Returns its number.
    fn see(&mut self, bound: u64, head: u64, now: Instant) -> Option<u64> {
        // The oldest that it can be: no more is demanded than what was surely seen.
        let possible = |step: &&mut Step| step.number >= bound && step.head == head;
        let step = self.steps.iter_mut().find(possible)?;
        step.seen.get_or_insert(now);
        Some(step.number)
    }

    /// A read of a copy saw this head, by a reader that had seen the step of the number `last` at
    /// least. Returns the oldest step that it can be; `None`: it was an older one, or one that never
    /// was.
    pub fn saw_a_copy(&mut self, last: u64, head: u64, now: Instant) -> Option<u64> {
        let forgotten = self.has_forgotten && last < self.steps[0].number;
        // What is not known any more cannot be judged.
        self.see(last, head, now).or(forgotten.then_some(last))
    }

    /// The newest step that was known outside at this moment: what a copy has to show that is as
    /// fresh as that.
    pub fn known_at(&self, moment: Instant) -> u64 {
        self.newest(|known| known <= moment)
    }

    /// Judges what is found after a crash.
    pub fn judge(&self, state: &State, promise: Promise) -> Verdict {
        let demanded = match promise {
            Promise::Nothing => self.steps[0].number,
            Promise::All => self.newest(|_| true),
            Promise::Until(moment) => self.newest(|known| known <= moment),
        };
        let digest = state.digest();
        match self.steps.iter().rev().find(|step| step.digest == digest) {
            Some(step) if step.number >= demanded => Verdict::Fine,
            None if promise == Promise::Nothing && self.has_forgotten => Verdict::Fine,
            None if !self.has_forgotten => Verdict::Never,
            // It may be an old state that is forgotten here.
            found => {
                let from = found.map_or(self.steps[0].number, |step| step.number + 1);
                let gone =
                    self.steps.iter().filter(|step| (from..=demanded).contains(&step.number));
                Verdict::Lost(gone.filter(|step| step.known().is_some()).count().max(1) as u64)
            }
        }
    }

    /// The server was looked at, and the key holds this. What was sent and is not in it will not
    /// happen any more.
    pub fn settle(&mut self, state: &State, now: Instant) {
        let digest = state.digest();
        if let Some(at) = self.steps.iter().rposition(|step| step.digest == digest) {
            // A reader may still compare what it saw with the older ones.
            self.steps.truncate(at + 1);
            self.steps[at].seen.get_or_insert(now);
            return;
        }
        let (number, head) = (self.last() + 1, state.head_digest());
        self.has_forgotten = true;
        self.steps.clear();
        self.steps.push_back(Step { number, digest, head, acknowledged: None, seen: Some(now) });
    }

    fn forget(&mut self, now: Instant) {
        let is_old =
            |step: &Step| step.known().is_some_and(|known| now.duration_since(known) > KEPT);
        // The newest that is old is what a crash may go back to at most.
        while self.steps.len() > 1 && (is_old(&self.steps[1]) || self.steps.len() > MOST_KEPT) {
            self.steps.pop_front();
            self.has_forgotten = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::Change;

    fn state(value: &str) -> State {
        let mut state = State::default();
        if !value.is_empty() {
            state.apply(&Change::Set(value.into()));
        }
        state
    }

    /// A key that was absent; then a, b, c were sent, and a and b acknowledged.
    fn history() -> (History, Instant) {
        let start = Instant::now();
        let mut history = History::new(&state(""), start);
        for (at, value) in ["a", "b", "c"].into_iter().enumerate() {
            let number = history.sent(&state(value));
            if at < 2 {
                history.acknowledged(number, start + Duration::from_secs(at as u64 + 1));
            }
        }
        (history, start)
    }

    #[test]
    fn a_state_after_all_that_was_acknowledged_is_fine() {
        let (history, _) = history();
        for value in ["b", "c"] {
            assert_eq!(history.judge(&state(value), Promise::All), Verdict::Fine, "{value}");
        }
    }

    #[test]
    fn a_lost_acknowledged_change_is_found() {
        let (history, start) = history();
        assert_eq!(history.judge(&state("a"), Promise::All), Verdict::Lost(1));
        assert_eq!(history.judge(&state(""), Promise::All), Verdict::Lost(2));
        assert_eq!(history.judge(&state("x"), Promise::All), Verdict::Never);
        assert_eq!(history.judge(&state("x"), Promise::Nothing), Verdict::Never);
        let until = |seconds| Promise::Until(start + Duration::from_secs(seconds));
        assert_eq!(history.judge(&state("a"), until(2)), Verdict::Lost(1));
        assert_eq!(history.judge(&state("a"), until(1)), Verdict::Fine);
        assert_eq!(history.judge(&state(""), until(1)), Verdict::Lost(1));
        assert_eq!(history.judge(&state(""), Promise::Nothing), Verdict::Fine);
    }

    #[test]
    fn what_was_seen_must_stay_though_it_was_not_acknowledged() {
        let (mut history, start) = history();
        let now = start + Duration::from_secs(3);
        assert!(history.saw(history.newest_known(), state("c").head_digest(), now));
        assert_eq!(history.judge(&state("b"), Promise::All), Verdict::Lost(1));
        assert_eq!(history.judge(&state("b"), Promise::Until(start)), Verdict::Fine);
        assert_eq!(history.judge(&state("c"), Promise::All), Verdict::Fine);
    }

    #[test]
    fn a_stale_read_is_found() {
        let (mut history, start) = history();
        let bound = history.newest_known();
        assert!(!history.saw(bound, state("a").head_digest(), start));
        assert!(!history.saw(bound, state("x").head_digest(), start));
        assert!(history.saw(bound, state("b").head_digest(), start));
        assert!(history.saw(bound, state("c").head_digest(), start));
        // Once the newer one was seen, no reader may see the older one.
        assert!(!history.saw(history.newest_known(), state("b").head_digest(), start));
    }

    #[test]
    fn a_copy_may_be_old_but_does_not_go_back() {
        let (mut history, start) = history();
        let head = |value: &str| state(value).head_digest();
        assert_eq!(history.saw_a_copy(0, head("a"), start), Some(1));
        let later = start + Duration::from_secs(1);
        assert_eq!(history.saw_a_copy(1, head("b"), later), Some(2));
        assert_eq!(history.saw_a_copy(2, head("a"), start), None);
        assert_eq!(history.saw_a_copy(0, head("x"), start), None);
        let after = |seconds| history.known_at(start + Duration::from_secs(seconds));
        assert_eq!([after(0), after(1), after(2)], [1, 2, 2], "a was seen at once, b later");
        // A state that a copy showed is known from then on.
        assert_eq!(history.saw_a_copy(2, head("c"), start), Some(3));
        assert_eq!(history.judge(&state("b"), Promise::All), Verdict::Lost(1));
    }

    #[test]
    fn equal_states_of_different_times_count_as_the_newest() {
        let start = Instant::now();
        let mut history = History::new(&state(""), start);
        for value in ["a", "b", "a"] {
            let number = history.sent(&state(value));
            history.acknowledged(number, start);
        }
        assert_eq!(history.judge(&state("a"), Promise::All), Verdict::Fine);
        assert_eq!(history.judge(&state("b"), Promise::All), Verdict::Lost(1));
    }

    #[test]
    fn a_settled_history_goes_on_from_what_was_found() {
        let (mut history, start) = history();
        history.settle(&state("b"), start + Duration::from_secs(9));
        assert_eq!(history.judge(&state("c"), Promise::All), Verdict::Never);
        // It was acknowledged in the second second, long before it was found.
        let until = Promise::Until(start + Duration::from_secs(2));
        assert_eq!(history.judge(&state("a"), until), Verdict::Lost(1));
        let number = history.sent(&state("d"));
        assert_eq!(history.judge(&state("b"), Promise::All), Verdict::Fine);
        history.acknowledged(number, start + Duration::from_secs(9));
        assert_eq!(history.judge(&state("b"), Promise::All), Verdict::Lost(1));
    }

    #[test]
    fn a_long_history_is_bounded_and_still_judged() {
        let start = Instant::now();
        let mut history = History::new(&state(""), start);
        for at in 0..100_000u64 {
            let number = history.sent(&state(&at.to_string()));
            history.acknowledged(number, start + Duration::from_millis(at));
        }
        assert!(history.steps.len() < 10_000);
        assert_eq!(history.judge(&state("99999"), Promise::All), Verdict::Fine);
        let until = Promise::Until(start + Duration::from_millis(98_000));
        assert_eq!(history.judge(&state("98000"), until), Verdict::Fine);
        assert_eq!(history.judge(&state("97999"), until), Verdict::Lost(1));
        assert!(matches!(history.judge(&state("5"), until), Verdict::Lost(_)));
        assert_eq!(history.judge(&state("5"), Promise::Nothing), Verdict::Fine);
    }
}
