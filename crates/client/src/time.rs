//! Times in the protocol's unit: Unix ms.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// This machine's time plus this duration.
pub(crate) fn after(time: Duration) -> SystemTime {
    let now = SystemTime::now();
    // A time that no clock can represent means "never".
    now.checked_add(time).unwrap_or_else(|| from_unix_ms(MAX_MS))
}

/// Later than any expiry.
const MAX_MS: u64 = 1 << 52;

/// Unix ms; 0 for times before 1970.
pub(crate) fn to_unix_ms(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// The moment of so many Unix ms.
pub(crate) fn from_unix_ms(ms: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(ms)
}
