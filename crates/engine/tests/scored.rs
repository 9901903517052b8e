//! Sorted sets as tests of several features make them, and what they must be: a map of members, and
//! the order of their scores.

use remora_engine::{Now, Shard};
use remora_protocol::message::Status;
use remora_protocol::sorted::{Scored, SortedCommand, SortedRange, SortedRead, When};
use remora_protocol::{Command, Items};
use std::collections::BTreeMap;
use std::ops::{Bound, RangeBounds};

/// Scores by member.
pub type Members = BTreeMap<Vec<u8>, f64>;
/// The bits of a score, and a member: -0 is not 0.
pub type Entry = (u64, Vec<u8>);
/// Status, number and value of a reply.
pub type Answer = (Status, i64, Option<Vec<u8>>);

/// An encoded list of members with their scores.
pub fn scored<'m>(members: impl IntoIterator<Item = (f64, &'m [u8])>) -> Vec<u8> {
    let mut list = Vec::new();
    members.into_iter().for_each(|(score, member)| Scored::push(&mut list, score, member));
    list
}

/// An encoded list of the names in a list of members with their scores.
pub fn names(scored: &[u8]) -> Vec<u8> {
    let mut list = Vec::new();
    Scored::in_list(scored).for_each(|(_, member)| Items::push(&mut list, member));
    list
}

/// Adds the members of an encoded list.
pub fn add(list: &[u8]) -> SortedCommand<'_> {
    let members = Scored::parse(list).unwrap();
    SortedCommand::Add { when: When::default(), counts_changed: false, members }
}

/// The key holds the members of an encoded list, and nothing else.
pub fn store(list: &[u8]) -> SortedCommand<'_> {
    SortedCommand::Store { members: Scored::parse(list).unwrap() }
}

/// Removes the members of an encoded list of names.
pub fn remove(names: &[u8]) -> SortedCommand<'_> {
    SortedCommand::Remove { members: Items::parse(names).unwrap() }
}

/// Executes a command of database 0.
pub fn ask(shard: &mut Shard, command: &Command<'_>, now: Now) -> Answer {
    let hash = shard.hash(command.key().unwrap_or_default());
    let reply = shard.execute(command, hash, now);
    (reply.status, reply.number, reply.value.map(<[u8]>::to_vec))
}

/// What an operation in turns gives, its number and its turns; something may happen between them.
pub fn in_turns(
    shard: &mut Shard,
    (key, command): (&[u8], SortedCommand<'_>),
    now: Now,
    mut between: impl FnMut(&mut Shard),
) -> Result<(Vec<u8>, i64, usize), Status> {
    let at = (key, shard.hash(key));
    let begun = shard.begin_read(at, command.request(), now);
    let mut read = begun.map_err(|reply| reply.status)?;
    let (mut found, mut turns) = (Vec::new(), 0);
    loop {
        let turn = shard.read_turn(&mut read, &mut found, now)?;
        turns += 1;
        if turn.ended {
            return Ok((found, turn.number, turns));
        }
        between(shard);
    }
}

/// Executes an operation, in turns if it asks for that.
pub fn of(shard: &mut Shard, key: &[u8], command: SortedCommand<'_>, now: Now) -> Answer {
    let answer = ask(shard, &Command::Of { key, request: command.request() }, now);
    if answer.0 != Status::NeedsBuffer {
        return answer;
    }
    match in_turns(shard, (key, command), now, |_| {}) {
        Ok((found, number, _)) => (Status::Ok, number, Some(found)),
        Err(status) => (status, 0, None),
    }
}

/// The members of a reply, as they come.
pub fn entries(value: &[u8]) -> Vec<Entry> {
    let members = Scored::parse(value).expect("a list of members").iter();
    members.map(|(score, member)| (score.to_bits(), member.to_vec())).collect()
}

/// All members in their order.
pub fn in_order(members: &Members) -> Vec<Entry> {
    let mut all: Vec<(f64, &Vec<u8>)> = members.iter().map(|(of, &score)| (score, of)).collect();
    all.sort_by(|one, other| one.partial_cmp(other).expect("no NaN"));
    all.into_iter().map(|(score, of)| (score.to_bits(), of.clone())).collect()
}

/// The part between two indexes, as Redis counts them.
fn between(mut all: Vec<Entry>, start: i64, stop: i64) -> Vec<Entry> {
    let length = all.len() as i128;
    let at = |index: i64| i128::from(index) + if index < 0 { length } else { 0 };
    let (start, stop) = (at(start).max(0), at(stop).min(length - 1));
    if start > stop {
        return Vec::new();
    }
    all.truncate(stop as usize + 1);
    all.split_off(start as usize)
}

/// What a read of these members must give.
pub fn in_range(members: &Members, read: &SortedRead<'_>) -> Vec<Entry> {
    let mut all = in_order(members);
    match read.range {
        SortedRange::Index { .. } => {}
        SortedRange::Score { from, to } => {
            all.retain(|(score, _)| (from, to).contains(&f64::from_bits(*score)));
        }
        SortedRange::Lex { from, to } => {
            let bounds: (Bound<&[u8]>, Bound<&[u8]>) = (from, to);
            all.retain(|(_, of)| RangeBounds::<[u8]>::contains(&bounds, &of[..]));
        }
    }
    if read.is_reverse {
        all.reverse();
    }
    if let SortedRange::Index { start, stop } = read.range {
        all = between(all, start, stop);
    }
    let to_size = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    all.into_iter().skip(to_size(read.offset)).take(to_size(read.limit)).collect()
}

/// All members of a key, in order.
pub fn all(shard: &mut Shard, key: &[u8], now: Now) -> Vec<Entry> {
    let range = SortedCommand::Range(SortedRead::of(SortedRange::ALL));
    let (status, number, value) = of(shard, key, range, now);
    assert_eq!(status, Status::Ok);
    let all = entries(&value.unwrap());
    assert_eq!(number as usize, all.len());
    all
}

/// Turns until nothing is left to do.
pub fn quiet(shard: &mut Shard, now: Now) {
    while shard.wants_release() {
        shard.release_some(now);
    }
}
