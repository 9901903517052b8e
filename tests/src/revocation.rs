//! How long a session reads on whose user's rights were taken away.

use crate::{Resp, Value, wait_until};
use remora_client_core::{Path, Session, SetOptions};
use remora_layout::limits::READ_LEASE_MS;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Makes the user `u`, with the password `pass`, and takes a right away from it, again and again, while a
/// session of it reads: as often as REMORA_REVOCATIONS says, else a few times. From each reply to ACL
/// SETUSER to the last read that succeeded, in order of length; prints them in short.
pub fn reads_after_revocations(
    admin: &mut Resp,
    name: &str,
    connect: impl Fn() -> Session,
) -> Vec<Duration> {
    let times = std::env::var("REMORA_REVOCATIONS").ok().and_then(|many| many.parse().ok());
    let mut lasted = Vec::new();
    // It may not do all any more, or not even read everything.
    let rights = ["ACL SETUSER u -@dangerous", "ACL SETUSER u resetkeys ~k"];
    for right in rights.into_iter().cycle().take(times.unwrap_or(6)) {
        assert_eq!(admin.call("ACL SETUSER u reset on >pass ~* &* +@all"), Value::ok());
        let mut session = connect();
        session.set(b"k", b"v", SetOptions::default()).unwrap();
        let is_reading = AtomicBool::new(false);
        let (revoked, last) = std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut last = Instant::now();
                while session.get(b"k", Path::Read).is_ok() {
                    last = Instant::now();
                    is_reading.store(true, Ordering::Relaxed);
                }
                last
            });
            wait_until("it reads", || is_reading.load(Ordering::Relaxed));
            assert_eq!(admin.call(right), Value::ok());
            let revoked = Instant::now();
            (revoked, reader.join().unwrap())
        });
        lasted.push(last.saturating_duration_since(revoked));
    }
    lasted.sort();
    // The lease, and what may pass on a busy machine between the last read and the look at the clock.
    let longest = Duration::from_millis(10 * READ_LEASE_MS);
    assert!(lasted.iter().all(|&long| long < longest), "{lasted:?}");
    let (many, median, most) = (lasted.len(), lasted[lasted.len() / 2], lasted[lasted.len() - 1]);
    println!("{name}: {many} revocations, reads went on for {median:?}, {most:?} at most");
    lasted
}
