//! How long the server holds to a lease (HydraDB 4.2.3, H24, H27).
//!
//! The client counts a lease from before it sent its request, the server from
//! after it has answered. Either clock may drift by `CLOCK_DRIFT_PERCENT`: so
//! that the client always stops first, the server holds on for longer than it
//! promised.

use remora_layout::limits::{CLOCK_DRIFT_PERCENT, LEASE_CONFIG_MAX_S};

/// Seconds for which the server holds to a lease of `term_s`, by a clock that
/// is read in whole seconds, rounded down.
pub(super) const fn hold_s(term_s: u64) -> u64 {
    (term_s * (100 + CLOCK_DRIFT_PERCENT)).div_ceil(100 - CLOCK_DRIFT_PERCENT) + 1
}

/// The second at which a lease given out at `now_s` ends. Word 1 of a record
/// keeps it modulo 2^16, where 0 may mean that there is none: then it ends a
/// second later.
pub(super) const fn end_s(now_s: u64, term_s: u64) -> u64 {
    let end_s = now_s + hold_s(term_s);
    end_s + (end_s as u16 == 0) as u64
}

// Ends are compared modulo 2^16 s, half of which is the future.
const _: () = assert!(hold_s(LEASE_CONFIG_MAX_S) + 1 < 1 << 15);
