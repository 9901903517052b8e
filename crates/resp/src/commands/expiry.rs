//! When keys expire: it is set, asked for, and taken away.

use crate::arguments::{
    ExpiryForm, KEY, MILLISECONDS, ONE_KEY, SECONDS, UNIX_MILLISECONDS, UNIX_SECONDS,
};
use crate::error::{CommandError, excerpt};
use crate::form::{ObjectReply, ReplyForm, Shape};
use crate::keys::key;
use crate::request::Request;
use crate::spec::{Argument, CommandSpec, Flag, Group, KeyPlaces, Kind, ParseResult};
use crate::wire::{RespVersion, Words, encode};
use remora_frontend::ShardAnswer;
use remora_protocol::integer;
use remora_protocol::{Command, ExpireCondition};

const EXPIRE_CONDITION: Argument = Argument::of(
    "condition",
    Kind::OneOf,
    &[
        Argument::word("nx", "NX"),
        Argument::word("xx", "XX"),
        Argument::word("gt", "GT"),
        Argument::word("lt", "LT"),
    ],
)
.optional();

/// The effect of the options of EXPIRE and its kin.
const EXPIRE_NOTES: &str = "Returns 1 if the expiry was set, 0 if not. NX: only if there is no \
expiry; XX: only if there is one; GT and LT: only if the new one is later or earlier than the old, \
where none counts as infinitely late. A time in the past removes the key. Expiries reach to the year 2527.";

const EXPIRE: CommandSpec = CommandSpec {
    name: "expire",
    arity: -3,
    flags: &[Flag::Write, Flag::Fast],
    keys: KeyPlaces::one(&["RW", "update"]),
    categories: &["keyspace"],
    group: Group::GENERIC,
    summary: "Sets a key's time to live in seconds.",
    notes: EXPIRE_NOTES,
    arguments: &[KEY, SECONDS, EXPIRE_CONDITION],
    parse: expire,
    ..CommandSpec::PLAIN
};

fn expire(words: Words<'_>, now_unix_ms: u64) -> ParseResult<'_> {
    expire_in_form(words, now_unix_ms, ExpiryForm::InSeconds, "expire")
}

const EXPIREAT: CommandSpec = CommandSpec {
    name: "expireat",
    arity: -3,
    flags: &[Flag::Write, Flag::Fast],
    keys: KeyPlaces::one(&["RW", "update"]),
    categories: &["keyspace"],
    since: "1.2.0",
    group: Group::GENERIC,
    summary: "Sets when a key expires, in Unix seconds.",
    notes: EXPIRE_NOTES,
    arguments: &[KEY, UNIX_SECONDS, EXPIRE_CONDITION],
    parse: expireat,
    ..CommandSpec::PLAIN
};

fn expireat(words: Words<'_>, now_unix_ms: u64) -> ParseResult<'_> {
    expire_in_form(words, now_unix_ms, ExpiryForm::AtSeconds, "expireat")
}

const PEXPIRE: CommandSpec = CommandSpec {
    name: "pexpire",
    arity: -3,
    flags: &[Flag::Write, Flag::Fast],
    keys: KeyPlaces::one(&["RW", "update"]),
    categories: &["keyspace"],
    since: "2.6.0",
    group: Group::GENERIC,
    summary: "Sets a key's time to live in milliseconds.",
    notes: EXPIRE_NOTES,
    arguments: &[KEY, MILLISECONDS, EXPIRE_CONDITION],
    parse: pexpire,
    ..CommandSpec::PLAIN
};

fn pexpire(words: Words<'_>, now_unix_ms: u64) -> ParseResult<'_> {
    expire_in_form(words, now_unix_ms, ExpiryForm::InMs, "pexpire")
}

const PEXPIREAT: CommandSpec = CommandSpec {
    name: "pexpireat",
    arity: -3,
    flags: &[Flag::Write, Flag::Fast],
    keys: KeyPlaces::one(&["RW", "update"]),
    categories: &["keyspace"],
    since: "2.6.0",
    group: Group::GENERIC,
    summary: "Sets when a key expires, in Unix milliseconds.",
    notes: EXPIRE_NOTES,
    arguments: &[KEY, UNIX_MILLISECONDS, EXPIRE_CONDITION],
    parse: pexpireat,
    ..CommandSpec::PLAIN
};

fn pexpireat(words: Words<'_>, now_unix_ms: u64) -> ParseResult<'_> {
    expire_in_form(words, now_unix_ms, ExpiryForm::AtMs, "pexpireat")
}

/// EXPIRE and its kin. Options come first, as in Redis: a wrong option is
/// reported before a wrong number.
fn expire_in_form<'a>(
    words: Words<'a>,
    now_unix_ms: u64,
    form: ExpiryForm,
    command: &'static str,
) -> ParseResult<'a> {
    let (mut nx, mut xx, mut gt, mut lt) = (false, false, false, false);
    for at in 3..words.len() {
        let options =
            [("nx", &mut nx), ("xx", &mut xx), ("gt", &mut gt), ("lt", &mut lt)].into_iter();
        let mut named = options.filter(|(name, _)| words.is(at, name));
        match named.next() {
            Some((_, option)) => *option = true,
            None => return Err(CommandError::UnsupportedOption(excerpt(words.get(at)))),
        }
    }
    let condition = match (nx, xx, gt, lt) {
        (true, true, _, _) | (true, _, true, _) | (true, _, _, true) => {
            return Err(CommandError::ConditionNx);
        }
        (_, _, true, true) => return Err(CommandError::ConditionGtLt),
        (_, true, _, true) => ExpireCondition::IfSomeEarlier,
        (true, ..) => ExpireCondition::IfNone,
        // XX adds nothing to GT: a key without expiry is never "later".
        (_, _, true, _) => ExpireCondition::IfLater,
        (_, _, _, true) => ExpireCondition::IfEarlier,
        (_, true, ..) => ExpireCondition::IfSome,
        _ => ExpireCondition::Always,
    };
    let number = integer::parse(words.get(2)).ok_or(CommandError::NotAnInteger)?;
    let at_ms = form.at_ms(number, now_unix_ms, command)?;
    let command = Command::Expire { key: key(words.get(1))?, at_ms, condition };
    Ok(Request::Key(command, ReplyForm::Number("expire")))
}

static SECONDS_LEFT: ObjectReply = ObjectReply::new("ttl", Shape::Own(write_seconds));
static MS_LEFT: ObjectReply = ObjectReply::new("pttl", Shape::Number);

const TTL: CommandSpec = CommandSpec {
    name: "ttl",
    arity: 2,
    flags: &[Flag::ReadOnly, Flag::Fast],
    keys: KeyPlaces::one(&["RO", "access"]),
    categories: &["keyspace"],
    group: Group::GENERIC,
    summary: "Returns the time to live of a key in seconds: -1 without expiry, -2 without key.",
    arguments: ONE_KEY,
    parse: ttl,
    ..CommandSpec::PLAIN
};

fn ttl(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    Ok(Request::Key(Command::Ttl { key: key(words.get(1))? }, ReplyForm::Object(&SECONDS_LEFT)))
}

const PTTL: CommandSpec = CommandSpec {
    name: "pttl",
    arity: 2,
    flags: &[Flag::ReadOnly, Flag::Fast],
    keys: KeyPlaces::one(&["RO", "access"]),
    categories: &["keyspace"],
    since: "2.6.0",
    group: Group::GENERIC,
    summary: "Returns the time to live of a key in milliseconds: -1 without expiry, -2 without \
key.",
    arguments: ONE_KEY,
    parse: pttl,
    ..CommandSpec::PLAIN
};

fn pttl(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    Ok(Request::Key(Command::Ttl { key: key(words.get(1))? }, ReplyForm::Object(&MS_LEFT)))
}

const EXPIRETIME: CommandSpec = CommandSpec {
    name: "expiretime",
    arity: 2,
    flags: &[Flag::ReadOnly, Flag::Fast],
    keys: KeyPlaces::one(&["RO", "access"]),
    categories: &["keyspace"],
    since: "7.0.0",
    group: Group::GENERIC,
    summary: "Returns when a key expires in Unix seconds: -1 without expiry, -2 without key.",
    arguments: ONE_KEY,
    parse: expiretime,
    ..CommandSpec::PLAIN
};

fn expiretime(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    let command = Command::ExpireTime { key: key(words.get(1))? };
    Ok(Request::Key(command, ReplyForm::Object(&SECONDS_LEFT)))
}

const PEXPIRETIME: CommandSpec = CommandSpec {
    name: "pexpiretime",
    arity: 2,
    flags: &[Flag::ReadOnly, Flag::Fast],
    keys: KeyPlaces::one(&["RO", "access"]),
    categories: &["keyspace"],
    since: "7.0.0",
    group: Group::GENERIC,
    summary: "Returns when a key expires in Unix milliseconds: -1 without expiry, -2 without key.",
    arguments: ONE_KEY,
    parse: pexpiretime,
    ..CommandSpec::PLAIN
};

fn pexpiretime(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    let command = Command::ExpireTime { key: key(words.get(1))? };
    Ok(Request::Key(command, ReplyForm::Object(&MS_LEFT)))
}

/// A time in ms, in seconds: rounded to the nearest one, as Redis does. -1 (no expiry) and
/// -2 (no key) stay as they are.
fn write_seconds(out: &mut Vec<u8>, _: RespVersion, answer: ShardAnswer<'_>) {
    let ms = answer.number;
    encode::integer(out, if ms < 0 { ms } else { ms.saturating_add(500) / 1000 });
}

const PERSIST: CommandSpec = CommandSpec {
    name: "persist",
    arity: 2,
    flags: &[Flag::Write, Flag::Fast],
    keys: KeyPlaces::one(&["RW", "update"]),
    categories: &["keyspace"],
    since: "2.2.0",
    group: Group::GENERIC,
    summary: "Takes the expiry of a key away; returns 1 if it had one.",
    arguments: ONE_KEY,
    parse: persist,
    ..CommandSpec::PLAIN
};

fn persist(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    let command = Command::Persist { key: key(words.get(1))? };
    Ok(Request::Key(command, ReplyForm::Number("persist")))
}

/// The commands.
pub(super) const COMMANDS: &[CommandSpec] =
    &[EXPIRE, EXPIREAT, EXPIRETIME, PERSIST, PEXPIRE, PEXPIREAT, PEXPIRETIME, PTTL, TTL];
