//! The commands about keys of any type.

use super::{Argument, CommandSpec, Flag, Group, KeyPlaces, Kind, arguments as args};
use crate::request::parsers;

const KEY: Argument = Argument::new("key", Kind::Key);
const PATTERN: Argument = Argument::new("pattern", Kind::Pattern);
const DATABASE: Argument = Argument::new("destination-db", Kind::Integer);
const BETWEEN_SHARDS: &str = "Between keys of different shards it is not atomic: for a moment both \
    keys may be there. The key is removed only once the other one has all of it; an error means that \
    nothing was changed. A large hash, a GEO key or a tree goes in pieces. Commands that would change \
    the key meanwhile are answered with TRYAGAIN, and so is this one if either key is on its way, or \
    too many keys are. Objects that are staged for a tree stay behind and go.";

/// Places of two keys.
const fn two_keys(access: &'static [&'static str]) -> KeyPlaces {
    KeyPlaces { first: 1, last: 2, step: 1, access }
}

pub(super) const CLUSTER: CommandSpec = CommandSpec {
    name: "cluster",
    arity: -2,
    categories: &[],
    since: "3.0.0",
    group: Group::SERVER,
    summary: "Holds the commands about slots.",
    complexity: "Depends on the subcommand.",
    subcommands: CLUSTER_SUBS,
    ..CommandSpec::PLAIN
};

pub(super) const COPY: CommandSpec = CommandSpec {
    name: "copy",
    arity: -3,
    flags: &[Flag::Write, Flag::DenyOom],
    keys: two_keys(&["OW", "update"]),
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
    parse: parsers::copy,
    ..CommandSpec::PLAIN
};

pub(super) const EXPIRETIME: CommandSpec = CommandSpec {
    name: "expiretime",
    arity: 2,
    flags: &[Flag::ReadOnly, Flag::Fast],
    keys: KeyPlaces::one(&["RO", "access"]),
    categories: &["keyspace"],
    since: "7.0.0",
    group: Group::GENERIC,
    summary: "Returns when a key expires in Unix seconds: -1 without expiry, -2 without key.",
    arguments: args::ONE_KEY,
    parse: parsers::expiretime,
    ..CommandSpec::PLAIN
};

pub(super) const KEYS: CommandSpec = CommandSpec {
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
    parse: parsers::keys,
    ..CommandSpec::PLAIN
};

pub(super) const MOVE: CommandSpec = CommandSpec {
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
    parse: parsers::move_key,
    ..CommandSpec::PLAIN
};

pub(super) const OBJECT: CommandSpec = CommandSpec {
    name: "object",
    arity: -2,
    categories: &[],
    since: "2.2.3",
    group: Group::GENERIC,
    summary: "Holds the commands about how values are kept.",
    complexity: "Depends on the subcommand.",
    subcommands: OBJECT_SUBS,
    ..CommandSpec::PLAIN
};

pub(super) const PERSIST: CommandSpec = CommandSpec {
    name: "persist",
    arity: 2,
    flags: &[Flag::Write, Flag::Fast],
    keys: KeyPlaces::one(&["RW", "update"]),
    categories: &["keyspace"],
    since: "2.2.0",
    group: Group::GENERIC,
    summary: "Takes the expiry of a key away; returns 1 if it had one.",
    arguments: args::ONE_KEY,
    parse: parsers::persist,
    ..CommandSpec::PLAIN
};

pub(super) const PEXPIRETIME: CommandSpec = CommandSpec {
    name: "pexpiretime",
    arity: 2,
    flags: &[Flag::ReadOnly, Flag::Fast],
    keys: KeyPlaces::one(&["RO", "access"]),
    categories: &["keyspace"],
    since: "7.0.0",
    group: Group::GENERIC,
    summary: "Returns when a key expires in Unix milliseconds: -1 without expiry, -2 without key.",
    arguments: args::ONE_KEY,
    parse: parsers::pexpiretime,
    ..CommandSpec::PLAIN
};

pub(super) const RANDOMKEY: CommandSpec = CommandSpec {
    name: "randomkey",
    arity: 1,
    flags: &[Flag::ReadOnly],
    categories: &["keyspace"],
    since: "1.0.0",
    group: Group::GENERIC,
    summary: "Returns any key of the selected database, or null.",
    complexity: "O(1), or O(N) where N is the number of keys of all databases, if few of them are of this one",
    notes: "Shards are chosen by their numbers of keys. Where the database has many of a shard's keys, each of them is as likely as any other. Where it has few, or many of them have expired, the shard's table is gone through once from a random place on, in turns, and the first key that is met is returned: one that stands far behind the one before it is likelier.",
    parse: parsers::randomkey,
    ..CommandSpec::PLAIN
};

pub(super) const RENAME: CommandSpec = CommandSpec {
    name: "rename",
    arity: 3,
    flags: &[Flag::Write],
    keys: two_keys(&["OW", "update"]),
    categories: &["keyspace"],
    since: "1.0.0",
    group: Group::GENERIC,
    summary: "Gives a key another name; another key of that name goes.",
    complexity: "O(N) where N is the bytes of the value",
    notes: BETWEEN_SHARDS,
    arguments: &[KEY, Argument::new("newkey", Kind::Key)],
    parse: parsers::rename,
    ..CommandSpec::PLAIN
};

pub(super) const RENAMENX: CommandSpec = CommandSpec {
    name: "renamenx",
    arity: 3,
    flags: &[Flag::Write],
    keys: two_keys(&["OW", "insert"]),
    categories: &["keyspace"],
    since: "1.0.0",
    group: Group::GENERIC,
    summary: "Gives a key another name, if there is no key of that name.",
    complexity: "O(N) where N is the bytes of the value",
    notes: "See RENAME.",
    arguments: &[KEY, Argument::new("newkey", Kind::Key)],
    parse: parsers::renamenx,
    ..CommandSpec::PLAIN
};

pub(super) const SCAN: CommandSpec = CommandSpec {
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
    parse: parsers::scan,
    ..CommandSpec::PLAIN
};

pub(super) const TOUCH: CommandSpec = CommandSpec {
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
    arguments: args::KEYS,
    parse: parsers::touch,
    ..CommandSpec::PLAIN
};

const CLUSTER_SUBS: &[CommandSpec] = &[
    CommandSpec {
        name: "cluster|help",
        arity: 2,
        flags: &[Flag::Loading, Flag::Stale],
        categories: &[],
        since: "5.0.0",
        group: Group::SERVER,
        summary: "Lists the subcommands.",
        parse: parsers::help,
        ..CommandSpec::PLAIN
    },
    CommandSpec {
        name: "cluster|keyslot",
        arity: 3,
        flags: &[Flag::Stale],
        categories: &[],
        since: "3.0.0",
        group: Group::SERVER,
        summary: "Returns the slot of a key, 0 to 16383.",
        notes: "Redis answers this in cluster mode only.",
        arguments: &[Argument::new("key", Kind::String)],
        parse: parsers::cluster_keyslot,
        ..CommandSpec::PLAIN
    },
];

const OBJECT_SUBS: &[CommandSpec] = &[
    CommandSpec {
        name: "object|encoding",
        arity: 3,
        flags: &[Flag::ReadOnly],
        keys: KeyPlaces { first: 2, last: 2, step: 1, access: &["RO"] },
        categories: &["keyspace"],
        since: "2.2.3",
        group: Group::GENERIC,
        summary: "Returns how a value is kept, in the words of Redis; null without the key.",
        notes: "A short string that APPEND has made is embstr here, and raw in Redis.",
        arguments: &[KEY],
        parse: parsers::object_encoding,
        ..CommandSpec::PLAIN
    },
    CommandSpec {
        name: "object|freq",
        arity: 3,
        flags: &[Flag::ReadOnly],
        keys: KeyPlaces { first: 2, last: 2, step: 1, access: &["RO"] },
        categories: &["keyspace"],
        since: "4.0.0",
        group: Group::GENERIC,
        summary: "Returns how often a key was used, as eviction counts it.",
        notes: "With eviction = s3-fifo: 0 to 3, of which each round of eviction takes one away; a new key \
            counts to 1. A client that reads the memory does not count. Else it is an error.",
        arguments: &[KEY],
        parse: parsers::object_freq,
        ..CommandSpec::PLAIN
    },
    CommandSpec {
        name: "object|help",
        arity: 2,
        flags: &[Flag::Loading, Flag::Stale],
        categories: &["keyspace"],
        since: "6.2.0",
        group: Group::GENERIC,
        summary: "Lists the subcommands.",
        parse: parsers::help,
        ..CommandSpec::PLAIN
    },
    CommandSpec {
        name: "object|idletime",
        arity: 3,
        flags: &[Flag::ReadOnly],
        keys: KeyPlaces { first: 2, last: 2, step: 1, access: &["RO"] },
        categories: &["keyspace"],
        since: "2.2.3",
        group: Group::GENERIC,
        summary: "Returns an error: when a key was used last is not known.",
        notes: "Clients read memory without telling the server.",
        arguments: &[KEY],
        parse: parsers::object_idletime,
        ..CommandSpec::PLAIN
    },
    CommandSpec {
        name: "object|refcount",
        arity: 3,
        flags: &[Flag::ReadOnly],
        keys: KeyPlaces { first: 2, last: 2, step: 1, access: &["RO"] },
        categories: &["keyspace"],
        since: "2.2.3",
        group: Group::GENERIC,
        summary: "Returns 1; null without the key.",
        notes: "Redis shares small integers and tells so; here nothing is shared.",
        arguments: &[KEY],
        parse: parsers::object_refcount,
        ..CommandSpec::PLAIN
    },
];
