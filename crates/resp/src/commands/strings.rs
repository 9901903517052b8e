//! Strings: values that are bytes, numbers or bits.

use crate::arguments::{
    EXPIRATIONS, ExpiryForm, KEY, KEYS, MILLISECONDS, ONE_KEY, SECONDS, UNIX_MILLISECONDS,
    UNIX_SECONDS, VALUE,
};
use crate::error::{CommandError, status_error};
use crate::form::{CombinedReply, ObjectReply, ReplyForm, Shape};
use crate::keys::{Keys, Pairs, key, value};
use crate::request::Request;
use crate::spec::{Argument, CommandSpec, Flag, Group, KeyPlaces, Kind, ParseResult};
use crate::wire::{RespVersion, Words, encode};
use remora_frontend::ShardAnswer;
use remora_layout::limits::{MAX_REPLY_BYTES, MAX_VALUE_BYTES};
use remora_protocol::integer;
use remora_protocol::message::Status;
use remora_protocol::{Command, Condition, Expiry};

const OFFSET: Argument = Argument::new("offset", Kind::Integer);

const STRING: CommandSpec =
    CommandSpec { categories: &["string"], group: Group::STRING, ..CommandSpec::PLAIN };

const BITMAP: CommandSpec = CommandSpec { categories: &["bitmap"], ..STRING };

const GET: CommandSpec = CommandSpec {
    name: "get",
    arity: 2,
    flags: &[Flag::ReadOnly, Flag::Fast],
    keys: KeyPlaces::one(&["RO", "access"]),
    categories: &["string"],
    group: Group::STRING,
    summary: "Returns the value of a key, or null.",
    arguments: ONE_KEY,
    parse: get,
    ..CommandSpec::PLAIN
};

fn get(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    Ok(Request::Key(Command::Get { key: key(words.get(1))? }, ReplyForm::Value))
}

const SET_CONDITIONS: &[Argument] = &[Argument::word("nx", "NX"), Argument::word("xx", "XX")];

const SET_EXPIRATIONS: &[Argument] = &[
    SECONDS.after("EX"),
    MILLISECONDS.after("PX"),
    UNIX_SECONDS.after("EXAT"),
    UNIX_MILLISECONDS.after("PXAT"),
    Argument::word("keepttl", "KEEPTTL"),
];

const SET: CommandSpec = CommandSpec {
    name: "set",
    arity: -3,
    flags: &[Flag::Write, Flag::DenyOom],
    keys: KeyPlaces::one(&["RW", "access", "update", "variable_flags"]),
    categories: &["string"],
    group: Group::STRING,
    summary: "Sets a key, whether it exists or not; options say when and for how long.",
    notes: "Without KEEPTTL an earlier expiry is gone. NX and XX exclude each other; of the \
options for expiry only one may be given. With GET the reply is the old value or \
null; without it null means that NX or XX did not hold. Expiries reach to the year 2527.",
    arguments: &[
        KEY,
        VALUE,
        Argument::of("condition", Kind::OneOf, SET_CONDITIONS).optional(),
        Argument::word("get", "GET").optional(),
        Argument::of("expiration", Kind::OneOf, SET_EXPIRATIONS).optional(),
    ],
    parse: set,
    ..CommandSpec::PLAIN
};

fn set(words: Words<'_>, now_unix_ms: u64) -> ParseResult<'_> {
    let mut condition = Condition::Always;
    let mut get = false;
    let mut keep = false;
    // The option that sets an expiry, and the argument after it.
    let mut timed: Option<(ExpiryForm, &[u8])> = None;
    let mut at = 3;
    while at < words.len() {
        if words.is(at, "nx") && condition != Condition::IfPresent {
            condition = Condition::IfAbsent;
        } else if words.is(at, "xx") && condition != Condition::IfAbsent {
            condition = Condition::IfPresent;
        } else if words.is(at, "get") {
            get = true;
        } else if words.is(at, "keepttl") && timed.is_none() {
            keep = true;
        } else if let Some(form) = ExpiryForm::of_option(words.get(at))
            && !keep
            && timed.is_none_or(|(other, _)| other == form)
            && at + 1 < words.len()
        {
            at += 1;
            timed = Some((form, words.get(at)));
        } else {
            return Err(CommandError::Syntax);
        }
        at += 1;
    }
    let expiry = match timed {
        None if keep => Expiry::Keep,
        None => Expiry::Never,
        Some((form, text)) => {
            let number = integer::parse(text).ok_or(CommandError::NotAnInteger)?;
            if number <= 0 {
                return Err(CommandError::InvalidExpiry("set"));
            }
            Expiry::At(form.at_ms(number, now_unix_ms, "set")?)
        }
    };
    let (key, value) = (key(words.get(1))?, value(words.get(2))?);
    let command = Command::Set { key, value, condition, expiry, get };
    Ok(Request::Key(command, ReplyForm::Set { get }))
}

const SETNX: CommandSpec = CommandSpec {
    name: "setnx",
    arity: 3,
    flags: &[Flag::Write, Flag::DenyOom, Flag::Fast],
    keys: KeyPlaces::one(&["OW", "insert"]),
    summary: "Sets a key if it does not exist; returns 1 if it was set, 0 if not.",
    arguments: &[KEY, VALUE],
    parse: setnx,
    ..STRING
};

static DONE: ObjectReply = ObjectReply::new("setnx", Shape::Own(write_done));

fn setnx(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    let (key, value) = (key(words.get(1))?, value(words.get(2))?);
    let (condition, expiry) = (Condition::IfAbsent, Expiry::Never);
    let command = Command::Set { key, value, condition, expiry, get: false };
    Ok(Request::Key(command, ReplyForm::Object(&DONE)))
}

/// Whether it was done.
fn write_done(out: &mut Vec<u8>, _: RespVersion, answer: ShardAnswer<'_>) {
    encode::integer(out, (answer.status == Status::Ok).into());
}

const SETEX: CommandSpec = CommandSpec {
    name: "setex",
    arity: 4,
    flags: &[Flag::Write, Flag::DenyOom],
    keys: KeyPlaces::one(&["OW", "update"]),
    since: "2.0.0",
    summary: "Sets a key and its time to live in seconds.",
    notes: "SET with EX does the same. Expiries reach to the year 2527.",
    arguments: &[KEY, SECONDS, VALUE],
    parse: setex,
    ..STRING
};

fn setex(words: Words<'_>, now_unix_ms: u64) -> ParseResult<'_> {
    set_in_form(words, now_unix_ms, ExpiryForm::InSeconds, "setex")
}

const PSETEX: CommandSpec = CommandSpec {
    name: "psetex",
    arity: 4,
    flags: &[Flag::Write, Flag::DenyOom],
    keys: KeyPlaces::one(&["OW", "update"]),
    since: "2.6.0",
    summary: "Sets a key and its time to live in milliseconds.",
    notes: "SET with PX does the same. Expiries reach to the year 2527.",
    arguments: &[KEY, MILLISECONDS, VALUE],
    parse: psetex,
    ..STRING
};

fn psetex(words: Words<'_>, now_unix_ms: u64) -> ParseResult<'_> {
    set_in_form(words, now_unix_ms, ExpiryForm::InMs, "psetex")
}

fn set_in_form<'a>(
    words: Words<'a>,
    now_unix_ms: u64,
    form: ExpiryForm,
    command: &'static str,
) -> ParseResult<'a> {
    let number = integer::parse(words.get(2)).ok_or(CommandError::NotAnInteger)?;
    if number <= 0 {
        return Err(CommandError::InvalidExpiry(command));
    }
    let (key, value) = (key(words.get(1))?, value(words.get(3))?);
    let expiry = Expiry::At(form.at_ms(number, now_unix_ms, command)?);
    let command = Command::Set { key, value, condition: Condition::Always, expiry, get: false };
    Ok(Request::Key(command, ReplyForm::Set { get: false }))
}

const GETSET: CommandSpec = CommandSpec {
    name: "getset",
    arity: 3,
    flags: &[Flag::Write, Flag::DenyOom, Flag::Fast],
    keys: KeyPlaces::one(&["RW", "access", "update"]),
    summary: "Sets a key and returns the value that it had, or null.",
    notes: "SET with GET does the same.",
    arguments: &[KEY, VALUE],
    parse: getset,
    ..STRING
};

fn getset(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    let (key, value) = (key(words.get(1))?, value(words.get(2))?);
    let (condition, expiry) = (Condition::Always, Expiry::Never);
    let command = Command::Set { key, value, condition, expiry, get: true };
    Ok(Request::Key(command, ReplyForm::Set { get: true }))
}

const GETDEL: CommandSpec = CommandSpec {
    name: "getdel",
    arity: 2,
    flags: &[Flag::Write, Flag::Fast],
    keys: KeyPlaces::one(&["RW", "access", "delete"]),
    since: "6.2.0",
    summary: "Removes a key and returns the value that it had, or null.",
    arguments: ONE_KEY,
    parse: getdel,
    ..STRING
};

fn getdel(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    Ok(Request::Key(Command::GetDel { key: key(words.get(1))? }, ReplyForm::Value))
}

const GETEX: CommandSpec = CommandSpec {
    name: "getex",
    arity: -2,
    flags: &[Flag::Write, Flag::Fast],
    keys: KeyPlaces::one(&["RW", "access", "update"]),
    since: "6.2.0",
    summary: "Returns the value of a key, or null, and sets its expiry or takes it away.",
    notes: "Without an option it is GET. A time in the past removes the key. Expiries reach to the \
year 2527.",
    arguments: &[KEY, Argument::of("expiration", Kind::OneOf, EXPIRATIONS).optional()],
    parse: getex,
    ..STRING
};

static NOT_AN_INTEGER: ObjectReply =
    ObjectReply::new("getex", Shape::Own(write_null_or_not_an_integer));
static INVALID_EXPIRY: ObjectReply =
    ObjectReply::new("getex", Shape::Own(write_null_or_invalid_expiry));

/// GETEX. An option that makes no sense is an error at once, a time that makes
/// none only if the key exists: so it is in Redis.
fn getex(words: Words<'_>, now_unix_ms: u64) -> ParseResult<'_> {
    let mut persist = false;
    let mut timed: Option<(ExpiryForm, &[u8])> = None;
    let mut at = 2;
    while at < words.len() {
        if words.is(at, "persist") && timed.is_none() {
            persist = true;
        } else if let Some(form) = ExpiryForm::of_option(words.get(at))
            && !persist
            && timed.is_none_or(|(other, _)| other == form)
            && at + 1 < words.len()
        {
            at += 1;
            timed = Some((form, words.get(at)));
        } else {
            return Err(CommandError::Syntax);
        }
        at += 1;
    }
    let key = key(words.get(1))?;
    let at_ms = match timed {
        None if persist => Ok(None),
        None => return Ok(Request::Key(Command::Get { key }, ReplyForm::Value)),
        Some((form, text)) => match integer::parse(text) {
            None => Err(&NOT_AN_INTEGER),
            Some(number) if number <= 0 => Err(&INVALID_EXPIRY),
            Some(number) => match form.at_ms(number, now_unix_ms, "getex") {
                Ok(at_ms) => Ok(Some(at_ms)),
                Err(_) => Err(&INVALID_EXPIRY),
            },
        },
    };
    Ok(match at_ms {
        Ok(at_ms) => Request::Key(Command::GetEx { key, at_ms }, ReplyForm::Value),
        Err(refused) => Request::Key(Command::Exists { key }, ReplyForm::Object(refused)),
    })
}

fn write_null_or_not_an_integer(out: &mut Vec<u8>, version: RespVersion, answer: ShardAnswer<'_>) {
    write_null_or(Status::NotAnInteger, out, version, answer);
}

fn write_null_or_invalid_expiry(out: &mut Vec<u8>, version: RespVersion, answer: ShardAnswer<'_>) {
    write_null_or(Status::InvalidExpiry, out, version, answer);
}

/// Null without the key, else the error of this status.
fn write_null_or(
    refused: Status,
    out: &mut Vec<u8>,
    version: RespVersion,
    answer: ShardAnswer<'_>,
) {
    match status_error(refused, "getex").filter(|_| answer.number != 0) {
        Some(text) => encode::error(out, &text),
        None => encode::null(out, version),
    }
}

const MGET: CommandSpec = CommandSpec {
    name: "mget",
    arity: -2,
    flags: &[Flag::ReadOnly, Flag::Fast],
    keys: KeyPlaces::every(1, &["RO", "access"]),
    categories: &["string"],
    group: Group::STRING,
    summary: "Returns the values of several keys; null for each that is absent.",
    complexity: "O(N) where N is the number of keys",
    notes: "Several keys are not one transaction across shards: each value was the key's at \
some moment during the call, but not all at the same moment.",
    arguments: KEYS,
    parse: mget,
    ..CommandSpec::PLAIN
};

fn mget(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    Ok(Request::MGet(Keys::checked(words, 1)?))
}

/// The reply to MGET: null for an absent key or one that is not a string.
pub static VALUES: CombinedReply =
    CombinedReply { command: "mget", takes_errors: true, write: write_values };

fn write_values(out: &mut Vec<u8>, version: RespVersion, answers: &[ShardAnswer<'_>]) {
    if answers.iter().any(|answer| answer.status == Status::TooLarge) {
        return encode::error(
            out,
            &format!("ERR reply is longer than {MAX_REPLY_BYTES} bytes: ask for fewer keys"),
        );
    }
    let mut statuses = answers.iter().map(|answer| answer.status);
    let error = statuses.find_map(|status| match status {
        Status::WrongType => None,
        status => status_error(status, ""),
    });
    if let Some(text) = error {
        return encode::error(out, &text);
    }
    encode::array(out, answers.len());
    for answer in answers {
        encode::bulk_or_null(out, version, answer.value);
    }
}

const MSET: CommandSpec = CommandSpec {
    name: "mset",
    arity: -3,
    flags: &[Flag::Write, Flag::DenyOom],
    keys: KeyPlaces::every(2, &["OW", "update"]),
    categories: &["string"],
    since: "1.0.1",
    group: Group::STRING,
    summary: "Sets several keys; earlier values and expiries are gone.",
    complexity: "O(N) where N is the number of keys",
    notes: "Atomic for each shard only: all pairs of one shard appear at once or, if memory is \
short, not at all, but others may see the pairs of one shard before those of \
another.",
    arguments: &[Argument::of("data", Kind::Block, &[KEY, VALUE]).multiple()],
    parse: mset,
    ..CommandSpec::PLAIN
};

fn mset(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    match Pairs::checked(words, 1)? {
        Some(pairs) => Ok(Request::MSet(pairs)),
        None => Err(CommandError::WrongArity("mset")),
    }
}

/// Notes for each command that changes a part of a value.
const EDIT_NOTES: &str = "The expiry stays. A value that would be longer than the limit is an \
error, and nothing is changed.";

const APPEND: CommandSpec = CommandSpec {
    name: "append",
    arity: 3,
    flags: &[Flag::Write, Flag::DenyOom, Flag::Fast],
    keys: KeyPlaces::one(&["RW", "insert"]),
    since: "2.0.0",
    summary: "Appends to a value; an absent key counts as empty. Returns the new length.",
    complexity: "O(N) where N is the length of the new value",
    notes: EDIT_NOTES,
    arguments: &[KEY, VALUE],
    parse: append,
    ..STRING
};

fn append(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    Ok(Request::Key(
        Command::Append { key: key(words.get(1))?, value: part(words.get(2))? },
        ReplyForm::Number("append"),
    ))
}

/// A part to be written: one beyond the limit makes any value too long.
fn part(part: &[u8]) -> Result<&[u8], CommandError> {
    if part.len() > MAX_VALUE_BYTES { Err(CommandError::StringTooLong) } else { Ok(part) }
}

const SETRANGE: CommandSpec = CommandSpec {
    name: "setrange",
    arity: 4,
    flags: &[Flag::Write, Flag::DenyOom],
    keys: KeyPlaces::one(&["RW", "update"]),
    since: "2.2.0",
    summary: "Overwrites a part of a value, behind zeros if need be. Returns the new length.",
    complexity: "O(N) where N is the length of the new value",
    notes: EDIT_NOTES,
    arguments: &[KEY, OFFSET, VALUE],
    parse: setrange,
    ..STRING
};

fn setrange(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    let offset = integer::parse(words.get(2)).ok_or(CommandError::NotAnInteger)?;
    let offset = u64::try_from(offset).map_err(|_| CommandError::Offset)?;
    Ok(Request::Key(
        Command::SetRange { key: key(words.get(1))?, offset, value: part(words.get(3))? },
        ReplyForm::Number("setrange"),
    ))
}

const STRLEN: CommandSpec = CommandSpec {
    name: "strlen",
    arity: 2,
    flags: &[Flag::ReadOnly, Flag::Fast],
    keys: KeyPlaces::one(&["RO"]),
    since: "2.2.0",
    summary: "Returns the length of a value in bytes; 0 if the key is absent.",
    arguments: ONE_KEY,
    parse: strlen,
    ..STRING
};

fn strlen(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    Ok(Request::Key(Command::StrLen { key: key(words.get(1))? }, ReplyForm::Number("strlen")))
}

const GETRANGE: CommandSpec = CommandSpec {
    name: "getrange",
    arity: 4,
    flags: &[Flag::ReadOnly],
    keys: KeyPlaces::one(&["RO", "access"]),
    since: "2.4.0",
    summary: "Returns a part of a value; empty if the key is absent.",
    complexity: "O(N) where N is the length of the part",
    notes: "Both ends are included; negative ones count from the end of the value, -1 being the \
last byte.",
    arguments: &[KEY, Argument::new("start", Kind::Integer), Argument::new("end", Kind::Integer)],
    parse: getrange,
    ..STRING
};

const SUBSTR: CommandSpec = CommandSpec {
    name: "substr",
    since: "1.0.0",
    summary: "Returns a part of a value, as GETRANGE does.",
    notes: "See GETRANGE.",
    ..GETRANGE
};

/// GETRANGE and SUBSTR.
fn getrange(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    let start = integer::parse(words.get(2)).ok_or(CommandError::NotAnInteger)?;
    let end = integer::parse(words.get(3)).ok_or(CommandError::NotAnInteger)?;
    Ok(Request::Key(Command::get_range(key(words.get(1))?, start, end), ReplyForm::Value))
}

const SETBIT: CommandSpec = CommandSpec {
    name: "setbit",
    arity: 4,
    flags: &[Flag::Write, Flag::DenyOom],
    keys: KeyPlaces::one(&["RW", "access", "update"]),
    since: "2.2.0",
    summary: "Sets a bit of a value and returns the bit before; what is added between is 0.",
    complexity: "O(N) where N is the length of the new value",
    notes: "Bit 0 is the highest bit of the first byte. The expiry stays. A bit beyond the longest \
value is an error, and nothing is changed.",
    arguments: &[KEY, OFFSET, Argument::new("value", Kind::Integer)],
    parse: setbit,
    ..BITMAP
};

fn setbit(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    let offset = bit_offset(words.get(2))?;
    let bit = match integer::parse(words.get(3)) {
        Some(0) => false,
        Some(1) => true,
        _ => return Err(CommandError::Bit),
    };
    Ok(Request::Key(
        Command::SetBit { key: key(words.get(1))?, offset, bit },
        ReplyForm::Number("setbit"),
    ))
}

const GETBIT: CommandSpec = CommandSpec {
    name: "getbit",
    arity: 3,
    flags: &[Flag::ReadOnly, Flag::Fast],
    keys: KeyPlaces::one(&["RO", "access"]),
    since: "2.2.0",
    summary: "Returns a bit of a value; bits behind the end and of an absent key are 0.",
    notes: "Bit 0 is the highest bit of the first byte.",
    arguments: &[KEY, OFFSET],
    parse: getbit,
    ..BITMAP
};

fn getbit(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    let offset = bit_offset(words.get(2))?;
    Ok(Request::Key(
        Command::GetBit { key: key(words.get(1))?, offset },
        ReplyForm::Number("getbit"),
    ))
}

/// The offset of a bit: below 2^32, as in Redis.
fn bit_offset(word: &[u8]) -> Result<u32, CommandError> {
    let offset = integer::parse(word).and_then(|offset| u32::try_from(offset).ok());
    offset.ok_or(CommandError::BitOffset)
}

const INCR: CommandSpec = CommandSpec {
    name: "incr",
    arity: 2,
    flags: &[Flag::Write, Flag::DenyOom, Flag::Fast],
    keys: KeyPlaces::one(&["RW", "access", "update"]),
    summary: "Adds one to the integer that a key holds; an absent key counts as 0.",
    notes: "Values are 64-bit signed integers in decimal; a result beyond them is an error. The \
expiry stays.",
    arguments: ONE_KEY,
    parse: incr,
    ..STRING
};

fn incr(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    add(words, 1)
}

const INCRBY: CommandSpec = CommandSpec {
    name: "incrby",
    arity: 3,
    flags: &[Flag::Write, Flag::DenyOom, Flag::Fast],
    keys: KeyPlaces::one(&["RW", "access", "update"]),
    summary: "Adds a number to the integer that a key holds; an absent key counts as 0.",
    arguments: &[KEY, Argument::new("increment", Kind::Integer)],
    parse: incrby,
    ..STRING
};

fn incrby(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    let by = integer::parse(words.get(2)).ok_or(CommandError::NotAnInteger)?;
    add(words, by)
}

const DECR: CommandSpec = CommandSpec {
    name: "decr",
    arity: 2,
    flags: &[Flag::Write, Flag::DenyOom, Flag::Fast],
    keys: KeyPlaces::one(&["RW", "access", "update"]),
    summary: "Subtracts one from the integer that a key holds; an absent key counts as 0.",
    arguments: ONE_KEY,
    parse: decr,
    ..STRING
};

fn decr(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    add(words, -1)
}

const DECRBY: CommandSpec = CommandSpec {
    name: "decrby",
    arity: 3,
    flags: &[Flag::Write, Flag::DenyOom, Flag::Fast],
    keys: KeyPlaces::one(&["RW", "access", "update"]),
    summary: "Subtracts a number from the integer that a key holds; an absent key counts as 0.",
    arguments: &[KEY, Argument::new("decrement", Kind::Integer)],
    parse: decrby,
    ..STRING
};

fn decrby(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    let by = integer::parse(words.get(2)).ok_or(CommandError::NotAnInteger)?;
    let by = by.checked_neg().ok_or(CommandError::DecrementOverflow)?;
    add(words, by)
}

fn add(words: Words<'_>, by: i64) -> ParseResult<'_> {
    let command = Command::Incr { key: key(words.get(1))?, by };
    Ok(Request::Key(command, ReplyForm::Number("incr")))
}

/// The commands.
pub(super) const COMMANDS: &[CommandSpec] = &[
    APPEND, DECR, DECRBY, GET, GETBIT, GETDEL, GETEX, GETRANGE, GETSET, INCR, INCRBY, MGET, MSET,
    PSETEX, SET, SETBIT, SETEX, SETNX, SETRANGE, STRLEN, SUBSTR,
];
