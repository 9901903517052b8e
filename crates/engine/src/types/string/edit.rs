//! APPEND, SETRANGE, SETBIT and the reads that go with them; GETDEL, GETEX.
//!
//! What it keeps true: an edit keeps the key's expiry, and is logged as the
//! edit itself, so that one bit of a long value costs the log a few bytes.
//! Replayed in order on the same state it gives the same value. What has
//! expired is removed by its own entry, before any edit that made the key
//! anew; so a replay must not let its own clock remove anything.

use crate::store::{Found, New, Now, Store};
use crate::string_edit::{self, BitPlace, Edit, TooLong};
use remora_arena::Journal;
use remora_index::hash::record_value;
use remora_layout::hash::KeyHash;
use remora_layout::kind::Kind;
use remora_layout::limits::ASK_ONLY_BYTES;
use remora_layout::record::MAX_EXPIRES_AT_MS;
use remora_protocol::message::Status;
use remora_protocol::{Command, ExpireCondition, Reply};

/// One edit of one key.
pub(crate) struct Change<'a> {
    pub key: &'a [u8],
    pub hash: KeyHash,
    pub found: Option<Found>,
    pub edit: Edit,
    pub written: &'a [u8],
    /// What the log gets.
    pub entry: Command<'a>,
    /// The reply's number if it is done.
    pub number: i64,
}

impl<J: Journal> Store<J> {
    /// The value that was found; empty without one.
    fn old_value(&self, found: Option<Found>) -> &[u8] {
        found.map_or(&[], |found| record_value(&self.owner, found.slot.slot))
    }

    /// Carries one edit out: a long value is changed in place, another one is
    /// written anew, and the reply points to it as that of SET does.
    fn change(&mut self, change: Change<'_>, now: Now) -> Reply<'_> {
        if change.edit.new_bytes > ASK_ONLY_BYTES {
            return self.change_in_place(&change, now);
        }
        let Change { key, hash, found, edit, written, entry, number } = change;
        // Taken out of the shard while it is in use.
        let mut value = std::mem::take(&mut self.edited);
        value.clear();
        value.extend_from_slice(self.old_value(found));
        edit.apply(&mut value, written);
        let expires_at_ms = found.map_or(0, |found| found.mutable.expires_at_ms);
        let new = New { key, hash, kind: Kind::STRING, value: &value, expires_at_ms };
        let put = self.put_as(new, found, &entry, now);
        self.edited = value;
        match put {
            Ok(_) => Reply { pointer: self.last_put, ..Reply::number(number) },
            Err(_) => Reply::status(Status::OutOfMemory),
        }
    }

    pub(crate) fn append(
        &mut self,
        key: &[u8],
        hash: KeyHash,
        value: &[u8],
        now: Now,
    ) -> Reply<'_> {
        let found = match self.string(key, hash, now) {
            Ok(found) => found,
            Err(reply) => return reply,
        };
        let old_bytes = found.map(|_| self.old_value(found).len());
        let edit = match string_edit::append(old_bytes, value.len()) {
            Ok(Some(edit)) => edit,
            Ok(None) => return Reply::number(old_bytes.unwrap_or(0) as i64),
            Err(TooLong) => return Reply::status(Status::TooLarge),
        };
        let (entry, number) = (Command::Append { key, value }, edit.new_bytes as i64);
        self.change(Change { key, hash, found, edit, written: value, entry, number }, now)
    }

    pub(crate) fn set_range(
        &mut self,
        key: &[u8],
        hash: KeyHash,
        offset: u64,
        value: &[u8],
        now: Now,
    ) -> Reply<'_> {
        let found = match self.string(key, hash, now) {
            Ok(found) => found,
            Err(reply) => return reply,
        };
        let old_bytes = self.old_value(found).len();
        let edit = match string_edit::set_range(old_bytes, offset, value.len()) {
            Ok(Some(edit)) => edit,
            Ok(None) => return Reply::number(old_bytes as i64),
            Err(TooLong) => return Reply::status(Status::TooLarge),
        };
        let (entry, number) = (Command::SetRange { key, offset, value }, edit.new_bytes as i64);
        self.change(Change { key, hash, found, edit, written: value, entry, number }, now)
    }

    pub(crate) fn set_bit(
        &mut self,
        key: &[u8],
        hash: KeyHash,
        offset: u32,
        bit: bool,
        now: Now,
    ) -> Reply<'_> {
        let found = match self.string(key, hash, now) {
            Ok(found) => found,
            Err(reply) => return reply,
        };
        let Ok(planned) = string_edit::set_bit(self.old_value(found), offset, bit) else {
            return Reply::status(Status::TooLarge);
        };
        let number = planned.before as i64;
        let Some(edit) = planned.edit else { return Reply::number(number) };
        let (entry, written) = (Command::SetBit { key, offset, bit }, &[planned.byte][..]);
        self.change(Change { key, hash, found, edit, written, entry, number }, now)
    }

    /// The record of a key that is read, as the eviction policy is told.
    fn asked_for(
        &mut self,
        key: &[u8],
        hash: KeyHash,
        now: Now,
    ) -> Result<Option<Found>, Reply<'static>> {
        let found = self.string(key, hash, now)?;
        found.into_iter().for_each(|found| self.note_touched(found));
        Ok(found)
    }

    pub(crate) fn get_range(
        &mut self,
        key: &[u8],
        hash: KeyHash,
        start: i32,
        end: i32,
        now: Now,
    ) -> Reply<'_> {
        let found = match self.asked_for(key, hash, now) {
            Ok(found) => found,
            Err(reply) => return reply,
        };
        let value = self.old_value(found);
        let range = string_edit::range(value.len(), start.into(), end.into());
        Reply { value: Some(&value[range]), ..Reply::status(Status::Ok) }
    }

    pub(crate) fn get_bit(
        &mut self,
        key: &[u8],
        hash: KeyHash,
        offset: u32,
        now: Now,
    ) -> Reply<'_> {
        let found = match self.asked_for(key, hash, now) {
            Ok(found) => found,
            Err(reply) => return reply,
        };
        Reply::number(BitPlace::of(offset).is_set(self.old_value(found)) as i64)
    }

    pub(crate) fn strlen(&mut self, key: &[u8], hash: KeyHash, now: Now) -> Reply<'_> {
        let found = match self.string(key, hash, now) {
            Ok(found) => found,
            Err(reply) => return reply,
        };
        Reply::number(self.old_value(found).len() as i64)
    }

    pub(crate) fn get_del(&mut self, key: &[u8], hash: KeyHash, now: Now) -> Reply<'_> {
        let found = match self.string(key, hash, now) {
            Ok(Some(found)) => found,
            Ok(None) => {
                self.stats.misses += 1;
                return Reply::status(Status::NotFound);
            }
            Err(reply) => return reply,
        };
        self.stats.hits += 1;
        self.commit(hash.database(), &Command::Del { key }, |store| store.remove(found, hash, now));
        self.last_bytes_of(found)
    }

    pub(crate) fn get_ex(
        &mut self,
        key: &[u8],
        hash: KeyHash,
        at_ms: Option<u64>,
        now: Now,
    ) -> Reply<'_> {
        if at_ms.is_some_and(|at_ms| at_ms > MAX_EXPIRES_AT_MS) {
            return Reply::status(Status::InvalidExpiry);
        }
        if let Err(reply) = self.string(key, hash, now) {
            return reply;
        }
        match at_ms {
            Some(at_ms) if at_ms <= now.unix_ms => return self.get_del(key, hash, now),
            Some(at_ms) => {
                self.expire(key, hash, at_ms, ExpireCondition::Always, now);
            }
            None => {
                self.persist(key, hash, now);
            }
        }
        self.get(key, hash, now)
    }

    /// The value of a record that was just taken out: its bytes stay until its
    /// slot is taken again, which no command can do while the reply borrows us.
    fn last_bytes_of(&self, found: Found) -> Reply<'_> {
        let value = record_value(&self.owner, found.slot.slot);
        Reply { value: Some(value), ..Reply::status(Status::Ok) }
    }
}
