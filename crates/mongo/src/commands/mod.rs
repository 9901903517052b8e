//! The commands: a file for each group, with their lines of the table, their parsers, and what they ask.
//!
//! Invariant: a command names each field that it takes, and keeps to it. All else is an error.

mod aggregate;
mod catalog;
mod cursor;
mod diagnostic;
mod explain;
mod find;
mod merge;
mod out;
mod rename;
mod statistics;
mod write;

use crate::command::Command;
use crate::fields::Common;
use crate::reply::{CommandError, ErrorCode};
use crate::running::{Begun, Context};

/// Which rights a command needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Right {
    /// None: it is for clients that have not logged in.
    None,
    /// The client has logged in.
    Login,
    /// That of a command of RESP on the collection's key.
    Collection(&'static str),
    /// That of a command of RESP, on all keys of the database.
    Database(&'static str),
}

/// A command.
pub struct Spec {
    /// Its name, and others that it has.
    pub names: &'static [&'static str],
    /// What it does.
    pub summary: &'static str,
    /// What a client has to be allowed.
    pub right: Right,
    /// Its own fields.
    pub fields: &'static [&'static str],
    begin: Begin,
}

/// Begins a command.
type Begin = fn(&Command<'_>, &mut Context<'_>) -> Result<Begun, CommandError>;

/// All of them.
pub static COMMANDS: &[&[Spec]] = &[
    diagnostic::COMMANDS,
    write::COMMANDS,
    find::COMMANDS,
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

impl Spec {
    /// Begins a command of this name.
    ///
    /// # Errors
    /// It is not as it should be, or cannot be carried out.
    pub fn begin(
        &self,
        command: &Command<'_>,
        context: &mut Context<'_>,
    ) -> Result<(Begun, Common), CommandError> {
        let common = Common::of(command, self.fields, context.now_ms)?;
        Ok(((self.begin)(command, context)?, common))
    }
}

/// The error for a name that is no command.
pub fn unknown(name: &str) -> CommandError {
    CommandError::new(ErrorCode::CommandNotFound, format!("no such command: '{name}'"))
}
