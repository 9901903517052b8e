//! The subcommands, sorted by name.

use super::{CommandSpec, Flag, Group, arguments as args};
use crate::request::parsers;

/// Of CLIENT.
pub(super) const CLIENT: &[CommandSpec] = &[
    CommandSpec {
        name: "client|getname",
        arity: 2,
        flags: &[Flag::NoScript, Flag::Loading, Flag::Stale],
        categories: &["connection"],
        since: "2.6.9",
        group: Group::Connection,
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
        group: Group::Connection,
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
        group: Group::Connection,
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
        group: Group::Connection,
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
        group: Group::Connection,
        summary: "Tells the server which client library is used.",
        notes: "Printable ASCII without spaces only.",
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
        group: Group::Connection,
        summary: "Names the connection; an empty name takes the name away.",
        notes: "Printable ASCII without spaces only.",
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
