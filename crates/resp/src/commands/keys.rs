//! Keys of any type: they are removed, counted, looked at, renamed, copied and moved.

use crate::arguments::{self, KEY, KEYS, ONE_KEY};
use crate::error::CommandError;
use crate::form::{ObjectReply, ReplyForm, Shape};
use crate::keys::{Keys, key};
use crate::request::{Request, Transfer};
use crate::spec::{Argument, CommandSpec, Flag, Group, KeyPlaces, Kind, ParseResult, help};
use crate::wire::{RespVersion, Words, encode};
use remora_frontend::ShardAnswer;
use remora_layout::kind;
use remora_protocol::Command;
use remora_protocol::message::Status;

const DEL: CommandSpec = CommandSpec {
    name: "del",
    arity: -2,
    flags: &[Flag::Write],
    keys: KeyPlaces::every(1, &["RM", "delete"]),
    categories: &["keyspace"],
    group: Group::GENERIC,
    summary: "Removes keys; returns how many of them existed.",
    complexity: "O(N) where N is the number of keys",
    notes: "Several keys are not one transaction across shards: others may see some removed and \
some not yet.",
    arguments: KEYS,
    parse: del,
    ..CommandSpec::PLAIN
};

const UNLINK: CommandSpec = CommandSpec {
    name: "unlink",
    arity: -2,
    flags: &[Flag::Write, Flag::Fast],
    keys: KeyPlaces::every(1, &["RM", "delete"]),
    categories: &["keyspace"],
    since: "4.0.0",
    group: Group::GENERIC,
    summary: "Removes keys, as DEL does.",
    complexity: "O(N) where N is the number of keys",
    notes: "See DEL.",
    arguments: KEYS,
    parse: del,
    ..CommandSpec::PLAIN
};

fn del(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    Ok(Request::Del(Keys::checked(words, 1)?))
}

const EXISTS: CommandSpec = CommandSpec {
    name: "exists",
    arity: -2,
    flags: &[Flag::ReadOnly, Flag::Fast],
    keys: KeyPlaces::every(1, &["RO"]),
    categories: &["keyspace"],
    group: Group::GENERIC,
    summary: "Returns how many of the named keys exist; a key named twice counts twice.",
    complexity: "O(N) where N is the number of keys",
    notes: "Several keys are not one transaction across shards: each is looked at on its own.",
    arguments: KEYS,
    parse: exists,
    ..CommandSpec::PLAIN
};

fn exists(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    Ok(Request::Exists(Keys::checked(words, 1)?))
}

const TOUCH: CommandSpec = CommandSpec {
    name: "touch",
    arity: -2,
    flags: &[Flag::ReadOnly, Flag::Fast],
    keys: KeyPlaces::every(1, &["RO"]),
    categories: &["keyspace"],
    since: "3.2.1",
    group: Group::GENERIC,
    summary: "Returns how many of the named keys exist.",
    complexity: "O(N) where N is the number of keys",
    notes: "With an eviction policy the keys count as used.",
    arguments: KEYS,
    parse: touch,
    ..CommandSpec::PLAIN
};

fn touch(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    Ok(Request::Touch(Keys::checked(words, 1)?))
}

const TYPE: CommandSpec = CommandSpec {
    name: "type",
    arity: 2,
    flags: &[Flag::ReadOnly, Flag::Fast],
    keys: KeyPlaces::one(&["RO"]),
    categories: &["keyspace"],
    group: Group::GENERIC,
    summary: "Returns the type of what a key holds, such as string or zset; none without the key.",
    notes: "A module of Redis would name its own type as rtree does here.",
    arguments: ONE_KEY,
    parse: type_of,
    ..CommandSpec::PLAIN
};

static TYPE_NAME: ObjectReply = ObjectReply::new("type", Shape::Own(write_type));

fn type_of(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    Ok(Request::Key(Command::Type { key: key(words.get(1))? }, ReplyForm::Object(&TYPE_NAME)))
}

fn write_type(out: &mut Vec<u8>, _: RespVersion, answer: ShardAnswer<'_>) {
    let name = match answer.status {
        Status::Ok => kind::Kind(answer.number as u8).name(),
        _ => "none",
    };
    encode::simple(out, name);
}

const OBJECT: CommandSpec = CommandSpec {
    name: "object",
    arity: -2,
    categories: &[],
    since: "2.2.3",
    group: Group::GENERIC,
    summary: "Holds the commands about how values are kept.",
    complexity: "Depends on the subcommand.",
    subcommands: &[OBJECT_ENCODING, OBJECT_FREQ, OBJECT_HELP, OBJECT_IDLETIME, OBJECT_REFCOUNT],
    ..CommandSpec::PLAIN
};

const OBJECT_ENCODING: CommandSpec = CommandSpec {
    name: "object|encoding",
    arity: 3,
    flags: &[Flag::ReadOnly],
    keys: KeyPlaces { first: 2, last: 2, step: 1, access: &["RO"], ..KeyPlaces::NONE },
    categories: &["keyspace"],
    since: "2.2.3",
    group: Group::GENERIC,
    summary: "Returns how a value is kept, in the words of Redis; null without the key.",
    notes: "The words are those of Redis 7.0: a list is a quicklist, a set an intset or a hashtable, a hash a \
listpack or a hashtable. A short string that APPEND has made is embstr here, and raw in Redis.",
    arguments: &[KEY],
    parse: object_encoding,
    ..CommandSpec::PLAIN
};

fn object_encoding(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    Ok(Request::Key(Command::Encoding { key: key(words.get(2))? }, ReplyForm::Value))
}

const OBJECT_FREQ: CommandSpec = CommandSpec {
    name: "object|freq",
    arity: 3,
    flags: &[Flag::ReadOnly],
    keys: KeyPlaces { first: 2, last: 2, step: 1, access: &["RO"], ..KeyPlaces::NONE },
    categories: &["keyspace"],
    since: "4.0.0",
    group: Group::GENERIC,
    summary: "Returns how often a key was used, as eviction counts it.",
    notes: "With eviction = s3-fifo: 0 to 3, of which each round of eviction takes one away; a new key \
        counts to 1. A client that reads the memory does not count. Else it is an error.",
    arguments: &[KEY],
    parse: object_freq,
    ..CommandSpec::PLAIN
};

static TOUCHES: ObjectReply = ObjectReply::new("object|freq", Shape::Own(write_touches));

fn object_freq(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    Ok(Request::Key(Command::Encoding { key: key(words.get(2))? }, ReplyForm::Object(&TOUCHES)))
}

/// How often a key was touched, null without it, or the error that this is not counted.
fn write_touches(out: &mut Vec<u8>, version: RespVersion, answer: ShardAnswer<'_>) {
    match answer.status {
        Status::Ok if answer.number < 0 => encode::error(
            out,
            "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please \
             note that when switching between policies at runtime LRU and LFU data will take \
             some time to adjust.",
        ),
        Status::Ok => encode::integer(out, answer.number),
        _ => encode::null(out, version),
    }
}

const OBJECT_HELP: CommandSpec = CommandSpec {
    name: "object|help",
    arity: 2,
    flags: &[Flag::Loading, Flag::Stale],
    categories: &["keyspace"],
    since: "6.2.0",
    group: Group::GENERIC,
    summary: "Lists the subcommands.",
    parse: help,
    ..CommandSpec::PLAIN
};

const OBJECT_IDLETIME: CommandSpec = CommandSpec {
    name: "object|idletime",
    arity: 3,
    flags: &[Flag::ReadOnly],
    keys: KeyPlaces { first: 2, last: 2, step: 1, access: &["RO"], ..KeyPlaces::NONE },
    categories: &["keyspace"],
    since: "2.2.3",
    group: Group::GENERIC,
    summary: "Returns an error: when a key was used last is not known.",
    notes: "Clients read memory without telling the server.",
    arguments: &[KEY],
    parse: object_idletime,
    ..CommandSpec::PLAIN
};

static IDLE_TIME: ObjectReply = ObjectReply::new("object|idletime", Shape::Own(write_idle_time));

fn object_idletime(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    Ok(Request::Key(Command::Type { key: key(words.get(2))? }, ReplyForm::Object(&IDLE_TIME)))
}

fn write_idle_time(out: &mut Vec<u8>, version: RespVersion, answer: ShardAnswer<'_>) {
    match answer.status {
        Status::NotFound => encode::null(out, version),
        _ => encode::error(
            out,
            "ERR idle time is not tracked: a client may read a key without asking the server",
        ),
    }
}

const OBJECT_REFCOUNT: CommandSpec = CommandSpec {
    name: "object|refcount",
    arity: 3,
    flags: &[Flag::ReadOnly],
    keys: KeyPlaces { first: 2, last: 2, step: 1, access: &["RO"], ..KeyPlaces::NONE },
    categories: &["keyspace"],
    since: "2.2.3",
    group: Group::GENERIC,
    summary: "Returns 1; null without the key.",
    notes: "Redis shares small integers and tells so; here nothing is shared.",
    arguments: &[KEY],
    parse: object_refcount,
    ..CommandSpec::PLAIN
};

static REFERENCES: ObjectReply = ObjectReply::new("object|refcount", Shape::Own(write_references));

fn object_refcount(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    Ok(Request::Key(Command::Type { key: key(words.get(2))? }, ReplyForm::Object(&REFERENCES)))
}

fn write_references(out: &mut Vec<u8>, version: RespVersion, answer: ShardAnswer<'_>) {
    match answer.status {
        Status::NotFound => encode::null(out, version),
        _ => encode::integer(out, 1),
    }
}

const BETWEEN_SHARDS: &str = "Between keys of different shards it is not atomic: for a moment both \
    keys may be there. The key is removed only once the other one has all of it; an error means that \
    nothing was changed. A large hash, a GEO key or a tree goes in pieces. Commands that would change \
    the key meanwhile are answered with TRYAGAIN, and so is this one if either key is on its way, or \
    too many keys are. Objects that are staged for a tree stay behind and go.";

/// The error of RENAME and RENAMENX without the key.
const NO_SUCH_KEY: &[(Status, &str)] = &[(Status::NotFound, "ERR no such key")];
static RENAMED: ObjectReply =
    ObjectReply { command: "rename", shape: Shape::Ok, errors: NO_SUCH_KEY };
static WAS_RENAMED: ObjectReply =
    ObjectReply { command: "renamenx", shape: Shape::Number, errors: NO_SUCH_KEY };

const RENAME: CommandSpec = CommandSpec {
    name: "rename",
    arity: 3,
    flags: &[Flag::Write],
    keys: KeyPlaces::two(&["RW", "access", "delete"], &["OW", "update"]),
    categories: &["keyspace"],
    since: "1.0.0",
    group: Group::GENERIC,
    summary: "Gives a key another name; another key of that name goes.",
    complexity: "O(N) where N is the bytes of the value",
    notes: BETWEEN_SHARDS,
    arguments: &[KEY, Argument::new("newkey", Kind::Key)],
    parse: rename,
    ..CommandSpec::PLAIN
};

fn rename(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    renamed(words, true, ReplyForm::Object(&RENAMED))
}

const RENAMENX: CommandSpec = CommandSpec {
    name: "renamenx",
    arity: 3,
    flags: &[Flag::Write],
    keys: KeyPlaces::two(&["RW", "access", "delete"], &["OW", "insert"]),
    categories: &["keyspace"],
    since: "1.0.0",
    group: Group::GENERIC,
    summary: "Gives a key another name, if there is no key of that name.",
    complexity: "O(N) where N is the bytes of the value",
    notes: "See RENAME.",
    arguments: &[KEY, Argument::new("newkey", Kind::Key)],
    parse: renamenx,
    ..CommandSpec::PLAIN
};

fn renamenx(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    renamed(words, false, ReplyForm::Object(&WAS_RENAMED))
}

fn renamed(words: Words<'_>, replaces: bool, form: ReplyForm) -> ParseResult<'_> {
    let (key, to) = (key(words.get(1))?, key(words.get(2))?);
    let (database, keeps, must_differ) = (None, false, false);
    Ok(Request::Transfer(Transfer { key, to, database, replaces, keeps, must_differ, form }))
}

const MOVE: CommandSpec = CommandSpec {
    name: "move",
    arity: 3,
    flags: &[Flag::Write, Flag::Fast],
    keys: KeyPlaces::one(&["RW", "access", "delete"]),
    categories: &["keyspace"],
    since: "1.0.0",
    group: Group::GENERIC,
    summary: "Moves a key to another database.",
    complexity: "O(N) where N is the bytes of the value",
    notes: BETWEEN_SHARDS,
    arguments: &[KEY, Argument::new("db", Kind::Integer)],
    parse: move_key,
    ..CommandSpec::PLAIN
};

fn move_key(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    let database = Some(arguments::database(words.get(2))?);
    let key = key(words.get(1))?;
    let (replaces, keeps, must_differ, form) = (false, false, true, ReplyForm::Number("move"));
    Ok(Request::Transfer(Transfer { key, to: key, database, replaces, keeps, must_differ, form }))
}

const DATABASE: Argument = Argument::new("destination-db", Kind::Integer);

const COPY: CommandSpec = CommandSpec {
    name: "copy",
    arity: -3,
    flags: &[Flag::Write, Flag::DenyOom],
    keys: KeyPlaces::two(&["RO", "access"], &["OW", "update"]),
    categories: &["keyspace"],
    since: "6.2.0",
    group: Group::GENERIC,
    summary: "Copies the value and the expiry of a key to another one.",
    complexity: "O(N) where N is the bytes of the value",
    notes: BETWEEN_SHARDS,
    arguments: &[
        Argument::new("source", Kind::Key),
        Argument::new("destination", Kind::Key),
        DATABASE.after("DB").optional(),
        Argument::word("replace", "REPLACE").optional(),
    ],
    parse: copy,
    ..CommandSpec::PLAIN
};

fn copy(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    let (mut database, mut replaces) = (None, false);
    let mut at = 3;
    while at < words.len() {
        if words.is(at, "replace") {
            replaces = true;
        } else if words.is(at, "db") && at + 1 < words.len() {
            at += 1;
            database = Some(arguments::database(words.get(at))?);
        } else {
            return Err(CommandError::Syntax);
        }
        at += 1;
    }
    let (key, to) = (key(words.get(1))?, key(words.get(2))?);
    let (keeps, must_differ, form) = (true, true, ReplyForm::Number("copy"));
    Ok(Request::Transfer(Transfer { key, to, database, replaces, keeps, must_differ, form }))
}

/// The commands.
pub(super) const COMMANDS: &[CommandSpec] =
    &[COPY, DEL, EXISTS, MOVE, OBJECT, RENAME, RENAMENX, TOUCH, TYPE, UNLINK];
