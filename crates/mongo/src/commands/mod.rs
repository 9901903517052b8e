//! The commands: a file for each group, with their lines of the table, their parsers, and what they ask.
//!
//! Invariant: a command names each field that it takes, and keeps to it. All else is an error.

mod aggregate;
mod bulk;
mod catalog;
mod count;
mod cursor;
mod diagnostic;
mod explain;
mod find;
mod find_key;
mod merge;
mod out;
mod rename;
mod statistics;
mod write;

use crate::reply::{CommandError, ErrorCode};
pub use crate::spec::{Right, Spec};

/// All of them.
pub static COMMANDS: &[&[Spec]] = &[
    diagnostic::COMMANDS,
    write::COMMANDS,
    bulk::COMMANDS,
    find::COMMANDS,
    count::COMMANDS,
    aggregate::COMMANDS,
    cursor::COMMANDS,
    catalog::COMMANDS,
    rename::COMMANDS,
    explain::COMMANDS,
    statistics::COMMANDS,
];

/// The command of this name.
pub fn spec(name: &str) -> Option<&'static Spec> {
    COMMANDS.iter().copied().flatten().find(|spec| spec.names.contains(&name))
}

/// The error for a name that is no command.
pub fn unknown(name: &str) -> CommandError {
    CommandError::new(ErrorCode::CommandNotFound, format!("no such command: '{name}'"))
}
