//! Searches of trees that are asked for.

use super::{OpenTree, Searched};
use crate::api::{Counts, Via};
use crate::error::Error;
use crate::session::Session;
use remora_engine::command::{Command, TreeCommand};
use remora_index::rtree::{Object, Query};
use remora_layout::limits::MAX_NEAREST;
use remora_layout::message::Status;
use remora_layout::node::{ENTRY_BYTES, Entry};
use remora_layout::rect::RECT_BYTES;

impl Session {
    /// Asks, after reading has cost `wasted`.
    pub(super) fn search_asked(
        &mut self,
        tree: &OpenTree,
        query: &Query,
        wasted: Counts,
    ) -> Result<Searched, Error> {
        let via = if wasted.round_trips == 0 { Via::Asked } else { Via::AskedAfterRead };
        self.totals.add(&wasted);
        let (mut counts, nodes_visited) = self.ask_search(tree, query)?;
        counts.add(&wasted);
        Ok(Searched { via, counts, nodes_visited })
    }

    /// Asks for a search; its objects are in `self.found` then. Sessions share
    /// the server's threads out among themselves: any of them can read a tree,
    /// and who cannot conclude says that its owner is to be asked.
    fn ask_search(&mut self, tree: &OpenTree, query: &Query) -> Result<(Counts, u64), Error> {
        let shard = (tree.shard + self.number as usize) % self.shards.len();
        let mut wasted = Counts::default();
        if let Query::Window { window, predicate } = *query
            && shard != tree.shard
            && self.may_read(tree.shard)
        {
            let (owner, at) = (tree.shard as u8, tree.at);
            let command = TreeCommand::SearchAt { window, predicate, shard: owner, at };
            let before = self.totals;
            match self.ask_search_of(shard, &[], command) {
                Err(Error::Refused(Status::AskOwner)) => {
                    let tried = self.totals.since(&before);
                    wasted = Counts { operations: 0, asked: 0, ..tried };
                    self.totals = before;
                    self.totals.add(&wasted);
                }
                found => return found,
            }
        }
        let command = match *query {
            Query::Window { window, predicate } => TreeCommand::Search { window, predicate },
            Query::Nearest { wanted, .. } if wanted > MAX_NEAREST => {
                return Err(Error::Refused(Status::TooLarge));
            }
            Query::Nearest { x, y, wanted } => TreeCommand::Nearest { x, y, wanted: wanted as u32 },
        };
        let (mut counts, nodes) = self.ask_search_of(tree.shard, &tree.name, command)?;
        counts.add(&wasted);
        Ok((counts, nodes))
    }

    /// Asks a shard for a search.
    pub(super) fn ask_search_of(
        &mut self,
        shard: usize,
        name: &[u8],
        command: TreeCommand<'_>,
    ) -> Result<(Counts, u64), Error> {
        let mut found = std::mem::take(&mut self.found);
        found.clear();
        let mut parts = 0;
        let asked = self.ask_in_parts(shard, name, command, |value| {
            let (objects, rest) = value.as_chunks::<ENTRY_BYTES>();
            found.extend(objects.iter().map(Entry::from_bytes));
            parts += 1;
            rest.is_empty()
        });
        if parts > 1 {
            // The tree may have changed between two of them.
            drop_doubles(&mut found);
        }
        self.found = found;
        asked
    }

    /// Asks a shard for what it answers in parts; hands over their values.
    /// False from `take` ends the session. Gives the last one's number.
    pub(super) fn ask_in_parts(
        &mut self,
        shard: usize,
        name: &[u8],
        command: TreeCommand<'_>,
        mut take: impl FnMut(&[u8]) -> bool,
    ) -> Result<(Counts, u64), Error> {
        let mut scratch = Vec::with_capacity(RECT_BYTES);
        let request = command.request(&mut scratch).map_err(Error::Refused)?;
        let ticket = self.send_to(shard, &Command::Tree { name, request })?;
        let mut counts = Counts::default();
        // Bounded by the server, which ends every search.
        loop {
            let answer = self.collect(shard, ticket)?;
            let answer = self.accepted(answer)?;
            counts.add(&answer.counts);
            if !take(answer.value.map_or(&[][..], |(from, to)| &self.reply[from..to])) {
                return Err(self.end(Error::Protocol("a part of an object")));
            }
            if !answer.is_followed {
                return Ok((counts, answer.number.max(0) as u64));
            }
        }
    }
}

/// Leaves each object once, in the order of their ids.
pub(super) fn drop_doubles(found: &mut Vec<Object>) {
    found.sort_unstable_by_key(|object| object.word);
    found.dedup_by_key(|object| object.word);
}
