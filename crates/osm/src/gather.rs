//! What is kept of a file while it is read.

use crate::element::Description;
use crate::nodes::{NODE_BYTES, sort};
use crate::wire::Deltas;
use crate::{Error, Stop};
use std::collections::HashMap;

/// What may be kept of a file while it is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Bytes for nodes (16 each), for relations and their ways.
    pub kept_bytes: usize,
}

/// A relation that becomes an area.
pub struct Relation {
    /// Its id.
    pub id: i64,
    /// Its member ways, and whether each is part of a hole's ring.
    pub ways: Box<[(i64, bool)]>,
    /// Its tags.
    pub tags: Description,
}

/// Bytes beside its lists that a relation or way is counted with.
const ENTRY_BYTES: usize = 64;

/// Relations, the ways that they consist of, and the nodes that are wanted.
pub struct Kept {
    limits: Limits,
    bytes: usize,
    /// In the order of the file.
    pub relations: Vec<Relation>,
    /// The nodes of each way that a relation has; empty until it is seen.
    pub ways: HashMap<i64, Box<[i64]>>,
    /// Nodes that are wanted, some of them several times.
    pub nodes: Vec<i64>,
    /// As many as this are sorted out before it is said that they are too many.
    wait_until_nodes: usize,
}

impl Kept {
    /// Nothing yet.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            bytes: 0,
            relations: Vec::new(),
            ways: HashMap::new(),
            nodes: Vec::new(),
            wait_until_nodes: 0,
        }
    }

    fn count(&mut self, bytes: usize) -> Result<(), Error> {
        self.bytes += bytes;
        if self.bytes > self.limits.kept_bytes {
            return Err(Error::TooMuch(self.limits.kept_bytes));
        }
        Ok(())
    }

    /// Keeps a relation, and wants its ways.
    pub fn relation(&mut self, relation: Relation) -> Result<(), Error> {
        let ways = relation.ways.len();
        self.count(ENTRY_BYTES + relation.tags.json.len() + ways * (16 + ENTRY_BYTES))?;
        for (way, _) in &relation.ways {
            self.ways.entry(*way).or_default();
        }
        self.relations.push(relation);
        Ok(())
    }

    /// Keeps a way if a relation has it, and wants its nodes if so or if the
    /// way itself is an object.
    pub fn way(&mut self, id: i64, mut nodes: Deltas<'_>, is_object: bool) -> Result<(), Stop> {
        let is_member = self.ways.contains_key(&id);
        if !is_member && !is_object {
            return Ok(());
        }
        let from = self.nodes.len();
        while let Some(node) = nodes.next()? {
            self.nodes.push(node);
        }
        if is_member {
            let list: Box<[i64]> = self.nodes[from..].into();
            self.count(8 * list.len())?;
            self.ways.insert(id, list);
        }
        let room = self.limits.kept_bytes.saturating_sub(self.bytes) / NODE_BYTES;
        if self.nodes.len() > room.max(self.wait_until_nodes) {
            sort(&mut self.nodes);
            if self.nodes.len() > room {
                return Err(Error::TooMuch(self.limits.kept_bytes).into());
            }
            // Twice as many, or it would be sorted for each way.
            self.wait_until_nodes = 2 * self.nodes.len();
        }
        Ok(())
    }
}
