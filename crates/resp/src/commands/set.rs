//! Sets, in the words and with the errors of Redis 7.

mod steps;

use crate::arguments::{KEY, SCAN_ARGUMENTS, ScanOptions, cursor, items, kept, scan_options};
use crate::error::CommandError;
use crate::form::{ListForm, ObjectReply, ReplyForm, Shape};
use crate::keys::{Keys, key};
use crate::request::Request;
use crate::spec::{Argument, CommandSpec, Flag, Group, KeyPlaces, Kind, ParseResult};
use crate::wire::{RespVersion, Words, encode};
use remora_frontend::ShardAnswer;
use remora_layout::limits::{MAX_COMMAND_ITEMS, MAX_REPLY_BYTES};
use remora_protocol::message::Status;
use remora_protocol::set::{Combination, MAX_SET_MEMBER_BYTES, SetCommand};
use remora_protocol::{Items, integer};
use steps::{Combine, MoveMember};

const MEMBER: Argument = Argument::new("member", Kind::String);
const SEVERAL_KEYS: &[Argument] = &[KEY.multiple()];
const STORED: &[Argument] = &[Argument::new("destination", Kind::Key), KEY.multiple()];

/// Commands that read a set.
const SET: CommandSpec = CommandSpec {
    categories: &["set"],
    since: "1.0.0",
    group: Group::new("set", "Sets"),
    flags: &[Flag::ReadOnly, Flag::Fast],
    keys: KeyPlaces::one(&["RO"]),
    arguments: &[KEY, MEMBER],
    ..CommandSpec::PLAIN
};

/// Commands that change a set.
const WRITES: CommandSpec = CommandSpec {
    flags: &[Flag::Write, Flag::DenyOom, Flag::Fast],
    keys: KeyPlaces::one(&["RW", "insert"]),
    arguments: &[KEY, MEMBER.multiple()],
    ..SET
};

/// Commands that combine sets.
const COMBINES: CommandSpec = CommandSpec {
    arity: -2,
    flags: &[Flag::ReadOnly],
    keys: KeyPlaces::every(1, &["RO", "access"]),
    complexity: "O(N) where N is the number of members in all sets; an intersection costs as many \
looks as the smallest set has members, times the number of sets",
    notes: "The sets of one shard are as they are when the command begins, whatever is changed \
meanwhile. Sets of several shards are not read at one moment: the shards are asked one after the \
other, and each set is as it was at one moment during the call. With {tags} keys are of one shard. A \
result of more than 64 MiB is an error.",
    arguments: SEVERAL_KEYS,
    ..SET
};

/// Commands that store what they combine.
const STORES: CommandSpec = CommandSpec {
    arity: -3,
    flags: &[Flag::Write, Flag::DenyOom],
    keys: KeyPlaces {
        first_access: Some(&["OW", "update"]),
        ..KeyPlaces::every(1, &["RO", "access"])
    },
    arguments: STORED,
    ..COMBINES
};

fn request<'a>(
    words: Words<'a>,
    command: SetCommand<'a>,
    reply: &'static ObjectReply,
) -> ParseResult<'a> {
    let (key, form) = (key(words.get(1))?, ReplyForm::Object(reply));
    Ok(Request::Object { key, request: command.request(), form })
}

/// Checks a member's length.
fn member(member: &[u8]) -> Result<&[u8], CommandError> {
    if member.len() > MAX_SET_MEMBER_BYTES { Err(CommandError::KeyTooLong) } else { Ok(member) }
}

/// A member that is looked for. One that is longer than members are is cut, and still longer than
/// they are: no set has it.
fn looked_for(member: &[u8]) -> &[u8] {
    &member[..member.len().min(MAX_SET_MEMBER_BYTES + 1)]
}

/// The arguments from the third on, as members that are looked for.
fn all_looked_for(words: Words<'_>) -> Result<Items<'_>, CommandError> {
    if words.len() - 2 > MAX_COMMAND_ITEMS {
        return Err(CommandError::TooManyItems);
    }
    let all = (2..words.len()).map(|at| looked_for(words.get(at)));
    let mut list = Vec::with_capacity(all.clone().map(|of| Items::bytes_of(of.len())).sum());
    all.for_each(|of| Items::push(&mut list, of));
    Ok(kept(words, list))
}

/// The arguments from the third on, as members.
fn members(words: Words<'_>) -> Result<Items<'_>, CommandError> {
    (2..words.len()).try_for_each(|at| member(words.get(at)).map(drop))?;
    items(words, 2, 1)
}

/// The error where a result is too long for a reply.
const TOO_LONG: &[(Status, &str)] =
    &[(Status::TooLarge, "ERR the result, or small sets, take more than 64 MiB: name fewer sets")];
const _: () = assert!(MAX_REPLY_BYTES == 64 << 20);

const fn list(command: &'static str, form: ListForm) -> ObjectReply {
    ObjectReply { command, shape: Shape::List(form), errors: TOO_LONG }
}

const SADD: CommandSpec = CommandSpec {
    name: "sadd",
    arity: -3,
    summary: "Adds members; returns how many of them are new.",
    complexity: "O(N) where N is the number of members to be added",
    notes: "One change: others see all members added, or none. Members have the limits of keys, less \
one byte. A set of up to 512 integers, or of up to 128 members of up to 64 bytes, lies whole in one \
record; a larger one has bins of some members each, and stays so.",
    parse: sadd,
    ..WRITES
};

static ADD: ObjectReply = ObjectReply::new("sadd", Shape::Number);

fn sadd(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    request(words, SetCommand::Add { members: members(words)? }, &ADD)
}

const SREM: CommandSpec = CommandSpec {
    name: "srem",
    arity: -3,
    flags: &[Flag::Write, Flag::Fast],
    keys: KeyPlaces::one(&["RW", "delete"]),
    summary: "Removes members; returns how many of them were there.",
    complexity: "O(N) where N is the number of members to be removed",
    notes: "The key is gone with its last member.",
    parse: srem,
    ..WRITES
};

static REMOVE: ObjectReply = ObjectReply::new("srem", Shape::Number);

fn srem(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    request(words, SetCommand::Remove { members: all_looked_for(words)? }, &REMOVE)
}

const SCARD: CommandSpec = CommandSpec {
    name: "scard",
    arity: 2,
    summary: "Returns the number of members.",
    arguments: &[KEY],
    parse: scard,
    ..SET
};

static LENGTH: ObjectReply = ObjectReply::new("scard", Shape::Number);

fn scard(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    request(words, SetCommand::Length, &LENGTH)
}

const SISMEMBER: CommandSpec = CommandSpec {
    name: "sismember",
    arity: 3,
    summary: "Returns 1 if the member is there, else 0.",
    parse: sismember,
    ..SET
};

static IS_MEMBER: ObjectReply = ObjectReply::new("sismember", Shape::Own(write_is_member));

fn sismember(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    request(words, SetCommand::Contains { member: looked_for(words.get(2)) }, &IS_MEMBER)
}

fn write_is_member(out: &mut Vec<u8>, _: RespVersion, answer: ShardAnswer<'_>) {
    encode::integer(out, (answer.status == Status::Ok).into());
}

const SMISMEMBER: CommandSpec = CommandSpec {
    name: "smismember",
    arity: -3,
    since: "6.2.0",
    summary: "Returns for each member 1 if it is there, else 0.",
    complexity: "O(N) where N is the number of members that are asked for",
    arguments: &[KEY, MEMBER.multiple()],
    parse: smismember,
    ..SET
};

static ARE_MEMBERS: ObjectReply = ObjectReply::new("smismember", Shape::Own(write_are_members));

fn smismember(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    request(words, SetCommand::ContainsMany { members: all_looked_for(words)? }, &ARE_MEMBERS)
}

fn write_are_members(out: &mut Vec<u8>, _: RespVersion, answer: ShardAnswer<'_>) {
    let told = answer.value.unwrap_or_default();
    encode::array(out, told.len());
    told.iter().for_each(|is_there| encode::integer(out, (*is_there).into()));
}

const SMEMBERS: CommandSpec = CommandSpec {
    name: "smembers",
    arity: 2,
    flags: &[Flag::ReadOnly],
    keys: KeyPlaces::one(&["RO", "access"]),
    summary: "Returns all members.",
    complexity: "O(N) where N is the number of members",
    notes: "Tells of the set as it is when the command begins. A large set is read in turns, \
between which the shard does other work; what is changed meanwhile does not show. Integers of a small \
set come in ascending order, other members in no order. A client that reads so slowly that an eighth \
of the shard's memory is taken by what is changed and still to be sent loses its connection.",
    arguments: &[KEY],
    parse: smembers,
    ..SET
};

static ALL: ObjectReply = list("smembers", ListForm::Set);

fn smembers(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    request(words, SetCommand::All, &ALL)
}

const SRANDMEMBER: CommandSpec = CommandSpec {
    name: "srandmember",
    arity: -2,
    flags: &[Flag::ReadOnly],
    keys: KeyPlaces::one(&["RO", "access"]),
    summary: "Returns random members.",
    complexity: "O(N) where N is the number of members in the reply, or of all of them, which \
are looked at in turns, if the count is positive and above 1,024 or a quarter of them",
    notes: "Without a count one member, or null. A positive count: so many different ones at most. \
A negative one: so many, of which some may be the same.",
    arguments: &[KEY, Argument::new("count", Kind::Integer).optional()],
    parse: srandmember,
    ..SET
};

static RANDOM_ONE: ObjectReply = ObjectReply::new("srandmember", Shape::OneItem);
/// The error where a count below 0 wants more than a reply may have.
const TOO_MANY_DRAWN: &[(Status, &str)] =
    &[(Status::TooLarge, "ERR the reply is longer than 64 MiB: ask for fewer members")];
static RANDOM: ObjectReply = ObjectReply {
    command: "srandmember",
    shape: Shape::List(ListForm::Array),
    errors: TOO_MANY_DRAWN,
};

fn srandmember(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    let count = match words.len() {
        2 => return request(words, SetCommand::Random { count: -1 }, &RANDOM_ONE),
        3 => integer::parse(words.get(2)).ok_or(CommandError::NotAnInteger)?,
        _ => return Err(CommandError::Syntax),
    };
    if count == i64::MIN {
        return Err(CommandError::NotInLongRange);
    }
    request(words, SetCommand::Random { count }, &RANDOM)
}

const SPOP: CommandSpec = CommandSpec {
    name: "spop",
    arity: -2,
    flags: &[Flag::Write, Flag::Fast],
    keys: KeyPlaces::one(&["RW", "access", "delete"]),
    summary: "Removes random members and returns them.",
    complexity: "O(N) where N is the number of members that are returned",
    notes: "Without a count one member, or null. Up to 65,536 members, or all that the set has, are one \
change; more leave in pieces of some thousand, until the reply has 32 MiB. Others see the set between two \
pieces.",
    arguments: &[KEY, Argument::new("count", Kind::Integer).optional()],
    parse: spop,
    ..WRITES
};

static POP_ONE: ObjectReply = ObjectReply::new("spop", Shape::OneItem);
static POP: ObjectReply = list("spop", ListForm::Set);

fn spop(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    let count = match words.len() {
        2 => return request(words, SetCommand::Pop { count: 1 }, &POP_ONE),
        3 => integer::parse(words.get(2)).and_then(|count| u64::try_from(count).ok()),
        _ => return Err(CommandError::Syntax),
    };
    request(words, SetCommand::Pop { count: count.ok_or(CommandError::NotPositive)? }, &POP)
}

const SMOVE: CommandSpec = CommandSpec {
    name: "smove",
    arity: 4,
    flags: &[Flag::Write, Flag::Fast],
    keys: KeyPlaces::two(&["RW", "access", "delete"], &["RW", "insert"]),
    summary: "Moves a member to another set; returns 1 if it was there, else 0.",
    notes: "One change of both sets if they are of one shard. Between shards it is added first and \
then removed: for a moment both sets may have it. Of several that move the same member at once one gets \
1.",
    arguments: &[
        Argument::new("source", Kind::Key),
        Argument::new("destination", Kind::Key),
        MEMBER,
    ],
    parse: smove,
    ..WRITES
};

static MOVED: ObjectReply = ObjectReply::new("smove", Shape::Number);
fn smove(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    let keys = Keys::within(words, 1, 3)?;
    let steps = Box::new(MoveMember::new(looked_for(words.get(3))));
    Ok(Request::Steps { keys, steps, form: ReplyForm::Object(&MOVED) })
}

/// The request about the keys of the words from `from` up to `end`.
fn steps<'a>(
    words: Words<'a>,
    (from, end): (usize, usize),
    steps: Combine,
    reply: &'static ObjectReply,
) -> ParseResult<'a> {
    let (keys, form) = (Keys::within(words, from, end)?, ReplyForm::Object(reply));
    Ok(Request::Steps { keys, steps: Box::new(steps), form })
}

fn combined<'a>(
    words: Words<'a>,
    how: Combination,
    reply: &'static ObjectReply,
) -> ParseResult<'a> {
    if words.len() - 1 > MAX_COMMAND_ITEMS {
        return Err(CommandError::TooManyItems);
    }
    steps(words, (1, words.len()), Combine::new(how, None), reply)
}

/// The first key gets the result.
fn stored<'a>(words: Words<'a>, how: Combination, reply: &'static ObjectReply) -> ParseResult<'a> {
    if words.len() - 2 > MAX_COMMAND_ITEMS {
        return Err(CommandError::TooManyItems);
    }
    steps(words, (1, words.len()), Combine::stored(how), reply)
}

/// The reply to a command that counts members of a result.
const fn number(command: &'static str) -> ObjectReply {
    ObjectReply { command, shape: Shape::Number, errors: TOO_LONG }
}

const SINTER: CommandSpec = CommandSpec {
    name: "sinter",
    summary: "Returns the members that all of the sets have.",
    parse: |words, _| combined(words, Combination::Inter, &INTER),
    ..COMBINES
};

static INTER: ObjectReply = list("sinter", ListForm::Set);

const SUNION: CommandSpec = CommandSpec {
    name: "sunion",
    summary: "Returns the members that any of the sets has.",
    notes: "See SINTER.",
    parse: |words, _| combined(words, Combination::Union, &UNION),
    ..COMBINES
};

static UNION: ObjectReply = list("sunion", ListForm::Set);

const SDIFF: CommandSpec = CommandSpec {
    name: "sdiff",
    summary: "Returns the members of the first set that no other has.",
    notes: "See SINTER.",
    parse: |words, _| combined(words, Combination::Diff, &DIFF),
    ..COMBINES
};

static DIFF: ObjectReply = list("sdiff", ListForm::Set);

const SINTERSTORE: CommandSpec = CommandSpec {
    name: "sinterstore",
    summary: "Stores the members that all of the sets have; returns their number.",
    notes: "The sets are read as by SINTER; then the key gets the result as one change, in the place of \
what it held. Without members it is removed.",
    parse: |words, _| stored(words, Combination::Inter, &INTER_STORED),
    ..STORES
};

static INTER_STORED: ObjectReply = number("sinterstore");

const SUNIONSTORE: CommandSpec = CommandSpec {
    name: "sunionstore",
    summary: "Stores the members that any of the sets has; returns their number.",
    notes: "See SINTERSTORE.",
    parse: |words, _| stored(words, Combination::Union, &UNION_STORED),
    ..STORES
};

static UNION_STORED: ObjectReply = number("sunionstore");

const SDIFFSTORE: CommandSpec = CommandSpec {
    name: "sdiffstore",
    summary: "Stores the members of the first set that no other has; returns their number.",
    notes: "See SINTERSTORE.",
    parse: |words, _| stored(words, Combination::Diff, &DIFF_STORED),
    ..STORES
};

static DIFF_STORED: ObjectReply = number("sdiffstore");

const SINTERCARD: CommandSpec = CommandSpec {
    name: "sintercard",
    arity: -3,
    since: "7.0.0",
    flags: &[Flag::ReadOnly, Flag::MovableKeys],
    keys: KeyPlaces::counted(1, &["RO", "access"]),
    summary: "Returns the number of members that all of the sets have.",
    notes: "With LIMIT it stops at that number. See SINTER.",
    arguments: &[
        Argument::new("numkeys", Kind::Integer),
        KEY.multiple(),
        Argument::new("limit", Kind::Integer).after("LIMIT").optional(),
    ],
    parse: sintercard,
    ..COMBINES
};

static INTER_COUNTED: ObjectReply = number("sintercard");

fn sintercard(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    let keys = integer::parse(words.get(1)).and_then(|keys| u64::try_from(keys).ok());
    let keys = keys.filter(|keys| *keys > 0).ok_or(CommandError::KeyCount)?;
    if keys > words.len() as u64 - 2 {
        return Err(CommandError::MoreKeysThanArguments);
    }
    if keys > MAX_COMMAND_ITEMS as u64 {
        return Err(CommandError::TooManyItems);
    }
    let mut at = 2 + keys as usize;
    let (mut count_to, end) = (0, at);
    while at < words.len() {
        if !words.is(at, "limit") || at + 1 == words.len() {
            return Err(CommandError::Syntax);
        }
        let limit = integer::parse(words.get(at + 1)).and_then(|limit| u64::try_from(limit).ok());
        count_to = limit.ok_or(CommandError::NegativeLimit)?;
        at += 2;
    }
    steps(words, (2, end), Combine::new(Combination::Inter, Some(count_to)), &INTER_COUNTED)
}

const SSCAN: CommandSpec = CommandSpec {
    name: "sscan",
    arity: -3,
    flags: &[Flag::ReadOnly],
    keys: KeyPlaces::one(&["RO", "access"]),
    since: "2.8.0",
    summary: "Returns some members, and a cursor to go on with.",
    complexity: "O(1) for each call, O(N) for all where N is the number of members",
    notes: "The scan is over when the cursor is 0. A member that is there all the time is returned \
at least once, whatever is added meanwhile. A small set is returned whole, whatever COUNT says.",
    arguments: SCAN_ARGUMENTS,
    parse: sscan,
    ..SET
};

static SCAN: ObjectReply = list("sscan", ListForm::Cursor);
static SCAN_SYNTAX: ObjectReply =
    ObjectReply::new("sscan", Shape::ErrorUnlessEmpty("ERR syntax error"));
static SCAN_NUMBER: ObjectReply = ObjectReply::new(
    "sscan",
    Shape::ErrorUnlessEmpty("ERR value is not an integer or out of range"),
);

fn sscan(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    let cursor = cursor(words.get(2))?;
    match scan_options(words)? {
        ScanOptions::Some(options) => request(words, SetCommand::Scan { cursor, options }, &SCAN),
        ScanOptions::Syntax => request(words, SetCommand::Length, &SCAN_SYNTAX),
        ScanOptions::Number => request(words, SetCommand::Length, &SCAN_NUMBER),
    }
}

/// The commands.
pub(super) const COMMANDS: &[CommandSpec] = &[
    SADD,
    SCARD,
    SDIFF,
    SDIFFSTORE,
    SINTER,
    SINTERCARD,
    SINTERSTORE,
    SISMEMBER,
    SMEMBERS,
    SMISMEMBER,
    SMOVE,
    SPOP,
    SRANDMEMBER,
    SREM,
    SSCAN,
    SUNION,
    SUNIONSTORE,
];
