//! `renameCollection`.

use super::catalog::{describe, described};
use crate::command::Command;
use crate::fields::namespace;
use crate::reply::{CommandError, ErrorCode};
use crate::running::{Begun, Context, Running, Step, done, ok_body};
use crate::spec::{Right, Spec};
use bson::raw::RawBsonRef;
use remora_frontend::OwnedReply;

pub(super) static COMMANDS: &[Spec] = &[Spec {
    names: &["renameCollection"],
    summary: "Gives a collection another name, perhaps in another database.",
    right: Right::Database("rename"),
    fields: &["to", "dropTarget"],
    begin: rename,
}];

/// A rename. The shards carry it out as that of any object.
struct Rename {
    from: Vec<u8>,
    to: Vec<u8>,
    replaces: bool,
    stage: usize,
}

fn rename(command: &Command<'_>, _: &mut Context<'_>) -> Result<Begun, CommandError> {
    if command.database() != "admin" {
        let text = "renameCollection may only be run against the admin database.";
        return Err(CommandError::new(ErrorCode::Unauthorized, text));
    }
    let of = |value: Option<RawBsonRef<'_>>, field: &str| {
        let Some(RawBsonRef::String(full)) = value else {
            let text = format!(
                "BSON field 'renameCollection.{field}' is missing, or no string with a namespace"
            );
            return Err(CommandError::new(ErrorCode::TypeMismatch, text));
        };
        let (database, collection) = full.split_once('.').unwrap_or((full, ""));
        namespace(database, collection)
    };
    let from = of(Some(command.first()), "renameCollection")?;
    let to = of(command.get("to"), "to")?;
    if from == to {
        let text = "Can't rename a collection to itself";
        return Err(CommandError::new(ErrorCode::IllegalOperation, text));
    }
    let replaces = command.bool("dropTarget")?.unwrap_or(false);
    Begun::running(Rename { from, to, replaces, stage: 0 })
}

impl Running for Rename {
    fn next(
        &mut self,
        answer: Option<OwnedReply>,
        _: &mut Context<'_>,
    ) -> Result<Step, CommandError> {
        self.stage += 1;
        let missing = || {
            let text =
                format!("Source collection {} does not exist", String::from_utf8_lossy(&self.from));
            CommandError::new(ErrorCode::NamespaceNotFound, text)
        };
        match self.stage {
            // An object of another type is no collection, and stays.
            1 => Ok(describe(&self.from)),
            2 => {
                described(answer)?.ok_or_else(missing)?;
                Ok(Step::Move {
                    from: self.from.clone(),
                    to: self.to.clone(),
                    replaces: self.replaces,
                })
            }
            _ => match done(answer)?.number {
                0 => {
                    let text = "target namespace exists";
                    Err(CommandError::new(ErrorCode::NamespaceExists, text))
                }
                _ => Ok(Step::Done(ok_body(|_| {}))),
            },
        }
    }
}
