//! The key space: commands that list, count and remove all keys.

use crate::arguments::{PATTERN, cursor, pattern};
use crate::error::CommandError;
use crate::form::CombinedReply;
use crate::request::{KeyFilter, Request};
use crate::spec::{Argument, CommandSpec, Flag, Group, Kind, ParseResult};
use crate::wire::{RespVersion, Words, encode};
use remora_frontend::ShardAnswer;
use remora_protocol::ScannedKeys;
use remora_protocol::integer;

/// Default COUNT of SCAN.
const SCAN_COUNT: u32 = 10;

const SCAN: CommandSpec = CommandSpec {
    name: "scan",
    arity: -2,
    flags: &[Flag::ReadOnly],
    categories: &["keyspace"],
    since: "2.8.0",
    group: Group::GENERIC,
    summary: "Goes through the keys of the selected database, some at a time.",
    complexity: "O(1) for every call; O(N) for all of them",
    notes: "Begin with cursor 0 and go on with the cursor of each reply until that is 0. A key that is there from the first call to the last is returned at least once; one that comes or goes meanwhile may be returned or not.",
    arguments: &[
        Argument::new("cursor", Kind::Integer),
        PATTERN.after("MATCH").optional(),
        Argument::new("count", Kind::Integer).after("COUNT").optional(),
        Argument::new("type", Kind::String).after("TYPE").optional(),
    ],
    parse: scan,
    ..CommandSpec::PLAIN
};

fn scan(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    let cursor = cursor(words.get(1))?;
    let (mut count, mut filter) = (SCAN_COUNT, KeyFilter::default());
    let mut at = 2;
    while at < words.len() {
        if at + 1 == words.len() {
            return Err(CommandError::Syntax);
        }
        let value = words.get(at + 1);
        if words.is(at, "count") {
            let wanted = integer::parse(value).ok_or(CommandError::NotAnInteger)?;
            if wanted < 1 {
                return Err(CommandError::Syntax);
            }
            count = u32::try_from(wanted).unwrap_or(u32::MAX);
        } else if words.is(at, "match") {
            filter.pattern = Some(pattern(value, false)?);
        } else if words.is(at, "type") {
            filter.of_type = Some(value.into());
        } else {
            return Err(CommandError::Syntax);
        }
        at += 2;
    }
    Ok(Request::Scan { cursor, count, filter })
}

/// The reply to SCAN: where to continue, and keys.
pub static SCANNED: CombinedReply =
    CombinedReply { command: "scan", takes_errors: false, write: write_scanned };

fn write_scanned(out: &mut Vec<u8>, version: RespVersion, answers: &[ShardAnswer<'_>]) {
    let cursor: i64 = answers.iter().map(|answer| answer.number).sum();
    encode::array(out, 2);
    encode::bulk(out, cursor.to_string().as_bytes());
    write_keys(out, version, answers);
}

const KEYS: CommandSpec = CommandSpec {
    name: "keys",
    arity: 2,
    flags: &[Flag::ReadOnly],
    categories: &["keyspace", "dangerous"],
    since: "1.0.0",
    group: Group::GENERIC,
    summary: "Returns all keys of the selected database that match a pattern.",
    complexity: "O(N) where N is the number of keys",
    notes: "Goes on in turns: other requests are served meanwhile, and keys that come or go meanwhile may be returned or not. More than 64 MiB of keys, with 5 bytes for each, are an error: then use SCAN.",
    arguments: &[PATTERN],
    parse: keys,
    ..CommandSpec::PLAIN
};

fn keys(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    let pattern = Some(pattern(words.get(1), false)?);
    Ok(Request::KeysOf(KeyFilter { pattern, of_type: None }))
}

/// The reply to KEYS: all keys that the shards have sent.
pub static KEY_LIST: CombinedReply =
    CombinedReply { command: "keys", takes_errors: false, write: write_keys };

fn write_keys(out: &mut Vec<u8>, _: RespVersion, answers: &[ShardAnswer<'_>]) {
    let keys = || {
        let lists = answers.iter().map(|answer| answer.value.unwrap_or_default());
        lists.flat_map(ScannedKeys::new)
    };
    encode::array(out, keys().count());
    keys().for_each(|(_, key)| encode::bulk(out, key));
}

const RANDOMKEY: CommandSpec = CommandSpec {
    name: "randomkey",
    arity: 1,
    flags: &[Flag::ReadOnly],
    categories: &["keyspace"],
    since: "1.0.0",
    group: Group::GENERIC,
    summary: "Returns any key of the selected database, or null.",
    complexity: "O(1), or O(N) where N is the number of keys of all databases, if few of them are of this one",
    notes: "Shards are chosen by their numbers of keys. Where the database has many of a shard's keys, each of them is as likely as any other. Where it has few, or many of them have expired, the shard's table is gone through once from a random place on, in turns, and the first key that is met is returned: one that stands far behind the one before it is likelier.",
    parse: randomkey,
    ..CommandSpec::PLAIN
};

fn randomkey(_words: Words<'_>, _now: u64) -> ParseResult<'_> {
    Ok(Request::RandomKey)
}

const DBSIZE: CommandSpec = CommandSpec {
    name: "dbsize",
    arity: 1,
    flags: &[Flag::ReadOnly, Flag::Fast],
    categories: &["keyspace"],
    summary: "Returns the number of keys of the selected database.",
    notes: "The counts of the shards are taken one after the other: while keys come and go, the \
sum need not have been true at any one moment.",
    parse: dbsize,
    ..CommandSpec::PLAIN
};

fn dbsize(_words: Words<'_>, _now: u64) -> ParseResult<'_> {
    Ok(Request::DbSize)
}

const FLUSH: &[Argument] = &[Argument::of(
    "flush-type",
    Kind::OneOf,
    &[Argument::word("async", "ASYNC"), Argument::word("sync", "SYNC")],
)
.optional()];

const FLUSHALL: CommandSpec = CommandSpec {
    name: "flushall",
    arity: -1,
    flags: &[Flag::Write],
    categories: &["keyspace", "dangerous"],
    summary: "Removes all keys of all databases.",
    complexity: "O(N) where N is the number of keys and of objects in trees",
    notes: "ASYNC and SYNC mean the same. Each shard is emptied in turns and serves others \
meanwhile; a key that is written meanwhile may stay.",
    arguments: FLUSH,
    parse: flushall,
    ..CommandSpec::PLAIN
};

fn flushall(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    flushed(words, Request::FlushAll)
}

const FLUSHDB: CommandSpec = CommandSpec {
    name: "flushdb",
    arity: -1,
    flags: &[Flag::Write],
    categories: &["keyspace", "dangerous"],
    summary: "Removes all keys of the selected database.",
    complexity: "O(N) where N is the number of keys and of objects in trees",
    notes: "See FLUSHALL.",
    arguments: FLUSH,
    parse: flushdb,
    ..CommandSpec::PLAIN
};

fn flushdb(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    flushed(words, Request::FlushDb)
}

/// Memory is reclaimed slot by slot in any case, so ASYNC and SYNC mean the
/// same.
fn flushed<'a>(words: Words<'a>, request: Request<'a>) -> ParseResult<'a> {
    let is_mode = || words.is(1, "async") || words.is(1, "sync");
    match words.len() {
        1 => Ok(request),
        2 if is_mode() => Ok(request),
        _ => Err(CommandError::Syntax),
    }
}

/// The commands.
pub(super) const COMMANDS: &[CommandSpec] = &[DBSIZE, FLUSHALL, FLUSHDB, KEYS, RANDOMKEY, SCAN];
