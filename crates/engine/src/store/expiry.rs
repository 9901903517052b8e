//! When a key expires, and whether an EXPIRE takes effect.

use super::clock::Now;
use remora_layout::record::Mutable;
use remora_protocol::ExpireCondition;

/// Whether a record has expired: from its expiry on, as Redis does it.
pub(crate) fn has_expired(mutable: Mutable, now: Now) -> bool {
    mutable.has_expired(now.unix_ms)
}

/// Word 1 with another expiry.
pub(crate) fn with_expiry(mutable: Mutable, at_ms: u64) -> Mutable {
    Mutable { expires_at_ms: at_ms, ..mutable }
}

/// Whether an EXPIRE takes effect on a key that expires at `present`; 0 stands for never, and
/// counts as infinitely late (Redis 7.0).
pub(crate) fn is_allowed(condition: ExpireCondition, present: u64, at_ms: u64) -> bool {
    let effective = if present == 0 { u64::MAX } else { present };
    match condition {
        ExpireCondition::Always => true,
        ExpireCondition::IfNone => present == 0,
        ExpireCondition::IfSome => present != 0,
        ExpireCondition::IfLater => at_ms > effective,
        ExpireCondition::IfEarlier => at_ms < effective,
        ExpireCondition::IfSomeEarlier => at_ms < present,
    }
}
