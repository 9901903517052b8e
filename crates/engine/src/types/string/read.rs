//! GET, and what every command on strings asks first.

use crate::store::{Found, Now, Store};
use remora_arena::Journal;
use remora_index::hash::record_value;
use remora_layout::hash::KeyHash;
use remora_layout::kind::Kind;
use remora_protocol::Reply;
use remora_protocol::message::Status;

impl<J: Journal> Store<J> {
    /// The value with a remote pointer and a lease on it (H19).
    #[inline]
    pub(crate) fn get(&mut self, key: &[u8], hash: KeyHash, now: Now) -> Reply<'_> {
        match self.string(key, hash, now) {
            Ok(found) => self.answer_get(found, now),
            Err(reply) => reply,
        }
    }

    /// The reply to a GET that found this.
    #[inline]
    pub(crate) fn answer_get(&mut self, found: Option<Found>, now: Now) -> Reply<'_> {
        let Some(found) = found else {
            self.stats.misses += 1;
            return Reply::status(Status::NotFound);
        };
        self.stats.hits += 1;
        self.note_touched(found);
        if self.ask_only.holds(found.slot.slot) {
            // No pointer: whoever followed it would have to ask.
            let value = Some(record_value(&self.owner, found.slot.slot));
            return Reply { value, ..Reply::status(Status::Ok) };
        }
        let lease_ms = self.extend_lease(found, now);
        Reply {
            status: Status::Ok,
            number: 0,
            value: Some(record_value(&self.owner, found.slot.slot)),
            pointer: self.pointer(found.slot.slot),
            lease_ms,
            wait: 0,
        }
    }

    /// A key's string. An error is the reply for a key of another type.
    #[inline]
    pub(crate) fn string(
        &mut self,
        key: &[u8],
        hash: KeyHash,
        now: Now,
    ) -> Result<Option<Found>, Reply<'static>> {
        let found = self.lookup(key, hash, now);
        match self.holds_other_type(found) {
            false => Ok(found),
            true => Err(Reply::status(Status::WrongType)),
        }
    }

    /// Whether what was found is no string.
    #[inline]
    pub(crate) fn holds_other_type(&self, found: Option<Found>) -> bool {
        found.is_some_and(|found| self.kind(found) != Kind::STRING)
    }
}
