//! The subcommands, sorted by name.

use super::{CommandSpec, Flag, Group, KeyPlaces, arguments as args};
use crate::request::parsers;

/// Of CLIENT.
pub(super) const CLIENT: &[CommandSpec] = &[
    CommandSpec {
        name: "client|getname",
        arity: 2,
        flags: &[Flag::NoScript, Flag::Loading, Flag::Stale],
        categories: &["connection"],
        since: "2.6.9",
        group: Group::CONNECTION,
        summary: "Returns the connection's name, or null.",
        parse: parsers::client_getname,
        ..CommandSpec::PLAIN
    },
    CommandSpec {
        name: "client|help",
        arity: 2,
        flags: &[Flag::Loading, Flag::Stale],
        categories: &["connection"],
        since: "5.0.0",
        group: Group::CONNECTION,
        summary: "Lists the subcommands.",
        parse: parsers::help,
        ..CommandSpec::PLAIN
    },
    CommandSpec {
        name: "client|id",
        arity: 2,
        flags: &[Flag::NoScript, Flag::Loading, Flag::Stale],
        categories: &["connection"],
        since: "5.0.0",
        group: Group::CONNECTION,
        summary: "Returns the connection's number, which no other connection of this run has.",
        parse: parsers::client_id,
        ..CommandSpec::PLAIN
    },
    CommandSpec {
        name: "client|info",
        arity: 2,
        flags: &[Flag::NoScript, Flag::Loading, Flag::Stale],
        categories: &["connection"],
        since: "6.2.0",
        group: Group::CONNECTION,
        summary: "Tells about the connection, on one line.",
        parse: parsers::client_info,
        ..CommandSpec::PLAIN
    },
    CommandSpec {
        name: "client|setinfo",
        arity: 4,
        flags: &[Flag::NoScript, Flag::Loading, Flag::Stale],
        categories: &["connection"],
        since: "7.2.0",
        group: Group::CONNECTION,
        summary: "Tells the server which client library is used.",
        notes: "Printable ASCII without spaces only, at most 1024 bytes.",
        arguments: args::CLIENT_SETINFO,
        parse: parsers::client_setinfo,
        ..CommandSpec::PLAIN
    },
    CommandSpec {
        name: "client|setname",
        arity: 3,
        flags: &[Flag::NoScript, Flag::Loading, Flag::Stale],
        categories: &["connection"],
        since: "2.6.9",
        group: Group::CONNECTION,
        summary: "Names the connection; an empty name takes the name away.",
        notes: "Printable ASCII without spaces only, at most 1024 bytes.",
        arguments: args::CONNECTION_NAME,
        parse: parsers::client_setname,
        ..CommandSpec::PLAIN
    },
];

/// Of CONFIG.
pub(super) const CONFIG: &[CommandSpec] = &[
    CommandSpec {
        name: "config|get",
        arity: -3,
        flags: &[Flag::Admin, Flag::NoScript, Flag::Loading, Flag::Stale],
        since: "2.0.0",
        summary: "Returns the parameters whose names match any of the patterns, with their values.",
        complexity: "O(N) where N is the number of patterns times the number of parameters",
        notes: "Patterns: `*` any text, `?` any byte, `[a-z]` and `[^a-z]` classes, `\\x` the byte \
x itself. Case does not matter.",
        arguments: args::CONFIG_GET,
        parse: parsers::config_get,
        ..CommandSpec::PLAIN
    },
    CommandSpec {
        name: "config|help",
        arity: 2,
        flags: &[Flag::Loading, Flag::Stale],
        since: "5.0.0",
        summary: "Lists the subcommands.",
        parse: parsers::help,
        ..CommandSpec::PLAIN
    },
];

/// Of DEBUG.
pub(super) const DEBUG: &[CommandSpec] = &[
    CommandSpec {
        name: "debug|digest",
        arity: 2,
        flags: &[Flag::Admin, Flag::NoScript],
        since: "1.0.0",
        summary: "Returns a digest of all that the server's keys hold, in every database.",
        complexity: "O(N) where N is the number of keys and of what objects have",
        notes: "40 hexadecimal digits. Two servers with the same keys, values and expiries have the \
same digest, whatever their number of shards. It is not Redis's number. Each shard adds its keys up in \
turns, and begins again if something is changed meanwhile; after eight times the answer is TRYAGAIN. The \
shards are not looked at in one moment. A key that has expired counts until it is removed.",
        parse: parsers::debug_digest,
        ..CommandSpec::PLAIN
    },
    CommandSpec {
        name: "debug|digest-value",
        arity: -3,
        flags: &[Flag::ReadOnly, Flag::Admin, Flag::NoScript],
        keys: KeyPlaces::every(2, &["RO"]),
        since: "5.0.5",
        summary: "Returns a digest of what each key holds, and of its expiry, without its name.",
        complexity: "O(N) where N is the size of what the keys hold",
        notes: "40 hexadecimal digits each; zeros for a key that is not there. The shard answers \
nothing else while it adds up a large object.",
        arguments: args::KEYS,
        parse: parsers::debug_digest_value,
        ..CommandSpec::PLAIN
    },
    CommandSpec {
        name: "debug|help",
        arity: 2,
        flags: &[Flag::Loading, Flag::Stale],
        since: "5.0.0",
        summary: "Lists the subcommands.",
        parse: parsers::help,
        ..CommandSpec::PLAIN
    },
];

/// Of COMMAND.
pub(super) const COMMAND: &[CommandSpec] = &[
    CommandSpec {
        name: "command|count",
        arity: 2,
        flags: &[Flag::Loading, Flag::Stale],
        categories: &["connection"],
        since: "2.8.13",
        summary: "Returns the number of commands.",
        parse: parsers::command_count,
        ..CommandSpec::PLAIN
    },
    CommandSpec {
        name: "command|docs",
        arity: -2,
        flags: &[Flag::Loading, Flag::Stale],
        categories: &["connection"],
        since: "7.0.0",
        summary: "Returns the documentation of the named commands, or of all.",
        complexity: "O(N) where N is the number of commands",
        arguments: args::COMMAND_NAMES,
        parse: parsers::command_docs,
        ..CommandSpec::PLAIN
    },
    CommandSpec {
        name: "command|getkeys",
        arity: -3,
        flags: &[Flag::Loading, Flag::Stale],
        categories: &["connection"],
        since: "2.8.13",
        summary: "Returns the keys among the arguments of a command.",
        complexity: "O(N) where N is the number of arguments",
        arguments: args::COMMAND_GETKEYS,
        parse: parsers::command_getkeys,
        ..CommandSpec::PLAIN
    },
    CommandSpec {
        name: "command|help",
        arity: 2,
        flags: &[Flag::Loading, Flag::Stale],
        categories: &["connection"],
        since: "5.0.0",
        summary: "Lists the subcommands.",
        parse: parsers::help,
        ..CommandSpec::PLAIN
    },
    CommandSpec {
        name: "command|info",
        arity: -2,
        flags: &[Flag::Loading, Flag::Stale],
        categories: &["connection"],
        since: "2.8.13",
        summary: "Describes the named commands, or all.",
        complexity: "O(N) where N is the number of commands",
        arguments: args::COMMAND_NAMES,
        parse: parsers::command_info,
        ..CommandSpec::PLAIN
    },
    CommandSpec {
        name: "command|list",
        arity: -2,
        flags: &[Flag::Loading, Flag::Stale],
        categories: &["connection"],
        since: "7.0.0",
        summary: "Returns the names of commands.",
        complexity: "O(N) where N is the number of commands",
        arguments: args::COMMAND_LIST,
        parse: parsers::command_list,
        ..CommandSpec::PLAIN
    },
];
