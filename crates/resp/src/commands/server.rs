//! The server: its counters, its configuration, its commands, and digests of its keys.

use crate::arguments::{KEYS, pattern};
use crate::error::{CommandError, status_error};
use crate::form::CombinedReply;
use crate::keys::Keys;
use crate::limits::{MAX_COMMAND_NAMES, MAX_CONFIG_PATTERNS};
use crate::request::{CommandQuery, ListFilter, Patterns, Request, Sections};
use crate::spec::{Argument, CommandSpec, Flag, KeyPlaces, Kind, ParseResult, help};
use crate::wire::{RespVersion, Words, encode};
use remora_frontend::ShardAnswer;
use remora_protocol::message::Status;

const INFO: CommandSpec = CommandSpec {
    name: "info",
    arity: -1,
    flags: &[Flag::Loading, Flag::Stale],
    categories: &["dangerous"],
    summary: "Tells about the server and its counters, by section.",
    notes: "Without a section, and with `default`, `all` or `everything`, each section is \
shown.",
    arguments: &[Argument::new("section", Kind::String).optional().multiple()],
    parse: info,
    ..CommandSpec::PLAIN
};

fn info(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    Ok(Request::Info(Sections { words: Keys::all(words, 1), only: None }))
}

const CONFIG: CommandSpec = CommandSpec {
    name: "config",
    arity: -2,
    since: "2.0.0",
    summary: "Holds the commands about the configuration.",
    complexity: "Depends on the subcommand.",
    notes: "The configuration is set when the server starts; there is no CONFIG SET.",
    subcommands: &[CONFIG_GET, CONFIG_HELP],
    ..CommandSpec::PLAIN
};

const CONFIG_GET: CommandSpec = CommandSpec {
    name: "config|get",
    arity: -3,
    flags: &[Flag::Admin, Flag::NoScript, Flag::Loading, Flag::Stale],
    since: "2.0.0",
    summary: "Returns the parameters whose names match any of the patterns, with their values.",
    complexity: "O(N) where N is the number of patterns times the number of parameters",
    notes: "Patterns: `*` any text, `?` any byte, `[a-z]` and `[^a-z]` classes, `\\x` the byte \
x itself. Case does not matter.",
    arguments: &[Argument::new("parameter", Kind::Pattern).multiple()],
    parse: config_get,
    ..CommandSpec::PLAIN
};

fn config_get(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    let words = Keys::all(words, 2);
    if words.len() > MAX_CONFIG_PATTERNS {
        return Err(CommandError::TooManyPatterns);
    }
    let patterns = words.map(|word| pattern(word, true)).collect::<Result<_, _>>()?;
    Ok(Request::ConfigGet(Patterns(patterns)))
}

/// The reply to CONFIG GET, from all parameters with their values. Each name
/// comes at most once, however many patterns match it.
pub fn write_config(
    out: &mut Vec<u8>,
    version: RespVersion,
    patterns: &Patterns,
    parameters: &[(&str, &str)],
) {
    let matching = || parameters.iter().filter(|(name, _)| patterns.matches(name));
    encode::map(out, version, matching().count());
    for (name, value) in matching() {
        encode::bulk(out, name.as_bytes());
        encode::bulk(out, value.as_bytes());
    }
}

const CONFIG_HELP: CommandSpec = CommandSpec {
    name: "config|help",
    arity: 2,
    flags: &[Flag::Loading, Flag::Stale],
    since: "5.0.0",
    summary: "Lists the subcommands.",
    parse: help,
    ..CommandSpec::PLAIN
};

/// The text of COMMAND's answers is made where the table is known: here are the names.
const NAMES: Argument = Argument::new("command-name", Kind::String).optional().multiple();

const COMMAND: CommandSpec = CommandSpec {
    name: "command",
    arity: -1,
    flags: &[Flag::Loading, Flag::Stale],
    categories: &["connection"],
    since: "2.8.13",
    summary: "Describes all commands.",
    complexity: "O(N) where N is the number of commands",
    subcommands: &[
        COMMAND_COUNT,
        COMMAND_DOCS,
        COMMAND_GETKEYS,
        COMMAND_HELP,
        COMMAND_INFO,
        COMMAND_LIST,
    ],
    parse: command,
    ..CommandSpec::PLAIN
};

fn command(_words: Words<'_>, _now: u64) -> ParseResult<'_> {
    Ok(Request::Command(CommandQuery::All))
}

const COMMAND_COUNT: CommandSpec = CommandSpec {
    name: "command|count",
    arity: 2,
    flags: &[Flag::Loading, Flag::Stale],
    categories: &["connection"],
    since: "2.8.13",
    summary: "Returns the number of commands.",
    parse: command_count,
    ..CommandSpec::PLAIN
};

fn command_count(_words: Words<'_>, _now: u64) -> ParseResult<'_> {
    Ok(Request::Command(CommandQuery::Count))
}

const COMMAND_DOCS: CommandSpec = CommandSpec {
    name: "command|docs",
    arity: -2,
    flags: &[Flag::Loading, Flag::Stale],
    categories: &["connection"],
    since: "7.0.0",
    summary: "Returns the documentation of the named commands, or of all.",
    complexity: "O(N) where N is the number of commands",
    arguments: &[NAMES],
    parse: command_docs,
    ..CommandSpec::PLAIN
};

fn command_docs(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    Ok(Request::Command(CommandQuery::Docs(command_names(words)?)))
}

fn command_names(words: Words<'_>) -> Result<Keys<'_>, CommandError> {
    let names = Keys::all(words, 2);
    if names.len() > MAX_COMMAND_NAMES {
        return Err(CommandError::TooManyNames);
    }
    Ok(names)
}

const COMMAND_GETKEYS: CommandSpec = CommandSpec {
    name: "command|getkeys",
    arity: -3,
    flags: &[Flag::Loading, Flag::Stale],
    categories: &["connection"],
    since: "2.8.13",
    summary: "Returns the keys among the arguments of a command.",
    complexity: "O(N) where N is the number of arguments",
    arguments: &[
        Argument::new("command", Kind::String),
        Argument::new("arg", Kind::String).optional().multiple(),
    ],
    parse: command_getkeys,
    ..CommandSpec::PLAIN
};

fn command_getkeys(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    Ok(Request::Command(CommandQuery::GetKeys(Keys::all(words, 2))))
}

const COMMAND_HELP: CommandSpec = CommandSpec {
    name: "command|help",
    arity: 2,
    flags: &[Flag::Loading, Flag::Stale],
    categories: &["connection"],
    since: "5.0.0",
    summary: "Lists the subcommands.",
    parse: help,
    ..CommandSpec::PLAIN
};

const COMMAND_INFO: CommandSpec = CommandSpec {
    name: "command|info",
    arity: -2,
    flags: &[Flag::Loading, Flag::Stale],
    categories: &["connection"],
    since: "2.8.13",
    summary: "Describes the named commands, or all.",
    complexity: "O(N) where N is the number of commands",
    arguments: &[NAMES],
    parse: command_info,
    ..CommandSpec::PLAIN
};

fn command_info(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    match words.len() {
        2 => Ok(Request::Command(CommandQuery::All)),
        _ => Ok(Request::Command(CommandQuery::Info(command_names(words)?))),
    }
}

const COMMAND_LIST: CommandSpec = CommandSpec {
    name: "command|list",
    arity: -2,
    flags: &[Flag::Loading, Flag::Stale],
    categories: &["connection"],
    since: "7.0.0",
    summary: "Returns the names of commands.",
    complexity: "O(N) where N is the number of commands",
    arguments: &[Argument::of(
        "filterby",
        Kind::OneOf,
        &[
            Argument::new("module-name", Kind::String).after("MODULE"),
            Argument::new("category", Kind::String).after("ACLCAT"),
            Argument::new("pattern", Kind::Pattern).after("PATTERN"),
        ],
    )
    .after("FILTERBY")
    .optional()],
    parse: command_list,
    ..CommandSpec::PLAIN
};

fn command_list(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    let filter = match words.len() {
        2 => ListFilter::None,
        5 if words.is(2, "filterby") && words.is(3, "module") => ListFilter::Module,
        5 if words.is(2, "filterby") && words.is(3, "aclcat") => ListFilter::Category(words.get(4)),
        5 if words.is(2, "filterby") && words.is(3, "pattern") => {
            ListFilter::Pattern(pattern(words.get(4), true)?)
        }
        _ => return Err(CommandError::Syntax),
    };
    Ok(Request::Command(CommandQuery::List(filter)))
}

const DEBUG: CommandSpec = CommandSpec {
    name: "debug",
    arity: -2,
    flags: &[Flag::Admin, Flag::NoScript, Flag::Loading, Flag::Stale],
    since: "1.0.0",
    summary: "Holds the commands that look behind the scenes.",
    complexity: "Depends on the subcommand.",
    subcommands: &[DEBUG_DIGEST, DEBUG_DIGEST_VALUE, DEBUG_HELP],
    ..CommandSpec::PLAIN
};

const DEBUG_DIGEST: CommandSpec = CommandSpec {
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
    parse: debug_digest,
    ..CommandSpec::PLAIN
};

fn debug_digest(_words: Words<'_>, _now: u64) -> ParseResult<'_> {
    Ok(Request::Digest)
}

/// The reply to DEBUG DIGEST: the sum of the shards' digests, if each has sent one.
pub static DIGEST: CombinedReply =
    CombinedReply { command: "debug|digest", takes_errors: true, write: write_digest };

fn write_digest(out: &mut Vec<u8>, _: RespVersion, answers: &[ShardAnswer<'_>]) {
    if answers.iter().any(|answer| answer.status == Status::TryAgain) {
        let text = "TRYAGAIN keys were changed all the time: ask again when fewer changes come";
        return encode::error(out, text);
    }
    if let Some(text) = answers.iter().find_map(|answer| status_error(answer.status, "")) {
        return encode::error(out, &text);
    }
    write_digits(out, answers.iter().map(digest_of).fold(0, u128::wrapping_add));
}

const DEBUG_DIGEST_VALUE: CommandSpec = CommandSpec {
    name: "debug|digest-value",
    arity: -3,
    flags: &[Flag::ReadOnly, Flag::Admin, Flag::NoScript],
    keys: KeyPlaces { first: 2, ..KeyPlaces::every(1, &["RO", "access"]) },
    since: "5.0.5",
    summary: "Returns a digest of what each key holds, and of its expiry, without its name.",
    complexity: "O(N) where N is the size of what the keys hold",
    notes: "40 hexadecimal digits each; zeros for a key that is not there. The shard answers \
nothing else while it adds up a large object.",
    arguments: KEYS,
    parse: debug_digest_value,
    ..CommandSpec::PLAIN
};

fn debug_digest_value(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    Ok(Request::DigestValues(Keys::checked(words, 2)?))
}

/// The reply to DEBUG DIGEST-VALUE: a digest for each key.
pub static DIGEST_VALUES: CombinedReply = CombinedReply {
    command: "debug|digest-value",
    takes_errors: false,
    write: write_digest_values,
};

fn write_digest_values(out: &mut Vec<u8>, _: RespVersion, answers: &[ShardAnswer<'_>]) {
    encode::array(out, answers.len());
    answers.iter().for_each(|answer| write_digits(out, digest_of(answer)));
}

/// The digest that a shard has sent; 0 for an absent key.
fn digest_of(answer: &ShardAnswer<'_>) -> u128 {
    answer.value.and_then(<[u8]>::first_chunk).map_or(0, |bytes| u128::from_le_bytes(*bytes))
}

/// 40 hexadecimal digits, as Redis has them.
fn write_digits(out: &mut Vec<u8>, digest: u128) {
    encode::simple(out, &format!("{digest:040x}"));
}

const DEBUG_HELP: CommandSpec = CommandSpec {
    name: "debug|help",
    arity: 2,
    flags: &[Flag::Loading, Flag::Stale],
    since: "5.0.0",
    summary: "Lists the subcommands.",
    parse: help,
    ..CommandSpec::PLAIN
};

/// The commands.
pub(super) const COMMANDS: &[CommandSpec] = &[COMMAND, CONFIG, DEBUG, INFO];
