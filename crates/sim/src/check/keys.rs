//! The semantics of operations on one key.
//!
//! Values are numbers, so that a history stays small; the workload writes each as bytes that cannot
//! be mistaken for another key's.

const MS: u64 = 1_000_000;

/// When a key disappears by itself: in a history ns of the server's clock, until
/// it is judged, then virtual ns.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Window {
    /// Before this time it is there.
    pub from_ns: u64,
    /// After this time it is not.
    pub by_ns: u64,
}

impl Window {
    /// Between these times of the server's clock, Unix ms.
    pub fn between_ms(from_ms: u64, by_ms: u64) -> Self {
        Self { from_ns: from_ms * MS, by_ns: by_ms.saturating_mul(MS) }
    }

    /// In virtual time, for a clock that showed each Unix ms at this virtual ns: a tick of a
    /// millisecond either way, and the clock's slew.
    pub fn in_virtual_time(self, virtual_ns: impl Fn(u64) -> u64) -> Self {
        let from_ns = virtual_ns(self.from_ns / MS).saturating_sub(3 * MS);
        let by_ns = match self.by_ns {
            u64::MAX => u64::MAX,
            by_ns => virtual_ns(by_ns / MS) + 3 * MS,
        };
        Self { from_ns, by_ns }
    }
}

/// A key's value.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Value {
    /// The number that it represents.
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
    /// Whether this statement agrees with the state.
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
        /// The written value.
        value: Value,
        /// When it is written.
        condition: If,
        /// Whether it was.
        done: Option<bool>,
    },
    /// A value written over the present one, whose expiry stays.
    Edit {
        /// The number that the new value represents.
        number: i64,
    },
    /// DEL.
    Del {
        /// Whether there was something to remove.
        removed: Option<bool>,
    },
    /// It is taken: read and removed.
    Take {
        /// The number that it had.
        number: i64,
    },
    /// DEL if the number lies within this range, its ends among it.
    DelWithin {
        /// The lowest number.
        from: i64,
        /// The greatest one.
        to: i64,
    },
    /// A look at all that have numbers in this range, its ends among it: it is not there, or has
    /// another number.
    Outside {
        /// The lowest number.
        from: i64,
        /// The greatest one.
        to: i64,
    },
    /// INCRBY; an absent key counts as 0, the expiry stays.
    Incr {
        /// The summand.
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
    /// The server starts again without data. A call that was invoked before and never returned took
    /// effect before that or never.
    Restart,
    /// It was refused: no effect.
    Nothing,
}

/// The statement of an operation's result about the state before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Need {
    /// Nothing.
    Anything,
    /// This number was there.
    Number(i64),
    /// Nothing was there, or a 0.
    AbsentOrZero,
    /// Nothing was there.
    Absent,
    /// Something was there.
    Present,
    /// Nothing was there, or a number outside of this range.
    Outside(i64, i64),
}

impl KeyOp {
    /// The time that it names, if it names one.
    pub(crate) fn window_mut(&mut self) -> Option<&mut Window> {
        match self {
            Self::Set { value, .. } => value.expiry.as_mut(),
            Self::Expire { expiry, .. } => Some(expiry),
            Self::TimeLeft { left: Left::Until(window) } => Some(window),
            _ => None,
        }
    }

    /// Whether it never changes the state.
    pub(super) fn only_looks(&self) -> bool {
        match self {
            Self::Get { .. } | Self::Exists { .. } | Self::TimeLeft { .. } => true,
            Self::Outside { .. } | Self::Nothing => true,
            Self::Expire { done, .. } => *done == Some(false),
            Self::Set { done, .. } => *done == Some(false),
            Self::Del { removed } => *removed == Some(false),
            Self::Edit { .. } | Self::Incr { .. } | Self::Restart => false,
            Self::Take { .. } | Self::DelWithin { .. } => false,
        }
    }

    /// Whether the state after it does not depend on the state before it.
    pub(super) fn is_blind(&self) -> bool {
        match self {
            Self::Set { condition, .. } => *condition == If::Always,
            Self::Del { .. } | Self::Take { .. } | Self::Restart => true,
            _ => false,
        }
    }

    /// Whether the state after it depends on more than its result shows. An expiry that stays is
    /// shown by no result, and does not count.
    pub(super) fn is_vague(&self) -> bool {
        match self {
            Self::Set { condition, done, .. } => *condition != If::Always && done.is_none(),
            Self::Incr { sum, .. } => sum.is_none(),
            Self::Expire { done, .. } => *done != Some(false),
            Self::DelWithin { .. } => true,
            _ => false,
        }
    }

    /// Whether the search has many ways to place it if its outcome is unknown. A write of a new number
    /// happened if that is seen.
    pub(crate) fn is_hard_if_unknown(&self) -> bool {
        matches!(
            self,
            Self::Incr { .. } | Self::Del { .. } | Self::DelWithin { .. } | Self::Expire { .. }
        )
    }

    pub(super) fn need(&self) -> Need {
        let is_there = |is| if is { Need::Present } else { Need::Absent };
        match *self {
            Self::Get { found: Some(number) } => Need::Number(number),
            Self::Get { found: None } => Need::Absent,
            Self::Take { number } => Need::Number(number),
            Self::Outside { from, to } => Need::Outside(from, to),
            Self::Set { condition: If::Present, done: Some(done), .. } => is_there(done),
            Self::Set { condition: If::Absent, done: Some(done), .. } => is_there(!done),
            Self::Del { removed: Some(removed) } => is_there(removed),
            Self::Expire { done: Some(done), .. } => is_there(done),
            Self::Exists { there } => is_there(there),
            Self::TimeLeft { left } => is_there(left != Left::Absent),
            Self::Incr { by, sum: Some(sum) } if sum == by => Need::AbsentOrZero,
            Self::Incr { by, sum: Some(sum) } => Need::Number(sum.wrapping_sub(by)),
            _ => Need::Anything,
        }
    }

    /// The number after it, if it had an effect and its result shows the number.
    pub(super) fn makes(&self) -> Option<i64> {
        match *self {
            Self::Set { value, done, .. } => (done != Some(false)).then_some(value.number),
            Self::Edit { number } => Some(number),
            Self::Incr { sum, .. } => sum,
            _ => None,
        }
    }

    /// The state after it; `None` if its result contradicts the state before.
    fn on(&self, state: Option<Value>) -> Option<Option<Value>> {
        match *self {
            Self::Get { found } => (found == state.map(|value| value.number)).then_some(state),
            Self::Set { value, condition, done } => {
                let holds = match condition {
                    If::Always => true,
                    If::Absent => state.is_none(),
                    If::Present => state.is_some(),
                };
                agrees(done, holds).then_some(if holds { Some(value) } else { state })
            }
            Self::Edit { number } => {
                let expiry = state.and_then(|value| value.expiry);
                Some(Some(Value { number, expiry }))
            }
            Self::Del { removed } => agrees(removed, state.is_some()).then_some(None),
            Self::Take { number } => {
                (state.map(|value| value.number) == Some(number)).then_some(None)
            }
            Self::DelWithin { from, to } => Some(state.filter(|value| !within(value, from, to))),
            Self::Outside { from, to } => {
                state.is_none_or(|value| !within(&value, from, to)).then_some(state)
            }
            Self::Incr { by, sum } => {
                let before = state.unwrap_or(Value { number: 0, expiry: None });
                let number = before.number.wrapping_add(by);
                agrees(sum, number).then_some(Some(Value { number, ..before }))
            }
            Self::Expire { expiry, done } => agrees(done, state.is_some())
                .then_some(state.map(|value| Value { expiry: Some(expiry), ..value })),
            Self::Exists { there } => (there == state.is_some()).then_some(state),
            Self::TimeLeft { left } => left.agrees(state).then_some(state),
            Self::Restart => Some(None),
            Self::Nothing => Some(state),
        }
    }
}

/// What holds for each of `count` items if a reply counts the items for which it is true: nothing
/// is known of each if it is true of some.
pub fn said_of_each(true_of: u64, count: usize) -> Option<bool> {
    match true_of {
        0 => Some(false),
        all if all == count as u64 => Some(true),
        _ => None,
    }
}

fn within(value: &Value, from: i64, to: i64) -> bool {
    (from..=to).contains(&value.number)
}

fn agrees<T: PartialEq>(told: Option<T>, is: T) -> bool {
    told.is_none_or(|told| told == is)
}

/// A key at some time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Moment {
    pub(super) state: Option<Value>,
    pub(super) at_ns: u64,
}

/// Keys of one server.
#[derive(Clone, Copy, Default, Debug)]
pub struct Keys {
    /// Keys may disappear at any time: the memory is full and eviction on.
    pub evicts: bool,
}

impl Keys {
    /// The states that the operation may leave if it takes effect now or later, but by `to_ns`;
    /// each at the earliest possible time, and one at the time at which nothing has expired first.
    pub(super) fn effects(
        self,
        now: Moment,
        op: &KeyOp,
        to_ns: u64,
    ) -> impl Iterator<Item = Moment> {
        let Moment { state, at_ns } = now;
        let expiry = state.and_then(|value| value.expiry);
        let there = expiry.is_none_or(|expiry| at_ns <= expiry.by_ns).then_some(now);
        let evicted_ns = (self.evicts && state.is_some()).then_some(at_ns);
        let gone_ns = evicted_ns.or(expiry.map(|expiry| at_ns.max(expiry.from_ns)));
        let gone = gone_ns.map(|at_ns| Moment { state: None, at_ns });
        let after = |before: Option<Moment>| {
            let Moment { state, at_ns } = before.filter(|before| before.at_ns <= to_ns)?;
            Some(Moment { state: op.on(state)?, at_ns })
        };
        let (there, gone) = (after(there), after(gone));
        let gone = gone.filter(|gone| there.is_none_or(|there| there.state != gone.state));
        there.into_iter().chain(gone)
    }
}
