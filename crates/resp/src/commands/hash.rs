//! Hashes, in the words and with the errors of Redis 7.

pub(crate) mod links;

use crate::arguments::{KEY, SCAN_ARGUMENTS, ScanOptions, VALUE, cursor, items, scan_options};
use crate::error::CommandError;
use crate::form::{ListForm, ObjectReply, ReplyForm, Shape};
use crate::keys::key;
use crate::request::Request;
use crate::spec::{Argument, CommandSpec, Flag, Group, KeyPlaces, Kind, ParseResult};
use crate::wire::Words;
use remora_layout::limits::MAX_REPLY_BYTES;
use remora_protocol::hash::{HashCommand, Told};
use remora_protocol::message::Status;
use remora_protocol::{decimal, integer};

const FIELD: Argument = Argument::new("field", Kind::String);
const PAIRS: Argument = Argument::of("data", Kind::Block, &[FIELD, VALUE]).multiple();

/// Commands that read a hash.
const HASH: CommandSpec = CommandSpec {
    categories: &["hash"],
    since: "2.0.0",
    group: Group::new("hash", "Hashes"),
    flags: &[Flag::ReadOnly, Flag::Fast],
    keys: KeyPlaces::one(&["RO", "access"]),
    arguments: &[KEY, FIELD],
    ..CommandSpec::PLAIN
};

/// Commands that change a hash.
const WRITES: CommandSpec = CommandSpec {
    flags: &[Flag::Write, Flag::DenyOom, Flag::Fast],
    keys: KeyPlaces::one(&["RW", "update"]),
    ..HASH
};

/// Commands that return all fields.
const TELLS_ALL: CommandSpec = CommandSpec {
    arity: 2,
    flags: &[Flag::ReadOnly],
    keys: KeyPlaces::one(&["RO", "access"]),
    complexity: "O(N) where N is the number of fields",
    notes: "Tells of the hash as it is when the command begins. A large hash is read in turns, \
between which the shard does other work; what is changed meanwhile does not show. Fields come in \
no order. A client that reads so slowly that an eighth of the shard's memory is taken by what is \
changed and still to be sent loses its connection.",
    arguments: &[KEY],
    ..HASH
};

fn request<'a>(
    words: Words<'a>,
    command: HashCommand<'a>,
    reply: &'static ObjectReply,
) -> ParseResult<'a> {
    let (key, form) = (key(words.get(1))?, ReplyForm::Object(reply));
    Ok(Request::Object { key, request: command.request(), form })
}

/// The error where all fields are too long for a reply.
const TOO_LONG: &[(Status, &str)] = &[(
    Status::TooLarge,
    "ERR the reply is longer than 64 MiB: ask for fewer fields, or use HSCAN",
)];
const _: () = assert!(MAX_REPLY_BYTES == 64 << 20);

const fn list(command: &'static str, form: ListForm) -> ObjectReply {
    ObjectReply { command, shape: Shape::List(form), errors: TOO_LONG }
}

const HSET: CommandSpec = CommandSpec {
    name: "hset",
    arity: -4,
    summary: "Sets fields; returns how many of them are new.",
    complexity: "O(N) where N is the number of fields to be set",
    notes: "One change: others see all fields set, or none. The names of fields have the \
limits of keys. A hash of up to 128 fields, with names and values of up to 64 bytes, lies whole in \
one record; a larger one has a record for each field, and stays so.",
    arguments: &[KEY, PAIRS],
    parse: hset,
    ..WRITES
};

static SET: ObjectReply = ObjectReply::new("hset", Shape::Number);

fn hset(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    set_as(words, &SET)
}

const HMSET: CommandSpec = CommandSpec {
    name: "hmset",
    arity: -4,
    summary: "Sets fields.",
    complexity: "O(N) where N is the number of fields to be set",
    notes: "As HSET, but the reply is OK.",
    arguments: &[KEY, PAIRS],
    parse: hmset,
    ..WRITES
};

static MSET: ObjectReply = ObjectReply::new("hmset", Shape::Ok);

fn hmset(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    set_as(words, &MSET)
}

fn set_as<'a>(words: Words<'a>, reply: &'static ObjectReply) -> ParseResult<'a> {
    if words.len() % 2 == 1 {
        return Err(CommandError::WrongArity(reply.command));
    }
    request(words, HashCommand::Set { pairs: items(words, 2, 2)? }, reply)
}

const HSETNX: CommandSpec = CommandSpec {
    name: "hsetnx",
    arity: 4,
    keys: KeyPlaces::one(&["RW", "insert"]),
    summary: "Sets a field if it is not there; returns 1 if it was set, else 0.",
    arguments: &[KEY, FIELD, VALUE],
    parse: hsetnx,
    ..WRITES
};

static SET_ABSENT: ObjectReply = ObjectReply::new("hsetnx", Shape::Number);

fn hsetnx(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    request(words, HashCommand::SetAbsent { pair: items(words, 2, 2)? }, &SET_ABSENT)
}

const HGET: CommandSpec = CommandSpec {
    name: "hget",
    arity: 3,
    summary: "Returns the value of a field, or null.",
    parse: hget,
    ..HASH
};

static GET: ObjectReply = ObjectReply::new("hget", Shape::Value);

fn hget(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    request(words, HashCommand::Get { name: key(words.get(2))? }, &GET)
}

/// The request about the value of a field.
pub(super) fn field_request(name: &[u8]) -> remora_protocol::Request<'_> {
    HashCommand::Get { name }.request()
}

const HMGET: CommandSpec = CommandSpec {
    name: "hmget",
    arity: -3,
    summary: "Returns the values of fields; null for those that are not there.",
    complexity: "O(N) where N is the number of fields that are asked for",
    arguments: &[KEY, FIELD.multiple()],
    parse: hmget,
    ..HASH
};

static MGET: ObjectReply = list("hmget", ListForm::Array);

fn hmget(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    request(words, HashCommand::GetMany { names: items(words, 2, 1)? }, &MGET)
}

const HGETALL: CommandSpec = CommandSpec {
    name: "hgetall",
    summary: "Returns all fields and their values.",
    parse: hgetall,
    ..TELLS_ALL
};

static GET_ALL: ObjectReply = list("hgetall", ListForm::Map);

fn hgetall(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    request(words, HashCommand::All { told: Told::Both }, &GET_ALL)
}

const HKEYS: CommandSpec = CommandSpec {
    name: "hkeys",
    summary: "Returns the names of all fields.",
    parse: hkeys,
    ..TELLS_ALL
};

static NAMES: ObjectReply = list("hkeys", ListForm::Array);

fn hkeys(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    request(words, HashCommand::All { told: Told::Names }, &NAMES)
}

const HVALS: CommandSpec = CommandSpec {
    name: "hvals",
    summary: "Returns the values of all fields.",
    parse: hvals,
    ..TELLS_ALL
};

static VALUES: ObjectReply = list("hvals", ListForm::Array);

fn hvals(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    request(words, HashCommand::All { told: Told::Values }, &VALUES)
}

const HDEL: CommandSpec = CommandSpec {
    name: "hdel",
    arity: -3,
    flags: &[Flag::Write, Flag::Fast],
    keys: KeyPlaces::one(&["RW", "delete"]),
    summary: "Removes fields; returns how many of them were there.",
    complexity: "O(N) where N is the number of fields to be removed",
    notes: "The key is gone with its last field.",
    arguments: &[KEY, FIELD.multiple()],
    parse: hdel,
    ..WRITES
};

static REMOVE: ObjectReply = ObjectReply::new("hdel", Shape::Number);

fn hdel(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    request(words, HashCommand::Remove { names: items(words, 2, 1)? }, &REMOVE)
}

const HEXISTS: CommandSpec = CommandSpec {
    name: "hexists",
    arity: 3,
    keys: KeyPlaces::one(&["RO"]),
    summary: "Returns 1 if the field is there, else 0.",
    parse: hexists,
    ..HASH
};

static EXISTS: ObjectReply = ObjectReply::new("hexists", Shape::Number);

fn hexists(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    request(words, HashCommand::Exists { name: key(words.get(2))? }, &EXISTS)
}

const HLEN: CommandSpec = CommandSpec {
    name: "hlen",
    arity: 2,
    keys: KeyPlaces::one(&["RO"]),
    summary: "Returns the number of fields.",
    arguments: &[KEY],
    parse: hlen,
    ..HASH
};

static LENGTH: ObjectReply = ObjectReply::new("hlen", Shape::Number);

fn hlen(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    request(words, HashCommand::Length, &LENGTH)
}

const HSTRLEN: CommandSpec = CommandSpec {
    name: "hstrlen",
    arity: 3,
    keys: KeyPlaces::one(&["RO"]),
    since: "3.2.0",
    summary: "Returns the length of a field's value in bytes; 0 if it is not there.",
    parse: hstrlen,
    ..HASH
};

static VALUE_LENGTH: ObjectReply = ObjectReply::new("hstrlen", Shape::Number);

fn hstrlen(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    request(words, HashCommand::ValueLength { name: key(words.get(2))? }, &VALUE_LENGTH)
}

const HINCRBY: CommandSpec = CommandSpec {
    name: "hincrby",
    arity: 4,
    summary: "Adds to the integer in a field; returns the sum.",
    notes: "A field that is not there counts as 0.",
    arguments: &[KEY, FIELD, Argument::new("increment", Kind::Integer)],
    parse: hincrby,
    ..WRITES
};

static INCREMENT: ObjectReply = ObjectReply {
    command: "hincrby",
    shape: Shape::Number,
    errors: &[(Status::NotAnInteger, "ERR hash value is not an integer")],
};

fn hincrby(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    let by = integer::parse(words.get(3)).ok_or(CommandError::NotAnInteger)?;
    request(words, HashCommand::Increment { name: key(words.get(2))?, by }, &INCREMENT)
}

const HINCRBYFLOAT: CommandSpec = CommandSpec {
    name: "hincrbyfloat",
    arity: 4,
    since: "2.6.0",
    summary: "Adds to the number in a field; returns the sum.",
    notes: "A field that is not there counts as 0. Numbers have a mantissa of 64 bits, and up \
to 17 digits behind the point are kept: as in Redis on x86.",
    arguments: &[KEY, FIELD, Argument::new("increment", Kind::Double)],
    parse: hincrbyfloat,
    ..WRITES
};

static INCREMENT_FLOAT: ObjectReply = ObjectReply {
    command: "hincrbyfloat",
    shape: Shape::Value,
    errors: &[
        (Status::NotAnInteger, "ERR hash value is not a float"),
        (Status::Overflow, "ERR increment would produce NaN or Infinity"),
    ],
};

fn hincrbyfloat(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    let by = decimal::parse(words.get(3)).ok_or(CommandError::NotAFloat)?;
    if !by.is_finite() {
        return Err(CommandError::Infinite);
    }
    let list = items(words, 2, 2)?;
    let command = HashCommand::IncrementFloat { name_and_by: list };
    request(words, command, &INCREMENT_FLOAT)
}

const HRANDFIELD: CommandSpec = CommandSpec {
    name: "hrandfield",
    arity: -2,
    flags: &[Flag::ReadOnly],
    since: "6.2.0",
    summary: "Returns random fields.",
    complexity: "O(N) where N is the number of fields that are told, or of all of them, which \
are looked at in turns, if COUNT is positive",
    notes: "Without COUNT one name, or null. A positive count: so many different ones at most. \
A negative one: so many, of which some may be the same.",
    arguments: &[
        KEY,
        Argument::of(
            "options",
            Kind::Block,
            &[
                Argument::new("count", Kind::Integer),
                Argument::word("withvalues", "WITHVALUES").optional(),
            ],
        )
        .optional(),
    ],
    parse: hrandfield,
    ..HASH
};

static RANDOM_ONE: ObjectReply = ObjectReply::new("hrandfield", Shape::OneItem);
static RANDOM: ObjectReply = list("hrandfield", ListForm::Array);
static RANDOM_PAIRS: ObjectReply = list("hrandfield", ListForm::Pairs);

fn hrandfield(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    if words.len() == 2 {
        return request(words, HashCommand::Random { count: -1, told: Told::Names }, &RANDOM_ONE);
    }
    let count = integer::parse(words.get(2)).ok_or(CommandError::NotAnInteger)?;
    if count == i64::MIN {
        return Err(CommandError::NotInLongRange);
    }
    let with_values = match words.len() {
        3 => false,
        4 if words.is(3, "withvalues") => true,
        _ => return Err(CommandError::Syntax),
    };
    if with_values && count.unsigned_abs() > i64::MAX as u64 / 2 {
        return Err(CommandError::CountOutOfRange);
    }
    let (told, reply) =
        if with_values { (Told::Both, &RANDOM_PAIRS) } else { (Told::Names, &RANDOM) };
    request(words, HashCommand::Random { count, told }, reply)
}

const HSCAN: CommandSpec = CommandSpec {
    name: "hscan",
    arity: -3,
    flags: &[Flag::ReadOnly],
    since: "2.8.0",
    summary: "Returns some fields and their values, and a cursor to go on with.",
    complexity: "O(1) for each call, O(N) for all where N is the number of fields",
    notes: "The scan is over when the cursor is 0. A field that is there all the time is returned \
at least once, whatever is added meanwhile. A small hash is returned whole, whatever COUNT says.",
    arguments: SCAN_ARGUMENTS,
    parse: hscan,
    ..HASH
};

static SCAN: ObjectReply = list("hscan", ListForm::Cursor);
static SCAN_SYNTAX: ObjectReply =
    ObjectReply::new("hscan", Shape::ErrorUnlessEmpty("ERR syntax error"));
static SCAN_NUMBER: ObjectReply = ObjectReply::new(
    "hscan",
    Shape::ErrorUnlessEmpty("ERR value is not an integer or out of range"),
);

/// HSCAN. Options that make no sense are an error only if the key exists: so it is
/// in Redis.
fn hscan(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    let cursor = cursor(words.get(2))?;
    match scan_options(words)? {
        ScanOptions::Some(options) => request(words, HashCommand::Scan { cursor, options }, &SCAN),
        ScanOptions::Syntax => request(words, HashCommand::Length, &SCAN_SYNTAX),
        ScanOptions::Number => request(words, HashCommand::Length, &SCAN_NUMBER),
    }
}

/// The commands.
pub(super) const COMMANDS: &[CommandSpec] = &[
    HDEL,
    HEXISTS,
    HGET,
    HGETALL,
    HINCRBY,
    HINCRBYFLOAT,
    HKEYS,
    HLEN,
    HMGET,
    HMSET,
    HRANDFIELD,
    HSCAN,
    HSET,
    HSETNX,
    HSTRLEN,
    HVALS,
];
