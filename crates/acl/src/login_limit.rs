//! How many are logged in as a user.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The count of a user's logins: all versions of the user share it.
#[derive(Clone, Default, Debug)]
pub(crate) struct LoginCount(Arc<AtomicUsize>);

/// One login among those that are counted; it counts until its last copy ends.
#[derive(Clone, Debug)]
pub(crate) struct LoginPermit(#[expect(dead_code, reason = "its end counts")] Arc<Taken>);

#[derive(Debug)]
struct Taken(LoginCount);

impl Drop for Taken {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl LoginCount {
    /// Takes one, if there are fewer than `most`.
    pub(crate) fn take(&self, most: usize) -> Option<LoginPermit> {
        let one_more = |taken| (taken < most).then_some(taken + 1);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok()?;
        Some(LoginPermit(Arc::new(Taken(self.clone()))))
    }
}
