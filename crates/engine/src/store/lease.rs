//! How long the server holds to a lease (HydraDB 4.2.3, H24, H27).
//!
//! The client counts a lease from before it sent its request, the server from
//! after it has answered. Either clock may drift by `CLOCK_DRIFT_PERCENT`: so
//! that the client always stops first, the server holds on for longer than it
//! promised.

use super::clock::Now;
use remora_layout::limits::{CLOCK_DRIFT_PERCENT, LEASE_CONFIG_MAX_S, LEASE_MAX_S};
use remora_layout::record::Mutable;

/// Seconds for which the server holds to a lease of `term_s`, by a clock that
/// is read in whole seconds, rounded down.
const fn hold_s(term_s: u64) -> u64 {
    (term_s * (100 + CLOCK_DRIFT_PERCENT)).div_ceil(100 - CLOCK_DRIFT_PERCENT) + 1
}

/// The second at which a lease given out at `now_s` ends. Word 1 of a record
/// keeps it modulo 2^16, where 0 may mean that there is none: then it ends a
/// second later.
const fn end_s(now_s: u64, term_s: u64) -> u64 {
    let end_s = now_s + hold_s(term_s);
    end_s + (end_s as u16 == 0) as u64
}

/// End of the lease in a record's word 1, if it still runs; the shortest term is `min_s`. The word
/// keeps 16 bits; leases are short, so that this is unambiguous except for a stale end 18 hours
/// ago, which only lengthens a quarantine.
#[inline]
pub(super) fn running_end_s(mutable: Mutable, min_s: u64, now: Now) -> Option<u64> {
    if mutable.lease_end_s == 0 && mutable.popularity == 0 {
        return None;
    }
    let longest = hold_s(min_s.max(LEASE_MAX_S)) + 1;
    let remaining = mutable.lease_end_s.wrapping_sub(now.since_start_s as u16) as i16;
    (remaining > 0 && remaining as u64 <= longest).then(|| now.since_start_s + remaining as u64)
}

/// Extends a record's lease by 1 to 64 s, by popularity (H24): a GET that
/// reaches the server while a lease still runs comes from another client,
/// or from one that renews (H25); each doubles the term, and each that
/// comes later halves it again. Gives the word 1 to be stored, and the term in seconds.
#[inline]
pub(super) fn extended(mutable: Mutable, min_s: u64, now: Now) -> (Mutable, u64) {
    let running = running_end_s(mutable, min_s, now);
    let most = LEASE_MAX_S.ilog2() as u8;
    let popularity = match running {
        Some(_) => (mutable.popularity + 1).min(most),
        None => mutable.popularity.saturating_sub(1),
    };
    let term_s = (1u64 << popularity).max(min_s);
    let end_s = end_s(now.since_start_s, term_s).max(running.unwrap_or(0));
    (Mutable { lease_end_s: end_s as u16, popularity, ..mutable }, term_s)
}

// Ends are compared modulo 2^16 s, half of which is the future.
const _: () = assert!(hold_s(LEASE_CONFIG_MAX_S) + 1 < 1 << 15);
