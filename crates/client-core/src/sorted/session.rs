//! What a session does with sorted sets.

use super::asked::{SortedFound, SortedMember, ask_scored, encoded};
use super::range::OpenSorted;
use super::score::SortedScore;
use crate::asker::Answer;
use crate::elements::encoded as encoded_items;
use crate::error::Error;
use crate::path::Path;
use crate::session::Session;
use remora_protocol::Items;
use remora_protocol::message::Status;
use remora_protocol::sorted::{Scored, SortedCommand, SortedRange, SortedRead, When};

/// Bytes of a score in replies.
const SCORE_BYTES: usize = 8;

fn listed(list: &[u8]) -> Items<'_> {
    Items::parse(list).expect("it was just made")
}

impl Session {
    /// A view of the sorted set that a key holds, or will hold. Nothing is asked.
    ///
    /// # Errors
    /// The key is too long.
    pub fn open_sorted(&self, key: &[u8]) -> Result<OpenSorted, Error> {
        OpenSorted::new(&self.core.directory, key)
    }

    /// Gives members scores, more than 16 of a large set as several changes; returns how many of them are new or, with
    /// `counts_changed`, have another score.
    ///
    /// # Errors
    /// See [`Error`]. Without any member it is refused as malformed, a score of NaN as no number.
    pub fn sorted_add(
        &mut self,
        open: &OpenSorted,
        (when, counts_changed): (When, bool),
        members: &[(f64, &[u8])],
    ) -> Result<u64, Error> {
        let list = encoded(members)?;
        let members = Scored::parse(&list).expect("it was just made");
        let command = SortedCommand::Add { when, counts_changed, members };
        Ok(open.ask(&mut self.core, &command)?.number as u64)
    }

    /// Adds to the score of a member, 0 if it is not there; gives the new score. `None`: `when`
    /// forbids it.
    ///
    /// # Errors
    /// See [`Error`]. It is refused as no number if the sum would be NaN.
    pub fn sorted_increment(
        &mut self,
        open: &OpenSorted,
        when: When,
        (by, member): (f64, &[u8]),
    ) -> Result<Option<f64>, Error> {
        if by.is_nan() {
            return Err(Error::Refused(Status::NotANumber));
        }
        let command = SortedCommand::Increment { when, by, member };
        let answer = open.ask(&mut self.core, &command)?;
        self.score_in(&answer)
    }

    /// The score that an answer has, if its status is `Ok`.
    fn score_in(&mut self, answer: &Answer) -> Result<Option<f64>, Error> {
        let Some(range) = answer.value.filter(|_| answer.status == Status::Ok) else {
            return Ok(None);
        };
        match self.core.in_reply(range).try_into() {
            Ok(score) => Ok(Some(f64::from_le_bytes(score))),
            Err(_) => Err(self.core.asker.endpoint.end(Error::Protocol("a score that cannot be"))),
        }
    }

    /// Removes members; gives how many of them were there. The key is gone with its last member.
    ///
    /// # Errors
    /// See [`Error`]. Without any member it is refused as malformed.
    pub fn sorted_remove(&mut self, open: &OpenSorted, members: &[&[u8]]) -> Result<u64, Error> {
        let list = encoded_items(members.iter().copied());
        let command = SortedCommand::Remove { members: listed(&list) };
        Ok(open.ask(&mut self.core, &command)?.number as u64)
    }

    /// Removes the members of a range; gives how many they were. Many go in pieces, each of them a
    /// change.
    pub fn sorted_remove_range(
        &mut self,
        open: &OpenSorted,
        range: SortedRange<'_>,
    ) -> Result<u64, Error> {
        self.core.begin()?;
        let command = SortedCommand::RemoveRange { range };
        let (shard, key) = open.place();
        let answer = self.core.ask_in_parts(shard, key, command.request(), |_| Ok(()))?;
        Ok(answer.number as u64)
    }

    /// Removes so many first or last members, and gives them in that order.
    pub fn sorted_pop(
        &mut self,
        open: &OpenSorted,
        (count, from_greatest): (u64, bool),
    ) -> Result<Vec<SortedMember>, Error> {
        self.sorted_list(open, &SortedCommand::Pop { count, from_greatest })
    }

    /// Number of members; 0 without the key.
    pub fn sorted_len(&mut self, open: &OpenSorted) -> Result<u64, Error> {
        self.core.begin()?;
        Ok(open.ask(&mut self.core, &SortedCommand::Length)?.number as u64)
    }

    /// The score of a member.
    pub fn sorted_score(
        &mut self,
        open: &mut OpenSorted,
        member: &[u8],
        path: Path,
    ) -> Result<SortedScore, Error> {
        let path = self.core.router.path(path);
        open.score(&mut self.core, member, path)
    }

    /// The scores of members, all of one moment.
    pub fn sorted_scores(
        &mut self,
        open: &OpenSorted,
        members: &[&[u8]],
    ) -> Result<Vec<Option<f64>>, Error> {
        self.core.begin()?;
        let list = encoded_items(members.iter().copied());
        let command = SortedCommand::Scores { members: listed(&list) };
        let answer = open.ask(&mut self.core, &command)?;
        let value = answer.value.map_or(&[][..], |range| self.core.in_reply(range));
        let score = |score: &[u8; SCORE_BYTES]| {
            Some(f64::from_le_bytes(*score)).filter(|score| !score.is_nan())
        };
        let mut scores: Vec<_> = value.as_chunks().0.iter().map(score).collect();
        scores.resize(members.len(), None);
        Ok(scores)
    }

    /// How many members stand before this one, or behind it, and its score; `None` if it is not
    /// there.
    pub fn sorted_rank(
        &mut self,
        open: &OpenSorted,
        (member, is_reverse): (&[u8], bool),
    ) -> Result<Option<(u64, f64)>, Error> {
        self.core.begin()?;
        let answer = open.ask(&mut self.core, &SortedCommand::Rank { member, is_reverse })?;
        Ok(self.score_in(&answer)?.map(|score| (answer.number as u64, score)))
    }

    /// How many members a range has.
    pub fn sorted_count(
        &mut self,
        open: &OpenSorted,
        range: SortedRange<'_>,
    ) -> Result<u64, Error> {
        self.core.begin()?;
        Ok(open.ask(&mut self.core, &SortedCommand::Count { range })?.number as u64)
    }

    /// The members of a range: of one by scores or by members read, if `path` allows it. By READs
    /// each leaf of a large set is of one moment, and different leaves may be of different ones; an
    /// answer is as the set was when it began.
    pub fn sorted_range(
        &mut self,
        open: &mut OpenSorted,
        read: SortedRead<'_>,
        path: Path,
    ) -> Result<SortedFound, Error> {
        let path = self.core.router.path(path);
        open.range(&mut self.core, read, path)
    }

    /// Random members: so many different ones at most; below 0 so many with repetitions.
    pub fn sorted_random(
        &mut self,
        open: &OpenSorted,
        count: i64,
    ) -> Result<Vec<SortedMember>, Error> {
        self.core.begin()?;
        self.sorted_list(open, &SortedCommand::Random { count })
    }

    /// Some members from a cursor on, 0 at first, those that match a pattern, of so many that are
    /// looked at; and the cursor with which to continue, 0 at the end.
    pub fn sorted_scan(
        &mut self,
        open: &OpenSorted,
        (cursor, pattern, count): (u64, Option<&[u8]>, u64),
    ) -> Result<(u64, Vec<SortedMember>), Error> {
        self.core.begin()?;
        let mut list = Vec::new();
        match pattern {
            Some(pattern) => Items::push(&mut list, pattern),
            None => Items::push_none(&mut list),
        }
        Items::push(&mut list, &count.to_le_bytes());
        let command = SortedCommand::Scan { cursor, options: listed(&list) };
        let (members, next, _) = ask_scored(&mut self.core, open.place(), command.request())?;
        Ok((next as u64, members))
    }

    fn sorted_list(
        &mut self,
        open: &OpenSorted,
        command: &SortedCommand<'_>,
    ) -> Result<Vec<SortedMember>, Error> {
        Ok(ask_scored(&mut self.core, open.place(), command.request())?.0)
    }
}
