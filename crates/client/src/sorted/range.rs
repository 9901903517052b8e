//! Ranges of sorted sets.

use super::{SortedSetKey, by_member, by_score};
use crate::error::Error;
use remora_client_core::SortedFound;
use remora_protocol::sorted::{SortedRange, SortedRead};
use std::ops::RangeBounds;

/// Which of the members of a range are fetched, and in which direction.
///
/// ```
/// use remora_client::Page;
///
/// let second = Page::last(10).skip(10);
/// assert_eq!((second.is_reverse, second.offset, second.limit), (true, 10, 10));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Page {
    /// From the greatest member down.
    pub is_reverse: bool,
    /// Members that are left out first.
    pub offset: u64,
    /// Members behind them, at most.
    pub limit: u64,
}

impl Page {
    /// All members, in order.
    pub const ALL: Self = Self { is_reverse: false, offset: 0, limit: u64::MAX };

    /// So many members, from the first one.
    ///
    /// ```
    /// # use remora_client::Page;
    /// assert_eq!(Page::first(u64::MAX), Page::ALL);
    /// ```
    pub const fn first(limit: u64) -> Self {
        Self { limit, ..Self::ALL }
    }

    /// So many members, from the last one down.
    ///
    /// ```
    /// # use remora_client::Page;
    /// assert!(Page::last(10).is_reverse);
    /// ```
    pub const fn last(limit: u64) -> Self {
        Self { is_reverse: true, ..Self::first(limit) }
    }

    /// The same behind so many members.
    ///
    /// ```
    /// # use remora_client::Page;
    /// assert_eq!(Page::first(10).skip(20).offset, 20);
    /// ```
    #[must_use]
    pub const fn skip(self, offset: u64) -> Self {
        Self { offset, ..self }
    }
}

impl SortedSetKey<'_> {
    fn fetch(&mut self, range: SortedRange<'_>, page: Page) -> Result<SortedFound, Error> {
        self.cache.count_walk();
        let Page { is_reverse, offset, limit } = page;
        let read = SortedRead { range, is_reverse, offset, limit };
        Ok(self.core.sorted_range(self.view, read, self.path)?)
    }

    /// The members from one index to another, 0 that of the first member and -1 that of the last.
    /// Always asked.
    ///
    /// # Errors
    /// See [`Error`]. All of them together have 64 MiB at most.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// let lowest = session.sorted_set(b"scores")?.range(0, 9)?.members;
    /// # Ok(())
    /// # }
    /// ```
    pub fn range(&mut self, start: i64, stop: i64) -> Result<SortedFound, Error> {
        self.fetch(SortedRange::Index { start, stop }, Page::ALL)
    }

    /// The same from the greatest member down: 0 is the index of the last member.
    ///
    /// # Errors
    /// As [`SortedSetKey::range`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// let best = session.sorted_set(b"scores")?.reverse_range(0, 9)?.members;
    /// # Ok(())
    /// # }
    /// ```
    pub fn reverse_range(&mut self, start: i64, stop: i64) -> Result<SortedFound, Error> {
        self.fetch(SortedRange::Index { start, stop }, Page::last(u64::MAX))
    }

    /// The members with these scores. By READs each leaf of a large set is of one moment, and
    /// different ones may be of different moments; no member comes twice.
    ///
    /// # Errors
    /// As [`SortedSetKey::range`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// use remora_client::Page;
    ///
    /// let mut scores = session.sorted_set(b"scores")?;
    /// for good in scores.range_by_score(10.0.., Page::last(10))?.members {
    ///     println!("{}: {}", good.member.escape_ascii(), good.score);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn range_by_score(
        &mut self,
        scores: impl RangeBounds<f64>,
        page: Page,
    ) -> Result<SortedFound, Error> {
        self.fetch(by_score(&scores), page)
    }

    /// These members, if all have one score; otherwise it is not defined which ones come. By READs
    /// as [`SortedSetKey::range_by_score`]; of a large set two more READs come before, which find
    /// the score.
    ///
    /// # Errors
    /// As [`SortedSetKey::range`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// use remora_client::Page;
    ///
    /// let (a, b) = (&b"a"[..], &b"b"[..]);
    /// let with_a = session.sorted_set(b"names")?.range_by_member(a..b, Page::first(20))?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn range_by_member<'k>(
        &mut self,
        members: impl RangeBounds<&'k [u8]>,
        page: Page,
    ) -> Result<SortedFound, Error> {
        self.fetch(by_member(&members), page)
    }
}
