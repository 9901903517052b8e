//! Commands that take the lowest or the greatest members of sorted sets, and those that wait for some.

use super::reply::write_nested;
use super::steps::PopFirst;
use super::words::{NUMBER_OF_KEYS, TOO_LONG, WRITES, request};
use crate::arguments::{KEY, wait_until};
use crate::error::CommandError;
use crate::form::{ObjectReply, ReplyForm, ScoredForm, Shape};
use crate::keys::Keys;
use crate::numbers;
use crate::request::{Blocking, Request};
use crate::spec::{Argument, CommandSpec, Flag, KeyPlaces, Kind, ParseResult};
use crate::wire::{RespVersion, Words, encode};
use remora_frontend::ShardAnswer;
use remora_layout::limits::{MAX_COMMAND_MEMBERS, MAX_WAITED_KEYS};
use remora_protocol::message::Status;
use remora_protocol::sorted::{Scored, SortedCommand};
use remora_protocol::{Items, integer};

const TIMEOUT: Argument = Argument::new("timeout", Kind::Double);
const COUNT: Argument = Argument::new("count", Kind::Integer).after("COUNT").optional();
const WHERE: Argument = Argument::of(
    "where",
    Kind::OneOf,
    &[Argument::word("min", "MIN"), Argument::word("max", "MAX")],
);

/// Commands that take members of one set.
const TAKES: CommandSpec = CommandSpec {
    arity: -2,
    flags: &[Flag::Write, Flag::Fast],
    keys: KeyPlaces::one(&["RW", "access", "delete"]),
    since: "5.0.0",
    complexity: "O(M log N) where N is the number of members and M that of members returned",
    arguments: &[KEY, Argument::new("count", Kind::Integer).optional()],
    ..WRITES
};

/// Commands that take members of the first of some sets that is there.
const TAKES_FIRST: CommandSpec = CommandSpec {
    arity: -4,
    flags: &[Flag::Write, Flag::MovableKeys],
    keys: KeyPlaces::counted(1, TAKES.keys.access),
    since: "7.0.0",
    complexity: "O(K + M log N) where K is the number of keys, N that of members and M that of \
members returned",
    ..TAKES
};

/// Commands that wait for a member of some sets.
const WAITS: CommandSpec = CommandSpec {
    arity: -3,
    flags: &[Flag::Write, Flag::NoScript, Flag::Fast, Flag::Blocking],
    keys: KeyPlaces { first: 1, last: -2, step: 1, access: TAKES.keys.access, ..KeyPlaces::NONE },
    complexity: "O(log N) where N is the number of members",
    notes: "Returns the key, the member and its score; null once the timeout, in seconds, is over; 0 \
waits without end. The keys are looked at in the order given, also over shards. Clients are served in the \
order in which they began to wait.",
    arguments: &[KEY.multiple(), TIMEOUT],
    ..TAKES
};

const ZPOPMIN: CommandSpec = CommandSpec {
    name: "zpopmin",
    summary: "Removes the members with the lowest scores, and returns them with these.",
    notes: "Without a count one. Up to 8,192 members are one change; more leave in pieces of some \
thousand, until the reply has 32 MiB. Others see the set between two pieces.",
    parse: |words, _| pop(words, false, [&LOWEST_ONE, &LOWEST]),
    ..TAKES
};

static LOWEST_ONE: ObjectReply = popped("zpopmin", ScoredForm::Flat);
static LOWEST: ObjectReply = popped("zpopmin", ScoredForm::Pairs);

const ZPOPMAX: CommandSpec = CommandSpec {
    name: "zpopmax",
    summary: "Removes the members with the greatest scores, and returns them with these.",
    notes: "See ZPOPMIN.",
    parse: |words, _| pop(words, true, [&GREATEST_ONE, &GREATEST]),
    ..TAKES
};

static GREATEST_ONE: ObjectReply = popped("zpopmax", ScoredForm::Flat);
static GREATEST: ObjectReply = popped("zpopmax", ScoredForm::Pairs);

const fn popped(command: &'static str, form: ScoredForm) -> ObjectReply {
    ObjectReply { command, shape: Shape::Scored(form), errors: TOO_LONG }
}

fn pop<'a>(
    words: Words<'a>,
    from_greatest: bool,
    [one, some]: [&'static ObjectReply; 2],
) -> ParseResult<'a> {
    let (count, reply) = match words.len() {
        2 => (Some(1), one),
        3 => {
            let count = integer::parse(words.get(2)).and_then(|count| u64::try_from(count).ok());
            (count, some)
        }
        _ => return Err(CommandError::Syntax),
    };
    let count = count.ok_or(CommandError::NotPositive)?;
    request(words, SortedCommand::Pop { count, from_greatest }, reply)
}

/// A number from 1 on, and otherwise this error.
fn from_one(word: &[u8], error: CommandError) -> Result<u64, CommandError> {
    let number = integer::parse(word).and_then(|number| u64::try_from(number).ok());
    number.filter(|number| *number > 0).ok_or(error)
}

/// What ZMPOP and BZMPOP have from the number of keys on, which is at `number_at`: the place behind the
/// keys, whether the greatest members are meant, and how many.
fn popped_ends(words: Words<'_>, number_at: usize) -> Result<(usize, bool, u64), CommandError> {
    let keys = from_one(words.get(number_at), CommandError::KeyCount)?;
    let where_at = usize::try_from(keys).ok().and_then(|keys| keys.checked_add(number_at + 1));
    let where_at = where_at.filter(|at| *at < words.len()).ok_or(CommandError::Syntax)?;
    let from_greatest = match (words.is(where_at, "min"), words.is(where_at, "max")) {
        (true, _) => false,
        (_, true) => true,
        _ => return Err(CommandError::Syntax),
    };
    let count = match words.len() - where_at {
        1 => 1,
        more if more > 2 && words.is(where_at + 1, "count") => {
            let count = from_one(words.get(where_at + 2), CommandError::PopCount)?;
            if more > 3 {
                return Err(CommandError::Syntax);
            }
            count
        }
        _ => return Err(CommandError::Syntax),
    };
    Ok((where_at, from_greatest, count))
}

const ZMPOP: CommandSpec = CommandSpec {
    name: "zmpop",
    summary: "Removes the lowest or the greatest members of the first of several keys that has a sorted \
set.",
    notes: "Returns the key and the members with their scores, or a null array if none has a sorted set. \
The keys are looked at one after the other. More than 8,192 members: see ZPOPMIN.",
    arguments: &[NUMBER_OF_KEYS, KEY.multiple(), WHERE, COUNT],
    parse: zmpop,
    ..TAKES_FIRST
};

static POPPED_FIRST: ObjectReply =
    ObjectReply { command: "zmpop", shape: Shape::Own(write_some), errors: TOO_LONG };

fn zmpop(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    let (where_at, from_greatest, count) = popped_ends(words, 1)?;
    if where_at > MAX_COMMAND_MEMBERS {
        return Err(CommandError::TooManyItems);
    }
    let keys = Keys::within(words, 2, where_at)?;
    let steps = Box::new(PopFirst { count, from_greatest, at: 0 });
    Ok(Request::Steps { keys, steps, form: ReplyForm::Object(&POPPED_FIRST) })
}

/// The two items of an answer: the key, and the members with their scores.
fn key_and_members(answer: ShardAnswer<'_>) -> Option<(&[u8], &[u8])> {
    let value = answer.value.filter(|_| answer.status == Status::Ok)?;
    let (key, rest) = Items::split(value)?;
    let (members, _) = Items::split(rest)?;
    Some((key?, members?))
}

/// The key and the members.
fn write_some(out: &mut Vec<u8>, version: RespVersion, answer: ShardAnswer<'_>) {
    let Some((key, members)) = key_and_members(answer) else {
        return encode::null_array(out, version);
    };
    encode::array(out, 2);
    encode::bulk(out, key);
    write_nested(out, version, members);
}

/// The key, the member and its score.
fn write_one(out: &mut Vec<u8>, version: RespVersion, answer: ShardAnswer<'_>) {
    let found = key_and_members(answer);
    let found = found.and_then(|(key, members)| Some((key, Scored::split_first(members)?)));
    let Some((key, (score, member, _))) = found else { return encode::null_array(out, version) };
    encode::array(out, 3);
    encode::bulk(out, key);
    encode::bulk(out, member);
    numbers::write(out, version, score);
}

/// The keys of a command, which a shard looks at in one step.
fn waited_keys(words: Words<'_>, from: usize, end: usize) -> Result<Keys<'_>, CommandError> {
    match end - from > MAX_WAITED_KEYS {
        true => Err(CommandError::TooManyWaitedKeys),
        false => Keys::within(words, from, end),
    }
}

fn waits<'a>(
    words: Words<'a>,
    now_ms: u64,
    from_greatest: bool,
    reply: &'static ObjectReply,
) -> ParseResult<'a> {
    let last = words.len() - 1;
    let until_ms = wait_until(words.get(last), now_ms)?;
    let (keys, form) = (waited_keys(words, 1, last)?, ReplyForm::Object(reply));
    let request = SortedCommand::Pop { count: 1, from_greatest }.request();
    Ok(Request::Block(Box::new(Blocking { keys, request, until_ms, form, hand_over: None })))
}

const BZPOPMIN: CommandSpec = CommandSpec {
    name: "bzpopmin",
    summary: "Removes the lowest member of the first of some sorted sets that is there, or waits for one.",
    parse: |words, now_ms| waits(words, now_ms, false, &WAITED_LOWEST),
    ..WAITS
};

static WAITED_LOWEST: ObjectReply = ObjectReply::new("bzpopmin", Shape::Own(write_one));

const BZPOPMAX: CommandSpec = CommandSpec {
    name: "bzpopmax",
    summary: "Removes the greatest member of the first of some sorted sets that is there, or waits for \
one.",
    parse: |words, now_ms| waits(words, now_ms, true, &WAITED_GREATEST),
    ..WAITS
};

static WAITED_GREATEST: ObjectReply = ObjectReply::new("bzpopmax", Shape::Own(write_one));

const BZMPOP: CommandSpec = CommandSpec {
    name: "bzmpop",
    arity: -5,
    since: "7.0.0",
    flags: &[Flag::Write, Flag::Blocking, Flag::MovableKeys],
    keys: KeyPlaces::counted(2, TAKES.keys.access),
    summary: "Removes the lowest or greatest members of the first of some sorted sets, or waits for some.",
    complexity: TAKES_FIRST.complexity,
    notes: "As ZMPOP and BZPOPMIN. A count above 8,192 is taken as that.",
    arguments: &[TIMEOUT, NUMBER_OF_KEYS, KEY.multiple(), WHERE, COUNT],
    parse: bzmpop,
    ..WAITS
};

static WAITED_SOME: ObjectReply = ObjectReply::new("bzmpop", Shape::Own(write_some));

fn bzmpop(words: Words<'_>, now_ms: u64) -> ParseResult<'_> {
    let (end, from_greatest, count) = popped_ends(words, 2)?;
    let until_ms = wait_until(words.get(1), now_ms)?;
    let (keys, form) = (waited_keys(words, 3, end)?, ReplyForm::Object(&WAITED_SOME));
    // What waits is done in one turn.
    let count = count.min(MAX_COMMAND_MEMBERS as u64);
    let request = SortedCommand::Pop { count, from_greatest }.request();
    Ok(Request::Block(Box::new(Blocking { keys, request, until_ms, form, hand_over: None })))
}

/// The commands.
pub(crate) const COMMANDS: &[CommandSpec] = &[BZMPOP, BZPOPMAX, BZPOPMIN, ZMPOP, ZPOPMAX, ZPOPMIN];
