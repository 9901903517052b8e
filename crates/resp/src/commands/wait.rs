//! Replicas: waiting until they have stored changes.

use crate::error::CommandError;
use crate::form::CombinedReply;
use crate::request::Request;
use crate::spec::{Argument, CommandSpec, Flag, Kind, ParseResult};
use crate::wire::{RespVersion, Words, encode};
use remora_frontend::ShardAnswer;
use remora_protocol::integer;

const WAIT: CommandSpec = CommandSpec {
    name: "wait",
    arity: 3,
    flags: &[Flag::NoScript],
    categories: &["connection"],
    since: "3.0.0",
    summary: "Waits until so many replicas have stored the changes before it.",
    notes: "The timeout is in milliseconds; 0 waits without end. Returns the number of replicas that have \
stored them: the smallest of those of the shards. Other connections do not wait. A server that becomes a replica, or is one, \
answers at once.",
    arguments: &[
        Argument::new("numreplicas", Kind::Integer),
        Argument::new("timeout", Kind::Integer),
    ],
    parse: wait,
    ..CommandSpec::PLAIN
};

fn wait(words: Words<'_>, now_ms: u64) -> ParseResult<'_> {
    let number = |at| integer::parse(words.get(at)).ok_or(CommandError::NotAnInteger);
    let (replicas, timeout_ms) = (number(1)?, number(2)?);
    let replicas = usize::try_from(replicas).map_err(|_| CommandError::OutOfRange)?;
    let until_ms = match u64::try_from(timeout_ms) {
        Err(_) => return Err(CommandError::NegativeTimeout),
        Ok(0) => 0,
        Ok(timeout_ms) => now_ms.saturating_add(timeout_ms),
    };
    Ok(Request::Wait { replicas, until_ms })
}

/// The reply to WAIT, from all shards' answers.
pub static STORED: CombinedReply =
    CombinedReply { command: "wait", takes_errors: false, write: write_stored };

fn write_stored(out: &mut Vec<u8>, _: RespVersion, answers: &[ShardAnswer<'_>]) {
    let replicas = answers.iter().map(|answer| answer.number).min();
    encode::integer(out, replicas.unwrap_or(0));
}

/// The commands of this group.
pub(super) const COMMANDS: &[CommandSpec] = &[WAIT];
