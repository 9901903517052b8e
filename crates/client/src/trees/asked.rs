//! Searches of trees that are asked for.

use super::{Names, OpenTree, Searched};
use crate::api::{Counts, Via};
use crate::error::Error;
use crate::session::Session;
use remora_index::rtree::{Object, Query};
use remora_layout::limits::{MAX_NEAREST, MAX_OBJECT_ID_BYTES};
use remora_layout::node::ENTRY_BYTES;
use remora_layout::object::is_surrogate;
use remora_protocol::Command;
use remora_protocol::message::Status;
use remora_protocol::tree::{FoundObjects, TreeCommand};

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
            let (owner, root) = (tree.shard as u8, tree.root);
            let command = TreeCommand::SearchAt { window, predicate, shard: owner, root };
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
        let is_ordered = matches!(command, TreeCommand::Nearest { .. });
        let mut found = std::mem::take(&mut self.found);
        let mut names = std::mem::take(&mut self.found_names);
        found.clear();
        names.clear();
        // What the parts so far have begun.
        let (mut parts, mut begun) = (0, Vec::new());
        let asked = self.ask_in_parts(shard, name, command, |value| {
            parts += 1;
            if begun.is_empty() {
                begun.extend_from_slice(take_objects(value, &mut found, &mut names));
            } else {
                begun.extend_from_slice(value);
                let left = take_objects(&begun, &mut found, &mut names).len();
                begun.drain(..begun.len() - left);
            }
            begun.len() <= MAX_FOUND_BYTES
        });
        if parts > 1 && !is_ordered {
            // The tree may have changed between two of them.
            drop_doubles(&mut found);
            names.drop_doubles(&mut found);
        }
        (self.found, self.found_names) = (found, names);
        if asked.is_ok() && !begun.is_empty() {
            return Err(self.end(Error::Protocol("a part of an object")));
        }
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
        let request = command.request().map_err(Error::Refused)?;
        let ticket = self.send_to(shard, &Command::Of { key: name, request })?;
        let mut counts = Counts::default();
        // Bounded by the bytes that a search may give.
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

/// Bytes that an object takes at most in what was found.
const MAX_FOUND_BYTES: usize = ENTRY_BYTES + 2 + MAX_OBJECT_ID_BYTES;

/// Takes the whole objects of a part; what is left over belongs to the next one.
fn take_objects<'p>(part: &'p [u8], found: &mut Vec<Object>, names: &mut Names) -> &'p [u8] {
    let mut rest = FoundObjects::of(part);
    while let Some(((object, id), after)) = rest.split() {
        if is_surrogate(object.word) {
            id.with_text(|text| names.insert(object.word, text));
        }
        found.push(object);
        rest = after;
    }
    rest.bytes()
}

/// Leaves each object once, in the order of their ids.
pub(super) fn drop_doubles(found: &mut Vec<Object>) {
    found.sort_unstable_by_key(|object| object.word);
    found.dedup_by_key(|object| object.word);
}
