//! Searching trees: in turns of the shard, or to the end.

use super::super::Shard;
use super::refine::Refining;
use crate::command::{Reply, TreeCommand, TreeRequest};
use remora_arena::Journal;
use remora_index::rtree::Cursor;
use remora_layout::limits::{MAX_NEAREST, SEARCH_TURN_BYTES, SEARCH_TURN_NODES};
use remora_layout::message::Status;
use remora_layout::node::node_bytes;
use zerocopy::IntoBytes;

/// A search that is answered in slices.
#[derive(Debug)]
pub struct TreeSearch {
    name: Box<[u8]>,
    serial: u64,
    cursor: Cursor,
    /// Objects that are counted, not given.
    count: Option<u64>,
    /// What their geometries are compared with.
    refining: Option<Box<Refining>>,
}

impl TreeSearch {
    /// Whether objects may have been given twice: the tree changed meanwhile.
    pub fn may_have_doubles(&self) -> bool {
        self.cursor.restarts() > 0
    }

    /// Whether it gives objects; else it counts them.
    pub fn gives_objects(&self) -> bool {
        self.count.is_none()
    }

    /// The reply's number: objects counted, or nodes visited.
    pub fn number(&self) -> i64 {
        let nodes = self.cursor.nodes();
        match (self.count, &self.refining) {
            (Some(count), _) => count as i64,
            (None, Some(refining)) => refining.number(nodes),
            (None, None) => nodes as i64,
        }
    }
}

impl<J: Journal> Shard<J> {
    pub(super) fn nearest(&mut self, name: &[u8], (x, y): (f64, f64), wanted: usize) -> Reply<'_> {
        if wanted > MAX_NEAREST {
            return Reply::status(Status::TooLarge);
        }
        let Some(named) = self.trees.by_name.get(name) else {
            return Reply::status(Status::NoTree);
        };
        let found = named.tree.nearest(&self.owner, x, y, wanted);
        let scratch = &mut self.trees.scratch;
        scratch.clear();
        scratch.extend_from_slice(found.as_bytes());
        Reply { value: Some(scratch), ..Reply::number(found.len() as i64) }
    }

    /// Begins a search or a count. `NoTree` if there is no tree of that name.
    pub fn begin_search(
        &self,
        name: &[u8],
        request: TreeRequest<'_>,
    ) -> Result<TreeSearch, Status> {
        let (window, predicate, count, refining) = match request.command() {
            TreeCommand::Search { window, predicate } => (window, predicate, None, None),
            TreeCommand::Count { window, predicate } => (window, predicate, Some(0), None),
            TreeCommand::Refine { refine, ids } => {
                let refining = Refining::new(refine, ids)?;
                (refining.window(), refining.predicate(), None, Some(Box::new(refining)))
            }
            TreeCommand::CountRefined { refine } => {
                let refining = Refining::new(refine, None)?;
                (refining.window(), refining.predicate(), Some(0), Some(Box::new(refining)))
            }
            _ => return Err(Status::Malformed),
        };
        let named = self.trees.by_name.get(name).ok_or(Status::NoTree)?;
        let cursor = Cursor::new(window, predicate);
        Ok(TreeSearch { name: name.into(), serial: named.serial, cursor, count, refining })
    }

    /// Goes on with a search for one turn of the shard; appends the objects
    /// that it finds to `found`, 40 bytes each, or verdicts on them. True at
    /// its end.
    ///
    /// # Errors
    /// `NoTree`: the tree has gone meanwhile.
    pub fn search_turn(
        &self,
        search: &mut TreeSearch,
        found: &mut Vec<u8>,
    ) -> Result<bool, Status> {
        let named = self.trees.by_name.get(&search.name).ok_or(Status::NoTree)?;
        if named.serial != search.serial {
            return Err(Status::NoTree);
        }
        let node = node_bytes(named.tree.header().capacity as usize);
        let step = (SEARCH_TURN_BYTES / node).max(1) as u64;
        let last = search.cursor.nodes() + SEARCH_TURN_NODES;
        let TreeSearch { cursor, count, refining, .. } = search;
        if let Some(refining) = refining {
            return Ok(self.refine_turn(named, cursor, refining, (found, count.as_mut())));
        }
        let before = found.len();
        // Bounded: each step visits a node, or ends.
        loop {
            let restarts = cursor.restarts();
            let mut met = 0;
            let ended = named.tree.search_some(&self.owner, cursor, step, |object| match count {
                Some(_) => met += 1,
                None => found.extend_from_slice(object.as_bytes()),
            });
            if let Some(count) = count {
                // Counted anew where the search began again.
                *count = if cursor.restarts() == restarts { *count + met } else { met };
            }
            let is_full = found.len() - before >= SEARCH_TURN_BYTES || cursor.nodes() >= last;
            if ended || is_full {
                return Ok(ended);
            }
        }
    }

    /// A search to its end, for whoever cannot take it in turns.
    pub(super) fn whole_search(&mut self, name: &[u8], command: TreeCommand<'_>) -> Reply<'_> {
        let (window, predicate, counts) = match command {
            TreeCommand::Search { window, predicate } => (window, predicate, false),
            TreeCommand::Count { window, predicate } => (window, predicate, true),
            _ => unreachable!("called for searches"),
        };
        let Some(named) = self.trees.by_name.get(name) else {
            return Reply::status(Status::NoTree);
        };
        let scratch = &mut self.trees.scratch;
        scratch.clear();
        let mut count = 0;
        let nodes = named.tree.search(&self.owner, &window, predicate, |object| {
            count += 1;
            if !counts {
                scratch.extend_from_slice(object.as_bytes());
            }
        });
        if counts {
            return Reply::number(count);
        }
        Reply { value: Some(scratch), ..Reply::number(nodes as i64) }
    }
}
