//! A count that many threads raise up to a bound.

use std::sync::atomic::{AtomicUsize, Ordering};

/// See the module's text.
///
/// ```
/// let bytes = remora_acl::BoundedCount::default();
/// assert!(bytes.grow(70, 100) && !bytes.grow(40, 100) && bytes.get() == 70);
/// bytes.shrink(20);
/// assert!(bytes.grow(40, 100) && bytes.get() == 90);
/// ```
#[derive(Default, Debug)]
pub struct BoundedCount(AtomicUsize);

impl BoundedCount {
    /// Raises it, if that leaves it at `most` or below; whether it did.
    pub fn grow(&self, by: usize, most: usize) -> bool {
        let more = |now: usize| now.checked_add(by).filter(|&sum| sum <= most);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Lowers it by what [`grow`](Self::grow) has raised it.
    pub fn shrink(&self, by: usize) {
        self.0.fetch_sub(by, Ordering::Relaxed);
    }

    /// The count now.
    pub fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}
