//! Sorted sets of `remora bench elements`: what is done with one, asked for over rings or read from memory.

use anyhow::{bail, ensure};
use clap::ValueEnum;
use remora_client_core::{OpenSorted, Path, Session};
use remora_command_line::show_by_name;
use remora_protocol::sorted::{
    Aggregate, Combination, Scored, SortedCommand, SortedRange, SortedRead, Sources, When,
};
use std::ops::Bound;

/// Bytes of an element.
pub const ELEMENT_BYTES: usize = 20;
/// Elements of one command while loading.
pub const BATCH: usize = 100;

/// The element of this number.
pub fn element(number: usize) -> [u8; ELEMENT_BYTES] {
    let mut text = *b"element:000000000000";
    let (mut number, mut at) = (number, ELEMENT_BYTES);
    while number > 0 {
        at -= 1;
        text[at] = b'0' + (number % 10) as u8;
        number /= 10;
    }
    text
}

/// What is done with a sorted set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub enum Call {
    /// ZADD of a member that is there, with another score.
    Add,
    /// ZSCORE.
    #[default]
    Score,
    /// ZRANK.
    Rank,
    /// ZRANGEBYSCORE of some members from a score on.
    Range,
    /// ZPOPMIN.
    Pop,
    /// ZUNION of the set and one that has half of its members.
    Union,
}
show_by_name!(Call);

impl Call {
    /// Whether READs can do it.
    pub fn is_read(self) -> bool {
        matches!(self, Self::Score | Self::Range)
    }
}

/// The set that a union is made with.
const OTHER: &[u8] = b"bench:other";

/// A sorted set, as one session uses it.
pub struct Scores {
    pub view: OpenSorted,
    /// Members, whose scores are the numbers below in any order.
    pub records: usize,
    /// Members of a range.
    pub range: usize,
    pub call: Call,
    pub path: Path,
    /// Calls so far: each addition gives another score.
    pub calls: usize,
}

/// A number below this one, without a pattern.
pub fn scattered(number: usize, below: usize) -> usize {
    (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) % below
}

/// Gives members their numbers as scores, in one request.
fn add(
    session: &mut Session,
    view: &OpenSorted,
    numbers: std::ops::Range<usize>,
) -> anyhow::Result<()> {
    let names: Vec<_> = numbers.clone().map(element).collect();
    let members: Vec<(f64, &[u8])> =
        numbers.zip(&names).map(|(number, name)| (number as f64, &name[..])).collect();
    session.sorted_add(view, (When::default(), false), &members)?;
    Ok(())
}

impl Scores {
    /// Adds members with these numbers.
    pub fn add(
        &self,
        session: &mut Session,
        numbers: std::ops::Range<usize>,
    ) -> anyhow::Result<()> {
        add(session, &self.view, numbers)
    }

    /// Adds half of the members to the set that unions are made with, and as many others.
    pub fn add_other(&self, session: &mut Session) -> anyhow::Result<()> {
        let other = session.open_sorted(OTHER)?;
        let from = self.records / 2;
        for first in (from..from + self.records).step_by(BATCH) {
            add(session, &other, first..(first + BATCH).min(from + self.records))?;
        }
        Ok(())
    }

    /// One call, whose result is checked.
    pub fn once(&mut self, session: &mut Session, number: usize) -> anyhow::Result<()> {
        self.calls += 1;
        let at = scattered(number, self.records);
        let (member, view) = (element(at), &mut self.view);
        match self.call {
            Call::Add => {
                let score = scattered(self.calls, 2 * self.records) as f64;
                let new =
                    session.sorted_add(view, (When::default(), false), &[(score, &member[..])])?;
                ensure!(new == 0, "a member is missing");
            }
            Call::Score => {
                let found = session.sorted_score(view, &member, self.path)?.score;
                ensure!(found == Some(at as f64), "a score is wrong");
            }
            Call::Rank => {
                let found = session.sorted_rank(view, (&member[..], false))?;
                ensure!(found == Some((at as u64, at as f64)), "a rank is wrong");
            }
            Call::Range => {
                let from = Bound::Included(at as f64);
                let range = SortedRange::Score { from, to: Bound::Unbounded };
                let read = SortedRead { limit: self.range as u64, ..SortedRead::of(range) };
                let found = session.sorted_range(view, read, self.path)?.members.len();
                ensure!(found == self.range.min(self.records - at), "a range is too short");
            }
            Call::Pop => {
                let popped = session.sorted_pop(view, (1, false))?;
                ensure!(popped.len() == 1, "no member is left");
            }
            Call::Union => self.unite(session)?,
        }
        Ok(())
    }

    fn unite(&self, session: &mut Session) -> anyhow::Result<()> {
        let (mut sources, mut list) = (Vec::new(), Vec::new());
        Sources::write(&mut sources, None, 1.0, [(OTHER, 1.0)].into_iter());
        let Ok(sources) = Sources::parse(false, &sources) else { bail!("wrong sources") };
        let (how, aggregate) = (Combination::Union, Aggregate::Sum);
        let union = SortedCommand::Combine { how, aggregate, sources, count_to: None };
        let part = &mut |part: &[u8]| list.extend_from_slice(part);
        session.ask_long(self.view.key(), union.request(), part)?;
        ensure!(Scored::in_list(&list).count() >= self.records, "members are missing");
        Ok(())
    }
}
