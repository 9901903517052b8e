//! Calls, and a key's calls in the order of the search.

use super::keys::{KeyOp, Need};
use std::collections::BTreeMap;

/// One operation of a history.
#[derive(Clone, Debug)]
pub struct Call<Op> {
    /// When it was invoked.
    pub invoked_ns: u64,
    /// When its result was known; `None` if it never was.
    pub returned_ns: Option<u64>,
    /// The call of the same object that takes effect before it, although it
    /// may not have returned when this one was invoked: a session's requests
    /// are executed in the order in which it made them.
    pub follows: Option<usize>,
    /// The operation, and its result.
    pub op: Op,
}

/// One call, planned.
pub(super) struct Planned {
    /// Its place in the history.
    pub(super) original: usize,
    pub(super) invoked_ns: u64,
    /// `u64::MAX` if its outcome is unknown.
    pub(super) returned_ns: u64,
    /// The call that takes effect before it.
    pub(super) follows: Option<usize>,
    /// Whether others follow it.
    pub(super) leads: bool,
    /// Its outcome is unknown, and its place may matter even if no observation shows it.
    pub(super) is_free: bool,
    pub(super) op: KeyOp,
}

/// The calls of one key: first those that returned, in the order in which they did; then those of
/// unknown outcome, in the order of invocation.
pub(super) struct Calls {
    all: Vec<Planned>,
    /// How many returned.
    pub(super) known: usize,
    /// Those that returned, in the order of invocation.
    pub(super) by_invocation: Vec<usize>,
    /// The calls, among those that returned, that need each number.
    needers: BTreeMap<i64, Vec<usize>>,
    /// The calls that make each number.
    makers: BTreeMap<i64, Vec<usize>>,
    /// The sums that the INCRs of unknown sums subtract and add, all together.
    unknown_sums: Option<(i64, i64)>,
    /// Ends of all windows in which a key disappears.
    ends_ns: Vec<u64>,
}

impl std::ops::Index<usize> for Calls {
    type Output = Planned;

    fn index(&self, number: usize) -> &Planned {
        &self.all[number]
    }
}

impl Calls {
    /// A look of unknown result explains nothing and delays nothing: it is left out.
    pub(super) fn new(calls: &[Call<KeyOp>]) -> Self {
        let is_lost = |call: &Call<KeyOp>| call.returned_ns.is_none() && call.op.only_looks();
        let mut order: Vec<usize> = (0..calls.len()).filter(|&at| !is_lost(&calls[at])).collect();
        let returned_ns = |at: usize| calls[at].returned_ns.unwrap_or(u64::MAX);
        order.sort_by_key(|&at| {
            (calls[at].returned_ns.is_none(), returned_ns(at), calls[at].invoked_ns)
        });
        let known = order.iter().filter(|&&at| calls[at].returned_ns.is_some()).count();
        let places: BTreeMap<usize, usize> = (0..).zip(&order).map(|(to, &at)| (at, to)).collect();
        let follows = |at: usize| {
            let mut follows = calls[at].follows;
            // Bounded: a call follows an earlier one.
            while let Some(lost) = follows.filter(|&first| is_lost(&calls[first])) {
                follows = calls[lost].follows;
            }
            follows.map(|first| places[&first])
        };
        let plan = |&at: &usize| Planned {
            original: at,
            invoked_ns: calls[at].invoked_ns,
            returned_ns: returned_ns(at),
            follows: follows(at),
            leads: false,
            is_free: false,
            op: calls[at].op,
        };
        let all: Vec<Planned> = order.iter().map(plan).collect();
        let mut by_invocation: Vec<usize> = (0..known).collect();
        by_invocation.sort_by_key(|&number| all[number].invoked_ns);
        let mut ends_ns: Vec<u64> = all.iter().filter_map(|call| end_ns(&call.op)).collect();
        ends_ns.sort_unstable();
        let (needers, makers) = (BTreeMap::new(), BTreeMap::new());
        let mut plan =
            Self { all, known, by_invocation, needers, makers, unknown_sums: None, ends_ns };
        plan.follow();
        plan.count();
        plan
    }

    /// Finds the leaders, and the free ones among the calls of unknown outcome.
    fn follow(&mut self) {
        for number in 0..self.all.len() {
            let shows = number < self.known || !self.all[number].op.is_blind();
            let mut follows = self.all[number].follows;
            // Bounded: a call follows an earlier one.
            while let Some(first) = follows {
                self.all[first].leads = true;
                if !shows || first < self.known {
                    break;
                }
                self.all[first].is_free = true;
                follows = self.all[first].follows;
            }
        }
        // A call that keeps more of the state than any result shows may be prepared by any call.
        let passes_on = |(number, call): (usize, &Planned)| {
            let is_known = number < self.known;
            if is_known { call.op.is_vague() } else { call.is_free && !call.op.is_blind() }
        };
        if self.all.iter().enumerate().any(passes_on) {
            self.all[self.known..].iter_mut().for_each(|call| call.is_free = true);
        }
    }

    fn count(&mut self) {
        for (number, call) in self.all.iter().enumerate() {
            if let (Need::Number(needed), true) = (call.op.need(), number < self.known) {
                self.needers.entry(needed).or_default().push(number);
            }
            if let Some(made) = call.op.makes() {
                self.makers.entry(made).or_default().push(number);
            }
            if let KeyOp::Incr { by, sum: None } = call.op {
                let (less, more) = self.unknown_sums.unwrap_or((0, 0));
                let (less, more) = (less.saturating_add(by.min(0)), more.saturating_add(by.max(0)));
                self.unknown_sums = Some((less, more));
            }
        }
    }

    /// How many calls there are.
    pub(super) fn count_all(&self) -> usize {
        self.all.len()
    }

    /// The calls of unknown outcome that have no effect after a restart.
    pub(super) fn lost_by(&self, restart: usize) -> impl Iterator<Item = usize> {
        let by_ns = self.all[restart].returned_ns;
        let is_older = move |&number: &usize| self.all[number].invoked_ns < by_ns;
        (self.known..self.all.len()).take_while(is_older)
    }

    /// The calls that returned and need this number, in the order in which
    /// they returned.
    pub(super) fn needers(&self, number: i64) -> &[usize] {
        self.needers.get(&number).map_or(&[], Vec::as_slice)
    }

    /// The calls that make this number, INCRs of unknown sum left out.
    pub(super) fn makers(&self, number: i64) -> &[usize] {
        self.makers.get(&number).map_or(&[], Vec::as_slice)
    }

    /// Whether INCRs of unknown sum may make this number from another.
    pub(super) fn may_be_sum(&self, number: i64) -> bool {
        let Some((less, more)) = self.unknown_sums else { return false };
        let from = number.saturating_sub(more)..=number.saturating_sub(less);
        let is_other = |&base: &i64| base != number || (less < 0 && more > 0);
        from.contains(&0) || self.makers.range(from).any(|(base, _)| is_other(base))
    }

    /// Whether no call needs this number, nor one that INCRs of unknown sum may make from it.
    pub(super) fn is_idle(&self, number: i64) -> bool {
        let (less, more) = self.unknown_sums.unwrap_or((0, 0));
        let sums = number.saturating_add(less)..=number.saturating_add(more);
        self.needers.range(sums).next().is_none()
    }

    /// Whether two calls of unknown outcome, if they need not follow any, are interchangeable: they
    /// leave the same visible state, and no others depend on them. Then the one that was invoked
    /// first represents both.
    pub(super) fn are_same(&self, first: usize, second: usize) -> bool {
        let (first, second) = (&self.all[first], &self.all[second]);
        if [first, second].iter().any(|call| call.leads || call.is_free) {
            return false;
        }
        match (first.op, second.op) {
            (
                KeyOp::Set { value, condition, .. },
                KeyOp::Set { value: other, condition: other_condition, .. },
            ) => {
                let are_idle = self.is_idle(value.number) && self.is_idle(other.number);
                are_idle && value.expiry == other.expiry && condition == other_condition
            }
            (KeyOp::Edit { number }, KeyOp::Edit { number: other }) => {
                self.is_idle(number) && self.is_idle(other)
            }
            (first, second) => first == second,
        }
    }

    /// Whether a value may disappear by itself.
    pub(super) fn has_ends(&self) -> bool {
        !self.ends_ns.is_empty()
    }

    /// Whether a value's time may be over at the one time and not at the other.
    pub(super) fn ends_between(&self, from_ns: u64, to_ns: u64) -> bool {
        let next = self.ends_ns.partition_point(|&end_ns| end_ns < from_ns);
        self.ends_ns.get(next).is_some_and(|&end_ns| end_ns < to_ns)
    }
}

fn end_ns(op: &KeyOp) -> Option<u64> {
    match op {
        KeyOp::Set { value, .. } => value.expiry.map(|expiry| expiry.by_ns),
        KeyOp::Expire { expiry, .. } => Some(expiry.by_ns),
        _ => None,
    }
}
