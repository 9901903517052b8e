//! Users and their rights: AUTH and ACL. The rules are `remora_acl`'s.

use crate::error::{CommandError, excerpt};
use crate::keys::Keys;
use crate::request::{AclRequest, Request};
use crate::spec::{Argument, CommandSpec, Flag, Group, Kind, ParseResult, help};
use crate::wire::Words;
use remora_acl::Genpass;
use remora_protocol::integer;

const USERNAME: Argument = Argument::new("username", Kind::String);

/// Entries that ACL LOG tells without a number.
const LOG_ENTRIES: usize = 10;

const AUTH: CommandSpec = CommandSpec {
    name: "auth",
    arity: -2,
    flags: &[Flag::NoScript, Flag::Loading, Flag::Stale, Flag::Fast, Flag::NoAuth],
    categories: &["connection"],
    group: Group::CONNECTION,
    summary: "Logs the connection in, as `default` if no user is named.",
    complexity: "O(N) where N is the number of the user's passwords",
    arguments: &[USERNAME.optional(), Argument::new("password", Kind::String)],
    parse: auth,
    ..CommandSpec::PLAIN
};

fn auth(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    match words.len() {
        2 => Ok(Request::Auth { user: None, password: words.get(1), command: words.get(0) }),
        3 => {
            let (user, password) = (Some(words.get(1)), words.get(2));
            Ok(Request::Auth { user, password, command: words.get(0) })
        }
        _ => Err(CommandError::Syntax),
    }
}

const ACL: CommandSpec = CommandSpec {
    name: "acl",
    arity: -2,
    since: "6.0.0",
    summary: "Holds the commands about users and their rights.",
    complexity: "Depends on the subcommand.",
    notes: "See [users](users.md).",
    subcommands: &[
        CAT, DELUSER, DRYRUN, GENPASS, GETUSER, HELP, LIST, LOAD, LOG, SAVE, SETUSER, USERS, WHOAMI,
    ],
    ..CommandSpec::PLAIN
};

/// Those that anybody may call who may call them at all.
const PLAIN: CommandSpec = CommandSpec {
    arity: 2,
    flags: &[Flag::NoScript, Flag::Loading, Flag::Stale],
    since: "6.0.0",
    ..CommandSpec::PLAIN
};

/// Those that are for operators.
const ADMIN: CommandSpec =
    CommandSpec { flags: &[Flag::Admin, Flag::NoScript, Flag::Loading, Flag::Stale], ..PLAIN };

const CAT: CommandSpec = CommandSpec {
    name: "acl|cat",
    arity: -2,
    summary: "Lists the categories, or the commands of one.",
    complexity: "O(N) where N is the number of categories or commands",
    arguments: &[Argument::new("category", Kind::String).optional()],
    parse: |words, _| match words.len() {
        2 => Ok(Request::Acl(AclRequest::Cat(None))),
        3 => Ok(Request::Acl(AclRequest::Cat(Some(words.get(2))))),
        _ => Err(wrong_number(words)),
    },
    ..PLAIN
};

const DELUSER: CommandSpec = CommandSpec {
    name: "acl|deluser",
    arity: -3,
    summary: "Removes users and ends their connections; returns how many there were.",
    arguments: &[USERNAME.multiple()],
    parse: |words, _| Ok(Request::Acl(AclRequest::DelUser(Keys::all(words, 2)))),
    ..ADMIN
};

const DRYRUN: CommandSpec = CommandSpec {
    name: "acl|dryrun",
    arity: -4,
    since: "7.0.0",
    summary: "Says whether a user may call a command, without calling it.",
    arguments: &[
        USERNAME,
        Argument::new("command", Kind::String),
        Argument::new("arg", Kind::String).optional().multiple(),
    ],
    parse: |words, _| Ok(Request::Acl(AclRequest::DryRun { user: words.get(2), words })),
    ..ADMIN
};

const GENPASS: CommandSpec = CommandSpec {
    name: "acl|genpass",
    arity: -2,
    summary: "Makes a random password: 256 bits, or so many, as hexadecimal digits.",
    arguments: &[Argument::new("bits", Kind::Integer).optional()],
    parse: genpass,
    ..PLAIN
};

fn genpass(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    let bits = match words.len() {
        2 => None,
        3 => Some(integer::parse(words.get(2)).ok_or(CommandError::NotAnInteger)?),
        _ => return Err(wrong_number(words)),
    };
    let genpass =
        Genpass::new(bits).map_err(|error| CommandError::Own(format!("ERR {error}").into()))?;
    Ok(Request::Acl(AclRequest::GenPass(genpass)))
}

const GETUSER: CommandSpec = CommandSpec {
    name: "acl|getuser",
    arity: 3,
    summary: "Shows a user: flags, hashes of passwords, rights; null for none.",
    arguments: &[USERNAME],
    parse: |words, _| Ok(Request::Acl(AclRequest::GetUser(words.get(2)))),
    ..ADMIN
};

const HELP: CommandSpec = CommandSpec {
    name: "acl|help",
    flags: &[Flag::Loading, Flag::Stale],
    summary: "Lists the subcommands.",
    parse: help,
    ..PLAIN
};

const LIST: CommandSpec = CommandSpec {
    name: "acl|list",
    summary: "Lists the users as lines of the users' file, with hashes of passwords.",
    complexity: "O(N) where N is the number of users",
    parse: |_, _| Ok(Request::Acl(AclRequest::List)),
    ..ADMIN
};

const LOAD: CommandSpec = CommandSpec {
    name: "acl|load",
    summary: "Reads the users' file again; changes nothing if a line is wrong.",
    complexity: "O(N) where N is the number of users",
    parse: |_, _| Ok(Request::Acl(AclRequest::Load)),
    ..ADMIN
};

const LOG: CommandSpec = CommandSpec {
    name: "acl|log",
    arity: -2,
    summary: "Tells what was refused last, the newest first, or forgets it.",
    complexity: "O(N) where N is the number of entries",
    arguments: &[Argument::of(
        "operation",
        Kind::OneOf,
        &[Argument::new("count", Kind::Integer), Argument::word("reset", "RESET")],
    )
    .optional()],
    parse: log,
    ..ADMIN
};

fn log(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    match words.len() {
        2 => Ok(Request::Acl(AclRequest::Log(LOG_ENTRIES))),
        3 if words.is(2, "reset") => Ok(Request::Acl(AclRequest::ResetLog)),
        3 => {
            let count = integer::parse(words.get(2)).ok_or(CommandError::NotAnInteger)?;
            Ok(Request::Acl(AclRequest::Log(usize::try_from(count).unwrap_or(0))))
        }
        _ => Err(wrong_number(words)),
    }
}

const SAVE: CommandSpec = CommandSpec {
    name: "acl|save",
    summary: "Writes the users to the users' file.",
    complexity: "O(N) where N is the number of users",
    parse: |_, _| Ok(Request::Acl(AclRequest::Save)),
    ..ADMIN
};

const SETUSER: CommandSpec = CommandSpec {
    name: "acl|setuser",
    arity: -3,
    summary: "Makes a user, or changes it, by rules.",
    complexity: "O(N) where N is the number of rules",
    arguments: &[USERNAME, Argument::new("rule", Kind::String).optional().multiple()],
    parse: |words, _| {
        Ok(Request::Acl(AclRequest::SetUser { name: words.get(2), rules: Keys::all(words, 3) }))
    },
    ..ADMIN
};

const USERS: CommandSpec = CommandSpec {
    name: "acl|users",
    summary: "Lists the names of the users.",
    complexity: "O(N) where N is the number of users",
    parse: |_, _| Ok(Request::Acl(AclRequest::Users)),
    ..ADMIN
};

const WHOAMI: CommandSpec = CommandSpec {
    name: "acl|whoami",
    summary: "Returns the name of the connection's user.",
    parse: |_, _| Ok(Request::Acl(AclRequest::WhoAmI)),
    ..PLAIN
};

/// More arguments than a subcommand takes.
fn wrong_number(words: Words<'_>) -> CommandError {
    let name = excerpt(words.get(1));
    let text =
        format!("ERR unknown subcommand or wrong number of arguments for '{name}'. Try ACL HELP.");
    CommandError::Own(text.into())
}

/// The commands.
pub(super) const COMMANDS: &[CommandSpec] = &[ACL, AUTH];
