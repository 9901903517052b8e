//! Changes of sorted sets.

use super::{SortedSetKey, by_member, by_score};
use crate::error::Error;
use remora_client_core::SortedMember;
use remora_protocol::Condition;
use remora_protocol::sorted::{Comparison, SortedRange, When};
use std::ops::RangeBounds;

/// Which members [`SortedSetKey::add_if`] and [`SortedSetKey::increment_if`] give a score.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum AddWhen {
    /// All.
    #[default]
    Always,
    /// New ones only (NX).
    IfNew,
    /// Those only that are there (XX).
    IfPresent,
    /// New ones, and those whose score becomes greater (GT).
    IfGreater,
    /// New ones, and those whose score becomes less (LT).
    IfLess,
    /// Those only that are there and whose score becomes greater (XX GT).
    IfPresentAndGreater,
    /// Those only that are there and whose score becomes less (XX LT).
    IfPresentAndLess,
}

impl AddWhen {
    fn to_protocol(self) -> When {
        let (condition, comparison) = match self {
            Self::Always => (Condition::Always, Comparison::Any),
            Self::IfNew => (Condition::IfAbsent, Comparison::Any),
            Self::IfPresent => (Condition::IfPresent, Comparison::Any),
            Self::IfGreater => (Condition::Always, Comparison::Greater),
            Self::IfLess => (Condition::Always, Comparison::Less),
            Self::IfPresentAndGreater => (Condition::IfPresent, Comparison::Greater),
            Self::IfPresentAndLess => (Condition::IfPresent, Comparison::Less),
        };
        When { condition, comparison }
    }
}

impl SortedSetKey<'_> {
    /// Gives members scores; more than 16 of a large set as several changes. Gives how many of the members are new.
    ///
    /// # Errors
    /// See [`Error`]. Without any member it is refused as malformed, a score of NaN as
    /// [`Refusal::NotANumber`](crate::Refusal::NotANumber).
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// let new = session.sorted_set(b"scores")?.add(&[(b"ann", 12.5), (b"bob", 7.0)])?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn add(&mut self, members: &[(&[u8], f64)]) -> Result<u64, Error> {
        self.add_if(AddWhen::Always, false, members)
    }

    /// The same, of those members only that meet a condition. With `counts_changed` (CH) it gives
    /// how many are new or have another score.
    ///
    /// # Errors
    /// As [`SortedSetKey::add`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// use remora_client::AddWhen;
    ///
    /// let mut scores = session.sorted_set(b"scores")?;
    /// let better = scores.add_if(AddWhen::IfGreater, true, &[(b"ann", 13.0)])?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn add_if(
        &mut self,
        when: AddWhen,
        counts_changed: bool,
        members: &[(&[u8], f64)],
    ) -> Result<u64, Error> {
        let members: Vec<_> = members.iter().map(|(member, score)| (*score, *member)).collect();
        let how = (when.to_protocol(), counts_changed);
        Ok(self.core.sorted_add(self.view, how, &members)?)
    }

    /// Adds to the score of a member, 0 if it is not there. Gives the new score.
    ///
    /// # Errors
    /// See [`Error`]. It is refused as [`Refusal::NotANumber`](crate::Refusal::NotANumber) if the
    /// sum would be NaN.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// let score = session.sorted_set(b"scores")?.increment(b"ann", 1.5)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn increment(&mut self, member: &[u8], by: f64) -> Result<f64, Error> {
        let score = self.increment_if(AddWhen::Always, member, by)?;
        Ok(score.expect("nothing forbids it"))
    }

    /// The same under a condition; `None` if that forbids it.
    ///
    /// # Errors
    /// As [`SortedSetKey::increment`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// use remora_client::AddWhen;
    ///
    /// let mut scores = session.sorted_set(b"scores")?;
    /// let score = scores.increment_if(AddWhen::IfPresent, b"ann", 1.5)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn increment_if(
        &mut self,
        when: AddWhen,
        member: &[u8],
        by: f64,
    ) -> Result<Option<f64>, Error> {
        Ok(self.core.sorted_increment(self.view, when.to_protocol(), (by, member))?)
    }

    /// Removes members. Gives how many of them were there. The key is gone with its last member.
    ///
    /// # Errors
    /// See [`Error`]. Without any member it is refused as malformed.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// session.sorted_set(b"scores")?.remove(&[b"bob"])?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn remove(&mut self, members: &[&[u8]]) -> Result<u64, Error> {
        Ok(self.core.sorted_remove(self.view, members)?)
    }

    /// Removes so many members with the lowest scores, and gives them, the lowest first. Thousands
    /// of them go in pieces, each of them a change.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// for next in session.sorted_set(b"jobs by time")?.pop_min(10)? {
    ///     println!("{} at {}", next.member.escape_ascii(), next.score);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn pop_min(&mut self, count: u64) -> Result<Vec<SortedMember>, Error> {
        Ok(self.core.sorted_pop(self.view, (count, false))?)
    }

    /// The same of those with the greatest scores, the greatest first.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// let best = session.sorted_set(b"scores")?.pop_max(1)?.pop();
    /// # Ok(())
    /// # }
    /// ```
    pub fn pop_max(&mut self, count: u64) -> Result<Vec<SortedMember>, Error> {
        Ok(self.core.sorted_pop(self.view, (count, true))?)
    }

    /// Removes the members from one index to another, 0 that of the first member and -1 that of the
    /// last. Gives how many they were. Many go in pieces, each of them a change.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// // All but the best hundred.
    /// session.sorted_set(b"scores")?.remove_range(0, -101)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn remove_range(&mut self, start: i64, stop: i64) -> Result<u64, Error> {
        Ok(self.core.sorted_remove_range(self.view, SortedRange::Index { start, stop })?)
    }

    /// The same of the members with these scores.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// session.sorted_set(b"jobs by time")?.remove_range_by_score(..1.7e9)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn remove_range_by_score(&mut self, scores: impl RangeBounds<f64>) -> Result<u64, Error> {
        Ok(self.core.sorted_remove_range(self.view, by_score(&scores))?)
    }

    /// The same of these members, if all have one score.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// let (a, b) = (&b"a"[..], &b"b"[..]);
    /// session.sorted_set(b"names")?.remove_range_by_member(a..b)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn remove_range_by_member<'k>(
        &mut self,
        members: impl RangeBounds<&'k [u8]>,
    ) -> Result<u64, Error> {
        Ok(self.core.sorted_remove_range(self.view, by_member(&members))?)
    }
}
