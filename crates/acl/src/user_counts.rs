//! How many are logged in as a user, and what their buffers hold.

use crate::bounded_count::BoundedCount;
use std::sync::Arc;

/// The counts of a user: all versions of the user share them.
#[derive(Clone, Default, Debug)]
pub(crate) struct UserCounts {
    pub(crate) logins: Arc<BoundedCount>,
    pub(crate) memory: Arc<BoundedCount>,
}

/// One login among those that are counted; it counts until its last copy ends.
#[derive(Clone, Debug)]
pub(crate) struct LoginPermit(#[expect(dead_code, reason = "its end counts")] Arc<Taken>);

#[derive(Debug)]
struct Taken(Arc<BoundedCount>);

impl Drop for Taken {
    fn drop(&mut self) {
        self.0.shrink(1);
    }
}

impl UserCounts {
    /// Takes one login, if there are fewer than `most`.
    pub(crate) fn take_login(&self, most: usize) -> Option<LoginPermit> {
        let taken = self.logins.grow(1, most);
        taken.then(|| LoginPermit(Arc::new(Taken(Arc::clone(&self.logins)))))
    }
}
