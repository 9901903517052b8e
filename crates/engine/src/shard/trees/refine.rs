//! Refined searches: what a window has found is compared by its geometry, in
//! turns bounded by the bytes of those (C10).

use super::super::Shard;
use super::Named;
use crate::command::{Refined, Reply, TreeRequest, window_predicate};
use remora_arena::Journal;
use remora_geometry::Refine;
use remora_index::rtree::{Cursor, Object, Predicate};
use remora_layout::limits::{
    REFINE_LEAST_BYTES, REFINE_TURN_BYTES, SEARCH_TURN_BYTES, SEARCH_TURN_NODES,
};
use remora_layout::message::Status;
use remora_layout::node::node_bytes;
use remora_layout::object::Verdict;
use remora_layout::pointer::RemotePointer;
use remora_layout::rect::Rect;
use zerocopy::IntoBytes;

/// What a search compares geometries with, and the objects that it has yet to
/// compare.
#[derive(Debug)]
pub(super) struct Refining {
    refine: Refine,
    /// Found in the window, and as of which change of the shard.
    waiting: Vec<(Object, Option<u64>)>,
    /// Whether it was told which objects, and is to tell of each.
    gives_verdicts: bool,
    candidates: u64,
}

impl Refining {
    pub fn new(refine: &[u8], ids: Option<&[u8]>) -> Result<Self, Status> {
        let refine = Refine::from_bytes(refine).map_err(|_| Status::BadGeometry)?;
        let ids_of = |ids: &[u8]| -> Vec<(Object, Option<u64>)> {
            let ids = ids.as_chunks::<8>().0.iter().rev();
            let object =
                |id: &[u8; 8]| Object { rect: Rect::default(), word: u64::from_le_bytes(*id) };
            ids.map(|id| (object(id), None)).collect()
        };
        let waiting = ids.map(ids_of);
        let gives_verdicts = waiting.is_some();
        Ok(Self { refine, waiting: waiting.unwrap_or_default(), gives_verdicts, candidates: 0 })
    }

    pub fn window(&self) -> Rect {
        self.refine.window()
    }

    pub fn predicate(&self) -> Predicate {
        window_predicate(&self.refine)
    }

    pub fn number(&self, nodes: u64) -> i64 {
        let least = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        Refined { nodes: least(nodes), candidates: least(self.candidates) }.to_number()
    }
}

impl<J: Journal> Shard<J> {
    /// One turn of a refined search. Objects are counted, or appended to
    /// `found`. True at its end.
    pub(super) fn refine_turn(
        &self,
        named: &Named,
        cursor: &mut Cursor,
        refining: &mut Refining,
        (found, mut count): (&mut Vec<u8>, Option<&mut u64>),
    ) -> bool {
        let node = node_bytes(named.tree.header().capacity as usize);
        let step = (SEARCH_TURN_BYTES / node).max(1) as u64;
        let (last, before) = (cursor.nodes() + SEARCH_TURN_NODES, found.len());
        let (now, mut compared) = (self.log.last_sequence(), 0);
        let mut ended = refining.gives_verdicts;
        // Bounded: each round compares an object, visits a node, or ends.
        loop {
            while let Some((object, seen)) = refining.waiting.pop() {
                compared += self.compare(named, object, seen == Some(now), refining, found);
                if let Some(count) = &mut count {
                    **count += u64::from(found.len() > before);
                    found.truncate(before);
                }
                if compared >= REFINE_TURN_BYTES || found.len() - before >= SEARCH_TURN_BYTES {
                    return ended && refining.waiting.is_empty();
                }
            }
            if ended || cursor.nodes() >= last {
                return ended;
            }
            let (waiting, restarts) = (&mut refining.waiting, cursor.restarts());
            ended = named.tree.search_some(&self.owner, cursor, step, |object| {
                waiting.push((*object, Some(now)));
            });
            if let Some(count) = &mut count
                && cursor.restarts() != restarts
            {
                // What was counted comes again.
                **count = 0;
            }
        }
    }

    /// Compares one object; gives how many bytes that was. `is_fresh`: nothing
    /// has changed since it was found.
    fn compare(
        &self,
        named: &Named,
        mut object: Object,
        is_fresh: bool,
        refining: &mut Refining,
        found: &mut Vec<u8>,
    ) -> usize {
        if !is_fresh {
            let Some(rect) = named.tree.find(&self.owner, object.word) else {
                return REFINE_LEAST_BYTES;
            };
            object.rect = rect;
        }
        refining.candidates += 1;
        let record = named.records.get(&object.word).copied();
        let carried = record.map(|slot| self.carried_in(slot)).unwrap_or_default();
        let holds = refining.refine.fits(&object.rect, carried.geometry);
        if refining.gives_verdicts {
            let pointer = record.map_or(RemotePointer::NONE, |slot| self.record_pointer(slot));
            found.extend_from_slice(Verdict::new(object, pointer, holds).as_bytes());
        } else if holds {
            found.extend_from_slice(object.as_bytes());
        }
        carried.geometry.len().max(REFINE_LEAST_BYTES)
    }

    /// A refined search to its end, for whoever cannot take it in turns.
    pub(super) fn whole_refine(&mut self, name: &[u8], request: TreeRequest<'_>) -> Reply<'_> {
        let mut found = std::mem::take(&mut self.trees.scratch);
        found.clear();
        let searched = self.begin_search(name, request).and_then(|mut search| {
            while !self.search_turn(&mut search, &mut found)? {}
            Ok((search.number(), search.gives_objects()))
        });
        self.trees.scratch = found;
        match searched {
            Ok((number, gives_objects)) => {
                let value = gives_objects.then_some(&self.trees.scratch[..]);
                Reply { value, ..Reply::number(number) }
            }
            Err(status) => Reply::status(status),
        }
    }
}
