//! Remote pointers, and the leases that a GET gives out.

use super::{Found, Now, Store, lease};
use remora_arena::{Journal, lengths_of, set_mutable, slot_of};
use remora_layout::limits::LEASE_MAX_S;
use remora_layout::pointer::RemotePointer;
use remora_layout::record::Mutable;

impl<J: Journal> Store<J> {
    /// The remote pointer to the record in `slot`.
    pub(crate) fn pointer(&self, slot: u32) -> RemotePointer {
        RemotePointer {
            region: self.options.region,
            slot,
            length: lengths_of(&self.owner, slot).record_bytes() as u32,
            generation: slot_of(&self.owner, slot).generation,
        }
    }

    /// Extends a record's lease by 1 to 64 s, by popularity (H24): a GET that
    /// reaches the server while a lease still runs comes from another client,
    /// or from one that renews (H25); each doubles the term, and each that
    /// comes later halves it again. Gives the term from now, in ms.
    pub(crate) fn extend_lease(&mut self, found: Found, now: Now) -> u32 {
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
}
