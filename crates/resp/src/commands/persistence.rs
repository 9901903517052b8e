//! What is kept: snapshots.

use crate::error::CommandError;
use crate::form::CombinedReply;
use crate::request::Request;
use crate::spec::{Argument, CommandSpec, Flag, Kind, ParseResult};
use crate::wire::{RespVersion, Words, encode};
use remora_frontend::ShardAnswer;
use remora_protocol::integer;

const BGSAVE: CommandSpec = CommandSpec {
    name: "bgsave",
    arity: -1,
    flags: &[Flag::Admin, Flag::NoScript],
    since: "1.0.0",
    summary: "Begins a snapshot of all keys, beside everything else.",
    notes: "Needs a data directory. INFO persistence tells how it goes; LASTSAVE when one was \
written.",
    arguments: &[Argument::word("schedule", "SCHEDULE").optional()],
    parse: bgsave,
    ..CommandSpec::PLAIN
};

fn bgsave(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    match words.len() {
        1 => Ok(Request::BgSave),
        2 if words.is(1, "schedule") => Ok(Request::BgSave),
        _ => Err(CommandError::Syntax),
    }
}

const LASTSAVE: CommandSpec = CommandSpec {
    name: "lastsave",
    arity: 1,
    flags: &[Flag::Loading, Flag::Stale, Flag::Fast],
    categories: &["admin", "dangerous"],
    since: "1.0.0",
    summary: "Returns when the last snapshot was written, Unix seconds.",
    notes: "Before the first one: when the data that the server began with were last changed.",
    parse: lastsave,
    ..CommandSpec::PLAIN
};

fn lastsave(_words: Words<'_>, _now: u64) -> ParseResult<'_> {
    Ok(Request::LastSave)
}

const WAITAOF: CommandSpec = CommandSpec {
    name: "waitaof",
    arity: 4,
    flags: &[Flag::NoScript],
    categories: &["connection"],
    since: "7.2.0",
    summary: "Waits until the changes before it are on the disk, whatever the server's durability is.",
    notes: "The timeout is in milliseconds; 0 waits without end. Returns 1 or 0 for the server's own \
disk, and the number of replicas that have them on theirs: the smallest of those of the shards. The sync \
begins at once. Other connections do not wait.",
    arguments: &[
        Argument::new("numlocal", Kind::Integer),
        Argument::new("numreplicas", Kind::Integer),
        Argument::new("timeout", Kind::Integer),
    ],
    parse: waitaof,
    ..CommandSpec::PLAIN
};

fn waitaof(words: Words<'_>, now_ms: u64) -> ParseResult<'_> {
    let number = |at| integer::parse(words.get(at)).ok_or(CommandError::NotAnInteger);
    let (local, replicas, timeout_ms) = (number(1)?, number(2)?, number(3)?);
    if !(0..=1).contains(&local) {
        return Err(CommandError::NotZeroOrOne);
    }
    if replicas < 0 {
        return Err(CommandError::OutOfRange);
    }
    let until_ms = match u64::try_from(timeout_ms) {
        Err(_) => return Err(CommandError::NegativeTimeout),
        Ok(0) => 0,
        Ok(timeout_ms) => now_ms.saturating_add(timeout_ms),
    };
    let replicas = replicas as usize;
    Ok(Request::WaitAof { wants_disk: local == 1, replicas, until_ms })
}

/// The reply to WAITAOF, from all shards' answers.
pub static SYNCED: CombinedReply =
    CombinedReply { command: "waitaof", takes_errors: false, write: write_synced };

fn write_synced(out: &mut Vec<u8>, _: RespVersion, answers: &[ShardAnswer<'_>]) {
    // The server's own disk is the lowest bit, the replicas are the others.
    let is_synced = answers.iter().all(|answer| answer.number & 1 == 1);
    let replicas = answers.iter().map(|answer| answer.number >> 1).min();
    encode::array(out, 2);
    encode::integer(out, is_synced.into());
    encode::integer(out, replicas.unwrap_or(0));
}

/// The commands of this group.
pub(super) const COMMANDS: &[CommandSpec] = &[BGSAVE, LASTSAVE, WAITAOF];
