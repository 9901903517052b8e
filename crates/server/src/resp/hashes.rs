//! Hashes in another shard's memory: a field of any hash, and any read of a small one, which lies
//! whole in its record.
//!
//! Invariant: a field of a large hash is valid only with the hash's root record, which is read
//! after it. If a read does not conclude, the owner answers.

use super::executor::{RespExecutor, Responder};
use super::host::Host;
use remora_frontend::{OwnedReply, ShardAnswer, Waiting};
use remora_index::hash::{ObjectRef, find_locally};
use remora_layout::hash::KeyHash;
use remora_layout::kind::Kind;
use remora_layout::limits::JOB_KEYS_PER_TURN;
use remora_layout::packed;
use remora_layout::record::ROOT_WORDS_BYTES;
use remora_protocol::hash::HashCommand;
use remora_protocol::message::Status;
use remora_protocol::{Command, Items, Request};
use remora_resp::ReplyForm;
use remora_walk::local::{self, Unwatched};
use remora_walk::{End, Memory};

/// An object that was found; its record is in the scratch.
pub(super) enum Held {
    /// Whole in its record, from here to there.
    Whole(usize, usize),
    /// Its parts are found through its own table.
    Parts(Box<ObjectRef>),
}

impl<H: Host> RespExecutor<H> {
    /// One operation on the object of a key: executed, asked, or read if it is a hash or a set.
    pub(super) fn any_object(
        &mut self,
        responder: &mut Responder,
        (key, request): (&[u8], Request<'_>),
        form: ReplyForm,
    ) {
        let at = self.route(key);
        let may_read = at.1 != self.host.home() && responder.may_read(at.1, at.0);
        if may_read
            && (self.read_hash(responder, (key, at), request, form)
                || self.read_set(responder, (key, at), request, form))
        {
            return;
        }
        let command = Command::Of { key, request };
        self.ask_one(responder, (&command, at), form, usize::MAX);
    }

    /// Answers a read of a hash from its shard's memory, if that concludes. Whether it did.
    fn read_hash(
        &mut self,
        responder: &mut Responder,
        (key, at): (&[u8], (KeyHash, usize)),
        request: Request<'_>,
        form: ReplyForm,
    ) -> bool {
        let Request::Hash(command) = request else { return false };
        let is_few = |names: Items<'_>| names.iter().count() <= JOB_KEYS_PER_TURN;
        let may = match command {
            HashCommand::GetMany { names } => is_few(names),
            HashCommand::Get { .. }
            | HashCommand::Exists { .. }
            | HashCommand::ValueLength { .. }
            | HashCommand::Length => true,
            _ => false,
        };
        let is_read = may && self.answer_hash(responder, (key, at), command, form).is_some();
        let counts = self.host.thread_counts();
        counts.optimistic_reads.add(is_read.into());
        counts.asked_reads.add((may && !is_read).into());
        is_read
    }

    fn answer_hash(
        &mut self,
        responder: &mut Responder,
        (key, at): (&[u8], (KeyHash, usize)),
        command: HashCommand<'_>,
        form: ReplyForm,
    ) -> Option<()> {
        let held = self.find_object(key, at, Kind::HASH)?;
        let whole = match held {
            Held::Whole(from, to) => Some(&self.record[from..to]),
            Held::Parts(_) => None,
        };
        let (number, value) = match command {
            HashCommand::Length => (packed::pairs(whole?).count(), None),
            HashCommand::GetMany { names } => {
                let (mut list, whole) = (Vec::new(), whole?);
                for name in names.iter().flatten() {
                    match packed::fields(whole).find(|(other, _)| *other == name) {
                        Some((_, field)) => Items::push_field(&mut list, field),
                        None => Items::push_none(&mut list),
                    }
                }
                let (number, value) = (names.iter().count() as i64, Some(list));
                let reply = OwnedReply { number, value, ..OwnedReply::status(Status::Ok) };
                responder.wait(Waiting::answered(form, reply));
                return Some(());
            }
            HashCommand::Get { name }
            | HashCommand::Exists { name }
            | HashCommand::ValueLength { name } => {
                let value = match held {
                    Held::Whole(from, to) => packed::find(&self.record[from..to], name)?,
                    Held::Parts(object) => self.find_field(at.1, &object, name)?,
                };
                let is_length = matches!(command, HashCommand::ValueLength { .. });
                (if is_length { value.len() } else { 1 }, Some(value))
            }
            _ => return None,
        };
        responder
            .reply_answer(form, ShardAnswer { status: Status::Ok, number: number as i64, value });
        Some(())
    }

    /// The object of this kind of a key, if it has not expired.
    pub(super) fn find_object(
        &mut self,
        key: &[u8],
        (hash, shard): (KeyHash, usize),
        kind: Kind,
    ) -> Option<Held> {
        let (memory, table) = (self.host.memory(shard), &mut self.tables[shard]);
        let found = find_locally(memory, table, key, hash, kind, &mut self.record).ok()?;
        self.is_live(found.mutable.expires_at_ms).then_some(())?;
        self.host.touched(shard, found.pointer);
        if !found.kind.is_root() {
            let from = found.value_from();
            return Some(Held::Whole(from, from + found.value_bytes));
        }
        let record = &self.record[..found.fetched_bytes];
        let (table, seed) = (&self.tables[shard], self.host.hash_seed());
        ObjectRef::of_record(table, seed, &found.record(record), record, 0)
            .map(Box::new)
            .map(Held::Parts)
    }

    /// The value of a field of a large hash.
    fn find_field(&mut self, shard: usize, object: &ObjectRef, name: &[u8]) -> Option<&[u8]> {
        let mut lookup = object.begin(name, Kind::HASH_FIELD)?;
        let memory = self.host.memory(shard);
        let End::Found(field) = local::run(&mut lookup, memory, &mut Unwatched, &mut self.record)
        else {
            return None;
        };
        let ((root, _), mut words) = (object.root_range(), [0; ROOT_WORDS_BYTES]);
        memory.fetch_after(root, &mut words).then_some(())?;
        let root = object.check_root(&words).ok()?;
        self.is_live(root.expires_at_ms).then_some(())?;
        Some(&self.record[field.value_from()..][..field.value_bytes])
    }

    /// Whether this expiry has not passed. The owner removes expired objects.
    const fn is_live(&self, expires_at_ms: u64) -> bool {
        expires_at_ms == 0 || expires_at_ms > self.now_ms
    }
}

#[cfg(test)]
mod tests;
