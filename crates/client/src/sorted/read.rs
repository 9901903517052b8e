//! What a sorted set says of single members, and of how many there are.

use super::{SortedSetKey, by_member, by_score};
use crate::error::Error;
use remora_client_core::{SortedMember, SortedScore};
use std::ops::RangeBounds;

impl SortedSetKey<'_> {
    /// The score of a member.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// let ann = session.sorted_set(b"scores")?.score(b"ann")?;
    /// println!("{:?}, {:?}", ann.score, ann.served_by);
    /// # Ok(())
    /// # }
    /// ```
    pub fn score(&mut self, member: &[u8]) -> Result<SortedScore, Error> {
        Ok(self.core.sorted_score(self.view, member, self.path)?)
    }

    /// The scores of members, all of one moment.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// let both = session.sorted_set(b"scores")?.scores(&[b"ann", b"bob"])?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn scores(&mut self, members: &[&[u8]]) -> Result<Vec<Option<f64>>, Error> {
        Ok(self.core.sorted_scores(self.view, members)?)
    }

    /// How many members stand before this one, and its score; `None` if it is not there.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// let rank = session.sorted_set(b"scores")?.rank(b"ann")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn rank(&mut self, member: &[u8]) -> Result<Option<(u64, f64)>, Error> {
        Ok(self.core.sorted_rank(self.view, (member, false))?)
    }

    /// How many members stand behind this one, and its score; `None` if it is not there.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// if let Some((before, score)) = session.sorted_set(b"scores")?.reverse_rank(b"ann")? {
    ///     println!("place {} with {score}", before + 1);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn reverse_rank(&mut self, member: &[u8]) -> Result<Option<(u64, f64)>, Error> {
        Ok(self.core.sorted_rank(self.view, (member, true))?)
    }

    /// Number of members; 0 without the key.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// let all = session.sorted_set(b"scores")?.member_count()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn member_count(&mut self) -> Result<u64, Error> {
        Ok(self.core.sorted_len(self.view)?)
    }

    /// How many members have these scores.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// let good = session.sorted_set(b"scores")?.count_by_score(10.0..)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn count_by_score(&mut self, scores: impl RangeBounds<f64>) -> Result<u64, Error> {
        Ok(self.core.sorted_count(self.view, by_score(&scores))?)
    }

    /// How many members there are from one to another, if all have one score.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// let (a, b) = (&b"a"[..], &b"b"[..]);
    /// let with_a = session.sorted_set(b"names")?.count_by_member(a..b)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn count_by_member<'k>(
        &mut self,
        members: impl RangeBounds<&'k [u8]>,
    ) -> Result<u64, Error> {
        Ok(self.core.sorted_count(self.view, by_member(&members))?)
    }

    /// Random members: so many different ones at most. Below 0 so many, and one may come again.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// let three = session.sorted_set(b"scores")?.random(3)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn random(&mut self, count: i64) -> Result<Vec<SortedMember>, Error> {
        Ok(self.core.sorted_random(self.view, count)?)
    }

    /// Some members from a cursor on, 0 at first, those that match a pattern as Redis has them, of
    /// about `count` that are looked at. Gives also the cursor with which to continue, 0 at the
    /// end. A member that is there all the time comes at least once.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// let mut scores = session.sorted_set(b"scores")?;
    /// let mut cursor = 0;
    /// loop {
    ///     let (next, members) = scores.scan(cursor, Some(b"a*"), 100)?;
    ///     println!("{} of them", members.len());
    ///     if next == 0 {
    ///         break;
    ///     }
    ///     cursor = next;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn scan(
        &mut self,
        cursor: u64,
        pattern: Option<&[u8]>,
        count: u64,
    ) -> Result<(u64, Vec<SortedMember>), Error> {
        Ok(self.core.sorted_scan(self.view, (cursor, pattern, count))?)
    }
}
