//! The role of the server: whose replica it is, and whether.

use crate::error::CommandError;
use crate::form::CombinedReply;
use crate::request::{Request, RoleRequest};
use crate::spec::{Argument, CommandSpec, Flag, Kind, ParseResult};
use crate::wire::{RespVersion, Words, encode};
use remora_frontend::ShardAnswer;
use std::borrow::Cow;

/// Most bytes of an address: the longest path of a Unix socket is shorter.
const MAX_ADDRESS_BYTES: usize = 256;

const REPLICAOF: CommandSpec = CommandSpec {
    name: "replicaof",
    arity: -2,
    flags: &[Flag::Admin, Flag::NoScript, Flag::Stale],
    since: "5.0.0",
    summary: "Makes the server a replica of another one, or with NO ONE a primary.",
    notes: "The address is the primary's for sessions (`fabric_address`, as `host:port` or in two \
words), or the path of its Unix socket; it is not its address for RESP. The server replaces what it \
has by a copy. NO ONE applies all that has been received first, and is refused while a copy is under \
way. Nothing keeps the old primary from taking changes: stop it, or make it a replica.",
    arguments: &[
        Argument::new("address", Kind::String),
        Argument::new("port", Kind::String).optional(),
    ],
    parse: replicaof,
    ..CommandSpec::PLAIN
};

fn replicaof(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    let text = |at: usize| std::str::from_utf8(words.get(at)).map_err(|_| CommandError::Syntax);
    let change = match words.len() {
        3 if words.is(1, "no") && words.is(2, "one") => RoleRequest::Lead,
        2 => RoleRequest::Follow(text(1)?.into()),
        3 => RoleRequest::Follow(joined(text(1)?, text(2)?)),
        _ => return Err(CommandError::Syntax),
    };
    match &change {
        RoleRequest::Follow(address) if address.len() > MAX_ADDRESS_BYTES => {
            Err(CommandError::Syntax)
        }
        _ => Ok(Request::ChangeRole(change)),
    }
}

/// Host and port in one word; an IPv6 address is set off from its port.
fn joined<'a>(host: &str, port: &str) -> Cow<'a, str> {
    match host.contains(':') && !host.starts_with('[') {
        true => format!("[{host}]:{port}").into(),
        false => format!("{host}:{port}").into(),
    }
}

const SLAVEOF: CommandSpec = CommandSpec {
    name: "slaveof",
    since: "1.0.0",
    summary: "Is the old name of REPLICAOF.",
    notes: "",
    ..REPLICAOF
};

const RESYNC: CommandSpec = CommandSpec {
    name: "resync",
    arity: 1,
    flags: &[Flag::Admin, Flag::NoScript, Flag::Stale],
    since: "0.1.0",
    is_own: true,
    summary: "Makes a replica copy its primary anew.",
    notes: "What it has goes once the copy begins. Also if the primary has come back empty, or another server is at its address: otherwise \
the replica keeps what it has, and says so. After RDMA_Mongo's `resync`.",
    parse: resync,
    ..CommandSpec::PLAIN
};

fn resync(_words: Words<'_>, _now: u64) -> ParseResult<'_> {
    Ok(Request::ChangeRole(RoleRequest::Resync))
}

/// The reply to a change of the role: OK, or the text of an error.
pub static CHANGED: CombinedReply =
    CombinedReply { command: "replicaof", takes_errors: false, write: write_changed };

fn write_changed(out: &mut Vec<u8>, _: RespVersion, answers: &[ShardAnswer<'_>]) {
    let refused = answers.iter().find(|answer| answer.number != 1);
    match refused {
        None => encode::ok(out),
        Some(why) => {
            encode::error(out, &String::from_utf8_lossy(why.value.unwrap_or(b"ERR refused")));
        }
    }
}

const DELIVER: CommandSpec = CommandSpec {
    name: "member.deliver",
    arity: 2,
    flags: &[Flag::Admin, Flag::NoScript, Flag::Loading, Flag::Stale, Flag::Fast],
    since: "0.1.0",
    is_own: true,
    summary: "Hands a message over, from one server of a cluster to another.",
    notes: "For servers. OK says that it has come, and nothing of what follows.",
    arguments: &[Argument::new("message", Kind::String)],
    parse: deliver,
    ..CommandSpec::PLAIN
};

fn deliver(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    Ok(Request::Deliver(words.get(1)))
}

const ROLE: CommandSpec = CommandSpec {
    name: "role",
    arity: 1,
    flags: &[Flag::NoScript, Flag::Loading, Flag::Stale, Flag::Fast],
    categories: &["admin", "dangerous"],
    since: "2.8.12",
    summary: "Tells whether the server is a primary, with its replicas, or a replica, with its primary.",
    notes: "As Redis: `master`, the offset, and host, port and offset of each replica; or `slave`, \
host and port of the primary, `connect`, `sync` or `connected`, and the offset. Offsets are sums of the \
sequences of the primary's shards. A primary at a Unix socket has its path for a host, and port 0.",
    parse: role,
    ..CommandSpec::PLAIN
};

fn role(_words: Words<'_>, _now: u64) -> ParseResult<'_> {
    Ok(Request::Role)
}

/// What ROLE tells.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RoleFacts {
    /// The server is a primary.
    Primary {
        /// The sum of the sequences of its shards.
        offset: u64,
        /// Its replicas.
        replicas: Vec<ReplicaFacts>,
    },
    /// It is a replica.
    Replica {
        /// The host of the primary, or the path of its Unix socket.
        host: String,
        /// Its port for sessions; 0 of a Unix socket.
        port: u16,
        /// `connect`, `sync` or `connected`.
        state: &'static str,
        /// How far it has applied the primary's logs.
        offset: u64,
    },
}

/// What a primary knows of a replica.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReplicaFacts {
    /// Where it is, as its connection shows.
    pub host: String,
    /// Its port for RESP, as it says; 0 if it does not.
    pub port: u16,
    /// How far it has applied the logs, as it says.
    pub offset: u64,
}

/// Writes the reply to ROLE.
pub fn write_role(out: &mut Vec<u8>, facts: &RoleFacts) {
    match facts {
        RoleFacts::Primary { offset, replicas } => {
            encode::array(out, 3);
            encode::bulk(out, b"master");
            encode::integer(out, *offset as i64);
            encode::array(out, replicas.len());
            for ReplicaFacts { host, port, offset } in replicas {
                encode::array(out, 3);
                encode::bulk(out, host.as_bytes());
                encode::bulk(out, port.to_string().as_bytes());
                encode::bulk(out, offset.to_string().as_bytes());
            }
        }
        RoleFacts::Replica { host, port, state, offset } => {
            encode::array(out, 5);
            encode::bulk(out, b"slave");
            encode::bulk(out, host.as_bytes());
            encode::integer(out, (*port).into());
            encode::bulk(out, state.as_bytes());
            encode::integer(out, *offset as i64);
        }
    }
}

/// The commands of this group.
pub(super) const COMMANDS: &[CommandSpec] = &[DELIVER, REPLICAOF, RESYNC, ROLE, SLAVEOF];
