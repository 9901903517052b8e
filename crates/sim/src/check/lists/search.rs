//! The search for an order of a list's calls that explains them: one call after another takes
//! effect, of those that no other call has to precede.

use super::calls::{End, ListCall, ListOp, Unexplained};
use crate::check::keys::Window;
use std::collections::BTreeSet;

/// States that are looked at before a list counts as not decided.
const MAX_STATES: usize = 200_000;

/// A list at one moment.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
struct List {
    items: Vec<i64>,
    expiry: Option<Window>,
}

/// A point of the search.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Point {
    /// A bit for each call that took effect.
    done: Vec<u64>,
    list: List,
    /// It is not earlier than this.
    at_ns: u64,
}

impl Point {
    fn has(&self, call: usize) -> bool {
        self.done[call / 64] >> (call % 64) & 1 == 1
    }

    fn add(&mut self, call: usize) {
        self.done[call / 64] |= 1 << (call % 64);
    }
}

pub(super) struct Search<'a> {
    calls: &'a [ListCall],
    /// The calls that each one comes after.
    after: Vec<Vec<usize>>,
    /// Calls in the order of the search: those that returned, then the others.
    order: Vec<usize>,
    evicts: bool,
    /// Lengths are known only without calls of unknown outcome.
    checks_lengths: bool,
}

impl<'a> Search<'a> {
    pub(super) fn new(calls: &'a [ListCall], evicts: bool) -> Self {
        let shown: BTreeSet<i64> = calls.iter().flat_map(|call| call.op.shows()).copied().collect();
        let finds_unseen = calls.iter().any(|call| call.op.finds_unseen());
        // A call of unknown outcome that only adds elements that no result shows explains only that
        // something was there.
        let matters = |call: &ListCall| match &call.op {
            ListOp::PushAny { .. } | ListOp::Nothing => false,
            op => {
                call.returned_ns.is_some()
                    || op.adds().is_empty()
                    || finds_unseen
                    || op.adds().iter().any(|item| shown.contains(item))
            }
        };
        let mut order: Vec<usize> = (0..calls.len()).filter(|&at| matters(&calls[at])).collect();
        order.sort_by_key(|&at| (calls[at].returned_ns.unwrap_or(u64::MAX), at));
        let mut after = vec![Vec::new(); calls.len()];
        for (waits, call) in calls.iter().enumerate() {
            let (Some(waits_ns), Some(_)) = (call.waits_ns, call.returned_ns) else { continue };
            if call.op == ListOp::Nothing {
                // It was refused.
                continue;
            }
            let later = |other: &ListCall| {
                other.is_command && other.invoked_ns >= waits_ns && other.op.found_something()
            };
            // A move was there before the one that waits, and may be between its two parts still.
            let is_behind_one = |other: &ListCall| {
                calls.iter().filter(|call| call.hands_over).any(|call| {
                    call.invoked_ns <= waits_ns
                        && call.returned_ns.is_none_or(|ns| ns >= other.invoked_ns)
                })
            };
            let is_after = |other: &ListCall| later(other) && !is_behind_one(other);
            let others = (0..calls.len()).filter(|&at| at != waits && is_after(&calls[at]));
            others.for_each(|other| after[other].push(waits));
        }
        let checks_lengths = calls.iter().all(|call| call.returned_ns.is_some());
        Self { calls, after, order, evicts, checks_lengths }
    }

    /// Pairs of a request that waits and a later call, whose order is demanded.
    pub(super) fn ordered(&self) -> u64 {
        self.after.iter().map(|after| after.len() as u64).sum()
    }

    pub(super) fn run(&self) -> Result<(), Unexplained> {
        let done = vec![0; self.calls.len().div_ceil(64)];
        let mut open = vec![Point { done, list: List::default(), at_ns: 0 }];
        let mut seen = BTreeSet::new();
        let (mut furthest, mut stuck) = (0, 0);
        while let Some(mut point) = open.pop() {
            self.look_around(&mut point);
            let left = self.order.iter().filter(|&&at| !point.has(at));
            let Some(first) = left.clone().copied().next() else { return Ok(()) };
            if self.calls[first].returned_ns.is_none() {
                return Ok(());
            }
            let count = self.order.len() - left.count();
            if count >= furthest {
                (furthest, stuck) = (count, first);
            }
            if seen.len() >= MAX_STATES {
                return Err(Unexplained { call: stuck, is_certain: false });
            }
            let next = self.next(&point);
            if seen.insert(point) {
                // The last one is looked at first.
                open.extend(next.into_iter().rev());
            }
        }
        Err(Unexplained { call: stuck, is_certain: true })
    }

    /// When the first of the calls that are left returned: nothing takes effect later before that.
    fn deadline_ns(&self, point: &Point) -> u64 {
        let left = self.order.iter().find(|&&at| !point.has(at));
        left.and_then(|&at| self.calls[at].returned_ns).unwrap_or(u64::MAX)
    }

    fn ready(&self, point: &Point) -> impl Iterator<Item = usize> {
        let deadline_ns = self.deadline_ns(point);
        self.order.iter().copied().filter(move |&at| {
            self.calls[at].invoked_ns <= deadline_ns
                && !point.has(at)
                && self.after[at].iter().all(|&first| point.has(first))
        })
    }

    /// Calls that change nothing take effect as soon as they agree.
    fn look_around(&self, point: &mut Point) {
        // Bounded: each round lets one take effect.
        loop {
            let agrees = |&at: &usize| {
                let call = &self.calls[at];
                let is_early = call.invoked_ns <= point.at_ns || point.list.expiry.is_none();
                let after = self.effect(&point.list, call);
                call.op.only_looks() && is_early && after.as_ref() == Some(&point.list)
            };
            let Some(at) = self.ready(point).find(agrees) else { return };
            point.at_ns = point.at_ns.max(self.calls[at].invoked_ns);
            point.add(at);
        }
    }

    /// The points that follow, the likeliest first.
    fn next(&self, point: &Point) -> Vec<Point> {
        let mut next = Vec::new();
        for at in self.ready(point) {
            let call = &self.calls[at];
            let at_ns = point.at_ns.max(call.invoked_ns);
            let must_be_gone = point.list.expiry.is_some_and(|expiry| expiry.by_ns < at_ns);
            if must_be_gone {
                continue;
            }
            for list in self.effects(&point.list, call) {
                let mut after = Point { list, at_ns, ..point.clone() };
                after.add(at);
                next.push(after);
            }
        }
        let empty = |at_ns| Point { list: List::default(), at_ns, ..point.clone() };
        if let Some(expiry) = point.list.expiry {
            let at_ns = point.at_ns.max(expiry.from_ns);
            next.extend((at_ns <= self.deadline_ns(point)).then(|| empty(at_ns)));
        }
        if self.evicts && !point.list.items.is_empty() {
            next.push(empty(point.at_ns));
        }
        next
    }

    fn effects(&self, list: &List, call: &ListCall) -> Vec<List> {
        match call.op {
            ListOp::PopAny { end, count } => {
                let most = count.min(list.items.len());
                (1..=most).map(|count| without(list, end, count).0).collect()
            }
            _ => self.effect(list, call).into_iter().collect(),
        }
    }

    /// The list after a call; `None` if its result is another one.
    fn effect(&self, list: &List, call: &ListCall) -> Option<List> {
        let is_told = |done: &Option<bool>, is: bool| done.is_none_or(|done| done == is);
        let items = &list.items;
        let place = |item: &i64| items.iter().position(|of| of == item);
        match &call.op {
            ListOp::Push { end, items, length } => {
                let mut list = list.clone();
                for &item in items {
                    match end {
                        End::Left => list.items.insert(0, item),
                        End::Right => list.items.push(item),
                    }
                }
                let is = list.items.len() as u64;
                let agrees = !self.checks_lengths || length.is_none_or(|length| length == is);
                agrees.then_some(list)
            }
            ListOp::Pop { end, items: taken } => match taken.is_empty() {
                true => items.is_empty().then(|| list.clone()),
                false => {
                    let (left, gone) = without(list, *end, taken.len());
                    (gone == *taken).then_some(left)
                }
            },
            ListOp::Insert { pivot, before, item, done } => {
                let at = place(pivot);
                let mut list = list.clone();
                if let Some(at) = at {
                    list.items.insert(at + !before as usize, *item);
                }
                is_told(done, at.is_some()).then_some(list)
            }
            ListOp::Remove { item, done } => {
                let at = place(item);
                let mut list = list.clone();
                if let Some(at) = at {
                    list.items.remove(at);
                }
                is_told(done, at.is_some()).then(|| kept(list))
            }
            ListOp::Range { found } => (found == items).then(|| list.clone()),
            ListOp::Del { done } => is_told(done, !items.is_empty()).then(List::default),
            ListOp::Expire { window, done } => {
                let is_there = !items.is_empty();
                let expiry = if is_there { Some(*window) } else { None };
                is_told(done, is_there).then(|| List { expiry, ..list.clone() })
            }
            ListOp::Ended | ListOp::Nothing => Some(list.clone()),
            ListOp::PushAny { .. } | ListOp::PopAny { .. } => None,
        }
    }
}

/// A list without the outermost elements of one end, and these.
fn without(list: &List, end: End, count: usize) -> (List, Vec<i64>) {
    let mut list = list.clone();
    let count = count.min(list.items.len());
    let gone = match end {
        End::Left => list.items.drain(..count).collect(),
        End::Right => {
            let from = list.items.len() - count;
            list.items.drain(from..).rev().collect()
        }
    };
    (kept(list), gone)
}

/// An empty list is no list: it has no expiry.
fn kept(list: List) -> List {
    if list.items.is_empty() { List::default() } else { list }
}
