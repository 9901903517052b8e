//! Requests about trees, and the results of searches.
//!
//! Invariants: a surrogate says nothing by itself, so a session that read one asks the tree's owner
//! for its id. The search omits an object that has gone meanwhile, or has expired, as it omits one
//! that went during the search. The owner gives no surrogate twice, and an object keeps its own as
//! long as it exists: so the search finds an object that exists all the time. For a search for the
//! nearest, the session asks for the whole search again, because an omitted object would leave too
//! few. That holds within one tree. Since the walk the key may have got another tree, by RENAME or
//! after a DEL, which knows none of the surrogates and may have the same objects. So a request
//! about objects that were read names the tree that was read, and if that tree has gone the session
//! asks for the whole search.

use super::names::Names;
use super::view::OpenTree;
use crate::admission::Admission;
use crate::asker::Answer;
use crate::core::Core;
use crate::counts::Counts;
use crate::error::Error;
use crate::path::ServedBy;
use remora_index::rtree::{Object, Query};
use remora_layout::limits::{MAX_NEAREST, MAX_OBJECT_ID_BYTES, MAX_RESOLVE_WORDS};
use remora_layout::node::ENTRY_BYTES;
use remora_layout::object::is_surrogate;
use remora_layout::tree::{RootPlace, TreeInfo};
use remora_protocol::message::Status;
use remora_protocol::tree::{FoundObjects, ReadObjects, TreeCommand};
use remora_protocol::{Command, Items};
use std::sync::Arc;

/// Searches trees, and keeps what the last search found.
pub(crate) struct TreeSearcher {
    /// Admits walks by READs.
    pub(super) admission: Option<Arc<Admission>>,
    /// What the last search found.
    pub(super) found: Vec<Object>,
    /// The ids of the objects whose words are surrogates.
    pub(super) names: Names,
}

/// How a search was done whose objects are in `TreeSearcher::found`.
pub(super) struct Searched {
    pub served_by: ServedBy,
    pub counts: Counts,
    pub nodes_visited: u64,
}

/// The result of asking for ids.
pub(super) struct Resolved {
    /// Objects that were asked about.
    pub asked: usize,
    /// Those of them that have gone.
    pub gone: usize,
}

impl TreeSearcher {
    /// Nothing is found yet.
    pub fn new(admission: Option<Arc<Admission>>) -> Self {
        Self { admission, found: Vec::new(), names: Names::default() }
    }

    /// Sends one request about a tree.
    pub(super) fn ask_tree(
        &mut self,
        core: &mut Core,
        name: &[u8],
        command: TreeCommand<'_>,
    ) -> Result<Answer, Error> {
        let request = command.checked().map(TreeCommand::request).map_err(Error::Refused)?;
        core.ask(&Command::Of { key: name, request })
    }

    /// What is in a tree; `None` if there is none of that name.
    pub(crate) fn tree_info(
        &mut self,
        core: &mut Core,
        name: &[u8],
    ) -> Result<Option<TreeInfo>, Error> {
        let answer = match self.ask_tree(core, name, TreeCommand::Info) {
            Err(Error::Refused(Status::NoTree)) => return Ok(None),
            answer => answer?,
        };
        let value = answer.value.map_or(&[][..], |(from, to)| core.in_reply((from, to)));
        let (words, _) = value.as_chunks::<8>();
        let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        match TreeInfo::from_words(&words) {
            Some(info) => Ok(Some(info)),
            None => Err(core.asker.endpoint.end(Error::Protocol("a tree that cannot be"))),
        }
    }

    /// Where a tree of this name lies.
    pub(super) fn root_of(
        &mut self,
        core: &mut Core,
        name: &[u8],
        info: &TreeInfo,
    ) -> Result<RootPlace, Error> {
        let root = RootPlace::of(info.at, name.len());
        root.ok_or_else(|| core.asker.endpoint.end(Error::Protocol("a tree that cannot be")))
    }

    /// Asks, after reading has cost `wasted`.
    pub(super) fn search_asked(
        &mut self,
        core: &mut Core,
        tree: &OpenTree,
        query: &Query,
        wasted: Counts,
    ) -> Result<Searched, Error> {
        let served_by = ServedBy::asked_after(wasted.round_trips);
        core.meter.add(&wasted);
        let (mut counts, nodes_visited) = self.ask_search(core, tree, query)?;
        counts.add(&wasted);
        Ok(Searched { served_by, counts, nodes_visited })
    }

    /// Asks for a search; its objects are in `self.found` then. Sessions distribute themselves over
    /// the server's threads: any thread can read a tree, and one that cannot conclude replies that
    /// the session has to ask the owner.
    fn ask_search(
        &mut self,
        core: &mut Core,
        tree: &OpenTree,
        query: &Query,
    ) -> Result<(Counts, u64), Error> {
        let shard =
            (tree.shard + core.asker.endpoint.number as usize) % core.directory.shards.len();
        let mut wasted = Counts::default();
        if let Query::Window { window, predicate } = *query
            && shard != tree.shard
            && !core.router.asks_only
            && core.asker.may_read(tree.shard)
        {
            let (owner, root) = (tree.shard as u8, tree.root);
            let command = TreeCommand::SearchAt { window, predicate, shard: owner, root };
            let before = core.meter;
            match self.ask_search_of(core, shard, &[], command) {
                Err(Error::Refused(Status::AskOwner)) => {
                    let tried = core.meter.since(&before);
                    wasted = Counts { operations: 0, asked: 0, ..tried };
                    core.meter = before;
                    core.meter.add(&wasted);
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
        let (mut counts, nodes) = self.ask_search_of(core, tree.shard, &tree.name, command)?;
        counts.add(&wasted);
        Ok((counts, nodes))
    }

    /// Asks a shard for a search.
    pub(super) fn ask_search_of(
        &mut self,
        core: &mut Core,
        shard: usize,
        name: &[u8],
        command: TreeCommand<'_>,
    ) -> Result<(Counts, u64), Error> {
        let is_ordered = matches!(command, TreeCommand::Nearest { .. });
        let mut found = std::mem::take(&mut self.found);
        let mut names = std::mem::take(&mut self.names);
        found.clear();
        names.clear();
        // What the parts so far have begun.
        let (mut parts, mut begun) = (0, Vec::new());
        let asked = self.ask_in_parts(core, shard, name, command, |value| {
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
        (self.found, self.names) = (found, names);
        if asked.is_ok() && !begun.is_empty() {
            return Err(core.asker.endpoint.end(Error::Protocol("a part of an object")));
        }
        asked
    }

    /// Asks a shard for a result that it sends in parts; hands over their values. False from `take`
    /// ends the session. Returns the last one's number.
    pub(super) fn ask_in_parts(
        &mut self,
        core: &mut Core,
        shard: usize,
        name: &[u8],
        command: TreeCommand<'_>,
        mut take: impl FnMut(&[u8]) -> bool,
    ) -> Result<(Counts, u64), Error> {
        let request = command.checked().map(TreeCommand::request).map_err(Error::Refused)?;
        let whole = |part: &[u8]| match take(part) {
            true => Ok(()),
            false => Err(Error::Protocol("a part of an object")),
        };
        let answer = core.ask_in_parts(shard, name, request, whole)?;
        Ok((answer.counts, answer.number.max(0) as u64))
    }

    /// Asks for the ids of those objects in `self.found` whose words are surrogates; removes
    /// objects that have gone. `None` if the tree has gone: ask for the whole search.
    pub(super) fn resolve_found(
        &mut self,
        core: &mut Core,
        tree: &OpenTree,
        cost: &mut Counts,
    ) -> Result<Option<Resolved>, Error> {
        self.names.clear();
        let surrogates = self.found.iter().map(|object| object.word).filter(|w| is_surrogate(*w));
        let words: Vec<u64> = surrogates.collect();
        if words.is_empty() {
            return Ok(Some(Resolved { asked: 0, gone: 0 }));
        }
        let mut names = std::mem::take(&mut self.names);
        let resolved = self.ask_names(core, tree, &words, &mut names, cost);
        self.names = names;
        match resolved {
            Err(Error::Refused(Status::NoTree)) => return Ok(None),
            resolved => resolved?,
        }
        let Self { found, names, .. } = self;
        let before = found.len();
        found.retain(|object| !is_surrogate(object.word) || names.knows(object.word));
        let gone = before - found.len();
        names.drop_doubles(found);
        Ok(Some(Resolved { asked: words.len(), gone }))
    }

    fn ask_names(
        &mut self,
        core: &mut Core,
        tree: &OpenTree,
        words: &[u64],
        names: &mut Names,
        cost: &mut Counts,
    ) -> Result<(), Error> {
        for words in words.chunks(MAX_RESOLVE_WORDS) {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            let (before, mut list) = (core.meter, Vec::new());
            let resolve = TreeCommand::Resolve(ReadObjects { tree: tree.root.at, words: &bytes });
            let asked = self.ask_in_parts(core, tree.shard, &tree.name, resolve, |part| {
                list.extend_from_slice(part);
                true
            });
            let spent = core.meter.since(&before);
            core.meter = before;
            cost.round_trips += spent.round_trips;
            cost.bytes += spent.bytes;
            asked?;
            let items = Items::parse(&list).filter(|items| items.iter().count() == words.len());
            let Some(items) = items else {
                return Err(core.asker.endpoint.end(Error::Protocol("ids that cannot be")));
            };
            for (word, text) in words.iter().zip(items.iter()) {
                if let Some(text) = text {
                    names.insert(*word, text);
                }
            }
        }
        Ok(())
    }
}

/// Bytes that an object takes at most in what was found.
const MAX_FOUND_BYTES: usize = ENTRY_BYTES + 2 + MAX_OBJECT_ID_BYTES;

/// Takes the whole objects of a part; the rest belongs to the next part.
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

/// Keeps each object once, in the order of their ids.
pub(super) fn drop_doubles(found: &mut Vec<Object>) {
    found.sort_unstable_by_key(|object| object.word);
    found.dedup_by_key(|object| object.word);
}
