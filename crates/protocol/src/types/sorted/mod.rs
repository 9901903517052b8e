//! The operations on sorted sets, and their encoding. A sorted set whose scores are geohashes is what
//! Redis calls a GEO key.

mod range;
mod scored;
mod sources;
mod when;

pub use range::{SortedRange, SortedRead};
pub use remora_layout::limits::MAX_SORTED_MEMBER_BYTES;
pub use scored::Scored;
pub use sources::{Aggregate, Sources};
pub use when::{Comparison, When};

pub use crate::types::elements::Combination;

use crate::items::Items;
use crate::message::Status;
use crate::types::elements::{list, scan_options};
use crate::types::geo::GeoQuery;
use crate::types::operation::{Encoded, Operation};
use remora_layout::kind::Kind;
use remora_layout::limits::MAX_COMMAND_MEMBERS;

/// One request about a sorted set. A key that holds something else is `WrongType`; one that holds
/// nothing is as an empty set, and a set without members is no more. A score of -0 is kept as 0. Members are in the order of their
/// scores, those with one score in the order of their bytes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum SortedCommand<'a> {
    /// Adds members, or gives them other scores; `number` counts the new ones. Many
    /// members of a large set are several changes: out of memory, those before stay, and are counted.
    Add {
        /// Which of them.
        when: When,
        /// `number` counts those with another score too.
        counts_changed: bool,
        /// The members with their scores, one after the other: at least one.
        members: Scored<'a>,
    },
    /// Adds to the score of a member, 0 if it is not there. The value is the new score, 8 bytes.
    /// `NotDone` if `when` forbids it, `NotANumber` if the sum would be NaN.
    Increment {
        /// When.
        when: When,
        /// The summand; not NaN.
        by: f64,
        /// The member.
        member: &'a [u8],
    },
    /// Removes members; `number` counts those that were there.
    Remove {
        /// The members: at least one.
        members: Items<'a>,
    },
    /// The key holds these members, and nothing else, whatever it held; without any it holds nothing.
    /// `number` counts them.
    Store {
        /// The members with their scores, each once.
        members: Scored<'a>,
    },
    /// Removes the first members, and gives them as [`Scored`] in the order of their removal; `number`
    /// counts them. More than [`MAX_COMMAND_MEMBERS`] go in turns, in pieces, each of them a change; it ends
    /// early where the reply would become too long.
    Pop {
        /// Most members.
        count: u64,
        /// The last members, from the greatest.
        from_greatest: bool,
    },
    /// Removes the members of a range; `number` counts them. Many go in turns, in pieces, each of them a
    /// change.
    RemoveRange {
        /// The range.
        range: SortedRange<'a>,
    },
    /// `number` is that of the members.
    Length,
    /// The value is the score of a member, 8 bytes; `NotFound` unless it is there. The pointer is to the
    /// record that holds it, and `number` is the word of the root record on which that depends
    /// ([`remora_layout::part::root_word`]), 0 if on none. A small set, whose record holds all members,
    /// gives the pointer also with `NotFound`.
    Score {
        /// The member.
        member: &'a [u8],
    },
    /// The value is the scores of members, 8 bytes each, NaN for absent ones; `number` is 1 if the key
    /// is there.
    Scores {
        /// The members; there may be none.
        members: Items<'a>,
    },
    /// `number` is that of the members before this one, and the value is its score, 8 bytes; `NotFound`
    /// unless it is there.
    Rank {
        /// The member.
        member: &'a [u8],
        /// Those behind it count instead.
        is_reverse: bool,
    },
    /// `number` is that of the members of a range.
    Count {
        /// The range.
        range: SortedRange<'a>,
    },
    /// The members of a range, as [`Scored`] in order, as the set was when the read began; `number`
    /// counts them. Answered in turns, unless they are few.
    Range(SortedRead<'a>),
    /// As [`SortedCommand::Range`], in one reply, which has its limit: for one that carries on with all of it.
    Collect(SortedRead<'a>),
    /// Random members, as [`Scored`]; `number` counts them. Answered in turns.
    Random {
        /// Most different members; below 0: this many, with repetitions allowed.
        count: i64,
    },
    /// Some members, as [`Scored`]; `number` is the cursor with which to continue, 0 at the end. A
    /// member that is there all the time is returned at least once.
    Scan {
        /// Where to continue; 0 to begin.
        cursor: u64,
        /// Members to match, if not all; and how many to look at, as eight bytes.
        options: Items<'a>,
    },
    /// The members of several sorted sets and sets of the shard, combined, as [`Scored`] in no order, as
    /// the sets were when the read began; `number` counts them. A set's members have the score 1. As sums
    /// depend on the order, unions and intersections take the set with the fewest members first, those
    /// found before not counted. Answered in turns.
    Combine {
        /// How.
        how: Combination,
        /// What becomes of a member's scores; of a difference it is the one in the first set.
        aggregate: Aggregate,
        /// The sets, and their weights.
        sources: Sources<'a>,
        /// Only their number is wanted, up to this many, if not 0.
        count_to: Option<u64>,
    },
    /// The value is the members found by their places, as [`Members`](crate::geo::Members) in no order;
    /// `NotFound` without the key, `NotDone` without the member that is the centre. `number` is the word
    /// of the `NodeRef` to the R-tree of the set, for a client that reads it; 0 if it cannot be read.
    Search {
        /// The query.
        query: GeoQuery<'a>,
    },
}

/// Numbers of the operations.
mod op {
    pub const ADD: u8 = 0;
    pub const INCREMENT: u8 = 1;
    pub const REMOVE: u8 = 2;
    pub const STORE: u8 = 3;
    pub const POP: u8 = 4;
    pub const REMOVE_RANGE: u8 = 5;
    pub const LENGTH: u8 = 6;
    pub const SCORE: u8 = 7;
    pub const SCORES: u8 = 8;
    pub const RANK: u8 = 9;
    pub const COUNT: u8 = 10;
    pub const RANGE: u8 = 11;
    pub const RANDOM: u8 = 12;
    pub const SCAN: u8 = 13;
    pub const COMBINE: u8 = 14;
    pub const SEARCH: u8 = 15;
    pub const COLLECT: u8 = 16;
}

/// Flag of [`op::ADD`] beside its [`When`].
const COUNTS_CHANGED: u8 = 16;
/// Flag of [`op::POP`] and [`op::RANK`].
const FROM_GREATEST: u8 = 1;
/// Flags of [`op::COMBINE`] beside the combination, and where those of the aggregate begin.
const HAS_BEFORE: u8 = 4;
const COUNTS: u8 = 8;
const AGGREGATE_SHIFT: u8 = 4;

/// Members with their scores, as many as one command may have: it is one turn of its shard.
fn scored(value: &[u8]) -> Result<Scored<'_>, Status> {
    let members = Scored::parse(value).ok_or(Status::Malformed)?;
    match members.iter().nth(MAX_COMMAND_MEMBERS) {
        Some(_) => Err(Status::TooLarge),
        None => Ok(members),
    }
}

/// A list of members, of at most as many.
fn any(value: &[u8]) -> Result<Items<'_>, Status> {
    if value.is_empty() {
        return Items::parse(value).ok_or(Status::Malformed);
    }
    let items = list(value, 1)?;
    let is_short = items.iter().flatten().all(|of| of.len() <= MAX_SORTED_MEMBER_BYTES)
        && items.iter().nth(MAX_COMMAND_MEMBERS).is_none();
    if is_short { Ok(items) } else { Err(Status::TooLarge) }
}

fn one(value: &[u8]) -> Result<&[u8], Status> {
    if value.len() <= MAX_SORTED_MEMBER_BYTES { Ok(value) } else { Err(Status::TooLarge) }
}

fn is_from_greatest(flags: u8) -> Result<bool, Status> {
    match flags {
        0 => Ok(false),
        FROM_GREATEST => Ok(true),
        _ => Err(Status::Malformed),
    }
}

fn combine<'a>(flags: u8, argument: i64, value: &'a [u8]) -> Result<SortedCommand<'a>, Status> {
    let how = Combination::of(flags & 3).ok_or(Status::Malformed)?;
    let aggregate = Aggregate::of(flags >> AGGREGATE_SHIFT).ok_or(Status::Malformed)?;
    let sources = Sources::parse(flags & HAS_BEFORE != 0, value)?;
    let count_to = (flags & COUNTS != 0).then_some(argument as u64);
    if argument < 0 || (count_to.is_none() && argument != 0) {
        return Err(Status::Malformed);
    }
    Ok(SortedCommand::Combine { how, aggregate, sources, count_to })
}

impl<'a> Operation<'a> for SortedCommand<'a> {
    const KIND: Kind = Kind::SORTED_SET;
    const COUNT: u8 = op::COLLECT + 1;

    fn decode(from: Encoded<'a>) -> Result<Self, Status> {
        let Encoded { op, flags, argument, value } = from;
        let uses_argument = matches!(
            op,
            op::INCREMENT | op::POP | op::RANGE | op::COLLECT | op::RANDOM | op::SCAN | op::COMBINE
        );
        let has_range = matches!(op, op::REMOVE_RANGE | op::COUNT | op::RANGE | op::COLLECT);
        let uses_flags =
            has_range || matches!(op, op::ADD | op::INCREMENT | op::POP | op::RANK | op::COMBINE);
        let uses_value = !matches!(op, op::POP | op::LENGTH | op::RANDOM);
        if (flags != 0 && !uses_flags)
            || (argument != 0 && !uses_argument)
            || (!value.is_empty() && !uses_value)
        {
            return Err(Status::Malformed);
        }
        Ok(match op {
            op::ADD if value.is_empty() || flags & !(When::MASK | COUNTS_CHANGED) != 0 => {
                return Err(Status::Malformed);
            }
            op::ADD => Self::Add {
                when: When::decode(flags & When::MASK)?,
                counts_changed: flags & COUNTS_CHANGED != 0,
                members: scored(value)?,
            },
            op::INCREMENT => {
                let by = f64::from_bits(argument as u64);
                if by.is_nan() || flags & !When::MASK != 0 {
                    return Err(Status::Malformed);
                }
                Self::Increment { when: When::decode(flags)?, by, member: one(value)? }
            }
            op::REMOVE if value.is_empty() => return Err(Status::Malformed),
            op::REMOVE => Self::Remove { members: any(value)? },
            op::STORE => Self::Store { members: scored(value)? },
            op::POP => Self::Pop {
                count: u64::try_from(argument).map_err(|_| Status::Malformed)?,
                from_greatest: is_from_greatest(flags)?,
            },
            op::REMOVE_RANGE => Self::RemoveRange { range: SortedRange::decode(flags, value)? },
            op::LENGTH => Self::Length,
            op::SCORE => Self::Score { member: one(value)? },
            op::SCORES => Self::Scores { members: any(value)? },
            op::RANK => Self::Rank { member: one(value)?, is_reverse: is_from_greatest(flags)? },
            op::COUNT => Self::Count { range: SortedRange::decode(flags, value)? },
            op::RANGE => Self::Range(SortedRead::decode(flags, argument, value)?),
            op::COLLECT => Self::Collect(SortedRead::decode(flags, argument, value)?),
            op::RANDOM => Self::Random { count: argument },
            op::SCAN => Self::Scan { cursor: argument as u64, options: scan_options(value)? },
            op::COMBINE => combine(flags, argument, value)?,
            op::SEARCH => Self::Search { query: GeoQuery::parse(value).ok_or(Status::Malformed)? },
            _ => return Err(Status::Malformed),
        })
    }

    #[inline]
    fn encode<'s>(&'s self, scratch: &'s mut Vec<u8>) -> Encoded<'s> {
        let none: &[u8] = &[];
        let greatest = |is: bool| if is { FROM_GREATEST } else { 0 };
        let (op, flags, argument, value) = match *self {
            Self::Add { when, counts_changed, members } => {
                let counts = if counts_changed { COUNTS_CHANGED } else { 0 };
                (op::ADD, when.flags() | counts, 0, members.bytes())
            }
            Self::Increment { when, by, member } => {
                (op::INCREMENT, when.flags(), by.to_bits() as i64, member)
            }
            Self::Remove { members } => (op::REMOVE, 0, 0, members.bytes()),
            Self::Store { members } => (op::STORE, 0, 0, members.bytes()),
            Self::Pop { count, from_greatest } => {
                (op::POP, greatest(from_greatest), count as i64, none)
            }
            Self::Length => (op::LENGTH, 0, 0, none),
            Self::Score { member } => (op::SCORE, 0, 0, member),
            Self::Scores { members } => (op::SCORES, 0, 0, members.bytes()),
            Self::Rank { member, is_reverse } => (op::RANK, greatest(is_reverse), 0, member),
            Self::Random { count } => (op::RANDOM, 0, count, none),
            Self::Scan { cursor, options } => (op::SCAN, 0, cursor as i64, options.bytes()),
            Self::Search { query } => (op::SEARCH, 0, 0, query.bytes()),
            Self::Combine { how, aggregate, sources, count_to } => {
                let before = if sources.has_before() { HAS_BEFORE } else { 0 };
                let counts = if count_to.is_some() { COUNTS } else { 0 };
                let flags = how as u8 | before | counts | (aggregate as u8) << AGGREGATE_SHIFT;
                (op::COMBINE, flags, count_to.unwrap_or(0) as i64, sources.bytes())
            }
            Self::RemoveRange { range } | Self::Count { range } => {
                scratch.clear();
                let is_count = matches!(self, Self::Count { .. });
                let op = if is_count { op::COUNT } else { op::REMOVE_RANGE };
                (op, range.encode(scratch), 0, &scratch[..])
            }
            Self::Range(read) | Self::Collect(read) => {
                scratch.clear();
                let op = if matches!(self, Self::Range(_)) { op::RANGE } else { op::COLLECT };
                (op, read.encode(scratch), read.offset as i64, &scratch[..])
            }
        };
        Encoded { op, flags, argument, value }
    }

    fn command_name(&self) -> &'static str {
        match *self {
            Self::Add { .. } => "zadd",
            Self::Increment { .. } => "zincrby",
            Self::Remove { .. } => "zrem",
            Self::Store { .. } => "zunionstore",
            Self::Pop { from_greatest: false, .. } => "zpopmin",
            Self::Pop { from_greatest: true, .. } => "zpopmax",
            Self::RemoveRange { range: SortedRange::Index { .. } } => "zremrangebyrank",
            Self::RemoveRange { range: SortedRange::Score { .. } } => "zremrangebyscore",
            Self::RemoveRange { range: SortedRange::Lex { .. } } => "zremrangebylex",
            Self::Length => "zcard",
            Self::Score { .. } => "zscore",
            Self::Scores { .. } => "zmscore",
            Self::Rank { is_reverse: false, .. } => "zrank",
            Self::Rank { is_reverse: true, .. } => "zrevrank",
            Self::Count { range: SortedRange::Lex { .. } } => "zlexcount",
            Self::Count { .. } => "zcount",
            Self::Range(_) | Self::Collect(_) => "zrange",
            Self::Random { .. } => "zrandmember",
            Self::Scan { .. } => "zscan",
            Self::Combine { how: Combination::Inter, count_to: Some(_), .. } => "zintercard",
            Self::Combine { how: Combination::Inter, .. } => "zinter",
            Self::Combine { how: Combination::Union, .. } => "zunion",
            Self::Combine { how: Combination::Diff, .. } => "zdiff",
            Self::Search { .. } => "geosearch",
        }
    }

    fn is_write(&self) -> bool {
        let removes =
            matches!(self, Self::Remove { .. } | Self::Pop { .. } | Self::RemoveRange { .. });
        removes || self.grows()
    }

    fn grows(&self) -> bool {
        matches!(self, Self::Add { .. } | Self::Increment { .. } | Self::Store { .. })
    }

    fn is_long(&self) -> bool {
        match self {
            Self::Random { .. } | Self::Combine { .. } | Self::Search { .. } => true,
            Self::Pop { count, .. } => *count > MAX_COMMAND_MEMBERS as u64,
            _ => false,
        }
    }

    fn has_other_keys(&self) -> bool {
        matches!(self, Self::Combine { .. })
    }

    fn other_keys(&self) -> Vec<&'a [u8]> {
        match *self {
            Self::Combine { sources, .. } => sources.others().map(|(key, _)| key).collect(),
            _ => Vec::new(),
        }
    }

    fn may_have_parts(&self) -> bool {
        match self {
            Self::Range(_) | Self::Collect(_) | Self::RemoveRange { .. } => true,
            Self::Pop { count, .. } => *count > 1,
            _ => self.is_long(),
        }
    }
}

#[cfg(test)]
mod tests;
