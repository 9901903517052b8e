//! A linearizability checker for histories in which few operations overlap.
//!
//! It goes along the history once and keeps every way in which the operations
//! so far may have taken effect: which of the open ones already have, and the
//! state after that (just-in-time linearization: G. Lowe, "Testing for
//! linearizability", 2017). An operation whose outcome nobody learnt stays
//! open for ever: it may take effect at any later time, or never.

use std::collections::{BTreeMap, BTreeSet};

/// What the operations of a history mean.
pub trait Model {
    /// What is there between two operations.
    type State: Clone + Ord;
    /// An operation together with its result, if that is known.
    type Op;

    /// Whether the operation never changes the state and its result is known.
    fn only_looks(&self, op: &Self::Op) -> bool;

    /// The states that the operation may lead to if it takes effect between
    /// these two times; none if its result contradicts the state.
    fn apply(&self, state: &Self::State, op: &Self::Op, span: Span) -> Vec<Self::State>;
}

/// An interval of virtual time, in nanoseconds, both ends included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// Its begin.
    pub from_ns: u64,
    /// Its end.
    pub to_ns: u64,
}

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
    /// What was done, and what came of it.
    pub op: Op,
}

/// A history that no order of its operations explains.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotLinearizable {
    /// The operation at whose return no explanation was left.
    pub call: usize,
    /// Whether all possibilities were tried.
    pub is_certain: bool,
}

/// Numbers of operations.
type Numbers = BTreeSet<usize>;

/// One way to explain the history so far.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Explanation<State> {
    /// Operations of unknown outcome that have taken effect, ever. Of two
    /// explanations that differ only here, the one that spent less can do all
    /// that the other can, unless others follow what it did not spend.
    spent: Numbers,
    /// Other open operations that have taken effect.
    done: Numbers,
    state: State,
}

/// Most explanations that are followed before the answer is given up.
const MOST_EXPLANATIONS: usize = 50_000;

/// Checks one object's history, in any order of its calls.
///
/// Operations without a known outcome multiply the explanations. So they first
/// take effect only where nothing else explains what was seen; all their
/// possibilities are tried where that fails.
///
/// # Errors
/// No order of the operations explains it, or too many possibilities were left.
pub fn check<M: Model>(
    model: &M,
    initial: M::State,
    calls: &[Call<M::Op>],
) -> Result<(), NotLinearizable> {
    let lazily = search(model, initial.clone(), calls, true);
    lazily.or_else(|found| match search(model, initial, calls, false) {
        Err(certain) if !certain.is_certain => Err(NotLinearizable { is_certain: false, ..found }),
        other => other,
    })
}

fn search<M: Model>(
    model: &M,
    initial: M::State,
    calls: &[Call<M::Op>],
    lazily: bool,
) -> Result<(), NotLinearizable> {
    // At equal times invocations come first: such operations overlap.
    let mut events: BTreeSet<(u64, bool, usize)> = BTreeSet::new();
    for (number, call) in calls.iter().enumerate() {
        events.insert((call.invoked_ns, false, number));
        events.extend(call.returned_ns.map(|returned_ns| (returned_ns, true, number)));
    }
    let mut budget = MOST_EXPLANATIONS;
    let leaders = calls.iter().filter_map(|call| call.follows).collect();
    let mut open = Open { model, calls, open: BTreeSet::new(), leaders };
    let nothing = BTreeSet::new();
    let mut explanations =
        vec![Explanation { spent: nothing.clone(), done: nothing, state: initial }];
    for (now_ns, returns, number) in events {
        if !returns {
            open.open.insert(number);
            continue;
        }
        let seen = Seen { number, now_ns };
        let mut next = Some(Vec::new());
        if lazily {
            next = with_effect(&open, &explanations, seen, false, &mut budget);
        }
        if next.as_ref().is_some_and(Vec::is_empty) {
            next = with_effect(&open, &explanations, seen, true, &mut budget);
        }
        match next {
            None => return Err(NotLinearizable { call: number, is_certain: false }),
            Some(found) if found.is_empty() => {
                return Err(NotLinearizable { call: number, is_certain: true });
            }
            Some(found) => explanations = found,
        }
        open.open.remove(&number);
    }
    Ok(())
}

/// An operation whose result was seen, and when.
#[derive(Clone, Copy)]
struct Seen {
    number: usize,
    now_ns: u64,
}

/// Operations that were invoked and have not returned.
struct Open<'c, M: Model> {
    model: &'c M,
    calls: &'c [Call<M::Op>],
    open: Numbers,
    /// Operations that others follow.
    leaders: Numbers,
}

impl<'c, M: Model> Open<'c, M> {
    /// Open operations that may take effect next.
    fn enabled(
        &self,
        explanation: &Explanation<M::State>,
    ) -> impl Iterator<Item = (usize, &'c Call<M::Op>)> {
        let has = |number: &usize| {
            explanation.done.contains(number) || explanation.spent.contains(number)
        };
        let calls = self.calls;
        let may = move |number: &usize| !has(number) && !self.waits(*number, &has);
        self.open.iter().copied().filter(may).map(move |number| (number, &calls[number]))
    }

    /// Whether the operation follows one that has not taken effect. A look whose
    /// result nobody learnt holds up nobody.
    fn waits(&self, number: usize, has: &impl Fn(&usize) -> bool) -> bool {
        let mut follows = self.calls[number].follows;
        // Bounded: an operation follows an earlier one.
        while let Some(first) = follows {
            let call = &self.calls[first];
            if !self.open.contains(&first) || has(&first) {
                return false;
            }
            if call.returned_ns.is_some() || !self.model.only_looks(&call.op) {
                return true;
            }
            follows = call.follows;
        }
        false
    }

    /// Lets every open operation that changes nothing take effect: whatever
    /// explains the history without that explains it with it.
    fn look_around(&self, explanation: &mut Explanation<M::State>, now_ns: u64) {
        // Bounded: each round lets one more take effect.
        loop {
            let state = &explanation.state;
            let looks = self.enabled(explanation).find(|(_, call)| {
                let span = Span { from_ns: call.invoked_ns, to_ns: now_ns };
                let is_known = call.returned_ns.is_some() && self.model.only_looks(&call.op);
                is_known && self.model.apply(state, &call.op, span).contains(state)
            });
            let Some((number, _)) = looks else { return };
            explanation.done.insert(number);
        }
    }

    /// Whether whoever spent `less` can do all that the other can.
    fn is_free(&self, less: &Numbers, spent: &Numbers) -> bool {
        less.is_subset(spent) && spent.difference(less).all(|one| !self.leaders.contains(one))
    }
}

/// All explanations in which the operation that was seen has taken effect,
/// with those of unknown outcome or without. `None` if they are too many.
fn with_effect<M: Model>(
    open: &Open<'_, M>,
    explanations: &[Explanation<M::State>],
    Seen { number: needed, now_ns }: Seen,
    spends: bool,
    budget: &mut usize,
) -> Option<Vec<Explanation<M::State>>> {
    // What was spent to come to each state; those who spend less come first.
    let mut seen: BTreeMap<(Numbers, M::State), Vec<Numbers>> = BTreeMap::new();
    let mut left: BTreeSet<(usize, Explanation<M::State>)> =
        explanations.iter().map(|one| (one.spent.len(), one.clone())).collect();
    let mut found = Vec::new();
    while let Some((_, mut explanation)) = left.pop_first() {
        open.look_around(&mut explanation, now_ns);
        let Explanation { spent, done, state } = &explanation;
        let known = seen.entry((done.clone(), state.clone())).or_default();
        if known.iter().any(|less| open.is_free(less, spent)) {
            continue;
        }
        known.push(spent.clone());
        *budget = budget.checked_sub(1)?;
        if done.contains(&needed) {
            explanation.done.remove(&needed);
            found.push(explanation);
            continue;
        }
        for (number, call) in open.enabled(&explanation) {
            let is_known = call.returned_ns.is_some();
            if !is_known && !spends {
                continue;
            }
            let span = Span { from_ns: call.invoked_ns, to_ns: now_ns };
            for state in open.model.apply(&explanation.state, &call.op, span) {
                let mut next = Explanation { state, ..explanation.clone() };
                if is_known { &mut next.done } else { &mut next.spent }.insert(number);
                left.insert((next.spent.len(), next));
            }
        }
    }
    Some(found)
}
