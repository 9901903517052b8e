//! GET, EXISTS, TTL, and the leases that a GET gives out.

use super::{Found, Now, Shard, lease};
use crate::command::Reply;
use remora_arena::{Journal, set_mutable};
use remora_index::hash::{record_key, record_value};
use remora_layout::hash::KeyHash;
use remora_layout::limits::LEASE_MAX_S;
use remora_layout::message::Status;
use remora_layout::pointer::RemotePointer;
use remora_layout::record::{Mutable, RECORD_HEADER_BYTES};

impl<J: Journal> Shard<J> {
    /// The value with a remote pointer and a lease on it (H19).
    #[inline]
    pub(super) fn get(&mut self, key: &[u8], hash: KeyHash, now: Now) -> Reply<'_> {
        let Some(found) = self.lookup(key, hash, now) else {
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
        }
    }

    /// The remote pointer to the record in `slot`.
    pub(super) fn pointer(&self, slot: u32) -> RemotePointer {
        let word = self.owner.word(slot as usize * 2);
        let length = RECORD_HEADER_BYTES
            + record_key(&self.owner, slot).len()
            + record_value(&self.owner, slot).len();
        RemotePointer {
            region: self.options.region,
            slot,
            length: length as u32,
            generation: word as u32,
        }
    }

    /// Extends a record's lease by 1 to 64 s, by popularity (H24): a GET that
    /// reaches the server while a lease still runs comes from another client,
    /// or from one that renews (H25); each doubles the term, and each that
    /// comes later halves it again. Gives the term from now, in ms.
    fn extend_lease(&mut self, found: Found, now: Now) -> u32 {
        let running = self.lease_end_s(found.mutable, now);
        let most = LEASE_MAX_S.ilog2() as u8;
        let popularity = match running {
            Some(_) => (found.mutable.popularity + 1).min(most),
            None => found.mutable.popularity.saturating_sub(1),
        };
        let term_s = (1u64 << popularity).max(self.options.lease_min_s);
        let end_s = lease::end_s(now.since_start_s, term_s).max(running.unwrap_or(0));
        let mutable = Mutable { lease_end_s: end_s as u16, popularity, ..found.mutable };
        if mutable != found.mutable {
            set_mutable(&mut self.owner, found.slot.slot, mutable);
        }
        (term_s * 1000) as u32
    }

    pub(super) fn exists(&mut self, key: &[u8], hash: KeyHash, now: Now) -> Reply<'_> {
        Reply::number(self.lookup(key, hash, now).is_some() as i64)
    }

    pub(super) fn ttl(&mut self, key: &[u8], hash: KeyHash, now: Now) -> Reply<'_> {
        Reply::number(match self.lookup(key, hash, now) {
            None => -2,
            Some(found) if found.mutable.expires_at_ms == 0 => -1,
            Some(found) => (found.mutable.expires_at_ms - now.unix_ms) as i64,
        })
    }
}
