//! What is encoded comes back, and nothing else does.

use super::*;
use crate::command::Condition;
use crate::geo::{Centre, GeoSearch, Position, Shape};
use std::ops::Bound;

/// A value with its wrong neighbours: each flag and argument that the operation does not use is refused,
/// and so is a value that is cut or has more bytes.
fn comes_back(command: SortedCommand<'_>) {
    let mut scratch = Vec::new();
    let encoded = command.encode(&mut scratch);
    assert_eq!(SortedCommand::decode(encoded), Ok(command));
    for flags in 0..=u8::MAX {
        let mut again = Vec::new();
        let from = Encoded { flags, ..encoded };
        if let Ok(other) = SortedCommand::decode(from) {
            assert_eq!(other.encode(&mut again), from, "one encoding each");
        }
    }
    for argument in [-1, 1, i64::MIN, f64::NAN.to_bits() as i64] {
        let mut again = Vec::new();
        let from = Encoded { argument, ..encoded };
        if let Ok(other) = SortedCommand::decode(from) {
            assert_eq!(other.encode(&mut again), from, "one encoding each");
        }
    }
    for cut in 0..encoded.value.len() {
        let mut again = Vec::new();
        let from = Encoded { value: &encoded.value[..cut], ..encoded };
        if let Ok(other) = SortedCommand::decode(from) {
            assert_eq!(other.encode(&mut again), from, "one encoding each");
        }
    }
}

fn scored_list() -> Vec<u8> {
    let mut list = Vec::new();
    Scored::push(&mut list, -1.5, b"one");
    Scored::push(&mut list, f64::INFINITY, b"");
    list
}

fn member_list() -> Vec<u8> {
    let mut list = Vec::new();
    Items::push(&mut list, b"one");
    Items::push(&mut list, b"");
    list
}

/// Every way in which members may be added.
fn whens() -> Vec<When> {
    let comparisons = [Comparison::Any, Comparison::Greater, Comparison::Less];
    let mut all = vec![When { condition: Condition::IfAbsent, comparison: Comparison::Any }];
    for condition in [Condition::Always, Condition::IfPresent] {
        all.extend(comparisons.map(|comparison| When { condition, comparison }));
    }
    all
}

#[test]
fn changes_come_back() {
    let (scored, members) = (scored_list(), member_list());
    let members = Items::parse(&members).unwrap();
    let scored = Scored::parse(&scored).unwrap();
    for when in whens() {
        comes_back(SortedCommand::Add { when, counts_changed: true, members: scored });
        comes_back(SortedCommand::Add { when, counts_changed: false, members: scored });
        comes_back(SortedCommand::Increment { when, by: f64::NEG_INFINITY, member: b"m" });
    }
    comes_back(SortedCommand::Increment { when: When::default(), by: -0.0, member: b"" });
    comes_back(SortedCommand::Remove { members });
    comes_back(SortedCommand::Store { members: scored });
    comes_back(SortedCommand::Store { members: Scored::NONE });
    comes_back(SortedCommand::Pop { count: 0, from_greatest: false });
    comes_back(SortedCommand::Pop { count: i64::MAX as u64, from_greatest: true });
}

fn ranges() -> Vec<SortedRange<'static>> {
    let scores = [Bound::Unbounded, Bound::Included(f64::NEG_INFINITY), Bound::Excluded(2.5)];
    let members = [Bound::Unbounded, Bound::Included(&b""[..]), Bound::Excluded(b"member")];
    let indexes = [(0, -1), (i64::MIN, i64::MAX), (3, 1)];
    let mut all: Vec<_> =
        indexes.map(|(start, stop)| SortedRange::Index { start, stop }).into_iter().collect();
    for at in 0..9 {
        all.push(SortedRange::Score { from: scores[at / 3], to: scores[at % 3] });
        all.push(SortedRange::Lex { from: members[at / 3], to: members[at % 3] });
    }
    all
}

#[test]
fn reads_come_back() {
    for range in ranges() {
        comes_back(SortedCommand::Count { range });
        comes_back(SortedCommand::RemoveRange { range });
        comes_back(SortedCommand::Range(SortedRead::of(range)));
        comes_back(SortedCommand::Collect(SortedRead::of(range)));
        let (offset, limit) = (u64::MAX, 7);
        comes_back(SortedCommand::Range(SortedRead { range, is_reverse: true, offset, limit }));
    }
    let (members, mut options) = (member_list(), Vec::new());
    Items::push_none(&mut options);
    Items::push(&mut options, &7u64.to_le_bytes());
    let options = Items::parse(&options).unwrap();
    let mut query = Vec::new();
    let at = Position::new(1.0, 2.0).unwrap();
    let shape = Shape::Circle { radius: 3.0 };
    GeoSearch { centre: Centre::At(at), shape, enough: 4 }.write(&mut query);
    for command in [
        SortedCommand::Length,
        SortedCommand::Score { member: b"" },
        SortedCommand::Scores { members: Items::parse(&members).unwrap() },
        SortedCommand::Scores { members: Items::parse(b"").unwrap() },
        SortedCommand::Rank { member: b"m", is_reverse: false },
        SortedCommand::Rank { member: b"m", is_reverse: true },
        SortedCommand::Random { count: i64::MIN },
        SortedCommand::Scan { cursor: u64::MAX, options },
        SortedCommand::Search { query: GeoQuery::parse(&query).unwrap() },
    ] {
        comes_back(command);
    }
}

#[test]
fn combinations_come_back() {
    let (found, mut items) = (scored_list(), Vec::new());
    let others = [(&b"a"[..], 2.0), (b"", f64::NEG_INFINITY)];
    for before in [None, Some(&found[..]), Some(b"")] {
        for count in 0..=others.len() {
            Sources::write(&mut items, before, 0.5, others[..count].iter().copied());
            let sources = Sources::parse(before.is_some(), &items).unwrap();
            assert_eq!((sources.before(), sources.own_weight()), (before, 0.5));
            assert!(sources.others().eq(others[..count].iter().copied()));
            for (how, aggregate, count_to) in [
                (Combination::Union, Aggregate::Sum, None),
                (Combination::Inter, Aggregate::Max, Some(0)),
                (Combination::Diff, Aggregate::Min, Some(9)),
            ] {
                comes_back(SortedCommand::Combine { how, aggregate, sources, count_to });
            }
        }
    }
    Sources::write(&mut items, None, f64::NAN, [].into_iter());
    assert_eq!(Sources::parse(false, &items), Err(Status::Malformed));
    Sources::write(&mut items, None, 1.0, [(&b"key"[..], f64::NAN)].into_iter());
    assert_eq!(Sources::parse(false, &items), Err(Status::Malformed));
    assert_eq!(Sources::parse(true, &items), Err(Status::Malformed), "a weight is no list");
}

fn status(op: u8, value: &[u8]) -> Option<Status> {
    SortedCommand::decode(Encoded { op, flags: 0, argument: 0, value }).err()
}

#[test]
fn limits_hold() {
    let long = vec![b'm'; MAX_SORTED_MEMBER_BYTES + 1];
    assert_eq!(status(op::SCORE, &long[1..]), None);
    assert_eq!(status(op::SCORE, &long), Some(Status::TooLarge));
    assert_eq!(status(op::RANK, &long), Some(Status::TooLarge));
    assert_eq!(status(op::ADD, b""), Some(Status::Malformed));
    assert_eq!(status(op::REMOVE, b""), Some(Status::Malformed));
    let mut list = Vec::new();
    Items::push(&mut list, &long);
    assert_eq!(status(op::REMOVE, &list), Some(Status::TooLarge));
    let (mut scored, mut members) = (Vec::new(), Vec::new());
    for _ in 0..MAX_COMMAND_MEMBERS {
        Scored::push(&mut scored, 1.0, b"m");
        Items::push(&mut members, b"m");
    }
    let [scores, names] = [(op::ADD, &mut scored), (op::SCORES, &mut members)].map(|(op, list)| {
        let allowed = status(op, list);
        let one = list[..list.len() / MAX_COMMAND_MEMBERS].to_vec();
        list.extend(one);
        (allowed, status(op, list))
    });
    assert_eq!(scores, (None, Some(Status::TooLarge)));
    assert_eq!(names, (None, Some(Status::TooLarge)));
    assert_eq!(status(op::STORE, &scored), Some(Status::TooLarge));
    assert_eq!(status(op::REMOVE, &members), Some(Status::TooLarge));
}

#[test]
fn what_may_be_short_is_tried_at_once() {
    let read = SortedRead::of(SortedRange::ALL);
    let pop = |count| SortedCommand::Pop { count, from_greatest: false };
    let tried = [
        SortedCommand::Range(read),
        SortedCommand::Collect(read),
        SortedCommand::RemoveRange { range: SortedRange::ALL },
        pop(2),
    ];
    assert!(tried.iter().all(|of| !of.is_long() && of.may_have_parts()));
    assert!(!pop(1).may_have_parts() && pop(MAX_COMMAND_MEMBERS as u64 + 1).is_long());
    assert!(SortedCommand::Random { count: 1 }.is_long());
}
