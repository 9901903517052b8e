//! Keys that hold sorted sets: members in the order of their scores.

mod change;
mod range;
mod read;

pub use change::AddWhen;
pub use range::Page;

use crate::error::Error;
use crate::session::Session;
use remora_client_core as core;
use remora_protocol::sorted::SortedRange;
use std::ops::{Bound, RangeBounds};

/// Most sorted sets whose locations a session keeps.
const MOST_VIEWS: usize = 1 << 12;

/// A handle for a key that holds a sorted set: [`Session::sorted_set`]. It asks for changes, ranks,
/// counts and ranges by index, and fetches scores and ranges by score or by member by either route.
///
/// Members are in the order of their scores, those with one score in the order of their bytes. A
/// small set is one record, which one READ fetches. Of a large set, the score of a member that was
/// asked for once is found again by one batch of READs, and a range by READs from the root of its
/// tree to the leaves, with the upper nodes kept. Ranges that have members of more than 247 bytes
/// are asked for. In the tree a score of -0 stands as 0.
///
/// Keys with positions on the globe ([`Session::geo`]) are sorted sets too.
pub struct SortedSetKey<'s> {
    core: &'s mut core::Session,
    view: &'s mut core::OpenSorted,
    cache: &'s mut core::SharedCache,
    path: core::Path,
}

impl Session {
    /// A handle for a key that holds a sorted set, or will hold one. This sends nothing.
    ///
    /// # Errors
    /// The key is too long.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// session.sorted_set(b"scores")?.add(&[(b"ann", 12.5), (b"bob", 7.0)])?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn sorted_set(&mut self, key: &[u8]) -> Result<SortedSetKey<'_>, Error> {
        self.choose_kept_nodes();
        let Self { core, sorted, ordered_cache, path, .. } = self;
        let view = sorted.get(key, MOST_VIEWS, || {
            let mut view = core.open_sorted(key)?;
            ordered_cache.join(view.tree_mut());
            Ok(view)
        })?;
        Ok(SortedSetKey { core, view, cache: ordered_cache, path: *path })
    }
}

/// A range of scores, for a request.
fn by_score(scores: &impl RangeBounds<f64>) -> SortedRange<'static> {
    let bound = |of: Bound<&f64>| of.map(|score| *score);
    SortedRange::Score { from: bound(scores.start_bound()), to: bound(scores.end_bound()) }
}

/// A range of members, for a request.
fn by_member<'k>(members: &impl RangeBounds<&'k [u8]>) -> SortedRange<'k> {
    let bound = |of: Bound<&&'k [u8]>| of.map(|member| *member);
    SortedRange::Lex { from: bound(members.start_bound()), to: bound(members.end_bound()) }
}

impl SortedSetKey<'_> {
    /// Fetches scores and ranges by this path.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// use remora_client::Path;
    ///
    /// let ann = session.sorted_set(b"scores")?.by(Path::Read).score(b"ann")?;
    /// println!("{:?}, {:?}", ann.score, ann.served_by);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn by(self, path: core::Path) -> Self {
        Self { path, ..self }
    }
}
