//! What is kept: snapshots.

use crate::error::CommandError;
use crate::request::Request;
use crate::spec::{Argument, Asked, CommandSpec, Flag};
use crate::wire::Words;

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

fn bgsave(words: Words<'_>, _now: u64) -> Asked<'_> {
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

fn lastsave(_words: Words<'_>, _now: u64) -> Asked<'_> {
    Ok(Request::LastSave)
}

/// The commands of this group.
pub(super) const COMMANDS: &[CommandSpec] = &[BGSAVE, LASTSAVE];
