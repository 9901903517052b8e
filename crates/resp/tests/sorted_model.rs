//! A small model of a server with sorted sets in place of the engine: it executes the operations that
//! requests become, and writes their replies.

use remora_frontend::{LongReply as _, OwnedReply, ReplyForm as _, ShardAnswer};
use remora_protocol::glob::Glob;
use remora_protocol::message::Status;
use remora_protocol::sorted::{
    Aggregate, Combination, Scored, SortedCommand, SortedRange, SortedRead, Sources, When,
};
use remora_protocol::{Items, Request as On};
use remora_resp::keys::Keys;
use remora_resp::request::Blocking;
use remora_resp::steps::{Step, StepKey, Steps};
use remora_resp::{ReplyForm, Request, RespVersion};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// Members with their scores, in order.
type Members = Vec<(f64, Vec<u8>)>;

/// What a key holds.
#[derive(Clone, Debug)]
pub enum Object {
    Sorted(Members),
    Set(BTreeSet<Vec<u8>>),
    String,
}

/// The keys of one server.
pub struct Model {
    pub keys: BTreeMap<Vec<u8>, Object>,
    /// As many shards as keys are spread over.
    pub shards: usize,
}

fn order(a: &(f64, Vec<u8>), b: &(f64, Vec<u8>)) -> Ordering {
    a.0.partial_cmp(&b.0).unwrap().then_with(|| a.1.cmp(&b.1))
}

fn list(members: &[(f64, Vec<u8>)]) -> OwnedReply {
    let mut out = Vec::new();
    members.iter().for_each(|(score, member)| Scored::push(&mut out, *score, member));
    let number = members.len() as i64;
    OwnedReply { number, value: Some(out), ..OwnedReply::status(Status::Ok) }
}

fn number(number: usize) -> OwnedReply {
    OwnedReply { number: number as i64, ..OwnedReply::status(Status::Ok) }
}

fn score_reply(number: i64, score: f64) -> OwnedReply {
    let value = Some(score.to_le_bytes().to_vec());
    OwnedReply { number, value, ..OwnedReply::status(Status::Ok) }
}

/// A score as it is kept: that of a small set of Redis is never -0.
fn kept(score: f64) -> f64 {
    score + 0.0
}

fn stored(members: Scored<'_>) -> Members {
    members.iter().map(|(score, member)| (kept(score), member.to_vec())).collect()
}

fn place(set: &Members, member: &[u8]) -> Option<usize> {
    set.iter().position(|(_, of)| of == member)
}

/// Whether a value is within bounds.
fn is_within<T: PartialOrd + Copy>(value: T, from: Bound<T>, to: Bound<T>) -> bool {
    let is_above = match from {
        Bound::Included(from) => value >= from,
        Bound::Excluded(from) => value > from,
        Bound::Unbounded => true,
    };
    let is_below = match to {
        Bound::Included(to) => value <= to,
        Bound::Excluded(to) => value < to,
        Bound::Unbounded => true,
    };
    is_above && is_below
}

/// The members of a range, in its direction.
fn ranged(set: &Members, read: SortedRead<'_>) -> Members {
    let mut all = set.clone();
    if read.is_reverse {
        all.reverse();
    }
    let count = all.len() as i64;
    let index = |at: i64| if at < 0 { at.saturating_add(count) } else { at };
    let is_in = |at: usize, (score, member): &(f64, Vec<u8>)| match read.range {
        SortedRange::Index { start, stop } => (index(start)..=index(stop)).contains(&(at as i64)),
        SortedRange::Score { from, to } => is_within(*score, from, to),
        SortedRange::Lex { from, to } => is_within(&member[..], from, to),
    };
    let found = all.iter().enumerate().filter(|(at, of)| is_in(*at, of)).map(|(_, of)| of.clone());
    let offset = usize::try_from(read.offset).unwrap_or(usize::MAX);
    let limit = usize::try_from(read.limit).unwrap_or(usize::MAX);
    found.skip(offset).take(limit).collect()
}

/// Gives a member a score if that is permitted: whether it is new, and whether its score changed.
fn set_score(set: &mut Members, when: When, score: f64, member: &[u8]) -> (bool, bool) {
    match place(set, member) {
        at if !when.permits(at.map(|at| set[at].0), score) => (false, false),
        Some(at) if set[at].0 == score => (false, false),
        Some(at) => {
            set[at].0 = kept(score);
            set.sort_by(order);
            (false, true)
        }
        None => {
            set.push((kept(score), member.to_vec()));
            set.sort_by(order);
            (true, false)
        }
    }
}

fn incremented(set: &mut Members, when: When, by: f64, member: &[u8]) -> OwnedReply {
    let old = place(set, member).map(|at| set[at].0);
    let is_refused = match old {
        Some(_) => when.condition == remora_protocol::Condition::IfAbsent,
        None => when.condition == remora_protocol::Condition::IfPresent,
    };
    let score = old.map_or(by, |old| old + by);
    if is_refused {
        return OwnedReply::status(Status::NotDone);
    }
    if score.is_nan() {
        return OwnedReply::status(Status::NotANumber);
    }
    if !when.permits(old, score) {
        return OwnedReply::status(Status::NotDone);
    }
    set_score(set, when, score, member);
    score_reply(0, score)
}

fn scanned(set: &Members, options: Items<'_>) -> OwnedReply {
    let pattern = options.iter().next().flatten().map(|of| Glob::new(of, false).unwrap());
    let is_in = |(_, member): &&(f64, Vec<u8>)| {
        pattern.as_ref().is_none_or(|pattern| pattern.matches(member))
    };
    let found: Members = set.iter().filter(is_in).cloned().collect();
    OwnedReply { number: 0, ..list(&found) }
}

impl Model {
    fn sorted(&self, key: &[u8]) -> Result<Members, Status> {
        match self.keys.get(key) {
            None => Ok(Members::new()),
            Some(Object::Sorted(members)) => Ok(members.clone()),
            Some(_) => Err(Status::WrongType),
        }
    }

    fn put(&mut self, key: &[u8], set: Members) {
        match set.is_empty() {
            true => self.keys.remove(key),
            false => self.keys.insert(key.to_vec(), Object::Sorted(set)),
        };
    }

    /// The members of a source; those of a set have the score 1.
    fn source(&self, key: &[u8]) -> Result<Members, Status> {
        match self.keys.get(key) {
            Some(Object::Set(members)) => Ok(members.iter().map(|of| (1.0, of.clone())).collect()),
            _ => self.sorted(key),
        }
    }

    fn combined(
        &self,
        key: &[u8],
        (how, aggregate): (Combination, Aggregate),
        sources: Sources<'_>,
    ) -> Result<Members, Status> {
        let own = std::iter::once((key, sources.own_weight()));
        let mut sets = Vec::new();
        for (key, weight) in own.chain(sources.others()) {
            sets.push((self.source(key)?, weight));
        }
        if how != Combination::Diff {
            sets.sort_by_key(|(members, _)| members.len());
        }
        if let Some(before) = sources.before() {
            let before = Scored::in_list(before).map(|(score, of)| (score, of.to_vec()));
            sets.insert(0, (before.collect(), 1.0));
        }
        let (first, others) = sets.split_first().unwrap();
        let find = |(set, weight): &(Members, f64), member: &[u8]| {
            place(set, member).map(|at| (set[at].0, *weight))
        };
        let mut found = Members::new();
        match how {
            Combination::Diff => {
                let is_left =
                    |(_, of): &&(f64, Vec<u8>)| others.iter().all(|set| find(set, of).is_none());
                found.extend(first.0.iter().filter(is_left).cloned());
            }
            Combination::Inter => {
                for (score, member) in &first.0 {
                    let mut sum = Some(Aggregate::weighted(*score, first.1));
                    for set in others {
                        let other = find(set, member).map(|(score, weight)| score * weight);
                        sum = sum.zip(other).map(|(sum, other)| aggregate.join(sum, other));
                    }
                    found.extend(sum.map(|sum| (sum, member.clone())));
                }
            }
            Combination::Union => {
                let mut all: BTreeMap<&[u8], f64> = BTreeMap::new();
                for (set, weight) in &sets {
                    for (score, member) in set {
                        let score = Aggregate::weighted(*score, *weight);
                        let sum = all.get(&member[..]).map(|sum| aggregate.join(*sum, score));
                        all.insert(member, sum.unwrap_or(score));
                    }
                }
                found.extend(all.into_iter().map(|(member, score)| (score, member.to_vec())));
            }
        }
        // The engine gives them in no order.
        found.sort_by(|a, b| b.1.cmp(&a.1));
        Ok(found)
    }

    /// Executes an operation on one key.
    pub fn execute(&mut self, key: &[u8], request: On<'_>) -> OwnedReply {
        let command = SortedCommand::of(request);
        if let SortedCommand::Combine { how, aggregate, sources, count_to } = command {
            return match (self.combined(key, (how, aggregate), sources), count_to) {
                (Err(status), _) => OwnedReply::status(status),
                (Ok(found), None) => list(&found),
                (Ok(found), Some(0)) => number(found.len()),
                (Ok(found), Some(most)) => number(found.len().min(most as usize)),
            };
        }
        if let SortedCommand::Store { members } = command {
            let mut set = stored(members);
            set.sort_by(order);
            let count = set.len();
            self.put(key, set);
            return number(count);
        }
        let mut set = match self.sorted(key) {
            Ok(set) => set,
            Err(status) => return OwnedReply::status(status),
        };
        match read(&set, self.keys.contains_key(key), command) {
            Some(reply) => reply,
            None => {
                let reply = change(&mut set, command);
                self.put(key, set);
                reply
            }
        }
    }

    fn step_keys(&self, keys: Keys<'_>) -> Vec<StepKey> {
        let shard = |key: &[u8]| key.iter().map(|byte| usize::from(*byte)).sum::<usize>();
        keys.map(|key| StepKey { key: key.into(), shard: shard(key) % self.shards }).collect()
    }

    fn run(&mut self, keys: &[StepKey], mut steps: Box<dyn Steps>) -> OwnedReply {
        let mut answer = None;
        loop {
            let mut next = None;
            let step = steps.next(keys, answer.take(), &mut |at, request| {
                next = Some(self.execute(&keys[at].key, request));
            });
            match step {
                Step::Asked => answer = next,
                Step::AskedLast => return next.unwrap(),
                Step::Done(reply) => return reply,
                Step::Store { key, items, .. } => {
                    let members = Scored::parse(&items).unwrap();
                    let mut set = stored(members);
                    set.sort_by(order);
                    let count = set.len();
                    self.put(&keys[key].key, set);
                    return number(count);
                }
                Step::Joint => panic!("no operation on sorted sets is a joint one"),
            }
        }
    }

    fn wait(&mut self, blocking: Blocking<'_>) -> OwnedReply {
        for key in blocking.keys {
            match self.keys.get(key) {
                None => {}
                Some(Object::Sorted(_)) => {
                    let reply = self.execute(key, blocking.request);
                    let mut value = Vec::new();
                    Items::push(&mut value, key);
                    Items::push(&mut value, &reply.value.unwrap());
                    return OwnedReply {
                        number: 2,
                        value: Some(value),
                        ..OwnedReply::status(Status::Ok)
                    };
                }
                Some(_) => return OwnedReply::status(Status::WrongType),
            }
        }
        OwnedReply::status(Status::NotFound)
    }

    /// The reply to a request.
    pub fn answer(&mut self, request: Request<'_>, version: RespVersion) -> Vec<u8> {
        match request {
            Request::Object { key, request, form } => {
                let reply = self.execute(key, request);
                written(form, reply, version)
            }
            Request::Steps { keys, steps, form } => {
                let keys = self.step_keys(keys);
                let reply = self.run(&keys, steps);
                written(form, reply, version)
            }
            Request::Block(blocking) => {
                let form = blocking.form;
                let reply = self.wait(*blocking);
                written(form, reply, version)
            }
            other => panic!("{other:?} is not about sorted sets"),
        }
    }
}

/// The reply to an operation that changes nothing.
fn read(set: &Members, is_there: bool, command: SortedCommand<'_>) -> Option<OwnedReply> {
    let not_found = || OwnedReply::status(Status::NotFound);
    Some(match command {
        SortedCommand::Length => number(set.len()),
        SortedCommand::Score { member } => {
            place(set, member).map_or_else(not_found, |at| score_reply(0, set[at].0))
        }
        SortedCommand::Scores { members } => {
            let score = |of| place(set, of).map_or(f64::NAN, |at| set[at].0);
            let scores = members.iter().flatten().flat_map(|of| score(of).to_le_bytes()).collect();
            OwnedReply { value: Some(scores), ..number(is_there.into()) }
        }
        SortedCommand::Rank { member, is_reverse } => match place(set, member) {
            None => not_found(),
            Some(at) => {
                let rank = if is_reverse { set.len() - 1 - at } else { at };
                score_reply(rank as i64, set[at].0)
            }
        },
        SortedCommand::Count { range } => number(ranged(set, SortedRead::of(range)).len()),
        SortedCommand::Range(read) | SortedCommand::Collect(read) => list(&ranged(set, read)),
        SortedCommand::Random { count } if count < 0 && !set.is_empty() => {
            let count = count.unsigned_abs().min(1_000) as usize;
            list(&set.iter().cycle().take(count).cloned().collect::<Members>())
        }
        SortedCommand::Random { count } => {
            list(&set[..set.len().min(count.unsigned_abs() as usize)])
        }
        SortedCommand::Scan { options, .. } => scanned(set, options),
        _ => return None,
    })
}

fn change(set: &mut Members, command: SortedCommand<'_>) -> OwnedReply {
    match command {
        SortedCommand::Add { when, counts_changed, members } => {
            let mut count = 0;
            for (score, member) in members.iter() {
                let (is_new, is_changed) = set_score(set, when, score, member);
                count += usize::from(is_new) + usize::from(is_changed && counts_changed);
            }
            number(count)
        }
        SortedCommand::Increment { when, by, member } => incremented(set, when, by, member),
        SortedCommand::Remove { members } => {
            let before = set.len();
            let wanted: Vec<&[u8]> = members.iter().flatten().collect();
            set.retain(|(_, member)| !wanted.contains(&&member[..]));
            number(before - set.len())
        }
        SortedCommand::Pop { count, from_greatest } => {
            let (range, offset) = (SortedRange::ALL, 0);
            let read = SortedRead { range, is_reverse: from_greatest, offset, limit: count };
            let popped = ranged(set, read);
            set.retain(|of| !popped.contains(of));
            list(&popped)
        }
        SortedCommand::RemoveRange { range } => {
            let removed = ranged(set, SortedRead::of(range));
            set.retain(|of| !removed.contains(of));
            number(removed.len())
        }
        other => panic!("{other:?} changes nothing"),
    }
}

/// The bytes of a reply, as a connection writes them.
fn written(form: ReplyForm, reply: OwnedReply, version: RespVersion) -> Vec<u8> {
    let (mut out, OwnedReply { status, number, mut value, .. }) = (Vec::new(), reply);
    if form.is_long()
        && let Some(mut long) = form.long_reply((status, number), &mut value)
    {
        while !long.write_piece(&mut out, version) {}
        return out;
    }
    let value = value.as_deref();
    form.write(&mut out, version, &[ShardAnswer { status, number, value }]);
    out
}
