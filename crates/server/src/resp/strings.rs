//! Requests about parts of values: looked at in the shard's memory where that
//! concludes, else asked; changed by asking.

use super::connection::Connection;
use super::execute::{Executor, Read};
use super::pending::Render;
use remora_engine::command::{Command, Condition, Expiry};
use remora_engine::string_edit::{BitPlace, range};
use remora_front::request::{ExpiryChange, Request};
use remora_front::resp::encode;

impl Executor {
    /// Executes one of them; others are not for here.
    pub(super) fn string(&mut self, connection: &mut Connection, request: Request<'_>) {
        let (command, render) = match request {
            Request::StrLen { key } => (Command::StrLen { key }, Render::Number("strlen")),
            Request::GetRange { key, start, end } => {
                (Command::GetRange { key, start, end }, Render::Value)
            }
            Request::GetBit { key, offset } => {
                (Command::GetBit { key, offset }, Render::Number("getbit"))
            }
            Request::Append { key, value } => {
                (Command::Append { key, value }, Render::Number("append"))
            }
            Request::SetRange { key, offset, value } => {
                (Command::SetRange { key, offset, value }, Render::Number("setrange"))
            }
            Request::SetBit { key, offset, bit } => {
                (Command::SetBit { key, offset, bit }, Render::Number("setbit"))
            }
            Request::SetNx { key, value } => {
                let (condition, expiry) = (Condition::IfAbsent, Expiry::Never);
                let command = Command::Set { key, value, condition, expiry, get: false };
                (command, Render::Done("setnx"))
            }
            Request::GetDel { key } => (Command::GetDel { key }, Render::Value),
            Request::GetEx { key, change } => get_ex(key, change),
            other => unreachable!("not about a part of a value: {other:?}"),
        };
        let key = command.key().expect("each of them has one");
        if !command.is_write() && self.look(connection, key, &command) {
            return;
        }
        self.ask_owner(connection, key, &command, render);
    }

    /// Answers from the shard's memory, if this session may read it and the
    /// reading concludes. Whether it did.
    fn look(&mut self, connection: &mut Connection, key: &[u8], command: &Command<'_>) -> bool {
        let part = match *command {
            Command::StrLen { .. } | Command::GetRange { .. } | Command::GetBit { .. } => *command,
            // What GETEX asks without changing anything is the owner's to say.
            _ => return false,
        };
        let Read::Found { from, to, .. } = self.read(connection, key) else { return false };
        let value = &self.record[from..to];
        connection.reply(|out, _| match part {
            Command::GetRange { start, end, .. } => {
                encode::bulk(out, &value[range(value.len(), start.into(), end.into())]);
            }
            Command::GetBit { offset, .. } => {
                encode::integer(out, BitPlace::of(offset).is_set(value).into());
            }
            _ => encode::integer(out, value.len() as i64),
        });
        true
    }
}

/// A GETEX whose time makes no sense is an error only if the key exists.
fn get_ex(key: &[u8], change: ExpiryChange) -> (Command<'_>, Render) {
    match change {
        ExpiryChange::Clear => (Command::GetEx { key, at_ms: None }, Render::Value),
        ExpiryChange::At(at_ms) => (Command::GetEx { key, at_ms: Some(at_ms) }, Render::Value),
        ExpiryChange::Invalid(status) => {
            (Command::Exists { key }, Render::NullOrError(status, "getex"))
        }
    }
}
