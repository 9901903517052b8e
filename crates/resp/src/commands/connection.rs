//! The connection: its protocol, its name, its database and its end.

use crate::arguments::database;
use crate::error::{CommandError, excerpt};
use crate::form::CombinedReply;
use crate::request::{ClientAttribute, Hello, Request};
use crate::spec::{Argument, CommandSpec, Flag, Group, Kind, ParseResult, help};
use crate::wire::{RespVersion, Words, encode};
use remora_frontend::ShardAnswer;
use remora_layout::limits::RESP_MAX_CLIENT_NAME_BYTES;
use remora_protocol::integer;
use remora_protocol::message::Status;

const MESSAGE: Argument = Argument::new("message", Kind::String);

const PING: CommandSpec = CommandSpec {
    name: "ping",
    arity: -1,
    flags: &[Flag::Fast],
    categories: &["connection"],
    group: Group::CONNECTION,
    summary: "Returns PONG, or the message.",
    arguments: &[MESSAGE.optional()],
    parse: ping,
    ..CommandSpec::PLAIN
};

fn ping(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    match words.len() {
        1 => Ok(Request::Ping(None)),
        2 => Ok(Request::Ping(Some(words.get(1)))),
        _ => Err(CommandError::WrongArity("ping")),
    }
}

const ECHO: CommandSpec = CommandSpec {
    name: "echo",
    arity: 2,
    flags: &[Flag::Loading, Flag::Stale, Flag::Fast],
    categories: &["connection"],
    group: Group::CONNECTION,
    summary: "Returns the message.",
    arguments: &[MESSAGE],
    parse: echo,
    ..CommandSpec::PLAIN
};

fn echo(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    Ok(Request::Echo(words.get(1)))
}

const QUIT: CommandSpec = CommandSpec {
    name: "quit",
    arity: -1,
    flags: &[Flag::NoScript, Flag::Loading, Flag::Stale, Flag::Fast, Flag::NoAuth],
    categories: &["connection"],
    group: Group::CONNECTION,
    summary: "Closes the connection, after the replies to all earlier commands.",
    parse: quit,
    ..CommandSpec::PLAIN
};

fn quit(_words: Words<'_>, _now: u64) -> ParseResult<'_> {
    Ok(Request::Quit)
}

const SELECT: CommandSpec = CommandSpec {
    name: "select",
    arity: 2,
    flags: &[Flag::Loading, Flag::Stale, Flag::Fast],
    categories: &["connection"],
    group: Group::CONNECTION,
    summary: "Chooses the connection's database, 0 to 15.",
    notes: "Clients of Remora's own choose theirs when they connect.",
    arguments: &[Argument::new("index", Kind::Integer)],
    parse: select,
    ..CommandSpec::PLAIN
};

fn select(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    Ok(Request::Select(database(words.get(1))?))
}

const HELLO: CommandSpec = CommandSpec {
    name: "hello",
    arity: -1,
    flags: &[Flag::NoScript, Flag::Loading, Flag::Stale, Flag::Fast, Flag::NoAuth],
    categories: &["connection"],
    since: "6.0.0",
    group: Group::CONNECTION,
    summary: "Chooses the protocol (2 or 3) and tells about the server.",
    arguments: &[Argument::of(
        "arguments",
        Kind::Block,
        &[
            Argument::new("protover", Kind::Integer),
            Argument::of(
                "auth",
                Kind::Block,
                &[Argument::new("username", Kind::String), Argument::new("password", Kind::String)],
            )
            .after("AUTH")
            .optional(),
            Argument::new("clientname", Kind::String).after("SETNAME").optional(),
        ],
    )
    .optional()],
    parse: hello,
    ..CommandSpec::PLAIN
};

fn hello(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    let mut hello = Hello { version: None, auth: None, name: None, command: words.get(0) };
    if words.len() > 1 {
        hello.version = match integer::parse(words.get(1)) {
            None => return Err(CommandError::ProtocolVersionNumber),
            Some(2) => Some(RespVersion::Resp2),
            Some(3) => Some(RespVersion::Resp3),
            Some(_) => return Err(CommandError::ProtocolVersion),
        };
    }
    let mut at = 2;
    while at < words.len() {
        let left = words.len() - at - 1;
        if words.is(at, "auth") && left >= 2 {
            hello.auth = Some((words.get(at + 1), words.get(at + 2)));
            at += 3;
        } else if words.is(at, "setname") && left >= 1 {
            hello.name = Some(client_name(words.get(at + 1))?);
            at += 2;
        } else {
            return Err(CommandError::HelloOption(excerpt(words.get(at))));
        }
    }
    Ok(Request::Hello(hello))
}

/// The server's properties in the reply to HELLO.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServerFacts<'a> {
    /// The server's name.
    pub server: &'a str,
    /// The version that clients take their decisions by.
    pub version: &'a str,
    /// The connection's number.
    pub connection: i64,
    /// `standalone` or `cluster`.
    pub mode: &'a str,
    /// `master` or `replica`.
    pub role: &'a str,
}

/// The reply to HELLO; `version` is the one that the connection now speaks.
pub fn write_hello(out: &mut Vec<u8>, version: RespVersion, facts: &ServerFacts<'_>) {
    encode::map(out, version, 7);
    for (name, value) in [("server", facts.server), ("version", facts.version)] {
        for text in [name, value] {
            encode::bulk(out, text.as_bytes());
        }
    }
    encode::bulk(out, b"proto");
    encode::integer(out, version.number());
    encode::bulk(out, b"id");
    encode::integer(out, facts.connection);
    for (name, value) in [("mode", facts.mode), ("role", facts.role)] {
        for text in [name, value] {
            encode::bulk(out, text.as_bytes());
        }
    }
    encode::bulk(out, b"modules");
    encode::array(out, 0);
}

const CLIENT: CommandSpec = CommandSpec {
    name: "client",
    arity: -2,
    since: "2.4.0",
    group: Group::CONNECTION,
    summary: "Holds the commands about the connection itself.",
    complexity: "Depends on the subcommand.",
    subcommands: &[
        CLIENT_GETNAME,
        CLIENT_HELP,
        CLIENT_ID,
        CLIENT_INFO,
        CLIENT_SETINFO,
        CLIENT_SETNAME,
        CLIENT_UNBLOCK,
    ],
    ..CommandSpec::PLAIN
};

const CLIENT_GETNAME: CommandSpec = CommandSpec {
    name: "client|getname",
    arity: 2,
    flags: &[Flag::NoScript, Flag::Loading, Flag::Stale],
    categories: &["connection"],
    since: "2.6.9",
    group: Group::CONNECTION,
    summary: "Returns the connection's name, or null.",
    parse: client_getname,
    ..CommandSpec::PLAIN
};

fn client_getname(_words: Words<'_>, _now: u64) -> ParseResult<'_> {
    Ok(Request::ClientGetName)
}

const CLIENT_HELP: CommandSpec = CommandSpec {
    name: "client|help",
    arity: 2,
    flags: &[Flag::Loading, Flag::Stale],
    categories: &["connection"],
    since: "5.0.0",
    group: Group::CONNECTION,
    summary: "Lists the subcommands.",
    parse: help,
    ..CommandSpec::PLAIN
};

const CLIENT_ID: CommandSpec = CommandSpec {
    name: "client|id",
    arity: 2,
    flags: &[Flag::NoScript, Flag::Loading, Flag::Stale],
    categories: &["connection"],
    since: "5.0.0",
    group: Group::CONNECTION,
    summary: "Returns the connection's number, which no other connection of this run has.",
    parse: client_id,
    ..CommandSpec::PLAIN
};

fn client_id(_words: Words<'_>, _now: u64) -> ParseResult<'_> {
    Ok(Request::ClientId)
}

const CLIENT_INFO: CommandSpec = CommandSpec {
    name: "client|info",
    arity: 2,
    flags: &[Flag::NoScript, Flag::Loading, Flag::Stale],
    categories: &["connection"],
    since: "6.2.0",
    group: Group::CONNECTION,
    summary: "Tells about the connection, on one line.",
    parse: client_info,
    ..CommandSpec::PLAIN
};

fn client_info(_words: Words<'_>, _now: u64) -> ParseResult<'_> {
    Ok(Request::ClientInfo)
}

const CLIENT_SETINFO: CommandSpec = CommandSpec {
    name: "client|setinfo",
    arity: 4,
    flags: &[Flag::NoScript, Flag::Loading, Flag::Stale],
    categories: &["connection"],
    since: "7.2.0",
    group: Group::CONNECTION,
    summary: "Tells the server which client library is used.",
    notes: "Printable ASCII without spaces only, at most 1024 bytes.",
    arguments: &[Argument::of(
        "attr",
        Kind::OneOf,
        &[
            Argument::new("libname", Kind::String).after("LIB-NAME"),
            Argument::new("libver", Kind::String).after("LIB-VER"),
        ],
    )],
    parse: client_setinfo,
    ..CommandSpec::PLAIN
};

fn client_setinfo(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    let (attribute, name) = if words.is(2, "lib-name") {
        (ClientAttribute::LibraryName, "lib-name")
    } else if words.is(2, "lib-ver") {
        (ClientAttribute::LibraryVersion, "lib-ver")
    } else {
        return Err(CommandError::ClientOption(excerpt(words.get(2))));
    };
    let value = words.get(3);
    is_short(value, name)?;
    if !is_plain(value) {
        return Err(CommandError::ClientAttribute(name));
    }
    Ok(Request::ClientSetInfo { attribute, value })
}

const CLIENT_SETNAME: CommandSpec = CommandSpec {
    name: "client|setname",
    arity: 3,
    flags: &[Flag::NoScript, Flag::Loading, Flag::Stale],
    categories: &["connection"],
    since: "2.6.9",
    group: Group::CONNECTION,
    summary: "Names the connection; an empty name takes the name away.",
    notes: "Printable ASCII without spaces only, at most 1024 bytes.",
    arguments: &[Argument::new("connection-name", Kind::String)],
    parse: client_setname,
    ..CommandSpec::PLAIN
};

fn client_setname(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    Ok(Request::ClientSetName(client_name(words.get(2))?))
}

const CLIENT_UNBLOCK: CommandSpec = CommandSpec {
    name: "client|unblock",
    arity: -3,
    flags: &[Flag::Admin, Flag::NoScript, Flag::Loading, Flag::Stale],
    categories: &["connection"],
    since: "5.0.0",
    summary: "Ends the wait of another connection for a key, as if its time were over or with an error.",
    notes: "Returns 1 if that connection waited, else 0.",
    complexity: "O(shards)",
    arguments: &[
        Argument::new("client-id", Kind::Integer),
        Argument::of(
            "unblock-type",
            Kind::OneOf,
            &[
                Argument::new("timeout", Kind::PureToken).after("TIMEOUT"),
                Argument::new("error", Kind::PureToken).after("ERROR"),
            ],
        )
        .optional(),
    ],
    parse: client_unblock,
    ..CommandSpec::PLAIN
};

/// The reply to CLIENT UNBLOCK, from all threads' answers.
pub static UNBLOCKED: CombinedReply =
    CombinedReply { command: "client|unblock", takes_errors: false, write: write_unblocked };

fn write_unblocked(out: &mut Vec<u8>, _: RespVersion, answers: &[ShardAnswer<'_>]) {
    encode::integer(out, answers.iter().any(|answer| answer.number > 0).into());
}

fn client_unblock(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    let status = match words.len() {
        3 => Status::NotFound,
        4 if words.is(3, "timeout") => Status::NotFound,
        4 if words.is(3, "error") => Status::Unblocked,
        4 => return Err(CommandError::UnblockReason),
        _ => {
            let name = excerpt(words.get(1));
            let text = format!(
                "ERR unknown subcommand or wrong number of arguments for '{name}'. Try CLIENT HELP."
            );
            return Err(CommandError::Own(text.into()));
        }
    };
    let id = integer::parse(words.get(2)).ok_or(CommandError::NotAnInteger)?;
    // No connection has a negative number.
    let serial = u64::try_from(id).unwrap_or(u64::MAX);
    Ok(Request::Unblock { serial, status })
}

/// A connection's name.
fn client_name(name: &[u8]) -> Result<&[u8], CommandError> {
    is_short(name, "client name")?;
    if is_plain(name) { Ok(name) } else { Err(CommandError::ClientName) }
}

/// A connection keeps it.
const fn is_short(name: &[u8], what: &'static str) -> Result<(), CommandError> {
    if name.len() <= RESP_MAX_CLIENT_NAME_BYTES {
        Ok(())
    } else {
        Err(CommandError::ClientNameTooLong(what))
    }
}

/// Whether a name may occur in CLIENT INFO and in logs.
fn is_plain(name: &[u8]) -> bool {
    name.iter().all(u8::is_ascii_graphic)
}

/// The commands.
pub(super) const COMMANDS: &[CommandSpec] = &[CLIENT, ECHO, HELLO, PING, QUIT, SELECT];
