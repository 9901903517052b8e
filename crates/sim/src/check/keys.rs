//! What operations on one key mean.
//!
//! Values are numbers, so that a history stays small; the workload writes each
//! as bytes that nobody can mistake for another key's.

use super::linear::{Model, Span};

/// When a key disappears by itself.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Window {
    /// Before this time it is there.
    pub from_ns: u64,
    /// After this time it is not.
    pub by_ns: u64,
}

/// A key's value.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Value {
    /// The number that it stands for.
    pub number: i64,
    /// `None`: it stays.
    pub expiry: Option<Window>,
}

/// When a SET has an effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum If {
    /// In any case.
    Always,
    /// If the key is absent (NX).
    Absent,
    /// If the key is there (XX).
    Present,
}

/// How long a key stays.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Left {
    /// It is not there.
    Absent,
    /// It has no expiry.
    Forever,
    /// Until some time in this interval.
    Until(Window),
}

impl Left {
    /// Whether this may be said of what is there.
    fn agrees(self, state: Option<Value>) -> bool {
        match (self, state.map(|value| value.expiry)) {
            (Self::Absent, None) | (Self::Forever, Some(None)) => true,
            (Self::Until(told), Some(Some(is))) => {
                told.from_ns <= is.by_ns && is.from_ns <= told.by_ns
            }
            _ => false,
        }
    }
}

/// An operation on a key, with its result if that is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyOp {
    /// GET, by whatever path.
    Get {
        /// The number that was found.
        found: Option<i64>,
    },
    /// SET.
    Set {
        /// What is written.
        value: Value,
        /// When it is written.
        condition: If,
        /// Whether it was.
        done: Option<bool>,
    },
    /// DEL, and FLUSHALL for each key.
    Del {
        /// Whether there was something to remove.
        removed: Option<bool>,
    },
    /// INCRBY; an absent key counts as 0, the expiry stays.
    Incr {
        /// What is added.
        by: i64,
        /// The sum.
        sum: Option<i64>,
    },
    /// PEXPIRE.
    Expire {
        /// When the key disappears from now on.
        expiry: Window,
        /// Whether it was there.
        done: Option<bool>,
    },
    /// EXISTS.
    Exists {
        /// Whether it does.
        there: bool,
    },
    /// PTTL.
    TimeLeft {
        /// How much is left.
        left: Left,
    },
    /// A SET of several keys that was refused: of this key it may have had an
    /// effect all the same.
    MaySet {
        /// What is written.
        value: Value,
    },
    /// It was refused: no effect.
    Nothing,
}

/// Keys of one server.
#[derive(Clone, Copy, Default, Debug)]
pub struct Keys {
    /// Keys may disappear at any time: the memory is full and eviction on.
    pub evicts: bool,
}

impl Keys {
    /// What may be there when an operation of this time takes effect.
    fn at(self, state: Option<Value>, span: Span) -> impl Iterator<Item = Option<Value>> {
        let expiry = state.and_then(|value| value.expiry);
        let is_gone = expiry.is_some_and(|expiry| span.from_ns > expiry.by_ns);
        let may_be_gone = expiry.is_some_and(|expiry| span.to_ns >= expiry.from_ns);
        let there = state.filter(|_| !is_gone).map(Some);
        let gone = (state.is_none() || may_be_gone || self.evicts).then_some(None);
        there.into_iter().chain(gone)
    }
}

fn agrees<T: PartialEq>(told: Option<T>, is: T) -> bool {
    told.is_none_or(|told| told == is)
}

impl Model for Keys {
    type State = Option<Value>;
    type Op = KeyOp;

    fn only_looks(&self, op: &Self::Op) -> bool {
        use KeyOp::{Exists, Get, Nothing, TimeLeft};
        matches!(op, Get { .. } | Exists { .. } | TimeLeft { .. } | Nothing)
    }

    fn apply(&self, state: &Self::State, op: &Self::Op, span: Span) -> Vec<Self::State> {
        let mut next = Vec::with_capacity(2);
        for state in self.at(*state, span) {
            match *op {
                KeyOp::Get { found } => {
                    if found == state.map(|value| value.number) {
                        next.push(state);
                    }
                }
                KeyOp::Set { value, condition, done } => {
                    let holds = match condition {
                        If::Always => true,
                        If::Absent => state.is_none(),
                        If::Present => state.is_some(),
                    };
                    if agrees(done, holds) {
                        next.push(if holds { Some(value) } else { state });
                    }
                }
                KeyOp::Del { removed } => {
                    if agrees(removed, state.is_some()) {
                        next.push(None);
                    }
                }
                KeyOp::Expire { expiry, done } => {
                    if agrees(done, state.is_some()) {
                        next.push(state.map(|value| Value { expiry: Some(expiry), ..value }));
                    }
                }
                KeyOp::Exists { there } => {
                    if there == state.is_some() {
                        next.push(state);
                    }
                }
                KeyOp::TimeLeft { left } => {
                    if left.agrees(state) {
                        next.push(state);
                    }
                }
                KeyOp::MaySet { value } => next.extend([state, Some(value)]),
                KeyOp::Nothing => next.push(state),
                KeyOp::Incr { by, sum } => {
                    let before = state.unwrap_or(Value { number: 0, expiry: None });
                    let number = before.number.wrapping_add(by);
                    if agrees(sum, number) {
                        next.push(Some(Value { number, ..before }));
                    }
                }
            }
        }
        next
    }
}
