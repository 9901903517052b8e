//! Calls of unknown outcome that may explain the next observation.
//!
//! Why no order is lost if no others take effect: take an order that explains
//! the history, and in it calls of unknown outcome, one or more, just before a
//! call that returned, R. If R can take effect at once without them, then
//! * if R leaves the same with them and without, they are left out;
//! * if R changes nothing, they are put after R.
//!
//! So they take effect only where R needs their result, or keeps a part of it that R's own result
//! does not show, as INCR keeps an expiry; at the end of the order they are left out. If a call
//! that is left out is followed by another that is not, it is put just before that one, which
//! overwrites its result. If a call may be followed by one that does not overwrite, or if results
//! of calls that returned are not known, [`super::calls`] sets it free: the search tries it
//! anywhere.

use super::calls::Calls;
use super::keys::{If, KeyOp, Need, Value};
use std::collections::BTreeSet;

/// States that calls that returned need, and that do not exist yet.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Wants {
    numbers: BTreeSet<i64>,
    /// Numbers outside of one of these ranges.
    outside: BTreeSet<(i64, i64)>,
    absent: bool,
    present: bool,
    /// Any expiry but that of the state.
    other_expiry: bool,
}

impl Wants {
    /// A call that returned may take effect, at once with the content that its result shows if
    /// `is_content`. The part of the state that its effect keeps is wanted otherwise all the same.
    pub(super) fn add(&mut self, calls: &Calls, op: &KeyOp, is_content: bool) {
        let keeps = calls.has_ends() && matches!(op, KeyOp::Incr { .. } | KeyOp::Edit { .. });
        if is_content && !keeps {
            return;
        }
        self.other_expiry |= matches!(op, KeyOp::TimeLeft { .. });
        match op.need() {
            Need::Anything => self.other_expiry |= keeps,
            Need::Number(number) => _ = self.numbers.insert(number),
            Need::AbsentOrZero => {
                self.numbers.insert(0);
                self.absent = true;
            }
            Need::Absent => self.absent = true,
            Need::Present => self.present = true,
            Need::Outside(from, to) => {
                self.outside.insert((from, to));
                self.absent = true;
            }
        }
    }

    /// Adds the states that calls of unknown outcome need to make the wanted ones. Returns how many
    /// numbers it looked at, more than `most` if it gave up.
    pub(super) fn close<'c>(
        &mut self,
        calls: &Calls,
        state: Option<Value>,
        unknown: impl Iterator<Item = &'c KeyOp> + Clone,
        most: usize,
    ) -> usize {
        let mut looked_at = 0;
        // Bounded: each round but the last wants more of a finite set.
        loop {
            let before = self.clone();
            for op in unknown.clone() {
                looked_at += 1;
                match *op {
                    // Increments of far numbers may make any of 2^n sums.
                    KeyOp::Incr { .. } if looked_at + self.numbers.len() > most => return most + 1,
                    KeyOp::Incr { by, .. } => {
                        looked_at += self.numbers.len();
                        self.add_summands(calls, by);
                        // From any number some sums come to one outside.
                        self.present |= !self.outside.is_empty();
                    }
                    // It removes some numbers.
                    KeyOp::DelWithin { .. } => self.present |= self.absent,
                    KeyOp::Edit { number } => {
                        self.other_expiry |= calls.has_ends() && self.numbers.contains(&number);
                    }
                    KeyOp::Set { value, condition, .. } if self.has(state, Some(value)) => {
                        self.present |= condition == If::Present;
                        self.absent |= condition == If::Absent;
                    }
                    _ => {}
                }
            }
            if *self == before {
                return looked_at;
            }
        }
    }

    fn add_summands(&mut self, calls: &Calls, by: i64) {
        let summands = self.numbers.iter().map(|sum| sum.wrapping_sub(by));
        let can_be = |&number: &i64| {
            number == 0 || !calls.makers(number).is_empty() || calls.may_be_sum(number)
        };
        let summands: Vec<i64> = summands.filter(can_be).collect();
        self.absent |= summands.contains(&0);
        self.numbers.extend(summands);
    }

    /// Whether it is wanted that a call of unknown outcome leaves this.
    pub(super) fn has(&self, before: Option<Value>, after: Option<Value>) -> bool {
        let expiry = |state: Option<Value>| state.and_then(|value| value.expiry);
        let is_other = expiry(before) != expiry(after);
        let may_end = after.is_none() || (is_other && expiry(after).is_some());
        (self.present && after.is_some())
            || (self.absent && may_end)
            || (self.other_expiry && is_other)
            || self.has_number(after)
    }

    /// Whether this number is wanted.
    pub(super) fn has_number(&self, state: Option<Value>) -> bool {
        state.is_some_and(|Value { number, .. }| {
            let is_outside = |&(from, to): &(i64, i64)| !(from..=to).contains(&number);
            self.numbers.contains(&number) || self.outside.iter().any(is_outside)
        })
    }
}
