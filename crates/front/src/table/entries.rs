//! The commands, sorted by name. What an entry leaves out is as in
//! [`CommandSpec::PLAIN`].

use super::{
    CommandSpec, Flag, Group, KeyPlaces, arguments as args, geo_entries as geo,
    string_entries as strings, subcommands, tree_entries as trees,
};
use crate::request::parsers;

/// What EXPIRE and its kin do with their options.
const EXPIRE_NOTES: &str = "Returns 1 if the expiry was set, 0 if not. NX: only if there is no \
expiry; XX: only if there is one; GT and LT: only if the new one is later or earlier than the old, \
where none counts as infinitely late. A time in the past removes the key. Expiries reach to the year 2527.";

/// The table.
pub static TABLE: [CommandSpec; 66] = [
    strings::APPEND,
    CommandSpec {
        name: "client",
        arity: -2,
        since: "2.4.0",
        group: Group::Connection,
        summary: "Holds the commands about the connection itself.",
        complexity: "Depends on the subcommand.",
        subcommands: subcommands::CLIENT,
        ..CommandSpec::PLAIN
    },
    CommandSpec {
        name: "command",
        arity: -1,
        flags: &[Flag::Loading, Flag::Stale],
        categories: &["connection"],
        since: "2.8.13",
        summary: "Describes all commands.",
        complexity: "O(N) where N is the number of commands",
        subcommands: subcommands::COMMAND,
        parse: parsers::command,
        ..CommandSpec::PLAIN
    },
    CommandSpec {
        name: "config",
        arity: -2,
        since: "2.0.0",
        summary: "Holds the commands about the configuration.",
        complexity: "Depends on the subcommand.",
        notes: "The configuration is set when the server starts; there is no CONFIG SET.",
        subcommands: subcommands::CONFIG,
        ..CommandSpec::PLAIN
    },
    CommandSpec {
        name: "dbsize",
        arity: 1,
        flags: &[Flag::ReadOnly, Flag::Fast],
        categories: &["keyspace"],
        summary: "Returns the number of keys.",
        notes: "The counts of the shards are taken one after the other: while keys come and go, the \
sum need not have been true at any one moment.",
        parse: parsers::dbsize,
        ..CommandSpec::PLAIN
    },
    strings::DECR,
    strings::DECRBY,
    CommandSpec {
        name: "del",
        arity: -2,
        flags: &[Flag::Write],
        keys: KeyPlaces::every(1, &["RM", "delete"]),
        categories: &["keyspace"],
        group: Group::Generic,
        summary: "Removes keys; returns how many of them existed.",
        complexity: "O(N) where N is the number of keys",
        notes: "Several keys are not one transaction across shards: others may see some removed and \
some not yet.",
        arguments: args::KEYS,
        parse: parsers::del,
        ..CommandSpec::PLAIN
    },
    CommandSpec {
        name: "echo",
        arity: 2,
        flags: &[Flag::Loading, Flag::Stale, Flag::Fast],
        categories: &["connection"],
        group: Group::Connection,
        summary: "Returns the message.",
        arguments: args::ECHO,
        parse: parsers::echo,
        ..CommandSpec::PLAIN
    },
    CommandSpec {
        name: "exists",
        arity: -2,
        flags: &[Flag::ReadOnly, Flag::Fast],
        keys: KeyPlaces::every(1, &["RO"]),
        categories: &["keyspace"],
        group: Group::Generic,
        summary: "Returns how many of the named keys exist; a key named twice counts twice.",
        complexity: "O(N) where N is the number of keys",
        notes: "Several keys are not one transaction across shards: each is looked at on its own.",
        arguments: args::KEYS,
        parse: parsers::exists,
        ..CommandSpec::PLAIN
    },
    CommandSpec {
        name: "expire",
        arity: -3,
        flags: &[Flag::Write, Flag::Fast],
        keys: KeyPlaces::one(&["RW", "update"]),
        categories: &["keyspace"],
        group: Group::Generic,
        summary: "Sets a key's time to live in seconds.",
        notes: EXPIRE_NOTES,
        arguments: args::EXPIRE,
        parse: parsers::expire,
        ..CommandSpec::PLAIN
    },
    CommandSpec {
        name: "expireat",
        arity: -3,
        flags: &[Flag::Write, Flag::Fast],
        keys: KeyPlaces::one(&["RW", "update"]),
        categories: &["keyspace"],
        since: "1.2.0",
        group: Group::Generic,
        summary: "Sets when a key expires, in Unix seconds.",
        notes: EXPIRE_NOTES,
        arguments: args::EXPIREAT,
        parse: parsers::expireat,
        ..CommandSpec::PLAIN
    },
    CommandSpec {
        name: "flushall",
        arity: -1,
        flags: &[Flag::Write],
        categories: &["keyspace", "dangerous"],
        summary: "Removes all keys and all trees.",
        complexity: "O(N) where N is the number of keys and of objects in trees",
        notes: "ASYNC and SYNC mean the same. The shards are emptied one after the other: a key \
that is written meanwhile may stay.",
        arguments: args::FLUSH,
        parse: parsers::flush,
        ..CommandSpec::PLAIN
    },
    CommandSpec {
        name: "flushdb",
        arity: -1,
        flags: &[Flag::Write],
        categories: &["keyspace", "dangerous"],
        summary: "Removes all keys and trees: there is one database, so this is FLUSHALL.",
        complexity: "O(N) where N is the number of keys and of objects in trees",
        notes: "See FLUSHALL.",
        arguments: args::FLUSH,
        parse: parsers::flush,
        ..CommandSpec::PLAIN
    },
    geo::GEOADD,
    geo::GEODIST,
    geo::GEOHASH,
    geo::GEOPOS,
    geo::GEORADIUS,
    geo::GEORADIUS_RO,
    geo::GEORADIUSBYMEMBER,
    geo::GEORADIUSBYMEMBER_RO,
    geo::GEOSEARCH,
    geo::GEOSEARCHSTORE,
    CommandSpec {
        name: "get",
        arity: 2,
        flags: &[Flag::ReadOnly, Flag::Fast],
        keys: KeyPlaces::one(&["RO", "access"]),
        categories: &["string"],
        group: Group::String,
        summary: "Returns the value of a key, or null.",
        arguments: args::ONE_KEY,
        parse: parsers::get,
        ..CommandSpec::PLAIN
    },
    strings::GETBIT,
    strings::GETDEL,
    strings::GETEX,
    strings::GETRANGE,
    strings::GETSET,
    CommandSpec {
        name: "hello",
        arity: -1,
        flags: &[Flag::NoScript, Flag::Loading, Flag::Stale, Flag::Fast, Flag::NoAuth],
        categories: &["connection"],
        since: "6.0.0",
        group: Group::Connection,
        summary: "Chooses the protocol (2 or 3) and tells about the server.",
        arguments: args::HELLO,
        parse: parsers::hello,
        ..CommandSpec::PLAIN
    },
    strings::INCR,
    strings::INCRBY,
    CommandSpec {
        name: "info",
        arity: -1,
        flags: &[Flag::Loading, Flag::Stale],
        categories: &["dangerous"],
        summary: "Tells about the server and its counters, by section.",
        notes: "Without a section, and with `default`, `all` or `everything`, each section is \
shown.",
        arguments: args::INFO,
        parse: parsers::info,
        ..CommandSpec::PLAIN
    },
    CommandSpec {
        name: "mget",
        arity: -2,
        flags: &[Flag::ReadOnly, Flag::Fast],
        keys: KeyPlaces::every(1, &["RO", "access"]),
        categories: &["string"],
        group: Group::String,
        summary: "Returns the values of several keys; null for each that is absent.",
        complexity: "O(N) where N is the number of keys",
        notes: "Several keys are not one transaction across shards: each value was the key's at \
some moment during the call, but not all at the same moment.",
        arguments: args::KEYS,
        parse: parsers::mget,
        ..CommandSpec::PLAIN
    },
    CommandSpec {
        name: "mset",
        arity: -3,
        flags: &[Flag::Write, Flag::DenyOom],
        keys: KeyPlaces::every(2, &["OW", "update"]),
        categories: &["string"],
        since: "1.0.1",
        group: Group::String,
        summary: "Sets several keys; earlier values and expiries are gone.",
        complexity: "O(N) where N is the number of keys",
        notes: "Atomic for each shard only: all pairs of one shard appear at once or, if memory is \
short, not at all, but others may see the pairs of one shard before those of \
another.",
        arguments: args::PAIRS,
        parse: parsers::mset,
        ..CommandSpec::PLAIN
    },
    CommandSpec {
        name: "pexpire",
        arity: -3,
        flags: &[Flag::Write, Flag::Fast],
        keys: KeyPlaces::one(&["RW", "update"]),
        categories: &["keyspace"],
        since: "2.6.0",
        group: Group::Generic,
        summary: "Sets a key's time to live in milliseconds.",
        notes: EXPIRE_NOTES,
        arguments: args::PEXPIRE,
        parse: parsers::pexpire,
        ..CommandSpec::PLAIN
    },
    CommandSpec {
        name: "pexpireat",
        arity: -3,
        flags: &[Flag::Write, Flag::Fast],
        keys: KeyPlaces::one(&["RW", "update"]),
        categories: &["keyspace"],
        since: "2.6.0",
        group: Group::Generic,
        summary: "Sets when a key expires, in Unix milliseconds.",
        notes: EXPIRE_NOTES,
        arguments: args::PEXPIREAT,
        parse: parsers::pexpireat,
        ..CommandSpec::PLAIN
    },
    CommandSpec {
        name: "ping",
        arity: -1,
        flags: &[Flag::Fast],
        categories: &["connection"],
        group: Group::Connection,
        summary: "Returns PONG, or the message.",
        arguments: args::PING,
        parse: parsers::ping,
        ..CommandSpec::PLAIN
    },
    strings::PSETEX,
    CommandSpec {
        name: "pttl",
        arity: 2,
        flags: &[Flag::ReadOnly, Flag::Fast],
        keys: KeyPlaces::one(&["RO", "access"]),
        categories: &["keyspace"],
        since: "2.6.0",
        group: Group::Generic,
        summary: "Returns the time to live of a key in milliseconds: -1 without expiry, -2 without \
key.",
        arguments: args::ONE_KEY,
        parse: parsers::pttl,
        ..CommandSpec::PLAIN
    },
    CommandSpec {
        name: "quit",
        arity: -1,
        flags: &[Flag::NoScript, Flag::Loading, Flag::Stale, Flag::Fast, Flag::NoAuth],
        categories: &["connection"],
        group: Group::Connection,
        summary: "Closes the connection, after the replies to all earlier commands.",
        parse: parsers::quit,
        ..CommandSpec::PLAIN
    },
    trees::ADD,
    trees::ADDPOINT,
    trees::COUNT,
    trees::CREATE,
    trees::DROP,
    trees::GET,
    trees::INFO,
    trees::NEAREST,
    trees::REM,
    trees::SEARCH,
    CommandSpec {
        name: "select",
        arity: 2,
        flags: &[Flag::Loading, Flag::Stale, Flag::Fast],
        categories: &["connection"],
        group: Group::Connection,
        summary: "Chooses the database: there is only 0.",
        arguments: args::SELECT,
        parse: parsers::select,
        ..CommandSpec::PLAIN
    },
    CommandSpec {
        name: "set",
        arity: -3,
        flags: &[Flag::Write, Flag::DenyOom],
        keys: KeyPlaces::one(&["RW", "access", "update", "variable_flags"]),
        categories: &["string"],
        group: Group::String,
        summary: "Sets a key, whether it exists or not; options say when and for how long.",
        notes: "Without KEEPTTL an earlier expiry is gone. NX and XX exclude each other; of the \
options for expiry only one may be given. With GET the reply is the old value or \
null; without it null means that NX or XX did not hold. Expiries reach to the year 2527.",
        arguments: args::SET,
        parse: parsers::set,
        ..CommandSpec::PLAIN
    },
    strings::SETBIT,
    strings::SETEX,
    strings::SETNX,
    strings::SETRANGE,
    strings::STRLEN,
    strings::SUBSTR,
    CommandSpec {
        name: "ttl",
        arity: 2,
        flags: &[Flag::ReadOnly, Flag::Fast],
        keys: KeyPlaces::one(&["RO", "access"]),
        categories: &["keyspace"],
        group: Group::Generic,
        summary: "Returns the time to live of a key in seconds: -1 without expiry, -2 without key.",
        arguments: args::ONE_KEY,
        parse: parsers::ttl,
        ..CommandSpec::PLAIN
    },
    CommandSpec {
        name: "type",
        arity: 2,
        flags: &[Flag::ReadOnly, Flag::Fast],
        keys: KeyPlaces::one(&["RO"]),
        categories: &["keyspace"],
        group: Group::Generic,
        summary: "Returns what a key holds: string, zset for a GEO key, or none without the key.",
        notes: "A tree of places is no key: its name alone is none. There are no other types.",
        arguments: args::ONE_KEY,
        parse: parsers::type_of,
        ..CommandSpec::PLAIN
    },
    CommandSpec {
        name: "unlink",
        arity: -2,
        flags: &[Flag::Write, Flag::Fast],
        keys: KeyPlaces::every(1, &["RM", "delete"]),
        categories: &["keyspace"],
        since: "4.0.0",
        group: Group::Generic,
        summary: "Removes keys, as DEL does.",
        complexity: "O(N) where N is the number of keys",
        notes: "See DEL.",
        arguments: args::KEYS,
        parse: parsers::del,
        ..CommandSpec::PLAIN
    },
    geo::ZCARD,
    geo::ZREM,
    geo::ZSCORE,
];
