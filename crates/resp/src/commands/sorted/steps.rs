//! Operations on several sorted sets: ZUNION and its kin, ZRANGESTORE and ZMPOP.

use super::order::ScoreSort;
use crate::steps::{AskKey, Step, StepKey, Steps};
use remora_frontend::OwnedReply;
use remora_layout::kind::Kind;
use remora_layout::limits::{MAX_COMMAND_MEMBERS, MAX_SORT_ELEMENTS};
use remora_protocol::message::Status;
use remora_protocol::sorted::{
    Aggregate, Combination, Scored, SortedCommand, SortedRange, SortedRead, Sources,
};
use remora_protocol::{Items, Request};
use std::collections::VecDeque;
use std::ops::Bound;

/// What becomes of the result.
#[derive(Debug)]
enum Outcome {
    /// It is the reply, in order.
    Returned,
    /// Its number is the reply, up to this many, if not 0.
    Counted(u64),
    /// The first key gets it.
    Stored,
}

/// The sets of several keys become one. Each shard combines what the shards before it have found with the
/// sets that it owns, at one moment: the result of several shards is of no one moment.
#[derive(Debug)]
pub(super) struct Combine {
    how: Combination,
    aggregate: Aggregate,
    /// Of each set.
    weights: Vec<f64>,
    outcome: Outcome,
    /// The shards that are still to be asked: the numbers of the keys of each.
    left: VecDeque<Vec<usize>>,
    /// What was found gets into order: so many members.
    sorting: Option<(ScoreSort, i64)>,
}

impl Combine {
    pub fn new(how: Combination, aggregate: Aggregate, weights: Vec<f64>) -> Self {
        let outcome = Outcome::Returned;
        Self { how, aggregate, weights, outcome, left: VecDeque::new(), sorting: None }
    }

    pub fn counting(self, count_to: u64) -> Self {
        Self { outcome: Outcome::Counted(count_to), ..self }
    }

    pub fn stored(self) -> Self {
        Self { outcome: Outcome::Stored, ..self }
    }

    /// The number of the first key that is a source.
    fn first(&self) -> usize {
        usize::from(matches!(self.outcome, Outcome::Stored))
    }

    /// Asks the next shard.
    fn ask(&mut self, keys: &[StepKey], before: Option<&[u8]>, ask: AskKey<'_>) -> Step {
        let (first, mut items) = (self.first(), Vec::new());
        let numbers = self.left.pop_front().expect("a shard is left");
        let weight = |at: usize| self.weights[at - first];
        let others = numbers.iter().skip(1).map(|at| (&keys[*at].key[..], weight(*at)));
        Sources::write(&mut items, before, weight(numbers[0]), others);
        let sources = Sources::parse(before.is_some(), &items).expect("of checked keys");
        let is_last = self.left.is_empty();
        let count_to = match self.outcome {
            Outcome::Counted(count_to) if is_last => Some(count_to),
            _ => None,
        };
        let Self { how, aggregate, .. } = *self;
        ask(numbers[0], SortedCommand::Combine { how, aggregate, sources, count_to }.request());
        if count_to.is_some() { Step::AskedLast } else { Step::Asked }
    }

    /// Sorts on; the reply once all is in order. Between two turns the shard is asked something that costs
    /// nothing, whatever it answers.
    fn sort(&mut self, keys: &[StepKey], ask: AskKey<'_>) -> Step {
        let (sort, number) = self.sorting.as_mut().expect("it has begun");
        let is_short = sort.is_short(*number as u64);
        loop {
            if let Some(list) = sort.turn() {
                let (number, value) = (*number, Some(list));
                return Step::Done(OwnedReply { number, value, ..OwnedReply::status(Status::Ok) });
            }
            if !is_short {
                ask(keys.len() - 1, SortedCommand::Length.request());
                return Step::Asked;
            }
        }
    }
}

/// The numbers of the keys from `first` on, by their shards; a shard has the place of its first key.
fn by_shard(keys: &[StepKey], first: usize) -> VecDeque<Vec<usize>> {
    let mut shards: VecDeque<Vec<usize>> = VecDeque::new();
    for (at, key) in keys.iter().enumerate().skip(first) {
        match shards.iter_mut().find(|numbers| keys[numbers[0]].shard == key.shard) {
            Some(numbers) => numbers.push(at),
            None => shards.push_back(vec![at]),
        }
    }
    shards
}

/// The first key gets so many members.
fn store(list: Vec<u8>, number: i64, ask: AskKey<'_>) -> Step {
    if number > MAX_COMMAND_MEMBERS as i64 {
        let (kind, first_bytes) = (Kind::SORTED_SET, Scored::first_bytes);
        return Step::Store { key: 0, kind, items: list, first_bytes };
    }
    let Some(members) = Scored::parse(&list) else {
        return Step::Done(OwnedReply::status(Status::Malformed));
    };
    ask(0, SortedCommand::Store { members }.request());
    Step::AskedLast
}

impl Steps for Combine {
    fn next(&mut self, keys: &[StepKey], answer: Option<OwnedReply>, ask: AskKey<'_>) -> Step {
        let Some(reply) = answer else {
            self.left = by_shard(keys, self.first());
            return self.ask(keys, None, ask);
        };
        if self.sorting.is_some() {
            return self.sort(keys, ask);
        }
        if reply.status != Status::Ok {
            return Step::Done(reply);
        }
        let list = reply.value.unwrap_or_default();
        if !self.left.is_empty() {
            return self.ask(keys, Some(&list), ask);
        }
        if matches!(self.outcome, Outcome::Stored) {
            return store(list, reply.number, ask);
        }
        if reply.number > MAX_SORT_ELEMENTS as i64 {
            return Step::Done(OwnedReply::status(Status::TooLarge));
        }
        self.sorting = Some((ScoreSort::new(list), reply.number));
        self.sort(keys, ask)
    }

    fn is_read(&self) -> bool {
        !matches!(self.outcome, Outcome::Stored)
    }
}

/// The first key gets what is read of the second key's set.
#[derive(Debug)]
pub(super) struct StoreRange {
    /// The range; members as bounds are in the lists.
    range: Kept,
    is_reverse: bool,
    offset: u64,
    limit: u64,
}

/// A range that borrows nothing.
#[derive(Debug)]
enum Kept {
    Plain(SortedRange<'static>),
    Lex(Bound<Box<[u8]>>, Bound<Box<[u8]>>),
}

impl Kept {
    fn of(range: SortedRange<'_>) -> Self {
        match range {
            SortedRange::Index { start, stop } => Self::Plain(SortedRange::Index { start, stop }),
            SortedRange::Score { from, to } => Self::Plain(SortedRange::Score { from, to }),
            SortedRange::Lex { from, to } => Self::Lex(from.map(Box::from), to.map(Box::from)),
        }
    }

    fn range(&self) -> SortedRange<'_> {
        match self {
            Self::Plain(range) => *range,
            Self::Lex(from, to) => {
                let [from, to] = [from, to].map(|bound| bound.as_ref().map(|of| &of[..]));
                SortedRange::Lex { from, to }
            }
        }
    }
}

impl StoreRange {
    pub fn new(read: SortedRead<'_>) -> Self {
        let SortedRead { range, is_reverse, offset, limit } = read;
        Self { range: Kept::of(range), is_reverse, offset, limit }
    }
}

impl Steps for StoreRange {
    fn next(&mut self, _: &[StepKey], answer: Option<OwnedReply>, ask: AskKey<'_>) -> Step {
        let Some(reply) = answer else {
            let Self { is_reverse, offset, limit, .. } = *self;
            let read = SortedRead { range: self.range.range(), is_reverse, offset, limit };
            ask(1, SortedCommand::Collect(read).request());
            return Step::Asked;
        };
        match reply.status {
            Status::Ok | Status::NotFound => {}
            _ => return Step::Done(reply),
        }
        store(reply.value.unwrap_or_default(), reply.number, ask)
    }
}

/// Up to `count` members leave the first set that there is. The value of the reply is the key and the
/// members, as [`Items`]; `NotFound` without a set.
#[derive(Debug)]
pub(super) struct PopFirst {
    pub count: u64,
    pub from_greatest: bool,
    /// The key that is asked: 0 at first.
    pub at: usize,
}

impl PopFirst {
    fn pop(&self) -> Request<'static> {
        let Self { count, from_greatest, .. } = *self;
        SortedCommand::Pop { count, from_greatest }.request()
    }
}

impl Steps for PopFirst {
    fn next(&mut self, keys: &[StepKey], answer: Option<OwnedReply>, ask: AskKey<'_>) -> Step {
        if let Some(reply) = answer {
            match reply.status {
                Status::Ok if reply.number > 0 => {
                    let mut list = Vec::new();
                    Items::push(&mut list, &keys[self.at].key);
                    Items::push(&mut list, reply.value.as_deref().unwrap_or_default());
                    return Step::Done(OwnedReply { value: Some(list), ..reply });
                }
                Status::Ok | Status::NotFound => self.at += 1,
                _ => return Step::Done(reply),
            }
        }
        if self.at == keys.len() {
            return Step::Done(OwnedReply::status(Status::NotFound));
        }
        ask(self.at, self.pop());
        Step::Asked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(shards: &[usize]) -> Vec<StepKey> {
        let key = |(at, shard): (usize, &usize)| StepKey {
            key: format!("key {at}").into_bytes().into(),
            shard: *shard,
        };
        shards.iter().enumerate().map(key).collect()
    }

    fn found(number: i64, list: Vec<u8>) -> Option<OwnedReply> {
        Some(OwnedReply { number, value: Some(list), ..OwnedReply::status(Status::Ok) })
    }

    #[test]
    fn too_many_members_are_not_sorted() {
        let mut combine = Combine::new(Combination::Union, Aggregate::Sum, vec![1.0]);
        let (keys, most) = (keys(&[0]), MAX_SORT_ELEMENTS as i64);
        assert!(matches!(combine.next(&keys, None, &mut |_, _| {}), Step::Asked));
        let reply = combine.next(&keys, found(most + 1, Vec::new()), &mut |_, _| {});
        assert!(matches!(reply, Step::Done(reply) if reply.status == Status::TooLarge));
    }

    #[test]
    fn each_shard_gets_its_keys_their_weights_and_what_was_found_before() {
        let mut combine = Combine::new(Combination::Union, Aggregate::Max, vec![2.0, 3.0, 4.0]);
        let (keys, mut list) = (keys(&[7, 5, 7]), Vec::new());
        Scored::push(&mut list, 1.0, b"m");
        let mut asked = Vec::new();
        let mut answer = None;
        for _ in 0..2 {
            let step = combine.next(&keys, answer.take(), &mut |at, request| {
                let SortedCommand::Combine { sources, aggregate, .. } = SortedCommand::of(request)
                else {
                    panic!("{request:?}")
                };
                assert_eq!(aggregate, Aggregate::Max);
                let others: Vec<_> = sources.others().map(|(key, of)| (key.to_vec(), of)).collect();
                asked.push((at, sources.before().is_some(), sources.own_weight(), others));
            });
            assert!(matches!(step, Step::Asked));
            answer = found(1, list.clone());
        }
        assert_eq!(asked[0], (0, false, 2.0, vec![(b"key 2".to_vec(), 4.0)]));
        assert_eq!(asked[1], (1, true, 3.0, vec![]));
        let done = combine.next(&keys, found(1, list), &mut |_, _| panic!("all have answered"));
        assert!(matches!(done, Step::Done(reply) if reply.number == 1));
    }

    #[test]
    fn a_long_sort_asks_between_its_turns_and_ignores_the_answers() {
        let mut combine = Combine::new(Combination::Diff, Aggregate::Sum, vec![1.0]);
        let (keys, mut list, mut questions) = (keys(&[0]), Vec::new(), 0);
        let count = 20_000i64;
        (0..count).for_each(|at| Scored::push(&mut list, -at as f64, b"member"));
        let mut answer = None;
        let reply = loop {
            match combine.next(&keys, answer.take(), &mut |_, _| questions += 1) {
                Step::Asked if questions == 1 => answer = found(count, std::mem::take(&mut list)),
                Step::Asked => answer = Some(OwnedReply::status(Status::WrongType)),
                Step::Done(reply) => break reply,
                other => panic!("{other:?}"),
            }
        };
        assert!(questions > 10, "{questions}");
        let value = reply.value.unwrap();
        let scores: Vec<f64> = Scored::in_list(&value).map(|(score, _)| score).collect();
        assert!(scores.is_sorted() && scores.len() == count as usize);
    }
}
