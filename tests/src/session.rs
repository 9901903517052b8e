//! Clients whose results do not depend on how busy the machine is.

use crate::wait::{DEADLINE, wait_for};
use remora_client_core::{Options, Policy, Session};
use std::time::Duration;

/// The default options, with time-outs that a busy machine does not miss.
pub fn options() -> Options {
    Options { timeout: DEADLINE, connect_timeout: DEADLINE, ..Options::default() }
}

/// The same, for a client whose choices go by no times: a known pointer is read,
/// all else is asked.
pub fn by_pointers() -> Options {
    Options { policy: Policy::Pointer, ..options() }
}

/// The same, for a client whose pointers' leases outlast the test.
pub fn long_leases() -> Options {
    Options { lease: Some(Duration::from_secs(3600)), ..by_pointers() }
}

/// Takes a step again as long as the session's read lease lapses in it.
///
/// The read lease lasts `READ_LEASE_MS`. Where client or server is held up for longer, an
/// operation is asked that else is read. A step whose counts are to be exact is
/// taken again then; it must be one that can be.
pub fn while_read_lease_lapses<T>(
    session: &mut Session,
    mut step: impl FnMut(&mut Session) -> T,
) -> T {
    wait_for("the read lease holds during a step", || {
        let before = session.totals().read_lease_lapsed;
        let done = step(session);
        (session.totals().read_lease_lapsed == before).then_some(done)
    })
}
