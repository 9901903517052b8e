//! Waits for events. No test waits for a time in which something should have
//! happened: a busy machine misses any such time.

use std::time::{Duration, Instant};

/// How long a test waits for an event before it fails. The machine may do other
/// work with all of its cores meanwhile, so this is long; a wait ends with its
/// event.
pub const DEADLINE: Duration = Duration::from_secs(120);

/// Waits until something holds.
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    wait_for(what, || holds().then_some(()));
}

/// Waits until there is something, and returns it.
pub fn wait_for<T>(what: &str, mut find: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + DEADLINE;
    loop {
        if let Some(found) = find() {
            return found;
        }
        assert!(Instant::now() < until, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
