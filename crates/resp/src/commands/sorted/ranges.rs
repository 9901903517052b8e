//! Ranges of sorted sets: by indexes, by scores and by members.

use super::bounds::{Unit, range};
use super::steps::StoreRange;
use super::words::{SORTED, TOO_LONG, WITH_SCORES, WRITES, request};
use crate::arguments::KEY;
use crate::error::CommandError;
use crate::form::{ObjectReply, ReplyForm, ScoredForm, Shape};
use crate::keys::Keys;
use crate::request::Request;
use crate::spec::{Argument, CommandSpec, Flag, KeyPlaces, Kind, ParseResult};
use crate::wire::Words;
use remora_protocol::integer;
use remora_protocol::sorted::{SortedCommand, SortedRange, SortedRead};

const START: Argument = Argument::new("start", Kind::Integer);
const STOP: Argument = Argument::new("stop", Kind::Integer);
const MIN: Argument = Argument::new("min", Kind::Double);
const MAX: Argument = Argument::new("max", Kind::Double);
const LOWEST: Argument = Argument::new("min", Kind::String);
const GREATEST: Argument = Argument::new("max", Kind::String);
const FIRST: Argument = Argument::new("start", Kind::String);
const LAST: Argument = Argument::new("stop", Kind::String);

const LIMIT: Argument = Argument::of(
    "limit",
    Kind::Block,
    &[Argument::new("offset", Kind::Integer), Argument::new("count", Kind::Integer)],
)
.after("LIMIT")
.optional();

const BY: Argument = Argument::of(
    "sortby",
    Kind::OneOf,
    &[Argument::word("byscore", "BYSCORE"), Argument::word("bylex", "BYLEX")],
)
.optional();

const REVERSE: Argument = Argument::word("rev", "REV").optional();

/// The cost of a range.
const RANGE_COST: &str =
    "O(log N + M) where N is the number of members and M that of members returned";

/// Commands that return members of a range.
const RANGES: CommandSpec =
    CommandSpec { arity: -4, flags: &[Flag::ReadOnly], complexity: RANGE_COST, ..SORTED };

/// Commands that remove the members of a range.
const REMOVES: CommandSpec = CommandSpec {
    arity: 4,
    flags: &[Flag::Write],
    keys: KeyPlaces::one(&["RW", "delete"]),
    complexity: "O(log N + M) where N is the number of members and M that of members removed",
    notes: "Returns the number of members removed. Many are removed in turns of some hundred, between \
which others see the set with the members that are left. The key is gone with its last member.",
    ..WRITES
};

/// The words of a range, and what is fixed by the command.
#[derive(Clone, Copy)]
struct Form {
    /// The place of the key; the bounds are behind it.
    key_at: usize,
    /// How the bounds are read, if no option says so.
    unit: Option<Unit>,
    /// The direction, if no option says so.
    is_reverse: Option<bool>,
    /// The result is stored.
    is_stored: bool,
}

const ANY: Form = Form { key_at: 1, unit: None, is_reverse: None, is_stored: false };

const fn fixed(unit: Unit, is_reverse: bool) -> Form {
    Form { unit: Some(unit), is_reverse: Some(is_reverse), ..ANY }
}

/// The read that the words ask for, and whether the reply has scores.
fn read(words: Words<'_>, form: Form) -> Result<(SortedRead<'_>, bool), CommandError> {
    let Form { key_at, mut unit, mut is_reverse, is_stored } = form;
    let (mut with_scores, mut offset, mut limit) = (false, 0, -1);
    let mut at = key_at + 3;
    while at < words.len() {
        if !is_stored && words.is(at, "withscores") {
            with_scores = true;
        } else if words.is(at, "limit") && at + 2 < words.len() {
            let number = |at| integer::parse(words.get(at)).ok_or(CommandError::NotAnInteger);
            (offset, limit) = (number(at + 1)?, number(at + 2)?);
            at += 2;
        } else if is_reverse.is_none() && words.is(at, "rev") {
            is_reverse = Some(true);
        } else if unit.is_none() && words.is(at, "bylex") {
            unit = Some(Unit::Lex);
        } else if unit.is_none() && words.is(at, "byscore") {
            unit = Some(Unit::Score);
        } else {
            return Err(CommandError::Syntax);
        }
        at += 1;
    }
    let (unit, is_reverse) = (unit.unwrap_or(Unit::Index), is_reverse.unwrap_or(false));
    if unit == Unit::Index && limit != -1 {
        return Err(CommandError::LimitByIndex);
    }
    if unit == Unit::Lex && with_scores {
        return Err(CommandError::ScoresByLex);
    }
    let (first, second) = (words.get(key_at + 1), words.get(key_at + 2));
    let is_swapped = is_reverse && unit != Unit::Index;
    let range = range(unit, if is_swapped { (second, first) } else { (first, second) })?;
    let (offset, limit) = match (unit, u64::try_from(offset)) {
        (Unit::Index, _) => (0, u64::MAX),
        // Redis leaves out all members then.
        (_, Err(_)) => (0, 0),
        (_, Ok(offset)) => (offset, u64::try_from(limit).unwrap_or(u64::MAX)),
    };
    Ok((SortedRead { range, is_reverse, offset, limit }, with_scores))
}

/// The replies of a command: without scores and with them.
struct Replies {
    plain: ObjectReply,
    with_scores: ObjectReply,
}

impl Replies {
    const fn of(command: &'static str) -> Self {
        Self {
            plain: of(command, ScoredForm::Members),
            with_scores: of(command, ScoredForm::Pairs),
        }
    }
}

const fn of(command: &'static str, form: ScoredForm) -> ObjectReply {
    ObjectReply { command, shape: Shape::Scored(form), errors: TOO_LONG }
}

fn ranged<'a>(words: Words<'a>, form: Form, replies: &'static Replies) -> ParseResult<'a> {
    let (read, with_scores) = read(words, form)?;
    let reply = if with_scores { &replies.with_scores } else { &replies.plain };
    request(words, SortedCommand::Range(read), reply)
}

const ZRANGE: CommandSpec = CommandSpec {
    name: "zrange",
    summary: "Returns the members of a range, in order.",
    notes: "By indexes, from 0 on; below 0 from the end. BYSCORE: by scores, which are excluded behind \
a parenthesis. BYLEX: by members, included behind a bracket or excluded behind a parenthesis, - and + being \
before and behind all; it makes sense where all members have one score. REV begins with the greatest \
member, and BYSCORE and BYLEX then take the greater bound first. LIMIT leaves out members, and ends after \
some; a count below 0 is none. WITHSCORES adds the scores. A long range is as it is when the command \
begins; it is read in turns, between which the shard does other work. A client that reads so slowly that an \
eighth of the shard's memory is taken by what is changed and still to be sent loses its connection.",
    arguments: &[KEY, FIRST, LAST, BY, REVERSE, LIMIT, WITH_SCORES],
    parse: |words, _| ranged(words, ANY, &RANGE),
    ..RANGES
};

static RANGE: Replies = Replies::of("zrange");

const ZREVRANGE: CommandSpec = CommandSpec {
    name: "zrevrange",
    summary: "Returns the members of a range of indexes, the greatest first.",
    notes: "See ZRANGE with REV.",
    arguments: &[KEY, START, STOP, WITH_SCORES],
    parse: |words, _| ranged(words, fixed(Unit::Index, true), &BACK_RANGE),
    ..RANGES
};

static BACK_RANGE: Replies = Replies::of("zrevrange");

const ZRANGEBYSCORE: CommandSpec = CommandSpec {
    name: "zrangebyscore",
    since: "1.0.5",
    summary: "Returns the members of a range of scores.",
    notes: "See ZRANGE with BYSCORE.",
    arguments: &[KEY, MIN, MAX, WITH_SCORES, LIMIT],
    parse: |words, _| ranged(words, fixed(Unit::Score, false), &BY_SCORE),
    ..RANGES
};

static BY_SCORE: Replies = Replies::of("zrangebyscore");

const ZREVRANGEBYSCORE: CommandSpec = CommandSpec {
    name: "zrevrangebyscore",
    since: "2.2.0",
    summary: "Returns the members of a range of scores, the greatest first.",
    notes: "See ZRANGE with BYSCORE and REV.",
    arguments: &[KEY, MAX, MIN, WITH_SCORES, LIMIT],
    parse: |words, _| ranged(words, fixed(Unit::Score, true), &BACK_BY_SCORE),
    ..RANGES
};

static BACK_BY_SCORE: Replies = Replies::of("zrevrangebyscore");

const ZRANGEBYLEX: CommandSpec = CommandSpec {
    name: "zrangebylex",
    since: "2.8.9",
    summary: "Returns the members between two members.",
    notes: "See ZRANGE with BYLEX.",
    arguments: &[KEY, LOWEST, GREATEST, LIMIT],
    parse: |words, _| ranged(words, fixed(Unit::Lex, false), &BY_LEX),
    ..RANGES
};

static BY_LEX: Replies = Replies::of("zrangebylex");

const ZREVRANGEBYLEX: CommandSpec = CommandSpec {
    name: "zrevrangebylex",
    since: "2.8.9",
    summary: "Returns the members between two members, the greatest first.",
    notes: "See ZRANGE with BYLEX and REV.",
    arguments: &[KEY, GREATEST, LOWEST, LIMIT],
    parse: |words, _| ranged(words, fixed(Unit::Lex, true), &BACK_BY_LEX),
    ..RANGES
};

static BACK_BY_LEX: Replies = Replies::of("zrevrangebylex");

const ZRANGESTORE: CommandSpec = CommandSpec {
    name: "zrangestore",
    arity: -5,
    flags: &[Flag::Write, Flag::DenyOom],
    keys: KeyPlaces::two(&["OW", "update"], &["RO", "access"]),
    since: "6.2.0",
    summary: "Stores the members of a range at another key; returns their number.",
    complexity: "O(log N + M log M) where N is the number of members and M that of members stored",
    notes: "The range is read as by ZRANGE; then the other key gets it as one change, in the place of what \
it held. Without members that key is removed.",
    arguments: &[
        Argument::new("dst", Kind::Key),
        Argument::new("src", Kind::Key),
        LOWEST,
        GREATEST,
        BY,
        REVERSE,
        LIMIT,
    ],
    parse: zrangestore,
    ..WRITES
};

static STORED: ObjectReply =
    ObjectReply { command: "zrangestore", shape: Shape::Number, errors: TOO_LONG };

fn zrangestore(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    let (read, _) = read(words, Form { key_at: 2, is_stored: true, ..ANY })?;
    let (keys, steps) = (Keys::within(words, 1, 3)?, Box::new(StoreRange::new(read)));
    Ok(Request::Steps { keys, steps, form: ReplyForm::Object(&STORED) })
}

/// The range between the two words behind the key.
fn bounds(words: Words<'_>, unit: Unit) -> Result<SortedRange<'_>, CommandError> {
    range(unit, (words.get(2), words.get(3)))
}

fn count<'a>(words: Words<'a>, unit: Unit, reply: &'static ObjectReply) -> ParseResult<'a> {
    request(words, SortedCommand::Count { range: bounds(words, unit)? }, reply)
}

const ZCOUNT: CommandSpec = CommandSpec {
    name: "zcount",
    arity: 4,
    since: "2.0.0",
    summary: "Returns the number of members of a range of scores.",
    arguments: &[KEY, MIN, MAX],
    parse: |words, _| count(words, Unit::Score, &COUNTED),
    ..SORTED
};

static COUNTED: ObjectReply = ObjectReply::new("zcount", Shape::Number);

const ZLEXCOUNT: CommandSpec = CommandSpec {
    name: "zlexcount",
    arity: 4,
    since: "2.8.9",
    summary: "Returns the number of members between two members.",
    arguments: &[KEY, LOWEST, GREATEST],
    parse: |words, _| count(words, Unit::Lex, &COUNTED_BY_LEX),
    ..SORTED
};

static COUNTED_BY_LEX: ObjectReply = ObjectReply::new("zlexcount", Shape::Number);

fn remove<'a>(words: Words<'a>, unit: Unit, reply: &'static ObjectReply) -> ParseResult<'a> {
    request(words, SortedCommand::RemoveRange { range: bounds(words, unit)? }, reply)
}

const ZREMRANGEBYRANK: CommandSpec = CommandSpec {
    name: "zremrangebyrank",
    since: "2.0.0",
    summary: "Removes the members of a range of indexes.",
    arguments: &[KEY, START, STOP],
    parse: |words, _| remove(words, Unit::Index, &REMOVED_BY_RANK),
    ..REMOVES
};

static REMOVED_BY_RANK: ObjectReply = ObjectReply::new("zremrangebyrank", Shape::Number);

const ZREMRANGEBYSCORE: CommandSpec = CommandSpec {
    name: "zremrangebyscore",
    summary: "Removes the members of a range of scores.",
    arguments: &[KEY, MIN, MAX],
    parse: |words, _| remove(words, Unit::Score, &REMOVED_BY_SCORE),
    ..REMOVES
};

static REMOVED_BY_SCORE: ObjectReply = ObjectReply::new("zremrangebyscore", Shape::Number);

const ZREMRANGEBYLEX: CommandSpec = CommandSpec {
    name: "zremrangebylex",
    since: "2.8.9",
    summary: "Removes the members between two members.",
    arguments: &[KEY, LOWEST, GREATEST],
    parse: |words, _| remove(words, Unit::Lex, &REMOVED_BY_LEX),
    ..REMOVES
};

static REMOVED_BY_LEX: ObjectReply = ObjectReply::new("zremrangebylex", Shape::Number);

/// The commands.
pub(crate) const COMMANDS: &[CommandSpec] = &[
    ZCOUNT,
    ZLEXCOUNT,
    ZRANGE,
    ZRANGEBYLEX,
    ZRANGEBYSCORE,
    ZRANGESTORE,
    ZREMRANGEBYLEX,
    ZREMRANGEBYRANK,
    ZREMRANGEBYSCORE,
    ZREVRANGE,
    ZREVRANGEBYLEX,
    ZREVRANGEBYSCORE,
];
