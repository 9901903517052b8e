//! Reads that a session makes from the shards' memory, without asking.

use super::executor::{RespExecutor, Responder};
use super::host::Host;
use remora_engine::string_edit::{BitPlace, range};
use remora_frontend::ShardAnswer;
use remora_index::hash::walk_locally;
use remora_layout::hash::KeyHash;
use remora_layout::kind::Kind;
use remora_protocol::Command;
use remora_protocol::message::Status;
use remora_resp::ReplyForm;
use remora_resp::wire::encode;

/// The outcome of an optimistic read.
pub(super) enum Read {
    /// The record, unexpired: its value is in the scratch; expiry in Unix ms.
    Found { from: usize, to: usize, expires_at_ms: u64 },
    /// Only the owner can answer.
    Ask,
}

impl<H: Host> RespExecutor<H> {
    /// Answers from the shard's memory, if this session may read it and the
    /// reading concludes. Whether it did.
    pub(super) fn look(
        &mut self,
        responder: &mut Responder,
        (command, at): (&Command<'_>, (KeyHash, usize)),
        form: ReplyForm,
    ) -> bool {
        let key = match *command {
            Command::Get { key }
            | Command::Ttl { key }
            | Command::StrLen { key }
            | Command::Type { key }
            | Command::GetRange { key, .. }
            | Command::GetBit { key, .. } => key,
            // Writes, and the read of GETEX without options: the owner answers them.
            _ => return false,
        };
        if matches!(command, Command::Ttl { .. }) && self.tables[at.1].lags {
            // An expiry is one word, which may be read before it is durable.
            return false;
        }
        let Read::Found { from, to, expires_at_ms } = self.read(responder, key, at) else {
            return false;
        };
        let value = &self.record[from..to];
        match *command {
            Command::Get { .. } => {
                self.host.thread_counts().hits.add(1);
                responder.reply(|out, _| encode::bulk(out, value));
            }
            // If the value is not a string, the owner answers.
            Command::Type { .. } => {
                responder.reply(|out, _| encode::simple(out, Kind::STRING.name()));
            }
            Command::GetRange { start, end, .. } => {
                let part = &value[range(value.len(), start.into(), end.into())];
                responder.reply(|out, _| encode::bulk(out, part));
            }
            _ => {
                let number = match *command {
                    Command::GetBit { offset, .. } => BitPlace::of(offset).is_set(value).into(),
                    Command::Ttl { .. } if expires_at_ms != 0 => {
                        (expires_at_ms - self.now_ms) as i64
                    }
                    Command::Ttl { .. } => -1,
                    _ => value.len() as i64,
                };
                responder
                    .reply_answer(form, ShardAnswer { status: Status::Ok, number, value: None });
            }
        }
        true
    }

    /// Reads a key's record from its shard's memory, if this session may.
    pub(super) fn read(
        &mut self,
        responder: &Responder,
        key: &[u8],
        (hash, shard): (KeyHash, usize),
    ) -> Read {
        if !responder.may_read(shard, hash) {
            return Read::Ask;
        }
        let (memory, table) = (self.host.memory(shard), &mut self.tables[shard]);
        match walk_locally(memory, table, key, hash, Kind::STRING, &mut self.record) {
            Ok(found) => {
                let expires_at_ms = found.mutable.expires_at_ms;
                if expires_at_ms != 0 && expires_at_ms <= self.now_ms {
                    // The owner removes expired objects.
                    return Read::Ask;
                }
                let to = found.pointer.length as usize;
                let from = to - found.value.len();
                self.host.thread_counts().optimistic_reads.add(1);
                self.host.touched(shard, found.pointer);
                Read::Found { from, to, expires_at_ms }
            }
            Err(_) => {
                self.host.thread_counts().asked_reads.add(1);
                Read::Ask
            }
        }
    }
}

#[cfg(test)]
mod tests;
