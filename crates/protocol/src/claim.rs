//! The one answer of a request that waits at several places.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A word that all places share at which one request waits. Whoever answers the request takes the
/// claim first, and changes something for it only then: a shard that has what it waits for, or the
/// thread of its client, when the wait ends without that. So a request is answered once.
#[derive(Clone, Default, Debug)]
pub struct Claim(Arc<AtomicBool>);

impl Claim {
    /// Takes the claim. True if it was free: then the caller answers.
    #[must_use]
    pub fn take(&self) -> bool {
        !self.0.swap(true, Ordering::AcqRel)
    }

    /// Whether anybody else still has the claim.
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// Whether the request is being answered, or was.
    pub fn is_taken(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_all_who_share_it_takes_it() {
        let claim = Claim::default();
        let other = claim.clone();
        assert!(!other.is_taken() && claim.take());
        assert!(other.is_taken() && !other.take() && !claim.take());
    }
}
