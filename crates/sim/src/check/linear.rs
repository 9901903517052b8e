//! A linearizability checker for the calls of one key.
//!
//! The search looks for an order of the calls that explains all observations, one call after
//! another, and backtracks where it cannot continue (J. Wing, C. Gong, "Testing and verifying
//! concurrent objects", 1993; never twice from the same state: G. Lowe, "Testing for
//! linearizability", 2017). Each call takes effect at the earliest time at which it can, after
//! those before it.
//!
//! Rules that keep the search fast, and lose no order:
//! * A look that agrees with the state takes effect at once: it explains the same at every place.
//! * A value is not overwritten while a call still has to see it that no other write could show it.
//!   Values are numbers that are mostly written once.
//! * A call of unknown outcome may take effect at any later time, or never. It does so only where
//!   its result is needed: see `super::wants`.
//! * A restart of the server ends the calls of the incarnation before.

use super::calls::{Call, Calls};
use super::keys::{KeyOp, Keys, Moment, Value};
use super::visited::{Done, Visited};
use super::wants::Wants;

/// A history that no order of its operations explains.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotLinearizable {
    /// The operation that no explanation came past.
    pub call: usize,
    /// Whether all possibilities were tried.
    pub is_certain: bool,
}

/// Places, comparisons of places and numbers that are wanted, after which the answer is given up.
pub const MOST_STEPS: usize = 200_000;
/// Comparisons, or wanted numbers, that take about as long as a place.
const LOOKS_PER_STEP: usize = 8;

/// Checks one key's history, in any order of its calls.
///
/// # Errors
/// No order of the calls explains it, or too many possibilities were left.
pub fn check(
    keys: &Keys,
    initial: Option<Value>,
    calls: &[Call<KeyOp>],
) -> Result<(), NotLinearizable> {
    check_within(keys, (initial, MOST_STEPS), calls)
}

/// The same, which gives up after so many steps.
///
/// # Errors
/// As [`check`].
pub fn check_within(
    keys: &Keys,
    (initial, most_steps): (Option<Value>, usize),
    calls: &[Call<KeyOp>],
) -> Result<(), NotLinearizable> {
    let calls = Calls::new(calls);
    let mut search = Search {
        keys: *keys,
        calls: &calls,
        done: Done::none_of(&calls),
        first: 0,
        first_invoked: 0,
        trail: Vec::new(),
        visited: Visited::nowhere(&calls),
        steps: 0,
        most_steps,
        furthest: 0,
    };
    match search.run(Moment { state: initial, at_ns: 0 }) {
        Some(true) => Ok(()),
        outcome => Err(NotLinearizable {
            call: calls[search.furthest].original,
            is_certain: outcome.is_some(),
        }),
    }
}

/// A state of the search, and the calls to try from there.
struct SearchState {
    now: Moment,
    /// Calls that had taken effect.
    trail: usize,
    /// The calls that may take effect next and their results; the best is the last.
    next: Vec<(usize, Moment)>,
    /// Whether those of unknown outcome were among it.
    tried_unknown: bool,
}

struct Search<'c> {
    keys: Keys,
    calls: &'c Calls,
    done: Done,
    /// All calls that returned before this one are done.
    first: usize,
    /// The same by invocation.
    first_invoked: usize,
    /// Calls that have taken effect.
    trail: Vec<usize>,
    visited: Visited,
    steps: usize,
    most_steps: usize,
    /// The furthest call that had to be explained.
    furthest: usize,
}

impl Search<'_> {
    /// Whether there is an explanation; `None` if it was given up.
    fn run(&mut self, initial: Moment) -> Option<bool> {
        let mut places: Vec<SearchState> = Vec::new();
        let mut entered = Some((initial, 0));
        // Bounded by the steps: each place is entered once.
        loop {
            if let Some((now, trail)) = entered.take() {
                let now = self.look_around(now);
                if self.first == self.calls.known {
                    return Some(true);
                }
                self.furthest = self.furthest.max(self.first);
                let (is_known, compared) = self.visited.visit(&self.done, now);
                self.steps += 1 + compared / LOOKS_PER_STEP;
                if self.steps > self.most_steps {
                    return None;
                }
                if is_known {
                    self.undo(trail);
                } else {
                    let next = self.returned_next(now);
                    places.push(SearchState { now, trail, next, tried_unknown: false });
                }
            }
            let Some(place) = places.last_mut() else { return Some(false) };
            if let Some((number, after)) = place.next.pop() {
                entered = Some((after, self.trail.len()));
                self.take_effect(number);
            } else if !place.tried_unknown {
                place.tried_unknown = true;
                place.next = self.unknown_next(place.now)?;
            } else {
                let trail = place.trail;
                places.pop();
                self.undo(trail);
            }
        }
    }

    /// When the next call that returned and has not taken effect must have.
    fn deadline_ns(&self) -> u64 {
        self.calls[self.first].returned_ns
    }

    fn advance(&mut self) {
        while self.first < self.calls.known && self.done.has(self.first) {
            self.first += 1;
        }
        let order = &self.calls.by_invocation;
        while self.first_invoked < order.len() && self.done.has(order[self.first_invoked]) {
            self.first_invoked += 1;
        }
    }

    /// The call takes effect, and just before it the earlier calls of its session of unknown
    /// outcome. A call that can have no effect counts as done.
    fn take_effect(&mut self, number: usize) {
        let mut next = Some(number);
        while let Some(number) = next.filter(|&number| !self.done.has(number)) {
            self.finish(number);
            next = self.calls[number].follows;
        }
        if self.calls[number].op == KeyOp::Restart {
            self.calls.lost_by(number).for_each(|lost| self.finish(lost));
        }
        self.advance();
    }

    fn finish(&mut self, number: usize) {
        if !self.done.has(number) {
            self.done.insert(number);
            self.trail.push(number);
        }
    }

    fn undo(&mut self, trail: usize) {
        for number in self.trail.drain(trail..) {
            self.done.remove(number);
            self.first = self.first.min(number);
        }
        // Calls that returned were taken back in any order.
        self.first_invoked = 0;
        self.advance();
    }

    /// Whether the session's earlier calls allow the call to take effect. A call whose result does
    /// not depend on the state may follow calls of unknown outcome at once.
    fn is_ready(&self, number: usize) -> bool {
        let overwrites = number >= self.calls.known && self.calls[number].op.is_blind();
        let mut follows = self.calls[number].follows;
        // Bounded: a call follows an earlier one.
        while let Some(first) = follows.filter(|&first| !self.done.has(first)) {
            if !overwrites || first < self.calls.known {
                return false;
            }
            follows = self.calls[first].follows;
        }
        true
    }

    /// Calls that returned and may take effect next.
    fn returned(&self) -> impl Iterator<Item = usize> {
        let deadline_ns = self.deadline_ns();
        let order = &self.calls.by_invocation[self.first_invoked..];
        let is_open = move |number: &usize| self.calls[*number].invoked_ns <= deadline_ns;
        let may = |number: &usize| !self.done.has(*number) && self.is_ready(*number);
        order.iter().copied().take_while(is_open).filter(may)
    }

    /// Calls of unknown outcome that may take effect next.
    fn unknown(&self) -> impl Iterator<Item = usize> + Clone {
        let deadline_ns = self.deadline_ns();
        let is_open = move |number: &usize| self.calls[*number].invoked_ns <= deadline_ns;
        let may = |number: &usize| !self.done.has(*number) && self.is_ready(*number);
        (self.calls.known..self.calls.count_all()).take_while(is_open).filter(may)
    }

    fn effects(&self, now: Moment, number: usize) -> impl Iterator<Item = Moment> {
        let call = &self.calls[number];
        let now = match call.op {
            // It shows nothing of any time: a value whose time is over by then may be overwritten before it.
            KeyOp::Nothing => now,
            _ => Moment { at_ns: now.at_ns.max(call.invoked_ns), ..now },
        };
        self.keys.effects(now, &call.op, self.deadline_ns())
    }

    /// Lets looks that agree with the state take effect, if no value's time is
    /// over by then.
    fn look_around(&mut self, mut now: Moment) -> Moment {
        self.advance();
        // Bounded: each round lets one take effect.
        while self.first < self.calls.known {
            let agreeing = |number: usize| {
                let is_look = self.calls[number].op.only_looks();
                let after = self.effects(now, number).next().filter(|_| is_look)?;
                let ends = self.calls.ends_between(now.at_ns, after.at_ns);
                (after.state == now.state && !ends).then_some((number, after))
            };
            let Some((number, after)) = self.returned().find_map(agreeing) else { break };
            now = after;
            self.take_effect(number);
        }
        now
    }

    /// Whether this call's effect removes a number that a call must still see, and no other write
    /// could show it again.
    fn loses(&self, now: Moment, &(number, after): &(usize, Moment)) -> bool {
        let Some(gone) = now.state.map(|value| value.number) else { return false };
        let is_left = |&other: &usize| other != number && !self.done.has(other);
        after.state.map(|value| value.number) != Some(gone)
            && self.calls.needers(gone).iter().any(is_left)
            && !self.calls.makers(gone).iter().any(is_left)
            && !self.calls.may_be_sum(gone)
    }

    /// The possible next effects of calls that returned; the last one has the least time left.
    fn returned_next(&self, now: Moment) -> Vec<(usize, Moment)> {
        let mut next = Vec::new();
        for number in self.returned() {
            next.extend(self.effects(now, number).map(|after| (number, after)));
        }
        next.retain(|effect| !self.loses(now, effect));
        // The calls that need a number are in the order in which they returned.
        let by = |&(number, after): &(usize, Moment)| {
            let made = after.state.map_or(&[][..], |value| self.calls.needers(value.number));
            let needer = made.iter().copied().find(|&needer| !self.done.has(needer));
            std::cmp::Reverse(needer.unwrap_or(number).min(number))
        };
        next.sort_by_key(by);
        next
    }

    /// The possible effects of calls of unknown outcome that other calls need; `None` if they are too
    /// many to find.
    fn unknown_next(&mut self, now: Moment) -> Option<Vec<(usize, Moment)>> {
        let mut wants = Wants::default();
        for number in self.returned() {
            let call = &self.calls[number];
            let at_ns = now.at_ns.max(call.invoked_ns);
            let is_content = self.effects(now, number).any(|after| after.at_ns == at_ns);
            wants.add(self.calls, &call.op, is_content);
        }
        let unknown = self.unknown().map(|number| &self.calls[number].op);
        let most = self.most_steps.saturating_sub(self.steps) * LOOKS_PER_STEP;
        let looked_at = wants.close(self.calls, now.state, unknown, most);
        if looked_at > most {
            return None;
        }
        self.steps += looked_at / LOOKS_PER_STEP;
        let mut next: Vec<(usize, Moment)> = Vec::new();
        for number in self.unknown() {
            let call = &self.calls[number];
            let is_alone = call.follows.is_none_or(|leader| self.done.has(leader));
            let is_same = |&(first, _): &(usize, Moment)| {
                let leader = self.calls[first].follows;
                leader.is_none_or(|leader| self.done.has(leader))
                    && self.calls.are_same(first, number)
            };
            if is_alone && next.iter().any(is_same) {
                continue;
            }
            let is_wanted =
                |after: &Moment| after.state != now.state && wants.has(now.state, after.state);
            let effects = self.effects(now, number);
            let matters = effects.filter(|after| call.is_free || is_wanted(after));
            next.extend(matters.map(|after| (number, after)));
        }
        next.retain(|effect| !self.loses(now, effect));
        let rank = |&(number, after): &(usize, Moment)| {
            let is_idle = after.state.is_none_or(|value| self.calls.is_idle(value.number));
            (wants.has_number(after.state), is_idle, std::cmp::Reverse(number))
        };
        next.sort_by_key(rank);
        Some(next)
    }
}
