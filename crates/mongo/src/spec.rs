//! What a command is: its entry in the table.

use crate::command::Command;
use crate::fields::Common;
use crate::reply::CommandError;
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
    pub(crate) begin: Begin,
}

/// Begins a command.
pub(crate) type Begin = fn(&Command<'_>, &mut Context<'_>) -> Result<Begun, CommandError>;

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
        let common = Common::of(command, self.fields, context.common())?;
        Ok(((self.begin)(command, context)?, common))
    }
}
